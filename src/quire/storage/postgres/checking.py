"""Examining the PostgreSQL backend's search index: its tables, and its rows against the documents they should hold."""

from collections.abc import Callable, Iterable, Iterator

from psycopg import errors

from quire.errors import QuireError
from quire.storage.postgres.mending import MISSING, make_search
from quire.storage.postgres.search import STATE, VECTOR, WIDE, allowed, mark, portions
from quire.storage.postgres.session import Row, Session
from quire.storage.searching import Document, Misshapen, Sizes, Standing
from quire.storage.symptoms import Symptom

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
