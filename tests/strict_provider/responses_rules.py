"""The rules of OpenAI Responses. Each function returns the error of the API, or None."""

from collections.abc import Callable, Iterator

from tests.strict_provider import fields
from tests.strict_provider.chat_rules import TOOL_NAME, check_length, check_name
from tests.strict_provider.requests import Body, Problem, Request, State, to_blocks
from tests.strict_provider.thinking import judge_thinking
from tests.strict_provider.tokens import count_request

DOCS = "https://developers.openai.com/api/docs"
REFERENCE = f"{DOCS}/api-reference/responses/create"
_LONGEST_NAME = 64
_LONGEST_ID = 64
_PREFIXES = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs"}
_ROLES = ("assistant", "system", "developer", "user")


def kind_of(item: Body) -> str:
    """Return the type of an item; a message does not need to name its type."""
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def required_fields(request: Request, state: State) -> Problem | None:
    """Refuse a request without model or input."""
    if "model" not in request.body:
        return Problem("Missing required parameter: 'model'.", "model", "missing_required_parameter")
    if request.body.get("input") or request.body.get("previous_response_id") or request.body.get("conversation"):
        return None
    text = "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided."
    return Problem(text, "input", "missing_required_parameter")


def known_fields(request: Request, state: State) -> Problem | None:
    """Refuse fields that the API does not know: of the request and of the common items."""
    for name in request.body.keys() - fields.RESPONSES_REQUEST - fields.RESPONSES_UNDOCUMENTED:
        return _unknown(name)
    for number, item in enumerate(request.messages):
        known = fields.RESPONSES_ITEMS.get(kind_of(item), item.keys())
        for name in item.keys() - known - fields.RESPONSES_UNDOCUMENTED:
            return _unknown(f"input[{number}].{name}")
    return None


def _unknown(path: str) -> Problem:
    return Problem(f"Unknown parameter: '{path}'.", path, "unknown_parameter")


def known_roles(request: Request, state: State) -> Problem | None:
    """Refuse unknown roles."""
    for number, item in enumerate(request.messages):
        role = item.get("role")
        if kind_of(item) == "message" and role not in _ROLES:
            listed = "'assistant', 'system', 'developer', and 'user'"
            text = f"Invalid value: '{role}'. Supported values are: {listed}."
            return Problem(text, f"input[{number}].role", "invalid_value")
    return None


def content_types(request: Request, state: State) -> Problem | None:
    """Refuse a message without content, input content of the assistant, and output content of others."""
    for number, item in enumerate(request.messages):
        if kind_of(item) != "message":
            continue
        path = f"input[{number}].content"
        if item.get("content") is None:
            return Problem(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")
        for place, block in enumerate(to_blocks(item["content"]) if isinstance(item["content"], list) else ()):
            kind = str(block.get("type"))
            by_assistant = item["role"] == "assistant"
            if by_assistant != (kind in ("output_text", "refusal")):
                listed = (
                    "'output_text' and 'refusal'" if by_assistant else "'input_text', 'input_image', and 'input_file'"
                )
                text = f"Invalid value: '{kind}'. Supported values are: {listed}."
                return Problem(text, f"{path}[{place}]", "invalid_value")
    return None


def tool_names(request: Request, state: State) -> Problem | None:
    """Refuse a tool name that does not match the pattern or is too long."""
    named = [
        (f"tools[{number}].name", tool.get("name"))
        for number, tool in enumerate(request.body.get("tools") or ())
        if tool.get("type") in ("function", "custom")
    ]
    named += [(f"input[{number}].name", item.get("name")) for number, item in _calls(request)]
    for path, name in named:
        if problem := check_name(path, name, TOOL_NAME, "^[a-zA-Z0-9_-]+$", _LONGEST_NAME):
            return problem
    return None


def call_ids(request: Request, state: State) -> Problem | None:
    """Refuse a call id that is missing or too long."""
    for number, item in enumerate(request.messages):
        if not kind_of(item).startswith(("function_call", "custom_tool_call")):
            continue
        path = f"input[{number}].call_id"
        if not isinstance(item.get("call_id"), str) or not item["call_id"]:
            return Problem(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")
        if problem := check_length(path, item["call_id"], _LONGEST_ID):
            return problem
    return None


def item_ids(request: Request, state: State) -> Problem | None:
    """Refuse an item id that is too long, has the wrong prefix, or occurs twice."""
    known: set[str] = set()
    for number, item in enumerate(request.messages):
        path, item_id = f"input[{number}].id", item.get("id")
        if item_id is None:
            continue
        prefix = _PREFIXES.get(kind_of(item), "")
        if not isinstance(item_id, str) or not item_id.startswith(prefix):
            text = f"Invalid '{path}': '{item_id}'. Expected an ID that begins with '{prefix}'."
            return Problem(text, path, "invalid_value")
        if problem := check_length(path, item_id, _LONGEST_ID):
            return problem
        if item_id in known:
            text = f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again."
            return Problem(text, "input")
        known.add(item_id)
    return None


def calls_with_results(request: Request, state: State) -> Problem | None:
    """Refuse a call without an output after it, and an output without a call before it."""
    waiting: list[str] = []
    answered: set[str] = set()
    for item in request.messages:
        kind = kind_of(item)
        if kind in ("function_call", "custom_tool_call"):
            waiting.append(item["call_id"])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            call_id = item["call_id"]
            if call_id not in waiting:
                return Problem(f"No tool call found for function call output with call_id {call_id}.", "input")
            waiting.remove(call_id)
            answered.add(call_id)
    return Problem(f"No tool output found for function call {waiting[0]}.", "input") if waiting else None


def reasoning_with_its_item(request: Request, state: State) -> Problem | None:
    """Refuse a reasoning item that is not followed by an output of the model."""
    items = request.messages
    for number, item in enumerate(items):
        if kind_of(item) != "reasoning":
            continue
        following = items[number + 1] if number + 1 < len(items) else {}
        kind = kind_of(following) if following else "reasoning"
        is_theirs = kind == "message" and following.get("role") != "assistant"
        made = state.reasoning_of.get(str(following.get("id")), item.get("id"))
        if is_theirs or kind == "reasoning" or kind.endswith("_output") or made != item.get("id"):
            text = f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
            return Problem(text, "input")
    return None


def item_with_its_reasoning(request: Request, state: State) -> Problem | None:
    """Refuse an item by its id without the reasoning item that was before it."""
    known = {item.get("id") for item in request.messages if kind_of(item) == "reasoning"}
    for item in request.messages:
        needed = state.reasoning_of.get(str(item.get("id")))
        if needed and needed not in known:
            text = f"Item '{item['id']}' of type '{kind_of(item)}' was provided without its required 'reasoning' item"
            return Problem(f"{text}: '{needed}'.", "input")
    return None


def reasoning_is_stored_or_encrypted(request: Request, state: State) -> Problem | None:
    """Refuse a reasoning item without encrypted content that the provider did not store."""
    for item in request.messages:
        if kind_of(item) == "reasoning" and not item.get("encrypted_content") and item.get("id") not in state.stored:
            text = f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."
            more = "Try again with `store` set to true, or remove this item from your input."
            return Problem(f"{text} {more}", "input", status=404)
    return None


def reasoning_not_changed(request: Request, state: State) -> Problem | None:
    """Refuse encrypted content that was not made here, and with `bind_reasoning` content with another prefix."""
    encrypted = [item for item in request.messages if item.get("encrypted_content")]
    sealed = Request(request.api, {**request.body, "input": _only_encrypted(request)})
    judgement = judge_thinking(sealed, state) if encrypted else None
    if judgement is None:
        return None
    bound = judgement.mismatch if state.bind_reasoning else None
    found = judgement.tampered or (bound and bound[0])
    if found is None:
        return None
    content = str(found.block["encrypted_content"])
    reason = f" Reason: {bound[1]}" if bound else ""
    text = f"The encrypted content {content[:4]}...{content[-4:]} could not be verified.{reason}"
    return Problem(text, None, "invalid_encrypted_content")


def _only_encrypted(request: Request) -> list[Body]:
    return [item for item in request.messages if kind_of(item) != "reasoning" or item.get("encrypted_content")]


def context_window(request: Request, state: State) -> Problem | None:
    """Refuse a request that is larger than the context window."""
    if count_request(request) <= state.limit:
        return None
    text = "Your input exceeds the context window of this model. Please adjust your input and try again."
    return Problem(text, "input", "context_length_exceeded")


def _calls(request: Request) -> Iterator[tuple[int, Body]]:
    for number, item in enumerate(request.messages):
        if kind_of(item) in ("function_call", "custom_tool_call"):
            yield number, item


SOURCES: list[tuple[Callable[[Request, State], Problem | None], str]] = [
    (required_fields, REFERENCE),
    (known_fields, "openai-python, src/openai/types/responses/response_create_params.py"),
    (known_roles, REFERENCE),
    (content_types, REFERENCE),
    (tool_names, REFERENCE),
    (call_ids, REFERENCE),
    (item_ids, "observed: Invalid 'input[3].id': Expected an ID that begins with 'fc'"),
    (calls_with_results, "https://github.com/bytedance/trae-agent/issues/245"),
    (reasoning_with_its_item, "https://github.com/openai/openai-node/issues/1567"),
    (item_with_its_reasoning, "https://github.com/continuedev/continue/issues/11994"),
    (reasoning_is_stored_or_encrypted, f"{DOCS}/guides/reasoning#encrypted-reasoning-items"),
    (reasoning_not_changed, "https://github.com/openai/codex/issues/8145"),
    (context_window, f"{DOCS}/guides/error-codes"),
]
