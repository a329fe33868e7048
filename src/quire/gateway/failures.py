"""The errors of a provider after which the mode `fold` sends a request once more: too long, or an invalid signature."""

from typing import Literal

Reason = Literal["too_long", "signature"]
_TOO_LONG = (
    b"prompt is too long",
    b"context_length_exceeded",
    b"maximum context length",
    b"exceeds the context window",
    b"exceed context limit",
    b"context window",
    b"input is too long",
    b"exceed_context_size",  # llama.cpp
    b"exceeds the available context size",
)
_SIGNATURES = (
    b"bound to a different conversation",
    b"invalid `signature`",
    b"invalid signature",
    b"invalid_encrypted_content",
    b"encrypted content could not be verified",
)
_STATUSES = (400, 413)
_MAX_ERROR = 1 << 16


def find_reason(status: int, body: bytes) -> Reason | None:
    """Return why a request can be sent once more in another form; None if its error is passed on."""
    if status not in _STATUSES:
        return None
    text = body[:_MAX_ERROR].lower()
    if any(phrase in text for phrase in _SIGNATURES):
        return "signature"
    if any(phrase in text for phrase in _TOO_LONG):
        return "too_long"
    return None
