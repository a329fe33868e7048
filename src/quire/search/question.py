"""A question as recall reads it: its words, the speakers it is about, and the months it names."""

import re
from collections.abc import Collection
from typing import Self

from msgspec import Struct

from quire.model.messages import ROLES
from quire.search.tokenizer import SMALL_TALK, STOP_WORDS, normalize_text, split_runs, split_terms, stem

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


class Question(Struct, frozen=True):
    """The parsed form of a question.

    `words` are stemmed, without stop words and without the names of speakers; there are none for small talk. `embedded`
    is the text for vectors. `speakers` are the names of those the question is about. `roles` are their roles: the user
    for "I", the assistant for "you". Both are empty if the question is about all speakers. A month is (month, year);
    the year is 0 if the question does not name one.
    """

    words: tuple[str, ...] = ()
    embedded: str = ""
    names: frozenset[str] = frozenset()
    speakers: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    months: tuple[tuple[int, int], ...] = ()

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
        )


def _is_small_talk(text: str) -> bool:
    runs = split_runs(normalize_text(text)) if len(text) <= _MAX_SMALL_TALK else []
    words = [run for run in runs if run[0].isalnum()]
    return any(word in SMALL_TALK for word in words) and all(word in SMALL_TALK or word in STOP_WORDS for word in words)


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
