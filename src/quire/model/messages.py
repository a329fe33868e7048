"""Messages in one shape for all providers.

A message has the fields that every provider knows (role, content, tool calls). If they do not hold everything that the
provider sent, `raw` has the original. The message is sent back to its own provider as it came, and to other providers
in the common shape. Code that changes the content, the calls or the ids of a message must also remove its `raw`.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from quire.errors import short_repr
from quire.model.media import count_media_tokens, extract_text
from quire.model.text import hang_lines, spell_name, spell_speaker

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
Provider = Literal["openai", "responses", "anthropic"]
Part = dict[str, Any]
"""A part of multi-part content. Its fields depend on its `type`:

| type       | fields                                                                                            |
|------------|---------------------------------------------------------------------------------------------------|
| `text`     | `text`; `refusal` (true) if the model refuses                                                     |
| `image`    | one of `url` (also a data URL), `data` with `media_type`, `file_id`; `detail`                     |
| `file`     | one of `url`, `data` (with `media_type` if known), `file_id`, `text`; `name`                      |
| `audio`    | `data` with `format`, or `id` of a spoken answer with its `transcript`                            |
| `thinking` | `text` with `signature`, or `data` (redacted), or `item` (a Responses item as JSON text)          |
| `other`    | `kind`, and the original as JSON text: `part` (of the content) or `item` (an item of its own)     |
"""


class ToolCall(Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool call. `arguments` is the JSON text that the model wrote, or free text for a `custom` tool."""

    id: str
    name: str
    arguments: str = "{}"
    custom: bool = False


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message. `index` is its position in the order of arrival; only a cleanup changes it.

    `content` is text, a list of parts, or None. `origin` is the provider in whose shape it arrived. `raw` is the
    original, if the other fields do not hold all of it. `joined` is true if it was part of the same provider message as
    the message before it. `developer` is true for a system message with OpenAI's role `developer`. `at` is the time
    that its source gave it; None if it has none, so that the time of its arrival counts.
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
    at: Annotated[datetime, Meta(tz=True)] | None = None

    def __repr__(self) -> str:
        try:
            return self._short()
        except (AttributeError, KeyError, TypeError):  # fields of wrong types
            return f"<Message {self.index}, not valid>"

    def _short(self) -> str:
        words = [short_repr(self.text)] if self.text or not self.tool_calls else []
        words += [f"{call.name}(…)" for call in self.tool_calls]
        others = len(self.content) if isinstance(self.content, list) else 0
        words += [f"{others} parts"] if others > 1 else []
        return f"<Message {self.index}, {self.role}: {', '.join(words)}>"

    @property
    def text(self) -> str:
        """The text of the content: its text parts, one per line."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(part["text"] for part in self.content if part.get("type") == "text")

    @property
    def has_content(self) -> bool:
        """True if it has anything that can be shown to a model."""
        if isinstance(self.content, str) or self.content is None:
            return bool(self.tool_calls) or _is_visible(self.content or "")
        return bool(self.tool_calls) or any(
            part.get("type") != "text" or _is_visible(str(part.get("text", ""))) for part in self.content
        )

    @property
    def has_thinking(self) -> bool:
        """True if a part of the content is thinking."""
        return isinstance(self.content, list) and any(part.get("type") == "thinking" for part in self.content)


def has_original(message: Message, provider: Provider) -> bool:
    """Return whether a message has the original of this provider in `raw`."""
    return bool(message.raw) and message.origin == provider


PER_MESSAGE = 4
"""Tokens that a message costs in addition to its texts. A tool call costs the same."""


def _is_visible(text: str) -> bool:
    """Return whether a text has more than white space. A long text is not copied."""
    return bool(text) and not text.isspace()


def count_message_tokens(message: Message, count: Callable[[str], int]) -> int:
    """Count the tokens of a message: its texts, its media, and `PER_MESSAGE` for itself and for each of its calls.

    The count is an upper bound for every provider: names and arguments are counted in their longest form.
    """
    content = message.content
    if isinstance(content, str) and not message.tool_calls and not message.name:  # the common case
        return count(content) + PER_MESSAGE
    tokens = sum(map(count, iterate_texts(message))) + PER_MESSAGE * (1 + len(message.tool_calls))
    names = [(call.name, spell_name(call.name)) for call in message.tool_calls]
    names += [(message.name, spell_speaker(message.name))] if message.name else []
    tokens += sum(max(0, count(spelled) - count(name)) for name, spelled in names if spelled != name)
    if message.name and message.role == "user" and isinstance(content, str):
        tokens += max(0, count(f"{message.name}: {content}") - count(message.name) - count(content))
    if not isinstance(content, list):
        return tokens
    if message.role == "assistant" or message.origin == "responses":
        texts = sum(part.get("type") == "text" for part in content)
        # each text may be sent back as an item of its own; other forms join texts by a line break
        tokens += max(0, texts - 1) * (PER_MESSAGE if message.origin == "responses" else 1)
    return tokens + sum(map(count_media_tokens, content))


def iterate_texts(message: Message) -> Iterator[str]:
    """Yield the texts of a message that cost tokens: content, names, and the arguments of its calls."""
    if isinstance(message.content, str):
        yield message.content
    for part in message.content or () if not isinstance(message.content, str) else ():
        yield from iterate_part_texts(part)
    if message.name:
        yield f"{message.name}:" if message.role == "user" and isinstance(message.content, list) else message.name
    for call in message.tool_calls:
        yield call.name
        yield _longest_arguments(call)


def _longest_arguments(call: ToolCall) -> str:
    """Return the arguments; if they are not a JSON object, wrap them as for Anthropic, which accepts only objects."""
    text = call.arguments
    if not call.custom and (text == "{}" or not text.strip()):
        return "{}"
    try:
        is_object = not call.custom and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    return text if is_object else json.dumps({"input" if call.custom else "_raw": text}, ensure_ascii=False)


def iterate_part_texts(part: Part) -> Iterator[str]:
    """Yield the texts of a part that cost tokens."""
    yield from (part[key] for key in ("text", "transcript", "name") if isinstance(part.get(key), str))
    if text := extract_text(part):
        yield text


def messages_to_text(messages: Iterable[Message]) -> str:
    """Return the messages as readable text: `User: …`, `Assistant: …`, with calls and results."""
    return "\n".join(label + line for label, line in label_lines(messages))


def quote_messages(messages: Iterable[Message]) -> str:
    """Return the messages as text for a model: further lines of a message are indented.

    Only speakers begin at the margin, so no text can speak for another.
    """
    return "\n".join(label + hang_lines(line) for label, line in label_lines(messages))


def label_lines(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    """Yield the lines of `messages_to_text`, each as the label that quire adds and the text of the message."""
    for message in messages:
        text = "\n".join(_iterate_content(message))
        if message.role == "tool":
            yield "Result of ", f"{message.tool_call_id}: {text}"
        elif text or not message.tool_calls:
            yield f"{message.role.capitalize()}: ", text
        for call in message.tool_calls if message.role != "tool" else ():
            yield "Call ", f"{call.id}: {call.name}({call.arguments})"


def _iterate_content(message: Message) -> Iterator[str]:
    if isinstance(message.content, str):
        yield message.content
        return
    for part in message.content or ():
        if isinstance(part.get("text"), str) and part.get("type") in ("text", "thinking"):
            yield part["text"]
        elif part.get("type") != "thinking":
            kind = part.get("kind") or part.get("type")
            yield f"[{kind}{': ' + part['name'] if isinstance(part.get('name'), str) else ''}]"
