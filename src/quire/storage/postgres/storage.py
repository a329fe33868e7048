"""The storage in a PostgreSQL database.

A commit is one statement: one round trip and one transaction, with the version check inside. Writers of different
contexts touch no common row. The number of a dropped context is never used again, so a stale handle gets `Conflict`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import takewhile
from operator import itemgetter
from os import urandom
from typing import TYPE_CHECKING, Any, Final

from quire.errors import Conflict, Hint, InvalidValue, NotInstalled, OutcomeUnknown, short_repr
from quire.storage.address import Address, parse
from quire.storage.base import (
    FAMILIES,
    IMMUTABLE,
    JOURNAL,
    MAX_KEY,
    VECTOR,
    Commit,
    Durability,
    Family,
    Head,
    Prefetch,
    Put,
    Record,
    Storage,
    Symptom,
    check_context_name,
    check_durability,
    conflict,
    sum_orders,
)
from quire.storage.memory import SMALL, MemoryStorage, PrefetchReader
from quire.storage.postgres.commit import CommitBuilder, merge_writes
from quire.storage.postgres.forks import ForkSharing
from quire.storage.postgres.schema import CODES, prepare_schema
from quire.storage.postgres.statements import unpack_int

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

    from quire.storage.postgres.connection import Db, Session
    from quire.storage.postgres.lent import ConnectionPool
    from quire.storage.postgres.maintenance import PostgresCheck
    from quire.storage.postgres.search import PostgresIndex, PostgresIndexes

_HEAD: Final = "SELECT id, version, head FROM {q}.context WHERE tenant = %s AND name = %s"
_PREFETCH: Final = f"""WITH found AS MATERIALIZED ({_HEAD})
    SELECT 0::smallint, id, head, version,
        (SELECT ''::bytea FROM {{q}}.shared WHERE shared.id = found.id) FROM found
    UNION ALL SELECT small.* FROM found, LATERAL (
        SELECT family, key, value, grp, ord FROM {{q}}.record
        WHERE context = found.id AND family = ANY (%s) LIMIT %s) AS small"""
"""The head, marked by family 0, and a limited number of small records of the context. The last value of the
head's row is NULL if the context shares no records with an origin."""
_HEAD_AND_COMMIT: Final = "SELECT id, version, head, commit_id FROM {q}.context WHERE tenant = %s AND name = %s"
_CONTEXTS: Final = "SELECT name FROM {q}.context WHERE tenant = %s AND name > %s ORDER BY name LIMIT %s"
_DROP: Final = """DELETE FROM {q}.context WHERE tenant = %s AND name = %s AND (%s::bigint IS NULL OR id = %s)
    RETURNING id"""
_NEW_HEAD: Final = """INSERT INTO {q}.context (tenant, name, version, head, commit_id) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT DO NOTHING RETURNING id"""
_NOT_GONE = " AND key <> ALL (ARRAY(SELECT key FROM {q}.gone WHERE context = %s AND family = %s AND key {among}))"
_ONE = "SELECT key, value, grp, ord FROM {q}.record WHERE context = %s AND family = %s AND key = %s"
_GET: Final[dict[Family, str]] = {
    family: _ONE + _NOT_GONE.replace("{among}", "= %s") if family in IMMUTABLE else _ONE for family in FAMILIES
}
_MAX_BULK_RECORDS: Final = 2_000
_MAX_BULK_BYTES: Final = 4 << 20
_BULK: Final = f"""SELECT version, head, family, key, value, grp, ord FROM {{q}}.context
    LEFT JOIN {{q}}.record ON record.context = context.id
    WHERE tenant = %s AND name = %s AND NOT EXISTS (SELECT 1 FROM {{q}}.shared WHERE shared.id = context.id)
    AND NOT EXISTS (SELECT 1 FROM {{q}}.gone WHERE gone.context = context.id) AND (
        SELECT count(*) <= {_MAX_BULK_RECORDS} AND coalesce(sum(octet_length(value)), 0) <= {_MAX_BULK_BYTES}
        FROM (SELECT value FROM {{q}}.record WHERE record.context = context.id LIMIT {_MAX_BULK_RECORDS + 1}) AS few)"""
"""All records of a context with its head, unless it is large, shares records, or hides records that forks read."""
_ORDERS: Final = "SELECT ord FROM {q}.record WHERE context = %s AND grp = %s AND family = %s"
_EXISTS: Final = "23505"
"""PostgreSQL's code for a key that exists."""
_FAMILIES: Final = {code: family for family, code in CODES.items()}
_BATCH: Final = 256
_BATCH_BYTES: Final = 1 << 20
_FIRST_BATCH: Final = 32
_LARGE: Final[frozenset[Family]] = frozenset({*IMMUTABLE, JOURNAL, VECTOR})
"""The families with records that can be large. The first batch of a scan is small for them."""
_MAX_PREFETCH: Final = 128
"""The most small records that are read together with a head."""
_MAX_NUMBERS: Final = 200_000
_AFTER_SCRUB: Final = (
    "No row holds the deleted data any more, but PostgreSQL keeps old versions of rows in its files, and samples of"
    " values in its statistics. VACUUM (FULL, ANALYZE) by the owner of the tables removes both; the samples only if a"
    " table has other rows. The write-ahead log, replicas and old rows of pg_statistic keep it for some more time."
)


class PostgresStorage:
    """A storage in one schema of a PostgreSQL database. Any number of processes and machines can share it.

    A tenant sees only its own contexts. `durability="normal"` leaves `synchronous_commit` as the server has it;
    `"full"` turns it on for every commit. `busy_seconds` limits the wait for a lock (then `Busy`) and for a server that
    is away; a server that hangs is noticed up to 5 seconds later. At most `connections` are open at once.

    Instead of a URL, the caller can give an open `psycopg.Connection` or a `psycopg_pool.ConnectionPool`. quire uses it
    between the caller's transactions and never closes it.
    """

    def __init__(
        self,
        url: "str | Connection[Any] | ConnectionPool",
        *,
        tenant: str | None = None,
        schema: str | None = None,
        durability: Durability = "normal",
        busy_seconds: float = 5.0,
        connections: int = 8,
        create: bool = True,
    ) -> None:
        self.durability = check_durability(durability)
        if type(connections) is not int or connections < 1:
            raise InvalidValue(
                f"is {short_repr(connections)}; a whole number from 1 is needed.", argument="connections"
            )
        if isinstance(busy_seconds, bool) or not isinstance(busy_seconds, int | float) or not 0 < busy_seconds < 86_400:
            raise InvalidValue(
                f"is {short_repr(busy_seconds)}; a number of seconds above 0 and below a day is needed.",
                argument="busy_seconds",
            )
        full = self.durability == "full"
        self._session, address = _open_session(url, tenant, schema, connections, busy_seconds, full=full)
        self.tenant, self.schema = address.tenant, address.schema
        self._builder = CommitBuilder(f'"{address.schema}"', self.tenant, max(int(busy_seconds * 1_000), 1), full=full)
        self._start_caches()
        try:
            prepare_schema(self._session, address.schema, create=create, full=full)
        except BaseException:
            self._session.close()
            raise

    def _start_caches(self) -> None:
        self._numbers: dict[str, int] = {}
        self._sharing = ForkSharing(self._session)
        self._indexes: PostgresIndexes | None = None

    def __repr__(self) -> str:
        return f"PostgresStorage({self._session.name!r}, tenant={self.tenant!r}, schema={self.schema!r})"

    def head(self, context: str) -> Head | None:
        rows = self._session.read(_HEAD, (self.tenant, check_context_name(context)))
        if not rows:
            self._numbers.pop(context, None)
            return None
        self._remember(context, rows[0][0])
        return Head(rows[0][1], rows[0][2])

    def prefetch(self, context: str) -> Prefetch:
        """Return the head, and all small records if they are few, in one round trip."""
        codes = [CODES[family] for family in SMALL]
        rows = self._session.read(_PREFETCH, (self.tenant, check_context_name(context), codes, _MAX_PREFETCH + 1))
        if not rows:
            self._numbers.pop(context, None)
            return Prefetch(None, self)
        (_, number, head, version, shared), *records = sorted(rows, key=itemgetter(0))
        self._remember(context, number)
        if shared is None:
            self._sharing.add_origin(number)
        if len(records) > _MAX_PREFETCH:
            return Prefetch(Head(version, head), self)
        return Prefetch(
            Head(version, head), PrefetchReader(self, ((_FAMILIES[row[0]], Record(*row[1:])) for row in records))
        )

    def get(self, context: str, family: Family, key: int) -> Record | None:
        number = self._number(context)
        if not number or not 0 <= key <= MAX_KEY:
            return None
        if family in IMMUTABLE:
            owner = self._sharing.owner(number, family, key)
            rows = self._session.read(_GET[family], (owner, CODES[family], key, number, CODES[family], key))
        else:
            rows = self._session.read(_GET[family], (number, CODES[family], key))
        return Record(*rows[0]) if rows else None

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        sql, code = _select_range(family, reverse=reverse), CODES[family]
        number = self._number(context)
        spans = self._sharing.spans(number, family, max(start, 0), min(stop, MAX_KEY)) if number else []
        reader = (number, code) if family in IMMUTABLE else ()
        limit = _FIRST_BATCH if family in _LARGE else _BATCH
        for owner, first, last in reversed(spans) if reverse else spans:
            while first <= last:
                hidden = (*reader, first, last) if reader else ()
                rows = self._session.read(sql, (owner, code, first, last, *hidden, limit))
                yield from (Record(*row) for row in rows)
                if len(rows) < limit:
                    break
                limit = _next_limit(rows)
                first, last = (first, rows[-1][0] - 1) if reverse else (rows[-1][0] + 1, last)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        limit = 64 if after is None and not reverse else 2  # the other calls look for one neighbour
        while True:
            number = self._number(context)
            if not number:
                return
            values = (number, group, CODES[family], *(after or ()), limit)
            rows = self._session.read(_select_members(reverse=reverse, after=after is not None), values)
            yield from (Record(*row) for row in rows)
            if len(rows) < limit:
                return
            limit = min(max(limit * 32, 64), _BATCH)
            after = (rows[-1][3], rows[-1][0])

    def sum_members(self, context: str, family: Family, group: int) -> tuple[int, int]:
        rows = self._session.read(_ORDERS, (self._number(context), group, CODES[family]))
        return sum_orders(row[0] for row in rows)

    def commit(self, context: str, commit: Commit) -> None:
        check_context_name(context)
        changes = merge_writes(commit.writes)
        self._check_own(context, commit)
        commit_id, rewritten = urandom(16), changes.rewritten
        is_simple = not changes.erased and not rewritten
        changes.is_new = is_simple and (changes.is_new or not commit.expect)

        def write(db: "Db") -> int | None:
            limited = db.prepare_threshold is None  # a session behind a proxy has no lock timeout
            statements = list(self._builder.statements(context, commit, commit_id, changes, limited=limited))
            if len(statements) == 1 and is_simple:
                try:
                    return _number_in(db.run(statements[0]))
                except Exception as error:
                    if not changes.is_new or getattr(error, "sqlstate", "") != _EXISTS:
                        raise
                    changes.is_new = False  # a record exists, against the hint
                    return write(db)
            with self._session.transaction(db):
                number = _number_in(db.run(statements[0]))
                if number is None:
                    return None
                for sql in statements[1:]:
                    db.run(sql)
                if changes.erased:
                    self._sharing.erase(db, number, changes.erased)
                self._sharing.rewrite(db, number, rewritten)
                return number

        number = self._session.write_once(write, lambda db: self._find_commit(db, context, commit, commit_id))
        if number is None:
            self._numbers.pop(context, None)
            raise self._conflict(context, commit.expect)
        self._remember(context, number)
        if not commit.expect:
            self._sharing.add_origin(number)

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        check_context_name(context)
        check_context_name(target)
        changes = merge_writes(commit.writes)
        changes.is_new, commit_id = False, urandom(16)
        refused: list[Conflict] = []

        def write(db: "Db") -> int | None:
            refused.clear()
            with self._session.transaction(db):
                numbers = self._create_fork(db, context, target, commit, commit_id, refused)
                if numbers is None:
                    return None
                source, number = numbers
                self._sharing.add(db, number, source, below)
                for sql in self._builder.parts(target, commit_id, changes):
                    db.run(sql)
                if changes.erased:
                    self._sharing.erase(db, number, changes.erased)
                return number

        number = self._session.write_once(write, lambda db: self._find_commit(db, target, commit, commit_id))
        if number is None:
            raise refused[0]
        self._remember(target, number)

    def contexts(self, after: str = "") -> Iterator[str]:
        while True:
            names = [row[0] for row in self._session.read(_CONTEXTS, (self.tenant, _comparable(after), _BATCH))]
            yield from (name for name in names if name > after)
            if len(names) < _BATCH:
                return
            after = names[-1]

    def drop(self, context: str) -> None:
        check_context_name(context)
        number: int | None = None

        def write(db: "Db") -> None:
            nonlocal number  # a second attempt must not drop a context that was created again meanwhile
            row = db.execute(self._session.sql(_DROP), (self.tenant, context, number, number)).fetchone()
            if row:
                number = row[0]
                self._sharing.clear(db, row[0])

        self._session.transact(write)
        self._numbers.pop(context, None)

    def search(self, context: str) -> "PostgresIndex":
        """Return the search index of a context, which is in the same database."""
        from quire.storage.postgres.search import PostgresIndex, PostgresIndexes

        if self._indexes is None:
            self._indexes = PostgresIndexes(self._session)
        return PostgresIndex(self._indexes, lambda: self._number(context))

    def search_check(self) -> "PostgresCheck":
        """Return a check of the search indexes of all contexts."""
        from quire.storage.postgres.maintenance import PostgresCheck

        return PostgresCheck(self._session, self._number)

    def bulk_read(self, context: str) -> Storage | None:
        """Return a small context in memory, in one round trip; None if it is large, shares records or is missing."""
        rows = self._session.read(_BULK, (self.tenant, check_context_name(context)))
        if not rows:
            return None
        writes = [
            Put(_FAMILIES[code], key, value, group, order)
            for _, _, code, key, value, group, order in rows
            if code in _FAMILIES
        ]
        memory = MemoryStorage()
        memory.commit(context, Commit(0, rows[0][0], rows[0][1], writes))
        return memory

    def examine(self, *, repair: bool = False) -> list[Symptom]:
        """Return the problems of the schema below the level of contexts. With `repair`, repair some of them."""
        from quire.storage.postgres.maintenance import examine_records, examine_search

        return [*examine_records(self._session, repair=repair), *examine_search(self._session, repair=repair)]

    def scrub(self, contexts: Sequence[str] | None) -> str:
        """Remove shared records that no context reads any more, so that no row holds data that these contexts deleted.

        Return what only an administrator of the server can do afterwards.
        """
        names = self.contexts() if contexts is None else contexts
        numbers = [number for context in names if (number := self._number(context))]
        self._session.transact(lambda db: self._sharing.sweep_unread(db, numbers))
        return _AFTER_SCRUB

    @contextmanager
    def snapshot(self, context: str) -> Iterator["PostgresStorage"]:
        """Yield a read-only storage that shows the context at this moment, whatever is committed meanwhile."""
        with self._session.snapshot() as session:
            frozen = copy(self)
            frozen._session = session
            frozen._start_caches()
            frozen.head(context)  # the first statement fixes the moment
            yield frozen

    def close(self) -> None:
        self._session.close()

    def _remember(self, context: str, number: int) -> None:
        if len(self._numbers) > _MAX_NUMBERS:
            self._numbers.clear()
        self._numbers[context] = number

    def _number(self, context: str) -> int:
        """Return the number of a context, or 0 if it does not exist."""
        number = self._numbers.get(context)
        if number is None:
            self.head(context)
            number = self._numbers.get(context, 0)
        return number

    def _check_own(self, context: str, commit: Commit) -> None:
        """Reject immutable records that a fork would read from its origin instead."""
        puts = [write for write in commit.writes if isinstance(write, Put) and write.family in IMMUTABLE]
        number = self._number(context) if puts and commit.expect else 0
        for write in puts if number else ():
            self._sharing.check_own(number, write.family, write.key)

    def _create_fork(
        self, db: "Db", context: str, target: str, commit: Commit, commit_id: bytes, refused: list[Conflict]
    ) -> tuple[int, int] | None:
        """Lock the source, create the head of the target, and return the numbers of both.

        On a conflict, append it to `refused` and return None.
        """
        sql = self._session.sql
        row = db.execute(f"{sql(_HEAD)} FOR SHARE", (self.tenant, context)).fetchone()
        head = Head(row[1], row[2]) if row else None
        if row is None or not commit.follows(head):
            refused.append(conflict(context, head, commit.expect))
            return None
        self._remember(context, row[0])
        values = (self.tenant, target, commit.version, commit.head, commit_id)
        created = db.execute(sql(_NEW_HEAD), values).fetchone()
        if created is None:
            found = db.execute(sql(_HEAD), (self.tenant, target)).fetchone()
            refused.append(conflict(target, Head(found[1], found[2]) if found else None, 0))
            return None
        return int(row[0]), int(created[0])

    def _find_commit(self, db: "Db", context: str, commit: Commit, commit_id: bytes) -> int | None:
        """Return the context's number if an earlier attempt of this commit succeeded and its answer was lost."""
        row = db.execute(self._session.sql(_HEAD_AND_COMMIT), (self.tenant, context)).fetchone()
        if row is None or row[3] == commit_id:
            return row and row[0]
        entries = [w for w in commit.writes if isinstance(w, Put) and w.family == JOURNAL and w.key == commit.version]
        if not entries:
            raise OutcomeUnknown(
                f"The connection was lost while {context!r} was written, and other commits followed. This change may"
                " have been made before them.",
                Hint("refresh", purpose="to find out"),
            )
        found = db.execute(self._session.sql(_GET[JOURNAL]), (row[0], CODES[JOURNAL], commit.version)).fetchone()
        return row[0] if found and found[1] == entries[-1].value else None

    def _conflict(self, context: str, expect: int) -> Conflict:
        rows = self._session.read(_HEAD, (self.tenant, context))
        return conflict(context, Head(rows[0][1], rows[0][2]) if rows else None, expect)


def _open_session(
    source: object, tenant: str | None, schema: str | None, connections: int, patience: float, *, full: bool
) -> "tuple[Session, Address]":
    """Return a session and its address. The driver is imported here, when a storage is opened."""
    address = parse(source, tenant, schema) if isinstance(source, str) else None
    try:
        import psycopg as psycopg
    except ImportError as error:
        raise NotInstalled("PostgreSQL needs its driver", "postgres", name="psycopg") from error
    from quire.storage.postgres.connection import Pool, Session

    if address is None:
        from quire.storage.postgres.lent import lend

        address, pool = lend(source, tenant, schema)
    else:
        pool = Pool(address.url, address.name, connections, patience)
    return Session(address, pool, patience=patience, full=full), address


def _number_in(result: "PGresult") -> int | None:
    """Return the context's number in the result of a commit; None if it found another version."""
    return unpack_int(result.get_value(0, 0)) if result.ntuples else None


def _next_limit(rows: list[tuple[Any, ...]]) -> int:
    """Return how many rows to read next: about a megabyte, because bodies can be large."""
    size = sum(len(row[1]) for row in rows) // len(rows) + 1
    return max(1, min(_BATCH, _BATCH_BYTES // size))


def _comparable(name: str) -> str:
    """Return the text up to a character that PostgreSQL does not accept: no name has a NUL or a lone surrogate."""
    return "".join(takewhile(lambda char: char != "\0" and not "\ud800" <= char <= "\udfff", name))


def _select_range(family: Family, *, reverse: bool) -> str:
    """Return the statement that reads records by a range of keys.

    For an immutable family, this statement and `_GET` take the number of the reading context and the keys a second
    time: the rows may belong to another context, and the reading context may have deleted them.
    """
    left = _NOT_GONE.replace("{among}", "BETWEEN %s AND %s") if family in IMMUTABLE else ""
    return (
        "SELECT key, value, grp, ord FROM {q}.record WHERE context = %s AND family = %s AND key BETWEEN %s AND %s"
        f"{left} ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT %s"
    )


def _select_members(*, reverse: bool, after: bool) -> str:
    """Return the statement that reads the records of a group in order."""
    order, beyond = ("DESC", "<") if reverse else ("ASC", ">")
    place = f" AND (ord, key) {beyond} (%s, %s)" if after else ""
    return (
        "SELECT key, value, grp, ord FROM {q}.record WHERE context = %s AND grp = %s AND family = %s"
        f"{place} ORDER BY ord {order}, key {order} LIMIT %s"
    )
