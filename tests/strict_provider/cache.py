"""The prefix cache of a provider: which leading pieces of a request were sent before, and recently enough.

A piece is one tool, one system block or one content block. OpenAI caches every prefix from 1,024 tokens on, in steps of
128 (https://developers.openai.com/api/docs/guides/prompt-caching). Anthropic caches the prefixes that end at a
`cache_control` marker, and looks for a hit at most 20 blocks before a marker
(https://platform.claude.com/docs/en/build-with-claude/prompt-caching).
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import accumulate
from typing import NamedTuple

MINIMUM = 1_024
STEP = 128
LOOKBACK = 20
LIFETIME = 300.0
LONG_LIFETIME = 3_600.0


class Piece(NamedTuple):
    """A part of a request, in order: its bytes, its tokens, and the lifetime of its cache marker (0.0: no marker)."""

    data: bytes
    tokens: int
    lifetime: float = 0.0


class CacheUse(NamedTuple):
    """The tokens of a request: read from the cache, written to it, and neither."""

    read: int
    written: int
    fresh: int


class PrefixCache:
    """The prefixes that the provider has, with the time at which each one ends."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends: dict[bytes, float] = {}

    def use_steps(self, pieces: Sequence[Piece]) -> CacheUse:
        """Look up and store every prefix, as OpenAI does."""
        now = self._clock()
        sizes = list(accumulate(piece.tokens for piece in pieces))
        read = 0
        for size, key in zip(sizes, _chain(pieces), strict=True):
            if self._ends.get(key, 0.0) > now:
                read = size
            self._ends[key] = now + LIFETIME
        total = sizes[-1] if sizes else 0
        read = read // STEP * STEP if read >= MINIMUM else 0
        return CacheUse(read, 0, total - read)

    def use_markers(self, pieces: Sequence[Piece]) -> CacheUse:
        """Look up and store the prefixes at cache markers, as Anthropic does."""
        now = self._clock()
        sizes = list(accumulate(piece.tokens for piece in pieces))
        keys = _chain(pieces)
        marked = [n for n, piece in enumerate(pieces) if piece.lifetime and sizes[n] >= MINIMUM]
        looked = {n for last in marked for n in range(max(0, last - LOOKBACK), last + 1)}
        hits = [n for n in looked if self._ends.get(keys[n], 0.0) > now]
        read = sizes[max(hits)] if hits else 0
        for n in marked:
            self._ends[keys[n]] = max(self._ends.get(keys[n], 0.0), now + pieces[n].lifetime)
        if hits:
            self._ends[keys[max(hits)]] = max(self._ends[keys[max(hits)]], now + LIFETIME)
        total = sizes[-1] if sizes else 0
        written = max(0, sizes[marked[-1]] - read) if marked else 0
        return CacheUse(read, written, total - read - written)


def _chain(pieces: Sequence[Piece]) -> list[bytes]:
    """Return one key for each prefix."""
    key, keys = b"", []
    for piece in pieces:
        key = sha256(key + piece.data).digest()
        keys.append(key)
    return keys
