"""Search indexes in memory: one for storages without an index of their own, and one that layers changes over another.

`MemoryIndex` is the reference for all other indexes. `PerStorageCache` holds objects as long as their storage lives.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from heapq import merge, nsmallest
from itertools import islice
from threading import Lock, RLock
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from quire.search.index_protocol import (
    FIELDS,
    Amount,
    Blocks,
    Document,
    Index,
    IndexLost,
    IndexQuery,
    IndexState,
    Phrase,
    Score,
    ScoredKey,
    Sizes,
    Span,
    has_document,
)
from quire.storage.contract import MAX_KEY, Storage

T = TypeVar("T")
MAX_CONTEXTS = 256
"""The most contexts of one storage with a cached object. The least recently used object is dropped."""


class PerStorageCache(Generic[T]):
    """One object for each context of each storage."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._all: WeakKeyDictionary[Storage, OrderedDict[Hashable, T]] = WeakKeyDictionary()

    def get(self, storage: Storage, key: Hashable, make: Callable[[], T]) -> T:
        """Return the object under a key; create it if there is none."""
        with self._lock:
            try:
                objects = self._all.setdefault(storage, OrderedDict())
            except TypeError:  # a storage without weak references: nothing is cached
                return make()
            if key not in objects:
                objects[key] = make()
            objects.move_to_end(key)
            if len(objects) > MAX_CONTEXTS:
                objects.popitem(last=False)
            return objects[key]


class LayeredIndex:
    """One index that lies over another one. Keys in `touched` are searched only in the upper index."""

    def __init__(self, below: Index, above: Index, touched: Collection[int]) -> None:
        self._below = below
        self._above = above
        blocks = below.sizes() if touched else {}
        self._cut = sorted(key for key in touched if has_document(blocks, key))

    def sizes(self) -> Blocks:
        blocks = dict(self._below.sizes())
        for number, block in self._above.sizes().items():
            under = blocks.get(number, block)
            blocks[number] = [size or other for size, other in zip(block, under, strict=True)]
        return blocks

    def amount(self, spans: Sequence[Span]) -> Amount:
        one, two = self._below.amount(self._lower_spans(spans)), self._above.amount(spans)
        return Amount(one.documents + two.documents, one.terms + two.terms)

    def count(self, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        found = self._below.count(phrase, self._lower_spans(spans), most)
        return min(found + self._above.count(phrase, spans, most), most)

    def best(self, wanted: IndexQuery, spans: Sequence[Span], score: Score, limit: int) -> list[ScoredKey]:
        below = self._below.best(wanted, self._lower_spans(spans), score, limit)
        above = self._above.best(wanted, spans, score, limit)
        return list(islice(merge(below, above, key=lambda item: (-item[0], item[1])), limit))

    def _lower_spans(self, spans: Sequence[Span]) -> Sequence[Span]:
        """Return the spans without the keys that only the upper index answers."""
        found: list[Span] = []
        for first, last in spans:
            for key in self._cut[bisect_left(self._cut, first) : bisect_right(self._cut, last)]:
                found.append((first, key - 1))
                first = key + 1
            found.append((first, last))
        return [span for span in found if span[0] <= span[1]]


_Places = tuple[Sequence[int], ...]
_NOWHERE: _Places = ((),) * len(FIELDS)


class _Sought(NamedTuple):
    """A phrase in the term numbers of an index: its terms before the last, and the candidates for the last."""

    before: tuple[int, ...]
    ends: set[int]


class MemoryIndex:
    """The terms of every document as numbers, and for every term the documents that contain it."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._state: IndexState | None = None
        self.clear()

    def state(self) -> IndexState | None:
        return self._state

    def sizes(self) -> Blocks:
        return self._sizes.blocks

    def amount(self, spans: Sequence[Span]) -> Amount:
        with self._lock:
            return self._sizes.amount(spans)

    def count(self, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        with self._lock:
            found = 0
            sought = self._sought(phrase)
            if not sought.before and len(sought.ends) == 1 and self._is_covered(spans):
                return min(len(self._holding[next(iter(sought.ends))]), most)
            for key in self._holders(sought):
                if _within(key, spans) and any(self.places(key, sought)):
                    found += 1
                    if found >= most:
                        break
            return found

    def best(self, wanted: IndexQuery, spans: Sequence[Span], score: Score, limit: int) -> list[ScoredKey]:
        with self._lock:
            if self._state is None or self._state.reached < MAX_KEY:
                raise IndexLost("The search index was emptied and is rebuilt.")
            known = {phrase: self._sought(phrase) for phrase in {*wanted.phrases}}
            phrases = [known[phrase] for phrase in wanted.phrases]
            every, some = ([known[phrase] for phrase in group] for group in (wanted.every, wanted.some))
            found = ((-score(_ScoredDocument(self, key, phrases)), key) for key in self._matches(every, some, spans))
            return [(-value, key) for value, key in nsmallest(limit, found)]

    def update(
        self, seen: IndexState | None, then: IndexState, documents: Iterable[Document], gone: Iterable[int] = ()
    ) -> bool:
        taken = list(documents)
        with self._lock:
            if self._state != seen:
                return False
            for key in (*gone, *(document.key for document in taken)):
                self._remove(key)
            for document in taken:
                self._add(document)
            self._state = then
            return True

    def clear(self) -> None:
        with self._lock:
            self._state = None
            self._sizes = Sizes()
            self._numbers: dict[str, int] = {}
            self._sorted: list[str] = []  # the terms in order, for prefixes
            self._unsorted: list[str] = []
            self._holding: list[set[int]] = []  # by the number of a term
            self._documents: dict[int, tuple[array[int], ...]] = {}
            self._first, self._last = MAX_KEY, 0

    def _is_covered(self, spans: Sequence[Span]) -> bool:
        """Return whether one of the spans contains the keys of all documents."""
        return any(first <= self._first and self._last <= last for first, last in spans)

    def _add(self, document: Document) -> None:
        fields = tuple(array("I", map(self._number, field)) for field in document.fields)
        self._documents[document.key] = fields
        for number in {number for field in fields for number in field}:
            self._holding[number].add(document.key)
        self._sizes.put(document.key, len(document.body))
        self._first, self._last = min(self._first, document.key), max(self._last, document.key)

    def _remove(self, key: int) -> None:
        fields = self._documents.pop(key, None)
        if fields is not None:
            for number in {number for field in fields for number in field}:
                self._holding[number].discard(key)
            self._sizes.put(key, -1)

    def _number(self, term: str) -> int:
        number = self._numbers.get(term)
        if number is None:
            number = self._numbers[term] = len(self._holding)
            self._holding.append(set())
            self._unsorted.append(term)
        return number

    def _beginning(self, start: str) -> list[int]:
        """Return the numbers of the terms that begin with `start`."""
        if len(self._unsorted) > 64:
            self._sorted = sorted([*self._sorted, *self._unsorted])
        else:
            for term in self._unsorted:
                insort(self._sorted, term)
        self._unsorted = []
        found = []
        for place in range(bisect_left(self._sorted, start), len(self._sorted)):
            term = self._sorted[place]
            if not term.startswith(start):
                break
            found.append(self._numbers[term])
        return found

    def _sought(self, phrase: Phrase) -> _Sought:
        """Return a phrase in numbers; -1 for an unknown term."""
        *before, last = (self._numbers.get(term, -1) for term in phrase.terms)
        ends = self._beginning(phrase.terms[-1]) if phrase.prefix else [last]
        return _Sought(tuple(before), {number for number in ends if number >= 0})

    def _holders(self, sought: _Sought) -> set[int]:
        """Return the documents that contain every term of a phrase, in any order."""
        found: set[int] = set().union(*(self._holding[number] for number in sought.ends))
        for number in sought.before:
            found = found & self._holding[number] if number >= 0 else set()
        return found

    def _matches(self, every: Sequence[_Sought], some: Sequence[_Sought], spans: Sequence[Span]) -> Iterator[int]:
        holders = [self._holders(sought) for sought in every]
        single = set[int]().union(*(self._holders(sought) for sought in some if not sought.before))
        if some:
            holders.append(single.union(*(self._holders(sought) for sought in some if sought.before)))
        for key in set.intersection(*sorted(holders, key=len)) if holders else ():
            if (
                _within(key, spans)
                and all(not sought.before or any(self.places(key, sought)) for sought in every)
                and (not some or key in single or any(any(self.places(key, sought)) for sought in some))
            ):
                yield key

    def places(self, key: int, sought: _Sought) -> _Places:
        """Return the positions of a phrase in each field. For a single term, only their number is right."""
        fields = self._documents[key]
        before, ends = sought
        if not before and len(ends) == 1:
            (number,) = ends
            if key not in self._holding[number]:
                return _NOWHERE
            return tuple(range(field.count(number)) for field in fields)
        return tuple(list(_rows(field, before, ends)) for field in fields)


class _ScoredDocument:
    """The document that is being scored."""

    def __init__(self, index: MemoryIndex, key: int, phrases: Sequence[_Sought]) -> None:
        self.rowid = key
        self._index = index
        self._phrases = phrases

    def phrase_locations(self, phrase: int, /) -> _Places:
        return self._index.places(self.rowid, self._phrases[phrase])


def _rows(field: "array[int]", before: Sequence[int], ends: set[int]) -> Iterator[int]:
    """Yield the positions in a field at which these terms follow each other."""
    length = len(before)
    for place in range(length, len(field)):
        if field[place] in ends and all(field[place - length + n] == number for n, number in enumerate(before)):
            yield place - length


def _within(key: int, spans: Sequence[Span]) -> bool:
    return any(first <= key <= last for first, last in spans)
