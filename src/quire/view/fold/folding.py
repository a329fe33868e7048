"""Planning a fold: old exchanges become chapters, and each chapter shows as one line.

The oldest pages are folded first, in whole turns where these are not too long. A page that is too small for a line of
its own joins the line before it. Chapters are carried like the digits of a counter: eight neighbouring lines of one
level become one line of the next, so that any number of turns shows few lines. If the lines still exceed their share of
the budget, the oldest ones join the chapter before them. A chapter keeps its children in the same way, sixteen at most,
so that everything is only a few levels deep.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from quire.core.plan import Plan
from quire.core.reader import Reader, initial_ranks
from quire.core.records import Header, PageRecord, page_line, segment_number
from quire.core.titles import exchange_title, has_given_name
from quire.model.messages import Message
from quire.model.pages import Form, Visibility
from quire.model.text import MAX_DESCRIPTION
from quire.view.draw import Node, PartBuilder, generation_of
from quire.view.fold.facts import check_facts
from quire.view.fold.summaries import (
    chapter_name,
    max_summary_tokens,
    summarise_chapters,
    summarise_turns,
    summary_allowance,
)
from quire.view.parts import FoldResult, PreparedLine, PreparedLines

MAX_CHILDREN = 16
CARRY = 8
_UNIT_TOKENS = 160
"""Smaller turns are folded together: a line for each would cost more than it saves."""
_LINE_TOKENS, _LINE_PART = 40, 12
"""The estimated cost of a line: a twelfth of the folded tokens, 40 at most. Measured on recorded conversations."""
_HIDDEN: Final = Visibility.HIDDEN
_USER: Final = Form.USER
_FOLDABLE: Final = (Form.USER, Form.ASSISTANT, Form.SYSTEM, Form.SUMMARY, Form.TEXT)
"""Constants for loops over all pages of the first row, because reading a member from its enum is slow."""
_LINES_AT_ONCE = 2
"""The most lines that are written for the next fold in one turn."""

Count = Callable[[str], int]


class LineBudget(NamedTuple):
    """The tokens that all lines together may take, and those of the head of each block of lines.

    `prepared` has lines that were written before the fold.
    """

    count: Count
    limit: int
    head: int
    prepared: PreparedLines


class RowItem(Struct, frozen=True, gc=False):
    """A page of the conversation's first row, as it is shown now, with its tokens.

    The first row are the pages directly below the root of the conversation.
    """

    page: PageRecord
    tokens: int
    is_line: bool
    leaves: Sequence[PageRecord] = ()
    """The pages that an open folder shows in its place."""

    @property
    def is_open_folder(self) -> bool:
        return self.page.header.folder and not self.is_line

    def shows(self, key: int) -> bool:
        """Return whether a page is shown here."""
        return self.page.key == key or any(leaf.key == key for leaf in self.leaves)

    def starts_at(self, limit: int) -> bool:
        """Return whether an exchange is shown here that begins with message `limit` or a later one."""
        pages = (self.page, *self.leaves)
        return any(page.header.numbers and page.header.numbers[0] >= limit for page in pages)

    def has_user_message(self) -> bool:
        """Return whether a user message is shown here."""
        return self.page.header.form is Form.USER or any(leaf.header.form is Form.USER for leaf in self.leaves)


class LineWriter:
    """Writes lines that the next fold is expected to need, and summaries of chapters, so that the fold looks them up.

    A call writes at most two new lines, so that no turn waits for many, and most turns wait for none. All lines
    together may take `limit` tokens.
    """

    def __init__(self, builder: PartBuilder, limit: int) -> None:
        self.limit = limit
        self._builder = builder
        self._most = max_summary_tokens(limit)
        self._place = 0  # of the first element without a line
        self._lines: list[tuple[int, str, str]] = []  # levels, names and summaries of the lines before that place

    def write_next(self, reader: Reader, nodes: Sequence[Node]) -> bool:
        """Write the lines of the oldest turns that have none; return False if only the newest turns have none.

        More pages may join the newest turns.
        """
        written = 0
        while unit := self._next_unit(nodes):
            written += self._write(reader, unit)
            if written == _LINES_AT_ONCE:
                return True
        return False

    def _next_unit(self, nodes: Sequence[Node]) -> list[RowItem]:
        """Return the next pages that become one line; an empty list if more pages may join them."""
        places: dict[int, int] = {}  # of the elements
        rows: dict[int, int] = {}  # of the pages, with a gap where a fold finds something else between them
        unit = next(_units(self._exchanges(nodes, places, rows), rows, ()), [])
        if not unit or unit[-1].page.key == next(reversed(places)):
            return []
        self._place = places[unit[-1].page.key] + 1
        return unit

    def _exchanges(self, nodes: Sequence[Node], places: dict[int, int], rows: dict[int, int]) -> Iterator[RowItem]:
        """Yield the exchanges without a line, and set their places. Also add the lines before them to `_lines`."""
        gap = 0
        for place in range(self._place, len(nodes)):
            part, pages = nodes[place].part, nodes[place].pages
            if part.kind == "exchange" and len(pages) == 1 and not pages[0].header.pinned:
                places[pages[0].key] = place
                rows[pages[0].key] = len(rows) + gap
                yield RowItem(pages[0], part.tokens, is_line=False)
            elif part.kind in ("exchange", "folded"):
                gap += 1
                if not places:
                    self._place = place + 1
                    self._lines += [(_carried_level(page), page.header.name, page.header.description) for page in pages]

    def _write(self, reader: Reader, unit: Sequence[RowItem]) -> bool:
        """Write the line of some pages, and summaries of chapters that it completes; return whether it is new."""
        prepared, count = self._builder.prepared_lines, self._builder.measure
        key = _line_key(reader, unit, self._most)
        line = prepared.lines.get(key)
        is_new = line is None
        if line is None:
            line = prepared.lines[key] = _write_line(reader, unit, self._most, count)
        if sum(item.tokens for item in unit) > _LINE_TOKENS:  # a smaller page joins the line before it
            self._lines.append((1, line[0], line[1]))
        while (group := self._full_group()) is not None:
            summary = prepared.summaries.get((self._most, group))
            if summary is None:
                summary = prepared.summaries[self._most, group] = summarise_chapters(group, self._most, count)
            self._lines[-CARRY:] = [(self._lines[-1][0] + 1, group[0][0], summary)]
        prepared.trim()
        return is_new

    def _full_group(self) -> tuple[tuple[str, str], ...] | None:
        """Return the last eight lines if they have one level, so that a fold makes them one line; else None."""
        last = self._lines[-CARRY:]
        if len(last) < CARRY or any(not level or level != last[0][0] for level, _, _ in last):
            return None
        return tuple((name, summary) for _, name, summary in last)


def is_folded_line(page: PageRecord) -> bool:
    """Return whether a page is a line that a fold made."""
    header = page.header
    return header.line_tokens > 0 and header.visibility is _HIDDEN and not header.pinned


def make_chapter(
    plan: Plan, pages: Sequence[PageRecord], name: str, summary: str, *, level: int, count: Count, before: int
) -> PageRecord | None:
    """Move pages below a new chapter in the place of the first one; return None if its line would save nothing.

    `before` are the tokens that the pages take now.
    """
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
    folder = plan.create(key, parent, pages[0].rank, replace(header, line_tokens=line))  # in place of the first page
    for page, rank in zip(pages, initial_ranks(len(pages)), strict=True):
        plan.place(page, key, rank)
    return folder


def join_line(
    plan: Plan, last: PageRecord, page: PageRecord, summary: str, cost: int, count: Count
) -> PageRecord | None:
    """Move a page into the line before it and return the changed chapter; return None if its line would save nothing.

    `cost` is the tokens of the page in its place.
    """
    before = last.header.line_tokens + cost
    if last.header.form is not Form.CHAPTER:
        return make_chapter(plan, [last, page], last.header.name, summary, level=1, count=count, before=before)
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
    if len(children) >= MAX_CHILDREN:
        children = _group(plan, children, count)
    children.append(plan.place(page, last.key, plan.append_rank(last.key)))
    while len(_longest_run(children)) > CARRY:
        children = _group(plan, children, count)
    level = max(level_of(last), 1 + max(map(level_of, children)))
    return plan.change(last, **fields, level=level, line_tokens=line)


def carry_lines(plan: Plan, first_row: Sequence[PageRecord], lines: LineBudget, limit: int) -> list[PageRecord]:
    """Return the first row with every eight neighbouring lines of one level below a chapter of the next level."""
    row = list(first_row)
    levels = list(map(_carried_level, row))
    level = 1
    while max(levels, default=0) >= level:
        if levels.count(level) < CARRY:
            level += 1
            continue
        done: list[PageRecord] = []
        same = 0
        for page, own in zip(row, levels, strict=True):
            done.append(page)
            neighbours = same and done[-2].parent == page.parent
            same = (same if neighbours else 0) + 1 if own == level else 0
            if same == CARRY:
                gathered = _gather(plan, done[-CARRY:], _summary(done[-CARRY:], lines, limit), lines.count)
                if gathered is not None:
                    done[-CARRY:] = [gathered]
                same = 0
        row = done
        levels = list(map(_carried_level, row))
        level += 1
    return row


def merge_lines(plan: Plan, first_row: list[PageRecord], lines: LineBudget, limit: int) -> None:
    """Merge the oldest lines until all lines together fit their budget."""
    while _lines_size(first_row, lines.head) > lines.limit:
        if not _merge_oldest(plan, first_row, lambda pages: _summary(pages, lines, limit), lines.count):
            return


def merge_all_lines(plan: Plan, first_row: list[PageRecord], count: Count) -> None:
    """Merge all lines into as few chapters as possible, without summaries."""
    while _merge_oldest(plan, first_row, lambda pages: "", count):
        pass


def _merge_oldest(
    plan: Plan, first_row: list[PageRecord], summarise: Callable[[Sequence[PageRecord]], str], count: Count
) -> bool:
    """Merge the oldest lines into one; return whether that was possible."""
    groups = groupby(first_row, key=lambda page: page.parent if is_folded_line(page) else None)
    runs = (list(group) for parent, group in groups if parent is not None)  # lines with nothing shown between them
    run = next((run for run in runs if len(run) > 1), None)
    if run is None:
        return False
    if run[0].header.form is Form.CHAPTER and level_of(run[0]) > level_of(run[1]):
        pages = run[:2]
        merged = join_line(plan, pages[0], pages[1], summarise(pages), pages[1].header.line_tokens, count)
    else:
        pages = run[:MAX_CHILDREN]
        merged = _gather(plan, pages, summarise(pages), count)
    if merged is not None:
        place = next(n for n, page in enumerate(first_row) if page.key == pages[0].key)
        first_row[place : place + len(pages)] = [merged]
    return merged is not None


def _lines_size(first_row: Sequence[PageRecord], head: int) -> int:
    """Return the tokens of all lines, with the heads of their blocks."""
    blocks = groupby(first_row, key=lambda page: generation_of(page) if is_folded_line(page) else None)
    heads = sum(head for generation, _ in blocks if generation is not None)
    return heads + sum(page.header.line_tokens for page in first_row if is_folded_line(page))


def _summary(pages: Sequence[PageRecord], lines: LineBudget, limit: int) -> str:
    below = tuple((page.header.name, page.header.description) for page in pages)
    known = lines.prepared.summaries.get((limit, below))
    return summarise_chapters(below, limit, lines.count) if known is None else known


def _gather(plan: Plan, pages: Sequence[PageRecord], summary: str, count: Count) -> PageRecord | None:
    """Move lines below a chapter of the next level; return None if that would save nothing."""
    before = sum(page.header.line_tokens for page in pages)
    level = 1 + max(map(level_of, pages))
    return make_chapter(plan, pages, pages[0].header.name, summary, level=level, count=count, before=before)


def _longest_run(children: Sequence[PageRecord]) -> Sequence[PageRecord]:
    """Return the longest run of children of one level; the last two children if every run has length 1."""
    runs = [list(run) for _, run in groupby(children, key=level_of)]
    longest = max(runs, key=len)
    return longest if len(longest) > 1 else children[-2:]


def _group(plan: Plan, children: Sequence[PageRecord], count: Count) -> list[PageRecord]:
    """Move up to eight children of one level below a chapter of their own; return the new list of children."""
    pages = _longest_run(children)[:CARRY]
    start = next(n for n, child in enumerate(children) if child.key == pages[0].key)
    level = 1 + max(map(level_of, pages))
    names = " · ".join(page.header.name for page in pages[1:])[:MAX_DESCRIPTION]
    group = make_chapter(plan, pages, pages[0].header.name, names, level=level, count=count, before=sys.maxsize)
    return list(children) if group is None else [*children[:start], group, *children[start + len(pages) :]]


def _carried_level(page: PageRecord) -> int:
    """Return the level of a line that a fold made; 0 for other pages, which are not carried."""
    return level_of(page) if is_folded_line(page) else 0


def level_of(page: PageRecord) -> int:
    """Return how many levels of chapters a line contains, at least 1."""
    return max(page.header.level, 1)


def essential_pages(row: Sequence[RowItem], reader: Reader) -> set[int]:
    """Return the pages that are never folded: the open exchange, the last user message, and the newest exchange.

    Late system messages after the newest exchange are not folded either.
    """
    expanded = _expanded_items(row)
    waiting = reader.open_exchange()
    kept = {s.page.key for s in expanded if s.shows(waiting.key)} if waiting is not None else set()
    for item in reversed(expanded):  # what the model has not answered yet
        kept.add(item.page.key)
        if item.page.header.form is not Form.SYSTEM:
            break
    last = next((item for item in reversed(expanded) if item.has_user_message()), None)
    return kept if last is None else kept | {last.page.key}


def unread_results(row: Sequence[RowItem]) -> set[int]:
    """Return the exchange with the newest results if only one user message and system messages follow it.

    The model has not read these results yet.
    """
    pages = (item.page for item in reversed(_expanded_items(row)) if item.page.header.form is not Form.SYSTEM)
    newest, before = next(pages, None), next(pages, None)
    if newest is None or before is None or newest.header.form is not Form.USER:
        return set()
    has_results = before.header.form is Form.ASSISTANT and len(before.header.numbers) > 1
    return {before.key} if has_results else set()


def protected_pages(row: Sequence[RowItem], reader: Reader, turns: int, room: int) -> set[int]:
    """Return the pages that are not folded now: the essential ones, and the last turns as far as they fit `room`.

    If not even the newest turn fits, the newest exchanges that fit are protected.
    """
    expanded = _expanded_items(row)
    newest = list(_newest_turns(expanded, turns, room)) or list(_newest_exchanges(expanded, room))
    return essential_pages(row, reader) | set(newest)


class ChosenPages(NamedTuple):
    """The pages that a fold takes, and whether these are all that it could take."""

    items: list[RowItem]
    are_all: bool


def choose_pages(row: Sequence[RowItem], kept: set[int], excess: int, limit: int | None, lines: int) -> ChosenPages:
    """Return the oldest pages whose folding saves `excess` tokens. Choose whole turns unless these are far larger.

    No page with message `limit` or later is chosen. The estimate assumes that all lines take at most `lines` tokens.
    """
    chosen: list[RowItem] = []
    gone = left = 0.0
    turn_at_limit = 0
    for item in row:
        header = item.page.header
        if item.is_line or item.page.key in kept or not _may_fold(item):
            continue
        if limit is not None and any(leaf.header.numbers[-1:] >= (limit,) for leaf in (item.page, *item.leaves)):
            break
        if gone - min(left, lines / 2) >= excess:  # many lines are merged: they seldom use all of their room
            if header.form is Form.USER or turn_at_limit > _UNIT_TOKENS * 4:
                return ChosenPages(chosen, are_all=False)
            turn_at_limit += item.tokens
        chosen.append(item)
        gone += item.tokens
        left += min(_LINE_TOKENS, item.tokens / _LINE_PART)
    return ChosenPages(chosen, are_all=True)


def fold_pages(
    plan: Plan, row: Sequence[RowItem], chosen: Sequence[RowItem], lines: LineBudget
) -> tuple[FoldResult, bool]:
    """Plan the folding of the chosen pages, then carry and merge the lines.

    Return the result, and whether all chosen pages are folded and no lines are left to carry or to merge.
    """
    done, is_complete = FoldResult(), True
    limit, count = max_summary_tokens(lines.limit), lines.count
    places = {item.page.key: place for place, item in enumerate(row)}
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
        folded, pages = _fold_unit(plan, unit, limit, lines)
        if not folded.saved:
            folded, pages = _absorb(plan, unit, first_row, count)
            is_complete = is_complete and not pages
        done += folded
        first_row += pages
        place += len(unit)
    first_row = carry_lines(plan, first_row, lines, limit)
    merge_lines(plan, first_row, lines, limit)
    lines_in_row = groupby(first_row, key=lambda page: (_carried_level(page), page.parent))
    is_complete = is_complete and not any(level and len(list(run)) >= CARRY for (level, _), run in lines_in_row)
    return done, is_complete and _lines_size(first_row, lines.head) <= lines.limit


def _expanded_items(row: Sequence[RowItem]) -> list[RowItem]:
    return [item for item in row if not item.is_line and item.tokens]  # an empty exchange shows nothing


def _newest_turns(expanded: Sequence[RowItem], turns: int, room: int) -> Iterator[int]:
    used = 0
    turn: list[int] = []
    for item in reversed(expanded):
        used += item.tokens
        if used > room or not turns:
            return
        turn.append(item.page.key)
        if item.page.header.form is Form.USER:
            yield from turn
            turn, turns = [], turns - 1


def _newest_exchanges(expanded: Sequence[RowItem], room: int) -> Iterator[int]:
    used = 0
    for item in reversed(expanded):
        used += item.tokens
        if used > room:
            return
        yield item.page.key


def _may_fold(item: RowItem) -> bool:
    header = item.page.header
    if header.pinned or any(leaf.header.pinned for leaf in item.leaves):
        return False
    return header.form in _FOLDABLE or item.is_open_folder


def _units(chosen: Iterable[RowItem], places: dict[int, int], bounds: Sequence[int]) -> Iterator[list[RowItem]]:
    """Yield the chosen pages in groups that become one line each: neighbours, whole turns, not too small, not too many.

    No group crosses the boundary of an open batch.
    """
    unit: list[RowItem] = []
    tokens = 0
    for item in chosen:
        starts = item.page.header.form is _USER
        apart = bool(unit) and places[item.page.key] != places[unit[-1].page.key] + 1
        apart = apart or (bool(unit) and item.page.parent != unit[-1].page.parent)
        apart = apart or any(item.starts_at(bound) and not unit[0].starts_at(bound) for bound in bounds if unit)
        if unit and (apart or len(unit) >= MAX_CHILDREN or (starts and tokens >= _UNIT_TOKENS)):
            yield unit
            unit, tokens = [], 0
        unit.append(item)
        tokens += item.tokens
    if unit:
        yield unit


def _line_key(reader: Reader, unit: Sequence[RowItem], most: int) -> tuple[int, ...]:
    """Return all that the line of a group depends on. The number of segments decides which words are page indices."""
    states = [value for item in unit for value in (item.page.key, item.page.header.seq, item.tokens)]
    return (most, len(reader.counters), *states)


def _write_line(reader: Reader, unit: Sequence[RowItem], most: int, count: Count) -> PreparedLine:
    """Return the name and the summary of the line of a group, and the account of its facts."""
    check, messages = check_facts(reader, [leaf for item in unit for leaf in item.leaves or (item.page,)])
    name = _line_name([item.page for item in unit], messages)
    allowance = summary_allowance(sum(item.tokens for item in unit), most)
    return name, *summarise_turns(name, messages, check, allowance, count)


def _fold_unit(
    plan: Plan, unit: Sequence[RowItem], most: int, lines: LineBudget
) -> tuple[FoldResult, list[PageRecord]]:
    """Fold one group; return the result and the pages in its place. `saved` is 0 if the line is not shorter."""
    count = lines.count
    pages = [item.page for item in unit]
    if len(unit) == 1 and unit[0].is_open_folder:
        header = pages[0].header
        saved = unit[0].tokens - (header.line_tokens or count(page_line(plan.index(pages[0].key), header)))
        if saved <= 0:
            return FoldResult(), pages
        return FoldResult(saved=saved), [plan.change(pages[0], visibility=Visibility.HIDDEN)]
    before = sum(item.tokens for item in unit)
    known = None if any(item.leaves for item in unit) else lines.prepared.lines.get(_line_key(plan, unit, most))
    name, summary, account = known or _write_line(plan, unit, most, count)
    if len(unit) > 1:
        folder = make_chapter(plan, pages, name, summary, level=1, count=count, before=before)
        if folder is None:
            return FoldResult(), pages
        return FoldResult(len(unit), 1, before - folder.header.line_tokens, account), [folder]
    fields = {"name": name, "description": summary, "summary_tokens": count(summary)}
    line = count(page_line(plan.index(pages[0].key), replace(pages[0].header, **fields)))
    if line >= before:
        return FoldResult(), pages
    page = plan.change(pages[0], **fields, visibility=Visibility.HIDDEN, line_tokens=line)
    return FoldResult(1, 0, before - line, account), [page]


def _line_name(pages: Sequence[PageRecord], messages: Sequence[Message]) -> str:
    """Return the name of the line that replaces some pages: a title, unless the name was given explicitly."""
    if len(pages) > 1:
        return chapter_name(messages)
    has_title = bool(messages) and not has_given_name(pages[0], messages[0])
    return exchange_title(messages[0]) if has_title else pages[0].header.name


def _absorb(
    plan: Plan, unit: Sequence[RowItem], before: list[PageRecord], count: Count
) -> tuple[FoldResult, list[PageRecord]]:
    """Move pages that are too small for a line of their own into the line before; return the pages that are left."""
    done = FoldResult()
    for place, item in enumerate(unit):
        last = before[-1] if before else None
        joined = None
        if last is not None and is_folded_line(last) and last.parent == item.page.parent:
            joined = join_line(plan, last, item.page, last.header.description, item.tokens, count)
        if joined is None:
            return done, [other.page for other in unit[place:]]
        before[-1] = joined
        done += FoldResult(1, 0, item.tokens)
    return done, []
