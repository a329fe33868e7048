"""Builds a commit as one statement. It checks the version and moves the head. Its writes apply only if that succeeds.

One statement is one round trip and one transaction. Several writes to one record are merged into one before they are
sent, so the order of writes does not matter to the server.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from quire.storage.base import IMMUTABLE, Commit, Family, Patch, Put, Write, check_families
from quire.storage.postgres.schema import CODES
from quire.storage.postgres.statements import (
    ARRAYS,
    BYTEA,
    INT2,
    INT8,
    TEXT,
    Sql,
    Value,
    pack_array,
    pack_int2,
    pack_int8,
)

_MAX_INLINE_ROWS = 8
"""Up to this number, rows are parameters of their own, which PostgreSQL plans and runs faster than arrays."""
_MAX_BYTES = 64 << 20
_MAX_ROWS = 20_000
"""Larger commits become several statements in one transaction: PostgreSQL rejects messages above one gigabyte."""

# In these texts, `?` is the place of a value.
_LIMITS: Final = "limits AS MATERIALIZED (SELECT set_config('lock_timeout', ?, true) AS lock{full})"
_FULL: Final = ", set_config('synchronous_commit', 'on', true) AS sync"
_CREATE: Final = """moved AS (INSERT INTO {q}.context (tenant, name, version, head, commit_id)
    SELECT ?, ?, ?, ?, ?{limited}
    ON CONFLICT DO NOTHING RETURNING id)"""
_CREATE_TYPES: Final = (TEXT, TEXT, INT8, BYTEA, BYTEA)
_MOVE: Final = """moved AS (UPDATE {q}.context SET version = ?, head = ?, commit_id = ?{limited}
    tenant = ? AND name = ? AND version = ?{seen} RETURNING id)"""
_MOVE_TYPES: Final = (INT8, BYTEA, BYTEA, TEXT, TEXT, INT8)
_MOVED: Final = "moved AS (SELECT id FROM {q}.context WHERE tenant = ? AND name = ? AND commit_id = ?)"
"""The context, if this commit moved its head earlier in the same transaction."""
_MOVED_TYPES: Final = (TEXT, TEXT, BYTEA)
_PUT: Final = """put AS (INSERT INTO {q}.record (context, family, key, grp, ord, value)
    SELECT id, new.* FROM moved, {rows}{replace})"""
_REPLACE: Final = """
    ON CONFLICT (context, family, key) DO UPDATE SET grp = excluded.grp, ord = excluded.ord, value = excluded.value"""
_PATCH: Final = """patched AS (UPDATE {q}.record SET value = new.value FROM moved, {rows}
    WHERE record.context = moved.id AND record.family = new.family AND record.key = new.key)"""
_DELETE: Final = """deleted AS (DELETE FROM {q}.record USING moved, {rows}
    WHERE record.context = moved.id AND record.family = new.family AND record.key = new.key)"""
_COLUMNS: Final = {"family": INT2, "key": INT8, "grp": INT8, "ord": BYTEA, "value": BYTEA}
_NAMES: Final = {INT2: "smallint", INT8: "bigint", BYTEA: "bytea"}
_PACKED_CODES: Final = {code: pack_int2(code) for code in CODES.values()}

_IMMUTABLE_CODES: Final = frozenset(CODES[family] for family in IMMUTABLE)

Row = tuple[Any, ...]


class Changes(Struct):
    """The merged writes of a commit: rows to put, values to patch, records to delete, immutable records to erase."""

    puts: list[Row]
    patches: list[Row]
    deletes: list[Row]
    erased: list[tuple[Family, int]]
    is_new: bool = False
    """True if none of the put records exists yet. Then plain inserts are enough; they are faster."""

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
    check_families(writes)
    last: dict[tuple[Family, int], Write] = {}
    for write in writes:
        record = (write.family, write.key)
        before = last.get(record)
        if not isinstance(write, Patch) or before is None or isinstance(before, Patch):
            last[record] = write
        elif isinstance(before, Put):
            last[record] = Put(write.family, write.key, write.value, before.group, before.order, before.is_new)
    changes = Changes([], [], [], [], is_new=True)
    for write in last.values():
        code = CODES[write.family]
        if isinstance(write, Put):
            changes.puts.append((code, write.key, write.group, write.order, write.value))
            changes.is_new = changes.is_new and write.is_new
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
        self._tenant = tenant.encode()
        self._full = full
        self._limits = _LIMITS.replace("{full}", _FULL if full else "")
        self._patience = str(lock_milliseconds).encode()

    def statements(
        self, context: str, commit: Commit, commit_id: bytes, changes: Changes, *, limited: bool = True
    ) -> Iterator[Sql]:
        """Yield the statements of a commit. The first one returns the context's number, or no row on a conflict.

        With `limited`, it sets a lock timeout, for connections that have none.
        """
        limits = self._limits if limited or self._full else ""
        values: list[Value] = [self._patience] if limits else []
        if commit.expect == 0:
            head = _create(limits)
            values += self._tenant, context.encode(), pack_int8(commit.version), commit.head, commit_id
        else:
            head = _move(limits, bool(commit.seen))
            values += pack_int8(commit.version), commit.head, commit_id
            values += self._tenant, context.encode(), pack_int8(commit.expect)
            if commit.seen:
                values.append(commit.seen)
        if changes.rows <= _MAX_ROWS and changes.size <= _MAX_BYTES:
            yield self._statement(head, values, changes)
            return
        yield self._statement(head, values, Changes([], [], [], []))
        yield from self.parts(context, commit_id, changes)

    def parts(self, context: str, commit_id: bytes, changes: Changes) -> Iterator[Sql]:
        """Yield statements for the writes only. An earlier statement of the same transaction moved the head."""
        for part in _split(changes):
            yield self._statement((_MOVED, _MOVED_TYPES), [self._tenant, context.encode(), commit_id], part)

    def _statement(self, head: "_Head", values: list[Value], changes: Changes) -> Sql:
        puts = [
            (_PACKED_CODES[code], pack_int8(key), None if group is None else pack_int8(group), order, value)
            for code, key, group, order, value in changes.puts
        ]
        patches = [(_PACKED_CODES[code], pack_int8(key), value) for code, key, value in changes.patches]
        deletes = [(_PACKED_CODES[code], pack_int8(key)) for code, key in changes.deletes]
        counts: list[int] = []
        rows: Sequence[tuple[Value, ...]]
        for rows, columns in ((puts, _PUT_COLUMNS), (patches, _PATCH_COLUMNS), (deletes, _DELETE_COLUMNS)):
            counts.append(min(len(rows), _MAX_INLINE_ROWS + 1))
            if len(rows) <= _MAX_INLINE_ROWS:
                for row in rows:
                    values += row
            else:
                values += (
                    pack_array(_COLUMNS[name], column)
                    for name, column in zip(columns, zip(*rows, strict=True), strict=True)
                )
        text, types = _build_text(head, self._schema, *counts, changes.is_new)
        return text, values, types


_PUT_COLUMNS: Final = ("family", "key", "grp", "ord", "value")
_PATCH_COLUMNS: Final = ("family", "key", "value")
_DELETE_COLUMNS: Final = ("family", "key")
_Head = tuple[str, tuple[int, ...]]
"""The part of a statement that moves the head, and the types of its values."""


@lru_cache
def _create(limits: str) -> _Head:
    created = _CREATE.replace("{limited}", " FROM limits WHERE lock IS NOT NULL" if limits else "")
    return (f"{limits}, {created}", (TEXT, *_CREATE_TYPES)) if limits else (created, _CREATE_TYPES)


@lru_cache
def _move(limits: str, seen: bool) -> _Head:
    limited = " FROM limits WHERE lock IS NOT NULL AND" if limits else " WHERE"
    moved = _MOVE.replace("{limited}", limited).replace("{seen}", " AND head = ?" if seen else "")
    types = (*_MOVE_TYPES, BYTEA) if seen else _MOVE_TYPES
    return (f"{limits}, {moved}", (TEXT, *types)) if limits else (moved, types)


@lru_cache(maxsize=256)
def _build_text(
    head: _Head, schema: str, puts: int, patches: int, deletes: int, is_new: bool
) -> tuple[str, tuple[int, ...]]:
    """Return a statement with this many rows of each kind, and the types of its values.

    `_MAX_INLINE_ROWS + 1` means arrays of any length.
    """
    parts, types = [head[0]], [*head[1]]
    for sql, names, count in (
        (_PUT, _PUT_COLUMNS, puts),
        (_PATCH, _PATCH_COLUMNS, patches),
        (_DELETE, _DELETE_COLUMNS, deletes),
    ):
        if count:
            columns = [_COLUMNS[name] for name in names]
            types += [ARRAYS[kind] for kind in columns] if count > _MAX_INLINE_ROWS else columns * count
            text = sql.replace("{rows}", _rows_table(names, count))
            parts.append(text.replace("{replace}", "" if is_new else _REPLACE))
    first, *others = f"WITH {', '.join(parts)} SELECT id FROM moved".replace("{q}", schema).split("?")
    return first + "".join(f"${number}{text}" for number, text in enumerate(others, 1)), tuple(types)


def _rows_table(names: tuple[str, ...], count: int) -> str:
    """Return the SQL of a table `new` with the rows, inline or from arrays."""
    columns = ", ".join(names)
    if count > _MAX_INLINE_ROWS:
        return f"unnest({', '.join('?' for _ in names)}) AS new ({columns})"
    row = ", ".join(f"?::{_NAMES[_COLUMNS[name]]}" for name in names)
    return f"(VALUES {', '.join([f'({row})'] * count)}) AS new ({columns})"


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
