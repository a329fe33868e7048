"""Planning few lines for much: lines are gathered under chapters, and these under others, never more than sixteen each.

Chapters are carried like digits of a counter: eight of one level become one of the next, so that any number of turns
shows few lines. Where even these are too many, the oldest join the chapter before them, which keeps its own children
the same way: however little room there is, everything lies only a few levels deep.

Planning a fold: old exchanges are gathered under chapters that show as one line each, until the view fits again.

Oldest first, whole turns where they are not too long. What is too small for a line of its own joins the line before it.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import Header, PageRecord, segment_number
from quire.model.pages import Form, Visibility
from quire.model.text import MAX_DESCRIPTION
from quire.view.draw import generation_of
from quire.view.fold.fact_check import gate_of
from quire.view.fold.summaries import allowance, longest, name_of, summarise_chapters, summarise_turns
from quire.view.part_builder import page_line
from quire.view.parts import Folded

MOST_CHILDREN = 16
CARRY = 8

Count = Callable[[str], int]


class Lines(NamedTuple):
    """What lines may take: all of them together at most so many tokens, the head of each block of them included."""

    count: Count
    most: int
    head: int


def is_line(page: PageRecord) -> bool:
    """Whether a page is a line that folding made."""
    header = page.header
    return header.visibility is Visibility.HIDDEN and header.line_tokens > 0 and not header.pinned


def chapter(
    plan: Plan, pages: Sequence[PageRecord], name: str, summary: str, *, level: int, count: Count, before: int
) -> PageRecord | None:
    """Gather pages under a new chapter where the first of them stood; None if its line would save nothing."""
    parent = pages[0].parent
    if parent is None:
        return None
    key = plan.next_key(segment_number(parent))
    header = Header(
        folder=True,
        name=name,
        description=summary,
        **plan.origin(),
        summary_tokens=count(summary),
        tokens=sum(page.header.tokens for page in pages),
        messages=sum(page.header.messages for page in pages),
        visibility=Visibility.HIDDEN,
        form=Form.CHAPTER,
        level=level,
    )
    line = count(page_line(plan.index(key), header))
    if line >= before:
        return None
    folder = plan.create(
        key, parent, pages[0].rank, replace(header, line_tokens=line)
    )  # the first one leaves its place
    for page in pages:
        plan.place(page, key, plan.append_rank(key))
    return folder


def join(plan: Plan, last: PageRecord, page: PageRecord, summary: str, cost: int, count: Count) -> PageRecord | None:
    """Put a page into the line before it: the chapter as it is then, or None if its line would save nothing.

    `cost` is what the page takes where it stands.
    """
    before = last.header.line_tokens + cost
    if last.header.form is not Form.CHAPTER:
        return chapter(plan, [last, page], last.header.name, summary, level=1, count=count, before=before)
    fields = {
        "description": summary,
        "summary_tokens": count(summary),
        "tokens": last.header.tokens + page.header.tokens,
        "messages": last.header.messages + page.header.messages,
    }
    line = count(page_line(plan.index(last.key), replace(last.header, **fields)))
    if line >= before:
        return None
    children = list(plan.members(last.key))
    if len(children) >= MOST_CHILDREN:
        children = _grouped(plan, children, count)
    children.append(plan.place(page, last.key, plan.append_rank(last.key)))
    while len(_longest_run(children)) > CARRY:
        children = _grouped(plan, children, count)
    level = max(level_of(last), 1 + max(map(level_of, children)))
    return plan.change(last, **fields, level=level, line_tokens=line)


def carried(plan: Plan, first_row: Sequence[PageRecord], limit: int, count: Count) -> list[PageRecord]:
    """The first row with every eight neighbouring lines of one level under a chapter of the next, and so on upwards."""
    row = list(first_row)
    level = 1
    while any(is_line(page) and level_of(page) >= level for page in row):
        done: list[PageRecord] = []
        same = 0
        for page in row:
            done.append(page)
            neighbours = same and done[-2].parent == page.parent
            same = (same if neighbours else 0) + 1 if is_line(page) and level_of(page) == level else 0
            if same == CARRY:
                gathered = _gathered(plan, done[-CARRY:], _summary(done[-CARRY:], limit, count), count)
                if gathered is not None:
                    done[-CARRY:] = [gathered]
                same = 0
        row = done
        level += 1
    return row


def merge(plan: Plan, first_row: list[PageRecord], lines: Lines, limit: int) -> None:
    """Gather the oldest lines until all lines together take no more than their share."""
    while _lines_size(first_row, lines.head) > lines.most:
        if not _merge_oldest(plan, first_row, lambda pages: _summary(pages, limit, lines.count), lines.count):
            return


def gather_all(plan: Plan, first_row: list[PageRecord], count: Count) -> None:
    """Gather all lines under as few chapters as can be, without a word on what is in them."""
    while _merge_oldest(plan, first_row, lambda pages: "", count):
        pass


def _merge_oldest(
    plan: Plan, first_row: list[PageRecord], say: Callable[[Sequence[PageRecord]], str], count: Count
) -> bool:
    """Make one line of the oldest ones; whether that was possible."""
    run = next((run for run in _line_runs(first_row) if len(run) > 1), None)
    if run is None:
        return False
    if run[0].header.form is Form.CHAPTER and level_of(run[0]) > level_of(run[1]):
        pages = run[:2]
        merged = join(plan, pages[0], pages[1], say(pages), pages[1].header.line_tokens, count)
    else:
        pages = run[:MOST_CHILDREN]
        merged = _gathered(plan, pages, say(pages), count)
    if merged is not None:
        place = next(n for n, page in enumerate(first_row) if page.key == pages[0].key)
        first_row[place : place + len(pages)] = [merged]
    return merged is not None


def _lines_size(first_row: Sequence[PageRecord], head: int) -> int:
    """What all lines take, with the heads of their blocks."""
    blocks = groupby(first_row, key=lambda page: generation_of(page) if is_line(page) else None)
    heads = sum(head for generation, _ in blocks if generation is not None)
    return heads + sum(page.header.line_tokens for page in first_row if is_line(page))


def _line_runs(first_row: Sequence[PageRecord]) -> list[list[PageRecord]]:
    """The folded lines of the first row, as runs in one folder with nothing shown between them."""
    runs = groupby(first_row, key=lambda page: page.parent if is_line(page) else None)
    return [list(run) for parent, run in runs if parent is not None]


def _summary(pages: Sequence[PageRecord], limit: int, count: Count) -> str:
    return summarise_chapters([(page.header.name, page.header.description) for page in pages], limit, count)


def _gathered(plan: Plan, pages: Sequence[PageRecord], summary: str, count: Count) -> PageRecord | None:
    """Lines gathered under a chapter of the next level; None if that would save nothing."""
    before = sum(page.header.line_tokens for page in pages)
    level = 1 + max(map(level_of, pages))
    return chapter(plan, pages, pages[0].header.name, summary, level=level, count=count, before=before)


def _longest_run(children: Sequence[PageRecord]) -> Sequence[PageRecord]:
    """The most neighbours of one level, or any two where no two are."""
    runs = [list(run) for _, run in groupby(children, key=level_of)]
    longest = max(runs, key=len)
    return longest if len(longest) > 1 else children[-2:]


def _grouped(plan: Plan, children: Sequence[PageRecord], count: Count) -> list[PageRecord]:
    """The children of a chapter with up to eight of one level under a chapter of their own."""
    pages = _longest_run(children)[:CARRY]
    start = next(n for n, child in enumerate(children) if child.key == pages[0].key)
    level = 1 + max(map(level_of, pages))
    names = " · ".join(page.header.name for page in pages[1:])[:MAX_DESCRIPTION]
    group = chapter(plan, pages, pages[0].header.name, names, level=level, count=count, before=sys.maxsize)
    return list(children) if group is None else [*children[:start], group, *children[start + len(pages) :]]


def level_of(page: PageRecord) -> int:
    """How many levels of chapters a line stands for."""
    return max(page.header.level, 1)


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
