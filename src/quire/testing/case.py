"""What the tests of the contract stand on: a fresh place for each, handles that are closed after it, small helpers."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from quire.errors import Conflict
from quire.storage.base import FAMILIES, PAGE, Commit, Family, Head, Put, Record, Storage, Write

HEAD = b"\x00a head is any bytes\xff"


class StorageCase:
    """One test's store. `open_storage` is the hook; the rest is for the tests."""

    persistent: bool = True
    """Whether data outlive the handle that wrote them."""
    closes: bool = True
    """Whether a closed handle refuses to go on."""

    def open_storage(self, place: Path) -> Storage:
        """A handle on the store at this place, which does not exist before the first call.

        A second call with the same place gives a second handle on the same store. A backend without files can take
        the place for a name that is not used again.
        """
        raise NotImplementedError("Override open_storage(place) to open your backend.")

    def setup_method(self) -> None:
        """Make an empty place for one test; pytest calls it."""
        self._folder = Path(mkdtemp(prefix="quire-"))
        self._handles: list[Storage] = []

    def teardown_method(self) -> None:
        """Close all handles and remove the place; pytest calls it."""
        for handle in self._handles:
            handle.close()
        rmtree(self._folder)

    def open(self, name: str = "store") -> Storage:
        """Another handle on the test's store, closed when the test is over."""
        handle = self.open_storage(self._folder / name)
        self._handles.append(handle)
        return handle


def version_of(storage: Storage, context: str) -> int:
    """Where the context stands; 0 if it does not exist."""
    head = storage.head(context)
    return head.version if head else 0


def write(storage: Storage, context: str, *writes: Write) -> int:
    """Commit the writes onto whatever is there; the new version."""
    version = version_of(storage, context)
    storage.commit(context, Commit(version, version + 1, HEAD, writes))
    return version + 1


def append(storage: Storage, context: str, value: bytes) -> None:
    """Add a journal record at the next version, however many others are doing the same."""
    while True:
        version = version_of(storage, context)
        try:
            put = Put("journal", version + 1, value)
            storage.commit(context, Commit(version, version + 1, HEAD, [put]))
        except Conflict:
            continue
        return


def pages(keys: Iterable[int], group: int | None = None) -> list[Write]:
    """Page records with these keys, the key for a value; in a group their order is their key too."""
    return [Put(PAGE, key, b"%d" % key, group, b"" if group is None else key.to_bytes(5)) for key in keys]


def keys_of(records: Iterable[Record]) -> list[int]:
    """The keys of the records, in the order they came."""
    return [record.key for record in records]


def contents(storage: Storage, context: str) -> tuple[Head | None, dict[Family, list[Record]]]:
    """Everything a context holds."""
    records: dict[Family, list[Record]] = {family: list(storage.scan(context, family)) for family in FAMILIES}
    return storage.head(context), records


def grouped(storage: Storage, context: str, groups: Sequence[int]) -> dict[int, list[int]]:
    """The keys of the members of these groups."""
    return {group: keys_of(storage.members(context, PAGE, group)) for group in groups}


@contextmanager
def refused(error: type[BaseException]) -> Iterator[None]:
    """A block that must raise this error."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was expected and nothing was raised.")
