"""Copying contexts: interrupted at any call and resumed, refused where necessary, always verified."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import quire
from quire import (
    Conflict,
    ContextSystem,
    Corrupt,
    EstimateCounter,
    InvalidOperation,
    MemoryStorage,
    NoSuchContext,
    SQLiteStorage,
    Storage,
    StorageFailure,
    migrate,
)
from quire.core import context_copy as copying
from quire.core.context_copy import Progress
from quire.storage.base import FAMILIES, PAGE, Commit, Delete, Patch, Put, Write
from quire.testing import FaultyStorage, InjectedFault
from quire.testing.case import contents, version_of
from tests.marks import broad
from tests.stores import BACKENDS, make


def book(storage: Storage, name: str = "c", count: int = 12) -> ContextSystem:
    system = quire.open(storage, name, counter=EstimateCounter()).pages
    for number in range(count):
        system.create_detail_page(f"page {number}", "", f"text {number} " * 9, "mem-0")
    system.hide("mem-1")
    system.archive("mem-2", cold=True)
    system.pin("mem-3")
    return system


@pytest.fixture
def source() -> MemoryStorage:
    storage = MemoryStorage()
    book(storage)
    return storage


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_CHUNK_RECORDS", 5)


# Interrupted and resumed


def calls_of(source: Storage, side: str) -> list[str]:
    """Return the storage calls of one complete copy on one side."""
    counting = FaultyStorage(source if side == "source" else MemoryStorage())
    if side == "source":
        migrate(counting, MemoryStorage(), "c")
    else:
        migrate(source, counting, "c")
    return counting.calls


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("backend", ["memory", *broad("file", "sqlite")])
def test_a_copy_interrupted_anywhere_goes_on(
    backend: str, side: str, when: Literal["before", "after"], source: MemoryStorage, tmp_path: Path
) -> None:
    expected = contents(source, "c")
    calls = calls_of(source, side)
    assert calls.count("commit") >= 8 or side == "source"
    for number in range(1, len(calls) + 1):
        target = make(backend, tmp_path / f"{number}")
        faulty = FaultyStorage(source if side == "source" else target, number, when)
        with pytest.raises(InjectedFault):
            migrate(faulty if side == "source" else source, target if side == "source" else faulty, "c")
        if version_of(target, "c") >= 0 and target.head("c") is not None:
            assert contents(target, "c") == expected, number
        target.close()
        target = target if backend == "memory" else make(backend, tmp_path / f"{number}")
        migrate(source, target, "c")
        assert contents(target, "c") == expected, number
        assert ContextSystem(target, "c").check() == []
        target.close()


def test_a_resumed_copy_does_not_begin_anew(source: MemoryStorage) -> None:
    target = MemoryStorage()
    whole = calls_of(source, "target").count("commit")
    faulty = FaultyStorage(target)
    migrate_until_commit(source, faulty, whole // 2)
    copied = version_of(target, "c")
    assert copied == -(whole // 2 - 1)
    faulty.arm(0)
    migrate(source, faulty, "c")
    assert faulty.calls.count("commit") == whole + copied
    assert faulty.calls.count("drop") == 0


def migrate_until_commit(source: Storage, faulty: FaultyStorage, number: int) -> None:
    """Copy, and fail before the commit with that number on the target."""
    commits = [at for at, call in enumerate(calls_of(source, "target"), start=1) if call == "commit"]
    faulty.arm(commits[number - 1], "before")
    with pytest.raises(InjectedFault):
        migrate(source, faulty, "c")


def test_an_unfinished_copy_cannot_be_opened_or_copied(source: MemoryStorage) -> None:
    target = MemoryStorage()
    migrate_until_commit(source, FaultyStorage(target), 4)
    with pytest.raises(InvalidOperation, match="unfinished copy"):
        ContextSystem(target, "c")
    with pytest.raises(InvalidOperation, match="unfinished copy"):
        migrate(target, MemoryStorage(), "c")


def test_an_unfinished_copy_of_an_older_state_is_made_anew(source: MemoryStorage) -> None:
    target = MemoryStorage()
    migrate_until_commit(source, FaultyStorage(target), 6)
    system = ContextSystem(source, "c", counter=EstimateCounter())
    system.remove_page("mem-5")
    system.set_detail("mem-1", "changed since")
    migrate(source, target, "c")
    assert contents(target, "c") == contents(source, "c")
    assert ContextSystem(target, "c").detail("mem-1") == "changed since"


# The source changes


class Meddling(FaultyStorage):
    """A target that runs a function at its n-th commit."""

    def __init__(self, inner: Storage, at: int, meddle: Callable[[], object]) -> None:
        super().__init__(inner)
        self._at = at
        self._meddle = meddle

    def commit(self, context: str, commit: Commit) -> None:
        super().commit(context, commit)
        if self.calls.count("commit") == self._at:
            self._meddle()


@pytest.mark.parametrize("change", ["append", "update", "remove"])
def test_a_source_that_changes_meanwhile_is_a_conflict_and_the_next_call_succeeds(
    change: str, source: MemoryStorage
) -> None:
    system = ContextSystem(source, "c", counter=EstimateCounter())
    changes: dict[str, Callable[[], object]] = {
        "append": lambda: system.create_detail_page("new", "", "new", "mem-0"),
        "update": lambda: system.update_page("mem-1", name="renamed"),
        "remove": lambda: system.remove_page("mem-12"),
    }
    commits = calls_of(source, "target").count("commit")
    for at in range(1, commits):
        target = MemoryStorage()
        with pytest.raises(Conflict, match="changed while it was copied"):
            migrate(source, Meddling(target, at, changes[change]), "c")
        assert version_of(target, "c") < 0
        migrate(source, target, "c")
        assert contents(target, "c") == contents(source, "c")
        system.undo(system.seq)


# Refusals


def test_a_target_that_holds_another_context_of_that_name_is_refused(source: MemoryStorage) -> None:
    target = MemoryStorage()
    book(target, count=3)
    before = contents(target, "c")
    with pytest.raises(InvalidOperation, match="already holds another context 'c'"):
        migrate(source, target, "c")
    assert contents(target, "c") == before


def test_an_occupied_target_of_equal_version_is_refused(source: MemoryStorage) -> None:
    target = MemoryStorage()
    book(target)
    assert version_of(target, "c") == version_of(source, "c")
    with pytest.raises((InvalidOperation, Corrupt)):
        migrate(source, target, "c")


def test_a_context_that_does_not_exist_is_named(source: MemoryStorage) -> None:
    with pytest.raises(NoSuchContext, match="'nowhere'"):
        migrate(source, MemoryStorage(), ["c", "nowhere"])


def live_store() -> tuple[MemoryStorage, MemoryStorage]:
    """Return a store with 甲, 乙 and 丙, and one with an older copy of 丙."""
    source, target = MemoryStorage(), MemoryStorage()
    for name in "甲乙丙":
        quire.open(source, name).user("一")
    migrate(source, target, "丙")
    quire.open(source, "丙").user("二")
    return source, target


def test_a_context_that_was_written_to_since_it_was_copied_keeps_nobody_back() -> None:
    source, target = live_store()
    older = contents(target, "丙")
    with pytest.raises(InvalidOperation, match=r"older copy of context '丙', at version 2; the source is at 3"):
        migrate(source, target)
    assert (list(target.contexts()), contents(target, "丙")) == (sorted("甲乙丙"), older)
    migrate(source, target, replace=True)
    assert all(contents(target, name) == contents(source, name) for name in "甲乙丙")


def test_replacing_takes_no_copy_that_went_its_own_way(source: MemoryStorage) -> None:
    _, target = live_store()
    there, _ = live_store()
    quire.open(target, "丙").user("三")
    source.drop("c")
    migrate(there, source, "丙")
    for name, other in (("another", there), ("written to in the target", source)):
        before = contents(target, "丙")
        with pytest.raises(InvalidOperation, match="another context '丙'"):
            migrate(other, target, "丙", replace=True)
        assert contents(target, "丙") == before, name


def test_an_older_copy_stays_when_its_source_is_damaged() -> None:
    source, target = live_store()
    older, head = contents(target, "丙"), source.head("丙")
    assert head is not None
    source.commit("丙", Commit(head.version, head.version, head.value, [Delete("message", 1)]))
    with pytest.raises(Corrupt, match=r"'丙': message record 1 is missing"):
        migrate(source, target, replace=True)
    assert (list(target.contexts()), contents(target, "丙")) == (sorted("甲乙丙"), older)


def test_the_worst_is_told_and_the_others_are_named_with_their_reasons() -> None:
    source, target = live_store()
    unfinished = FaultyStorage(source)
    book(aside := MemoryStorage())
    migrate_until_commit(aside, unfinished, 2)
    quire.open(target, "甲")
    with pytest.raises(
        InvalidOperation,
        match=r"'c' in the source is itself an unfinished copy.* Not copied either: '丙' \(an older copy exists\), "
        r"'甲' \(the name is taken\)\.$",
    ):
        migrate(source, target)
    assert list(target.contexts()) == ["丙", "乙", "甲"]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "file"])
def test_a_store_is_not_copied_onto_itself(kind: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    one: Storage | str = MemoryStorage() if kind == "memory" else f"{kind}:{tmp_path / 'store'}"
    quire.Library(one).create("c")
    with pytest.raises(InvalidOperation, match="are the same store"):
        migrate(one, f"{kind}:{tmp_path / 'link'}" if isinstance(one, str) else one)


# Verification


TAMPERINGS: dict[str, Callable[[Storage], Write]] = {
    "a changed value": lambda target: Patch(PAGE, first_page(target), b"tampered"),
    "a missing record": lambda target: Delete(PAGE, first_page(target)),
    "a record too many": lambda target: Put("body", 999, b"extra"),
    "another place": lambda target: Put(PAGE, first_page(target), target_value(target), 3, b"moved"),
}


def first_page(target: Storage) -> int:
    return next(record.key for record in target.scan("c", PAGE) if record.group is not None)


def target_value(target: Storage) -> bytes:
    found = target.get("c", PAGE, first_page(target))
    assert found is not None
    return found.value


@pytest.mark.parametrize("tampering", TAMPERINGS)
@pytest.mark.parametrize("finished", [False, True])
def test_verification_catches_a_tampered_target(tampering: str, finished: bool, source: MemoryStorage) -> None:
    target = MemoryStorage()

    def tamper() -> None:
        head = target.head("c")
        assert head is not None
        # The same head, so that only the records differ.
        target.commit("c", Commit(head.version, head.version, head.value, [TAMPERINGS[tampering](target)]))

    if finished:
        migrate(source, target, "c")
        tamper()
        with pytest.raises(Corrupt, match=r"record \d+ of 'c' reads back differently"):
            migrate(source, target, "c")
        return
    last = calls_of(source, "target").count("commit") - 1
    with pytest.raises(Corrupt, match=r"record \d+ of 'c' reads back differently"):
        migrate(source, Meddling(target, last, tamper), "c")
    assert version_of(target, "c") < 0
    target.drop("c")
    migrate(source, target, "c")
    assert contents(target, "c") == contents(source, "c")


# Several contexts, progress, switching


def test_all_contexts_or_the_named_ones_are_copied(source: MemoryStorage) -> None:
    for name in ("a", "b", "另"):
        book(source, name, 3)
    some, everything = MemoryStorage(), MemoryStorage()
    migrate(source, some, ["b", "另"])
    assert list(some.contexts()) == ["b", "另"]
    total = migrate(source, everything)
    assert list(everything.contexts()) == ["a", "b", "c", "另"]
    for name in source.contexts():
        assert contents(everything, name) == contents(source, name)
    assert total.records == sum(
        len(found) for name in source.contexts() for found in contents(source, name)[1].values()
    )


def test_progress_is_told_in_order(source: MemoryStorage) -> None:
    told: list[Progress] = []
    migrate(source, MemoryStorage(), "c", progress=told.append)
    phases = [progress.phase for progress in told]
    assert phases == sorted(phases, key=["copy", "verify", "done"].index)
    assert set(phases) == {"copy", "verify", "done"}
    for phase in ("copy", "verify"):
        records = [progress.records for progress in told if progress.phase == phase]
        assert records == sorted(records)


def test_progress_that_raises_interrupts_the_copy_which_goes_on_later(source: MemoryStorage) -> None:
    target = MemoryStorage()

    def stop(progress: Progress) -> None:
        if progress.records > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(source, target, "c", progress=stop)
    assert version_of(target, "c") < 0
    migrate(source, target, "c")
    assert contents(target, "c") == contents(source, "c")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_system_moves_to_another_storage_and_works_on(backend: str, source: MemoryStorage, tmp_path: Path) -> None:
    system = ContextSystem(source, "c", counter=EstimateCounter())
    before, history = system.marshal(), list(system.history())
    target = make(backend, tmp_path / "target")
    system.set_storage(target, migrate=True)
    assert system.storage is target
    assert system.marshal() == before
    assert list(system.history()) == history
    system.create_detail_page("after the move", "", "text", "mem-0")
    assert system.check() == []
    assert ContextSystem(source, "c").marshal() == before
    assert ContextSystem(target, "c").marshal() == system.marshal()
    target.close()


def test_without_migrate_only_a_target_with_this_very_state_is_taken(source: MemoryStorage) -> None:
    system = ContextSystem(source, "c", counter=EstimateCounter())
    copy, older, other = MemoryStorage(), MemoryStorage(), MemoryStorage()
    migrate(source, older, "c")
    system.hide("mem-4")
    migrate(source, copy, "c")
    book(other)
    ContextSystem(other, "c", counter=EstimateCounter()).hide("mem-4")
    assert version_of(other, "c") == version_of(source, "c")
    for target in (MemoryStorage(), older, other):
        with pytest.raises(InvalidOperation, match="migrate=True"):
            system.set_storage(target)
        assert system.storage is source
    system.set_storage(copy)
    system.expand("mem-4")
    assert version_of(copy, "c") == version_of(source, "c") + 1


def test_a_system_that_wrote_nothing_moves_to_an_empty_storage() -> None:
    system, target = ContextSystem(counter=EstimateCounter()), MemoryStorage()
    system.set_storage(target, migrate=True)
    system.add_segment(quire.Segment(id="mem"))
    assert list(target.contexts()) == ["default"]
    assert {family for family in FAMILIES if list(target.scan("default", family))} >= {"segment", "page", "journal"}


def test_a_context_that_lost_its_head_is_named_after_the_others_are_copied(tmp_path: Path) -> None:
    source = SQLiteStorage(tmp_path / "source.db")
    for name in ("a", "b", "c"):
        quire.open(source, name).user("hello")
    source._db.execute("DELETE FROM context WHERE name IN ('a', 'c')")
    target = MemoryStorage()
    with pytest.raises(Corrupt, match=r"context with number 1 has records, but no row.* Not copied either: .*number 3"):
        migrate(source, target)
    assert list(target.contexts()) == ["b"]
    migrate(source, target, "b")  # sound, and asked for by its name


@pytest.mark.parametrize(
    "read", [lambda where: migrate(where, "memory:"), quire.doctor, lambda where: quire.backup(where, "x")]
)
def test_a_source_that_does_not_exist_is_not_to_be_created(read: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match="There is no store at") as error:
        read(tmp_path / "nope.db")
    assert error.value.hints == ()
    assert list(tmp_path.iterdir()) == []
