"""Compare a framework's list with the messages that a context stores of it, and plan the changes.

What the list no longer has is deleted; its page is marked as removed from the list. What is new in the list is inserted
at its place. Messages that a developer edited, deleted or compressed are known and are not added again.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from msgspec.structs import replace

from quire.adapters.stored_list import take_out
from quire.conversation.arrivals import place_before, receive, store_marked
from quire.conversation.sequence import numbers_in_place
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import PageRecord
from quire.errors import InvalidOperation
from quire.model.messages import Message, Role
from quire.model.pages import Mark
from quire.model.text import decode_meta, encode_meta

ITEM, PRINT, PART = "item", "print", "part"
"""The keys in a message's `meta`: fingerprints of the list up to its item and of the item, and its place in it."""
_LIST = "list"
"""The key in a page's `meta`: the fingerprint of the list after the last changes inside it, or `_REMOVED`."""
_REMOVED = "removed"
_SHOWN = (Mark.NONE, Mark.COMPRESSED, Mark.UNSHOWABLE)

Key = tuple[str, int]
"""The fingerprint of an item, and the place of a message in it."""


class StoredMessage(NamedTuple):
    """A stored message that came from the list. `chain` is the fingerprint of the list up to its item, then."""

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
    """Return the messages that came from the list, in their order. Hidden ones follow those that arrived before."""
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
        meta = {} if index is None else reader.message(number).message.meta
        page = reader.page_of(number) if ITEM in meta else None
        if page is None or index is None:
            continue
        mark = reader.mark_of(number)
        if mark is Mark.ENDED or decode_meta(page.header.meta).get(_LIST) == _REMOVED:
            continue
        message = reader.message(number).message
        yield StoredMessage(
            number=number,
            position=index,
            key=(meta[PRINT], int(meta[PART])),
            chain=meta[ITEM],
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
    """Return whether a message leaves the conversation with its item. A prompt stays, and what a developer pinned."""
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
        message = replace(one.message, meta={**one.message.meta, ITEM: ""})  # no list begins or ends with it
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
