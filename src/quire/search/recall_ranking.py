"""Which exchanges to bring back for a question, within so many tokens. Pure: it reads nothing and changes nothing.

An exchange counts by its own words, by those of the three exchanges around it and by those of its whole session, each
as BM25 over words without endings and each measured against the best; vectors of the exchange and of the three around
it join in the same way. Then neighbours share: a good answer makes the question before it worth showing. The best that
fit are shown in the order they were spoken, with the date once for every day and the speaker before every line: what
is spent on framing is evidence lost.

Adding scores that were measured against the best kept more evidence on long dialogues than reciprocal rank fusion.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from math import log

from msgspec import Struct

from quire.model.clock import to_datetime
from quire.model.text import collapse_whitespace
from quire.search.snippets import CLOSE, OPEN, snippet
from quire.search.tokenizer import SMALL_TALK, STOP, plain, runs, stem, terms

GAP = 4 * 3_600_000
"""Milliseconds of silence after which a new session begins."""
MOST_IN_SESSION = 40
"""Exchanges after which a session is cut, silence or not."""
SESSION = 0.7
NEAR, NEXT = 0.2, 0.1
"""What a session counts against an exchange, and what neighbours and theirs give of their score."""
_K1, _B = 1.2, 0.75
_LONG = 2_000
_MOST, _SHORT, _LEAST_PASSAGE = 300, 120, 40
"""Of a text of more characters or tokens only the passage that answers is shown. A short one is shown whole or not at
all, and a passage is not worth showing in fewer tokens."""
_LEAST = 0.05
"""What counts for less than this share of the best is not shown, however much room there is."""
_MOST_LINES = 2_000
_LONGEST_SMALL_TALK = 80

Count = Callable[[str], int]
Hits = Mapping[str, int]
"""How often an exchange holds each word of the question that it holds."""


class Memory(Struct, frozen=True):
    """Something that can be brought back: an exchange, or a page of its own (`place` is -1).

    `place` orders exchanges; those next to each other differ by one. `when` is in milliseconds. An echo, which only
    quotes others, keeps its place, but counts for nothing and is not brought back.
    """

    key: int
    place: int
    when: int
    speaker: str
    text: str
    echo: bool = False


class Chosen(Struct, frozen=True):
    """A page that is brought back, what it is worth against the best (1.0), and why."""

    key: int
    score: float
    reason: str


class Recalled(Struct, frozen=True):
    """The pages that are brought back, in the order they stand in the text, and what that takes."""

    pages: tuple[Chosen, ...] = ()
    text: str = ""
    tokens: int = 0


class Words:
    """The words of what was said, kept from one question to the next."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, Counter[str], int]] = {}

    def of(self, memory: Memory) -> tuple[Counter[str], int]:
        """How often each word occurs, the speaker's name included, and how many words that makes."""
        found = self._known.get(memory.key)
        if found is None or (found[0] is not memory.text and found[0] != memory.text):
            said = Counter(map(stem, terms(f"{memory.speaker}: {memory.text}")))
            found = self._known[memory.key] = (memory.text, said, said.total())
        return found[1], found[2]


Likeness = Callable[[Sequence[Memory]], Sequence[float]]
"""How like the question each of them is, by vectors: from 0 to 1."""


class Ranked(Struct, frozen=True):
    """What could be brought back in the order it was spoken, what each is worth, and why."""

    memories: Sequence[Memory]
    scores: Sequence[float]
    reasons: Sequence[str]
    asked: Sequence[str] = ()

    def laid_out(self, room: int, count: Count, visible: Collection[int] = ()) -> Recalled:
        """The best of them that fit into `room` tokens, as text; never a page in `visible`, never one twice."""
        best = max(self.scores, default=0.0)
        if best <= 0 or room <= 0:
            return Recalled()
        shown = _Block(room, count, self.asked)
        least = _LEAST * best
        usable = [
            n
            for n, one in enumerate(self.memories)
            if one.key not in visible and self.scores[n] > least and not one.echo
        ]
        for number in nlargest(_MOST_LINES, usable, key=lambda n: (self.scores[n], -n)):
            if not shown.add(number, self.memories[number]):
                break
        return shown.recalled(self.memories, [value / best for value in self.scores], self.reasons)


def ranked(
    question: str,
    memories: Sequence[Memory],
    *,
    words: Words | None = None,
    likeness: Sequence[Likeness] = (),
) -> Ranked:
    """What each of them is worth for a question."""
    ordered = sorted({memory.key: memory for memory in memories}.values(), key=_place)
    asked = asked_words(question)
    if not asked:
        return Ranked((), (), ())
    scores, reasons = score(asked, ordered, words or Words(), likeness)
    return Ranked(ordered, scores, reasons, list(asked))


def asked_words(question: str) -> dict[str, None]:
    """What a question is about: its words without endings, once each, and without those that say nothing.

    Small talk is about nothing.
    """
    if _is_small_talk(question):
        return {}
    found = dict.fromkeys(terms(question))
    telling = [word for word in found if word not in STOP] or list(found)
    return dict.fromkeys(map(stem, telling[:200]))


def _is_small_talk(text: str) -> bool:
    words = [run for run in runs(plain(text)) if run[0].isalnum()] if len(text) <= _LONGEST_SMALL_TALK else []
    return any(word in SMALL_TALK for word in words) and all(word in SMALL_TALK or word in STOP for word in words)


def score(
    asked: Mapping[str, None], memories: Sequence[Memory], words: Words, likeness: Sequence[Likeness] = ()
) -> tuple[list[float], list[str]]:
    """What each of them is worth, and what speaks for it most."""
    said = [words.of(memory) for memory in memories]
    hits: list[Hits] = [{word: held[word] for word in asked if word in held} for held, _ in said]
    sizes = [size for _, size in said]
    groups = _sessions(memories)
    beside = _Beside(memories, groups)
    whole: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        whole.setdefault(group, []).append(number)
    one = _measured(_bm25(hits, sizes))
    three = _measured(_bm25(*_joined(beside.threes(), hits, sizes)))
    session = dict(zip(whole, _measured(_bm25(*_joined(whole.values(), hits, sizes))), strict=True))
    like = [
        sum(values) for values in zip(*(_measured(_own(give(memories), memories)) for give in likeness), strict=True)
    ]
    total = [
        one[n] + three[n] + SESSION * session[groups[n]] + (like[n] if like else 0.0) for n in range(len(memories))
    ]
    reasons = [_reason(hits[n], like[n] if like else 0.0, total[n]) for n in range(len(memories))]
    return beside.shared(total), reasons


def _own(likeness: Sequence[float], memories: Sequence[Memory]) -> list[float]:
    """How like the question they are, but for echoes: those are as like it as what they quote."""
    return [0.0 if memory.echo else value for value, memory in zip(likeness, memories, strict=True)]


def _bm25(held: Sequence[Hits], lengths: Sequence[int]) -> list[float]:
    """BM25 of exchanges or of several together: how often each holds the words, and how many words it has."""
    average = max(sum(lengths) / len(lengths), 1.0) if lengths else 1.0
    holding = Counter(word for found in held for word in found)
    worth = {word: log(1 + (len(held) - n + 0.5) / (n + 0.5)) * (_K1 + 1) for word, n in holding.items()}
    scores = [0.0] * len(held)
    for number, found in enumerate(held):
        if found:  # most hold none of the words
            norm = _K1 * (1 - _B + _B * lengths[number] / average)
            scores[number] = sum(worth[word] * times / (times + norm) for word, times in found.items())
    return scores


def _joined(units: Iterable[Sequence[int]], hits: Sequence[Hits], sizes: Sequence[int]) -> tuple[list[Hits], list[int]]:
    """What exchanges hold together, and how long they are together."""
    held, lengths = list[Hits](), list[int]()
    for unit in units:
        found = [hits[n] for n in unit if hits[n]]
        held.append(_sum(found) if len(found) > 1 else found[0] if found else {})
        lengths.append(sum([sizes[n] for n in unit]))
    return held, lengths


def _sum(found: Sequence[Hits]) -> Hits:
    total = dict(found[0])
    for hits in found[1:]:
        for word, times in hits.items():
            total[word] = total.get(word, 0) + times
    return total


def _measured(scores: Sequence[float]) -> list[float]:
    """Scores against the best one."""
    best = max(scores, default=0.0)
    return [max(value, 0.0) / best for value in scores] if best > 0 else [0.0] * len(scores)


def _sessions(memories: Sequence[Memory]) -> list[int]:
    """The session of each: a run of exchanges without a long silence; a page on its own is one by itself."""
    groups: list[int] = []
    length = 0
    for number, memory in enumerate(memories):
        before = memories[number - 1] if number else None
        goes_on = (
            before is not None
            and before.place >= 0
            and memory.place >= 0
            and abs(memory.when - before.when) < GAP
            and length < MOST_IN_SESSION
        )
        length = length + 1 if goes_on else 1
        groups.append(groups[-1] if goes_on else number)
    return groups


class _Beside:
    """Which exchanges stand next to each other in one session, one or two steps apart."""

    def __init__(self, memories: Sequence[Memory], groups: Sequence[int]) -> None:
        places = [memory.place for memory in memories]
        self._count = len(memories)
        self._next = {step: self._apart(step, places, groups) for step in (1, 2)}

    def threes(self) -> list[list[int]]:
        """Each exchange with those before and after it."""
        near = self._next[1]
        return [[*([n - 1] if n and near[n - 1] else ()), n, *([n + 1] if near[n] else ())] for n in range(self._count)]

    def shared(self, total: Sequence[float]) -> list[float]:
        """What each is worth with what its neighbours and theirs give of their score."""
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
    def _apart(step: int, places: Sequence[int], groups: Sequence[int]) -> list[bool]:
        """For each, whether the one so many steps later stands so many places later in the same session."""
        pairs = zip(places, places[step:], groups, groups[step:], strict=False)
        later = [one == other and abs(there - here) == step for here, there, one, other in pairs]
        return later + [False] * (len(places) - len(later))


def _reason(hits: Hits, like: float, total: float) -> str:
    if hits:
        return f"it has {', '.join(_runs(hits))}"
    return "it is like the question" if like > total / 2 else "it stands beside what answers the question"


def _runs(words: Iterable[str]) -> list[str]:
    """Words as they stand in the question: of a run without blanks, the pairs that overlap as one."""
    found: list[str] = []
    for word in words:
        if found and not word.isascii() and len(word) == 2 and found[-1][-1] == word[0]:
            found[-1] += word[1]
        else:
            found.append(word)
    return found


def _place(memory: Memory) -> tuple[bool, int, int]:
    return memory.place < 0, memory.place, memory.key


class _Block:
    """Lines as they are taken, with what they cost: a day's date is paid for by its first line."""

    def __init__(self, room: int, count: Count, asked: Sequence[str]) -> None:
        self.room = room
        self._count = count
        self._asked = [f"{word}*" if word.isascii() else word for word in asked]  # they have lost their endings
        self._lines: dict[int, str] = {}
        self._days: dict[str, int] = {}
        self.tokens = 0

    def add(self, number: int, memory: Memory) -> bool:
        """Take a line if it fits; whether it is worth trying another."""
        day = _day(memory)
        date = 0 if day in self._days else self._count(day)
        line, tokens = self._line(memory, self.room - self.tokens - date)
        if line:
            self._days.setdefault(day, number)
            self._lines[number] = line
            self.tokens += tokens + date
        return self.room - self.tokens > _SMALLEST

    def recalled(self, memories: Sequence[Memory], scores: Sequence[float], reasons: Sequence[str]) -> Recalled:
        """What was taken, as one text."""
        pieces: list[str] = []
        day = ""
        for number in sorted(self._lines):
            if _day(memories[number]) != day:
                day = _day(memories[number])
                pieces.append(day)
            pieces.append(self._lines[number])
        text = "".join(pieces)
        chosen = tuple(Chosen(memories[n].key, scores[n], reasons[n]) for n in sorted(self._lines))
        return Recalled(chosen, text, self._count(text))

    def _line(self, memory: Memory, room: int) -> tuple[str, int]:
        """A line and what it takes: the whole, of a long text the passage that answers; "" if neither fits."""
        if len(memory.text) <= _LONG:
            line = _said(memory, memory.text.strip())
            tokens = self._count(line)
            if tokens <= min(room, _MOST):
                return line, tokens
            if tokens <= _SHORT:
                return "", 0
        return self._passage(memory, min(room, _MOST))

    def _passage(self, memory: Memory, room: int) -> tuple[str, int]:
        sample = memory.text[:_LONG]
        size = room * len(sample) // max(self._count(sample), 1)
        while room >= _LEAST_PASSAGE and size > 0:
            line = _said(memory, snippet(memory.text, self._asked, size).replace(OPEN, "").replace(CLOSE, ""))
            tokens = self._count(line)
            if tokens <= room:
                return line, tokens
            size = min(size * room // tokens, size * 9 // 10)
        return "", 0


def _said(memory: Memory, text: str) -> str:
    """A text as it stands in the block. Its further lines are indented: what stands at the margin is ours, a day or a
    speaker, and no text can put words into another's mouth."""
    speaker = f"Page {memory.speaker}" if memory.place < 0 else memory.speaker  # and so can no name of a page
    return f"{collapse_whitespace(speaker)}: {_INDENT.join(text.splitlines())}\n"


_INDENT = "\n "
_SMALLEST = 12
"""Tokens below which no further line is tried."""


def _day(memory: Memory) -> str:
    """The line that stands before what was said on a day."""
    day = to_datetime(memory.when)
    return f"{day.day} {day:%b %Y}\n"
