"""What a query asks for. Query text is data: there are no operators, columns or escapes in it.

| in the query       | means                                                                             |
|--------------------|-----------------------------------------------------------------------------------|
| `words`            | pages that hold all of them come first, then those that hold some                 |
| `src/engine.py:42` | several words in a row: they must stand together, in this order                   |
| `"a few words"`    | the same, and a page without them is no hit                                       |
| `begin*`           | words that begin so                                                               |
| `9fceb02`          | a hash, or one that begins so                                                     |
"""

import re

from msgspec import Struct

from quire.errors import InvalidValue, shown
from quire.search.words import LONGEST, is_unspaced, plain, runs, terms
from quire.storage.searching import Phrase

LONGEST_QUERY = 10_000
MOST_CLAUSES = 64
_HASH = re.compile("(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,39}")
"""The beginning of a hash, as version control shows it."""
_PIECE = re.compile(r'["“]([^"“”]*)["”]|[^\s"“”]+')


class Clause(Struct, frozen=True):
    """One thing that is looked for. `words` are what a person would see of it in the text; `begin*` may go on."""

    phrase: Phrase
    words: tuple[str, ...]
    required: bool = False


class Query(Struct, frozen=True):
    """The clauses of a query, and all of them in a row if there are several."""

    clauses: tuple[Clause, ...]
    together: Phrase | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words to highlight."""
        return tuple(dict.fromkeys(word for clause in self.clauses for word in clause.words))


def parse(text: object) -> Query:
    """What the text asks for; no clauses if there is no word in it. Raises `InvalidValue`."""
    if not isinstance(text, str):
        raise InvalidValue(f"query is {shown(text)}; text is needed.")
    if len(text) > LONGEST_QUERY:
        raise InvalidValue(
            f"query has {len(text):,} characters; at most {LONGEST_QUERY:,} are looked for. Give a few telling words."
        )
    clauses: dict[Phrase, Clause] = {}
    for match in _PIECE.finditer(text):
        quoted = match[1] is not None
        clause = clause_of(match[1] if quoted else match[0], required=quoted)
        if clause is not None and (quoted or clause.phrase not in clauses):
            clauses[clause.phrase] = clause
    found = tuple(clauses.values())[:MOST_CLAUSES]
    return Query(found, _together(found))


def clause_of(text: str, *, required: bool = False) -> Clause | None:
    """A piece of text as one clause; None if there is no word in it."""
    found = runs(plain(text))
    if not found:
        return None
    phrase = phrase_of(text)
    words = [run[:LONGEST] for run in found]
    if not required and not is_unspaced(found[-1]) and (text.endswith("*") or _HASH.fullmatch(found[-1])):
        phrase = Phrase(phrase.terms, prefix=True)
        words[-1] += "*"
    return Clause(phrase, tuple(words), required)


def phrase_of(text: str) -> Phrase:
    """The words of a text in a row. A run of an unspaced script at its end may go on in a page, so it has no end."""
    found = terms(text)
    last = runs(plain(text))[-1:]
    if not last or not is_unspaced(last[0]):
        return Phrase(tuple(found))
    if len(last[0]) == 1:
        return Phrase(tuple(found), prefix=True)
    return Phrase(tuple(found[:-1]))


def _together(clauses: tuple[Clause, ...]) -> Phrase | None:
    if len(clauses) < 2 or any(clause.required or clause.phrase.prefix for clause in clauses[:-1]):
        return None
    phrase = phrase_of(" ".join(word for clause in clauses for word in clause.words))
    return Phrase(phrase.terms, prefix=phrase.prefix or clauses[-1].phrase.prefix)
