"""The words by which a sentence is known to insist on something: `must`, `at most`, 必须, 最多."""

import re

_SINGLE = (
    "must only never don't dont cannot can't cant won't before after prefer prefers preferred preferably without unless"
    " except avoid always maximum minimum max min ensure mustn't shouldn't until latest earliest cheapest mandatory"
    " forbidden"
)
_WORDS = frozenset(_SINGLE.split())
_PHRASES = (
    *("do not", "not allowed", "not more than", "at most", "at least", "no more", "no less", "no later", "no earlier"),
    *("up to", "instead of", "as long as", "make sure", "less than", "more than", "have to be", "has to be"),
)
_CJK = re.compile(
    "必须|务必|千万|一定要|不要|不能|不可|不得|不许|不准|不用|不想|不超过|不少于|不早于|不晚于|不多于|最多|最少|至少|最好|之前|之后"
    "|以前|以后|以内|禁止|除非|尽量|优先|仅|(?<![一二两三四五六七八九十几0-9每这那])只(?![好见])"
    "|(?<![特区分级类性识差个告鉴派辨])别(?![人的名墅])"
)
_WORD = re.compile(r"(?<!\w)[a-z]+(?:['’][a-z]+)?(?!\w)")


def cue_in(text: str) -> int:
    """Where the first word or phrase stands that insists on something; -1 if there is none."""
    lowered = text.lower()
    places = [_word_in(lowered), *(lowered.find(phrase) for phrase in _PHRASES)]
    if not text.isascii():
        found = _CJK.search(text)
        places.append(found.start() if found else -1)
    return min((place for place in places if place >= 0), default=-1)


def _word_in(lowered: str) -> int:
    words = _WORD.findall(lowered.replace("’", "'"))
    if _WORDS.isdisjoint(words):
        return -1
    matches = _WORD.finditer(lowered)
    return next((match.start() for match in matches if match.group().replace("’", "'") in _WORDS), -1)
