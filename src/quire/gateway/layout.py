"""The layout of a view in the items of a transcript: which items are sent unchanged, and what replaces the others.

An item that the view shows whole keeps its bytes. If a part of an item is folded, its other blocks keep their bytes.
Signed thinking is left out if the messages before it changed. All other parts of the view are texts in user messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from quire.gateway.identity import Item
from quire.gateway.line import PART, tags_of
from quire.gateway.routing import Protocol
from quire.gateway.spans import content_blocks, drop_id, replace_content
from quire.model.messages import Message, messages_to_text
from quire.providers import format_request
from quire.view.parts import ViewPart
from quire.view.view import View

PREAMBLE = (
    "Context key: {key}. Earlier parts of this conversation are folded to save space. In a block headed [{key}] each"
    " line is a folded part: [index tokens] name: summary; indented lines continue it. Such lines without the key are"
    " quotations. Nothing is lost: if you have tools named find and read_page, find searches all folded parts and"
    " read_page reads one by its index. Do not mention this note; continue the conversation."
)
_ENVIRONMENT = ("<system-reminder>", "# Environment", "<environment_context>", "# AGENTS.md")
"""The beginnings of messages in which clients describe the working folder, the rules of a project, and tools."""
_THINKING = ("thinking", "redacted_thinking")
_PLAIN = ("exchange", "opening", "preamble")


class TextPiece(NamedTuple):
    """Texts that are sent as one message of the user."""

    texts: tuple[str, ...]


class ItemPiece(NamedTuple):
    """Items that are sent: their numbers, the parts of the item that are shown, and whether their thinking is sent.

    No `parts` means all of them. `clipped` are messages with shortened texts, by their part; they are written anew.
    """

    numbers: tuple[int, ...]
    parts: tuple[int, ...] = ()
    thinking: bool = True
    clipped: Mapping[int, Message] = {}


class Layout(NamedTuple):
    """The pieces of a view of the first `total` items; None if every item is shown as it is."""

    pieces: tuple[TextPiece | ItemPiece, ...] | None
    total: int

    @property
    def front(self) -> tuple[TextPiece, ...]:
        """The texts. They stay the same until the next fold."""
        return tuple(piece for piece in self.pieces or () if isinstance(piece, TextPiece))

    def shows(self, number: int) -> bool:
        """Return whether an item is sent."""
        pieces = self.pieces or ()
        return self.pieces is None or any(isinstance(piece, ItemPiece) and number in piece.numbers for piece in pieces)

    def before(self, end: int) -> "Layout | None":
        """Return the layout of the first `end` items; None if a later item is folded in it."""
        if self.pieces is None:
            return Layout(None, end)
        shown = {number for piece in self.pieces if isinstance(piece, ItemPiece) for number in piece.numbers}
        if any(number not in shown for number in range(end, self.total)):
            return None
        kept = [piece for piece in self.pieces if isinstance(piece, TextPiece) or max(piece.numbers) < end]
        return Layout(tuple(kept), end)


@dataclass
class ViewLayouter:
    """Lays out the views of one epoch of a line. If a view begins with the last one, only its new parts are laid out.

    All folded lines are in one text at the front, after the preamble.
    """

    epoch: int
    parts: tuple[ViewPart, ...] = ()
    pieces: list[TextPiece | ItemPiece] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)
    is_plain: bool = True

    def lay_out(self, view: View, total: int, key: str) -> Layout:
        """Return the layout of a view of the first `total` items."""
        start = len(self.parts)
        if view.parts[:start] != self.parts:
            start, self.pieces, self.folded, self.is_plain = 0, [], [], True
        self.parts = view.parts
        for part in self.parts[start:]:
            self._add_part(part)
        if self.is_plain:
            return Layout(None, total)
        front = [TextPiece((PREAMBLE.replace("{key}", key), *self.folded))] if self.folded else []
        return Layout((*front, *self.pieces), total)

    def _add_part(self, part: ViewPart) -> None:
        self.is_plain = self.is_plain and part.kind in _PLAIN and not _is_clipped(part)
        if part.kind == "folded":
            self.folded.append(part.messages[0].text)
        elif part.kind not in ("opening", "preamble"):
            for piece in _split_part(part, self.epoch):
                _add_piece(self.pieces, piece)


def _split_part(part: ViewPart, epoch: int) -> Sequence[TextPiece | ItemPiece]:
    """Return the pieces of a part: one for each message that comes from items, otherwise one text."""
    tagged = [(message, _numbers(message, epoch)) for message in part.messages]
    if part.kind == "exchange" and any(numbers for _, numbers in tagged):
        clipped = _is_clipped(part)  # a message without numbers only says that a result is missing
        return [_to_piece(message, numbers, clipped=clipped) for message, numbers in tagged if numbers]
    return [TextPiece((_text_of(part.messages),))]


def pin_items(layout: Layout, numbers: Sequence[int]) -> Layout:
    """Return a folded layout that also shows these items, whole and in their order."""
    if layout.pieces is None:
        return layout
    pieces = list(layout.pieces)
    for number in numbers:
        if layout.shows(number):
            continue
        later = (n for n, piece in enumerate(pieces) if isinstance(piece, ItemPiece) and piece.numbers[0] > number)
        pieces.insert(next(later, len(pieces)), ItemPiece((number,)))
    return Layout(tuple(pieces), layout.total)


def extend_layout(layout: Layout | None, total: int) -> Layout:
    """Return a layout of the first `total` items that shows all items after those of `layout`."""
    kept = None if layout is None else layout.before(min(layout.total, total))
    if kept is None or kept.pieces is None:
        return Layout(None, total)
    return Layout((*kept.pieces, *(ItemPiece((n,)) for n in range(kept.total, total))), total)


def find_environment(items: Sequence[Item]) -> list[int]:
    """Return the numbers of the items before the first reply that describe the client's environment."""
    end = next((n for n, item in enumerate(items) if item.role == "assistant"), 0)
    return [n for n, item in enumerate(items[:end]) if _first_text(item.raw).lstrip().startswith(_ENVIRONMENT)]


def _first_text(raw: bytes) -> str:
    content = msgspec.json.decode(raw).get("content")
    first = content[0] if isinstance(content, list) and content else content
    text = first.get("text") if isinstance(first, dict) else first
    return text if isinstance(text, str) else ""


def _is_clipped(part: ViewPart) -> bool:
    return bool(part.pages) and part.pages[0].granularity == "clipped"


def _numbers(message: Message, epoch: int) -> tuple[int, ...]:
    return tuple(sorted(number for found, number, _ in tags_of(message) if found == epoch))


def _text_of(messages: Sequence[Message]) -> str:
    """Return the text of quire's own parts, or of messages of an earlier epoch that someone opened again."""
    is_own = all(message.role == "user" and not message.meta for message in messages)
    return "\n".join(message.text for message in messages) if is_own else messages_to_text(messages)


def _to_piece(message: Message, numbers: tuple[int, ...], *, clipped: bool) -> ItemPiece:
    part = int(message.meta.get(PART, 0))
    return ItemPiece(numbers, (part,), message.has_thinking, {part: message} if clipped else {})


def _add_piece(pieces: list[TextPiece | ItemPiece], piece: TextPiece | ItemPiece) -> None:
    """Add a piece. Texts in a row are one piece, and so are the parts of one item."""
    last = pieces[-1] if pieces else None
    if isinstance(piece, TextPiece):
        if isinstance(last, TextPiece):
            pieces[-1] = TextPiece((*last.texts, *piece.texts))
        elif piece.texts[0].strip():
            pieces.append(piece)
    elif isinstance(last, ItemPiece) and last.numbers == piece.numbers:
        parts, clipped = (*last.parts, *piece.parts), {**last.clipped, **piece.clipped}
        pieces[-1] = ItemPiece(piece.numbers, parts, last.thinking and piece.thinking, clipped)
    else:
        pieces.append(piece)


@dataclass
class LastWrite:
    """The input and output of the last write for a line. `counts[n]` is the number of written items up to piece n."""

    bounds: tuple[int, int] = (0, 0)
    items: list[Item] = field(default_factory=list)
    pieces: tuple[TextPiece | ItemPiece, ...] = ()
    raws: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


class Writer:
    """Writes the items of a layout. Thinking from item `loop` on is always sent, before item `strip` never.

    If a layout begins with the pieces of the last one (`last`), and the items are the same, these are not written
    again.
    """

    def __init__(
        self, items: Sequence[Item], protocol: Protocol, *, loop: int, strip: int, last: LastWrite | None = None
    ) -> None:
        self._items = list(items)
        self._protocol = protocol
        self._loop = loop
        self._strip = strip
        self._last = LastWrite() if last is None else last

    def write(self, layout: Layout) -> list[bytes]:
        """Return the bytes of all items of a layout."""
        last, pieces = self._last, layout.pieces or ()
        common = self._count_common(pieces)
        counts = last.counts[:common]
        raws = last.raws[: counts[-1]] if counts else []
        for piece in pieces[common:]:
            raws += [self._write_text(piece.texts)] if isinstance(piece, TextPiece) else self._write_item(piece)
            counts.append(len(raws))
        last.bounds, last.items, last.pieces = (self._loop, self._strip), self._items, pieces
        last.raws, last.counts = raws, counts
        return list(raws)

    def _count_common(self, pieces: tuple[TextPiece | ItemPiece, ...]) -> int:
        """Return how many pieces are written already. The last piece may have grown, and an item may have changed."""
        last, count = self._last, len(self._last.pieces) - 1
        if count < 1 or last.bounds != (self._loop, self._strip) or pieces[:count] != last.pieces[:count]:
            return 0
        pairs = enumerate(zip(last.items, self._items, strict=False))
        changed = {n for n, (before, now) in pairs if before is not now and before != now}
        for n, piece in enumerate(pieces[:count]):
            if isinstance(piece, ItemPiece) and not changed.isdisjoint(piece.numbers):
                return n
        return count

    def _write_text(self, texts: Sequence[str]) -> bytes:
        if self._protocol == "openai":
            return msgspec.json.encode({"role": "user", "content": "\n\n".join(texts)})
        kind = "text" if self._protocol == "anthropic" else "input_text"
        blocks = [{"type": kind, "text": text} for text in texts]
        extra = {} if self._protocol == "anthropic" else {"type": "message"}
        return msgspec.json.encode({**extra, "role": "user", "content": blocks})

    def _write_item(self, piece: ItemPiece) -> list[bytes]:
        raws, keeps = [self._items[number].raw for number in piece.numbers], self._keeps_thinking(piece)
        if self._protocol == "anthropic":
            found = self._write_blocks(raws[0], piece, keeps)
            return [found] if found else []
        if piece.clipped:
            return [
                msgspec.json.encode(value) for value in format_request(list(piece.clipped.values()), self._protocol)
            ]
        if self._protocol == "openai" or keeps:
            return raws
        return drop_reasoning(raws)

    def _keeps_thinking(self, piece: ItemPiece) -> bool:
        first = piece.numbers[0]
        return first >= self._strip and (piece.thinking or first >= self._loop)

    def _write_blocks(self, raw: bytes, piece: ItemPiece, keeps: bool) -> bytes | None:
        """Return a message of Anthropic with the blocks that are shown; None if none is left."""
        blocks = content_blocks(raw)
        groups = [[0]] if blocks is None else _group_blocks(blocks)
        parts = sorted(piece.parts) or list(range(len(groups)))
        is_whole = parts == list(range(len(groups))) and not piece.clipped
        if is_whole and (keeps or not _has_thinking(blocks)):
            return raw
        if blocks is None:
            return msgspec.json.encode(format_request(list(piece.clipped.values()), "anthropic")[0])
        shown: list[bytes] = []
        for part in parts:
            if part in piece.clipped:
                shown += _write_clipped(piece.clipped[part])
            elif part < len(groups):
                shown += [blocks[n][1] for n in groups[part] if keeps or blocks[n][0] not in _THINKING]
        return replace_content(raw, shown) if shown else None


def _write_clipped(message: Message) -> list[bytes]:
    found: Any = format_request([message], "anthropic")[0]["content"]
    blocks = [{"type": "text", "text": found}] if isinstance(found, str) else found
    return [msgspec.json.encode(block) for block in blocks]


def _group_blocks(blocks: Sequence[tuple[str, bytes]]) -> list[list[int]]:
    """Group the blocks of a message as quire splits it: each tool result alone, other neighbouring blocks together."""
    is_split = any(kind == "tool_result" for kind, _ in blocks)
    groups: list[list[int]] = []
    for n, (kind, _) in enumerate(blocks):
        if n and not (is_split and "tool_result" in (kind, blocks[n - 1][0])):
            groups[-1].append(n)
        else:
            groups.append([n])
    return groups


def _has_thinking(blocks: Sequence[tuple[str, bytes]] | None) -> bool:
    return any(kind in _THINKING for kind, _ in blocks or ())


def drop_thinking(raw: bytes) -> bytes | None:
    """Return a message of Anthropic without thinking; None if nothing is left."""
    blocks = content_blocks(raw)
    if not _has_thinking(blocks):
        return raw
    kept = [block for kind, block in blocks or () if kind not in _THINKING]
    return replace_content(raw, kept) if kept else None


def drop_reasoning(raws: Sequence[bytes]) -> list[bytes]:
    """Return items of Responses without reasoning, and without ids: OpenAI refuses an id without its reasoning."""
    kept = [raw for raw in raws if msgspec.json.decode(raw, type=dict[str, Raw]).get("type") != Raw(b'"reasoning"')]
    return list(raws) if len(kept) == len(raws) else [drop_id(raw) for raw in kept]
