"""OpenAI chat completions, also of compatible servers.

A legacy `function_call` has no id: the call and its `function` result are paired by the name of the function.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from quire.model.messages import Message, Part, Provider, Role, ToolCall, has_original
from quire.providers import parts
from quire.providers.detection import Entry
from quire.providers.originals import keep_original, restore_original
from quire.providers.plain_json import Values, invalid_value

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def parse(entries: Iterable[Entry]) -> Iterator[Message]:
    """Read messages. Raise `InvalidValue`, which names the wrong field."""
    for place, value, meta, _ in entries:
        role = parts.role_field(value, place, _ROLES)
        message = Message(
            role=role,
            content=_content(value, role, place),
            tool_calls=tuple(_calls(value, place)) if role == "assistant" else (),
            tool_call_id=_result_call_id(value, place) if role == "tool" else None,
            name=parts.optional_text(value, "name", place),
            developer=value["role"] == "developer",
            meta=meta,
        )
        yield keep_original(message, _as_input(value), _format_message(message))


def format(messages: Sequence[Message]) -> list[Values]:  # noqa: A001 - the name all providers share
    """Return the messages in the shape of chat completions."""
    values = (
        restore_original(message) if has_original(message, "openai") else _format_message(message)
        for message in messages
    )
    return [value for value in values if value]


def is_legacy(message: Message) -> bool:
    """Return whether a message is written as a `function_call` or as the result of one."""
    if not has_original(message, "openai") or not (message.tool_calls or message.role == "tool"):
        return False
    original = restore_original(message)
    return original.get("function_call") is not None or original.get("role") == "function"


def _as_input(value: Values) -> Values:
    """Return the message in its input form: audio is reduced to its id."""
    audio = value.get("audio")
    if not isinstance(audio, dict) or "data" not in audio:
        return value
    return {**value, "audio": {"id": audio.get("id")}}


def _content(value: Values, role: Role, place: str) -> str | list[Part] | None:
    content = value.get("content")
    if content is None and role in ("assistant", "tool"):
        read: str | list[Part] | None = None
    else:
        read = parts.read_content(content, f"{place}.content", READERS, role)
    refusal, audio = value.get("refusal"), value.get("audio")
    if role != "assistant" or not (refusal or audio):
        return read
    content = [{"type": "text", "text": read}] if isinstance(read, str) and read else list(read or [])
    if isinstance(refusal, str) and refusal:
        content.append({"type": "text", "text": refusal, "refusal": True})
    if isinstance(audio, dict):
        content.append({"type": "audio", **parts.pick_texts(audio, id="id", transcript="transcript")})
    return content or None


def _result_call_id(value: Values, place: str) -> str:
    if value["role"] == "function":
        return _legacy_id(parts.name_field(value, place))
    return parts.text_field(value, "tool_call_id", place)


def _legacy_id(name: str) -> str:
    return f"function_{name}"


def _calls(value: Values, place: str) -> Iterable[ToolCall]:
    calls = value.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise invalid_value(f"{place}.tool_calls", calls, "tool calls are a list")
    for n, call in enumerate(calls or []):
        yield _call(call, f"{place}.tool_calls[{n}]")
    legacy = value.get("function_call")
    if legacy is not None:
        if not isinstance(legacy, dict):
            raise invalid_value(f"{place}.function_call", legacy, "a call is a dict with name and arguments")
        name = parts.name_field(legacy, f"{place}.function_call")
        yield ToolCall(_legacy_id(name), name, parts.arguments_field(legacy, "arguments", f"{place}.function_call"))


def _call(call: object, place: str) -> ToolCall:
    for kind, arguments in (("function", "arguments"), ("custom", "input")):
        if isinstance(call, dict) and isinstance(called := call.get(kind), dict):
            return ToolCall(
                parts.optional_text(call, "id", place) or "",
                parts.name_field(called, f"{place}.{kind}"),
                parts.arguments_field(called, arguments, f"{place}.{kind}"),
                kind == "custom",
            )
    raise invalid_value(place, call, 'a call is {"id": …, "type": "function", "function": {"name": …, "arguments": …}}')


def _image(block: Values) -> Part:
    image = block.get("image_url")  # some servers accept the URL itself
    found = parts.pick_texts({"url": image} if isinstance(image, str) else image, url="url", detail="detail")
    if "url" not in found:
        raise parts.MissingField('{"image_url": {"url": "…"}}')
    return {"type": "image", **found}


def _audio(block: Values) -> Part:
    found = parts.pick_texts(block.get("input_audio"), data="data", format="format")
    if len(found) < 2:
        raise parts.MissingField('{"input_audio": {"data": "…", "format": "…"}}')
    return {"type": "audio", **found}


def _file(block: Values) -> Part:
    return parts.read_file(block.get("file"), '{"file": {…}} with "file_data" or "file_id"')


READERS: Mapping[str, parts.Reader] = {
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
    "refusal": parts.read_refusal,
}


def _format_message(message: Message) -> Values | None:
    """Write the message from the common fields; None if nothing remains."""
    content = _write_content(message)
    if content is None and not message.tool_calls:
        return None
    value: Values = {"role": "developer" if message.developer else message.role}
    if message.role == "tool":
        value["tool_call_id"] = message.tool_call_id or ""
    if message.name:
        value["name"] = message.name
    value["content"] = content
    if message.tool_calls:
        value["tool_calls"] = [_write_call(call) for call in message.tool_calls]
    return value


def _write_content(message: Message) -> str | list[Values] | None:
    if isinstance(message.content, str):
        return message.content
    written = (_write_block(part, message.role, message.origin) for part in message.content or ())
    blocks = [block for block in written if block]
    if not blocks:
        thought_only = message.role == "assistant" and bool(message.content)
        return None if message.tool_calls or thought_only else ""
    if len(blocks) == 1 and blocks[0]["type"] == "text" and message.origin != "openai":
        return str(blocks[0]["text"])  # every server accepts this form
    return blocks


def _write_block(part: Part, role: Role, origin: Provider) -> Values | None:
    if part.get("refusal") and role == "assistant":
        return {"type": "refusal", "refusal": part["text"]}
    return parts.write_part(part, origin, "openai", _WRITERS if role == "user" else {})


def _write_image(part: Part, _origin: Provider) -> Values | None:
    url = part.get("url") or parts.data_url(part)
    image = {"url": url} | parts.pick_texts(part, detail="detail")
    return {"type": "image_url", "image_url": image} if url else None


def _write_audio(part: Part, _origin: Provider) -> Values | None:
    sound = parts.pick_texts(part, data="data", format="format")
    return {"type": "input_audio", "input_audio": sound} if "data" in sound else None


def _write_file(part: Part, origin: Provider) -> Values | None:
    file = parts.pick_texts(part, filename="name")
    if origin != "anthropic":  # file ids are valid within one account
        file |= parts.pick_texts(part, file_id="file_id")
    if data := (part.get("data") if origin != "anthropic" else None) or parts.data_url(part):
        file["file_data"] = data
        if origin == "anthropic":
            file.setdefault("filename", "document.pdf")
    return {"type": "file", "file": file} if file.keys() & {"file_id", "file_data"} else None


_WRITERS = {"image": _write_image, "audio": _write_audio, "file": _write_file}


def _write_call(call: ToolCall) -> Values:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
