"""The budget belongs to the context: it is stored, and every handle and every copy uses it."""

from pathlib import Path

import pytest

import quire
from quire import InvalidValue, Library


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def stored_budget(path: Path, name: str = "default") -> int:
    with quire.open(path, name, create=False) as ctx:
        return ctx.budget


def test_a_new_context_has_the_default_budget(path: Path) -> None:
    with quire.open(path) as ctx, quire.open(path, "small", budget=900) as small:
        assert (ctx.budget, small.budget) == (128_000, 900)
    assert (stored_budget(path), stored_budget(path, "small")) == (128_000, 900)


def test_a_new_budget_is_stored_with_the_next_write(path: Path) -> None:
    quire.open(path, budget=4_000).close()
    with quire.open(path, budget=8_000) as ctx:
        assert ctx.budget == ctx.render().budget == ctx.agent.budget().budget == 8_000
    assert stored_budget(path) == 4_000  # nothing was written
    with quire.open(path, budget=8_000) as ctx:
        ctx.user("Hello")
        assert stored_budget(path) == 8_000
        ctx.budget = 3_000
        with ctx.temporary():
            ctx.user("Hello")
            assert stored_budget(path) == 8_000
    assert stored_budget(path) == 3_000


def test_other_handles_see_a_new_budget_after_a_refresh(path: Path) -> None:
    with quire.open(path, budget=4_000) as first, quire.open(path) as second:
        second.budget = 2_000
        second.user("Hello")
        assert first.budget == 4_000
        assert first.refresh()
        assert first.budget == first.render().budget == 2_000
        first.budget = 3_000
        first.conversation.modify([{"operation": "delete", "indices": [0]}])
        assert second.refresh()
        assert second.budget == 3_000


def test_a_budget_that_could_not_be_written_yet_is_written_later(path: Path) -> None:
    with quire.open(path, budget=4_000) as first, quire.open(path) as second:
        second.user("Hello")
        first.budget = 3_000
        with pytest.raises(quire.Conflict):
            first.user("Hello too")
        first.refresh()
        assert first.budget == 3_000
        first.user("Hello too")
    assert stored_budget(path) == 3_000


def test_neither_rollback_nor_undo_restores_an_older_one(path: Path) -> None:
    with quire.open(path, budget=4_000) as ctx:
        ctx.user("Hello")
        point = ctx.checkpoint("here")
        ctx.budget = 3_000
        ctx.assistant("Hi")
        assert ctx.as_of(point).budget == 3_000
        ctx.undo(ctx.seq)
        ctx.rollback("here")
        assert ctx.budget == 3_000
    assert stored_budget(path) == 3_000


def test_copies_keep_it(path: Path, tmp_path: Path) -> None:
    with Library(path) as library:
        with library.open("a", budget=4_000) as ctx:
            ctx.user("Hello")
            point = ctx.seq
            ctx.budget = 3_000
            with ctx.fork("before a write") as fork:
                assert fork.budget == 3_000
            ctx.assistant("Hi")
            with ctx.fork("at a point", point) as fork:
                assert fork.budget == 3_000
        library.export("a", tmp_path / "a.quire")
        assert library.import_(tmp_path / "a.quire", "imported") == "imported"
        for name in ("before a write", "at a point", "imported"):
            assert stored_budget(path, name) == 3_000, name
        quire.backup(library.storage, tmp_path / "backup.db")
        with Library(f"file:{tmp_path / 'files'}") as target:
            quire.migrate(library.storage, target.storage)
            assert target.open("a", create=False).budget == 3_000
    assert stored_budget(tmp_path / "backup.db", "a") == 3_000


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, "8k"])
def test_a_bad_budget_is_refused(path: Path, budget: object) -> None:
    with pytest.raises(InvalidValue):
        quire.open(path, budget=budget)  # type: ignore[arg-type]
    with quire.open(path) as ctx:
        with pytest.raises(InvalidValue):
            ctx.budget = budget  # type: ignore[assignment]
        assert ctx.budget == 128_000
