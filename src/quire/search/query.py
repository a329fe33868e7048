"""Queries, and the scope of a viewer. Query text is data: it has no operators, columns or escapes.

| in the query       | meaning                                                                           |
|--------------------|-----------------------------------------------------------------------------------|
| `words`            | pages with all of them come first, then pages with some                           |
| `src/engine.py:42` | several words in a row: they must occur together, in this order                   |
| `"a few words"`    | the same, and a page without them is not a hit                                    |
| `begin*`           | words that begin with this                                                        |
| `9fceb02`          | a hash, or the beginning of one                                                   |

Pages outside the scope are not counted, ranked or found.
"""

import re

from msgspec import Struct

from quire.core.reader import Reader
from quire.core.records import page_key
from quire.errors import InvalidValue, short_repr
from quire.model.pages import MAX_NUMBER, Permission
from quire.search.tokenizer import MAX_TERM, is_unspaced, normalize_text, split_runs, split_terms
from quire.storage.search_protocol import Phrase, Span


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
_PIECE = re.compile(r'["“]([^"“”]*)["”]|[^\s"“”]+')


class Clause(Struct, frozen=True):
    """One part of a query. `words` are its words as they occur in a text; a word with `*` matches what continues it."""

    phrase: Phrase
    words: tuple[str, ...]
    required: bool = False


class Query(Struct, frozen=True):
    """The clauses of a query, and all of them as one phrase if there are several."""

    clauses: tuple[Clause, ...]
    together: Phrase | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words to highlight."""
        return tuple(dict.fromkeys(word for clause in self.clauses for word in clause.words))


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
    return Clause(phrase, tuple(words), required)


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
