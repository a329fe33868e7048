"""The base class of the contract tests: a new store per test, handles that are closed after it, helpers.

`FaultyStorage` is a storage that fails on demand.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Literal, ParamSpec, TypeVar

from quire.errors import Conflict, StorageFailure
from quire.storage.base import FAMILIES, MAX_KEY, PAGE, Commit, Family, Head, Put, Record, Storage, Write

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


When = Literal["before", "after"]
P = ParamSpec("P")
T = TypeVar("T")


class InjectedFault(StorageFailure):
    """The failure that a `FaultyStorage` raises on demand."""

    code = "injected_fault"


class FaultyStorage:
    """Wraps a storage and fails at its k-th call, `before` or `after` the call is done.

    `after` simulates a lost acknowledgement: the commit is made, but the caller gets an error. A stream that fails
    `after` ends after its first record. With `lasting`, every later call fails too until `heal()`. `fail_at=0` never
    fails and only counts. `error` is raised instead of `InjectedFault`.
    """

    def __init__(
        self,
        inner: Storage,
        fail_at: int = 0,
        when: When = "before",
        *,
        lasting: bool = False,
        error: BaseException | None = None,
    ) -> None:
        self.inner = inner
        self.calls: list[str] = []
        """The names of the calls since the last `arm()`."""
        self._error = error
        self.arm(fail_at, when, lasting=lasting)

    def arm(self, fail_at: int, when: When = "before", *, lasting: bool = False) -> None:
        """Reset the count, and fail at the call with that number."""
        self.calls.clear()
        self._fail_at = fail_at
        self._when = when
        self._lasting = lasting

    def heal(self) -> None:
        """Stop failing; calls are still counted."""
        self._fail_at = 0

    @property
    def failed(self) -> bool:
        """True if the call that fails has been made."""
        return 0 < self._fail_at <= len(self.calls)

    def head(self, context: str) -> Head | None:
        return self._call(self.inner.head, context)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        return self._call(self.inner.get, context, family, key)

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        fault = self._enter("scan")
        records = self.inner.scan(context, family, start, stop, reverse=reverse)
        return self._broken(records) if fault else records

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        fault = self._enter("members")
        records = self.inner.members(context, family, group, after=after, reverse=reverse)
        return self._broken(records) if fault else records

    def commit(self, context: str, commit: Commit) -> None:
        self._call(self.inner.commit, context, commit)

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        self._call(self.inner.fork, context, target, commit, below)

    def contexts(self, after: str = "") -> Iterator[str]:
        fault = self._enter("contexts")
        names = self.inner.contexts(after)
        return self._broken(names) if fault else names

    def drop(self, context: str) -> None:
        self._call(self.inner.drop, context)

    def close(self) -> None:
        self.inner.close()

    def _enter(self, call: str) -> bool:
        """Count a call; fail before it, or return whether to fail after it."""
        self.calls.append(call)
        number = len(self.calls)
        if not self._fail_at or number < self._fail_at or (number > self._fail_at and not self._lasting):
            return False
        if self._when == "before" or number > self._fail_at:
            raise self._fault()
        return True

    def _call(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        fault = self._enter(call.__name__)
        result = call(*args, **options)
        if fault:
            raise self._fault()
        return result

    def _broken(self, items: Iterator[T]) -> Iterator[T]:
        for item in items:
            yield item
            break
        raise self._fault()

    def _fault(self) -> BaseException:
        return self._error or InjectedFault(f"An injected fault at call {self._fail_at} ({self._when}).")
