"""Vectors of pages: kept with them, renewed when a page says something else, searched exactly.

An embedder is any callable from a list of texts to as many vectors. Vectors are records of their own family, derived
from the pages: a copy takes them along, a fork makes its own, and those of another embedder are replaced. numpy is
loaded when the first vector is needed.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from threading import RLock
from typing import Any
from zlib import crc32

from quire.core.records import (
    VECTOR_STATE,
    Header,
    PageRecord,
    VectorRecord,
    VectorState,
    decode_head,
    decode_message,
    decode_vector,
    encode_record,
    page_number,
)
from quire.errors import Conflict, InvalidOperation, InvalidValue, short_repr
from quire.model.messages import Message
from quire.model.pages import Form
from quire.search.index import PerStorageCache
from quire.search.indexing import changed_pages, read_page, scan_pages
from quire.search.page_text import is_searchable, read_body
from quire.storage.base import MESSAGE, VECTOR, Commit, Delete, Put, Storage, Write
from quire.storage.search_protocol import ScoredKey, Span

Embedder = Callable[[list[str]], Any]
"""From texts to vectors, one for each: lists of numbers or rows of an array."""
_BATCH = 128
_WRITES = 1_024
_LONGEST = 8_000
"""Characters of a page that a vector is made of."""
_TRIES = 20
_BLUR = 1e-4
"""More than the products of two vectors differ by rounding."""
_known: "PerStorageCache[Vectors]" = PerStorageCache()
_log = logging.getLogger("quire")


class EmbedderFailed(Exception):
    """The embedder itself raised something."""


def try_vectors(text: str, storage: Storage, context: str, embedder: Embedder | None) -> "tuple[Vectors, Any] | None":
    """As `vectors_and`; None without an embedder, or if it fails: words alone must do then, and the log says why."""
    if embedder is None:
        return None
    try:
        return get_vectors(text, storage, context, embedder)
    except EmbedderFailed as failed:
        _log.warning("The embedder failed, so only words count: %r", failed.__cause__)
        return None


def get_vectors(text: str, storage: Storage, context: str, embedder: Embedder) -> "tuple[Vectors, Any]":
    """The vectors of a context, brought up to date, and that of a text.

    Raises `InvalidOperation` without numpy, and `EmbedderFailed`.
    """
    vector = embed(embedder, [text[:_LONGEST]])[0]
    model = model_id(embedder, len(vector))
    found = _known.get(storage, (context, model), lambda: Vectors(model))
    found.catch_up(storage, context, embedder)
    return found, vector


def model_id(embedder: Embedder, width: int) -> int:
    """A number that tells embedders apart by their `name`, or what they are called in the code, and their vectors."""
    name = getattr(embedder, "name", None) or getattr(embedder, "__qualname__", None) or type(embedder).__qualname__
    return crc32(f"{name} {width}".encode())


def embed(embedder: Embedder, texts: Sequence[str]) -> Any:
    """The vectors of texts as rows of length 1. Raises `InvalidValue` if the embedder gives something else."""
    numpy = _numpy()
    try:
        found = embedder(list(texts))
    except Exception as error:
        raise EmbedderFailed from error
    try:
        rows = numpy.asarray(_given(found), dtype=numpy.float32)
    except InvalidValue:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"The embedder gave no vectors of one length: {error}.") from error
    if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1] or not numpy.isfinite(rows).all():
        raise InvalidValue(
            f"The embedder gave {short_repr(rows.shape)} for {len(texts)} texts; one finite vector for each is needed."
        )
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    return rows / numpy.where(lengths == 0, 1, lengths)


def _given(vectors: Any) -> Any:
    """What an embedder gave, a generator's all at once. Raises `InvalidValue` for a coroutine."""
    if hasattr(vectors, "__await__"):
        getattr(vectors, "close", lambda: None)()  # nobody will await it
        raise InvalidValue("The embedder gave something to await; a plain function that gives the vectors is needed.")
    return list(vectors) if isinstance(vectors, Iterator) else vectors


class Vectors:
    """The vectors of one context by one embedder, in memory as one matrix."""

    def __init__(self, model: int) -> None:
        self.model = model
        self._lock = RLock()
        self._standing: VectorState | None = None
        self._rows: dict[int, Any] = {}
        self._matrix: Any = None
        self._keys: Any = None

    def catch_up(self, storage: Storage, context: str, embedder: Embedder) -> None:
        """Bring vectors to the state that is stored now; what is new is kept for the next one."""
        with self._lock:
            for _ in range(_TRIES):
                head = storage.head(context)
                if head is None:
                    self._forget()
                    return
                identity = decode_head(head.value).identity
                stands = self._stored(storage, context)
                if stands is None or (stands.identity, stands.model) != (identity, self.model):
                    stands = VectorState(0, identity, self.model)
                if self._standing != stands:
                    self._load(storage, context, stands)
                if stands.version == head.version:
                    return
                keys = changed_pages(storage, context, stands.version, head.version) if stands.version else None
                try:
                    self._renew(storage, context, embedder, keys, VectorState(head.version, identity, self.model))
                except Conflict:
                    continue

    def like(self, vector: Any, spans: Sequence[Span], limit: int) -> list[ScoredKey]:
        """The pages in these stretches whose vectors are nearest, best first."""
        numpy = _numpy()
        with self._lock:
            if not self._rows:
                return []
            self._gather(numpy)
            inside = numpy.zeros(len(self._keys), dtype=bool)
            for first, last in spans:
                inside |= (self._keys >= first) & (self._keys <= last)
            places = numpy.flatnonzero(inside)
            scores = self._matrix[places] @ vector if len(places) < len(self._keys) else self._matrix @ vector
            if limit < len(places):  # a product's last digits depend on what else is in the matrix: look again
                places = places[scores >= numpy.partition(scores, -limit)[-limit] - _BLUR]
            found = [(float(self._matrix[place] @ vector), int(self._keys[place])) for place in places]
            return sorted(found, key=lambda page: (-page[0], page[1]))[:limit]

    def rows(self, keys: Sequence[int]) -> Any:
        """The vectors of these pages, zero where there is none."""
        numpy = _numpy()
        with self._lock:
            width = len(next(iter(self._rows.values()))) if self._rows else 1
            empty = numpy.zeros(width, dtype=numpy.float32)
            return numpy.stack([self._rows.get(key, empty) for key in keys]) if keys else numpy.zeros((0, width))

    def _gather(self, numpy: Any) -> None:
        if self._matrix is None:
            order = sorted(self._rows)
            self._keys = numpy.array(order, dtype=numpy.int64)
            self._matrix = numpy.stack([self._rows[key] for key in order])

    def _forget(self) -> None:
        self._standing, self._rows, self._matrix = None, {}, None

    def _stored(self, storage: Storage, context: str) -> VectorState | None:
        record = storage.get(context, VECTOR, VECTOR_STATE)
        found = decode_vector(record.key, record.value) if record else None
        return found if isinstance(found, VectorState) else None

    def _load(self, storage: Storage, context: str, stands: VectorState) -> None:
        """Take over what is kept."""
        numpy = _numpy()
        self._forget()
        if stands.version:
            for record in storage.scan(context, VECTOR, 0, VECTOR_STATE - 1):
                kept = decode_vector(record.key, record.value)
                if isinstance(kept, VectorRecord):
                    self._rows[record.key] = numpy.frombuffer(kept.vector, dtype="<f2").astype(numpy.float32)
        self._standing = stands

    def _renew(
        self, storage: Storage, context: str, embedder: Embedder, keys: Sequence[int] | None, then: VectorState
    ) -> None:
        """Make the vectors of changed pages, or of all in place of what is kept; the last write moves the standing."""
        pages = scan_pages(storage, context) if keys is None else (read_page(storage, context, key) for key in keys)
        kept = (record.key for record in storage.scan(context, VECTOR)) if keys is None else keys
        gone = set(kept)
        fresh: dict[int, Any] = {}
        while batch := list(islice(pages, _BATCH)):
            texts = [
                (page.key, vector_text(storage, context, page.header)) for page in batch if page and _has_meaning(page)
            ]
            if texts:
                rows = embed(embedder, [text for _, text in texts]).astype("<f2")
                if model_id(embedder, rows.shape[1]) != self.model:
                    raise InvalidValue("The embedder gave vectors of several lengths; one length is needed.")
                fresh.update((key, row) for (key, _), row in zip(texts, rows, strict=True))
        gone -= fresh.keys()
        self._keep(storage, context, fresh, gone, then)
        self._rows.update((key, row.astype("float32")) for key, row in fresh.items())
        for key in gone:
            self._rows.pop(key, None)
        self._standing, self._matrix = then, None

    def _keep(self, storage: Storage, context: str, fresh: dict[int, Any], gone: set[int], then: VectorState) -> None:
        """Write them beside the pages, in commits that leave the context where it stands.

        Others may write to the context meanwhile: `then` stays behind, and the next turn looks again at what changed.
        """
        writes: list[Write] = [Delete(VECTOR, key) for key in sorted(gone - {VECTOR_STATE})]
        writes += [Put(VECTOR, key, encode_record(key, VectorRecord(row.tobytes()))) for key, row in fresh.items()]
        if VECTOR_STATE in gone and len(writes) >= _WRITES:
            # were this interrupted, nobody must take the vectors of two embedders for those of one
            _write(storage, context, then.identity, [Delete(VECTOR, VECTOR_STATE)])
        writes.append(Put(VECTOR, VECTOR_STATE, encode_record(VECTOR_STATE, then)))
        for start in range(0, len(writes), _WRITES):
            _write(storage, context, then.identity, writes[start : start + _WRITES])


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


def _has_meaning(page: PageRecord) -> bool:
    """Whether a page says something of its own: a chapter says what its pages say, a segment's root nothing."""
    return is_searchable(page) and page.header.form is not Form.CHAPTER and page_number(page.key) > 0


def vector_text(storage: Storage, context: str, header: Header) -> str:
    """What a vector is made of: who says what, or a page's name, description and text."""
    if header.numbers:
        return "\n".join(_lines(storage, context, header))[:_LONGEST]
    return "\n".join(filter(None, (header.name, header.description, read_body(storage, context, header))))[:_LONGEST]


def speaker_name(message: Message) -> str:
    """Who says a message: a name, or else the role."""
    return message.name or message.role.capitalize()


def _lines(storage: Storage, context: str, header: Header) -> Iterator[str]:
    for number in header.numbers:
        record = storage.get(context, MESSAGE, number)
        if record is not None:
            message = decode_message(number, record.value).message
            yield f"{speaker_name(message)}: {message.text}"


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise InvalidOperation("Vectors need numpy: pip install 'quire[embeddings]'.") from None
    return numpy
