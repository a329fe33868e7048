"""How the command line presents itself: the list of commands, and a word of help where one was misspelt."""

import sys
from collections.abc import Iterator
from typing import NoReturn

from quire.cli.commands import GROUPS, ROWS
from quire.cli.paint import Paint

_TITLE = "quire: an agent's memory as a book of pages under a token budget."
_USAGE = "usage: quire COMMAND [ARGUMENTS]"
_END = (
    "Most commands take a store and --context NAME; every command has --json, and --help with examples.",
    "Begin with: quire demo",
)


def overview(paint: Paint) -> Iterator[str]:
    """The lines of the help: every command with what it does."""
    yield _TITLE
    yield ""
    yield f"{_USAGE}   (or --version)"
    widest = max(map(len, ROWS))
    for title, rows in GROUPS:
        yield ""
        yield paint.bold(f"{title}:")
        for row in rows:
            yield f"  {paint.cyan(row.name)}{' ' * (widest - len(row.name))}  {row.summary}"
    yield ""
    yield from _END


def refuse(word: str) -> NoReturn:
    """End with what is wrong with a word that is no command, and what was perhaps meant."""
    from difflib import get_close_matches

    from quire.storage.urls import masked

    near = get_close_matches(word, ROWS, n=3, cutoff=0.5)
    word = masked(word)  # somebody may have left the command out
    print(_USAGE, file=sys.stderr)
    if word.startswith("-"):
        print(f"quire: {word!r} is no option here; options follow the command.", file=sys.stderr)
    elif near:
        print(f"quire: no command {word!r}. Did you mean {_listed(near)}?", file=sys.stderr)
    else:
        print(f"quire: no command {word!r}. Commands: {', '.join(ROWS)}.", file=sys.stderr)
    raise SystemExit(2)


def _listed(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
