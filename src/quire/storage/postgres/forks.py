"""What forked contexts of one database share: immutable records stay with the context that wrote them.

As in SQLite (`storage.sqlite.forks`): a fork has a row with its origin's number and, per immutable family, the key
below which records are the origin's. That row never changes, so who reads from whom is remembered. A context that is
dropped while forks read from it leaves its immutable records under a number that no name leads to; the last fork to go
takes them along. A record deleted in one context while others read it is noted as gone for that context alone.

Whoever takes records away from a line holds that context's lock till the end of the transaction, children before their
origins, so two who leave at once never both leave the rest to the other.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from quire.storage.base import BODY, IMMUTABLE, MAX_KEY, MESSAGE, Family
from quire.storage.forks import Line, Lines, line_of
from quire.storage.postgres.schema import (
    BOUNDS,
    CLEAR,
    CLEAR_GONE,
    CLEAR_SEARCH,
    CODES,
    COPIED,
    COPY,
    COPY_GONE,
    END_OF,
    IS_NAMED,
    LEAVE,
    LENT,
    LINE,
    LOCK_LINE,
    SHARE,
    SWEEP,
)

if TYPE_CHECKING:
    from quire.storage.postgres.connection import Db, Session

_MOST_LINES = 50_000
_ERASE = """INSERT INTO {q}.gone (context, family, key) SELECT %s, %s, key FROM unnest(%s::bigint[]) AS key
    ON CONFLICT DO NOTHING"""
_DELETE = "DELETE FROM {q}.record WHERE context = %s AND family = %s AND key = ANY(%s::bigint[])"
_RELATED = """WITH RECURSIVE related AS (
        SELECT unnest(%s::bigint[]) AS id UNION SELECT shared.id FROM related JOIN {q}.shared ON origin = related.id)
    SELECT id, EXISTS (SELECT 1 FROM {q}.context WHERE context.id = related.id) FROM related"""
_GONE = "SELECT context, family, key FROM {q}.gone WHERE context = ANY(%s::bigint[])"
_UNERASE = "DELETE FROM {q}.gone WHERE context = ANY(%s::bigint[]) AND family = %s AND key = %s"


class Shares(Lines):
    """Who reads what from whom."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._sql = session.sql
        self._lines: dict[int, Line] = {}

    def line(self, number: int) -> Line:
        line = self._lines.get(number)
        if line is None:
            line = line_of(self._session.read(LINE, (number,)))
            if len(self._lines) > _MOST_LINES:
                self._lines.clear()
            self._lines[number] = line
        return line

    # Inside a transaction that holds the context's head

    def add(self, db: "Db", number: int, origin: int, below: Mapping[Family, int]) -> None:
        """Copy what a new context takes from another, and note what it shares with it."""
        taken = [min(below.get(family, MAX_KEY + 1), MAX_KEY + 1) for family in COPIED]
        db.execute(self._sql(COPY), (number, [CODES[family] for family in COPIED], taken, origin))
        ends = {family: min(self._end_of(db, origin, family), below.get(family, MAX_KEY + 1)) for family in IMMUTABLE}
        db.execute(self._sql(SHARE), (number, origin, ends[BODY], ends[MESSAGE]))
        families = [CODES[family] for family in ends]
        db.execute(self._sql(COPY_GONE), (number, families, list(ends.values()), origin))

    def erase(self, db: "Db", number: int, erased: Sequence[tuple[Family, int]]) -> None:
        """Remove records of immutable families from this context; whoever else reads them goes on reading them."""
        db.execute(self._sql(LOCK_LINE), (number,))
        for family in sorted({family for family, _ in erased}):
            bound = self._bound(db, number, family)
            keys = [key for of, key in erased if of == family]
            shared = [key for key in keys if key < bound]
            if shared:
                db.execute(self._sql(_ERASE), (number, CODES[family], shared))
            db.execute(self._sql(_DELETE), (number, CODES[family], [key for key in keys if key >= bound]))

    def clear(self, db: "Db", number: int) -> None:
        """Remove all records of a context whose name is gone, but those that forks still read."""
        for sql in CLEAR_SEARCH:
            db.execute(self._sql(sql), (number,))
        while True:
            db.execute(self._sql(LOCK_LINE), (number,))
            body, message, readers = _one(db.execute(self._sql(LENT), (number,)).fetchone())
            db.execute(self._sql(CLEAR), (number, CODES[BODY], body, CODES[MESSAGE], message))
            db.execute(self._sql(CLEAR_GONE), (number,))
            if readers:
                return
            origin = db.execute(self._sql(LEAVE), (number,)).fetchone()
            if origin is None:
                return
            number = origin[0]
            db.execute(self._sql(LOCK_LINE), (number,))  # before the look: whoever drops it now is through, or will see
            if db.execute(self._sql(IS_NAMED), (number,)).fetchone():
                self._sweep(db, number)
                return

    def sweep_unread(self, db: "Db", numbers: Sequence[int]) -> None:
        """Remove every immutable record that was deleted in all contexts that read it, among those related to these."""
        roots = [line[-1][0] if (line := self.line(number)) else number for number in numbers]
        related = db.execute(self._sql(_RELATED), (roots,)).fetchall()
        named = [number for number, is_named in related if is_named]
        families = {CODES[family]: family for family in IMMUTABLE}
        gone: dict[tuple[int, int, int], list[int]] = {}
        for number, code, key in db.execute(self._sql(_GONE), (named,)).fetchall():
            gone.setdefault((self.owner(number, families[code], key), code, key), []).append(number)
        for (owner, code, key), erased in gone.items():
            if all(number in erased for number in named if self.owner(number, families[code], key) == owner):
                db.execute(self._sql(LOCK_LINE), (owner,))
                db.execute(self._sql(_DELETE), (owner, code, [key]))
                db.execute(self._sql(_UNERASE), (erased, code, key))

    def _sweep(self, db: "Db", number: int) -> None:
        """Remove the records that a context had deleted and that no fork reads any more."""
        for family in sorted(IMMUTABLE):
            code, bound = CODES[family], self._bound(db, number, family)
            db.execute(self._sql(SWEEP), (number, code, bound, number, code))

    def _end_of(self, db: "Db", number: int, family: Family) -> int:
        """One above the largest key that a context has in an immutable family, its own or shared."""
        own = _one(db.execute(self._sql(END_OF), (number, CODES[family])).fetchone())[0]
        borrowed = [row[0] for row in db.execute(self._sql(_BORROWED[family]), (number,)).fetchall()]
        return int(max([own, *borrowed]))

    def _bound(self, db: "Db", number: int, family: Family) -> int:
        sql = self._sql(BOUNDS).replace("{family}", family)
        return int(_one(db.execute(sql, (number, number)).fetchone())[0])


_BORROWED = {family: f"SELECT {family} FROM {{q}}.shared WHERE id = %s" for family in IMMUTABLE}


def _one(row: tuple[int, ...] | None) -> tuple[int, ...]:
    return row or (0, 0, 0)
