"""Whole contexts: making one, listing them, branching off."""

import argparse

import quire
from quire.cli.command import Command
from quire.cli.opening import add_context, add_where, known, library_at, named
from quire.cli.out import Out
from quire.cli.progress import Progress
from quire.cli.speech import spoken
from quire.cli.values import Values
from quire.errors import QuireError
from quire.storage.urls import masked


def _add_new(parser: argparse.ArgumentParser) -> None:
    add_context(parser, what="the name of the new context (default: 'default')")
    parser.add_argument("--system", metavar="TEXT", help="its system prompt")


def _new(options: argparse.Namespace, out: Out) -> None:
    name = named(options)
    with library_at(options.where, create=True) as library:
        context = library.create(name)
        if options.system is not None:
            context.system(options.system)
        if out.json:
            out.value({"name": name, "seq": context.seq})
        else:
            out.line(f"made context {out.paint.cyan(name)} in {masked(options.where)}")


def _add_ls(parser: argparse.ArgumentParser) -> None:
    add_where(parser)
    parser.add_argument("--prefix", default="", metavar="TEXT", help="only names that begin so")
    parser.add_argument(
        "-l", "--long", action="store_true", help="count pages, tokens and bytes too, which reads every page"
    )


def _ls(options: argparse.Namespace, out: Out) -> None:
    rows = []
    with library_at(options.where) as library, Progress("Counting") as progress:
        for number, name in enumerate(library.list(prefix=options.prefix)):
            progress.at(number, name)
            values = _values(library, name, long=options.long)
            if out.json:
                out.value(values)
            else:
                rows.append(values)
    if not out.json:
        _print(rows, out, long=options.long)


def _values(library: quire.Library, name: str, *, long: bool) -> Values:
    """What is told of a context. One that cannot be read hides none of the others."""
    try:
        info = library.info(name)
        values: Values = {"name": name, "seq": info.seq, "messages": info.messages}
        values |= {"created": info.created_at, "updated": info.updated_at, "finished": info.finished}
        if long and info.finished:
            usage = library.usage(name)
            values |= {"pages": usage.pages, "tokens": usage.tokens, "bytes": usage.bytes}
    except QuireError as error:
        return {"name": name, "problem": spoken(str(error))}
    return values


_COUNTED = ("pages", "tokens", "bytes")


def _print(found: list[Values], out: Out, *, long: bool) -> None:
    if not found:
        out.line("no contexts")
        return
    counted = ("messages", "seq", *(_COUNTED if long else ()))
    head = ("context", *("entries" if name == "seq" else name for name in counted), "last change (UTC)")
    rows = [(values["name"], *(_number(values.get(name)) for name in counted), _state(values)) for values in found]
    out.table(head, rows, right=range(1, len(head) - 1))


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _state(values: Values) -> str:
    if "problem" in values:
        return f"{values['problem']}"
    return f"{values['updated']:%Y-%m-%d %H:%M}" if values["finished"] else "an unfinished copy: migrate again"


def _add_fork(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("name", metavar="NEW", help="the name of the new context")
    parser.add_argument("--at", metavar="POINT", help="a checkpoint's name or an entry's seq (default: as it is now)")


def _fork(options: argparse.Namespace, out: Out) -> None:
    at = moment_of(options.at) if options.at is not None else None
    with library_at(options.where) as library:
        source = known(library, options)
        library.fork(source, options.name, at)
        seq = library.open(options.name, create=False).seq
    if out.json:
        out.value({"name": options.name, "of": source, "at": at, "seq": seq})
    else:
        out.line(f"made context {out.paint.cyan(options.name)} of {source}" + (f" at {at}" if at is not None else ""))


def moment_of(text: str) -> str | int:
    """What an argument says of a point in history: a seq where it is a number, else a checkpoint's name."""
    return int(text) if text.isascii() and text.isdigit() else text


COMMANDS = {
    "new": Command(
        _new,
        _add_new,
        ("quire new agent.db", "quire new agent.db --context support-42 --system 'You are a careful travel agent.'"),
    ),
    "ls": Command(
        _ls,
        _add_ls,
        ("quire ls agent.db", "quire ls agent.db --long --prefix support-", "quire ls agent.db --json | jq -r .name"),
    ),
    "fork": Command(
        _fork,
        _add_fork,
        ("quire fork agent.db what-if", "quire fork agent.db before-the-mess --context support-42 --at 120"),
    ),
}
