"""The parts of the page: what a template of the same name is filled with."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from jaxmf.report.svg import inline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.figure import Figure

_NARROW = 430  # pixels of a picture that a phone shows whole
_WIDE = 850  # pixels that every picture fits into where the screen is wide
_LONG = 24  # characters of a cell that has its line on a phone


@cache
def templates() -> jinja2.Environment:
    """The templates of the page; what is filled in is escaped, parts and `Markup` apart."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("jaxmf.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


class PagePart:
    """HTML of the template that has the name of the class, filled with its fields."""

    def __html__(self) -> Markup:
        name = f"{type(self).__name__.lower()}.html"
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return Markup(templates().get_template(name).render(values, part=self))

    def __str__(self) -> str:
        return str(self.__html__())


@dataclass(frozen=True)
class Section(PagePart):
    """A part of the page with a heading, what is to be known of it, and its content."""

    title: str
    words: str
    content: Sequence[object]


@dataclass(frozen=True)
class Row(PagePart):
    """A row of the data by its id: what it has, and a table."""

    name: str
    words: str
    table: Table


@dataclass(frozen=True)
class Table(PagePart):
    """A table in its frame; readers with scripts may sort it by a column and filter its lines."""

    heading: Sequence[object]  # of every column
    lines: Sequence[Sequence[object]]  # a cell for each; the first is the heading of its line
    kind: str = ""  # "left" for columns of texts; on a phone long ones have lines to themselves

    @property
    def is_long(self) -> list[bool]:
        """Which columns have cells that are long texts."""
        columns = zip(self.heading, *self.lines, strict=True)
        return [
            self.kind == "left" and max(len(str(x)) for x in cells) > _LONG for cells in columns
        ]


@dataclass(frozen=True)
class Interval(PagePart):
    """An interval and a point in it as a drawing between two ends, with a text that says them."""

    bounds: Iterable[float]  # lower end, point and upper end
    ends: tuple[float, float]
    kind: str

    @property
    def label(self) -> str:
        """The point and the bounds as a text."""
        low, middle, high = map(short, self.bounds)
        return f"{middle}, {self.kind}: {low} to {high}"

    @property
    def x(self) -> list[float]:
        """Where on the drawing the bounds are."""
        width = (self.ends[1] - self.ends[0]) or 1.0
        return [5 + 120 * (value - self.ends[0]) / width for value in self.bounds]


@dataclass(frozen=True)
class Picture(PagePart):
    """A figure with a text that says what is seen; on a phone, wide ones scroll in their frame."""

    figure: Figure
    described: str

    @property
    def narrowest(self) -> int:
        """Pixels below which it is not drawn."""
        width = self.width
        return min(round((0.7 if width <= _NARROW else 0.9) * width), _WIDE)

    @property
    def width(self) -> int:
        """In pixels, of which an inch has 96."""
        return round(96 * self.figure.get_figwidth())

    @property
    def drawing(self) -> Markup:
        """The figure as SVG."""
        return Markup(inline(self.figure))


@dataclass(frozen=True)
class TopicMap(PagePart):
    """A still picture, and what the script of the page draws instead of it."""

    still: Picture
    values: dict[str, object]

    @property
    def json(self) -> Markup:
        """The values, for an element that browsers do not show."""
        text = json.dumps(self.values, separators=(",", ":"))
        return Markup(text.replace("<", "\\u003c"))


@dataclass(frozen=True)
class RunFacts(PagePart):
    """Settings and versions with which a run can be repeated, by name."""

    facts: Mapping[str, object]


@dataclass(frozen=True)
class Tiles(PagePart):
    """The numbers that a reader looks for first: (value, what it is)."""

    tiles: Sequence[tuple[str, str]]


def short(value: float) -> str:
    """Three digits, or all before the point, without an exponent for large values."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
