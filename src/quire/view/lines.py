"""One line for a page that is not shown whole: its index, its size, its name and its summary, in few tokens."""

from quire.pages import PageIndex
from quire.records import Header

FOLDED = "Folded earlier"


def page_line(index: PageIndex, header: Header) -> str:
    """The line of a hidden page or a folded chapter, with its line break: such lines have counts that add up."""
    summary = f": {header.description}" if header.description else ""
    return f"[{index} {header.tokens}] {header.name}{summary}\n"


def block_head(key: str, title: str) -> str:
    """The first line of a block of ours, with the context's key, which nothing else in the context knows."""
    return f"[{key}] {title}:\n"
