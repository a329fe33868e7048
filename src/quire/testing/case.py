"""The base class of the tests of a storage, and what their rules share."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from quire.errors import Conflict
from quire.storage.contract import (
    FAMILIES,
    PAGE,
    Commit,
    Family,
    Id,
    Record,
    Storage,
)

HEAD = b"\x00a head is any bytes\xff"
ENTRY = b"\xffan entry too\x00"
Put = tuple[Family, Record]


@contextmanager
def refused(error: type[BaseException]) -> Iterator[None]:
    """Require that a block raises this error."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was expected, but nothing was raised.")


def commit_of(seq: int, *put: Put, delete: Sequence[tuple[Family, int]] = (), entry: bytes = ENTRY) -> Commit:
    """Return a commit that creates this entry."""
    return Commit(seq, b"%d" % seq, entry, put, delete)


def pages(keys: Iterable[int], parent: int | None = None) -> list[Put]:
    """Return pages with these keys. The value is the key, and so is the rank."""
    return [(PAGE, Record(key, b"%d" % key, parent, 0 if parent is None else key)) for key in keys]


def keys_of(records: Iterable[Record]) -> list[int]:
    return [record.key for record in records]


def id_of(storage: Storage, name: str) -> Id:
    """Return the id of a context that exists."""
    found = storage.load(name)
    assert found is not None, name
    return found.id


def write(storage: Storage, name: str, *put: Put, delete: Sequence[tuple[Family, int]] = ()) -> Id:
    """Commit these changes to a context, which is created if it does not exist. Return its id."""
    found = storage.load(name)
    if found is None:
        return storage.create(name, commit_of(1, *put, delete=delete))
    storage.commit(found.id, commit_of(found.seq + 1, *put, delete=delete))
    return found.id


def append(storage: Storage, name: str, value: bytes) -> None:
    """Add an entry with this value; retry on `Conflict`."""
    while True:
        try:
            found = storage.load(name)
            if found is None:
                storage.create(name, commit_of(1, entry=value))
            else:
                storage.commit(found.id, commit_of(found.seq + 1, entry=value))
        except Conflict:
            continue
        return


def contents(storage: Storage, context: Id) -> tuple[object, ...]:
    """Return all entries, records and children of a context."""
    found = {family: list(storage.scan(context, family)) for family in FAMILIES}
    parents = sorted({record.parent for record in found[PAGE] if record.parent is not None})
    return list(storage.entries(context)), found, {at: keys_of(storage.children(context, at)) for at in parents}


def everything(storage: Storage) -> dict[str, tuple[object, ...]]:
    """Return the contents of all contexts."""
    return {name: contents(storage, id_of(storage, name)) for name in storage.contexts()}


class StorageCase:
    """The store of one test. Backends override `open_storage`."""

    persistent: bool = True
    """True if data survives the handle that wrote it."""
    closes: bool = True
    """True if a closed handle raises an error."""

    def open_storage(self, place: Path) -> Storage:
        """Return a handle on the store at this path, which does not exist before the first call.

        A second call with the same path returns a second handle on the same store. A backend without files can use the
        path as a unique name.
        """
        raise NotImplementedError("Override open_storage(place) to open your backend.")

    def setup_method(self) -> None:
        """Create a folder for one test; pytest calls it."""
        self._folder = Path(mkdtemp(prefix="quire-"))
        self._handles: list[Storage] = []

    def teardown_method(self) -> None:
        """Close all handles and remove the folder; pytest calls it."""
        for handle in self._handles:
            handle.close()
        rmtree(self._folder)

    def open(self, name: str = "store") -> Storage:
        """Return a new handle on the store of the test. It is closed after the test."""
        handle = self.open_storage(self._folder / name)
        self._handles.append(handle)
        return handle
