"""The constructor of a storage in PostgreSQL. The driver is imported when one is made."""

from typing import TYPE_CHECKING, Any

from quire.errors import InvalidValue, NotInstalled, short_repr
from quire.storage.address import parse
from quire.storage.base import Durability, check_durability
from quire.storage.sql import SqlStorage

if TYPE_CHECKING:
    import psycopg

    from quire.storage.pg_connections import ConnectionPool


class PostgresStorage(SqlStorage):
    """A storage in one schema of a PostgreSQL database. Any number of processes and machines can share it.

    A tenant sees only its own contexts. `durability="normal"` leaves `synchronous_commit` as the server has it;
    `"full"` turns it on for every commit. `busy_seconds` limits the wait for a lock (then `Busy`) and for a server that
    is away. At most `connections` are open at once.

    Instead of a URL, the caller can give an open `psycopg.Connection` or a `psycopg_pool.ConnectionPool`. quire uses it
    between the caller's transactions and never closes it.
    """

    def __init__(
        self,
        url: "str | psycopg.Connection[Any] | ConnectionPool",
        *,
        tenant: str | None = None,
        schema: str | None = None,
        durability: Durability = "normal",
        busy_seconds: float = 5.0,
        connections: int = 8,
        create: bool = True,
    ) -> None:
        self.durability = check_durability(durability)
        if type(connections) is not int or connections < 1:
            needed = "a whole number from 1 is needed."
            raise InvalidValue(f"is {short_repr(connections)}; {needed}", argument="connections")
        if isinstance(busy_seconds, bool) or not isinstance(busy_seconds, int | float) or not 0 < busy_seconds < 86_400:
            needed = "a number of seconds above 0 and below a day is needed."
            raise InvalidValue(f"is {short_repr(busy_seconds)}; {needed}", argument="busy_seconds")
        address = parse(url, tenant, schema) if isinstance(url, str) else None
        try:
            import psycopg  # noqa: F401 - the modules below may be loaded without it

            from quire.storage.pg_connections import LentConnections, OwnConnections
            from quire.storage.pg_database import PostgresDatabase
        except ImportError as error:
            raise NotInstalled("PostgreSQL needs psycopg", "postgres", name="psycopg") from error
        full = self.durability == "full"
        own = OwnConnections(address, busy_seconds, connections) if address else None
        database = PostgresDatabase(own or LentConnections(url, tenant, schema, busy_seconds), full=full)
        self.tenant, self.schema = database.address.tenant, database.address.schema
        try:
            database.prepare(create=create)
        except BaseException:
            database.close()
            raise
        super().__init__(database)
