"""The tables of the search index, made anew where they are missing: everything in them is derived."""

from typing import TYPE_CHECKING

from quire.storage.postgres.schema import MEND_SEARCH, SEARCH_TABLES

if TYPE_CHECKING:
    from quire.storage.postgres.session import Db, Session

MISSING = "SELECT count(*) < 4 FROM pg_catalog.pg_class WHERE oid IN ({tables})".replace(
    "{tables}", ", ".join(f"to_regclass('{{q}}.{name}')" for name in (*SEARCH_TABLES, "search_terms"))
)
"""Whether a table of the index, or what leads to its terms, is not there."""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('quire search ' || %s, 0))"


def make_search(session: "Session", *, empty: bool = False) -> None:
    """Make what is missing, and empty the index then: without one part the others are of no use.

    With `empty` it is emptied in any case. Raises the `StorageFailure` of a role that may not make tables.
    """

    def make(db: "Db") -> None:
        db.execute(_LOCK, (session.sql("{q}"),))
        row = db.execute(session.sql(MISSING).encode()).fetchone()
        if row and row[0]:
            db.execute(session.sql(MEND_SEARCH).encode())
        if empty or (row and row[0]):
            for table in SEARCH_TABLES:
                db.execute(session.sql(f"DELETE FROM {{q}}.{table}").encode())

    session.transact(make)
