"""The protocol of a search index in a backend.

The index is derived from the records. A storage without `SupportsSearch` is searched with an index in memory.
quire passes terms, so a backend does not tokenize text. quire also passes the score function, so every backend returns
the same order.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from quire.errors import StorageFailure, short_repr
from quire.storage.base import MAX_KEY, Symptom

FIELDS: Final = ("body", "name", "description", "parts")
"""The fields of a document, in the order of `ScoredDocument.phrase_locations`."""


class IndexLost(StorageFailure):
    """The index was missing or damaged. It was emptied and can be filled again from the records."""


class IndexReadOnly(StorageFailure):
    """The index cannot be written, or not even read, with this file or role."""


class MalformedIndex(Exception):
    """A row of an index has a form that quire never writes. Backends catch it themselves."""


Span = tuple[int, int]
"""A range of keys: the first and the last."""
ScoredKey = tuple[float, int]
"""A score and the key of its document."""


class Phrase(Struct, frozen=True, gc=False):
    """Consecutive terms in one field. With `prefix`, the last one is the beginning of a term."""

    terms: tuple[str, ...]
    prefix: bool = False


class IndexQuery(Struct, frozen=True):
    """Selects the documents that contain every phrase of `every` and, if `some` is not empty, at least one of `some`.

    Phrases of `also` do not select documents, but they are located too.
    """

    every: tuple[Phrase, ...]
    some: tuple[Phrase, ...] = ()
    also: tuple[Phrase, ...] = ()

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """All phrases in the order of their numbers. With `also`, the phrases of `some` occur twice."""
        return (*self.every, *self.some, *self.some, *self.also) if self.also else (*self.every, *self.some)


class ScoredDocument(Protocol):
    """The document that a score function is called with."""

    @property
    def rowid(self) -> int:
        """Its number; `rowid & MAX_KEY` is its key."""

    def phrase_locations(self, phrase: int, /) -> Sequence[Sized]:
        """Return the locations of a phrase, by its number, in each field."""


Score = Callable[[ScoredDocument], float]
"""Returns the score of a document."""


WORDS_ONLY: Final = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128)).lower()
"""ASCII characters as they occur in terms. Translating text with it takes a quarter of the time of a pattern."""


class AsciiTerms(Sequence[str]):
    """The terms of an ASCII text: the runs of its letters and digits. Every use makes the list again."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def _list(self) -> list[str]:
        return self.text.translate(WORDS_ONLY).split()

    def __len__(self) -> int:
        return len(self._list())

    def __iter__(self) -> Iterator[str]:
        return iter(self._list())

    def __getitem__(self, place: Any) -> Any:
        return self._list()[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"AsciiTerms({self.text!r})"


def join_terms(terms: Sequence[str]) -> str:
    """Return a text that FTS5's tokenizer `ascii` splits into these terms. Other characters can be between them."""
    return terms.text if isinstance(terms, AsciiTerms) else " ".join(terms)


_TERM_BYTES = 6
"""The bytes of an ASCII text for each of its terms, about."""


class Document(Struct, frozen=True):
    """The terms of one page by field."""

    key: int
    body: Sequence[str] = ()
    name: Sequence[str] = ()
    description: Sequence[str] = ()
    parts: Sequence[str] = ()

    @property
    def fields(self) -> tuple[Sequence[str], ...]:
        return self.body, self.name, self.description, self.parts

    @property
    def size(self) -> int:
        """About how many terms the page has: those of an ASCII text are estimated."""
        return sum(len(f.text) // _TERM_BYTES if isinstance(f, AsciiTerms) else len(f) for f in self.fields)


class IndexState(Struct, frozen=True):
    """The version and identity of the context that an index reflects. `reached` is the last key of a partial build."""

    version: int
    identity: bytes
    reached: int = MAX_KEY


class Amount(NamedTuple):
    """A number of documents, and the number of terms in their bodies."""

    documents: int
    terms: int


Blocks = Mapping[int, Sequence[int]]
"""Blocks of 512 keys, by `key >> 9`. A value is the number of terms in a body plus one; 0 means no document."""


def has_document(blocks: Blocks, key: int) -> bool:
    """Return whether a document has this key."""
    block = blocks.get(key >> 9)
    return bool(block and block[key & 511])


class Index(Protocol):
    """The read operations of an index."""

    def sizes(self) -> Blocks:
        """Return the number of terms in the body of every document, plus one; see `Blocks`."""

    def amount(self, spans: Sequence[Span]) -> Amount:
        """Count the documents and terms in these ranges."""

    def count(self, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        """Count the documents that contain the phrase; stop at `most`."""

    def best(self, wanted: IndexQuery, spans: Sequence[Span], score: Score, limit: int) -> list[ScoredKey]:
        """Return the best documents by score, then by key. Raises `IndexLost` if the index is not filled."""


class SearchIndex(Index, Protocol):
    """The index of one context. Several threads and processes may call it.

    `update` and `clear` raise `IndexReadOnly` if it cannot be written; quire then indexes newer changes in memory.
    """

    def state(self) -> IndexState | None:
        """Read the state that the index reflects; None if it is empty or was damaged."""

    def update(
        self, seen: IndexState | None, then: IndexState, documents: Iterable[Document], gone: Iterable[int] = ()
    ) -> bool:
        """Replace and remove documents and move to a new state, atomically; False if it is not at state `seen`."""

    def clear(self) -> None:
        """Remove all documents of this context."""


class SearchCheck(Protocol):
    """One check of all indexes of a storage. It changes nothing. Raises `IndexReadOnly` if an index may not be read."""

    def matches(self, context: str, state: IndexState, documents: Iterable[Document]) -> bool:
        """Return whether the index of a context holds exactly these documents.

        True also if the index is at another state, or if it changed meanwhile.
        """

    def find_damage(self) -> str:
        """Check the data that all indexes share, after the calls of `matches`; return the damage found, or ""."""

    def reset(self) -> None:
        """Empty all indexes and create them again."""


def search_symptom(code: str, damage: str, context: str = "", *, repaired: bool) -> Symptom:
    """Return the symptom of an index that does not match its pages."""
    text = f"{damage[0].upper()}{damage[1:]}. Searches may miss pages; the pages themselves are not affected."
    remedy = "A repair empties it; the next search fills it again."
    return Symptom(code, "warning", "search index", text, remedy, context, repaired)


@runtime_checkable
class SupportsSearch(Protocol):
    """A storage that keeps search indexes itself."""

    def search(self, context: str) -> SearchIndex:
        """Return the index of a context."""


@runtime_checkable
class SupportsSearchCheck(Protocol):
    """A storage that can compare its search indexes with their documents. Without it, `doctor` checks no index."""

    def search_check(self) -> SearchCheck:
        """Start a check."""


@runtime_checkable
class SupportsReset(Protocol):
    """An index that shares data with other contexts, so that `clear` is not enough for a damaged one."""

    def reset(self) -> None:
        """Empty the indexes of all contexts and create them again."""


class Sizes:
    """The number of terms of every document: two bytes per page, stored and read in blocks."""

    BLOCK: Final = 512
    MOST: Final = 0xFFFE

    def __init__(self, stored: Mapping[int, bytes] | None = None) -> None:
        """Start with no documents, or with stored blocks. Raises `MalformedIndex`."""
        self._blocks: dict[int, array[int]] = {}
        self._amounts: dict[int, Amount] = {}
        for number, value in (stored or {}).items():
            if not isinstance(value, bytes) or len(value) != 2 * self.BLOCK:
                found = f"have {len(value):,} bytes" if isinstance(value, bytes) else f"are {short_repr(value)}"
                raise MalformedIndex(f"the sizes of block {number} {found}, not {2 * self.BLOCK:,} bytes")
            block = array("H", value)
            self._blocks[number] = block if sys.byteorder == "little" else _swap_bytes(block)

    def get(self, key: int) -> int:
        """Return the size of a document; -1 if there is none."""
        block = self._blocks.get(key >> 9)
        return block[key & 511] - 1 if block else -1

    @property
    def blocks(self) -> Blocks:
        """All sizes, for a caller that needs many."""
        return self._blocks

    def put(self, key: int, size: int) -> int:
        """Set a size, or -1 for none; return the number of its block."""
        number = key >> 9
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = array("H", bytes(2 * self.BLOCK))
        block[key & 511] = min(size, self.MOST) + 1
        self._amounts.pop(number, None)
        return number

    def amount(self, spans: Iterable[Span]) -> Amount:
        """Count the documents and terms in these ranges."""
        documents = total = 0
        for first, last in spans:
            for number in self._blocks:
                if first >> 9 <= number <= last >> 9:
                    found = self._amount(number, first, last)
                    documents, total = documents + found.documents, total + found.terms
        return Amount(documents, total)

    def items(self) -> Iterable[tuple[int, int]]:
        """Yield the key and size of every document."""
        for number, block in list(self._blocks.items()):
            yield from ((number << 9 | place, size - 1) for place, size in enumerate(block) if size)

    def block(self, number: int) -> bytes:
        """Return a block as it is stored."""
        block = self._blocks[number]
        return (block if sys.byteorder == "little" else _swap_bytes(block)).tobytes()

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


def _swap_bytes(block: "array[int]") -> "array[int]":
    copy = array("H", block)
    copy.byteswap()
    return copy
