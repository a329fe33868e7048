"""Planning a fold: old exchanges are gathered under chapters that show as one line each, until the view fits again.

Oldest first, whole turns where they are not too long, at most sixteen children a chapter. Chapters are carried like
digits of a counter: eight of one level become one of the next, so that any number of turns shows few lines.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from quire.exchanges import label
from quire.fold.summaries import summarise_chapters, summarise_turns
from quire.messages import Message
from quire.pages import Form, Visibility
from quire.plan import Plan
from quire.reader import Reader
from quire.records import Header, PageRecord, segment_number
from quire.view.folded import Folded
from quire.view.lines import page_line

MOST_CHILDREN = 16
CARRY = 8
_UNIT_TOKENS = 160
"""Turns smaller than this are folded together: a line for each would cost more than it saves."""
_LINE_TOKENS = 40

Count = Callable[[str], int]


class Standing(NamedTuple):
    """A page of the conversation's first row as it is shown now, with what it costs."""

    page: PageRecord
    tokens: int
    is_line: bool

    @property
    def is_open_folder(self) -> bool:
        return self.page.header.folder and not self.is_line


def protected(row: Sequence[Standing], reader: Reader, turns: int, room: int) -> set[int]:
    """What is not folded: the newest exchange, the last user message, and the last turns as far as they fit the room.

    If not even the newest turn fits, the newest exchanges that do.
    """
    kept: set[int] = set()
    waiting = reader.open_exchange()
    if waiting is not None:
        kept.add(waiting.key)
    spoken = [standing for standing in row if not standing.is_line]
    last_user = next((s.page.key for s in reversed(spoken) if s.page.header.form is Form.USER), None)
    if last_user is not None:
        kept.add(last_user)
    if spoken:
        kept.add(spoken[-1].page.key)  # what the model has not answered yet
    newest = list(_newest_turns(spoken, turns, room)) or list(_newest_exchanges(spoken, room))
    return kept | set(newest)


def choose(row: Sequence[Standing], kept: set[int], excess: int, limit: int | None) -> list[Standing]:
    """The oldest pages whose folding saves enough, whole turns where that is not far more; `limit` bounds numbers."""
    chosen: list[Standing] = []
    saved = 0.0
    turn_at_limit = 0
    for standing in row:
        header = standing.page.header
        if standing.is_line or standing.page.key in kept or not _may_fold(standing):
            continue
        if limit is not None and header.numbers and header.numbers[0] >= limit:
            break
        if saved >= excess:
            if header.form is Form.USER or turn_at_limit > _UNIT_TOKENS * 4:
                break
            turn_at_limit += standing.tokens
        chosen.append(standing)
        saved += standing.tokens - min(_LINE_TOKENS, standing.tokens / 4)
    return chosen


def fold(plan: Plan, row: Sequence[Standing], chosen: Sequence[Standing], count: Count, most_lines: int) -> Folded:
    """Plan the folding of the chosen pages, then carry and merge the lines that stand."""
    done = Folded()
    places = {standing.page.key: place for place, standing in enumerate(row)}
    units = {places[unit[0].page.key]: unit for unit in _units(chosen, places)}
    first_row: list[PageRecord] = []
    place = 0
    while place < len(row):
        unit = units.get(place)
        if unit is None:
            first_row.append(row[place].page)
            place += 1
            continue
        folded, pages = _fold_unit(plan, unit, count)
        if not folded.saved:
            folded, pages = _absorb(plan, unit, first_row, count)
        done += folded
        first_row += pages
        place += len(unit)
    _carry(plan, first_row, count)
    _merge(plan, first_row, count, most_lines)
    return done


def gather_all(plan: Plan, row: Sequence[Standing], count: Count) -> None:
    """Gather all lines under as few chapters as can be, without a word on what is in them."""
    first_row = [standing.page for standing in row]
    while run := next((run for run in _line_runs(first_row) if len(run) > 1), None):
        if _gather(plan, first_row, run[:MOST_CHILDREN], count, summary="") is None:
            return


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
    if header.pinned:
        return False
    return header.form in (Form.USER, Form.ASSISTANT, Form.SYSTEM, Form.SUMMARY, Form.TEXT) or standing.is_open_folder


def _units(chosen: Sequence[Standing], places: dict[int, int]) -> Iterator[list[Standing]]:
    """The chosen pages in groups that become one line each: neighbours, whole turns, not too small, not too many."""
    unit: list[Standing] = []
    tokens = 0
    for standing in chosen:
        starts = standing.page.header.form is Form.USER
        apart = bool(unit) and places[standing.page.key] != places[unit[-1].page.key] + 1
        if unit and (apart or len(unit) >= MOST_CHILDREN or (starts and tokens >= _UNIT_TOKENS)):
            yield unit
            unit, tokens = [], 0
        unit.append(standing)
        tokens += standing.tokens
    if unit:
        yield unit


def _fold_unit(plan: Plan, unit: Sequence[Standing], count: Count) -> tuple[Folded, list[PageRecord]]:
    """Fold one group; what that did, and what stands in its place. Nothing is saved if a line would be no shorter."""
    pages = [standing.page for standing in unit]
    if len(unit) == 1 and unit[0].is_open_folder:
        page = plan.change(pages[0], visibility=Visibility.HIDDEN)
        return Folded(saved=unit[0].tokens - _line_size(plan, page, count)), [page]
    messages = [plan.message(number).message for page in pages for number in page.header.numbers]
    before = sum(standing.tokens for standing in unit)
    summary, account = summarise_turns(messages, before, count)
    if len(unit) > 1:
        folder = _chapter(plan, pages, _name(messages), summary, level=1, count=count, before=before)
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
    """Put what is too small for a line of its own into the chapter before it, if there is one; what is left."""
    done = Folded()
    for place, standing in enumerate(unit):
        page, last = standing.page, before[-1] if before else None
        if last is None or not _is_line(last):
            return done, [other.page for other in unit[place:]]
        if last.header.form is Form.CHAPTER and sum(1 for _ in plan.members(last.key)) < MOST_CHILDREN:
            tokens, messages = last.header.tokens + page.header.tokens, last.header.messages + page.header.messages
            line = count(page_line(plan.index(last.key), _with(last.header, tokens=tokens)))
            before[-1] = plan.change(last, tokens=tokens, messages=messages, line_tokens=line)
            plan.place(page, last.key, plan.append_rank(last.key))
        else:
            cost = last.header.line_tokens + standing.tokens
            level = _level(last) + (last.header.form is Form.CHAPTER)
            name, summary = last.header.name, last.header.description
            chapter = _chapter(plan, [last, page], name, summary, level=level, count=count, before=cost)
            if chapter is None:
                return done, [other.page for other in unit[place:]]
            before[-1] = chapter
        done += Folded(1, 0, standing.tokens)
    return done, []


def _is_line(page: PageRecord) -> bool:
    """Whether a page is a line that folding made."""
    header = page.header
    return header.visibility is Visibility.HIDDEN and header.line_tokens > 0 and not header.pinned


def _chapter(
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
        author=plan.author(),
        created=plan.now,
        age=0,
        born=plan.seq,
        seq=plan.seq,
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
    folder = plan.create(key, parent, pages[0].rank, _with(header, line_tokens=line))  # the first one leaves its place
    for page in pages:
        plan.place(page, key, plan.append_rank(key))
    return folder


def _carry(plan: Plan, first_row: list[PageRecord], count: Count) -> None:
    """Gather eight neighbouring lines of one level under a chapter of the next, and so on upwards."""
    level = 1
    while any(_is_line(page) and _level(page) >= level for page in first_row):
        carried = True
        while carried:
            carried = False
            for run in _line_runs(first_row):
                same = next(_of_level(run, level), None)
                if same is not None and _gather(plan, first_row, same, count) is not None:
                    carried = True
        level += 1


def _of_level(run: Sequence[PageRecord], level: int) -> Iterator[list[PageRecord]]:
    """Eight neighbours of one level."""
    same: list[PageRecord] = []
    for page in run:
        same = [*same, page] if _level(page) == level else []
        if len(same) == CARRY:
            yield same
            same = []


def _merge(plan: Plan, first_row: list[PageRecord], count: Count, most: int) -> None:
    """Gather the oldest lines until all lines together take no more than their share."""
    while sum(page.header.line_tokens for page in first_row if _is_line(page)) > most:
        run = next((run for run in _line_runs(first_row) if len(run) > 1), None)
        if run is None or _gather(plan, first_row, run[:MOST_CHILDREN], count) is None:
            return


def _line_runs(first_row: Sequence[PageRecord]) -> list[list[PageRecord]]:
    """The folded lines of the first row, as runs with nothing shown between them."""
    return [list(run) for is_line, run in groupby(first_row, key=_is_line) if is_line]


def _gather(
    plan: Plan, first_row: list[PageRecord], pages: Sequence[PageRecord], count: Count, summary: str | None = None
) -> PageRecord | None:
    """Gather lines under a chapter that takes their place in the first row."""
    before = sum(page.header.line_tokens for page in pages)
    said = summarise_chapters([(p.header.name, p.header.description) for p in pages], count)
    level = 1 + max(_level(page) for page in pages)
    words = said if summary is None else summary
    chapter = _chapter(plan, pages, pages[0].header.name, words, level=level, count=count, before=before)
    if chapter is not None:
        place = next(n for n, page in enumerate(first_row) if page.key == pages[0].key)
        first_row[place : place + len(pages)] = [chapter]
    return chapter


def _level(page: PageRecord) -> int:
    return max(page.header.level, 1)


def _name(messages: Sequence[Message]) -> str:
    asked = next((message for message in messages if message.role == "user"), None)
    return label(asked or messages[0]) if messages else "Folded"


def _line_size(plan: Plan, page: PageRecord, count: Count) -> int:
    return page.header.line_tokens or count(page_line(plan.index(page.key), page.header))


def _with(header: Header, **fields: object) -> Header:
    return replace(header, **fields)
