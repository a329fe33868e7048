"""History: what was done, and the ways back."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from msgspec import structs

from quire import Context, Entry
from quire.cli.command import Command
from quire.cli.commands.contexts import moment_of
from quire.cli.opening import add_context, context_of
from quire.cli.out import Out
from quire.cli.rehearsal import Rehearsal, pins_since, rehearse
from quire.cli.values import entry_values
from quire.cli.words import counted
from quire.errors import InvalidValue, short_repr

_LAST = 20
_MOST_PAGES = 40


def _add_history(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument(
        "-n", "--limit", type=int, default=_LAST, metavar="N", help="the last so many (default: %(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="every entry, from the first on")
    parser.add_argument("--after", type=int, default=0, metavar="SEQ", help="only entries above this one")
    parser.add_argument("--actor", metavar="NAME", help="only what this one did")
    parser.add_argument("--operation", metavar="NAME", help="only this operation, such as fold")
    parser.add_argument("--page", metavar="PAGE", help="only what touched this page")
    parser.add_argument(
        "--since", metavar="TIME", help="only from then on, such as 2026-03-11 or 2026-03-11T14:00+08:00"
    )
    parser.add_argument("--until", metavar="TIME", help="only until then")
    parser.add_argument("--changes", action="store_true", help="with --json: also what each record was before")


def _history(options: argparse.Namespace, out: Out) -> None:
    with context_of(options) as context:
        names = {seq: name for name, seq in context.pages.checkpoints().items()}
        entries = _entries(context, options)
        if out.json:
            for entry in entries:
                changes = {"changes": entry.changes} if options.changes else {}
                out.value({**entry_values(entry), "checkpoint": names.get(entry.seq), **changes})
            return
        rows = [_row(entry, names.get(entry.seq)) for entry in entries]
    if rows:
        out.table(("entry", "time (UTC)", "actor", "operation", "pages"), rows, right=(0,))
    else:
        out.note("no entries")


def _entries(context: Context, options: argparse.Namespace) -> Iterator[Entry]:
    if options.limit < 0:
        raise InvalidValue(f"limit is {options.limit}; a whole number from 0 is needed.")
    filters: dict[str, Any] = {name: getattr(options, name) for name in ("actor", "operation", "page")}
    filters |= {name: _time(getattr(options, name), name) for name in ("since", "until")}
    if options.all:
        return context.history(options.after, **filters)
    newest = context.history(options.after, reverse=True, **filters)
    return reversed(list(islice(newest, options.limit)))


def _row(entry: Entry, checkpoint: str | None) -> tuple[str, ...]:
    touched = [*entry.segments, *entry.pages]
    more = f" and {len(touched) - 8:,} more" if len(touched) > 8 else ""
    undoes = f" {entry.undoes}" if entry.undoes else ""
    named = f"{checkpoint!r} " if checkpoint else ""
    return (
        f"{entry.seq}",
        f"{entry.time:%Y-%m-%d %H:%M:%S}",
        entry.actor,
        f"{entry.operation}{undoes}",
        f"{named}{' '.join(touched[:8])}{more}",
    )


def _time(text: str | None, name: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(f"{name} is {short_repr(text)}; a time such as 2026-03-11T14:00+08:00 is needed.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _add_undo(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("seq", type=int, metavar="ENTRY", help="the entry's seq, as history lists it")


def _undo(options: argparse.Namespace, out: Out) -> None:
    with context_of(options) as context:
        seq = context.undo(options.seq)
    if out.json:
        out.value({"seq": seq, "undone": options.seq})
    else:
        out.line(f"entry {options.seq} is undone {out.paint.dim(f'(entry {seq}; undo that to redo)')}")


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("name", metavar="CHECKPOINT", help="what to call the state")


def _checkpoint(options: argparse.Namespace, out: Out) -> None:
    with context_of(options) as context:
        seq = context.checkpoint(options.name)
    if out.json:
        out.value({"seq": seq, "name": options.name})
    else:
        out.line(f"checkpoint {out.paint.cyan(options.name)} {out.paint.dim(f'(entry {seq})')}")


def _add_rollback(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("to", metavar="POINT", help="a checkpoint's name or an entry's seq")
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")


def _rollback(options: argparse.Namespace, out: Out) -> None:
    to = moment_of(options.to)
    with context_of(options) as context:
        if options.dry_run:
            _print_rehearsal(rehearse(context, to), to, out)
            return
        before = context.seq
        seq = context.rollback(to)
        pins = pins_since(context, to)
    if out.json:
        out.value({"seq": seq, "to": to, "changed": seq != before, "dry_run": False, "pins": pins})
    elif seq == before:
        out.line("nothing to change: it is so already")
    else:
        out.line(f"back at {to} {out.paint.dim(f'(entry {seq}; undo that to come back here)')}")
        _print_pins(pins, out)


def _print_rehearsal(rehearsal: Rehearsal, to: str | int, out: Out) -> None:
    if out.json:
        out.value({"to": to, "dry_run": True, **structs.asdict(rehearsal)})
        return
    out.line(
        f"rolling back to {to} would take back {counted(rehearsal.entries, 'entry')}"
        f" and change {counted(len(rehearsal.pages), 'page')}"
    )
    out.line(f"messages in the conversation: {rehearsal.messages_now:,} → {rehearsal.messages_then:,}")
    rows = [(page.index, page.now, page.then, page.name) for page in rehearsal.pages[:_MOST_PAGES]]
    if rows:
        out.table(("page", "now", "then", "name"), rows)
    if len(rehearsal.pages) > _MOST_PAGES:
        out.line(out.paint.dim(f"… {len(rehearsal.pages) - _MOST_PAGES:,} more"))
    _print_pins(rehearsal.pins, out)
    out.line("nothing was changed")


def _print_pins(pins: int, out: Out) -> None:
    if pins:
        out.line(f"{counted(pins, 'pin')} {'stays as it is' if pins == 1 else 'stay as they are'}")


COMMANDS = {
    "history": Command(
        _history,
        _add_history,
        (
            "quire history agent.db --limit 50",
            "quire history agent.db --page usr-7 --actor agent",
            "quire history agent.db --all --changes --json > audit.jsonl",
        ),
    ),
    "undo": Command(_undo, _add_undo, ("quire undo agent.db 17",)),
    "checkpoint": Command(_checkpoint, _add_checkpoint, ("quire checkpoint agent.db before-the-refactoring",)),
    "rollback": Command(
        _rollback,
        _add_rollback,
        ("quire rollback agent.db before-the-refactoring --dry-run", "quire rollback agent.db 17"),
        "It is one entry, which undo takes back.",
    ),
}
