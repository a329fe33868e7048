"""The message array of a request as raw spans: taken apart and put together without changing the bytes of its items."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from quire.gateway.routing import Protocol

_MIN_ARRAY = 2
_PROBE = 64


class _Body(Struct):
    """The fields of a request that are read. All others are passed on unread."""

    messages: Raw | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
    system: Raw | UnsetType = UNSET
    instructions: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET
    model: Raw | UnsetType = UNSET
    metadata: Raw | UnsetType = UNSET
    thinking: Raw | UnsetType = UNSET
    previous_response_id: Raw | UnsetType = UNSET
    conversation: Raw | UnsetType = UNSET


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class Spans(NamedTuple):
    """A request in spans: the array of items, and the raw values of other fields (b"" if they are missing)."""

    array: bytes
    system: bytes
    tools: bytes
    model: str
    metadata: bytes
    thinking: bytes

    @property
    def has_manual_thinking(self) -> bool:
        """Whether thinking is `enabled` and not adaptive: then a tool loop must begin with its thinking."""
        return b'"enabled"' in self.thinking

    @property
    def lists_tools(self) -> bool:
        """Whether the request has a list of tools that is not empty."""
        return len(self.tools.strip(b"[] \r\n\t")) > 0 and self.tools != b"null"


def split_request(body: bytes, protocol: Protocol) -> Spans | None:
    """Return the spans of a request; None if it has no array of messages, or continues a stored response."""
    try:
        found = _decode_body(body)
        array = bytes(found.input if protocol == "responses" else found.messages)  # type: ignore[arg-type]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
        return None
    if _value(found.previous_response_id) or _value(found.conversation):
        return None  # the provider has the rest of the conversation
    system = found.instructions if protocol == "responses" else found.system
    model = _value(found.model)
    return Spans(
        array,
        _bytes(system),
        _bytes(found.tools),
        model if isinstance(model, str) else "",
        _bytes(found.metadata),
        _bytes(found.thinking),
    )


def _bytes(raw: Raw | UnsetType) -> bytes:
    return b"" if raw is UNSET else bytes(raw)


def _value(raw: Raw | UnsetType) -> Any:
    return None if raw is UNSET else msgspec.json.decode(raw)


def replace_array(body: bytes, spans: Spans, items: Sequence[bytes], protocol: Protocol) -> bytes | None:
    """Return the body with other items in its array and all other bytes unchanged; None if that is not certain."""
    array, field = b"[" + b",".join(items) + b"]", "input" if protocol == "responses" else "messages"
    if len(spans.array) <= _MIN_ARRAY or array == spans.array:
        return None
    probe, start = spans.array[:_PROBE], -1  # `find` with a long needle is slow
    while (start := body.find(probe, start + 1)) >= 0:
        if body.startswith(spans.array, start):
            changed = body[:start] + array + body[start + len(spans.array) :]
            if bytes(_decode_object(changed)[field]) == array:  # otherwise another field has the same bytes
                return changed
    return None


def split_array(array: bytes) -> list[bytes]:
    """Return the items of an array as raw spans. Raise `ValueError` if it is no array."""
    try:
        return [bytes(item) for item in _decode_items(array)]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None


def content_blocks(raw: bytes) -> list[tuple[str, bytes]] | None:
    """Return the blocks of a message's content with their types, as raw spans; None if the content is no list."""
    content = _decode_object(raw).get("content")
    if content is None or not bytes(content).lstrip().startswith(b"["):
        return None
    return [(type_of(block), bytes(block)) for block in _decode_items(content)]


class _Typed(Struct):
    type: str = ""


_decode_typed = msgspec.json.Decoder(_Typed).decode


def type_of(raw: bytes | Raw) -> str:
    """Return the type of an item or a block; "" if it has none."""
    return _decode_typed(raw).type


def replace_content(raw: bytes, blocks: Sequence[bytes]) -> bytes:
    """Return a message with these blocks as its content. Its other fields keep their values."""
    fields = _decode_object(raw)
    fields["content"] = Raw(b"[" + b",".join(blocks) + b"]")
    return msgspec.json.encode(fields)


def drop_id(raw: bytes) -> bytes:
    """Return an item without its id."""
    fields = _decode_object(raw)
    return raw if fields.pop("id", None) is None else msgspec.json.encode(fields)
