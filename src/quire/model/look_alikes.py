"""Look-alikes: characters that a reader takes for a plain letter or digit, or does not see at all.

A word can be written with letters of other scripts, full-width or circled forms, accents and invisible characters.
`Disguise` finds a word in every such form. A text without the number at the end of the word is rejected quickly.
"""

import re
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache
from itertools import groupby

_ALIKE = {
    "a": "аАαΑɑᎪ",
    "b": "ЬьВвΒβƅᏏъ",
    "c": "сСϲϹᏟ¢",
    "d": "ԁԀᎠժɗ",
    "e": "еЕΕεєЄҽᎬ℮э",
    "f": "ƒϝϜſքғҒ",
    "g": "ɡցԌԍᏀɢ",
    "h": "һҺнНΗᏂᎻհ",
    "j": "јЈϳͿᎫʝ",
    "k": "кКκΚҝᏦ",
    "l": "iı1|іІιΙӀӏᎥℓᏞן",
    "m": "мМΜᎷ",
    "n": "пПηΝոռ",
    "o": "0оОοΟσΣςօჿѳӨөᎤ",
    "p": "рРρΡᏢϱ",
    "q": "ԛԚգզ",
    "r": "гГᎡя",
    "s": "ѕЅᏚʂտ",
    "t": "тТτΤᎢ",
    "u": "υսʋцμՍ",
    "v": "ѵѴνᏙ",
    "w": "ԝԜωшщѡᏔᎳ",
    "x": "хХχΧ×",
    "y": "уУγΥүҮყ",
    "z": "ΖζᏃ",
    "-": "\u30fc\u3161\u4e00",
}
"""Signs that look like a letter. `i`, `l` and `1` are one letter here, as are `o` and `0`."""
_NAMED = r"LATIN .*\b(?:LETTER|CAPITAL) (?:DOTLESS |SCRIPT |OPEN |TURNED )?([A-Z])\b|SYMBOL LETTER ([A-Z])$"
"""The names of further forms of Latin letters."""
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and symbols that are not visible."""
_UNSEEN = frozenset({"Mn", "Me", "Cf", "Cc", "Cn", "Co", "Cs"})
"""The categories of accents and of characters that are not visible."""
_OTHER_DIGITS = (
    "[\u00b2\u00b3\u00b9\u0660-\u0669\u06f0-\u06f9\u07c0-\u07c9\u0966-\u096f\u09e6-\u09ef\u0a66-\u0a6f\u0ae6-\u0aef"
    "\u0b66-\u0b6f\u0be6-\u0bef\u0c66-\u0c6f\u0ce6-\u0cef\u0d66-\u0d6f\u0de6-\u0def\u0e50-\u0e59\u0ed0-\u0ed9"
    "\u0f20-\u0f29\u1040-\u1049\u1090-\u1099\u1369-\u1371\u17e0-\u17e9\u1810-\u1819\u1946-\u194f\u19d0-\u19da"
    "\u1a80-\u1a99\u1b50-\u1b59\u1bb0-\u1bb9\u1c40-\u1c59\u2070-\u2089\u2460-\u249b\u24ea-\u24ff\u2776-\u2792"
    "\u3251-\u325f\u32b1-\u32bf\ua620-\ua629\ua8d0-\ua909\ua9d0-\ua9f9\uaa50-\uaa59\uabf0-\uabf9\uff10-\uff19"
    "\U000104a0-\U0001e959\U0001f100-\U0001f10a\U0001fbf0-\U0001fbf9]"
)
OTHER_DIGITS = {
    first[0]: re.compile(first + rest)
    for first, rest in (
        (b"\xc2", b"[\xb2\xb3\xb9]"),
        (b"\xd9", b"[\xa0-\xa9]"),
        (b"\xdb", b"[\xb0-\xb9]"),
        (b"\xdf", b"[\x80-\x89]"),
        (b"\xe0", b""),
        (b"\xe1", b""),
        (b"\xe2", b"[\x81\x82\x91-\x93\x9d\x9e]"),
        (b"\xe3", b"[\x89\x8a]"),
        (b"\xea", b"[\x98\xa3\xa4\xa7\xa9\xaf]"),
        (b"\xef", b"\xbc[\x90-\x99]"),
        (b"\xf0", b"(?:[\x90-\x9e]|\x9f[\x84\xaf])"),
    )
}
"""Patterns for the UTF-8 bytes of digits in other scripts, by first byte; they may also match other characters.

A search in the bytes is faster than a search with the large class `_OTHER_DIGITS`.
"""
NO_DIGITS = bytes(sorted(set(range(256)) - OTHER_DIGITS.keys()))
"""All bytes that are not the first byte of such a digit."""
_FAR = "[\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e01-\u9fff\uac00-\ud7a3]+"
"""Letters that never look like Latin letters: kana, Chinese characters and Hangul."""
_MOST_CACHED = 1 << 14
_GAP = r"[^\s!-~]*"
"""Every character except whitespace and visible ASCII. A simple class compiles quickly."""
_DIGITS_LIKE_LETTERS = "01"
_LIKE_LETTERS = r"[^\t-\r\x1c-/2-HJKMNP-hjkmnp-{}~]"
"""The ASCII forms of 0 and 1, control characters, and every character that is not ASCII.

The class lists the other characters and is negated: so it compiles faster.
"""
_BETWEEN = r"[\W_]{0,8}"
_WORDS = re.compile(r"[^\W_]+")


class _PlainSigns(dict[int, str]):
    """The plain form of each character, for `str.translate`. A character is classified when it first occurs."""

    def __missing__(self, code: int) -> str:
        plain = _plain_sign(chr(code))
        if len(self) < _MOST_CACHED:
            self[code] = plain
        return plain


def _plain_sign(sign: str) -> str:
    if _is_unseen(sign):
        return ""
    return "".join(_LETTERS.get(part, part) for part in _LETTERS.get(sign) or _plain_form(sign))


def _is_unseen(sign: str) -> bool:
    if sign.isascii() or sign.isspace():
        return not sign.isprintable() and not sign.isspace()
    from unicodedata import category  # late: most views need nothing of it

    return sign in _BLANK or category(sign) in _UNSEEN


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern with a large class, compiled when it is first needed. This takes milliseconds."""
    return re.compile(pattern)


@lru_cache(_MOST_CACHED)
def _plain_form(sign: str) -> str:
    """Return the plain letters or digits that a character is a form of, else the character in lower case."""
    if sign.isascii():
        return sign.lower()
    from unicodedata import digit, name, normalize

    plain = "".join(part for part in normalize("NFKD", sign) if part.isalnum()).casefold()
    if plain.isascii() and plain:
        return plain
    if (number := digit(sign, None)) is not None:
        return str(number)
    code = ord(sign)
    if 0x2C80 <= code < 0xA720 or 0xAC00 <= code < 0x1DF00 or code >= 0x1F200:  # no further forms of Latin letters
        return sign.casefold()
    named = re.search(_NAMED, name(sign, ""))
    return (named[1] or named[2]).lower() if named else sign.casefold()


_LETTERS = {sign: letter for letter, signs in _ALIKE.items() for sign in signs}
_PLAIN = _PlainSigns()
_ASCII = "".join(_LETTERS.get(chr(code).lower(), chr(code).lower()) for code in range(128)).encode() + bytes(128)
_ASCII_UNSEEN = bytes(code for code in range(128) if _is_unseen(chr(code)))


def plain_letters(text: str) -> str:
    """Return a text in plain lower-case letters: without accents, invisible characters and other forms of letters."""
    if text.isascii():  # much faster than `str.translate`
        return text.encode().translate(_ASCII, _ASCII_UNSEEN).decode()
    return text.translate(_PLAIN)


class Disguise:
    """Finds a word, or words with signs between them, in a text: as it is written, or in look-alikes."""

    def __init__(self, words: str) -> None:
        found = _WORDS.findall(words)
        last = found[-1] if found else ""
        self._number = last if last.isascii() and last.isdigit() else ""
        self.sure_digits = [digit for digit in self._number if digit not in _DIGITS_LIKE_LETTERS]
        """Digits of the number at the end of the words. An ASCII text without one of them does not have the words."""
        self._words = words
        self._plain_number = self._number.encode().translate(_ASCII)
        self._sure_runs = re.split(f"[{_DIGITS_LIKE_LETTERS}]+".encode(), self._number.encode())

    @cached_property
    def near(self) -> re.Pattern[str]:
        """Finds the number, also with invisible characters in it, or with letters that look like a 0 or 1.

        It may also find other text. It does not find the digits of other scripts. Its repeated parts never match the
        same characters, so its time is linear.
        """
        runs = [(wild, "".join(run)) for wild, run in groupby(self._number, _DIGITS_LIKE_LETTERS.__contains__)]
        pattern = ""
        for place, (wild, run) in enumerate(runs):
            more = "," if 0 < place < len(runs) - 1 else ""
            pattern += f"{_LIKE_LETTERS}{{{len(run)}{more}}}" if wild else _GAP.join(run)
        return re.compile(pattern)

    @cached_property
    def _plain(self) -> re.Pattern[str]:
        """Finds the words in plain letters."""
        pieces = [re.escape(plain_letters(word)) for word in _WORDS.findall(self._words)]
        return re.compile(_BETWEEN.join(pieces) if pieces and all(pieces) else re.escape(self._words))

    def may_be_near(self, text: str) -> bool:
        """Return False if `near` does not match. Most texts then need no pattern, which takes long to compile."""
        plain = text.encode("ascii", "ignore").translate(None, _ASCII_UNSEEN)
        return all(run in plain for run in self._sure_runs)

    def is_in_ascii(self, text: str) -> bool:
        """Return whether the words occur in an ASCII text. Most texts need no pattern."""
        plain = text.encode().translate(_ASCII, _ASCII_UNSEEN)
        return self._plain_number in plain and self._plain.search(plain.decode()) is not None

    def is_in(self, text: str) -> bool:
        """Return whether the words occur in a text."""
        if not self.near.search(text):
            plain = _compiled(_OTHER_DIGITS).sub(lambda match: _plain_form(match[0]), text)
            if not self.near.search(plain):
                return False
        if not text.isascii() and self._words.isascii():
            text = _compiled(_FAR).sub(" ", text)
        return self._plain.search(plain_letters(text)) is not None

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of the text that the words take."""
        places = [n for n, sign in enumerate(text) for _ in _PLAIN[ord(sign)]]
        for match in self._plain.finditer(plain_letters(text)):
            if match.end() > match.start():
                yield places[match.start()], places[match.end() - 1] + 1
