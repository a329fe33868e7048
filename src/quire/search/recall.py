"""Recall: finding the exchanges and pages that matter for a question, and laying them out within a token limit.

Candidates are the exchanges of the conversation and the text pages outside it. A short conversation is taken whole. Of
a long one, the index gives the exchanges that match the words of the question, and their neighbours are added, so that
the cost does not grow with the conversation.

An exchange is scored by its own words, by those of itself and its two neighbours, and by those of its whole session,
each as BM25 over stemmed words and divided by the best score. Vectors of the exchange, and of it with its neighbours,
are added in the same way. Then neighbours share their scores: a good answer makes the question before it worth showing.
The best that fit are shown in the order in which they were spoken, with a date once a day and the speaker before every
line: tokens spent on framing are evidence lost.

On long dialogues, adding normalized scores kept more evidence than reciprocal rank fusion.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from quire.core.records import PageRecord, segment_number
from quire.core.state import State
from quire.model.clock import to_datetime
from quire.model.look_alikes import plain_letters
from quire.model.messages import ROLES, Message
from quire.model.pages import Form
from quire.model.text import collapse_whitespace, hang_lines
from quire.search.indexing import query_index, read_page
from quire.search.page_text import is_searchable, read_body
from quire.search.query import Clause, Query, Scope, make_phrase
from quire.search.rank import K1, B, idf, rank
from quire.search.self_search_filter import echo_cache_of, is_echo, segment_ids
from quire.search.snippets import CLOSE, OPEN, make_snippet
from quire.search.tokenizer import SMALL_TALK, STOP_WORDS, normalize_text, split_runs, split_terms, stem
from quire.search.vectors import Embedder, speaker_name, try_vectors
from quire.storage.search_protocol import Index

MAX_WHOLE = 4_000
"""A conversation of up to this many messages is read completely."""
_MAX_FOUND = 300
_NEIGHBOURS = 2
_MAX_OTHERS = 40
_MAX_CACHED = 20_000
GAP = 4 * 3_600_000
"""Milliseconds of silence after which a new session begins."""
MAX_IN_SESSION = 40
"""The most exchanges of a session."""
SESSION = 0.7
NEAR, NEXT = 0.2, 0.1
"""The weight of a session's score, and the shares of their scores that neighbours and their neighbours give."""
_LONG = 2_000
_MAX_LINE, _SHORT, _MIN_PASSAGE = 300, 120, 40
"""Of a text of more characters or tokens only the passage that answers is shown. A short text is shown whole or not at
all, and a passage of fewer tokens is not worth showing."""
_MIN_SHARE = 0.05
"""A memory with less than this share of the best score is not shown, even if there is room."""
_DISTINCT = 2.75
"""A memory is much better than the others if it has this many times the mean score of all exchanges."""
_SAMPLE = 100
"""The number of exchanges of a long conversation over which the mean is taken."""
_FEW = 50
"""Of fewer exchanges, the mean is estimated lower: all of them may matter."""
_MAX_LINES = 2_000
_MAX_SMALL_TALK = 80
_MIN_ROOM = 12
"""With fewer tokens left, no further line is tried."""
_ROLE_LETTERS = frozenset(map(plain_letters, ROLES))

Count = Callable[[str], int]
WordHits = Mapping[str, int]
"""The number of times an exchange contains each word of the question."""


class Memory(Struct, frozen=True):
    """A candidate for recall: an exchange, or a page outside the conversation (`place` is -1).

    `place` orders exchanges; the places of neighbours differ by one. `when` is in milliseconds. An echo only quotes
    other pages: it keeps its place, but it has no score and is not recalled. A typical exchange was not looked for: the
    mean score is taken over these. A text that `has_results` has lines of several speakers.
    """

    key: int
    place: int
    when: int
    speaker: str
    text: str
    echo: bool = False
    typical: bool = False
    has_results: bool = False


Likeness = Callable[[Sequence[Memory]], Sequence[float]]
"""Returns how similar each memory is to the question, by vectors, from 0 to 1."""


class RecalledPage(Struct, frozen=True):
    """A recalled page, its score relative to the best (1.0), and the reason."""

    key: int
    score: float
    reason: str


class RecallText(Struct, frozen=True):
    """The recalled pages in the order of the text, the text, and its tokens."""

    pages: tuple[RecalledPage, ...] = ()
    text: str = ""
    tokens: int = 0


class WordCache:
    """The words of memories, cached from one question to the next."""

    def __init__(self) -> None:
        self._words: dict[int, tuple[str, Counter[str], int]] = {}

    def count(self, memory: Memory) -> tuple[Counter[str], int]:
        """Return how often each word occurs, the speaker's name included, and the number of words."""
        entry = self._words.get(memory.key)
        if entry is None or (entry[0] is not memory.text and entry[0] != memory.text):
            words = Counter(map(stem, split_terms(f"{memory.speaker}: {memory.text}")))
            entry = self._words[memory.key] = (memory.text, words, words.total())
        return entry[1], entry[2]


_words: "WeakKeyDictionary[State, WordCache]" = WeakKeyDictionary()
_memories: "WeakKeyDictionary[State, OrderedDict[int, tuple[object, Memory]]]" = WeakKeyDictionary()


# Candidates


def word_cache_of(state: State) -> WordCache:
    """Return the word cache of a state."""
    return _words.setdefault(state, WordCache())


def find_memories(state: State, question: str, scope: Scope) -> list[Memory]:
    """Return the candidates for a question in a viewer's scope."""
    conversation = state.conversation()
    memories: list[Memory] = []
    if conversation is not None and conversation in scope.segments:
        memories += _exchanges(state, question, scope, conversation)
    others = Scope(scope.segments - {conversation} if conversation is not None else scope.segments)
    for page in _search(state, question, scope, others, _MAX_OTHERS):
        if not page.header.folder and not page.header.pinned and page.header.form is Form.TEXT and page.header.body:
            text = read_body(state.storage, state.context, state.mark, page.header)
            memories.append(Memory(page.key, -1, page.header.created, page.header.name, text))
    return memories


def likeness_functions(state: State, question: str, embedder: Embedder | None) -> list[Likeness]:
    """Return functions that compare exchanges with the question, alone and with neighbours; [] without an embedder."""
    found = try_vectors(question, state.storage, state.context, embedder)
    if found is None:
        return []
    vectors, vector = found

    def alone(memories: Sequence[Memory]) -> list[float]:
        return [float(value) for value in vectors.rows([memory.key for memory in memories]) @ vector]

    def with_neighbours(memories: Sequence[Memory]) -> list[float]:
        rows = vectors.rows([memory.key for memory in memories])
        return [float(value) for value in _add_neighbours(rows, memories) @ vector]

    return [alone, with_neighbours]


def _exchanges(state: State, question: str, scope: Scope, conversation: int) -> Iterator[Memory]:
    """Yield the exchanges of a short conversation, or the matching ones of a long one, in the order of messages."""
    step = 1
    if state.next_message <= MAX_WHOLE:
        pages: Iterable[PageRecord] = filter(is_searchable, state.segment_pages(conversation))
    else:
        found = _search(state, question, scope, Scope(frozenset({conversation})), _MAX_FOUND)
        step = state.next_message // _SAMPLE
        sample = _pages_of(state, range(0, state.next_message, step))
        pages = {page.key: page for page in (*_with_neighbours(state, found), *sample)}.values()
    exchanges = sorted((page for page in pages if page.header.numbers), key=lambda page: page.header.numbers)
    segments = segment_ids(state, scope)
    place = -1
    last_number = -2
    for page in exchanges:
        place += 1 if page.header.numbers[0] == last_number + 1 else 2  # 2: a gap, so they are not neighbours
        last_number = page.header.numbers[-1]
        is_typical = any(number % step == 0 for number in page.header.numbers)
        yield _memory_of(state, page, place, segments, typical=is_typical)


def _memory_of(state: State, page: PageRecord, place: int, segments: frozenset[str], *, typical: bool) -> Memory:
    cache = _memories.setdefault(state, OrderedDict())
    entry = cache.get(page.key)
    if entry is None or entry[0] != (page.header.numbers, segments):
        messages = [state.message(number).message for number in page.header.numbers]
        echo = is_echo(messages, segments)
        first, *others = [message for message in messages if message.text] or messages[:1]
        text = first.text
        if others:  # call results; only their speakers begin at the margin of the text
            lines = [text, *(f"{_speaker_label(other)}: {other.text}" for other in others)]
            text = "\n".join(map(hang_lines, lines))
        speaker, created = _speaker_label(first), page.header.created
        memory = Memory(page.key, place, created, speaker, "" if echo else text, echo, has_results=bool(others))
        entry = cache[page.key] = ((page.header.numbers, segments), memory)
        while len(cache) > _MAX_CACHED:
            cache.popitem(last=False)
    memory = entry[1]
    is_same = memory.place == place and memory.typical == typical
    return memory if is_same else replace(memory, place=place, typical=typical)


def _search(state: State, question: str, scope: Scope, within: Scope, limit: int) -> Iterator[PageRecord]:
    """Yield the pages that the index finds for the words of a question."""
    runs = dict.fromkeys(split_runs(normalize_text(question[:10_000])))
    words = [word for word in runs if word not in STOP_WORDS][:64] or list(runs)[:64]
    query = Query(tuple(Clause(make_phrase(word), (word,)) for word in words))
    visible, wanted = scope.spans(), within.spans()

    def look(index: Index) -> list[PageRecord]:
        echoes = echo_cache_of(state, scope)
        while True:
            ranked = rank(index, query, visible, wanted, limit, behind=echoes.keys)[:limit]
            stored = (read_page(state.storage, state.context, state.mark, entry.key) for entry in ranked)
            pages = [page for page in stored if page is not None and is_searchable(page)]
            if not echoes.learn(state, pages):
                return pages

    yield from query_index(state.storage, state.context, look)


def _with_neighbours(state: State, pages: Iterable[PageRecord]) -> Iterator[PageRecord]:
    """Yield exchanges and their neighbours by message number, each once."""
    seen: set[int] = set()
    for page in pages:
        if not page.header.numbers:
            continue
        before, after = page.header.numbers[0], page.header.numbers[-1]
        earlier = range(max(before - _NEIGHBOURS, 0), before)
        later = range(after + 1, min(after + 1 + _NEIGHBOURS, state.next_message))
        for other in (page, *_pages_of(state, (*earlier, *later))):
            if other.key not in seen:
                seen.add(other.key)
                yield other


def _pages_of(state: State, numbers: Iterable[int]) -> Iterator[PageRecord]:
    """Yield the conversation's pages that contain these messages."""
    for number in numbers:
        record = next(iter(state.message_records(number, number)), None)
        page = state.page_of(number) if record else None
        is_there = page is not None and is_searchable(page) and number in page.header.numbers
        if page is not None and is_there and segment_number(page.key) == state.conversation():
            yield page


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
    """Memories in the order in which they were spoken, with their scores and reasons."""

    memories: Sequence[Memory]
    scores: Sequence[float]
    reasons: Sequence[str]
    words: Sequence[str] = ()

    def lay_out(
        self,
        room: int,
        count: Count,
        visible: Collection[int] = (),
        *,
        share: int | None = None,
        selective: bool = False,
    ) -> RecallText:
        """Return the best memories that fit `room` tokens as text, each once and without the pages in `visible`.

        Together with the visible pages among the best they have at most `share` tokens. If it is `selective`, only
        memories that are much better than the others are returned.
        """
        best = max(self.scores, default=0.0)
        if best <= 0 or room <= 0:
            return RecallText()
        lines = _RecallLines(room, count, self.words)
        least = max(_MIN_SHARE * best, min(best, _DISTINCT * self._mean_score() if selective else 0.0))
        usable = [n for n, one in enumerate(self.memories) if self.scores[n] >= least and not one.echo]
        left = room if share is None else share
        for number in nlargest(_MAX_LINES, usable, key=lambda n: (self.scores[n], -n)):
            memory = self.memories[number]
            if memory.key not in visible:
                lines.add(number, memory)
            elif share is not None:
                left -= lines.size(memory)
                lines.room = min(room, left)
            if lines.room - lines.tokens <= _MIN_ROOM:
                break
        return lines.join(self.memories, [value / best for value in self.scores], self.reasons)

    def _mean_score(self) -> float:
        """Return the mean score of a typical exchange; of few exchanges it is estimated lower."""
        scores = [score for score, memory in zip(self.scores, self.memories, strict=True) if memory.typical]
        return sum(scores) / max(len(scores), _FEW)


def rank_memories(
    question: str,
    memories: Sequence[Memory],
    *,
    words: WordCache | None = None,
    likeness: Sequence[Likeness] = (),
) -> RankedMemories:
    """Score memories for a question."""
    unique = {memory.key: memory for memory in memories}.values()
    ordered = sorted(unique, key=lambda memory: (memory.place < 0, memory.place, memory.key))
    asked = question_words(question)
    if not asked:
        return RankedMemories((), (), ())
    scores, reasons = score_memories(asked, ordered, words or WordCache(), likeness)
    return RankedMemories(ordered, scores, reasons, list(asked))


def question_words(question: str) -> dict[str, None]:
    """Return the stemmed words of a question, without stop words; none for small talk."""
    if _is_small_talk(question):
        return {}
    found = dict.fromkeys(split_terms(question))
    words = [word for word in found if word not in STOP_WORDS] or list(found)
    return dict.fromkeys(map(stem, words[:200]))


def _is_small_talk(text: str) -> bool:
    runs = split_runs(normalize_text(text)) if len(text) <= _MAX_SMALL_TALK else []
    words = [run for run in runs if run[0].isalnum()]
    return any(word in SMALL_TALK for word in words) and all(word in SMALL_TALK or word in STOP_WORDS for word in words)


def score_memories(
    asked: Mapping[str, None], memories: Sequence[Memory], words: WordCache, likeness: Sequence[Likeness] = ()
) -> tuple[list[float], list[str]]:
    """Return the score of every memory, and the main reason for it."""
    counted = [words.count(memory) for memory in memories]
    hits: list[WordHits] = [{word: held[word] for word in asked if word in held} for held, _ in counted]
    sizes = [size for _, size in counted]
    groups = _sessions(memories)
    neighbours = _Neighbours(memories, groups)
    sessions: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        sessions.setdefault(group, []).append(number)
    one = _normalize(_bm25(hits, sizes))
    three = _normalize(_bm25(*_combine(neighbours.threes(), hits, sizes)))
    session = dict(zip(sessions, _normalize(_bm25(*_combine(sessions.values(), hits, sizes))), strict=True))
    like = [0.0] * len(memories)
    for give in likeness:
        pairs = zip(give(memories), memories, strict=True)
        # an echo resembles the question only through the pages it quotes
        values = _normalize([0.0 if memory.echo else value for value, memory in pairs])
        like = [total + value for total, value in zip(like, values, strict=True)]
    total = [one[n] + three[n] + SESSION * session[groups[n]] + like[n] for n in range(len(memories))]
    reasons = [_reason(hits[n], like[n], total[n]) for n in range(len(memories))]
    return neighbours.share(total), reasons


def _bm25(hits: Sequence[WordHits], lengths: Sequence[int]) -> list[float]:
    """Return the BM25 scores of exchanges or groups of them, from their word hits and their lengths in words."""
    average = max(sum(lengths) / len(lengths), 1.0) if lengths else 1.0
    holding = Counter(word for found in hits for word in found)
    worth = {word: idf(n, len(hits)) * (K1 + 1) for word, n in holding.items()}
    scores = [0.0] * len(hits)
    for number, found in enumerate(hits):
        if found:  # most have no hit
            norm = K1 * (1 - B + B * lengths[number] / average)
            scores[number] = sum(worth[word] * times / (times + norm) for word, times in found.items())
    return scores


def _combine(
    units: Iterable[Sequence[int]], hits: Sequence[WordHits], sizes: Sequence[int]
) -> tuple[list[WordHits], list[int]]:
    """Return the word hits and the lengths of groups of exchanges."""
    combined, lengths = list[WordHits](), list[int]()
    for unit in units:
        found = [hits[n] for n in unit if hits[n]]
        combined.append(_sum(found) if len(found) > 1 else found[0] if found else {})
        lengths.append(sum([sizes[n] for n in unit]))
    return combined, lengths


def _sum(found: Sequence[WordHits]) -> WordHits:
    total = dict(found[0])
    for hits in found[1:]:
        for word, times in hits.items():
            total[word] = total.get(word, 0) + times
    return total


def _normalize(scores: Sequence[float]) -> list[float]:
    """Divide scores by the best one."""
    best = max(scores, default=0.0)
    return [max(value, 0.0) / best for value in scores] if best > 0 else [0.0] * len(scores)


def _sessions(memories: Sequence[Memory]) -> list[int]:
    """Return the session of each memory: a run of exchanges without a long silence. A page is its own session."""
    groups: list[int] = []
    length = 0
    for number, memory in enumerate(memories):
        before = memories[number - 1] if number else None
        continues = (
            before is not None
            and before.place >= 0
            and memory.place >= 0
            and abs(memory.when - before.when) < GAP
            and length < MAX_IN_SESSION
        )
        length = length + 1 if continues else 1
        groups.append(groups[-1] if continues else number)
    return groups


class _Neighbours:
    """The exchanges of one session that are one or two places apart."""

    def __init__(self, memories: Sequence[Memory], groups: Sequence[int]) -> None:
        places = [memory.place for memory in memories]
        self._count = len(memories)
        self._next = {step: self._find(step, places, groups) for step in (1, 2)}

    def threes(self) -> list[list[int]]:
        """Return each exchange with those before and after it."""
        near = self._next[1]
        return [[*([n - 1] if n and near[n - 1] else ()), n, *([n + 1] if near[n] else ())] for n in range(self._count)]

    def share(self, total: Sequence[float]) -> list[float]:
        """Return the scores with the shares that neighbours and their neighbours give."""
        shared = list(total)
        for step, share in ((1, NEAR), (2, NEXT)):
            near = self._next[step]
            for n in range(self._count):
                if n >= step and near[n - step]:
                    shared[n] += share * total[n - step]
                if near[n]:
                    shared[n] += share * total[n + step]
        return shared

    @staticmethod
    def _find(step: int, places: Sequence[int], groups: Sequence[int]) -> list[bool]:
        """Return for each memory whether the one `step` later is `step` places later in the same session."""
        pairs = zip(places, places[step:], groups, groups[step:], strict=False)
        later = [one == other and abs(there - here) == step for here, there, one, other in pairs]
        return later + [False] * (len(places) - len(later))


def _reason(hits: WordHits, like: float, total: float) -> str:
    if hits:
        return f"it has {', '.join(_join_pairs(hits))}"
    return "it is like the question" if like > total / 2 else "it is next to what answers the question"


def _join_pairs(words: Iterable[str]) -> list[str]:
    """Return the words with overlapping pairs of an unspaced script joined, as they occur in the question."""
    joined: list[str] = []
    for word in words:
        if joined and not word.isascii() and len(word) == 2 and joined[-1][-1] == word[0]:
            joined[-1] += word[1]
        else:
            joined.append(word)
    return joined


# Text


class _RecallLines:
    """The lines that fit, with their tokens. The first line of a day also pays for the date."""

    def __init__(self, room: int, count: Count, words: Sequence[str]) -> None:
        self.room = room
        self._count = count
        self._words = [f"{word}*" if word.isascii() else word for word in words]  # stems: match what continues them
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

    def join(self, memories: Sequence[Memory], scores: Sequence[float], reasons: Sequence[str]) -> RecallText:
        """Return the lines as one text."""
        pieces: list[str] = []
        day = ""
        for number in sorted(self._lines):
            if _day(memories[number]) != day:
                day = _day(memories[number])
                pieces.append(day)
            pieces.append(self._lines[number])
        text = "".join(pieces)
        pages = tuple(RecalledPage(memories[n].key, scores[n], reasons[n]) for n in sorted(self._lines))
        return RecallText(pages, text, self._count(text))

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
    day = to_datetime(memory.when)
    return f"{day.day} {day:%b %Y}\n"
