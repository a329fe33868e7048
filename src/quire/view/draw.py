"""Drawing: from pages to the parts of a view. A pure function of what a reader sees; it writes nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import is_, is_not
from sys import maxsize
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from quire.core.memory import SizedCache
from quire.core.reader import Reader
from quire.core.records import DeferredChange, PageRecord, page_key, page_line, segment_number
from quire.model.messages import PER_MESSAGE, Message, count_message_tokens, quote_messages
from quire.model.pages import Form, Lifecycle, PageIndex, Permission, SegmentType, Visibility
from quire.providers.rewrites import drop_thinking, to_sendable
from quire.system.compressed_summaries import read_originals
from quire.view.clip import clip_exchange, clip_text, omission_marker, text_size
from quire.view.deferred import opened_pages
from quire.view.escaping import escaping_for
from quire.view.parts import Granularity, PreparedLines, Reply, ShownPage, TokenCache, ViewPart

OPENING = "[The conversation begins here.]"
FOLDED = "Folded earlier"
NO_RESULT = "[no result]"
_LEFT_OUT = "…"
_MIN_CLIP = 24
_LATER = "(shown here from the next fold on)"
_MOST_LINES = 4_096
"""The number of lines that are kept."""
_CACHE_BYTES = 1 << 25
_OTHER_BYTES = 1 << 22
"""The memory for parts that are not of one page: blocks of lines, quotations, texts before a reply."""
_PART_BYTES = 1_000
_TOKEN_BYTES = 8
"""The estimated memory of a part in bytes: a constant, and these bytes for each of its tokens."""
_MANY_CHARACTERS = 1 << 16
_TRIES = 3
_ACTIVE: Final = Lifecycle.ACTIVE
_EXPANDED: Final = Visibility.EXPANDED
"""Constants for loops over all pages of a view, because reading a member from its enum is slow."""


def block_head(key: str, title: str) -> str:
    """Return the first line of a block. It has the context's key, which no other text of the view may contain."""
    return f"[{key}] {title}:\n"


class PartBuilder:
    """Builds the parts of single pages and caches them until a page changes.

    `count` counts tokens and `measure` caches what it counts; `key` is the context's key. `committed` is the last
    committed entry. The part of a page that a later entry changed is not cached: that entry may never be committed.
    """

    def __init__(self, count: Callable[[str], int], key: str, known: Mapping[str, int] | None = None) -> None:
        self.count = count
        self.key = key
        self.escaping = escaping_for(key)
        self.measure = TokenCache(count, known).count
        self.most = maxsize
        """The size of the largest view. A page with more tokens is never shown whole, so its text is not drawn."""
        self._leaves: SizedCache[int, tuple[int, int, ViewPart]] = SizedCache(_CACHE_BYTES)
        """By page: its last change, `_shown_size`, and its part."""
        self._others: SizedCache[tuple[Any, ...], ViewPart] = SizedCache(_OTHER_BYTES)
        self._lines: SizedCache[int, tuple[PageRecord, bool, tuple[str, int]]] = SizedCache(_MOST_LINES)
        self.prepared_lines = PreparedLines()
        """Lines that the next fold is expected to need."""

    def build_leaf(self, reader: Reader, page: PageRecord, committed: int) -> ViewPart | None:
        """Return an exchange with all its messages, or a text page as a note; None if it has nothing to show."""
        part = self._known_leaf(page)
        if part is None:
            part = self._exchange(reader, page) if page.header.numbers else self._note(reader, page)
            if page.header.seq <= committed:
                self._leaves.put(page.key, (page.header.seq, self._shown_size(page), part), self._memory(part))
        return part if part.messages else None

    def is_cached(self, page: PageRecord) -> bool:
        """Return whether the part of a page is in the cache."""
        return self._known_leaf(page) is not None

    def forget(self, keys: Iterable[int]) -> None:
        """Drop the parts of pages that a fold changed: they are shown as lines now."""
        for key in keys:
            self._leaves.drop(key)

    def _known_leaf(self, page: PageRecord) -> ViewPart | None:
        """Return the cached part of this version of a page."""
        known = self._leaves.get(page.key)
        if known is None or known[0] != page.header.seq or known[1] != self._shown_size(page):
            return None
        return known[2]

    def _shown_size(self, page: PageRecord) -> int:
        """Return the size of the largest view if a page is larger, else 0. The part of such a page depends on it."""
        return self.most if page.header.tokens > self.most else 0

    def build_lines(self, reader: Reader, pages: Sequence[PageRecord], committed: int) -> ViewPart:
        """Return a block of lines for pages that are folded or hidden."""
        cache_key = ("lines", *((page.key, page.header.seq) for page in pages))
        part = self._others.get(cache_key)
        if part is not None:
            return part
        text = block_head(self.key, FOLDED)
        tokens = self.message_tokens(text)
        shown = []
        for page in pages:
            line, size = self.draw_line(reader, page)
            text += line
            tokens += size
            shown.append(ShownPage(page.key, reader.index(page.key), "line", size))
        part = ViewPart("folded", [Message(role="user", content=text)], tokens, shown)
        if all(page.header.seq <= committed for page in pages):
            self._others.put(cache_key, part, self._memory(part))
        return part

    def get_or_build(self, cache_key: tuple[Any, ...], build: Callable[[], ViewPart]) -> ViewPart:
        """Return the cached part under a key, or build and cache it."""
        part = self._others.get(cache_key)
        if part is None:
            part = build()
            self._others.put(cache_key, part, self._memory(part))
        return part

    def quote_body(self, reader: Reader, page: PageRecord, *, alone: bool = False) -> str:
        """Return the body of a text page, escaped and clipped. In a message `alone`, its lines are not indented."""
        body, limit = reader.body(page.header.body), page.header.clip
        quote = self.escaping.escape_key if alone else self.escaping.escape_lines
        return clip_text(body, limit, reader.index(page.key), self.count, quote) if limit else quote(body)

    def message_tokens(self, text: str) -> int:
        """Return the tokens of a message with this text."""
        return self.measure(text) + PER_MESSAGE

    def draw_line(self, reader: Reader, page: PageRecord) -> tuple[str, int]:
        """Return the line of a page and its tokens. The line of a folded chapter was counted when it was folded.

        The line of each version of a page is drawn once.
        """
        known = self._lines.get(page.key)
        if known is not None and known[0] is page and known[1] is reader.is_preview:
            return known[2]
        text = page_line(reader.index(page.key), page.header)
        escaped = f"{self.escaping.escape_line(text[:-1])}\n"
        counted = page.header.line_tokens if escaped == text and not reader.is_preview else 0
        line = escaped, counted or self.measure(escaped)
        self._lines.put(page.key, (page, reader.is_preview, line))
        return line

    def _note(self, reader: Reader, page: PageRecord) -> ViewPart:
        """Return a text page. A summary with a `clip` of very few tokens shows only its name, its index or `…`."""
        index, name, limit = reader.index(page.key), self.escaping.escape_line(page.header.name), page.header.clip
        head = block_head(self.key, f"Note [{index}] {name}")
        granularity = granularity_of(page)
        if limit and page.header.form is Form.SUMMARY:
            body, quote = reader.body(page.header.body), self.escaping.escape_lines
            room = limit - self.message_tokens(head)
            clipped = head + clip_text(body, room, index, self.count, quote) if room >= _MIN_CLIP else ""
            forms = (head + quote(body), clipped, f"[{index}] {name}", f"[{index}]")
            text = next((form for form in forms if form and self.message_tokens(form) <= limit), _LEFT_OUT)
            granularity = "whole" if text is forms[0] else "clipped"
        else:
            text = head + self.quote_body(reader, page)
        tokens = self.message_tokens(text)
        shown = ShownPage(page.key, index, granularity, tokens)
        return ViewPart("note", [Message(role="user", content=text)], tokens, [shown])

    def _exchange(self, reader: Reader, page: PageRecord) -> ViewPart:
        """Return an exchange without thinking. `reply.whole` is the part with thinking, if that may be sent back."""
        header = page.header
        stored = [replace(reader.message(n).message, index=reader.message_index(n)) for n in header.numbers]
        messages = [to_sendable(one) if one.raw or isinstance(one.content, list) else one for one in stored]
        counted = header.tokens if all(map(is_, messages, stored)) else None
        if header.form is not Form.ASSISTANT:
            return self._draw_exchange(reader, page, messages, counted)
        if any(message.has_thinking for message in messages):
            part = self._draw_exchange(reader, page, drop_thinking(messages), None)
        else:
            part = self._draw_exchange(reader, page, messages, counted)
        first = reader.message(header.numbers[0])
        if first.sent is not None and (first.sent.tail or first.sent.digest) and part.messages:
            whole = None
            if first.sent.digest and messages[0].has_thinking:
                whole = self._draw_exchange(reader, page, messages, counted)
                whole.bare = part
            is_complete = whole is not None and whole.pages[0].granularity == "whole"
            part.reply = Reply(header.numbers[0], first.seq, first.sent, whole if is_complete else None)
        return part

    def _draw_exchange(
        self, reader: Reader, page: PageRecord, messages: Sequence[Message], counted: int | None
    ) -> ViewPart:
        header, index = page.header, reader.index(page.key)
        if not any(message.has_content or message.role == "tool" for message in messages):
            return ViewPart("exchange", (), 0)
        if not header.clip and counted is not None and counted > self.most:
            text = [Message(role=messages[0].role, content=omission_marker("text", index))]
            return ViewPart("exchange", text, counted, [ShownPage(page.key, index, "whole", counted)])
        if header.clip and text_size(messages) > _MANY_CHARACTERS + _TOKEN_BYTES * header.clip:
            return self._draw_ends(page, index, messages)
        shown = [one if self._is_plain(one) else self.escaping.escape_message(one) for one in messages]
        if counted is None or any(map(is_not, shown, messages)):
            counted = sum(count_message_tokens(message, self.count) for message in shown)
        tokens = counted
        if header.pending:
            ids = map(self.escaping.escape_id, header.pending)
            shown += [Message(role="tool", tool_call_id=call, content=NO_RESULT) for call in ids]
            tokens += len(header.pending) * self.message_tokens(NO_RESULT)
        if len(header.numbers) > 1 or header.pending:
            shown = _with_distinct_ids(shown)
        granularity: Granularity = "whole"
        if header.clip and tokens > header.clip:
            shown = clip_exchange(shown, header.clip, index, self.count)
            tokens = sum(count_message_tokens(message, self.count) for message in shown)
            granularity = "clipped"
        return ViewPart("exchange", shown, tokens, [ShownPage(page.key, index, granularity, tokens)])

    def _draw_ends(self, page: PageRecord, index: PageIndex, messages: Sequence[Message]) -> ViewPart:
        """Return an exchange with very long texts, clipped first: only what is shown is escaped and counted."""
        header = page.header
        ids = map(self.escaping.escape_id, header.pending)
        waiting = [Message(role="tool", tool_call_id=call, content=NO_RESULT) for call in ids]
        limit = header.clip - sum(count_message_tokens(message, self.count) for message in waiting)
        for _ in range(_TRIES):
            clipped = clip_exchange(messages, max(limit, 0), index, self.count)
            shown = _with_distinct_ids([*map(self.escaping.escape_message, clipped), *waiting])
            tokens = sum(count_message_tokens(message, self.count) for message in shown)
            if tokens <= header.clip or limit <= 0:
                break
            limit -= tokens - header.clip  # escaping made it longer
        is_whole = all(map(is_, clipped, messages))
        return ViewPart(
            "exchange", shown, tokens, [ShownPage(page.key, index, "whole" if is_whole else "clipped", tokens)]
        )

    def _is_plain(self, message: Message) -> bool:
        """Return whether a message is known to need no escaping, as most are."""
        text = message.content
        if not isinstance(text, str) or message.name or message.tool_call_id or message.tool_calls or message.raw:
            return False
        is_clear = text.isascii() and any(digit not in text for digit in self.escaping.sure_digits)
        return is_clear or not self.escaping.has_key(text)

    def _memory(self, part: ViewPart) -> int:
        """Return the estimated memory of a part. Of a part that is too large for a view, only a line is drawn."""
        return _PART_BYTES + (_TOKEN_BYTES * part.tokens if part.tokens <= self.most else 0)


class Node(Struct, frozen=True, gc=False):
    """An element of the conversation in a view: a part, and the page or the folded pages that it shows.

    `opened` is the entry that opened a quoted page or added the reply below a prelude, 0 for other elements.
    """

    part: ViewPart
    pages: list[PageRecord]
    opened: int = 0

    @property
    def entry(self) -> int:
        """The journal entry after which the element is placed. Folded lines come before everything else."""
        if self.part.kind == "folded":
            return 0
        return max((page.header.born for page in self.pages), default=self.opened)


def draw_conversation(
    reader: Reader, builder: PartBuilder, committed: int, known: Callable[[PageRecord], Node | None] | None
) -> list[Node]:
    """Return the conversation in order: blocks of lines, exchanges, notes.

    `known` returns the element of a page if it was drawn before.
    """
    number = reader.conversation()
    if number is None:
        return []
    nodes: list[Node] = []
    shown = list(shown_pages(reader, page_key(number, 0)))
    expanded = [page for page in shown if page.header.visibility is _EXPANDED]
    found = ((page.key, known(page)) for page in expanded) if known else ()
    drawn = {key: node for key, node in found if node and node.part.bare is None}  # those with thinking are drawn again
    missing = [page for page in expanded if page.key not in drawn and not builder.is_cached(page)]
    reader.prefetch([n for page in missing for n in page.header.numbers])
    for generation, group in groupby(shown, key=generation_of):
        if generation is not None:
            pages = list(group)
            nodes.append(Node(builder.build_lines(reader, pages, committed), pages))
            continue
        for page in group:
            node = drawn.get(page.key)
            part = builder.build_leaf(reader, page, committed) if node is None else node.part
            if part is not None:
                if part.reply is not None:
                    nodes += draw_prelude(reader, builder, part.reply)
                nodes.append(Node(part, [page]) if node is None else node)
    return nodes


def draw_prelude(reader: Reader, builder: PartBuilder, reply: Reply) -> list[Node]:
    """Return the tail of the view that a reply answers: it stays before the reply until the next fold."""
    if not reply.sent.tail:
        return []
    from quire.view.tail import draw_tail  # late: most replies have none

    return [Node(part, [], reply.seq) for part in draw_tail(reader, reply, builder.get_or_build)]


def draw_opened(
    reader: Reader, builder: PartBuilder, page: PageRecord, leaves: Sequence[PageRecord], missing: Sequence[int] = ()
) -> ViewPart:
    """Return a quotation of a page that an agent opened. It follows the exchange that opened it until the next fold.

    `missing` are pages that moved into an opened folder since. Until the next fold, only their indices are shown.
    """
    title = f"Opened [{reader.index(page.key)}] {builder.escaping.escape_line(page.header.name)}"
    text = block_head(builder.key, title)
    shown: list[ShownPage] = []
    for leaf in leaves:
        inner, granularity = _quote_leaf(reader, builder, leaf, is_part=page.header.folder)
        text += inner
        shown.append(ShownPage(leaf.key, reader.index(leaf.key), granularity, builder.measure(inner)))
    text += "".join(f"[{reader.index(key)}] {_LATER}\n" for key in missing)
    tokens = builder.message_tokens(text)
    if all(leaf.key != page.key for leaf in leaves):  # a folder, or a summary of compressed messages
        shown.append(ShownPage(page.key, reader.index(page.key), "whole", tokens))
    return ViewPart("opened", [Message(role="user", content=text)], tokens, shown)


def insert_opened(
    nodes: Sequence[Node], reader: Reader, builder: PartBuilder, anchors: Mapping[int, DeferredChange]
) -> list[Node]:
    """Return the conversation with the opened pages, each after everything that was there when it was opened."""
    placed = list(nodes)
    quoted: dict[int, PageRecord] = {}
    for anchor, page in opened_pages(anchors):
        segment = reader.segment(segment_number(page.key))
        if segment is None or segment.gone or segment.permission is Permission.PRIVATE:
            continue
        if page.header.form is Form.WINDOW:
            continue  # the tail shows it
        leaves, missing = _opened_leaves(reader, page, anchor, quoted) if page.header.folder else ([page], [])
        if page.header.form is Form.SUMMARY and isinstance(summary := reader.page(page.key), PageRecord):
            leaves = read_originals(reader, summary) or leaves
        quoted[page.key] = page
        states = ((leaf.key, leaf.header.seq, leaf.header.visibility) for leaf in leaves)
        cache_key = ("opened", page.key, anchor.seq, *states, *missing)
        part = builder.get_or_build(cache_key, partial(draw_opened, reader, builder, page, leaves, missing))
        earlier = (n for n, node in enumerate(placed) if any(one.header.born <= anchor.seq for one in node.pages))
        place = max(earlier, default=-1) + 1
        while place < len(placed) and placed[place].part.kind == "opened":
            place += 1
        placed.insert(place, Node(part, [], anchor.seq))
    return placed


def draw_system(reader: Reader, builder: PartBuilder, committed: int) -> list[ViewPart]:
    """Return the prompts: the pages of SYSTEM segments. No other page is sent with the role `system`."""
    parts: list[ViewPart] = []
    for number, segment in reader.live_segments():
        if segment.type is SegmentType.SYSTEM and segment.permission is not Permission.PRIVATE:
            for page in shown_pages(reader, page_key(number, 0)):
                part = _draw_prompt(reader, builder, page, committed)
                if part is not None:
                    parts.append(part)
    return parts


def shown_pages(reader: Reader, folder: int) -> Iterator[PageRecord]:
    """Yield the pages shown below a folder. An open folder is replaced by its pages."""
    stack = [reader.members(folder)]
    while stack:
        page = next(stack[-1], None)
        if page is None:
            stack.pop()
        elif page.header.lifecycle is not _ACTIVE:
            continue
        elif page.header.folder and page.header.visibility is _EXPANDED:
            stack.append(reader.members(page.key))
        else:
            yield page


def generation_of(page: PageRecord) -> int | None:
    """Return the fold that made a line, or None for an expanded page.

    Lines of one fold form one block, so that a later fold leaves the block unchanged.
    """
    header = page.header
    if header.visibility is _EXPANDED:
        return None
    return header.born if header.folder else header.seq


def granularity_of(page: PageRecord) -> Granularity:
    """Return how an open page is shown."""
    return "clipped" if page.header.clip else "whole"


def _quote_leaf(reader: Reader, builder: PartBuilder, page: PageRecord, *, is_part: bool) -> tuple[str, Granularity]:
    """Return the text of an opened page. A text that is part of an opened folder has a head of its own."""
    header = page.header
    if header.visibility is Visibility.HIDDEN or header.folder:
        return builder.draw_line(reader, page)[0], "line"
    if header.numbers:
        part = builder.build_leaf(reader, page, -1)
        text = builder.escaping.escape_key(quote_messages(part.messages)) if part else ""
        return text + "\n", granularity_of(page)
    head = f"[{reader.index(page.key)}] {builder.escaping.escape_line(header.name)}\n" if is_part else ""
    return f"{head}{builder.quote_body(reader, page)}\n", granularity_of(page)


def _opened_leaves(
    reader: Reader, folder: PageRecord, anchor: DeferredChange, quoted: Mapping[int, PageRecord]
) -> tuple[list[PageRecord], list[int]]:
    """Return the pages that an opened folder shows, and the keys of those that moved below it since.

    A page that was `quoted` before is shown as a line.
    """
    leaves = [_as_line(quoted[page.key]) if page.key in quoted else page for page in shown_pages(reader, folder.key)]
    others = [key for key in anchor.listed if not _is_below(reader, key, folder.key)]
    leaves += [_as_line(quoted[key]) for key in others if key in quoted]
    return leaves, [key for key in others if key not in quoted]


def _as_line(page: PageRecord) -> PageRecord:
    return replace(page, header=replace(page.header, visibility=Visibility.HIDDEN))


def _is_below(reader: Reader, key: int | None, folder: int) -> bool:
    """Return whether a page is below `folder`, and neither it nor a folder between them is archived."""
    while key is not None and key != folder:
        page = reader.page(key)
        if not isinstance(page, PageRecord) or page.header.lifecycle is not Lifecycle.ACTIVE:
            return False
        key = page.parent
    return key == folder


def _draw_prompt(reader: Reader, builder: PartBuilder, page: PageRecord, committed: int) -> ViewPart | None:
    header = page.header
    if header.visibility is Visibility.HIDDEN:
        text, tokens = builder.draw_line(reader, page)
        granularity: Granularity = "line"
    elif header.form is Form.SYSTEM:
        part = builder.build_leaf(reader, page, committed)
        return part and ViewPart("system", part.messages, part.tokens, part.pages)
    elif header.numbers:  # an exchange that was moved here: a prompt has no other roles, calls or media
        part = builder.build_leaf(reader, page, committed)
        text = builder.escaping.escape_key(quote_messages(part.messages)) if part else ""
        tokens, granularity = builder.measure(text), granularity_of(page)
    else:
        text = builder.quote_body(reader, page, alone=True)
        tokens, granularity = builder.measure(text), granularity_of(page)
    if not text.strip():
        return None
    shown = ShownPage(page.key, reader.index(page.key), granularity, tokens + PER_MESSAGE)
    return ViewPart("system", [Message(role="system", content=text)], tokens + PER_MESSAGE, [shown])


def _with_distinct_ids(messages: list[Message]) -> list[Message]:
    """Return the messages with distinct call ids: a provider rejects two calls with the same id."""
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
                used.append(call.id if call.id and not used else _free_id(call.id or "call", len(used) + 1, taken))
                calls.append(replace(call, id=used[-1]))
            message = replace(message, tool_calls=tuple(calls), raw=None)
        elif message.role == "tool" and fresh.get(message.tool_call_id or ""):
            message = replace(message, tool_call_id=fresh[message.tool_call_id or ""].pop(0), raw=None)
        changed.append(message)
    return changed


def _free_id(word: str, number: int, taken: set[str]) -> str:
    """Return the first free id `word_N` with N from `number` on, and add it to `taken`."""
    while f"{word}_{number}" in taken:
        number += 1
    taken.add(f"{word}_{number}")
    return f"{word}_{number}"
