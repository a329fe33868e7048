"""The paper that charts are drawn on: elements, colours for light and dark, and a frame that tells what it shows."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from quire.cli.width import width

WIDTH = 760
COLOURS = 8
"""How many colours there are; the first is for what is emphasised."""
_LIGHT = ("0b62d0", "c2410c", "0f766e", "9a6700", "8b3fa0", "5b6b2b", "b0305c", "59636e")
_DARK = ("6cb6ff", "ff9e64", "4fd1c5", "e3b341", "d2a8ff", "b5cc6a", "ff8fab", "a8b3be")
_COLUMN = 0.545
"""The width of a column of text, as a share of the font's size."""
_FONTS = (
    "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','Noto Sans','PingFang SC','Hiragino Sans GB',"
    "'Microsoft YaHei','Noto Sans CJK SC','WenQuanYi Micro Hei',sans-serif"
)


_NO_CHARACTER = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")


class Panel(NamedTuple):
    """One chart, not yet a document: what it shows in words, how high it is, and its elements."""

    title: str
    description: str
    height: float
    body: str


def stacked(panels: Sequence[Panel]) -> str:
    """A document of charts, one below the other."""
    title = escaped("; ".join(panel.title for panel in panels))
    description = escaped(" ".join(panel.description for panel in panels))
    height = sum(panel.height for panel in panels)
    name = f"chart-{crc32(f'{title}{description}'.encode()):08x}"
    parts, top = [], 0.0
    for panel in panels:
        parts.append(f'<g transform="translate(0 {number(top)})">{panel.body}</g>')
        top += panel.height
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{name}" role="img" aria-labelledby="{name}-title {name}-desc"'
        f' viewBox="0 0 {WIDTH} {number(height)}" width="{WIDTH}" height="{number(height)}">\n'
        f'<title id="{name}-title">{title}</title>\n<desc id="{name}-desc">{description}</desc>\n'
        f"<style>{_style(name)}</style>\n"
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{number(height - 1)}" rx="8"/>\n'
        f"{body}\n</svg>\n"
    )


def noted(panel: Panel, words: str) -> Panel:
    """A chart with a line of words below it."""
    note = text(words, 20, panel.height + 8, "dim")
    return Panel(panel.title, f"{panel.description} {words}", panel.height + 26, f"{panel.body}\n{note}")


def element(name: str, inner: str = "", **attributes: float | str) -> str:
    """One element; `class_` is its class, and `_` in a name is `-`."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(value) if isinstance(value, int | float) else escaped(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{pairs}>{inner}</{name}>" if inner else f"<{name}{pairs}/>"


def text(words: str, x: float, y: float, class_: str, more: str = "") -> str:
    """Words at a place; `more` are elements after them."""
    return element("text", f"{escaped(words)}{more}", x=x, y=y, class_=class_)


def escaped(words: str) -> str:
    """Words as XML takes them: what it has no character for is shown as a question mark."""
    legal = _NO_CHARACTER.sub("?", words)
    return legal.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def number(value: float) -> str:
    """A number of pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def measure(words: str, size: float) -> float:
    """About how many pixels words take at a font's size."""
    return width(words) * size * _COLUMN


def sentence(parts: Iterable[str]) -> str:
    """Parts as one sentence."""
    return f"{'; '.join(parts)}."


def _style(name: str) -> str:
    rules = (
        f"text{{font:12px {_FONTS};font-variant-numeric:tabular-nums;fill:var(--ink)}}",
        "text.title{font-size:16px;font-weight:650}",
        "text.dim,tspan.dim{fill:var(--dim);font-weight:400}",
        "text.strong{font-weight:700}",
        "text.end{text-anchor:end}",
        "text.middle{text-anchor:middle}",
        ".paper{fill:var(--paper);stroke:var(--edge)}",
        ".grid{stroke:var(--grid)}",
        ".base{stroke:var(--dim)}",
        ".line{fill:none;stroke-linejoin:round;stroke-linecap:round}",
        ".dot{stroke:var(--paper);stroke-width:1}",
        ".quiet{fill:var(--bar)}",
        *(f".c{n}{{stroke:var(--c{n})}}.f{n}{{fill:var(--c{n})}}" for n in range(COLOURS)),
    )
    light = _variables("ffffff", "d8dee4", "e7ebef", "1f2328", "59636e", "aab4c0", _LIGHT)
    dark = _variables("0d1117", "30363d", "21262d", "e6edf3", "9aa4ae", "4d5866", _DARK)
    inside = "".join(f".{name} {rule}" if rule[0] != "." else _inside(name, rule) for rule in rules)
    return f".{name}{{{light}}}@media(prefers-color-scheme:dark){{.{name}{{{dark}}}}}{inside}"


def _inside(name: str, rules: str) -> str:
    return "".join(f".{name} {rule}}}" for rule in rules.split("}") if rule)


def _variables(paper: str, edge: str, grid: str, ink: str, dim: str, bar: str, colours: Sequence[str]) -> str:
    named = {"paper": paper, "edge": edge, "grid": grid, "ink": ink, "dim": dim, "bar": bar}
    named |= {f"c{n}": colour for n, colour in enumerate(colours)}
    return ";".join(f"--{key}:#{value}" for key, value in named.items())
