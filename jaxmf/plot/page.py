"""The style of the report's page, and figures as pictures inside it."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING

from jaxmf.plot.style import png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NARROW = 430  # pixels of a picture that a phone shows whole
STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --muted: #5b6875; --line: #e4e7eb;
        --accent: #2f6db5; --paper: #ffffff; --ground: #f5f7fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --muted: #a9b4c0; --line: #39424d;
        --accent: #7fb0dd; --paper: #1d2329; --ground: #14181c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); overflow-wrap: anywhere;
       font: 16px/1.55 -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 40px 24px 64px; }
header p { color: var(--muted); margin: 4px 0 0; }
h1 { font-size: 30px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 0 0 4px; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
          padding: 22px 26px; margin-top: 20px; }
section > p { color: var(--muted); margin: 0 0 14px; font-size: 14.5px; max-width: 72ch; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 14px;
         margin-top: 24px; }
.tile { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
        padding: 14px 18px; }
.tile b { display: block; font-size: 25px; font-weight: 600; letter-spacing: -0.01em;
          color: var(--accent); font-variant-numeric: tabular-nums; }
.tile span { color: var(--muted); font-size: 13.5px; line-height: 1.35; display: block; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(380px, 100%), 1fr));
        gap: 20px; }
.pair section { margin-top: 20px; }
img { max-width: 100%; height: auto; display: block; margin: 0 auto; background: white;
      border-radius: 4px; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--line);
         font-variant-numeric: tabular-nums; }
th:first-child { text-align: left; }
thead th { color: var(--muted); font-weight: 500; font-size: 13px; }
tbody th { font-weight: 500; }
.facts th, .facts td { text-align: left; vertical-align: top; }
.facts th { width: 170px; color: var(--muted); }
.topics th { width: auto; }
.topics td:not(:last-child) { white-space: nowrap; }
.scroll { overflow-x: auto; }
.scroll table { overflow-wrap: normal; }
footer { color: var(--muted); font-size: 13px; margin-top: 28px; }
@media (max-width: 600px) {
  main { padding: 24px 12px 40px; }
  section { padding: 16px; }
  th, td { padding: 6px; }
  th:first-child, td:first-child { padding-left: 0; }
  .facts th { width: auto; }
  .run th, .run td { display: block; padding: 4px 0; }
  .run th { border: none; padding-bottom: 0; }
}
@media print { body { background: white; } section, .tile { break-inside: avoid; } }
"""


def picture(figure: Figure, described: str) -> str:
    """A figure with a text that says what is seen; on a phone, wide ones scroll in their frame."""
    encoded = base64.b64encode(png(figure)).decode()
    # Drawn at 150 dots an inch for sharp screens, shown at 96.
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    narrowest = round((0.7 if width <= _NARROW else 0.9) * width)
    return (
        f'<div class="scroll"><img alt="{html.escape(described)}" width="{width}" '
        f'height="{height}" src="data:image/png;base64,{encoded}" '
        f'style="min-width: {narrowest}px"></div>'
    )
