"""Caring for a store: examining it, and removing pages for good."""

import argparse
import sys
from itertools import count

from msgspec.structs import replace

from quire import Context
from quire.cli.command import Command
from quire.cli.opening import add_context, add_where, context_of
from quire.cli.out import Out
from quire.cli.progress import Progress
from quire.cli.speech import spoken
from quire.cli.visible import visible
from quire.cli.words import counted
from quire.errors import InvalidOperation, NoSuchContext, short_repr
from quire.model.pages import ContentsPage
from quire.storage.urls import masked

_COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    add_where(parser)
    parser.add_argument("-c", "--context", metavar="NAME", help="only this context (default: all)")
    parser.add_argument("--repair", action="store_true", help="repair what is safe to repair")


def _doctor(options: argparse.Namespace, out: Out) -> int | None:
    from quire.maintenance.doctor import doctor

    contexts = None if options.context is None else [options.context]
    with Progress("Examining") as progress:
        number = count(1)
        found = doctor(
            options.where,
            contexts=contexts,
            repair=options.repair,
            progress=lambda name: progress.at(next(number), name),
        )
    missing = next((symptom.text for symptom in found.symptoms if symptom.code == NoSuchContext.code), None)
    if missing is not None:
        raise NoSuchContext(f"No context {short_repr(options.context)} in {masked(options.where)!r}: {missing}")
    symptoms = [
        replace(symptom, text=spoken(symptom.text), remedy=spoken(symptom.remedy)) for symptom in found.symptoms
    ]
    if out.json:
        out.value({"healthy": found.healthy, "contexts": found.contexts, "symptoms": symptoms})
    else:
        for symptom in symptoms:
            colour = "green" if symptom.repaired else _COLOURS[symptom.severity]
            severity, _, rest = visible(str(symptom)).partition(" ")
            out.line(f"{out.paint.colour(colour, severity)} {rest}")
        verdict = out.paint.green("in order") if found.healthy else out.paint.red("not in order")
        out.line(f"{counted(found.contexts, 'context')}: {verdict}")
    return None if found.healthy else 1


def _add_purge(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("index", nargs="+", metavar="PAGE", help="the pages, with all below them")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--keep-forks", action="store_true", help="leave the contexts alone that were forked from it")


def _purge(options: argparse.Namespace, out: Out) -> int | None:
    with context_of(options) as context:
        if not options.yes:
            _ask(context, options.index, out)
        done = context.pages.purge(*options.index, forks=not options.keep_forks)
    if out.json:
        out.value(done)
    else:
        what = f"{counted(len(done.pages), 'page')} and {counted(done.messages, 'message')} are gone from"
        where = ", ".join(done.contexts)
        out.line(f"{what} {where}" if where else "nothing was left to remove: they were purged before")
        if done.problem:
            out.line(f"{out.paint.red('their bytes are still in the store')}: {done.problem}")
    return None if done.scrubbed else 1


def _ask(context: Context, indices: list[str], out: Out) -> None:
    """Have a person say that they mean it. Raises `InvalidOperation` if they do not, or if nobody is there."""
    pages = [context.pages.get_page(index) for index in indices]
    if out.json or not sys.stdin.isatty():
        raise InvalidOperation("Purging cannot be undone, nor anything before it: say --yes if that is meant.")
    for page in pages:
        below = f" with {counted(page.child_count, 'page')} in it" if isinstance(page, ContentsPage) else ""
        out.line(f"{out.paint.cyan(page.index)} {visible(page.name)}{below}")
    out.line("Purging cannot be undone, and it ends undo for everything before it. Type yes to go on:")
    if sys.stdin.readline().strip().lower() != "yes":
        raise InvalidOperation("Nothing was purged.")


COMMANDS = {
    "doctor": Command(
        _doctor,
        _add_doctor,
        ("quire doctor agent.db", "quire doctor agent.db --repair --json | jq .healthy"),
        "The exit code is 1 if anything is not in order.",
    ),
    "purge": Command(
        _purge,
        _add_purge,
        ("quire purge agent.db usr-7", "quire purge agent.db mem-3 mem-4 --yes"),
        "For secrets, and for the right to be forgotten: it takes the pages out of texts, history, search and the bytes"
        " of the store. It cannot be undone, nor can anything before it.",
    ),
}
