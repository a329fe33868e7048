"""Which pages answer a query, best first: those that hold everything asked for, then those that hold some of it."""

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import NamedTuple

from quire.search.query import Query
from quire.search.scoring import Scorer, Weights
from quire.storage.searching import Index, Phrase, Span, Wanted

_MOST_TERMS = 96
_MOST_TELLING = 24


class Ranked(NamedTuple):
    """A page with its score; `complete` if it holds everything that was asked for."""

    score: float
    key: int
    complete: bool


def rank(index: Index, query: Query, spans: Sequence[Span], within: Sequence[Span], limit: int) -> list[Ranked]:
    """The best pages in the stretches `within`, by the statistics of all of `spans`."""
    if not query.clauses or not limit or not within:
        return []
    weights = Weights(index, spans)
    every = tuple(clause.phrase for clause in query.clauses)
    together = (query.together,) if query.together else ()
    scorer = Scorer(
        [weights.of(phrase) for phrase in every], index.sizes(), weights.average, full=True, together=bool(together)
    )
    full = index.best(Wanted(every, extra=together), within, scorer, limit)
    found = [Ranked(score, key, True) for score, key in full]
    if len(found) < limit:
        held = {key for _, key in full}
        partial = _partial(index, query, weights, within, limit + len(held), scorer.ceiling)
        found += [ranked for ranked in partial if ranked.key not in held][: limit - len(found)]
    return found


def _partial(
    index: Index, query: Query, weights: Weights, within: Sequence[Span], limit: int, ceiling: float
) -> Iterator[Ranked]:
    """Pages that hold some of the words, and everything that is required; none is worth `ceiling` or more."""
    required = tuple(clause.phrase for clause in query.clauses if clause.required)
    terms = list(
        dict.fromkeys(term for clause in query.clauses if not clause.required for term in _terms(clause.phrase))
    )
    if len(terms) + len(required) < 2 or not terms:
        return
    some = telling(weights, terms)
    if not some:
        return
    worth = [weights.of(phrase) for phrase in (*required, *some)]
    scorer = Scorer(worth, index.sizes(), weights.average)
    share = min(1.0, ceiling / scorer.ceiling) if scorer.ceiling else 1.0
    for score, key in index.best(Wanted(required, some), within, scorer, limit):
        yield Ranked(score * share, key, False)


def telling(weights: Weights, terms: Sequence[Phrase]) -> tuple[Phrase, ...]:
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
