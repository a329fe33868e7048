"""Databases of sessions: LangGraph's PostgreSQL saver, refused objects, encrypted items, and the command line."""

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

import quire
from quire import InvalidValue
from quire.formats import read_log
from tests.cli.conftest import Run, run  # noqa: F401 - a fixture
from tests.formats.talks import CORPUS, TALKS, langchain_messages
from tests.servers.postgres import postgres_url

TIME = "2026-03-11T02:14:09.122000+00:00"


def checkpoint_file(path: Path, messages: Any, kind: str | None = None, time: str | None = TIME) -> Path:
    """Write one checkpoint with these messages as LangGraph's SQLite saver does."""
    serde = pytest.importorskip("langgraph.checkpoint.serde.jsonplus").JsonPlusSerializer(pickle_fallback=True)
    form, data = serde.dumps_typed({"ts": time, "channel_values": {"messages": messages}})
    file = apsw.Connection(str(path))
    file.execute(
        "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT DEFAULT '', checkpoint_id TEXT,"
        " parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB)"
    )
    file.execute("INSERT INTO checkpoints VALUES ('t', '', '1', NULL, ?, ?, NULL)", (kind or form, data))
    file.close()
    return path


@pytest.mark.clients
def test_objects_of_other_classes_are_refused_by_name_and_never_built(tmp_path: Path) -> None:
    pytest.importorskip("langchain_core")
    bad = [*langchain_messages(TALKS["call"]), Path("/etc")]
    with pytest.raises(InvalidValue):
        read_log(checkpoint_file(tmp_path / "a.db", bad))
    with pytest.raises(InvalidValue):
        read_log(checkpoint_file(tmp_path / "b.db", [], kind="pickle"))
    with pytest.raises(InvalidValue):
        read_log(checkpoint_file(tmp_path / "c.db", [3]))


@pytest.mark.clients
@pytest.mark.parametrize("time", [TIME, None])
def test_an_artifact_of_a_tool_does_not_hinder_the_import(tmp_path: Path, time: str | None) -> None:
    lc = pytest.importorskip("langchain_core.messages")
    call = lc.AIMessage("", tool_calls=[{"name": "f", "args": {"a": {1, 2}}, "id": "c1"}])
    result = lc.ToolMessage("4", tool_call_id="c1", artifact={1, 2})
    found = read_log(checkpoint_file(tmp_path / "a.db", [call, result], time=time))
    ctx = quire.open("memory:")
    assert ctx.import_messages(found.select(None).messages).marked == ()
    assert [message.role for message in ctx.messages()] == ["assistant", "tool"]


@pytest.mark.clients
@pytest.mark.servers
def test_checkpoints_of_postgres_are_read() -> None:
    psycopg = pytest.importorskip("psycopg")
    serde = pytest.importorskip("langgraph.checkpoint.serde.jsonplus").JsonPlusSerializer()
    schema = "langgraph_test"
    url = postgres_url().partition("&tenant=")[0].partition("?tenant=")[0]
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        server.execute(f"CREATE SCHEMA {schema}")
        server.execute(f"SET search_path = {schema}")
        server.execute(
            "CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id"
            " TEXT NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint JSONB NOT NULL, metadata JSONB)"
        )
        server.execute(
            "CREATE TABLE checkpoint_blobs (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', channel"
            " TEXT NOT NULL, version TEXT NOT NULL, type TEXT NOT NULL, blob BYTEA)"
        )
        messages = langchain_messages(TALKS["parallel"])
        for version, count in enumerate((1, len(messages)), 1):
            value = {"ts": f"2026-03-11T02:14:0{version}Z", "channel_versions": {"messages": str(version)}}
            blob = (str(version), *serde.dumps_typed(messages[:count]))
            row = ("t", "", str(version), None, None, json.dumps({**value, "channel_values": {}}), None)
            server.execute("INSERT INTO checkpoints VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
            server.execute("INSERT INTO checkpoint_blobs VALUES ('t', '', 'messages', %s, %s, %s)", blob)
    join = "&" if "?" in url else "?"
    log = read_log(f"{url}{join}options=-csearch_path%3D{schema}")
    ctx = quire.open("memory:")
    ctx.import_messages(log.select(None).messages)
    assert [message.role for message in ctx.messages()] == [turn.role for turn in TALKS["parallel"]]
    assert [f"{message.at:%S}" for message in ctx.messages()] == ["01", *["02"] * 6]


def test_encrypted_items_are_skipped_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes((CORPUS / "agents.db").read_bytes())
    file = apsw.Connection(str(path))
    file.execute("UPDATE agent_messages SET message_data = '{\"__enc__\": 1}' WHERE session_id = 'chat' AND id > 1")
    file.close()
    log = read_log(path)
    assert len(log.conversations) == len(TALKS)
    assert log.count_skipped() == {"an encrypted item": 4}


def test_the_command_imports_all_sessions_of_a_database_under_their_names(run: Run, tmp_path: Path) -> None:  # noqa: F811
    store = tmp_path / "store.db"
    assert run("import", store, CORPUS / "agents.db", "--conversation", "all").code == 0
    assert sorted(value["name"] for value in run("ls", store, "--json").values()) == sorted(TALKS)
    ended = run("import", store, CORPUS / "langgraph.db")
    assert ended.code == 2
    assert "holds 5 conversations" in ended.err
    assert run("import", store, CORPUS / "langgraph.db", "--conversation", "all", "-c", "graph").code == 0
    for form in ("claude-code", "codex", "langchain", "anthropic"):
        file = tmp_path / f"{form}.jsonl"
        assert run("export", store, file, "-c", "loop", "--format", form, "--times").code == 0
        assert run("export", store, tmp_path / f"view.{form}", "-c", "loop", "--format", form, "--view").code == 0
        assert run("import", store, file, "-c", f"back-{form}").code == 0
        with quire.open(store, "loop") as ctx, quire.open(store, f"back-{form}") as back:
            assert [(m.role, m.text, m.at) for m in back.messages()] == [(m.role, m.text, m.at) for m in ctx.messages()]
