"""The last step before messages are sent: change what the provider would refuse.

- Names of tools and ids of calls that a provider refuses are spelled differently (`model/text.py`).
- Some models number their calls from the start in every response. Anthropic requires every id once per request, and
  servers of the Responses API pair calls and outputs across the whole list. So a repeated id gets a number, which
  depends only on the messages before it.
- Anthropic: blanks at the end of an assistant's text are removed, and so are the cache marks that a message arrived
  with: four are accepted in a request, and `View.anthropic(cache=True)` sets them. A system message among the others is
  written as the user's, because its legal places depend on the messages after it.
- The content of a result is never null.
- Responses: messages without content are left out, and so are item ids that were used before or that are not OpenAI's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from quire.model.messages import Message, Provider
from quire.model.text import spell_id, spell_name, spell_speaker
from quire.providers.detection import CALLS, OUTPUTS
from quire.providers.legal import LEGAL_IDS, LEGAL_NAMES, NEVER_NULL, ends_with_blank, is_empty
from quire.providers.originals import keep_original, restore_original
from quire.providers.plain_json import Values
from quire.providers.responses import format as format_items
from quire.providers.responses import result_key

_MAX_KNOWN = 10_000
_PREFIXES = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
_ID = 64
"""The beginnings of the ids that OpenAI gives to items, and their greatest length. Other ids are refused."""

_originals: dict[str, str] = {}
"""Spelling → original name, for the names that this process spelled differently. It is only a cache."""


def legal_name(name: str, provider: Provider) -> str:
    """Return the name of a tool as a provider accepts it."""
    if LEGAL_NAMES[provider].fullmatch(name):
        return name
    spelled = spell_name(name)
    if len(_originals) < _MAX_KNOWN:
        _originals[spelled] = name
    return spelled


def legal_id(call_id: str, provider: Provider) -> str:
    """Return the id of a call as a provider accepts it."""
    return call_id if LEGAL_IDS[provider].fullmatch(call_id) else spell_id(call_id)


def find_original_name(name: str) -> str | None:
    """Return the original name of a spelling; None if this process did not make the spelling."""
    return _originals.get(name)


def is_legal_chat(message: Message) -> bool:
    """Return whether OpenAI accepts the names and ids of a message, so that `make_legal` would not change it.

    False for a message with an original: it may have further fields.
    """
    is_name, is_id = LEGAL_NAMES["openai"].fullmatch, LEGAL_IDS["openai"].fullmatch
    if message.raw is not None or (message.name and not is_name(message.name)):
        return False
    if message.tool_call_id is not None and not is_id(message.tool_call_id):
        return False
    return all(is_id(call.id) and is_name(call.name) for call in message.tool_calls)


def make_legal(values: list[Values], provider: Provider) -> list[Values]:
    """Change written messages so that the provider accepts them; return them. They must be the caller's own values."""
    ids = _DistinctIds(provider)
    name = partial(legal_name, provider=provider)
    for value in values:
        for field in _call_fields(value, provider):
            field.rename(name, ids.result_id if field.is_result else ids.call_id)
        if provider == "openai":
            _correct_chat(value)
        elif provider == "anthropic":
            remove_marks(value["content"])
            if value["role"] == "assistant":
                value["content"] = _strip_end(value["content"])
            else:
                value["role"] = "user"
    return list(_correct_items(values)) if provider == "responses" else values


class WrittenItems(NamedTuple):
    """The items of some messages as the Responses API accepts them.

    `ids` are the ids that these items use, and `dropped` are ids that were removed. The items are the same in a longer
    request if no other part of it uses one of these ids. `is_complete` is False if a result is here without its call.
    """

    items: list[Values]
    ids: frozenset[tuple[str, str]]
    dropped: frozenset[tuple[str, str]]
    is_complete: bool


def write_items(messages: Sequence[Message]) -> WrittenItems:
    """Return the items of messages. The caller must copy them before handing them out."""
    written = format_items(messages)
    items = make_legal(to_builtins(written), "responses")
    left = {("id", str(item["id"])) for item in items if item.get("id")}
    dropped = {("id", str(item["id"])) for item in written if item.get("id")} - left
    called = {call.id for message in messages for call in message.tool_calls}
    calls = {("call", call_id) for call_id in called} | {
        ("call", item["call_id"])
        for item in (*written, *items)
        if item.get("type") not in OUTPUTS and isinstance(item.get("call_id"), str)
    }
    is_complete = all(message.tool_call_id in called for message in messages if message.role == "tool")
    return WrittenItems(items, frozenset(left | calls), frozenset(dropped), is_complete)


def join_items(written: Sequence[WrittenItems]) -> list[Values] | None:
    """Return the items of several parts of a request, as new values; None if they must be written together."""
    ids, dropped = set[tuple[str, str]](), set[tuple[str, str]]()
    for part in written:
        if not part.is_complete or not ids.isdisjoint(part.ids):
            return None
        ids |= part.ids
        dropped |= part.dropped
    if not ids.isdisjoint(dropped):
        return None
    joined: list[Values] = to_builtins([item for part in written for item in part.items])
    return joined


def _correct_chat(value: Values) -> None:
    if isinstance(value.get("name"), str) and value["role"] != "function":
        value["name"] = spell_speaker(value["name"])
    content = value.get("content")
    if content == [] or (content is None and value["role"] == "tool"):
        value["content"] = None if value["role"] == "assistant" else ""


def _correct_items(items: list[Values]) -> Iterator[Values]:
    """Yield the items without empty messages, without repeated reasoning, and with ids that OpenAI accepts."""
    known: set[str] = set()
    for item in items:
        if "role" in item and is_empty(item.get("content")):
            continue
        item_id, kind = str(item.get("id") or ""), item.get("type", "message")
        if kind in NEVER_NULL and item.get("output") is None:
            item["output"] = ""
        if kind == "reasoning" and item_id and item_id in known:
            continue
        is_openai_id = item_id.startswith(_PREFIXES.get(kind, "")) and len(item_id) <= _ID
        if kind in _PREFIXES and (item_id in known or not is_openai_id):
            item.pop("id", None)
        known.add(item_id)
        yield item


def remove_marks(content: Any) -> Any:
    """Return content of Anthropic's form without cache marks."""
    for block in _dicts(content):
        if "cache_control" in block:
            del block["cache_control"]
        if "content" in block:
            remove_marks(block["content"])
    return content


def rename_calls(message: Message, name: Callable[[str], str], call_id: Callable[[str], str]) -> Message:
    """Return the message with other names and ids of calls, in its original too."""
    calls = tuple(replace(call, id=call_id(call.id), name=name(call.name)) for call in message.tool_calls)
    answered = None if message.tool_call_id is None else call_id(message.tool_call_id)
    renamed = replace(message, tool_calls=calls, tool_call_id=answered)
    if message.raw is None:
        return renamed
    original = restore_original(message)
    for value in original if isinstance(original, list) else [original]:
        for field in _call_fields(value, message.origin):
            field.rename(name, call_id)
    return keep_original(renamed, original, None)


class _DistinctIds:
    """Ids for the calls of one request, and for their results."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._times: dict[str, int] = {}
        self._renamed: dict[str, str] = {}

    def call_id(self, call_id: str) -> str:
        """Return a legal id for a call. No call before it has this id, unless the provider pairs by position."""
        fresh = legal_id(call_id, self._provider)
        while self._provider != "openai" and fresh in self._times:
            self._times[call_id] = self._times.get(call_id, 1) + 1
            fresh = legal_id(f"{call_id}_{self._times[call_id]}", self._provider)
        self._times[fresh] = 1
        self._renamed[call_id] = fresh
        return fresh

    def result_id(self, call_id: str) -> str:
        """Return the id of the newest call with this id."""
        return self._renamed.get(call_id) or legal_id(call_id, self._provider)


class _CallField(NamedTuple):
    """A call or a result in a written message: the dict and the key with its id, and the dict with its name."""

    value: Values
    key: str
    named: Values
    is_result: bool = False

    def rename(self, name: Callable[[str], str], call_id: Callable[[str], str]) -> None:
        old = self.value.get(self.key)
        if isinstance(old, str):
            self.value[self.key] = call_id(old)
        called = None if self.is_result else self.named.get("name")
        if isinstance(called, str):
            self.named["name"] = name(called)


def _call_fields(value: Values, provider: Provider) -> Iterator[_CallField]:
    if provider == "openai":
        yield from _chat_fields(value)
        return
    for block in _dicts(value.get("content")) if provider == "anthropic" else [value]:
        kind = block.get("type")
        if kind == "tool_use" or kind in CALLS:
            yield _CallField(block, "id" if kind == "tool_use" else "call_id", block)
        elif kind == "tool_result" or kind in OUTPUTS:
            yield _CallField(
                block, "tool_use_id" if kind == "tool_result" else result_key(block), block, is_result=True
            )


def _chat_fields(value: Values) -> Iterator[_CallField]:
    for call in _dicts(value.get("tool_calls")):
        yield _CallField(call, "id", call.get("function") or call.get("custom") or {})
    if value.get("role") == "tool":
        yield _CallField(value, "tool_call_id", value, is_result=True)
    for named in _dicts([value.get("function_call"), value if value.get("role") == "function" else None]):
        yield _CallField({}, "", named)


def _dicts(values: object) -> Iterable[Values]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else ()


def _strip_end(content: Any) -> Any:
    if not ends_with_blank(content):
        return content
    if isinstance(content, str):
        return content.rstrip()
    return [*content[:-1], {**content[-1], "text": content[-1]["text"].rstrip()}]
