"""check(): every invariant that is broken by bad records in the storage is reported with its place."""

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

import quire
from quire import Conflict, ContextSystem, Corrupt, Lifecycle, MemoryStorage, QuireError, Visibility
from quire.core.records import (
    COLD_GROUP,
    Gone,
    PageRecord,
    decode_head,
    decode_page,
    decode_segment,
    encode_page,
    encode_record,
    page_key,
)
from quire.storage.base import BODY, JOURNAL, PAGE, PIN, SEGMENT, TALLY, Commit, Delete, Put, Write
from quire.system import Problem
from tests.books import folder, leaf, new_book, new_system

SYS, MEM, USR = (page_key(number, 0) for number in range(3))
SHELF, INSIDE, BESIDE = (MEM + number for number in (1, 2, 3))


def library() -> MemoryStorage:
    """mem-1 is a folder that holds mem-2; mem-3 is its sibling; usr-1 is the only page of the conversation."""
    storage = MemoryStorage()
    book = new_book(storage=storage)
    shelf = folder(book)
    leaf(book, parent=shelf, detail="text")
    leaf(book)
    leaf(book, parent="usr-0")
    return storage


def tamper(storage: MemoryStorage, writes: Sequence[Write], head: bytes | None = None) -> None:
    """Write records that no operation would write."""
    found = storage.head("default")
    assert found is not None
    storage.commit("default", Commit(found.version, found.version, found.value if head is None else head, writes))


def page_of(storage: MemoryStorage, key: int) -> PageRecord:
    record = storage.get("default", PAGE, key)
    assert record is not None
    page = decode_page(record)
    assert isinstance(page, PageRecord)
    return page


def put(page: PageRecord) -> Put:
    value = encode_page(page.key, page.header, page.group, page.rank)
    return Put(PAGE, page.key, value, page.group, page.rank)


def placed(storage: MemoryStorage, key: int, parent: int | None) -> Put:
    """Return the page below another parent, which does not know of it."""
    return put(replace(page_of(storage, key), parent=parent))


def headed(storage: MemoryStorage, key: int, **fields: object) -> Put:
    """Return the page with other header fields."""
    page = page_of(storage, key)
    return put(replace(page, header=replace(page.header, **fields)))


def uncounted(storage: MemoryStorage, number: int) -> bytes:
    """Return the head with a counter below the pages in use."""
    found = storage.head("default")
    assert found is not None
    head = decode_head(found.value)
    counters = list(head.counters)
    counters[number] = replace(counters[number], next=1)
    return encode_record(0, replace(head, counters=tuple(counters)))


def problems(storage: MemoryStorage) -> list[Problem]:
    return new_system(storage=storage).check()


def test_a_sound_book_has_no_problems() -> None:
    assert problems(library()) == []
    assert new_system().check() == []


Tampering = Callable[[MemoryStorage], Sequence[Write]]

BROKEN: list[tuple[int, str, str, Tampering]] = [
    (2, "mem-3", "'mem-9' does not exist", lambda s: [placed(s, BESIDE, MEM + 9)]),
    (2, "mem-3", "'mem-2' is not a folder", lambda s: [placed(s, BESIDE, INSIDE)]),
    (2, "mem-3", "only a root has no parent", lambda s: [placed(s, BESIDE, None)]),
    (2, "mem-0", "only a root has no parent", lambda s: [placed(s, MEM, SHELF)]),
    (2, "mem-1", "body", lambda s: [headed(s, SHELF, body=1)]),
    (2, "mem-2", "does not exist", lambda s: [Put(PAGE, SHELF, encode_record(SHELF, Gone(9)))]),
    (2, "mem-1", "children", lambda s: [Put(TALLY, SHELF, encode_record(SHELF, 7))]),
    (2, "usr-1", "pin", lambda s: [Put(PIN, USR + 1, b"")]),
    (2, "mem-3", "pin", lambda s: [headed(s, BESIDE, pinned=True)]),
    (3, "mem-0", "root", lambda s: [Put(PAGE, MEM, encode_record(MEM, Gone(9)))]),
    (3, "mem-0", "archived", lambda s: [headed(s, MEM, lifecycle=Lifecycle.HOT_ARCHIVED)]),
    (3, "sys-0", "SYSTEM", lambda s: [headed(s, SYS, visibility=Visibility.HIDDEN)]),
    (3, "usr-0", "conversation", lambda s: [headed(s, USR, visibility=Visibility.HIDDEN)]),
    (4, "mem-1", "own subtree", lambda s: [placed(s, SHELF, SHELF)]),
    (5, "mem-3", "another segment", lambda s: [placed(s, BESIDE, USR)]),
    (
        6,
        "mem-2",
        "pinned",
        lambda s: [headed(s, INSIDE, pinned=True, visibility=Visibility.HIDDEN), Put(PIN, INSIDE, b"")],
    ),
    (
        6,
        "mem-2",
        "pinned",
        lambda s: [
            headed(s, INSIDE, pinned=True),
            Put(PIN, INSIDE, b""),
            headed(s, SHELF, visibility=Visibility.HIDDEN),
        ],
    ),
    (0, "mem-2", "body", lambda _: [Delete(BODY, 1)]),
    (0, "journal 2", "missing", lambda _: [Delete(JOURNAL, 2)]),
    (0, "journal 7", "missing", lambda _: [Delete(JOURNAL, 7)]),
    (0, "mem-3", "page mem-3 is damaged: its checksum", lambda _: [Put(PAGE, BESIDE, b"nonsense", MEM, b"\x80")]),
    (0, "body 1", "checksum", lambda _: [Put(BODY, 1, b"text")]),
    (0, "journal 1", "missing", lambda _: [Delete(JOURNAL, 1)]),
    (0, "journal 1", "checksum", lambda _: [Put(JOURNAL, 1, b"text")]),
    (0, "journal 2", "checksum", lambda _: [Put(JOURNAL, 2, b"text")]),
    (0, f"tally {SHELF}", "checksum", lambda _: [Put(TALLY, SHELF, b"text")]),
    (
        0,
        "mem-3",
        "page mem-3 is damaged: its lifecycle",
        lambda s: [Put(PAGE, BESIDE, encode_record(BESIDE, page_of(s, BESIDE).header), MEM | COLD_GROUP, b"\x80")],
    ),
]


@pytest.mark.parametrize(("invariant", "where", "text", "tampering"), BROKEN)
def test_what_is_broken_is_named_with_its_place(invariant: int, where: str, text: str, tampering: Tampering) -> None:
    storage = library()
    tamper(storage, tampering(storage))
    assert any(
        (found.invariant, found.where) == (invariant, where) and text in found.text for found in problems(storage)
    ), problems(storage)


def test_a_circle_of_folders_is_named_at_each_of_its_pages() -> None:
    storage = library()
    book = new_system(storage=storage)
    inner = page_key(1, int(folder(book, parent="mem-1").partition("-")[2]))
    tamper(storage, [placed(storage, SHELF, inner)])
    named = {(found.invariant, found.where) for found in problems(storage)}
    assert {(4, "mem-1"), (4, "mem-4")} <= named


def test_a_counter_that_would_give_out_a_used_number_is_named() -> None:
    storage = library()
    tamper(storage, [], uncounted(storage, 1))
    assert [(found.invariant, found.where) for found in problems(storage)] == [(1, "mem")]


def test_a_removed_segment_keeps_no_page_cold_ones_included() -> None:
    for archived in (False, True):
        storage = library()
        if archived:
            new_system(storage=storage).archive("mem-3", cold=True)
        record = storage.get("default", SEGMENT, 1)
        assert record is not None
        gone = replace(decode_segment(1, record.value), gone=True)
        leftover = [Put(PAGE, key, encode_record(key, Gone(9))) for key in (MEM, SHELF, INSIDE)]
        tamper(storage, [Put(SEGMENT, 1, encode_record(1, gone)), *leftover])
        assert "mem-3" in [found.where for found in problems(storage)]


def test_a_page_of_a_segment_that_never_was_is_named() -> None:
    storage = library()
    key = page_key(9, 1)
    header = page_of(storage, BESIDE).header
    tamper(storage, [Put(PAGE, key, encode_record(key, header), MEM, b"\x90")])
    assert problems(storage) != []


def test_memory_that_does_not_say_what_the_storage_says_is_named() -> None:
    storage = library()
    book = new_system(storage=storage)
    book.get_page("mem-3")
    tamper(storage, [headed(storage, BESIDE, name="another")])
    assert [(found.invariant, found.where) for found in book.check()] == [(1, "mem-3")]


def test_a_context_that_someone_else_changed_is_sound() -> None:
    storage = library()
    book, other = new_system(storage=storage), new_system(storage=storage)
    book.get_page("mem-3")
    other.update_page("mem-3", name="another")
    assert book.check() == []
    assert book.refresh()
    assert book.check() == []


def test_a_storage_that_went_back_is_named() -> None:
    storage, older = library(), MemoryStorage()
    new_system(storage=storage).migrate(older)
    book = new_system(storage=storage)
    leaf(book)
    storage._contexts = older._contexts
    assert [(found.invariant, found.text) for found in book.check()] == [(1, "memory has version 8, the storage 7")]


def test_a_change_of_others_in_a_temporary_block_is_a_conflict() -> None:
    storage = MemoryStorage()
    ctx, other = quire.open(storage), quire.open(storage)
    with ctx.temporary():
        ctx.user("mine")
        assert ctx.check() == []
        other.refresh()
        other.user("theirs")
        with pytest.raises(Conflict):
            ctx.check()
    assert ctx.check() == []


def test_a_damaged_head_is_named() -> None:
    storage = library()
    book = new_system(storage=storage)
    tamper(storage, [], b"nonsense")
    assert [found.where for found in book.check()] == ["head"]
    with pytest.raises(Corrupt):
        new_system(storage=storage)


def test_a_page_that_was_damaged_while_it_is_in_memory_is_named() -> None:
    storage = library()
    book = new_system(storage=storage)
    assert book.get_page("mem-3").index == "mem-3"
    tamper(storage, [Put(PAGE, BESIDE, b"nonsense", MEM, b"\x80")])
    told = [found.text for found in book.check() if found.where == "mem-3"]
    assert told[0] == "page mem-3 is damaged: its checksum does not match."


def test_all_that_is_broken_is_named_not_the_first_only() -> None:
    storage = library()
    tamper(storage, [placed(storage, BESIDE, INSIDE), headed(storage, SYS, visibility=Visibility.HIDDEN)])
    assert {found.where for found in problems(storage)} >= {"mem-3", "sys-0"}


def test_a_damaged_record_raises_when_it_is_touched_and_not_before() -> None:
    storage = library()
    tamper(storage, [Put(PAGE, BESIDE, b"nonsense", MEM, b"\x80")])
    book = new_system(storage=storage)
    assert book.get_page("mem-1").name == "folder"
    touching: list[Callable[[ContextSystem], object]] = [
        lambda book: book.get_page("mem-3"),
        lambda book: book.hide("mem-3"),
        lambda book: book.children("mem-0"),
        lambda book: list(book.list_pages()),
        lambda book: book.marshal(),
        lambda book: book.find("leaf"),
    ]
    for touch in touching:
        with pytest.raises(QuireError) as caught:
            touch(book)
        assert caught.value.code == "corrupt"
