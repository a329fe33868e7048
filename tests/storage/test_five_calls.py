"""A backend with the five calls of the design documents: reopening, damage and failures."""

from base64 import b64decode
from typing import Any

import pytest

import quire
from quire import Corrupt, InvalidValue, StorageFailure
from quire.storage.five_calls import FiveCallStorage
from tests.storage.test_five_call_backend import Backend


def test_a_context_is_there_again_after_reopening() -> None:
    backend = Backend()
    with quire.open(FiveCallStorage(backend), "a") as ctx:
        for n in range(12):
            ctx.user(f"Message {n}")
        ctx.undo(ctx.seq)
        before = ctx.pages.marshal()
    with quire.open(FiveCallStorage(backend), "a") as ctx:
        assert ctx.pages.marshal() == before
        assert ctx.check() == []
        ctx.user("One more")


def test_a_purge_leaves_no_byte_in_the_backend() -> None:
    backend = Backend()

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


def test_a_failed_save_changes_nothing_and_a_missing_page_is_noticed() -> None:
    folder = Backend()
    ctx = quire.open(FiveCallStorage(folder), "a")
    ctx.user("Hi")
    folder.left = 0
    with pytest.raises(StorageFailure):
        ctx.user("Ho")
    folder.left = 1_000
    assert [message.text for message in ctx.messages()] == ["Hi"]
    ctx.user("Ho")
    folder.delete("quire-entry-2")
    with pytest.raises(Corrupt):
        FiveCallStorage(folder)
    with pytest.raises(InvalidValue):
        FiveCallStorage(object())  # type: ignore[arg-type]


def test_pages_are_items_under_their_indices() -> None:
    folder: Any = Backend()
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
