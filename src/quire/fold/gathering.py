"""Planning few lines for much: lines are gathered under chapters, and these under others, never more than sixteen each.

Chapters are carried like digits of a counter: eight of one level become one of the next, so that any number of turns
shows few lines. Where even these are too many, the oldest join the chapter before them, which keeps its own children
the same way: however little room there is, everything lies only a few levels deep.
"""

import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from quire.fold.summaries import summarise_chapters
from quire.pages import Form, Visibility
from quire.plan import Plan
from quire.records import Header, PageRecord, segment_number
from quire.text import MAX_DESCRIPTION
from quire.view.draw import generation_of
from quire.view.lines import page_line

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
