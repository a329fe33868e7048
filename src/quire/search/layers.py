"""Two indexes as one: what lies below, and what was changed above it."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from heapq import merge
from itertools import islice

from quire.storage.searching import Amount, Blocks, Found, Index, Phrase, Score, Span, Wanted


class LayeredIndex:
    """An index with the pages of another one in place of its own; `touched` are the keys that count above only."""

    def __init__(self, below: Index, above: Index, touched: Collection[int]) -> None:
        self._below = below
        self._above = above
        self._cut = sorted(key for key in touched if below.holds(key))

    def sizes(self) -> Blocks:
        blocks = dict(self._below.sizes())
        for number, block in self._above.sizes().items():
            under = blocks.get(number, block)
            blocks[number] = [size or other for size, other in zip(block, under, strict=True)]
        return blocks

    def holds(self, key: int) -> bool:
        return self._above.holds(key) or (self._below.holds(key) and key not in self._cut)

    def amount(self, spans: Sequence[Span]) -> Amount:
        one, two = self._below.amount(self._left(spans)), self._above.amount(spans)
        return Amount(one.documents + two.documents, one.terms + two.terms)

    def count(self, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        found = self._below.count(phrase, self._left(spans), most)
        return min(found + self._above.count(phrase, spans, most), most)

    def best(self, wanted: Wanted, spans: Sequence[Span], score: Score, limit: int) -> list[Found]:
        found = (layer.best(wanted, parts, score, limit) for layer, parts in self._layers(spans))
        return list(islice(merge(*found, key=lambda item: (-item[0], item[1])), limit))

    def _layers(self, spans: Sequence[Span]) -> Sequence[tuple[Index, Sequence[Span]]]:
        return (self._below, self._left(spans)), (self._above, spans)

    def _left(self, spans: Sequence[Span]) -> Sequence[Span]:
        """The stretches without what counts above only."""
        found: list[Span] = []
        for first, last in spans:
            for key in self._cut[bisect_left(self._cut, first) : bisect_right(self._cut, last)]:
                found.append((first, key - 1))
                first = key + 1
            found.append((first, last))
        return [span for span in found if span[0] <= span[1]]
