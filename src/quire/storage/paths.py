"""Paths, addresses and file names: a context name as a safe file name, and an address without its secrets.

Addresses contain passwords, and people mistype them. So an address that cannot be parsed is quoted only up to the
place where a secret may begin.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from quire.errors import InvalidValue, short_repr

_SECRET: Final = re.compile("pass|pwd|secret|token|credential|signature|key", re.IGNORECASE)
_SETTING: Final = re.compile(rf"[\w.-]*(?:{_SECRET.pattern})[\w.-]*\s*[=:]\s*", re.IGNORECASE)
_URL: Final = re.compile(r"(?is)(?<![a-z0-9])(?!file:|sqlite:|memory:)([a-z][a-z0-9+.-]+):(?:/|(?=.*@))")
_SETTINGS: Final = re.compile(r"\s*[A-Za-z_]\w*\s*=")
_URL_AS_PATH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_MAX_ADDRESS: Final = 500
"""Only this many characters of a text are searched for secrets and shown."""


def mask_secrets(text: str) -> str:
    """Return a text that may be an address, cut where a secret may begin."""
    if len(text) > _MAX_ADDRESS:
        return f"{mask_secrets(text[:_MAX_ADDRESS])}…"
    url, setting = _URL.search(text), _SETTING.search(text)
    if url and (not setting or url.start() < setting.start()):
        return f"{text[: url.end(1)]}://…"
    return f"{text[: setting.end()]}…" if setting else text


def is_secret(setting: str) -> bool:
    """Return whether the value of a setting with this name is a secret."""
    return bool(_SECRET.search(setting))


def check_path(value: object) -> Path:
    """Return the value as a path. Raises `InvalidValue` if it is no valid path, or the URL of a server."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InvalidValue(f"is {short_repr(value)}; the path of a file or folder is needed.", argument="path")
    start, is_text = text[:_MAX_ADDRESS], text.encode(errors="ignore").decode() == text
    is_address = _URL_AS_PATH.match(text) or (_SETTINGS.match(text) and mask_secrets(start) != start)
    if not is_text or is_address or not text.strip() or "\0" in text or len(text) >= 4_096:
        shown = short_repr(mask_secrets(text))
        raise InvalidValue(f"is {shown}; the path of a file or folder is needed.", argument="path")
    return Path(text)


def make_private(path: Path) -> None:
    """Create an empty file for its owner only. One that exists stays as it is."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_RESERVED: Final = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
)
_MAX_NAME: Final = 120


def file_name(name: str) -> str:
    """Return a file name for any text: safe on every file system, and different for different texts.

    Lower-case letters, digits, `_` and `-` stay. Every other character becomes `%` and two hex digits per byte.
    Capitals are encoded too, because some file systems ignore case. A long name is cut and ends with a hash.
    """
    parts = [char if char in _PLAIN else "".join(f"%{byte:02x}" for byte in char.encode()) for char in name]
    if name in _RESERVED or not name:
        parts.insert(0, "%")
    text = "".join(parts)
    if len(text) > _MAX_NAME:
        from hashlib import sha256  # deferred: the import is slow and rarely needed

        text = f"{text[: _MAX_NAME - 34]}%-{sha256(name.encode()).hexdigest()[:32]}"
    return text


def decode_file_name(file: str) -> str | None:
    """Return the text that has this file name; None if there is none, or if the name was cut."""
    plain = file.removeprefix("%")
    name = plain if plain in _RESERVED or not plain else unquote(file, errors="replace")
    return name if file.isascii() and file_name(name) == file else None
