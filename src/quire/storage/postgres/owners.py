"""Whose the records of a schema are: those of a context without the row that names it, and those of nobody.

Each context is found by one step in the primary key of the records, however many it has.
"""

from typing import TYPE_CHECKING, Final

from quire.storage.base import JOURNAL
from quire.storage.postgres.schema import CLEAR_GONE, CLEAR_SEARCH, CODES
from quire.storage.symptoms import Symptom

if TYPE_CHECKING:
    from quire.storage.postgres.session import Db, Session

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
