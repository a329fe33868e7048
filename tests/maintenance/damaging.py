"""Stores that can be damaged, one record or object at a time, and be made whole again.

A vault holds a sound store of one backend. `places` lists everything that can be damaged in it. `damaged` returns a
storage of the store with one damage; the next call starts from the sound store again.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple, Protocol, cast
from uuid import uuid4

import apsw
import psycopg

from quire import FileStorage, MemoryStorage, PostgresStorage, SQLiteStorage, Storage
from quire.storage.base import FAMILIES, GROUPED, KEY_BITS, MAX_KEY, Family, Head
from quire.storage.file.frames import read_frames
from quire.storage.paths import decode_file_name
from quire.storage.postgres.address import parse
from quire.storage.postgres.schema import CODES
from quire.storage.s3.client import Objects
from tests.compat.make_store import OPEN
from tests.servers.postgres import postgres_url
from tests.servers.s3 import fresh_prefix, open_s3

Build = Callable[[Storage], None]
"""Writes the store."""
DAMAGES = ("delete", "alter", "truncate", "swap", "mix")
"""`swap` exchanges two records of one context, `mix` two records with the same key of two contexts."""
SEARCH = "search"
RELATED = frozenset({OPEN, "fork"})
"""A fork and its origin: their records have the same mark."""


class Place(NamedTuple):
    """A record, row, frame or object: its family or table, its key, and the context it belongs to ("" for all)."""

    family: str
    key: Any
    context: str = ""
    number: int = -1
    """The key of a record."""


class Vault(Protocol):
    """A store that can be damaged."""

    places: list[Place]

    def damaged(self, random: Random, damage: str, place: Place | None) -> Any:
        """Return a block with a storage of the store after one damage; None damages nothing."""


def flip(random: Random, data: bytes) -> bytes:
    """Return the bytes with one bit changed."""
    if not data:
        return b"\0"
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def shorten(random: Random, data: bytes) -> bytes:
    """Return the beginning of the bytes."""
    return data[: random.randrange(max(len(data), 1))]


def another(random: Random, damage: str, places: Sequence[Place], place: Place) -> Place | None:
    """Return the place to exchange a place with: of the same kind, in the same context if there is one for that."""
    same = [other for other in places if other.family == place.family and other != place]
    mixed = [other for other in same if other.number == place.number >= 0 and other.context != place.context]
    others = [other for other in same if other.context == place.context]
    chosen = mixed if damage == "mix" and mixed else others
    return random.choice(chosen) if chosen else None


def spoiled(path: Path, table: str, change: bytes = b"\x55" * 300) -> None:
    """Overwrite the beginning of the first page of a table or an index of a closed SQLite file."""
    with closing(apsw.Connection(str(path))) as db:
        root = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get
        size = db.pragma("page_size")
        db.pragma("wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    start = (root - 1) * size
    data[start : start + len(change)] = change
    path.write_bytes(data)


class MemoryVault:
    """A store in memory, damaged in its tables."""

    def __init__(self, build: Build) -> None:
        self._sound = MemoryStorage()
        build(self._sound)
        self.places = [Place("head", 0, name) for name in self._sound.contexts()]
        for name in self._sound.contexts():
            self.places += [Place(f, r.key, name, r.key) for f in FAMILIES for r in self._sound.scan(name, f)]

    @contextmanager
    def damaged(self, random: Random, damage: str, place: Place | None) -> Iterator[Storage]:
        storage = MemoryStorage()
        storage._contexts = {name: (head, table.copy()) for name, (head, table) in self._sound._contexts.items()}
        if place is not None and place.family == "head":
            self._damage_head(random, damage, storage, place.context)
        elif place is not None:
            self._damage_record(random, damage, storage, place)
        yield storage

    def _damage_head(self, random: Random, damage: str, storage: MemoryStorage, context: str) -> None:
        head, table = storage._contexts[context]
        match damage:
            case "swap" | "mix":
                other = random.choice([name for name in storage._contexts if name != context])
                theirs, table_there = storage._contexts[other]
                storage._contexts[other] = head, table_there
                head = theirs
            case "truncate":
                head = Head(head.version, shorten(random, head.value))
            case _ if random.random() < 0.2:
                head = Head(head.version + random.choice((-1, 1)), head.value)
            case _:
                head = Head(head.version, flip(random, head.value))
        storage._contexts[context] = head, table

    def _damage_record(self, random: Random, damage: str, storage: MemoryStorage, place: Place) -> None:
        table, family = storage._contexts[place.context][1], cast(Family, place.family)
        row = table.get(family, place.key)
        assert row is not None
        other = another(random, damage, self.places, place)
        if damage == "delete" or not row.value:
            table.delete(family, place.key)
        elif damage in ("swap", "mix") and other is not None:
            there = storage._contexts[other.context][1]
            theirs = there.get(family, other.key)
            assert theirs is not None
            table.put(family, place.key, theirs.value, row.group, row.order)
            there.put(family, other.key, row.value, theirs.group, theirs.order)
        elif damage == "truncate":
            table.patch(family, place.key, shorten(random, row.value))
        elif family in GROUPED and row.group is not None and random.random() < 0.5:
            group, order = random.choice(((row.group + 1, row.order), (row.group, flip(random, row.order))))
            table.put(family, place.key, row.value, group, order)
        else:
            table.patch(family, place.key, flip(random, row.value))


Row = dict[str, Any]


def damage_row(random: Random, damage: str, row: Row, keys: Sequence[str], other: Row | None) -> list[tuple[Row, Row]]:
    """Return (keys, new values) of the rows to change; no new values delete the row."""
    own = {column: row[column] for column in keys}
    if damage == "delete":
        return [(own, {})]
    rest = [column for column in row if column not in keys and row[column] is not None]
    values = [column for column in rest if isinstance(row[column], bytes) and row[column]]
    if damage in ("swap", "mix") and other is not None:
        ours, theirs = ({column: found[column] for column in found if column not in keys} for found in (row, other))
        return [(own, theirs), ({column: other[column] for column in keys}, ours)]
    numbers = [column for column in rest if isinstance(row[column], int)]
    if damage == "alter" and numbers and (not values or random.random() < 0.3):
        column = random.choice(numbers)
        return [(own, {column: row[column] + random.choice((-1, 1, 7))})]
    if values:
        column = random.choice(values)
        change = flip if damage == "alter" else shorten
        return [(own, {column: change(random, row[column])})]
    return [(own, {})]


class SQLiteVault:
    """A store in an SQLite file, damaged in its rows."""

    def __init__(self, build: Build, place: Path) -> None:
        self._path = place / "store.db"
        storage = SQLiteStorage(self._path)
        build(storage)
        storage.close()
        with closing(self._connect()) as db:
            db.pragma("wal_checkpoint(truncate)")
            names = dict(db.execute("SELECT id, name FROM context"))
            tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            self.places: list[Place] = []
            for table in tables:
                if table in ("search", "sqlite_sequence", "search_config"):
                    continue
                for row in db.execute(f"SELECT rowid FROM {table}" if table != "search_idx" else "SELECT 1"):
                    if table == "search_idx":
                        break
                    context = names.get(row[0] >> KEY_BITS if table in FAMILIES else row[0], "")
                    family = SEARCH if table.startswith(SEARCH) else table
                    number = row[0] & MAX_KEY if table in FAMILIES else -1
                    self.places.append(Place(family, (table, row[0]), context if family != SEARCH else "", number))
        self._bytes = self._path.read_bytes()

    def _connect(self) -> apsw.Connection:
        return apsw.Connection(str(self._path))

    @contextmanager
    def damaged(self, random: Random, damage: str, place: Place | None) -> Iterator[Storage]:
        for ending in ("-wal", "-shm"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        self._path.write_bytes(self._bytes)
        if place is not None:
            self._damage(random, damage, place)
        storage = SQLiteStorage(self._path)
        try:
            yield storage
        finally:
            storage.close()

    def _damage(self, random: Random, damage: str, place: Place) -> None:
        table, number = place.key
        other = another(random, damage, [each for each in self.places if each.key[0] == table], place)
        with closing(self._connect()) as db:
            rows = [self._row(db, table, number), self._row(db, table, other.key[1]) if other else None]
            if table == "context":
                rows = [row and {column: row[column] for column in row if column != "name"} for row in rows]
            assert rows[0] is not None
            for keys, values in damage_row(random, damage, rows[0], ("rowid",), rows[1]):
                if not values:
                    db.execute(f"DELETE FROM {table} WHERE rowid = :rowid", keys)
                    continue
                changes = ", ".join(f'"{column}" = :{column}' for column in values)
                db.execute(f"UPDATE {table} SET {changes} WHERE rowid = :rowid", {**values, **keys})

    def _row(self, db: apsw.Connection, table: str, number: int) -> Row:
        cursor = db.execute(f"SELECT rowid AS rowid, * FROM {table} WHERE rowid = ?", (number,))
        columns = [column[0] for column in cursor.get_description()]
        row = dict(zip(columns, next(cursor), strict=True))
        row.pop("id", None)
        return row


class FileVault:
    """A store in a folder, damaged in the frames of its logs and in its other files."""

    def __init__(self, build: Build, place: Path) -> None:
        self._path, self._copy = place / "store", place / "copy"
        storage = FileStorage(self._path)
        build(storage)
        storage.close()
        self.places: list[Place] = []
        for path in sorted(self._path.rglob("*")):
            if path.is_file():
                name = str(path.relative_to(self._path))
                context = decode_file_name(name.partition("/")[0]) or ""
                self.places.append(Place("file", (name, -1), context))
                if path.name == "log":
                    self.places += [Place("frame", (name, at), context) for at in range(len(self._frames(path)))]
        shutil.copytree(self._path, self._copy)

    def _frames(self, path: Path) -> list[tuple[int, int]]:
        data = path.read_bytes()
        start = data.index(b"\n") + 1
        return [(frame.start, frame.end) for frame in read_frames(data[start:], start)]

    @contextmanager
    def damaged(self, random: Random, damage: str, place: Place | None) -> Iterator[Storage]:
        shutil.rmtree(self._path)
        shutil.copytree(self._copy, self._path)
        if place is not None:
            self._damage(random, damage, place)
        storage = FileStorage(self._path)
        try:
            yield storage
        finally:
            storage.close()

    def _damage(self, random: Random, damage: str, place: Place) -> None:
        name, number = place.key
        path = self._path / name
        data = path.read_bytes()
        if place.family == "frame":
            path.write_bytes(self._damage_frame(random, damage, data, self._frames(path), number))
        elif damage == "delete" or not data:
            path.unlink()
        elif damage in ("swap", "mix"):
            others = [each for each in self._path.rglob("*") if each.name == path.name and each != path]
            if others:
                other = random.choice(sorted(others))
                path.write_bytes(other.read_bytes())
                other.write_bytes(data)
        else:
            path.write_bytes(flip(random, data) if damage == "alter" else shorten(random, data))

    def _damage_frame(
        self, random: Random, damage: str, data: bytes, frames: list[tuple[int, int]], number: int
    ) -> bytes:
        start, end = frames[number]
        if damage == "delete":
            return data[:start] + data[end:]
        if damage == "truncate":
            return data[: random.choice((start, random.randrange(start, end)))]
        if damage == "alter":
            return data[:start] + flip(random, data[start:end]) + data[end:]
        low, high = sorted((number, random.randrange(len(frames))))
        (one, one_end), (two, two_end) = frames[low], frames[high]
        if low == high:
            return data[:start] + flip(random, data[start:end]) + data[end:]
        return data[:one] + data[two:two_end] + data[one_end:two] + data[one:one_end] + data[two_end:]


class PostgresVault:
    """A store in a schema of PostgreSQL, damaged in its rows."""

    _KEYS: ClassVar = {
        "context": ("id",),
        "record": ("context", "family", "key"),
        "shared": ("id",),
        "gone": ("context", "family", "key"),
        "search_state": ("context",),
        "search_size": ("context", "block"),
        "search": ("context", "key"),
    }

    def __init__(self, build: Build) -> None:
        self._schema = f"damage_{uuid4().hex[:16]}"
        self._url = postgres_url(schema=self._schema)
        storage = PostgresStorage(self._url)
        build(storage)
        storage.close()
        families = {code: family for family, code in CODES.items()}
        self._rows: dict[str, list[Row]] = {}
        self.places: list[Place] = []
        with self._connect() as db:
            names = dict(db.execute("SELECT id, name FROM context").fetchall())
            for table, keys in self._KEYS.items():
                cursor = db.execute(f"SELECT * FROM {table}")
                columns = [column.name for column in cursor.description or ()]
                self._rows[table] = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
                for at, row in enumerate(self._rows[table]):
                    family = families[row["family"]] if table == "record" else table
                    family = SEARCH if table.startswith(SEARCH) else family
                    context = names.get(row.get("context", row.get("id")), "")
                    number = row["key"] if table == "record" else -1
                    self.places.append(Place(family, (table, at, keys), context, number))

    def _connect(self) -> psycopg.Connection[Any]:
        db = psycopg.connect(parse(postgres_url()).url, autocommit=True)
        db.execute(f"SET search_path = {self._schema}")
        return db

    @contextmanager
    def damaged(self, random: Random, damage: str, place: Place | None) -> Iterator[Storage]:
        if place is not None:
            self._damage(random, damage, place)
        storage = PostgresStorage(self._url)
        try:
            yield storage
        finally:
            storage.close()
            self._restore()

    def _damage(self, random: Random, damage: str, place: Place) -> None:
        table, _, keys = place.key
        other = another(random, damage, [each for each in self.places if each.key[0] == table], place)
        hidden = {"context": ("tenant", "name", "commit_id"), "search": ("terms",)}.get(table, ())
        rows = [
            {column: value for column, value in self._rows[table][found.key[1]].items() if column not in hidden}
            for found in (place, other)
            if found is not None
        ]
        changes = damage_row(random, damage, rows[0], keys, rows[1] if other else None)
        with self._connect() as db:
            for found, values in changes:
                where = " AND ".join(f"{column} = %({column})s" for column in found)
                if not values:
                    db.execute(f"DELETE FROM {table} WHERE {where}", found)
                    continue
                settings = ", ".join(f"{column} = %({column})s" for column in values)
                db.execute(f"UPDATE {table} SET {settings} WHERE {where}", {**values, **found})

    def _restore(self) -> None:
        with self._connect() as db, db.cursor() as cursor:
            for table, rows in self._rows.items():
                cursor.execute(f"DELETE FROM {table}")
                if rows:
                    columns = ", ".join(rows[0])
                    marks = ", ".join(f"%({column})s" for column in rows[0])
                    over = "OVERRIDING SYSTEM VALUE" if table == "context" else ""
                    cursor.executemany(f"INSERT INTO {table} ({columns}) {over} VALUES ({marks})", rows)


class S3Vault:
    """A store in a bucket, damaged in its objects."""

    def __init__(self, build: Build) -> None:
        self._prefix = fresh_prefix()
        storage = open_s3(self._prefix, upkeep="inline", probe=False)
        build(storage)
        objects = storage.objects
        self._data: dict[str, bytes] = {}
        for listed in objects.list(""):
            found = objects.get(listed.key)
            assert found is not None
            self._data[listed.key] = found.data
        storage.close()
        self.places = [Place("head" if key.startswith("heads") else "chunk", key) for key in sorted(self._data)]

    @contextmanager
    def damaged(self, random: Random, damage: str, place: Place | None) -> Iterator[Storage]:
        storage = open_s3(self._prefix, upkeep="off", probe=False)
        if place is not None:
            self._damage(random, damage, storage.objects, place.key)
        try:
            yield storage
        finally:
            storage.close()
            self._restore(storage.objects)

    def _damage(self, random: Random, damage: str, objects: Objects, key: str) -> None:
        data = self._data[key]
        if damage == "delete":
            objects.delete([key])
        elif damage in ("swap", "mix"):
            other = random.choice([each for each in self._data if each != key])
            objects.put(key, self._data[other])
            objects.put(other, data)
        else:
            objects.put(key, flip(random, data) if damage == "alter" else shorten(random, data))

    def _restore(self, objects: Objects) -> None:
        now = {listed.key for listed in objects.list("")}
        objects.delete([each for each in now if each not in self._data])
        for each, sound in self._data.items():
            objects.put(each, sound)
