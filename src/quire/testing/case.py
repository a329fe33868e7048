"""The base class of the contract tests: a new store per test, handles that are closed after it, and helpers."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from quire.errors import Conflict
from quire.storage.base import FAMILIES, PAGE, Commit, Family, Head, Put, Record, Storage, Write

HEAD = b"\x00a head is any bytes\xff"


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


def version_of(storage: Storage, context: str) -> int:
    """Return the version of a context; 0 if it does not exist."""
    head = storage.head(context)
    return head.version if head else 0


def write(storage: Storage, context: str, *writes: Write) -> int:
    """Commit the writes at the current version; return the new version."""
    version = version_of(storage, context)
    storage.commit(context, Commit(version, version + 1, HEAD, writes))
    return version + 1


def append(storage: Storage, context: str, value: bytes) -> None:
    """Add a journal record at the next version; retry on `Conflict`."""
    while True:
        version = version_of(storage, context)
        try:
            put = Put("journal", version + 1, value)
            storage.commit(context, Commit(version, version + 1, HEAD, [put]))
        except Conflict:
            continue
        return


def pages(keys: Iterable[int], group: int | None = None) -> list[Write]:
    """Return page records with these keys. The value is the key, and so is the order in a group."""
    return [Put(PAGE, key, b"%d" % key, group, b"" if group is None else key.to_bytes(5)) for key in keys]


def keys_of(records: Iterable[Record]) -> list[int]:
    """Return the keys of the records in their order."""
    return [record.key for record in records]


def contents(storage: Storage, context: str) -> tuple[Head | None, dict[Family, list[Record]]]:
    """Return the head and all records of a context."""
    records: dict[Family, list[Record]] = {family: list(storage.scan(context, family)) for family in FAMILIES}
    return storage.head(context), records


def grouped(storage: Storage, context: str, groups: Sequence[int]) -> dict[int, list[int]]:
    """Return the keys of the members of these groups."""
    return {group: keys_of(storage.members(context, PAGE, group)) for group in groups}


@contextmanager
def refused(error: type[BaseException]) -> Iterator[None]:
    """Require that a block raises this error."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was expected, but nothing was raised.")
