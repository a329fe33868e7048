"""Layouts and copies of a context: they are derived, so a copy has the same view, and an old store gets one."""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from random import Random

import pytest

import quire
from quire import Context, Visibility, backup, check_legal, doctor, migrate
from quire.core.records import RENDERER
from quire.errors import InvalidOperation
from quire.maintenance.export import export_context, import_context
from quire.storage.base import LAYOUT
from quire.system.journal import Entry
from tests.compat.make_store import SUPPORT, open_context
from tests.compat.places import loaded, opened
from tests.marks import broad

BUDGET = 2_000
Copy = Callable[[Context, Path], Context]


def laid_out(folder: Path, notes: int = 200) -> Context:
    """Return a context with a layout and a page that came after it."""
    ctx = quire.open(folder / "a.quire", "first", budget=BUDGET)
    for number in range(notes):
        ctx.pages.create_detail_page(f"note {number} on pumps", "", f"Text of note {number}.", "mem-0")
    ctx.user("Hello")
    ctx.render()
    ctx.pages.create_detail_page("fresh", "", "A fresh text.", "mem-0")
    ctx.assistant("Good day.")
    return ctx


def entries(ctx: Context) -> dict[int, Entry]:
    return {entry.seq: entry for entry in ctx.history()}


def check(ctx: Context) -> list[dict[str, object]]:
    view = ctx.render()
    assert view.tokens <= BUDGET
    assert check_legal(view.openai(), "openai") == []
    assert ctx.check() == []
    return view.openai()


def make_backup(ctx: Context, folder: Path) -> Context:
    backup(ctx.pages.storage, folder / "b.quire")
    return quire.open(folder / "b.quire", "first")


def make_export(ctx: Context, folder: Path) -> Context:
    storage = quire.open_storage(folder / "c.quire")
    export_context(ctx.pages.storage, "first", folder / "first.export")
    import_context(storage, folder / "first.export")
    return quire.open(storage, "first")


def make_migration(ctx: Context, folder: Path) -> Context:
    migrate(ctx.pages.storage, f"file:{folder / 'd'}", "first")
    return quire.open(f"file:{folder / 'd'}", "first")


@pytest.mark.parametrize("copy", [make_backup, make_export, make_migration])
def test_a_copy_has_the_same_layout(copy: Copy, tmp_path: Path) -> None:
    ctx = laid_out(tmp_path)
    view = check(ctx)
    with copy(ctx, tmp_path) as same:
        assert check(same) == view
        assert doctor(same.pages.storage).symptoms == ()
        same.user("word " * 1_500)
        check(same)  # folds, with the sheets of the copy
        assert entries(same)[same.seq].actor == RENDERER


def test_a_fork_has_the_same_pages_and_a_layout_of_its_own(tmp_path: Path) -> None:
    ctx = laid_out(tmp_path)
    view = check(ctx)
    fork = ctx.fork("second")
    first = {shown.index for shown in ctx.render().pages}
    assert {shown.index for shown in fork.render().pages} == first
    fork.pages.expand("mem-5")
    fork.user("word " * 1_500)
    check(fork)
    assert ("mem-5", "whole") in {(shown.index, shown.granularity) for shown in fork.render().pages}
    assert check(ctx) == view
    assert doctor(ctx.pages.storage).symptoms == ()


def test_a_rollback_past_a_layout_lays_out_anew(tmp_path: Path) -> None:
    ctx = laid_out(tmp_path)
    ctx.checkpoint("here")
    check(ctx)
    for number in range(30):
        ctx.pages.create_detail_page(f"later {number}", "", "A later text. " * 10, "mem-0")
        ctx.user(f"Turn {number} " + "word " * 100)
        check(ctx)
    ctx.pages.remove_page("mem-7")
    check(ctx)
    ctx.rollback("here")
    check(ctx)
    assert "later" not in str(ctx.render().openai())
    assert ctx.pages.get_page("mem-7").name == "note 6 on pumps"
    ctx.undo(max(seq for seq, entry in entries(ctx).items() if entry.operation == "rollback"))
    check(ctx)
    assert ctx.pages.get_page("mem-231").name.startswith("later")


def talk(ctx: Context, turns: int) -> list[int]:
    """Talk until there are some folds; return their entries."""
    for turn in range(turns):
        ctx.user(f"Turn {turn}: " + "word " * 60)
        ctx.tools.call("write_page", {"name": f"note {turn}", "text": "A few words about pumps."})
        ctx.assistant("Done.")
        ctx.render()
    return [entry.seq for entry in ctx.history() if entry.operation == "fold"]


def undo_refused(ctx: Context, seq: int) -> str:
    """Undo an entry; return why it was refused, or nothing."""
    try:
        ctx.undo(seq)
    except InvalidOperation as error:
        return str(error)
    return ""


@pytest.mark.parametrize("order", [*list(permutations(range(3)))[::5], *broad(*list(permutations(range(3)))[1:5])])
def test_folds_are_undone_in_any_order(order: tuple[int, ...], tmp_path: Path) -> None:
    """An undo of a fold works, or names a later fold. All of them work from the newest to the oldest."""
    ctx = laid_out(tmp_path, 40)
    made = talk(ctx, 60)
    folds = [seq for seq in made if entries(ctx)[seq].pages][-3:]
    assert len(folds) == 3
    ctx.budget = 100_000  # nothing is folded again
    left = set(folds)
    for place in order:
        later = [seq for seq in left if seq > folds[place]]
        refused = undo_refused(ctx, folds[place])
        if not refused:
            left.remove(folds[place])
        assert not refused or any(str(seq) in refused for seq in later), refused
        assert ctx.check() == []
    for seq in sorted(left, reverse=True):
        ctx.undo(seq)
    view = ctx.render()
    assert check_legal(view.openai(), "openai") == []
    assert quire.open(tmp_path / "a.quire", "first").render(preview=True).openai() == view.openai()
    ctx.budget = BUDGET
    check(ctx)


def test_undo_of_random_folds_keeps_every_page(tmp_path: Path) -> None:
    ctx = laid_out(tmp_path, 40)
    folds = talk(ctx, 40)
    before = [message.content for message in ctx.messages()]
    random = Random(20)
    for seq in random.sample(folds, len(folds)):
        if not undo_refused(ctx, seq):
            check(ctx)
    assert [message.content for message in ctx.messages()] == before


def test_why_names_who_decided_in_which_entry(tmp_path: Path) -> None:
    ctx = laid_out(tmp_path, 300)
    fold = next(entry for entry in ctx.history() if entry.actor == RENDERER)
    ctx.pages.hide("mem-301")
    hidden = ctx.seq
    ctx.user("word " * 1_500)
    ctx.render()
    folds = [entry for entry in ctx.history() if entry.actor == RENDERER]
    assert len(folds) > 1
    assert fold.seq < folds[-1].seq
    for page, by, entry in (
        ("mem-5", RENDERER, folds[-1].seq),
        ("usr-1", RENDERER, folds[-1].seq),
        ("usr-3", "developer", ctx.pages.get_page("usr-3").created_seq),
    ):
        why = ctx.why(page)
        assert (why.by, why.entry) == (by, entry), why
        assert why.at == round(entries(ctx)[entry].time.timestamp() * 1_000)
    assert ctx.why("mem-301").shown == "no" or ctx.why("mem-301").entry in (hidden, folds[-1].seq)


@pytest.mark.parametrize("backend", ["sqlite", "file"])
def test_what_the_renderer_of_an_older_version_hid_comes_back(backend: str, tmp_path: Path) -> None:
    with opened(backend, loaded(backend, tmp_path)) as storage, quire.Library(storage) as library:
        with open_context(library, SUPPORT) as ctx:
            hidden = ctx.pages.create_detail_page("policy", "", "No refund after 30 days.", "docs-0")
            on_purpose = ctx.pages.create_detail_page("drawer", "", "Rarely needed.", "docs-0")
            ctx.pages.hide(on_purpose)
            engine = ctx.pages._engine
            plan = engine.begin(RENDERER)  # version 0.1.0 stored it so
            plan.change(plan.require_page(hidden), visibility=Visibility.HIDDEN)
            engine.commit(plan, "fold")
            assert not list(storage.scan(SUPPORT, LAYOUT))
        for budget in (100_000, 3_000):
            with library.open(SUPPORT, budget=budget) as ctx:
                shown = {page.index: page.granularity for page in ctx.render().pages}
                assert shown[hidden] == "whole"
                assert shown.get(on_purpose) in ("line", None)
                assert ctx.check() == []
