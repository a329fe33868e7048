"""What went wrong, in quire's words. Raw errors of the driver never leave the backend, and no password does."""

from psycopg import Error, InterfaceError, OperationalError, errors

from quire.errors import Busy, Corrupt, QuireError, StorageFailure

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
