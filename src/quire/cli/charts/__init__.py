"""Charts as SVG, drawn by hand: self-contained, for light and dark, with every line and bar named where it is."""

from quire.cli.charts.bars import Bar, bar_chart, draw_bars
from quire.cli.charts.lines import Line, draw_lines, line_chart
from quire.cli.charts.scale import Axis
from quire.cli.charts.svg import Panel, noted, stacked

__all__ = ["Axis", "Bar", "Line", "Panel", "bar_chart", "draw_bars", "draw_lines", "line_chart", "noted", "stacked"]
