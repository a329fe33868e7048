"""Requests for each rule of the strict provider: a legal one, and an illegal one with its error."""

from typing import Any

from tests.strict_provider.requests import Api, Body

MODEL = "claude-fable-5-1"
LONG = "word " * 300
SCHEMA: Body = {"type": "object", "properties": {}}


def user(content: Any = "Hello.") -> Body:
    return {"role": "user", "content": content}


def assistant(content: Any = "Hi.") -> Body:
    return {"role": "assistant", "content": content}


def use(call: str = "t1", name: str = "look", **more: Any) -> Body:
    return {"type": "tool_use", "id": call, "name": name, "input": {}, **more}


def result(call: str = "t1", content: Any = "found") -> Body:
    return {"type": "tool_result", "tool_use_id": call, "content": content}


def mark(text: str = "x") -> Body:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def anthropic(*messages: Body, **more: Any) -> Body:
    return {"model": MODEL, "max_tokens": 4_000, "messages": list(messages), **more}


def call(call_id: str = "t1", name: str = "look") -> Body:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def calling(*calls: Body) -> Body:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def answer(call_id: str = "t1", content: Any = "found") -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def chat(*messages: Body, **more: Any) -> Body:
    return {"model": "gpt-5", "messages": list(messages), **more}


def function(call_id: str = "t1", name: str = "look", **more: Any) -> Body:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **more}


def output(call_id: str = "t1") -> Body:
    return {"type": "function_call_output", "call_id": call_id, "output": "found"}


def responses(*items: Body, **more: Any) -> Body:
    return {"model": "gpt-5", "input": list(items), **more}


MANUAL = {"type": "enabled", "budget_tokens": 2_000}
FAKE: Body = {"type": "thinking", "thinking": "hm", "signature": "made up"}
REASONING: Body = {"type": "reasoning", "id": "rs_stored", "summary": []}

Rule = tuple[str, Body, Body, str]
"""Its name, a legal request, an illegal request, and a part of the error."""

_ANTHROPIC: list[Rule] = [
    ("required fields", anthropic(user()), {"model": MODEL, "messages": [user()]}, "max_tokens: Field"),
    ("known fields", anthropic(user()), anthropic(user(), seed=1), "seed: Extra inputs are not permitted"),
    ("known fields", anthropic(user()), anthropic({**user(), "id": "m"}), "messages.0.id: Extra inputs"),
    (
        "known fields",
        anthropic(user([mark()])),
        anthropic(user([{"type": "text", "text": "x", "color": 1}])),
        "messages.0.content.0.text.color: Extra inputs are not permitted",
    ),
    (
        "known fields",
        anthropic(user(), thinking={"type": "adaptive"}),
        anthropic(user(), thinking={"type": "adaptive", "block_binding": {}}),
        "thinking.adaptive.block_binding: Extra inputs are not permitted",
    ),
    ("at least one message", anthropic(user()), anthropic(), "at least one message is required"),
    ("known roles", anthropic(user()), anthropic({"role": "tool", "content": "x"}), "messages.0.role: "),
    ("first role", anthropic(user()), anthropic(assistant(), user()), "first message must use the"),
    (
        "system message placement",
        anthropic(user(), {"role": "system", "content": "Be brief."}, assistant(), user()),
        anthropic(user(), assistant(), {"role": "system", "content": "Be brief."}, user()),
        "messages.2: role 'system' must follow a 'user' message",
    ),
    (
        "system message placement",
        anthropic(user(), {"role": "system", "content": "Be brief."}),
        anthropic(user(), {"role": "system", "content": "Be brief."}, user()),
        "messages.1: role 'system' must precede an 'assistant' message or end the array",
    ),
    ("content not empty", anthropic(user()), anthropic(user("")), "messages.0: all messages must have"),
    ("content not empty", anthropic(user()), anthropic(user([])), "messages.0: all messages must have"),
    (
        "content not empty",
        anthropic(user(), system="Be brief."),
        anthropic(user(), system=[{"type": "text", "text": ""}]),
        "system: text content blocks must be non-empty",
    ),
    (
        "content not empty",
        anthropic(user([{"type": "text", "text": " x"}])),
        anthropic(user([{"type": "text", "text": " \n"}])),
        "text content blocks must contain non-whitespace text",
    ),
    (
        "blocks in their roles",
        anthropic(user(), assistant([use()]), user([result()])),
        anthropic(user([use()])),
        "`tool_use` blocks can only be in `assistant` messages",
    ),
    (
        "tool names",
        anthropic(user(), tools=[{"name": "mcp__server__look", "input_schema": SCHEMA}]),
        anthropic(user(), tools=[{"name": "mcp.server/look up", "input_schema": SCHEMA}]),
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    (
        "tool names",
        anthropic(user(), assistant([use(name="a" * 128)]), user([result()])),
        anthropic(user(), assistant([use(name="a" * 129)]), user([result()])),
        "messages.1.content.0.tool_use.name: String should match pattern",
    ),
    (
        "tool names",
        anthropic(user(), tools=[{"name": n, "input_schema": SCHEMA} for n in "ab"]),
        anthropic(user(), tools=[{"name": n, "input_schema": SCHEMA} for n in "aa"]),
        "tools: Tool names must be unique.",
    ),
    (
        "call ids",
        anthropic(user(), assistant([use("call_1-a")]), user([result("call_1-a")])),
        anthropic(user(), assistant([use("call|1")]), user([result("call|1")])),
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    (
        "call ids",
        anthropic(user(), assistant([use()]), user([result()]), assistant([use("t2")]), user([result("t2")])),
        anthropic(user(), assistant([use()]), user([result()]), assistant([use()]), user([result()])),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    (
        "call inputs",
        anthropic(user(), assistant([use()]), user([result()])),
        anthropic(user(), assistant([use(input="{}")]), user([result()])),
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
    ),
    (
        "calls with results",
        anthropic(user(), assistant([use(), use("t2")]), user([result("t2"), result(), {"type": "text", "text": "x"}])),
        anthropic(user(), assistant([use(), use("t2")]), user([result()])),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t2.",
    ),
    (
        "calls with results",
        anthropic(user(), assistant([use()]), user([result()]), user("and?")),
        anthropic(user(), assistant([use()]), user([{"type": "text", "text": "x"}, result()])),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1.",
    ),
    (
        "calls with results",
        anthropic(user(), assistant([use()]), user([result()])),
        anthropic(user(), assistant(), user([result()])),
        "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t1.",
    ),
    (
        "calls with results",
        anthropic(user(), assistant([use()]), user([result()])),
        anthropic(user(), assistant([use()]), user([result(), result()])),
        "messages.2.content.1: each tool_use must have a single result.",
    ),
    (
        "at most four markers",
        anthropic(user([mark(), mark(), mark()]), system=[mark()]),
        anthropic(user([mark(), mark(), mark()]), system=[mark()], cache_control={"type": "ephemeral"}),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    ("no prefill", anthropic(user()), anthropic(user(), assistant()), "must end with a user message"),
    (
        "thinking budget",
        anthropic(user(), thinking=MANUAL),
        anthropic(user(), thinking={**MANUAL, "budget_tokens": 4_000}),
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    (
        "thinking first",
        anthropic(user(), assistant([use()]), user([result()]), thinking={"type": "adaptive"}),
        anthropic(user(), assistant([use()]), user([result()]), thinking=MANUAL),
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
    ),
    (
        "thinking first",
        anthropic(user(), assistant([use()]), user([result()]), assistant(), user(), thinking=MANUAL),
        anthropic(user(), assistant([{"type": "text", "text": "x"}, FAKE]), user(), thinking=MANUAL),
        "messages.1.content.0: If an assistant message contains any thinking blocks, the first block must be",
    ),
    (
        "thinking not changed",
        anthropic(user(), assistant(), user()),
        anthropic(user(), assistant([FAKE, {"type": "text", "text": "x"}]), user(), assistant(), user()),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    (
        "thinking not changed",
        anthropic(user(), assistant(), user()),
        anthropic(user(), assistant([FAKE, {"type": "text", "text": "x"}]), user()),
        "blocks in the latest assistant message cannot be modified.",
    ),
    ("context window", anthropic(user("word " * 150)), anthropic(user(LONG)), "tokens > 200 maximum"),
]
_CHAT: list[Rule] = [
    ("required fields", chat(user()), {"messages": [user()]}, "Missing required parameter: 'model'."),
    ("known fields", chat(user()), chat(user(), system="x"), "Unrecognized request argument supplied: system"),
    ("known fields", chat(user()), chat({**user(), "id": "m"}), "Unknown parameter: 'messages[0].id'."),
    ("at least one message", chat(user()), chat(), "Invalid 'messages': empty array."),
    ("known roles", chat(user()), chat({"role": "model", "content": "x"}), "Invalid value: 'model'."),
    ("content not null", chat(user(), assistant()), chat(user(), assistant(None)), "expected a string, got"),
    ("content not null", chat(user("")), chat(user([])), "Invalid 'messages[0].content': empty array."),
    (
        "tool names",
        chat(user(), calling(call(name="a" * 64)), answer()),
        chat(user(), calling(call(name="mcp.server/look up")), answer()),
        "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern.",
    ),
    (
        "tool names",
        chat(user(), tools=[{"type": "function", "function": {"name": "look"}}]),
        chat(user(), tools=[{"type": "function", "function": {"name": "a" * 65}}]),
        "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64",
    ),
    ("speaker names", chat({**user(), "name": "Ann"}), chat({**user(), "name": "Ann B"}), "'messages[0].name'"),
    (
        "call ids",
        chat(user(), calling(call("c" * 40)), answer("c" * 40)),
        chat(user(), calling(call("c" * 41)), answer("c" * 41)),
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40",
    ),
    (
        "calls with results",
        chat(user(), calling(call(), call("t2")), answer("t2"), answer(), assistant()),
        chat(user(), calling(call(), call("t2")), answer(), user(), answer("t2")),
        "The following tool_call_ids did not have response messages: t2",
    ),
    (
        "calls with results",
        chat(user(), calling(call()), answer()),
        chat(user(), answer()),
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    ),
    (
        "calls with results",
        chat(user(), calling(call()), answer(), calling(call()), answer()),
        chat(user(), calling(call(), call()), answer(), answer()),
        "Duplicate value for 'tool_call_id' of 't1'",
    ),
    ("context window", chat(user("word " * 150)), chat(user(LONG)), "maximum context length is 200 tokens."),
]
_RESPONSES: list[Rule] = [
    ("required fields", responses(user()), {"model": "gpt-5"}, 'One of "input" or "previous_response_id"'),
    ("known fields", responses(user()), responses(user(), messages=[]), "Unknown parameter: 'messages'."),
    (
        "known fields",
        responses(user(), function(status="completed"), output()),
        responses(user(), function(role="assistant"), output()),
        "Unknown parameter: 'input[1].role'.",
    ),
    ("known roles", responses(user()), responses({"role": "tool", "content": "x"}), "value: 'tool'"),
    (
        "content types",
        responses(user([{"type": "input_text", "text": "x"}]), assistant([{"type": "output_text", "text": "x"}])),
        responses(user([{"type": "input_text", "text": "x"}]), assistant([{"type": "input_text", "text": "x"}])),
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
    ),
    (
        "tool names",
        responses(user(), function(), output()),
        responses(user(), function(name="mcp.server/look up"), output()),
        "Invalid 'input[1].name': string does not match pattern.",
    ),
    (
        "call ids",
        responses(user(), function("c" * 64), output("c" * 64)),
        responses(user(), function("c" * 65), output("c" * 65)),
        "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64",
    ),
    (
        "item ids",
        responses(user(), function(id="fc_1"), output()),
        responses(user(), function(id="call_1"), output()),
        "Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'.",
    ),
    (
        "item ids",
        responses(user(), function(id="fc_1"), output(), function("t2", id="fc_2"), output("t2")),
        responses(user(), function(id="fc_1"), output(), function("t2", id="fc_1"), output("t2")),
        "Duplicate item found with id fc_1.",
    ),
    (
        "calls with results",
        responses(user(), function(), function("t2"), output("t2"), output()),
        responses(user(), function(), function("t2"), output(), assistant()),
        "No tool output found for function call t2.",
    ),
    (
        "calls with results",
        responses(user(), function(), output()),
        responses(user(), output(), function()),
        "No tool call found for function call output with call_id t1.",
    ),
    (
        "reasoning with its item",
        responses(user(), REASONING, assistant(), user()),
        responses(user(), REASONING, user()),
        "Item 'rs_stored' of type 'reasoning' was provided without its required following item.",
    ),
    (
        "reasoning with its item",
        responses(user(), REASONING, function(), output()),
        responses(user(), function(), output(), REASONING),
        "Item 'rs_stored' of type 'reasoning' was provided without its required following item.",
    ),
    (
        "item with its reasoning",
        responses(user(), REASONING, function(id="fc_stored"), output()),
        responses(user(), function(id="fc_stored"), output()),
        "Item 'fc_stored' of type 'function_call' was provided without its required 'reasoning' item: 'rs_stored'.",
    ),
    (
        "reasoning is stored or encrypted",
        responses(user(), REASONING, assistant()),
        responses(user(), {**REASONING, "id": "rs_gone"}, assistant()),
        "Item with id 'rs_gone' not found. Items are not persisted when `store` is set to false.",
    ),
    (
        "reasoning not changed",
        responses(user(), REASONING, assistant()),
        responses(user(), {**REASONING, "encrypted_content": "gAAA made up ="}, assistant()),
        "The encrypted content gAAA...up = could not be verified.",
    ),
    ("context window", responses(user("word " * 150)), responses(user(LONG)), "exceeds the context"),
]
CASES: list[tuple[Api, str, Body, Body, str]] = [
    *(("anthropic", *rule) for rule in _ANTHROPIC),
    *(("chat", *rule) for rule in _CHAT),
    *(("responses", *rule) for rule in _RESPONSES),
]
