"""The rules of Anthropic Messages. Each function returns the error of the API, or None."""

import re
from collections.abc import Callable, Iterator
from itertools import groupby

from tests.strict_provider import fields
from tests.strict_provider.requests import BINDING_BETA, Body, Place, Problem, Request, State, to_blocks
from tests.strict_provider.thinking import judge_thinking, refuse_mismatch
from tests.strict_provider.tokens import count_request

DOCS = "https://platform.claude.com/docs/en"
ISSUES = "https://github.com/anthropics/claude-code/issues"
_NAME = re.compile("[a-zA-Z0-9_-]{1,128}")
_ID = re.compile("[a-zA-Z0-9_-]+")
_THINKING = ("thinking", "redacted_thinking")
_MARKERS = 4


def required_fields(request: Request, state: State) -> Problem | None:
    """Refuse a request without model, messages or max_tokens."""
    needed = ("model", "messages") if request.counts else ("model", "messages", "max_tokens")
    missing = next((name for name in needed if name not in request.body), None)
    return Problem(f"{missing}: Field required") if missing else None


def known_fields(request: Request, state: State) -> Problem | None:
    """Refuse fields that the API does not know: of the request, of a message, of a block, of a tool."""
    known = fields.ANTHROPIC_REQUEST | (fields.ANTHROPIC_BETA if request.betas else frozenset())
    for name in request.body.keys() - known:
        return Problem(f"{name}: Extra inputs are not permitted")
    for number, message in enumerate(request.messages):
        controls = message.get("role") == "system" and fields.TURN_CONTROL in request.betas
        for name in message.keys() - {"role", "content", *(("output_config",) if controls else ())}:
            return Problem(f"messages.{number}.{name}: Extra inputs are not permitted")
    for place in request.blocks():
        kind = place.value.get("type", "")
        for name in place.value.keys() - fields.ANTHROPIC_BLOCKS.get(kind, place.value.keys()):
            return Problem(f"{place.path}.{kind}.{name}: Extra inputs are not permitted")
    thinking = request.body.get("thinking") or {}
    if "block_binding" in thinking and BINDING_BETA not in request.betas:
        return Problem(f"thinking.{thinking.get('type')}.block_binding: Extra inputs are not permitted")
    return None


def at_least_one_message(request: Request, state: State) -> Problem | None:
    """Refuse an empty list of messages."""
    return None if request.messages else Problem("messages: at least one message is required")


def known_roles(request: Request, state: State) -> Problem | None:
    """Refuse roles other than user, assistant and system."""
    for number, message in enumerate(request.messages):
        if message.get("role") not in ("user", "assistant", "system"):
            return Problem(f"messages.{number}.role: Input should be 'user', 'assistant' or 'system'")
    return None


def first_role(request: Request, state: State) -> Problem | None:
    """Refuse a conversation that does not start with the user."""
    if request.messages[0]["role"] == "user":
        return None
    return Problem('messages: first message must use the "user" role')


def system_message_placement(request: Request, state: State) -> Problem | None:
    """Refuse a system message that is not between the user and the assistant, or at the end after the user."""
    roles = [message["role"] for message in request.messages if not _is_directive(message)]
    form = "; the directive-only form (content: [] with output_config) is accepted at any position"
    groups = [(role, len(list(group))) for role, group in groupby(roles)]
    start = 0
    for n, (role, size) in enumerate(groups):
        if role == "system":
            if n == 0 or groups[n - 1][0] != "user":
                after = "a 'user' message or an 'assistant' message ending in a server tool result"
                return Problem(f"messages.{start}: role 'system' must follow {after}{form}")
            if n + 1 < len(groups) and groups[n + 1][0] != "assistant":
                return Problem(
                    f"messages.{start}: role 'system' must precede an 'assistant' message or end the array{form}"
                )
        start += size
    return None


def _is_directive(message: Body) -> bool:
    """Return whether a system message has only `output_config`, without content."""
    return message.get("role") == "system" and message.get("content") == [] and bool(message.get("output_config"))


def content_not_empty(request: Request, state: State) -> Problem | None:
    """Refuse a message without content, and an empty text block."""
    last = len(request.messages) - 1
    for number, message in enumerate(request.messages):
        content = message.get("content")
        if _is_directive(message):
            continue
        if not content and not (number == last and message["role"] == "assistant"):
            rule = "all messages must have non-empty content except for the optional final assistant message"
            return Problem(f"messages.{number}: {rule}")
        for block in to_blocks(content):
            if block.get("type") == "text" and (problem := _check_text(block.get("text"), "messages")):
                return problem
    for block in to_blocks(request.body.get("system")):
        if block.get("type") == "text" and (problem := _check_text(block.get("text"), "system")):
            return problem
    return None


def _check_text(text: object, where: str) -> Problem | None:
    if not isinstance(text, str) or not text:
        return Problem(f"{where}: text content blocks must be non-empty")
    return None if text.strip() else Problem(f"{where}: text content blocks must contain non-whitespace text")


def blocks_in_their_roles(request: Request, state: State) -> Problem | None:
    """Refuse calls and thinking of the user, and results of the assistant."""
    for place in request.blocks():
        kind = place.value.get("type")
        if kind == "tool_use" and place.role != "assistant":
            return Problem(f"messages.{place.message}: `tool_use` blocks can only be in `assistant` messages")
        if kind == "tool_result" and place.role != "user":
            return Problem(f"messages.{place.message}: `tool_result` blocks can only be in `user` messages")
        if kind in _THINKING and place.role != "assistant":
            return Problem(f"messages.{place.message}: `{kind}` blocks can only be in `assistant` messages")
    return None


def tool_names(request: Request, state: State) -> Problem | None:
    """Refuse a tool name, in the tools or in a call, that does not match the pattern, and a name twice."""
    rule = "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    names = [tool.get("name") for tool in request.body.get("tools") or ()]
    for number, name in enumerate(names):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return Problem(f"tools.{number}.custom.name: {rule}")
    if len(set(names)) < len(names):
        return Problem("tools: Tool names must be unique.")
    for place in _calls(request):
        if not _NAME.fullmatch(str(place.value.get("name"))):
            return Problem(f"{place.path}.tool_use.name: {rule}")
    return None


def call_ids(request: Request, state: State) -> Problem | None:
    """Refuse a call id that does not match the pattern, and an id twice in the request."""
    rule = "String should match pattern '^[a-zA-Z0-9_-]+$'"
    known: set[str] = set()
    for place in request.blocks():
        kind = place.value.get("type")
        field = {"tool_use": "id", "tool_result": "tool_use_id"}.get(str(kind))
        if field and not _ID.fullmatch(str(place.value.get(field, ""))):
            return Problem(f"{place.path}.{kind}.{field}: {rule}")
        if kind == "tool_use":
            if place.value["id"] in known:
                return Problem(f"{place.path}: `tool_use` ids must be unique")
            known.add(place.value["id"])
    return None


def call_inputs(request: Request, state: State) -> Problem | None:
    """Refuse a call with an input that is not an object."""
    for place in _calls(request):
        if not isinstance(place.value.get("input"), dict):
            return Problem(f"{place.path}.tool_use.input: Input should be a valid dictionary")
    return None


def calls_with_results(request: Request, state: State) -> Problem | None:
    """Refuse a call without a result at the start of the next turn, and a result without its call."""
    turns = list(_turns(request))
    for n, (number, _, blocks) in enumerate(turns):
        calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
        following = turns[n + 1][2] if n + 1 < len(turns) else []
        results = [block.get("tool_use_id") for block in _leading_results(following)]
        missing = [call for call in calls if call not in results]
        if missing:
            return Problem(
                f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        before = [block["id"] for block in turns[n - 1][2] if block.get("type") == "tool_use"] if n else []
        given: set[str] = set()
        for place, block in enumerate(blocks):
            if block.get("type") != "tool_result":
                continue
            call = block["tool_use_id"]
            if call not in before:
                return Problem(
                    f"messages.{number}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{call}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                    "message."
                )
            if call in given:
                return Problem(
                    f"messages.{number}.content.{place}: each tool_use must have a single result. Found multiple "
                    f"`tool_result` blocks with id: {call}"
                )
            given.add(call)
    return None


def at_most_four_markers(request: Request, state: State) -> Problem | None:
    """Refuse more than 4 cache markers."""
    body = request.body
    inner = [block for place in request.blocks() for block in _nested(place.value)]
    marked: list[Body] = [*(body.get("tools") or ()), *to_blocks(body.get("system")), *inner, body]
    found = sum(bool(value.get("cache_control")) for value in marked)
    if found <= _MARKERS:
        return None
    return Problem(f"A maximum of {_MARKERS} blocks with cache_control may be provided. Found {found}.")


def no_prefill(request: Request, state: State) -> Problem | None:
    """Refuse an assistant message at the end, for models without prefill."""
    if state.prefill or request.messages[-1]["role"] != "assistant":
        return None
    return Problem(
        "This model does not support assistant message prefill. The conversation must end with a user message."
    )


def no_trailing_blanks(request: Request, state: State) -> Problem | None:
    """Refuse a final assistant text that ends with white space, for models with prefill."""
    last = request.messages[-1]
    blocks = to_blocks(last.get("content")) if last["role"] == "assistant" else []
    text = blocks[-1].get("text", "") if blocks and blocks[-1].get("type") == "text" else ""
    if text == text.rstrip():
        return None
    return Problem("messages: final assistant content cannot end with trailing whitespace")


def thinking_budget(request: Request, state: State) -> Problem | None:
    """Refuse a budget of manual thinking below 1,024 or not below max_tokens."""
    thinking = request.body.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return None
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or budget < 1024:
        return Problem("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if not request.counts and budget >= request.body["max_tokens"]:
        return Problem("`max_tokens` must be greater than `thinking.budget_tokens`.")
    return None


def thinking_first(request: Request, state: State) -> Problem | None:
    """Refuse, with manual thinking, a tool loop that does not start with thinking, and thinking after other blocks.

    With adaptive thinking an assistant turn does not need to start with thinking.
    """
    if (request.body.get("thinking") or {}).get("type") != "enabled":
        return None
    turns = list(_turns(request))
    for number, role, blocks in turns:
        kinds = [block.get("type") for block in blocks]
        if role == "assistant" and any(kind in _THINKING for kind in kinds) and kinds[0] not in _THINKING:
            rule = "If an assistant message contains any thinking blocks, the first block must be `thinking` or"
            return Problem(f"messages.{number}.content.0: {rule} `redacted_thinking`. Found `{kinds[0]}`.")
    loop: list[tuple[int, list[Body]]] = []
    for number, role, blocks in turns:
        if role == "user" and not _leading_results(blocks):
            loop.clear()
        elif role == "assistant":
            loop.append((number, blocks))
    if not loop or turns[-1][1] != "user" or loop[0][1][0].get("type") in _THINKING:
        return None
    return Problem(
        f"messages.{loop[0][0]}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
        f"`{loop[0][1][0].get('type')}`. When `thinking` is enabled, a final `assistant` message must start with a "
        "thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include "
        "thinking blocks from previous turns. To avoid this requirement, disable `thinking`."
    )


def thinking_not_changed(request: Request, state: State) -> Problem | None:
    """Refuse a thinking block with a changed text or a signature that was not made here."""
    tampered = judge_thinking(request, state).tampered
    if tampered is None:
        return None
    newest = max(number for number, message in enumerate(request.messages) if message["role"] == "assistant")
    if tampered.path.startswith(f"messages.{newest}."):
        return Problem(
            f"{tampered.path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
            "modified. These blocks must remain as they were in the original response."
        )
    return Problem(f"{tampered.path}: Invalid `signature` in `{tampered.block['type']}` block")


def thinking_bound_to_prefix(request: Request, state: State) -> Problem | None:
    """Refuse thinking with another system prompt, other tools or other messages before it, or with a gap before it."""
    return refuse_mismatch(judge_thinking(request, state), request)


def context_window(request: Request, state: State) -> Problem | None:
    """Refuse a request that is larger than the context window."""
    tokens = count_request(request)
    return Problem(f"prompt is too long: {tokens} tokens > {state.limit} maximum") if tokens > state.limit else None


def _calls(request: Request) -> Iterator[Place]:
    return (place for place in request.blocks() if place.value.get("type") == "tool_use")


def _turns(request: Request) -> Iterator[tuple[int, str, list[Body]]]:
    """Yield the first message, the role and the blocks of each turn: messages of one role in a row are one turn."""
    numbered = list(enumerate(message for message in request.messages))
    for role, group in groupby(
        (pair for pair in numbered if pair[1]["role"] != "system"), lambda pair: pair[1]["role"]
    ):
        messages = list(group)
        yield messages[0][0], role, [block for _, message in messages for block in to_blocks(message.get("content"))]


def _leading_results(blocks: list[Body]) -> list[Body]:
    others = (n for n, block in enumerate(blocks) if block.get("type") != "tool_result")
    return blocks[: next(others, len(blocks))]


def _nested(block: Body) -> list[Body]:
    inner = block.get("content")
    return [block, *to_blocks(inner)] if isinstance(inner, list) else [block]


SOURCES: list[tuple[Callable[[Request, State], Problem | None], str]] = [
    (required_fields, f"{DOCS}/api/messages"),
    (known_fields, "anthropic-sdk-python, src/anthropic/types/message_create_params.py"),
    (at_least_one_message, f"{DOCS}/api/messages"),
    (known_roles, f"{DOCS}/api/messages"),
    (first_role, "https://github.com/lobehub/lobehub/issues/1601"),
    (system_message_placement, f"{DOCS}/build-with-claude/mid-conversation-system-messages"),
    (content_not_empty, "https://github.com/aliasrobotics/cai/issues/182"),
    (blocks_in_their_roles, f"{DOCS}/agents-and-tools/tool-use/handle-tool-calls"),
    (tool_names, f"{DOCS}/agents-and-tools/tool-use/define-tools"),
    (call_ids, "https://github.com/tailcallhq/forgecode/issues/1142"),
    (call_inputs, f"{DOCS}/api/messages"),
    (calls_with_results, f"{DOCS}/agents-and-tools/tool-use/handle-tool-calls"),
    (at_most_four_markers, f"{DOCS}/build-with-claude/prompt-caching"),
    (no_prefill, f"{DOCS}/api/errors#prefill-not-supported"),
    (no_trailing_blanks, "https://github.com/tailcallhq/forgecode/issues/1872"),
    (thinking_budget, f"{DOCS}/build-with-claude/extended-thinking"),
    (thinking_first, f"{DOCS}/build-with-claude/adaptive-thinking"),
    (thinking_not_changed, f"{ISSUES}/19539"),
    (thinking_bound_to_prefix, f"{DOCS}/build-with-claude/preserved-thinking"),
    (context_window, f"{DOCS}/build-with-claude/context-windows"),
]
