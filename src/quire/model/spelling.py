"""Spellings of tool names and call ids that every provider accepts.

A spelling has the legal characters of the name or id and a digest of it. It depends on nothing else, so every process
and every message has the same one, and different names have different ones.
"""

import re
from hashlib import blake2b

NAME_LENGTH = 64
ID_LENGTH = 40
"""The lengths that every provider accepts."""
_DIGEST = 6  # bytes
_LEGAL = re.compile("[a-zA-Z0-9_-]+")
_ILLEGAL = re.compile("[^a-zA-Z0-9_-]")
_ILLEGAL_IN_SPEAKER = re.compile(r"[\s<|\\/>]+")
_SPELLED = re.compile(rf".*_[0-9a-f]{{{2 * _DIGEST}}}", re.DOTALL)


def spell_name(name: str) -> str:
    """Return the name of a tool as every provider accepts it: the name itself if they do."""
    return _spell(name, NAME_LENGTH)


def spell_id(call_id: str) -> str:
    """Return the id of a call as every provider accepts it: the id itself if they do."""
    return _spell(call_id, ID_LENGTH)


def spell_speaker(name: str) -> str:
    """Return the name of a speaker as OpenAI's chat accepts it. Different names may become equal."""
    return _ILLEGAL_IN_SPEAKER.sub("_", name)[:NAME_LENGTH] or "_"


def is_spelled(text: str) -> bool:
    """Return whether a name or an id may be the spelling of another."""
    return _SPELLED.fullmatch(text) is not None


def _spell(text: str, length: int) -> str:
    if len(text) <= length and _LEGAL.fullmatch(text):
        return text
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=_DIGEST).hexdigest()
    return f"{_ILLEGAL.sub('_', text)[: length - len(digest) - 1]}_{digest}"
