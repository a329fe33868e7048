"""Every session of the corpus is imported whole, with its roles and times, and survives a trip through a format."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest

import quire
from quire import Message
from quire.formats import LoggedConversation, SessionFormat, format_session, read_log
from tests.formats.talks import CORPUS, TALKS, Turn

DATED = ("claude-code", "codex", "openai-dated", "responses-dated", "pydantic-ai", "agents", "langgraph")
SECONDS = ("responses-dated", "agents")
"""These forms have times in whole seconds."""
FORMATS: tuple[SessionFormat, ...] = get_args(SessionFormat)
TIMES = {
    name: [datetime.fromisoformat(time) for time in times]
    for name, times in json.loads((CORPUS / "langgraph.times.json").read_text()).items()
}


def sessions() -> list[tuple[str, str, Path]]:
    """Return the form, the talk and the file of every session."""
    found = []
    for path in sorted(CORPUS.rglob("*")):
        if path.suffix == ".db":
            found += [(path.stem, name, path) for name in TALKS]
        elif path.parent.name == "subagents":
            found.append(("claude-code", {"agent-a1": "chat", "agent-a2": "call"}[path.stem], path))
        elif path.suffix in (".json", ".jsonl") and ".times." not in path.name:
            talk, form, _ = path.name.split(".")
            found.append((form, talk, path))
    return found


SESSIONS = sessions()


def conversation_of(talk: str, path: Path) -> LoggedConversation:
    log = read_log(path)
    return next(found for found in log.conversations if path.suffix != ".db" or found.name == talk)


def expected(form: str, talk: str) -> list[Any]:
    turns = [turn for turn in TALKS[talk] if form != "claude-code" or turn.role != "system"]
    return [(*content_of(turn), time_of(form, talk, turn)) for turn in turns]


def content_of(turn: Turn) -> tuple[Any, ...]:
    return turn.role, turn.text, [tuple(call) for call in turn.calls], turn.answers


def time_of(form: str, talk: str, turn: Turn) -> datetime | None:
    if form == "langgraph":
        return TIMES[talk][TALKS[talk].index(turn)]
    at = turn.at.replace(microsecond=0) if form in SECONDS else turn.at
    return at if form in DATED else None


def summary_of(message: Message) -> tuple[Any, ...]:
    calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return message.role, message.text, calls, message.tool_call_id, message.at


def imported(messages: list[object]) -> quire.Context:
    ctx = quire.open("memory:")
    report = ctx.import_messages(messages)
    assert report.marked == ()
    return ctx


@pytest.mark.parametrize(("form", "talk", "path"), SESSIONS, ids=lambda value: getattr(value, "name", value))
def test_a_session_is_imported_without_loss(form: str, talk: str, path: Path) -> None:
    ctx = imported(conversation_of(talk, path).messages)
    assert [summary_of(message) for message in ctx.messages()] == expected(form, talk)
    assert ctx.check() == []
    if form in DATED:
        pages = [ctx.pages.get_page(ctx.conversation.page_of(message.index) or "") for message in ctx.messages()]
        assert all(page.created_at <= message.at for page, message in zip(pages, ctx.messages(), strict=True))  # type: ignore[operator]


@pytest.mark.parametrize("target", FORMATS)
def test_a_session_is_equal_after_a_trip_through_another_format(
    target: SessionFormat, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chosen = SESSIONS if request.config.getoption("--long") else SESSIONS[FORMATS.index(target) :: 9]
    file = tmp_path / "session.jsonl"
    for form, talk, path in chosen:
        source = imported(conversation_of(talk, path).messages)
        messages = source.conversation.date_messages()
        file.write_bytes(format_session(messages, target, times=True))
        [conversation] = read_log(file).conversations
        back = imported(conversation.messages)
        assert [*map(summary_of, back.messages())] == [*map(summary_of, messages)], f"{path.name}: {form} to {target}"


def test_subagents_of_claude_code_are_conversations_of_their_own() -> None:
    log = read_log(CORPUS / "loop.claude-code.jsonl")
    assert [(found.name, found.is_agent) for found in log.conversations] == [
        ("", False),
        ("agent-a1", True),
        ("agent-a2", True),
    ]
    assert log.select(None) is log.conversations[0]
    for conversation, talk in zip(log.conversations[1:], ("chat", "call"), strict=True):
        ctx = imported(conversation.messages)
        assert [summary_of(message) for message in ctx.messages()] == expected("claude-code", talk)
    assert log.count_skipped() == {"not a message: 'queue-operation'": 1, "not a message: 'last-prompt'": 1}
