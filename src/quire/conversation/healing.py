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
Told = tuple[int, str, str]
"""(item, kind, words): something that was not as it should be."""


class Healer:
    """Passes a history on and mends what a parser would refuse."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._waiting: list[str] = []
        self._item = -1

    def healed(self, values: Iterable[object]) -> Iterator[object]:
        """The items, each one readable."""
        for self._item, value in enumerate(values):
            readable, messages = self._readable(value)
            for message in messages:
                self._follow(message)
            yield readable

    def _readable(self, value: object) -> tuple[object, list[Message]]:
        try:
            return value, parse(value)
        except InvalidValue as error:
            mended = self._mended(value)
            try:
                return mended, parse(mended)
            except InvalidValue:
                kept = _as_text(value, str(error))
                self._tell(UNREADABLE, f"Kept as text: {error}")
                return kept, [kept]

    def _follow(self, message: Message) -> None:
        """Remember which calls wait for a result, for results that do not say whose they are."""
        if message.role in ("assistant", "user"):
            self._waiting = [call.id for call in message.tool_calls]
        elif message.role == "tool" and message.tool_call_id in self._waiting:
            self._waiting.remove(message.tool_call_id)

    def _mended(self, value: object) -> object:
        """A copy with ids where they are missing and without what is not Unicode."""
        if not isinstance(value, Mapping):
            return value
        copy = _clean(value)
        if copy != value:
            self._tell("not unicode", "Lone surrogates were replaced by U+FFFD.")
        if not isinstance(copy, dict):
            return value
        if copy.get("role") == "tool" and not isinstance(copy.get("tool_call_id"), str):
            copy["tool_call_id"] = self._next_waiting()
        self._give_ids(copy.get("tool_calls"), "id")
        content = copy.get("content")
        for block in content if isinstance(content, list) else ():
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "tool_use":
                self._give_ids([block], "id")
            elif kind == "tool_result" and not isinstance(block.get("tool_use_id"), str):
                block["tool_use_id"] = self._next_waiting()
        return copy

    def _give_ids(self, calls: object, key: str) -> None:
        for n, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict) and not isinstance(call.get(key), str):
                call[key] = f"call_{self._item}_{n}"
                self._tell("missing id", f"A call had no id and got {call[key]!r}.")

    def _next_waiting(self) -> str:
        found = self._waiting[0] if self._waiting else f"unknown_{self._item}"
        self._tell("missing id", f"A result did not say whose it is and was taken for {found!r}'s.")
        return found

    def _tell(self, kind: str, words: str) -> None:
        self.told.append((self._item, kind, words))


def _clean(value: object) -> Any:
    """A copy of plain JSON values in which lone surrogates are replaced; other values as they are."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    return value


def _as_text(value: object, why: str) -> Message:
    """What cannot be read, as a message that says what was there."""
    try:
        text = json.dumps(_clean(value), ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):
        text = shown(value)
    return Message(role="user", content=_clean(text), meta={UNREADABLE: why[:500]})
