"""PostgreSQL: a commit is one statement, which inserts its entry or finds that another writer was first.

Reads are repeated after a lost connection. A commit whose answer is lost is sent again. If that finds its number taken,
the bytes of the entry tell whether the first one was made: the server may make it even after the connection is lost.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import cache
from typing import Any, Final, TypeVar

import psycopg
from psycopg.errors import ForeignKeyViolation, UniqueViolation

from quire.errors import Hint, OutcomeUnknown, QuireError, StorageFailure
from quire.storage.contract import CODES, Commit, Id, Storage
from quire.storage.memory import copy_to_memory
from quire.storage.pg_connections import Connections, Db, is_lost
from quire.storage.sql import VERSION, Database, Row, Run, SqlStorage, Statements, check_version

T = TypeVar("T")

_SCHEMA: Final = (
    """CREATE TABLE {q}context (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        tenant text COLLATE "C" NOT NULL, name bytea)""",
    "CREATE UNIQUE INDEX context_name ON {q}context (tenant, name)",
    """CREATE TABLE {q}entry (context bigint NOT NULL REFERENCES {q}context ON DELETE CASCADE, seq bigint NOT NULL,
        head bytea NOT NULL, entry bytea NOT NULL, PRIMARY KEY (context, seq))""",
    """CREATE TABLE {q}record (context bigint NOT NULL, key bigint NOT NULL, parent bigint, rank bigint NOT NULL,
        family smallint NOT NULL, value bytea NOT NULL, PRIMARY KEY (context, family, key))""",
    "CREATE INDEX record_parent ON {q}record (context, parent, rank, key) WHERE parent IS NOT NULL",
    f"CREATE TABLE {{q}}meta AS SELECT {VERSION} AS version",
)
_CHANGES: Final = (
    (
        "bigint bytea bytea",
        """made AS (INSERT INTO {{q}}entry (seq, head, entry, context) SELECT new.*, at.* FROM {rows} AS new
            (seq, head, entry), (SELECT ?::bigint) AS at{check} RETURNING entry.seq)""",
    ),
    (
        "smallint bigint bigint bigint bytea",
        """put AS (INSERT INTO {{q}}record (family, key, parent, rank, value, context) SELECT new.*, at.* FROM {rows}
            AS new (family, key, parent, rank, value), (SELECT ?::bigint) AS at WHERE EXISTS (SELECT 1 FROM made)
            ON CONFLICT (context, family, key) DO UPDATE SET
                parent = excluded.parent, rank = excluded.rank, value = excluded.value)""",
    ),
    (
        "smallint bigint",
        """deleted AS (DELETE FROM {{q}}record AS old USING {rows} AS gone (family, key) WHERE old.context = ?
            AND old.family = gone.family AND old.key = gone.key AND EXISTS (SELECT 1 FROM made))""",
    ),
    (
        "bigint bytea",
        """replaced AS (UPDATE {{q}}entry AS old SET entry = new.entry FROM {rows} AS new (seq, entry)
            WHERE old.context = ? AND old.seq = new.seq AND EXISTS (SELECT 1 FROM made))""",
    ),
)
"""The types of the rows and the part of the statement for what a commit creates, puts, deletes and replaces."""
_EXPIRED: Final = """expired AS (DELETE FROM {{q}}entry WHERE seq < ? AND context = ?
    AND EXISTS (SELECT 1 FROM made))"""
_CHECK: Final = " WHERE EXISTS (SELECT 1 FROM {{q}}entry WHERE context = ? AND seq = ?)"
_STORED: Final = "SELECT 1 FROM {q}entry WHERE context = ? AND seq = ? AND head = ? AND entry = ?"
_STATE: Final = """SELECT (SELECT version FROM {q}meta), current_setting('server_encoding'), current_setting('fsync')"""
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('quire ' || ?, 0))"
_MAX_INLINE: Final = 8
"""Up to this number, rows are values of their own, which PostgreSQL plans and runs faster than arrays."""
_UNDEFINED: Final = frozenset({"42P01", "42703", "3F000"})
"""The codes of PostgreSQL for a missing table, column or schema."""
_ADVICE: Final = (
    "No row holds the deleted data any more, but PostgreSQL keeps old versions of rows in its files, and samples of"
    " values in its statistics. VACUUM (FULL, ANALYZE) by the owner of the tables removes both; the samples only if a"
    " table has other rows. The write-ahead log, replicas and old rows of pg_statistic keep it for some more time."
)


class PostgresDatabase(Database):
    """Statements on the connections of one storage. Safe to use from several threads."""

    def __init__(self, connections: Connections, *, full: bool) -> None:
        self.address = connections.address
        self.name, self.tenant, self._schema = self.address.name, self.address.tenant, self.address.schema
        self._sql = Statements(f'"{self._schema}".', "%s")
        self._connections = connections
        self._full = full
        self._pinned: Db | None = None
        """The connection of a snapshot, in its transaction."""

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        if self._pinned is None:
            return self._connections.retry(lambda db: db.execute(self._sql[sql], values).fetchall())
        with self._connections.errors():
            return self._pinned.execute(self._sql[sql], values).fetchall()

    def transact(self, work: Callable[[Run], T], isolation: str = "REPEATABLE READ") -> T:
        def attempt(db: Db) -> T:
            def run(sql: str, values: Sequence[Any] = ()) -> list[Row]:
                cursor = db.execute(self._sql[sql], values)
                return cursor.fetchall() if cursor.description else []

            is_at_end = False
            try:
                with self._connections.transaction(db, isolation, full=self._full):
                    result = work(run)
                    is_at_end = True
            except psycopg.Error as error:
                if is_at_end and is_lost(error):
                    raise self._unknown_outcome() from error
                raise
            return result

        return self._connections.retry(attempt)

    def write(self, run: Run, context: Id, commit: Commit) -> None:
        run(*_statement(context, commit))

    def commit(self, context: Id, commit: Commit) -> bool:
        is_unsure = False
        stored = context, commit.seq, commit.head, commit.entry
        sql, values = _statement(context, commit, is_checked=True, full=self._full)

        def attempt(db: Db) -> bool:
            nonlocal is_unsure
            try:
                with suppress(UniqueViolation, ForeignKeyViolation):  # another writer was first, or dropped the context
                    if db.execute(self._sql[sql], values).fetchall():
                        return True
                return is_unsure and bool(db.execute(self._sql[_STORED], stored).fetchall())
            except psycopg.Error as error:
                is_unsure = is_unsure or is_lost(error)
                raise

        try:
            return self._connections.retry(attempt)
        except QuireError as error:
            if is_unsure:
                raise self._unknown_outcome() from error
            raise

    @contextmanager
    def snapshot(self, storage: SqlStorage, context: Id) -> Iterator[Storage]:
        self.read("SELECT 1")  # replaces a connection that was lost
        own, frozen = self._connections, copy(self)
        with own.errors(), own.lend(own.patience) as db, own.transaction(db, "REPEATABLE READ, READ ONLY"):
            db.execute("SELECT 1")  # the first statement fixes the moment
            frozen._pinned = db
            if not own.is_single:
                yield SqlStorage(frozen)
                return
            result = copy_to_memory(SqlStorage(frozen), context)
        yield result  # the owner of a single connection needs it, and so do other calls in the block

    def scrub(self, context: Id | None) -> Sequence[str]:
        return (_ADVICE,)

    def close(self) -> None:
        self._connections.close()

    def prepare(self, *, create: bool) -> None:
        """Create the tables if they are missing, and check that this storage can use them."""
        state = self._state()
        if state is None and not create:
            hint = Hint("Library", arguments="create=True", purpose="to create it")
            raise StorageFailure(f"There is no store in schema {self._schema!r} of {self.name}.", hint)
        if state is None:
            self._create()
            state = self._state()
        if state is None:
            raise StorageFailure(f"Schema {self._schema!r} of {self.name} was removed while it was opened.")
        version, encoding, fsync = state
        check_version(f"Schema {self._schema!r} of {self.name}", version)
        if encoding != "UTF8":
            raise StorageFailure(f"{self.name} has the encoding {encoding}; create a database with encoding UTF8.")
        if self._full and fsync != "on":
            raise StorageFailure(f"{self.name} runs with fsync = off, so durability='full' is not possible.")

    def _state(self) -> Row | None:
        try:
            return self.read(_STATE)[0]
        except QuireError as error:
            if getattr(error.__cause__, "sqlstate", None) in _UNDEFINED:
                return None
            raise

    def _create(self) -> None:
        def work(run: Run) -> None:
            run(_LOCK, (self._schema,))  # other processes may be creating them
            if not run("SELECT 1 FROM pg_namespace WHERE nspname = ?", (self._schema,)):
                run(f'CREATE SCHEMA "{self._schema}"')
            if run("SELECT to_regclass(?)", (f'"{self._schema}".meta',))[0][0] is None:
                for sql in _SCHEMA:
                    run(sql)

        try:
            self.transact(work, "READ COMMITTED")
        except QuireError as error:
            if getattr(error.__cause__, "sqlstate", None) != "42501":
                raise
            raise StorageFailure(
                f"This role may not create quire's tables in schema {self._schema!r} of {self.name}: open the store"
                " once as their owner, then GRANT as in docs/postgres.md."
            ) from error

    def _unknown_outcome(self) -> OutcomeUnknown:
        text = f"The connection to {self.name} was lost, and nothing tells whether the change was made."
        return OutcomeUnknown(text, Hint("refresh", purpose="to find out"))


def _statement(context: Id, commit: Commit, *, is_checked: bool = False, full: bool = False) -> tuple[str, list[Any]]:
    """Return a commit as one statement; with `is_checked`, for a context that is at the entry before."""
    rows: tuple[list[Row], ...] = (
        [(each.seq, each.head, each.entry) for each in commit.entries if each.seq >= min(commit.expire, commit.seq)],
        [(CODES[family], each.key, each.parent, each.rank, each.value) for family, each in commit.put],
        [(CODES[family], key) for family, key in commit.delete],
        list(commit.replace),
    )
    values: list[Any] = []
    for number, some in enumerate(rows):
        if some:
            values += itertools.chain(*some) if len(some) <= _MAX_INLINE else map(list, zip(*some, strict=True))
            values += (context, context, commit.first - 1) if is_checked and not number else (context,)
    if commit.expire:
        values += (commit.expire, context)
    sizes = tuple(min(len(some), _MAX_INLINE + 1) for some in rows)
    return _text(sizes, bool(commit.expire), is_checked, full), values


@cache
def _text(sizes: tuple[int, ...], expires: bool, is_checked: bool, full: bool) -> str:
    """Return the text of a statement that makes so many changes of each kind."""
    parts = []
    for (types, text), size in zip(_CHANGES, sizes, strict=True):
        if size > _MAX_INLINE:
            source = f"unnest({', '.join(f'?::{each}[]' for each in types.split())})"
        else:
            row = f"({', '.join(f'?::{each}' for each in types.split())})"
            source = f"(VALUES {', '.join([row] * size)})"
        if size:
            parts.append(text.format(rows=source, check=_CHECK.format() if is_checked else ""))
    parts += [_EXPIRED.format()] if expires else []
    synchronous = ", set_config('synchronous_commit', 'on', true)" if full else ""
    return f"WITH {', '.join(parts)} SELECT seq{synchronous} FROM made"
