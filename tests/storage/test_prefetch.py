"""Prefetch: a small context is read together with its head, with the same results and fewer requests."""

from collections.abc import Iterator
from typing import Any

import pytest

import quire
from quire import MemoryStorage
from quire.storage.base import FAMILIES, MAX_KEY, Head, Prefetch, Record
from quire.storage.memory import SMALL, PrefetchReader


class Looking(MemoryStorage):
    """A storage that prefetches small contexts and counts its reads."""

    def __init__(self, most: int = 10**6) -> None:
        super().__init__()
        self.looks = 0
        self.most = most

    def prefetch(self, context: str) -> Prefetch:
        head = super().head(context)
        records = [(family, record) for family in SMALL for record in super(Looking, self).scan(context, family)]
        self.looks += 1
        return Prefetch(head, PrefetchReader(self, records) if head and len(records) <= self.most else self)

    def head(self, context: str) -> Head | None:
        self.looks += 1
        return super().head(context)

    def get(self, *values: Any, **options: Any) -> Record | None:
        self.looks += 1
        return super().get(*values, **options)

    def scan(self, *values: Any, **options: Any) -> Iterator[Record]:
        self.looks += 1
        return super().scan(*values, **options)

    def members(self, *values: Any, **options: Any) -> Iterator[Record]:
        self.looks += 1
        return super().members(*values, **options)


@pytest.fixture
def storage() -> Looking:
    storage = Looking()
    ctx = quire.open(storage, "c", budget=4_000)
    for number in range(12):
        ctx.user(f"question {number}")
        ctx.assistant(f"answer {number}")
    note = ctx.pages.create_detail_page("note", "a note", "text", "mem-0")
    ctx.pages.pin(note)
    return storage


def test_every_read_gives_what_the_storage_gives(storage: Looking) -> None:
    near = storage.prefetch("c").reader
    assert isinstance(near, PrefetchReader)
    for family in FAMILIES:
        records = list(storage.scan("c", family))
        assert list(near.scan("c", family)) == records
        assert list(near.scan("c", family, reverse=True)) == records[::-1]
        for record in [*records, *records[:1]]:
            assert near.get("c", family, record.key) == record
            assert near.get("c", family, MAX_KEY) is None
            group = record.group if record.group is not None else 0
            place = (record.order, record.key)
            for after in (None, place):
                for reverse in (False, True):
                    found = list(near.members("c", family, group, after=after, reverse=reverse))
                    assert found == list(storage.members("c", family, group, after=after, reverse=reverse))


def test_opening_and_drawing_take_one_look_and_one_for_each_kind_of_text(storage: Looking) -> None:
    storage.looks = 0
    text = quire.open(storage, "c", budget=4_000).render().openai()
    assert storage.looks == 3  # the messages, and the text of the pinned note
    storage.most = 0
    assert quire.open(storage, "c", budget=4_000).render().openai() == text
    assert storage.looks > 8


def test_it_is_the_moment_of_opening_until_the_handle_moves(storage: Looking) -> None:
    mine, other = quire.open(storage, "c"), quire.open(storage, "c")
    gone = other.pages.create_detail_page("later", "", "x", "mem-0")
    other.pages.update_page("mem-1", name="renamed")
    assert mine.pages.get_page("mem-1").name == "note"
    assert [page.index for page in mine.pages.children("mem-0")] == ["mem-1"]
    with pytest.raises(quire.Conflict):
        mine.user("too late")
    assert mine.refresh()
    assert mine.pages.get_page("mem-1").name == "renamed"
    assert [page.index for page in mine.pages.children("mem-0")] == ["mem-1", gone]
    mine.user("in time")
    mine.pages.update_page("mem-1", name="mine")
    assert mine.pages.get_page("mem-1").name == "mine"
    assert mine.check() == []


def test_a_new_context_is_created_and_filled_with_one_read() -> None:
    """Nothing is stored under new keys, so only the head is looked for."""
    storage = Looking()
    ctx = quire.open(storage, "new")
    ctx.add([{"role": role, "content": "text"} for role in ("user", "assistant") * 10])
    ctx.user("and then?")
    assert storage.looks == 1
    ctx.pages.create_detail_page("note", "", "text", "mem-0")
    folder = ctx.pages.create_contents_page("folder", "", "mem-0")
    ctx.pages.create_detail_page("inner", "", "text", folder)
    assert storage.looks == 1
    again = quire.open(storage, "new")
    assert [page.name for _, page in again.pages.walk("mem-0")] == ["Memory", "note", "folder", "inner"]
    assert again.render().openai() == ctx.render().openai()
    assert again.check() == []
