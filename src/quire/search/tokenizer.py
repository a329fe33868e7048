"""The tokenizer: from text to terms, the same on every backend, for any language.

- Words are runs of letters and digits, regardless of case, width and accents: `ＡＢＣ` is `abc`, `Łódź` is `lodz`. A
  path, a date or a `snake_case` name is several words in a row, so it is found by its parts and, as a phrase, as a
  whole. A timestamp (`2024-05-20T10:30Z`) is a date and a time, and `v2.3.1` is a `v` before a number.
- Scripts without blanks (Chinese, Japanese, Thai …), and Korean, where particles are attached to words, give one term
  for every character: the character with the one after it, and the last one alone. A word of two characters is one
  term, a longer one is a phrase, and a single character is the beginning of a term: all of them match exactly.
- Signs such as emoji are words of their own; other punctuation is not.
- `parts` are further terms for a word: the pieces of `camelCase` and `HTTPServer2` in a row, and adjacent pieces as one
  word, so that `UserName` finds `getUserName` and `iphone` finds `iPhone15`.

The work is linear in the text; no term is longer than `MAX_TERM` characters.

`stem` removes English endings of number and tense: `refunds`, `refunded` and `refunding` become one word. It also knows
plurals of German, French and Spanish nouns with endings that no English word has: `Rechnungen`, `journaux`, `ciudades`.
Recall compares stems. The index has the words as they are, so that names in code match exactly; `find` searches the
`inflections` of a word in addition.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Final
from unicodedata import is_normalized, name, normalize

from quire.search.index_protocol import WORDS_ONLY, AsciiTerms

TOKENIZER_VERSION = b"3"
"""The version of the rules. A change of the rules must change it; then every index is rebuilt."""
MAX_TERM = 64
"""The most characters of a term. A longer word is data; its beginning is indexed."""
PART_SEPARATOR = "·"
"""Separates the parts of two words, so that they do not match as a phrase. No word contains it."""
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
_TYPED = dict.fromkeys(map(ord, "‘’“”–—…•·\u00a0\u2009\u200b"), " ")
"""Typographic characters between words. Without them, most European prose is ASCII."""
_LETTERS = rf"[^\W_{_UNSPACED}]"
_SIGNS = "\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_JOINT = re.compile("[A-Z0-9](?:(?<=[a-z0-9][A-Z])|(?<=[A-Za-z][0-9])|(?=[A-Za-z])(?<=[0-9])|(?=[a-z])(?<=[A-Z][A-Z]))")
"""Matches the boundaries in a compound name. It starts with the rarest character, so that prose is skipped quickly."""
_KINDS = re.sub("[A-Z]", "A", re.sub("[a-z]", "a", re.sub("[0-9]", "0", "".join(map(chr, range(128))))))
"""ASCII characters as `a`, `A` or `0` for small letters, capital letters and digits, and others as they are."""
_ALNUM = re.compile("[A-Za-z0-9]+")
_PIECE = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_DATA = re.compile("[0-9a-f]+|[0-9A-F]+")
"""A word of hexadecimal digits is not a compound name."""
_GLUED = re.compile(
    "[0-9](?:(?<=[0-9]{2})[Tt](?=[0-9]{2}:)|(?<=-[0-9]{2})[Tt](?=[0-9]{2}(?![A-Za-z0-9]))"
    r"|(?:(?<=:[0-9]{2})|(?<=:[0-9]{2}\.[0-9]{3})|(?<=:[0-9]{2}\.[0-9]{6}))[Zz](?![A-Za-z0-9])"
    "|(?=[AaPp][Mm](?![A-Za-z0-9]))|(?<=[Vv][0-9])(?<![A-Za-z0-9][Vv][0-9])())"
)
"""A digit with the letter that joins a date and a time, a time and its zone, or a version and its number."""
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
"""Marks that people leave out: accents, and the vowels of Hebrew and Arabic. Those of Indian scripts are letters."""
_OWN = frozenset("йўїѓќЙЎЇЃЌ")
"""Letters that only look as if they had accents."""
_SPELLED = {"æ": "ae", "œ": "oe", "ð": "d", "þ": "th", "ı": "i", "ŋ": "n"}
_BASE = re.compile("LATIN (?:SMALL|CAPITAL) LETTER ([A-Z]) WITH ")


@cache
def _word() -> re.Pattern[str]:
    """Return the pattern of a run: characters of an unspaced script, letters and digits with marks, or a sign.

    It is compiled when first needed, because that takes tens of milliseconds.
    """
    return re.compile(rf"[{_UNSPACED}]+|{_LETTERS}+(?:[{_MARKS}]+{_LETTERS}*)*|[{_SIGNS}]")


@cache
def _unspaced_pattern() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]")


def normalize_text(text: str) -> str:
    """Return the text in the form in which it is compared: one width, one form of every character, no case."""
    if text.isascii():
        return text.lower()
    text = text.translate(_TYPED)
    if text.isascii():
        return text.lower()
    return (text if is_normalized("NFKC", text) else normalize("NFKC", text)).casefold()


def _split_numbers(text: str) -> str:
    """Return the text with blanks in dates, times and versions where words end."""
    return _GLUED.sub(lambda found: f"{found[0][0]} " if found[1] is None else f" {found[0]}", text)


class _Bare(dict[int, str]):
    """Maps a code point to the character without width and accent, in its own case; computed on first use."""

    def __missing__(self, code: int) -> str:
        whole = normalize("NFKC", _TYPED.get(code, chr(code)))
        kept, low = ("".join(map(_base, text)) for text in (whole, whole.casefold()))
        self[code] = kept if kept.casefold() == low and len(kept) == len(low) else low
        return self[code]


WITHOUT_ACCENTS = _Bare()
"""For `str.translate`: removes width and accents. Folding the case then changes no position."""


def _base(sign: str) -> str:
    """Return a character without its accent, or its usual ASCII spelling."""
    if sign.isascii() or sign in _OWN or is_unspaced(sign):
        return sign
    found = []
    for letter in _ACCENTS.sub("", normalize("NFD", sign)):
        spelled = _SPELLED.get(letter.lower())
        base = spelled if letter.islower() or not spelled else spelled.upper()
        with_sign = None if base else _BASE.match(name(letter, ""))
        if with_sign:
            base = with_sign[1].lower() if letter.islower() else with_sign[1]
        found.append(base or letter)
    return normalize("NFC", "".join(found))


def split_runs(text: str) -> list[str]:
    """Return the runs of a normalized text, in order."""
    text = _split_numbers(text)
    return _ASCII.findall(text) if text.isascii() else _word().findall(text)


def split_terms(text: str) -> list[str]:
    """Return the terms of a text, in order."""
    return list(_terms(normalize_text(text), joined=_has_joints(text)))


def tokenize(text: str) -> tuple[Sequence[str], list[str]]:
    """Return the terms of a text in order, and the parts of its compound names."""
    if not text:
        return (), []
    joined = _has_joints(text)
    return _terms(normalize_text(text), joined=joined), _parts(text) if joined else []


def _terms(text: str, *, joined: bool) -> Sequence[str]:
    """Return the terms of a normalized text."""
    if text.isascii():
        text = _split_numbers(text) if joined else text
        if not _has_long_word(text) or not _has_long_word(text := text.translate(WORDS_ONLY)):
            return AsciiTerms(text)
        return [word[:MAX_TERM] for word in text.split()]
    found: list[str] = []
    for run in _word().findall(_split_numbers(text)):
        if run.isascii():
            found.append(run[:MAX_TERM])
        elif is_unspaced(run):
            found += map(str.__add__, run, run[1:])
            found.append(run[-1])
        else:
            found.append(run.translate(WITHOUT_ACCENTS)[:MAX_TERM])
    return found


def _has_joints(text: str) -> bool:
    """Return whether `_JOINT` matches in a text. For ASCII, this takes a sixth of the time."""
    if not text.isascii():
        return _JOINT.search(text) is not None
    kinds = text.translate(_KINDS)
    if "0" in kinds and ("a0" in kinds or "0a" in kinds or "0A" in kinds or "A0" in kinds):
        return True
    return "A" in kinds and ("aA" in kinds or "AAa" in kinds)


def _has_long_word(text: str) -> bool:
    """Return whether a text has more than `MAX_TERM` characters without a blank."""
    start, last = 0, len(text) - MAX_TERM
    while start < last:
        blank = text.rfind(" ", start, start + MAX_TERM + 1)
        if blank < 0:
            return True
        start = blank + 1
    return False


def _parts(text: str) -> list[str]:
    """Return further terms for compound names: the pieces of each in a row, then the joined pieces."""
    found: list[str] = []
    together: dict[str, None] = {}
    for word in dict.fromkeys(_ALNUM.findall(_split_numbers(text))):
        if 2 < len(word) <= MAX_TERM or (len(word) == 2 and not word.isalpha()):
            pieces = _PIECE.findall(word)
            if 1 < len(pieces) <= _MOST_PIECES:
                pieces = list(map(str.lower, pieces))
                found += (*pieces, PART_SEPARATOR)
                if len(pieces) > 2 and not _DATA.fullmatch(word):
                    together.update(_neighbours(pieces))
    return [*found, *together]


def _neighbours(pieces: list[str]) -> Iterator[tuple[str, None]]:
    """Yield the joined adjacent pieces, from every piece that is not a number; not the whole word."""
    for first in range(len(pieces)):
        for last in range(first + 2, len(pieces) + 1) if pieces[first].isalpha() else ():
            if last - first < len(pieces):
                yield "".join(pieces[first:last]), None


def are_one_word(signs: str) -> bool:
    """Return whether adjacent characters belong to one word; always False for unspaced scripts."""
    return signs.isalnum() if signs.isascii() else _word().fullmatch(f"x{signs}") is not None


def is_unspaced(run: str) -> bool:
    """Return whether a run is of a script that does not separate words by blanks."""
    return not run.isascii() and _unspaced_pattern().match(run) is not None


_STOP: Final = (
    "a about after am an and are as at be been before being but by can could d did do does doing for from had has"
    " have having he her him his how i if in into is it its ll m may me might must my no not of on or our over re s"
    " shall she should so t than that the their them then these they this those to ve was we were what when where"
    " which who whom whose why will with would you your"
)
STOP_WORDS: Final = frozenset(_STOP.split())
"""Words that do not tell what a question is about."""
_SMALL_TALK: Final = (
    "afternoon again alright bye continue cool evening exactly fine go good goodbye great hello hey hi morning next"
    " nice no ok okay perfect please proceed right sure thank thanks yeah yep yes"
    " 谢谢 多谢 好的 好吧 好 你好 您好 嗯 是 是的 对 对的 可以 行 没错"
    " 继续 请继续 下一步 再见"
)
SMALL_TALK: Final = frozenset(_SMALL_TALK.split())
"""A message of only these words asks for nothing."""
_VAGUE: Final = (
    "all anybody anyone any anything aren couldn didn doesn don everybody everyone everything hadn hasn haven isn just"
    " nobody nothing now shouldn some somebody someone something tell there today tonight up wasn weren won wouldn"
)
_VAGUE_WORDS: Final = frozenset(_VAGUE.split()) | STOP_WORDS | SMALL_TALK
_VAGUE_SIGNS: Final = frozenset("的了过得着吗呢吧啊是在有也都就很你您我他她它们这那谁什么怎样今天晚现")
_FORMS: Final = (
    "go went gone going goes;buy bought;see saw seen;take took taken;get got gotten;make made;give gave given;come"
    " came;find found;think thought;tell told;feel felt;leave left;bring brought;begin began begun;keep kept;hold"
    " held;write wrote written;stand stood;hear heard;mean meant;meet met;run ran;pay paid;sit sat;speak spoke"
    " spoken;lead led;grow grew grown;lose lost;fall fell fallen;send sent;build built;draw drew drawn;break broke"
    " broken;spend spent;rise rose risen;drive drove driven;wear wore worn;choose chose chosen;win won;teach"
    " taught;catch caught;fly flew flown;sing sang sung;swim swam swum;eat ate eaten;sell sold;sleep slept;ride rode"
    " ridden;know knew known;say said;become became;use used using;do done doing;child children;man men;woman"
    " women;person people;foot feet;tooth teeth"
)
_IRREGULAR: Final = {form: forms.split()[0] for forms in _FORMS.split(";") for form in forms.split()[1:]}

_FORMS_OF: Final = {forms.split()[0]: forms.split()[1:] for forms in _FORMS.split(";")}
_PLURALS: Final = {
    **dict.fromkeys(("ungen", "heiten", "keiten", "schaften", "itaten"), ("en", "")),
    **dict.fromkeys(("ciones", "siones", "dades"), ("es", "")),
    "innen": ("nen", ""),
    "eaux": ("x", ""),
    "aux": ("aux", "al"),
}
"""German, French and Spanish plurals: ending → (its part to remove, its replacement). Accents are gone already."""
_SYLLABLE = re.compile("[aeiouy]+[^aeiouy]+")
_SHORT_END = re.compile("[^aeiouy][aeiouy][^aeiouywx]$")
"""A short syllable at the end: `hop` and `hope` are different words."""


@lru_cache(maxsize=1 << 15)
def stem(word: str) -> str:
    """Return an English word without its ending of number or tense. Words of other scripts stay the same."""
    word = _IRREGULAR.get(word, word)
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    word = _foreign_singular(word) or _without_tense(_singular(word))
    rest = word[:-1]
    if len(word) < 4 or word[-1] != "e" or rest[-1] == "e":
        return word
    syllables = len(_SYLLABLE.findall(rest))
    return rest if syllables > 1 or (syllables and not _SHORT_END.search(rest)) else word


def inflections(word: str) -> list[str]:
    """Return the other forms of a normalized word that have the same stem: `refund` for `refunds`."""
    base = stem(word)
    if not word.isascii() or not word.isalpha() or (len(base) < 3 and base not in _FORMS_OF):
        return []
    found = [base, base + "s", *_FORMS_OF.get(base, ())]
    if base[-1] == "e":
        found += (base[:-1] + "ed", base[:-1] + "ing", base + "ing")
    else:
        found += (base + ending for ending in ("e", "es", "ed", "ing"))
    if base[-1] == "y":
        found += (base[:-1] + ending for ending in ("ies", "ied"))
    found += (base.removesuffix(new) + old for old, new in dict.fromkeys(_PLURALS.values()) if base.endswith(new))
    if _SHORT_END.search(base):
        found += (base + base[-1] + ending for ending in ("ed", "ing"))
    return [form for form in dict.fromkeys(found) if form != word and stem(form) == base]


def _foreign_singular(word: str) -> str:
    """Return the singular of a German, French or Spanish noun; "" if its ending does not tell."""
    ending = next((end for end in _PLURALS if word.endswith(end) and len(word) > len(end) + 2), "")
    old, new = _PLURALS.get(ending, ("", ""))
    return word.removesuffix(old) + new if ending else ""


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _without_tense(word: str) -> str:
    if len(word) > 4 and word.endswith("ied"):
        return word[:-3] + "y"
    if word.endswith("eed"):
        return word[:-1] if _SYLLABLE.search(word[:-3]) else word
    ending = "ing" if word.endswith("ing") else "ed" if word.endswith("ed") else ""
    rest = word.removesuffix(ending)
    if not ending or len(rest) < 3 or not set(rest) & set("aeiouy"):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "aeioulsz":
        return rest[:-1]
    return rest + "e" if len(_SYLLABLE.findall(rest)) == 1 and _SHORT_END.search(rest) else rest


_VAGUE_STEMS: Final = frozenset(map(stem, _VAGUE_WORDS)) | _VAGUE_WORDS


def is_vague(word: str) -> bool:
    """Return whether a stemmed word does not make a question clear, such as `today` or `anything`.

    In an unspaced script, such a word is a pair of characters that occur in many questions.
    """
    return word in _VAGUE_STEMS or (not word.isascii() and _VAGUE_SIGNS.issuperset(word))
