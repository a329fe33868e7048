"""Counting tokens: exact and offline for OpenAI vocabularies, pluggable, loaded when first needed."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Protocol

_SURROGATE = re.compile("[\ud800-\udfff]")
_PIECE = 1 << 18
"""So many characters are encoded at once."""
_SEAM = re.compile(r"(?s:.*)(?:[A-Za-z0-9](?=[\x00-&(-/:-@\[-`{-\x7f])|[\u4e00-\u9fff](?=[，。、；：？！]))")
"""Up to the last place where one token ends and another begins, whatever stands around: after a letter or digit before
a space or punctuation (an apostrophe may go on with the word), after a Chinese character before punctuation. The
vocabularies' patterns take letters, digits and the rest apart and never look back."""


class TokenCounter(Protocol):
    """Anything that counts the tokens of a text. `name` says which vocabulary, `exact` whether it is a true count."""

    @property
    def name(self) -> str: ...
    @property
    def exact(self) -> bool: ...
    def count(self, text: str) -> int: ...


class VocabularyCounter:
    """Counts with an OpenAI vocabulary: splintr when installed, else tiktoken, else a labelled estimate.

    Nothing is loaded before the first count. Text that looks like a special token is plain text.
    """

    def __init__(self, vocabulary: str = "o200k_base") -> None:
        self.vocabulary = vocabulary
        self._engine: str | None = None
        self._count: Callable[[str], int] = self._first

    @property
    def name(self) -> str:
        """The vocabulary and the engine that counts it, such as `o200k_base/splintr`."""
        return f"{self.vocabulary}/{self._loaded()}"

    @property
    def exact(self) -> bool:
        """False when neither engine is installed and counts are estimates."""
        return self._loaded() != "estimate"

    def count(self, text: str) -> int:
        """The number of tokens of the text.

        A very long text is counted in pieces, cut where tokens end anyway: that is exact, and takes a piece's memory.
        Only a run of more than 262,144 characters without such a place (no space, no punctuation) is cut anywhere,
        which may count a token more for every cut.
        """
        if len(text) > _PIECE:
            return sum(map(self.count, _pieces(text)))
        try:
            return self._count(text)
        except UnicodeEncodeError:
            return self._count(_SURROGATE.sub("\ufffd", text))

    def _first(self, text: str) -> int:
        self._loaded()
        return self._count(text)

    def _loaded(self) -> str:
        if self._engine is None:
            self._engine, self._count = _load(self.vocabulary)
        return self._engine


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that are counted one by one."""
    start = 0
    while start < len(text):
        end = start + _PIECE
        found = _SEAM.match(text, start, end + 1) if end < len(text) else None
        if found is not None:
            end = found.end()
        yield text[start:end]
        start = end


class EstimateCounter:
    """Counts without a vocabulary: about four bytes a token, one a CJK character. Labelled as an estimate."""

    name = "estimate"
    exact = False

    def count(self, text: str) -> int:
        """An estimate of the number of tokens of the text."""
        return estimate_tokens(text)


def estimate_tokens(text: str) -> int:
    """A rough count: a token per four ASCII characters and per one other character."""
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
    return "estimate", estimate_tokens


def _load_splintr(vocabulary: str) -> Callable[[str], int]:
    encode = import_module("splintr").Tokenizer.from_pretrained(vocabulary).encode_ordinary
    return lambda text: len(encode(text))


def _load_tiktoken(vocabulary: str) -> Callable[[str], int]:
    try:
        encode = import_module("tiktoken").get_encoding(vocabulary).encode_ordinary
    except OSError as error:  # tiktoken downloads its ranks; without a network it is as good as absent
        raise ImportError(str(error)) from error
    return lambda text: len(encode(text))
