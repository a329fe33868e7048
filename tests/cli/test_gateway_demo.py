"""`quire gateway demo` and `quire gateway run --stub`: a real gateway and a stub of a provider, offline."""

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


def test_each_request_of_the_demo_is_a_line(run: Run, tmp_path: Path) -> None:
    shown = plain(run("gateway", "demo", tmp_path / "agent.db", "--fast", "--budget", "1500").out)
    rows = [line.split() for line in shown.splitlines() if line.strip()[:1].isdigit() and "%" in line]
    got = [int(row[2].replace(",", "")) for row in rows if row[3].isdigit()]
    assert len(got) == 29
    assert max(got) <= 1_500
    assert "59 of 59 messages are in the store" in shown


def test_a_client_is_tried_offline_with_the_stub(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    store = tmp_path / "agent.db"
    words = ("--stub", "--env", "OPENAI_BASE_URL", "--", sys.executable, "-c", CLIENT)
    assert run("gateway", "run", store, *words).code == 0
    with quire.Library(store) as library:
        (name,) = library.list(prefix="gateway/")
        assert [message.role for message in library.open(name).messages()] == ["user", "assistant"]
