"""Errors as answers: one place from an error's code to a status."""

from http import HTTPStatus

from quire.errors import (
    Busy,
    Conflict,
    Corrupt,
    InvalidOperation,
    InvalidValue,
    IrreducibleFloor,
    NewerFormat,
    PermissionDenied,
    QuireError,
    StorageFailure,
)

_STATUSES: tuple[tuple[type[QuireError], HTTPStatus], ...] = (
    (InvalidValue, HTTPStatus.BAD_REQUEST),
    (InvalidOperation, HTTPStatus.UNPROCESSABLE_ENTITY),
    (IrreducibleFloor, HTTPStatus.UNPROCESSABLE_ENTITY),
    (PermissionDenied, HTTPStatus.FORBIDDEN),
    (Conflict, HTTPStatus.CONFLICT),
    (Busy, HTTPStatus.SERVICE_UNAVAILABLE),
    (StorageFailure, HTTPStatus.SERVICE_UNAVAILABLE),
    (Corrupt, HTTPStatus.INTERNAL_SERVER_ERROR),
    (NewerFormat, HTTPStatus.INTERNAL_SERVER_ERROR),
)


class Refused(Exception):
    """An answer other than what was asked for, with a stable code; the library was not asked."""

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def refusal(error: Exception) -> Refused:
    """What an error is answered with; of one that nobody expected nothing is told."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, QuireError):
        return Refused(_status(error), error.code, str(error))
    return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "The server failed; its log says how.")


def _status(error: QuireError) -> HTTPStatus:
    if isinstance(error, LookupError):  # every NoSuch…
        return HTTPStatus.NOT_FOUND
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR
