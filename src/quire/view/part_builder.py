"""The tokens of texts, each counted once as long as it is remembered.

One line for a page that is not shown whole: its index, its size, its name and its summary, in few tokens.

Text of others inside a view: it may say anything, but it cannot look like a line of ours.

Two things are kept for us. The context's key stands nowhere but in the preamble and in the heads of our blocks and
windows: where a message, a name or a body has it (someone repeated what the model was told), it is shown broken up. And
inside our blocks only our own lines begin with a bracket: a line of a body that does gets a space before it.

Making the pieces of a view from pages, and remembering them as long as the pages stay as they are.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from sys import getsizeof
from typing import Any

from msgspec.structs import replace

from quire.core.reader import Reader
from quire.core.records import PageRecord, page_line
from quire.model.messages import PER_MESSAGE, Message, count_message_tokens
from quire.model.messages import Part as MessagePart
from quire.model.sized_cache import SizedCache
from quire.view.clip import clip_exchange, clip_text
from quire.view.parts import Granularity, Part, Shown

_MOST_BYTES = 1 << 23


class Sizes:
    """What texts take. Those that are `known` need no counting; of the others the latest are remembered."""

    def __init__(self, count: Callable[[str], int], known: Mapping[str, int] | None = None) -> None:
        self._count = count
        self._known = dict(known or {})
        self._counted: SizedCache[str, int] = SizedCache(_MOST_BYTES)

    def size(self, text: str) -> int:
        """The tokens of a text."""
        found = self._known.get(text)
        if found is None:
            found = self._counted.get(text)
        if found is None:
            found = self._count(text)
            self._counted.put(text, found, getsizeof(text))
        return found


__all__ = ["FOLDED", "block_head", "page_line"]

FOLDED = "Folded earlier"


def block_head(key: str, title: str) -> str:
    """The first line of a block of ours, with the context's key, which nothing else in the context knows."""
    return f"[{key}] {title}:\n"


_MIDDLE = "·"
_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_UNSEEN = "\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
_LIKE_OURS = re.compile(rf"(^|[{_BREAKS}])(?=[{_UNSEEN}]*[\[(])")


class Quoting:
    """How the text of others is shown in a context with this key."""

    def __init__(self, key: str) -> None:
        self._word = key
        end = key[key.rfind("-") :] if "-" in key else ""
        self._part = end if end.lower() == end.upper() else ""  # found at once, or the key is not there either

    @cached_property
    def _key(self) -> re.Pattern[str]:
        return re.compile(re.escape(self._word), re.IGNORECASE)

    def words(self, text: str) -> str:
        """The text without the key: it is broken up, so that what quotes it does not carry it."""
        if self._part not in text or not self._key.search(text):
            return text
        broken = self._key.sub(lambda found: found[0][:1] + _MIDDLE + found[0][1:], text)
        return self._key.sub(_MIDDLE, broken) if self._key.search(broken) else broken

    def lines(self, text: str) -> str:
        """The text as it stands in a block of ours: no line of it begins as ours do, and the key is not in it."""
        return _LIKE_OURS.sub(r"\1 ", self.words(text))

    def message(self, message: Message) -> Message:
        """A message without the key; what the model said itself stays as it was said, for nothing of ours is its."""
        if message.role == "assistant" or message.content is None:
            return message
        if isinstance(message.content, str):
            text = self.words(message.content)
            return message if text is message.content else replace(message, content=text, raw=None)
        parts = [self._in_part(part) for part in message.content]
        same = all(new is old for new, old in zip(parts, message.content, strict=True))
        return message if same else replace(message, content=parts, raw=None)

    def _in_part(self, part: MessagePart) -> MessagePart:
        text = part.get("text") if part.get("type") == "text" else None
        if not isinstance(text, str):
            return part
        words = self.words(text)
        return part if words is text else {**part, "text": words}


NO_RESULT = "[no result]"
_MOST_BYTES_MAKER = 1 << 25
_PART_BYTES = 1_000
_TOKEN_BYTES = 8
"""About what a piece takes in memory: for itself, and for each token of what it says."""


class Maker:
    """Draws single pages. `count` counts tokens; `key` is the word that tells blocks of ours from look-alikes."""

    def __init__(self, count: Callable[[str], int], key: str, known: Mapping[str, int] | None = None) -> None:
        self.count = count
        self.key = key
        self.quoting = Quoting(key)
        self.size = Sizes(count, known).size
        self._parts: SizedCache[tuple[Any, ...], Part] = SizedCache(_MOST_BYTES_MAKER)

    def exchange(self, reader: Reader, page: PageRecord, settled: int) -> Part | None:
        """An exchange with all its messages; None if there is nothing in it to show.

        What was changed by an entry above `settled` is not remembered: that entry may never be made.
        """
        header = page.header
        known = (page.key, header.seq)
        part = self._parts.get(known)
        if part is None:
            part = self._exchange(reader, page)
            if header.seq <= settled:
                self._keep(known, part)
        return part if part.messages else None

    def knows(self, page: PageRecord) -> bool:
        """Whether a page was drawn before and is still remembered."""
        return (page.key, page.header.seq) in self._parts

    def lines(self, reader: Reader, pages: Sequence[PageRecord], settled: int) -> Part:
        """A block of lines for pages that are folded or hidden."""
        known = ("lines", *((page.key, page.header.seq) for page in pages))
        part = self._parts.get(known)
        if part is None:
            part = self._lines(reader, pages)
            if all(page.header.seq <= settled for page in pages):
                self._keep(known, part)
        return part

    def note(self, reader: Reader, page: PageRecord, settled: int) -> Part:
        """A text page that stands in the conversation: a summary, or a note of the developer's."""
        known = (page.key, page.header.seq)
        part = self._parts.get(known)
        if part is None:
            index = reader.index(page.key)
            head = block_head(self.key, f"Note [{index}] {self.quoting.words(page.header.name)}")
            text = head + self.text(reader, page)
            tokens = self.size(text) + PER_MESSAGE
            granularity: Granularity = "clipped" if page.header.clip else "whole"
            shown = Shown(page.key, index, granularity, tokens)
            part = Part("note", [Message(role="user", content=text)], tokens, [shown])
            if page.header.seq <= settled:
                self._keep(known, part)
        return part

    def kept(self, known: tuple[Any, ...], make: Callable[[], Part]) -> Part:
        """A piece that is always the same under these words, made once."""
        part = self._parts.get(known)
        if part is None:
            part = make()
            self._keep(known, part)
        return part

    def text(self, reader: Reader, page: PageRecord, *, alone: bool = False) -> str:
        """The body of a text page as a block of ours quotes it, or `alone`; clipped if that was decided."""
        body = reader.body(page.header.body)
        body = self.quoting.words(body) if alone else self.quoting.lines(body)
        limit = page.header.clip
        return clip_text(body, limit, reader.index(page.key), self.count) if limit else body

    def block(self, text: str) -> int:
        """What a message with this text costs."""
        return self.size(text) + PER_MESSAGE

    def line(self, reader: Reader, page: PageRecord) -> tuple[str, int]:
        """The line of a page and its tokens; those of a folded chapter were counted when it was folded."""
        text = page_line(reader.index(page.key), page.header)
        safe = self.quoting.words(text)
        counted = page.header.line_tokens if safe is text and not reader.is_preview else 0
        return safe, counted or self.size(safe)

    def head(self, title: str) -> tuple[str, int]:
        """The first line of a block of ours and its tokens."""
        text = block_head(self.key, title)
        return text, self.size(text)

    def _exchange(self, reader: Reader, page: PageRecord) -> Part:
        header, index = page.header, reader.index(page.key)
        messages = [_numbered(reader, number) for number in header.numbers]
        if not any(message.has_content or message.role == "tool" for message in messages):
            return Part("exchange", (), 0)
        tokens = header.tokens
        quoted = [self.quoting.message(message) for message in messages]
        if any(new is not old for new, old in zip(quoted, messages, strict=True)):
            messages = quoted
            tokens = sum(count_message_tokens(message, self.count) for message in messages)
        if header.pending:
            messages += [Message(role="tool", tool_call_id=call, content=NO_RESULT) for call in header.pending]
            tokens += len(header.pending) * (self.size(NO_RESULT) + PER_MESSAGE)
        if len(header.numbers) > 1 or header.pending:
            messages = _with_distinct_ids(messages)
        granularity: Granularity = "whole"
        if header.clip and tokens > header.clip:
            messages = clip_exchange(messages, header.clip, index, self.count)
            tokens = sum(count_message_tokens(message, self.count) for message in messages)
            granularity = "clipped"
        return Part("exchange", messages, tokens, [Shown(page.key, index, granularity, tokens)])

    def _lines(self, reader: Reader, pages: Sequence[PageRecord]) -> Part:
        text, tokens = self.head(FOLDED)
        shown = []
        for page in pages:
            line, size = self.line(reader, page)
            text += line
            tokens += size
            shown.append(Shown(page.key, reader.index(page.key), "line", size))
        return Part("folded", [Message(role="user", content=text)], tokens + PER_MESSAGE, shown)

    def _keep(self, known: tuple[Any, ...], part: Part) -> None:
        self._parts.put(known, part, _PART_BYTES + _TOKEN_BYTES * part.tokens)


def _numbered(reader: Reader, number: int) -> Message:
    return replace(reader.message(number).message, index=reader.message_index(number))


def _with_distinct_ids(messages: list[Message]) -> list[Message]:
    """The messages with call ids that differ from one another: a provider refuses two calls of one id."""
    ids = [call.id for message in messages for call in message.tool_calls]
    if len(set(ids)) == len(ids) and all(ids):
        return messages
    taken = set(ids)
    fresh: dict[str, list[str]] = {}
    changed: list[Message] = []
    for message in messages:
        if message.tool_calls:
            calls = []
            for call in message.tool_calls:
                used = fresh.setdefault(call.id, [])
                used.append(call.id if call.id and not used else _untaken(call.id or "call", len(used) + 1, taken))
                calls.append(replace(call, id=used[-1]))
            message = replace(message, tool_calls=tuple(calls), raw=None)
        elif message.role == "tool" and fresh.get(message.tool_call_id or ""):
            message = replace(message, tool_call_id=fresh[message.tool_call_id or ""].pop(0), raw=None)
        changed.append(message)
    return changed


def _untaken(word: str, number: int, taken: set[str]) -> str:
    """The first id made of this word and this number or a higher one that no call has; it is taken then."""
    while f"{word}_{number}" in taken:
        number += 1
    taken.add(f"{word}_{number}")
    return f"{word}_{number}"
