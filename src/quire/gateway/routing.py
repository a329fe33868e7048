"""Where a request goes: its access token, its upstream, its protocol. Paths decide, and headers where paths do not."""

import hmac
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Literal, NamedTuple

from quire.server.access import Refusal

UpstreamName = Literal["anthropic", "openai"]
Protocol = Literal["anthropic", "openai", "responses"]
_PROTOCOL_PATH = re.compile(rb"(?:.*/v\d+(?:beta)?)?/(messages|messages/count_tokens|chat/completions|responses)")
_PROTOCOLS: Mapping[bytes, Protocol] = {
    b"messages": "anthropic",
    b"messages/count_tokens": "anthropic",
    b"chat/completions": "openai",
    b"responses": "responses",
}
_TOKEN_PREFIX = b"/k/"
NO_TOKEN = Refusal(
    HTTPStatus.UNAUTHORIZED, "unauthorized", "Put the token of this gateway before the path: /k/TOKEN/v1/…"
)


class Route(NamedTuple):
    """The route of a request. `namespace` separates the sessions of different tokens.

    `protocol` is None for a path that is only passed on. `counts` is set for Anthropic's count_tokens.
    """

    upstream: UpstreamName
    path: bytes
    namespace: str
    protocol: Protocol | None = None
    counts: bool = False


def split_token(path: bytes, token: str | None) -> tuple[str, bytes] | None:
    """Return the namespace and the rest of a path that begins with the token of the gateway; None if it does not.

    If the gateway has no token, every path is valid. Digests are compared in constant time.
    """
    if token is None:
        return "local", path
    given, slash, rest = path.removeprefix(_TOKEN_PREFIX).partition(b"/")
    digest = sha256(given).digest()
    is_valid = hmac.compare_digest(sha256(token.encode()).digest(), digest)
    return (digest.hex()[:12], slash + rest) if is_valid and path.startswith(_TOKEN_PREFIX) else None


def find_route(
    method: str, namespace: str, path: bytes, headers: Mapping[bytes, bytes], known: Sequence[UpstreamName]
) -> Route | Refusal:
    """Return the route of a request, or the reason why it has none.

    `/anthropic` or `/openai` at the start of the path names the upstream. `known` are the upstreams of the gateway.
    """
    named: UpstreamName | None = None
    for name in ("anthropic", "openai"):
        prefix = b"/%s/" % name.encode()
        if path.startswith(prefix):
            named, path = name, path[len(prefix) - 1 :]
    found = _PROTOCOL_PATH.fullmatch(path) if method == "POST" else None
    protocol = _PROTOCOLS[found[1]] if found else None
    upstream = named or _guess_upstream(path, headers, protocol, known)
    if upstream not in known:
        text = f"This gateway has no upstream for {upstream}: start it with --{upstream} URL."
        return Refusal(HTTPStatus.NOT_FOUND, "no_upstream", text)
    return Route(upstream, path, namespace, protocol, bool(found and found[1].endswith(b"count_tokens")))


def _guess_upstream(
    path: bytes, headers: Mapping[bytes, bytes], protocol: Protocol | None, known: Sequence[UpstreamName]
) -> UpstreamName:
    if protocol is not None:
        return "anthropic" if protocol == "anthropic" else "openai"
    if len(known) == 1:
        return known[0]
    is_anthropic = path.startswith((b"/api/", b"/v1/messages")) or not headers.keys().isdisjoint(_ANTHROPIC_HEADERS)
    return "anthropic" if is_anthropic else "openai"


_ANTHROPIC_HEADERS = frozenset({b"anthropic-version", b"anthropic-beta", b"x-api-key"})
