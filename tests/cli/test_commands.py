"""The command line: what it prints and how it ends."""

from pathlib import Path

import pytest

import quire
from quire.cli import main


def test_the_demo_builds_shows_and_reopens_a_context(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["demo"]) == 0
    said = capsys.readouterr().out
    stores = list(tmp_path.glob("quire-demo-*/agent.db"))
    assert len(stores) == 1
    with quire.open(stores[0], "travel-agent") as context:
        assert context.check() == []
        flights = context.pages.get_page("usr-2")
        assert f"usr-2 Let me look. {flights.tokens} tokens" in said
        assert "in the block 6 messages, after it 5" in said
        assert len(context.messages()) == 5
        assert f"travel-agent: 5 messages, what-if: {len(quire.open(stores[0], 'what-if').messages())}" in said
        assert f"{context.seq} journal entries, check(): 0 problems" in said
    assert "Cannot hide 'sys-1': it is pinned" in said
    assert "Try next" in said
    assert "\x1b[" not in said


def test_the_demo_is_in_colour_where_that_is_wanted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["demo"]) == 0
    assert "\x1b[36musr-2\x1b[0m" in capsys.readouterr().out


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
    said = capsys.readouterr().out
    assert "mem-2 Chapter 1 page [hidden, shows 0 tokens]" in said
    assert "mem-1 座位 10 tokens [folded away]" in said
    assert "mem-3 Old 1 token [archived]" in said
    assert "mem-4 Gone cold 1 token (from mem-0)" in said
    assert "usr-1 A slip of the tongue 9 tokens [deleted] (from usr-0)" in said


def test_tree_cuts_a_long_folder_and_says_how_much_is_left(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with quire.open(tmp_path / "a.db") as context:
        for number in range(60):
            context.pages.create_detail_page(f"Page {number}", "", "", "mem-0")
    assert main(["tree", str(tmp_path / "a.db")]) == 0
    assert "… 10 more" in capsys.readouterr().out


def test_a_store_that_is_not_there_is_named_and_not_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    assert main(["tree", str(missing)]) == 1
    assert str(missing) in capsys.readouterr().err
    assert not missing.exists()


def test_a_context_that_is_not_there_is_named_with_those_that_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    quire.open(tmp_path / "a.db", "here").close()
    assert main(["tree", str(tmp_path / "a.db"), "--context", "there"]) == 2
    said = capsys.readouterr().err
    assert "'there'" in said
    assert "'here'" in said


def test_an_unknown_command_ends_with_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fly"])
    assert ended.value.code == 2
    assert "demo" in capsys.readouterr().err
