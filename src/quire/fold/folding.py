"""Planning a fold: old exchanges are gathered under chapters that show as one line each, until the view fits again.

Oldest first, whole turns where they are not too long. What is too small for a line of its own joins the line before it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from quire.fold.gate import gate_of
from quire.fold.gathering import MOST_CHILDREN, Count, Lines, carried, chapter, is_line, join, merge
from quire.fold.summaries import allowance, longest, name_of, summarise_turns
from quire.pages import Form, Visibility
from quire.plan import Plan
from quire.reader import Reader
from quire.records import Header, PageRecord
from quire.view.folded import Folded
from quire.view.lines import page_line

_UNIT_TOKENS = 160
"""Turns smaller than this are folded together: a line for each would cost more than it saves."""
_LINE_TOKENS, _LINE_PART = 40, 12
"""A line is taken to cost a twelfth of what it stands for, so much at most: measured on recorded conversations."""


class Standing(NamedTuple):
    """A page of the conversation's first row as it is shown now, with what it costs."""

    page: PageRecord
    tokens: int
    is_line: bool
    leaves: Sequence[PageRecord] = ()
    """What an open folder shows in its place."""

    @property
    def is_open_folder(self) -> bool:
        return self.page.header.folder and not self.is_line

    def shows(self, key: int) -> bool:
        """Whether a page is shown here."""
        return self.page.key == key or any(leaf.key == key for leaf in self.leaves)

    def starts_at(self, limit: int) -> bool:
        """Whether an exchange is shown here that begins with this message or a later one."""
        pages = (self.page, *self.leaves)
        return any(page.header.numbers and page.header.numbers[0] >= limit for page in pages)

    def is_asked(self) -> bool:
        """Whether a message of the user's is shown here."""
        return any(leaf.header.form is Form.USER for leaf in (self.page, *self.leaves))


def essential(row: Sequence[Standing], reader: Reader) -> set[int]:
    """What is never folded: the open exchange, the last user message, and the newest exchange."""
    spoken = _spoken(row)
    waiting = reader.open_exchange()
    kept = {s.page.key for s in spoken if s.shows(waiting.key)} if waiting is not None else set()
    kept.update(standing.page.key for standing in spoken[-1:])  # what the model has not answered yet
    kept.update([s.page.key for s in reversed(spoken) if s.is_asked()][:1])
    return kept


def protected(row: Sequence[Standing], reader: Reader, turns: int, room: int) -> set[int]:
    """What is not folded: what is essential, and the last turns as far as they fit the room.

    If not even the newest turn fits, the newest exchanges that do.
    """
    spoken = _spoken(row)
    newest = list(_newest_turns(spoken, turns, room)) or list(_newest_exchanges(spoken, room))
    return essential(row, reader) | set(newest)


def choose(row: Sequence[Standing], kept: set[int], excess: int, limit: int | None, lines: int) -> list[Standing]:
    """The oldest pages whose folding saves enough, whole turns where that is not far more; `limit` bounds numbers.

    What is left of them are lines, which together take no more than `lines`.
    """
    chosen: list[Standing] = []
    gone = left = 0.0
    turn_at_limit = 0
    for standing in row:
        header = standing.page.header
        if standing.is_line or standing.page.key in kept or not _may_fold(standing):
            continue
        if limit is not None and any(
            leaf.header.numbers[-1:] >= (limit,) for leaf in (standing.page, *standing.leaves)
        ):
            break
        if gone - min(left, lines / 2) >= excess:  # many lines are gathered: they seldom take all of their room
            if header.form is Form.USER or turn_at_limit > _UNIT_TOKENS * 4:
                break
            turn_at_limit += standing.tokens
        chosen.append(standing)
        gone += standing.tokens
        left += min(_LINE_TOKENS, standing.tokens / _LINE_PART)
    return chosen


def fold(plan: Plan, row: Sequence[Standing], chosen: Sequence[Standing], lines: Lines) -> Folded:
    """Plan the folding of the chosen pages, then carry and merge the lines that stand."""
    done = Folded()
    limit, count = longest(lines.most), lines.count
    places = {standing.page.key: place for place, standing in enumerate(row)}
    bounds = [batch.boundary for batch in plan.batches()]
    units = {places[unit[0].page.key]: unit for unit in _units(chosen, places, bounds)}
    first_row: list[PageRecord] = []
    place = 0
    while place < len(row):
        unit = units.get(place)
        if unit is None:
            first_row.append(row[place].page)
            place += 1
            continue
        folded, pages = _fold_unit(plan, unit, limit, count)
        if not folded.saved:
            folded, pages = _absorb(plan, unit, first_row, count)
        done += folded
        first_row += pages
        place += len(unit)
    first_row = carried(plan, first_row, limit, count)
    merge(plan, first_row, lines, limit)
    return done


def _spoken(row: Sequence[Standing]) -> list[Standing]:
    return [standing for standing in row if not standing.is_line and standing.tokens]  # an empty one shows nothing


def _newest_turns(spoken: Sequence[Standing], turns: int, room: int) -> Iterator[int]:
    used = 0
    turn: list[int] = []
    for standing in reversed(spoken):
        used += standing.tokens
        if used > room or not turns:
            return
        turn.append(standing.page.key)
        if standing.page.header.form is Form.USER:
            yield from turn
            turn, turns = [], turns - 1


def _newest_exchanges(spoken: Sequence[Standing], room: int) -> Iterator[int]:
    used = 0
    for standing in reversed(spoken):
        used += standing.tokens
        if used > room:
            return
        yield standing.page.key


def _may_fold(standing: Standing) -> bool:
    header = standing.page.header
    if header.pinned or any(leaf.header.pinned for leaf in standing.leaves):
        return False
    return header.form in (Form.USER, Form.ASSISTANT, Form.SYSTEM, Form.SUMMARY, Form.TEXT) or standing.is_open_folder


def _units(chosen: Sequence[Standing], places: dict[int, int], bounds: Sequence[int]) -> Iterator[list[Standing]]:
    """The chosen pages in groups that become one line each: neighbours, whole turns, not too small, not too many.

    No group reaches over a boundary of an open batch.
    """
    unit: list[Standing] = []
    tokens = 0
    for standing in chosen:
        starts = standing.page.header.form is Form.USER
        apart = bool(unit) and places[standing.page.key] != places[unit[-1].page.key] + 1
        apart = apart or (bool(unit) and standing.page.parent != unit[-1].page.parent)
        apart = apart or any(standing.starts_at(bound) and not unit[0].starts_at(bound) for bound in bounds if unit)
        if unit and (apart or len(unit) >= MOST_CHILDREN or (starts and tokens >= _UNIT_TOKENS)):
            yield unit
            unit, tokens = [], 0
        unit.append(standing)
        tokens += standing.tokens
    if unit:
        yield unit


def _fold_unit(plan: Plan, unit: Sequence[Standing], most: int, count: Count) -> tuple[Folded, list[PageRecord]]:
    """Fold one group; what that did, and what stands in its place. Nothing is saved if a line would be no shorter."""
    pages = [standing.page for standing in unit]
    if len(unit) == 1 and unit[0].is_open_folder:
        saved = unit[0].tokens - _line_size(plan, pages[0], count)
        if saved <= 0:
            return Folded(), pages
        return Folded(saved=saved), [plan.change(pages[0], visibility=Visibility.HIDDEN)]
    gate, messages = gate_of(plan, [leaf for standing in unit for leaf in standing.leaves or (standing.page,)])
    before = sum(standing.tokens for standing in unit)
    name = name_of(messages) if messages and len(unit) > 1 else pages[0].header.name
    summary, account = summarise_turns(name, messages, gate, allowance(before, most), count)
    if len(unit) > 1:
        folder = chapter(plan, pages, name, summary, level=1, count=count, before=before)
        if folder is None:
            return Folded(), pages
        return Folded(len(unit), 1, before - folder.header.line_tokens, account), [folder]
    fields = {"description": summary, "summary_tokens": count(summary)}
    line = count(page_line(plan.index(pages[0].key), _with(pages[0].header, **fields)))
    if line >= before:
        return Folded(), pages
    page = plan.change(pages[0], **fields, visibility=Visibility.HIDDEN, line_tokens=line)
    return Folded(1, 0, before - line, account), [page]


def _absorb(
    plan: Plan, unit: Sequence[Standing], before: list[PageRecord], count: Count
) -> tuple[Folded, list[PageRecord]]:
    """Put what is too small for a line of its own into the line before it, if there is one; what is left."""
    done = Folded()
    for place, standing in enumerate(unit):
        page, last = standing.page, before[-1] if before else None
        if last is None or not is_line(last) or last.parent != page.parent:
            return done, [other.page for other in unit[place:]]
        joined = join(plan, last, page, last.header.description, standing.tokens, count)
        if joined is None:
            return done, [other.page for other in unit[place:]]
        before[-1] = joined
        done += Folded(1, 0, standing.tokens)
    return done, []


def _line_size(plan: Plan, page: PageRecord, count: Count) -> int:
    return page.header.line_tokens or count(page_line(plan.index(page.key), page.header))


def _with(header: Header, **fields: object) -> Header:
    return replace(header, **fields)
