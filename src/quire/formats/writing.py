"""Writing: messages as a session that another tool can resume.

| format        | file                                                                                              |
|---------------|---------------------------------------------------------------------------------------------------|
| `claude-code` | JSON Lines for `~/.claude/projects/<folder>/<session id>.jsonl`; `claude --resume <id>` resumes it |
| `codex`       | JSON Lines for `~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl`                 |
| `openai`, `responses` | JSON Lines of messages or items                                                           |
| `anthropic`   | JSON Lines of messages; the prompt is a message with the role system                              |
| `langchain`   | a JSON list for `messages_from_dict`                                                              |

Sessions of Claude Code and Codex get no thinking: it is valid only in the request that produced it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec
from msgspec.structs import replace

from quire.model.messages import Message, Role
from quire.providers import anthropic, format_messages, openai
from quire.providers.legal_form import make_legal
from quire.providers.plain_json import Values, invalid_value

SessionFormat = Literal["claude-code", "codex", "openai", "anthropic", "responses", "langchain"]
SESSION_FORMATS: tuple[SessionFormat, ...] = get_args(SessionFormat)
_CLAUDE_CODE = "2.1.197"
_CODEX = "0.166.0"
_TYPES: Mapping[Role, str] = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}


def format_session(
    messages: Iterable[Message],
    form: SessionFormat,
    *,
    session_id: str | None = None,
    folder: str = "/",
    times: bool = False,
) -> bytes:
    """Return messages as a session of another tool.

    A message without `at` gets the time of the message before it (`Conversation.date_messages` returns messages with
    their times). `session_id` is a UUID; without it, it is derived from the messages. `folder` is the working folder of
    the session. With `times`, the messages of `openai`, `responses` and `anthropic` have a key `timestamp`; a provider
    refuses it in a request. Raises `InvalidValue` for another format or id.
    """
    if form not in SESSION_FORMATS:
        raise invalid_value("format", form, f"known are {', '.join(SESSION_FORMATS)}")
    dated = list(_fill_times(messages))
    match form:
        case "claude-code":
            return _join_lines(_claude_code(_drop_thinking(dated), _check_id(session_id, dated), folder))
        case "codex":
            return _join_lines(_codex(_drop_thinking(dated), _check_id(session_id, dated), folder))
        case "langchain":
            return msgspec.json.encode([_langchain(message) for message in dated]) + b"\n"
        case _:
            return _join_lines(_provider_lines(dated, form, times=times))


def _fill_times(messages: Iterable[Message]) -> Iterator[Message]:
    listed = list(messages)
    last = next((message.at for message in listed if message.at), datetime.fromtimestamp(0, UTC))
    for message in listed:
        last = message.at or last
        yield message if message.at is not None else replace(message, at=last)


def _drop_thinking(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        if message.has_thinking and isinstance(message.content, list):
            kept = [part for part in message.content if part.get("type") != "thinking"]
            if kept or message.tool_calls:
                yield replace(message, content=kept or None, raw=None)
        else:
            yield message


def _check_id(session_id: str | None, messages: Sequence[Message]) -> str:
    if session_id is None:
        return str(uuid5(NAMESPACE_URL, msgspec.json.encode(messages).decode()))
    try:
        return str(UUID(session_id))
    except (ValueError, AttributeError, TypeError):
        raise invalid_value("session_id", session_id, "a UUID is needed") from None


def _join_lines(values: Iterable[Values]) -> bytes:
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)


def _time(message: Message) -> str:
    moment = message.at or datetime.fromtimestamp(0, UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def _claude_code(messages: Iterable[Message], session_id: str, folder: str) -> Iterator[Values]:
    """Yield the lines of a session of Claude Code. A session has no prompt, so system messages are written as notes."""
    listed = list(messages)
    values = [None if message.role == "system" else anthropic.write_message(message) for message in listed]
    make_legal([value for value in values if value is not None], "anthropic")  # it changes the values
    parent: str | None = None
    for n, (message, written) in enumerate(zip(listed, values, strict=True)):
        line: Values = {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": folder,
            "sessionId": session_id,
            "version": _CLAUDE_CODE,
            "gitBranch": "",
        }
        if message.role == "system":
            line |= {"type": "system", "subtype": "informational", "level": "info", "content": message.text}
            line |= {"quireRole": "system"}
        elif written is None:
            continue
        elif message.role == "assistant":
            blocks = anthropic.to_blocks(written["content"])
            reply = {"id": f"msg_{uuid5(NAMESPACE_URL, f'{session_id}/{n}').hex[:24]}", "type": "message", **written}
            reply |= {"model": str(message.meta.get("model") or "claude"), "content": blocks}
            reply |= {"stop_reason": "tool_use" if message.tool_calls else "end_turn", "stop_sequence": None}
            line |= {"type": "assistant", "message": {**reply, "usage": {"input_tokens": 0, "output_tokens": 0}}}
        else:
            line |= {"type": "user", "message": written}
        parent = str(uuid5(NAMESPACE_URL, f"{session_id}#{n}"))
        yield {**line, "uuid": parent, "timestamp": _time(message)}


def _codex(messages: Iterable[Message], session_id: str, folder: str) -> Iterator[Values]:
    """Yield the lines of a rollout of Codex. A prompt at the beginning becomes its instructions."""
    listed = list(messages)
    first = listed[0] if listed and listed[0].role == "system" and not listed[0].developer else None
    start = _time(listed[0]) if listed else _time(Message(role="user"))
    meta: Values = {"id": session_id, "session_id": session_id, "timestamp": start, "cwd": folder}
    meta |= {"originator": "quire", "cli_version": _CODEX, "source": "exec", "model_provider": "openai"}
    meta |= {"base_instructions": {"text": first.text}} if first is not None else {}
    yield {"timestamp": start, "type": "session_meta", "payload": meta}
    custom: set[str] = set()
    for message in listed[first is not None :]:
        custom |= {call.id for call in message.tool_calls if call.custom}
        for item in _codex_items(message, custom):
            yield {"timestamp": _time(message), "type": "response_item", "payload": item}


def _codex_items(message: Message, custom: set[str]) -> Iterator[Values]:
    plain = replace(message, raw=None, origin="openai") if message.origin != "responses" else message
    for item in format_messages([plain], "responses"):
        if item.get("type") == "function_call_output" and item["call_id"] in custom:
            item = {**item, "type": "custom_tool_call_output"}
        if "role" in item:
            kind = "output_text" if item["role"] == "assistant" else "input_text"
            content = item["content"]
            blocks = [{"type": kind, "text": content}] if isinstance(content, str) else content
            role = "developer" if item["role"] == "system" else item["role"]
            item = {**item, "type": "message", "role": role, "content": blocks}
        yield item


def _langchain(message: Message) -> Values:
    """Return a message as `messages_from_dict` reads it, with its time in `response_metadata`."""
    written = openai._write_content(replace(message, raw=None))
    data: Values = {
        "content": written or "",
        "additional_kwargs": {},
        "type": _TYPES[message.role],
        "name": message.name,
    }
    data["id"] = message.meta.get("id") if isinstance(message.meta.get("id"), str) else None
    data["response_metadata"] = {"timestamp": _time(message)}
    if message.role == "tool":
        data |= {"tool_call_id": message.tool_call_id or "", "status": "success", "artifact": None}
    if message.role == "assistant":
        calls = [(call, _arguments(call.arguments)) for call in message.tool_calls]
        data["tool_calls"] = [
            {"name": call.name, "args": arguments, "id": call.id, "type": "tool_call"}
            for call, arguments in calls
            if arguments is not None
        ]
        data["invalid_tool_calls"] = [
            {"name": call.name, "args": call.arguments, "id": call.id, "error": None, "type": "invalid_tool_call"}
            for call, arguments in calls
            if arguments is None
        ]
    return {"type": _TYPES[message.role], "data": data}


def _arguments(text: str) -> Values | None:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _provider_lines(messages: Sequence[Message], form: Any, *, times: bool) -> Iterator[Values]:
    """Yield messages in the form of a provider. With `times`, messages are formatted one by one."""
    prompts = anthropic.prompt_length(messages) if form == "anthropic" else 0
    runs = [[message] for message in messages] if times else [messages[:prompts], messages[prompts:]]
    for run in runs:
        if form == "anthropic" and run and run[0].role == "system":
            written = [{"role": "system", "content": message.text} for message in run]
        else:
            written = format_messages(run, form)
        stamp = {"timestamp": _time(run[0])} if times else {}
        for value in written:
            kind = {"type": "message"} if form == "responses" and "role" in value else {}
            yield {**kind, **value, **stamp}
