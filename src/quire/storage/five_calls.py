"""A storage over a backend with only five calls (`save`, `load`, `delete`, `exists`, `list`), for a single writer.

Every commit is one page that is saved, so a commit is stored whole or not at all. The records are held in memory and
are read from the pages when the storage is opened. Now and then one page with all records replaces the older pages.
"""

import logging
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final, Protocol

import msgspec

from quire.errors import Corrupt, InvalidValue, StorageFailure, short_repr
from quire.model.pages import DetailPage
from quire.storage.base import Commit, Delete, Patch, Put, Write, check_context_name, check_families, conflict
from quire.storage.memory import MemoryStorage

_KINDS: Final = {"put": Put, "patch": Patch, "delete": Delete}
_MOST_PAGES: Final = 256
"""After this many commits of a context, one page with all records replaces their pages."""
_DROPPED: Final = 0
"""The version in the last page of a context that was dropped. The other pages of it are left over."""
_log = logging.getLogger("quire.storage")


class PageBackend(Protocol):
    """The five calls, as design document 000 defines them. A page is saved under its `index` and loaded unchanged."""

    def save(self, page: DetailPage, /) -> object: ...
    def load(self, index: str, /) -> DetailPage: ...
    def delete(self, index: str, /) -> object: ...
    def exists(self, index: str, /) -> bool: ...
    def list(self) -> Iterable[str]: ...


class _Saved(msgspec.Struct, array_like=True):
    """The content of one page: a commit, or with `whole` all records of a context."""

    context: str
    version: int
    head: bytes
    writes: list[list[Any]]
    whole: bool = False


class FiveCallStorage(MemoryStorage):
    """A storage over a backend with five calls. Only one object at a time may write to a backend.

    Two writers are not detected. All records are held in memory. The backend stores one page per commit,
    not the pages of the context.
    """

    def __init__(self, backend: PageBackend) -> None:
        super().__init__()
        missing = [name for name in ("save", "load", "delete", "exists", "list") if not hasattr(backend, name)]
        if missing:
            raise InvalidValue(f"is {short_repr(backend)}; it has no {', '.join(missing)}.", argument="backend")
        self._backend = backend
        self._pages: dict[str, list[int]] = {}
        self._read()

    def commit(self, context: str, commit: Commit) -> None:
        check_context_name(context)
        with self._lock:
            found = self._find(context)
            if not commit.follows(found[0] if found else None):
                raise conflict(context, found[0] if found else None, commit.expect)
            check_families(commit.writes)
            writes = [_to_list(write) for write in commit.writes]
            self._save(_Saved(context, commit.version, commit.head, writes, whole=not found))
            super().commit(context, commit)
            if len(self._pages[context]) % _MOST_PAGES == 0:
                try:
                    self._compact(context)
                except StorageFailure as error:  # the commit is stored
                    _log.warning("The pages of context %r were not replaced by one: %s", context, error)

    def drop(self, context: str) -> None:
        check_context_name(context)
        with self._lock:
            if super().head(context) is not None:
                self._save(_Saved(context, _DROPPED, b"", [], whole=True))
                super().drop(context)
            self._delete(context, self._pages.get(context, []))

    def scrub(self, contexts: Sequence[str] | None) -> None:
        """Replace the saved commits of these contexts, or of all contexts, by one page without deleted records."""
        with self._lock:
            for context in list(self._pages) if contexts is None else contexts:
                if context in self._contexts:
                    self._compact(context)
                else:
                    self._delete(context, self._pages.get(context, []))

    def _read(self) -> None:
        """Read all pages. Ignore pages before the last one with all records: an interrupted compaction left them."""
        found: dict[str, list[tuple[int, _Saved]]] = {}
        for index in list(self._backend.list()):
            saved = self._load(index)
            found.setdefault(saved.context, []).append((int(index.rpartition("-")[2]), saved))
        for context, pages in found.items():
            pages.sort(key=lambda page: page[0])
            start = max((n for n, (_, saved) in enumerate(pages) if saved.whole), default=-1)
            numbers = [number for number, _ in pages[start:]]
            if start < 0 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
                raise Corrupt("has pages missing in the backend.", record=f"context {context!r}")
            self._pages[context] = [number for number, _ in pages]
            if pages[-1][1].version == _DROPPED:
                try:
                    self._delete(context, self._pages[context])
                except StorageFailure as error:
                    _log.warning("The removal of context %r was not finished: %s", context, error)
                continue
            for _, saved in pages[start:]:
                writes: list[Write] = [_KINDS[kind](**fields) for kind, fields in saved.writes]
                self._finish(context, Commit(0, saved.version, saved.head, writes))

    def _load(self, index: str) -> _Saved:
        try:
            return msgspec.msgpack.decode(b64decode(self._backend.load(index).meta["data"]), type=_Saved)
        except (msgspec.MsgspecError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise Corrupt(f"cannot be read: {error}.", record=f"page {index!r} of the backend") from None

    def _save(self, saved: _Saved) -> None:
        numbers = self._pages.get(saved.context, [])
        number = numbers[-1] + 1 if numbers else 1
        data = b64encode(msgspec.msgpack.encode(saved)).decode()
        page = DetailPage(name=f"Commit {number}", index=_index(saved.context, number), meta={"data": data})
        try:
            self._backend.save(page)
        except Exception as error:  # foreign code can raise anything
            raise StorageFailure(f"The backend could not save a page: {error!r}. Nothing was changed.") from error
        self._pages[saved.context] = [*numbers, number]

    def _compact(self, context: str) -> None:
        """Replace the pages of a context by one with all records."""
        head, table = self._contexts[context]
        writes = []
        for family, key in table.keys():  # noqa: SIM118 - a table is no dict
            row = table.get(family, key)
            if row is not None:
                writes.append(_to_list(Put(family, key, row.value, row.group, row.order)))
        older = self._pages[context]
        self._save(_Saved(context, head.version, head.value, writes, whole=True))
        self._delete(context, older)

    def _delete(self, context: str, numbers: Sequence[int]) -> None:
        """Delete pages of a context, the oldest first, so that an interruption leaves the newest."""
        for number in list(numbers):
            try:
                self._backend.delete(_index(context, number))
            except Exception as error:  # foreign code can raise anything
                raise StorageFailure(f"The backend could not delete a page: {error!r}. Retry.") from error
            self._pages[context].remove(number)
        if not self._pages.get(context):
            self._pages.pop(context, None)


def _index(context: str, number: int) -> str:
    return f"{sha256(context.encode()).hexdigest()[:24]}-{number}"


def _to_list(write: Write) -> list[Any]:
    kind = next(name for name, kind in _KINDS.items() if isinstance(write, kind))
    return [kind, {name: getattr(write, name) for name in write.__struct_fields__}]
