"""Opening a storage by URL or path, and refused addresses."""

import os
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import FileStorage, InvalidValue, MemoryStorage, QuireError, SQLiteStorage, StorageFailure, open_storage


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


def test_a_path_object_is_an_sqlite_file(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "notes:1.db")
    assert type(storage) is SQLiteStorage
    assert (tmp_path / "notes:1.db").exists()
    storage.close()


@pytest.mark.parametrize(
    "where",
    [
        "",
        " ",
        "memory:x",
        "memory://",
        "file:",
        "file://",
        "sqlite:",
        "sqlite://",
        "http://x/y",
        "nosuch:x",
        "a\0b",
        "file:a\0b",
    ],
)
def test_what_names_no_storage_is_refused(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue):
        open_storage(where)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("where", [None, 7, b"notes.db", ["notes.db"]])
def test_what_is_no_text_or_path_is_refused(where: Any) -> None:
    with pytest.raises(InvalidValue):
        open_storage(where)


@pytest.mark.parametrize(
    "url", ["{here}/missing/notes.db", "sqlite:{here}/missing/notes.db", "{here}", "file:{here}/file"]
)
def test_a_place_that_cannot_be_opened_is_a_storage_failure(url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageFailure, match="missing|" + tmp_path.name):
        open_storage(url.format(here=tmp_path))


def test_a_path_with_a_nul_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuireError):
        open_storage(tmp_path / "a\0b")


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_an_unknown_durability_is_refused(kind: str, tmp_path: Path) -> None:
    durability: Any = "sometimes"
    with pytest.raises(InvalidValue, match="durability"):
        open_storage(f"{kind}:{tmp_path}/notes", durability=durability)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("durability", ["normal", "full"])
def test_durability_reaches_the_backend(kind: str, durability: Any, tmp_path: Path) -> None:
    storage = open_storage(f"{kind}:{tmp_path}/notes", durability=durability)
    assert isinstance(storage, FileStorage | SQLiteStorage)
    assert storage.durability == durability
    storage.close()


def test_a_context_that_opened_its_storage_closes_it(tmp_path: Path) -> None:
    with quire.open(tmp_path / "notes.db") as context:
        storage = context.pages.storage
    with pytest.raises(StorageFailure, match="closed"):
        storage.head("default")


def test_a_storage_object_stays_its_owners(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "notes.db")
    with quire.open(storage):
        pass
    assert storage.head("default") is not None
    storage.close()


def test_a_failed_opening_leaves_no_storage_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(InvalidValue):
            quire.open(tmp_path / "notes.db", "not a name\n")
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_very_long_address_is_refused_at_once_and_its_secret_is_not_shown() -> None:
    for text in (
        "a" * 1_000_000,
        "key" * 300_000,
        "a:" * 500_000,
        "postgresql://me:hush@" + "b" * 1_000_000,
        f"postgresql://me:hush@{'b' * 99}/x",
    ):
        with pytest.raises(QuireError) as told:
            quire.open(text)
        assert "hush" not in str(told.value)
        assert len(str(told.value)) < 1_000
