"""Vectors of pages: a function of the caller embeds texts, and pages near a question are found by their vectors.

They are kept in a companion of the context, so storing them changes nothing in it; lost ones are made again.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from threading import RLock
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.core.companion import VECTORS, Write, companion_of, write_companion
from quire.core.records import Header, PageRecord, page_number
from quire.core.state import State
from quire.core.stored import Stored
from quire.errors import Conflict, InvalidValue, NotInstalled, short_repr
from quire.model.messages import Message
from quire.model.pages import Form
from quire.search.index import PerStorageCache
from quire.search.index_protocol import ScoredKey, Span
from quire.search.indexing import changed_pages, scan_pages
from quire.search.page_text import is_searchable, read_body, read_messages
from quire.storage.contract import CACHE, Loaded, Storage

Embedder = Callable[[list[str]], Any]
"""Returns one vector for each text: lists of numbers or rows of an array."""
_BATCH = 128
_LONGEST = 8_000
"""The characters of a page that are embedded."""
_PART = 1_024
_TRIES = 20
_BLUR = 1e-4
"""More than the rounding error of a product of two vectors."""
_known: "PerStorageCache[Vectors]" = PerStorageCache()
_log = logging.getLogger("quire")


class VectorState(Struct, frozen=True, array_like=True, gc=False):
    """The version and identity of the context that the vectors reflect, the embedder, and the number of vectors."""

    version: int
    identity: bytes
    model: int
    count: int = 0


_decode_head = msgspec.msgpack.Decoder(VectorState).decode


class EmbedderFailed(Exception):
    """The embedder itself raised an error."""


def try_vectors(text: str, state: State, embedder: Embedder | None) -> "tuple[Vectors, Any] | None":
    """Return `get_vectors`; None without an embedder or if it fails (then words alone count, and it is logged)."""
    if embedder is None:
        return None
    try:
        return get_vectors(text, state, embedder)
    except EmbedderFailed as failed:
        _log.warning("The embedder failed; the search uses words only: %r", failed.__cause__)
        return None


def get_vectors(text: str, state: State, embedder: Embedder) -> "tuple[Vectors, Any]":
    """Return the up-to-date vectors of a context, and the vector of a text.

    Raises `NotInstalled` without numpy, and `EmbedderFailed`.
    """
    vector = embed(embedder, [text[:_LONGEST]])[0]
    width = len(vector)
    model = model_id(embedder, width)
    found = _known.get(state.storage, (state.context, model), lambda: Vectors(model, width))
    found.catch_up(state, embedder)
    return found, vector


def model_id(embedder: Embedder, width: int) -> int:
    """Return a number for an embedder, by its name, the length of its vectors and the form of the numbers."""
    name = getattr(embedder, "name", None) or getattr(embedder, "__qualname__", None) or type(embedder).__qualname__
    return crc32(f"{name} {width} int8".encode())


def embed(embedder: Embedder, texts: Sequence[str]) -> Any:
    """Return the vectors of texts as rows of length 1. Raise `InvalidValue` if the embedder returns something else."""
    numpy = _numpy()
    try:
        found = embedder(list(texts))
    except Exception as error:
        raise EmbedderFailed from error
    try:
        rows = numpy.asarray(_read_vectors(found), dtype=numpy.float32)
    except InvalidValue:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"The embedder must return vectors of one length: {error}.") from error
    if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1] or not numpy.isfinite(rows).all():
        raise InvalidValue(
            f"The embedder returned {short_repr(rows.shape)} for {len(texts)} texts; one finite vector each is needed."
        )
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    return rows / numpy.where(lengths == 0, 1, lengths)


def _read_vectors(vectors: Any) -> Any:
    """Return the result of an embedder, a generator's as a list. Raise `InvalidValue` for a coroutine."""
    if hasattr(vectors, "__await__"):
        getattr(vectors, "close", lambda: None)()  # it is never awaited
        raise InvalidValue("The embedder returned an awaitable; a plain function that returns the vectors is needed.")
    return list(vectors) if isinstance(vectors, Iterator) else vectors


class Vectors:
    """The vectors of one context by one embedder, in memory as one matrix of bytes.

    The rows are in no order: a new one is added at the end, and the last one takes the place of a removed one.
    """

    def __init__(self, model: int, width: int) -> None:
        numpy = _numpy()
        self.model = model
        self._lock = RLock()
        self._state: VectorState | None = None
        self._places: dict[int, int] = {}
        self._keys = numpy.zeros(0, dtype=numpy.int64)
        self._matrix = numpy.zeros((0, width), dtype=numpy.int8)
        self._scales = numpy.zeros(0, dtype=numpy.float32)

    def catch_up(self, state: State, embedder: Embedder) -> None:
        """Bring the vectors to the version of a state, and store new ones in a companion of the context."""
        name = companion_of(state.context, VECTORS)
        with self._lock:
            for _ in range(_TRIES):
                found = state.storage.load(name)
                known = _decode_head(found.head) if found else None
                if known is None or (known.identity, known.model) != (state.head.identity, self.model):
                    known = VectorState(0, state.head.identity, self.model)
                if self._state != known:
                    self._load(state.storage, found, known)
                    if known.version and len(self._places) < known.count:  # some are missing: make all again
                        self._forget()
                        known = self._state = VectorState(0, state.head.identity, self.model)
                if known.version >= state.version:
                    return
                keys = changed_pages(state.stored, known.version, state.version) if known.version else None
                with suppress(Conflict):  # another process stored vectors
                    self._renew(state, found, embedder, keys)
                    return

    def like(self, vector: Any, spans: Sequence[Span], limit: int) -> list[ScoredKey]:
        """Return the pages in these spans with the nearest vectors, best first."""
        numpy = _numpy()
        with self._lock:
            count = len(self._places)
            keys = self._keys[:count]
            inside = numpy.zeros(count, dtype=bool)
            for first, last in spans:
                inside |= (keys >= first) & (keys <= last)
            places = numpy.flatnonzero(inside)
            if limit < len(places):  # the last digits of a product depend on the matrix: compute again
                products = [self._matrix[part].astype(numpy.float32) @ vector for part in _parts(count)]
                scores = (numpy.concatenate(products) * self._scales[:count])[places]
                places = places[scores >= numpy.partition(scores, -limit)[-limit] - _BLUR]
            found = [(float(self._floats(place) @ vector), int(keys[place])) for place in places]
            return sorted(found, key=lambda page: (-page[0], page[1]))[:limit]

    def rows(self, keys: Sequence[int]) -> Any:
        """Return the vectors of these pages; zeros for a page without one."""
        numpy = _numpy()
        with self._lock:
            found = numpy.zeros((len(keys), self._matrix.shape[1]), dtype=numpy.float32)
            places = [(n, self._places[key]) for n, key in enumerate(keys) if key in self._places]
            if places:
                rows, taken = map(list, zip(*places, strict=True))
                found[rows] = self._floats(taken)
            return found

    def _floats(self, places: Any) -> Any:
        """Return rows as numbers, of length 1."""
        return self._matrix[places] * self._scales[places, None]

    def _put(self, key: int, row: Any) -> None:
        """Add or replace a row of bytes."""
        numpy = _numpy()
        place = self._places.setdefault(key, len(self._places))
        if place == len(self._keys):
            size = max(2 * place, _BATCH)
            self._keys = numpy.resize(self._keys, size)
            self._matrix = numpy.resize(self._matrix, (size, self._matrix.shape[1]))
            self._scales = numpy.resize(self._scales, size)
        self._keys[place], self._matrix[place] = key, row
        self._scales[place] = 1 / max(float(numpy.linalg.norm(row.astype(numpy.float32))), 1.0)

    def _drop(self, key: int) -> None:
        place = self._places.pop(key, None)
        last = len(self._places)
        if place is not None and place < last:
            for rows in (self._keys, self._matrix, self._scales):
                rows[place] = rows[last]
            self._places[int(self._keys[place])] = place

    def _forget(self) -> None:
        self._state, self._places = None, {}

    def _load(self, storage: Storage, found: Loaded | None, known: VectorState) -> None:
        """Load the stored vectors."""
        numpy = _numpy()
        self._forget()
        if found is not None and known.version:
            for record in storage.scan(found.id, CACHE):
                self._put(record.key, numpy.frombuffer(record.value, dtype=numpy.int8))
        self._state = known

    def _renew(self, state: State, found: Loaded | None, embedder: Embedder, keys: Sequence[int] | None) -> None:
        """Compute the vectors of changed pages, or of all pages, and store them."""
        changed = scan_pages(state.stored) if keys is None else (state.stored.page(key) for key in keys)
        pages = (page for page in changed if isinstance(page, PageRecord) and _has_meaning(page))
        gone = set(keys or ())
        if keys is None and found is not None:
            gone = {record.key for record in state.storage.scan(found.id, CACHE)}
        fresh: dict[int, Any] = {}
        while batch := list(islice(pages, _BATCH)):
            rows = _to_bytes(embed(embedder, [vector_text(state.stored, page.header) for page in batch]))
            if model_id(embedder, rows.shape[1]) != self.model:
                raise InvalidValue("The embedder returned vectors of several lengths; one length is needed.")
            fresh.update((page.key, row) for page, row in zip(batch, rows, strict=True))
        gone -= fresh.keys()
        count = len((self._places.keys() | fresh.keys()) - gone)
        then = VectorState(state.version, state.head.identity, self.model, count)
        writes: list[Write] = [(CACHE, key, None) for key in gone]
        writes += [(CACHE, key, row.tobytes()) for key, row in fresh.items()]
        name = companion_of(state.context, VECTORS)
        write_companion(state.storage, name, found, msgspec.msgpack.encode(then), writes)
        for key, row in fresh.items():
            self._put(key, row)
        for key in gone:
            self._drop(key)
        self._state = then


def _to_bytes(rows: Any) -> Any:
    """Return vectors with numbers of one byte. The largest number of each is 127, so the length is not stored."""
    numpy = _numpy()
    most = numpy.abs(rows).max(axis=1, keepdims=True)
    return numpy.rint(rows * (127 / numpy.where(most == 0, 1, most))).astype(numpy.int8)


def _parts(count: int) -> Iterator[slice]:
    """Yield parts of a matrix that fit the cache of a processor."""
    for start in range(0, count, _PART):
        yield slice(start, min(start + _PART, count))


def _has_meaning(page: PageRecord) -> bool:
    """Return whether a page has text of its own: a chapter repeats its pages, and a segment's root has none."""
    return is_searchable(page) and page.header.form is not Form.CHAPTER and page_number(page.key) > 0


def vector_text(source: Stored, header: Header) -> str:
    """Return the text of a page's vector: speakers and messages, or its name, description and body."""
    if header.numbers:
        messages = read_messages(source, header.numbers)
        lines = [f"{speaker_name(message)}: {message.text}" for message in messages]
    else:
        body = read_body(source, header)
        lines = [line for line in (header.name, header.description, body) if line]
    return "\n".join(lines)[:_LONGEST]


def speaker_name(message: Message) -> str:
    """Return the speaker of a message: its name, or its role."""
    return message.name or message.role.capitalize()


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise NotInstalled("Vectors need numpy", "embeddings", name="numpy") from None
    return numpy
