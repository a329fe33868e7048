"""The overlay: what it shows is what the storage below has after its one commit."""

from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from quire import MemoryStorage, SQLiteStorage
from quire.errors import Conflict, InvalidOperation
from quire.storage.blobs import Folder
from quire.storage.contract import FAMILIES, Commit, Fork, Id, Storage
from quire.storage.log import LogStorage
from quire.storage.overlay import OverlayStorage
from quire.testing.case import commit_of, contents
from quire.testing.contexts import random_commit
from quire.testing.records import OrderRules


@pytest.fixture(params=["memory", "sqlite", "log"])
def below(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "memory":
        return MemoryStorage()
    return SQLiteStorage(tmp_path / "a.db") if request.param == "sqlite" else LogStorage(Folder(tmp_path), pack_every=4)


def everything(storage: Storage, context: Id) -> object:
    """Return all that can be read of a context, and parts of it backwards."""
    found = storage.load("c")
    assert found is not None
    return (
        (found.seq, found.head, found.notes, contents(storage, context)),
        list(storage.entries(context, reverse=True)),
        [list(storage.scan(context, family, 2, 9, reverse=True)) for family in FAMILIES],
        [list(storage.children(context, parent, after=(1, 5), reverse=True)) for parent in (1, 2, ~1)],
        [storage.get(context, family, range(-1, 13)) for family in FAMILIES],
    )


def apply(storage: Storage, commits: list[Commit]) -> Id:
    """Make these commits in context `c`, which may be new. Return its id."""
    found = storage.load("c")
    context = storage.create("c", commits[0]) if found is None else found.id
    for commit in commits[found is None :]:
        storage.commit(context, commit)
    return context


def commit_below(overlay: OverlayStorage) -> Id:
    merged = overlay.as_commit()
    assert merged is not None
    return overlay.write_below(merged)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_new", [False, True])
def test_an_overlay_shows_what_its_commit_will_make(below: Storage, seed: int, is_new: bool) -> None:
    random, model = Random(seed), MemoryStorage()
    numbers = range(1, random.randrange(4, 30))
    commits = [replace(random_commit(random, seq), replace=(), expire=0) for seq in numbers]
    split = 0 if is_new else random.randrange(1, len(commits))
    expected = everything(model, apply(model, commits))
    if split:
        apply(below, commits[:split])
    overlay = OverlayStorage(below, "c")
    assert overlay.as_commit() is None
    context = apply(overlay, commits[split:])
    for storage in (overlay, OverlayStorage(overlay, "c")):
        assert everything(storage, context) == expected
        with storage.snapshot(context) as snapshot:
            assert everything(snapshot, context) == expected
    assert everything(below, commit_below(overlay)) == expected


def test_an_overlay_that_is_outdated_cannot_be_committed(below: Storage) -> None:
    context = below.create("c", commit_of(1))
    overlay = OverlayStorage(below, "c")
    inner = OverlayStorage(overlay, "c")
    inner.commit(context, commit_of(2, entry=b"mine"))
    assert not inner.is_outdated()
    below.commit(context, commit_of(2, entry=b"other"))
    assert overlay.is_outdated()
    assert inner.is_outdated()
    commit_below(inner)
    with pytest.raises(Conflict):
        commit_below(overlay)
    with pytest.raises(Conflict), overlay.snapshot(context):
        pass


def test_an_overlay_of_a_new_context_meets_conflict_if_another_is_first(below: Storage) -> None:
    overlay = OverlayStorage(below, "c")
    overlay.create("c", commit_of(1))
    with pytest.raises(Conflict):
        overlay.create("c", commit_of(1))
    below.create("c", commit_of(1))
    assert overlay.is_outdated()
    with pytest.raises(Conflict):
        commit_below(overlay)


def test_a_context_in_an_overlay_is_not_dropped_or_forked(below: Storage) -> None:
    context = below.create("c", commit_of(1))
    overlay = OverlayStorage(below, "c")
    with pytest.raises(InvalidOperation):
        overlay.drop("c")
    with pytest.raises(InvalidOperation):
        overlay.create("f", commit_of(1), Fork(context, 1))


class TestOrder(OrderRules):
    """The rules of order, for a context that exists in the overlay only."""

    for _name in ("that_is_dropped_halfway_blocks_nobody", "never_strays_into_what_replaced_its_context"):
        locals()[f"test_a_reading_{_name}"] = None  # they drop the context

    def open_storage(self, place: Path) -> Storage:
        return OverlayStorage(MemoryStorage(), "c")
