"""Synchronise a context with a list that a framework owns: add its new items, delete the ones it removed.

A framework passes its whole history with every call, and as new objects after a restart. Every message that is added
here stores two fingerprints in its `meta`: one of its item, and one of the item with all items before it. So the newest
message shows how far the context is synchronised, whoever wrote it. A list with another beginning (cut off, or started
again by a framework without storage) is matched with the end of the stored messages where they overlap. The context
keeps what the framework has forgotten.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from threading import RLock
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from quire.context import Context
from quire.errors import InvalidOperation
from quire.model.messages import Message
from quire.model.pages import Mark, SegmentType
from quire.view.view import View

_ITEM = "item"
_PRINT = "print"
_PART = "part"
_FAR = 1_000
"""The number of stored items that are compared with the start of a list."""

Item = TypeVar("Item")


class ItemPlace(NamedTuple):
    """The origin of a message: the position of its item in the list, and of the message in the item."""

    item: int
    part: int


class ListSync(Generic[Item]):
    """Keeps the conversation of a context equal to a list of a framework's items.

    `parse` returns the messages of an item (possibly none). `fingerprint` returns bytes that are equal for equal items,
    also after a restart.
    """

    def __init__(
        self, ctx: Context, parse: Callable[[Item], Sequence[Message]], fingerprint: Callable[[Item], bytes]
    ) -> None:
        self.ctx = ctx
        self._parse = parse
        self._fingerprint = fingerprint
        self._items: list[Item] = []
        self._chain: list[str] = []
        self._fingerprints: list[str] = []
        self._places: dict[str, int] = {}
        self._equal: dict[str, int] = {}
        self._lock = RLock()

    def update(self, items: Sequence[Item], view: View | None = None) -> None:
        """Synchronise the context with the list in one commit. Retry if another writer was first.

        `view` is the view that a new reply at the end of the list answers.
        """
        with self._lock:
            self._update_fingerprints(items)
            self.ctx.pages._engine.retry(lambda: self._apply_changes(view))

    def find_origins(self, view: View) -> Iterator[tuple[Message, ItemPlace | None]]:
        """Yield the messages of a view, each with its place in the list if the view shows it unchanged."""
        with self._lock:
            parsed: dict[int, Sequence[Message]] = {}
            for message in view.messages:
                place = self.find_source(message)
                if place is None:
                    yield message, None
                    continue
                item, part = place
                if item not in parsed:
                    parsed[item] = self._parse(self._items[item])
                yield message, place if _is_equal(message, parsed[item][part]) else None

    def find_source(self, message: Message) -> ItemPlace | None:
        """Return the place of a message of a view, whole or clipped; None if it is not from the list."""
        with self._lock:
            item = self._equal.get(message.meta.get(_PRINT, ""))
            return None if item is None else ItemPlace(item, int(message.meta[_PART]))

    def _update_fingerprints(self, items: Sequence[Item]) -> None:
        """Compute the fingerprints of new items. Items are compared by identity, so a growing list costs little."""
        same = 0
        for mine, theirs in zip(self._items, items, strict=False):
            if mine is not theirs:
                break
            same += 1
        for gone, printed in zip(self._chain[same:], self._fingerprints[same:], strict=True):
            self._places.pop(gone, None)
            self._equal.pop(printed, None)
        del self._items[same:], self._chain[same:], self._fingerprints[same:]
        for item in items[same:]:
            before, printed = self._chain[-1] if self._chain else "", _digest(self._redacted_fingerprint(item))
            link = _digest(f"{before}{printed}".encode())
            self._places[link] = self._equal[printed] = len(self._items)
            self._items.append(item)
            self._chain.append(link)
            self._fingerprints.append(printed)

    def _redacted_fingerprint(self, item: Item) -> bytes:
        """Return the fingerprint of an item as it is stored, without what `redact` removes."""
        redaction, found = self.ctx.pages._engine.redaction, self._fingerprint(item)
        return (
            found if redaction is None else redaction.json_text(found.decode(errors="replace"), compact=True).encode()
        )

    def _apply_changes(self, view: View | None) -> None:
        reached, gone = self._find_synced()
        fresh = [message for item in range(reached + 1, len(self._items)) for message in self._messages(item)]
        if gone and self.ctx.pending_calls():  # an exchange that waits for results cannot be deleted
            self.ctx.close_calls()
        deleting = [{"operation": "delete", "indices": gone}] if gone else []
        try:
            if fresh or gone:
                self._take([*deleting, {"operation": "insert", "data": fresh}] if fresh else deleting, view)
        except InvalidOperation:  # the list is broken: import stores what no model may see
            if deleting:
                self._take(deleting)
            self.ctx.import_messages(fresh)

    def _take(self, changes: list[dict[str, Any]], view: View | None = None) -> None:
        if len(changes) == 1 and changes[0]["operation"] == "insert":
            self.ctx.add(changes[0]["data"], view=view)
        else:
            self.ctx.conversation.modify(changes)

    def _find_synced(self) -> tuple[int, list[int]]:
        """Return the last synchronised item (or -1), and the indices of messages whose items left the list.

        A removed result removes its whole exchange; the calls that are still in the list are added again.
        """
        gone, in_exchange, is_long, found = list[int](), False, False, -1
        for message, mark in self._synced_messages():
            if message.meta[_ITEM] in self._places and not in_exchange:
                found = self._places[message.meta[_ITEM]]
                break
            if mark is Mark.NONE and not self._is_prompt(message):
                gone.append(message.index)
                in_exchange = message.role == "tool"
                is_long = is_long or message.role == "user"
        overlap = self._overlap() if gone else 0
        if overlap > 1 or (overlap and found < 0):
            return overlap - 1, []
        if found < 0 or (is_long and len(self._items) == 1):  # a repeated first message is not a step back
            return -1, []
        return found, gone[::-1]

    def _synced_messages(self) -> Iterator[tuple[Message, Mark]]:
        """Yield the messages that came from a list, shown or stored as unshowable, newest first."""
        conversation = self.ctx.conversation
        everything = conversation.messages(all=True)
        for place in range(len(everything) - 1, -1, -1):
            message = everything[place]
            if _ITEM not in message.meta:
                continue
            mark = conversation.mark_of(message.index)
            if mark in (Mark.NONE, Mark.UNSHOWABLE):
                yield message, mark

    def _overlap(self) -> int:
        """Return how many items at the beginning of the list are the last stored ones."""
        if len(self._items) < 2:  # a single repeated message is a new message
            return 0
        first = (message.meta[_PRINT] for message, _ in self._synced_messages() if message.meta[_PART] == 0)
        record = list(islice(first, min(len(self._items), _FAR)))[::-1]
        sizes = range(min(len(record), len(self._items)), 0, -1)
        return next((size for size in sizes if record[-size:] == self._fingerprints[:size]), 0)

    def _is_prompt(self, message: Message) -> bool:
        """Return whether it is a system prompt, which only `system` changes."""
        page = self.ctx.conversation.page_of(message.index) if message.role == "system" else None
        return page is not None and self.ctx.pages.segment_of(page).type is SegmentType.SYSTEM

    def _messages(self, item: int) -> list[Message]:
        origin = {_ITEM: self._chain[item], _PRINT: self._fingerprints[item]}
        return [
            replace(message, meta={**message.meta, **origin, _PART: part})
            for part, message in enumerate(self._parse(self._items[item]))
        ]


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()


def _is_equal(one: Message, other: Message) -> bool:
    return (one.content, one.tool_calls, one.tool_call_id) == (other.content, other.tool_calls, other.tool_call_id)
