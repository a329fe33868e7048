"""Sheets: the children of folders outside the conversation in chunks, so that no list has to read all of them.

A chunk is a few dozen neighbours with their sum: how many pages are below them, and which of them is the newest. A fold
updates the chunks in which pages changed. Chunks hold only places and numbers: an old one still covers every
page, and none repeats the name of a page.

A run is several neighbours that are shown as one line: their number, their subjects, and the index that opens them.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, islice, pairwise, takewhile
from typing import NamedTuple
from weakref import WeakKeyDictionary

from msgspec import Struct

from quire.core.entries import PURGE, read_entries
from quire.core.reader import Reader, Slot, slot_of
from quire.core.records import AGENTS, COLD, PAGE_CODE, PageRecord, page_key, segment_number
from quire.core.state import State
from quire.model.pages import Form, Lifecycle
from quire.model.text import clip_at_word

CHUNK = 32
_LARGEST = 64
"""A chunk with more children is split."""
_READ = 256
"""The most children that are read one by one to divide them more evenly."""

Places = dict[int, set[Slot]]
"""The places in each folder at which pages changed."""


class SheetChunk(Struct, frozen=True, gc=False):
    """Some neighbouring children of a folder, from the place (`rank`, `key`) to that of the next chunk.

    `pages` counts the pages below them that are not archived, without folders, and `archived` the archived children.
    `own` is the newest entry that changed an open page of an agent among them; `given` is the same for pages of a
    developer.
    """

    rank: int
    key: int
    children: int
    pages: int
    archived: int
    own: int
    given: int


class Run(NamedTuple):
    """Neighbours in a folder, from one place to before another; None is the folder's first or last place."""

    folder: int
    start: Slot | None
    stop: Slot | None
    pages: int
    newest: int


class Weight(NamedTuple):
    """What a page adds to its chunk: see `SheetChunk`."""

    pages: int = 0
    archived: int = 0
    own: int = 0
    given: int = 0


class Sheets:
    """The sheets of one context in memory."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._chunks: dict[int, tuple[SheetChunk, ...]] = {}
        self._short: dict[Run, list[PageRecord]] = {}
        """The pages of short runs that were read already."""
        self._seen: tuple[int, bytes, frozenset[int]] = (0, b"", frozenset())
        """The version and identity of the context that the sheets reflect, and who had written as an agent."""

    # Reading

    def whole(self, folder: int) -> Run:
        """Return all children of a folder as one run."""
        chunks = self.chunks(folder)
        newest = max((max(chunk.own, chunk.given) for chunk in chunks), default=0)
        return Run(folder, None, None, sum(chunk.pages for chunk in chunks), newest)

    def archived(self, folder: int) -> int:
        """Return the number of archived children of a folder."""
        return sum(chunk.archived for chunk in self.chunks(folder))

    def between(self, first: PageRecord, last: PageRecord) -> Run:
        """Return the run from one page to another in the same folder."""
        return self._run(first.parent or 0, slot_of(first), (last.rank, last.key + 1))

    def pages(self, run: Run, *, reverse: bool = False) -> Iterator[PageRecord]:
        """Yield the pages of a run in order."""
        start, stop = run.start, run.stop
        if run in self._short:
            return iter(self._short[run][::-1] if reverse else self._short[run])
        if reverse:
            return takewhile(lambda page: start is None or slot_of(page) >= start, self._members(run, reverse=True))
        return takewhile(lambda page: stop is None or slot_of(page) < stop, self._members(run))

    def read(self, run: Run, most: int) -> list[PageRecord] | None:
        """Return the pages of a run, or None if there are more than `most`."""
        if self._children(run) > most + _READ:
            return None
        found = self._read_short(run)
        return found if len(found) <= most else None

    def count(self, run: Run) -> int:
        """Return how many children a run has, including windows, which no layout shows."""
        return len(self._short[run]) if run in self._short else self._children(run)

    def split(self, run: Run, pieces: int) -> list[Run]:
        """Divide a run into at most `pieces` runs, at places that later appends do not move."""
        first, last = self._inside(run)
        if last - first > 1 and self._children(run) > _READ:
            chunks, size = self.chunks(run.folder), _piece_size(last - first, pieces)
            bounds = [_slot(chunks[number]) for number in range(first + 1, last) if not number % size]
            ends: list[Slot | None] = [run.start, *bounds, run.stop]
            return [self._run(run.folder, start, stop) for start, stop in pairwise(ends)]
        pages = self._read_short(run)
        size = _piece_size(len(pages), pieces)
        groups = [pages[place : place + size] for place in range(0, len(pages), size)] or [[]]
        ends = [run.start, *(slot_of(group[0]) for group in groups[1:]), run.stop]
        runs = []
        for group, (start, stop) in zip(groups, pairwise(ends), strict=True):
            weights = [self.weigh(page) for page in group]
            newest = max((max(weight.own, weight.given) for weight in weights), default=0)
            runs.append(Run(run.folder, start, stop, sum(weight.pages for weight in weights), newest))
            self._short[runs[-1]] = group
        return runs

    def _children(self, run: Run) -> int:
        """Return how many children the chunks of a run have."""
        return sum(chunk.children for chunk in self.chunks(run.folder)[slice(*self._inside(run))])

    def _read_short(self, run: Run) -> list[PageRecord]:
        """Return the pages of a run, and remember them: it may be divided in several ways."""
        if run not in self._short:
            self._short[run] = list(self.pages(run))
        return self._short[run]

    def ends(self, run: Run) -> tuple[PageRecord, PageRecord] | None:
        """Return the first and the last page of a run; None if it has become empty."""
        first, last = next(self.pages(run), None), next(self.pages(run, reverse=True), None)
        return None if first is None or last is None else (first, last)

    def sample(self, run: Run, most: int) -> list[PageRecord]:
        """Return some pages of a run, evenly spread."""
        chunks = self.chunks(run.folder)[slice(*self._inside(run))]
        if run in self._short:
            return self._short[run][:: -(-len(self._short[run]) // most) or 1]
        if len(chunks) <= 2:
            return list(islice(self.pages(run), most))
        keys = [chunk.key for chunk in chunks[1 :: max(1, len(chunks) // most)]]
        pages = (self._state.page(key) for key in keys[:most])
        return [page for page in pages if isinstance(page, PageRecord)]

    def weigh(self, page: PageRecord) -> Weight:
        """Return what a page adds to its chunk."""
        header = page.header
        if header.form is Form.WINDOW:  # the tail shows it
            return Weight()
        if header.lifecycle is not Lifecycle.ACTIVE:
            return Weight(archived=1)
        if header.folder:
            chunks = self.chunks(page.key)
            pages = max(1, sum(chunk.pages for chunk in chunks))
            if self._state.is_hidden(page):
                return Weight(pages)
            return Weight(pages, 0, max((c.own for c in chunks), default=0), max((c.given for c in chunks), default=0))
        if header.pinned or self._state.is_hidden(page):
            return Weight(1)
        is_own = self._state.note(AGENTS + header.author) is not None
        return Weight(1, own=header.seq) if is_own else Weight(1, given=header.seq)

    def newest(self, folder: int, *, given: bool) -> int:
        """Return the entry that last changed an open page below a folder: a developer's if `given`, else an agent's."""
        return max((chunk.given if given else chunk.own for chunk in self.chunks(folder)), default=0)

    def newest_pages(self, folders: Iterable[int], *, given: bool) -> Iterator[PageRecord]:
        """Yield the open pages below some folders, newest first: a developer's if `given`, else those of agents."""
        heap: list[tuple[int, int, Run | PageRecord]] = []
        order = count()

        def push_folder(folder: int) -> None:
            for start, stop, chunk in self._bounds(folder):
                push(Run(folder, start, stop, 0, 0), chunk.given if given else chunk.own)

        def push(found: Run | PageRecord, newest: int) -> None:
            if newest:
                heappush(heap, (-newest, next(order), found))

        for folder in folders:
            push_folder(folder)
        while heap:
            found = heappop(heap)[-1]
            if isinstance(found, Run):
                for page in self.pages(found):
                    weight = self.weigh(page)
                    push(page, weight.given if given else weight.own)
            elif found.header.folder:
                push_folder(found.key)
            else:
                yield found

    def chunks(self, folder: int) -> tuple[SheetChunk, ...]:
        """Return the chunks of a folder."""
        found = self._chunks.get(folder)
        if found is None:
            found = self._chunks[folder] = self._divide(self._state.members(folder))
        return found

    # Updating

    def update(self) -> None:
        """Bring the sheets to the present state, in memory."""
        places = self._changed_places()
        self._short.clear()
        if places is None:
            self._chunks.clear()
            for number, _ in self._state.live_segments():
                if number != self._state.conversation():
                    self._build(page_key(number, 0))
        else:
            self._renew(places)
        self._seen = self._state.version, self._state.head.identity, self._agents()

    def _changed_places(self) -> Places | None:
        """Return where pages changed since the stored version; None if all sheets must be made again."""
        state, (version, *known) = self._state, self._seen
        if known != [state.head.identity, self._agents()] or version > state.version:
            return None
        conversation, changed = state.conversation(), state.pages_changed_since(version)
        if changed is not None and set(map(segment_number, changed)) <= {conversation}:
            return {}
        places: Places = {}
        keys: set[int] = set()
        for _, entry in read_entries(state, version + 1):
            if entry.operation == PURGE:  # its entry does not record where the pages were
                return None
            for touched in entry.touched:
                if touched.family == PAGE_CODE and segment_number(touched.key) != conversation:
                    keys.add(touched.key)
                    if touched.parent is not None and not touched.parent & COLD:
                        places.setdefault(touched.parent, set()).add((touched.rank, touched.key))
        for key in keys:
            page = state.page(key)
            if isinstance(page, PageRecord) and page.parent is not None and not page.is_cold:
                places.setdefault(page.parent, set()).add(slot_of(page))
        return places

    def _agents(self) -> frozenset[int]:
        return frozenset(key for key in self._state.note_keys() if key >= AGENTS)

    def _renew(self, places: Places) -> None:
        """Read the changed chunks again, those of inner folders first."""
        waiting = {folder: self._depth(folder) for folder in places}
        while waiting:
            folder = max(waiting, key=lambda key: (waiting[key], key))
            depth = waiting.pop(folder)
            page = self._state.page(folder)
            if not isinstance(page, PageRecord):
                self._set(folder, ())
                continue
            self._set(folder, self._renew_folder(folder, places[folder]))
            if page.parent is not None and not page.is_cold:
                places.setdefault(page.parent, set()).add(slot_of(page))
                waiting.setdefault(page.parent, depth - 1)

    def _renew_folder(self, folder: int, slots: Iterable[Slot]) -> tuple[SheetChunk, ...]:
        chunks = list(self.chunks(folder))
        bounds = [(start, stop) for start, stop, _ in self._bounds(folder)] or [(None, None)]
        dirty = {max(0, bisect_right(chunks, slot, key=_slot) - 1) for slot in slots}
        for place in sorted(dirty, reverse=True):
            start, stop = bounds[place]
            chunks[place : place + 1] = self._divide(self.pages(Run(folder, start, stop, 0, 0)))
        return tuple(_join_small(chunks))

    def _build(self, root: int) -> None:
        """Make the sheets of all folders below a root."""
        rows: list[tuple[PageRecord | None, int, Iterator[PageRecord], _Divider]] = []
        rows.append((None, root, self._state.members(root), _Divider()))
        while rows:
            above, folder, members, divider = rows[-1]
            page = next(members, None)
            if page is None:
                rows.pop()
                self._set(folder, divider.chunks())
                if above is not None:
                    rows[-1][3].add(above, self.weigh(above))
            elif page.header.folder:
                rows.append((page, page.key, self._state.members(page.key), _Divider()))
            else:
                divider.add(page, self.weigh(page))

    def _divide(self, pages: Iterable[PageRecord]) -> tuple[SheetChunk, ...]:
        divider = _Divider()
        for page in pages:
            divider.add(page, self.weigh(page))
        return divider.chunks()

    def _set(self, folder: int, chunks: tuple[SheetChunk, ...]) -> None:
        self._chunks[folder] = chunks

    def _depth(self, folder: int) -> int:
        page = self._state.page(folder)
        return sum(1 for _ in self._state.ancestors(page)) if isinstance(page, PageRecord) else 0

    def _bounds(
        self, folder: int, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[Slot | None, Slot | None, SheetChunk]]:
        """Yield the chunks of a folder with these numbers, each with its first place and that of the next chunk."""
        chunks = self.chunks(folder)
        for number in range(first, len(chunks) if last is None else min(last, len(chunks))):
            start = _slot(chunks[number]) if number else None
            stop = _slot(chunks[number + 1]) if number + 1 < len(chunks) else None
            yield start, stop, chunks[number]

    def _inside(self, run: Run) -> tuple[int, int]:
        """Return the numbers of the first chunk that a run touches, and of the first one after it."""
        chunks = self.chunks(run.folder)
        first = 0 if run.start is None else max(0, bisect_right(chunks, run.start, key=_slot) - 1)
        last = len(chunks) if run.stop is None else bisect_left(chunks, run.stop, key=_slot)
        return first, max(last, first + 1)

    def _run(self, folder: int, start: Slot | None, stop: Slot | None) -> Run:
        """Return a run with the sum of its chunks. A chunk that is partly inside is read."""
        pages = newest = 0
        for low, high, chunk in self._bounds(folder, *self._inside(Run(folder, start, stop, 0, 0))):
            if (start is not None and (low is None or start > low)) or (
                stop is not None and (high is None or stop < high)
            ):
                first = start if low is None else low if start is None else max(low, start)
                last = stop if high is None else high if stop is None else min(high, stop)
                weights = [self.weigh(page) for page in self.pages(Run(folder, first, last, 0, 0))]
            else:
                weights = [Weight(chunk.pages, chunk.archived, chunk.own, chunk.given)]
            pages += sum(weight.pages for weight in weights)
            newest = max([newest, *(max(weight.own, weight.given) for weight in weights)])
        return Run(folder, start, stop, pages, newest)

    def _members(self, run: Run, *, reverse: bool = False) -> Iterator[PageRecord]:
        if reverse:
            return self._state.members(run.folder, after=run.stop, reverse=True)
        after = None if run.start is None else (run.start[0], run.start[1] - 1)
        return self._state.members(run.folder, after=after)


_known: WeakKeyDictionary[State, Sheets] = WeakKeyDictionary()


def sheets_of(state: State) -> Sheets:
    """Return the sheets of a context, brought up to date."""
    sheets = _known.get(state)
    if sheets is None:
        sheets = _known[state] = Sheets(state)
    sheets.update()
    return sheets


class _Divider:
    """Divides pages into chunks of even size."""

    def __init__(self) -> None:
        self._done: list[SheetChunk] = []
        self._rows: list[tuple[Slot, Weight]] = []

    def add(self, page: PageRecord, weight: Weight) -> None:
        self._rows.append((slot_of(page), weight))
        if len(self._rows) > _LARGEST:
            self._done.append(_chunk(self._rows[:CHUNK]))
            del self._rows[:CHUNK]

    def chunks(self) -> tuple[SheetChunk, ...]:
        return (*self._done, *([_chunk(self._rows)] if self._rows else ()))


def _chunk(rows: Sequence[tuple[Slot, Weight]]) -> SheetChunk:
    weights = [weight for _, weight in rows]
    return SheetChunk(
        *rows[0][0],
        children=len(rows),
        pages=sum(weight.pages for weight in weights),
        archived=sum(weight.archived for weight in weights),
        own=max(weight.own for weight in weights),
        given=max(weight.given for weight in weights),
    )


def _join_small(chunks: Sequence[SheetChunk]) -> Iterator[SheetChunk]:
    """Yield the chunks with neighbours joined that fit in one."""
    last: SheetChunk | None = None
    for chunk in chunks:
        if last is not None and last.children + chunk.children <= CHUNK:
            last = SheetChunk(
                last.rank,
                last.key,
                last.children + chunk.children,
                last.pages + chunk.pages,
                last.archived + chunk.archived,
                max(last.own, chunk.own),
                max(last.given, chunk.given),
            )
            continue
        if last is not None:
            yield last
        last = chunk
    if last is not None:
        yield last


def _slot(chunk: SheetChunk) -> Slot:
    return chunk.rank, chunk.key


def _piece_size(count: int, pieces: int) -> int:
    """Return the smallest power of two that divides `count` things into at most `pieces` pieces."""
    size = 1
    while -(-count // size) > pieces:
        size *= 2
    return size


SPAN = "…"
"""The sign between the first and the last page of a run."""
_SPELLINGS = ("…", "...", "..")
_NAME_LENGTHS = (40, 20, 10)
_WORDS = 3
_SAMPLE = 12
_WORD = re.compile(r"[^\W\d_]{3,20}")
_COMMON = frozenset(("and", "for", "from", "has", "not", "note", "page", "that", "the", "this", "was", "with", "you"))

Count = Callable[[str], int]


class RunLine(NamedTuple):
    """The line of a run, and the keys of its first and last page."""

    first: int
    last: int
    text: str


def draw_run(sheets: Sheets, reader: Reader, run: Run, count: Count, most: int) -> RunLine | None:
    """Return the line of a run in at most `most` tokens, if a line can be that short; None if the run is empty."""
    ends = sheets.ends(run)
    if ends is None:
        return None
    first, last = ends
    span = f"{reader.index(first.key)}{SPAN}{reader.index(last.key)} {run.pages or sheets.count(run)}p"
    names = [page.header.name for page in sheets.sample(run, _SAMPLE)]
    text = fit_run_line(span, first.header.name, last.header.name, names, count, most)
    return RunLine(first.key, last.key, text)


def draw_pages_run(reader: Reader, pages: Sequence[PageRecord], count: Count, most: int) -> str:
    """Return the line of these pages."""
    span = f"{reader.index(pages[0].key)}{SPAN}{reader.index(pages[-1].key)} {len(pages)}p"
    names = [page.header.name for page in pages]
    return fit_run_line(span, names[0], names[-1], names, count, most)


def fit_run_line(span: str, first: str, last: str, names: Iterable[str], count: Count, most: int) -> str:
    """Return a line of a span, its first and last name and the words they share. Shorten it to `most` tokens.

    Without a `last` name the line has only the first one.
    """
    words = frequent_words(names, f"{first} {last}")
    about = f": {', '.join(words)}" if words else ""
    tries = [(_NAME_LENGTHS[0], about), *((length, "") for length in _NAME_LENGTHS)]
    for length, end in tries:
        name = f"{_clip(first, length)} {SPAN} {_clip(last, length)}" if last else _clip(first, length)
        line = f"[{span}] {name}{end}\n"
        if count(line) <= most:
            return line
    return f"[{span}]\n"


def frequent_words(names: Iterable[str], shown: str) -> list[str]:
    """Return the words that occur most in names, without those that a line shows already."""
    known = {word.casefold() for word in _WORD.findall(shown)} | _COMMON
    counts: Counter[str] = Counter()
    for name in names:
        counts.update({word for found in _WORD.findall(name) if (word := found.casefold()) not in known})
    return [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_WORDS]]


def read_span(index: str) -> tuple[str, str] | None:
    """Return the first and last index in the name of a run, also if it is written with dots; None for another text."""
    for spelling in _SPELLINGS:
        first, found, last = index.partition(spelling)
        if found:
            return first.strip(), last.strip()
    return None


def clip_line(line: str, count: Count, most: int) -> int:
    """Return how many characters of a line with its line break fit in `most` tokens; 0 if all of them do."""
    used = count(line)
    if used <= most:
        return 0
    length = len(line)
    while length > 16 and used > most:
        length = max(16, min(length - 1, int(length * most / used)))
        used = count(line[:length] + SPAN + "\n")
    return length


def _clip(name: str, length: int) -> str:
    return name if len(name) <= length else (clip_at_word(name, length - 1) or name[: length - 1]) + SPAN
