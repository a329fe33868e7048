"""A missing record is named by the read that needs it, and sound contexts are never called damaged."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import get_args

import apsw
import pytest

import quire
from quire import Conflict, Context, Corrupt, FileStorage, Library, MemoryStorage, SQLiteStorage, Storage, migrate
from quire.core.derived_records import VECTOR_STATE
from quire.core.records import (
    CHECKPOINTS,
    GAPS,
    Tally,
    decode_head,
    encode_record,
    page_key,
)
from quire.maintenance.person_copy import ExportFormat
from quire.storage.base import (
    ANCHOR,
    CALL,
    FAMILIES,
    JOURNAL,
    LAYOUT,
    MESSAGE,
    NOTE,
    PAGE,
    PIN,
    SEGMENT,
    TALLY,
    VECTOR,
    Commit,
    Delete,
    Family,
    Put,
    Record,
    sum_orders,
)
from quire.storage.file.frames import read_frames
from tests.compat.make_store import Letters
from tests.maintenance.test_doctor import patch
from tests.stores import BACKENDS, make
from tests.talks import calling, full_talk, new_talk


def test_the_reproduction_with_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with quire.open(path, "c") as ctx:
        for number in range(5):
            ctx.user(f"message {number}")
        seq = ctx.pages.seq
    with closing(apsw.Connection(str(path))) as db:
        db.execute("DELETE FROM journal WHERE id & 4294967295 = ?", (seq - 2,))
        assert db.changes() == 1
    ctx = quire.open(path, "c")
    missing = f"'c': journal record {seq - 2} is missing"
    for read in (
        lambda: list(ctx.history()),
        lambda: list(ctx.history(reverse=True)),
        lambda: ctx.rollback(2),
        lambda: ctx.undo(seq - 2),
        lambda: migrate(path, MemoryStorage()),
        lambda: Library(path).export("c", tmp_path / "c.quire"),
    ):
        with pytest.raises(Corrupt, match=missing):
            read()
    assert any(f"journal record {seq - 2}" in problem for problem in quire.backup(path, tmp_path / "b.db").problems)
    assert [message.content for message in ctx.messages()] == [f"message {number}" for number in range(5)]


def first_key(storage: Storage, family: Family) -> int:
    return next(iter(storage.scan("c", family))).key


def last_leaf(storage: Storage) -> int:
    talk = new_talk(storage, "c")
    return talk.pages._engine.state.key_of("usr-16") or 0


Read = Callable[[Context], object]
LOST: dict[str, tuple[Callable[[Storage], Delete], Read, str]] = {
    "the conversation": (lambda _: Delete(SEGMENT, 2), lambda ctx: ctx.messages(), r"segment record 2 \('usr'\)"),
    "the prompt": (lambda _: Delete(SEGMENT, 0), lambda ctx: ctx.render(), r"segment record 0 \('sys'\)"),
    "a page of messages": (
        lambda storage: Delete(PAGE, last_leaf(storage)),
        lambda ctx: list(ctx.messages()),
        "pages are missing: usr-16",
    ),
    "the newest page": (
        lambda storage: Delete(PAGE, last_leaf(storage)),
        lambda ctx: ctx.pending_calls(),
        "pages are missing: usr-16",
    ),
    "a page by its index": (
        lambda storage: Delete(PAGE, last_leaf(storage)),
        lambda ctx: ctx.pages.get_page("usr-16"),
        "page usr-16 is missing",
    ),
    "a part of a folder": (
        lambda storage: Delete(PAGE, last_leaf(storage)),
        lambda ctx: ctx.pages.children("usr-0", limit=2),
        "pages are missing: usr-16",
    ),
    "a cold page": (
        lambda storage: Delete(PAGE, last_leaf(storage) - 5),
        lambda ctx: ctx.pages.children("usr-0", cold=True),
        "usr-11",
    ),
    "a root": (lambda _: Delete(PAGE, page_key(1, 0)), lambda ctx: ctx.pages.children("mem-0"), "mem-0"),
    "the count of a folder": (
        lambda storage: Delete(TALLY, page_key(2, 0)),
        lambda ctx: ctx.pages.child_count("usr-0"),
        f"tally record {page_key(2, 0)} is missing",
    ),
    "a message": (lambda _: Delete(MESSAGE, 3), lambda ctx: list(ctx.messages(all=True)), "message record 3"),
    "a pin": (
        lambda storage: Delete(PIN, first_key(storage, PIN)),
        lambda ctx: ctx.pages.remove_page("mem-2"),
        "pin record",
    ),
    "a checkpoint": (
        lambda _: Delete(NOTE, CHECKPOINTS + 30),
        lambda ctx: ctx.pages.checkpoints(),
        "a checkpoint at entry 30",
    ),
    "the deleted numbers": (lambda _: Delete(NOTE, GAPS), lambda ctx: list(ctx.messages(all=True)), "note record 1"),
    "a deferred change": (
        lambda storage: Delete(ANCHOR, first_key(storage, ANCHOR)),
        lambda ctx: ctx.render(),
        "anchor record",
    ),
}


@pytest.fixture(scope="module")
def sound() -> MemoryStorage:
    """Return a store with a context of every kind of record."""
    storage = MemoryStorage()
    talk = full_talk(storage, "c")
    folder = talk.pages.create_contents_page("folder", "", "mem-0")
    talk.pages.pin(talk.pages.create_detail_page("pinned", "", "text", folder))
    assert talk.checkpoint("here") == 30
    talk.conversation.delete(5)
    talk.conversation.cleanup()
    talk.agent.create_detail_page("of the agent", "", "text", "mem-0")
    assert talk.check() == []
    return storage


def damaged(sound: MemoryStorage, storage: Storage, write: Callable[[Storage], Delete]) -> None:
    migrate(sound, storage)
    lost = write(storage)
    assert storage.get("c", lost.family, lost.key) is not None
    patch(storage, lost)


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lost_record_is_named_by_the_read_that_needs_it(
    backend: str, lost: str, sound: MemoryStorage, tmp_path: Path
) -> None:
    storage = make(backend, tmp_path / "store")
    write, read, named = LOST[lost]
    damaged(sound, storage, write)
    with pytest.raises(Corrupt, match=named):
        read(new_talk(storage, "c"))
    with pytest.raises(Corrupt):
        migrate(storage, MemoryStorage())
    assert not quire.doctor(storage).healthy
    storage.close()


def test_a_page_in_another_place_is_damaged() -> None:
    storage = MemoryStorage()
    full_talk(storage, "c")
    record = storage.get("c", PAGE, last_leaf(storage))
    assert record is not None
    for group, order in ((page_key(1, 0), record.order), (record.group, b"\1"), (None, record.order)):
        patch(storage, Put(PAGE, record.key, record.value, group, order))
        with pytest.raises(Corrupt, match="usr-16 is damaged: its checksum"):
            new_talk(storage, "c").pages.get_page("usr-16")


def test_the_head_of_another_context_is_not_taken() -> None:
    storage = MemoryStorage()
    for name in ("c", "d"):
        full_talk(storage, name)
    head = storage._contexts["d"][0]
    storage._contexts["c"] = head, storage._contexts["c"][1]
    with pytest.raises(Corrupt, match="'c': its head belongs to another context or version"):
        new_talk(storage, "c")


@pytest.mark.parametrize("family", ["page", "body", "message", "journal", "note", "segment", "call", "tally"])
def test_a_record_of_another_context_is_not_taken(family: Family) -> None:
    storage = MemoryStorage()
    for name in ("c", "d"):
        full_talk(storage, name).checkpoint("here")
    record = next(storage.scan("d", family, reverse=True))
    patch(storage, Put(family, record.key, record.value, record.group, record.order))
    with pytest.raises(Corrupt, match="it belongs to another context"):
        migrate(storage, MemoryStorage(), "c")


READS: list[Callable[[Context], object]] = [
    lambda ctx: ctx.user("Hello"),
    lambda ctx: ctx.render(),
    lambda ctx: list(ctx.messages(all=True)),
    lambda ctx: list(ctx.history()),
    lambda ctx: ctx.pages.get_page("usr-1"),
]


@pytest.mark.parametrize("read", READS)
def test_a_context_that_was_created_again_is_not_damaged(read: Callable[[Context], object]) -> None:
    storage = MemoryStorage()
    quire.open(storage, "c").user("First")
    stale = quire.open(storage, "c")
    Library(storage).delete("c")
    full_talk(storage, "c")
    with pytest.raises(Conflict):
        read(stale)
    stale.refresh()
    read(stale)


def test_commits_that_are_out_of_order_in_a_log_are_damage(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    with quire.open(storage, "c") as ctx:
        for number in range(4):
            ctx.user(f"{number}")
    storage.close()
    log = tmp_path / "c" / "log"
    data = log.read_bytes()
    start = data.index(b"\n") + 1
    one, two = list(read_frames(data[start:], start))[2:4]
    swapped = data[: one.start] + data[two.start : two.end] + data[one.start : one.end] + data[two.end :]
    log.write_bytes(swapped)
    with pytest.raises(Corrupt, match="its commits are out of order"):
        quire.open(FileStorage(tmp_path), "c")


# Derived data


def test_a_lost_call_is_found_and_made_again_by_the_doctor() -> None:
    storage = MemoryStorage()
    talk = new_talk(storage, "c")
    talk.user("look")
    talk.assistant(None, calling("a", "b"))
    key = first_key(storage, CALL)
    before = storage.get("c", CALL, key)
    patch(storage, Delete(CALL, key))
    found = quire.doctor(storage)
    assert [(symptom.code, symptom.where) for symptom in found.symptoms] == [("record_damaged", f"call {key}")]
    assert quire.doctor(storage, repair=True).healthy
    assert storage.get("c", CALL, key) == before
    assert quire.doctor(storage).symptoms == ()


def test_lost_vectors_are_found_by_the_doctor_and_made_again_by_a_search() -> None:
    storage = MemoryStorage()
    ctx = quire.open(storage, "c", embedder=Letters())
    for text in ("a train to Osaka", "bread and tea", "the sea"):
        ctx.user(text)
    before = ctx.find("tea", 3)
    key = first_key(storage, VECTOR)
    patch(storage, Delete(VECTOR, key))
    (symptom,) = quire.doctor(storage).symptoms
    assert (symptom.code, symptom.where) == ("record_damaged", f"vector {VECTOR_STATE}")
    with storage.snapshot("c") as again:  # this process knows the vectors of the other storage
        assert quire.open(again, "c", embedder=Letters()).find("tea", 3) == before
        assert again.get("c", VECTOR, key) is not None
        assert quire.doctor(again).symptoms == ()


def test_a_lost_layout_is_named_and_dropped_by_the_doctor() -> None:
    storage = MemoryStorage()
    ctx = quire.open(storage, "c", budget=1_000)
    for number in range(30):
        ctx.pages.create_detail_page(f"note {number}", "", "words " * 40, "mem-0")
        ctx.user("question " * 30)
        ctx.render()
        ctx.assistant("answer " * 30)
    ctx.render()
    patch(storage, Delete(LAYOUT, first_key(storage, LAYOUT)))
    with pytest.raises(Corrupt, match="layout record is missing"):
        quire.open(storage, "c", budget=1_000).render()
    assert quire.doctor(storage, repair=True).healthy
    quire.open(storage, "c", budget=1_000).render()
    assert quire.doctor(storage).symptoms == ()


# Sound contexts


def test_numbers_that_no_page_has_are_not_damage() -> None:
    storage = MemoryStorage()
    talk = new_talk(storage, "c")
    reserved = talk.pages.generate_index("mem")
    talk.pages.create_detail_page("note", "", "text", "mem-0")
    fresh = new_talk(storage, "c")
    with pytest.raises(quire.NoSuchPage):
        fresh.pages.get_page(reserved)
    assert len(list(fresh.pages.list_pages("mem"))) == 2
    assert fresh.check() == []


def test_a_handle_beside_a_writer_does_not_see_damage(tmp_path: Path) -> None:
    storage = SQLiteStorage(tmp_path / "store.db")
    one, two = new_talk(storage, "c"), new_talk(storage, "c")
    for talk in (one, two):
        talk.pages.refresh()
    page = one.pages.create_detail_page("note", "", "text", "mem-0")
    two.pages.children("mem-0")
    two.pages.children("mem-0", limit=1)
    assert [shown.index for shown in two.pages.list_pages("mem")] == ["mem-0", page]
    storage.close()


def test_the_counts_of_an_older_context_are_filled_in_by_its_first_write() -> None:
    storage = MemoryStorage()
    talk = full_talk(storage, "c")
    talk.checkpoint("here")
    head = storage.head("c")
    assert head is not None
    new = decode_head(head.value)
    assert new.counts is not None
    older = quire.core.records.HeadRecord(*[getattr(new, field) for field in new.__struct_fields__[:16]])
    storage.commit("c", Commit(head.version, head.version, encode_record(0, older), ()))
    again = new_talk(storage, "c")
    assert again.check() == []
    again.user("more")
    head = storage.head("c")
    assert head is not None
    counts = decode_head(head.value).counts
    assert counts is not None
    assert counts.pages == (*new.counts.pages[:2], new.counts.pages[2] + 1, *new.counts.pages[3:])
    assert (counts.pins, counts.notes, counts.checkpoints) == (new.counts.pins, new.counts.notes, 1)
    assert new_talk(storage, "c").check() == []


def test_a_turn_reads_no_more_than_it_needs() -> None:
    """A message and a view between two folds read one record, whatever is counted."""

    class Reading(MemoryStorage):
        reads = 0

        def get(self, context: str, family: Family, key: int) -> Record | None:
            Reading.reads += 1
            return super().get(context, family, key)

    storage = Reading()
    ctx = quire.open(storage, "c", budget=20_000)
    for number in range(20):
        ctx.user(f"question {number}")
        ctx.render()
        ctx.assistant("answer")
    scans: list[str] = []
    for name in ("scan", "members", "sum_members"):
        inner = getattr(storage, name)

        def counted(
            *args: object, _inner: Callable[..., object] = inner, _name: str = name, **options: object
        ) -> object:
            scans.append(_name)
            return _inner(*args, **options)

        setattr(storage, name, counted)
    Reading.reads = 0
    for _ in range(5):
        ctx.user("again")
        ctx.render().openai()
        ctx.assistant("yes")
    assert (Reading.reads, scans) == (5, [])


def test_every_family_is_checked() -> None:
    """A new family needs a rule for a missing record: add it to the table above, or to the derived data."""
    assert set(FAMILIES) == {
        *(SEGMENT, PAGE, "body", JOURNAL, TALLY, PIN, MESSAGE, CALL, NOTE, ANCHOR, VECTOR, LAYOUT, "sheet"),
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_page_in_a_wrong_place_is_never_left_out(backend: str, tmp_path: Path) -> None:
    """A part of a folder is read only if all its children are in their places."""
    storage = make(backend, tmp_path / "store")
    ctx = quire.open(storage, "c")
    ctx.pages.create_contents_page("A", "", "mem-0")
    for number in range(6):
        ctx.user(f"message {number}")
        ctx.pages.create_detail_page(f"note {number}", "", "a note", "mem-1")
    ctx.pages.move_page("mem-4", "mem-1", before="mem-2")
    ctx.pages.archive("mem-6", cold=True)
    assert quire.doctor(storage).healthy
    reads: dict[str, tuple[str, Read]] = {
        "the first": ("mem-2", lambda ctx: ctx.pages.children("mem-1", limit=1)),
        "after a page": ("mem-3", lambda ctx: ctx.pages.children("mem-1", after="mem-2", limit=1)),
        "for an agent": ("mem-7", lambda ctx: ctx.agent.children("mem-1", 0, 2)),
        "cold": ("mem-6", lambda ctx: ctx.pages.children("mem-1", cold=True)),
        "the newest": ("usr-1", lambda ctx: ctx.pending_calls()),
        "the last": ("usr-6", lambda ctx: ctx.pending_calls()),
    }
    for name, (index, read) in reads.items():
        read(quire.open(storage, "c"))
        record = storage.get("c", PAGE, ctx.pages._engine.state.key_of(index) or 0)
        assert record is not None
        for order in (bytes([record.order[0] ^ 1]) + record.order[1:], record.order[:-1], record.order + b"x"):
            patch(storage, Put(PAGE, record.key, record.value, record.group, order))
            with pytest.raises(Corrupt, match=f"page {index} is damaged"):
                read(quire.open(storage, "c"))
            assert not quire.doctor(storage).healthy, name
        patch(storage, Put(PAGE, record.key, record.value, record.group, record.order))
    assert quire.doctor(storage).healthy
    storage.close()


def test_the_places_below_a_folder_of_an_older_quire_are_summed_at_its_first_write() -> None:
    storage = MemoryStorage()
    ctx = quire.open(storage, "c")
    for number in range(3):
        ctx.pages.create_detail_page(f"note {number}", "", "a note", "mem-0")
    ctx.user("hello")  # now the tally of `mem-0` has a record of its own
    root = page_key(1, 0)
    new = ctx.pages._engine.state.tally(root)
    assert new.children == 3
    assert new.orders > 0
    patch(storage, Put(TALLY, root, encode_record(root, 3)))
    old = quire.open(storage, "c")
    assert old.pages._engine.state.tally(root) == Tally(3, 0)
    assert [page.name for page in old.pages.children("mem-0", limit=1)] == ["note 0"]
    assert quire.doctor(storage).healthy
    old.pages.create_detail_page("note 3", "", "a note", "mem-0")
    now = old.pages._engine.state.tally(root)
    assert now.children == 4
    assert now.orders == sum_orders(record.order for record in storage.members("c", PAGE, root))[1]
    assert quire.doctor(storage).healthy


@pytest.mark.parametrize("family", [SEGMENT, PAGE, MESSAGE, JOURNAL])
@pytest.mark.parametrize("kind", BACKENDS)
def test_an_export_checks_its_origin_and_a_fork_if_asked_to(kind: str, family: Family, tmp_path: Path) -> None:
    storage = make(kind, tmp_path / "store")
    ctx = quire.open(storage, "c")
    for number in range(5):
        ctx.user(f"message {number}")
    ctx.fork("sound", check=True)
    Library(storage).export("c", tmp_path / "sound.json", format="json")
    last = list(storage.scan("c", family))[-2]
    head = storage.head("c")
    assert head is not None
    storage.commit("c", Commit(head.version, head.version, head.value, [Delete(family, last.key)]))
    for fork in (ctx.fork, lambda name, check: Library(storage).fork("c", name, check=check)):
        with pytest.raises(Corrupt, match=f"{family} record {last.key}"):
            fork("f", check=True)
        assert not Library(storage).exists("f")
    for form in get_args(ExportFormat):
        with pytest.raises(Corrupt, match=f"{family} record {last.key}"):
            Library(storage).export("c", tmp_path / "c", format=form)
        assert not (tmp_path / "c").exists()
