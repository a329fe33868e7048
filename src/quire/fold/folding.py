"""Planning a fold: old exchanges are gathered under chapters that show as one line each, until the view fits again.

Oldest first, whole turns where they are not too long, at most sixteen children a chapter. Chapters are carried like
digits of a counter: eight of one level become one of the next, so that any number of turns shows few lines.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from quire.exchanges import label
from quire.fold.summaries import summarise_chapters, summarise_turns
from quire.messages import Message
from quire.pages import Form, Lifecycle, Visibility
from quire.plan import Plan
from quire.reader import Reader, slot
from quire.records import Header, PageRecord, page_key, segment_number
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
    """What is not folded: the open exchange, the last user message, and the last turns as far as they fit the room.

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
    numbers = {standing.page.key: place for place, standing in enumerate(row)}
    for unit in _units(chosen, numbers):
        folded = _fold_unit(plan, unit, count)
        done += folded if folded.saved else _absorb(plan, unit, count)
    conversation = segment_number(row[0].page.key) if row else 0
    _carry(plan, page_key(conversation, 0), count)
    _merge(plan, page_key(conversation, 0), count, most_lines)
    return done


def gather_all(plan: Plan, root: int, count: Count) -> None:
    """Gather all lines under as few chapters as can be, without a word on what is in them."""
    while runs := [run for run in _line_runs(plan, root) if len(run) > 1]:
        pages = runs[0][:MOST_CHILDREN]
        before = sum(page.header.line_tokens for page in pages)
        level = 1 + max(_level(page) for page in pages)
        if _chapter(plan, pages, pages[0].header.name, "", level=level, count=count, before=before) is None:
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


def _fold_unit(plan: Plan, unit: Sequence[Standing], count: Count) -> Folded:
    if len(unit) == 1 and unit[0].is_open_folder:
        page = plan.change(unit[0].page, visibility=Visibility.HIDDEN)
        return Folded(saved=unit[0].tokens - _line_size(plan, page, count))
    messages = [plan.message(number).message for s in unit for number in s.page.header.numbers]
    before = sum(standing.tokens for standing in unit)
    summary, account = summarise_turns(messages, before, count)
    fields = {"description": summary, "summary_tokens": count(summary)}
    if len(unit) == 1:
        page = unit[0].page
        index = plan.index(page.key)
        line = count(page_line(index, _with(page.header, **fields)))
        if line >= before:
            return Folded()
        plan.change(page, **fields, visibility=Visibility.HIDDEN, line_tokens=line)
        return Folded(1, 0, before - line, account)
    folder = _chapter(plan, [s.page for s in unit], _name(messages), summary, level=1, count=count, before=before)
    return Folded(len(unit), 1, before - folder.header.line_tokens, account) if folder else Folded()


def _absorb(plan: Plan, unit: Sequence[Standing], count: Count) -> Folded:
    """Put what is too small for a line of its own into the chapter before it, if there is one."""
    done = Folded()
    for standing in unit:
        page = standing.page
        before = next((p for p in plan.members(page.parent or 0, after=slot(page), reverse=True) if _is_shown(p)), None)
        if before is None or before.header.visibility is Visibility.EXPANDED or before.header.pinned:
            continue
        if before.header.form is Form.CHAPTER and sum(1 for _ in plan.members(before.key)) < MOST_CHILDREN:
            tokens, messages = before.header.tokens + page.header.tokens, before.header.messages + page.header.messages
            line = count(page_line(plan.index(before.key), _with(before.header, tokens=tokens)))
            plan.change(before, tokens=tokens, messages=messages, line_tokens=line)
            plan.place(page, before.key, plan.append_rank(before.key))
            done += Folded(1, 0, standing.tokens)
        elif before.header.line_tokens:
            cost = before.header.line_tokens + standing.tokens
            name, summary = before.header.name, before.header.description
            level = _level(before) + (before.header.form is Form.CHAPTER)
            if _chapter(plan, [before, page], name, summary, level=level, count=count, before=cost):
                done += Folded(1, 1, standing.tokens)
    return done


def _is_shown(page: PageRecord) -> bool:
    return page.header.lifecycle is Lifecycle.ACTIVE


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
    folder = plan.create(key, parent, plan.rank_before(parent, pages[0].key), _with(header, line_tokens=line))
    for page in pages:
        plan.place(page, key, plan.append_rank(key))
    return folder


def _carry(plan: Plan, root: int, count: Count) -> None:
    """Gather eight neighbouring lines of one level under a chapter of the next, and so on upwards."""
    level = 1
    while True:
        runs = [run for run in _line_runs(plan, root) if any(_level(page) == level for page in run)]
        if not runs and level > 1:
            return
        for run in runs:
            same: list[PageRecord] = []
            for page in [*run, None]:
                if page is not None and _level(page) == level:
                    same.append(page)
                    if len(same) == CARRY:
                        _gather(plan, same, count)
                        same = []
                else:
                    same = []
        level += 1
        if level > 40:
            return


def _merge(plan: Plan, root: int, count: Count, most: int) -> None:
    """Gather the oldest lines until all lines together take no more than their share."""
    while True:
        runs = [run for run in _line_runs(plan, root) if len(run) > 1]
        total = sum(page.header.line_tokens or _LINE_TOKENS for run in _line_runs(plan, root) for page in run)
        if total <= most or not runs:
            return
        if _gather(plan, runs[0][:MOST_CHILDREN], count) is None:
            return


def _line_runs(plan: Plan, root: int) -> list[list[PageRecord]]:
    """The folded lines of the first row, as runs with nothing shown between them."""
    runs: list[list[PageRecord]] = [[]]
    for page in plan.members(root):
        if page.header.lifecycle is not Lifecycle.ACTIVE:
            continue
        if page.header.visibility is Visibility.HIDDEN and page.header.line_tokens and not page.header.pinned:
            runs[-1].append(page)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _gather(plan: Plan, pages: Sequence[PageRecord], count: Count) -> PageRecord | None:
    lines = [(page.header.name, page.header.description) for page in pages]
    before = sum(page.header.line_tokens for page in pages)
    summary = summarise_chapters(lines, count)
    level = 1 + max(_level(page) for page in pages)
    return _chapter(plan, pages, pages[0].header.name, summary, level=level, count=count, before=before)


def _level(page: PageRecord) -> int:
    return max(page.header.level, 1)


def _name(messages: Sequence[Message]) -> str:
    asked = next((message for message in messages if message.role == "user"), None)
    return label(asked or messages[0]) if messages else "Folded"


def _line_size(plan: Plan, page: PageRecord, count: Count) -> int:
    return page.header.line_tokens or count(page_line(plan.index(page.key), page.header))


def _with(header: Header, **fields: object) -> Header:
    return replace(header, **fields)
