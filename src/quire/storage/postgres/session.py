"""Statements against the server: read again when a connection is lost, and written exactly once.

A connection can die between a commit and the word that it happened, and a server may still carry out what a dead
connection asked for. So a write whose outcome is unknown is sent again with the same commit id: either it lands now,
or it landed before, which the id tells, or another writer came first and it never will.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from time import monotonic, sleep
from typing import Any, TypeVar, cast

import psycopg
from psycopg import Connection

from quire.errors import InvalidOperation, OutcomeUnknown, QuireError
from quire.storage.postgres.address import Address
from quire.storage.postgres.faults import AGAIN, is_lost, ours
from quire.storage.postgres.pool import Pool
from quire.storage.postgres.schema import FULL_LIMITS, LIMITS

_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
_AT_ONCE = 64 if psycopg.capabilities.has_stream_chunked() else 1

T = TypeVar("T")
Db = Connection[Any]
Row = tuple[Any, ...]


class Session:
    """What one storage asks its server. Safe to use from several threads."""

    def __init__(self, address: Address, *, connections: int, patience: float, full: bool) -> None:
        self.name = address.name
        self.patience = patience
        self._limits = FULL_LIMITS if full else LIMITS
        self._schema = f'"{address.schema}"'
        self._pool = Pool(address.url, address.name, connections, patience)

    def sql(self, text: str) -> str:
        """A statement with the schema put in."""
        return text.replace("{q}", self._schema)

    def read(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows of a statement that changes nothing."""
        with self._errors():
            return self._persistent(lambda db: db.execute(self.sql(text), values, binary=True).fetchall())

    def stream(self, text: str, values: Sequence[Any], take: Callable[[Iterator[Row]], T]) -> T:
        """What `take` makes of the rows as they come; it is called anew if the connection is lost on the way."""

        def run(db: Db) -> T:
            with db.cursor(binary=True) as cursor:
                rows = cast(Generator[Row, None, None], cursor.stream(self.sql(text), values, size=_AT_ONCE))
                with closing(rows):
                    return take(rows)

        with self._errors():
            return self._persistent(run)

    def transact(self, work: Callable[[Db], T]) -> T:
        """Several statements as one transaction. `work` may be called again: it must come to the same then."""
        with self._errors():
            return self._persistent(lambda db: self._in_transaction(db, work))

    @contextmanager
    def transaction(self, db: Db) -> Iterator[None]:
        """A transaction with its limits of time."""
        with db.transaction():
            db.execute(self._limits, (f"{max(int(self.patience * 1_000), 1)}ms",))
            yield

    def once(self, write: Callable[[Db], T | None], landed: Callable[[Db], T | None]) -> T | None:
        """Write, exactly once: what `write` gives, None if it met another state.

        `landed` looks whether an earlier try of the same write was carried out after all. Raises `OutcomeUnknown` if
        the server could not be asked.
        """
        unsure = False

        def attempt(db: Db) -> T | None:
            nonlocal unsure
            try:
                done = write(db)
            except psycopg.Error as error:
                unsure = unsure or is_lost(error)
                raise
            return landed(db) if done is None and unsure else done

        try:
            try:
                return self._persistent(attempt)
            except psycopg.Error as error:
                raise ours(error, self.name) from error
        except QuireError as error:
            if not unsure or isinstance(error, InvalidOperation | OutcomeUnknown):
                raise
            raise OutcomeUnknown(f"{error} Whether the change was made is not known: refresh() tells.") from error

    @contextmanager
    def still(self) -> Iterator["StillSession"]:
        """The database at one moment, whatever is committed meanwhile."""
        with self._errors(), self._pool.connection(monotonic() + self.patience) as db, db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield StillSession(self, db)

    def close(self) -> None:
        self._pool.close()

    def _persistent(self, work: Callable[[Db], T]) -> T:
        """Do it, again if the connection is lost or the server undid it, until patience ends."""
        deadline, pause = monotonic() + self.patience, _PAUSE
        while True:
            db = self._pool.take(deadline)  # which waits for a server that is away
            try:
                return work(db)
            except psycopg.Error as error:
                if is_lost(error):
                    self._pool.distrust(db)
                elif not isinstance(error, AGAIN):
                    raise
                if monotonic() + pause > deadline:
                    raise
            finally:
                self._pool.give_back(db)
            sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _in_transaction(self, db: Db, work: Callable[[Db], T]) -> T:
        with self.transaction(db):
            return work(db)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise ours(error, self.name) from error


class StillSession(Session):
    """Reads in one transaction that sees one state; nothing can be written through it."""

    def __init__(self, session: Session, db: Db) -> None:
        self.name = session.name
        self.patience = session.patience
        self._schema = session._schema
        self._db = db

    def read(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._errors():
            return self._db.execute(self.sql(text), values, binary=True).fetchall()

    def stream(self, text: str, values: Sequence[Any], take: Callable[[Iterator[Row]], T]) -> T:
        return take(iter(self.read(text, values)))

    def _persistent(self, work: Callable[[Db], T]) -> T:
        raise InvalidOperation("This is a snapshot, to be read only: write to the storage it was taken of.")

    def close(self) -> None:
        """Nothing of its own to release."""
