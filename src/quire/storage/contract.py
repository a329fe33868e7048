"""The storage protocol: records in five families, and one atomic commit that creates a journal entry.

A storage knows keys, parents and ranks, and nothing of pages. The number of the entry is the optimistic lock: of two
writers that create the same entry, one meets `Conflict`. Any storage can run the suite `quire.testing.StorageContract`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

from msgspec import Struct

from quire.errors import Conflict, Hint, InvalidValue, short_repr

Family = Literal["page", "text", "note", "call", "cache"]
"""What a record is: the header of a page with its place, a body or a message (written once), a small keyed value, a
derived value that finds the page of a call, or a derived value that may be lost."""
PAGE: Final = "page"
TEXT: Final = "text"
NOTE: Final = "note"
CALL: Final = "call"
CACHE: Final = "cache"
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)
CODES: Final[Mapping[Family, int]] = {family: code for code, family in enumerate(FAMILIES)}
"""The numbers of the families, as storages and seals use them."""

Id: TypeAlias = int
"""Names one context for ever. A context that is dropped and created again has another id."""

MAX_KEY: Final = (1 << 62) - 1
"""The largest key, rank and number of an entry."""


class Record(Struct, frozen=True, gc=False):
    """One stored record: its key and its value, and for a page its parent and its rank among the children there."""

    key: int
    value: bytes
    parent: int | None = None
    rank: int = 0


class StoredEntry(Struct, frozen=True, gc=False):
    """One journal entry, and the head that its commit wrote."""

    seq: int
    head: bytes
    entry: bytes


class Commit(Struct, frozen=True, gc=False):
    """All changes of one commit. It creates the entry `seq`, and is refused if that exists or a number is left out.

    A record is in `put` or in `delete`, at most once. `replace` gives older entries another value; a missing one is
    ignored. The entries below `expire` are removed. `earlier` are entries that this commit creates before its own, such
    as those of a transaction: their numbers end at `seq - 1`.
    """

    seq: int
    head: bytes
    entry: bytes
    put: Sequence[tuple[Family, Record]] = ()
    delete: Sequence[tuple[Family, int]] = ()
    replace: Sequence[tuple[int, bytes]] = ()
    expire: int = 0
    earlier: Sequence[StoredEntry] = ()

    @property
    def first(self) -> int:
        """The number of the first entry that it creates."""
        return self.seq - len(self.earlier)

    @property
    def entries(self) -> tuple[StoredEntry, ...]:
        """All entries that it creates."""
        return (*self.earlier, StoredEntry(self.seq, self.head, self.entry))


class Loaded(Struct, frozen=True, gc=False):
    """A context at its newest entry. `notes` is None if the caller has seen this entry."""

    id: Id
    seq: int
    head: bytes
    notes: tuple[Record, ...] | None = ()


class Fork(Struct, frozen=True, gc=False):
    """What a new context takes from another that is at entry `seq`: of each family the records below a key, or all."""

    context: Id
    seq: int
    limits: Mapping[Family, int] = {}


class Flaw(NamedTuple):
    """Something wrong with a store: damage of its file, a context without a name, or commits that were lost."""

    code: Literal["file_damaged", "name_lost", "copy_unfinished", "commits_lost"]
    text: str


class Storage(Protocol):
    """The calls of every storage. All may be made from several threads. A stream holds no lock between two records."""

    def load(self, name: str, seen: tuple[Id, int] | None = None) -> Loaded | None:
        """Return a context by its name, or None. `seen` is an entry that the caller knows."""

    def entries(
        self, context: Id, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[StoredEntry]:
        """Yield the journal entries with start ≤ seq ≤ stop, by number."""

    def get(self, context: Id, family: Family, keys: Sequence[int]) -> list[Record | None]:
        """Return the records with these keys, in this order, with None for a missing one."""

    def scan(
        self, context: Id, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        """Yield the records with start ≤ key ≤ stop, by key."""

    def children(
        self, context: Id, parent: int, *, after: tuple[int, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        """Yield the pages with this parent by (rank, key); with `after`, only those beyond that place."""

    def create(self, name: str | None, commit: Commit, copy_of: Fork | None = None) -> Id:
        """Create a context with its first entry, of any number. Without a name it is a copy that is being built.

        Raises `Conflict` if the name is taken, or if the context that is copied is not at the entry of the fork.
        """

    def name(self, context: Id, name: str) -> None:
        """Give a context without a name its name. Raises `Conflict` if the name is taken or the context is gone."""

    def commit(self, context: Id, commit: Commit) -> None:
        """Apply all changes or none.

        Raises `Conflict` if the context is gone or not at the entry before, `Busy` if it is locked too long.
        """

    def snapshot(self, context: Id) -> AbstractContextManager["Storage"]:
        """Return a block in which a storage shows this context as it is now, whatever others write."""

    def contexts(self, after: str = "") -> Iterator[str]:
        """Yield the names of all contexts greater than `after`, in code-point order."""

    def examine(self) -> Sequence[Flaw]:
        """Return what is wrong with the store itself, outside the values of records. Changes nothing."""

    def drop(self, name: str, seen: tuple[Id, int] | None = None) -> None:
        """Remove a context with everything in it, atomically. A missing one is ignored.

        With `seen`, raises `Conflict` if the name does not lead to this context at this entry.
        """

    def scrub(self, context: Id | None = None) -> Sequence[str]:
        """Erase the bytes of what was deleted: in one context, also one that was dropped, or in the whole store.

        For the whole store, remove copies without a name too. Return what only an administrator can still reach.
        """

    def close(self) -> None:
        """Release files and connections. Closing twice is allowed."""


# Helpers for storages and their callers


def unfinished_copy(context: Id, seq: int) -> Flaw:
    """Return the flaw of a context without a name. One that is being built changes its number."""
    return Flaw("copy_unfinished", f"Context {context} at entry {seq} has no name: its copy was not finished.")


def lost_name(context: Id) -> Flaw:
    """Return the flaw of a context, or of what is left of it, whose name is lost."""
    return Flaw("name_lost", f"Context {context} has lost its name, or is a part of a lost context.")


def conflict(newest: int | None, seq: int) -> Conflict:
    """Return the error for a commit that does not follow the newest entry of its context."""
    if newest is None:
        return Conflict("This context was dropped by another writer.", Hint("refresh", purpose="to see that"))
    found = f"This context is at entry {newest}, so entry {seq} cannot follow: another writer was first."
    return Conflict(found, Hint("refresh", purpose="and retry"))


def name_taken(name: str) -> Conflict:
    """Return the error for a new context under a name that is taken."""
    return Conflict(f"Context {short_repr(name)} exists already.", Hint("refresh", purpose="and retry"))


def check_commit(commit: Commit) -> None:
    """Raise `InvalidValue` if a commit has an unknown family, or a number that no storage can keep."""
    numbers = [entry.seq for entry in commit.earlier]
    if numbers and numbers != [*range(commit.first, commit.seq)]:
        raise InvalidValue(f"The earlier entries {short_repr(numbers)} do not end at {commit.seq - 1} without a gap.")
    if not 0 < commit.first <= commit.seq <= MAX_KEY:
        raise InvalidValue(f"Entry {commit.seq} is not between 1 and {MAX_KEY}.")
    for family, record in commit.put:
        _check_place(family, record.key)
    for family, key in commit.delete:
        _check_place(family, key)


def _check_place(family: object, key: int) -> None:
    if family not in CODES:
        raise InvalidValue(f"Family {short_repr(family)} is not one of {', '.join(FAMILIES)}.")
    if not 0 <= key <= MAX_KEY:
        raise InvalidValue(f"Key {key} is not between 0 and {MAX_KEY}.")
