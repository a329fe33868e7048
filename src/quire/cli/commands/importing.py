"""Taking conversations in from files."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

import quire
from quire import Message
from quire.cli.command import Command
from quire.cli.histories import Conversation, History, Kind, kind_of, read_history
from quire.cli.opening import add_context, library_at, named
from quire.cli.out import Out
from quire.cli.progress import Progress
from quire.cli.words import counted
from quire.conversation import ImportReport
from quire.errors import InvalidValue, QuireError
from quire.storage.urls import masked

_EVERY = "all"
_MOST_FINDINGS = 10
_MEANT = 2
"""So many messages beside the prompt are not the same by chance: two conversations may begin with one greeting."""


def _add(parser: argparse.ArgumentParser) -> None:
    add_context(parser, what="the context to import into, made if it is new (default: 'default')")
    parser.add_argument("file", metavar="FILE", help="JSON or JSON Lines, gzipped or not; - is standard input")
    add_conversation(
        parser, "one of the conversations in the file, from 1; 'all': each into a context NAME-1, NAME-2, …"
    )
    parser.add_argument("--dry-run", action="store_true", help="read and report, and keep nothing")


def add_conversation(parser: argparse.ArgumentParser, words: str) -> None:
    """The option that chooses among the conversations of a file."""
    parser.add_argument("--conversation", metavar="N", help=words)


def number_of(text: str | None, instead: str = "") -> int | None:
    """The number of a conversation. Raises `InvalidValue`, which says what else could have been asked for."""
    if text is not None and not (text.isascii() and text.isdigit()):
        raise InvalidValue(f"conversation is {text!r}; a number from 1{instead} is needed.")
    return None if text is None else int(text)


def _import(options: argparse.Namespace, out: Out) -> None:
    kind = kind_of(options.file)
    if kind != "messages":
        _import_context(options, out, kind)
        return
    history = read_history(options.file)
    name = named(options)
    if options.conversation == _EVERY:
        pairs = [(f"{name}-{n}", found) for n, found in enumerate(history.conversations, 1)]
    else:
        number = number_of(options.conversation, f", or {_EVERY!r}")
        pairs = [(name, history.chosen(number, instead=f", or all of them with {_EVERY!r}"))]
    where = "memory:" if options.dry_run else options.where
    with library_at(where, create=True) as library:
        for position, (target, conversation) in enumerate(pairs):
            skipped = history.told() if position == len(pairs) - 1 else {}
            _take_in(library, target, conversation, skipped, options, out)
    if not out.json:
        _print_skipped(history, out)
        if options.dry_run:
            out.line("nothing was kept")


def _take_in(
    library: quire.Library,
    target: str,
    conversation: Conversation,
    skipped: dict[str, int],
    options: argparse.Namespace,
    out: Out,
) -> None:
    """Take one conversation into a context, and tell what was taken in and what was there before."""
    most = len(conversation.messages)
    old = _there(options.where, target, most) if options.dry_run else _messages(library, target, most)
    context = library.open(target)
    start, place = context.seq, len(context.messages(all=True))
    try:
        report = _taken(context, conversation)
    except KeyboardInterrupt:
        if not options.dry_run:
            _tell_stopped(options, out, target, _messages(library, target, 0).total - old.total, start)
        raise
    repeated = _repeated(old.first, context.messages(all=True)[place : place + len(old.first)], report.messages)
    if out.json:
        values = {"context": target, "before": old.total, "repeated": repeated, **_values(report)}
        out.value({**values, "skipped": skipped})
        return
    _print(target, report, old.total, out)
    if repeated:
        back = "" if options.dry_run else f"; to take it back: {_way_back(options, context, start)}"
        out.note(f"warning: {target!r} begins with the same {counted(repeated, 'message')} already{back}")


def _import_context(options: argparse.Namespace, out: Out, kind: Kind) -> None:
    """Read back what `export` wrote: a context with its history, or the document of one, as a new context."""
    where = "memory:" if options.dry_run else options.where
    with library_at(where, create=True) as library, Progress("Reading") as progress:
        if kind == "document":
            name = named(options)
            quire.open("memory:").pages.load(options.file)  # refused here, it leaves nothing behind there
            library.create(name).pages.load(options.file)
        else:
            name = library.import_(
                options.file, options.context, progress=lambda at: progress.at(at.records, "records")
            )
        info = library.info(name)
    if out.json:
        out.value({"context": name, "messages": info.messages, "seq": info.seq})
    else:
        out.line(f"{out.paint.cyan(name)}: {counted(info.messages, 'message')}, at entry {info.seq:,}")


def _taken(context: quire.Context, conversation: Conversation) -> ImportReport:
    with Progress("Importing", len(conversation.messages)) as progress:
        return context.import_messages(
            conversation.messages, progress=lambda report: progress.at(report.messages, context.name)
        )


class _Old(NamedTuple):
    """What a context has before an import: how many messages, and the first of them."""

    total: int = 0
    first: Sequence[Message] = ()


def _messages(library: quire.Library, name: str, most: int) -> _Old:
    """The messages of a context, so many at most; one that is not there has none."""
    count = library.info(name).messages if library.exists(name) else 0
    if not count or not most:
        return _Old(count)
    return _Old(count, library.open(name).messages(all=True)[:most])


def _there(where: str, name: str, most: int) -> _Old:
    """The messages of a context in a store that may not be there: a dry run makes none."""
    try:
        with library_at(where) as library:
            return _messages(library, name, most)
    except QuireError:
        return _Old()


def _repeated(old: Sequence[Message], new: Sequence[Message], total: int) -> int:
    """How many messages new ones begin with that the old ones began with too; none where that may be by chance."""
    same = 0
    for one, other in zip(old, new, strict=False):
        if _said(one) != _said(other):
            break
        same += 1
    spoken = sum(message.role != "system" for message in new[:same])
    return same if spoken >= _MEANT or (spoken and same == total) else 0


def _said(message: Message) -> tuple[object, ...]:
    return message.role, message.content, message.tool_calls, message.tool_call_id


def _way_back(options: argparse.Namespace, context: quire.Context, start: int) -> str:
    """The command that takes an import back: one entry is undone, several are rolled back."""
    where, name = masked(options.where), ["--context", context.name]
    alone = context.seq == start + 1
    words = ["undo", where, str(context.seq)] if alone else ["rollback", where, str(start)]
    return shlex.join(["quire", *words, *name])


def _tell_stopped(options: argparse.Namespace, out: Out, name: str, kept: int, start: int) -> None:
    """Say what an import that was stopped has left, and how to take it back."""
    words = ["quire", "rollback", masked(options.where), str(start), "--context", name]
    back = f"; {shlex.join(words)} takes them back" if kept else ""
    text = f"stopped after {counted(kept, 'message')} into {name!r}{back}"
    told = {"error": {"code": "interrupted", "message": text}}
    print(msgspec.json.encode(told).decode() if out.json else f"quire: {text}", file=sys.stderr)


def _values(report: ImportReport) -> dict[str, Any]:
    return {
        "messages": report.messages,
        "pages": report.pages,
        "first": report.first,
        "last": report.last,
        "marked": report.marked,
        "findings": report.findings,
    }


def _print(name: str, report: ImportReport, before: int, out: Out) -> None:
    paint = out.paint
    aside = f", {len(report.marked):,} of them kept aside: no model could be shown them" if report.marked else ""
    out.line(f"{paint.cyan(name)}: {counted(report.messages, 'message')} on {counted(report.pages, 'page')}{aside}")
    if before:
        out.line(f"   added to {name!r}, which had {counted(before, 'message')}")
    for finding in report.findings[:_MOST_FINDINGS]:
        place = f"message {finding.index}" if finding.index is not None else f"item {finding.item}"
        out.line(f"   {paint.yellow(finding.kind)}, {place}: {out.safe(finding.text)}")
    if len(report.findings) > _MOST_FINDINGS:
        out.line(paint.dim(f"   … {len(report.findings) - _MOST_FINDINGS:,} more findings"))


def _print_skipped(history: History, out: Out) -> None:
    if not history.skipped:
        return
    lines: dict[str, int] = {}
    for skip in history.skipped:
        lines.setdefault(skip.what, skip.line)
    out.line(f"skipped {len(history.skipped):,} of the file's records, which are no messages of the conversation:")
    for what, count in history.told().items():
        out.line(f"   {count:,} × {out.safe(what)} {out.paint.dim(f'(first in line {lines[what]:,})')}")


COMMANDS = {
    "import": Command(
        _import,
        _add,
        (
            "quire import agent.db session.jsonl --context support-42",
            "quire import agent.db request.json --dry-run",
            "cat messages.json | quire import agent.db -",
            "quire import runs.db runs.jsonl.gz --conversation all --context run",
        ),
        "It reads back what export wrote, as a new context. It takes messages of OpenAI and Anthropic, items of"
        " OpenAI's Responses, whole request bodies and responses,"
        " and session files of coding agents that have such messages inside. A broken history is taken in too; what was"
        " wrong with it, and what was skipped, is reported.",
    ),
}
