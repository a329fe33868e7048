"""A storage over a backend with only five calls (`save`, `load`, `delete`, `exists`, `list`): one context, one writer.

    <index of a page>              a page, such as `mem-1`, if a describer says what it is
    quire-<family>-<key>           every other record
    quire-entry-<number>           a journal entry, and the head there
    quire-head                     the name of the context and its last commit

Every item is a page whose `meta["quire"]` holds the record. A commit saves `quire-head` first, which decides it, then
the items that it changes, its entry last. What an interruption left undone is done when the backend is opened again,
or by the next commit. All records are in memory.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from quire.errors import Corrupt, InvalidOperation, InvalidValue, QuireError, StorageFailure, short_repr
from quire.model.pages import DetailPage
from quire.storage.base import RESERVED
from quire.storage.contract import (
    FAMILIES,
    MAX_KEY,
    PAGE,
    Commit,
    Family,
    Fork,
    Id,
    Record,
    StoredEntry,
    check_commit,
)
from quire.storage.folder import describer
from quire.storage.memory import MemoryStorage, Table

T = TypeVar("T")
CALLS: Final = ("save", "load", "delete", "exists", "list")
Stored = tuple[str, Record | None, StoredEntry | None]
"""What an item holds: a family and its record, or an entry."""
_HEAD: Final = "quire-head"
_decode: Final = msgspec.msgpack.Decoder(Stored).decode
_decode_head: Final = msgspec.msgpack.Decoder(tuple[str, Commit | None]).decode


def has_five_calls(value: object) -> bool:
    """Return whether a value has the five calls and nothing of a storage."""
    return not hasattr(value, "entries") and all(callable(getattr(value, name, None)) for name in CALLS)


class PageBackend(Protocol):
    """The five calls, as design document 000 defines them. A page is saved under its `index` and loaded unchanged."""

    def save(self, page: DetailPage, /) -> object: ...
    def load(self, index: str, /) -> DetailPage: ...
    def delete(self, index: str, /) -> object: ...
    def exists(self, index: str, /) -> bool: ...
    def list(self) -> Iterable[str]: ...


class FiveCallStorage(MemoryStorage):
    """One context in a backend with five calls. Only one object at a time may write to it: two are not detected.

    Raises `InvalidOperation` for a second context, `StorageFailure` if a call of the backend fails. Contexts without a
    name and those that hold leases are only in memory.
    """

    def __init__(self, backend: PageBackend) -> None:
        super().__init__()
        missing = [name for name in CALLS if not callable(getattr(backend, name, None))]
        if missing:
            raise InvalidValue(f"is {short_repr(backend)}; it has no {', '.join(missing)}.", argument="backend")
        self._backend = backend
        self._name = ""
        self._indexes: dict[tuple[str, int], str] = {}
        """The index of the item of each record."""
        self._undone: Commit | None = None
        """The last commit, if not all its items are saved."""
        self._read()

    def create(self, name: str | None, commit: Commit, copy_of: Fork | None = None) -> Id:
        context = super().create(name, commit, copy_of)
        self._save_all(context, name)
        return context

    def name(self, context: Id, name: str) -> None:
        super().name(context, name)
        self._save_all(context, name)

    def commit(self, context: Id, commit: Commit) -> None:
        check_commit(commit)
        with self._lock:
            if self._names.get(self._name) == context and self._tables[context].seq + 1 == commit.first:
                self._finish_items()
                self._call("save", _item(_HEAD, (self._name, commit)))
                self._undone = commit
            super().commit(context, commit)
            with suppress(StorageFailure):  # the commit is saved; the next one tries again
                self._finish_items()

    def drop(self, name: str, seen: tuple[Id, int] | None = None) -> None:
        with self._lock:
            context = self._names.get(name, 0)
            if name == self._name and seen in (None, (context, self._tables[context].seq)):
                self._call("save", _item(_HEAD, ("", None)))
                self._name, self._undone = "", None
                self._clear()
            super().drop(name, seen)

    def scrub(self, context: Id | None = None) -> Sequence[str]:
        """Save and delete what an interruption left. Every other item is current."""
        with self._lock:
            self._finish_items()
            return super().scrub(context)

    def _read(self) -> None:
        """Read all items. Do what an interruption left undone. Raises `Corrupt`."""
        indexes = list(self._call("list"))
        name, commit = self._load(_HEAD, _decode_head) if _HEAD in indexes else ("", None)
        if not name:
            self._clear()
            return
        table = Table()
        for index in indexes:
            if index != _HEAD:
                family, record, entry = self._load(index, _decode)
                if entry is not None:
                    table.set_entry(entry)
                elif record is not None:
                    table.put(cast("Family", family), record)
                    self._indexes[family, record.key] = index
        if commit is not None and commit.seq not in table.entries:
            table.apply(commit)
            self._undone = commit
        numbers = sorted(table.entries)
        if not numbers or numbers != [*range(numbers[0], numbers[-1] + 1)]:
            raise Corrupt("has items missing in the backend.", record=f"context {name!r}")
        table.seq, context = numbers[-1], next(self._ids)
        self._names[name], self._tables[context], self._name = context, table, name
        with suppress(StorageFailure):
            self._finish_items()

    def _save_all(self, context: Id, name: str | None) -> None:
        """Save all items of a context that is new in the backend, the head last. Without it, it does not exist."""
        if name is None or name.startswith(RESERVED):
            return
        with self._lock:
            table = self._tables[context]
            put = [(each, record) for each in FAMILIES for record in table.scan(each, 0, MAX_KEY, reverse=False)]
            *earlier, newest = table.scan_entries(0, MAX_KEY, reverse=False)
            try:
                if self._name:
                    raise InvalidOperation(
                        f"This backend holds the context {short_repr(self._name)}. A backend with the five calls of"
                        " the design documents holds one; open a database or a folder for several."
                    )
                self._clear()
                self._save_items(Commit(table.seq, newest.head, newest.entry, put, earlier=earlier), table)
                self._call("save", _item(_HEAD, (name, None)))
            except QuireError:
                super().drop(name)
                raise
            self._name = name

    def _finish_items(self) -> None:
        """Save the items of the last commit, if they are not saved."""
        if self._undone is not None:
            self._save_items(self._undone, self._tables[self._names[self._name]])
            self._undone = None

    def _save_items(self, commit: Commit, table: Table) -> None:
        """Save what a commit changed in a table, its own entry last."""
        for family, record in commit.put:
            page = _shown(commit, table, record.key) if family == PAGE else None
            index = page.index if page is not None else f"quire-{family}-{record.key}"
            if self._indexes.get((family, record.key), index) != index:
                self._delete(family, record.key)
            self._call("save", _item(index, (family, record, None), page))
            self._indexes[family, record.key] = index
        for family, key in commit.delete:
            self._delete(family, key)
        for index in list(self._call("list")) if commit.expire else ():
            if index.startswith("quire-entry-") and int(index.rpartition("-")[2]) < commit.expire:
                self._call("delete", index)
        for seq in (*(seq for seq, _ in commit.replace), *range(commit.first, commit.seq + 1)):
            if seq in table.entries:
                self._call("save", _item(f"quire-entry-{seq}", ("entry", None, table.entries[seq])))

    def _delete(self, family: Family, key: int) -> None:
        index = self._indexes.pop((family, key), None)
        if index is not None and self._call("exists", index):
            self._call("delete", index)

    def _clear(self) -> None:
        """Delete all items of quire, the head last."""
        for index in sorted(self._call("list"), key=lambda index: index == _HEAD):
            if index.startswith("quire-") or "quire" in self._call("load", index).meta:
                self._call("delete", index)
        self._indexes.clear()

    def _load(self, index: str, decode: Callable[[bytes], T]) -> T:
        try:
            return decode(b64decode(self._call("load", index).meta["quire"]))
        except (msgspec.MsgspecError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise Corrupt(f"cannot be read: {error}.", record=f"page {index!r} of the backend") from None

    def _call(self, name: str, *values: object) -> Any:
        """Make a call of the backend."""
        try:
            return getattr(self._backend, name)(*values)
        except Exception as error:  # foreign code can raise anything
            raise StorageFailure(f"The backend could not {name} a page: {error!r}. Retry.") from error


def _shown(commit: Commit, table: Table, key: int) -> DetailPage | None:
    """Return a page with its type and text in `meta`; None if only its number is left, or if it is damaged."""
    describe = describer()
    if describe is None:
        return None
    with suppress(QuireError, IndexError):
        files = describe(commit.seq, commit.head, lambda family, each: table.get(family, [each])[0], [(PAGE, key)])
        data, text = (content for _, content in files)
        if data is not None:
            form = msgspec.json.decode(data)
            fields = {name: form[name] for name in ("index", "name", "description", "parent", "author", "tokens")}
            return DetailPage(**fields, meta={**form["meta"], "type": form["type"], "detail": (text or b"").decode()})
    return None


def _item(index: str, content: object, page: DetailPage | None = None) -> DetailPage:
    """Return an item: a page with its record, or a page that only carries a record."""
    data = b64encode(msgspec.msgpack.encode(content)).decode()
    if page is None:
        return DetailPage(name=index, index=index, meta={"quire": data})
    return replace(page, meta={**page.meta, "quire": data})
