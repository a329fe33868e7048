"""Synchronise a context with a list that a framework owns.

A framework passes its whole history with every call, and as new objects after a restart. The context follows the list:
messages that left it are deleted from the conversation (the store keeps them); new ones are added at their place. Every
message that is added here stores two fingerprints in its `meta`: one of its item, and one of the list up to its item.
So the newest message shows how far the context is synchronised, whoever wrote it. Only if the list changed before its
end, the stored messages are compared with it. Messages that a developer edited, deleted or compressed are known and are
not added again.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from hashlib import blake2b
from itertools import compress, count
from operator import is_not
from threading import RLock
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from quire.adapters.stored_list import take_out
from quire.context import Context
from quire.conversation.arrivals import place_before, receive, store_marked
from quire.conversation.sequence import numbers_in_place
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import PageRecord
from quire.errors import InvalidOperation
from quire.model.messages import Message, Role
from quire.model.pages import Mark
from quire.model.text import decode_meta, encode_meta
from quire.view.view import View

ITEM, PRINT, PART = "item", "print", "part"
"""Keys in a message's `meta`: the fingerprint of the list up to its item, that of the item, the place in the item."""
_LIST = "list"
"""The key in a page's `meta`: the fingerprint of the list after the last changes inside it, or `_REMOVED`."""
_REMOVED = "removed"
_SHOWN = (Mark.NONE, Mark.COMPRESSED, Mark.UNSHOWABLE)

Key = tuple[str, int]
"""The fingerprint of an item, and the place of a message in it."""


class StoredMessage(NamedTuple):
    """A stored message that came from the list. `chain` is the list's fingerprint up to its item when it was added."""

    number: int
    position: int
    key: Key
    chain: str
    role: Role
    mark: Mark
    page: PageRecord
    is_prompt: bool


class ListedMessage(NamedTuple):
    """A message of the list: its key, and the place of its item."""

    key: Key
    item: int
    message: Message


class ListChanges(NamedTuple):
    """The messages to delete, those to insert before others, by number, and those to add at the end."""

    gone: list[StoredMessage]
    inserted: list[tuple[int, ListedMessage]]
    added: list[ListedMessage]
    kept: int
    """The last item of the list that is stored or inserted; -1 if there is none."""


def find_chain(reader: Reader) -> str | None:
    """Return the fingerprint of the list that the context has; None if it has none."""
    newest = next(_known(reader, reversed(range(reader.next_message))), None)
    return None if newest is None else decode_meta(newest.page.header.meta).get(_LIST, newest.chain)


def read_record(reader: Reader) -> list[StoredMessage]:
    """Return the messages that came from the list, in order. A hidden one follows those that arrived before it."""
    known = {message.number: message for message in _known(reader, range(reader.next_message))}
    shown = [number for number in numbers_in_place(reader) if number in known]
    hidden: defaultdict[int, list[int]] = defaultdict(list)
    order = {number: place for place, number in enumerate(shown)}
    arrived = sorted(shown)
    last = -1
    latest = [last := max(last, order[number]) for number in arrived]  # the last place of an earlier message
    for number in sorted(known.keys() - order.keys()):
        before = bisect_right(arrived, number)
        hidden[latest[before - 1] if before else -1].append(number)
    return [
        known[number]
        for place in range(-1, len(shown))
        for number in (*([shown[place]] if place >= 0 else []), *hidden[place])
    ]


def _known(reader: Reader, numbers: Sequence[int] | Iterator[int]) -> Iterator[StoredMessage]:
    numbering = reader.numbering()
    for number in numbers:
        index = numbering.index(number)
        message = None if index is None else reader.message(number).message
        page = reader.page_of(number) if message is not None and ITEM in message.meta else None
        if page is None or message is None or index is None:
            continue
        mark = reader.mark_of(number)
        if mark is Mark.ENDED or decode_meta(page.header.meta).get(_LIST) == _REMOVED:
            continue
        yield StoredMessage(
            number=number,
            position=index,
            key=(message.meta[PRINT], int(message.meta[PART])),
            chain=message.meta[ITEM],
            role=message.role,
            mark=mark,
            page=page,
            is_prompt=reader.in_system(page),
        )


def find_changes(record: Sequence[StoredMessage], listed: Sequence[ListedMessage]) -> ListChanges:
    """Return the changes that make the stored messages equal to the list."""
    wanted = _with_results(listed)
    matcher = SequenceMatcher(None, [one.key for one in record], [one.key for one in wanted], autojunk=False)
    kept = {block.a + n: block.b + n for block in matcher.get_matching_blocks() for n in range(block.size)}
    exchanges: defaultdict[int, list[int]] = defaultdict(list)
    for place, stored in enumerate(record):
        exchanges[stored.page.key].append(place)
    for places in exchanges.values():
        if any(place not in kept for place in places):  # an exchange is kept whole or not at all
            for place in places:
                kept.pop(place, None)
    at = {there: record[here] for here, there in kept.items()}
    inserted: list[tuple[int, ListedMessage]] = []
    added: list[ListedMessage] = []
    before: int | None = None
    for place in range(len(wanted) - 1, -1, -1):
        if place not in at and before is None:
            added.append(wanted[place])
        elif place not in at and before is not None:
            inserted.append((before, wanted[place]))
        elif not at[place].is_prompt:
            before = at[place].page.header.numbers[0]
    return ListChanges(
        gone=[one for place, one in enumerate(record) if place not in kept and _can_leave(one)],
        inserted=inserted[::-1],
        added=sorted(added, key=lambda one: (one.item, one.key[1])),
        kept=max((wanted[place].item for place in at), default=-1),
    )


def _can_leave(stored: StoredMessage) -> bool:
    """Return whether a message leaves the conversation with its item. Prompts and pinned messages stay."""
    return stored.mark in _SHOWN and not stored.is_prompt and not stored.page.header.pinned


def _with_results(listed: Sequence[ListedMessage]) -> list[ListedMessage]:
    """Return the messages with each result after its call, as a context has them."""
    groups: list[list[ListedMessage]] = []
    calling: dict[str | None, list[ListedMessage]] = {}
    for one in listed:
        if one.message.role == "tool" and one.message.tool_call_id in calling:
            calling[one.message.tool_call_id].append(one)
        else:
            groups.append([one])
        calling.update((call.id, groups[-1]) for call in one.message.tool_calls)
    return [one for group in groups for one in group]


def apply_changes(plan: Plan, changes: ListChanges, chain: str) -> None:
    """Plan the deletions and insertions. `chain` is the fingerprint of the list up to `changes.kept`."""
    for stored in changes.gone:
        page = plan.page_of(stored.number)
        if page is not None:
            plan.change(page, meta=encode_meta({**decode_meta(page.header.meta), _LIST: _REMOVED}))
    take_out(plan, [stored.position for stored in changes.gone])
    for before, one in changes.inserted:
        message = replace(one.message, meta={**one.message.meta, ITEM: ""})  # empty: no list ends with it
        arrived = plan.next_message
        try:
            place = None if message.role == "tool" else place_before(plan, before)
            is_new = receive(plan, message, place) >= arrived
        except InvalidOperation:  # for example a result without a call
            is_new = False
        if not is_new:
            store_marked(plan, message)
    newest = next(_known(plan, reversed(range(plan.next_message))), None)
    if newest is not None and changes.kept >= 0:
        plan.change(newest.page, meta=encode_meta({**decode_meta(newest.page.header.meta), _LIST: chain}))


Item = TypeVar("Item")


class ItemPlace(NamedTuple):
    """The origin of a message: the position of its item in the list, and of the message in the item."""

    item: int
    part: int


class ListSync(Generic[Item]):
    """Keeps the conversation of a context equal to a list of a framework's items.

    `parse` returns the messages of an item (possibly none). `fingerprint` takes an item and its messages; it returns
    bytes that are equal for equal items, also after a restart.
    """

    def __init__(
        self,
        ctx: Context,
        parse: Callable[[Item], Sequence[Message]],
        fingerprint: Callable[[Item, Sequence[Message]], bytes],
    ) -> None:
        self.ctx = ctx
        self._parse = parse
        self._fingerprint = fingerprint
        self._items: list[Item] = []
        self._chain: list[str] = []
        self._fingerprints: list[str] = []
        self._parsed: dict[int, Sequence[Message]] = {}
        self._origins: dict[int, tuple[Message, ItemPlace]] = {}
        """The messages that the last view shows unchanged, by their identity, with their places."""
        self._places: dict[str, int] = {}
        self._equal: dict[str, int] = {}
        self._lock = RLock()

    def update(self, items: Sequence[Item], view: View | None = None, *, whole: bool = False) -> None:
        """Synchronise the context with the list. Retry if another writer was first.

        `view` is the view that a new reply at the end of the list answers. `whole` says that the list has the whole
        conversation. Otherwise a list that has no stored item is a new part, which is added at the end.
        """
        with self._lock:
            self._update_fingerprints(items)
            self.ctx.pages._engine.retry(lambda: self._apply_changes(view, whole))

    def find_origins(self, view: View) -> Iterator[tuple[Message, ItemPlace | None]]:
        """Yield the messages of a view, each with its place in the list if the view shows it unchanged."""
        with self._lock:
            shown: set[int] = set()
            known, self._origins = self._origins, {}
            for message in view.messages:
                origin = known.get(id(message))  # `known` holds the message, so no other one has its id
                place = self.find_source(message) if origin is None else origin[1]
                if place is not None:
                    shown.add(place.item)
                    if origin is not None or _is_equal(message, self._parse_once(place.item)[place.part]):
                        self._origins[id(message)] = message, place
                    else:
                        place = None
                yield message, place
            self._parsed = {item: messages for item, messages in self._parsed.items() if item in shown}

    def find_source(self, message: Message) -> ItemPlace | None:
        """Return the place of a message of a view, whole or clipped; None if it is not from the list."""
        with self._lock:
            item = self._equal.get(message.meta.get(PRINT, ""))
            return None if item is None else ItemPlace(item, int(message.meta[PART]))

    def _update_fingerprints(self, items: Sequence[Item]) -> None:
        """Compute the fingerprints of new items. Items are compared by identity, so a growing list costs little."""
        shortest = min(len(self._items), len(items))
        same = next(compress(count(), map(is_not, self._items, items)), shortest)
        if same < len(self._items):
            self._origins.clear()
        for gone, printed in zip(self._chain[same:], self._fingerprints[same:], strict=True):
            self._places.pop(gone, None)
            self._equal.pop(printed, None)
        self._parsed = {place: messages for place, messages in self._parsed.items() if place < same}
        del self._items[same:], self._chain[same:], self._fingerprints[same:]
        for place, item in enumerate(items[same:], same):
            messages = self._parse(item)
            before = self._chain[-1] if self._chain else ""
            printed = _digest(self._redacted_fingerprint(item, messages))
            link = _digest(f"{before}{printed}".encode())
            if printed in self._equal:  # the newest of equal items is the origin
                self._origins.clear()
            self._parsed[place] = messages
            self._places[link] = self._equal[printed] = place
            self._items.append(item)
            self._chain.append(link)
            self._fingerprints.append(printed)

    def _redacted_fingerprint(self, item: Item, messages: Sequence[Message]) -> bytes:
        """Return the fingerprint of an item as it is stored, without what `redact` removes."""
        redaction, found = self.ctx.pages._engine.redaction, self._fingerprint(item, messages)
        return (
            found if redaction is None else redaction.json_text(found.decode(errors="replace"), compact=True).encode()
        )

    def _apply_changes(self, view: View | None, whole: bool) -> None:
        engine = self.ctx.pages._engine
        reached = self._places.get(engine.read(find_chain) or "", -1)
        if reached >= 0 or not (self._items or whole):
            added = self._listed(reached + 1)
        else:
            record = engine.read(read_record)
            changes = find_changes(record if whole else self._part_of_list(record), self._listed(0))
            if changes.gone or changes.inserted:
                chain = self._chain[changes.kept] if changes.kept >= 0 else ""
                engine.run(self.ctx.pages.actor, "sync_list", apply_changes, changes, chain)
            added = changes.added
        fresh = [one.message for one in added]
        try:
            if fresh:
                self.ctx.conversation._add_parsed(fresh, view)
        except (InvalidOperation, OverflowError):  # the list is broken: import stores what no model may see
            self.ctx.import_messages(fresh)

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
        listed: list[ListedMessage] = []
        for item in range(start, len(self._items)):
            printed = self._fingerprints[item]
            for part, message in enumerate(self._parse_once(item)):
                meta = {**message.meta, ITEM: self._chain[item], PRINT: printed, PART: part}
                listed.append(ListedMessage((printed, part), item, replace(message, meta=meta)))
        return listed

    def _parse_once(self, item: int) -> Sequence[Message]:
        """Return the messages of an item. Those that a view shows are kept for the next view."""
        if item not in self._parsed:
            self._parsed[item] = self._parse(self._items[item])
        return self._parsed[item]


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()


def _is_equal(one: Message, other: Message) -> bool:
    return (one.content, one.tool_calls, one.tool_call_id) == (other.content, other.tool_calls, other.tool_call_id)
