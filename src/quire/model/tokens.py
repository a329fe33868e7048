"""Token counters: exact and offline for OpenAI vocabularies. A vocabulary is loaded by the first count.

The tokenizer needs a quarter of a second until it has counted its first word, so a new process counts its first texts
with a table on disk. A process that loaded the tokenizer writes the table when it ends, into `__pycache__`. The table
belongs to one version of the tokenizer. It is not written with `PYTHONDONTWRITEBYTECODE`.
"""

import atexit
import os
import re
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol, cast
from zlib import crc32

from quire.errors import InvalidValue, short_repr
from quire.model.text import SURROGATE

_PIECE = 1 << 18
"""The most characters that are encoded at once."""
_REPEATED = range(512, 16_385)
"""Counts of texts with these lengths are cached: a service gives each new context the same prompt."""
_SEAM = r"(?s:.*)(?:[A-Za-z0-9](?=[\x00-&(-/:-@\[-`{-\x7f])|[\u4e00-\u9fff](?=[，。、；：？！]))"
"""Matches up to the last place that is always a token boundary: between a letter or digit and a space or punctuation
mark (but not an apostrophe, which can belong to the word), or between a Chinese character and a punctuation mark. The
patterns of the vocabularies separate letters, digits and other characters and never look back."""
_FIRST_BYTES = 50_000
"""The bytes of text of a process that are counted with the table. For more, it is faster to load the tokenizer."""
TABLE_PATH = Path(__file__).parent / "__pycache__" / "o200k_base.words"
_SAMPLE = "I'll see, WE'RE  HTTPServer's x86_64 12345\r\n\n\t … “naïve” 我想五月飞往西雅图。 Привет 🙂🙂 ...//\n  zqxv"
"""The table is written if it counts this text as the tokenizer does."""
O200K_TOKENS = 199_998
"""The tokens of o200k_base without the special ones. The rank of a token is its id."""
_TABLE_MAGIC = b"quire-words-1".ljust(16)
_MAX_WORD = 240
"""The most bytes of a word that is merged here: the time grows with the square."""
_NO_RANK = 0xFFFF_FFFF
_BOTH = "\u3041-\u3096\u30a1-\u30fa\u30fc\u4e00-\u9fef\uac00-\ud7a3"
_UPPER = "À-ÖØ-ÞЁА-Я" + _BOTH
_LOWER = "ß-öø-ÿа-яё" + _BOTH
_MARKS = (
    "\u00a1-\u00a9\u00ab\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7\u2010-\u2027\u2030-\u205e"
    "\u20a0-\u20bf\u2190-\u23ff\u2500-\u2775\u3001-\u3003\u3008-\u3011\uff01-\uff0f\uff1a-\uff20\U0001f300-\U0001faff"
)
"""Characters that the table handles besides ASCII. Their classes do not differ between versions of Unicode."""


class TokenCounter(Protocol):
    """Counts the tokens of a text. `name` is the vocabulary; `exact` is False if counts are estimates."""

    @property
    def name(self) -> str: ...
    @property
    def exact(self) -> bool: ...
    def count(self, text: str) -> int: ...


def check_counter(counter: object) -> TokenCounter:
    """Return the value if it can count tokens. Raises `InvalidValue`."""
    if isinstance(counter, type | Sequence) or not callable(getattr(counter, "count", None)):
        raise InvalidValue(
            f"is {short_repr(counter)}; an object with the method count is needed, such as a VocabularyCounter.",
            argument="counter",
        )
    return cast(TokenCounter, counter)


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
            return self._count(SURROGATE.sub("\ufffd", text))

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
        found = re.compile(_SEAM).match(text, start, end + 1) if end < len(text) else None
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
    splintr = import_module("splintr")
    if vocabulary != "o200k_base":
        encode_other = splintr.Tokenizer.from_pretrained(vocabulary).encode_ordinary
        return lambda text: len(encode_other(text))
    stamp = _stamp(splintr)
    table = read_table(TABLE_PATH, stamp)
    left = _FIRST_BYTES
    count_exactly: Callable[[str], int] | None = None

    def count(text: str) -> int:
        nonlocal count_exactly, left, table
        if count_exactly is not None:
            return count_exactly(text)
        if table is not None and len(text) <= left and (tokens := table.count(text)) is not None:
            left -= len(text.encode())
            return tokens
        tokenizer = splintr.Tokenizer.from_pretrained(vocabulary)
        if table is None and not sys.dont_write_bytecode:
            atexit.register(write_table, TABLE_PATH, stamp, tokenizer)
        count_exactly, table = _tokenizer_count(tokenizer), None
        return count_exactly(text)

    return count


def _tokenizer_count(tokenizer: Any) -> Callable[[str], int]:
    """Return the function that counts with a tokenizer of o200k_base. A special token in a text is plain text.

    `encode_flat` is a third faster, but it reads special tokens. All of them begin with "<|".
    """
    encode, pack = tokenizer.encode_ordinary, tokenizer.encode_flat
    return lambda text: len(encode(text)) if "<|" in text else len(pack(text)) // 4  # four bytes for each token


def _load_tiktoken(vocabulary: str) -> Callable[[str], int]:
    try:
        encode = import_module("tiktoken").get_encoding(vocabulary).encode_ordinary
    except OSError as error:  # tiktoken downloads its vocabulary; without a network it cannot be used
        raise ImportError(str(error)) from error
    return lambda text: len(encode(text))


def count_tokens(counter: TokenCounter, text: str) -> int:
    """Return the number of tokens of a text. Raises `InvalidValue` if the counter returns anything else."""
    tokens = counter.count(text) if text else 0
    if type(tokens) is not int or tokens < 0:
        raise InvalidValue(f"The token counter returned {short_repr(tokens)}; a whole number from 0 is needed.")
    return tokens


class WordTable:
    """The ranks of the tokens of o200k_base. `data` is what `make_table` returns."""

    def __init__(self, data: bytes) -> None:
        self._tokens = data
        numbers = memoryview(data)[: len(data) - len(data) % 4].cast("I")
        slots, count = numbers[0], numbers[1]
        self._slots = numbers[2 : 2 + slots]
        self._starts = numbers[2 + slots : 3 + slots + count]
        self._mask = slots - 1
        self._cached: dict[str, int] = {}

    def count(self, text: str) -> int | None:
        """Return the number of tokens of a text; None if only the tokenizer can count it."""
        other, words = _word_patterns(text.isascii())
        if other.search(text):
            return None
        total = 0
        cached = self._cached
        for word in words.findall(text):
            tokens = cached.get(word)
            if tokens is None:
                tokens = self._count_word(word.encode())
                if tokens is None:
                    return None
                cached[word] = tokens
            total += tokens
        return total

    def _count_word(self, word: bytes) -> int | None:
        if self._rank(word) != _NO_RANK:
            return 1
        if len(word) > _MAX_WORD:
            return None
        parts = [word[place : place + 1] for place in range(len(word))]
        ranks = [self._rank(first + second) for first, second in pairwise(parts)]
        while ranks and (best := min(ranks)) != _NO_RANK:
            place = ranks.index(best)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
            del ranks[place]
            if place < len(ranks):
                ranks[place] = self._rank(parts[place] + parts[place + 1])
            if place:
                ranks[place - 1] = self._rank(parts[place - 1] + parts[place])
        return len(parts)

    def _rank(self, token: bytes) -> int:
        """Return the rank of a token, or `_NO_RANK` if the vocabulary does not have it."""
        slots, starts, mask = self._slots, self._starts, self._mask
        slot = crc32(token) & mask
        while (rank := slots[slot]) != _NO_RANK:
            if self._tokens[starts[rank] : starts[rank + 1]] == token:
                return rank
            slot = (slot + 1) & mask
        return _NO_RANK


@cache
def _word_patterns(is_ascii: bool) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return two patterns: one finds a character that the table cannot handle, the other finds the words of a text.

    The patterns for ASCII are compiled in 1 ms, the others in 10 ms.
    """
    upper, lower, marks = ("A-Z", "a-z", "") if is_ascii else ("A-Z" + _UPPER, "a-z" + _LOWER, _MARKS)
    letter = upper + lower
    ending = "(?:'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD]))?"
    word = (
        f"[^\r\n{letter}0-9]?[{upper}]*[{lower}]+{ending}"
        f"|[^\r\n{letter}0-9]?[{upper}]+[{lower}]*{ending}"
        "|[0-9]{1,3}"
        rf"| ?[^\s{letter}0-9]+[\r\n/]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return re.compile(f"[^\t\n\r -~{letter}{marks}]"), re.compile(word)


def make_table(tokens: Sequence[bytes]) -> bytes:
    """Return the table of a vocabulary: tokens in the order of their ranks."""
    slots = array("I", [_NO_RANK]) * (1 << (2 * len(tokens)).bit_length())
    mask = len(slots) - 1
    for rank, token in enumerate(tokens):
        slot = crc32(token) & mask
        while slots[slot] != _NO_RANK:
            slot = (slot + 1) & mask
        slots[slot] = rank
    head = 4 * (3 + len(slots) + len(tokens))
    starts = array("I", accumulate(map(len, tokens), initial=head))
    return b"".join((array("I", [len(slots), len(tokens)]), slots, starts, *tokens))


def read_table(path: Path, stamp: bytes) -> WordTable | None:
    """Return the table at a path; None if there is none, if it is damaged, or if it has another stamp."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    data = found[32:]
    return WordTable(data) if found[:32] == _header(stamp, data) else None


def write_table(path: Path, stamp: bytes, tokenizer: Any) -> None:
    """Write the table of a tokenizer, if there is none yet, and if it counts as the tokenizer does.

    It runs at the end of a process. Whatever fails, there is no table, and later processes load the tokenizer.
    """
    with suppress(Exception):
        if not os.access(path.parent, os.W_OK) or read_table(path, stamp) is not None:
            return
        data = make_table([tokenizer.decode_token_bytes(rank) for rank in range(O200K_TOKENS)])
        if WordTable(data).count(_SAMPLE) != len(tokenizer.encode_ordinary(_SAMPLE)):
            return
        own = path.with_suffix(f".{os.getpid()}")
        own.write_bytes(_header(stamp, data) + data)
        own.replace(path)


def _header(stamp: bytes, data: bytes) -> bytes:
    return _TABLE_MAGIC + stamp + crc32(data).to_bytes(4, "little")


def _stamp(module: Any) -> bytes:
    """Return 12 bytes that identify the installed version of a package."""
    found = os.stat(module.__file__)
    version = (getattr(module, "__version__", ""), found.st_size)
    return crc32(repr(version).encode()).to_bytes(4) + (found.st_mtime_ns & (1 << 64) - 1).to_bytes(8)
