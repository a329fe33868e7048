"""Recall: finding the exchanges and pages that matter for a question, and laying them out within a token limit.

Candidates are the exchanges of the conversation and the text pages outside it. A short conversation is taken whole. Of
a long one, the index gives the exchanges that match the words of the question, and their neighbours are added, so that
the cost does not grow with the conversation.

`memory_scores` scores the candidates. The best that fit are shown in the order in which they were spoken, with a date
once a day and the speaker before every line: tokens spent on framing are evidence lost.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from math import inf
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from quire.core.records import Gone, MessageRecord, PageRecord, segment_number
from quire.core.state import State
from quire.model.clock import to_datetime
from quire.model.look_alikes import plain_letters
from quire.model.messages import ROLES, Message
from quire.model.pages import Form
from quire.model.text import collapse_whitespace, hang_lines
from quire.search.index_protocol import Index
from quire.search.indexing import query_index
from quire.search.memory_scores import Likeness, Memory, WordCache, score_memories
from quire.search.page_text import CLOSE, OPEN, is_searchable, make_snippet, read_body
from quire.search.query import Query, Question, Scope, make_clause
from quire.search.rank import Weights, rank_partial
from quire.search.self_search_filter import echo_cache_of, is_echo, segment_ids
from quire.search.tokenizer import STOP_WORDS, normalize_text, split_runs
from quire.search.vectors import Embedder, speaker_name, try_vectors

MAX_WHOLE = 1_000
"""A conversation of up to this many messages is read completely."""
_MAX_FOUND = 200
_VERY_LONG, _FEWER = 10_000, 100
"""In a conversation of more messages, the index gives fewer exchanges, and neighbours only of the best are added."""
_MAX_CENTRES = 40
_NEIGHBOURS = 2
_MAX_OTHERS = 40
_MAX_CACHED = 20_000
_LONG = 2_000
_MAX_LINE, _SHORT, _MIN_PASSAGE = 300, 120, 40
"""Of a text of more than `_LONG` characters or `_MAX_LINE` tokens, only the best passage is shown. A text of at most
`_SHORT` tokens is shown whole or not at all. A passage of fewer than `_MIN_PASSAGE` tokens is not shown."""
_MIN_SHARE = 0.05
"""A memory with less than this share of the best score is not shown, even if there is room."""
_GOOD_SHARE, _MAX_SELECTED = 0.2, 6_000
"""A selective recall takes memories with this share of the best score, in at most this many tokens."""
_BELOW_FLOOR = 270
"""The tokens of memories for a message of common words. With its heading, the block has at most 300."""
_ALIKE_SHARE, _FEW = 0.4, 16
"""If a third of all memories, and not only a few, have this share of the best score, the question is vague. A
question that names a speaker or a month is clear: the bonus alone gives many memories this share."""
_SAMPLE = 100
"""The number of exchanges that are taken from a long conversation to know how common a word is."""
_MAX_LINES = 2_000
_DAY = 86_400_000
_MIN_ROOM = 12
"""With fewer tokens left, no further line is tried."""
_ROLE_LETTERS = frozenset(map(plain_letters, ROLES))

Count = Callable[[str], int]


class ChosenMemory(Struct, frozen=True):
    """A chosen memory: its page, its score relative to the best (1.0), and the reason."""

    key: int
    score: float
    reason: str


class RecallText(Struct, frozen=True):
    """The recalled pages in the order of the text, and the text."""

    pages: tuple[ChosenMemory, ...] = ()
    text: str = ""


_caches: "WeakKeyDictionary[State, _MemoryCache]" = WeakKeyDictionary()


# Candidates


class _MemoryCache:
    """The exchanges that were read from a state, with their words. An exchange is read again when it changes."""

    def __init__(self) -> None:
        self.words = WordCache()
        self._memories: dict[int, tuple[tuple[int, ...], Memory]] = {}
        self._keys: dict[int, int] = {}
        """The page of each message in an exchange."""
        self._version: tuple[bytes, int, frozenset[int]] = b"", 0, frozenset()
        self._segments = frozenset[str]()
        self._is_complete = False

    def follow(self, state: State, scope: Scope) -> "_MemoryCache":
        """Forget the exchanges that changed since the last question."""
        identity, version, segments = self._version
        same = (identity, segments) == (state.head.identity, scope.segments)
        changed = state.pages_changed_since(version) if same else None
        if changed is None or len(self._memories) > _MAX_CACHED:
            self._memories.clear()
            self._keys.clear()
            self.words = WordCache()
            self._is_complete, changed = False, []
        self._version = state.head.identity, state.version, scope.segments
        self._segments = segment_ids(state, scope)
        for key in changed:
            for number in self._memories.pop(key, ((), None))[0]:
                self._keys.pop(number, None)
            if self._is_complete and segment_number(key) == state.conversation():
                self._read(state, state.page(key))
        return self

    def all(self, state: State, conversation: int) -> list[Memory]:
        """Return all exchanges of a conversation."""
        if not self._is_complete:
            for page in state.segment_pages(conversation):
                self._read(state, page)
            self._is_complete = True
        return _in_order(self._memories.values())

    def around(self, state: State, keys: Iterable[int], numbers: Iterable[int]) -> list[Memory]:
        """Return the exchanges of these pages, the neighbours of the best ones, and the exchanges of these messages.

        `keys` are sorted by score, the best page first.
        """
        wanted = set(numbers)
        for place, key in enumerate(keys):
            if key not in self._memories:
                self._read(state, state.page(key))
            found = self._memories[key][0] if key in self._memories else (0,)
            more = _NEIGHBOURS if place < _MAX_CENTRES or state.next_message <= _VERY_LONG else 0
            wanted.update(range(max(found[0] - more, 0), min(found[-1] + 1 + more, state.next_message)))
        for page, messages in _pages_of(state, wanted - self._keys.keys()):
            self._read(state, page, messages)
        return _in_order(self._memories[key] for key in {self._keys[n] for n in wanted if n in self._keys})

    def _read(
        self, state: State, page: PageRecord | Gone | None, known: Mapping[int, MessageRecord] | None = None
    ) -> None:
        """Read the exchange of a page, if it is one."""
        if not isinstance(page, PageRecord) or not page.header.numbers or not is_searchable(page):
            return
        numbers = page.header.numbers
        known = known or {}
        messages = [(known.get(number) or state.message(number)).message for number in numbers]
        echo = is_echo(messages, self._segments)
        first, *others = [message for message in messages if message.text] or messages[:1]
        text = first.text
        if others:  # call results; only their speakers begin at the margin of the text
            lines = [text, *(f"{_speaker_label(other)}: {other.text}" for other in others)]
            text = "\n".join(map(hang_lines, lines))
        memory = Memory(
            page.key,
            0,
            page.header.created,
            _speaker_label(first),
            "" if echo else text,
            echo,
            has_results=bool(others),
            role=first.role,
        )
        self._memories[page.key] = numbers, memory
        self._keys.update(dict.fromkeys(numbers, page.key))


def _in_order(exchanges: Iterable[tuple[tuple[int, ...], Memory]]) -> list[Memory]:
    """Return exchanges in the order of their messages, with their places."""
    found: list[Memory] = []
    place, last_number = -1, -2
    for numbers, memory in sorted(exchanges, key=itemgetter(0)):
        place += 1 if numbers[0] == last_number + 1 else 2  # 2: a gap, so they are not neighbours
        last_number = numbers[-1]
        found.append(memory if memory.place == place else replace(memory, place=place))
    return found


def word_cache_of(state: State) -> WordCache:
    """Return the word cache of a state."""
    return _caches.setdefault(state, _MemoryCache()).words


def find_memories(state: State, question: str, scope: Scope, embedder: Embedder | None = None) -> list[Memory]:
    """Return the candidates for a question in a viewer's scope. With an embedder, they also come from vectors."""
    conversation = state.conversation()
    memories: list[Memory] = []
    cache = _caches.setdefault(state, _MemoryCache()).follow(state, scope)
    others = Scope(scope.segments - {conversation} if conversation is not None else scope.segments)
    wanted = [(others, _MAX_OTHERS)]
    is_long = state.next_message > MAX_WHOLE
    if conversation is not None and conversation in scope.segments:
        if is_long:
            limit = _MAX_FOUND if state.next_message <= _VERY_LONG else min(_FEWER, _MAX_FOUND)
            wanted.append((Scope(frozenset({conversation})), limit))
        else:
            memories += cache.all(state, conversation)
    pages, *found = _search(state, question, scope, wanted, embedder)
    if found:
        memories += cache.around(state, found[0], range(0, state.next_message, max(state.next_message // _SAMPLE, 1)))
    for key in pages:
        page = state.page(key)
        if not isinstance(page, PageRecord) or not is_searchable(page):
            continue
        if not page.header.folder and not page.header.pinned and page.header.form is Form.TEXT and page.header.body:
            text = read_body(state.stored, page.header)
            memories.append(Memory(page.key, -1, page.header.created, page.header.name, text))
    return memories


def likeness_functions(
    state: State, question: str, memories: Iterable[Memory], embedder: Embedder | None
) -> list[Likeness]:
    """Return functions that compare exchanges with the question, alone and with neighbours; [] without an embedder.

    The names of the speakers of `memories` are not compared.
    """
    text = parse_question(question, memories).embedded if embedder else ""
    found = try_vectors(text, state, embedder)
    if found is None:
        return []
    vectors, vector = found

    def alone(memories: Sequence[Memory]) -> list[float]:
        return [float(value) for value in vectors.rows([memory.key for memory in memories]) @ vector]

    def with_neighbours(memories: Sequence[Memory]) -> list[float]:
        rows = vectors.rows([memory.key for memory in memories])
        return [float(value) for value in _add_neighbours(rows, memories) @ vector]

    return [alone, with_neighbours]


def _search(
    state: State,
    question: str,
    scope: Scope,
    wanted: Sequence[tuple[Scope, int]],
    embedder: Embedder | None = None,
) -> list[list[int]]:
    """Return the pages that the index finds for the words of a question, and those with similar vectors.

    They are returned for each wanted scope, up to its limit.
    """
    runs = dict.fromkeys(split_runs(normalize_text(question[:10_000])))
    words = [word for word in runs if word not in STOP_WORDS][:64] or list(runs)[:64]
    query = Query(tuple(clause for word in words if (clause := make_clause(word)) is not None))
    near = try_vectors(question, state, embedder)

    def look(index: Index) -> list[list[int]]:
        echoes, weights = echo_cache_of(state, scope), Weights(index, scope.spans())
        while True:
            found: list[list[int]] = []
            for within, limit in wanted:
                spans = within.spans()
                ranked = rank_partial(index, query, weights, spans, limit + len(echoes.keys), echoes.keys)
                similar = near[0].like(near[1], spans, limit) if near and spans else ()
                found.append(list(dict.fromkeys(key for _, key in (*ranked, *similar))))
            calls = (state.page(key) for keys in found for key in keys)
            if not echoes.learn(state, (page for page in calls if isinstance(page, PageRecord))):
                return found

    return query_index(state, look)


def _pages_of(state: State, numbers: Iterable[int]) -> Iterator[tuple[PageRecord, Mapping[int, MessageRecord]]]:
    """Yield the conversation's pages that contain these messages, with some of their messages.

    Adjacent messages are read with one scan.
    """
    ordered = sorted(numbers)
    ends = [n for n in range(len(ordered)) if n + 1 == len(ordered) or ordered[n + 1] > ordered[n] + 1]
    start = 0
    for end in ends:
        found = dict(state.message_records(ordered[start], ordered[end]))
        for number, record in found.items():
            page = state.page(state.current_key(record.page))
            if (
                isinstance(page, PageRecord)
                and number in page.header.numbers
                and segment_number(page.key) == state.conversation()
            ):
                yield page, found
        start = end + 1


def _add_neighbours(rows: Any, memories: Sequence[Memory]) -> Any:
    """Return for each memory the vector of itself and its neighbours, weighted by text length, of length 1."""
    import numpy

    rows = rows * numpy.array([len(memory.text) for memory in memories], dtype=numpy.float32)[:, None]
    total = rows.copy()
    for number in range(1, len(memories)):
        if memories[number].place == memories[number - 1].place + 1 and memories[number].place > 0:
            total[number] += rows[number - 1]
            total[number - 1] += rows[number]
    lengths = numpy.linalg.norm(total, axis=1, keepdims=True)
    return total / numpy.where(lengths == 0, 1, lengths)


def _speaker_label(message: Message) -> str:
    """Return the speaker of a recalled message: the role if the name could pass for another speaker or line."""
    name = speaker_name(message)
    plain = "".join(filter(str.isalnum, plain_letters(name)))
    is_name = name[:1].isalpha() and name.isprintable() and not set(normalize_text(name)) & set(":[]()<>")
    is_other = plain in _ROLE_LETTERS or plain.startswith("page")
    return name if is_name and not is_other else message.role.capitalize()


# Scores


class RankedMemories(Struct, frozen=True):
    """Memories in the order in which they were spoken, with their scores."""

    memories: Sequence[Memory]
    scores: Sequence[float]
    reason: Callable[[int], str]
    """Returns the main reason of a memory, by its place in `memories`."""
    words: Sequence[str] = ()
    clarity: float = 1.0
    """How rare the words of the question are; see `recall_floor` of the options of a view."""
    asks: bool = True
    """Whether the text is a question; see `Question`."""

    def lay_out(
        self,
        room: int,
        count: Count,
        visible: Collection[int] = (),
        *,
        share: int | None = None,
        selective: bool = False,
        floor: float = 0.0,
    ) -> RecallText:
        """Return the best memories that fit `room` tokens as text, each once and without the pages in `visible`.

        Together with the visible pages among the best they have at most `share` tokens. If it is `selective`, the
        scores decide how many memories are returned; a statement or a request gets few. A question with less clarity
        than `floor` gets few too.
        """
        best = max(self.scores, default=0.0)
        if best <= 0 or room <= 0:
            return RecallText()
        left = room if share is None else share
        alike = sum(score >= _ALIKE_SHARE * best for score in self.scores) if selective and floor else 0
        is_vague = self.clarity < floor or (self.clarity < inf and alike > max(_FEW, len(self.scores) // 3))
        if is_vague or (selective and floor and not self.asks):
            left = min(left, _BELOW_FLOOR)
        if selective:
            left = min(left, _MAX_SELECTED)
        room = min(room, left)
        lines = _RecallLines(room, count, self.words)
        least = (_GOOD_SHARE if selective else _MIN_SHARE) * best
        usable = [n for n, one in enumerate(self.memories) if self.scores[n] >= least and not one.echo]
        for number in nlargest(_MAX_LINES, usable, key=lambda n: (self.scores[n], -n)):
            memory = self.memories[number]
            if memory.key not in visible:
                lines.add(number, memory)
            elif share is not None:
                left -= lines.size(memory)
                lines.room = min(room, left)
            if lines.room - lines.tokens <= _MIN_ROOM:
                break
        return lines.join(self.memories, [value / best for value in self.scores], self.reason)


def rank_memories(
    question: str,
    memories: Sequence[Memory],
    *,
    words: WordCache | None = None,
    likeness: Sequence[Likeness] = (),
    room: int = _MAX_SELECTED,
) -> RankedMemories:
    """Score memories for a question, to show them in about `room` tokens."""
    unique = {memory.key: memory for memory in memories}.values()
    ordered = sorted(unique, key=lambda memory: (memory.place < 0, memory.place, memory.key))
    asked = parse_question(question, ordered)
    if not asked.words:
        return RankedMemories((), (), str)
    scores, reason, clarity = score_memories(asked, ordered, words or WordCache(), likeness, room)
    return RankedMemories(ordered, scores, reason, asked.words, clarity, asked.asks)


def parse_question(question: str, memories: Iterable[Memory]) -> Question:
    """Return a question as recall reads it, with the speakers of these memories."""
    return Question.parse(question, {memory.speaker for memory in memories if memory.place >= 0})


# Text


class _RecallLines:
    """The lines that fit, with their tokens. The first line of a day also pays for the date."""

    def __init__(self, room: int, count: Count, words: Sequence[str]) -> None:
        self.room = room
        self._count = count
        self._words = [f"{word}*" if word.isascii() else word for word in words]  # stems match longer words
        self._lines: dict[int, str] = {}
        self._days: dict[str, int] = {}
        self.tokens = 0

    def add(self, number: int, memory: Memory) -> None:
        """Add a line if it fits."""
        day = _day(memory)
        date = 0 if day in self._days else self._count(day)
        line, tokens = self._line(memory, self.room - self.tokens - date)
        if line:
            self._days.setdefault(day, number)
            self._lines[number] = line
            self.tokens += tokens + date

    def size(self, memory: Memory) -> int:
        """Return about how many tokens the line of a memory has."""
        return _MAX_LINE if len(memory.text) > _LONG else min(self._count(memory.text), _MAX_LINE)

    def join(self, memories: Sequence[Memory], scores: Sequence[float], reason: Callable[[int], str]) -> RecallText:
        """Return the lines as one text."""
        pieces: list[str] = []
        day = ""
        for number in sorted(self._lines):
            if _day(memories[number]) != day:
                day = _day(memories[number])
                pieces.append(day)
            pieces.append(self._lines[number])
        pages = tuple(ChosenMemory(memories[n].key, scores[n], reason(n)) for n in sorted(self._lines))
        return RecallText(pages, "".join(pieces))

    def _line(self, memory: Memory, room: int) -> tuple[str, int]:
        """Return a line and its tokens: the whole text, or the best passage of a long one; "" if neither fits."""
        if len(memory.text) <= _LONG:
            line = _format_line(memory, memory.text.strip())
            tokens = self._count(line)
            if tokens <= min(room, _MAX_LINE):
                return line, tokens
            if tokens <= _SHORT:
                return "", 0
        return self._passage(memory, min(room, _MAX_LINE))

    def _passage(self, memory: Memory, room: int) -> tuple[str, int]:
        sample = memory.text[:_LONG]
        size = room * len(sample) // max(self._count(sample), 1)
        while room >= _MIN_PASSAGE and size > 0:
            line = _format_line(memory, self._best_passage(memory, size))
            tokens = self._count(line)
            if tokens <= room:
                return line, tokens
            size = min(size * room // tokens, size * 9 // 10)
        return "", 0

    def _best_passage(self, memory: Memory, size: int) -> str:
        """Return the best passage of a text: words of one speaker only, because a passage is one line."""
        parts = _SPEAKER_BREAK.split(memory.text) if memory.has_results else [memory.text]
        found = [make_snippet(part, self._words, size) for part in parts]
        best = max(range(len(found)), key=lambda number: (found[number].count(OPEN), -number))
        passage = found[best].replace(OPEN, "").replace(CLOSE, "")
        return f"…\n{passage}" if best else passage


_SPEAKER_BREAK = re.compile(r"\n(?! )")
"""Before a line of another speaker; further lines of a message are indented."""


def _format_line(memory: Memory, text: str) -> str:
    """Return a text with its speaker. Further lines are indented: only dates and speakers begin at the margin, so no
    text can put words into another speaker's mouth."""
    speaker = f"Page {memory.speaker}" if memory.place < 0 else memory.speaker  # a page name cannot pass for a speaker
    return f"{collapse_whitespace(speaker)}: {hang_lines(text)}\n"


def _day(memory: Memory) -> str:
    """Return the line with the date of a memory."""
    return _format_day(memory.when // _DAY)


@lru_cache(maxsize=4_096)
def _format_day(number: int) -> str:
    day = to_datetime(number * _DAY)
    return f"{day.day} {day:%b %Y}\n"
