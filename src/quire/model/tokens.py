"""Token counters: exact and offline for OpenAI vocabularies. A vocabulary is loaded by the first count."""

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from typing import Protocol

_SURROGATE = re.compile("[\ud800-\udfff]")
_PIECE = 1 << 18
"""The most characters that are encoded at once."""
_REPEATED = range(512, 16_385)
"""Counts of texts with these lengths are cached: a service gives each new context the same prompt."""
_SEAM = re.compile(r"(?s:.*)(?:[A-Za-z0-9](?=[\x00-&(-/:-@\[-`{-\x7f])|[\u4e00-\u9fff](?=[，。、；：？！]))")
"""Matches up to the last place that is always a token boundary: between a letter or digit and a space or punctuation
mark (but not an apostrophe, which can belong to the word), or between a Chinese character and a punctuation mark. The
patterns of the vocabularies separate letters, digits and other characters and never look back."""


class TokenCounter(Protocol):
    """Counts the tokens of a text. `name` is the vocabulary; `exact` is False if counts are estimates."""

    @property
    def name(self) -> str: ...
    @property
    def exact(self) -> bool: ...
    def count(self, text: str) -> int: ...


class VocabularyCounter:
    """Counts with an OpenAI vocabulary: with splintr if it is installed, else with tiktoken, else it estimates.

    The vocabulary is loaded by the first count. Text that looks like a special token is plain text.
    """

    def __init__(self, vocabulary: str = "o200k_base") -> None:
        self.vocabulary = vocabulary
        self._engine: str | None = None
        self._count: Callable[[str], int] = self._first

    @property
    def name(self) -> str:
        """The vocabulary and the engine, such as `o200k_base/splintr`."""
        return f"{self.vocabulary}/{self._load_once()}"

    @property
    def exact(self) -> bool:
        """False if no engine is installed, so that counts are estimates."""
        return self._load_once() != "estimate"

    def count(self, text: str) -> int:
        """Return the number of tokens of the text.

        A very long text is counted in pieces, to bound the memory. The cuts are at token boundaries, so the count stays
        exact. Only a run of more than 262,144 characters without a boundary (no space, no punctuation) is cut inside a
        token; each such cut can add one token.
        """
        if len(text) > _PIECE:
            return sum(map(self.count, _pieces(text)))
        try:
            if len(text) in _REPEATED:
                self._load_once()  # sets `_count` to the function that all counters share, so they share the cache
                return _count_repeated(self._count, text)
            return self._count(text)
        except UnicodeEncodeError:
            return self._count(_SURROGATE.sub("\ufffd", text))

    def _first(self, text: str) -> int:
        self._load_once()
        return self._count(text)

    def _load_once(self) -> str:
        if self._engine is None:
            self._engine, self._count = _load(self.vocabulary)
        return self._engine


@lru_cache(maxsize=64)
def _count_repeated(count: Callable[[str], int], text: str) -> int:
    """Return a count. The counts of the last 64 texts are cached, which hold about a million characters at most."""
    return count(text)


def _pieces(text: str) -> Iterator[str]:
    """Yield the pieces of a text that are counted one by one."""
    start = 0
    while start < len(text):
        end = start + _PIECE
        found = _SEAM.match(text, start, end + 1) if end < len(text) else None
        if found is not None:
            end = found.end()
        yield text[start:end]
        start = end


class EstimateCounter:
    """Estimates without a vocabulary: one token for four ASCII characters, one for each other character."""

    name = "estimate"
    exact = False

    def count(self, text: str) -> int:
        """Return an estimate of the number of tokens."""
        if text.isascii():
            return (len(text) + 3) // 4
        other = sum(1 for character in text if character > "\x7f")
        return other + (len(text) - other + 3) // 4


@cache
def _load(vocabulary: str) -> tuple[str, Callable[[str], int]]:
    for engine, load in (("splintr", _load_splintr), ("tiktoken", _load_tiktoken)):
        try:
            return engine, load(vocabulary)
        except ImportError:
            continue
    return "estimate", EstimateCounter().count


def _load_splintr(vocabulary: str) -> Callable[[str], int]:
    encode = import_module("splintr").Tokenizer.from_pretrained(vocabulary).encode_ordinary
    return lambda text: len(encode(text))


def _load_tiktoken(vocabulary: str) -> Callable[[str], int]:
    try:
        encode = import_module("tiktoken").get_encoding(vocabulary).encode_ordinary
    except OSError as error:  # tiktoken downloads its vocabulary; without a network it cannot be used
        raise ImportError(str(error)) from error
    return lambda text: len(encode(text))
