"""One line for a page that is not shown whole: its index, its size, its name and its summary, in few tokens."""

from quire.records import page_line

__all__ = ["FOLDED", "block_head", "page_line"]

FOLDED = "Folded earlier"


def block_head(key: str, title: str) -> str:
    """The first line of a block of ours, with the context's key, which nothing else in the context knows."""
    return f"[{key}] {title}:\n"
