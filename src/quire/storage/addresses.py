"""What of a store's address may be shown.

Addresses hold passwords, and people mistype them: one that is not understood is quoted up to where a secret may begin.
"""

import re
from typing import Final

_SECRET: Final = re.compile("pass|pwd|secret|token|credential|signature|key", re.IGNORECASE)
_SETTING: Final = re.compile(rf"[\w.-]*(?:{_SECRET.pattern})[\w.-]*\s*[=:]\s*", re.IGNORECASE)
_URL: Final = re.compile(r"(?is)(?<![a-z0-9])(?!file:|sqlite:|memory:)([a-z][a-z0-9+.-]+):(?:/|(?=.*@))")
_SETTINGS: Final = re.compile(r"\s*[A-Za-z_]\w*\s*=")
_LONGEST: Final = 500
"""No address is longer; of what is, the rest is not looked at and not shown."""
_URL_AS_PATH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def veiled(text: str) -> str:
    """A text that may be an address, up to where a secret may begin."""
    if len(text) > _LONGEST:
        return f"{veiled(text[:_LONGEST])}…"
    url, setting = _URL.search(text), _SETTING.search(text)
    if url and (not setting or url.start() < setting.start()):
        return f"{text[: url.end(1)]}://…"
    return f"{text[: setting.end()]}…" if setting else text


def is_no_path(text: str) -> bool:
    """Whether a text is plainly an address or settings (`host=… password=…`), and no path of a file."""
    return bool(_URL_AS_PATH.match(text) or (_SETTINGS.match(text) and veiled(text[:_LONGEST]) != text[:_LONGEST]))


def is_secret(setting: str) -> bool:
    """Whether the value of a setting of this name is a secret."""
    return bool(_SECRET.search(setting))
