"""The rules of OpenAI chat completions. Each function returns the error of the API, or None."""

import re
from collections.abc import Callable, Iterator

from tests.strict_provider import fields
from tests.strict_provider.requests import Body, Problem, Request, State
from tests.strict_provider.tokens import count_request

DOCS = "https://developers.openai.com/api/docs"
REFERENCE = f"{DOCS}/api-reference/chat/create"
TOOL_NAME = re.compile("[a-zA-Z0-9_-]+")
_SPEAKER = re.compile(r"[^\s<|\\/>]+")
_LONGEST_NAME = 64
_LONGEST_ID = 40


def required_fields(request: Request, state: State) -> Problem | None:
    """Refuse a request without model or messages."""
    missing = next((name for name in ("model", "messages") if name not in request.body), None)
    if missing is None:
        return None
    return Problem(f"Missing required parameter: '{missing}'.", missing, "missing_required_parameter")


def known_fields(request: Request, state: State) -> Problem | None:
    """Refuse fields that the API does not know."""
    for name in request.body.keys() - fields.CHAT_REQUEST:
        return Problem(f"Unrecognized request argument supplied: {name}")
    for number, message in enumerate(request.messages):
        for name in message.keys() - fields.CHAT_MESSAGES.get(message.get("role", ""), message.keys()):
            path = f"messages[{number}].{name}"
            return Problem(f"Unknown parameter: '{path}'.", path, "unknown_parameter")
    return None


def at_least_one_message(request: Request, state: State) -> Problem | None:
    """Refuse an empty list of messages."""
    if request.messages:
        return None
    text = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
    return Problem(text, "messages", "empty_array")


def known_roles(request: Request, state: State) -> Problem | None:
    """Refuse unknown roles."""
    for number, message in enumerate(request.messages):
        role = message.get("role")
        if role not in fields.CHAT_MESSAGES:
            listed = ", ".join(f"'{name}'" for name in fields.CHAT_MESSAGES)
            path = f"messages[{number}].role"
            return Problem(f"Invalid value: '{role}'. Supported values are: {listed}.", path, "invalid_value")
    return None


def content_not_null(request: Request, state: State) -> Problem | None:
    """Refuse an empty list as content, and a message without content, unless the assistant calls or refuses."""
    for number, message in enumerate(request.messages):
        content = message.get("content")
        says_more = any(message.get(name) for name in ("tool_calls", "function_call", "refusal", "audio"))
        path = f"messages.[{number}].content"
        if content is None and not (message["role"] == "assistant" and says_more):
            return Problem("Invalid value for 'content': expected a string, got null.", path)
        if content == []:
            text = "empty array. Expected an array with minimum length 1, but got an empty array instead."
            return Problem(f"Invalid 'messages[{number}].content': {text}", path, "empty_array")
    return None


def tool_names(request: Request, state: State) -> Problem | None:
    """Refuse a tool name that does not match the pattern or is too long."""
    named = [
        (f"tools[{number}].function.name", (tool.get("function") or tool.get("custom") or {}).get("name"))
        for number, tool in enumerate(request.body.get("tools") or ())
    ]
    named += [
        (f"{path}.{kind}.name", call[kind].get("name"))
        for path, call in _calls(request)
        for kind in ("function", "custom")
        if isinstance(call.get(kind), dict)
    ]
    for path, name in named:
        if problem := check_name(path, name, TOOL_NAME, "^[a-zA-Z0-9_-]+$", _LONGEST_NAME):
            return problem
    return None


def speaker_names(request: Request, state: State) -> Problem | None:
    """Refuse a message's `name` that does not match the pattern or is too long."""
    for number, message in enumerate(request.messages):
        if message.get("name") is None:
            continue
        path = f"messages[{number}].name"
        if problem := check_name(path, message["name"], _SPEAKER, r"^[^\s<|\\/>]+$", _LONGEST_NAME):
            return problem
    return None


def call_ids(request: Request, state: State) -> Problem | None:
    """Refuse a call id that is too long."""
    ids = [(f"{path}.id", call.get("id")) for path, call in _calls(request)]
    ids += [
        (f"messages[{number}].tool_call_id", message.get("tool_call_id"))
        for number, message in enumerate(request.messages)
        if message["role"] == "tool"
    ]
    for path, call_id in ids:
        if not isinstance(call_id, str) or not call_id:
            return Problem(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")
        if problem := check_length(path, call_id, _LONGEST_ID):
            return problem
    return None


def calls_with_results(request: Request, state: State) -> Problem | None:
    """Refuse a call without a tool message directly after it, and a tool message without its call."""
    waiting: list[str] = []
    for number, message in enumerate([*request.messages, {"role": "end"}]):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                return Problem(f"Invalid parameter: {text}", f"messages.[{number}].role")
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            text = "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
            missing = f"The following tool_call_ids did not have response messages: {', '.join(waiting)}"
            return Problem(f"{text} 'tool_call_id'. {missing}", f"messages.[{number}].role")
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(waiting)) < len(waiting):
            text = f"Duplicate value for 'tool_call_id' of '{next(x for x in waiting if waiting.count(x) > 1)}'"
            return Problem(text, f"messages.[{number}].tool_calls")
    return None


def context_window(request: Request, state: State) -> Problem | None:
    """Refuse a request that is larger than the context window."""
    tokens = count_request(request)
    if tokens <= state.limit:
        return None
    text = f"This model's maximum context length is {state.limit} tokens. However, your messages resulted in {tokens}"
    return Problem(f"{text} tokens. Please reduce the length of the messages.", "messages", "context_length_exceeded")


def check_name(path: str, name: object, pattern: re.Pattern[str], shown: str, longest: int) -> Problem | None:
    """Return the error for a name that does not match the pattern or is too long."""
    if not isinstance(name, str) or not pattern.fullmatch(name):
        text = f"string does not match pattern. Expected a string that matches the pattern '{shown}'."
        return Problem(f"Invalid '{path}': {text}", path, "invalid_value")
    return check_length(path, name, longest)


def check_length(path: str, text: str, longest: int) -> Problem | None:
    """Return the error for a string that is too long."""
    if len(text) <= longest:
        return None
    size = f"Expected a string with maximum length {longest}, but got a string with length {len(text)} instead."
    return Problem(f"Invalid '{path}': string too long. {size}", path, "string_above_max_length")


def _calls(request: Request) -> Iterator[tuple[str, Body]]:
    for number, message in enumerate(request.messages):
        for place, call in enumerate(message.get("tool_calls") or ()):
            yield f"messages[{number}].tool_calls[{place}]", call


SOURCES: list[tuple[Callable[[Request, State], Problem | None], str]] = [
    (required_fields, REFERENCE),
    (known_fields, "openai-python, src/openai/types/chat/completion_create_params.py"),
    (at_least_one_message, REFERENCE),
    (known_roles, REFERENCE),
    (content_not_null, REFERENCE),
    (tool_names, "https://github.com/mcp-use/mcp-use/issues/90"),
    (speaker_names, "observed: Invalid 'messages[0].name': string does not match pattern"),
    (call_ids, "https://github.com/microsoft/autogen/issues/6377"),
    (calls_with_results, "https://github.com/aliasrobotics/cai/issues/111"),
    (context_window, f"{DOCS}/guides/error-codes"),
]
