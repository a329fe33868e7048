"""The protocol of a search index: terms, phrases, and a score function that the caller passes."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from quire.errors import StorageFailure
from quire.storage.contract import MAX_KEY

FIELDS: Final = ("body", "name", "description", "parts")
"""The fields of a document, in the order of `ScoredDocument.phrase_locations`."""


class IndexLost(StorageFailure):
    """The index was missing or damaged. It was emptied and can be filled again from the records."""


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
    """The index of one context. Several threads and processes may call it."""

    def state(self) -> IndexState | None:
        """Read the state that the index reflects; None if it is empty or was damaged."""

    def update(
        self, seen: IndexState | None, then: IndexState, documents: Iterable[Document], gone: Iterable[int] = ()
    ) -> bool:
        """Replace and remove documents and move to a new state, atomically; False if it is not at state `seen`."""

    def clear(self) -> None:
        """Remove all documents of this context."""


class Sizes:
    """The number of terms of every document: two bytes per page, stored and read in blocks."""

    BLOCK: Final = 512
    MOST: Final = 0xFFFE

    def __init__(self) -> None:
        self._blocks: dict[int, array[int]] = {}
        self._amounts: dict[int, Amount] = {}

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
