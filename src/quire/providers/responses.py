"""OpenAI Responses: a history is a list of items.

The items of one model turn (reasoning, a message, calls) are one message here, so that parallel calls and their results
stay together. An item that needs no answer is stored unchanged as a part of type `other`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from quire.model.messages import Message, Part, Provider, Role, ToolCall, has_original
from quire.providers import parts
from quire.providers.detection import CALLS, OUTPUTS, Entry
from quire.providers.originals import keep_original, restore_original
from quire.providers.plain_json import Values, dumps, invalid_value

_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def parse(entries: Iterable[Entry]) -> Iterator[Message]:
    """Read the messages that items form. Raise `InvalidValue`, which names the wrong field."""
    return map(_message, group_items(entries))


def format(messages: Sequence[Message]) -> list[Values]:  # noqa: A001 - the name all providers share
    """Return the messages as input items."""
    kinds: dict[str | None, str] = {}
    items: list[Values] = []
    for message in messages:
        if has_original(message, "responses"):
            written = restore_original(message)
        else:
            written = list(_format_items(message, kinds))
        kinds |= {item.get("call_id"): item["type"] for item in written if _is_call(item)}
        items.extend(written)
    return items


def result_key(value: Mapping[str, Any]) -> str:
    """Return the key of the call's id in an output: the API has `id` for a local shell, the Agents SDK `call_id`."""
    return "id" if value["type"] == "local_shell_call_output" and "call_id" not in value else "call_id"


def group_items(items: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Group the items that form one message."""
    run: list[Entry] = []
    spoke = called = False
    for item in items:
        apart = not is_by_assistant(item.value) or (spoke and not called and _speaks(item.value))
        if run and (apart or not is_by_assistant(run[-1].value) or item.meta.get("id") != run[-1].meta.get("id")):
            yield run
            run, spoke, called = [], False, False
        run.append(item)
        spoke, called = spoke or _is_message(item.value), called or _is_call(item.value)
    if run:
        yield run


def _kind_of(value: Values) -> str:
    """Return the type of the item; "" if it has none."""
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""


def _is_message(value: Values) -> bool:
    return "role" in value and value.get("type") in (None, "message")


def _is_call(value: Values) -> bool:
    """Return whether the item is a call that needs an output."""
    return _kind_of(value) in CALLS and not _is_hosted(value)


def is_call_output(value: Values) -> bool:
    """Return whether the item is the output of a call."""
    return _kind_of(value) in OUTPUTS and not _is_hosted(value)


def _is_hosted(value: Values) -> bool:
    """Return whether the item is of a tool search that OpenAI ran: its call and output have no id."""
    return _kind_of(value).startswith("tool_search_") and value.get("call_id") is None


def is_by_assistant(value: Values) -> bool:
    """Return whether the model wrote the item. Codex adds `agent_message` for what another agent says to the model."""
    if _is_message(value):
        return bool(value["role"] == "assistant")
    return not is_call_output(value) and _kind_of(value) != "agent_message"


def _speaks(value: Values) -> bool:
    return _is_message(value) or _kind_of(value) == "reasoning"


def _message(run: Sequence[Entry]) -> Message:
    """Read the message that a group of items forms."""
    first = run[0]
    if len(run) == 1 and (plain := _read_plain(first)) is not None:
        return plain
    if is_call_output(first.value):
        message = _output(first)
    elif not is_by_assistant(first.value):
        message = _input(first)
    else:
        message = _turn(run)
    is_custom = first.value.get("type") == "custom_tool_call_output"
    kinds = {message.tool_call_id: "custom_tool_call"} if is_custom else {}
    message = keep_original(message, [item.value for item in run], list(_format_items(message, kinds)))
    meta = {key: value for item in run for key, value in item.meta.items()}
    return structs.replace(message, meta=meta) if meta else message


def _read_plain(item: Entry) -> Message | None:
    """Return the message of a usual item, which has only a role and a text; None for any other item."""
    value = item.value
    if len(value) != 2 or item.meta:
        return None
    spelled, text = value.get("role"), value.get("content")
    role = _ROLES.get(spelled) if type(spelled) is str and type(text) is str else None
    if role is None:
        return None
    return Message(role=role, content=text, origin="responses", developer=spelled == "developer")


def _input(item: Entry) -> Message:
    place, value = item[:2]
    role: Role = "user" if _kind_of(value) == "agent_message" else parts.role_field(value, place, _ROLES)
    content = parts.read_content(value.get("content"), f"{place}.content", READERS, role)
    return Message(role=role, content=content, origin="responses", developer=value.get("role") == "developer")


def _output(item: Entry) -> Message:
    place, value = item[:2]
    key = result_key(value)
    return Message(
        role="tool",
        content=_result(value.get("tools") if value["type"] == "tool_search_output" else value.get("output"), place),
        tool_call_id=parts.optional_text(value, key, place) or "",
        origin="responses",
    )


def _result(output: object, place: str) -> str | list[Part]:
    """Read the output of a tool: text and parts, or the records of a hosted tool as JSON text."""
    blocks = [output] if isinstance(output, dict) else output
    if isinstance(blocks, list) and all(isinstance(block, dict) and _kind_of(block) in _RESULTS for block in blocks):
        return parts.read_content(blocks, f"{place}.output", READERS, "tool")
    return output if isinstance(output, str) else dumps(output) if output else ""


def _turn(run: Sequence[Entry]) -> Message:
    content: list[Part] = []
    called: list[ToolCall] = []
    said: str | list[Part] = []
    for item in run:
        if _is_message(item.value):
            said = parts.read_content(item.value.get("content"), f"{item.place}.content", READERS, "assistant")
            content.extend([{"type": "text", "text": said}] if isinstance(said, str) else said)
        elif _is_call(item.value):
            called.append(_call(item))
        else:
            content.append(_keep_item(item))
    only_text = said if isinstance(said, str) and len(content) == 1 else None
    return Message(
        role="assistant",
        content=content or None if only_text is None else only_text,
        tool_calls=tuple(called),
        origin="responses",
    )


def _call(item: Entry) -> ToolCall:
    place, value = item[:2]
    match kind := value["type"]:
        case "function_call":
            name, arguments = parts.name_field(value, place), parts.arguments_field(value, "arguments", place)
        case "custom_tool_call":
            name, arguments = parts.name_field(value, place), parts.arguments_field(value, "input", place)
        case _:
            name = kind.removesuffix("_call")
            arguments = dumps({key: value[key] for key in value if key not in ("type", "id", "call_id", "status")})
    return ToolCall(parts.optional_text(value, "call_id", place) or "", name, arguments, kind == "custom_tool_call")


def _keep_item(item: Entry) -> Part:
    place, value = item[:2]
    kind = "item_reference" if value.get("type") is None else _kind_of(value)
    if not kind:
        raise invalid_value(f"{place}.type", value["type"], "the type of an item is text")
    if kind != "reasoning":
        return {"type": "other", "kind": kind, "item": dumps(value)}
    summary = value.get("summary")
    entries = summary if isinstance(summary, list) else []
    texts = [parts.pick_texts(entry, text="text").get("text", "") for entry in entries]
    return {"type": "thinking", "text": "\n".join(texts), "item": dumps(value)}


def _screenshot(block: Values) -> Part | None:
    found = parts.pick_texts(block, url="image_url", file_id="file_id", detail="detail")
    return {"type": "image", **found} if found.keys() & {"url", "file_id"} else None


def _image(block: Values) -> Part:
    part = _screenshot(block)
    if part is None:
        raise parts.MissingField('"image_url" or "file_id"')
    return part


def _file(block: Values) -> Part:
    return parts.read_file(block, '"file_data", "file_url" or "file_id"', url="file_url")


READERS: Mapping[str, parts.Reader] = {
    "input_image": _image,
    "computer_screenshot": _screenshot,
    "input_file": _file,
    "refusal": parts.read_refusal,
}
_RESULTS = frozenset({"input_text", "output_text", "input_image", "input_file", "computer_screenshot"})


def _format_items(message: Message, kinds: Mapping[str | None, str]) -> Iterator[Values]:
    """Write the items of the message from the common fields. `kinds` are the types of the calls before it."""
    if message.role == "tool":
        yield _write_output(message, kinds.get(message.tool_call_id, ""))
    elif message.role == "assistant":
        yield from _write_turn(message)
        yield from map(_write_call, message.tool_calls)
    else:
        yield {"role": "developer" if message.developer else message.role, "content": _write_content(message) or ""}


def _write_output(message: Message, kind: str) -> Values:
    """Write a result as the output that its kind of call needs. Codex answers a local shell like a function."""
    answer: Values = {"type": f"{kind}_output", "call_id": message.tool_call_id or ""}
    match kind:
        case "shell_call":
            outcome = {"type": "exit", "exit_code": 0}
            return {**answer, "output": [{"stdout": message.text, "stderr": "", "outcome": outcome}]}
        case "apply_patch_call":
            return {**answer, "status": "completed", "output": message.text}
        case "tool_search_call":
            return {**answer, "type": "tool_search_output", "tools": []}
        case "custom_tool_call":
            return {**answer, "output": _write_content(message) or ""}
    return {**answer, "type": "function_call_output", "output": _write_content(message) or ""}


def _write_turn(message: Message) -> Iterator[Values]:
    """Write the assistant's text as one string. Output text parts would need ids that only OpenAI can assign."""
    if isinstance(message.content, str):
        if message.content.strip() or not message.tool_calls:
            yield {"role": "assistant", "content": message.content}
        return
    words: list[str] = []
    for part in message.content or ():
        if message.origin == "responses" and "item" in part:
            yield from _write_words(words)
            yield json.loads(part["item"])
        elif text := parts.part_to_text(part):
            words.append(text)
    yield from _write_words(words)


def _write_words(words: list[str]) -> Iterator[Values]:
    if words:
        yield {"role": "assistant", "content": "\n".join(words)}
        words.clear()


def _write_content(message: Message) -> str | list[Values]:
    content = parts.prefix_name(message)
    if isinstance(content, str):
        return content
    writers = _WRITERS if message.role != "system" else {}
    blocks = (parts.write_part(part, message.origin, "responses", writers, "input_text") for part in content or ())
    return [block for block in blocks if block]


def _write_image(part: Part, origin: Provider) -> Values | None:
    source = parts.pick_texts(part, file_id="file_id") if origin == "responses" else {}
    if url := part.get("url") or parts.data_url(part):
        source["image_url"] = url
    return {"type": "input_image", "detail": part.get("detail", "auto"), **source} if source else None


def _write_file(part: Part, origin: Provider) -> Values | None:
    source = parts.pick_texts(part, file_id="file_id") if origin != "anthropic" else {}
    if data := (part.get("data") if origin != "anthropic" else None) or parts.data_url(part):
        source["file_data"] = data
    elif url := parts.web_url(part):
        source["file_url"] = url
    if not source:
        return None
    name = part.get("name") or ("document.pdf" if "file_data" in source and origin == "anthropic" else None)
    return {"type": "input_file", **source, **({"filename": name} if name else {})}


_WRITERS = {"image": _write_image, "file": _write_file}


def _write_call(call: ToolCall) -> Values:
    if call.custom:
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": call.arguments}
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
