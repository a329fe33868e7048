"""A small context in one read, for those who look at all of it again and again, as an examination does.

Records of many contexts in one PostgreSQL database.

A commit is one statement: one round trip and one transaction, with the version check inside. Writers of different
contexts touch no common row. Numbers of dropped contexts are not used again: a stale handle can only meet `Conflict`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from operator import itemgetter
from os import urandom
from typing import TYPE_CHECKING, Any, Final

from quire.errors import Conflict, InvalidOperation, InvalidValue, OutcomeUnknown, short_repr
from quire.storage.base import (
    IMMUTABLE,
    JOURNAL,
    MAX_KEY,
    VECTOR,
    Commit,
    Durability,
    Family,
    Head,
    Put,
    Record,
    Storage,
    check_context_name,
    check_durability,
    conflict,
)
from quire.storage.memory import MemoryStorage
from quire.storage.overlay import SMALL, Nearby, Opened
from quire.storage.postgres.commit import Changes, Writer, changes_of
from quire.storage.postgres.connection import parse
from quire.storage.postgres.forks import Shares
from quire.storage.postgres.schema import CODES, CONTEXTS, DROP, GET, HEAD, NEW_HEAD, OPENED, STANDS, members, within

if TYPE_CHECKING:
    from quire.storage.base import Symptom
    from quire.storage.postgres.connection import Db, Session
    from quire.storage.postgres.maintenance import PostgresCheck
    from quire.storage.postgres.search import PostgresIndex, PostgresIndexes


_MOST_RECORDS: Final = 2_000
_MOST_BYTES: Final = 4 << 20
_WHOLE: Final = f"""SELECT version, head, family, key, value, grp, ord FROM {{q}}.context
    LEFT JOIN {{q}}.record ON record.context = context.id
    WHERE tenant = %s AND name = %s AND NOT EXISTS (SELECT 1 FROM {{q}}.shared WHERE shared.id = context.id)
    AND NOT EXISTS (SELECT 1 FROM {{q}}.gone WHERE gone.context = context.id) AND (
        SELECT count(*) <= {_MOST_RECORDS} AND coalesce(sum(octet_length(value)), 0) <= {_MOST_BYTES}
        FROM (SELECT value FROM {{q}}.record WHERE record.context = context.id LIMIT {_MOST_RECORDS + 1}) AS few)"""
"""All of a context with its head, unless it is large, reads from another one or hides what its forks still read."""
_FAMILIES: Final = {code: family for family, code in CODES.items()}


def whole(session: "Session", tenant: str, context: str) -> MemoryStorage | None:
    """The context as it is at one moment, in memory; None if it is large, shares records, or does not exist."""
    rows = session.read(_WHOLE, (tenant, context))
    if not rows:
        return None
    writes = [
        Put(_FAMILIES[code], key, value, group, order)
        for _, _, code, key, value, group, order in rows
        if code in _FAMILIES
    ]
    copy = MemoryStorage()
    copy.commit(context, Commit(0, rows[0][0], rows[0][1], writes))
    return copy


_CHUNK = 256
_CHUNK_BYTES = 1 << 20
_FIRST_CHUNK = 32
_LARGE: frozenset[Family] = frozenset({*IMMUTABLE, JOURNAL, VECTOR})
"""Families whose records can be large: the first look is a short one."""
_FEW_RECORDS = 128
"""So many small records are read along with a head."""
_FAMILIES_STORAGE = {code: family for family, code in CODES.items()}
_MOST_NUMBERS = 200_000
_LEFT_TO_OTHERS = (
    "No row holds it any more, but PostgreSQL keeps old versions of rows in its files: VACUUM FULL by the owner of the"
    " tables clears them; its write-ahead log and replicas move on in their own time."
)


class PostgresStorage:
    """Records in one schema of a PostgreSQL database. Any number of processes and machines can share it.

    A tenant sees its own contexts only. `durability="normal"` leaves `synchronous_commit` as the server has it;
    `"full"` turns it on for every commit. A lock held longer than `busy_seconds` is `Busy`; a server that is away is
    waited for as long, one that hangs 5 seconds longer. At most `connections` are open at once.
    """

    def __init__(
        self,
        url: str,
        *,
        tenant: str | None = None,
        schema: str | None = None,
        durability: Durability = "normal",
        busy_seconds: float = 5.0,
        connections: int = 8,
        create: bool = True,
    ) -> None:
        address = parse(url, tenant, schema)
        self.durability = check_durability(durability)
        self.tenant, self.schema = address.tenant, address.schema
        if type(connections) is not int or connections < 1:
            raise InvalidValue(f"connections is {short_repr(connections)}; a whole number of at least 1 is needed.")
        if isinstance(busy_seconds, bool) or not isinstance(busy_seconds, int | float) or not 0 < busy_seconds < 86_400:
            raise InvalidValue(f"busy_seconds is {short_repr(busy_seconds)}; a number of seconds above 0 is needed.")
        prepare, session = _driver()
        full = self.durability == "full"
        self._session = session(address, connections=connections, patience=busy_seconds, full=full)
        milliseconds = max(int(busy_seconds * 1_000), 1)
        self._writer = Writer(f'"{address.schema}"', self.tenant, milliseconds, full=full)
        self._begin()
        try:
            prepare(self._session, address.schema, create=create, full=full)
        except BaseException:
            self._session.close()
            raise

    def _begin(self) -> None:
        self._numbers: dict[str, int] = {}
        self._shares = Shares(self._session)
        self._indexes: PostgresIndexes | None = None

    def __repr__(self) -> str:
        return f"PostgresStorage({self._session.name!r}, tenant={self.tenant!r}, schema={self.schema!r})"

    def head(self, context: str) -> Head | None:
        rows = self._session.read(HEAD, (self.tenant, check_context_name(context)))
        if not rows:
            self._numbers.pop(context, None)
            return None
        self._know(context, rows[0][0])
        return Head(rows[0][1], rows[0][2])

    def opened(self, context: str) -> Opened:
        """The head with all small records of its context, if they are few: in one round trip."""
        codes = [CODES[family] for family in SMALL]
        rows = self._session.read(OPENED, (self.tenant, check_context_name(context), codes, _FEW_RECORDS + 1))
        if not rows:
            self._numbers.pop(context, None)
            return Opened(None, self)
        (_, number, head, version, _), *records = sorted(rows, key=itemgetter(0))
        self._know(context, number)
        if len(records) > _FEW_RECORDS:
            return Opened(Head(version, head), self)
        return Opened(
            Head(version, head), Nearby(self, ((_FAMILIES_STORAGE[row[0]], Record(*row[1:])) for row in records))
        )

    def get(self, context: str, family: Family, key: int) -> Record | None:
        number = self._number(context)
        if not number or not 0 <= key <= MAX_KEY:
            return None
        if family in IMMUTABLE:
            owner = self._shares.owner(number, family, key)
            rows = self._session.read(GET[family], (owner, CODES[family], key, number, CODES[family], key))
        else:
            rows = self._session.read(GET[family], (number, CODES[family], key))
        return Record(*rows[0]) if rows else None

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        sql, code = within(family, reverse=reverse), CODES[family]
        number = self._number(context)
        spans = self._shares.spans(number, family, max(start, 0), min(stop, MAX_KEY)) if number else []
        reader = (number, code) if family in IMMUTABLE else ()
        limit = _FIRST_CHUNK if family in _LARGE else _CHUNK
        for owner, first, last in reversed(spans) if reverse else spans:
            while first <= last:
                again = (*reader, first, last) if reader else ()
                rows = self._session.read(sql, (owner, code, first, last, *again, limit))
                yield from (Record(*row) for row in rows)
                if len(rows) < limit:
                    break
                limit = _next_limit(rows)
                first, last = (first, rows[-1][0] - 1) if reverse else (rows[-1][0] + 1, last)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        limit = 64 if after is None and not reverse else 2  # who looks beyond a place or backwards wants a neighbour
        while True:
            number = self._number(context)
            if not number:
                return
            values = (number, group, CODES[family], *(after or ()), limit)
            rows = self._session.read(members(reverse=reverse, after=after is not None), values)
            yield from (Record(*row) for row in rows)
            if len(rows) < limit:
                return
            limit = min(max(limit * 32, 64), _CHUNK)
            after = (rows[-1][3], rows[-1][0])

    def commit(self, context: str, commit: Commit) -> None:
        check_context_name(context)
        changes = changes_of(commit.writes)
        self._check_own(context, commit)
        commit_id = urandom(16)

        def write(db: "Db") -> int | None:
            limited = db.prepare_threshold is None  # behind a proxy nothing is set on a session
            statements = list(self._writer.statements(context, commit, commit_id, changes, limited=limited))
            if len(statements) == 1 and not changes.erased:
                row = db.execute(*statements[0]).fetchone()
                return row[0] if row else None
            with self._session.transaction(db):
                row = db.execute(*statements[0]).fetchone()
                if row is None:
                    return None
                for sql, values in statements[1:]:
                    db.execute(sql, values)
                if changes.erased:
                    self._shares.erase(db, row[0], changes.erased)
                return int(row[0])

        number = self._session.once(write, lambda db: self._landed(db, context, commit, commit_id))
        if number is None:
            self._numbers.pop(context, None)
            raise self._conflict(context, commit.expect)
        self._know(context, number)

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        check_context_name(context)
        check_context_name(target)
        changes = changes_of(commit.writes)
        commit_id = urandom(16)
        refused: list[Conflict] = []

        def write(db: "Db") -> int | None:
            refused.clear()
            with self._session.transaction(db):
                made = self._new_fork(db, context, target, commit, commit_id, refused)
                if made is None:
                    return None
                source, number = made
                self._shares.add(db, number, source, below)
                self._write_fork(db, target, number, commit_id, changes)
                return number

        number = self._session.once(write, lambda db: self._landed(db, target, commit, commit_id))
        if number is None:
            raise refused[0]
        self._know(target, number)

    def contexts(self, after: str = "") -> Iterator[str]:
        while True:
            names = [row[0] for row in self._session.read(CONTEXTS, (self.tenant, _comparable(after), _CHUNK))]
            yield from (name for name in names if name > after)
            if len(names) < _CHUNK:
                return
            after = names[-1]

    def drop(self, context: str) -> None:
        check_context_name(context)
        number: int | None = None

        def write(db: "Db") -> None:
            nonlocal number  # known from the first try on: one that was made anew meanwhile is another context
            row = db.execute(self._session.sql(DROP), (self.tenant, context, number, number)).fetchone()
            if row:
                number = row[0]
                self._shares.clear(db, row[0])

        self._session.transact(write)
        self._numbers.pop(context, None)

    def search(self, context: str) -> "PostgresIndex":
        """The search index of a context, kept in the same database."""
        from quire.storage.postgres.search import PostgresIndex, PostgresIndexes

        if self._indexes is None:
            self._indexes = PostgresIndexes(self._session)
        return PostgresIndex(self._indexes, lambda: self._number(context))

    def search_check(self) -> "PostgresCheck":
        """An examination of the search indexes of all contexts."""
        from quire.storage.postgres.maintenance import PostgresCheck

        return PostgresCheck(self._session, self._number)

    def whole(self, context: str) -> "Storage | None":
        """A small context as it is now, in memory, by one read; None if it is large or reads from another."""

        return whole(self._session, self.tenant, check_context_name(context))

    def examine(self, *, repair: bool = False) -> "list[Symptom]":
        """What is wrong with the schema below the level of contexts; with `repair`, what can be made anew is."""
        from quire.storage.postgres.maintenance import examine, examine_owners

        return [*examine_owners(self._session, repair=repair), *examine(self._session, repair=repair)]

    def scrub(self, contexts: Sequence[str]) -> str:
        """Take out shared records that nobody reads any more: then no row holds what was deleted in these contexts.

        What is left to do only the server's people can: it says so.
        """
        numbers = [number for context in contexts if (number := self._number(context))]
        self._session.transact(lambda db: self._shares.sweep_unread(db, numbers))
        return _LEFT_TO_OTHERS

    @contextmanager
    def snapshot(self, context: str) -> Iterator["PostgresStorage"]:
        """The context as it is now, whatever is committed meanwhile, to be read only."""
        with self._session.still() as session:
            still = PostgresStorage.__new__(PostgresStorage)
            still.__dict__.update(self.__dict__)
            still._session = session
            still._begin()
            still.head(context)  # the moment is that of the first look
            yield still

    def close(self) -> None:
        self._session.close()

    def _know(self, context: str, number: int) -> None:
        if len(self._numbers) > _MOST_NUMBERS:
            self._numbers.clear()
        self._numbers[context] = number

    def _number(self, context: str) -> int:
        """The context's number, or 0 if it does not exist."""
        number = self._numbers.get(context)
        if number is None:
            self.head(context)
            number = self._numbers.get(context, 0)
        return number

    def _check_own(self, context: str, commit: Commit) -> None:
        """Refuse what nobody would read: immutable records below those of a fork's origin."""
        keys = [(write.family, write.key) for write in commit.writes if write.family in IMMUTABLE]
        number = self._number(context) if keys and commit.expect else 0
        if number and self._shares.line(number):
            for write in commit.writes:
                if isinstance(write, Put) and write.family in IMMUTABLE:
                    self._shares.check_own(number, write.family, write.key)

    def _new_fork(
        self, db: "Db", context: str, target: str, commit: Commit, commit_id: bytes, refused: list[Conflict]
    ) -> tuple[int, int] | None:
        """Hold the source where it is and make the target's head; the numbers of both.

        None, with the reason, if either is elsewhere.
        """
        sql = self._session.sql
        row = db.execute(f"{sql(HEAD)} FOR SHARE", (self.tenant, context)).fetchone()
        head = Head(row[1], row[2]) if row else None
        if row is None or not commit.follows(head):
            refused.append(conflict(context, head, commit.expect))
            return None
        self._know(context, row[0])
        values = (self.tenant, target, commit.version, commit.head, commit_id)
        made = db.execute(sql(NEW_HEAD), values).fetchone()
        if made is None:
            found = db.execute(sql(HEAD), (self.tenant, target)).fetchone()
            refused.append(conflict(target, Head(found[1], found[2]) if found else None, 0))
            return None
        return int(row[0]), int(made[0])

    def _write_fork(self, db: "Db", target: str, number: int, commit_id: bytes, changes: Changes) -> None:
        for sql, values in self._writer.parts(target, commit_id, changes):
            db.execute(sql, values)
        if changes.erased:
            self._shares.erase(db, number, changes.erased)

    def _landed(self, db: "Db", context: str, commit: Commit, commit_id: bytes) -> int | None:
        """The context's number if this very commit was carried out, by a try whose answer was lost."""
        row = db.execute(self._session.sql(STANDS), (self.tenant, context)).fetchone()
        if row is None or row[3] == commit_id:
            return row and row[0]
        entries = [w for w in commit.writes if isinstance(w, Put) and w.family == JOURNAL and w.key == commit.version]
        if not entries:
            raise OutcomeUnknown(
                f"The connection was lost while {context!r} was written, and others wrote since: whether this change"
                " is among theirs is not known; refresh() tells."
            )
        found = db.execute(self._session.sql(GET[JOURNAL]), (row[0], CODES[JOURNAL], commit.version)).fetchone()
        return row[0] if found and found[1] == entries[-1].value else None

    def _conflict(self, context: str, expect: int) -> Conflict:
        rows = self._session.read(STANDS, (self.tenant, context))
        return conflict(context, Head(rows[0][1], rows[0][2]) if rows else None, expect)


def _driver() -> tuple[Any, Any]:
    """What needs the driver, imported when a storage is opened."""
    try:
        import psycopg as psycopg
    except ImportError as error:
        raise InvalidOperation("PostgreSQL needs its driver: pip install 'quire[postgres]'.") from error
    from quire.storage.postgres.connection import Session
    from quire.storage.postgres.migrations import prepare

    return prepare, Session


def _next_limit(rows: list[tuple[Any, ...]]) -> int:
    """How many rows to read next: about a megabyte, for bodies can be large."""
    size = sum(len(row[1]) for row in rows) // len(rows) + 1
    return max(1, min(_CHUNK, _CHUNK_BYTES // size))


def _comparable(name: str) -> str:
    """The text up to what PostgreSQL cannot compare with: no name holds a NUL or half a character."""
    return "".join(takewhile(lambda sign: sign != "\0" and not "\ud800" <= sign <= "\udfff", name))
