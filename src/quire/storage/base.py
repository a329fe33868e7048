"""The storage protocol: opaque records in a few families, and one atomic, version-checked write.

A backend knows bytes and nothing of pages, so a new page type needs no migration. The protocol has no operation that a
backend cannot do atomically. Any backend can run the conformance suite `quire.testing.StorageContract`.

The `Supports…` protocols are optional abilities. A caller checks for one with `isinstance`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, TypeVar, cast, get_args, runtime_checkable
from zlib import crc32

from msgspec import Struct

from quire.errors import Conflict, Hint, InvalidValue, NoSuchContext, QuireError, StorageFailure, short_repr

Family = Literal[
    "segment",
    "page",
    "body",
    "journal",
    "tally",
    "pin",
    "message",
    "call",
    "note",
    "anchor",
    "vector",
    "layout",
    "sheet",
]
SEGMENT: Final = "segment"
PAGE: Final = "page"
BODY: Final = "body"
JOURNAL: Final = "journal"
TALLY: Final = "tally"
PIN: Final = "pin"
MESSAGE: Final = "message"
CALL: Final = "call"
NOTE: Final = "note"
ANCHOR: Final = "anchor"
VECTOR: Final = "vector"
LAYOUT: Final = "layout"
SHEET: Final = "sheet"
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)
_KNOWN_FAMILIES: Final = frozenset(FAMILIES)
IMMUTABLE: Final[frozenset[Family]] = frozenset({BODY, MESSAGE})
"""Families of records that are written once, under growing keys. A fork may share them instead of copying them."""
GROUPED: Final[frozenset[Family]] = frozenset({PAGE})
"""Families of records that can belong to a group. Records of other families are found by key only."""
DERIVED: Final[frozenset[Family]] = frozenset({TALLY, PIN, CALL, VECTOR, LAYOUT, SHEET})
"""Families of records that can be computed from others."""

Durability = Literal["normal", "full"]
"""`normal`: an acknowledged commit survives `kill -9`; power loss may take the last ones. `full`: it survives both."""

RESERVED: Final = "quire.lease."
"""The names of internal contexts begin with this. These contexts hold the leases of other contexts."""

KEY_BITS: Final = 38
MAX_KEY: Final = (1 << KEY_BITS) - 1
MAX_GROUP: Final = (1 << (KEY_BITS + 1)) - 1


class Record(Struct, frozen=True, gc=False):
    """One stored record: its key, its value and, in a grouped family, its group and its order in the group."""

    key: int
    value: bytes
    group: int | None = None
    order: bytes = b""


class Put(Struct, frozen=True, gc=False, array_like=True, tag=1):
    """Write a whole record, new or existing.

    `is_new` is a hint: the writer believes that no record has this key. If one exists, the backend still replaces it.
    """

    family: Family
    key: int
    value: bytes
    group: int | None = None
    order: bytes = b""
    is_new: bool = False


class Patch(Struct, frozen=True, gc=False, array_like=True, tag=2):
    """Give an existing record a new value; its group and order stay. A missing record is ignored."""

    family: Family
    key: int
    value: bytes


class Delete(Struct, frozen=True, gc=False, array_like=True, tag=3):
    """Remove a record. A missing record is ignored."""

    family: Family
    key: int


Write = Put | Patch | Delete


class Head(Struct, frozen=True, gc=False):
    """The version of a context (negative: an unfinished copy or removal) and its head value."""

    version: int
    value: bytes


class Commit(Struct, frozen=True, gc=False):
    """All writes of one commit. It applies only if the context is at version `expect` (0: it does not exist yet).

    `seen` is the head value that the writer read at that version, or empty. It detects a context that was dropped and
    created again: the new context may have the same version, but its head differs.
    """

    expect: int
    version: int
    head: bytes
    writes: Sequence[Write]
    seen: bytes = b""

    def follows(self, head: Head | None) -> bool:
        """Return whether this commit may be applied to a context at that head."""
        version = head.version if head else 0
        return version == self.expect and (head is None or not self.seen or head.value == self.seen)


class StorageReader(Protocol):
    """The part of a storage that reads records."""

    def get(self, context: str, family: Family, key: int) -> Record | None:
        """Return one record, or None."""

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        """Yield the records with start ≤ key ≤ stop, by key. Streams: no lock is held between two records."""

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        """Yield the records of a group by (order, key); with `after`, only those strictly after it. Streams."""


class Storage(StorageReader, Protocol):
    """The operations of every backend. All of them may be called from several threads."""

    def head(self, context: str) -> Head | None:
        """Return the current head of a context, or None if it does not exist."""

    def commit(self, context: str, commit: Commit) -> None:
        """Apply all writes or none.

        Raises `Conflict` if the context is not at `expect`, `Busy` if it is locked, `InvalidValue` if a family is
        unknown.
        """

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        """Create `target` atomically: all records of `context` except its journal, then the writes of the commit.

        Of a family in `below`, only records with smaller keys are copied. Raises `Conflict` if `context` is not at the
        version that the commit expects, or if `target` exists. Both contexts are independent afterwards. A backend may
        share records between them, but dropping one leaves the other complete.
        """

    def contexts(self, after: str = "") -> Iterator[str]:
        """Yield the names of all contexts greater than `after`, in code-point order. Streams."""

    def drop(self, context: str) -> None:
        """Remove a context with all its records, atomically. A missing context is ignored."""

    def close(self) -> None:
        """Release files and connections. Closing twice is allowed."""


# Optional abilities


Severity = Literal["note", "warning", "error"]
"""`note`: information. `warning`: nothing is lost, but something should be done. `error`: something is damaged."""


class Symptom(Struct, frozen=True):
    """One problem: a stable `code`, its place, its meaning, how to repair it, and whether it was repaired.

    `context` is empty if the problem concerns the whole store.
    """

    code: str
    severity: Severity
    where: str
    text: str
    remedy: str = ""
    context: str = ""
    repaired: bool = False

    def __str__(self) -> str:
        place = f"{self.context}: {self.where}" if self.context else self.where
        after = " Repaired." if self.repaired else f" {self.remedy}" if self.remedy else ""
        stop = "" if self.text.endswith((".", "!", "?", "。")) else "."
        return f"{self.severity} [{self.code}] {place}: {self.text}{stop}{after}"


class Remainder(Struct, frozen=True):
    """Bytes that a removal did not reach.

    | code            | meaning                                                                                |
    |-----------------|----------------------------------------------------------------------------------------|
    | `not_scrubbed`  | the store was not asked to erase the bytes of deleted records                          |
    | `busy`, `storage_failure`, … | the code of the error that prevented it                                   |
    | `server`        | old bytes that only an administrator of the server or the bucket can remove            |
    | `related`       | other contexts with the same texts: the origin, other forks of it, imported copies     |
    | `unknown`       | contexts with a damaged or lost head, which may have the same texts                    |
    | `copies`        | copies outside the store                                                               |
    """

    code: str
    text: str


class Prefetch(NamedTuple):
    """The head of a context, and a reader for its records that is valid until the context changes."""

    head: Head | None
    reader: StorageReader


@runtime_checkable
class SupportsPath(Protocol):
    """A storage in one file or folder."""

    path: Path


@runtime_checkable
class SupportsSnapshot(Protocol):
    """A storage that can show a context at one moment while others write."""

    def snapshot(self, context: str) -> AbstractContextManager[Storage]:
        """Return a block in which the context does not change."""


@runtime_checkable
class SupportsPrefetch(Protocol):
    """A storage that can read small records together with the head."""

    def prefetch(self, context: str) -> Prefetch:
        """Return the head and a reader. Raises `Corrupt` if the journal continues beyond the head."""


@runtime_checkable
class SupportsCount(Protocol):
    """A storage that holds each record separately, so one can be lost. It reads the orders of a group quickly."""

    def sum_members(self, context: str, family: Family, group: int) -> tuple[int, int]:
        """Return the number of records of a group, and the sum of their orders (see `sum_orders`)."""


@runtime_checkable
class SupportsBulkRead(Protocol):
    """A storage that can read a small context at one moment and in one request."""

    def bulk_read(self, context: str) -> Storage | None:
        """Return the context in memory; None if it is large or does not exist."""


@runtime_checkable
class SupportsScrub(Protocol):
    """A storage that can erase the bytes of deleted and overwritten records."""

    def scrub(self, contexts: Sequence[str] | None) -> str | None:
        """Erase the bytes that were deleted in these contexts, or in the whole store, and that no context reads.

        `contexts` also names dropped contexts. Return a text with the steps that only an administrator can do, or None.
        Raises `Busy` if the store is in use.
        """


@runtime_checkable
class SupportsExamine(Protocol):
    """A storage that can check itself below the level of contexts."""

    def examine(self, *, repair: bool = False) -> list[Symptom]:
        """Return the problems of the store; with `repair`, repair data that can be derived from other data."""


def snapshot_of(storage: Storage, context: str) -> AbstractContextManager[Storage]:
    """Return a block in which the context does not change; without `SupportsSnapshot`, it shows the storage itself."""
    return storage.snapshot(context) if isinstance(storage, SupportsSnapshot) else nullcontext(storage)


_READS: Final = 5
T = TypeVar("T")


def read_snapshot(storage: Storage, context: str, read: Callable[[Storage], T]) -> T:
    """Return `read(snapshot)`, for a snapshot of the context.

    If the storage has no snapshots, or a snapshot is too old, `read` is called again until the context does not change
    during the call. Raises `Conflict` if it changes in every attempt.
    """
    for _ in range(_READS):
        try:
            with snapshot_of(storage, context) as snapshot:
                head = snapshot.head(context)
                try:
                    result = read(snapshot)
                except QuireError:
                    if snapshot is storage and storage.head(context) != head:
                        continue
                    raise
                if snapshot is not storage or storage.head(context) == head:
                    return result
        except Conflict:
            continue
    raise Conflict(f"Context {context!r} changed in every attempt to read it. Retry.")


# Helpers for backends and their callers


def list_contexts(storage: Storage, after: str = "") -> Iterator[str]:
    """Yield the names of the contexts greater than `after`, without those that hold leases. Streams."""
    return (name for name in storage.contexts(after) if not name.startswith(RESERVED))


def find_lost_heads(storage: Storage) -> Iterator[Symptom]:
    """Yield a symptom for each context that lost its head. Yield nothing if this role may not examine the store."""
    with suppress(StorageFailure):
        found = storage.examine() if isinstance(storage, SupportsExamine) else ()
        yield from (symptom for symptom in found if symptom.code == "head_lost")


def sum_orders(orders: Iterable[bytes]) -> tuple[int, int]:
    """Return the number of orders, and the sum of their CRC-32 checksums modulo 2**32."""
    sums = list(map(crc32, orders))
    return len(sums), sum(sums) & 0xFFFFFFFF


def conflict(context: str, head: Head | None, expect: int) -> Conflict:
    """Return the error for a commit that does not follow the head."""
    state = f"is at version {head.version}" if head else "does not exist"
    expected = f"not at {expect}" if head is None or head.version != expect else "but it was dropped and created again"
    return Conflict(f"Context {context!r} {state}, {expected}.", Hint("refresh", purpose="and retry"))


def fork_by_copy(storage: Storage, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
    """Implement `Storage.fork` for a backend without shared records: one commit copies all of them."""
    check_context_name(target)
    head = storage.head(context)
    if head is None or not commit.follows(head):
        raise conflict(context, head, commit.expect)
    writes: list[Write] = [
        Put(family, record.key, record.value, record.group, record.order)
        for family in FAMILIES
        if family != JOURNAL
        for record in storage.scan(context, family, 0, below.get(family, MAX_KEY + 1) - 1)
    ]
    if storage.head(context) != head:
        raise conflict(context, storage.head(context), commit.expect)
    if (found := storage.head(target)) is not None:
        raise conflict(target, found, 0)
    storage.commit(target, Commit(0, commit.version, commit.head, [*writes, *commit.writes]))


def check_families(writes: Sequence[Write]) -> None:
    """Raise `InvalidValue` if a write is to an unknown family."""
    for write in writes:
        if write.family not in _KNOWN_FAMILIES:
            raise InvalidValue(f"Family {short_repr(write.family)} is not one of {', '.join(FAMILIES)}.")


def check_storage(value: object) -> Storage:
    """Return the value if it has the methods of the protocol. Raises `InvalidValue`."""
    methods = ("head", "get", "scan", "members", "commit", "fork", "contexts", "drop", "close")
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise InvalidValue(
            f"{short_repr(value)} is no storage. A storage has {', '.join(methods)}.",
            Hint("open_storage", arguments="url", purpose="to open one"),
        )
    return cast(Storage, value)


def check_durability(value: object) -> Durability:
    """Return the value if it is a durability. Raises `InvalidValue`."""
    if value not in ("normal", "full"):
        raise InvalidValue(f"is {short_repr(value)}; use 'normal' or 'full'.", argument="durability")
    return value


def check_context_name(name: object) -> str:
    """Return the name if it can name a context. Raises `InvalidValue`."""
    if isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable() and name == name.strip():
        return name if type(name) is str else str.__str__(name)
    raise InvalidValue(
        f"Context name {short_repr(name)} is not allowed; use 1 to 200 printable characters without outer spaces."
    )


@cache
def quire_version() -> str:
    """Return the version of this quire. A store contains it, so that an older quire can name the version it needs."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("quire")
    except PackageNotFoundError:  # pragma: no cover - run from a folder that is not installed
        return "0"


_MAX_LISTED: Final = 12
_MAX_COMPARED: Final = 1_000
"""The number of names that a misspelt name is compared with. Comparing more would take too long."""


def no_such_context(storage: Storage, name: str, where: str = "this store") -> NoSuchContext:
    """Return the error for a missing context, with similar names and the first names in the store."""
    from difflib import get_close_matches

    names = list(islice(list_contexts(storage), _MAX_COMPARED))
    is_all = len(names) < _MAX_COMPARED
    nearby = () if is_all else islice(list_contexts(storage, name[: max(len(name) // 2, len(name) - 3)]), _MAX_COMPARED)
    near = get_close_matches(name, dict.fromkeys((*names, *nearby)), n=3)
    guess = f"Did you mean {' or '.join(map(short_repr, near))}? " if near else ""
    listed = ", ".join(map(short_repr, names[:_MAX_LISTED])) or "none"
    more = f" and {f'{len(names) - _MAX_LISTED:,} ' if is_all else ''}more" if len(names) > _MAX_LISTED else ""
    return NoSuchContext(
        f"No context {short_repr(name)} in {where}. {guess}Contexts there: {listed}{more}.", context=name
    )
