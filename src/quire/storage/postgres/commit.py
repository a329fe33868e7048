"""Builds a commit as one statement. It checks the version and moves the head; only then do its writes apply.

One statement is one round trip and one transaction. Several writes to one record are merged into one before they are
sent, so the order of writes does not matter to the server.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from quire.errors import InvalidValue, short_repr
from quire.storage.base import FAMILIES, IMMUTABLE, Commit, Family, Patch, Put, Write
from quire.storage.postgres.schema import CODES

_MAX_INLINE_ROWS = 24
"""Up to this number, rows are parameters of their own, which PostgreSQL plans and runs faster than arrays."""
_MAX_BYTES = 64 << 20
_MAX_ROWS = 20_000
"""Larger commits become several statements in one transaction: PostgreSQL rejects messages above one gigabyte."""

_LIMITS: Final = "limits AS MATERIALIZED (SELECT set_config('lock_timeout', %s, true) AS lock{full})"
_FULL: Final = ", set_config('synchronous_commit', 'on', true) AS sync"
_CREATE: Final = """moved AS (INSERT INTO {q}.context (tenant, name, version, head, commit_id)
    SELECT %s, %s, %s::bigint, %b::bytea, %b::bytea{limited}
    ON CONFLICT DO NOTHING RETURNING id)"""
_MOVE: Final = """moved AS (UPDATE {q}.context SET version = %s, head = %b, commit_id = %b{limited}
    tenant = %s AND name = %s AND version = %s{seen} RETURNING id)"""
_MOVED: Final = "moved AS (SELECT id FROM {q}.context WHERE tenant = %s AND name = %s AND commit_id = %b)"
"""The context, if this commit moved its head earlier in the same transaction."""
_PUT: Final = """put AS (INSERT INTO {q}.record (context, family, key, grp, ord, value)
    SELECT id, new.family, new.key, nullif(new.grp, -1), new.ord, new.value FROM moved, {rows}
    ON CONFLICT (context, family, key) DO UPDATE SET grp = excluded.grp, ord = excluded.ord, value = excluded.value)"""
_PATCH: Final = """patched AS (UPDATE {q}.record SET value = new.value FROM moved, {rows}
    WHERE record.context = moved.id AND record.family = new.family AND record.key = new.key)"""
_DELETE: Final = """deleted AS (DELETE FROM {q}.record USING moved, {rows}
    WHERE record.context = moved.id AND record.family = new.family AND record.key = new.key)"""
_TYPES: Final = {"family": "smallint", "key": "bigint", "grp": "bigint", "ord": "bytea", "value": "bytea"}

_IMMUTABLE_CODES: Final = frozenset(CODES[family] for family in IMMUTABLE)

Row = tuple[Any, ...]
Sql = tuple[str, list[Any]]
"""A statement and its values."""


class Changes(Struct):
    """The merged writes of a commit: rows to put, values to patch, records to delete, immutable records to erase."""

    puts: list[Row]
    patches: list[Row]
    deletes: list[Row]
    erased: list[tuple[Family, int]]

    @property
    def size(self) -> int:
        return sum(len(row[3]) + len(row[4]) for row in self.puts) + sum(len(row[2]) for row in self.patches)

    @property
    def rewritten(self) -> list[Row]:
        """The patches of immutable records, which may belong to a dropped context."""
        return [row for row in self.patches if row[0] in _IMMUTABLE_CODES]

    @property
    def rows(self) -> int:
        return len(self.puts) + len(self.patches) + len(self.deletes)


def merge_writes(writes: Sequence[Write]) -> Changes:
    """Return the net effect of writes applied in order. Raises `InvalidValue` for an unknown family."""
    last: dict[tuple[Family, int], Write] = {}
    for write in writes:
        record = (write.family, write.key)
        before = last.get(record)
        if not isinstance(write, Patch) or before is None or isinstance(before, Patch):
            last[record] = write
        elif isinstance(before, Put):
            last[record] = Put(write.family, write.key, write.value, before.group, before.order)
    changes = Changes([], [], [], [])
    for write in last.values():
        code = CODES.get(write.family)
        if code is None:
            raise InvalidValue(f"is {short_repr(write.family)}; use one of {', '.join(FAMILIES)}.", argument="family")
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


class CommitBuilder:
    """Builds the statements of commits for one tenant of one schema."""

    def __init__(self, schema: str, tenant: str, lock_milliseconds: int, *, full: bool) -> None:
        self._schema = schema
        self._tenant = tenant
        self._full = full
        self._limits = _LIMITS.replace("{full}", _FULL if full else "")
        self._patience = str(lock_milliseconds)

    def statements(
        self, context: str, commit: Commit, commit_id: bytes, changes: Changes, *, limited: bool = True
    ) -> Iterator[Sql]:
        """Yield the statements of a commit. The first one returns the context's number, or no row on a conflict.

        With `limited`, it sets a lock timeout, for connections that have none.
        """
        head, values = self._head(context, commit, commit_id, limited or self._full)
        if changes.rows <= _MAX_ROWS and changes.size <= _MAX_BYTES:
            yield self._statement(head, values, changes)
            return
        yield self._statement(head, values, Changes([], [], [], []))
        yield from self.parts(context, commit_id, changes)

    def parts(self, context: str, commit_id: bytes, changes: Changes) -> Iterator[Sql]:
        """Yield the writes without the head, which this commit moved earlier in the same transaction."""
        for part in _split(changes):
            yield self._statement(_MOVED, [self._tenant, context, commit_id], part)

    def _head(self, context: str, commit: Commit, commit_id: bytes, limited: bool) -> tuple[str, list[Any]]:
        values: list[Any] = [self._patience] if limited else []
        limits = self._limits if limited else ""
        if commit.expect == 0:
            return _create(limits), [*values, self._tenant, context, commit.version, commit.head, commit_id]
        values += commit.version, commit.head, commit_id, self._tenant, context, commit.expect
        if commit.seen:
            values.append(commit.seen)
        return _move(limits, bool(commit.seen)), values

    def _statement(self, head: str, values: list[Any], changes: Changes) -> Sql:
        tables = (changes.puts, changes.patches, changes.deletes)
        parameters = list(values)
        for rows in tables:
            if len(rows) <= _MAX_INLINE_ROWS:
                for row in rows:
                    parameters += row
            else:
                parameters += map(list, zip(*rows, strict=True))
        counts = (min(len(rows), _MAX_INLINE_ROWS + 1) for rows in tables)
        return _build_text(head, self._schema, *counts), parameters


@lru_cache
def _create(limits: str) -> str:
    created = _CREATE.replace("{limited}", " FROM limits WHERE lock IS NOT NULL" if limits else "")
    return f"{limits}, {created}" if limits else created


@lru_cache
def _move(limits: str, seen: bool) -> str:
    limited = " FROM limits WHERE lock IS NOT NULL AND" if limits else " WHERE"
    moved = _MOVE.replace("{limited}", limited).replace("{seen}", " AND head = %b" if seen else "")
    return f"{limits}, {moved}" if limits else moved


@lru_cache(maxsize=256)
def _build_text(head: str, schema: str, puts: int, patches: int, deletes: int) -> str:
    """Return a statement with this many rows of each kind; `_MAX_INLINE_ROWS + 1` means arrays of any length."""
    parts = [head]
    for sql, names, count in (
        (_PUT, ("family", "key", "grp", "ord", "value"), puts),
        (_PATCH, ("family", "key", "value"), patches),
        (_DELETE, ("family", "key"), deletes),
    ):
        if count:
            parts.append(sql.replace("{rows}", _rows_table(names, count)))
    return f"WITH {', '.join(parts)} SELECT id FROM moved".replace("{q}", schema)


def _rows_table(names: tuple[str, ...], count: int) -> str:
    """Return the SQL of a table `new` with the rows, inline or from arrays."""
    columns = ", ".join(names)
    if count > _MAX_INLINE_ROWS:
        arrays = ", ".join(f"%b::{_TYPES[name]}[]" for name in names)
        return f"unnest({arrays}) AS new ({columns})"
    first = ", ".join(f"%b::{_TYPES[name]}" for name in names)
    return f"(VALUES {', '.join([f'({first})'] * count)}) AS new ({columns})"


def _split(changes: Changes) -> Iterator[Changes]:
    """Yield the same changes in parts that fit one statement each."""
    part, size = Changes([], [], [], []), 0
    for kind, rows in (("puts", changes.puts), ("patches", changes.patches), ("deletes", changes.deletes)):
        for row in rows:
            getattr(part, kind).append(row)
            size += sum(len(value) for value in row if isinstance(value, bytes))
            if part.rows >= _MAX_ROWS or size >= _MAX_BYTES:
                yield part
                part, size = Changes([], [], [], []), 0
    if part.rows:
        yield part
