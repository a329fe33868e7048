"""Copying contexts: interrupted and made again, refused where necessary, always verified."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

import quire
from quire import (
    Conflict,
    ContextSystem,
    EstimateCounter,
    InvalidOperation,
    Library,
    MemoryStorage,
    NoSuchContext,
    Storage,
    doctor,
    migrate,
)
from quire.testing import FaultyStorage, InjectedFault
from tests.marks import servers
from tests.servers.stores import new_url
from tests.stores import BACKENDS, make
from tests.talks import full_talk, new_talk, stored, texts


def book(storage: Storage, name: str = "c", count: int = 12) -> ContextSystem:
    system = quire.open(storage, name, counter=EstimateCounter()).pages
    for number in range(count):
        system.create_detail_page(f"page {number}", "", f"text {number} " * 9, "mem-0")
    system.hide("mem-1")
    system.archive("mem-2", cold=True)
    system.pin("mem-3")
    return system


def kept(storage: Storage, name: str = "c") -> tuple[object, ...]:
    """Return everything of a context, which is sound."""
    ctx = new_talk(storage, name)
    assert ctx.check() == []
    return stored(ctx)


@pytest.fixture
def source() -> MemoryStorage:
    storage = MemoryStorage()
    book(storage)
    return storage


@pytest.mark.parametrize("to", [*BACKENDS, *servers("postgres", "s3")])
def test_a_store_is_copied_whole(to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    full_talk(storage, "谈话").fork("f").user("only here")
    book(storage, "另")
    with Library(new_url(to, tmp_path, monkeypatch)) as target:
        phases: list[str] = []
        migrate(storage, target.storage, progress=lambda step: phases.append(step.phase))
        assert list(target.list()) == sorted(["谈话", "f", "另"])
        for name in target.list():
            assert kept(target.storage, name) == kept(storage, name)
        assert {"copy", "done"} <= set(phases)
        target.open("谈话").user("and on")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_copy_interrupted_anywhere_is_no_context_and_can_be_made(
    side: str, when: str, source: MemoryStorage, request: pytest.FixtureRequest
) -> None:
    counting = FaultyStorage(source if side == "source" else MemoryStorage())
    migrate(counting if side == "source" else source, MemoryStorage() if side == "source" else counting, "c")
    expected = kept(source)
    for number in range(1, len(counting.calls) + 1, 1 if request.config.getoption("--long") else 4):
        target = MemoryStorage()
        faulty = FaultyStorage(source if side == "source" else target, number, when)  # type: ignore[arg-type]
        with pytest.raises(InjectedFault):
            migrate(faulty if side == "source" else source, target if side == "source" else faulty, "c")
        if Library(target).exists("c"):
            try:
                assert kept(target) == expected, number
            except InvalidOperation:  # it cannot be opened or copied before it is whole
                with pytest.raises(InvalidOperation):
                    migrate(target, MemoryStorage(), "c")
        migrate(source, target, "c")
        assert kept(target) == expected, number


@pytest.mark.parametrize("change", ["append", "update", "remove"])
def test_a_source_that_changes_meanwhile_is_copied_as_of_one_moment_or_a_conflict(
    change: str, source: MemoryStorage
) -> None:
    system, target = ContextSystem(source, "c", counter=EstimateCounter()), MemoryStorage()
    before, changed = kept(source), False

    def meddle(step: object) -> None:
        nonlocal changed
        if not changed:
            changed = True
            match change:
                case "append":
                    system.create_detail_page("new", "", "new", "mem-0")
                case "update":
                    system.update_page("mem-1", name="renamed")
                case _:
                    system.remove_page("mem-12")

    try:
        migrate(source, target, "c", progress=meddle)
    except Conflict:
        migrate(source, target, "c")
    assert changed
    assert kept(target) in (before, kept(source))


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_removal_leaves_a_whole_context_or_none(when: str, source: MemoryStorage) -> None:
    found = set()
    for fault in range(1, 12):
        store, target = MemoryStorage(), MemoryStorage()
        migrate(source, store)
        with suppress(InjectedFault):
            Library(FaultyStorage(store, fault, when)).expire(timedelta(0))  # type: ignore[arg-type]
        assert all(symptom.severity == "note" for symptom in doctor(store).symptoms)
        assert doctor(store, repair=True).healthy
        assert doctor(store).symptoms == ()
        book(store, "other")
        migrate(store, target)
        whole = set(Library(store).list())
        assert set(Library(target).list()) == whole
        assert all(kept(target, name) == kept(store, name) for name in whole)
        found.add("c" in whole)
    assert found == {True, False}


def test_progress_that_raises_interrupts_the_copy_which_can_be_made_later(source: MemoryStorage) -> None:
    target = MemoryStorage()

    def stop(step: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(source, target, "c", progress=stop)
    migrate(source, target, "c")
    assert kept(target) == kept(source)


# Refusals


def test_a_target_that_holds_another_context_of_that_name_is_refused(source: MemoryStorage) -> None:
    for count in (3, 12):
        target = MemoryStorage()
        book(target, count=count)
        before = kept(target)
        with pytest.raises(quire.QuireError):
            migrate(source, target, "c")
        assert kept(target) == before


def test_a_context_that_does_not_exist_is_named(source: MemoryStorage) -> None:
    with pytest.raises(NoSuchContext) as error:
        migrate(source, MemoryStorage(), ["c", "nowhere"])
    assert "nowhere" in str(error.value)


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
    with pytest.raises(InvalidOperation):
        migrate(source, target)
    assert list(Library(target).list()) == sorted("甲乙丙")
    assert texts(quire.open(target, "丙")) == ["一"]
    migrate(source, target, replace=True)
    assert all(kept(target, name) == kept(source, name) for name in "甲乙丙")


def test_replacing_takes_no_copy_that_went_its_own_way() -> None:
    source, target = live_store()
    quire.open(target, "丙").user("三")
    before = kept(target, "丙")
    for other in (source, live_store()[0]):
        with pytest.raises(quire.QuireError):  # contexts of one moment differ in their records only
            migrate(other, target, "丙", replace=True)
        assert kept(target, "丙") == before


@pytest.mark.parametrize("kind", ["memory", "sqlite", "file"])
def test_a_store_is_not_copied_onto_itself(kind: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    one: Storage | str = MemoryStorage() if kind == "memory" else f"{kind}:{tmp_path / 'store'}"
    quire.Library(one).create("c")
    with pytest.raises(InvalidOperation):
        migrate(one, f"{kind}:{tmp_path / 'link'}" if isinstance(one, str) else one)


# Switching


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_system_moves_to_another_storage_and_works_on(backend: str, source: MemoryStorage, tmp_path: Path) -> None:
    system = ContextSystem(source, "c", counter=EstimateCounter())
    before, history = system.marshal(), list(system.history())
    target = make(backend, tmp_path / "target")
    system.set_storage(target, migrate=True)
    assert system.storage is target
    assert (system.marshal(), list(system.history())) == (before, history)
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
    for target in (MemoryStorage(), older, other):
        with pytest.raises(InvalidOperation):
            system.set_storage(target)
        assert system.storage is source
    system.set_storage(copy)
    system.expand("mem-4")
    assert ContextSystem(copy, "c").seq == ContextSystem(source, "c").seq + 1


def test_a_system_that_wrote_nothing_moves_to_an_empty_storage() -> None:
    system, target = ContextSystem(counter=EstimateCounter()), MemoryStorage()
    system.set_storage(target, migrate=True)
    system.add_segment(quire.Segment(id="mem"))
    assert list(Library(target).list()) == ["default"]
    assert [segment.id for segment in ContextSystem(target).list_segments()] == ["mem"]
