"""One scorer for every backend: BM25 over the fields of a page, with the statistics of what the viewer may see.

Occurrences in the body count less the longer it is; those in name and description count more. Full matches come before
partial ones: a page that holds every clause gets a bonus that no partial match can reach, and one where they stand
together, in a row, a second one.
"""

from collections.abc import Sequence
from math import log

from quire.storage.base import MAX_KEY
from quire.storage.searching import Amount, Blocks, Index, Phrase, Place, Score, Span

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


def most_counted(documents: int) -> int:
    """Up to how many pages with a word are counted; a word on so many is a common one."""
    return documents // _COMMON if documents >= _FEW else documents


def rarity(count: int, documents: int) -> float:
    """What a word on so many pages is worth."""
    return log(1 + (documents - count + 0.5) / (count + 0.5))


class Weights:
    """What phrases are worth to a viewer, and how long the bodies are on average."""

    def __init__(self, index: Index, spans: Sequence[Span]) -> None:
        self._index = index
        self._spans = spans
        self.amount: Amount = index.amount(spans)
        self.most = most_counted(self.amount.documents)
        self._counts: dict[Phrase, int] = {}

    def count(self, phrase: Phrase) -> int:
        """On how many pages a phrase stands, as far as they are counted."""
        found = self._counts.get(phrase)
        if found is None:
            found = self._counts[phrase] = self._index.count(phrase, self._spans, self.most)
        return found

    def of(self, phrase: Phrase) -> float:
        """What the phrase is worth."""
        return rarity(self.count(phrase), self.amount.documents)

    def is_common(self, phrase: Phrase) -> bool:
        """Whether the phrase stands on so many pages that it tells none apart."""
        return self.amount.documents >= _FEW and self.count(phrase) >= self.most

    @property
    def average(self) -> float:
        return max(self.amount.terms / self.amount.documents, 1.0) if self.amount.documents else 1.0


def ceiling(weights: Sequence[float]) -> float:
    """What no page can reach by phrases of these weights alone."""
    return sum(weights) * (K1 + 1)


def scorer(weights: Sequence[float], sizes: Blocks, average: float, bonus: float = 0.0) -> Score:
    """What gives the worth of a page at which phrases of these weights are located. One call a page, so it is lean."""
    start, slope = 1 - B - B / average, B / average  # sizes are kept plus one
    worths = [(number, weight * (K1 + 1)) for number, weight in enumerate(weights) if weight]

    def score(place: Place) -> float:
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
