"""The tables of records in an SQLite file: reads of one context's records, and the writes of its commits."""

from collections.abc import Iterable, Iterator

import apsw

from quire.storage.base import (
    GROUPED,
    IMMUTABLE,
    KEY_BITS,
    MAX_KEY,
    Family,
    Head,
    Patch,
    Put,
    Record,
    Write,
    check_context_name,
    sum_orders,
)
from quire.storage.sqlite.forks import ForkSharing
from quire.storage.sqlite.schema import (
    COLUMNS,
    DELETE,
    GET,
    GROUP_BITS,
    PATCH,
    PUT,
    WITHIN,
    Row,
    StorageLock,
    head_of,
    record_of,
)

_CHUNK = 256
_CHUNK_BYTES = 1 << 20
# The group names its context. The id is compared too: in a damaged store, a row can have the group of another context.
_IN_GROUP = f"grp = ? AND id >> {KEY_BITS} = ?"


class Tables:
    """The records in the tables, without the commits in the commit log. It has the reads of a storage."""

    def __init__(self, db: apsw.Connection, lock: StorageLock, sharing: ForkSharing) -> None:
        self._db = db
        self._lock = lock
        self._sharing = sharing
        self.execute = db.cursor().execute  # one cursor for all writes: a new one each costs 10 %
        self.numbers: dict[str, int] = {}
        """The numbers of contexts that are known."""

    def number(self, context: str) -> int:
        """Return the number of a context, or 0 if it does not exist. The caller holds the lock."""
        number = self.numbers.get(context)
        if number is None:
            number = self._db.execute("SELECT id FROM context WHERE name = ?", (check_context_name(context),)).get
            if number is None:
                return 0
            if not self._db.in_transaction:  # a number read inside a transaction may be rolled back
                self.numbers[context] = number
        return number

    def head(self, context: str) -> Head | None:
        with self._lock:
            row = self._db.execute("SELECT version, head FROM context WHERE name = ?", (context,)).get
        return head_of(context, *row) if row else None

    def get(self, context: str, family: Family, key: int) -> Record | None:
        with self._lock:
            return self.read(self.number(context), family, key)

    def read(self, number: int, family: Family, key: int) -> Record | None:
        """Return one record of the context with this number (0: none). The caller holds the lock."""
        if family in IMMUTABLE:
            owner = self._sharing.owner(number, family, key)
            row = self._db.execute(GET[family], (owner << KEY_BITS | key, number << KEY_BITS)).get
        else:
            row = self._db.execute(GET[family], (number << KEY_BITS | key,)).get if number else None
        return record_of(family, (key, *row)) if row else None

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        sql = f"{WITHIN[family]} ORDER BY id {'DESC' if reverse else 'ASC'} LIMIT {_CHUNK}"
        start, stop = max(start, 0), min(stop, MAX_KEY)
        with self._lock:
            number = self.number(context)
            spans = self._sharing.spans(number, family, start, stop) if number else []
        reader = (number << KEY_BITS,) if family in IMMUTABLE else ()
        for owner, first, last in reversed(spans) if reverse else spans:
            base, more = owner << KEY_BITS, True
            while more and first <= last:
                with self._lock:
                    rows, more = _take(self._db.execute(sql, (base | first, base | last, *reader)))
                yield from (record_of(family, row) for row in rows)
                if more:
                    reached = rows[-1][0] & MAX_KEY
                    first, last = (first, reached - 1) if reverse else (reached + 1, last)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        order, beyond = ("DESC", "<") if reverse else ("ASC", ">")
        sql = f"SELECT {COLUMNS[family]} FROM {family} WHERE {_IN_GROUP}"
        ordered = f" ORDER BY ord {order}, id {order} LIMIT ?"
        limit = 64 if after is None and not reverse else 2  # such a caller usually needs one neighbour
        while True:
            with self._lock:
                number = self.number(context)
                if not number:
                    return
                values: list[int | bytes] = [number << GROUP_BITS | group, number]
                where = ""
                if after is not None:
                    where = f" AND (ord, id) {beyond} (?, ?)"
                    values += [after[0], number << KEY_BITS | after[1]]
                rows: list[Row] = self._db.execute(sql + where + ordered, [*values, limit]).fetchall()
            yield from (record_of(family, row) for row in rows)
            if len(rows) < limit:
                return
            limit = min(max(limit * 32, 64), _CHUNK)
            after = (rows[-1][3], rows[-1][0] & MAX_KEY)

    def sum_members(self, context: str, family: Family, group: int) -> tuple[int, int]:
        with self._lock:
            number = self.number(context)
            sql = f"SELECT ord FROM {family} WHERE {_IN_GROUP}"
            rows = self._db.execute(sql, (number << GROUP_BITS | group, number))
            return sum_orders(row[0] for row in rows)

    def apply(self, number: int, writes: Iterable[Write], *, is_fork: bool) -> None:
        """Make the writes of one context in the open transaction."""
        execute, base = self.execute, number << KEY_BITS
        for write in writes:
            family, row = write.family, base | write.key
            if isinstance(write, Put):
                if family in GROUPED:
                    group = None if write.group is None else number << GROUP_BITS | write.group
                    execute(PUT[family], (row, group, write.order, write.value))
                    continue
                if is_fork and family in IMMUTABLE:
                    self._sharing.check_own(number, family, write.key)
                execute(PUT[family], (row, write.value))
            elif isinstance(write, Patch):
                owner = self._sharing.patched(number, family, write.key) if family in IMMUTABLE else number
                execute(PATCH[family], (write.value, owner << KEY_BITS | write.key))
            elif family in IMMUTABLE:
                self._sharing.delete(number, family, write.key)
            else:
                execute(DELETE[family], (row,))


def _take(cursor: apsw.Cursor) -> tuple[list[Row], bool]:
    """Return rows of a cursor up to about a megabyte, and whether there may be more."""
    rows: list[Row] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += len(row[1]) if type(row[1]) is bytes else 0  # it may be damaged
        if size > _CHUNK_BYTES:
            cursor.close(True)
            return rows, True
    return rows, len(rows) == _CHUNK
