"""Ranking: one scorer for every backend, BM25 over the fields of a page with the statistics of the viewer's scope.

Occurrences in a long body count less; occurrences in the name and the description count more. Full matches come before
partial ones: a page with every clause gets a bonus that no partial match can reach, and a page where the clauses follow
each other gets a second one.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import nsmallest
from math import log
from typing import NamedTuple

from msgspec.structs import replace

from quire.search.index_protocol import (
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
from quire.search.query import Clause, Query
from quire.storage.contract import MAX_KEY

K1 = 1.2
B = 0.75
NAME = 4.0
DESCRIPTION = 2.5
PARTS = 0.5
_SHORTEST = 0.5
"""A body below this share of the average length counts as that long; otherwise a single word would always win."""
_COMMON = 4
_FEW = 256
"""From this number of pages on, a word on every fourth page is common; counting stops there."""


def idf(count: int, documents: int) -> float:
    """Return the weight of a word that occurs on this many pages."""
    return log(1 + (documents - count + 0.5) / (count + 0.5))


class Weights:
    """The weights of phrases in a viewer's scope, and the average length of the bodies."""

    def __init__(self, index: Index, spans: Sequence[Span]) -> None:
        self._index = index
        self._spans = spans
        self.amount: Amount = index.amount(spans)
        documents = self.amount.documents
        self.most = documents // _COMMON if documents >= _FEW else documents
        self._counts: dict[Phrase, int] = {}

    def count(self, phrase: Phrase) -> int:
        """Return on how many pages a phrase occurs, up to `most`."""
        found = self._counts.get(phrase)
        if found is None:
            found = self._counts[phrase] = self._index.count(phrase, self._spans, self.most)
        return found

    def of(self, phrase: Phrase) -> float:
        """Return the weight of a phrase."""
        return idf(self.count(phrase), self.amount.documents)

    def is_common(self, phrase: Phrase) -> bool:
        """Return whether the phrase occurs on so many pages that it does not distinguish them."""
        return self.amount.documents >= _FEW and self.count(phrase) >= self.most

    @property
    def average(self) -> float:
        return max(self.amount.terms / self.amount.documents, 1.0) if self.amount.documents else 1.0


def max_score(weights: Sequence[float]) -> float:
    """Return a score that no page can reach with phrases of these weights alone."""
    return sum(weights) * (K1 + 1)


def make_scorer(
    weights: Sequence[float], sizes: Blocks, average: float, bonus: float = 0.0, groups: Sequence[int] = ()
) -> Score:
    """Return a function that scores a page from the positions of phrases. It runs for every page, so it must be fast.

    With `groups`, a group number for each phrase, only a page with a phrase of every group gets the bonus.
    """
    start, slope = 1 - B - B / average, B / average  # sizes are stored plus one
    worths = [(number, weight * (K1 + 1)) for number, weight in enumerate(weights) if weight]
    every = len({groups[number] for number, _ in worths}) if groups else -1

    def score(place: ScoredDocument) -> float:
        key = place.rowid & MAX_KEY
        block = sizes.get(key >> 9)  # None: a page that another writer has just added
        norm = start + slope * block[key & 511] if block else 1.0
        if norm < _SHORTEST:
            norm = _SHORTEST
        locate = place.phrase_locations
        total = 0.0 if groups else bonus
        found = set()
        for number, worth in worths:
            body, name, description, parts = locate(number)
            if name or description or parts:
                frequency = NAME * len(name) + DESCRIPTION * len(description) + PARTS * len(parts) + len(body) / norm
            elif body:
                frequency = len(body) / norm
            else:
                continue
            total += worth * frequency / (frequency + K1)
            if groups:
                found.add(groups[number])
        return total + bonus if len(found) == every else total

    return score


MAX_SCORED = 600
"""About the number of pages that a search for some words scores, twice at most."""
_MAX_TERMS = 96
_MAX_DISTINCTIVE = 24
_WIDER = 4
_USUAL = 1.0
"""A page with the two rarest words, once each, reaches this share of their weights."""
_LIKE, _LEAST_LIKE = 0.3, 0.2
"""A page is a hit only above this share of the best similarity, and above this similarity."""
_BEHIND = 1e-6
"""The factor for the score of a page that comes behind all others."""
_MAX_FORMED = 8
"""The number of words of which a partial match may have another form."""
_FULL = 2.0
"""The bonus of a full match where scores of words and meaning are added."""


class RankedPage(NamedTuple):
    """A page with its score; `complete` if it contains everything that was asked for."""

    score: float
    key: int
    complete: bool


NearestPages = Callable[[Sequence[Span], int], list[ScoredKey]]
"""Returns the pages nearest in meaning, with their similarity."""


def rank(
    index: Index,
    query: Query,
    spans: Sequence[Span],
    within: Sequence[Span],
    limit: int,
    near: NearestPages | None = None,
    behind: Collection[int] = (),
) -> list[RankedPage]:
    """Return the best pages in the spans `within`, with the statistics of all `spans`.

    With `near`, similarity of meaning is added to the scores within a tier, and similar pages join the partial matches.
    Pages with keys in `behind` come after the others, in addition to the limit.
    """
    if not query.clauses or not limit or not within:
        return []
    if near is None:
        return _by_words(index, query, spans, within, limit, behind)
    wide = _WIDER * limit + _WIDER * 10
    is_strict = any(clause.required for clause in query.clauses)
    words, like = _by_words(index, query, spans, within, wide, behind), near(within, wide + len(behind))

    def merge(*, late: bool) -> list[RankedPage]:
        similar = [one for one in like if (one[1] in behind) is late]
        found = [entry for entry in words if (entry.key in behind) is late]
        return _merge(found, similar if late else similar[:wide], is_strict=is_strict)

    return [*merge(late=False)[:limit], *map(demote, merge(late=True))]


def rank_partial(
    index: Index, query: Query, weights: Weights, within: Sequence[Span], limit: int, behind: Collection[int] = ()
) -> list[ScoredKey]:
    """Return the best pages with some words of a query or other forms of them, as `rank` does.

    Words are taken from the rarest on, until they occur on `MAX_SCORED` pages. If this gives too few pages, the newest
    pages with the next word are added. So the cost does not grow with the number of pages.
    """
    if not query.clauses or not within:
        return []
    terms = (term for clause in query.clauses for phrase in (clause.phrase, *clause.forms) for term in _terms(phrase))
    order = sorted(distinctive_terms(weights, list(dict.fromkeys(terms))), key=weights.count)
    if not order:
        return []
    counts = [weights.count(term) for term in order]
    split = next((n for n in range(len(order)) if sum(counts[: n + 1]) > MAX_SCORED), len(order))

    def best(some: Sequence[Phrase], spans: Sequence[Span]) -> list[ScoredKey]:
        also = tuple(term for term in order if term not in some)
        again = [0.0] * len(some) if also else []
        worth = make_scorer([*again, *map(weights.of, (*some, *also))], index.sizes(), weights.average)
        return index.best(IndexQuery((), tuple(some), also), spans, _demote(worth, behind), limit)

    found = best(order[:split], within) if split else []
    if split < len(order) and len(found) < limit:
        pages = counts[split] if counts[split] < weights.most else weights.amount.documents  # counting stopped
        found += best(order[split : split + 1], _newest(index.sizes(), within, MAX_SCORED / pages))
    return sorted(dict.fromkeys(found), key=lambda page: (-page[0], page[1]))[:limit]


def _newest(sizes: Blocks, within: Sequence[Span], share: float) -> list[Span]:
    """Return the spans of the newest pages: this share of the blocks of each span."""
    found: list[Span] = []
    for first, last in within:
        blocks = sorted(number for number in sizes if first >> 9 <= number <= last >> 9)
        if blocks:
            start = blocks[min(int(len(blocks) * max(1 - share, 0)), len(blocks) - 1)]
            found.append((max(first, start << 9), last))
    return found


def demote(entry: RankedPage) -> RankedPage:
    """Return the page with a score behind all others."""
    return entry._replace(score=entry.score * _BEHIND)


def _merge(words: Sequence[RankedPage], near: Sequence[ScoredKey], *, is_strict: bool) -> list[RankedPage]:
    """Merge both lists: within a tier, normalized scores are added.

    If something is required, similarity only orders pages: a page without the required words is not a hit.
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


def _demote(score: Score, behind: Collection[int]) -> Score:
    """Return a scorer that puts the pages in `behind` after all others and keeps their order."""
    if not behind:
        return score

    def score_demoted(place: ScoredDocument) -> float:
        return score(place) * _BEHIND if place.rowid & MAX_KEY in behind else score(place)

    return score_demoted


def _best(
    index: Index, tier: "_Tier", within: Sequence[Span], limit: int, behind: Collection[int] = ()
) -> list[ScoredKey]:
    """Return the best pages of a tier. Pages with only common words are scored only if they can be among them."""
    worth = _demote(make_scorer(tier.weights, index.sizes(), tier.average, tier.bonus, tier.groups), behind)
    if tier.groups:
        found = index.best(tier.wanted, within, worth, limit)
        least = tier.bonus * (_BEHIND if behind else 1.0)
        return [(score, key) for score, key in found if score >= (least if key in behind else tier.bonus)]
    every, some = tier.wanted.every, tier.wanted.some
    weights = dict(zip(some, tier.weights[len(every) :], strict=True)) if some else {}
    order = sorted(some, key=lambda phrase: -weights[phrase])
    for split in range(1, len(order)):
        left = max_score([weights[phrase] for phrase in order[split:]])
        if left <= _USUAL * (weights[order[0]] + weights[order[1]]):
            wanted = IndexQuery(every, tuple(order[:split]), tuple(order[split:]))
            again = [0.0] * split
            first = [*tier.weights[: len(every)], *again, *(weights[phrase] for phrase in order)]
            first_worth = _demote(make_scorer(first, index.sizes(), tier.average, tier.bonus), behind)
            found = index.best(wanted, within, first_worth, limit)
            if len(found) == limit and found[-1][0] > left + max_score(tier.weights[: len(every)]):
                return found
            break
    return index.best(tier.wanted, within, worth, limit)


class _Tier(NamedTuple):
    """A group of pages that come before all pages of the next tier."""

    wanted: IndexQuery
    weights: Sequence[float]
    average: float
    bonus: float = 0.0
    share: float = 1.0
    complete: bool = True
    groups: tuple[int, ...] = ()


def _tiers(weights: Weights, query: Query) -> Iterator[_Tier]:
    """Yield the tiers: all clauses in a row, then all clauses, then some. The next is computed only when needed."""
    every = tuple(clause.phrase for clause in query.clauses)
    worth = [weights.of(phrase) for phrase in every]
    step = max_score(worth)
    if query.together and weights.count(query.together):
        yield _Tier(IndexQuery((*every, query.together)), worth, weights.average, 2 * step)
    yield _Tier(IndexQuery(every), worth, weights.average, step)
    below = step
    if any(clause.forms for clause in query.clauses):
        known = [replace(clause, forms=tuple(filter(weights.count, clause.forms))) for clause in query.clauses]
        if any(clause.forms for clause in known):
            yield _with_forms(weights, known, step, _most_with_forms(weights, query))
        below = step / 2
    partial = _partial(weights, query)
    if partial is not None:
        worth = [weights.of(phrase) for phrase in partial.phrases]
        share = min(1.0, below / max_score(worth)) if max_score(worth) else 1.0
        yield _Tier(partial, worth, weights.average, share=share, complete=False)


def _most_with_forms(weights: Weights, query: Query) -> float:
    """Return a score that no page can reach with the clauses and all their forms."""
    return max_score([weights.of(clause.phrase) * (1 + len(clause.forms)) for clause in query.clauses])


def _with_forms(weights: Weights, given: Sequence[Clause], step: float, most: float) -> _Tier:
    """Return the tier of pages that have every clause or another form of it. A form counts as much as the word.

    The scores are from half a step to a step: behind exact matches, and before partial ones. `most` is the most that
    the words of a page can score.
    """
    clauses = sorted(given, key=lambda clause: (not clause.forms, weights.count(clause.phrase)))
    rarest, *others = clauses
    some = (rarest.phrase, *rarest.forms)
    every = tuple(clause.phrase for clause in others if not clause.forms)
    formed = [clause for clause in others if clause.forms]
    also = tuple(phrase for clause in formed for phrase in (clause.phrase, *clause.forms))
    wanted = IndexQuery(every, some, also)
    group = {phrase: n for n, clause in enumerate(given) for phrase in (*clause.forms, clause.phrase)}
    worth = [weights.of(given[group[phrase]].phrase) for phrase in wanted.phrases]
    if also:  # the phrases of `some` occur twice
        worth[len(every) : len(every) + len(some)] = [0.0] * len(some)
    groups = tuple(group[phrase] for phrase in wanted.phrases)
    return _Tier(wanted, worth, weights.average, most, share=step / (2 * most) if most else 1.0, groups=groups)


def _partial(weights: Weights, query: Query) -> IndexQuery | None:
    """Return the query for some of the words and everything required; None if there is no smaller query."""
    required = tuple(clause.phrase for clause in query.clauses if clause.required)
    loose = (clause.phrase for clause in query.clauses if not clause.required)
    terms = list(dict.fromkeys(term for phrase in loose for term in _terms(phrase)))
    if len(terms) + len(required) < 2:
        return None
    formed = [clause for clause in query.clauses if clause.forms][:_MAX_FORMED]
    terms = list(dict.fromkeys((*terms, *(form for clause in formed for form in clause.forms))))
    some = distinctive_terms(weights, terms) if terms else ()
    return IndexQuery(required, some) if some else None


def distinctive_terms(weights: Weights, terms: Sequence[Phrase]) -> tuple[Phrase, ...]:
    """Return the terms that distinguish pages, the rarest if there are many. Terms without any page are left out."""
    known = [term for term in terms[:_MAX_TERMS] if weights.count(term)]
    rare = [term for term in known if not weights.is_common(term)] or known
    if len(rare) <= _MAX_DISTINCTIVE:
        return tuple(rare)
    order = {term: place for place, term in enumerate(rare)}
    return tuple(nsmallest(_MAX_DISTINCTIVE, rare, key=lambda term: (weights.count(term), order[term])))


def _terms(phrase: Phrase) -> Iterator[Phrase]:
    """Yield the terms of a phrase, each as a phrase."""
    for term in phrase.terms[:-1]:
        yield Phrase((term,))
    yield Phrase(phrase.terms[-1:], phrase.prefix)
