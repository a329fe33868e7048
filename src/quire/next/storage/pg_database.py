"""PostgreSQL: a commit is one statement, which inserts its entry or finds that another writer was first.

Reads are repeated after a lost connection. A commit whose answer is lost is sent again, and the bytes of its entry tell
whether it was made before.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg.errors import UniqueViolation

from quire.errors import Hint, OutcomeUnknown, QuireError, StorageFailure
from quire.next.storage.contract import CODES, Commit, Family, Id, Record, Storage
from quire.next.storage.memory import copy_to_memory
from quire.next.storage.pg_connections import Connections, Db, is_lost
from quire.next.storage.sql import ENTRY, VERSION, Database, Row, Run, SqlStorage, Statements, check_version

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
_ENTRY: Final = """INSERT INTO {q}entry (context, seq, head, entry) SELECT ?::bigint, ?::bigint, ?::bytea, ?::bytea
    WHERE EXISTS (SELECT 1 FROM {q}entry WHERE context = ? AND seq = ?) RETURNING seq"""
_PREVIOUS: Final = "SELECT 1 FROM {q}entry WHERE context = ? AND seq = ?"
_PUT: Final = """INSERT INTO {{q}}record (context, family, key, parent, rank, value)
    SELECT ?::bigint, new.* FROM {source} AS new (family, key, parent, rank, value){after}
    ON CONFLICT (context, family, key) DO UPDATE SET
        parent = excluded.parent, rank = excluded.rank, value = excluded.value"""
_ARRAYS: Final = "unnest(?::smallint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bytea[])"
_ROW: Final = "(?::smallint, ?::bigint, ?::bigint, ?::bigint, ?::bytea)"
_DELETE: Final = """DELETE FROM {{q}}record AS old USING unnest(?::smallint[], ?::bigint[]) AS gone (family, key)
    WHERE old.context = ? AND old.family = gone.family AND old.key = gone.key{after}"""
_REPLACE: Final = """UPDATE {{q}}entry AS old SET entry = new.entry
    FROM unnest(?::bigint[], ?::bytea[]) AS new (seq, entry) WHERE old.context = ? AND old.seq = new.seq{after}"""
_EXPIRE: Final = "DELETE FROM {{q}}entry WHERE context = ? AND seq < ?{after}"
_AFTER_ENTRY: Final = " WHERE EXISTS (SELECT 1 FROM made)", " AND EXISTS (SELECT 1 FROM made)"
_STORED: Final = "SELECT 1 FROM {q}entry WHERE context = ? AND seq = ? AND head = ? AND entry = ?"
_STATE: Final = """SELECT (SELECT version FROM {q}meta), current_setting('server_encoding'), current_setting('fsync')"""
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('quire ' || ?, 0))"
_MAX_INLINE: Final = 8
"""Up to this number, rows are values of their own, which PostgreSQL plans and runs faster than arrays."""
_MAX_ROWS, _MAX_BYTES = 5_000, 16 << 20
"""Larger commits become several statements of one transaction."""
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

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connections.retry(lambda db: db.execute(self._sql[sql], values).fetchall())

    def transact(self, work: Callable[[Run], T]) -> T:
        def attempt(db: Db) -> T:
            is_at_end = False
            try:
                with self._connections.transaction(db, "REPEATABLE READ", full=self._full):
                    result = work(self._runner(db))
                    is_at_end = True
            except psycopg.Error as error:
                if is_at_end and is_lost(error):
                    raise self._unknown_outcome() from error
                raise
            return result

        return self._connections.retry(attempt)

    def write(self, run: Run, context: Id, commit: Commit) -> None:
        for each in commit.entries:
            run(ENTRY, (context, each.seq, each.head, each.entry))
        for rows in _parts(commit.put):
            run(*_put(context, rows, inline=False))
        for sql, values in _other_changes(context, commit, ""):
            run(sql, values)

    def commit(self, context: Id, commit: Commit) -> bool:
        is_unsure = False
        stored = context, commit.seq, commit.head, commit.entry

        def attempt(db: Db) -> bool:
            nonlocal is_unsure
            try:
                if is_unsure and db.execute(self._sql[_STORED], stored).fetchall():
                    return True
                return self._commit(db, context, commit)
            except UniqueViolation:
                return False
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
        with self._connections.frozen() as connections:
            frozen: Storage = SqlStorage(PostgresDatabase(connections, full=False))
            if not self._connections.is_single:
                yield frozen
                return
            frozen = copy_to_memory(frozen, context)
        yield frozen  # the owner of a single connection needs it, and so do other calls in the block

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
            self._connections.retry(lambda db: self._in_transaction(db, work))
        except QuireError as error:
            if getattr(error.__cause__, "sqlstate", None) != "42501":
                raise
            raise StorageFailure(
                f"This role may not create quire's tables in schema {self._schema!r} of {self.name}: open the store"
                " once as their owner, then GRANT as in docs/postgres.md."
            ) from error

    def _in_transaction(self, db: Db, work: Callable[[Run], T]) -> T:
        with self._connections.transaction(db, "READ COMMITTED", full=self._full):
            return work(self._runner(db))

    def _runner(self, db: Db) -> Run:
        def run(sql: str, values: Sequence[Any] = ()) -> list[Row]:
            cursor = db.execute(self._sql[sql], values)
            return cursor.fetchall() if cursor.description else []

        return run

    def _commit(self, db: Db, context: Id, commit: Commit) -> bool:
        """Make a commit with one statement, or a large one in a transaction."""
        size = sum(len(record.value) for _, record in commit.put)
        if commit.earlier or len(commit.put) > _MAX_ROWS or size > _MAX_BYTES:

            def work(run: Run) -> bool:
                is_next = bool(run(_PREVIOUS, (context, commit.first - 1)))
                if is_next:
                    self.write(run, context, commit)
                return is_next

            return self._in_transaction(db, work)
        entry = (context, commit.seq, commit.head, commit.entry, context, commit.seq - 1)
        parts, values = [f"made AS ({_ENTRY})"], [*entry]
        changes = [_put(context, commit.put, inline=True)] if commit.put else []
        for number, (sql, some) in enumerate((*changes, *_other_changes(context, commit, _AFTER_ENTRY[1]))):
            parts.append(f"change{number} AS ({sql})")
            values += some
        synchronous = ", set_config('synchronous_commit', 'on', true)" if self._full else ""
        sql = f"WITH {', '.join(parts)} SELECT seq{synchronous} FROM made"
        return bool(db.execute(self._sql[sql], values).fetchall())

    def _unknown_outcome(self) -> OutcomeUnknown:
        text = f"The connection to {self.name} was lost, and nothing tells whether the change was made."
        return OutcomeUnknown(text, Hint("refresh", purpose="to find out"))


def _put(context: Id, rows: Sequence[tuple[Family, Record]], *, inline: bool) -> tuple[str, list[Any]]:
    """Return a statement that writes records; as a part of a commit, only after its entry."""
    found = [(CODES[family], each.key, each.parent, each.rank, each.value) for family, each in rows]
    after = _AFTER_ENTRY[0] if inline else ""
    if inline and len(found) <= _MAX_INLINE:
        source = f"(VALUES {', '.join([_ROW] * len(found))})"
        return _PUT.format(source=source, after=after), [context, *(value for row in found for value in row)]
    columns: list[Any] = [list(column) for column in zip(*found, strict=True)]
    return _PUT.format(source=_ARRAYS, after=after or " WHERE true"), [context, *columns]


def _other_changes(context: Id, commit: Commit, after: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield the statements of a commit that remove records and change older entries."""
    if commit.delete:
        codes, keys = [CODES[family] for family, _ in commit.delete], [key for _, key in commit.delete]
        yield _DELETE.format(after=after), [codes, keys, context]
    if commit.replace:
        numbers, entries = map(list, zip(*commit.replace, strict=True))
        yield _REPLACE.format(after=after), [numbers, entries, context]
    if commit.expire:
        yield _EXPIRE.format(after=after), [context, commit.expire]


def _parts(rows: Sequence[tuple[Family, Record]]) -> Iterator[Sequence[tuple[Family, Record]]]:
    """Yield records in parts that fit one statement each."""
    start, size = 0, 0
    for position, (_, record) in enumerate(rows):
        size += len(record.value)
        if position - start >= _MAX_ROWS or size > _MAX_BYTES:
            yield rows[start : position + 1]
            start, size = position + 1, 0
    if start < len(rows):
        yield rows[start:]
