"""The tree, and errors of unknown names."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.cli import main
from quire.cli.terminal import Paint
from quire.cli.tree import draw_tree
from quire.storage.base import JOURNAL, Commit, Delete
from tests.cli.conftest import Run
from tests.cli.screens import plain, widest

PLAIN = Paint(colour=False)


def test_tree_shows_every_page_with_its_state(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with quire.open(tmp_path / "a.db", "agent") as context:
        pages = context.pages
        note = pages.create_detail_page("座位", "靠窗", "乘客想要靠窗的座位。", "mem-0")
        chapter = pages.create_contents_page("Chapter", "", "mem-0", [note])
        old = pages.create_detail_page("Old", "", "x", "mem-0")
        gone = pages.create_detail_page("Gone cold", "", "x", "mem-0")
        pages.hide(chapter)
        pages.archive(old)
        pages.archive(gone, cold=True)
        context.user("A slip of the tongue")
        context.conversation.delete(0)
    assert main(["tree", str(tmp_path / "a.db"), "--context", "agent"]) == 0
    printed = capsys.readouterr().out
    assert "mem-2 Chapter 1 page [folded, summary 0 tokens]" in printed
    assert "mem-1 座位 10 tokens [folded]" in printed
    assert "mem-3 Old 1 token [archived]" in printed
    assert "mem-4 Gone cold 1 token (from mem-0)" in printed
    assert "usr-1 A slip of the tongue 9 tokens [deleted] (from usr-0)" in printed


def test_tree_shows_folded_and_open_pages(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with quire.open(tmp_path / "a.db", budget=900) as context:
        context.system("You are careful.")
        for number in range(12):
            context.user(f"问题 {number}：请查一下航班 HAT{number}。" + "谢谢。" * 20)
            context.assistant(f"Flight HAT{number} has seats left. " + "I can book it. " * 20)
            view = context.render()
        pages = [context.pages.get_page(shown.index) for shown in view.pages if shown.granularity == "line"]
        chapter = next(page for page in pages if isinstance(page, quire.ContentsPage))
    assert main(["tree", str(tmp_path / "a.db")]) == 0
    printed = capsys.readouterr().out
    size = f"{chapter.child_count} pages, {chapter.tokens:,} tokens"
    line = next(line for line in printed.splitlines() if f" {chapter.index} " in line)  # its name may be cut
    assert line.endswith(f"{size} [folded, summary {chapter.summary_tokens} tokens]")
    assert "sys-1 System prompt" in printed
    assert "[pinned]" in printed
    assert f"{view.pages[-1].index} Flight HAT11 has seats left" in printed
    assert printed.rstrip().splitlines()[-2].endswith("[open]")


def test_a_hidden_page_is_a_line(tmp_path: Path) -> None:
    with quire.open(tmp_path / "a.db") as context:
        note = context.pages.create_detail_page("Seat", "Prefers a window seat", "靠窗", "mem-0")
        context.pages.hide(note)
        assert f"└─ {note} Seat 2 tokens [folded, summary 5 tokens]" in list(draw_tree(context.pages, PLAIN))


@pytest.mark.parametrize("columns", [50, 72, 100])
def test_a_tree_fits_the_terminal_in_any_language_and_colour(tmp_path: Path, columns: int) -> None:
    with quire.open(tmp_path / "a.db") as context:
        parent = "mem-0"
        for _ in range(3):
            parent = context.pages.create_contents_page("退款必须在周五之前完成" * 6, "", parent)
            context.pages.create_detail_page("An unusually long name of a page " * 5, "", "x", parent)
        lines = list(draw_tree(context.pages, PLAIN, columns))
        assert widest("\n".join(lines)) <= columns
        assert sum("…" in line for line in lines) == 6
        coloured = list(draw_tree(context.pages, Paint(colour=True), columns))
        assert [plain(line) for line in coloured] == lines
        assert coloured != lines


def test_a_tree_can_omit_closed_folders_and_long_lists(tmp_path: Path) -> None:
    with quire.open(tmp_path / "a.db") as context:
        pages = context.pages
        inner = [pages.create_detail_page(f"Inner {number}", "", "x", "mem-0") for number in range(5)]
        part = pages.create_contents_page("Part", "", "mem-0", inner)
        pages.hide(pages.create_contents_page("Chapter", "", "mem-0", [part]))

        def names(**options: Any) -> list[str]:
            return [
                word
                for line in draw_tree(pages, PLAIN, **options)
                for word in ("Chapter", "Part", "Inner")
                if word in line
            ]

        assert names() == ["Chapter", "Part", *["Inner"] * 5]
        assert names(closed=2) == ["Chapter", "Part", *["Inner"] * 5]
        assert names(closed=1) == ["Chapter", "Part"]
        assert names(closed=0) == ["Chapter"]
        assert names(limit=2) == ["Chapter", "Part", *["Inner"] * 2]
        assert any("… 3 more" in line for line in draw_tree(pages, PLAIN, limit=2))


def test_tree_cuts_a_long_folder_and_counts_the_rest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with quire.open(tmp_path / "a.db") as context:
        for number in range(60):
            context.pages.create_detail_page(f"Page {number}", "", "", "mem-0")
    assert main(["tree", str(tmp_path / "a.db")]) == 0
    assert "… 10 more" in capsys.readouterr().out


def test_a_missing_store_is_named_and_not_created(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    assert main(["tree", str(missing)]) == 1
    assert str(missing) in capsys.readouterr().err
    assert not missing.exists()


def test_a_missing_context_is_named_with_the_existing_ones(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    quire.open(tmp_path / "a.db", "here").close()
    assert main(["tree", str(tmp_path / "a.db"), "--context", "there"]) == 2
    printed = capsys.readouterr().err
    assert "'there'" in printed
    assert "'here'" in printed


def test_an_unknown_command_ends_with_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fly"])
    assert ended.value.code == 2
    assert "demo" in capsys.readouterr().err


def test_new_stores_the_budget_of_a_context(run: Run, tmp_path: Path) -> None:
    assert run("new", tmp_path / "a.db", "--budget", "3k").code == 0
    with quire.open(tmp_path / "a.db") as ctx:
        assert ctx.budget == 3_000
    assert run("new", tmp_path / "b.db", "--budget", "0").code != 0
    assert not (tmp_path / "b.db").exists()


def test_write_writes_a_page_by_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "a.db"
    assert run("new", store).code == 0
    assert run("write", store, "port", "5433").out.startswith("mem-1 port: written (entry ")
    assert run("write", store, "port", "5433").out == "mem-1 port: no change\n"
    monkeypatch.setattr("sys.stdin", StringIO("Refunds take 30 days.\n"))
    done = run("write", store, "Handbook", "-", "--document", "--pin", "--json").value()
    assert (done["page"]["index"], done["page"]["pinned"], done["changed"]) == ("docs-1", True, True)
    assert run("show", store, "docs-1", "--body").out.strip() == "Refunds take 30 days."


def test_check_reports_each_problem(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    run("new", store)
    assert (run("check", store).code, run("check", store).out) == (0, "default: no problems\n")
    with quire.open(store) as context:
        context.write("port", "5433")
        head = context.pages.storage.head("default")
        assert head is not None
        context.pages.storage.commit("default", Commit(head.version, head.version, head.value, [Delete(JOURNAL, 2)]))
    ended = run("check", store)
    assert ended.code == 1
    assert ended.out.splitlines()[-1] == "default: 1 problem"
    found = run("check", store, "--json").value()
    assert (found["sound"], [problem["where"] for problem in found["problems"]]) == (False, ["journal 2"])


def test_delete_and_expire_remove_contexts(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    for name in ("a", "b", "support-1", "support-2"):
        assert run("new", store, "--context", name).code == 0
    assert run("delete", store, "a").code == 2  # without a terminal there is nobody to ask
    assert run("delete", store, "a", "--yes").out.startswith("deleted a\n")
    assert run("delete", store, "b", "--yes", "--scrub", "--json").value()["scrubbed"]
    assert [value["name"] for value in run("ls", store, "--json").values()] == ["support-1", "support-2"]
    assert run("expire", store, "1d", "--dry-run").out == "0 contexts\n"
    assert run("expire", store, "2020-03-11", "--yes").out == "0 contexts\n"
    kept = run("expire", store, "0h", "--dry-run", "--json").value()
    assert [each["name"] for each in kept["contexts"]] == ["support-1", "support-2"]
    assert run("expire", store, "0h", "--prefix", "support-2", "--yes").code == 0
    done = run("expire", store, "0h", "--archive", tmp_path / "old", "--yes")
    assert (done.code, run("ls", store).out) == (0, "no contexts\n")
    assert run("import", store, tmp_path / "old" / "support-1.quire").code == 0
    assert run("check", store, "--context", "support-1").code == 0
