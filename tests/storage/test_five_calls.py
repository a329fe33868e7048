"""A backend with the five calls of the design documents: reopening, damage and failures."""

from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Corrupt, DetailPage, InvalidValue, StorageFailure
from quire.storage.five_calls import FiveCallStorage


class Folder:
    """The five calls over a folder with one JSON file per page, under its index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.full = False
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, page: DetailPage) -> None:
        if self.full:
            raise OSError("no space left")
        (self.folder / f"{page.index}.json").write_text(page.to_json(), "utf-8")

    def load(self, index: str) -> DetailPage:
        return DetailPage.from_json((self.folder / f"{index}.json").read_text("utf-8"))

    def delete(self, index: str) -> None:
        (self.folder / f"{index}.json").unlink(missing_ok=True)

    def exists(self, index: str) -> bool:
        return (self.folder / f"{index}.json").exists()

    def list(self) -> Iterable[str]:
        return [path.stem for path in self.folder.glob("*.json")]


def test_a_context_is_there_again_after_reopening(tmp_path: Path) -> None:
    with quire.open(FiveCallStorage(Folder(tmp_path)), "a") as ctx:
        for n in range(12):
            ctx.user(f"Message {n}")
        ctx.undo(ctx.seq)
        before = ctx.pages.marshal()
    with quire.open(FiveCallStorage(Folder(tmp_path)), "a") as ctx:
        assert ctx.pages.marshal() == before
        assert ctx.check() == []
        ctx.user("One more")


def test_a_purge_leaves_no_byte_in_the_backend(tmp_path: Path) -> None:
    backend = Folder(tmp_path)

    def has_secret() -> bool:
        saved = [b64decode(backend.load(index).meta["quire"]) for index in backend.list()]
        return any(b"wxyzzy" in data for data in saved)

    with quire.open(FiveCallStorage(backend), "a") as ctx:
        ctx.user("wxyzzy")
        ctx.user("Stays")
        assert has_secret()
        assert ctx.pages.purge("usr-1").scrubbed
        assert not has_secret()
    with quire.open(FiveCallStorage(backend), "a") as ctx:
        assert ctx.messages(all=True)[1].text == "Stays"
        assert ctx.check() == []


def test_a_failed_save_changes_nothing_and_a_missing_page_is_noticed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    ctx = quire.open(FiveCallStorage(folder), "a")
    ctx.user("Hi")
    folder.full = True
    with pytest.raises(StorageFailure):
        ctx.user("Ho")
    folder.full = False
    assert [message.text for message in ctx.messages()] == ["Hi"]
    ctx.user("Ho")
    folder.delete("quire-entry-2")
    with pytest.raises(Corrupt):
        FiveCallStorage(folder)
    with pytest.raises(InvalidValue):
        FiveCallStorage(object())  # type: ignore[arg-type]


def test_pages_are_items_under_their_indices(tmp_path: Path) -> None:
    folder: Any = Folder(tmp_path)
    system = quire.ContextSystem(folder)
    system.add_segment(quire.Segment(id="mem"))
    system.create_detail_page("note", "about it", "text", "mem-0")
    system.create_contents_page("folder", "", "mem-0")
    item = folder.load("mem-1")
    assert (item.name, item.description, item.parent, item.meta["detail"]) == ("note", "about it", "mem-0", "text")
    system.remove_page("mem-2")
    assert not folder.exists("mem-2")
    again = quire.ContextSystem(folder)
    assert again.detail("mem-1") == "text"
    assert again.marshal() == system.marshal()
    assert again.check() == []
