"""The passage of a text that answers a query best, in one line, with the words that were found marked."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from sys import maxsize
from unicodedata import category, normalize

from quire.model.text import collapse_whitespace
from quire.search.tokenizer import WITHOUT_ACCENTS, are_one_word, is_unspaced, normalize_text

SNIPPET_LENGTH = 160
OPEN, CLOSE = "«", "»"
"""What stands around a word that was found."""
_MOST_PLACES = 64
_MOST_TRIES = 2_000
_Place = tuple[int, int, int]
"""(start, end, number of the word)"""


def make_snippet(
    text: str, words: Sequence[str], length: int = SNIPPET_LENGTH, labels: Sequence[tuple[int, int]] = ()
) -> str:
    """A passage with as many different words of the query as can be; the beginning if none stands in the text.

    Nothing is looked for in `labels`, stretches in the order of the text.
    """
    places = [place for place in _places(text, words) if not _is_in(labels, place[0])]
    if not places:
        return _passage(text, 0, min(len(text), length), [])
    first = _densest(places, length)
    within = [place for place in places if first <= place[0] and place[1] <= first + length]
    middle = (within[0][0] + within[-1][1]) // 2 if within else first
    start = max(0, min(middle - length // 2, len(text) - length))
    start, end = _at_words(text, start, min(len(text), start + length), within)
    return _passage(text, start, end, [place for place in places if start <= place[0] and place[1] <= end])


class _Bare:
    """A text without width and accents, in its own case, with the way back to where its characters came from.

    Stretches that stay as long as they were take turns with spots that do not: `ß`, a letter and the accent after it.
    """

    def __init__(self, text: str) -> None:
        self._at, self._from = [0], [0]
        signs = () if text.isascii() else set(text)
        uneven = _one_of(sign for sign in signs if len(WITHOUT_ACCENTS[ord(sign)]) != 1)
        joining = _one_of(sign for sign in signs if _joins(sign))
        if not uneven and not joining:
            self.text = text.translate(WITHOUT_ACCENTS) if signs else text
            return
        pieces, size, done = [], 0, 0
        for spot in re.finditer("|".join(filter(None, (joining and f"(?s:.)?{joining}+", uneven))), text):
            pieces += [
                text[done : spot.start()].translate(WITHOUT_ACCENTS),
                normalize("NFKC", spot[0]).translate(WITHOUT_ACCENTS),
            ]
            size, done = size + len(pieces[-2]), spot.end()
            self._at += [size, size + len(pieces[-1])]
            self._from += [spot.start(), done]
            size += len(pieces[-1])
        self.text = "".join([*pieces, text[done:].translate(WITHOUT_ACCENTS)])

    def start(self, place: int) -> int:
        """Where the character at a place begins in the original."""
        number = bisect_right(self._at, place) - 1
        return self._from[number] + (0 if number % 2 else place - self._at[number])

    def end(self, place: int) -> int:
        """Where the character before a place ends in the original."""
        number = bisect_right(self._at, place - 1) - 1
        return self._from[number + 1] if number % 2 else self._from[number] + place - self._at[number]


def _joins(sign: str) -> bool:
    """Whether a character becomes one with the one before it: marks, Korean letters, Japanese marks of half width."""
    return category(sign)[0] == "M" or "\u1160" <= sign <= "\u11ff" or sign in "\uff9e\uff9f"


def _one_of(signs: Iterable[str]) -> str:
    """A pattern for any of the characters; "" for none."""
    found = "".join(sorted(signs))
    return f"[{re.escape(found)}]" if found else ""


def _places(text: str, words: Sequence[str]) -> list[_Place]:
    """Where the words stand, the first places of each."""
    bare = _Bare(text)
    lowered = bare.text.casefold()
    found: list[_Place] = []
    for number, word in enumerate(words):
        for needle in _needles(normalize_text(word).translate(WITHOUT_ACCENTS), lowered):
            sought = needle.rstrip("*")
            start, left = lowered.find(sought) if sought else -1, _MOST_PLACES
            for _ in range(_MOST_TRIES):
                if start < 0 or not left:
                    break
                end = start + len(sought)
                if is_unspaced(needle) or _is_apart(bare.text, start, end, goes_on=needle.endswith("*")):
                    found.append((bare.start(start), bare.end(end), number))
                    left -= 1
                start = lowered.find(sought, end)
    return sorted(found)


def _is_in(labels: Sequence[tuple[int, int]], place: int) -> bool:
    number = bisect_right(labels, (place, maxsize)) - 1
    return number >= 0 and place < labels[number][1]


def _needles(word: str, lowered: str) -> list[str]:
    """What to look for: the word, or of a run without blanks that does not stand there whole, its pairs."""
    if len(word) > 2 and is_unspaced(word) and word not in lowered:
        return list(dict.fromkeys(map(str.__add__, word, word[1:])))
    return [word]


def _is_apart(text: str, start: int, end: int, *, goes_on: bool) -> bool:
    """Whether what stands between two places is a word, or a piece of a compound one."""
    return _joint(text, start) and (goes_on or _joint(text, end))


def _joint(text: str, place: int) -> bool:
    """Whether a word can end at a place."""
    left, right = text[place - 1 : place], text[place : place + 1]
    if not left or not right or not are_one_word(left + right) or left.isdigit() is not right.isdigit():
        return True
    return right.isupper() and (left.islower() or (left.isupper() and text[place + 1 : place + 2].islower()))


def _densest(places: Sequence[_Place], length: int) -> int:
    """Where a stretch begins that holds the most different words."""
    best, start = 0, places[0][0]
    for place, (first, _, _) in enumerate(places):
        held = set()
        for other in places[place : place + _MOST_PLACES]:
            if other[1] > first + length:
                break
            held.add(other[2])
        if len(held) > best:
            best, start = len(held), first
    return start


def _at_words(text: str, start: int, end: int, within: Sequence[_Place]) -> tuple[int, int]:
    """A stretch that begins and ends between words, if that costs little, and nothing of what was found."""
    first, last = (within[0][0], within[-1][1]) if within else (end, start)
    if start:
        blank = text.find(" ", start, min(start + 16, first))
        start = blank + 1 if blank >= 0 else start
    if end < len(text):
        blank = text.rfind(" ", max(end - 16, last), end)
        end = blank if blank > start else end
    return start, end


def _passage(text: str, start: int, end: int, places: Sequence[_Place]) -> str:
    pieces = []
    at = start
    for first, last, _ in places:
        if first >= at:
            pieces += [text[at:first], OPEN, text[first:last], CLOSE]
            at = last
    passage = collapse_whitespace("".join([*pieces, text[at:end]]))
    passage = re.sub(f"{CLOSE}{OPEN}", "", passage)
    return f"{'…' if start else ''}{passage}{'…' if end < len(text) else ''}"
