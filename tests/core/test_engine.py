"""From a plan to a commit: memory and disk agree after every interruption."""

import json
import os
from gc import collect
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

import quire
from quire import Conflict, ContextSystem, FileStorage, InvalidValue, MemoryStorage, Segment
from quire.core.engine import Transaction
from quire.core.plan import Plan
from quire.core.records import page_key
from quire.core.state import State
from quire.storage.base import Commit
from quire.system import segments, tree
from quire.testing import FaultyStorage
from tests.moved_pages import moved


def book(storage: quire.Storage | None = None, **options: Any) -> ContextSystem:
    system = ContextSystem(storage, **options)
    if not system.seq:
        system.add_segment(Segment(id="mem"))
    return system


def test_an_interruption_while_memory_moves_is_made_good_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    system = book()
    with monkeypatch.context() as patch:
        patch.setattr(State, "apply", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            system.create_detail_page("Landed", "", "one", "mem-0")
    system.create_detail_page("Next", "", "two", "mem-0")
    assert [page.name for page in system.children("mem-0")] == ["Landed", "Next"]
    assert system.check() == []


def test_a_change_in_the_same_millisecond_is_seen_by_another_handle() -> None:
    storage = MemoryStorage()
    one, two = (book(storage, clock=lambda: 1_000) for _ in range(2))
    two.refresh()
    one.create_detail_page("Note", "", "text", "mem-0")
    two.refresh()
    one.hide("mem-1")
    with pytest.raises(Conflict):
        two.update_page("mem-1", name="Mine")
    assert two.refresh()
    two.update_page("mem-1", name="Mine")


@pytest.mark.parametrize("wrong", [0.75, -1, None, "3", True])
def test_a_counter_that_gives_no_whole_number_is_refused_before_anything_is_written(wrong: Any) -> None:
    class Counter:
        name = "wrong"
        exact = False

        def count(self, text: str) -> int:
            return wrong  # type: ignore[no-any-return]

    system = book(counter=Counter())
    with pytest.raises(InvalidValue, match="counter"):
        system.create_detail_page("Note", "", "text", "mem-0")
    assert (system.seq, system.check()) == (1, [])


def test_a_clock_that_gives_no_whole_number_is_refused_before_anything_is_written() -> None:
    wrong: Any = lambda: 12.5  # noqa: E731
    system = ContextSystem(clock=wrong)
    with pytest.raises(InvalidValue, match="clock"):
        system.add_segment(Segment(id="mem"))
    assert system.seq == 0


def test_several_steps_in_one_plan_see_each_other_and_are_one_entry() -> None:
    def steps(plan: Plan) -> int:
        index = tree.create_detail_page(plan, "Note", "", "first", "mem-0")
        tree.set_detail(plan, index, "second")
        segments.add_segment(plan, Segment(id="other"))
        assert list(plan.members(page_key(1, 0))) == []  # it is not stored yet, which is not damage
        tree.create_detail_page(plan, "Gone with it", "", "text", "other-0")
        return segments.remove_segment(plan, "other")

    system = book()
    assert system._engine.run("developer", "steps", steps) == 2
    assert (system.seq, system.detail("mem-1"), system.check()) == (2, "second", [])


def test_work_that_was_held_back_leaves_memory_once_it_is_committed() -> None:
    system = book()
    engine = system._engine
    work = Transaction(engine)
    overlay = ref(engine.state.storage)
    system.create_detail_page("Note", "", "text", "mem-0")
    work.commit_all()
    del work
    collect()
    assert overlay() is None
    engine.state.evict_lru(0)
    assert system.detail("mem-1") == "text"


def test_who_came_second_hears_of_a_conflict_even_if_the_storage_fails_then() -> None:
    storage = FaultyStorage(MemoryStorage())
    one, two = book(storage), book(storage)
    one.hide("mem-0")
    storage.arm(3, lasting=True)
    with pytest.raises(Conflict):
        two.update_page("mem-0", name="Mine")
    assert storage.calls == ["get", "commit", "head"]


def test_a_commit_that_could_not_be_synced_is_unseen_by_one_who_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = FileStorage(tmp_path, durability="full"), FileStorage(tmp_path)
    first, second = book(one), book(two)

    def fail(descriptor: int) -> None:
        second.refresh()  # reads the commit that is reverted next
        raise OSError("no sync")

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", fail)
        with pytest.raises(quire.StorageFailure):
            first.create_detail_page("Never acknowledged", "", "text", "mem-0")
    with pytest.raises(Conflict):
        second.create_detail_page("Too early", "", "text", "mem-0")
    second.refresh()
    second.create_detail_page("Kept", "", "text", "mem-0")
    two.close()
    one.close()
    storage = FileStorage(tmp_path)
    system = ContextSystem(storage)
    assert [page.name for page in system.children("mem-0")] == ["Kept"]
    assert system.check() == []
    storage.close()


def test_many_contexts_in_a_folder_keep_few_files_open(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    systems = [ContextSystem(storage, f"context {number}") for number in range(150)]
    for system in systems:
        system.add_segment(Segment(id="mem"))
    files = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.exists()]
    assert sum(file.startswith(str(tmp_path)) for file in files) < 130
    for system in systems:
        system.create_detail_page("Note", "", "text", "mem-0")
        assert system.detail("mem-1") == "text"
    storage.close()


def test_closing_a_context_closes_what_it_opened_and_nothing_else(tmp_path: Path) -> None:
    context = quire.open(tmp_path / "own.db")
    own, target = context.pages.storage, quire.open_storage(tmp_path / "target.db")
    context.pages.set_storage(target, migrate=True)
    context.close()
    with pytest.raises(quire.StorageClosed):
        own.head("default")
    assert target.head("default") is not None
    target.close()


def test_a_pinned_page_that_a_document_moved_is_still_protected_from_above() -> None:
    system = book()
    folder = system.create_contents_page("Folder", "", "mem-0")
    page = system.create_detail_page("Page", "", "text", "mem-0")
    system.pin(page)
    other = book()
    other.unmarshal(system.marshal())
    other.unpin(page)
    other.move_page(page, folder)
    other.pin(page)
    with pytest.raises(quire.InvalidOperation):
        system.hide("mem-0")  # fills the cache of the folders above pins
    system.unmarshal(other.marshal())
    with pytest.raises(quire.InvalidOperation, match="pinned"):
        system.hide(folder)
    assert system.check() == []


def test_undoing_a_document_reads_in_proportion_to_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = {"members": 0}
    members = State.members

    def counted(self: State, *arguments: Any, **options: Any) -> Any:
        for page in members(self, *arguments, **options):
            looks["members"] += 1
            yield page

    def work(count: int) -> int:
        system = book()
        for number in range(count):
            system.create_detail_page(f"Page {number}", "", "", "mem-0")
        document = json.loads(system.marshal())
        document["pages"]["mem-0"]["children"].reverse()
        system.unmarshal(json.dumps(document))
        looks["members"] = 0
        system.undo(system.seq)
        return looks["members"]

    monkeypatch.setattr(State, "members", counted)
    small = work(100)
    assert 0 < work(400) < 8 * small


def test_pages_that_lie_in_each_other_are_named_and_do_not_hang_a_call() -> None:
    storage = MemoryStorage()
    system = book(storage)
    one = system.create_contents_page("One", "", "mem-0")
    two = system.create_contents_page("Two", "", one)
    keys = [1, 2]
    records = [storage.get("default", "page", key) for key in keys]
    head = storage.head("default")
    assert head is not None
    circle = [
        moved(record, other, record.order)
        for record, other in zip(records, reversed(keys), strict=True)
        if record is not None
    ]
    assert len(circle) == 2
    storage.commit("default", Commit(head.version, head.version, head.value, circle))
    broken = ContextSystem(storage)
    for index in (one, two):
        with pytest.raises(quire.Corrupt, match="own subtree"):
            broken.hide(index)
    assert {4} <= {problem.invariant for problem in broken.check()}
