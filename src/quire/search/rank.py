"""One scorer for every backend: BM25 over the fields of a page, with the statistics of what the viewer may see.

Occurrences in the body count less the longer it is; those in name and description count more. Full matches come before
partial ones: a page that holds every clause gets a bonus that no partial match can reach, and one where they stand
together, in a row, a second one.

Which pages answer a query, best first: those that hold everything asked for, then those that hold some of it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import nsmallest
from math import log
from typing import NamedTuple

from quire.search.query import Query
from quire.storage.base import MAX_KEY
from quire.storage.search_protocol import (
    Amount,
    Blocks,
    Index,
    IndexQuery,
    Phrase,
    Score,
    ScoredDocument,
    ScoredKey,
    Span,
)

K1 = 1.2
B = 0.75
NAME = 4.0
DESCRIPTION = 2.5
PARTS = 0.5
_SHORTEST = 0.5
"""A body shorter than so much of the average counts as if it had that length: else a single word would win always."""
_COMMON = 4
_FEW = 256
"""Among at least so many pages, a word on every fourth tells nothing apart; counting ends there."""


def count_limit(documents: int) -> int:
    """Up to how many pages with a word are counted; a word on so many is a common one."""
    return documents // _COMMON if documents >= _FEW else documents


def idf(count: int, documents: int) -> float:
    """What a word on so many pages is worth."""
    return log(1 + (documents - count + 0.5) / (count + 0.5))


class Weights:
    """What phrases are worth to a viewer, and how long the bodies are on average."""

    def __init__(self, index: Index, spans: Sequence[Span]) -> None:
        self._index = index
        self._spans = spans
        self.amount: Amount = index.amount(spans)
        self.most = count_limit(self.amount.documents)
        self._counts: dict[Phrase, int] = {}

    def count(self, phrase: Phrase) -> int:
        """On how many pages a phrase stands, as far as they are counted."""
        found = self._counts.get(phrase)
        if found is None:
            found = self._counts[phrase] = self._index.count(phrase, self._spans, self.most)
        return found

    def of(self, phrase: Phrase) -> float:
        """What the phrase is worth."""
        return idf(self.count(phrase), self.amount.documents)

    def is_common(self, phrase: Phrase) -> bool:
        """Whether the phrase stands on so many pages that it tells none apart."""
        return self.amount.documents >= _FEW and self.count(phrase) >= self.most

    @property
    def average(self) -> float:
        return max(self.amount.terms / self.amount.documents, 1.0) if self.amount.documents else 1.0


def max_score(weights: Sequence[float]) -> float:
    """What no page can reach by phrases of these weights alone."""
    return sum(weights) * (K1 + 1)


def make_scorer(weights: Sequence[float], sizes: Blocks, average: float, bonus: float = 0.0) -> Score:
    """What gives the worth of a page at which phrases of these weights are located. One call a page, so it is lean."""
    start, slope = 1 - B - B / average, B / average  # sizes are kept plus one
    worths = [(number, weight * (K1 + 1)) for number, weight in enumerate(weights) if weight]

    def score(place: ScoredDocument) -> float:
        key = place.rowid & MAX_KEY
        block = sizes.get(key >> 9)  # None: another writer's page that came a moment ago
        norm = start + slope * block[key & 511] if block else 1.0
        if norm < _SHORTEST:
            norm = _SHORTEST
        locate = place.phrase_locations
        total = bonus
        for number, worth in worths:
            body, name, description, parts = locate(number)
            if name or description or parts:
                frequency = NAME * len(name) + DESCRIPTION * len(description) + PARTS * len(parts) + len(body) / norm
            elif body:
                frequency = len(body) / norm
            else:
                continue
            total += worth * frequency / (frequency + K1)
        return total

    return score


_MOST_TERMS = 96
_MOST_TELLING = 24
_WIDER = 4
_USUAL = 1.0
"""What a page that holds the two rarest words, once each, has of their weights: the least that good pages reach."""
_LIKE, _LEAST_LIKE = 0.3, 0.2
"""A page that is less like a query than so much of the likest, or than so much of itself, is no hit."""
_BEHIND = 1e-6
"""What counts of the score of a page that is to come behind all others."""
_FULL = 2.0
"""What a full match is worth above any other, where words and meaning are added."""


class RankedPage(NamedTuple):
    """A page with its score; `complete` if it holds everything that was asked for."""

    score: float
    key: int
    complete: bool


NearestPages = Callable[[Sequence[Span], int], list[ScoredKey]]
"""The pages nearest in meaning, with their likeness."""


def rank(
    index: Index,
    query: Query,
    spans: Sequence[Span],
    within: Sequence[Span],
    limit: int,
    near: NearestPages | None = None,
    behind: Collection[int] = (),
) -> list[RankedPage]:
    """The best pages in the stretches `within`, by the statistics of all of `spans`.

    With `near`, likeness of meaning orders the pages of a tier beside their words and joins those that hold some. Pages
    whose keys are in `behind` come after the others, and beyond the limit.
    """
    if not query.clauses or not limit or not within:
        return []
    if near is None:
        return _by_words(index, query, spans, within, limit, behind)
    wide = _WIDER * limit + _WIDER * 10
    is_strict = any(clause.required for clause in query.clauses)
    words, like = _by_words(index, query, spans, within, wide, behind), near(within, wide + len(behind))
    ahead = _mixed(
        [entry for entry in words if entry.key not in behind],
        [one for one in like if one[1] not in behind][:wide],
        is_strict=is_strict,
    )[:limit]
    if not behind:
        return ahead
    late = _mixed(
        [entry for entry in words if entry.key in behind],
        [one for one in like if one[1] in behind],
        is_strict=is_strict,
    )
    return [*ahead, *map(demote, late)]


def demote(entry: RankedPage) -> RankedPage:
    """The page with the score that it has behind all others."""
    return entry._replace(score=entry.score * _BEHIND)


def _mixed(words: Sequence[RankedPage], near: Sequence[ScoredKey], *, is_strict: bool) -> list[RankedPage]:
    """Both lists as one: within a tier, scores that were measured against the best are added.

    If something was required, meaning only orders: a page without it is no hit.
    """
    best = [max((entry.score for entry in words if entry.complete is tier), default=0.0) for tier in (False, True)]
    likest = max((score for score, _ in near), default=0.0)
    least = max(_LIKE * likest, _LEAST_LIKE)
    like = {key: score / likest for score, key in near if score > least}
    found = {
        entry.key: RankedPage(
            _FULL * entry.complete + entry.score / (best[entry.complete] or 1.0) + like.get(entry.key, 0.0),
            entry.key,
            entry.complete,
        )
        for entry in words
    }
    for key, score in () if is_strict else like.items():
        found.setdefault(key, RankedPage(score, key, False))
    return sorted(found.values(), key=lambda entry: (-entry.score, entry.key))


def _by_words(
    index: Index, query: Query, spans: Sequence[Span], within: Sequence[Span], limit: int, behind: Collection[int]
) -> list[RankedPage]:
    found: dict[int, RankedPage] = {}
    late: dict[int, RankedPage] = {}
    for tier in _tiers(Weights(index, spans), query):
        for score, key in _best(index, tier, within, limit + len(found), behind):
            if key in behind:
                late.setdefault(key, RankedPage(score * tier.share, key, tier.complete))
            elif len(found) < limit:
                found.setdefault(key, RankedPage(score * tier.share, key, tier.complete))
        if len(found) >= limit:
            break
    return [*found.values(), *late.values()]


def _with_some_behind(score: Score, behind: Collection[int]) -> Score:
    """A score by which the pages in `behind` come after all others, in the same order among themselves."""
    if not behind:
        return score

    def scored(place: ScoredDocument) -> float:
        return score(place) * _BEHIND if place.rowid & MAX_KEY in behind else score(place)

    return scored


def _best(
    index: Index, tier: "_Tier", within: Sequence[Span], limit: int, behind: Collection[int] = ()
) -> list[ScoredKey]:
    """The best pages of a tier. Where some words will do, pages with none but the common ones are looked at only if
    they could still come in."""
    worth = _with_some_behind(make_scorer(tier.weights, index.sizes(), tier.average, tier.bonus), behind)
    every, some = tier.wanted.every, tier.wanted.some
    weights = dict(zip(some, tier.weights[len(every) :], strict=True)) if some else {}
    order = sorted(some, key=lambda phrase: -weights[phrase])
    for split in range(1, len(order)):
        left = max_score([weights[phrase] for phrase in order[split:]])
        if left <= _USUAL * (weights[order[0]] + weights[order[1]]):
            wanted = IndexQuery(every, tuple(order[:split]), tuple(order[split:]))
            again = [0.0] * split
            first = [*tier.weights[: len(every)], *again, *(weights[phrase] for phrase in order)]
            first_worth = _with_some_behind(make_scorer(first, index.sizes(), tier.average, tier.bonus), behind)
            found = index.best(wanted, within, first_worth, limit)
            if len(found) == limit and found[-1][0] > left + max_score(tier.weights[: len(every)]):
                return found
            break
    return index.best(tier.wanted, within, worth, limit)


class _Tier(NamedTuple):
    """Pages of which every one comes before all of the next tier."""

    wanted: IndexQuery
    weights: Sequence[float]
    average: float
    bonus: float = 0.0
    share: float = 1.0
    complete: bool = True


def _tiers(weights: Weights, query: Query) -> Iterator[_Tier]:
    """Everything in a row, then everything, then some of it. The next is made only when it is asked for."""
    every = tuple(clause.phrase for clause in query.clauses)
    worth = [weights.of(phrase) for phrase in every]
    step = max_score(worth)
    if query.together and weights.count(query.together):
        yield _Tier(IndexQuery((*every, query.together)), worth, weights.average, 2 * step)
    yield _Tier(IndexQuery(every), worth, weights.average, step)
    partial = _partial(weights, query)
    if partial is not None:
        worth = [weights.of(phrase) for phrase in partial.phrases]
        share = min(1.0, step / max_score(worth)) if max_score(worth) else 1.0
        yield _Tier(partial, worth, weights.average, share=share, complete=False)


def _partial(weights: Weights, query: Query) -> IndexQuery | None:
    """Some of the words, and everything that is required; None if there is nothing less to ask for."""
    required = tuple(clause.phrase for clause in query.clauses if clause.required)
    loose = (clause.phrase for clause in query.clauses if not clause.required)
    terms = list(dict.fromkeys(term for phrase in loose for term in _terms(phrase)))
    some = distinctive_terms(weights, terms) if terms and len(terms) + len(required) > 1 else ()
    return IndexQuery(required, some) if some else None


def distinctive_terms(weights: Weights, terms: Sequence[Phrase]) -> tuple[Phrase, ...]:
    """The terms that tell pages apart, the rarest if they are many; those that stand nowhere are left out."""
    known = [term for term in terms[:_MOST_TERMS] if weights.count(term)]
    rare = [term for term in known if not weights.is_common(term)] or known
    if len(rare) <= _MOST_TELLING:
        return tuple(rare)
    order = {term: place for place, term in enumerate(rare)}
    return tuple(nsmallest(_MOST_TELLING, rare, key=lambda term: (weights.count(term), order[term])))


def _terms(phrase: Phrase) -> Iterator[Phrase]:
    """The terms of a phrase, each on its own."""
    for term in phrase.terms[:-1]:
        yield Phrase((term,))
    yield Phrase(phrase.terms[-1:], phrase.prefix)
