"""Reading a file of conversations: JSON or JSON Lines, gzipped or not, a file or standard input."""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

from quire.cli.histories.unwrapping import Piece, Skip, Whole, joined, unwrap
from quire.errors import InvalidValue, short_repr

_GZIP = b"\x1f\x8b"
STDIN = "-"
_EXPORT = b"quire export "
_SQLITE = b"SQLite format 3\0"
_ADDRESSES = ("sqlite:", "file:", "postgresql:", "postgres:", "s3:")
_PEEK = 4_096
Kind = Literal["messages", "export", "document"]
"""What a file is: messages in whatever shape, a context as `export` writes it, or the document of one."""


class Conversation(NamedTuple):
    """The messages of one conversation as they were written, and its name if it has one."""

    name: str
    messages: list[object]


class History(NamedTuple):
    """What a file holds: its conversations, and what is none of them."""

    source: str
    conversations: list[Conversation]
    skipped: list[Skip]

    def chosen(self, number: int | None, *, instead: str = "") -> Conversation:
        """One of the conversations, counted from 1; the only one where no number is given. Raises `InvalidValue`.

        `instead` is what else could have been asked for, in words.
        """
        count = len(self.conversations)
        if number is None and count == 1:
            return self.conversations[0]
        if number is None or not 1 <= number <= count:
            given = "" if number is None else f", not {number}"
            raise InvalidValue(
                f"{self.source!r} holds {count:,} conversations;"
                f" choose one with --conversation, 1 to {count:,}{instead}{given}."
            )
        return self.conversations[number - 1]

    def told(self) -> dict[str, int]:
        """What was skipped, and how often."""
        return dict(Counter(skip.what for skip in self.skipped).most_common())


def kind_of(source: str) -> Kind:
    """What a file is, as far as its beginning tells. What cannot be read is left to whoever reads it."""
    if not _can_be_peeked(source):
        return "messages"
    try:
        with Path(source).open("rb") as file:
            beginning = file.read(_PEEK)
            if beginning.startswith(_EXPORT):
                return "export"
            if b'"segments"' not in beginning:
                return "messages"
            value = json.loads(beginning + file.read())
    except (OSError, ValueError, RecursionError):
        return "messages"
    return "document" if isinstance(value, dict) and {"segments", "pages"} <= value.keys() else "messages"


def is_store(source: str) -> bool:
    """Whether a source is a store of contexts: the address of one, or a file of SQLite's."""
    if source.startswith(_ADDRESSES) or not _can_be_peeked(source):
        return source.startswith(_ADDRESSES)
    try:
        with Path(source).open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _can_be_peeked(source: str) -> bool:
    """Whether its beginning can be looked at and read again: not that of standard input, nor of a pipe."""
    return source != STDIN and Path(source).is_file()


def read_history(source: str) -> History:
    """The conversations of a file, or of standard input (`-`). Raises `InvalidValue` if there is none."""
    name = "standard input" if source == STDIN else source
    conversations: list[Conversation] = []
    skipped: list[Skip] = []
    loose: list[Piece] = []
    for line, value in _values(_bytes(source, name), name):
        found = [value] if isinstance(value, Skip) else unwrap(value, line)
        for part in found:
            if isinstance(part, Whole):
                conversations.append(Conversation(part.name, part.messages))
            elif isinstance(part, Skip):
                skipped.append(part)
            else:
                loose.append(part)
    if loose:
        conversations.append(Conversation("", _messages(loose)))
    if not conversations:
        what = ", ".join(f"{count:,} × {kind}" for kind, count in Counter(s.what for s in skipped).most_common(5))
        raise InvalidValue(
            f"No message in {name!r} ({what or 'it is empty'}); JSON or JSON Lines of a provider's messages are needed."
        )
    return History(name, conversations, skipped)


def _messages(pieces: Sequence[Piece]) -> list[object]:
    """The messages, with the pieces of one answer put together."""
    found: list[object] = []
    for joint, run in groupby(pieces, key=lambda piece: piece.joint):
        values = [piece.value for piece in run]
        parts = [value for value in values if isinstance(value, dict)]
        if joint and len(parts) > 1:
            found.append(joined(parts))
        else:
            found += values
    return found


def _bytes(source: str, name: str) -> bytes:
    try:
        data = sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except (OSError, EOFError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidValue(f"Cannot read {name!r}: {reason}.") from None


def _values(data: bytes, name: str) -> Iterator[tuple[int, object]]:
    """The JSON values of a file, each with its line: one document, or one a line."""
    if data.startswith(_SQLITE):
        raise InvalidValue(
            f"{name!r} is a store, not a file of messages; quire export {name} messages.jsonl --format openai"
            " writes those of a context."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{name!r} is not UTF-8: {error}.") from None
    try:
        yield 1, json.loads(text)
    except RecursionError:
        raise InvalidValue(f"{name!r} is nested too deeply.") from None
    except ValueError as error:
        lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        values = [_value(n, line) for n, line in lines]
        if all(isinstance(value, Skip) for _, value in values):  # no JSON Lines either
            raise InvalidValue(
                f"{name!r} is neither JSON nor JSON Lines: {error}; it begins {short_repr(text[:40])}."
            ) from None
        yield from values


def _value(number: int, line: str) -> tuple[int, object]:
    try:
        return number, json.loads(line)
    except (ValueError, RecursionError):
        return number, Skip(number, "a line that is no JSON")
