"""Queries, and the scope of a viewer. Query text is data: it has no operators, columns or escapes.

| in the query       | meaning                                                                           |
|--------------------|-----------------------------------------------------------------------------------|
| `words`            | pages with all of them come first, then with other forms of them, then with some  |
| `src/engine.py:42` | several words in a row: they must occur together, in this order                   |
| `"a few words"`    | the same, and a page without them is not a hit                                    |
| `begin*`           | words that begin with this                                                        |
| `9fceb02`          | a hash, or one that begins so: 7 characters at least, with a letter and a digit   |

Pages outside the scope are not counted, ranked or found.
"""

import re
from collections.abc import Collection
from typing import Self

from msgspec import Struct

from quire.core.reader import Reader
from quire.core.records import page_key
from quire.errors import InvalidValue, short_repr
from quire.model.messages import ROLES
from quire.model.pages import MAX_NUMBER, Permission
from quire.search.index_protocol import Phrase, Span
from quire.search.tokenizer import (
    MAX_TERM,
    SMALL_TALK,
    STOP_WORDS,
    inflections,
    is_unspaced,
    normalize_text,
    split_runs,
    split_terms,
    stem,
)


class Scope(Struct, frozen=True):
    """The numbers of the segments that a viewer may see."""

    segments: frozenset[int]

    def spans(self) -> list[Span]:
        """Return the spans of page keys in the scope, in order, as few as possible."""
        found: list[Span] = []
        for number in sorted(self.segments):
            first, last = page_key(number, 0), page_key(number, MAX_NUMBER)
            if found and found[-1][1] + 1 == first:
                found[-1] = (found[-1][0], last)
            else:
                found.append((first, last))
        return found


def all_segments(reader: Reader) -> Scope:
    """Return the scope of a developer: all segments."""
    return Scope(frozenset(number for number, _ in reader.live_segments()))


def agent_scope(reader: Reader) -> Scope:
    """Return the scope of an agent: all segments but the private ones."""
    live = reader.live_segments()
    return Scope(frozenset(number for number, segment in live if segment.permission is not Permission.PRIVATE))


MAX_QUERY = 10_000
MAX_CLAUSES = 64
_HASH = re.compile("(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,39}")
"""The beginning of a hash, as version control prints it."""
_AROUND = ".,;:!?()'’"
"""The punctuation around a plain word."""
_PIECE = re.compile(r'["“]([^"“”]*)["”]|[^\s"“”]+')


class Clause(Struct, frozen=True):
    """One part of a query. `words` are its words as they occur in a text; a word with `*` is a prefix.

    `forms` are the other forms of a plain word; a name in code has none.
    """

    phrase: Phrase
    words: tuple[str, ...]
    required: bool = False
    forms: tuple[Phrase, ...] = ()


class Query(Struct, frozen=True):
    """The clauses of a query, and all of them as one phrase if there are several."""

    clauses: tuple[Clause, ...]
    together: Phrase | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words to highlight."""
        forms = (term for clause in self.clauses for form in clause.forms for term in form.terms)
        return tuple(dict.fromkeys((*(word for clause in self.clauses for word in clause.words), *forms)))


def parse_query(text: object) -> Query:
    """Return the clauses of a query; none if it has no word. Raise `InvalidValue` if it is not text or too long."""
    if not isinstance(text, str):
        raise InvalidValue(f"is {short_repr(text)}; text is needed.", argument="query")
    if len(text) > MAX_QUERY:
        raise InvalidValue(
            f"has {len(text):,} characters; at most {MAX_QUERY:,} are allowed. Use a few distinctive words.",
            argument="query",
        )
    clauses: dict[Phrase, Clause] = {}
    for match in _PIECE.finditer(text):
        quoted = match[1] is not None
        clause = make_clause(match[1] if quoted else match[0], required=quoted)
        if clause is not None and (quoted or clause.phrase not in clauses):
            clauses[clause.phrase] = clause
    found = tuple(clauses.values())[:MAX_CLAUSES]
    return Query(found, _together(found))


def make_clause(text: str, *, required: bool = False) -> Clause | None:
    """Return a piece of text as one clause; None if it has no word."""
    found = split_runs(normalize_text(text))
    if not found:
        return None
    phrase = make_phrase(text)
    words = [run[:MAX_TERM] for run in found]
    if not required and not is_unspaced(found[-1]) and (text.endswith("*") or _HASH.fullmatch(found[-1])):
        phrase = Phrase(phrase.terms, prefix=True)
        words[-1] += "*"
    plain = text.strip(_AROUND)
    is_plain = plain.isalpha() and plain[1:] in (plain[1:].lower(), plain[1:].upper())
    forms = inflections(phrase.terms[0]) if is_plain and not required and not phrase.prefix else []
    return Clause(phrase, tuple(words), required, tuple(Phrase((form,)) for form in forms))


def make_phrase(text: str) -> Phrase:
    """Return the words of a text as a phrase. A run of an unspaced script at its end may continue in a page."""
    found = split_terms(text)
    last = split_runs(normalize_text(text))[-1:]
    if not last or not is_unspaced(last[0]):
        return Phrase(tuple(found))
    if len(last[0]) == 1:
        return Phrase(tuple(found), prefix=True)
    return Phrase(tuple(found[:-1]))


def _together(clauses: tuple[Clause, ...]) -> Phrase | None:
    if len(clauses) < 2 or any(clause.required or clause.phrase.prefix for clause in clauses[:-1]):
        return None
    phrase = make_phrase(" ".join(word for clause in clauses for word in clause.words))
    return Phrase(phrase.terms, prefix=phrase.prefix or clauses[-1].phrase.prefix)


_MAX_SMALL_TALK = 80
_MAX_WORDS = 200
_MONTH_NAMES = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)
_MONTHS = {name[:size].lower(): n for n, name in enumerate(_MONTH_NAMES, 1) for size in (3, len(name))} | {"sept": 9}
_MONTH = re.compile(
    rf"\b({'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?|(?<!\d)(1[0-2]|0?[1-9])\s*月", re.IGNORECASE
)
_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
_ALSO_WORDS = frozenset({"may", "march", "mar", "jan", "sep", "dec"})
"""Months that are also words or names: they count only with a capital letter."""
_FIRST_PERSON = re.compile(r"\b(?:i|my|mine|me|we|our|us)\b|我", re.IGNORECASE)
_SECOND_PERSON = re.compile(
    r"\b(?:did|have|had|were|was|do) you\b|\byou(?:'ve|'d| have| had)? (?:said|told|gave|wrote|found|suggested|"
    r"recommended|mentioned|proposed|promised|explained|advised|answered|did|made)\b|\byour (?:answer|advice|"
    r"suggestion|recommendation|proposal|plan|reply)\b|[你您](?:之前|刚才|上次|曾)?(?:说|提|建议|推荐|告诉|答应|回答)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^.!?？。！；\n]+[.!?？。！；]?")
_ASKS = re.compile(
    r"[?？]|^\W*(?:and |but |so |then |please )?(?:what|who|whom|when|where|which|why|how|list|recap|summari[sz]e|"
    r"remind|tell me)\b|吗|呢|什么|哪|谁|几|多少|怎么|为何|是否|何时|提醒我|告诉我|总结|列出",
    re.IGNORECASE,
)
_REQUESTS = re.compile(
    r"\b(?:can|could|would|will|may|might|shall|should) (?:you|i|we|it|this|that|there|anything|someone)\b"
    r"|\bpossib|\bdo you (?:have|offer)\b|\b(?:is|are) there\b|\bdoes (?:that|this)\b|\bhow about\b"
    r"|可以|能否|能不能|麻烦|请",
    re.IGNORECASE,
)
_ABOUT_PAST = re.compile(
    r"\b(?:remember|remind|recall|recap|tell me|said|told|mentioned|decided|agreed|earlier|previous(?:ly)?|ago|last"
    r" (?:time|week|month|year)|did (?:i|you|we|he|she|they))\b"
    r"|记得|提醒|回忆|之前|以前|上次|刚才|告诉我|说过|决定",
    re.IGNORECASE,
)


class Question(Struct, frozen=True):
    """The parsed form of a question.

    `words` are stemmed, without stop words and without the names of speakers; there are none for small talk. `embedded`
    is the text for vectors. `speakers` are the names of those the question is about. `roles` are their roles: the user
    for "I", the assistant for "you". Both are empty if the question is about all speakers. A month is (month, year);
    the year is 0 if the question does not name one. `asks` is False for a statement and for a request to do something.
    """

    words: tuple[str, ...] = ()
    embedded: str = ""
    names: frozenset[str] = frozenset()
    speakers: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    months: tuple[tuple[int, int], ...] = ()
    asks: bool = True

    @classmethod
    def parse(cls, text: str, speakers: Collection[str]) -> Self:
        """Parse a question. `speakers` are the names of all speakers; a role is not a name."""
        if _is_small_talk(text):
            return cls(embedded=text)
        parts = {one: frozenset(split_terms(one)) for one in speakers if one.lower() not in ROLES}
        names = frozenset[str]().union(*parts.values())
        found = list(dict.fromkeys(split_terms(text)))
        named = frozenset(one for one, words in parts.items() if words & set(found))
        words = (
            [word for word in found if word not in STOP_WORDS and word not in names]
            or [word for word in found if word not in STOP_WORDS]
            or found
        )
        return cls(
            words=tuple(dict.fromkeys(map(stem, words[:_MAX_WORDS]))),
            embedded=_without_names(text, names),
            names=names,
            speakers=named if len(named) < len(parts) else frozenset(),
            roles=frozenset() if named else _roles_in(text),
            months=_months_in(text),
            asks=_asks(text),
        )


def _is_small_talk(text: str) -> bool:
    runs = split_runs(normalize_text(text)) if len(text) <= _MAX_SMALL_TALK else []
    words = [run for run in runs if run[0].isalnum()]
    return any(word in SMALL_TALK for word in words) and all(word in SMALL_TALK or word in STOP_WORDS for word in words)


def _asks(text: str) -> bool:
    """Return whether a text asks for something that was said: "Can you book it?" is a request, and asks nothing."""
    return any(
        _ABOUT_PAST.search(sentence) if _REQUESTS.search(sentence) else _ASKS.search(sentence)
        for sentence in _SENTENCE.findall(text)
    )


def _without_names(text: str, names: Collection[str]) -> str:
    """Return a text without names; the whole text if nothing else remains."""
    if not names:
        return text
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    left = re.sub(rf"\b(?:{pattern})(?:['’]s)?\b", "", text, flags=re.IGNORECASE)
    return left if any(map(str.isalnum, left)) else text


def _roles_in(text: str) -> frozenset[str]:
    """Return the role that a question is about; none if it is about both."""
    found = {"user": _FIRST_PERSON.search(text), "assistant": _SECOND_PERSON.search(text)}
    roles = frozenset(role for role, match in found.items() if match)
    return roles if len(roles) == 1 else frozenset()


def _months_in(text: str) -> tuple[tuple[int, int], ...]:
    years = [int(year) for year in _YEAR.findall(text)] or [0]
    found: dict[tuple[int, int], None] = {}
    for match in _MONTH.finditer(text):
        word = match[1]
        if not word or word.lower() not in _ALSO_WORDS or word[0].isupper():
            month = int(match[2]) if not word else _MONTHS[word.lower()]
            found.update(dict.fromkeys((month, year) for year in years))
    return tuple(found)
