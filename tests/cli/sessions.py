"""Shortened session files of coding agents."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CLAUDE_CODE: list[dict[str, Any]] = [
    {"type": "summary", "summary": "Fix the date parser", "leafUuid": "u9"},
    {"type": "file-history-snapshot", "messageId": "m0", "snapshot": {"trackedFileBackups": {}}},
    {
        "type": "user",
        "uuid": "u1",
        "parentUuid": None,
        "isSidechain": False,
        "sessionId": "s1",
        "message": {"role": "user", "content": "日期解析在哪里？Please fix it."},
    },
    {
        "type": "assistant",
        "uuid": "u2",
        "isSidechain": False,
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [{"type": "thinking", "thinking": "Look first.", "signature": "c2ln"}],
            "stop_reason": None,
            "usage": {"input_tokens": 10, "output_tokens": 2},
        },
    },
    {
        "type": "assistant",
        "uuid": "u3",
        "isSidechain": False,
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [{"type": "text", "text": "I will search for it."}],
            "stop_reason": None,
            "usage": {"input_tokens": 10, "output_tokens": 9},
        },
    },
    {
        "type": "assistant",
        "uuid": "u4",
        "isSidechain": False,
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "Grep", "input": {"pattern": "def parse_date"}}],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 10, "output_tokens": 30},
        },
    },
    {
        "type": "user",
        "uuid": "u5",
        "isSidechain": False,
        "toolUseResult": {"numFiles": 1},
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "dates.py:41: def parse_date"}],
        },
    },
    {"type": "user", "uuid": "u6", "isSidechain": True, "message": {"role": "user", "content": "A subagent's task"}},
    {
        "type": "assistant",
        "uuid": "u7",
        "isSidechain": False,
        "isApiErrorMessage": True,
        "message": {"id": "e1", "role": "assistant", "content": [{"type": "text", "text": "API Error: 529"}]},
    },
    {
        "type": "assistant",
        "uuid": "u8",
        "isSidechain": False,
        "message": {
            "id": "msg_2",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [{"type": "text", "text": "It is in dates.py, line 41."}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 50, "output_tokens": 12},
        },
    },
    {"type": "system", "subtype": "turn_duration", "content": "took 12 s", "uuid": "u9"},
]

CODEX: list[dict[str, Any]] = [
    {
        "timestamp": "2026-03-11T02:14:09.122Z",
        "type": "session_meta",
        "payload": {"id": "s2", "cwd": "/repo", "base_instructions": {"text": "You are a coding agent."}},
    },
    {"timestamp": "t", "type": "turn_context", "payload": {"cwd": "/repo", "model": "gpt-x"}},
    {
        "timestamp": "t",
        "type": "response_item",
        "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "运行测试。"}]},
    },
    {"timestamp": "t", "type": "event_msg", "payload": {"type": "user_message", "message": "运行测试。"}},
    {
        "timestamp": "t",
        "type": "response_item",
        "payload": {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAA"},
    },
    {
        "timestamp": "t",
        "type": "response_item",
        "payload": {"type": "function_call", "name": "shell", "arguments": '{"cmd":"pytest"}', "call_id": "call_1"},
    },
    {
        "timestamp": "t",
        "type": "response_item",
        "payload": {"type": "function_call_output", "call_id": "call_1", "output": "3 passed"},
    },
    {
        "timestamp": "t",
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "All three pass."}],
        },
    },
    {"timestamp": "t", "type": "event_msg", "payload": {"type": "token_count", "info": None}},
    {"timestamp": "t", "type": "response_item", "payload": {"type": "ghost_snapshot", "ghost_commit": {}}},
]


def write_lines(file: Path, values: Iterable[object]) -> Path:
    """Write a file of JSON Lines and return it."""
    file.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8")
    return file
