"""Showing a text that is too large clipped at both ends, with a marker that says what is missing and where it is."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from quire.media import media_tokens
from quire.messages import Message, Part, message_tokens, part_texts
from quire.pages import PageIndex

Count = Callable[[str], int]
_HEAD_SHARE = 0.6
_LEAST = 8
"""Fewer tokens of a text are not worth showing: only the marker stands there."""
_MEDIA = ("image", "file", "audio", "other")


def clip_exchange(messages: Sequence[Message], limit: int, index: PageIndex, count: Count) -> list[Message]:
    """The messages of an exchange within so many tokens.

    Thinking goes first, then the largest texts are shortened; images and files go where that is not enough, the
    largest first.
    """
    count = _no_further(count, limit)
    if _size(messages, count) <= limit:
        return list(messages)
    left = [_without_thinking(message, index) for message in messages]
    left = _with_less_media(left, limit, index, count)
    excess = _size(left, count) - limit
    if excess <= 0:
        return left
    texts = [count(message.text) if message.content else 0 for message in left]
    allowed = levelled(texts, max(0, sum(texts) - excess))
    return [
        message if text <= room else _clipped(message, room, index, count)
        for message, text, room in zip(left, texts, allowed, strict=True)
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


def _no_further(count: Count, limit: int) -> Count:
    """Counting that stops where a text is too large anyway: of megabytes only the beginning is looked at."""
    enough = 4_096 + 32 * limit

    def counted(text: str) -> int:
        tokens = count(text[:enough])
        return count(text) if tokens <= limit and len(text) > enough else tokens

    return counted


def _clipped(message: Message, limit: int, index: PageIndex, count: Count) -> Message:
    parts = message.content if isinstance(message.content, list) else []
    kept = [part for part in parts if part.get("type") != "text"]
    text = clip_text(message.text, limit, index, count)
    if count(text) >= count(message.text):  # the marker would be longer than what it stands for
        return message
    content: str | list[Part] = [{"type": "text", "text": text}, *kept] if kept else text
    return replace(message, content=content, raw=None)


def _without_thinking(message: Message, index: PageIndex) -> Message:
    if not isinstance(message.content, list) or not any(part.get("type") == "thinking" for part in message.content):
        return message
    kept = [part for part in message.content if part.get("type") != "thinking"]
    nothing = None if message.tool_calls else _left_out("thinking", index)
    return replace(message, content=kept or nothing, raw=None)


def _with_less_media(messages: list[Message], limit: int, index: PageIndex, count: Count) -> list[Message]:
    """The messages with a word for every image or file that cannot stay, however short the texts become."""
    texts = [count(message.text) if message.content else 0 for message in messages]
    over = _size(messages, count) - sum(texts) + _LEAST * sum(map(bool, texts)) - limit
    found = [
        (_part_size(part, count), place, n)
        for place, message in enumerate(messages)
        for n, part in enumerate(message.content if isinstance(message.content, list) else ())
        if part.get("type") in _MEDIA
    ]
    left = list(messages)
    for size, place, n in sorted(found, key=lambda item: -item[0]):
        if over <= 0:
            break
        content = left[place].content
        parts: list[Part] = list(content) if isinstance(content, list) else []
        parts[n] = {"type": "text", "text": _left_out(str(parts[n]["type"]), index)}
        left[place] = replace(left[place], content=parts, raw=None)
        over -= size
    return left


def _left_out(what: str, index: PageIndex) -> str:
    return f"[… {what} of {index} left out …]"


def _part_size(part: Part, count: Count) -> int:
    return media_tokens(part) + sum(map(count, part_texts(part)))


def _size(messages: Sequence[Message], count: Count) -> int:
    return sum(message_tokens(message, count) for message in messages)


def levelled(sizes: Sequence[int], total: int) -> list[int]:
    """What each may take so that all together take no more than the total: the small ones whole, the large alike."""
    allowed = [0] * len(sizes)
    left = max(0, total)
    order = sorted(range(len(sizes)), key=lambda n: sizes[n])
    for place, n in enumerate(order):
        allowed[n] = min(sizes[n], left // (len(order) - place))
        left -= allowed[n]
    return allowed
