"""The command import: conversations from files into contexts."""

import argparse
import shlex
from collections.abc import Sequence
from itertools import takewhile
from operator import attrgetter

import quire
from quire import Message
from quire.cli import print_error
from quire.cli.command import REDACT, STORE, argument, check_lasting, command, new_name
from quire.cli.terminal import Output, Progress, count_of, pick
from quire.conversation import ImportReport
from quire.errors import InvalidOperation, InvalidValue, QuireError, StorageFailure, short_repr
from quire.formats.files import FileKind, detect_kind, is_database, read_log
from quire.formats.log import LogFile, LoggedConversation
from quire.storage.urls import mask_address
from quire.system.checkpoints import parse_point

_ALL = "all"
_MAX_FINDINGS = 10
_MIN_REPEATED = 2
"""Equal messages that make a repeated import likely: two conversations may start with the same greeting."""
_content = attrgetter("role", "content", "tool_calls", "tool_call_id")


def parse_conversation(text: str | None, others: str = "") -> int | None:
    """Return the number of a conversation. Raises `InvalidValue`; `others` names the other accepted values."""
    if text is not None and not isinstance(parse_point(text), int):
        raise InvalidValue(f"is {short_repr(text)}; a number from 1{others} is needed.", argument="conversation")
    return None if text is None else int(text)


@command(
    STORE,
    argument(
        "-c",
        "--context",
        metavar="NAME",
        help="the context to import into; created if it does not exist (default: 'default')",
    ),
    argument(
        "file",
        metavar="FILE",
        help="JSON or JSON Lines, optionally gzipped; - is standard input; a SQLite file or the address of a PostgreSQL"
        " server with sessions of the OpenAI Agents SDK or checkpoints of LangGraph",
    ),
    argument(
        "--conversation",
        metavar="N",
        help="import conversation N of the file, from 1; 'all' imports each into NAME-1, NAME-2, …; those of a"
        " database into contexts with their own names if no NAME is given",
    ),
    argument("--dry-run", action="store_true", help="read and report, and store nothing"),
    REDACT,
    examples=(
        "quire import agent.db session.jsonl --context support-42",
        "quire import agent.db request.json --dry-run",
        "cat messages.json | quire import agent.db -",
        "quire import runs.db runs.jsonl.gz --conversation all --context run",
        "quire import agents.db checkpoints.sqlite --conversation all",
    ),
    about="It reads messages of OpenAI, Anthropic, LangChain and pydantic-ai, items of OpenAI Responses, request"
    " bodies, responses, sessions of Claude Code (each sub-agent into NAME.agent-ID) and of Codex, and databases of the"
    " OpenAI Agents SDK and LangGraph. Messages keep their times. It imports files of quire export as a new context. A"
    " broken history is imported too; the command reports what was wrong and what it skipped.",
)
def run_import(options: argparse.Namespace, out: Output) -> None:
    if not options.dry_run:
        check_lasting(options.where)
    kind = detect_kind(options.file)
    if kind != "messages":
        _import_context(options, out, kind)
        return
    log = read_log(options.file)
    pairs = _choose_conversations(log, options)
    where = "memory:" if options.dry_run else options.where
    with quire.Library(where, create=True, redact=quire.redact_secrets if options.redact else None) as library:
        for position, (target, conversation) in enumerate(pairs):
            skipped = log.count_skipped() if position == len(pairs) - 1 else {}
            _import_messages(library, target, conversation, skipped, options, out)
    if not out.json:
        _print_skipped(log, out)
        if options.dry_run:
            out.line("nothing was stored")


def _choose_conversations(log: LogFile, options: argparse.Namespace) -> list[tuple[str, LoggedConversation]]:
    """Return the conversations to import with the names of their contexts. The sub-agents of a session come with it."""
    name = new_name(options)
    agents = [(f"{name}.{found.name}", found) for found in log.conversations if found.is_agent]
    if options.conversation == _ALL:
        sessions = [found for found in log.conversations if not found.is_agent]
        keeps_names = options.context is None and is_database(options.file)
        named = ((found.name if keeps_names else f"{name}-{n}", found) for n, found in enumerate(sessions, 1))
        return [*named, *agents]
    number = parse_conversation(options.conversation, f", or {_ALL!r}")
    chosen = log.select(number, others=f", or all of them with {_ALL!r}")
    return [(name, chosen), *(agents if number is None and not chosen.is_agent else ())]


def _import_messages(
    library: quire.Library,
    target: str,
    conversation: LoggedConversation,
    skipped: dict[str, int],
    options: argparse.Namespace,
    out: Output,
) -> None:
    """Import one conversation into a context and print the result."""
    limit = len(conversation.messages)
    context = library.open(target)
    start, first = context.seq, len(context.messages(all=True))
    stored = _stored_messages(options.where, target, limit) if options.dry_run else None
    before, old = stored or (first, context.messages(all=True)[:limit])
    try:
        with Progress("Importing", limit) as progress:
            report = context.import_messages(
                conversation.messages, progress=lambda report: progress.at(report.messages, target)
            )
    except KeyboardInterrupt:
        if not options.dry_run:
            added = library.info(target).messages - before
            undo = f"; {_command(options, 'rollback', start, target)} removes them" if added else ""
            text = f"stopped after {count_of(added, 'message')} into {target!r}{undo}"
            print_error("interrupted", text, json=out.json)
        raise
    repeated = _count_repeated(old, context.messages(all=True)[first : first + len(old)], report.messages)
    if out.json:
        values = pick(report, "messages", "pages", "first", "last", "marked", "findings")
        out.value({"context": target, "before": before, "repeated": repeated, **values, "skipped": skipped})
        return
    _print_report(target, report, before, out)
    if repeated:
        is_one_entry = context.seq == start + 1
        point = ("undo", context.seq) if is_one_entry else ("rollback", start)
        undo = "" if options.dry_run else f"; to undo this import: {_command(options, *point, target)}"
        out.note(f"warning: {target!r} starts with the same {count_of(repeated, 'message')} already{undo}")


def _import_context(options: argparse.Namespace, out: Output, kind: FileKind) -> None:
    """Import a file that `quire export` wrote, as a new context."""
    where = "memory:" if options.dry_run else options.where
    redact = quire.redact_secrets if options.redact else None
    if redact is not None and kind != "document":
        raise quire.InvalidValue("--redact: an archive is imported as it is; import its messages or its JSON form.")
    with quire.Library(where, create=True, redact=redact) as library, Progress("Reading") as progress:
        if kind == "document":
            name = new_name(options)
            quire.open("memory:").pages.load(options.file)  # refuses a bad document before a context is created
            library.create(name).pages.load(options.file)
        else:
            name = library.import_(
                options.file, options.context, progress=lambda at: progress.at(at.records, "records")
            )
        info = library.info(name)
        if options.dry_run:
            _require_importable(library, name, options.where, kind)
    out.result(
        {"context": name, "messages": info.messages, "seq": info.seq},
        f"{out.paint.cyan(name)}: {count_of(info.messages, 'message')}, at entry {info.seq:,}",
        *(["nothing was stored"] if options.dry_run else []),
    )


def _require_importable(read: quire.Library, name: str, where: str, kind: FileKind) -> None:
    """Raise `InvalidOperation` if the store has another context of this name. It creates no store."""
    try:
        with quire.Library(where, create=False) as library:
            stored = library.storage.load(name)
    except StorageFailure:  # no store yet
        return
    if stored is not None and (kind == "document" or (stored.seq, stored.head) != _end(read, name)):
        raise InvalidOperation(f"Context {short_repr(name)} exists already. Choose another name.")


def _end(library: quire.Library, name: str) -> tuple[int, bytes]:
    found = library.storage.load(name)
    return (found.seq, found.head) if found else (0, b"")


def _stored_messages(where: str, name: str, limit: int) -> tuple[int, Sequence[Message]]:
    """Return the number of messages of a context in a store, and the first ones. It creates no store and no context."""
    try:
        with quire.Library(where, create=False) as library, library.open(name, create=False) as context:
            messages = context.messages(all=True)
            return len(messages), messages[:limit]
    except QuireError:
        return 0, ()


def _count_repeated(old: Sequence[Message], new: Sequence[Message], total: int) -> int:
    """Return how many messages `old` and `new` share at their start; 0 if that may be a coincidence."""
    pairs = zip(map(_content, old), map(_content, new), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    spoken = sum(message.role != "system" for message in new[:same])
    return same if spoken >= _MIN_REPEATED or (spoken and same == total) else 0


def _command(options: argparse.Namespace, name: str, seq: int, context: str) -> str:
    """Return the command that undoes an import."""
    return shlex.join(["quire", name, mask_address(options.where), str(seq), "--context", context])


def _print_report(name: str, report: ImportReport, before: int, out: Output) -> None:
    paint = out.paint
    aside = f", {len(report.marked):,} of them not shown to a model: no provider accepts them" if report.marked else ""
    out.line(f"{paint.cyan(name)}: {count_of(report.messages, 'message')} on {count_of(report.pages, 'page')}{aside}")
    if before:
        out.line(f"   added to {name!r}, which had {count_of(before, 'message')}")
    for finding in report.findings[:_MAX_FINDINGS]:
        place = f"message {finding.index}" if finding.index is not None else f"item {finding.item}"
        out.line(f"   {paint.yellow(finding.kind)}, {place}: {out.safe(finding.text)}")
    if len(report.findings) > _MAX_FINDINGS:
        out.line(paint.dim(f"   … {len(report.findings) - _MAX_FINDINGS:,} more findings"))


def _print_skipped(log: LogFile, out: Output) -> None:
    if not log.skipped:
        return
    lines = {record.what: record.line for record in reversed(log.skipped)}
    out.line(f"skipped {count_of(len(log.skipped), 'record')} of the file (no message of the conversation):")
    for what, count in log.count_skipped().items():
        out.line(f"   {count:,} × {out.safe(what)} {out.paint.dim(f'(first in line {lines[what]:,})')}")
