"""An index in this process, for storages that keep none: the reference for all others."""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from threading import RLock

from quire.storage.searching import (
    Amount,
    Blocks,
    Document,
    Found,
    Phrase,
    Score,
    Sizes,
    Span,
    Standing,
    Wanted,
)

_PARTS = 3
_Places = tuple[Sequence[int], ...]


class MemoryIndex:
    """The terms of every document as numbers, and for every term the documents that hold it."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._standing: Standing | None = None
        self.clear()

    def standing(self) -> Standing | None:
        return self._standing

    def sizes(self) -> Blocks:
        return self._sizes.blocks

    def holds(self, key: int) -> bool:
        return key in self._documents

    def amount(self, spans: Sequence[Span]) -> Amount:
        with self._lock:
            return self._sizes.amount(spans)

    def count(self, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        with self._lock:
            found = 0
            for key in self._holders(phrase):
                if _within(key, spans) and any(self.places(key, phrase)):
                    found += 1
                    if found >= most:
                        break
            return found

    def best(self, wanted: Wanted, spans: Sequence[Span], score: Score, limit: int) -> list[Found]:
        with self._lock:
            phrases = wanted.phrases
            found = ((-score(_Here(self, key, phrases)), key) for key in self._matches(wanted, spans))
            return [(-value, key) for value, key in nsmallest(limit, found)]

    def update(
        self, seen: Standing | None, then: Standing, documents: Iterable[Document], gone: Iterable[int] = ()
    ) -> bool:
        taken = list(documents)
        with self._lock:
            if self._standing != seen:
                return False
            for key in (*gone, *(document.key for document in taken)):
                self._remove(key)
            for document in taken:
                self._add(document)
            self._standing = then
            return True

    def clear(self) -> None:
        with self._lock:
            self._standing = None
            self._sizes = Sizes()
            self._numbers: dict[str, int] = {}
            self._sorted: list[str] = []  # the terms in order, for prefixes
            self._unsorted: list[str] = []
            self._holding: list[set[int]] = []  # by the number of a term
            self._documents: dict[int, tuple[array[int], ...]] = {}

    def _add(self, document: Document) -> None:
        fields = tuple(array("I", map(self._number, field)) for field in document.fields)
        self._documents[document.key] = fields
        for number in {number for field in fields for number in field}:
            self._holding[number].add(document.key)
        self._sizes.put(document.key, len(document.body))

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
        """The numbers of the terms that begin so."""
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

    def _last(self, phrase: Phrase) -> list[int]:
        """The numbers that the last term of a phrase stands for."""
        if phrase.prefix:
            return self._beginning(phrase.terms[-1])
        number = self._numbers.get(phrase.terms[-1])
        return [] if number is None else [number]

    def _holders(self, phrase: Phrase) -> set[int]:
        """The documents that hold every term of a phrase, wherever."""
        found: set[int] = set().union(*(self._holding[number] for number in self._last(phrase)))
        for term in phrase.terms[:-1]:
            number = self._numbers.get(term)
            found = found & self._holding[number] if number is not None else set()
        return found

    def _matches(self, wanted: Wanted, spans: Sequence[Span]) -> Iterator[int]:
        every = [self._holders(phrase) for phrase in wanted.every]
        if wanted.some:
            every.append(set().union(*(self._holders(phrase) for phrase in wanted.some)))
        for key in set.intersection(*sorted(every, key=len)) if every else ():
            if not _within(key, spans):
                continue
            if all(_single(phrase) or any(self.places(key, phrase)) for phrase in wanted.every) and (
                not wanted.some or any(any(self.places(key, phrase)) for phrase in wanted.some)
            ):
                yield key

    def places(self, key: int, phrase: Phrase) -> _Places:
        """Where a phrase stands in each field; several terms do not stand in a row in the parts."""
        fields = self._documents[key]
        last = self._last(phrase)
        if _single(phrase) and len(last) == 1:
            return tuple(range(field.count(last[0])) for field in fields)
        numbers = [self._numbers.get(term, -1) for term in phrase.terms[:-1]]
        ends = set(last)
        return tuple(
            () if numbers and place == _PARTS else list(_rows(field, numbers, ends))
            for place, field in enumerate(fields)
        )


class _Here:
    """The document at hand while it is scored."""

    def __init__(self, index: MemoryIndex, key: int, phrases: Sequence[Phrase]) -> None:
        self.rowid = key
        self._index = index
        self._phrases = phrases

    def phrase_locations(self, phrase: int, /) -> _Places:
        return self._index.places(self.rowid, self._phrases[phrase])


def _rows(field: "array[int]", before: Sequence[int], ends: set[int]) -> Iterator[int]:
    """The places in a field where these terms stand in a row."""
    length = len(before)
    for place in range(length, len(field)):
        if field[place] in ends and all(field[place - length + n] == number for n, number in enumerate(before)):
            yield place - length


def _single(phrase: Phrase) -> bool:
    return len(phrase.terms) == 1


def _within(key: int, spans: Sequence[Span]) -> bool:
    return any(first <= key <= last for first, last in spans)
