"""The passage of a text that answers a query best, in one line, with the words that were found marked."""

import re
from collections.abc import Sequence

from quire.search.words import is_unspaced, plain
from quire.text import in_one_line

LENGTH = 160
OPEN, CLOSE = "«", "»"
"""What stands around a word that was found."""
_MOST_PLACES = 64
_Place = tuple[int, int, int]
"""(start, end, number of the word)"""


def snippet(text: str, words: Sequence[str], length: int = LENGTH) -> str:
    """A passage with as many different words of the query as can be; the beginning if none stands in the text."""
    places = _places(text, words)
    if not places:
        return _passage(text, 0, min(len(text), length), [])
    first = _densest(places, length)
    within = [place for place in places if first <= place[0] and place[1] <= first + length]
    middle = (within[0][0] + within[-1][1]) // 2 if within else first
    start = max(0, min(middle - length // 2, len(text) - length))
    start, end = _at_words(text, start, min(len(text), start + length), within)
    return _passage(text, start, end, [place for place in places if start <= place[0] and place[1] <= end])


def _places(text: str, words: Sequence[str]) -> list[_Place]:
    """Where the words stand, the first places of each."""
    lowered = plain(text)
    if len(lowered) != len(text):  # characters that change their length: look for them as they are written
        lowered = text.lower() if len(text.lower()) == len(text) else text
    found: list[_Place] = []
    for number, word in enumerate(words):
        for needle in _needles(word, lowered):
            start = lowered.find(needle.rstrip("*"))
            for _ in range(_MOST_PLACES):
                if start < 0:
                    break
                end = start + len(needle.rstrip("*"))
                if is_unspaced(needle) or _is_apart(text, start, end, goes_on=needle.endswith("*")):
                    found.append((start, end, number))
                start = lowered.find(needle.rstrip("*"), end)
    return sorted(found)


def _needles(word: str, lowered: str) -> list[str]:
    """What to look for: the word, or of a run without blanks that does not stand there whole, its pairs."""
    if len(word) > 2 and is_unspaced(word) and word not in lowered:
        return list(dict.fromkeys(map(str.__add__, word, word[1:])))
    return [word]


def _is_apart(text: str, start: int, end: int, *, goes_on: bool) -> bool:
    """Whether what stands between two places is a word, or a piece of a compound one."""
    begins = start == 0 or _joint(text[start - 1], text[start])
    return begins and (goes_on or end >= len(text) or _joint(text[end - 1], text[end]))


def _joint(left: str, right: str) -> bool:
    """Whether a word can end between two characters."""
    if not left.isalnum() or not right.isalnum():
        return True
    return left.isdigit() is not right.isdigit() or (right.isupper() and left.islower()) or is_unspaced(left + right)


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
    passage = in_one_line("".join([*pieces, text[at:end]]))
    passage = re.sub(f"{CLOSE}{OPEN}", "", passage)
    return f"{'…' if start else ''}{passage}{'…' if end < len(text) else ''}"
