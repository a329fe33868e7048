"""A commit as one statement: the head moves if it is where the writer saw it, and only then everything else happens.

One statement is one round trip and one transaction. Of several writes to one record only what they come to is sent, so
their order does not matter any more.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from quire.errors import InvalidValue, short_repr
from quire.storage.base import FAMILIES, IMMUTABLE, Commit, Family, Patch, Put, Write
from quire.storage.postgres.schema import CODES

_FEW = 24
"""So many rows are spelled out, which PostgreSQL plans and runs faster; more go as arrays."""
_MOST_BYTES = 64 << 20
_MOST_ROWS = 20_000
"""A statement larger than this is several in one transaction: PostgreSQL takes no message of more than a gigabyte."""

_LIMITS: Final = "limits AS MATERIALIZED (SELECT set_config('lock_timeout', %s, true) AS lock{full})"
_FULL: Final = ", set_config('synchronous_commit', 'on', true) AS sync"
_CREATE: Final = """moved AS (INSERT INTO {q}.context (tenant, name, version, head, commit_id)
    SELECT %s, %s, %s::bigint, %b::bytea, %b::bytea{limited}
    ON CONFLICT DO NOTHING RETURNING id)"""
_MOVE: Final = """moved AS (UPDATE {q}.context SET version = %s, head = %b, commit_id = %b{limited}
    tenant = %s AND name = %s AND version = %s{seen} RETURNING id)"""
_MINE: Final = "moved AS (SELECT id FROM {q}.context WHERE tenant = %s AND name = %s AND commit_id = %b)"
"""The context, if this very commit moved its head before in the same transaction."""
_PUT: Final = """put AS (INSERT INTO {q}.record (context, family, key, grp, ord, value)
    SELECT id, new.family, new.key, nullif(new.grp, -1), new.ord, new.value FROM moved, {rows}
    ON CONFLICT (context, family, key) DO UPDATE SET grp = excluded.grp, ord = excluded.ord, value = excluded.value)"""
_PATCH: Final = """patched AS (UPDATE {q}.record SET value = new.value FROM moved, {rows}
    WHERE record.context = moved.id AND record.family = new.family AND record.key = new.key)"""
_DELETE: Final = """deleted AS (DELETE FROM {q}.record USING moved, {rows}
    WHERE record.context = moved.id AND record.family = new.family AND record.key = new.key)"""
_TYPES: Final = {"family": "smallint", "key": "bigint", "grp": "bigint", "ord": "bytea", "value": "bytea"}

Row = tuple[Any, ...]
Sql = tuple[str, list[Any]]
"""A statement and its values."""


class Changes(Struct):
    """What a commit's writes come to: rows to put, values to patch, records to delete, and shared ones to let go of."""

    puts: list[Row]
    patches: list[Row]
    deletes: list[Row]
    erased: list[tuple[Family, int]]

    @property
    def size(self) -> int:
        return sum(len(row[3]) + len(row[4]) for row in self.puts) + sum(len(row[2]) for row in self.patches)

    @property
    def rows(self) -> int:
        return len(self.puts) + len(self.patches) + len(self.deletes)


def changes_of(writes: Sequence[Write]) -> Changes:
    """What the writes come to, applied in their order. Raises `InvalidValue` for a family that is none."""
    last: dict[tuple[Family, int], Write] = {}
    for write in writes:
        place = (write.family, write.key)
        before = last.get(place)
        if not isinstance(write, Patch) or before is None or isinstance(before, Patch):
            last[place] = write
        elif isinstance(before, Put):
            last[place] = Put(write.family, write.key, write.value, before.group, before.order)
    changes = Changes([], [], [], [])
    for write in last.values():
        code = CODES.get(write.family)
        if code is None:
            raise InvalidValue(f"Family {short_repr(write.family)} is not one of {', '.join(FAMILIES)}.")
        if isinstance(write, Put):
            group = -1 if write.group is None else write.group
            changes.puts.append((code, write.key, group, write.order, write.value))
        elif isinstance(write, Patch):
            changes.patches.append((code, write.key, write.value))
        elif write.family in IMMUTABLE:
            changes.erased.append((write.family, write.key))
        else:
            changes.deletes.append((code, write.key))
    return changes


class Writer:
    """Makes statements for one tenant of one schema."""

    def __init__(self, schema: str, tenant: str, lock_milliseconds: int, *, full: bool) -> None:
        self._schema = schema
        self._tenant = tenant
        self._full = full
        self._limits = _LIMITS.replace("{full}", _FULL if full else "")
        self._patience = str(lock_milliseconds)

    def statements(
        self, context: str, commit: Commit, commit_id: bytes, changes: Changes, *, limited: bool = True
    ) -> Iterator[Sql]:
        """The commit; the first statement moves the head and gives its number, or no row if it is elsewhere.

        `limited` has it set its own limits, on a connection that has none.
        """
        head, values = self._head(context, commit, commit_id, limited or self._full)
        if changes.rows <= _MOST_ROWS and changes.size <= _MOST_BYTES:
            yield self._with(head, values, changes)
            return
        yield self._with(head, values, Changes([], [], [], []))
        yield from self.parts(context, commit_id, changes)

    def parts(self, context: str, commit_id: bytes, changes: Changes) -> Iterator[Sql]:
        """The writes alone, for a head that this commit moved before in the same transaction."""
        for part in _parted(changes):
            yield self._with(_MINE, [self._tenant, context, commit_id], part)

    def _head(self, context: str, commit: Commit, commit_id: bytes, limited: bool) -> tuple[str, list[Any]]:
        values: list[Any] = [self._patience] if limited else []
        limits = self._limits if limited else ""
        if commit.expect == 0:
            return _create(limits), [*values, self._tenant, context, commit.version, commit.head, commit_id]
        values += commit.version, commit.head, commit_id, self._tenant, context, commit.expect
        if commit.seen:
            values.append(commit.seen)
        return _move(limits, bool(commit.seen)), values

    def _with(self, head: str, values: list[Any], changes: Changes) -> Sql:
        tables = (changes.puts, changes.patches, changes.deletes)
        more = list(values)
        for rows in tables:
            if len(rows) <= _FEW:
                for row in rows:
                    more += row
            else:
                more += map(list, zip(*rows, strict=True))
        return _text(head, self._schema, *(min(len(rows), _FEW + 1) for rows in tables)), more


@lru_cache
def _create(limits: str) -> str:
    made = _CREATE.replace("{limited}", " FROM limits WHERE lock IS NOT NULL" if limits else "")
    return f"{limits}, {made}" if limits else made


@lru_cache
def _move(limits: str, seen: bool) -> str:
    limited = " FROM limits WHERE lock IS NOT NULL AND" if limits else " WHERE"
    moved = _MOVE.replace("{limited}", limited).replace("{seen}", " AND head = %b" if seen else "")
    return f"{limits}, {moved}" if limits else moved


@lru_cache(maxsize=256)
def _text(head: str, schema: str, puts: int, patches: int, deletes: int) -> str:
    """A statement with so many rows of each kind; one row more than a few means an array of any length."""
    parts = [head]
    for sql, names, count in (
        (_PUT, ("family", "key", "grp", "ord", "value"), puts),
        (_PATCH, ("family", "key", "value"), patches),
        (_DELETE, ("family", "key"), deletes),
    ):
        if count:
            parts.append(sql.replace("{rows}", _rows(names, count)))
    return f"WITH {', '.join(parts)} SELECT id FROM moved".replace("{q}", schema)


def _rows(names: tuple[str, ...], count: int) -> str:
    """Rows as a table called `new`: spelled out, or as arrays if they are many."""
    columns = ", ".join(names)
    if count > _FEW:
        arrays = ", ".join(f"%b::{_TYPES[name]}[]" for name in names)
        return f"unnest({arrays}) AS new ({columns})"
    first = ", ".join(f"%b::{_TYPES[name]}" for name in names)
    return f"(VALUES {', '.join([f'({first})'] * count)}) AS new ({columns})"


def _parted(changes: Changes) -> Iterator[Changes]:
    """The same changes in portions of bearable size."""
    part, size = Changes([], [], [], []), 0
    for of, rows in (("puts", changes.puts), ("patches", changes.patches), ("deletes", changes.deletes)):
        for row in rows:
            getattr(part, of).append(row)
            size += sum(len(value) for value in row if isinstance(value, bytes))
            if part.rows >= _MOST_ROWS or size >= _MOST_BYTES:
                yield part
                part, size = Changes([], [], [], []), 0
    if part.rows:
        yield part
