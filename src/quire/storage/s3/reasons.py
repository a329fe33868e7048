"""Why a server could not be reached, in words of our own: what the client says may quote keys and signatures."""

import re
from typing import Final

_REASONS: Final = tuple(
    (re.compile(sign, re.IGNORECASE), words)
    for sign, words in (
        ("dns error|lookup address|name or service not known", "no such host (DNS); check the endpoint"),
        ("ConnectionRefused", "the connection was refused: nothing listens there; check host and port of the endpoint"),
        ("NetworkUnreachable|HostUnreachable", "no route leads there"),
        ("certificate|UnknownIssuer|NotValidForName|CertExpired", "its certificate is not trusted (TLS)"),
        ("InvalidContentType|InvalidMessage", "no TLS is spoken there; is it http:// instead of https://?"),
        ("HandshakeFailure|AlertReceived|ProtocolVersion", "no TLS connection was agreed on"),
        ("kind: Timeout|TimedOut", "no answer came in time; timeout_seconds says how long to wait"),
        (r"Parse\(", "no HTTP is spoken there; check the endpoint (https:// instead of http://?)"),
        ("ConnectionReset|ConnectionAborted|BrokenPipe|IncompleteMessage|UnexpectedEof", "the connection broke off"),
    )
)


def reason(text: str) -> str:
    """What lies behind a failure of the network; that nothing is known if it is another one."""
    found = (words for sign, words in _REASONS if sign.search(text))
    return next(found, "the reason is not known; check endpoint and network")
