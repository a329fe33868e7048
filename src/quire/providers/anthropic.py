"""Anthropic messages: content is a list of blocks, tool results are in user messages, the system prompt is separate.

A user message with tool results and other blocks is split: each result is a message here, and the blocks after it are a
message that is `joined` to it, so that they are written as one message again. Anthropic refuses empty texts, so none is
written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from quire.model.messages import Message, Part, Provider, Role, ToolCall, has_original
from quire.providers import parts
from quire.providers.detection import Entry
from quire.providers.originals import keep_original, restore_original
from quire.providers.plain_json import Values

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_FILES = frozenset({"application/pdf"})


_SOURCES = {"base64": "data", "url": "url", "file": "file_id", "text": "data", "content": "content"}
"""The types of sources, each with the field that it needs."""


def _read_source(block: Values) -> Values:
    """Return the source of an image or a document. It may be of a new type. Raise `MissingField`."""
    source = block.get("source")
    if isinstance(source, Mapping) and isinstance(kind := source.get("type"), str):
        needed = _SOURCES.get(kind)
        if needed is None or source.get(needed) is not None:
            return dict(source)
    raise parts.MissingField('{"source": {"type": "…", …}} with "data", "url", "file_id" or "content"')


def _image(block: Values) -> Part | None:
    found = parts.pick_texts(_read_source(block), url="url", data="data", media_type="media_type", file_id="file_id")
    return {"type": "image", **found} if found.keys() & {"url", "data", "file_id"} else None


def _document(block: Values) -> Part | None:
    source = _read_source(block)
    name = parts.pick_texts(block, name="title")
    if source["type"] in ("text", "content"):
        text = _all_text(source[_SOURCES[source["type"]]])
        return {"type": "file", "text": text, **name} if text else None
    found = _image(block)
    return {**found, "type": "file", **name} if found else None


def _search_result(block: Values) -> Part | None:
    if block.get("content") is None:
        raise parts.MissingField('{"content": […]} with its texts')
    text = _all_text(block["content"])
    return {"type": "file", "text": text, **parts.pick_texts(block, name="title")} if text else None


def _all_text(content: object) -> str:
    """Return the text of a string or of text blocks; "" if there are other blocks."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [parts.pick_texts(block, text="text").get("text") for block in content]
    return "" if None in texts else "\n".join(text for text in texts if text)


def _thinking(block: Values) -> Part | None:
    found = parts.pick_texts(block, text="thinking", signature="signature")
    return {"type": "thinking", **found} if len(found) == 2 else None


def _read_redacted(block: Values) -> Part | None:
    found = parts.pick_texts(block, data="data")
    return {"type": "thinking", **found} if found else None


READERS: Mapping[str, parts.Reader] = {
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "thinking": _thinking,
    "redacted_thinking": _read_redacted,
}


def _write_block(part: Part, role: Role, origin: Provider) -> Values | None:
    writers = _WRITERS if role in ("user", "tool") else {"thinking": _write_thinking}
    block = parts.write_part(part, origin, "anthropic", writers)
    return None if block and block["type"] == "text" and not block["text"].strip() else block


def _write_thinking(part: Part, origin: Provider) -> Values | None:
    if origin != "anthropic":
        return None
    if "signature" in part:
        return {"type": "thinking", "thinking": part["text"], "signature": part["signature"]}
    return {"type": "redacted_thinking", "data": part["data"]} if "data" in part else None


def _write_image(part: Part, origin: Provider) -> Values | None:
    source = _source(part, origin, _IMAGES)
    return {"type": "image", "source": source} if source else None


def _write_file(part: Part, origin: Provider) -> Values | None:
    if "text" in part:
        source: Values | None = {"type": "text", "media_type": "text/plain", "data": part["text"]}
    elif origin != "anthropic" and parts.web_url(part) and not parts.is_pdf(part["url"]):
        source = None  # only PDFs are fetched
    else:
        source = _source(part, origin, _FILES)
    return {"type": "document", "source": source, **parts.pick_texts(part, title="name")} if source else None


_WRITERS = {"image": _write_image, "file": _write_file, "thinking": _write_thinking}


def _source(part: Part, origin: Provider, accepted: frozenset[str]) -> Values | None:
    if (data := parts.get_data(part)) and data[0] in accepted:
        return {"type": "base64", "media_type": data[0], "data": data[1]}
    if url := parts.web_url(part):
        return {"type": "url", "url": url}
    if origin == "anthropic" and "file_id" in part:
        return {"type": "file", "file_id": part["file_id"]}
    return None


_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def parse(entries: Iterable[Entry]) -> Iterator[Message]:
    """Read Anthropic messages, each as one or more messages. Raise `InvalidValue`, which names the wrong field."""
    for entry in entries:
        messages = _parse(entry.value, entry.place)
        yield from (structs.replace(message, meta=entry.meta) for message in messages) if entry.meta else messages


def _parse(value: Values, place: str) -> Iterable[Message]:
    role = parts.role_field(value, place, _ROLES)
    content = value.get("content")
    if role == "assistant" and isinstance(content, list):
        turn = _turn(content, f"{place}.content")
        return [_exact(turn, {**value, "content": [_complete_call(block) for block in content]})]
    if role == "user" and isinstance(content, list) and any(map(_is_result, content)):
        return _split_message(value, f"{place}.content")
    content = parts.read_content(content, f"{place}.content", READERS, role)
    return [_exact(Message(role=role, content=content, origin="anthropic"), value)]


def format(messages: Sequence[Message]) -> list[Values]:  # noqa: A001 - the name all providers share
    """Return the messages without the system prompt; `system` returns that."""
    rest = messages[prompt_length(messages) :]
    return join_messages(rest, list(map(write_message, rest)))


def write_message(message: Message) -> Values | None:
    """Return one message in Anthropic's form, regardless of its neighbours; None if nothing of it can be sent."""
    if has_original(message, "anthropic"):
        original: Values = restore_original(message)
        return original
    return _format_message(message)


def join_messages(messages: Sequence[Message], values: Sequence[Values | None]) -> list[Values]:
    """Join the values that `write_message` returned: the pieces of one original message become one message again."""
    written: list[Values] = []
    for message, value in zip(messages, values, strict=True):
        if value is None:
            continue
        if written and written[-1]["role"] == value["role"] and _joins(message, written[-1]):
            written[-1] = _join_values(written[-1], value)
        else:
            written.append(value)
    return written


def system(messages: Sequence[Message]) -> str | list[Values]:
    """Return the system prompt: a single text as a string, otherwise a list of blocks; "" if there is none."""
    contents: list[Any] = []
    for message in messages[: prompt_length(messages)]:
        kept = has_original(message, "anthropic")
        contents.append(restore_original(message)["content"] if kept else _write_content(message))
    if len(contents) == 1:
        return contents[0] or ""
    return [block for content in contents for block in to_blocks(content)] or ""


def prompt_length(messages: Sequence[Message]) -> int:
    """Return the number of messages at the beginning that are the system prompt."""
    return next((n for n, message in enumerate(messages) if message.role != "system"), len(messages))


def _exact(message: Message, original: Values) -> Message:
    """Keep the original without blank texts: the API returns them but does not accept them."""
    content = _without_blanks(original["content"])
    return keep_original(message, {**original, "content": content}, _format_message(message)) if content else message


def _without_blanks(content: Any) -> Any:
    if isinstance(content, str):
        return content if content.strip() else ""
    return [
        {**block, "content": _without_blanks(block["content"]) or ""}
        if _is_result(block) and isinstance(block.get("content"), list)
        else block
        for block in content
        if block["type"] != "text" or block["text"].strip()
    ]


def _is_result(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _split_message(value: Values, place: str) -> Iterator[Message]:
    """Split a user message: each tool result by itself, the blocks between them together.

    Unknown fields stay with the first message.
    """
    blocks = value["content"]
    groups: list[list[int]] = []
    for n, block in enumerate(blocks):
        if n and not _is_result(block) and not _is_result(blocks[n - 1]):
            groups[-1].append(n)
        else:
            groups.append([n])
    for group in groups:
        original = {**(value if group[0] == 0 else {"role": "user"}), "content": [blocks[n] for n in group]}
        yield _exact(_piece(blocks, group, place), original)


def _piece(blocks: list[Any], group: list[int], place: str) -> Message:
    first = group[0]
    if not _is_result(blocks[first]):
        read = [parts.read_part(blocks[n], f"{place}[{n}]", READERS, "user") for n in group]
        return Message(role="user", content=read, origin="anthropic", joined=first > 0)
    block, place = blocks[first], f"{place}[{first}]"
    content = block.get("content")
    return Message(
        role="tool",
        content=None if content is None else parts.read_content(content, f"{place}.content", READERS, "tool"),
        tool_call_id=parts.text_field(block, "tool_use_id", place),
        origin="anthropic",
        joined=first > 0,
    )


def _turn(blocks: list[Any], place: str) -> Message:
    content: list[Part] = []
    calls: list[ToolCall] = []
    for n, block in enumerate(blocks):
        where = f"{place}[{n}]"
        if isinstance(block, dict) and block.get("type") == "tool_use":
            name, arguments = parts.name_field(block, where), parts.arguments_field(block, "input", where)
            calls.append(ToolCall(parts.optional_text(block, "id", where) or "", name, arguments))
        else:
            content.append(parts.read_part(block, where, READERS, "assistant"))
    return Message(role="assistant", content=content or None, tool_calls=tuple(calls), origin="anthropic")


def _complete_call(block: Any) -> Any:
    """Return a call with an object as its input, which the provider requires; return any other block unchanged."""
    if not isinstance(block, dict) or block.get("type") != "tool_use" or isinstance(block.get("input"), dict):
        return block
    return {**block, "input": parts.arguments_object(block.get("input") or "")}


def _format_message(message: Message) -> Values | None:
    """Write the message from the common fields; None if nothing remains."""
    content = _write_content(message)
    match message.role:
        case "tool":
            result: Values = {"type": "tool_result", "tool_use_id": message.tool_call_id or ""}
            if message.content is not None:
                result |= {"content": content or ""}
            return {"role": "user", "content": [result]}
        case "assistant":
            if message.tool_calls:
                content = [*to_blocks(content), *map(_write_call, message.tool_calls)]
            return {"role": "assistant", "content": content} if content else None
        case "system":  # a late system message stays among the messages; not every model accepts that role there
            role = "system" if message.origin == "anthropic" else "user"
            return {"role": role, "content": content} if content else None
        case _:
            return {"role": "user", "content": content or "[empty]"} if content or not message.joined else None


def _write_content(message: Message) -> str | list[Values]:
    content = parts.prefix_name(message)
    if isinstance(content, str):
        return content if content.strip() else ""
    return [block for part in content or () if (block := _write_block(part, message.role, message.origin))]


def _write_call(call: ToolCall) -> Values:
    arguments = {"input": call.arguments} if call.custom else parts.arguments_object(call.arguments)
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def to_blocks(content: str | list[Values]) -> list[Values]:
    """Return content as a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def _joins(message: Message, previous: Values) -> bool:
    """Return whether the message is merged into the previous one: it was part of it, or both hold tool results."""
    if message.role != "tool" or message.origin == "anthropic":
        return message.joined
    return isinstance(previous["content"], list) and any(map(_is_result, previous["content"]))


def _join_values(first: Values, second: Values) -> Values:
    content = [*to_blocks(first["content"]), *to_blocks(second["content"])]
    return {**first, **second, "content": sorted(content, key=lambda block: not _is_result(block))}
