"""Commands that maintain a store: check, doctor, purge, delete, expire, erase, scrub."""

import argparse
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import quire
from quire import Context
from quire.cli.command import CONTEXT, STORE, argument, command, open_context
from quire.cli.terminal import Output, Progress, count_of, escape_control
from quire.cli.wording import CommandWording
from quire.errors import Hint, InvalidOperation, NoSuchContext, NoSuchPage, short_repr
from quire.model.pages import ContentsPage
from quire.storage.base import no_such_context
from quire.storage.urls import mask_address
from quire.system.scrub import Remainder

if TYPE_CHECKING:
    from quire.maintenance.retention import Action

_COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}

YES = argument("--yes", action="store_true", help="do not ask for confirmation")


@command(
    *CONTEXT,
    examples=("quire check agent.db", "quire check agent.db --context support-42 --json | jq .sound"),
    about="It reads one context; the doctor reads the whole store. The exit code is 1 if a problem is found.",
)
def run_check(options: argparse.Namespace, out: Output) -> int | None:
    with open_context(options) as context:
        problems = context.check()
        name = context.name
    if out.json:
        out.value({"name": name, "sound": not problems, "problems": problems})
    else:
        for problem in problems:
            out.line(f"{out.paint.red('error')} {escape_control(str(problem))}")
        verdict = out.paint.red(count_of(len(problems), "problem")) if problems else out.paint.green("no problems")
        out.line(f"{escape_control(name)}: {verdict}")
    return 1 if problems else None


@command(
    STORE,
    argument("-c", "--context", metavar="NAME", help="only this context (default: all)"),
    argument("--repair", action="store_true", help="repair what can be repaired safely"),
    examples=("quire doctor agent.db", "quire doctor agent.db --repair --json | jq .healthy"),
    about="The exit code is 1 if a problem is found and not repaired.",
)
def run_doctor(options: argparse.Namespace, out: Output) -> int | None:
    from quire.maintenance.doctor import doctor

    contexts = None if options.context is None else [options.context]
    with Progress("Checking") as progress:
        number = count(1)
        diagnosis = doctor(
            options.where,
            contexts=contexts,
            repair=options.repair,
            progress=lambda name: progress.at(next(number), name),
        )
    missing = next((symptom.text for symptom in diagnosis.symptoms if symptom.code == NoSuchContext.code), None)
    if missing is not None:
        raise NoSuchContext(f"No context {short_repr(options.context)} in {mask_address(options.where)!r}: {missing}")
    if out.json:
        symptoms = diagnosis.symptoms
        out.value({"healthy": diagnosis.healthy, "contexts": diagnosis.contexts, "symptoms": symptoms})
    else:
        for symptom in diagnosis.symptoms:
            colour = "green" if symptom.repaired else _COLOURS[symptom.severity]
            severity, _, rest = escape_control(str(symptom)).partition(" ")
            out.line(f"{out.paint.colour(colour, severity)} {rest}")
        verdict = out.paint.green("no problems") if diagnosis.healthy else out.paint.red("problems found")
        out.line(f"{count_of(diagnosis.contexts, 'context')}: {verdict}")
        if not diagnosis.healthy and not options.repair:
            repair = CommandWording(options).command(Hint("doctor", arguments="repair=True"))
            out.line(out.paint.dim(f"{repair} repairs what can be repaired safely"))
    return None if diagnosis.healthy else 1


@command(
    *CONTEXT,
    argument("index", nargs="+", metavar="PAGE", help="the pages to delete, with all pages below them"),
    YES,
    argument("--keep-forks", action="store_true", help="do not purge the contexts that were forked from it"),
    examples=("quire purge agent.db usr-7", "quire purge agent.db mem-3 mem-4 --yes"),
    about="Use it for secrets and for requests to erase personal data. It removes the pages from texts, history, search"
    " and the bytes of the store. A purge, and every entry before it, cannot be undone.",
)
def run_purge(options: argparse.Namespace, out: Output) -> int | None:
    with open_context(options) as context:
        if not options.yes:
            _confirm(context, options.index, out)
        done = context.pages.purge(*options.index, forks=not options.keep_forks)
    if out.json:
        out.value(done)
    else:
        removed = f"removed {count_of(len(done.pages), 'page')} and {count_of(done.messages, 'message')} from"
        contexts = ", ".join(done.contexts)
        out.line(f"{removed} {contexts}" if contexts else "nothing to remove: the pages were purged before")
        if done.problem:
            out.line(f"{out.paint.red('their bytes are still in the store')}: {done.problem}")
    return None if done.scrubbed else 1


def _confirm(context: Context, indices: list[str], out: Output) -> None:
    """Show the pages and ask the user to confirm. Raises like `_ask`."""
    lines = []
    for index in indices:
        try:
            page = context.pages.get_page(index)
        except NoSuchPage:
            if not any(context.history(page=index)):  # refuses an index that was never used
                raise
            lines.append(f"{out.paint.cyan(index)} (removed)")
            continue
        below = f" with {count_of(page.child_count, 'page')} in it" if isinstance(page, ContentsPage) else ""
        lines.append(f"{out.paint.cyan(page.index)} {escape_control(page.name)}{below}")
    _ask("A purge, and every entry before it, cannot be undone", lines, out)


def _ask(warning: str, lines: Iterable[str], out: Output) -> None:
    """Ask the user to confirm. Raises `InvalidOperation` without a terminal, or if the answer is not yes."""
    if out.json or not sys.stdin.isatty():
        raise InvalidOperation(f"{warning}: add --yes to confirm.")
    for line in lines:
        out.line(line)
    out.line(f"{warning}. Type yes to continue:")
    if sys.stdin.readline().strip().lower() != "yes":
        raise InvalidOperation("Nothing was removed.")


@command(
    STORE,
    argument("name", metavar="NAME", help="the context to delete"),
    YES,
    argument("--scrub", action="store_true", help="also rewrite the store without the bytes of the context"),
    examples=("quire delete agent.db support-42", "quire delete agent.db support-42 --yes --scrub"),
    about="Without --scrub its bytes stay in the store until they are overwritten. Use quire erase to"
    " remove the forks and all bytes.",
)
def run_delete(options: argparse.Namespace, out: Output) -> None:
    with quire.Library(options.where, create=False) as library:
        _require_confirmed(library, options, "A deleted context cannot be restored", out)
        done = library.delete(options.name, scrub=options.scrub)
    out.result(done, f"deleted {', '.join(map(escape_control, done.contexts))}", *_remains(done.remains, out))


def _require_confirmed(library: quire.Library, options: argparse.Namespace, warning: str, out: Output) -> None:
    if not options.yes:
        if not library.exists(options.name):
            raise no_such_context(library.storage, options.name, repr(mask_address(options.where)))
        _ask(warning, [out.paint.cyan(escape_control(options.name))], out)


def _remains(remains: Iterable[Remainder], out: Output) -> list[str]:
    return [f"   {out.paint.yellow('not reached')}: {escape_control(left.text)}" for left in remains]


_AGE = re.compile(r"(\d{1,6})([hdw])", re.ASCII)
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def _age(text: str) -> timedelta | datetime:
    """Return an age such as 12h, 90d or 8w, or a time. Raises `ArgumentTypeError`."""
    age = _AGE.fullmatch(text)
    if age:
        return timedelta(**{_UNITS[age[2]]: int(age[1])})
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 90d, 8w or 12h, nor a time") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@command(
    STORE,
    argument(
        "older_than", type=_age, metavar="AGE", help="an age such as 90d, 8w or 12h, or a time such as 2026-03-11"
    ),
    argument("--prefix", default="", metavar="TEXT", help="only names that start with this"),
    argument("--archive", metavar="FOLDER", help="first export each context to a file in this folder, and verify it"),
    argument("--dry-run", action="store_true", help="list the contexts, and remove nothing"),
    argument("--scrub", action="store_true", help="also rewrite the store without their bytes"),
    YES,
    examples=(
        "quire expire agent.db 90d --dry-run",
        "quire expire agent.db 52w --archive old --yes",
        "quire expire agent.db 2026-03-11 --prefix support- --yes --scrub",
    ),
    about="A context that changes meanwhile, or that is damaged, is kept. quire import reads the files of --archive."
    " The exit code is 1 if a context could not be removed.",
)
def run_expire(options: argparse.Namespace, out: Output) -> int | None:
    action: Action = "delete" if options.archive is None else "archive"
    with quire.Library(options.where, create=False) as library:
        chosen: dict[str, Any] = {"action": action, "folder": options.archive, "prefix": options.prefix}
        if not options.yes and not options.dry_run:
            listed = library.expire(options.older_than, **chosen, dry_run=True)
            if listed:
                _ask(
                    "Expired contexts are removed", [out.paint.cyan(escape_control(each.name)) for each in listed], out
                )
        done = library.expire(options.older_than, **chosen, dry_run=options.dry_run, scrub=options.scrub)
    if out.json:
        out.value({"dry_run": options.dry_run, "contexts": done})
    else:
        for each in done:
            verb = "would remove" if options.dry_run else "removed"
            state = f"{out.paint.red('kept')}: {escape_control(each.problem)}" if each.problem else verb
            out.line(f"{out.paint.cyan(escape_control(each.name))}: {state}{f' → {each.path}' if each.path else ''}")
        out.line(count_of(sum(not each.problem for each in done), "context"))
        for line in _remains(done[0].remains if done and not options.dry_run else (), out):
            out.line(line)
    return 1 if any(each.problem for each in done) else None


@command(
    STORE,
    argument("name", metavar="NAME", help="the context to erase"),
    YES,
    argument("--no-forks", action="store_true", help="refuse if the context has forks"),
    examples=("quire erase agent.db support-42", "quire erase agent.db support-42 --yes --json | jq .remains"),
    about="It removes the context and its forks with their history, and rewrites the store without their bytes. It"
    " reports what it cannot reach. The exit code is 1 if bytes are left in the store.",
)
def run_erase(options: argparse.Namespace, out: Output) -> int | None:
    with quire.Library(options.where, create=False) as library:
        _require_confirmed(library, options, "An erasure cannot be undone", out)
        done = library.erase(options.name, forks=not options.no_forks)
    records = count_of(sum(done.reached.values()), "record")
    out.result(
        done,
        f"erased {', '.join(map(escape_control, done.contexts))}: {records}",
        *_remains(done.remains, out),
    )
    return None if done.scrubbed else 1


@command(
    STORE,
    examples=("quire scrub agent.db",),
    about="Use it after quire delete or quire expire without --scrub, or after an erasure that was interrupted. The"
    " store is rewritten, which takes time and space in proportion to its size. The exit code is 1 if bytes are left"
    " in the store.",
)
def run_scrub(options: argparse.Namespace, out: Output) -> int | None:
    with quire.Library(options.where, create=False) as library:
        remains = library.scrub()
    out.result(
        {"scrubbed": not remains, "remains": remains},
        "The store was rewritten." if not remains else "Bytes of deleted records are left in the store.",
        *_remains(remains, out),
    )
    return 1 if remains else None
