"""Titles of folded exchanges: the first words of a message that say what it is about."""

import json
import re
from typing import Final

from quire.core.exchanges import exchange_name
from quire.core.records import PageRecord
from quire.model.messages import Message
from quire.model.text import clip_at_word, collapse_whitespace

_TITLE = 64
_VALUE, _VALUES = 32, 2
"""The longest argument of a call in a title, and the number of arguments."""
_MAX_READ, _MAX_SENTENCES = 400, 4
_LONG_PATH, _SHORT_SENTENCE = 32, 12
_MIN_CLAUSE = 0.4
"""A cut at the end of a clause keeps at least this share of the allowed characters."""

_GREETINGS: Final = (
    "hi|hello|hey|hi there|hello there|hey there|good (?:morning|afternoon|evening)|thanks|thank you|thanks a lot"
    "|thank you (?:so|very) much|sure|yes|yeah|yep|no|ok|okay|great|perfect|alright|all right|well|of course|certainly"
    "|absolutely|got it|understood|i see|no problem|sounds good|that sounds (?:good|great)|that works|sorry|i'm sorry"
    "|oh|now|so|also|actually"
)
_GREETING = re.compile(
    rf"(?:{_GREETINGS})(?:\s*[!,.;:…—–-]+\s*|\s*\n+\s*)"
    r"|(?:你好|您好|嗨|好的|好|谢谢(?:你|您)?|嗯|是的|可以|没问题)[，。！,!、…~～\s]+",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    r"(?:thanks?|thank you) (?:for|so|very)\b|that(?:'s|’s| is) (?:unfortunate|fine|great|good|okay|perfect|too bad)\b"
    r"|i (?:understand|appreciate)\b|no worries\b|here (?:are|is)\b|i(?: can|'ll| will) (?:help|assist)\b"
    r"|you(?:'re|’re| are) welcome\b|i(?:'m|’m| am) glad\b|(?:谢谢|感谢|辛苦|不客气)",
    re.IGNORECASE,
)
_WISH = re.compile(
    r"(?:i(?:'d| would) (?:also )?like (?:you )?to|i (?:also )?(?:want|need|wanted|needed) (?:you )?to|i have to"
    r"|i was (?:hoping|wondering if) (?:you could|i could|to)|i(?:'m| am) (?:looking|trying|hoping) to"
    r"|(?:can|could|would|will) you(?: please| kindly)?|(?:can|could|may) i(?: please)?|please|let's|let me"
    r"|help me(?: to)?)\s+(?=\S)"
    r"|我(?:还)?(?:想要|想|要|需要|希望)|请问|请(?:你|您)?(?:帮我|帮忙)?|麻烦(?:你|您)?|帮我|能不能|可不可以|能否",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[。！？])|(?<=[.!?])\s+|[\r\n]+")
_CLAUSE_END = re.compile(r"[,;:，；：、](?=\s|[^\x00-\x7f])|\s[-–—(]|\s(?:and|but|because|so|or|which|that)\s")
_LIST_ITEM = re.compile(r"[-*#•>|]|\d{1,3}[.)]\s")
_PLEASE = re.compile(r",? please[.!?]?$", re.IGNORECASE)
_CLOSING: Final = ".,;:。，；："
_CUT: Final = _CLOSING + "… ("
_PATH = re.compile(r"(?<![:/\w])(?:[A-Za-z]:)?(?:[\\/][^\\/\s]+)+([\\/][^\\/\s]+)")


def exchange_title(message: Message) -> str:
    """Return the name of a folded exchange. It is longer than `exchange_name` and says what the exchange is about."""
    words = message.text.strip()
    if words:
        return collapse_whitespace(make_title(words, _TITLE)) or message.role
    calls = (f"{call.name} {_first_values(call.arguments)}".strip() for call in message.tool_calls)
    return clip_clause(collapse_whitespace(", ".join(calls)), _TITLE) or exchange_name(message)


def has_given_name(page: PageRecord, message: Message) -> bool:
    """Return whether the name of an exchange was given explicitly and not derived from its first message."""
    return page.header.name not in (exchange_name(message), exchange_title(message))


def _first_values(arguments: str) -> str:
    """Return the first short texts and numbers of a call's arguments."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    found = values.values() if isinstance(values, dict) else ()
    short = [str(value) for value in found if isinstance(value, str | int | float) and 0 < len(str(value)) <= _VALUE]
    return " ".join(short[:_VALUES])


def make_title(text: str, limit: int) -> str:
    """Return the first words of a text that say what it is about, in at most `limit` characters.

    If words are cut, the title ends with "…".
    """
    sentences = list(filter(None, map(str.strip, _SENTENCE_END.split(text[:_MAX_READ].strip()))))
    prose = (sentence for sentence in sentences[:_MAX_SENTENCES] if not _LIST_ITEM.match(sentence))
    stripped = filter(None, map(_strip_lead, prose))
    title = next(stripped, "")
    if not title:
        return clip_clause(" ".join((sentences or [text[:_MAX_READ]])[0].split()), limit)
    while len(title) < _SHORT_SENTENCE and title.isascii() and (following := next(stripped, "")):
        title = f"{title} {following}"
    title = _PLEASE.sub("", " ".join(title.split())).rstrip(_CLOSING)
    return clip_clause(_PATH.sub(_shorten_path, title) if "/" in title or "\\" in title else title, limit)


def clip_clause(text: str, limit: int) -> str:
    """Return the text in at most `limit` characters, cut at the end of a clause or a word and marked with "…"."""
    if len(text) <= limit:
        return text
    ends = [match.start() for match in _CLAUSE_END.finditer(text, 0, limit - 1)]
    if ends and ends[-1] >= limit * _MIN_CLAUSE:
        return text[: ends[-1]].rstrip(_CUT) + "…"
    return (clip_at_word(text, limit - 1) or text[: limit - 1]).rstrip(_CUT) + "…"


def _strip_lead(sentence: str) -> str:
    """Return a sentence without greetings and without words such as "I would like to"."""
    rest = sentence + "\n"  # a greeting may be a sentence of its own
    while found := _GREETING.match(rest):
        rest = rest[found.end() :]
    rest = "" if _COURTESY.match(rest) else rest.strip()
    wish = _WISH.match(rest)
    if wish is not None and len(rest) - wish.end() >= _SHORT_SENTENCE // 2:
        rest = rest[wish.end() :].lstrip("，, ")
    return rest[:1].upper() + rest[1:] if rest[:1].islower() and rest.split(" ", 1)[0].isalpha() else rest


def _shorten_path(path: re.Match[str]) -> str:
    """Return a long path by its last name."""
    return f"…{path[1]}" if len(path[0]) > _LONG_PATH else path[0]
