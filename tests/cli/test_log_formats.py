"""Files of conversations: every shape is read, and records that are not messages are reported."""

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import InvalidValue
from quire.formats import read_log
from quire.providers import format_messages
from tests.cli.conftest import NAME, Run
from tests.cli.sessions import CLAUDE_CODE, CODEX, write_lines

SAID = [{"role": "user", "content": "运行测试。"}, {"role": "assistant", "content": "Done."}]
TALK = [("system", "Be brief."), ("user", "运行测试。"), ("assistant", "Done.")]
BLOCKS = [{"type": "text", "text": "Be brief."}]

SHAPES: dict[str, Any] = {
    "chat": [{"role": "system", "content": "Be brief."}, *SAID],
    "an openai request": {"model": "x", "messages": [{"role": "system", "content": "Be brief."}, *SAID]},
    "an anthropic request": {"system": "Be brief.", "messages": SAID},
    "an anthropic request with blocks": {"system": BLOCKS, "messages": SAID, "max_tokens": 1},
    "a responses request": {"instructions": "Be brief.", "input": SAID},
    "a recorded run": {"id": "run-1", "history": [{"role": "system", "content": "Be brief."}, *SAID]},
}


def imported(messages: list[object]) -> list[tuple[str, str]]:
    """Import messages and return the role and text of each stored message."""
    context = quire.open("memory:")
    report = context.import_messages(messages)
    assert report.findings == ()
    return [(message.role, message.text) for message in context.messages()]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("packed", [False, True])
def test_every_shape_holds_the_same_conversation(tmp_path: Path, shape: str, packed: bool) -> None:
    data = json.dumps(SHAPES[shape], ensure_ascii=False, indent=2).encode()
    file = tmp_path / "talk.json"
    file.write_bytes(gzip.compress(data) if packed else data)
    history = read_log(str(file))
    assert imported(history.select(None).messages) == TALK
    assert history.skipped == []


def test_lines_are_one_conversation_and_a_string_is_a_question(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "talk.jsonl", SHAPES["chat"])
    assert imported(read_log(str(lines)).select(None).messages) == TALK
    asked = write_lines(tmp_path / "asked.json", [{"instructions": "Be brief.", "input": "运行测试。"}])
    assert imported(read_log(str(asked)).select(None).messages) == TALK[:2]


def test_a_response_after_its_request_continues_it(tmp_path: Path) -> None:
    reply = {"choices": [{"message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}]}
    file = write_lines(tmp_path / "log.jsonl", [*SHAPES["chat"][:2], reply])
    assert imported(read_log(str(file)).select(None).messages) == TALK


def test_several_conversations_are_separated(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "runs.jsonl", [{"id": n, "messages": SAID[: n + 1]} for n in range(2)])
    history = read_log(str(file))
    assert [len(found.messages) for found in history.conversations] == [1, 2]
    assert [found.name for found in history.conversations] == ["", "1"]
    assert len(history.select(2).messages) == 2
    for number in (None, 0, 3):
        with pytest.raises(InvalidValue):
            history.select(number)
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps([SAID, SAID]))
    assert len(read_log(str(lists)).conversations) == 2


def test_a_session_of_claude_code_is_read_with_its_answers_in_one_piece(tmp_path: Path) -> None:
    history = read_log(str(write_lines(tmp_path / "s.jsonl", CLAUDE_CODE)))
    context = quire.open("memory:")
    report = context.import_messages(history.select(None).messages)
    assert (report.messages, report.findings) == (4, ())
    question, call, result, answer = context.messages()
    assert question.text == "日期解析在哪里？Please fix it."
    assert [(made.name, made.id) for made in call.tool_calls] == [("Grep", "toolu_1")]
    assert call.text == "I will search for it."
    assert result.tool_call_id == "toolu_1"
    assert answer.text == "It is in dates.py, line 41."
    thought = {"type": "thinking", "thinking": "Look first.", "signature": "c2ln"}
    assert format_messages([call], "anthropic")[0]["content"][0] == thought
    assert thought not in context.render().anthropic()["messages"][1]["content"]
    assert [(skip.line, skip.what) for skip in history.skipped] == [
        (1, "not a message: 'summary'"),
        (2, "not a message: 'file-history-snapshot'"),
        (9, "an error of the provider's"),
        (11, "not a message: 'system'"),
    ]
    assert [(found.name, found.is_agent) for found in history.conversations] == [("", False), ("agent-u6", True)]
    assert [message["content"] for message in history.conversations[1].messages] == ["A subagent's task"]  # type: ignore[index]


def test_a_session_of_codex_is_read_with_its_instructions(tmp_path: Path) -> None:
    history = read_log(str(write_lines(tmp_path / "s.jsonl", CODEX)))
    assert imported(history.select(None).messages) == [
        ("system", "You are a coding agent."),
        ("user", "运行测试。"),
        ("assistant", ""),
        ("tool", "3 passed"),
        ("assistant", "All three pass."),
    ]
    assert history.count_skipped() == {
        "turn_context": 1,
        "event_msg user_message": 1,
        "event_msg token_count": 1,
        "response_item ghost_snapshot": 1,
    }


def test_an_older_session_has_bare_items_below_its_instructions(tmp_path: Path) -> None:
    items = [record["payload"] for record in CODEX if record["type"] == "response_item"]
    first = {"id": "s3", "timestamp": "t", "instructions": "You are a coding agent."}
    history = read_log(str(write_lines(tmp_path / "s.jsonl", [first, {"record_type": "state"}, *items])))
    assert len(imported(history.select(None).messages)) == 5
    assert history.count_skipped() == {"not a message: 'state'": 1, "not a message: 'ghost_snapshot'": 1}


def test_a_line_that_is_not_json_is_skipped_and_reported(tmp_path: Path) -> None:
    file = tmp_path / "torn.jsonl"
    file.write_text("\n".join([json.dumps(SAID[0]), '{"role": "assist', "", "17", json.dumps(SAID[1])]))
    history = read_log(str(file))
    assert imported(history.select(None).messages) == TALK[1:]
    assert [(skip.line, skip.what) for skip in history.skipped] == [
        (2, "a line that is no JSON"),
        (4, "not a message: int"),
    ]


@pytest.mark.parametrize(
    "data",
    [b"", b"Dear diary,\ntoday", b"{}", b'{"pages": []}', b"[" * 100_000, b'"\xff"', b"\x1f\x8bno gzip"],
    ids=range(7),
)
def test_a_file_without_a_conversation_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(data)
    for path in (file, tmp_path):
        with pytest.raises(InvalidValue):
            read_log(str(path))


# The command


def test_import_prints_what_it_imported_and_what_it_skipped(run: Run, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "s.jsonl", [*CLAUDE_CODE, {"role": "tool", "tool_call_id": "none", "content": "?"}])
    ended = run("import", tmp_path / "a.db", file)
    assert ended.code == 0
    assert "default: 5 messages on 4 pages, 1 of them not shown to a model" in ended.out
    assert "orphaned result, message 4" in ended.out
    assert "skipped 4 records of the file" in ended.out
    assert "default.agent-u6: 1 message on 1 page" in ended.out
    with quire.open(tmp_path / "a.db") as context:
        assert len(context.messages()) == 4
        assert context.check() == []


def test_import_reads_standard_input(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO(json.dumps(SHAPES["chat"]).encode()))
    monkeypatch.setattr("sys.stdin", given)
    assert run("import", tmp_path / "a.db", "-", "--context", "piped").code == 0
    with quire.open(tmp_path / "a.db", "piped") as context:
        assert [(message.role, message.text) for message in context.messages()] == TALK


def test_import_stores_nothing_in_a_dry_run(run: Run, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "s.jsonl", CODEX)
    ended = run("import", tmp_path / "a.db", file, "--dry-run")
    assert ended.code == 0
    assert "5 messages on 4 pages" in ended.out
    assert "nothing was stored" in ended.out
    assert not (tmp_path / "a.db").exists()


def test_import_prints_how_many_messages_the_context_had(run: Run, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "s.jsonl", SAID)
    first = run("import", tmp_path / "a.db", file)
    assert "added to" not in first.out
    assert "added to 'default', which had 2 messages" in run("import", tmp_path / "a.db", file).out
    assert "added to 'default', which had 4 messages" in run("import", tmp_path / "a.db", file, "--dry-run").out
    assert run("import", tmp_path / "a.db", file, "--json").value()["before"] == 4
    assert run("import", tmp_path / "a.db", file, "-c", "新", "--json").value()["before"] == 0


@pytest.mark.parametrize("words", [("import", "a.db"), ("replay",)])
def test_a_named_pipe_is_read_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    reading, writing = os.pipe()
    os.write(writing, json.dumps({"messages": SAID}).encode())
    os.close(writing)
    ended = run(*words, f"/dev/fd/{reading}", "--json")
    os.close(reading)
    assert (ended.code, ended.err) == (0, "")


def test_a_repeated_import_prints_a_warning_and_can_be_undone(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    talk = [
        {"role": role, "content": text}
        for role, text in (("system", "Be brief."), ("user", "你好"), ("assistant", "Hello."), ("user", "Where?"))
    ]
    file = write_lines(tmp_path / "s.jsonl", talk[:3])
    assert run("import", store, file).err == ""
    longer = write_lines(tmp_path / "longer.jsonl", talk)
    warning = "warning: 'default' starts with the same 3 messages already"
    assert run("import", store, longer, "--dry-run").err == f"{warning}\n"
    assert run("import", store, longer, "--dry-run", "--json").value()["repeated"] == 3
    ended = run("import", store, longer)
    assert ended.code == 0
    assert ended.err.startswith(f"{warning}; to undo this import: quire undo {store} ")
    assert run(*ended.err.split("quire ")[1].split()).code == 0
    with quire.open(store) as context:
        assert [message.text for message in context.messages()] == ["Be brief.", "你好", "Hello."]
    greeting = write_lines(tmp_path / "greeting.jsonl", [*talk[:2], {"role": "assistant", "content": "Yes?"}])
    assert run("import", store, greeting).err == ""  # another conversation with the same greeting
    assert run("new", store, "-c", "new", "--system", "Be brief.").code == 0
    assert run("import", store, file, "-c", "new").err == ""  # only the prompt is equal


def test_import_reads_one_conversation_or_each_into_its_own_context(run: Run, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "runs.jsonl", [{"id": n, "messages": SAID[: n + 1]} for n in range(2)])
    several = run("import", tmp_path / "a.db", file)
    assert "holds 2 conversations; choose one with --conversation, 1 to 2, or all of them with 'all'." in several.err
    assert "'all'" not in run("replay", file).err
    assert "a number from 1, or 'all'" in run("import", tmp_path / "a.db", file, "--conversation", "some").err
    assert run("import", tmp_path / "a.db", file, "--conversation", 2).code == 0
    values = run("import", tmp_path / "a.db", file, "--conversation", "all", "-c", "run", "--json").values()
    assert [(value["context"], value["messages"]) for value in values] == [("run-1", 1), ("run-2", 2)]
    assert [value["name"] for value in run("ls", tmp_path / "a.db", "--json").values()] == ["default", "run-1", "run-2"]


def test_an_exported_file_can_be_imported(run: Run, store: Path, tmp_path: Path) -> None:
    assert run("export", store, tmp_path / "c.quire").code == 0
    assert run("export", store, tmp_path / "c.json", "--format", "json").code == 0
    target = tmp_path / "b.db"
    whole = run("import", target, tmp_path / "c.quire", "--context", "whole", "--json").value()
    assert whole["context"] == "whole"
    assert run("import", target, tmp_path / "c.json", "--context", "pages").code == 0
    assert run("import", target, tmp_path / "c.json", "--context", "pages").code == 2
    with quire.Library(target) as library:
        found = [len(library.open(name).messages()) for name in ("whole", "pages")]
    assert found == [5, 5]
    (tmp_path / "bad.json").write_text('{"segments": [1], "pages": []}')
    assert run("import", target, tmp_path / "bad.json", "--context", "bad").code == 2
    with quire.Library(target) as library:
        assert not library.exists("bad")


@pytest.mark.parametrize("form", ["quire", "json", "html"])
def test_a_copy_of_a_context_is_not_a_view(run: Run, store: Path, tmp_path: Path, form: str) -> None:
    ended = run("export", store, tmp_path / "a", "--format", form, "--view")
    assert ended.code == 2
    assert "--view is for claude-code, codex, openai" in ended.err
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("form", ["openai", "anthropic", "responses"])
def test_an_exported_conversation_is_imported_as_it_was(run: Run, store: Path, tmp_path: Path, form: str) -> None:
    ended = run("export", store, "-", "--format", form)
    assert ended.code == 0
    (tmp_path / "talk.jsonl").write_text(ended.out)
    values = run("import", tmp_path / "b.db", tmp_path / "talk.jsonl", "--json").value()
    assert (values["findings"], values["skipped"]) == ([], {})
    with quire.open(store, NAME) as context, quire.open(tmp_path / "b.db") as copy:
        said = [
            [(message.role, message.text, message.tool_calls) for message in talk.messages()]
            for talk in (context, copy)
        ]
    assert said[0] == said[1]
