"""Commands for the journal: history, undo, checkpoint, rollback."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from quire import Context, ContextSystem, Entry
from quire.cli.command import CONTEXT, argument, command, open_context
from quire.cli.terminal import Output, Values, count_of, pick
from quire.errors import InvalidValue, NoSuchPage, short_repr
from quire.model.pages import STATES, DetailPage, Mark, Page, PageIndex
from quire.system.checkpoints import parse_point
from quire.system.rules import check_whole_number

_MAX_PREVIEW_PAGES = 40
_MAX_ENTRY_PAGES = 8


@command(
    *CONTEXT,
    argument("-n", "--limit", type=int, default=20, metavar="N", help="the newest N (default: %(default)s)"),
    argument("--all", action="store_true", help="all entries"),
    argument("--after", type=int, default=0, metavar="SEQ", help="only entries after this one"),
    argument("--actor", metavar="NAME", help="only entries of this actor"),
    argument("--operation", metavar="NAME", help="only this operation, such as fold"),
    argument("--page", metavar="PAGE", help="only entries that changed this page"),
    argument("--since", metavar="TIME", help="only from this time on, such as 2026-03-11 or 2026-03-11T14:00+08:00"),
    argument("--until", metavar="TIME", help="only until this time"),
    argument("--changes", action="store_true", help="with --json: also print each record before the change"),
    examples=(
        "quire history agent.db --limit 50",
        "quire history agent.db --page usr-7 --actor agent",
        "quire history agent.db --all --changes --json > audit.jsonl",
    ),
)
def run_history(options: argparse.Namespace, out: Output) -> None:
    with open_context(options) as context:
        names = {seq: name for name, seq in context.pages.checkpoints().items()}
        entries = _select_entries(context, options)
        if out.json:
            for entry in entries:
                changes = {"changes": entry.changes} if options.changes else {}
                values = pick(entry, "seq", "time", "actor", "operation", "pages", "segments", "undoes")
                out.value({**values, "checkpoint": names.get(entry.seq), **changes})
            return
        rows = [_entry_row(entry, names.get(entry.seq)) for entry in entries]
    if rows:
        out.table(("entry", "time (UTC)", "actor", "operation", "pages"), rows, right=(0,))
    else:
        out.note("no entries")


def _select_entries(context: Context, options: argparse.Namespace) -> Iterator[Entry]:
    check_whole_number(options.limit, "limit")
    filters = pick(options, "actor", "operation", "page")
    filters |= {name: _parse_time(getattr(options, name), name) for name in ("since", "until")}
    if options.all:
        return context.history(options.after, **filters)
    newest = context.history(options.after, reverse=True, **filters)
    return reversed(list(islice(newest, options.limit)))


def _entry_row(entry: Entry, checkpoint: str | None) -> tuple[str, ...]:
    changed = [*entry.segments, *entry.pages]
    more = f" and {len(changed) - _MAX_ENTRY_PAGES:,} more" if len(changed) > _MAX_ENTRY_PAGES else ""
    undoes = f" {entry.undoes}" if entry.undoes else ""
    name = f"{checkpoint!r} " if checkpoint else ""
    return (
        f"{entry.seq}",
        f"{entry.time:%Y-%m-%d %H:%M:%S}",
        entry.actor,
        f"{entry.operation}{undoes}",
        f"{name}{' '.join(changed[:_MAX_ENTRY_PAGES])}{more}",
    )


def _parse_time(text: str | None, name: str) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        fact = f"is {short_repr(text)}; a time such as 2026-03-11T14:00+08:00 is needed."
        raise InvalidValue(fact, argument=name) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@command(
    *CONTEXT,
    argument("seq", type=int, metavar="ENTRY", help="the number of the entry, from quire history"),
    examples=("quire undo agent.db 17",),
)
def run_undo(options: argparse.Namespace, out: Output) -> None:
    with open_context(options) as context:
        seq = context.undo(options.seq)
    out.result(
        {"seq": seq, "undone": options.seq},
        f"undid entry {options.seq} {out.paint.dim(f'(entry {seq}; undo {seq} to redo)')}",
    )


@command(
    *CONTEXT,
    argument("name", metavar="CHECKPOINT", help="the name of the checkpoint"),
    examples=("quire checkpoint agent.db before-the-refactoring",),
)
def run_checkpoint(options: argparse.Namespace, out: Output) -> None:
    with open_context(options) as context:
        seq = context.checkpoint(options.name)
    text = f"checkpoint {out.paint.cyan(options.name)} {out.paint.dim(f'(entry {seq})')}"
    out.result({"seq": seq, "name": options.name}, text)


@command(
    *CONTEXT,
    argument("to", metavar="POINT", nargs="?", help="a checkpoint or the number of an entry"),
    argument("--before", metavar="MESSAGE", help="to the state before this message: its number, or its page"),
    argument("--dry-run", action="store_true", help="show what would change, and change nothing"),
    examples=(
        "quire rollback agent.db before-the-refactoring --dry-run",
        "quire rollback agent.db 17",
        "quire rollback agent.db --before usr-7",
    ),
    about="A rollback is one entry, which undo can undo.",
)
def run_rollback(options: argparse.Namespace, out: Output) -> None:
    if (options.to is None) == (options.before is None):
        raise InvalidValue("Give either POINT or --before MESSAGE. quire history lists entries and checkpoints.")
    with open_context(options) as context:
        to = _entry_before(context, options.before) if options.to is None else parse_point(options.to)
        if options.dry_run:
            _print_preview(context, to, out)
            return
        before = context.seq
        seq = context.rollback(to)
        pins = _count_pins(context, _entry_number(context, to))
    if out.json:
        out.value({"seq": seq, "to": to, "changed": seq != before, "dry_run": False, "pins": pins})
    elif seq == before:
        out.line("no change: the context is in this state already")
    else:
        out.line(f"rolled back to {to} {out.paint.dim(f'(entry {seq}; undo {seq} to return)')}")
        _print_pins(pins, out)


def _entry_before(context: Context, message: str) -> int:
    """Return the last entry before a message was added. The message is given by its number, or by its page."""
    point = parse_point(message)
    if isinstance(point, str):
        on_page = context.conversation.messages_on(point)
        if not on_page:
            raise InvalidValue(
                f"is {message!r}, which is no page of a message; quire tree shows the pages.", argument="before"
            )
        point = on_page[0].index
    return context.conversation.entry_before(point)


def _print_preview(context: Context, to: str | int, out: Output) -> None:
    """Print what `rollback(to)` would change, without writing. Raises what the rollback would raise."""
    past = context.as_of(to)
    seq = _entry_number(context, to)
    changes: list[Values] = []
    for index in (index for entry in past.history(context.seq) for index in entry.pages):
        now, then = _find_page(context.pages, index), _find_page(past.pages, index)
        page = now or then
        if page is None:  # an index that the page had only between two moves
            continue
        before, after = _state(now), _state(then)
        after = "other text" if before == after else after
        changes.append({"index": index, "name": page.name, "now": before, "then": after})
    entries, pins = context.seq - seq, _count_pins(context, seq)
    messages, past_messages = len(context.messages()), len(past.messages())
    if out.json:
        counts = {"messages_now": messages, "messages_then": past_messages, "pins": pins}
        out.value({"to": to, "dry_run": True, "entries": entries, "pages": changes, **counts})
        return
    undone, changed = count_of(entries, "entry"), count_of(len(changes), "page")
    out.line(f"rolling back to {to} would undo {undone} and change {changed}")
    out.line(f"messages in the conversation: {messages:,} → {past_messages:,}")
    if changes:
        rows = [(row["index"], row["now"], row["then"], row["name"]) for row in changes[:_MAX_PREVIEW_PAGES]]
        out.table(("page", "now", "then", "name"), rows)
    if len(changes) > _MAX_PREVIEW_PAGES:
        out.line(out.paint.dim(f"… {len(changes) - _MAX_PREVIEW_PAGES:,} more"))
    _print_pins(pins, out)
    out.line("nothing was changed")


def _entry_number(context: Context, to: str | int) -> int:
    """Return the number of the entry of a point in history."""
    return context.pages.checkpoints()[to] if isinstance(to, str) else to


def _count_pins(context: Context, seq: int) -> int:
    """Return how many pages that changed since an entry are pinned: a rollback keeps their pins."""
    indices = {index for entry in context.history(seq) for index in entry.pages}
    pages = (_find_page(context.pages, index) for index in indices)
    return sum(page is not None and bool(page.pinned) for page in pages)


def _print_pins(pins: int, out: Output) -> None:
    if pins:
        out.line(f"{count_of(pins, 'pin')} not changed")


def _find_page(pages: ContextSystem, index: PageIndex) -> Page | None:
    try:
        return pages.get_page(index)
    except NoSuchPage:
        return None


def _state(page: Page | None) -> str:
    """Return the state of a page in a few words."""
    if page is None:
        return "not there"
    if isinstance(page, DetailPage) and page.mark is not Mark.NONE:
        return page.mark.name.lower()
    folder = page.parent or page.home
    state = f"{STATES[page.effective]}, {page.visibility.name.lower()}"
    return f"{state}, in {folder}" if folder else state
