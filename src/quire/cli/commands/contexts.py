"""Commands for whole contexts: new, ls, fork, export, backup, migrate."""

import argparse
import re
import sys
from pathlib import Path

import quire
from quire.cli.command import (
    CONTEXT,
    STORE,
    STORE_HELP,
    argument,
    check_lasting,
    command,
    existing_name,
    new_name,
    open_context,
    token_count,
)
from quire.cli.terminal import Output, Progress, Values, count_of, pick
from quire.cli.wording import CommandWording
from quire.errors import InvalidOperation, QuireError, StorageFailure
from quire.formats import SESSION_FORMATS, format_session
from quire.maintenance.person_copy import format_context
from quire.model.text import check_text
from quire.storage.urls import mask_address
from quire.system.checkpoints import parse_point
from quire.view.options import check_budget

_USAGE_COLUMNS = ("pages", "tokens", "bytes")


@command(
    STORE,
    argument("-c", "--context", metavar="NAME", help="the name of the new context (default: 'default')"),
    argument("--system", metavar="TEXT", help="the system prompt"),
    argument(
        "-b", "--budget", type=token_count, metavar="TOKENS", help="the token budget of its views (default: 128k)"
    ),
    examples=(
        "quire new agent.db",
        "quire new agent.db --context support-42 --system 'You are a careful travel agent.'",
        "quire new agent.db --budget 32k",
    ),
)
def run_new(options: argparse.Namespace, out: Output) -> None:
    name = new_name(options)
    if options.budget is not None:
        check_budget(options.budget)  # before the store is created
    if options.system is not None:
        check_text(options.system, "system")
    with quire.Library(check_lasting(options.where), create=True) as library:
        context = library.create(name) if options.budget is None else library.create(name, budget=options.budget)
        if options.system is not None:
            context.system(options.system)
        text = f"created context {out.paint.cyan(name)} in {mask_address(options.where)}"
        out.result({"name": name, "seq": context.seq}, text)


@command(
    STORE,
    argument("--prefix", default="", metavar="TEXT", help="only names that start with this"),
    argument("-l", "--long", action="store_true", help="also count pages, tokens and bytes; reads all pages"),
    examples=(
        "quire ls agent.db",
        "quire ls agent.db --long --prefix support-",
        "quire ls agent.db --json | jq -r .name",
    ),
)
def run_ls(options: argparse.Namespace, out: Output) -> None:
    rows = []
    wording = CommandWording(options)
    with quire.Library(options.where, create=False) as library, Progress("Counting") as progress:
        for number, name in enumerate(library.list(prefix=options.prefix)):
            progress.at(number, name)
            try:
                values = _context_values(library, name, long=options.long)
            except QuireError as error:  # a context that cannot be read must not hide the others
                values = {"name": name, "problem": error.describe(wording)}
            if out.json:
                out.value(values)
            else:
                rows.append(values)
    if not out.json:
        _print_contexts(rows, out, long=options.long)


def _context_values(library: quire.Library, name: str, *, long: bool) -> Values:
    info = library.info(name)
    values: Values = {"name": name, **pick(info, "seq", "messages")}
    values |= {"created": info.created_at, "updated": info.updated_at}
    if long:
        values |= pick(library.usage(name), *_USAGE_COLUMNS)
    return values


def _print_contexts(contexts: list[Values], out: Output, *, long: bool) -> None:
    if not contexts:
        out.line("no contexts")
        return
    numbers = ("messages", "seq", *(_USAGE_COLUMNS if long else ()))
    head = ("context", *("entries" if name == "seq" else name for name in numbers), "last change (UTC)")
    rows = [
        (values["name"], *(f"{values[name]:,}" if name in values else "" for name in numbers), _state(values))
        for values in contexts
    ]
    out.table(head, rows, right=range(1, len(head) - 1))


def _state(values: Values) -> str:
    if "problem" in values:
        return f"{values['problem']}"
    return f"{values['updated']:%Y-%m-%d %H:%M}"


@command(
    *CONTEXT,
    argument("name", metavar="NEW", help="the name of the new context"),
    argument("--at", metavar="POINT", help="a checkpoint or the number of an entry (default: the last)"),
    argument("--check", action="store_true", help="read all records first, and refuse a damaged context"),
    examples=("quire fork agent.db what-if", "quire fork agent.db before-the-mess --context support-42 --at 120"),
)
def run_fork(options: argparse.Namespace, out: Output) -> None:
    at = parse_point(options.at) if options.at is not None else None
    with quire.Library(options.where, create=False) as library:
        source = existing_name(library, options)
        library.fork(source, options.name, at, check=options.check)
        seq = library.open(options.name, create=False).seq
    point = f" at {at}" if at is not None else ""
    text = f"created context {out.paint.cyan(options.name)} from {source}{point}"
    out.result({"name": options.name, "of": source, "at": at, "seq": seq}, text)


_STDOUT = "-"
_WHOLE = ("quire", "json", "html")
_FORMATS = (*_WHOLE, *SESSION_FORMATS)
_FORMAT_HELP = (
    "quire: everything with its history; json, html: a copy for a person, without PRIVATE segments; others: the"
    " conversation, as messages or as a session that the tool can resume"
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@command(
    *CONTEXT,
    argument("file", metavar="FILE", help="the file to write; - is standard output (not for quire)"),
    argument("-f", "--format", choices=_FORMATS, default="quire", help=f"{_FORMAT_HELP} (default: %(default)s)"),
    argument("--overwrite", action="store_true", help="replace an existing file"),
    argument(
        "--view",
        action="store_true",
        help="write the current view instead of the whole conversation (not for quire, json and html)",
    ),
    argument("--times", action="store_true", help="write the time of each message of openai, anthropic and responses"),
    examples=(
        "quire export agent.db support-42.quire --context support-42",
        "quire export agent.db - --format openai | jq -r .role",
        "quire export agent.db agent.json --format json --overwrite",
        "quire export agent.db 6f0c3a52-7d3e-4a53-9c9e-2f6f3f0b8a11.jsonl --format claude-code --view",
    ),
    about="quire import reads all formats except html. The id of a session of Claude Code or Codex is the UUID at"
    " the end of the file's name.",
)
def run_export(options: argparse.Namespace, out: Output) -> None:
    values: Values = {"format": options.format, "file": options.file}
    if options.format == "quire" and options.file == _STDOUT:
        raise InvalidOperation("The format 'quire' is binary and cannot go to standard output: name a file.")
    if options.format in _WHOLE and options.view:
        raise InvalidOperation(
            f"The format {options.format!r} has the whole context; --view is for {', '.join(SESSION_FORMATS)}."
        )
    if options.format in _WHOLE and options.file != _STDOUT:
        with quire.Library(options.where, create=False) as library, Progress("Writing") as progress:
            name = existing_name(library, options)
            done = library.export(
                name,
                options.file,
                format=options.format,
                overwrite=options.overwrite,
                progress=lambda at: progress.at(at.records, "records"),
            )
        values |= {"context": name, "records": done.records, "bytes": done.bytes}
    else:
        with open_context(options) as context:
            data = _encode_context(context, options)
        if options.file == _STDOUT:
            sys.stdout.write(data.decode())
            return
        _write(Path(options.file), data, overwrite=options.overwrite)
        values |= {"context": context.name, "bytes": len(data)}
    out.result(values, f"wrote {out.paint.cyan(values['context'])} to {options.file}: {values['bytes']:,} bytes")


def _encode_context(context: quire.Context, options: argparse.Namespace) -> bytes:
    """Return a copy for a person, or the messages in the form of a provider or a tool."""
    if options.format in _WHOLE:
        return format_context(context.pages.storage, context.name, options.format)[0]
    messages = context.render(preview=True).messages if options.view else None
    name = _UUID.search(Path(options.file).stem)
    return format_session(
        context.conversation.date_messages(messages),
        options.format,
        session_id=name.group() if name else None,
        folder=str(Path.cwd()),
        times=options.times,
    )


def _write(path: Path, data: bytes, *, overwrite: bool) -> None:
    try:
        with path.open("wb" if overwrite else "xb") as file:
            file.write(data)
    except FileExistsError:
        raise InvalidOperation(f"{str(path)!r} exists already. Add --overwrite to replace it.") from None
    except OSError as error:
        raise StorageFailure(f"Cannot write {str(path)!r}: {error.strerror}.") from error


@command(
    argument("where", metavar="SOURCE", help=STORE_HELP),
    argument("target", metavar="TARGET", help="the store to copy to; created if it does not exist"),
    argument("-c", "--context", metavar="NAME", help="only this context (default: all)"),
    argument("--replace", action="store_true", help="replace an older copy in the target"),
    examples=(
        "quire migrate agent.db postgresql://localhost/agents",
        "quire migrate agent.db file:pages --context support-42",
    ),
    about="Run it again after an interruption.",
)
def run_migrate(options: argparse.Namespace, out: Output) -> None:
    with quire.Library(options.where, create=False) as source:
        name = None if options.context is None else existing_name(source, options)
        with (
            quire.Library(check_lasting(options.target, "target"), create=True) as target,
            Progress("Copying") as progress,
        ):
            done = quire.migrate(
                source.storage,
                target.storage,
                name,
                replace=options.replace,
                progress=lambda at: progress.at(at.records, f"records, {at.context}: {at.phase}"),
            )
    copied = count_of(done.records, "record")
    text = f"copied and verified {copied}, {done.bytes:,} bytes, to {mask_address(options.target)}"
    out.result({"records": done.records, "bytes": done.bytes}, text)


@command(
    STORE,
    argument("target", metavar="TARGET", help="the new store: a path (SQLite) or file:DIR"),
    examples=("quire backup agent.db agent-2026-03-11.db", "quire backup postgresql://localhost/agents file:copy"),
    about="It reads everything once. It reports records that cannot be read, copies them unchanged, and exits with"
    " code 1.",
)
def run_backup(options: argparse.Namespace, out: Output) -> int | None:
    from quire.maintenance.backup import backup

    with Progress("Copying") as progress:
        done = backup(
            options.where,
            options.target,
            progress=lambda at: progress.at(at.records, f"records, {at.context}: {at.phase}"),
        )
    out.result(
        done,
        f"copied {count_of(done.contexts, 'context')}, {done.bytes:,} bytes, to {done.path}",
        *(f"   {out.paint.red('damaged')}: {problem}" for problem in done.problems),
    )
    return 1 if done.problems else None
