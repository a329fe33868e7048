"""One storage for SQL databases: three tables, and a commit that inserts its journal entry first.

`context` has the names, `entry` the journal with the head after each commit, `record` everything else. The primary key
of `entry` is the optimistic lock. The number of a dropped context is never used again, so a stale writer only meets
`Conflict`. What differs between databases is a `Database`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar
from zlib import crc32

from quire.errors import Corrupt, NewerFormat, OlderFormat, short_repr
from quire.storage.base import check_context_name
from quire.storage.contract import (
    CODES,
    FAMILIES,
    MAX_KEY,
    NOTE,
    TEXT,
    Commit,
    Family,
    Flaw,
    Fork,
    Id,
    Loaded,
    Record,
    Storage,
    StoredEntry,
    check_commit,
    conflict,
    lost_name,
    name_taken,
    unfinished_copy,
)

Row = tuple[Any, ...]
T = TypeVar("T")
Run: TypeAlias = Callable[..., list[Row]]
"""Runs a statement, with its values, in a transaction, and returns its rows."""

# In these texts, `?` is the place of a value and `{q}` what stands before the name of a table.
# CROSS JOIN: SQLite would otherwise read the records of all contexts.
_LOAD: Final = f"""WITH found AS (SELECT context.id, entry.seq, entry.head FROM {{q}}context AS context
        JOIN {{q}}entry AS entry ON entry.context = context.id
        WHERE tenant = ? AND name = ? ORDER BY entry.seq DESC LIMIT 1)
    SELECT 0, id, seq, head FROM found
    UNION ALL SELECT 1, record.key, 0, record.value FROM found
        CROSS JOIN {{q}}record AS record
        WHERE record.context = found.id AND record.family = {CODES[NOTE]} AND NOT (found.id = ? AND found.seq = ?)"""
_NEWEST: Final = "SELECT max(seq) FROM {q}entry WHERE context = ?"
_ENTRIES: Final = "SELECT seq, head, entry FROM {q}entry WHERE context = ? AND seq BETWEEN ? AND ? ORDER BY seq"
_COLUMNS: Final = "key, value, parent, rank"
_GET: Final = f"SELECT {_COLUMNS} FROM {{q}}record WHERE context = ? AND family = ? AND key IN "
_SCAN: Final = (
    f"SELECT {_COLUMNS} FROM {{q}}record WHERE context = ? AND family = ? AND key BETWEEN ? AND ? ORDER BY key"
)
_CHILDREN: Final = f"SELECT {_COLUMNS} FROM {{q}}record WHERE context = ? AND parent = ?"
_CREATE: Final = "INSERT INTO {q}context (tenant, name) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING id"
_COPY: Final = """INSERT INTO {q}record (context, family, key, parent, rank, value)
    SELECT CAST(? AS BIGINT), family, key, parent, rank, value FROM {q}record
    WHERE context = ? AND family = ? AND key < ?"""
ENTRY: Final = "INSERT INTO {q}entry (context, seq, head, entry) VALUES (?, ?, ?, ?)"
_NAME: Final = """UPDATE {q}context SET name = ? WHERE id = ? AND name IS NULL
    AND NOT EXISTS (SELECT 1 FROM {q}context WHERE tenant = ? AND name = ?) RETURNING id"""
_NAMES: Final = "SELECT name FROM {q}context WHERE tenant = ? AND name > ? ORDER BY name LIMIT 256"
_UNNAMED: Final = """SELECT id, coalesce((SELECT max(seq) FROM {q}entry WHERE context = id), 0) FROM {q}context
    WHERE tenant = ? AND name IS NULL ORDER BY id"""
_LOST: Final = """SELECT context FROM {q}entry WHERE context NOT IN (SELECT id FROM {q}context)
    UNION SELECT context FROM {q}record WHERE context NOT IN (SELECT id FROM {q}context) ORDER BY 1"""
_END: Final = """INSERT INTO {q}entry (context, seq, head, entry)
    SELECT context, seq + 1, head, entry FROM {q}entry AS last WHERE context = ? AND seq = ?
        AND EXISTS (SELECT 1 FROM {q}context WHERE id = last.context AND tenant = ? AND name = ?)
    ON CONFLICT DO NOTHING RETURNING seq"""
_DROP: Final = "DELETE FROM {q}context WHERE tenant = ? AND name = ? RETURNING id"
_SWEEP: Final = "DELETE FROM {q}context WHERE tenant = ? AND name IS NULL RETURNING id"
_CLEAR: Final = ("DELETE FROM {q}entry WHERE context = ?", "DELETE FROM {q}record WHERE context = ?")
VERSION: Final = 10
"""The version of the tables. quire 0.1 and 0.2 had 1 to 3."""
_SEAL: Final = 5
"""The bytes after a stored name."""
_CHUNK: Final = 256
_CHUNK_OF_TEXTS: Final = 32
"""Texts can be megabytes."""


class Statements(dict[str, str]):
    """Statements of this module as one database takes them, each made once."""

    def __init__(self, prefix: str, place: str = "?") -> None:
        self._prefix, self._place = prefix, place

    def __missing__(self, sql: str) -> str:
        found = self[sql] = sql.replace("{q}", self._prefix).replace("?", self._place)
        return found


class Database(ABC):
    """What a storage needs from one database. The errors of its driver leave it as errors of quire."""

    name: str
    """The address without its secrets, for errors."""
    tenant: str = ""

    @abstractmethod
    def read(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of one statement, which sees one state of the database."""

    @abstractmethod
    def transact(self, work: Callable[[Run], T]) -> T:
        """Call `work` in a transaction on one state of the database. It may be called again, from the beginning."""

    @abstractmethod
    def write(self, run: Run, context: Id, commit: Commit) -> None:
        """Make all changes of a commit, without looking at the entry before."""

    @abstractmethod
    def commit(self, context: Id, commit: Commit) -> bool:
        """Make a commit. Return False if its entry exists or the one before does not."""

    @abstractmethod
    def snapshot(self, storage: "SqlStorage", context: Id) -> AbstractContextManager[Storage]:
        """Return a block in which a storage shows the context as it is now."""

    def examine(self) -> list[Flaw]:
        """Return the damage below the level of contexts, as far as this database can tell."""
        return []

    @abstractmethod
    def scrub(self, context: Id | None) -> Sequence[str]:
        """Erase the bytes of deleted rows. Return what only an administrator can still reach."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""


class SqlStorage:
    """Records in the three tables of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.name!r})"

    def load(self, name: str, seen: tuple[Id, int] | None = None) -> Loaded | None:
        values = (self._database.tenant, _encoded(name), *(seen or (0, 0)))
        rows = sorted(self._database.read(_LOAD, values), key=itemgetter(0, 1))
        if not rows:
            return None
        (_, context, seq, head), *notes = rows
        if type(head) is not bytes:
            raise Corrupt(f"The head of context {name!r} is damaged: it is {short_repr(head)}.")
        is_seen = seen == (context, seq)
        return Loaded(context, seq, head, None if is_seen else tuple(_record(NOTE, (row[1], row[3])) for row in notes))

    def entries(
        self, context: Id, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[StoredEntry]:
        for seq, head, entry in self._by_key(_ENTRIES, (context,), start, stop, _CHUNK, reverse=reverse):
            if type(head) is not bytes or type(entry) is not bytes:
                raise Corrupt(f"is damaged: it is {short_repr((head, entry))}.", record=f"entry {seq}")
            yield StoredEntry(seq, head, entry)

    def get(self, context: Id, family: Family, keys: Sequence[int]) -> list[Record | None]:
        found: dict[int, Record] = {}
        for start in range(0, len(keys), _CHUNK):
            some = [key for key in keys[start : start + _CHUNK] if 0 <= key <= MAX_KEY]
            if some:
                some += [some[-1]] * ((1 << (len(some) - 1).bit_length()) - len(some))  # few different statements
                places = f"({', '.join('?' * len(some))})"
                rows = self._database.read(_GET + places, (context, CODES[family], *some))
                found.update((row[0], _record(family, row)) for row in rows)
        return [found.get(key) for key in keys]

    def scan(
        self, context: Id, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        limit = _CHUNK_OF_TEXTS if family == TEXT else _CHUNK
        rows = self._by_key(_SCAN, (context, CODES[family]), start, stop, limit, reverse=reverse)
        return (_record(family, row) for row in rows)

    def children(
        self, context: Id, parent: int, *, after: tuple[int, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        order, beyond = ("DESC", "<") if reverse else ("ASC", ">")
        limit = 2 if reverse and after is None else 32  # the last child is asked for most often
        while True:
            place = f" AND (rank, key) {beyond} (?, ?)" if after else ""
            sql = f"{_CHILDREN}{place} ORDER BY rank {order}, key {order} LIMIT {limit}"
            rows = self._database.read(sql, (context, parent, *(after or ())))
            yield from (_record("page", row) for row in rows)
            if len(rows) < limit:
                return
            after, limit = (rows[-1][3], rows[-1][0]), _CHUNK

    def create(self, name: str | None, commit: Commit, copy_of: Fork | None = None) -> Id:
        check_commit(commit)
        values = (self._database.tenant, None if name is None else _encoded(name))

        def work(run: Run) -> Id:
            if copy_of is not None and (newest := run(_NEWEST, (copy_of.context,))[0][0]) != copy_of.seq:
                raise conflict(newest, copy_of.seq + 1)
            rows = run(_CREATE, values)
            if not rows:
                raise name_taken(str(name))
            context: Id = rows[0][0]
            if copy_of is not None:
                for family in FAMILIES:
                    limit = min(copy_of.limits.get(family, MAX_KEY + 1), MAX_KEY + 1)
                    run(_COPY, (context, copy_of.context, CODES[family], limit))
            self._database.write(run, context, commit)
            return context

        return self._database.transact(work)

    def name(self, context: Id, name: str) -> None:
        stored, tenant = _encoded(name), self._database.tenant
        if not self._database.transact(lambda run: run(_NAME, (stored, context, tenant, stored))):
            raise conflict(None, 0) if self.load(name) is None else name_taken(name)

    def commit(self, context: Id, commit: Commit) -> None:
        check_commit(commit)
        if not self._database.commit(context, commit):
            raise conflict(self._database.read(_NEWEST, (context,))[0][0], commit.first)

    def snapshot(self, context: Id) -> AbstractContextManager[Storage]:
        return self._database.snapshot(self, context)

    def contexts(self, after: str = "") -> Iterator[str]:
        place, damaged = after.encode("utf-8", "surrogatepass") + b"\0\xff", None
        while True:
            rows = self._database.read(_NAMES, (self._database.tenant, place))
            for (name,) in rows:
                text = name[:-_SEAL] if type(name) is bytes else b""
                if name == _sealed(text):
                    yield text.decode()
                else:
                    damaged = Corrupt(f"A context is damaged: its name is {short_repr(name)}.")
            if len(rows) < _CHUNK:
                break
            place = rows[-1][0]
        if damaged is not None:
            raise damaged

    def examine(self) -> Sequence[Flaw]:
        unnamed = self._database.read(_UNNAMED, (self._database.tenant,))
        lost = self._database.read(_LOST, ())
        return [
            *self._database.examine(),
            *(unfinished_copy(*row) for row in unnamed),
            *(lost_name(*row) for row in lost),
        ]

    def drop(self, name: str, seen: tuple[Id, int] | None = None) -> None:
        values = (self._database.tenant, _encoded(name))

        def work(run: Run) -> None:
            if seen is not None and not run(_END, (*seen, *values)):  # takes the next number: no commit can follow
                raise conflict(run(_NEWEST, seen[:1])[0][0], seen[1] + 1)
            _clear(run, run(_DROP, values))

        self._database.transact(work)

    def scrub(self, context: Id | None = None) -> Sequence[str]:
        if context is None:
            self._database.transact(lambda run: _clear(run, run(_SWEEP, (self._database.tenant,))))
        return self._database.scrub(context)

    def close(self) -> None:
        self._database.close()

    def _by_key(self, sql: str, values: Row, start: int, stop: int, limit: int, *, reverse: bool) -> Iterator[Row]:
        """Yield the rows with keys in a range, in chunks."""
        start, stop = max(start, 0), min(stop, MAX_KEY)
        sql = f"{sql} {'DESC' if reverse else 'ASC'} LIMIT {limit}"
        while start <= stop:
            rows = self._database.read(sql, (*values, start, stop))
            yield from rows
            if len(rows) < limit:
                return
            start, stop = (start, rows[-1][0] - 1) if reverse else (rows[-1][0] + 1, stop)


def _encoded(name: str) -> bytes:
    """Return a name as it is stored: its bytes are in the order of its characters, in a database of any encoding."""
    return _sealed(check_context_name(name).encode())


def _sealed(name: bytes) -> bytes:
    """Return a name with its checksum: a damaged name is not taken for another one."""
    return name + b"\0" + crc32(name).to_bytes(4)


def _clear(run: Run, rows: Iterable[Row]) -> None:
    """Delete everything of contexts whose rows are gone."""
    for row in rows:
        for sql in _CLEAR:
            run(sql, row)


def _record(family: Family, row: Row) -> Record:
    """Return the record in a row. Raises `Corrupt`: a database stores other types than quire wrote if it is damaged."""
    if type(row[1]) is bytes:
        return Record(*row)
    raise Corrupt(f"is damaged: its value is {short_repr(row[1])}.", record=f"{family} record {row[0]}")


def check_version(name: str, version: int) -> None:
    """Raise `NewerFormat` or `OlderFormat` if another version of quire wrote a store."""
    if version > VERSION:
        raise NewerFormat(f"{name!r} has schema {version}; this quire reads {VERSION}. Install a newer quire.")
    if version < VERSION:
        raise OlderFormat(
            f"{name!r} was written by quire 0.2 or older (schema {version}). Export its messages with that version,"
            " and import them here: docs/storage.md shows how."
        )
