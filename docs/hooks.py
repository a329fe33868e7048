"""Hooks of the mkdocs build: add the framework pages to the navigation, and adapt links that leave the site."""

import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+((?:examples|bench|tests|src)/[^)#]+|[A-Z][\w.-]*)\)")


def frameworks() -> list[dict[str, str]]:
    """Return the framework pages by heading."""
    pages = [_HERE / "mcp.md", *sorted(_HERE.glob("adapters/*.md"))]
    return [{_heading(page): page.relative_to(_HERE).as_posix()} for page in pages]


def on_config(config: MutableMapping[str, Any]) -> None:
    """Fill the empty navigation entry `Frameworks`."""
    _fill(config["nav"])


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace links to repository files outside the site by the file names."""
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)


def _fill(entries: list[Any]) -> None:
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        for title, inner in entry.items():
            if title == "Frameworks":
                inner[:] = frameworks()
            elif isinstance(inner, list):
                _fill(inner)


def _heading(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").replace("`", "")
