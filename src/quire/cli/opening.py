"""The store and the context that a command is about: how they are named, and how they are opened."""

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager

import quire
from quire.storage.base import no_such_context
from quire.storage.urls import masked

WHERE = "a store: a path (SQLite), sqlite:FILE, file:DIR, postgresql://… or s3://BUCKET/PREFIX"
_DEFAULT = "default"
_SHORT = re.compile(r"(\d+(?:\.\d+)?)([km])", re.ASCII | re.IGNORECASE)
_SIZES = {"k": 1_000, "m": 1_000_000}


def add_where(parser: argparse.ArgumentParser) -> None:
    """The argument that names the store."""
    parser.add_argument("where", metavar="WHERE", help=WHERE)


def add_context(parser: argparse.ArgumentParser, *, what: str = "") -> None:
    """The arguments that name the store and a context in it."""
    add_where(parser)
    words = what or "the context (default: 'default', or the only one that is there)"
    parser.add_argument("-c", "--context", metavar="NAME", help=words)


def add_budget(parser: argparse.ArgumentParser, default: int | None = None) -> None:
    """The option that sets the budget of a view."""
    from quire.view.options import DEFAULT_BUDGET

    parser.add_argument(
        "-b",
        "--budget",
        type=tokens,
        metavar="TOKENS",
        default=DEFAULT_BUDGET if default is None else default,
        help="what the view may take (default: %(default)s)",
    )


def tokens(text: str) -> int:
    """A number of tokens as it is typed: 8000, 8_000, 8k, 0.5M. Raises what `argparse` tells."""
    short = _SHORT.fullmatch(text.strip())
    try:
        return round(float(short[1]) * _SIZES[short[2].lower()]) if short else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens, such as 8000 or 8k") from None


@contextmanager
def library_at(where: str, *, create: bool = False) -> Iterator[quire.Library]:
    """A store, opened for a command; one that is not there is an error unless it may be made."""
    with quire.Library(where, create=create) as library:
        yield library


@contextmanager
def context_of(options: argparse.Namespace, *, budget: int | None = None) -> Iterator[quire.Context]:
    """The context that a command is about. Raises `NoSuchContext`."""
    with library_at(options.where) as library:
        name = known(library, options)
        chosen: quire.context.Options = {} if budget is None else {"budget": budget}
        context = library.open(name, create=False, **chosen)
        with context:
            yield context


def known(library: quire.Library, options: argparse.Namespace) -> str:
    """The name of the context that a command is about, which is there. Raises `NoSuchContext`."""
    name: str = options.context or _chosen(library)
    if not library.exists(name):
        raise no_such_context(library.storage, name, repr(masked(options.where)))
    return name


def named(options: argparse.Namespace) -> str:
    """The name of a context that may be new."""
    name: str = options.context or _DEFAULT
    return name


def _chosen(library: quire.Library) -> str:
    """The context that is meant where none is named: the usual one, or the only one."""
    names = _first_names(library)
    return names[0] if len(names) == 1 else _DEFAULT


def _first_names(library: quire.Library) -> list[str]:
    return [name for _, name in zip(range(2), library.list(), strict=False)]
