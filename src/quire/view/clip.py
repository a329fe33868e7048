"""Clipping: showing a text that is too large by its two ends, with a marker that says how much is missing."""

import json
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from quire.model.media import count_media_tokens
from quire.model.messages import Message, Part, ToolCall, count_message_tokens, iterate_part_texts
from quire.model.pages import PageIndex

Count = Callable[[str], int]
_HEAD_SHARE = 0.6
_MIN_CLIP = 8
"""Fewer tokens of a text are not worth showing: only the marker is shown."""
_LONG_CALL = 64
"""Arguments of fewer tokens are not clipped."""
_MEDIA = ("image", "file", "audio", "other")


def clip_exchange(messages: Sequence[Message], limit: int, index: PageIndex, count: Count) -> list[Message]:
    """Return the messages of an exchange within `limit` tokens.

    Thinking is removed first, then the largest texts and call arguments are shortened. Where that is not enough, images
    and files are removed, the largest first.
    """
    count = _stop_early(count, limit)
    if _size(messages, count) <= limit:
        return list(messages)
    left = [_without_thinking(message, index) for message in messages]
    left = _with_less_media(left, limit, index, count)
    excess = _size(left, count) - limit
    if excess <= 0:
        return left
    sizes = [_sizes(message, count) for message in left]
    every = [size for row in sizes for size in row]
    allowed = iter(share_equally(every, max(0, sum(every) - excess)))
    return [
        _shorten_message(message, row, [next(allowed) for _ in row], index, count)
        for message, row in zip(left, sizes, strict=True)
    ]


def clip_text(text: str, limit: int, index: PageIndex, count: Count, quote: Callable[[str], str] = str) -> str:
    """Return the beginning and the end of a text with a marker between them, in at most `limit` tokens.

    `quote` is applied to both ends, not to the marker.
    """
    total = len(text)
    room = max(limit * 4, 64)
    while True:
        head = int(room * _HEAD_SHARE)
        end = room - head
        kept = text[:head].rstrip() if head else ""
        last = text[total - end :].lstrip() if end else ""
        marker = f"\n[… {total - head - end:,} of {total:,} characters of {index} left out …]\n"
        shown = f"{quote(kept)}{marker}{quote(last)}" if room else marker.strip()
        used = count(shown)
        if used <= limit or not room:
            return shown
        room = min(int(room * limit / used * 0.97), room - 1) if limit > _MIN_CLIP else 0


def text_size(messages: Sequence[Message]) -> int:
    """Return about how many characters the texts and call arguments of messages have."""
    size = 0
    for message in messages:
        size += sum(len(call.arguments) for call in message.tool_calls)
        if isinstance(message.content, str):
            size += len(message.content)
        elif message.content:
            size += sum(len(text) for part in message.content for text in iterate_part_texts(part))
    return size


def _stop_early(count: Count, limit: int) -> Count:
    """Return a counter that reads a text only until it has more than `limit` tokens, and caches the result."""
    known: dict[str, int] = {}

    def count_early(text: str) -> int:
        tokens = known.get(text)
        end = 4_096 + 8 * limit
        while tokens is None:
            found = count(text[:end])
            tokens = found if found > limit or end >= len(text) else None
            end *= 8
        known[text] = tokens
        return tokens

    return count_early


def _sizes(message: Message, count: Count) -> list[int]:
    """Return the tokens of the text of a message and of the arguments of each call; 0 for what is not shortened."""
    arguments = [count(call.arguments) for call in message.tool_calls]
    text = count(message.text) if message.content else 0
    return [text, *(size if size > _LONG_CALL else 0 for size in arguments)]


def _shorten_message(message: Message, sizes: list[int], allowed: list[int], index: PageIndex, count: Count) -> Message:
    if sizes[0] > allowed[0]:
        message = _clip_message(message, allowed[0], index, count)
    if sizes[1:] == allowed[1:]:
        return message
    calls = zip(message.tool_calls, sizes[1:], allowed[1:], strict=True)
    shorter = [call if size <= room else _clip_call(call, room, index, count) for call, size, room in calls]
    return replace(message, tool_calls=tuple(shorter), raw=None)


def _clip_call(call: ToolCall, limit: int, index: PageIndex, count: Count) -> ToolCall:
    """Return the call with its longest texts clipped, or with a marker in place of its arguments."""
    if call.custom:
        return replace(call, arguments=clip_text(call.arguments, limit, index, count))
    written = _clipped_values(call.arguments, limit, index, count)
    if written is None:
        written = json.dumps({"clipped": clip_text(call.arguments, _MIN_CLIP, index, count)}, ensure_ascii=False)
    return replace(call, arguments=written) if count(written) < count(call.arguments) else call


def _clipped_values(arguments: str, limit: int, index: PageIndex, count: Count) -> str | None:
    """Return a JSON object with its texts clipped, in at most `limit` tokens; None if that is impossible."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    texts = [key for key, value in values.items() if isinstance(value, str)] if isinstance(values, dict) else []
    sizes = [count(values[key]) for key in texts]
    room = limit
    while texts and room > 0:
        pairs = zip(texts, sizes, share_equally(sizes, room), strict=True)
        short = {key: clip_text(values[key], allowed, index, count) for key, size, allowed in pairs if size > allowed}
        written = json.dumps({**values, **short}, ensure_ascii=False)
        used = count(written)
        if used <= limit:
            return written
        room = min(room - (used - limit), room * 3 // 4)
    return None


def _clip_message(message: Message, limit: int, index: PageIndex, count: Count) -> Message:
    parts = message.content if isinstance(message.content, list) else []
    kept = [part for part in parts if part.get("type") != "text"]
    text = clip_text(message.text, limit, index, count)
    if count(text) >= count(message.text):  # the marker would be longer than the text it replaces
        return message
    content: str | list[Part] = [{"type": "text", "text": text}, *kept] if kept else text
    return replace(message, content=content, raw=None)


def _without_thinking(message: Message, index: PageIndex) -> Message:
    if not isinstance(message.content, list) or not any(part.get("type") == "thinking" for part in message.content):
        return message
    kept = [part for part in message.content if part.get("type") != "thinking"]
    nothing = None if message.tool_calls else omission_marker("thinking", index)
    return replace(message, content=kept or nothing, raw=None)


def _with_less_media(messages: list[Message], limit: int, index: PageIndex, count: Count) -> list[Message]:
    """Replace images and files by markers, the largest first, until shortened texts can make the messages fit."""
    sizes = [size for message in messages for size in _sizes(message, count)]
    over = _size(messages, count) - sum(sizes) + _MIN_CLIP * sum(map(bool, sizes)) - limit
    found = [
        (count_media_tokens(part) + sum(map(count, iterate_part_texts(part))), place, n)
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
        parts[n] = {"type": "text", "text": omission_marker(str(parts[n]["type"]), index)}
        left[place] = replace(left[place], content=parts, raw=None)
        over -= size
    return left


def omission_marker(what: str, index: PageIndex) -> str:
    """Return the marker that replaces content which is not shown."""
    return f"[… {what} of {index} left out …]"


def _size(messages: Sequence[Message], count: Count) -> int:
    return sum(count_message_tokens(message, count) for message in messages)


def share_equally(sizes: Sequence[int], total: int) -> list[int]:
    """Divide `total` among items of these sizes: a small item gets its whole size, large items get equal shares."""
    allowed = [0] * len(sizes)
    left = max(0, total)
    order = sorted(range(len(sizes)), key=lambda n: sizes[n])
    for place, n in enumerate(order):
        allowed[n] = min(sizes[n], left // (len(order) - place))
        left -= allowed[n]
    return allowed
