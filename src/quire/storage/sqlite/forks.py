"""What forked contexts of one SQLite file share: immutable records stay with the context that wrote them.

A fork has a row (its number, its origin's number, and per immutable family the key below which records are the
origin's). A context that was dropped while forks still read from it leaves its immutable rows and its own `shared`
row behind, under a number that no name leads to; the last fork to go takes them along. A record that is deleted in one
context while others read it is noted as gone for that context alone.
"""

from collections.abc import Iterator

import apsw

from quire.storage.base import FAMILIES, IMMUTABLE, KEY_BITS, MAX_KEY, Family
from quire.storage.forks import Line, Lines, line_of
from quire.storage.sqlite.schema import CLEAR, CLEAR_GONE, COPY_GONE, DELETE, ERASE, SWEEP, shared_of


class Shares(Lines):
    """Who reads what from whom. Every call is made with the storage's lock held."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._lines: dict[int, Line] = {}

    def add(self, number: int, origin: int, below: dict[Family, int]) -> None:
        """Note that a new context shares with another. Inside the transaction that makes it."""
        self._db.execute(
            "INSERT INTO shared (id, origin, body, message) VALUES (?, ?, ?, ?)",
            (number, origin, below["body"], below["message"]),
        )
        for family, sql in COPY_GONE.items():
            self._db.execute(sql, {"source": origin, "target": number, "last": below[family] - 1})

    def load(self, number: int) -> None:
        """Look up before a transaction what is not remembered inside one."""
        self.line(number)

    def delete(self, number: int, family: Family, key: int) -> None:
        """Remove a record of an immutable family from this context; whoever else reads it goes on reading it."""
        sql = (ERASE if key < self._end_of_shared(number, family) else DELETE)[family]
        self._db.execute(sql, (number << KEY_BITS | key,))

    def end_of(self, number: int, family: Family) -> int:
        """One above the largest key that a context has in an immutable family, its own or shared."""
        base = number << KEY_BITS
        last = self._db.execute(f"SELECT max(id) FROM {family} WHERE id BETWEEN ? AND ?", (base, base | MAX_KEY)).get
        return max(0 if last is None else (last & MAX_KEY) + 1, self._borrowed(number, family))

    def clear(self, number: int) -> None:
        """Remove all rows of a context whose name is gone, but those that forks still read."""
        while True:
            base = number << KEY_BITS
            for family in FAMILIES:
                lent = self._lent(number, family) if family in IMMUTABLE else 0
                self._db.execute(CLEAR[family], (base + lent, base | MAX_KEY))
            for family in IMMUTABLE:
                self._db.execute(CLEAR_GONE[family], (base, base | MAX_KEY))
            if self._db.execute("SELECT 1 FROM shared WHERE origin = ? LIMIT 1", (number,)).get:
                return
            self._lines.pop(number, None)
            origin = self._db.execute("DELETE FROM shared WHERE id = ? RETURNING origin", (number,)).get
            if origin is None:
                return
            if self._db.execute("SELECT 1 FROM context WHERE id = ?", (origin,)).get:
                self._sweep(origin)
                return
            number = origin

    def sweep_unread(self) -> None:
        """Remove every row of an immutable family that was deleted in all contexts that read it."""
        named = {row[0] for row in self._db.execute("SELECT id FROM context")}
        origins: dict[int, int] = {row[0]: row[1] for row in self._db.execute("SELECT id, origin FROM shared")}
        forks: dict[int, set[int]] = {}
        for number in named & origins.keys():
            at = number
            while at in origins:
                at = origins[at]
                forks.setdefault(at, set()).add(number)
        for family in IMMUTABLE:
            gone: dict[tuple[int, int], set[int]] = {}
            rows: list[int] = [row[0] for row in self._db.execute(f"SELECT id FROM gone_{family}")]
            for row in rows:
                number, key = row >> KEY_BITS, row & MAX_KEY
                gone.setdefault((self.owner(number, family, key), key), set()).add(number)
            for (owner, key), numbers in gone.items():
                near = forks.get(owner, set()) | ({owner} & named)
                if all(number in numbers for number in near if self.owner(number, family, key) == owner):
                    self._db.execute(DELETE[family], (owner << KEY_BITS | key,))
                    unmark = f"DELETE FROM gone_{family} WHERE id = ?"
                    self._db.executemany(unmark, [(number << KEY_BITS | key,) for number in numbers])

    def _sweep(self, number: int) -> None:
        """Remove the rows that a context had deleted and that no fork reads any more."""
        base = number << KEY_BITS
        for family in IMMUTABLE:
            unshared = (base + self._end_of_shared(number, family), base | MAX_KEY)
            self._db.execute(SWEEP[family], unshared)
            self._db.execute(CLEAR_GONE[family], unshared)

    def _end_of_shared(self, number: int, family: Family) -> int:
        return max(self._lent(number, family), self._borrowed(number, family))

    def _lent(self, number: int, family: Family) -> int:
        """The key below which forks read this context's rows of an immutable family."""
        return int(self._db.execute(f"SELECT max({family}) FROM shared WHERE origin = ?", (number,)).get or 0)

    def _borrowed(self, number: int, family: Family) -> int:
        """The key below which this context reads the rows of its origin."""
        return int(self._db.execute(f"SELECT {family} FROM shared WHERE id = ?", (number,)).get or 0)

    def line(self, number: int) -> Line:
        line = self._lines.get(number)
        if line is None:
            line = line_of(self._origins(number))
            if not self._db.in_transaction:  # what is seen inside one may yet be rolled back
                self._lines[number] = line
        return line

    def _origins(self, number: int) -> Iterator[tuple[int, int, int]]:
        while row := self._db.execute("SELECT origin, body, message FROM shared WHERE id = ?", (number,)).fetchone():
            found = shared_of(number, row)
            yield found
            number = found[0]
