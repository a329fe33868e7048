"""Shared records of forks in one SQLite file: immutable records stay with the context that wrote them.

A fork has a row in `shared`: its number, the number of its origin and, per immutable family, the key below which it
reads the records of the origin. If a context is dropped while forks still read from it, its immutable rows and its own
`shared` row stay, under a number without a name. The last fork that is dropped removes them. A record that is deleted
in one context while others read it is marked as gone for that context only.
"""

from collections.abc import Iterator

import apsw

from quire.storage.base import FAMILIES, IMMUTABLE, KEY_BITS, MAX_KEY, Family
from quire.storage.forks import ForkLineage, Lineage, make_lineage
from quire.storage.sqlite.schema import CLEAR, CLEAR_GONE, COPY_GONE, DELETE, ERASE, SWEEP, shared_of


class ForkSharing(ForkLineage):
    """The origins and forks of all contexts. Callers hold the lock of the storage."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._lineages: dict[int, Lineage] = {}

    def add(self, number: int, origin: int, below: dict[Family, int]) -> None:
        """Record that a new context shares records with another, in the transaction that creates it."""
        self._db.execute(
            "INSERT INTO shared (id, origin, body, message) VALUES (?, ?, ?, ?)",
            (number, origin, below["body"], below["message"]),
        )
        for family, sql in COPY_GONE.items():
            self._db.execute(sql, {"source": origin, "target": number, "last": below[family] - 1})

    def delete(self, number: int, family: Family, key: int) -> None:
        """Remove a record of an immutable family from this context. Other contexts still read it."""
        sql = (ERASE if key < self._end_of_shared(number, family) else DELETE)[family]
        self._db.execute(sql, (number << KEY_BITS | key,))

    def patched(self, number: int, family: Family, key: int) -> int:
        """Return the context that owns the row of a patch: this context, or a dropped origin (then for all its forks).

        An origin that still exists changes its rows itself.
        """
        owner = self.owner(number, family, key)
        is_named = owner == number or self._db.execute("SELECT 1 FROM context WHERE id = ?", (owner,)).get
        return number if is_named else owner

    def end_of(self, number: int, family: Family) -> int:
        """Return one above the largest key of a context in an immutable family, own or shared."""
        base = number << KEY_BITS
        last = self._db.execute(f"SELECT max(id) FROM {family} WHERE id BETWEEN ? AND ?", (base, base | MAX_KEY)).get
        return max(0 if last is None else (last & MAX_KEY) + 1, self._borrowed_end(number, family))

    def clear(self, number: int) -> None:
        """Remove all rows of a context without a name, except those that forks still read."""
        while True:
            base = number << KEY_BITS
            for family in FAMILIES:
                lent = self._lent_end(number, family) if family in IMMUTABLE else 0
                self._db.execute(CLEAR[family], (base + lent, base | MAX_KEY))
            for family in IMMUTABLE:
                self._db.execute(CLEAR_GONE[family], (base, base | MAX_KEY))
            if self._db.execute("SELECT 1 FROM shared WHERE origin = ? LIMIT 1", (number,)).get:
                return
            self._lineages.pop(number, None)
            origin = self._db.execute("DELETE FROM shared WHERE id = ? RETURNING origin", (number,)).get
            if origin is None:
                return
            if self._db.execute("SELECT 1 FROM context WHERE id = ?", (origin,)).get:
                self._sweep(origin)
                return
            number = origin

    def sweep_unread(self) -> None:
        """Remove all rows of immutable families that were deleted in every context that reads them."""
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
        """Remove the rows that a context deleted and that no fork reads any more."""
        base = number << KEY_BITS
        for family in IMMUTABLE:
            unshared = (base + self._end_of_shared(number, family), base | MAX_KEY)
            self._db.execute(SWEEP[family], unshared)
            self._db.execute(CLEAR_GONE[family], unshared)

    def _end_of_shared(self, number: int, family: Family) -> int:
        return max(self._lent_end(number, family), self._borrowed_end(number, family))

    def _lent_end(self, number: int, family: Family) -> int:
        """Return the key below which forks read rows of this context."""
        return int(self._db.execute(f"SELECT max({family}) FROM shared WHERE origin = ?", (number,)).get or 0)

    def _borrowed_end(self, number: int, family: Family) -> int:
        """Return the key below which this context reads rows of its origin."""
        return int(self._db.execute(f"SELECT {family} FROM shared WHERE id = ?", (number,)).get or 0)

    def add_origin(self, number: int) -> None:
        """Remember a new context, which is no fork, so that its lineage is not read."""
        self._lineages[number] = ()

    def lineage(self, number: int) -> Lineage:
        lineage = self._lineages.get(number)
        if lineage is None:
            lineage = make_lineage(self._origins(number))
            if not self._db.in_transaction:  # a row read inside a transaction may be rolled back
                self._lineages[number] = lineage
        return lineage

    def _origins(self, number: int) -> Iterator[tuple[int, int, int]]:
        while row := self._db.execute("SELECT origin, body, message FROM shared WHERE id = ?", (number,)).fetchone():
            found = shared_of(number, row)
            yield found
            number = found[0]
