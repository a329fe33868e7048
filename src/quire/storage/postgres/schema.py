"""The tables of the PostgreSQL backend, their migrations, and the statements. `{q}` is replaced by the schema's name.

A context has a number that is never used again. One table holds the records of all contexts, by number, family and
key. Opening a storage creates the tables in a new schema, migrates an older schema and rejects a newer one. This module
does not need the driver.
"""

from typing import TYPE_CHECKING, Final

from quire.errors import Corrupt, Hint, NewerFormat, QuireError, StorageFailure
from quire.storage.base import Family, quire_version

if TYPE_CHECKING:
    from quire.storage.postgres.connection import Db, Session

CODES: Final[dict[Family, int]] = {
    "segment": 1,
    "page": 2,
    "body": 3,
    "journal": 4,
    "tally": 5,
    "pin": 6,
    "message": 7,
    "call": 8,
    "note": 9,
    "anchor": 10,
    "vector": 11,
    "layout": 12,
    "sheet": 13,
}
"""The number of a family in the tables. New codes are appended; none is ever changed."""

_SEARCH: Final = """
    CREATE TABLE {q}.search_state (
        context bigint PRIMARY KEY,
        version bigint NOT NULL,
        identity bytea NOT NULL,
        reached bigint NOT NULL,
        serial bigint NOT NULL);
    CREATE TABLE {q}.search_size (
        context bigint NOT NULL,
        block bigint NOT NULL,
        sizes bytea NOT NULL,
        PRIMARY KEY (context, block));
    CREATE TABLE {q}.search (
        context bigint NOT NULL,
        key bigint NOT NULL,
        terms tsvector NOT NULL,
        body text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        description text COLLATE "C" NOT NULL,
        parts text COLLATE "C" NOT NULL,
        PRIMARY KEY (context, key));
    CREATE INDEX search_terms ON {q}.search USING gin (terms) WITH (gin_pending_list_limit = 512);"""
"""The search index. It is derived from the records, so a missing part can be created again."""
SEARCH_TABLES: Final = ("search_state", "search_size", "search")
_REPAIR_SEARCH: Final = _SEARCH.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS").replace(
    "CREATE INDEX", "CREATE INDEX IF NOT EXISTS"
)

MIGRATIONS: Final[tuple[str, ...]] = (
    # 1: the first schema. New steps are appended; none is ever edited. The number of steps is the schema version.
    """CREATE TABLE {q}.context (
        id bigint GENERATED ALWAYS AS IDENTITY,
        version bigint NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        commit_id bytea NOT NULL,
        head bytea NOT NULL,
        PRIMARY KEY (tenant, name),
        UNIQUE (id)
    ) WITH (fillfactor = 60);
    CREATE TABLE {q}.record (
        context bigint NOT NULL,
        key bigint NOT NULL,
        grp bigint,
        family smallint NOT NULL,
        ord bytea NOT NULL,
        value bytea NOT NULL,
        PRIMARY KEY (context, family, key));
    CREATE INDEX record_group ON {q}.record (context, grp, ord, key) WHERE grp IS NOT NULL;
    CREATE TABLE {q}.shared (
        id bigint PRIMARY KEY,
        origin bigint NOT NULL,
        body bigint NOT NULL,
        message bigint NOT NULL);
    CREATE INDEX shared_origin ON {q}.shared (origin);
    CREATE TABLE {q}.gone (
        context bigint NOT NULL,
        family smallint NOT NULL,
        key bigint NOT NULL,
        PRIMARY KEY (context, family, key));"""
    + _SEARCH,
)
"""Every commit updates a row of `context`. The fill factor leaves room to update it in place, so no index changes."""

CLEAR_GONE: Final = "DELETE FROM {q}.gone WHERE context = %s"
CLEAR_SEARCH: Final = tuple(f"DELETE FROM {{q}}.{table} WHERE context = %s" for table in SEARCH_TABLES)

MISSING: Final = "SELECT count(*) < 4 FROM pg_catalog.pg_class WHERE oid IN ({tables})".replace(
    "{tables}", ", ".join(f"to_regclass('{{q}}.{name}')" for name in (*SEARCH_TABLES, "search_terms"))
)
"""True if a table of the search index, or the index on its terms, is missing."""
_META: Final = "CREATE TABLE {q}.meta (version integer NOT NULL, quire text NOT NULL)"
_STATE: Final = f"""SELECT meta.version, meta.quire, current_setting('server_encoding'), current_setting('fsync'),
    ({MISSING}) FROM {{q}}.meta"""
_LOCK_SCHEMA: Final = "SELECT pg_advisory_xact_lock(hashtextextended('quire ' || %s, 0))"
_LOCK_SEARCH: Final = "SELECT pg_advisory_xact_lock(hashtextextended('quire search ' || %s, 0))"
_HAS_SCHEMA: Final = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
_HAS_TABLE: Final = "SELECT to_regclass(%s) IS NOT NULL"
_LACKS_META: Final = """SELECT to_regclass('{q}.meta') IS NULL AND
    coalesce(to_regclass('{q}.context'), to_regclass('{q}.record')) IS NOT NULL"""
"""True if quire's tables exist without the one that holds their version. One transaction creates all of them."""

UNDEFINED: Final = frozenset({"42P01", "42703", "3F000"})
"""The codes (SQLSTATE) of PostgreSQL for a missing table, column or schema."""
DENIED: Final = frozenset({"42501", "25006"})
"""The codes of PostgreSQL for a missing privilege and for a read-only server."""


def sqlstate(error: QuireError) -> str:
    """Return the code of the driver's error that caused this one, or ""."""
    return getattr(error.__cause__, "sqlstate", None) or ""


def prepare_schema(session: "Session", schema: str, *, create: bool, full: bool) -> None:
    """Create or migrate the tables of a schema, and check that this storage can use them.

    Raises `NewerFormat`, `Corrupt` if the table with the version is missing, and `StorageFailure` if there is no store
    and it may not or cannot be created.
    """
    found = _read_state(session)
    if found is None and session.read(_LACKS_META)[0][0]:
        raise Corrupt(
            f"Schema {schema!r} of {session.name} has quire's tables without {schema}.meta, which holds their version:"
            " restore that table from a backup of the database."
        )
    if found is None and not create:
        hint = Hint("Library", arguments="create=True", purpose="to create it")
        raise StorageFailure(f"There is no store in schema {schema!r} of {session.name}.", hint)
    if found is None or found[0] < len(MIGRATIONS):
        _migrate(session, schema)
        found = _read_state(session)
    if found is None:
        raise StorageFailure(f"Schema {schema!r} of {session.name} was removed while it was opened.")
    number, made_by, encoding, fsync, lacks_search = found
    _check_version(session, schema, number, made_by)
    if encoding != "UTF8":
        raise StorageFailure(f"{session.name} has the encoding {encoding}; create a database with encoding UTF8.")
    if full and fsync != "on":
        raise StorageFailure(f"{session.name} runs with fsync = off, so durability='full' is not possible.")
    if lacks_search:
        try:
            create_search_tables(session)
        except QuireError as error:  # such a role searches in memory, and the integrity check reports it
            if sqlstate(error) not in DENIED:
                raise


def create_search_tables(session: "Session", *, empty: bool = False) -> None:
    """Create the missing tables of the search index and empty the others: they are useless without the missing ones.

    With `empty`, empty the index in any case. Raises `StorageFailure` if the role may not create tables.
    """

    def create(db: "Db") -> None:
        db.execute(_LOCK_SEARCH, (session.sql("{q}"),))
        row = db.execute(session.sql(MISSING).encode()).fetchone()
        is_incomplete = bool(row and row[0])
        if is_incomplete:
            db.execute(session.sql(_REPAIR_SEARCH).encode())
        if empty or is_incomplete:
            for table in SEARCH_TABLES:
                db.execute(session.sql(f"DELETE FROM {{q}}.{table}").encode())

    session.transact(create)


def _read_state(session: "Session") -> tuple[int, str, str, str, bool] | None:
    """Return version, quire's version, encoding, fsync, and whether the search index lacks a table."""
    try:
        rows = session.transact(lambda db: db.execute(session.sql(_STATE).encode()).fetchall())  # limits lock waits
    except QuireError as error:
        if sqlstate(error) in UNDEFINED:
            return None
        raise
    return (rows[0][0], rows[0][1], rows[0][2], rows[0][3], rows[0][4]) if rows else None


def _migrate(session: "Session", schema: str) -> None:
    """Bring the schema to this version in one transaction, while other processes wait."""
    try:
        session.transact(lambda db: _run_migrations(session, db, schema))
    except QuireError as error:
        if sqlstate(error) != "42501":
            raise
        raise StorageFailure(
            f"This role may not create quire's tables in schema {schema!r} of {session.name}: open the store once as"
            " their owner, then GRANT as in docs/postgres.md."
        ) from error


def _run_migrations(session: "Session", db: "Db", schema: str) -> None:
    db.execute(_LOCK_SCHEMA, (schema,))
    if db.execute(_HAS_SCHEMA, (schema,)).fetchone() is None:
        db.execute(session.sql("CREATE SCHEMA {q}").encode())
    row = db.execute(_HAS_TABLE, (session.sql("{q}.meta"),)).fetchone()
    if not (row and row[0]):
        db.execute(session.sql(_META).encode())
        db.execute(session.sql("INSERT INTO {q}.meta VALUES (0, '')").encode())
    found = db.execute(session.sql("SELECT version, quire FROM {q}.meta").encode()).fetchone()
    number, made_by = found or (0, "")
    _check_version(session, schema, number, made_by)
    for step in MIGRATIONS[number:]:
        db.execute(session.sql(step).encode())
    if number < len(MIGRATIONS):
        values = (len(MIGRATIONS), quire_version())
        db.execute(session.sql("UPDATE {q}.meta SET version = %s, quire = %s").encode(), values)


def _check_version(session: "Session", schema: str, number: int, made_by: str) -> None:
    if number > len(MIGRATIONS):
        raise NewerFormat(
            f"Schema {schema!r} of {session.name} has version {number}; this quire reads up to {len(MIGRATIONS)}."
            f" Install quire {made_by} or newer."
        )
