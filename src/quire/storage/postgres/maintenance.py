"""Whose the records of a schema are: those of a context without the row that names it, and those of nobody.

Each context is found by one step in the primary key of the records, however many it has.

Examining the PostgreSQL backend's search index: its tables, and its rows against the documents they should hold.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from psycopg import errors

from quire.errors import QuireError
from quire.storage.base import JOURNAL, Symptom
from quire.storage.postgres.connection import Row, Session
from quire.storage.postgres.migrations import MISSING, make_search
from quire.storage.postgres.schema import CLEAR_GONE, CLEAR_SEARCH, CODES
from quire.storage.postgres.search import STATE, VECTOR, WIDE, allowed, mark, portions
from quire.storage.search_protocol import Document, Misshapen, Sizes, Standing

if TYPE_CHECKING:
    from quire.storage.postgres.connection import Db, Session


_UNNAMED: Final = """WITH RECURSIVE found (number) AS (
        (SELECT context FROM {q}.record ORDER BY context LIMIT 1)
        UNION ALL SELECT (SELECT context FROM {q}.record WHERE context > number ORDER BY context LIMIT 1)
        FROM found WHERE number IS NOT NULL)
    SELECT number, EXISTS (SELECT 1 FROM {q}.record WHERE context = number AND family = %s) FROM found
    WHERE number IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {q}.context WHERE id = number) ORDER BY number"""
"""The numbers of contexts with records and without a name, and whether they have a history."""
_READ: Final = """WITH RECURSIVE line (number) AS (
        SELECT origin FROM {q}.shared
        WHERE id = ANY(%s::bigint[]) OR EXISTS (SELECT 1 FROM {q}.context WHERE context.id = shared.id)
        UNION SELECT origin FROM line JOIN {q}.shared ON shared.id = number)
    SELECT number FROM line"""
_COUNT: Final = "SELECT count(*) FROM {q}.record WHERE context = ANY(%s::bigint[])"
_CLEAR: Final = "DELETE FROM {q}.record WHERE context = %s"
_LEAVE: Final = "DELETE FROM {q}.shared WHERE id = %s"


def examine_owners(session: "Session", *, repair: bool) -> list[Symptom]:
    """Contexts that lost their heads, which are left as they are, and rows of no context, which `repair` removes."""
    unnamed: list[tuple[int, bool]] = [(row[0], row[1]) for row in session.read(_UNNAMED, (CODES[JOURNAL],))]
    if not unnamed:
        return []
    lost = [number for number, has_history in unnamed if has_history]
    read = {row[0] for row in session.read(_READ, (lost,))}
    strays = [number for number, has_history in unnamed if not has_history and number not in read]
    return [*map(_lost, lost), *_orphans(session, strays, repair)]


def _lost(number: int) -> Symptom:
    text = f"A context has its records (number {number}), but not the row that names it and says where it stands."
    remedy = "Restore the row from a backup of the database, or the context from an exported file."
    return Symptom(code="head_lost", severity="error", where="table context", text=text, remedy=remedy)


def _orphans(session: "Session", strays: list[int], repair: bool) -> list[Symptom]:
    if not strays:
        return []
    count = session.read(_COUNT, (strays,))[0][0]
    if repair:
        session.transact(lambda db: _remove(session, db, strays))  # numbers are never used again
    text, remedy = f"{count:,} rows belong to no context.", "repair=True removes them."
    return [
        Symptom(code="orphan_rows", severity="warning", where="table record", text=text, remedy=remedy, repaired=repair)
    ]


def _remove(session: "Session", db: "Db", strays: list[int]) -> None:
    for number in strays:
        for sql in (_CLEAR, _LEAVE, CLEAR_GONE, *CLEAR_SEARCH):
            db.execute(session.sql(sql).encode(), (number,))


_HOLDS = """SELECT (SELECT count(*) FROM {q}.search WHERE context = %s), serial,
        ARRAY(SELECT block FROM {q}.search_size WHERE context = %s ORDER BY block),
        ARRAY(SELECT sizes FROM {q}.search_size WHERE context = %s ORDER BY block)
    FROM {q}.search_state WHERE context = %s"""
_UNLIKE = f"""SELECT count(*)
    FROM unnest(%b::bigint[], %b::bool[], %b::text[], %b::text[], %b::text[], %b::text[])
        AS new (key, wide, body, name, description, parts)
    LEFT JOIN {{q}}.search AS old ON old.context = %s AND old.key = new.key
    WHERE old.key IS NULL OR old.body <> new.body OR old.name <> new.name OR old.description <> new.description
        OR old.parts <> new.parts OR old.terms <> {VECTOR}"""


def examine(session: Session, *, repair: bool) -> list[Symptom]:
    """What is wrong with the tables of the index; with `repair`, what is missing is made."""
    if not session.read(MISSING)[0][0]:
        return []
    text = "A table of it, or what leads to its terms, is missing. Searches fail or are slow; the pages are not touched"
    remedy = "repair=True makes it, and the next search fills it; the role must be the owner of the schema."
    repaired = False
    if repair:
        try:
            make_search(session)
            repaired = True
        except QuireError as error:
            if not isinstance(error.__cause__, errors.InsufficientPrivilege):
                raise
            text += ", and this role may not make tables"
    return [
        Symptom(
            code="search_damaged",
            severity="warning",
            where="search index",
            text=f"{text}.",
            remedy=remedy,
            repaired=repaired,
        )
    ]


class PostgresCheck:
    """One examination of the indexes in a schema."""

    def __init__(self, session: Session, number: Callable[[str], int]) -> None:
        self._session = session
        self._number = number

    def differs(self, context: str, at: Standing, documents: Iterable[Document]) -> str:
        number = self._number(context)
        with allowed():
            found = self._session.read(STATE, (number,))
        if not found or Standing(*found[0][:3]) != at:
            return ""
        serial = found[0][3]
        sizes, unlike = Sizes(), 0

        def noted() -> Iterator[Document]:
            for document in documents:
                sizes.put(document.key, len(document.body))
                yield document

        for rows in portions(noted()):
            unlike += self._unlike(number, rows)
        return self._told(number, serial, sizes, unlike)

    def rest(self) -> str:
        return ""  # contexts have their own rows: nothing is common to them but the tables

    def make_anew(self) -> None:
        with allowed():
            make_search(self._session, empty=True)

    def _unlike(self, number: int, rows: list[Row]) -> int:
        """How many of these documents stand there otherwise, or not at all."""
        fields = map(list, zip(*rows, strict=True))
        return int(self._session.read(_UNLIKE, (*fields, number, mark(number), WIDE, mark(number)))[0][0])

    def _told(self, number: int, serial: int, sizes: Sizes, unlike: int) -> str:
        found = self._session.read(_HOLDS, (number,) * 4)
        if not found or found[0][1] != serial:
            return ""
        kept, _, blocks, values = found[0]
        there = sum(1 for _ in sizes.keys())  # noqa: SIM118 - not a dict
        if kept != there:
            return f"it holds {kept:,} pages where {there:,} can be found"
        if unlike:
            return f"it holds {unlike:,} pages with other terms than they have"
        noted = Sizes()
        try:
            noted.load(dict(zip(blocks, values, strict=True)))
        except Misshapen as error:
            return str(error)
        return "" if _filled(noted) == _filled(sizes) else "it notes bodies of another length than they have"


def _filled(sizes: Sizes) -> dict[int, int]:
    return {key: sizes.get(key) for key in sizes.keys()}  # noqa: SIM118 - not a dict
