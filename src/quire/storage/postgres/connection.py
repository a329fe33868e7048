"""What went wrong, in quire's words. Raw errors of the driver never leave the backend, and no password does.

Where a store is: the URL of a database, and which schema and tenant of it. A password in it is never shown.

It is read as libpq reads it, which is not as a browser would: `#` and `?` are signs like any other before the `@`.

A server that hangs: it takes what is sent and never answers, so that nothing ends a wait for it.

A statement may rightly take long. So what waits longer than patience is not ended by the clock: a new connection is
tried, and only if the server does not answer that either are the waiting ones cut off. They then hear that their
connection was lost, as with a server that went away. The thread that looks is there while connections are in use.

Connections, kept for the next call: as many as are in use at once, up to a limit.

A connection is borrowed for one statement or one transaction. After one was lost, those that were idle at that time
are suspected and closed too: a server that went away took all of them.

Statements against the server: read again when a connection is lost, and written exactly once.

A connection can die between a commit and the word that it happened, and a server may still carry out what a dead
connection asked for. So a write whose outcome is unknown is sent again with the same commit id: either it lands now,
or it landed before, which the id tells, or another writer came first and it never will.
"""

import math
import os
import re
import socket
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from itertools import takewhile
from threading import Condition, Lock, Thread
from time import monotonic, sleep
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import quote, unquote, urlencode

import psycopg
from msgspec import Struct
from psycopg import Connection, Error, InterfaceError, OperationalError, errors

from quire.errors import (
    Busy,
    Corrupt,
    InvalidOperation,
    InvalidValue,
    OutcomeUnknown,
    QuireError,
    StorageClosed,
    StorageFailure,
    short_repr,
)
from quire.storage.base import check_context_name, is_secret, veiled
from quire.storage.postgres.schema import FULL_LIMITS, LIMITS

AGAIN = (errors.SerializationFailure, errors.DeadlockDetected)
"""The server undid the transaction to let another one through: the same again succeeds."""
LATER = (errors.TooManyConnections, errors.CannotConnectNow, errors.InsufficientResources)
"""The server takes no connection now and may in a moment."""
LOST = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.IdleInTransactionSessionTimeout,
    errors.IdleSessionTimeout,
    InterfaceError,
)


def is_lost(error: Error) -> bool:
    """Whether the connection is gone, so that nobody knows what the server still does."""
    if isinstance(error, LOST):
        return True
    return isinstance(error, OperationalError) and (error.sqlstate or "08").startswith("08")


def ours(error: Error, name: str) -> QuireError:
    """The error as the caller gets it; `name` is the address as it may be shown."""
    said = _said(error)
    match error:
        case errors.LockNotAvailable():
            return Busy(f"A lock in {name} was held too long by another writer: retry.")
        case errors.QueryCanceled():
            return Busy(f"{name} gave up after its time limit ({said}): retry, or raise statement_timeout.")
        case errors.SerializationFailure() | errors.DeadlockDetected():
            return Busy(f"{name} is crowded ({said}): retry.")
        case errors.TooManyConnections():
            return Busy(f"{name} takes no more connections ({said}): retry, or use a pooling proxy.")
        case errors.InsufficientPrivilege():
            return StorageFailure(f"{name} refuses ({said}): see the role in docs/postgres.md.")
        case errors.ReadOnlySqlTransaction():
            return StorageFailure(f"{name} is read-only, a standby perhaps ({said}): connect to the primary.")
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return StorageFailure(
                f"{name} has lost some of quire's tables ({said}): restore them from a backup. Opening it makes those"
                " of the search index anew, and no others."
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return Corrupt(f"{name} is damaged: {said}.")
        case _ if is_lost(error):
            return StorageFailure(f"The connection to {name} was lost or refused: {said}.")
        case _:
            return StorageFailure(f"{name}: {said}; nothing was changed.")


def _said(error: Error) -> str:
    """What the server or the driver said, in one line."""
    told = error.diag.message_primary or str(error) or type(error).__name__
    return " ".join(told.split())[:300].rstrip(".")


SCHEMES: Final = ("postgresql", "postgres")
_LONGEST: Final = 8_192
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_FORM = "postgresql://USER@HOST:PORT/DATABASE?tenant=NAME&schema=NAME"
_USER = re.compile(r"[^?#=&/\[\]]*")
_OPTION = re.compile(r"\?[A-Za-z_]+=")
_HOST = re.compile(r"(\[[0-9A-Za-z:.%]+\]|[^:@?#=&\[\]]*)(:[0-9]{0,5})?")
ESCAPES: Final = "In passwords and options @ is written %40, / %2F, : %3A, ? %3F, # %23, & %26 and % %25."


class Address(Struct, frozen=True):
    """`url` is what the driver is given, without what is ours; `name` is what may be shown."""

    url: str
    name: str
    tenant: str
    schema: str

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


class _Parts(NamedTuple):
    """A URL cut up, nothing decoded but the options."""

    user: str
    password: str | None
    hosts: str
    path: str
    options: dict[str, str]


def parse(url: object, tenant: str | None = None, schema: str | None = None) -> Address:
    """The address a URL names; tenant and schema may also be given apart. Raises `InvalidValue`."""
    if isinstance(url, str) and len(url) > _LONGEST:
        raise InvalidValue(
            f"The PostgreSQL URL {short_repr(veiled(url))} is too long; at most {_LONGEST:,} characters."
        )
    parts = _parts(url)
    rest = dict(parts.options)
    tenant = _one("tenant", rest.pop("tenant", None), tenant) or ""
    schema = _one("schema", rest.pop("schema", None), schema) or "quire"
    if tenant:
        check_context_name(tenant)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidValue(
            f"schema is {short_repr(schema)}; a name of small letters, digits and _ is needed, not pg_…."
        )
    return Address(_url(parts, rest), _name(parts, rest, tenant, schema), tenant, schema)


def unknown_option(url: str, known: frozenset[str]) -> str | None:
    """The first option of a URL that is not known; None where it may be a piece of a password."""
    for name in _parts(url).options:
        if is_secret(name):
            return None
        if name not in known:
            return name
    return None


def _parts(url: object) -> _Parts:
    """The parts of a URL. Raises `InvalidValue`, which quotes nothing: it may hold a password."""
    text = url if isinstance(url, str) and url.isprintable() else ""
    scheme, marks, rest = text.partition("://")
    if scheme.lower() not in SCHEMES or not marks:
        raise InvalidValue(f"This is no PostgreSQL URL; give {_FORM}.")
    place, slash, path = rest.partition("/")
    before, _, hosts = place.rpartition("@")
    hosts, mark, query = hosts.partition("?")
    if mark:
        path, query = "", query + slash + path
    else:
        path, _, query = (slash + path).partition("?")
    user, colon, password = before.partition(":")
    plain = _USER.fullmatch(user) and all(_HOST.fullmatch(host) for host in hosts.split(","))
    if not plain or "@" in path or _OPTION.search(before):
        raise InvalidValue(f"The PostgreSQL URL is not understood; give {_FORM}. {ESCAPES}")
    return _Parts(user, password if colon else None, hosts, path, _options(query))


def _options(query: str) -> dict[str, str]:
    options = {}
    for pair in query.split("&") if query else ():
        name, equals, value = pair.partition("=")
        if not name or not equals or ("@" in pair and not is_secret(name)):
            raise InvalidValue(f"An option of the PostgreSQL URL is not understood; give {_FORM}. {ESCAPES}")
        options[unquote(name)] = unquote(value)
    return options


def _url(parts: _Parts, options: dict[str, str]) -> str:
    password = "" if parts.password is None else ":" + parts.password.replace("@", "%40")
    at = "@" if parts.user or password else ""
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{parts.user}{password}{at}{parts.hosts}{parts.path}{query}"


def _name(parts: _Parts, options: dict[str, str], tenant: str, schema: str) -> str:
    kept = list(takewhile(lambda option: not is_secret(option[0]), options.items()))  # an & may be a password's
    kept += [("tenant", tenant)] if tenant else []
    kept += [("schema", schema)] if schema != "quire" else []
    query = f"?{urlencode(kept, quote_via=quote, safe='/')}" if kept else ""
    return f"postgresql://{parts.user}{'@' if parts.user else ''}{parts.hosts}{parts.path}{query}"


def _one(what: str, in_url: str | None, given: str | None) -> str | None:
    if given is not None and not isinstance(given, str):
        raise InvalidValue(f"{what} is {short_repr(given)}; a name is needed.")
    if in_url is not None and given is not None and in_url != given:
        raise InvalidValue(f"The URL has {what} {in_url!r} and the option says {given!r}: give one of them.")
    return in_url if given is None else given


_LEAST = 0.1
_MOST = 1.0
TRY_SECONDS: Final = 5
"""How long the server has to answer a new connection, unless the URL has a `connect_timeout`."""


class Watch:
    """Looks after the connections in use. `begin` and `end` cost nothing to speak of: they stand in every call."""

    def __init__(self, settings: dict[str, Any], patience: float) -> None:
        self._settings = settings
        self._patience = patience
        self._pause = min(max(patience / 4, _LEAST), _MOST)
        self._lock = Lock()
        self._since: dict[Connection[Any], float] = {}
        self._answered = 0.0
        self._is_watched = False
        self._was_used = False

    def begin(self, connection: Connection[Any]) -> None:
        """Say that a connection is in use from now on."""
        self._since[connection] = monotonic()
        self._was_used = True
        if not self._is_watched:  # read after the line above, as `look` writes before it reads: one of both sees
            self._start()

    def end(self, connection: Connection[Any]) -> None:
        """Say that it is not any more."""
        self._since.pop(connection, None)

    def _start(self) -> None:
        if self._becomes_watched():
            Thread(target=_look, args=(weakref.ref(self), self._pause), name="quire-watch", daemon=True).start()

    def _becomes_watched(self) -> bool:
        with self._lock:
            was, self._is_watched = self._is_watched, True
            return not was

    def look(self) -> bool:
        """Cut off what waits for a server that does not answer; False if there is nothing to look after."""
        late = monotonic() - self._patience
        if self._answered < late and self._waiting(late):
            if self._is_alive():
                self._answered = monotonic()
            else:
                for connection in self._waiting(late):
                    _cut(connection)  # one that was done just now is made anew when it is used
        was_used, self._was_used = self._was_used, False
        if was_used or self._since:
            return True
        self._is_watched = False
        return bool(self._since) and self._becomes_watched()

    def _waiting(self, late: float) -> list[Connection[Any]]:
        return [connection for connection, since in self._since.copy().items() if since < late]

    def _is_alive(self) -> bool:
        """Whether the server answers at all, if only to refuse."""
        try:
            psycopg.connect(**self._settings).close()
        except psycopg.Error as error:
            return not (isinstance(error, psycopg.errors.ConnectionTimeout) or "timeout expired" in str(error))
        return True


def _look(found: "weakref.ref[Watch]", pause: float) -> None:
    """Look now and then, as long as there is something to look after; a store that nobody holds any more is let go."""
    while True:
        sleep(pause)
        watch = found()
        if watch is None or not watch.look():
            return
        del watch


def _cut(connection: Connection[Any]) -> None:
    """End a connection under whoever waits for it: only the socket, for the rest is in use by another thread."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "quire",
    "client_encoding": "utf8",
}
"""A peer that vanished without a word is noticed in about half a minute. What the URL says counts more."""
_SHORTEST = 2
"""The driver takes less for this."""
_IDLE_SECONDS = 300.0
_PAUSE = 0.02
_PREPARE_AFTER = 3
_AWAY = ("refused", "No such file", "reset by peer", "closed the connection", "timeout expired", "recovery mode")
_inherited: list[Any] = []
"""Connections of a parent process: ending them here would end them there."""


class Pool:
    """At most `most` connections to one database."""

    def __init__(self, url: str, name: str, most: int, patience: float) -> None:
        self._name = name
        self._most = most
        self._patience = f"{max(int(patience * 1_000), 1)}ms"
        given = _settings(url)
        self._waits = "connect_timeout" in given
        self._settings: dict[str, Any] = {**_DEFAULTS, **given}
        self._met = False
        self._seconds = patience
        self._changed = Condition()
        self._forget()

    def _forget(self) -> None:
        self._idle: list[tuple[Connection[Any], float]] = []
        self._used = 0
        self._closed = False
        self._process = os.getpid()
        tries = {} if self._waits else {"connect_timeout": str(TRY_SECONDS)}
        self._watch = Watch(self._settings | tries, self._seconds)

    @contextmanager
    def connection(self, deadline: float) -> Iterator[Connection[Any]]:
        """A connection for a block; it is closed instead of kept if the block leaves it broken or in a transaction.

        Raises `Busy` if none is free in time, and the driver's errors if the server takes none.
        """
        connection = self.take(deadline)
        try:
            yield connection
        except psycopg.Error as error:
            if is_lost(error):
                self.distrust(connection)
            raise
        finally:
            self.give_back(connection)

    def connect(self, deadline: float) -> Connection[Any]:
        """A new connection, waiting for a server that is starting or full."""
        pause = _PAUSE
        while True:
            try:
                settings = self._settings | self._limit(deadline)
                made = self._ready(psycopg.connect(**settings, autocommit=True, prepare_threshold=None))
                self._met = True
                return made
            except UnicodeError:
                raise InvalidValue(f"The host of {self._name} is none: a label of it is too long or empty.") from None
            except psycopg.Error as error:
                if not _may_pass(error, self._met) or monotonic() + pause > deadline:
                    raise
                sleep(pause)
                pause = min(2 * pause, 0.5)

    def _limit(self, deadline: float) -> dict[str, Any]:
        """How long one try may take: to the deadline, in the whole seconds of libpq, unless the URL says otherwise."""
        if self._waits:
            return {}
        left = max(math.ceil(deadline - monotonic()), _SHORTEST)
        return {"connect_timeout": min(left, int(_DEFAULTS["connect_timeout"]))}

    def _ready(self, connection: Connection[Any]) -> Connection[Any]:
        """The connection; if it leads straight to one server process, with statements prepared and a limit for locks.

        What is prepared or set is a session's: behind a proxy that lends a session for one transaction, it may be
        another's. Such a proxy cannot tell a client the number of the process it will talk to.
        """
        self._watch.begin(connection)
        try:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            if row is not None and row[0] == connection.info.backend_pid:
                connection.execute("SELECT set_config('lock_timeout', %s, false)", (self._patience,))
                connection.prepare_threshold = _PREPARE_AFTER
        except BaseException:
            connection.close()
            raise
        finally:
            self._watch.end(connection)
        return connection

    def close(self) -> None:
        with self._changed:
            if self._process != os.getpid():
                self._leave()
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for connection, _ in idle:
            connection.close()

    def take(self, deadline: float) -> Connection[Any]:
        """A connection, to be given back. Raises as `connection` does."""
        with self._changed:
            if self._process != os.getpid():
                self._leave()
            while not self._closed and self._used >= self._most:
                if not self._changed.wait(max(deadline - monotonic(), 0)) and self._used >= self._most:
                    raise Busy(f"All {self._most} connections to {self._name} are in use: retry, or allow more.")
            if self._closed:
                raise StorageClosed(f"The storage {self._name} is closed: open it again.")
            self._used += 1
            found = self._fresh()
        if found is None:
            try:
                found = self.connect(deadline)
            except BaseException:
                with self._changed:
                    self._used -= 1
                    self._changed.notify()
                raise
        self._watch.begin(found)
        return found

    def _fresh(self) -> Connection[Any] | None:
        """An idle connection that was used not long ago; what lay about for longer a proxy may have cut off."""
        while self._idle:
            connection, since = self._idle.pop()
            if monotonic() - since < _IDLE_SECONDS and not connection.closed:
                return connection
            connection.close()
        return None

    def give_back(self, connection: Connection[Any]) -> None:
        """Keep a connection for the next one, or close it if it is broken or in a transaction."""
        self._watch.end(connection)
        is_ready = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._changed:
            self._used -= 1
            if is_ready and not self._closed and self._process == os.getpid():
                self._idle.append((connection, monotonic()))
                connection = None  # type: ignore[assignment]
            self._changed.notify()
        if connection is not None:
            connection.close()

    def distrust(self, lost: Connection[Any]) -> None:
        """Close a connection that was lost, and those that were idle meanwhile."""
        with self._changed:
            idle, self._idle = self._idle, []
        for connection in (lost, *(connection for connection, _ in idle)):
            connection.close()

    def _leave(self) -> None:
        """Begin anew in a child process. Its parent's connections are neither used nor ended."""
        _inherited.extend(connection for connection, _ in self._idle)
        closed = self._closed
        self._forget()
        self._closed = closed


def _settings(url: str) -> dict[str, Any]:
    try:
        return psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise _refused(url) from None  # the driver quotes the URL, which may hold a password


def _refused(url: str) -> InvalidValue:
    """The error for a URL that libpq does not understand: an option that it does not know is named."""
    options = psycopg.pq.Conninfo.get_defaults()
    known = sorted(option.keyword.decode() for option in options if option.dispchar != b"D")
    name = unknown_option(url, frozenset(option.keyword.decode() for option in options))
    if name is None:
        form = "postgresql://USER@HOST:PORT/DATABASE and options of libpq"
        return InvalidValue(f"The PostgreSQL URL is not understood; give {form}. {ESCAPES}")
    near = get_close_matches(name, ["tenant", "schema", *known], n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return InvalidValue(
        f"The PostgreSQL URL has an unknown option {short_repr(name)}.{meant} Options: tenant, schema,"
        f" and those of libpq: {', '.join(known)}."
    )


def _may_pass(error: psycopg.Error, met: bool) -> bool:
    """Whether the server may take a connection in a moment: it is starting or full, or it was there before."""
    if isinstance(error, LATER):
        return True
    signs = ("starting up", "shutting down", "too many", "not yet accepting", *(_AWAY if met else ()))
    return isinstance(error, psycopg.OperationalError) and any(sign in str(error) for sign in signs)


_PAUSE_SESSION = 0.01
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
        deadline, pause = monotonic() + self.patience, _PAUSE_SESSION
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
