"""What a check found: comparisons with p-values, and their verdict."""

from __future__ import annotations

from dataclasses import dataclass

SUITE_FALSE_ALARM_RATE = 1e-4
MAX_CHECKS = 200
LEVEL = SUITE_FALSE_ALARM_RATE / MAX_CHECKS


@dataclass(frozen=True)
class Comparison:
    """One statistic: what was expected and found, and how surprising that is.

    Attributes:
        name: the statistic.
        test: which test.
        expected: expected mean.
        found: mean found.
        standard_error: of the difference of the two.
        p_value: two-sided.
    """

    name: str
    test: str
    expected: float
    found: float
    standard_error: float
    p_value: float

    def __str__(self) -> str:
        return (
            f"{self.name:<28} {self.test:<12} expected {self.expected:>11.5g}  "
            f"found {self.found:>11.5g}  standard error {self.standard_error:>9.2g}  "
            f"p {self.p_value:.2g}"
        )


@dataclass(frozen=True)
class Report:
    """All comparisons of one check; `str` is a readable table.

    Attributes:
        title: what was checked.
        comparisons: one for each statistic and test.
        level: false-alarm probability of the whole check.
    """

    title: str
    comparisons: tuple[Comparison, ...]
    level: float = LEVEL

    @property
    def threshold(self) -> float:
        """The p-value below which one comparison fails (Bonferroni)."""
        return self.level / max(len(self.comparisons), 1)

    @property
    def failures(self) -> tuple[Comparison, ...]:
        """The comparisons that failed, the worst first."""
        # `not >=`, so that a p-value that is not a number fails.
        failed = [one for one in self.comparisons if not one.p_value >= self.threshold]
        return tuple(sorted(failed, key=lambda one: one.p_value))

    @property
    def passed(self) -> bool:
        """Whether no comparison failed."""
        return not self.failures

    @property
    def max_standard_error(self) -> float:
        """The largest standard error among the comparisons."""
        return max((one.standard_error for one in self.comparisons), default=0.0)

    def __str__(self) -> str:
        verdict = "passed" if self.passed else f"{len(self.failures)} FAILED"
        head = (
            f"{self.title}: {len(self.comparisons)} comparisons, {verdict} "
            f"(p below {self.threshold:.1g} fails)"
        )
        worst = {id(one) for one in self.failures}
        lines = [
            f"  {'FAILED ' if id(one) in worst else '       '}{one}" for one in self.comparisons
        ]
        return "\n".join([head, *lines])

    def require(self) -> Report:
        """The report itself if it passed.

        Raises:
            AssertionError: with the report as its message, if a comparison failed.
        """
        if not self.passed:
            raise AssertionError(str(self))
        return self
