"""The searchable text of a page: its name, its description and everything in its body; and snippets.

A snippet is the passage of a text that matches a query best, in one line, with the matches marked.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from sys import maxsize
from typing import NamedTuple
from unicodedata import category, normalize

import msgspec

from quire.core.records import Gone, Header, PageRecord
from quire.core.stored import Stored
from quire.model.messages import Message, iterate_texts, label_lines
from quire.model.pages import READABLE, Form
from quire.model.text import collapse_whitespace, unescape_json
from quire.search.index_protocol import Document
from quire.search.tokenizer import PART_SEPARATOR, WITHOUT_ACCENTS, are_one_word, is_unspaced, normalize_text, tokenize


class DisplayText(NamedTuple):
    """A text as a person reads it, and the spans in it that are labels of quire, not words of the page."""

    text: str
    labels: Sequence[tuple[int, int]] = ()


def searchable_text(messages: Sequence[Message]) -> str:
    """Return everything in an exchange that a query can match, with names and without escapes."""
    text = "\n".join(line for _, line in label_lines(messages))
    more = _more(messages, text)
    return "\n".join([text, *more]) if more else text


def is_searchable(page: PageRecord) -> bool:
    """Return whether a page can be found: compressed messages can, those that another edit removed cannot."""
    return page.header.mark in READABLE


def text_fields(page: PageRecord | Gone | None) -> tuple[object, ...] | None:
    """Return the fields that determine the searchable text. If they did not change, the index is up to date."""
    if not isinstance(page, PageRecord):
        return None
    header = page.header
    return header.name, header.description, header.body, header.numbers, header.mark


def read_body(source: Stored, header: Header) -> str:
    """Return the text of a page, read past every cache: a search must not evict records that are in use."""
    if header.numbers:
        return searchable_text(read_messages(source, header.numbers))
    text = source.body(header.body) if header.body else ""
    if text is None:
        raise source.corrupt(f"body record {header.body} is missing.")
    return _strings(text) if header.form is Form.WINDOW and not header.closed else text


def read_display_text(source: Stored, header: Header) -> DisplayText:
    """Return the text of a page as hits show it: exchanges with their speakers."""
    if not header.numbers:
        return DisplayText(read_body(source, header))
    messages = read_messages(source, header.numbers)
    lines: list[str] = []
    labels: list[tuple[int, int]] = []
    start = 0
    for label, line in label_lines(messages):
        labels.append((start, start + len(label)))
        lines.append(label + line)
        start += len(lines[-1]) + 1
    more = _more(messages, "\n".join(line for _, line in label_lines(messages)))
    return DisplayText("\n".join([*lines, *more]), labels)


def build_document(source: Stored, page: PageRecord) -> Document:
    """Return the terms of a page."""
    header = page.header
    body, parts = tokenize(read_body(source, header))
    name, named = tokenize(header.name)
    description, described = tokenize(header.description)
    for more in (named, described):
        parts += (PART_SEPARATOR, *more) if more else ()
    return Document(page.key, body, name, description, parts)


def read_messages(source: Stored, numbers: Sequence[int]) -> list[Message]:
    """Return the messages with these numbers, read past every cache."""
    if not numbers:
        return []
    found = {number: record.message for number, record, _ in source.messages(min(numbers), max(numbers))}
    lost = [number for number in numbers if number not in found]
    if lost:
        raise source.corrupt(f"message record {lost[0]} is missing.")
    return [found[number] for number in numbers]


def _more(messages: Sequence[Message], text: str) -> list[str]:
    """Return the texts that a query can match in addition to the displayed text."""
    return [*_hidden_texts(messages), unescape_json(text)] if "\\" in text else list(_hidden_texts(messages))


def _strings(saved: str) -> str:
    """Return the strings in the JSON that a window's app saved, without the app's field names."""
    try:
        left = [msgspec.json.decode(saved)]
    except (msgspec.DecodeError, RecursionError):
        return saved
    found = []
    while left:
        match left.pop():
            case str() as text:
                found.append(text)
            case list() as items:
                left += reversed(items)
            case dict() as fields:
                left += reversed(fields.values())
    return "\n".join(found)


def _hidden_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the texts of messages that are not displayed: names, transcripts, files."""
    for message in messages:
        if message.name:
            yield message.name
        if isinstance(message.content, list):
            yield from iterate_texts(message)


SNIPPET_LENGTH = 160
OPEN, CLOSE = "«", "»"
"""The marks around a match."""
_MOST_PLACES = 64
_MOST_TRIES = 2_000
_Place = tuple[int, int, int]
"""(start, end, number of the word)"""


def make_snippet(
    text: str, words: Sequence[str], length: int = SNIPPET_LENGTH, labels: Sequence[tuple[int, int]] = ()
) -> str:
    """Return the passage with the most distinct words of the query; the beginning of the text if it has none.

    Matches in `labels` (spans in the order of the text) do not count.
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
    """A text without width and accents, in its own case, with a mapping back to the original positions.

    Stretches that keep their length alternate with spots that do not: `ß`, or a letter and the accent after it.
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
        """Return where the character at a position begins in the original."""
        number = bisect_right(self._at, place) - 1
        return self._from[number] + (0 if number % 2 else place - self._at[number])

    def end(self, place: int) -> int:
        """Return where the character before a position ends in the original."""
        number = bisect_right(self._at, place - 1) - 1
        return self._from[number + 1] if number % 2 else self._from[number] + place - self._at[number]


def _joins(sign: str) -> bool:
    """Return whether a character combines with the one before it: marks, Korean letters, half-width Japanese marks."""
    return category(sign)[0] == "M" or "\u1160" <= sign <= "\u11ff" or sign in "\uff9e\uff9f"


def _one_of(signs: Iterable[str]) -> str:
    """Return a pattern for any of the characters; "" for none."""
    found = "".join(sorted(signs))
    return f"[{re.escape(found)}]" if found else ""


def _places(text: str, words: Sequence[str]) -> list[_Place]:
    """Return the positions of the words, the first ones of each."""
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
                if is_unspaced(needle) or (
                    _is_word_end(bare.text, start) and (needle.endswith("*") or _is_word_end(bare.text, end))
                ):
                    found.append((bare.start(start), bare.end(end), number))
                    left -= 1
                start = lowered.find(sought, end)
    return sorted(found)


def _is_in(labels: Sequence[tuple[int, int]], place: int) -> bool:
    number = bisect_right(labels, (place, maxsize)) - 1
    return number >= 0 and place < labels[number][1]


def _needles(word: str, lowered: str) -> list[str]:
    """Return the strings to search for: the word, or the pairs of an unspaced run that does not occur as a whole."""
    if len(word) > 2 and is_unspaced(word) and word not in lowered:
        return list(dict.fromkeys(map(str.__add__, word, word[1:])))
    return [word]


def _is_word_end(text: str, place: int) -> bool:
    """Return whether a word, or a part of a compound word, can end at a position."""
    left, right = text[place - 1 : place], text[place : place + 1]
    if not left or not right or not are_one_word(left + right) or left.isdigit() is not right.isdigit():
        return True
    return right.isupper() and (left.islower() or (left.isupper() and text[place + 1 : place + 2].islower()))


def _densest(places: Sequence[_Place], length: int) -> int:
    """Return the start of a stretch with the most distinct words."""
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
    """Move the ends of a stretch to word boundaries if that costs little and no match."""
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
