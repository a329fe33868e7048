"""Recorded histories: a legal one for each kind of content of a provider, as in its SDK types and API."""

from typing import Any, Literal

Provider = Literal["openai", "responses", "anthropic"]
History = list[dict[str, Any]]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKJcOkw7zDtsOfCjIgMCBvYmoKPDwvTGVuZ3RoIDMgMCBSL0ZpbHRlci9GbGF0ZURlY29kZT4+CnN0cmVhbQp4nD2O"
LONG = "The flight leaves at 07:45 from gate B12. " * 20

ASK: dict[str, Any] = {"role": "user", "content": "What is the weather in Paris and in 北京?"}


def _chat_call(call_id: str, arguments: str = '{"city": "Paris"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


OPENAI: dict[str, History] = {
    "plain": [
        {"role": "system", "content": "You are careful."},
        ASK,
        {"role": "assistant", "content": "Sunny. ☀️"},
        {"role": "user", "content": ""},
    ],
    "developer": [{"role": "developer", "content": "Answer briefly."}, ASK, {"role": "assistant", "content": "Sunny."}],
    "parallel calls": [
        ASK,
        {"role": "assistant", "content": None, "tool_calls": [_chat_call("call_1"), _chat_call("call_2", "")]},
        {"role": "tool", "tool_call_id": "call_2", "content": "18°"},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "21°"}], "name": "get_weather"},
        {"role": "assistant", "content": "21 and 18."},
    ],
    "no content field beside calls": [
        ASK,
        {"role": "assistant", "tool_calls": [_chat_call("call_1", "{not json")]},
        {"role": "tool", "tool_call_id": "call_1", "content": ""},
    ],
    "empty text beside calls": [
        ASK,
        {"role": "assistant", "content": "", "tool_calls": [_chat_call("call_1")], "refusal": None, "annotations": []},
        {"role": "tool", "tool_call_id": "call_1", "content": LONG},
    ],
    "custom tool": [
        ASK,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_9", "type": "custom", "custom": {"name": "run_sql", "input": "select 1"}}],
        },
        {"role": "tool", "tool_call_id": "call_9", "content": "1"},
    ],
    "legacy function": [
        ASK,
        {"role": "assistant", "content": None, "function_call": {"name": "get_weather", "arguments": "{}"}},
        {"role": "function", "name": "get_weather", "content": "sunny"},
        {"role": "assistant", "content": "Sunny."},
    ],
    "images, audio and files": [
        {
            "role": "user",
            "name": "ada",
            "content": [
                {"type": "text", "text": "Look:"},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
                {"type": "file", "file": {"filename": "b.pdf", "file_data": PDF}},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Seen."}], "name": "bob"},
    ],
    "refusals": [
        ASK,
        {"role": "assistant", "content": None, "refusal": "I cannot help with that."},
        ASK,
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}, {"type": "text", "text": "Sorry."}]},
    ],
    "spoken answer": [ASK, {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}, ASK],
    "unknown fields": [
        {"role": "user", "content": [{"type": "text", "text": LONG, "prompt_cache_breakpoint": {"mode": "explicit"}}]},
        {"role": "assistant", "content": "Yes.", "reasoning_content": LONG, "annotations": [{"type": "url_citation"}]},
        {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "https://example.com/v.mp4"}}]},
    ],
}


def _call_item(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "get_weather", "arguments": '{"city":"Paris"}', **more}


def _said(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **more,
    }


REASONING: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Paris first."}],
    "encrypted_content": "gAAAAAB" + "x" * 300,
}

RESPONSES: dict[str, History] = {
    "plain": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello.", "phase": "final_answer"},
    ],
    "reasoning, text and calls in a row": [
        ASK,
        REASONING,
        _said(LONG, phase="commentary"),
        _call_item("call_1", id="fc_1", status="completed"),
        _call_item("call_2"),
        {"type": "function_call_output", "call_id": "call_1", "output": "21°"},
        {
            "type": "function_call_output",
            "call_id": "call_2",
            "output": [
                {"type": "input_text", "text": "18°"},
                {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"},
            ],
        },
        REASONING,
        _said("Done."),
        _said("Really."),
    ],
    "plain call": [
        {"role": "assistant", "content": "I look it up."},
        _call_item("call_1"),
        {"type": "function_call_output", "call_id": "call_1", "output": ""},
    ],
    "a call between words": [ASK, _call_item("a"), _said("Wait."), _call_item("b")]
    + [{"type": "function_call_output", "call_id": call, "output": "1"} for call in ("b", "a")],
    "multi-part input": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look:"},
                {"type": "input_image", "detail": "high", "image_url": "https://example.com/a.png"},
                {"type": "input_image", "detail": "auto", "file_id": "file-2"},
                {"type": "input_file", "file_url": "https://example.com/a.pdf"},
                {"type": "input_file", "filename": "b.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
                {"type": "input_file", "file_id": "file-3"},
            ],
        },
        {
            "type": "message",
            "id": "msg_2",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "refusal", "refusal": "No."}],
        },
    ],
    "custom tool": [
        ASK,
        {"type": "custom_tool_call", "call_id": "call_9", "name": "run_sql", "input": "select 1"},
        {"type": "custom_tool_call_output", "call_id": "call_9", "output": "1"},
    ],
    "hosted tools": [
        ASK,
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "weather Paris"},
        },
        {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["x"], "results": None},
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "status": "completed",
            "container_id": "c",
            "code": None,
            "outputs": None,
        },
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PNG},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "n", "arguments": "{}", "output": "42"},
        {"type": "tool_search_call", "arguments": {"q": "x"}, "call_id": None, "execution": "server"},
        {"type": "tool_search_output", "tools": [], "call_id": None, "execution": "server", "status": "completed"},
        _said("It is sunny."),
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "x" * 100},
        {"type": "item_reference", "id": "msg_7"},
        {"id": "msg_8"},
    ],
    "local tools": [
        ASK,
        {
            "type": "shell_call",
            "call_id": "sh_1",
            "action": {"commands": ["ls"], "timeout_ms": 100},
            "status": "completed",
        },
        {
            "type": "shell_call_output",
            "call_id": "sh_1",
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "sh_2",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
            "status": "completed",
        },
        {"type": "local_shell_call_output", "id": "sh_2", "output": '{"stdout": "a"}'},
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "cu_c",
            "action": {"type": "screenshot"},
            "pending_safety_checks": [],
            "status": "completed",
        },
        {
            "type": "computer_call_output",
            "call_id": "cu_c",
            "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"},
        },
        {
            "type": "apply_patch_call",
            "call_id": "ap_1",
            "operation": {"type": "delete_file", "path": "a"},
            "status": "completed",
        },
        {"type": "apply_patch_call_output", "call_id": "ap_1", "status": "completed"},
    ],
}


def _use(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "get_weather", "input": {"city": "Paris", "days": 2.0}, **more}


def _result(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, **more}


EPHEMERAL = {"cache_control": {"type": "ephemeral"}}

ANTHROPIC: dict[str, History] = {
    "plain": [
        ASK,
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": [{"type": "text", "text": "Ok"}]},
    ],
    "thinking and parallel calls": [
        ASK,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Two cities.", "signature": "EqQB" + "c" * 100},
                {"type": "redacted_thinking", "data": "EmwK" + "d" * 100},
                {"type": "text", "text": "I look."},
                _use("toolu_1"),
                _use("toolu_2", caller={"type": "direct"}),
            ],
        },
        {
            "role": "user",
            "content": [
                _result("toolu_1", content="21°"),
                _result("toolu_2", content=[{"type": "text", "text": LONG}], is_error=True),
                {"type": "text", "text": "And quickly."},
                {"type": "text", "text": "Please.", **EPHEMERAL},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "21."}]},
    ],
    "calls only, results apart": [
        ASK,
        {"role": "assistant", "content": [_use("toolu_1"), _use("toolu_2", input={})]},
        {"role": "user", "content": [_result("toolu_1")]},
        {"role": "user", "content": [_result("toolu_2", content="")]},
        {"role": "user", "content": "Well?"},
    ],
    "words after a call": [
        ASK,
        {"role": "assistant", "content": [_use("toolu_1"), {"type": "text", "text": "Wait."}]},
        {"role": "user", "content": [_result("toolu_1", content="1", **EPHEMERAL)]},
    ],
    "images and documents": [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}, **EPHEMERAL},
                {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                    "title": "Terms",
                    "citations": {"enabled": True},
                },
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": LONG},
                    "title": "T",
                },
                {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "Page one."}]}},
                {"type": "document", "source": {"type": "file", "file_id": "file_2"}, "context": "c"},
                {
                    "type": "search_result",
                    "source": "https://example.com",
                    "title": "Found",
                    "content": [{"type": "text", "text": "A fact."}],
                },
                {"type": "text", "text": "Compare."},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "According to the terms, "},
                {
                    "type": "text",
                    "text": "it rains.",
                    "citations": [
                        {
                            "type": "char_location",
                            "cited_text": "rain",
                            "document_index": 0,
                            "document_title": None,
                            "start_char_index": 0,
                            "end_char_index": 4,
                        }
                    ],
                },
            ],
        },
    ],
    "image as result": [
        ASK,
        {"role": "assistant", "content": [_use("toolu_1")]},
        {
            "role": "user",
            "content": [
                _result(
                    "toolu_1",
                    content=[
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                        {"type": "text", "text": "the map"},
                    ],
                )
            ],
        },
    ],
    "server tools": [
        ASK,
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "srvtoolu_1",
                    "content": [
                        {"type": "web_search_result", "title": "t", "url": "https://e.com", "encrypted_content": "x"}
                    ],
                },
                {"type": "text", "text": "Found."},
            ],
        },
    ],
    "late system": [
        ASK,
        {"role": "system", "content": "Be brief from now on."},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes.", **EPHEMERAL}]},
    ],
}

ALL = {"openai": OPENAI, "responses": RESPONSES, "anthropic": ANTHROPIC}
CASES = [(provider, name) for provider, histories in ALL.items() for name in histories]
