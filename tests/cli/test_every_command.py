"""Every command succeeds, prints JSON, refuses bad input, and names what does not exist; with its exit codes."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import quire
from quire.cli import find_command
from quire.cli.commands import ROWS
from tests.cli.conftest import NAME, Run
from tests.cli.sessions import CLAUDE_CODE, write_lines

AT = "STORE"
FILE = "SESSION"
FRESH = "FRESH"

WORKING: dict[str, list[str]] = {
    "demo": ["demo", "--fast", "--no-serve"],
    "new": ["new", AT, "--context", "another", "--system", "Sei vorsichtig."],
    "import": ["import", AT, FILE, "--context", "session"],
    "replay": ["replay", FILE, "--budget", "2000"],
    "ls": ["ls", AT, "--long"],
    "tree": ["tree", AT],
    "show": ["show", AT, "mem-1"],
    "find": ["find", AT, "座位"],
    "stats": ["stats", AT],
    "view": ["view", AT, "--budget", "2000"],
    "render": ["render", AT, "--budget", "2000"],
    "why": ["why", AT, "usr-1"],
    "write": ["write", AT, "port", "5433", "--summary", "the replica"],
    "expand": ["expand", AT, "mem-1"],
    "hide": ["hide", AT, "mem-1"],
    "pin": ["pin", AT, "mem-1"],
    "unpin": ["unpin", AT, "sys-1"],
    "archive": ["archive", AT, "mem-1"],
    "restore": ["restore", AT, "mem-1"],
    "recall": ["recall", AT, "mem-3"],
    "move": ["move", AT, "mem-1", "mem-0"],
    "history": ["history", AT],
    "undo": ["undo", AT, "LAST"],
    "checkpoint": ["checkpoint", AT, "now"],
    "rollback": ["rollback", AT, "before"],
    "fork": ["fork", AT, "what-if"],
    "export": ["export", AT, FRESH],
    "backup": ["backup", AT, FRESH],
    "migrate": ["migrate", AT, FRESH],
    "check": ["check", AT],
    "doctor": ["doctor", AT],
    "purge": ["purge", AT, "mem-1", "--yes"],
    "delete": ["delete", AT, NAME, "--yes"],
    "expire": ["expire", AT, "0d", "--yes"],
    "erase": ["erase", AT, NAME, "--yes"],
    "scrub": ["scrub", AT],
    "gateway sessions": ["gateway", "sessions", AT],
    "gateway demo": ["gateway", "demo", AT, "--fast"],
    "completion": ["completion", "bash"],
}
"""A successful call of each command. Servers run until they are stopped; a handoff needs a session of the gateway."""
SERVED = {"serve", "mcp", "gateway", "gateway run", "gateway handoff"}
LINES = {"gateway sessions", "ls", "tree", "find", "history", "replay", "import"}
"""Commands that print JSON Lines."""

REFUSED: list[list[str]] = [
    ["demo", "--faster"],
    ["new", AT, "--context", NAME],
    ["new", AT, "--context", " "],
    ["import", AT, "no-such-file.json"],
    ["import", AT, FILE, "--conversation", "3"],
    ["import", AT, FILE, "--conversation", "two"],
    ["replay", "no-such-file.json"],
    ["replay", FILE, "--budget", "many"],
    ["ls", AT, "--page", "1"],
    ["tree", AT, "mem-99"],
    ["tree", AT, "--depth", "-1"],
    ["tree", AT, "--limit", "-1"],
    ["show", AT, "mem-99"],
    ["show", AT, "MEM-1"],
    ["find", AT, "x", "--limit", "-1"],
    ["find", AT, "x", "--kind", "book"],
    ["find", AT, "x", "--segment", "nix"],
    ["stats", AT, "--budget", "1"],
    ["view", AT, "--budget", "-5"],
    ["render", AT, "--format", "morse"],
    ["render", AT, "--recall", "7"],
    ["render", AT, "--reserve", "-1"],
    ["why", AT, "usr-99"],
    ["write", AT, "port"],
    ["write", AT, "port", "5433", "--folder", "nix"],
    ["write", AT, "port", "5433", "--pin"],
    ["write", AT, "", "5433"],
    ["check", AT, "--context", "nobody"],
    ["delete", AT, NAME],
    ["delete", AT, "nobody", "--yes"],
    ["expire", AT, "0d"],
    ["expire", AT, "soon", "--yes"],
    ["expand", AT, "mem-99"],
    ["hide", AT, "sys-1"],
    ["pin", AT, "mem-99"],
    ["unpin", AT, "mem-99"],
    ["archive", AT, "mem-0"],
    ["restore", AT, "mem-3"],
    ["recall", AT, "mem-99"],
    ["move", AT, "mem-2", "mem-1"],
    ["move", AT, "mem-1"],
    ["history", AT, "--since", "yesterday"],
    ["history", AT, "--limit", "-1"],
    ["history", AT, "--page", "mem-99"],
    ["undo", AT, "999"],
    ["undo", AT, "first"],
    ["checkpoint", AT, "before"],
    ["rollback", AT, "never"],
    ["rollback", AT, "never", "--dry-run"],
    ["rollback", AT, "999"],
    ["fork", AT, NAME],
    ["fork", AT, "x", "--at", "999"],
    ["mcp", AT, "--tools", "find,fly"],
    ["mcp", AT, "--tools", "write_page", "--read-only"],
    ["mcp", AT, "--prefix", "no spaces"],
    ["mcp", AT, "--actor", ""],
    ["mcp", AT, "--http", "--port", "70000"],
    ["mcp", AT, "--port", "8378"],
    ["mcp", AT, "--token-file", "token"],
    ["mcp", AT, "--budget", "0"],
    ["export", AT, FILE],
    ["export", AT, FILE, "--format", "openai"],
    ["export", AT, "-"],
    ["backup", AT, FILE],
    ["migrate", AT, "gopher:x"],
    ["doctor", AT, "--repaired"],
    ["doctor", AT, "--context", "nobody"],
    ["purge", AT, "mem-1"],
    ["purge", AT, "mem-0", "--yes"],
    ["purge", AT, "mem-99", "--yes"],
    ["erase", AT, NAME],
    ["erase", AT, "nobody"],
    ["erase", AT, "nobody", "--yes"],
    ["scrub", "gopher:x"],
    ["completion", "tcsh"],
    ["gateway", "handoff", AT, "nobody"],
    ["gateway", "sessions", AT, "--mode", "fold"],
    ["gateway", "demo", AT, "--budget", "none"],
    ["gateway", "run", AT],
    ["gateway", "run", AT, "--", "my-agent"],
    ["gateway", "run", AT, "--env", "BASE_URL", "--", "quire-no-such-client"],
    ["gateway", AT],
    ["gateway", AT, "--anthropic", "gopher:x"],
    ["gateway", AT, "--openai", "https://api.openai.com", "--host", "0.0.0.0"],
    ["gateway", AT, "--openai", "https://api.openai.com", "--port", "99999"],
    ["serve", AT, "--port", "99999"],
    ["serve", AT, "--host", "a/b"],
]

WITH_CONTEXT = sorted(
    name
    for name in WORKING
    if name
    not in (
        "demo",
        "delete",
        "expire",
        "new",
        "import",
        "replay",
        "ls",
        "backup",
        "doctor",
        "erase",
        "scrub",
        "gateway sessions",
        "gateway demo",
        "completion",
    )  # no context, or a new one
)
WITH_STORE = sorted(set(WORKING) - {"demo", "gateway demo", "new", "import", "replay", "completion"})


@pytest.fixture
def filled(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store; its folder has a session file, and the demo writes there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    write_lines(tmp_path / "session.jsonl", CLAUDE_CODE)
    return store


def words_of(words: Sequence[str], store: Path) -> list[str]:
    """Return a call with its placeholders filled in."""
    with quire.open(store, NAME) as context:
        last = str(context.seq)
    real = {AT: store, FILE: store.parent / "session.jsonl", FRESH: store.parent / "fresh.db", "LAST": last}
    return [str(real.get(word, word)) for word in words]


def test_every_command_is_in_the_tables() -> None:
    assert {*WORKING, *SERVED} == ROWS.keys()
    assert {row.name for words in REFUSED if (row := find_command(words)[0])} == ROWS.keys()


@pytest.mark.parametrize("name", [name for name in WORKING if name != "demo"])  # it has its own tests
def test_a_command_succeeds_and_prints_something(run: Run, filled: Path, name: str) -> None:
    if name == "restore":
        assert run("archive", filled, "mem-1").code == 0
    ended = run(*words_of(WORKING[name], filled))
    assert ended.code == 0
    assert ended.out
    assert "\x1b[" not in ended.out
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("name", WORKING)
def test_a_command_prints_json(run: Run, filled: Path, name: str) -> None:
    if name == "restore":
        assert run("archive", filled, "mem-1").code == 0
    ended = run(*words_of(WORKING[name], filled), "--json")
    assert (ended.code, ended.err) == (0, "")
    values = ended.values()
    assert all(isinstance(value, dict) for value in values)
    assert len(values) == 1 or name in LINES


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_bad_input_exits_with_2_and_a_message(run: Run, filled: Path, words: list[str]) -> None:
    with quire.open(filled, NAME) as context:
        before = context.seq
    ended = run(*words_of(words, filled))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.strip()
    assert "Traceback" not in ended.err
    with quire.open(filled, NAME) as context:
        assert context.seq == before


@pytest.mark.parametrize("name", WITH_CONTEXT)
def test_a_missing_context_is_named_with_the_existing_ones(run: Run, filled: Path, name: str) -> None:
    ended = run(*words_of(WORKING[name], filled), "--context", "nobody")
    assert (ended.code, ended.out) == (2, "")
    assert "'nobody'" in ended.err
    assert repr(NAME) in ended.err
    refused = run(*words_of(WORKING[name], filled), "--context", "nobody", "--json")
    assert (refused.code, refused.out) == (2, "")
    assert json.loads(refused.err)["error"]["code"] == "no_such_context"


@pytest.mark.parametrize("name", [*WITH_STORE, "serve"])
def test_a_missing_store_is_named_and_not_created(run: Run, filled: Path, name: str) -> None:
    missing = filled.parent / "missing.db"
    words = WORKING.get(name, [name, AT, "--port", "0"])
    real = [str(missing) if word == str(filled) else word for word in words_of(words, filled)]
    ended = run(*real)
    assert (ended.code, ended.out) == (1, "")
    assert str(missing) in ended.err
    assert not missing.exists()


@pytest.mark.parametrize("name", ROWS)
def test_every_command_has_help_with_examples(run: Run, name: str) -> None:
    ended = run(*name.split(), "--help")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"usage: quire {name}")
    assert f"quire {name}" in ended.out.partition("examples:")[2]
    assert "--json" in ended.out
    assert run("help", *name.split()).out == ended.out
