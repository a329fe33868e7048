"""Scores of memories for a question.

An exchange is scored by its own words, by those of itself and its two neighbours, and by those of its whole session,
each as BM25 over stemmed words and divided by the best score. Vectors of the exchange, and of it with its neighbours,
are added in the same way. Then neighbours share their scores: a good answer makes the question before it worth showing.
The turns of a speaker whom the question is about, and those in a month that it names, get a bonus. Frequent words of
the best exchanges are then added to the question with a small weight, and all is scored again.

On long dialogues, adding normalized scores kept more evidence than reciprocal rank fusion.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import accumulate, chain
from math import exp, inf
from typing import NamedTuple

from msgspec import Struct

from quire.model.clock import to_datetime
from quire.search.query import Question
from quire.search.rank import K1, B, idf
from quire.search.tokenizer import STOP_WORDS, is_vague, split_terms, stem

GAP = 4 * 3_600_000
"""Milliseconds of silence after which a new session begins."""
MAX_IN_SESSION = 40
"""The most exchanges of a session."""
_EARLY = 12
"""Until this day of a month, a turn may still be about the month before."""
_MAX_FEEDBACK = 10
"""The most exchanges from which words are added to the question, and the most such words."""
_MANY_WORDS, _MIN_RARITY, _SOME_RARITY = 3, 6.0, 2.0
"""A question is clear if its words in the best three exchanges are rare. With many words, less rare ones suffice."""
_MUCH_ROOM = 3_000
"""With this many tokens or more, the bonus of a speaker has its full weight."""
_STOP_STEMS = frozenset(map(stem, STOP_WORDS)) | STOP_WORDS


class Weights(NamedTuple):
    """The weights of a score.

    `near` and `next` are the shares that an exchange gets of the scores one and two places away. `speaker` is the bonus
    of a speaker, `feedback` the weight of the best word of the feedback, and `session` that of a session's score.
    """

    near: float
    next: float
    speaker: float
    feedback: float
    session: float


WITH_WORDS = Weights(near=0.2, next=0.1, speaker=0.8, feedback=0.1, session=0.5)
WITH_VECTORS = Weights(near=0.1, next=0.05, speaker=1.5, feedback=0.2, session=0.7)

WordHits = Mapping[int, int]
"""The number of times each exchange contains a word, by its place among all."""
WordWeights = Mapping[str, float]


class Memory(Struct, frozen=True):
    """A candidate for recall: an exchange, or a page outside the conversation (`place` is -1).

    `place` orders exchanges; the places of neighbours differ by one. `when` is in milliseconds. An echo only quotes
    other pages: it keeps its place, but it has no score and is not recalled. A text that `has_results` has lines of
    several speakers. `role` is the role of the speaker.
    """

    key: int
    place: int
    when: int
    speaker: str
    text: str
    echo: bool = False
    has_results: bool = False
    role: str = ""


Likeness = Callable[[Sequence[Memory]], Sequence[float]]
"""Returns how similar each memory is to the question, by vectors, from 0 to 1."""


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


def score_memories(
    question: Question,
    memories: Sequence[Memory],
    words: WordCache,
    likeness: Sequence[Likeness] = (),
    room: int = _MUCH_ROOM,
) -> tuple[list[float], Callable[[int], str], float]:
    """Return the score of every memory, a function for the main reason of each, and how clear the question is.

    `room` are the tokens for memories: in little room, the speaker counts less than the words.
    """
    weights = WITH_VECTORS if likeness else WITH_WORDS
    weights = weights._replace(speaker=weights.speaker * min(1.0, 0.3 + room / _MUCH_ROOM))
    scorer = _Scorer(question, memories, words, likeness, weights)
    scores = scorer.score(dict.fromkeys(question.words, 1.0))
    further = scorer.feedback(scores)
    clarity = scorer.clarity(scores)
    return scorer.score(further) if further else scores, scorer.reason, clarity


class _Scorer:
    """Scores the memories of one question, with different words."""

    def __init__(
        self,
        question: Question,
        memories: Sequence[Memory],
        words: WordCache,
        likeness: Sequence[Likeness],
        weights: Weights,
    ) -> None:
        self._question = question
        self._memories = memories
        self._weights = weights
        counted = [words.count(memory) for memory in memories]
        self._words = [held for held, _ in counted]
        self._sizes = [size for _, size in counted]
        self._groups = _sessions(memories)
        self._neighbours = _Neighbours(memories, self._groups)
        before = [0, *accumulate(self._sizes)]
        threes = [before[unit.stop] - before[unit.start] for unit in self._neighbours.threes]
        sessions: dict[int, int] = {}
        for group, size in zip(self._groups, self._sizes, strict=True):
            sessions[group] = sessions.get(group, 0) + size
        self._one = _Level(dict(enumerate(self._sizes)))
        self._three = _Level(dict(enumerate(threes)))
        self._session = _Level(sessions)
        self._question_hits = {word: self._find(word) for word in question.words}
        self._like = [0.0] * len(memories)
        for give in likeness:
            pairs = zip(give(memories), memories, strict=True)
            # an echo resembles the question only through the pages it quotes
            values = _normalize([0.0 if memory.echo else value for value, memory in pairs])
            self._like = [total + value for total, value in zip(self._like, values, strict=True)]
        has_bonus = question.speakers or question.roles or question.months
        self._bonus = [self._bonus_of(memory) for memory in memories] if has_bonus else [0.0] * len(memories)

    def score(self, weights: WordWeights) -> list[float]:
        """Return the score of every memory for weighted words. Words of earlier calls still count."""
        groups, threes = self._groups, self._neighbours.threes
        for word, weight in weights.items():
            found = self._question_hits.get(word) or self._find(word)
            three: dict[int, int] = {}
            session: dict[int, int] = {}
            for n, times in found.items():
                for unit in threes[n]:
                    three[unit] = three.get(unit, 0) + times
                session[groups[n]] = session.get(groups[n], 0) + times
            for level, hits in ((self._one, found), (self._three, three), (self._session, session)):
                level.add(hits, weight)
        one, three_of = self._one.scores(), self._three.scores()
        session_of = self._session.scores(self._weights.session)
        total = [
            like + one.get(n, 0.0) + three_of.get(n, 0.0) + session_of.get(group, 0.0)
            for n, (like, group) in enumerate(zip(self._like, groups, strict=True))
        ]
        if not any(total):
            return total
        shared = self._neighbours.share(total, self._weights.near, self._weights.next)
        return [score + bonus for score, bonus in zip(shared, self._bonus, strict=True)]

    def feedback(self, scores: Sequence[float]) -> dict[str, float]:
        """Return further words with their weights: those that distinguish the best exchanges (RM3)."""
        numbers = [n for n, memory in enumerate(self._memories) if scores[n] > 0 and not memory.echo]
        best = nlargest(_MAX_FEEDBACK, numbers, key=lambda n: (scores[n], -n))
        if not best:
            return {}
        unwanted = {*self._question.words, *map(stem, self._question.names)} | self._question.names | _STOP_STEMS
        worth: dict[str, float] = {}
        for n in best:
            weight = exp(scores[n] - scores[best[0]]) / max(self._sizes[n], 1)
            for word, times in self._words[n].items():
                if word not in unwanted:
                    worth[word] = worth.get(word, 0.0) + weight * times
        is_word = worth.__contains__
        holding = Counter(chain.from_iterable(filter(is_word, words) for words in self._words))
        worth = {word: value * idf(holding[word], len(self._words)) for word, value in worth.items()}
        most = nlargest(_MAX_FEEDBACK, worth, key=lambda word: (worth[word], word))
        scale = self._weights.feedback / worth[most[0]] if most and worth[most[0]] > 0 else 0.0
        return {word: scale * worth[word] for word in most} if scale else {}

    def clarity(self, scores: Sequence[float]) -> float:
        """Return how rare the words of the question are in the best exchanges; 1 is enough for a question.

        It is infinite if the question names a speaker or a month, and 0 if fewer than two words are specific.
        """
        question = self._question
        if question.speakers or question.months:
            return inf
        clear = [found for word, found in self._question_hits.items() if not is_vague(word)]
        if len(clear) < 2:
            return 0.0
        best = nlargest(3, range(len(scores)), key=lambda n: (scores[n], -n))
        rarity = sum(idf(len(found), len(scores)) * (n in found) for found in clear for n in best)
        return rarity / (_MIN_RARITY if len(clear) < _MANY_WORDS else _SOME_RARITY)

    def reason(self, n: int) -> str:
        """Return the main reason of a memory."""
        words = [word for word, found in self._question_hits.items() if n in found]
        if words:
            return f"it has {', '.join(_join_pairs(words))}"
        if self._like[n] > 1:
            return "it is like the question"
        if self._bonus[n]:
            return "the question names its speaker or its month"
        return "it is next to what answers the question"

    def _find(self, word: str) -> WordHits:
        """Return how often each memory contains a word, without the memories that do not."""
        return {n: held[word] for n, held in enumerate(self._words) if word in held}

    def _bonus_of(self, memory: Memory) -> float:
        if memory.place < 0 or memory.echo:
            return 0.0
        question = self._question
        is_speaker = memory.speaker in question.speakers or memory.role in question.roles
        bonus = self._weights.speaker if is_speaker else 0.0
        return bonus + _date_bonus(memory.when, question.months) if question.months else bonus


def _date_bonus(when: int, months: Iterable[tuple[int, int]]) -> float:
    """Return 1 in a month that the question names, 0.5 early in the month after it, else 0."""
    day = to_datetime(when)
    best = 0.0
    for month, year in months:
        last = (day.year, day.month - 1) if day.month > 1 else (day.year - 1, 12)
        if day.month == month and year in (0, day.year):
            best = 1.0
        elif day.day <= _EARLY and last[1] == month and year in (0, last[0]):
            best = max(best, 0.5)
    return best


class _Level:
    """The BM25 scores of units: exchanges, or groups of them. `sizes` are the numbers of words in all units."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._count = len(sizes)
        flat, slope = K1 * (1 - B), K1 * B / max(sum(sizes.values()) / max(len(sizes), 1), 1.0)
        self._norms = {unit: flat + slope * size for unit, size in sizes.items()}
        self._scores: dict[int, float] = {}

    def add(self, hits: WordHits, weight: float) -> None:
        """Add the scores for one word."""
        worth = weight * idf(len(hits), self._count) * (K1 + 1)
        scores, norms = self._scores, self._norms
        for unit, times in hits.items():
            scores[unit] = scores.get(unit, 0.0) + worth * times / (times + norms[unit])

    def scores(self, weight: float = 1.0) -> dict[int, float]:
        """Return the scores of the units with hits, so that the best has this weight."""
        best = max(self._scores.values(), default=0.0)
        return {unit: score * weight / best for unit, score in self._scores.items()} if best > 0 else {}


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
        near = [*self._next[1], False]  # near[-1] is False
        self.threes = [range(n - near[n - 1], n + near[n] + 1) for n in range(len(memories))]
        """Each exchange with those before and after it."""

    def share(self, total: Sequence[float], near_share: float, next_share: float) -> list[float]:
        """Return the scores with the shares that neighbours and their neighbours give."""
        shared = list(total)
        for step, share in ((1, near_share), (2, next_share)):
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


def _join_pairs(words: Iterable[str]) -> list[str]:
    """Return the words with overlapping pairs of an unspaced script joined, as they occur in the question."""
    joined: list[str] = []
    for word in words:
        if joined and not word.isascii() and len(word) == 2 and joined[-1][-1] == word[0]:
            joined[-1] += word[1]
        else:
            joined.append(word)
    return joined
