"""Synchronise a context with a list that a framework owns.

A framework passes its whole history with every call, and as new objects after a restart. The list is the truth: what
it no longer has is deleted from the conversation (the record keeps it), and what is new is added at its place. Every
message that is added here stores two fingerprints in its `meta`: one of its item, and one of the list up to its item.
So the newest message shows how far the context is synchronised, whoever wrote it. Only if the list changed before its
end, the stored messages are compared with it.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from threading import RLock
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from quire.adapters.list_changes import (
    ITEM,
    PART,
    PRINT,
    ListChanges,
    ListedMessage,
    StoredMessage,
    apply_changes,
    find_chain,
    find_changes,
    read_record,
)
from quire.context import Context
from quire.errors import InvalidOperation
from quire.model.messages import Message
from quire.view.view import View

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

    def update(self, items: Sequence[Item], view: View | None = None, *, whole: bool = False) -> None:
        """Synchronise the context with the list. Retry if another writer was first.

        `view` is the view that a new reply at the end of the list answers. `whole` says that the list has the whole
        conversation. Otherwise a list without a stored item begins anew and is added to what is stored.
        """
        with self._lock:
            self._update_fingerprints(items)
            self.ctx.pages._engine.retry(lambda: self._apply_changes(view, whole))

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
            item = self._equal.get(message.meta.get(PRINT, ""))
            return None if item is None else ItemPlace(item, int(message.meta[PART]))

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

    def _apply_changes(self, view: View | None, whole: bool) -> None:
        engine = self.ctx.pages._engine
        reached = self._places.get(engine.read(find_chain) or "", -1)
        if reached >= 0 or not (self._items or whole):
            added = self._listed(reached + 1)
        else:
            changes = self._find_changes(whole)
            if changes.gone or changes.inserted:
                chain = self._chain[changes.kept] if changes.kept >= 0 else ""
                engine.run(self.ctx.pages.actor, "sync_list", apply_changes, changes, chain)
            added = changes.added
        fresh = [one.message for one in added]
        try:
            if fresh:
                self.ctx.add(fresh, view=view)
        except InvalidOperation:  # the list is broken: import stores what no model may see
            self.ctx.import_messages(fresh)

    def _find_changes(self, whole: bool) -> ListChanges:
        record = self.ctx.pages._engine.read(read_record)
        return find_changes(record if whole else self._part_of_list(record), self._listed(0))

    def _part_of_list(self, record: list[StoredMessage]) -> list[StoredMessage]:
        """Return the stored messages that the list replaces; none if the list begins anew."""
        starts = (place for place, one in enumerate(record) if (one.chain, one.key[1]) == (self._chain[0], 0))
        start = max(starts, default=-1)
        if start >= 0:
            is_repeated = len(self._items) == 1 and any(one.role == "user" for one in record[start + 1 :])
            return [] if is_repeated else record[start:]  # a repeated first message is not a step back
        is_known = len(self._items) > 1 and any(one.key[0] in self._equal for one in record)
        return record if is_known else []

    def _listed(self, start: int) -> list[ListedMessage]:
        """Return the messages of the items from this one on."""
        return [
            ListedMessage((self._fingerprints[item], part), item, message)
            for item in range(start, len(self._items))
            for part, message in enumerate(self._messages(item))
        ]

    def _messages(self, item: int) -> list[Message]:
        origin = {ITEM: self._chain[item], PRINT: self._fingerprints[item]}
        return [
            replace(message, meta={**message.meta, **origin, PART: part})
            for part, message in enumerate(self._parse(self._items[item]))
        ]


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()


def _is_equal(one: Message, other: Message) -> bool:
    return (one.content, one.tool_calls, one.tool_call_id) == (other.content, other.tool_calls, other.tool_call_id)
