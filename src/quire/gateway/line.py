"""A line: one transcript of a client as a quire context.

Every message that is stored here has tags in its `meta`: the item of the transcript it comes from, with its hash and
role. So a line is read back from its context after a restart. When a client starts its transcript anew (its own
compaction, or a cleared session), an *epoch* begins: the messages before it leave the view; `find` still finds them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from quire.context import Context
from quire.errors import InvalidOperation, InvalidValue
from quire.gateway.identity import Item, Known, Role, hash_item
from quire.gateway.routing import Protocol
from quire.model.messages import Message
from quire.model.pages import Lifecycle, SegmentType
from quire.providers import anthropic, openai, responses
from quire.providers.detection import Entry, unwrap_response
from quire.providers.plain_json import to_plain_json
from quire.view.view import View

PART = "part"
_TAG = "item:"
_ROLES: Mapping[str, Role] = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
_PARSERS: Mapping[Protocol, Callable[[Iterable[Entry]], Iterator[Message]]] = {
    "anthropic": anthropic.parse,
    "openai": openai.parse,
    "responses": responses.parse,
}
_PAST_EPOCHS = 4
_NEWEST = 32
_EARLIER = "Earlier in this session"


class Line:
    """One transcript and its context. `hashes` and `roles` are those of its items in the current epoch."""

    def __init__(self, ctx: Context, protocol: Protocol) -> None:
        self.ctx = ctx
        self.protocol = protocol
        self.epoch = 0
        self.hashes: list[bytes] = []
        self.roles: list[Role] = []
        self.past: list[Known] = []
        self.has_thinking = False
        """Whether a reply of the current epoch has thinking."""
        self.is_broken = False
        """Whether a part of the transcript could not be stored as it is, so that no view of it is sent."""
        self.load()

    @property
    def name(self) -> str:
        """The name of the context."""
        return self.ctx.name

    @property
    def known(self) -> Known:
        """The hashes and roles of the current epoch."""
        return Known(self.hashes, self.roles)

    def load(self) -> None:
        """Read the items of the line from its context, as another process may have changed it."""
        self.ctx.refresh()
        epochs: dict[int, dict[int, str]] = {}
        with_thinking = set()
        for message in self.ctx.messages():
            for epoch, number, tag in tags_of(message):
                epochs.setdefault(epoch, {})[number] = tag
                if message.has_thinking:
                    with_thinking.add(epoch)
        self.epoch = max(epochs, default=0)
        self.has_thinking = self.epoch in with_thinking
        current = epochs.pop(self.epoch, {})
        if len(current) <= max(current, default=-1):  # numbers are missing: such items may not be shown to a model
            self._fill_gaps(current)
        known = _to_known(current)
        self.hashes, self.roles = list(known.hashes), list(known.roles)
        self.past = [_to_known(epochs[epoch]) for epoch in sorted(epochs)[-_PAST_EPOCHS:]]

    def _fill_gaps(self, items: dict[int, str]) -> None:
        self.is_broken = True
        for message in self.ctx.messages(all=True):
            for epoch, number, tag in tags_of(message):
                if epoch == self.epoch and number < max(items):
                    items.setdefault(number, tag)

    def append(self, items: Sequence[Item], view: View | None = None) -> None:
        """Add items at the end, in one commit. `view` is the view that the first reply among them answers."""
        if not items:
            return
        entries = [Entry(f"messages[{n}]", msgspec.json.decode(item.raw), {}) for n, item in enumerate(items)]
        self._add(items, entries, view)

    def _add(self, items: Sequence[Item], entries: Sequence[Entry], view: View | None) -> None:
        messages = list(self._to_messages(items, entries))
        try:
            self.ctx.add(messages, view=view)
        except InvalidOperation:  # a result without its call, for example: it is stored, and not shown
            self.ctx.import_messages(messages)
            self.is_broken = True
        self.hashes += [item.hash for item in items]
        self.roles += [item.role for item in items]

    def _to_messages(self, items: Sequence[Item], entries: Sequence[Entry]) -> Iterator[Message]:
        """Yield the messages of items with their tags."""
        first = len(self.hashes)
        for group in self._groups(entries):
            tags = {f"{_TAG}{self.epoch}.{first + n}": f"{items[n].hash.hex()}{items[n].role[0]}" for n in group}
            messages = self._parse([entries[n] for n in group], items[group[0]].role)
            for part, message in enumerate(messages):
                extra = {PART: part} if len(messages) > 1 else {}
                self.has_thinking = self.has_thinking or message.has_thinking
                yield replace(message, meta={**message.meta, **tags, **extra})

    def _groups(self, entries: Sequence[Entry]) -> list[list[int]]:
        """Return the numbers of the items that form one message: in Responses, all items of a reply."""
        if self.protocol != "responses":
            return [[n] for n in range(len(entries))]
        numbered = [entry._replace(place=str(n)) for n, entry in enumerate(entries)]
        return [[int(entry.place) for entry in group] for group in responses.group_items(numbered)]

    def _parse(self, entries: Sequence[Entry], role: Role) -> list[Message]:
        try:
            found = list(_PARSERS[self.protocol](entries))
            if found:
                return found
        except InvalidValue:
            pass
        self.is_broken = True  # a shape that quire does not know
        text = msgspec.json.encode([entry.value for entry in entries]).decode()
        return [Message(role="assistant" if role == "assistant" else "user", content=text)]

    def add_reply(self, response: Mapping[str, Any], expected: int, view: View | None = None) -> bool:
        """Store the reply to the first `expected` items. The client confirms it when it sends it back.

        Return False if the line has more items by now. The reply to a repeated request replaces the earlier one.
        """
        entries = unwrap_response(to_plain_json(response, "reply"), "reply")
        usable = [entry for entry in entries or () if _has_content(entry.value)]
        items = [Item(b"", hash_item(entry.value), "assistant") for entry in usable]
        before = self.hashes[expected:]
        if not items or any(role != "assistant" for role in self.roles[expected:]) or len(self.hashes) < expected:
            return False
        if before == [item.hash for item in items]:
            return True
        if before:
            self.truncate(expected)
        if len(self.hashes) == expected:
            self._add(items, usable, view)
        return True

    def truncate(self, start: int) -> int:
        """Remove the items from `start` on from the conversation. Return the number of items that are left.

        A result is removed with its call, so fewer than `start` items may be left.
        """
        start = self._exchange_start(start)
        if start < len(self.hashes):
            if self.ctx.pending_calls():
                self.ctx.close_calls()  # an exchange that waits for results cannot be deleted
            indices = self._indices(start)
            if indices:
                self.ctx.conversation.delete(indices)
            del self.hashes[start:], self.roles[start:]
        return start

    def _exchange_start(self, start: int) -> int:
        while 0 < start < len(self.roles) and self.roles[start] == "tool":
            start -= 1
        while (
            self.protocol == "responses"
            and 0 < start < len(self.roles)
            and (self.roles[start] == self.roles[start - 1] == "assistant")
        ):
            start -= 1
        return start

    def _indices(self, start: int) -> list[int]:
        """Return the indices of the messages of the items from `start` on."""
        wanted = len(self.hashes) - start
        for limit in (8 * wanted + _NEWEST, 1 << 40):
            found: dict[int, set[int]] = {}
            for message in self.ctx.conversation.newest(limit):
                for epoch, number, _ in tags_of(message):
                    if epoch == self.epoch and number >= start:
                        found.setdefault(number, set()).add(message.index)
            if len(found) == wanted:
                break
        return sorted({index for indices in found.values() for index in indices})

    def rewrite(self, items: Sequence[Item], common: int, view: View | None = None) -> None:
        """Make the line equal to a transcript that differs from it after `common` items."""
        length, last = len(self.hashes), items[common]
        same = [item.hash for item in items[common + 1 : length]] == self.hashes[common + 1 :]
        is_input = last.role == self.roles[common] and last.role in ("user", "system")
        if same and is_input and length > common + 1:
            indices = self._indices(common)
            messages = self._parse([Entry("message", msgspec.json.decode(last.raw), {})], last.role)
            if len(messages) == 1:
                tag = {f"{_TAG}{self.epoch}.{common}": f"{last.hash.hex()}{last.role[0]}"}
                self.ctx.conversation.replace(indices[0], replace(messages[0], meta=tag))
                self.hashes[common] = last.hash
                self.append(items[length:], view)
                return
        self.append(items[self.truncate(common) :], view)

    def begin_epoch(self) -> None:
        """Take everything out of the view; it stays in the context, where `find` finds it."""
        ctx = self.ctx
        if ctx.pending_calls():
            ctx.close_calls()
        root = next(segment.root_index for segment in ctx.pages.list_segments() if segment.type is SegmentType.USER)
        pages = [page.index for page in ctx.pages.children(root) if page.lifecycle is Lifecycle.ACTIVE]
        if pages:
            ctx.pages.archive(ctx.pages.create_contents_page(_EARLIER, "", root, pages))
        self.past = [*self.past, Known(self.hashes, self.roles)][-_PAST_EPOCHS:]
        self.epoch += 1
        self.hashes, self.roles = [], []
        self.has_thinking = self.is_broken = False


def tags_of(message: Message) -> Iterator[tuple[int, int, str]]:
    """Yield the epoch, the number and the tag of every item that a message comes from."""
    for key, tag in message.meta.items():
        if key.startswith(_TAG) and isinstance(tag, str):
            epoch, _, number = key.removeprefix(_TAG).partition(".")
            yield int(epoch), int(number), tag


def _to_known(items: Mapping[int, str]) -> Known:
    tags: list[str] = []
    while (tag := items.get(len(tags))) is not None:
        tags.append(tag)
    return Known([bytes.fromhex(tag[:-1]) for tag in tags], [_ROLES.get(tag[-1], "user") for tag in tags])


def _has_content(value: Any) -> bool:
    """Return whether a reply is more than an empty message."""
    if not isinstance(value, dict):
        return False
    fields = ("content", "tool_calls", "function_call", "refusal")
    return "role" not in value or any(value.get(field) for field in fields)
