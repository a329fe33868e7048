"""Showing a text that is too large clipped at both ends, with a marker that says what is missing and where it is."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from quire.messages import PER_MESSAGE, Message, counted_texts
from quire.pages import PageIndex

Count = Callable[[str], int]
_HEAD_SHARE = 0.6
_LEAST = 8
"""Fewer tokens of a text are not worth showing: only the marker stands there."""


def clip_exchange(messages: Sequence[Message], limit: int, index: PageIndex, count: Count) -> list[Message]:
    """The messages of an exchange within so many tokens, the largest texts shortened first."""
    sizes = [message_size(message, count) for message in messages]
    texts = [count(message.text) if message.content else 0 for message in messages]
    excess = sum(sizes) - limit
    if excess <= 0:
        return list(messages)
    allowed = _level(texts, max(0, sum(texts) - excess))
    return [
        message if text <= room else _clipped(message, room, index, count)
        for message, text, room in zip(messages, texts, allowed, strict=True)
    ]


def clip_text(text: str, limit: int, index: PageIndex, count: Count) -> str:
    """The beginning and the end of a text with a marker between them, in at most so many tokens."""
    total = len(text)
    room = max(limit * 4, 64)
    while True:
        head = int(room * _HEAD_SHARE)
        end = room - head
        kept = text[:head].rstrip() if head else ""
        last = text[total - end :].lstrip() if end else ""
        marker = f"\n[… {total - head - end:,} of {total:,} characters of {index} left out …]\n"
        shown = f"{kept}{marker}{last}" if room else marker.strip()
        used = count(shown)
        if used <= limit or not room:
            return shown
        room = min(int(room * limit / used * 0.97), room - 1) if limit > _LEAST else 0


def _clipped(message: Message, limit: int, index: PageIndex, count: Count) -> Message:
    parts = message.content if isinstance(message.content, list) else []
    kept = [part for part in parts if part.get("type") not in ("text", "thinking")]
    text = clip_text(message.text, limit, index, count)
    content: str | list[dict[str, object]] = [{"type": "text", "text": text}, *kept] if kept else text
    return replace(message, content=content, raw=None)


def _level(sizes: Sequence[int], total: int) -> list[int]:
    """What each may take so that all together take no more than the total: the small ones whole, the large alike."""
    allowed = [0] * len(sizes)
    left = total
    order = sorted(range(len(sizes)), key=lambda n: sizes[n])
    for place, n in enumerate(order):
        share = left // (len(order) - place)
        allowed[n] = min(sizes[n], share)
        left -= allowed[n]
    return allowed


def message_size(message: Message, count: Count) -> int:
    """What a message costs."""
    return sum(map(count, counted_texts(message))) + PER_MESSAGE * (1 + len(message.tool_calls))
