"""Integrity checks of a schema: records without a context, and the search index."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from quire.errors import QuireError
from quire.storage.base import JOURNAL, Symptom
from quire.storage.postgres.connection import Db, Session
from quire.storage.postgres.schema import (
    CLEAR_GONE,
    CLEAR_SEARCH,
    CODES,
    DENIED,
    MISSING,
    create_search_tables,
    sqlstate,
)
from quire.storage.postgres.search import STATE, VECTOR, WIDE, batch_rows, checking_access, context_term
from quire.storage.search_protocol import Document, IndexState, MalformedIndex, Sizes

_UNNAMED: Final = """WITH RECURSIVE found (number) AS (
        (SELECT context FROM {q}.record ORDER BY context LIMIT 1)
        UNION ALL SELECT (SELECT context FROM {q}.record WHERE context > number ORDER BY context LIMIT 1)
        FROM found WHERE number IS NOT NULL)
    SELECT number, EXISTS (SELECT 1 FROM {q}.record WHERE context = number AND family = %s) FROM found
    WHERE number IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {q}.context WHERE id = number) ORDER BY number"""
"""The numbers that have records and no row in `context`, and whether they have a journal. One index step each."""
_READ: Final = """WITH RECURSIVE line (number) AS (
        SELECT origin FROM {q}.shared
        WHERE id = ANY(%s::bigint[]) OR EXISTS (SELECT 1 FROM {q}.context WHERE context.id = shared.id)
        UNION SELECT origin FROM line JOIN {q}.shared ON shared.id = number)
    SELECT number FROM line"""
_COUNT: Final = "SELECT count(*) FROM {q}.record WHERE context = ANY(%s::bigint[])"
_CLEAR: Final = "DELETE FROM {q}.record WHERE context = %s"
_LEAVE: Final = "DELETE FROM {q}.shared WHERE id = %s"


def examine_records(session: Session, *, repair: bool) -> list[Symptom]:
    """Report contexts without a head, which are kept, and rows of no context, which `repair` removes."""
    with session.snapshot() as snapshot:
        unnamed: list[tuple[int, bool]] = [(row[0], row[1]) for row in snapshot.read(_UNNAMED, (CODES[JOURNAL],))]
        if not unnamed:
            return []
        lost = [number for number, has_journal in unnamed if has_journal]
        in_use = {row[0] for row in snapshot.read(_READ, (lost,))}
        orphans = [number for number, has_journal in unnamed if not has_journal and number not in in_use]
        count = snapshot.read(_COUNT, (orphans,))[0][0]
    return [*map(_report_lost, lost), *_report_orphans(session, orphans, count, repair)]


def _report_lost(number: int) -> Symptom:
    text = f"Context number {number} has records, but the row with its name and version is missing."
    remedy = "Restore the row from a backup of the database, or the context from an exported file."
    return Symptom("head_lost", "error", "table context", text, remedy)


def _report_orphans(session: Session, orphans: list[int], count: int, repair: bool) -> list[Symptom]:
    if not orphans:
        return []
    if repair:
        session.transact(lambda db: _remove(session, db, orphans))  # a number is never used again
    text, remedy = f"{count:,} rows belong to no context.", "A repair removes them."
    return [Symptom("orphan_rows", "warning", "table record", text, remedy, repaired=repair)]


def _remove(session: Session, db: Db, orphans: list[int]) -> None:
    for number in orphans:
        for sql in (_CLEAR, _LEAVE, CLEAR_GONE, *CLEAR_SEARCH):
            db.execute(session.sql(sql).encode(), (number,))


_CONTENT: Final = """SELECT (SELECT count(*) FROM {q}.search WHERE context = %s), serial,
        ARRAY(SELECT block FROM {q}.search_size WHERE context = %s ORDER BY block),
        ARRAY(SELECT sizes FROM {q}.search_size WHERE context = %s ORDER BY block)
    FROM {q}.search_state WHERE context = %s"""
_COUNT_DIFFERENT: Final = f"""SELECT count(*)
    FROM unnest(%b::bigint[], %b::bool[], %b::text[], %b::text[], %b::text[], %b::text[])
        AS new (key, wide, body, name, description, parts)
    LEFT JOIN {{q}}.search AS old ON old.context = %s AND old.key = new.key
    WHERE old.key IS NULL OR old.body <> new.body OR old.name <> new.name OR old.description <> new.description
        OR old.parts <> new.parts OR old.terms <> {VECTOR}"""
"""The number of documents that are missing in the index or differ there."""


def examine_search(session: Session, *, repair: bool) -> list[Symptom]:
    """Report missing tables of the search index. `repair` creates them."""
    if not session.read(MISSING)[0][0]:
        return []
    text = "A table or the index on the terms is missing. Searches fail or are slow; the pages are not affected"
    remedy = "A repair creates it, and the next search fills it. The role must be the owner of the schema."
    repaired = False
    if repair:
        try:
            create_search_tables(session)
            repaired = True
        except QuireError as error:
            if sqlstate(error) not in DENIED:
                raise
            text += ", and this role may not create tables"
    return [Symptom("search_damaged", "warning", "search index", f"{text}.", remedy, repaired=repaired)]


class PostgresCheck:
    """A check of the search indexes in a schema."""

    def __init__(self, session: Session, number: Callable[[str], int]) -> None:
        self._session = session
        self._number = number

    def matches(self, context: str, state: IndexState, documents: Iterable[Document]) -> bool:
        number = self._number(context)
        with checking_access():
            found = self._session.read(STATE, (number,))
        if not found or IndexState(*found[0][:3]) != state:
            return True
        serial = found[0][3]
        sizes, different = Sizes(), 0

        def measure_documents() -> Iterator[Document]:
            for document in documents:
                sizes.put(document.key, len(document.body))
                yield document

        term = context_term(number)
        for rows in batch_rows(measure_documents()):
            fields = map(list, zip(*rows, strict=True))
            different += self._session.read(_COUNT_DIFFERENT, (*fields, number, term, WIDE, term))[0][0]
        return self._is_same(number, serial, dict(sizes.items()), different)

    def find_damage(self) -> str:
        return ""  # contexts share nothing but the tables

    def reset(self) -> None:
        with checking_access():
            create_search_tables(self._session, empty=True)

    def _is_same(self, number: int, serial: int, sizes: dict[int, int], different: int) -> bool:
        """Return whether the index holds these documents; True also if it changed meanwhile."""
        found = self._session.read(_CONTENT, (number,) * 4)
        if not found or found[0][1] != serial:
            return True
        indexed, _, blocks, values = found[0]
        try:
            stored = Sizes(dict(zip(blocks, values, strict=True)))
        except MalformedIndex:
            return False
        return bool(indexed == len(sizes) and not different and dict(stored.items()) == sizes)
