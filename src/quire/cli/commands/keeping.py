"""Where contexts are kept: in files of their own, in copies of a store, in another store."""

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec

import quire
from quire.cli.command import Command
from quire.cli.opening import WHERE, add_context, add_where, context_of, known, library_at
from quire.cli.out import Out
from quire.cli.progress import Progress
from quire.cli.words import counted
from quire.errors import InvalidOperation, StorageFailure
from quire.providers import format_messages
from quire.storage.urls import masked

_STDOUT = "-"
_FORMATS = ("quire", "json", "openai", "anthropic", "responses")


def _add_export(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("file", metavar="FILE", help="the file to write; - is standard output, but for quire")
    words = "everything with its history (quire), the pages as a document (json), or the conversation as messages"
    parser.add_argument("-f", "--format", choices=_FORMATS, default="quire", help=f"{words} (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")


def _export(options: argparse.Namespace, out: Out) -> None:
    told: dict[str, Any] = {"format": options.format, "file": options.file}
    if options.format == "quire":
        if options.file == _STDOUT:
            raise InvalidOperation("The format 'quire' is no text: name a file.")
        with library_at(options.where) as library, Progress("Writing") as progress:
            name = known(library, options)
            done = library.export(
                name,
                options.file,
                overwrite=options.overwrite,
                progress=lambda at: progress.at(at.records, "records"),
            )
        told |= {"context": name, "records": done.records, "bytes": done.bytes}
    else:
        with context_of(options) as context:
            data = _document(context, options.format)
        if options.file == _STDOUT:
            sys.stdout.write(data.decode())
            return
        _write(Path(options.file), data, overwrite=options.overwrite)
        told |= {"context": context.name, "bytes": len(data)}
    if out.json:
        out.value(told)
    else:
        out.line(f"wrote {out.paint.cyan(told['context'])} to {options.file}: {told['bytes']:,} bytes")


def _document(context: quire.Context, form: str) -> bytes:
    """A context as the document of `marshal`, or its messages in a provider's shape, one a line."""
    if form == "json":
        return context.pages.marshal() + b"\n"
    messages = list(context.messages())
    values = format_messages(messages, form)  # type: ignore[arg-type]
    if form == "anthropic":
        prompts = [{"role": "system", "content": message.text} for message in messages if message.role == "system"]
        values = [*prompts, *values]
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)


def _write(path: Path, data: bytes, *, overwrite: bool) -> None:
    try:
        with path.open("wb" if overwrite else "xb") as file:
            file.write(data)
    except FileExistsError:
        raise InvalidOperation(f"{str(path)!r} exists already; --overwrite replaces it.") from None
    except OSError as error:
        raise StorageFailure(f"Cannot write {str(path)!r}: {error.strerror}.") from error


def _add_migrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("where", metavar="SOURCE", help=WHERE)
    parser.add_argument("target", metavar="TARGET", help="the store to copy to, made if it is new")
    parser.add_argument("-c", "--context", metavar="NAME", help="only this context (default: all)")
    parser.add_argument("--replace", action="store_true", help="copy again what is there as an older copy")


def _migrate(options: argparse.Namespace, out: Out) -> None:
    with library_at(options.where) as source:
        name = known(source, options) if options.context else None
        with library_at(options.target, create=True) as target, Progress("Copying") as progress:
            done = quire.migrate(
                source.storage,
                target.storage,
                name,
                replace=options.replace,
                progress=lambda at: progress.at(at.records, f"records, {at.context}: {at.phase}"),
            )
    if out.json:
        out.value({"records": done.records, "bytes": done.bytes})
    else:
        copied = counted(done.records, "record")
        out.line(f"copied and verified {copied}, {done.bytes:,} bytes, to {masked(options.target)}")


def _add_backup(parser: argparse.ArgumentParser) -> None:
    add_where(parser)
    parser.add_argument("target", metavar="TARGET", help="the new store: a path (SQLite) or file:DIR")


def _backup(options: argparse.Namespace, out: Out) -> int | None:
    from quire.maintenance.backup import backup

    with Progress("Copying") as progress:
        done = backup(
            options.where,
            options.target,
            progress=lambda at: progress.at(at.records, f"records, {at.context}: {at.phase}"),
        )
    if out.json:
        out.value(done)
    else:
        out.line(f"copied {counted(done.contexts, 'context')}, {done.bytes:,} bytes, to {done.path}")
        for problem in done.problems:
            out.line(f"   {out.paint.red('damaged')}: {problem}")
    return 1 if done.problems else None


COMMANDS = {
    "export": Command(
        _export,
        _add_export,
        (
            "quire export agent.db support-42.quire --context support-42",
            "quire export agent.db - --format openai | jq -r .role",
            "quire export agent.db agent.json --format json --overwrite",
        ),
        "What is written with the formats quire and json, import reads back.",
    ),
    "migrate": Command(
        _migrate,
        _add_migrate,
        (
            "quire migrate agent.db postgresql://localhost/agents",
            "quire migrate agent.db file:pages --context support-42",
        ),
        "Called again, an interrupted copy goes on.",
    ),
    "backup": Command(
        _backup,
        _add_backup,
        ("quire backup agent.db agent-2026-03-11.db", "quire backup postgresql://localhost/agents file:copy"),
        "The store may be in use meanwhile. Everything is read through once; what cannot be read is told, with exit"
        " code 1, and copied as it is.",
    ),
}
