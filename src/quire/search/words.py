"""From text to the terms that are looked up: the same on every backend, for any language.

- Words are runs of letters and digits, without regard to case or width (`ＡＢＣ` is `abc`). A path, a date or a
  `snake_case` name is several words in a row, so it is found by its parts and, as a phrase, as a whole.
- Scripts that are written without blanks (Chinese, Japanese, Thai …), and Korean, whose particles cling to words, give
  one term for every character: the character with the one after it, and the last one alone. A word of two characters
  is then one term, a longer one a phrase, and a single character the beginning of a term: all of them exact.
- Signs such as emoji are words of their own; other punctuation is none.
- `parts` are further ways into a word: the pieces of `camelCase` and `HTTPServer2`, and words without their accents.

The work is linear in the text; no term is longer than `LONGEST` characters.
"""

import re
from functools import cache
from unicodedata import is_normalized, normalize

LONGEST = 64
"""Characters of a term; what is longer is data, and known by its beginning."""
_MOST_PIECES = 8
_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0ecf\u1000-\u103f\u1050-\u109f\u1100-\u11ff\u1780-\u17d3\u2e80-\u2fd5"
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318e\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7fb\uf900-\ufaff\uff66-\uff9f\U00016f00-\U00018dff\U0001aff0-\U0001b2ff"
    "\U00020000-\U0003ffff"
)
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u07a6-\u07b0\u07eb-\u07f3\u0816-\u082d"
    "\u08d3-\u08ff\u0900-\u0963\u0966-\u0dff\u0f18\u0f19\u0f35\u0f37\u0f39\u0f71-\u0f84\u0f86-\u0fbc\u1ab0-\u1aff"
    "\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
)
_ASCII = re.compile(r"[a-z0-9]+")
_WORDS_ONLY = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128)).lower()
"""By code, what ASCII characters are in a term; cutting text by it takes a quarter of what a pattern takes."""
_TYPED = dict.fromkeys(map(ord, "‘’“”–—…•·\u00a0\u2009\u200b"), " ")
"""What typesetting puts between words: without it, most European prose is ASCII."""
_LETTERS = rf"[^\W_{_UNSPACED}]"
_SIGNS = "\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_JOINT = re.compile("[A-Z0-9](?:(?<=[a-z0-9][A-Z])|(?<=[A-Za-z][0-9])|(?=[A-Za-z])(?<=[0-9])|(?=[a-z])(?<=[A-Z][A-Z]))")
"""Where a compound name is joined. It begins with the rarest sign of one, so that prose is passed over quickly."""
_ALNUM = re.compile("[A-Za-z0-9]+")
_PIECE = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ACCENT = re.compile("[\u0300-\u036f]+")


@cache
def _word() -> re.Pattern[str]:
    """A run of one kind: characters of an unspaced script, letters and digits with their marks, or a single sign.

    Compiled when first needed, for that takes tens of milliseconds.
    """
    return re.compile(rf"[{_UNSPACED}]+|{_LETTERS}+(?:[{_MARKS}]+{_LETTERS}*)*|[{_SIGNS}]")


@cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]")


def plain(text: str) -> str:
    """The text as it is compared: one width, one form of every character, no case."""
    if text.isascii():
        return text.lower()
    text = text.translate(_TYPED)
    if text.isascii():
        return text.lower()
    return (text if is_normalized("NFKC", text) else normalize("NFKC", text)).casefold()


def runs(text: str) -> list[str]:
    """The runs of a plain text, in order."""
    return _ASCII.findall(text) if text.isascii() else _word().findall(text)


def terms(text: str) -> list[str]:
    """The terms of a text, in order."""
    text = plain(text)
    if text.isascii():
        words = text.translate(_WORDS_ONLY).split()
        return words if len(text) <= LONGEST else _shortened(words)
    found: list[str] = []
    for run in _word().findall(text):
        if is_unspaced(run):
            found += map(str.__add__, run, run[1:])
            found.append(run[-1])
        else:
            found.append(run[:LONGEST])
    return found


def _shortened(words: list[str]) -> list[str]:
    return [word[:LONGEST] for word in words] if max(map(len, words), default=0) > LONGEST else words


def parts(text: str) -> list[str]:
    """Further terms that lead to words of the text: pieces of compound names, words without accents; each once."""
    found: dict[str, None] = {}
    if _JOINT.search(text):
        for word in dict.fromkeys(_ALNUM.findall(text)):
            if 2 < len(word) <= LONGEST or (len(word) == 2 and not word.isalpha()):
                pieces = _PIECE.findall(word)
                if 1 < len(pieces) <= _MOST_PIECES:
                    found.update((piece.lower(), None) for piece in pieces)
    if not text.isascii():
        for run in dict.fromkeys(_word().findall(plain(text))):
            if not run.isascii() and not is_unspaced(run):
                bare = _ACCENT.sub("", normalize("NFD", run))
                if bare != run and bare.isascii():
                    found[bare[:LONGEST]] = None
    return list(found)


def is_unspaced(run: str) -> bool:
    """Whether a run is of a script in which words are not told apart by blanks."""
    return not run.isascii() and _unspaced().match(run) is not None
