"""Sharing of immutable records between forks: a record stays with the context that wrote it.

As in SQLite (`storage.sqlite.forks`), a fork has a row with the number of its origin and, for each immutable family,
the key below which it reads the origin's records. The row never changes, so it is cached. A context that is dropped
while forks read from it leaves its immutable records under its number, although its name is gone. Dropping the last of
these forks removes them. A record that one context deletes while others read it is listed in `gone` for that context.

A transaction that removes shared records holds an advisory lock on each context it removes from, forks before their
origins. Without it, two forks that are dropped at once could each leave the removal to the other.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from quire.storage.base import BODY, FAMILIES, IMMUTABLE, JOURNAL, MAX_KEY, MESSAGE, Family
from quire.storage.forks import ForkLineage, Lineage, make_lineage
from quire.storage.postgres.schema import CLEAR_GONE, CLEAR_SEARCH, CODES

if TYPE_CHECKING:
    from quire.storage.postgres.connection import Db, Session

_MAX_LINES: Final = 50_000
_COPIED: Final = tuple(family for family in FAMILIES if family not in IMMUTABLE and family != JOURNAL)
"""The families that a fork copies. It shares the immutable ones and starts its own journal."""

_COPY: Final = """INSERT INTO {q}.record (context, family, key, grp, ord, value)
    SELECT %s, record.family, record.key, grp, ord, value FROM {q}.record
    JOIN unnest(%s::smallint[], %s::bigint[]) AS taken (family, below) ON record.family = taken.family
    WHERE context = %s AND key < below"""
_COPY_GONE: Final = """INSERT INTO {q}.gone (context, family, key)
    SELECT %s, gone.family, gone.key FROM {q}.gone
    JOIN unnest(%s::smallint[], %s::bigint[]) AS taken (family, below) ON gone.family = taken.family
    WHERE context = %s AND key < below"""
_SHARE: Final = "INSERT INTO {q}.shared (id, origin, body, message) VALUES (%s, %s, %s, %s)"
_LINE: Final = """WITH RECURSIVE line AS (
        SELECT id, origin, body, message, 1 AS step FROM {q}.shared WHERE id = %s
        UNION ALL SELECT shared.id, shared.origin, shared.body, shared.message, step + 1
        FROM line JOIN {q}.shared ON shared.id = line.origin)
    SELECT origin, body, message FROM line ORDER BY step"""
_END_OF: Final = """SELECT greatest(
        (SELECT max(key) + 1 FROM {q}.record WHERE context = %s AND family = %s),
        (SELECT {family} FROM {q}.shared WHERE id = %s), 0)"""
"""The largest key of a context in an immutable family plus one, its own or shared."""
_BOUNDS: Final = """SELECT greatest(
        (SELECT max({family}) FROM {q}.shared WHERE origin = %s),
        (SELECT {family} FROM {q}.shared WHERE id = %s), 0)"""
"""The key below which other contexts read records of this one, or this one reads records of another."""
_LENT: Final = "SELECT coalesce(max(body), 0), coalesce(max(message), 0), count(*) FROM {q}.shared WHERE origin = %s"
_LOCK_LINE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('{q}', %s))"
"""Held until the end of a transaction that removes rows which forks may share."""
_CLEAR: Final = """DELETE FROM {q}.record WHERE context = %s
    AND NOT (family = %s AND key < %s) AND NOT (family = %s AND key < %s)"""
_SWEEP: Final = """WITH swept AS (DELETE FROM {q}.gone WHERE context = %s AND family = %s AND key >= %s RETURNING key)
    DELETE FROM {q}.record WHERE context = %s AND family = %s AND key IN (SELECT key FROM swept)"""
_LEAVE: Final = "DELETE FROM {q}.shared WHERE id = %s RETURNING origin"
_IS_NAMED: Final = "SELECT 1 FROM {q}.context WHERE id = %s"
_ERASE: Final = """INSERT INTO {q}.gone (context, family, key) SELECT %s, %s, key FROM unnest(%s::bigint[]) AS key
    ON CONFLICT DO NOTHING"""
_DELETE: Final = "DELETE FROM {q}.record WHERE context = %s AND family = %s AND key = ANY(%s::bigint[])"
_REWRITE: Final = "UPDATE {q}.record SET value = %s WHERE context = %s AND family = %s AND key = %s"
_DROPPED: Final = """SELECT DISTINCT origin FROM {q}.shared
    WHERE NOT EXISTS (SELECT 1 FROM {q}.context WHERE context.id = origin)"""
_SHARED_FAMILIES: Final[dict[int, Family]] = {CODES[family]: family for family in IMMUTABLE}
_RELATED: Final = """WITH RECURSIVE related AS (
        SELECT unnest(%s::bigint[]) AS id UNION SELECT shared.id FROM related JOIN {q}.shared ON origin = related.id)
    SELECT id, EXISTS (SELECT 1 FROM {q}.context WHERE context.id = related.id) FROM related"""
_GONE: Final = "SELECT context, family, key FROM {q}.gone WHERE context = ANY(%s::bigint[])"
_UNERASE: Final = "DELETE FROM {q}.gone WHERE context = ANY(%s::bigint[]) AND family = %s AND key = %s"


class ForkSharing(ForkLineage):
    """The shared records of the contexts in one schema."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._sql = session.sql
        self._lines: dict[int, Lineage] = {}

    def lineage(self, number: int) -> Lineage:
        line = self._lines.get(number)
        if line is None:
            line = make_lineage(self._session.read(_LINE, (number,)))
            self._remember(number, line)
        return line

    def add_origin(self, number: int) -> None:
        """Remember a context that is no fork, so that its lineage is not read."""
        self._remember(number, ())

    def _remember(self, number: int, line: Lineage) -> None:
        if len(self._lines) > _MAX_LINES:
            self._lines.clear()
        self._lines[number] = line

    # The methods below run in a transaction that has locked the head of the context.

    def add(self, db: "Db", number: int, origin: int, below: Mapping[Family, int]) -> None:
        """Copy the mutable records of the origin to a new context, and store what the two share."""
        limits = [min(below.get(family, MAX_KEY + 1), MAX_KEY + 1) for family in _COPIED]
        db.execute(self._sql(_COPY), (number, [CODES[family] for family in _COPIED], limits, origin))
        ends = {family: min(self._end_of(db, origin, family), below.get(family, MAX_KEY + 1)) for family in IMMUTABLE}
        db.execute(self._sql(_SHARE), (number, origin, ends[BODY], ends[MESSAGE]))
        families = [CODES[family] for family in ends]
        db.execute(self._sql(_COPY_GONE), (number, families, list(ends.values()), origin))

    def erase(self, db: "Db", number: int, erased: Sequence[tuple[Family, int]]) -> None:
        """Remove records of immutable families from this context. Other contexts that share them still read them."""
        db.execute(self._sql(_LOCK_LINE), (number,))
        for family in sorted({family for family, _ in erased}):
            bound = self._bound(db, number, family)
            keys = [key for each, key in erased if each == family]
            shared = [key for key in keys if key < bound]
            if shared:
                db.execute(self._sql(_ERASE), (number, CODES[family], shared))
            db.execute(self._sql(_DELETE), (number, CODES[family], [key for key in keys if key >= bound]))

    def rewrite(self, db: "Db", number: int, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Give immutable records of dropped origins new values, for all forks that share them.

        An origin that still exists changes its records itself.
        """
        for code, key, value in rows:
            owner = self.owner(number, _SHARED_FAMILIES[code], key)
            if owner != number and not db.execute(self._sql(_IS_NAMED), (owner,)).fetchone():
                db.execute(self._sql(_LOCK_LINE), (owner,))
                db.execute(self._sql(_REWRITE), (value, owner, code, key))

    def clear(self, db: "Db", number: int) -> None:
        """Remove all records of a dropped context, except those that forks still read."""
        for sql in CLEAR_SEARCH:
            db.execute(self._sql(sql), (number,))
        while True:
            db.execute(self._sql(_LOCK_LINE), (number,))
            body, message, readers = db.execute(self._sql(_LENT), (number,)).fetchall()[0]
            db.execute(self._sql(_CLEAR), (number, CODES[BODY], body, CODES[MESSAGE], message))
            db.execute(self._sql(CLEAR_GONE), (number,))
            if readers:
                return
            origin = db.execute(self._sql(_LEAVE), (number,)).fetchone()
            if origin is None:
                return
            number = origin[0]
            db.execute(self._sql(_LOCK_LINE), (number,))  # before the check: a concurrent drop has ended, or waits
            if db.execute(self._sql(_IS_NAMED), (number,)).fetchone():
                self._sweep(db, number)
                return

    def sweep_unread(self, db: "Db", numbers: Sequence[int]) -> None:
        """Remove immutable records that were deleted in every context that shares them.

        It looks at records of these contexts, of their origins and forks, and of dropped contexts.
        """
        roots = [line[-1][0] if (line := self.lineage(number)) else number for number in numbers]
        roots += [row[0] for row in db.execute(self._sql(_DROPPED)).fetchall()]
        related = db.execute(self._sql(_RELATED), (roots,)).fetchall()
        named = [number for number, is_named in related if is_named]
        gone: dict[tuple[int, int, int], list[int]] = {}
        for number, code, key in db.execute(self._sql(_GONE), (named,)).fetchall():
            gone.setdefault((self.owner(number, _SHARED_FAMILIES[code], key), code, key), []).append(number)
        for (owner, code, key), erased in gone.items():
            if all(number in erased for number in named if self.owner(number, _SHARED_FAMILIES[code], key) == owner):
                db.execute(self._sql(_LOCK_LINE), (owner,))
                db.execute(self._sql(_DELETE), (owner, code, [key]))
                db.execute(self._sql(_UNERASE), (erased, code, key))

    def _sweep(self, db: "Db", number: int) -> None:
        """Remove the records that a context has deleted and that no fork reads any more."""
        for family in sorted(IMMUTABLE):
            code, bound = CODES[family], self._bound(db, number, family)
            db.execute(self._sql(_SWEEP), (number, code, bound, number, code))

    def _end_of(self, db: "Db", number: int, family: Family) -> int:
        sql = self._sql(_END_OF).replace("{family}", family)
        return int(db.execute(sql, (number, CODES[family], number)).fetchall()[0][0])

    def _bound(self, db: "Db", number: int, family: Family) -> int:
        sql = self._sql(_BOUNDS).replace("{family}", family)
        return int(db.execute(sql, (number, number)).fetchall()[0][0])
