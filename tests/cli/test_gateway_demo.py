"""`quire gateway demo` and `quire gateway run --stub`: a real gateway and a stub of a provider, offline."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import quire
from tests.cli.conftest import Run
from tests.cli.screens import plain

pytest.importorskip("brotli")

CLIENT = """
import json, os, sys, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
messages = [{"role": "user", "content": "Which key is it?"}]
body = json.dumps({"model": "m", "messages": messages, "tools": [tool]}).encode()
request = urllib.request.Request(url, body, {"content-type": "application/json", "x-session-id": "s1"})
answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
sys.exit(0 if (answer, os.environ["OPENAI_API_KEY"]) == ("I do not know.", "stub") else 7)
"""


def test_the_provider_gets_less_than_the_client_sends_and_nothing_is_lost(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    value = run("gateway", "demo", store, "--json").value()
    assert value["provider_tokens"] < value["client_tokens"] / 3
    assert value["folds"] >= 3
    assert value["messages"] == 59
    assert value["answers"] == {"shown": 0, "found": 7, "total": 7}
    readme = (Path(__file__).parent.parent.parent / "README.md").read_text(encoding="utf-8")
    assert f"{value['client_tokens']:,}" in readme
    assert f"{value['provider_tokens']:,}" in readme
    with quire.open(store, value["context"], create=False) as context:
        assert context.check() == []
        assert len(context.messages()) == 59


def test_without_the_extra_only_the_error_is_printed() -> None:
    code = "import sys; sys.modules['h11'] = None; from quire.cli import main; raise SystemExit(main())"
    done = subprocess.run([sys.executable, "-c", code, "gateway", "demo"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "The gateway needs h11" in done.stderr


def test_each_request_of_the_demo_is_a_line(run: Run, tmp_path: Path) -> None:
    shown = plain(run("gateway", "demo", tmp_path / "agent.db", "--fast", "--budget", "1500").out)
    rows = [line.split() for line in shown.splitlines() if line.strip()[:1].isdigit() and "%" in line]
    sent = [int(row[1].replace(",", "")) for row in rows if row[3].isdigit()]
    got = [int(row[2].replace(",", "")) for row in rows if row[3].isdigit()]
    small = sum(one <= 1_000 for one in sent)
    assert sent[:small] == got[:small]  # nothing changes within the budget
    assert len(got) == 29
    assert max(got) <= 1_500
    assert "59 of 59 messages are in the store" in shown
    hint = next(shlex.split(line.strip()) for line in shown.splitlines() if line.strip().startswith("quire find "))
    assert "usr-" in run(*hint[1:]).out


def test_messages_of_the_gateway_are_printed_after_the_client(run: Run, tmp_path: Path) -> None:
    store, log = tmp_path / "agent.db", tmp_path / "log"
    words = ("--stub", "--env", "OPENAI_BASE_URL", "--budget", "20")
    assert "cannot be folded" in run("gateway", "run", store, *words, "--", sys.executable, "-c", CLIENT).err
    assert run("gateway", "run", store, *words, "--log", log, "--", sys.executable, "-c", CLIENT).err == ""
    assert "Give a larger --budget" in log.read_text(encoding="utf-8")
    shown = run("gateway", "sessions", store).out
    assert "2 bypassed requests" in shown
    assert "\n  Which key is it?" in shown


def test_the_first_prompt_of_a_session_is_that_of_the_user(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    opening = [
        {"type": "text", "text": "<system-reminder>Rules</system-reminder>"},
        {"type": "text", "text": "Fix\nit."},
    ]
    with quire.Library(store) as library:
        for session, first in (("1b2c3d-x", opening), ("1b2c4e-y", "<environment_context>")):
            with library.open(f"gateway/local/anthropic/{session}") as context:
                context.user(first)
                context.user("And then?")
    shown = [json.loads(line) for line in run("gateway", "sessions", store, "--json").out.splitlines()]
    assert [session["prompt"] for session in shown] == ["Fix it.", "And then?"]
    assert "usr-" in run("find", store, "-c", "1b2c3", "Fix").out
    for unclear in ("1b2c", "1b2", "3d-x"):
        assert run("find", store, "-c", unclear, "Fix").code != 0
    several = run("find", store, "-c", "1b2c", "Fix").err
    assert "'1b2c' is the start of 2 gateway sessions" in several
    assert "1b2c3d-x, 1b2c4e-y" in several
    assert "4 characters are needed" not in several
    assert "2 gateway sessions; 4 characters are needed" in run("find", store, "-c", "1b2", "Fix").err
    with quire.Library(store) as library:
        library.open("gateway/local/anthropic/9z8y7x").user("Hello")
    assert "1 gateway session; 4 characters are needed" in run("find", store, "-c", "9z8", "Fix").err


def test_mcp_without_its_package_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = run("gateway", "run", tmp_path / "agent.db", "--mcp", "--", "claude")
    assert result.code == 2
    assert "--mcp needs mcp" in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "quire: -- CLIENT is missing; give the command of a client, such as -- claude."),
        (["--", "my-agent"], "quire: --env is needed for 'my-agent'"),
        (["--mcp", "--env", "A", "--", "my-agent"], "quire: --mcp cannot be used with 'my-agent'"),
        (
            ["--stub", "--openai", "http://a", "--", "claude"],
            "quire: --stub cannot be used with --anthropic",
        ),
        (["claude", "-p", "hi"], "WHERE [-- CLIENT ...]"),
    ],
)
def test_a_client_that_cannot_be_started_is_refused_with_what_to_do(
    run: Run, tmp_path: Path, words: list[str], message: str
) -> None:
    result = run("gateway", "run", tmp_path / "agent.db", *words)
    assert result.code == 2
    assert message in result.err


def test_a_client_is_tried_offline_with_the_stub(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    store = tmp_path / "agent.db"
    words = ("--stub", "--env", "OPENAI_BASE_URL", "--", sys.executable, "-c", CLIENT)
    assert run("gateway", "run", store, *words).code == 0
    with quire.Library(store) as library:
        (name,) = library.list(prefix="gateway/")
        assert [message.role for message in library.open(name).messages()] == ["user", "assistant"]
