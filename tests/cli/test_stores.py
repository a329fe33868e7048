"""The same commands print the same output on every kind of store."""

from pathlib import Path

import pytest

from tests.cli.conftest import NAME, Run
from tests.cli.sessions import CLAUDE_CODE, write_lines
from tests.marks import servers as on_servers
from tests.servers.stores import new_url

KINDS = ("file", *on_servers("postgres", "s3"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_commands_say_the_same_on_every_store(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    there = new_url(kind, tmp_path, monkeypatch)
    assert run("migrate", store, there).code == 0
    for words in (["tree"], ["find", "座位"], ["show", "usr-2"], ["history", "--all"], ["render"], ["stats"]):
        assert run(words[0], there, *words[1:]) == run(words[0], store, *words[1:])
    assert run("hide", there, "mem-1").code == 0
    assert run("undo", there, run("history", there, "-n", 1, "--json").value()["seq"]).code == 0
    session = write_lines(tmp_path / "s.jsonl", CLAUDE_CODE)
    assert run("import", there, session, "--context", "session").code == 0
    assert [value["name"] for value in run("ls", there, "--json").values()] == ["session", "session.agent-u6", NAME]
    assert run("doctor", there).code == 0
    assert run("backup", there, tmp_path / "copy.db").code == 0
    copied = run("tree", tmp_path / "copy.db", "--context", NAME).out
    assert copied == run("tree", there, "--context", NAME).out


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_is_not_there_is_not_made_anywhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    there = new_url(kind, tmp_path, monkeypatch)
    ended = run("ls", there)
    assert (ended.code, ended.out) in ((1, ""), (0, "no contexts\n"))  # an empty database may exist
    assert "Traceback" not in ended.err
