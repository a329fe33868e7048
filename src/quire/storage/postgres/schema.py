"""The PostgreSQL backend's tables and statements. `{q}` stands for the schema they are in.

A context has a number that is never used again. Its records stand in one table, by number, family and key.
"""

from typing import Final

from quire.storage.base import FAMILIES, IMMUTABLE, JOURNAL, Family

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
}
"""What stands for a family in the tables: codes are appended and never changed."""
COPIED: Final = tuple(family for family in FAMILIES if family not in IMMUTABLE and family != JOURNAL)
"""What a fork copies; the immutable families it shares."""

SEARCH: Final = """
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
"""The search index: derived, so what is missing of it can be made anew."""
MEND_SEARCH: Final = SEARCH.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS").replace(
    "CREATE INDEX", "CREATE INDEX IF NOT EXISTS"
)
SEARCH_TABLES: Final = ("search_state", "search_size", "search")

MIGRATIONS: Final[tuple[str, ...]] = (
    # 1: the first schema. Later steps are appended and never edited; the number of steps is the schema version.
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
    + SEARCH,
)
"""A head moves with every commit: the room left beside it lets that happen in place, without touching an index."""

META: Final = """CREATE TABLE {q}.meta (version integer NOT NULL, quire text NOT NULL)"""

LIMITS: Final = """SELECT set_config('lock_timeout', %s, true),
    set_config('idle_in_transaction_session_timeout', '60s', true)"""
"""For one transaction: how long a lock is waited for, and how long the server waits for a client that went away."""

FULL_LIMITS: Final = f"{LIMITS}, set_config('synchronous_commit', 'on', true)"

HEAD: Final = "SELECT id, version, head FROM {q}.context WHERE tenant = %s AND name = %s"
OPENED: Final = f"""WITH found AS MATERIALIZED ({HEAD})
    SELECT 0::smallint, id, head, version, NULL FROM found
    UNION ALL SELECT small.* FROM found, LATERAL (
        SELECT family, key, value, grp, ord FROM {{q}}.record
        WHERE context = found.id AND family = ANY (%s) LIMIT %s) AS small"""
"""The head, marked by family 0, and the small records of its context up to a number of them."""
STANDS: Final = "SELECT id, version, head, commit_id FROM {q}.context WHERE tenant = %s AND name = %s"
CONTEXTS: Final = "SELECT name FROM {q}.context WHERE tenant = %s AND name > %s ORDER BY name LIMIT %s"
NEW_HEAD: Final = """INSERT INTO {q}.context (tenant, name, version, head, commit_id) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT DO NOTHING RETURNING id"""

_NOT_GONE = " AND key <> ALL (ARRAY(SELECT key FROM {q}.gone WHERE context = %s AND family = %s AND key {among}))"
_ONE = "SELECT key, value, grp, ord FROM {q}.record WHERE context = %s AND family = %s AND key = %s"
GET: Final[dict[Family, str]] = {
    family: _ONE + _NOT_GONE.replace("{among}", "= %s") if family in IMMUTABLE else _ONE for family in FAMILIES
}


def within(family: Family, *, reverse: bool) -> str:
    """A stretch of records by key. This one and `GET` take for an immutable family the reader's number, and the rest
    again: the rows may be another's, and gone for the reader."""
    left = _NOT_GONE.replace("{among}", "BETWEEN %s AND %s") if family in IMMUTABLE else ""
    return (
        "SELECT key, value, grp, ord FROM {q}.record WHERE context = %s AND family = %s AND key BETWEEN %s AND %s"
        f"{left} ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT %s"
    )


def members(*, reverse: bool, after: bool) -> str:
    """The records of a group in their order."""
    order, beyond = ("DESC", "<") if reverse else ("ASC", ">")
    place = f" AND (ord, key) {beyond} (%s, %s)" if after else ""
    return (
        "SELECT key, value, grp, ord FROM {q}.record WHERE context = %s AND grp = %s AND family = %s"
        f"{place} ORDER BY ord {order}, key {order} LIMIT %s"
    )


COPY: Final = """INSERT INTO {q}.record (context, family, key, grp, ord, value)
    SELECT %s, record.family, record.key, grp, ord, value FROM {q}.record
    JOIN unnest(%s::smallint[], %s::bigint[]) AS taken (family, below) ON record.family = taken.family
    WHERE context = %s AND key < below"""
COPY_GONE: Final = """INSERT INTO {q}.gone (context, family, key)
    SELECT %s, gone.family, gone.key FROM {q}.gone
    JOIN unnest(%s::smallint[], %s::bigint[]) AS taken (family, below) ON gone.family = taken.family
    WHERE context = %s AND key < below"""
SHARE: Final = "INSERT INTO {q}.shared (id, origin, body, message) VALUES (%s, %s, %s, %s)"
LINE: Final = """WITH RECURSIVE line AS (
        SELECT id, origin, body, message, 1 AS step FROM {q}.shared WHERE id = %s
        UNION ALL SELECT shared.id, shared.origin, shared.body, shared.message, step + 1
        FROM line JOIN {q}.shared ON shared.id = line.origin)
    SELECT origin, body, message FROM line ORDER BY step"""
END_OF: Final = "SELECT coalesce(max(key) + 1, 0) FROM {q}.record WHERE context = %s AND family = %s"
BOUNDS: Final = """SELECT greatest(
        (SELECT max({family}) FROM {q}.shared WHERE origin = %s),
        (SELECT {family} FROM {q}.shared WHERE id = %s), 0)"""
"""The key below which a context's records of an immutable family are read by others, or are another's."""
LENT: Final = "SELECT coalesce(max(body), 0), coalesce(max(message), 0), count(*) FROM {q}.shared WHERE origin = %s"

DROP: Final = "DELETE FROM {q}.context WHERE tenant = %s AND name = %s AND (%s::bigint IS NULL OR id = %s) RETURNING id"
LOCK_LINE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('{q}', %s))"
"""Who takes rows away from a line of forks does so alone. It ends with the transaction."""
CLEAR: Final = """DELETE FROM {q}.record WHERE context = %s
    AND NOT (family = %s AND key < %s) AND NOT (family = %s AND key < %s)"""
CLEAR_GONE: Final = "DELETE FROM {q}.gone WHERE context = %s"
SWEEP: Final = """WITH swept AS (DELETE FROM {q}.gone WHERE context = %s AND family = %s AND key >= %s RETURNING key)
    DELETE FROM {q}.record WHERE context = %s AND family = %s AND key IN (SELECT key FROM swept)"""
LEAVE: Final = "DELETE FROM {q}.shared WHERE id = %s RETURNING origin"
IS_NAMED: Final = "SELECT 1 FROM {q}.context WHERE id = %s"
CLEAR_SEARCH: Final = tuple(f"DELETE FROM {{q}}.{table} WHERE context = %s" for table in SEARCH_TABLES)
