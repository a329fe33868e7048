"""Making a broken history readable, item by item: missing ids are filled in, what cannot be read is kept as text."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quire.errors import InvalidValue, shown
from quire.messages import Message
from quire.providers import parse

UNREADABLE = "unreadable"
"""The key in a message's `meta` under which stands why its original could not be read."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_CALL_ITEMS = ("function_call", "custom_tool_call")
_OUTPUT_ITEMS = ("function_call_output", "custom_tool_call_output")
Told = tuple[int, str, str]
"""(item, kind, words): something that was not as it should be."""


class Healer:
    """Passes a history on and mends what a parser would refuse."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.failure: Exception | None = None
        """What the history itself raised instead of its next item."""
        self._waiting: list[str] = []
        self._item = -1

    def healed(self, values: Iterable[object]) -> Iterator[object]:
        """The items, each one readable."""
        for item, value in enumerate(self._until_failure(values)):
            self._item = item
            for inner in value if isinstance(value, list | tuple) else (value,):
                readable, messages = self._readable(inner)
                for message in messages:
                    self._follow(message)
                yield readable

    def _until_failure(self, values: Iterable[object]) -> Iterator[object]:
        try:
            yield from values
        except Exception as error:  # code of others: whatever it raises, what came before it is taken in
            self.failure = error

    def _readable(self, value: object) -> tuple[object, list[Message]]:
        try:
            messages = parse(value)
            if not any(_lacks_id(message) for message in messages):
                return value, messages
            why = "an id is missing"
        except InvalidValue as error:
            why = str(error)
        mended = self._mended(value)
        try:
            return mended, parse(mended)
        except InvalidValue:
            kept = _as_text(value, why)
            self._tell(UNREADABLE, f"Kept as text: {why}")
            return kept, [kept]

    def _follow(self, message: Message) -> None:
        """Remember which calls wait for a result, for results that do not say whose they are."""
        if message.role in ("assistant", "user"):
            goes_on = message.role == "assistant" and message.origin == "responses"  # each call is an item there
            self._waiting = [*(self._waiting if goes_on else ()), *(call.id for call in message.tool_calls)]
        elif message.role == "tool" and message.tool_call_id in self._waiting:
            self._waiting.remove(message.tool_call_id)

    def _mended(self, value: object) -> object:
        """A copy with ids where they are missing and without what is not Unicode."""
        if not isinstance(value, Mapping):
            return value
        try:
            copy = _clean(value)
            if _is_broken(value):
                self._tell("not unicode", "Lone surrogates were replaced by U+FFFD.")
        except RecursionError:  # it holds itself, or nearly so
            return value
        if copy.get("role") == "tool":
            self._give_owner(copy, "tool_call_id")
        elif copy.get("type") in _CALL_ITEMS:
            self._give_ids([copy], key="call_id")
        elif copy.get("type") in _OUTPUT_ITEMS:
            self._give_owner(copy, "call_id")
        self._give_ids(copy.get("tool_calls"))
        content = copy.get("content")
        self._give_ids(content, kind="tool_use")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_result":
                self._give_owner(block, "tool_use_id")
        return copy

    def _give_ids(self, calls: object, *, key: str = "id", kind: str | None = None) -> None:
        """Give every call of a list, or every block of this kind, an id if it has none."""
        for n, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict) and (kind is None or call.get("type") == kind) and not _has(call, key):
                call[key] = f"call_{self._item}_{n}"
                self._tell("missing id", f"A call had no id and got {call[key]!r}.")

    def _give_owner(self, result: dict[str, Any], key: str) -> None:
        """Let a result that does not say whose it is belong to the first call that waits for one."""
        if not _has(result, key):
            result[key] = self._waiting.pop(0) if self._waiting else f"unknown_{self._item}"
            self._tell("missing id", f"A result did not say whose it is and was taken for that of {result[key]!r}.")

    def _tell(self, kind: str, words: str) -> None:
        self.told.append((self._item, kind, words))


def _lacks_id(message: Message) -> bool:
    return message.tool_call_id == "" or any(not call.id for call in message.tool_calls)


def _has(value: Mapping[str, Any], key: str) -> bool:
    return isinstance(value.get(key), str) and value[key] != ""


def _clean(value: object) -> Any:
    """A copy of plain JSON values in which lone surrogates are replaced; other values as they are."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    return value


def _is_broken(value: object) -> bool:
    """Whether a lone surrogate stands anywhere in plain JSON values."""
    if isinstance(value, str):
        return _SURROGATE.search(value) is not None
    if isinstance(value, Mapping):
        return any(_is_broken(key) or _is_broken(inner) for key, inner in value.items())
    return isinstance(value, list | tuple) and any(map(_is_broken, value))


def _as_text(value: object, why: str) -> Message:
    """What cannot be read, as a message that says what was there."""
    try:
        text = json.dumps(_clean(value), ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):
        text = shown(value)
    return Message(role="user", content=_clean(text), meta={UNREADABLE: why[:500]})
