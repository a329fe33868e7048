"""Paths, addresses and file names: a context name as a safe file name, and an address without its secrets.

Addresses contain passwords, and people mistype them. So an address that cannot be parsed is quoted only up to the
place where a secret may begin.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

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


def is_address(text: str) -> bool:
    """Return whether a text is a URL or connection settings (`host=… password=…`) instead of a file path."""
    start = text[:_MAX_ADDRESS]
    return bool(_URL_AS_PATH.match(text) or (_SETTINGS.match(text) and mask_secrets(start) != start))


def is_secret(setting: str) -> bool:
    """Return whether the value of a setting with this name is a secret."""
    return bool(_SECRET.search(setting))


def check_path(value: object) -> Path:
    """Return the value as a path. Raises `InvalidValue` if it is no valid path, or the URL of a server."""
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        if isinstance(text, str) and text.strip() and "\0" not in text and len(text) < 4_096:
            try:
                text.encode()
            except UnicodeEncodeError:
                pass
            else:
                if not is_address(text):
                    return Path(text)
        value = mask_secrets(text) if isinstance(text, str) else text
    raise InvalidValue(f"is {short_repr(value)}; the path of a file or folder is needed.", argument="path")


def make_private(path: Path, *, folder: bool = False) -> None:
    """Create an empty file, or a folder with those above it, for its owner only. One that exists stays as it is."""
    if folder:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(0o700, exist_ok=True)
        return
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
)
_MAX_NAME = 120


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
    if _PLAIN.issuperset(file) and 0 < len(file) <= _MAX_NAME and file not in _RESERVED:
        return file
    first, *others = file.split("%")
    if not first and others and (others[0] in _RESERVED or others == [""]):
        return others[0]
    try:
        parts = (bytes.fromhex(part[:2]) + part[2:].encode() for part in others)
        name = (first.encode() + b"".join(parts)).decode()
    except ValueError:
        return None
    return name if file_name(name) == file else None
