"""Opening a storage by URL or path, and refused addresses."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import (
    FileStorage,
    InvalidValue,
    MemoryStorage,
    PostgresStorage,
    QuireError,
    SQLiteStorage,
    StorageClosed,
    StorageFailure,
    open_storage,
)
from quire.errors import NotInstalled


@pytest.mark.parametrize(
    ("where", "kind", "made"),
    [
        ("memory:", MemoryStorage, None),
        ("file:notes", FileStorage, "notes"),
        ("file:a/b/notes", FileStorage, "a/b/notes"),
        ("file://notes", FileStorage, "notes"),
        ("file:{here}/notes", FileStorage, "notes"),
        ("file://{here}/notes", FileStorage, "notes"),
        ("sqlite:notes.db", SQLiteStorage, "notes.db"),
        ("sqlite://notes.db", SQLiteStorage, "notes.db"),
        ("sqlite:{here}/notes.db", SQLiteStorage, "notes.db"),
        ("sqlite://{here}/notes.db", SQLiteStorage, "notes.db"),
        ("notes.db", SQLiteStorage, "notes.db"),
        ("./notes", SQLiteStorage, "notes"),
        ("{here}/notes", SQLiteStorage, "notes"),
        ("笔记.db", SQLiteStorage, "笔记.db"),
        ("with space.db", SQLiteStorage, "with space.db"),
    ],
)
def test_a_url_or_path_names_its_backend(
    where: str, kind: type[object], made: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = open_storage(where.format(here=tmp_path))
    assert type(storage) is kind
    storage.close()
    assert [name for name in os.listdir(tmp_path) if not name.endswith(("-wal", "-shm"))] == (
        [made.split("/")[0]] if made else []
    )
    assert made is None or (tmp_path / made).exists()


@pytest.mark.parametrize(
    "url", ["{here}/missing/notes.db", "sqlite:{here}/missing/notes.db", "{here}", "file:{here}/file"]
)
def test_a_place_that_cannot_be_opened_is_a_storage_failure(url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageFailure):
        open_storage(url.format(here=tmp_path))


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_an_unknown_durability_is_refused(kind: str, tmp_path: Path) -> None:
    durability: Any = "sometimes"
    with pytest.raises(InvalidValue):
        open_storage(f"{kind}:{tmp_path}/notes", durability=durability)
    assert os.listdir(tmp_path) == []


def test_a_context_that_opened_its_storage_closes_it(tmp_path: Path) -> None:
    with quire.open(tmp_path / "notes.db") as context:
        storage = context.pages.storage
    with pytest.raises(StorageClosed):
        quire.open(storage)


def test_a_storage_object_stays_its_owners(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "notes.db")
    with quire.open(storage):
        pass
    assert quire.Library(storage).exists("default")
    storage.close()


def test_a_failed_opening_leaves_no_storage_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(InvalidValue):
            quire.open(tmp_path / "notes.db", "not a name\n")
    assert len(os.listdir("/proc/self/fd")) == len(before)


def _told_by(error: BaseException | None) -> str:
    """Return everything that an error and its causes say."""
    said = []
    while error is not None:
        said += [str(error), repr(error)]
        error = error.__cause__
    return "\n".join(said)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000,
        "a:" * 100_000,
        "postgresql://me:hush@" + "b" * 200_000,
        f"postgresql://me:hush@{'b' * 99}/x",
        "postgresql://me:hush@127.0.0.1:1/db",
        "postgresql://me:hush@127.0.0.1:1/db?nonsense=1",
        "postgresql://me:hush@127.0.0.1:x/db",
        "postgresql://me:hush@[::1/db",
        "postgresql://127.0.0.1:1/db?user=me&password=hush",
        "postgresql+other://me:hush@h/db",
        "postgresql://me:hush@127.0.0.1:1/db?tenant=%20x",
        "s3://AKIAX:hush@bucket/x",
        "s3://bucket/x?secret_access_key=hush",
        "s3://bucket/x?endpoint=http://u:hush@host",
    ],
    ids=lambda text: text[:40],
)
def test_no_error_shows_a_secret_of_an_address(text: str) -> None:
    with pytest.raises(QuireError) as told:
        quire.open(text)
    assert "hush" not in _told_by(told.value)
    assert len(str(told.value)) < 1_000


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("mysql://x/y", {}),
        ("postgresql", {}),
        ("postgresql://a/b?tenant", {}),
        ("postgresql://a/b\n", {}),
        (7, {}),
        ("postgresql://a/b?schema=A", {}),
        ("postgresql://a/b?tenant=a", {"tenant": "b"}),
        ("postgresql://a/b", {"schema": 'x"; DROP'}),
        ("postgresql://a/b", {"schema": "pg_catalog"}),
        ("postgresql://a/b", {"schema": "x" * 64}),
        ("postgresql://a/b", {"tenant": " a"}),
        ("postgresql://a/b", {"tenant": 3}),
        ("postgresql://a/b", {"connections": 0}),
        ("postgresql://a/b", {"busy_seconds": float("nan")}),
        ("postgresql://a/b", {"durability": "some"}),
        ("postgresql://a/b?nonsense=1", {}),
    ],
)
def test_an_address_or_option_that_postgres_cannot_have_is_refused(url: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        PostgresStorage(url, **options)


@pytest.mark.parametrize(
    ("url", "argument"),
    [
        ("s3://", "bucket"),
        ("s3:bucket", "bucket"),
        ("s3://UPPER/x", "bucket"),
        ("s3://bucket/a//b", "prefix"),
        ("s3://bucket/../b", "prefix"),
        ("s3://bucket/中文", "prefix"),
        (f"s3://bucket/{'x' * 200}", "prefix"),
        ("s3://bucket/x?colour=red", None),
        ("s3://bucket/x?endpoint=ftp://host", "endpoint"),
        ("s3://bucket/x?timeout_seconds=soon", "timeout_seconds"),
        ("s3://bucket/x?timeout_seconds=0", "timeout_seconds"),
        ("s3://bucket/x?endpoint=http://u:hush@host", "endpoint"),
    ],
)
def test_a_bucket_that_cannot_be_is_refused(url: str, argument: str | None) -> None:
    with pytest.raises(InvalidValue) as error:
        open_storage(url)
    assert error.value.argument == argument


@pytest.mark.parametrize(
    ("module", "url"), [("psycopg", "postgresql://host/db"), ("obstore.store", "s3://bucket/prefix")]
)
def test_without_a_driver_the_error_is_of_its_own_kind(module: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotInstalled):
        open_storage(url)


def test_a_missing_server_is_a_failure_that_names_it() -> None:
    with pytest.raises(StorageFailure) as error:
        PostgresStorage("postgresql://127.0.0.1:1/db", busy_seconds=0.1)
    assert "127.0.0.1:1/db" in str(error.value)
