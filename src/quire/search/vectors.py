"""Vectors of pages: stored with them, computed again when the text of a page changes, searched exactly.

An embedder is any callable from a list of texts to as many vectors. Vectors are records of their own family, derived
from the pages: a copy includes them, a fork computes its own, and those of another embedder are replaced. A vector has
one byte for each number, in the storage and in memory. numpy is imported when the first vector is needed.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from threading import RLock
from typing import Any
from zlib import crc32

from msgspec.structs import replace

from quire.core.derived_records import VECTOR_STATE, VectorRecord, VectorState, decode_vector
from quire.core.missing import check_pages
from quire.core.records import (
    NO_MARK,
    ContextMark,
    Header,
    PageRecord,
    decode_head,
    encode_record,
    mark_of,
    page_number,
)
from quire.errors import Conflict, Corrupt, InvalidValue, NotInstalled, short_repr
from quire.model.messages import Message
from quire.model.pages import Form
from quire.search.index import PerStorageCache
from quire.search.indexing import changed_pages, read_page, scan_pages
from quire.search.page_text import is_searchable, read_body, read_messages
from quire.storage.base import VECTOR, Commit, Delete, Put, Storage, Write
from quire.storage.search_protocol import ScoredKey, Span

Embedder = Callable[[list[str]], Any]
"""Returns one vector for each text: lists of numbers or rows of an array."""
_BATCH = 128
_WRITES = 1_024
_LONGEST = 8_000
"""The characters of a page that are embedded."""
_PART = 1_024
_TRIES = 20
_BLUR = 1e-4
"""More than the rounding error of a product of two vectors."""
_known: "PerStorageCache[Vectors]" = PerStorageCache()
_log = logging.getLogger("quire")


class EmbedderFailed(Exception):
    """The embedder itself raised an error."""


def try_vectors(text: str, storage: Storage, context: str, embedder: Embedder | None) -> "tuple[Vectors, Any] | None":
    """Return `get_vectors`; None without an embedder or if it fails (then words alone count, and it is logged)."""
    if embedder is None:
        return None
    try:
        return get_vectors(text, storage, context, embedder)
    except EmbedderFailed as failed:
        _log.warning("The embedder failed; the search uses words only: %r", failed.__cause__)
        return None


def get_vectors(text: str, storage: Storage, context: str, embedder: Embedder) -> "tuple[Vectors, Any]":
    """Return the up-to-date vectors of a context, and the vector of a text.

    Raises `NotInstalled` without numpy, and `EmbedderFailed`.
    """
    vector = embed(embedder, [text[:_LONGEST]])[0]
    width = len(vector)
    model = model_id(embedder, width)
    found = _known.get(storage, (context, model), lambda: Vectors(model, width))
    found.catch_up(storage, context, embedder)
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
        self._mark = NO_MARK
        self._places: dict[int, int] = {}
        self._keys = numpy.zeros(0, dtype=numpy.int64)
        self._matrix = numpy.zeros((0, width), dtype=numpy.int8)
        self._scales = numpy.zeros(0, dtype=numpy.float32)

    def catch_up(self, storage: Storage, context: str, embedder: Embedder) -> None:
        """Bring the vectors to the version that is stored now, and store new ones."""
        with self._lock:
            for _ in range(_TRIES):
                head = storage.head(context)
                if head is None:
                    self._forget()
                    return
                stored_head = decode_head(head.value)
                identity = stored_head.identity
                self._mark = mark_of(stored_head)
                record = storage.get(context, VECTOR, VECTOR_STATE)
                state = decode_vector(record.key, record.value, self._mark) if record else None
                if not isinstance(state, VectorState) or (state.identity, state.model) != (identity, self.model):
                    state = VectorState(0, identity, self.model)
                if self._state != state:
                    self._load(storage, context, state)
                    if state.version and len(self._places) < state.count:  # some are missing: make all again
                        self._forget()
                        state = self._state = VectorState(0, identity, self.model)
                if state.version == head.version:
                    return
                since = state.version
                keys = changed_pages(storage, context, self._mark, since, head.version) if since else None
                try:
                    self._renew(storage, context, embedder, keys, VectorState(head.version, identity, self.model))
                except Conflict:
                    continue

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

    def _load(self, storage: Storage, context: str, state: VectorState) -> None:
        """Load the stored vectors."""
        numpy = _numpy()
        self._forget()
        if state.version:
            for record in storage.scan(context, VECTOR, 0, VECTOR_STATE - 1):
                kept = decode_vector(record.key, record.value, self._mark)
                if isinstance(kept, VectorRecord):
                    self._put(record.key, numpy.frombuffer(kept.vector, dtype=numpy.int8))
        self._state = state

    def _renew(
        self, storage: Storage, context: str, embedder: Embedder, keys: Sequence[int] | None, then: VectorState
    ) -> None:
        """Compute the vectors of changed pages, or of all pages; the last write stores the new state."""
        if keys is None:
            check_pages(storage, context)
        mark = self._mark
        pages = (
            scan_pages(storage, context, mark)
            if keys is None
            else (read_page(storage, context, mark, key) for key in keys)
        )
        gone = {record.key for record in storage.scan(context, VECTOR)} if keys is None else set(keys)
        fresh: dict[int, Any] = {}
        while batch := list(islice(pages, _BATCH)):
            texts = [
                (page.key, vector_text(storage, context, mark, page.header))
                for page in batch
                if page and _has_meaning(page)
            ]
            if texts:
                rows = _to_bytes(embed(embedder, [text for _, text in texts]))
                if model_id(embedder, rows.shape[1]) != self.model:
                    raise InvalidValue("The embedder returned vectors of several lengths; one length is needed.")
                fresh.update((key, row) for (key, _), row in zip(texts, rows, strict=True))
        gone -= fresh.keys()
        then = replace(then, count=len((self._places.keys() | fresh.keys()) - gone))
        self._keep(storage, context, fresh, gone, then)
        for key, row in fresh.items():
            self._put(key, row)
        for key in gone:
            self._drop(key)
        self._state = then

    def _keep(self, storage: Storage, context: str, fresh: dict[int, Any], gone: set[int], then: VectorState) -> None:
        """Write the vectors in commits that do not change the version of the context.

        Others may write to the context meanwhile. Then `then` is an older version, and the next call catches up.
        """
        writes: list[Write] = [Delete(VECTOR, key) for key in sorted(gone - {VECTOR_STATE})]
        writes += [
            Put(VECTOR, key, encode_record(key, VectorRecord(row.tobytes()), self._mark)) for key, row in fresh.items()
        ]
        if VECTOR_STATE in gone and len(writes) >= _WRITES:
            # if this is interrupted, vectors of two embedders must not be taken for those of one
            _write(storage, context, then.identity, [Delete(VECTOR, VECTOR_STATE)])
        writes.append(Put(VECTOR, VECTOR_STATE, encode_record(VECTOR_STATE, then, self._mark)))
        for start in range(0, len(writes), _WRITES):
            _write(storage, context, then.identity, writes[start : start + _WRITES])


def _to_bytes(rows: Any) -> Any:
    """Return vectors with numbers of one byte. The largest number of each is 127, so the length is not stored."""
    numpy = _numpy()
    most = numpy.abs(rows).max(axis=1, keepdims=True)
    return numpy.rint(rows * (127 / numpy.where(most == 0, 1, most))).astype(numpy.int8)


def _parts(count: int) -> Iterator[slice]:
    """Yield parts of a matrix that fit the cache of a processor."""
    for start in range(0, count, _PART):
        yield slice(start, min(start + _PART, count))


def _write(storage: Storage, context: str, identity: bytes, writes: Sequence[Write], tries: int = _TRIES) -> None:
    head = storage.head(context)
    if head is None or decode_head(head.value).identity != identity:
        raise Conflict(f"Context {context!r} was deleted meanwhile.")
    try:
        storage.commit(context, Commit(head.version, head.version, head.value, writes, head.value))
    except Conflict:
        if tries == 1:
            raise
        _write(storage, context, identity, writes, tries - 1)


def delete_vectors(storage: Storage, context: str, mark: ContextMark, keys: Iterable[int]) -> list[Write]:
    """Return the writes that delete the vectors of these pages."""
    found = [key for key in sorted(keys) if storage.get(context, VECTOR, key) is not None]
    writes: list[Write] = [Delete(VECTOR, key) for key in found]
    record = storage.get(context, VECTOR, VECTOR_STATE)
    state = None
    with suppress(Corrupt):  # the next search reports it
        state = decode_vector(record.key, record.value, mark) if record and found else None
    if isinstance(state, VectorState):
        fewer = replace(state, count=state.count - len(found))
        writes.append(Put(VECTOR, VECTOR_STATE, encode_record(VECTOR_STATE, fewer, mark)))
    return writes


def _has_meaning(page: PageRecord) -> bool:
    """Return whether a page has text of its own: a chapter repeats its pages, and a segment's root has none."""
    return is_searchable(page) and page.header.form is not Form.CHAPTER and page_number(page.key) > 0


def vector_text(storage: Storage, context: str, mark: ContextMark, header: Header) -> str:
    """Return the text of a page's vector: speakers and messages, or its name, description and body."""
    if header.numbers:
        messages = read_messages(storage, context, mark, header.numbers)
        lines = [f"{speaker_name(message)}: {message.text}" for message in messages]
    else:
        body = read_body(storage, context, mark, header)
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
