"""The tables of the search index, made anew where they are missing: everything in them is derived.

The tables of a schema: made when it is new, brought forward when it is older, refused when it is newer.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from psycopg import errors

from quire.errors import Corrupt, NewerFormat, QuireError, StorageFailure
from quire.storage.postgres.schema import MEND_SEARCH, META, MIGRATIONS, SEARCH_TABLES

if TYPE_CHECKING:
    from quire.storage.postgres.connection import Db, Session


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


_FOUND = f"""SELECT meta.version, meta.quire, current_setting('server_encoding'), current_setting('fsync'), ({MISSING})
    FROM {{q}}.meta"""
_LOCK_MIGRATING = "SELECT pg_advisory_xact_lock(hashtextextended('quire ' || %s, 0))"
_EXISTS = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
_MADE = "SELECT to_regclass(%s) IS NOT NULL"
_HEADLESS = """SELECT to_regclass('{q}.meta') IS NULL AND
    coalesce(to_regclass('{q}.context'), to_regclass('{q}.record')) IS NOT NULL"""
"""Whether there are tables of ours without the one that says their version: all are made in one transaction."""


def prepare(session: "Session", schema: str, *, create: bool, full: bool) -> None:
    """Make sure that the schema is there and is ours.

    Raises `NewerFormat`, `Corrupt` if what says its version is gone, or `StorageFailure` if there is none and it may
    not or cannot be made.
    """
    found = _look(session)
    if found is None and session.read(_HEADLESS)[0][0]:
        raise Corrupt(
            f"Schema {schema!r} of {session.name} holds quire's tables without {schema}.meta, which says their version:"
            " restore that table from a backup of the database."
        )
    if found is None and not create:
        raise StorageFailure(f"There is no store in schema {schema!r} of {session.name}.")
    if found is None or found[0] < len(MIGRATIONS):
        _migrate(session, schema)
        found = _look(session)
    if found is None:
        raise StorageFailure(f"Schema {schema!r} of {session.name} was taken away while it was opened.")
    _check_version(session, schema, found[0], found[1])
    if found[2] != "UTF8":
        raise StorageFailure(f"{session.name} keeps text as {found[2]}; make a database with encoding UTF8.")
    if full and found[3] != "on":
        raise StorageFailure(f"{session.name} runs with fsync = off: durability='full' cannot be promised there.")
    if found[4]:
        _mend_search(session)


def _mend_search(session: "Session") -> None:
    """Make the search index's tables; a role that may not do that searches in memory, and the doctor tells."""
    try:
        make_search(session)
    except QuireError as error:
        if not isinstance(error.__cause__, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
            raise


def _look(session: "Session") -> tuple[int, str, str, str, bool] | None:
    try:
        rows = session.transact(lambda db: db.execute(session.sql(_FOUND).encode()).fetchall())  # locks have a limit
    except QuireError as error:
        if isinstance(error.__cause__, errors.UndefinedTable | errors.InvalidSchemaName):
            return None
        raise
    return (rows[0][0], rows[0][1], rows[0][2], rows[0][3], rows[0][4]) if rows else None


def _migrate(session: "Session", schema: str) -> None:
    """Bring the schema to this version, in one transaction, while others who want the same wait."""
    try:
        session.transact(lambda db: _steps(session, db, schema))
    except QuireError as error:
        if isinstance(error.__cause__, errors.InsufficientPrivilege):
            raise StorageFailure(
                f"This role may not make quire's tables in schema {schema!r} of {session.name}: open it once as their"
                " owner, then GRANT as docs/postgres.md says."
            ) from error
        raise


def _steps(session: "Session", db: "Db", schema: str) -> None:
    db.execute(_LOCK_MIGRATING, (schema,))
    if db.execute(_EXISTS, (schema,)).fetchone() is None:
        db.execute(session.sql("CREATE SCHEMA {q}").encode())
    row = db.execute(_MADE, (session.sql("{q}.meta"),)).fetchone()
    if not (row and row[0]):
        db.execute(session.sql(META).encode())
        db.execute(session.sql("INSERT INTO {q}.meta VALUES (0, '')").encode())
    found = db.execute(session.sql("SELECT version, quire FROM {q}.meta").encode()).fetchone()
    stands, made_by = found or (0, "")
    _check_version(session, schema, stands, made_by)
    for step in MIGRATIONS[stands:]:
        db.execute(session.sql(step).encode())
    if stands < len(MIGRATIONS):
        db.execute(session.sql("UPDATE {q}.meta SET version = %s, quire = %s").encode(), (len(MIGRATIONS), _version()))


def _check_version(session: "Session", schema: str, stands: int, made_by: str) -> None:
    if stands > len(MIGRATIONS):
        raise NewerFormat(
            f"Schema {schema!r} of {session.name} is of version {stands}; this quire reads up to {len(MIGRATIONS)}."
            f" Install quire {made_by} or newer."
        )


def _version() -> str:
    """This quire's version: what to install to read what it writes."""
    try:
        return version("quire")
    except PackageNotFoundError:
        return "newer than this"
