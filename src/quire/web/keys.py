"""The token: given, or made at the first start and kept in a file that nobody else can read."""

import os
import re
import secrets
import stat
from pathlib import Path
from typing import NamedTuple

from quire.errors import InvalidOperation, InvalidValue, StorageFailure
from quire.storage.base import check_path

_LENGTH = 32
_SHORTEST = 16
_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)
_PRIVATE = 0o600


class Key(NamedTuple):
    """A token, and whether it was made just now: then somebody has to be told."""

    token: str
    is_new: bool


def key_for(token: str | None, file: str | os.PathLike[str] | None) -> Key:
    """The token that is given, or that the file has, or a new one. Raises `InvalidValue`, `InvalidOperation`."""
    if token is not None:
        return Key(checked(token), False)
    fresh = secrets.token_urlsafe(_LENGTH)
    if file is None:
        return Key(fresh, True)
    path = check_path(file)
    made = _made(path, fresh)
    return Key(fresh if made else checked(_read(path)), made)


def checked(token: str) -> str:
    """The token if it can be one. Raises `InvalidValue`, without quoting it."""
    if isinstance(token, str) and _TOKEN.fullmatch(token) and len(token) >= _SHORTEST:
        return token
    raise InvalidValue(f"The token cannot be used; {_SHORTEST} or more letters, digits and signs without blanks can.")


def _made(path: Path, token: str) -> bool:
    """Whether a file with the token was made; there may be one already."""
    try:
        if path.exists():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w") as file:
            file.write(token + "\n")
    except OSError as error:
        if path.exists():  # another server was first
            return False
        raise StorageFailure(f"Cannot keep the token in {str(path)!r}: {error}.") from error
    return True


def _read(path: Path) -> str:
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InvalidOperation(f"Others can read the token in {str(path)!r}: chmod 600 it, or remove it.")
            return file.read(4_096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageFailure(f"Cannot read the token in {str(path)!r}: {error}.") from error
