"""Escaping: the text of users and tools in a view. It may contain anything, but it must not pass for quire's own text.

Two rules ensure that. The context's key occurs only in the preamble and in the heads of quire's own blocks and windows:
where other text contains it, in any form that a reader takes for it, the view shows it broken up. And inside quire's
blocks and answers every line of other text is indented, so that only quire's own lines begin at the margin.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from quire.model.look_alikes import NO_DIGITS, OTHER_DIGITS, Disguise
from quire.model.messages import Message, Part, ToolCall
from quire.model.text import clean_line, indent_lines
from quire.providers.originals import keep_original, restore_original
from quire.providers.plain_json import dumps

_BREAK = "·"
_ID_BREAK = "_"
_IDS = frozenset({"id", "call_id", "tool_call_id", "tool_use_id", "file_id", "name"})
_NAMES_OF_TYPES = frozenset({"type", "role", "kind", "format", "detail", "media_type"})


class Escaping:
    """Escapes the text of users and tools in the views of a context with this key."""

    def __init__(self, key: str) -> None:
        self._key = Disguise(key)
        self.sure_digits = self._key.sure_digits
        """Digits of the key. An ASCII text without one of them does not have the key."""

    def escape_key(self, text: str) -> str:
        """Return the text with every occurrence of the key broken up."""
        return self._break(text, lambda found: found[:1] + _BREAK + found[1:]) if self.has_key(text) else text

    def escape_line(self, text: str) -> str:
        """Return a name or a summary for a line: without the key, line breaks and changes of the reading direction."""
        return self.escape_key(clean_line(text))

    def escape_lines(self, text: str) -> str:
        """Return the text as a block quotes it: without the key, and every line of it is indented."""
        return indent_lines(self.escape_key(text))

    def escape_id(self, text: str) -> str:
        """Return an id or the name of a tool without the key. A provider that accepts it accepts the result."""
        return self._break(text, lambda found: found[:1] + _ID_BREAK + found[2:]) if self.has_key(text) else text

    def escape_url(self, text: str) -> str:
        """Return a URL without the key; it names the same place."""
        return self._break(text, lambda found: _percent(found[0]) + found[1:]) if self.has_key(text) else text

    def escape_json(self, text: str) -> str:
        """Return JSON text without the key, also where escapes hide it. Text that is not JSON is plain text."""
        if "\\" not in text and not self.has_key(text):
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.escape_key(text)
        escaped = self.escape_value(value)
        return text if escaped == value else dumps(escaped)

    def escape_value(self, value: Any, field: str = "") -> Any:
        """Return a JSON value without the key. `field` is the name under which an object has it."""
        if isinstance(value, list):
            return [self.escape_value(inner) for inner in value]
        if isinstance(value, dict):
            return {self._escape_field(name): self.escape_value(inner, name) for name, inner in value.items()}
        if not isinstance(value, str):
            return value
        if field in _NAMES_OF_TYPES:
            return self._escape_field(value)
        if field in ("part", "item"):
            return self.escape_json(value)
        if field in _IDS:
            return self.escape_id(value)
        return self.escape_url(value) if field.endswith("url") else self.escape_key(value)

    def escape_message(self, message: Message) -> Message:
        """Return a message without the key. Text of the assistant stays the same: the model knows that it wrote it."""
        changes: dict[str, Any] = {}
        if message.name:
            changes["name"] = self.escape_id(message.name)
        if message.tool_call_id:
            changes["tool_call_id"] = self.escape_id(message.tool_call_id)
        if message.tool_calls:
            changes["tool_calls"] = tuple(map(self._escape_call, message.tool_calls))
        if message.content:
            changes["content"] = self._escape_content(message)
        changes = {name: value for name, value in changes.items() if value != getattr(message, name)}
        own = message.role == "assistant"
        raw = message.raw
        if raw and own:
            return replace(message, **changes, raw=None) if changes else message
        if not raw or not (changes or "\\" in raw or self.has_key(raw)):
            return replace(message, **changes) if changes else message
        original = restore_original(message)
        escaped = self.escape_value(original)
        if escaped == original:
            return replace(message, **changes, raw=None) if changes else message
        return keep_original(replace(message, **changes, raw=None), escaped, None)

    def _escape_content(self, message: Message) -> str | list[Part] | None:
        content = message.content
        own = message.role == "assistant"
        if content is None or isinstance(content, str):
            return content if own or content is None else self.escape_key(content)
        if own:
            # a part of type "other" is a result of a provider's tool; thinking after it may be bound to it, so it stays
            if any(part.get("type") == "thinking" for part in content):
                return content
            return [self.escape_value(part) if part.get("type") == "other" else part for part in content]
        return [self.escape_value(part) for part in content]

    def _escape_call(self, call: ToolCall) -> ToolCall:
        if "\\" not in call.arguments and not self.has_key(f"{call.id}\n{call.name}\n{call.arguments}"):
            return call
        arguments = self.escape_key(call.arguments) if call.custom else self.escape_json(call.arguments)
        return replace(call, id=self.escape_id(call.id), name=self.escape_id(call.name), arguments=arguments)

    def _escape_field(self, name: str) -> str:
        """Return the name of a field or of a type; a plain word stays, so that no key can make a message invalid."""
        return name if name.isascii() and name.replace("_", "").isalpha() else self.escape_key(name)

    def has_key(self, text: str) -> bool:
        """Return whether the key may occur in a text, in any form that a reader takes for it."""
        may_have_number = True
        for digit in self.sure_digits:
            if digit not in text:
                may_have_number = False
                break
        if text.isascii():
            return may_have_number and self._key.is_in_ascii(text)
        if may_have_number and self._key.may_be_near(text) and self._key.near.search(text):
            return self._key.is_in(text)
        data = text.encode("utf-8", "surrogatepass")
        for first in set(data.translate(None, NO_DIGITS)):
            if OTHER_DIGITS[first].search(data):
                return self._key.is_in(text)
        return False

    def _break(self, text: str, broken: Callable[[str], str]) -> str:
        pieces, done = [], 0
        for start, end in self._key.find(text):
            pieces += [text[done:start], broken(text[start:end])]
            done = end
        result = "".join([*pieces, text[done:]])
        if not self.has_key(result):
            return result
        spans = list(self._key.find(result))  # a key of few letters may occur again where it was broken up
        for start, end in reversed(spans):
            result = result[:start] + _BREAK + result[end:]
        return result


@lru_cache(256)
def escaping_for(key: str) -> Escaping:
    """Return the escaping of a key."""
    return Escaping(key)


def _percent(sign: str) -> str:
    return quote(sign, safe="") if quote(sign, safe="") != sign else f"%{ord(sign):02X}"
