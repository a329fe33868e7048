"""A context that follows a list somebody else keeps: what is new there is added, what was taken back is deleted.

A framework hands over its whole history with every call, and after a restart as new objects. Every message added here
remembers, in its `meta`, a print of the item it came from, and one of that item and all before it. So the newest
message tells how far the context has followed, in one look, whoever wrote it and whenever. A list that begins
elsewhere (cut off at its beginning, or begun anew by a framework that keeps nothing) is laid on the end of the record
where they overlap, and goes on from there: the context remembers what the framework forgot.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from threading import RLock
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from quire.context import Context
from quire.errors import Conflict, InvalidOperation
from quire.model.messages import Message
from quire.model.pages import Mark, SegmentType
from quire.view.view import View

_ITEM = "item"
_PRINT = "print"
_PART = "part"
_FAR = 1_000
"""How many items of the record are looked at for one that a list begins with."""
_TRIES = 5

Item = TypeVar("Item")


class ItemPlace(NamedTuple):
    """Where a message of a view comes from: an item of the list, and which of its messages it is."""

    item: int
    part: int


class ListSync(Generic[Item]):
    """Keeps a context's conversation equal to a list of a framework's own items.

    `parse` gives the messages of an item (perhaps none), `print_of` bytes that are equal for equal items, also after
    a restart.
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

    def update(self, items: Sequence[Item]) -> None:
        """Take over what the list has now, in one commit; another writer's commit meanwhile is taken over too."""
        with self._lock:
            self._update_fingerprints(items)
            for _ in range(_TRIES):
                try:
                    return self._apply_changes()
                except Conflict:
                    self.ctx.refresh()
            return self._apply_changes()

    def find_origins(self, view: View) -> Iterator[tuple[Message, ItemPlace | None]]:
        """The messages of a view, each with its place in the list if the view shows it as it stands there."""
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
        """Where a message of a view comes from, shown whole or clipped; None if the list has nothing of it."""
        with self._lock:
            item = self._equal.get(message.meta.get(_PRINT, ""))
            return None if item is None else ItemPlace(item, int(message.meta[_PART]))

    def _update_fingerprints(self, items: Sequence[Item]) -> None:
        """Print what was not printed before. Items are compared by identity: a list that grows costs little."""
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
            before, printed = self._chain[-1] if self._chain else "", _digest(self._fingerprint(item))
            link = _digest(f"{before}{printed}".encode())
            self._places[link] = self._equal[printed] = len(self._items)
            self._items.append(item)
            self._chain.append(link)
            self._fingerprints.append(printed)

    def _apply_changes(self) -> None:
        reached, gone = self._find_synced()
        fresh = [message for item in range(reached + 1, len(self._items)) for message in self._messages(item)]
        if gone and self.ctx.pending_calls():  # what waits for results cannot be deleted
            self.ctx.close_calls()
        deleting = [{"operation": "delete", "indices": gone}] if gone else []
        try:
            if fresh or gone:
                self._take([*deleting, {"operation": "insert", "data": fresh}] if fresh else deleting)
        except InvalidOperation:  # the list is broken: what no model may be shown is kept aside
            if deleting:
                self._take(deleting)
            self.ctx.import_messages(fresh)

    def _take(self, changes: list[dict[str, Any]]) -> None:
        if len(changes) == 1 and changes[0]["operation"] == "insert":
            self.ctx.add(changes[0]["data"])
        else:
            self.ctx.conversation.modify(changes)

    def _find_synced(self) -> tuple[int, list[int]]:
        """The last item that is in the context, or -1, and the indices of messages whose items the list has not.

        With a result its whole exchange goes, so that the calls that the list still has come in again with it.
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
        if found < 0 or (is_long and len(self._items) == 1):  # the first words again are no way back to the beginning
            return -1, []
        return found, gone[::-1]

    def _synced_messages(self) -> Iterator[tuple[Message, Mark]]:
        """The messages that came from a list and stand in the conversation or beside it, newest first."""
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
        """How many items at the beginning of the list are the last ones of the record."""
        if len(self._items) < 2:  # a word said again is said again
            return 0
        first = (message.meta[_PRINT] for message, _ in self._synced_messages() if message.meta[_PART] == 0)
        record = list(islice(first, min(len(self._items), _FAR)))[::-1]
        sizes = range(min(len(record), len(self._items)), 0, -1)
        return next((size for size in sizes if record[-size:] == self._fingerprints[:size]), 0)

    def _is_prompt(self, message: Message) -> bool:
        """Whether it is the system prompt, which only `system` changes."""
        page = self.ctx.conversation.page_of(message.index) if message.role == "system" else None
        return page is not None and self.ctx.pages.segment_of(page).type is SegmentType.SYSTEM

    def _origin(self, item: int) -> dict[str, str]:
        return {_ITEM: self._chain[item], _PRINT: self._fingerprints[item]}

    def _messages(self, item: int) -> list[Message]:
        return [
            replace(message, meta={**message.meta, **self._origin(item), _PART: part})
            for part, message in enumerate(self._parse(self._items[item]))
        ]


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()


def _is_equal(one: Message, other: Message) -> bool:
    return (one.content, one.tool_calls, one.tool_call_id) == (other.content, other.tool_calls, other.tool_call_id)
