"""Stores with bytes that can be searched: every backend that is durable, with all that it writes."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

from quire import FileStorage, Library, PostgresStorage, S3Storage, SQLiteStorage, Storage
from tests.servers.postgres import postgres_url, server_url
from tests.servers.s3 import fresh_prefix, open_s3, server
from tests.servers.s3_versions import new_bucket

LATIN = "qzwxyjkvbor"
CHINESE = "鹦鹉螺号潜艇"
SECRET = f"{LATIN} {CHINESE}"
KINDS = ["sqlite", "file", "s3", "postgres"]


def forms(word: str) -> Iterator[bytes]:
    """Yield the bytes of a word in every encoding that a store may use. An index omits a prefix of two characters."""
    for part in (word, word[2:]):
        yield part.encode()
        yield part.encode("utf-16-le")
        yield part.encode("utf-16-be")
        yield json.dumps(part).strip('"').encode()


class RawStore:
    """A store of one kind, and its bytes."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind = kind
        self.place = place / "store"
        self.place.mkdir()
        self.schema = "erase_" + sha256(str(place).encode()).hexdigest()[:16]
        self.prefix = fresh_prefix()
        self.bucket = new_bucket() if kind == "s3-versions" else ""
        self.storage = self.open()
        self.library = Library(self.storage)

    def open(self) -> Storage:
        """Return a handle on the store."""
        match self.kind:
            case "sqlite":
                return SQLiteStorage(self.place / "store.db")
            case "file":
                return FileStorage(self.place)
            case "s3":
                return open_s3(self.prefix)
            case "s3-versions":
                options: dict[str, Any] = {**server().options()}
                return S3Storage(self.bucket, self.prefix, **options)
            case _:
                return PostgresStorage(postgres_url(schema=self.schema))

    def count(self, *words: str) -> int:
        """Return how often the words are in the bytes of the store, in any form."""
        wanted = [form for word in words or (LATIN, CHINESE) for form in forms(word)]
        return sum(data.count(form) for data in self._bytes() for form in wanted)

    def finish_on_server(self) -> None:
        """Do what only the owner of the server can do, as the report of an erasure says."""
        if self.kind == "postgres":
            with psycopg.connect(server_url(), autocommit=True) as db:
                for table in self._tables(db):
                    db.execute(f"VACUUM (FULL, ANALYZE) {self.schema}.{table}")

    def analyze(self) -> None:
        """Let the server collect statistics of the tables, as it does by itself after a while."""
        if self.kind == "postgres":
            with psycopg.connect(server_url(), autocommit=True) as db:
                for table in self._tables(db):
                    db.execute(f"ANALYZE {self.schema}.{table}")

    def _bytes(self) -> Iterator[bytes]:
        if self.kind == "s3":
            from obstore.store import S3Store  # it is there in the tier that uses the server

            options: dict[str, Any] = server().options()
            bucket = S3Store(server().bucket, prefix=self.prefix, client_options={"allow_http": True}, **options)
            for listed in (each for part in bucket.list() for each in part):
                yield listed["path"].encode()
                yield bytes(bucket.get(listed["path"]).bytes())
        elif self.kind == "postgres":
            yield from self._server_bytes()
        else:
            for file in self.place.rglob("*"):
                yield str(file.relative_to(self.place)).encode()
                if file.is_file():
                    yield file.read_bytes()

    def _server_bytes(self) -> Iterator[bytes]:
        """Yield all rows, which the server may have compressed, its statistics, and the files of tables and indexes."""
        url = server_url()
        with psycopg.connect(url, autocommit=True) as db:
            for table in self._tables(db):
                for row in db.execute(f"SELECT * FROM {self.schema}.{table}"):
                    yield b" ".join(map(_to_bytes, row))
            db.execute("CHECKPOINT")
            folder = Path(parse_qs(urlsplit(url).query).get("host", [""])[0]) / "data"
            relations = [f"{self.schema}.{table}" for table in self._tables(db)]
            indexes = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass"
            toast = "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = %s::regclass AND reltoastrelid <> 0"
            for row in db.execute("SELECT * FROM pg_statistic WHERE starelid = ANY (%s::regclass[])", (relations,)):
                yield b" ".join(map(_to_bytes, row))
            for relation in relations:
                names = [row[0] for sql in (indexes, toast) for row in db.execute(sql, (relation,)).fetchall()]
                for name in (relation, *names):
                    path = db.execute("SELECT pg_relation_filepath(%s)", (name,)).fetchall()[0][0]
                    yield (folder / path).read_bytes() if folder.exists() else b""

    def _tables(self, db: Any) -> list[str]:
        found = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (self.schema,)).fetchall()
        return [row[0] for row in found]


def _to_bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
