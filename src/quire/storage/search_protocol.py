"""What a backend may offer for search: an index of terms beside the records, derived from them.

A storage with a method `search(context) -> SearchIndex` keeps the index itself, as SQLite does; for any other, quire
keeps one in memory. The terms are given, so a backend cuts no text, and how a page counts is asked of `Score`, so
every backend gives the same order.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from quire.errors import StorageFailure, short_repr
from quire.storage.base import MAX_KEY

FIELDS: Final = ("body", "name", "description", "parts")
"""The fields of a document, in the order of what `Locate` gives."""


class IndexLost(StorageFailure):
    """An index was missing or damaged. It was emptied and can be filled again: nothing in it is the only copy."""


class IndexSealed(StorageFailure):
    """An index cannot be written here, or not even read: the file or the role is one for reading only."""


class Misshapen(Exception):
    """What is kept beside an index has a form that nothing of quire's has. It never leaves a backend."""


Span = tuple[int, int]
"""Keys from the first to the last of a stretch."""
Found = tuple[float, int]
"""A score and the key it belongs to."""


class Phrase(Struct, frozen=True, gc=False):
    """Terms in a row in one field. With `prefix` the last one may go on."""

    terms: tuple[str, ...]
    prefix: bool = False


class Wanted(Struct, frozen=True):
    """What documents are asked for: those with every phrase of `every` and, if there are any, one of `some`.

    Phrases of `also` may stand in them and are located too. The phrases are numbered as in `phrases`.
    """

    every: tuple[Phrase, ...]
    some: tuple[Phrase, ...] = ()
    also: tuple[Phrase, ...] = ()

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """All of them in the order of their numbers; with `also`, those of `some` stand there twice."""
        return (*self.every, *self.some, *self.some, *self.also) if self.also else (*self.every, *self.some)


class Place(Protocol):
    """The document at hand while it is scored. The low bits of `rowid` are its key."""

    @property
    def rowid(self) -> int:
        """Its number; `rowid & MAX_KEY` is its key."""

    def phrase_locations(self, phrase: int, /) -> Sequence[Sized]:
        """Where a phrase, by its number, stands: the places in each of the fields."""


Score = Callable[[Place], float]
"""What the document at hand is worth."""


class Document(Struct, frozen=True):
    """The terms of one page, field by field."""

    key: int
    body: Sequence[str] = ()
    name: Sequence[str] = ()
    description: Sequence[str] = ()
    parts: Sequence[str] = ()

    @property
    def fields(self) -> tuple[Sequence[str], ...]:
        return self.body, self.name, self.description, self.parts


class Standing(Struct, frozen=True):
    """Which state of which context an index reflects. `reached` is the last key that was taken in while it is built."""

    version: int
    identity: bytes
    reached: int = MAX_KEY


class Amount(NamedTuple):
    """How many documents there are, and how many terms their bodies have in all."""

    documents: int
    terms: int


Blocks = Mapping[int, Sequence[int]]
"""By `key >> 9`, for 512 keys in a row, the number of terms in the body plus one; 0: no document."""


class Index(Protocol):
    """What can be asked of an index."""

    def sizes(self) -> Blocks:
        """The number of terms in the body of every document, plus one; see `Sizes`."""

    def amount(self, spans: Sequence[Span]) -> Amount:
        """What stands in these stretches."""

    def holds(self, key: int) -> bool:
        """Whether there is a document under this key."""

    def count(self, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        """How many documents hold the phrase; counting ends at `most`."""

    def best(self, wanted: Wanted, spans: Sequence[Span], score: Score, limit: int) -> list[Found]:
        """The best documents: by score, then by key. Raises `IndexLost` if it was emptied and is not filled again."""


class SearchIndex(Index, Protocol):
    """An index of one context that can be written. Safe to call from several threads and processes.

    Where it cannot be written, `update` and `clear` raise `IndexSealed`; the search then keeps what is newer in memory.
    If it turns out to hold nothing of what it says it holds, it is cleared, or `make_anew()` is called if it has that.
    """

    def standing(self) -> Standing | None:
        """Which state it reflects, read anew; None if it is empty or was damaged."""

    def update(
        self, seen: Standing | None, then: Standing, documents: Iterable[Document], gone: Iterable[int] = ()
    ) -> bool:
        """Replace documents, take others out and move on, all at once; False if it does not stand at `seen` now."""

    def clear(self) -> None:
        """Forget everything."""


class SearchCheck(Protocol):
    """An examination of all indexes of a storage, which may offer one as `search_check()`. Asking changes nothing.

    What may not be read or written here is `IndexSealed`.
    """

    def differs(self, context: str, at: Standing, documents: Iterable[Document]) -> str:
        """How the index of a context differs from these, which are all documents it should hold if it stands there.

        "" if in nothing, if it stands elsewhere, or if it moved on meanwhile.
        """

    def rest(self) -> str:
        """What is wrong with the indexes together, after those that `differs` was asked of; "" if nothing."""

    def make_anew(self) -> None:
        """Empty them all."""


class Sizes:
    """The number of terms of every document: two bytes a page, in blocks that are kept and read as a whole."""

    BLOCK: Final = 512
    MOST: Final = 0xFFFE

    def __init__(self) -> None:
        self._blocks: dict[int, array[int]] = {}
        self._amounts: dict[int, Amount] = {}

    def get(self, key: int) -> int:
        """The size of a document; -1 if there is none."""
        block = self._blocks.get(key >> 9)
        return block[key & 511] - 1 if block else -1

    @property
    def blocks(self) -> Blocks:
        """All sizes, for those who look many up."""
        return self._blocks

    def put(self, key: int, size: int) -> int:
        """Note a size, -1 for none; the number of its block."""
        number = key >> 9
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = array("H", bytes(2 * self.BLOCK))
        block[key & 511] = min(size, self.MOST) + 1
        self._amounts.pop(number, None)
        return number

    def amount(self, spans: Iterable[Span]) -> Amount:
        """How much stands in these stretches."""
        documents = total = 0
        for first, last in spans:
            for number in self._blocks:
                if first >> 9 <= number <= last >> 9:
                    found = self._amount(number, first, last)
                    documents, total = documents + found.documents, total + found.terms
        return Amount(documents, total)

    def keys(self) -> Iterable[int]:
        """The keys of all documents."""
        for number, block in list(self._blocks.items()):
            yield from (number << 9 | place for place, size in enumerate(block) if size)

    def block(self, number: int) -> bytes:
        """A block as kept."""
        block = self._blocks[number]
        return (block if sys.byteorder == "little" else _swapped(block)).tobytes()

    def load(self, blocks: Mapping[int, bytes]) -> None:
        """Take over what was kept, and nothing else. Raises `Misshapen` for what was never kept."""
        self._blocks, self._amounts = {}, {}
        for number, value in blocks.items():
            if not isinstance(value, bytes) or len(value) != 2 * self.BLOCK:
                found = f"have {len(value):,} bytes" if isinstance(value, bytes) else f"are {short_repr(value)}"
                raise Misshapen(f"the sizes of block {number} {found}, not {2 * self.BLOCK:,} bytes")
            block = array("H", value)
            self._blocks[number] = block if sys.byteorder == "little" else _swapped(block)

    def _amount(self, number: int, first: int, last: int) -> Amount:
        if first <= number << 9 and last >= (number << 9 | 511):
            found = self._amounts.get(number)
            if found is None:
                found = self._amounts[number] = _sum(self._blocks[number])
            return found
        start = max(first, number << 9) & 511
        return _sum(self._blocks[number][start : (min(last, number << 9 | 511) & 511) + 1])


def _sum(sizes: "array[int]") -> Amount:
    documents = len(sizes) - sizes.count(0)
    return Amount(documents, sum(sizes) - documents)


def _swapped(block: "array[int]") -> "array[int]":
    copy = array("H", block)
    copy.byteswap()
    return copy
