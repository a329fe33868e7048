"""Messages as quire keeps them: one shape for all providers, and what each provider gets back of its own.

A message holds what every provider understands (role, content, tool calls) and, where that does not say everything its
origin said, the original in `raw`. It goes back to its origin as it came and to the others in the common shape.
Whoever changes the content, calls or ids of a message also drops its `raw`, which speaks of the old ones.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct

from quire.model.media import count_media_tokens, extract_text

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
Provider = Literal["openai", "responses", "anthropic"]
Part = dict[str, Any]
"""A piece of multi-part content, told apart by its `type`:

| type       | fields                                                                                            |
|------------|---------------------------------------------------------------------------------------------------|
| `text`     | `text`; `refusal` (true) where the model declines                                                 |
| `image`    | one of `url` (also a data URL), `data` with `media_type`, `file_id`; `detail`                     |
| `file`     | one of `url`, `data` (with `media_type` where known), `file_id`, `text`; `name`                   |
| `audio`    | `data` with `format`, or `id` of a spoken answer with its `transcript`                            |
| `thinking` | `text` with `signature`, or `data` (redacted), or `item` (a Responses item as JSON text)          |
| `other`    | `kind`, and the original as JSON text: `part` (stands in content) or `item` (stands on its own)   |
"""


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """A call the assistant makes. `arguments` is JSON text as the model wrote it, or free text for a `custom` tool."""

    id: str
    name: str
    arguments: str = "{}"
    custom: bool = False


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message. `index` is its number in order of arrival; it never changes.

    `content` is text, a list of parts, or None. `origin` is the provider whose shape it came in, `raw` what that
    provider gets back if the fields here do not say everything, `joined` whether it came in the same provider message
    as the one before it. `developer` is OpenAI's word for a system message.
    """

    role: Role
    content: str | list[Part] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    index: int = -1
    origin: Provider = "openai"
    raw: str | None = None
    joined: bool = False
    developer: bool = False
    meta: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The text of the content: its text parts, one a line."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(part["text"] for part in self.content if part.get("type") == "text")

    @property
    def has_content(self) -> bool:
        """Whether there is anything in it that a model could be shown."""
        if isinstance(self.content, str) or self.content is None:
            return bool(self.tool_calls) or bool(self.content and self.content.strip())
        return bool(self.tool_calls) or any(
            part.get("type") != "text" or str(part.get("text", "")).strip() for part in self.content
        )


PER_MESSAGE = 4
"""Tokens that a message costs beside its texts; a tool call costs as many."""


def count_message_tokens(message: Message, count: Callable[[str], int]) -> int:
    """What a message costs: its texts, its images and other media, and a little for itself and each of its calls.

    In every provider's form it costs no more: names and arguments are counted in the dearest way one is written.
    """
    content = message.content
    if isinstance(content, str) and not message.tool_calls and not message.name:  # the everyday case
        return count(content) + PER_MESSAGE
    tokens = sum(map(count, iterate_texts(message))) + PER_MESSAGE * (1 + len(message.tool_calls))
    if message.name and message.role == "user" and isinstance(content, str):
        tokens += max(0, count(f"{message.name}: {content}") - count(message.name) - count(content))
    if not isinstance(content, list):
        return tokens
    if message.origin == "responses":  # each of its texts may have been an item of its own, and goes back as one
        tokens += PER_MESSAGE * max(0, sum(part.get("type") == "text" for part in content) - 1)
    return tokens + sum(map(count_media_tokens, content))


def iterate_texts(message: Message) -> Iterator[str]:
    """The texts of a message that cost tokens: content, names, and the arguments of its calls."""
    if isinstance(message.content, str):
        yield message.content
    for part in message.content or () if not isinstance(message.content, str) else ():
        yield from iterate_part_texts(part)
    if message.name:
        yield f"{message.name}:" if message.role == "user" and isinstance(message.content, list) else message.name
    for call in message.tool_calls:
        yield call.name
        yield _written_arguments(call)


def _written_arguments(call: ToolCall) -> str:
    """The arguments as they are, or in the object that Anthropic gets of what is none."""
    text = call.arguments
    if not call.custom and (text == "{}" or not text.strip()):
        return "{}"
    try:
        is_object = not call.custom and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    return text if is_object else json.dumps({"input" if call.custom else "_raw": text}, ensure_ascii=False)


def iterate_part_texts(part: Part) -> Iterator[str]:
    """The texts of a part that cost tokens."""
    yield from (part[key] for key in ("text", "transcript", "name") if isinstance(part.get(key), str))
    if text := extract_text(part):
        yield text


def messages_to_text(messages: Iterable[Message]) -> str:
    """The messages as a person reads them: `User: …`, `Assistant: …`, calls and results among them."""
    return "\n".join(label + line for label, line in label_lines(messages))


def label_lines(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    """The lines of `as_text`, each as what quire puts before it and what was said."""
    for message in messages:
        yield from _lines(message)


def _lines(message: Message) -> Iterator[tuple[str, str]]:
    said = "\n".join(_said(message))
    if message.role == "tool":
        yield "Result of ", f"{message.tool_call_id}: {said}"
        return
    if said or not message.tool_calls:
        yield f"{message.role.capitalize()}: ", said
    for call in message.tool_calls:
        yield "Call ", f"{call.id}: {call.name}({call.arguments})"


def _said(message: Message) -> Iterator[str]:
    if isinstance(message.content, str):
        yield message.content
        return
    for part in message.content or ():
        if isinstance(part.get("text"), str) and part.get("type") in ("text", "thinking"):
            yield part["text"]
        elif part.get("type") != "thinking":
            kind = part.get("kind") or part.get("type")
            yield f"[{kind}{': ' + part['name'] if isinstance(part.get('name'), str) else ''}]"
