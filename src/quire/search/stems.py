"""Words without their English endings, for recall: `adopted`, `adopting` and `adoptions` are one word there.

Only recall uses them, where a question is asked in other words than the answer was given in; `find` is exact. Words of
other scripts stay as they are.
"""

from functools import lru_cache
from typing import Final

_STOP: Final = (
    "a about after am an and are as at be been before being but by can could d did do does doing for from had has"
    " have having he her him his how i if in into is it its ll m may me might must my no not of on or our over re s"
    " shall she should so t than that the their them then these they this those to ve was we were what when where"
    " which who whom whose why will with would you your"
)
STOP: Final = frozenset(_STOP.split())
"""Words that say nothing of what a question is about."""
_SMALL_TALK: Final = (
    "alright bye continue cool exactly fine go good goodbye great hello hey hi next nice no ok okay perfect please"
    " proceed right sure thank thanks yeah yep yes 谢谢 多谢 好的 好吧 好 你好 您好 嗯 是 是的 对 对的 可以 行 没错"
    " 继续 请继续 下一步 再见"
)
SMALL_TALK: Final = frozenset(_SMALL_TALK.split())
"""A message of nothing but these asks for nothing."""
_FORMS: Final = (
    "go went gone;buy bought;see saw seen;take took taken;get got gotten;make made;give gave given;come came;find"
    " found;think thought;tell told;feel felt;leave left;bring brought;begin began begun;keep kept;hold held;write"
    " wrote written;stand stood;hear heard;mean meant;meet met;run ran;pay paid;sit sat;speak spoke spoken;lead"
    " led;grow grew grown;lose lost;fall fell fallen;send sent;build built;draw drew drawn;break broke broken;spend"
    " spent;rise rose risen;drive drove driven;wear wore worn;choose chose chosen;win won;teach taught;catch"
    " caught;fly flew flown;sing sang sung;swim swam swum;eat ate eaten;sell sold;sleep slept;ride rode ridden;know"
    " knew known;say said;become became;child children;man men;woman women;person people;foot feet;tooth teeth"
)
_IRREGULAR: Final = {form: forms.split()[0] for forms in _FORMS.split(";") for form in forms.split()[1:]}


@lru_cache(maxsize=1 << 15)
def stem(word: str) -> str:
    """The word without its ending."""
    if not word.isascii() or len(word) < 4:
        return _IRREGULAR.get(word, word)
    word = _singular(_IRREGULAR.get(word, word))
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word[: -len(ending)]
            return word[:-1] if word[-1] == word[-2] and word[-1] not in "lsz" else word
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
