"""Where contexts are kept: copying them from store to store."""

import argparse

import quire
from quire.cli.command import Command
from quire.cli.opening import WHERE, known, library_at, masked
from quire.cli.out import Out
from quire.cli.progress import Progress


def _add_migrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("where", metavar="SOURCE", help=WHERE)
    parser.add_argument("target", metavar="TARGET", help="the store to copy to, made if it is new")
    parser.add_argument("-c", "--context", metavar="NAME", help="only this context (default: all)")


def _migrate(options: argparse.Namespace, out: Out) -> None:
    with library_at(options.where) as source:
        name = known(source, options) if options.context else None
        with library_at(options.target, create=True) as target, Progress("Copying") as progress:
            done = quire.migrate(
                source.storage,
                target.storage,
                name,
                progress=lambda at: progress.at(at.records, f"records, {at.context}: {at.phase}"),
            )
    if out.json:
        out.value({"records": done.records, "bytes": done.bytes})
    else:
        out.line(f"copied and verified {done.records:,} records, {done.bytes:,} bytes, to {masked(options.target)}")


COMMANDS = {
    "migrate": Command(
        _migrate,
        _add_migrate,
        (
            "quire migrate agent.db postgresql://localhost/agents",
            "quire migrate agent.db file:backup --context support-42",
        ),
        "Called again, an interrupted copy goes on.",
    ),
}
