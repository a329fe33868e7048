"""Facts that must not be lost when text is folded: identifiers, numbers, dates, paths, addresses, names of errors, and
the sentences in which a user insists on something (`must`, `at most`, 必须, 最多).

A text is read word by word, each distinct word once, so that a long table costs little more than its words. Every
pattern is linear: a character is read a bounded number of times, whatever the text.

The check of a summary finds which facts the folded text has, which of them the summary keeps, and which `find` reaches.
A fact is reachable if the text that `find` searches contains the text of the fact. Any other fact is lost unless the
summary has it. The check compares whole texts first, so it reads each text once.
"""

import re
from collections.abc import Callable, Iterator, Sequence, Set
from enum import IntEnum
from errno import errorcode
from functools import lru_cache, partial
from typing import Final

from quire.core.reader import Reader
from quire.core.records import PageRecord
from quire.model.messages import Message, iterate_texts
from quire.model.text import unescape_json
from quire.search.page_text import searchable_text
from quire.view.parts import FactAccount

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


def find_cue(text: str) -> int:
    """Return the position of the first word or phrase that insists on something; -1 if there is none."""
    lowered = text.lower()
    places = [_find_word(lowered), *(lowered.find(phrase) for phrase in _PHRASES)]
    if not text.isascii():
        found = _CJK.search(text)
        places.append(found.start() if found else -1)
    return min((place for place in places if place >= 0), default=-1)


def _find_word(lowered: str) -> int:
    words = _WORD.findall(lowered.replace("’", "'"))
    if _WORDS.isdisjoint(words):
        return -1
    matches = _WORD.finditer(lowered)
    return next((match.start() for match in matches if match.group().replace("’", "'") in _WORDS), -1)


class FactKind(IntEnum):
    """The kind of a fact. A summary takes facts with a small number first."""

    ERROR = 1
    IDENTIFIER = 2
    AMOUNT = 3
    DATE = 4
    ADDRESS = 5
    NAME = 6
    CODE = 7
    NUMBER = 8
    DIGIT = 9


_WINDOW = 1 << 17
"""The size of the pieces in which a text is read, in characters."""
_MAX_FACT = 256
"""A longer run of letters and digits is data (a key, an image), not an identifier; an address may be longer."""
_SHORT = 64
_SHORT_NUMBER = 3
_COMMON_CODES = (
    "ID IDS OK YES NO NOT AND THE FOR YOU ALL ONE END NOTE PLEASE MUST ONLY TODO USD EUR API URL URI HTTP JSON"
    " XML HTML CSS CSV PDF SQL CPU GPU RAM UTF UTC GMT AM PM FAQ USA NULL NONE TRUE FALSE GET POST PUT ERROR WARNING"
    " INFO DEBUG SERVER RESPONSE FILE OPEN MSG"
)
_COMMON = frozenset(_COMMON_CODES.split())
_MAX_SENTENCE = 240

_UNIT_WORDS = (
    "kg g mg lb lbs km m cm mm mi mile miles KB MB GB TB KiB MiB GiB TiB byte bytes ms s sec secs second seconds min"
    " mins minute minutes h hr hrs hour hours day days night nights week weeks month months year years people person"
    " persons passenger passengers adult adults child children bag bags seat seats ticket tickets time times token"
    " tokens dollar dollars euro euros pound pounds cent cents USD EUR GBP CNY RMB JPY percent px fps MHz GHz kWh am"
    " pm AM PM a.m p.m 元 美元 欧元 人 天 次 小时 分钟 公里 米 公斤"
)
_UNITS = frozenset(_UNIT_WORDS.split())
_CJK_UNITS = (
    "美元|欧元|日元|人民币|万元|亿元|元|块|万|亿|人|位|名|天|次|个月|小时|分钟|秒|岁"
    "|公里|千米|米|公斤|千克|斤|折|张|间|晚|号|楼"
)
_MONTH_WORDS = (
    "january february march april may june july august september october november december jan feb mar apr jun jul"
    " aug sep sept oct nov dec"
)
_MONTHS = frozenset(_MONTH_WORDS.split())
_BEFORE_CODE = frozenset(("http", "status", "code", "errno", "error"))
_CURRENCIES = frozenset(("$", "€", "£", "¥", "₹", "₩", "USD", "EUR", "GBP", "CNY", "RMB", "JPY"))
_NEIGHBOURS = _UNITS | _MONTHS | _BEFORE_CODE | _CURRENCIES | {"of"}

_SIMPLE = re.compile(r"[A-Za-z0-9_]+(?:[-.][A-Za-z0-9_]+)*")
_ISO_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_IN_WORD = re.compile(
    r"(?P<url>(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s<>\"'`|\\^{}，。；、！？）】」》]+)"
    r"|(?P<mail>(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+)"
    r"|(?P<date>(?<![A-Za-z0-9_])(?:\d{4}-\d{1,2}-\d{1,2}(?:T\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?"
    r"(?:Z|[+-]\d{2}:?\d{2})?)?|\d{1,4}/\d{1,2}/\d{1,4}|\d{1,2}:\d{2}(?::\d{2})?(?:[ap]m)?)(?![A-Za-z0-9_/])"
    r"|(?<!\d)(?:(?:\d{2,4}年)?\d{1,2}月(?:\d{1,2}[日号])?|\d{4}年|\d{1,2}点(?:\d{1,2}分|半)?)"
    r"|(?<![〇零一二三四五六七八九十])[〇零一二三四五六七八九十]{1,4}月[一二三四五六七八九十]{1,3}[日号])"
    r"|(?P<drive>(?<![A-Za-z0-9])[A-Za-z]:[\\/][^\s\"'<>|*?,;，。；]+|\\\\[A-Za-z0-9_.$-]+\\[^\s\"'<>|*?,;，。；]+)"
    r"|(?P<path>(?<![A-Za-z0-9_.@~/+%=<-])(?:~|\.{1,2}|[A-Za-z0-9_.@-]+)?(?:/[\w.@+~%=-]+)+/?)"
    r"|(?P<money>[$€£¥₹₩]\d[\d,]*(?:\.\d+)?(?:[kKmMbB]n?)?(?![A-Za-z0-9_])"
    rf"|\d+(?:[.,]\d+)*(?:%|‰|°[CF]?|[€£¥]|{_CJK_UNITS}))"
    rf"|(?P<spoken>(?<![零〇一二两三四五六七八九十百千万亿])[零〇一二两三四五六七八九十百千万亿]{{1,12}}(?:{_CJK_UNITS}))"
    r"|(?P<number>[#+-]?\d+(?:[.,:]\d+)*(?![A-Za-z0-9_]|[-.][A-Za-z0-9_]))"
    r"|(?P<word>[A-Za-z0-9_]+(?:[-.][A-Za-z0-9_]+)*)"
)
_KINDS: Final = {
    "url": FactKind.ADDRESS,
    "mail": FactKind.IDENTIFIER,
    "date": FactKind.DATE,
    "drive": FactKind.ADDRESS,
    "path": FactKind.ADDRESS,
    "money": FactKind.AMOUNT,
    "spoken": FactKind.AMOUNT,
}
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_MEASURE = re.compile(r"(\d+(?:[.,]\d+)*)([A-Za-z]{1,8})")
_COUNTED = re.compile(r"[a-z]+[-_]?\d")
_ORDINAL = re.compile(r"(\d{1,4})(?:st|nd|rd|th)")
_ERROR = re.compile(
    r"\w+(?:Error|Exception|Warning|Failure|Fault|Timeout|Interrupt)"
    r"|SIG(?:KILL|TERM|SEGV|INT|ABRT|HUP|PIPE|BUS|FPE|ILL|QUIT|CHLD|STOP|ALRM|USR[12])"
)
_ERRORS = frozenset(errorcode.values())
_CAMEL = re.compile(r"[A-Za-z]*[a-z][A-Z]\w*|[A-Z]{2,}[a-z]\w*")
_GLUED = re.compile(r".*[a-z]\.[A-Z][a-z]*")
_AFTER_EXTENSION = re.compile(r"(\.[A-Za-z0-9]{1,8})[^\x00-\x7f]+$")
_OPENING = ",:;!?([{'\"*`“‘（【「《"
_CLOSING = ".,:;!?)]}>'\"*`”’。，；：！？）】」》"
_SENTENCE = re.compile(r"(?<=[。！？；])|(?<=[.!?;])\s+|[\r\n]+")


def extract_facts(text: str) -> Iterator[tuple[str, FactKind]]:
    """Yield the facts of a text without its constraints, each at least once."""
    for piece in split_text(text):
        words = piece.split()
        numbers: set[str] = set()
        neighbours: set[str] = set()
        for word in dict.fromkeys(words):
            if len(word) > _SHORT:
                yield from _facts_in(word)
                continue
            known = _classify(word)
            if known is None:  # most words
                continue
            found, is_number, is_neighbour = known
            if is_number:
                numbers.add(word)
            elif is_neighbour:
                neighbours.add(word)
            yield from found
        if numbers and neighbours:
            yield from _facts_around_numbers(words, numbers, neighbours)


def extract_constraints(text: str) -> Iterator[str]:
    """Yield the sentences in which a user insists on something, each in one line and not too long."""
    for piece in split_text(text):
        if find_cue(piece) < 0:
            continue
        for sentence in _SENTENCE.split(piece):
            place = find_cue(sentence)
            if place >= 0:
                yield " ".join(_shorten(sentence, place).split())


def occurs_in(fact: str, text: str) -> bool:
    """Return whether a fact occurs in a text by itself, not as a part of another word or number."""
    start = text.find(fact)
    while start >= 0:
        if _is_separate(text, start, start + len(fact)):
            return True
        start = text.find(fact, start + 1)
    return False


def is_distinctive(fact: str) -> bool:
    """Return whether a fact is worth a place in a line: few other texts have it, unlike `3`, `ID` or `JSON`."""
    if not any(map(str.isalpha, fact)):
        return len(fact) > _SHORT_NUMBER
    return len(fact) > 2 and fact.upper() not in _COMMON


def split_text(text: str) -> Iterator[str]:
    """Yield a text in pieces that end at the end of a line or a word, if possible."""
    start = 0
    while len(text) - start > _WINDOW:
        end = start + _WINDOW
        cut = max(text.rfind("\n", start, end), text.rfind(" ", start, end))
        end = cut if cut > start + _WINDOW // 2 else end
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _facts_around_numbers(
    words: Sequence[str], numbers: Set[str], neighbours: Set[str]
) -> Iterator[tuple[str, FactKind]]:
    """Yield facts of several words around one that begins with a digit: `May 20, 2024`, `3 bags`, `exit code 1`."""
    seen = set()
    last = len(words) - 1
    for place, word in enumerate(words):
        if word in numbers:
            before, after = words[place - 1] if place else "", words[place + 1] if place < last else ""
            if before in neighbours or after in neighbours:
                around = (before, word, after, words[place + 2] if place + 1 < last else "")
                if around not in seen:
                    seen.add(around)
                    found = _fact_around(*around)
                    if found is not None:
                        yield found


def _fact_around(before: str, word: str, after: str, later: str) -> tuple[str, FactKind] | None:
    number, before = word.lstrip(_OPENING).rstrip(_CLOSING), before.lstrip(_OPENING)
    day, follows = _ORDINAL.sub(r"\1", number), after.rstrip(_CLOSING)
    if day.isdigit() and before.rstrip(".").lower() in _MONTHS:
        has_year = len(day) < 3 and len(follows) == 4 and follows.isdigit() and word[-1] not in ".;:!?)"
        return f"{before} {word} {follows}" if has_year else f"{before} {number}", FactKind.DATE
    if day.isdigit() and len(day) < 3:
        month = f"of {later.rstrip(_CLOSING)}" if after == "of" else follows
        if month.removeprefix("of ").lower() in _MONTHS:
            return f"{number} {month}", FactKind.DATE
    if _NUMBER.fullmatch(number):
        if follows in _UNITS and word[-1] not in ",;:":
            return f"{number} {follows}", FactKind.AMOUNT
        if before in _CURRENCIES:
            return f"{before} {number}", FactKind.AMOUNT
    if before.rstrip(":=#").lower() in _BEFORE_CODE and len(number) < 19:
        return f"{before} {number}", FactKind.ERROR
    return None


@lru_cache(1 << 14)
def _classify(word: str) -> tuple[tuple[tuple[str, FactKind], ...], bool, bool] | None:
    """Return the facts of a run without blanks, whether it begins with a digit, and whether it qualifies a number.

    Return None for a run without facts that is no number and qualifies none. Cached, because words are repeated.
    """
    bare = word.strip(_OPENING + _CLOSING + "=#")
    facts, is_number = tuple(_facts_in(word)), bare[:1].isdigit()
    is_neighbour = bare in _NEIGHBOURS or bare.lower() in _NEIGHBOURS
    return (facts, is_number, is_neighbour) if facts or is_number or is_neighbour else None


def _facts_in(run: str) -> Iterator[tuple[str, FactKind]]:
    """Yield the facts of a run without blanks."""
    word = run.lstrip(_OPENING).rstrip(_CLOSING)
    if word.isalpha() and word.isascii() and (word.islower() or word.istitle()):
        return
    if _SIMPLE.fullmatch(word):
        kind = _kind(word)
        if kind is not None and len(word) <= _MAX_FACT:
            yield word, kind
        return
    for match in _IN_WORD.finditer(word):
        group, found = match.lastgroup, match.group()
        if group == "word" or group == "number":
            kind = _kind(found)
        else:
            kind = _KINDS[group or "url"]
            found = found.rstrip(_CLOSING)
            if group == "path":
                found = _AFTER_EXTENSION.sub(r"\1", found)
                kind = _path_kind(found)
        if kind is not None and len(found) <= (_MAX_FACT if kind is not FactKind.ADDRESS else 4 * _MAX_FACT):
            yield found, kind


def _kind(word: str) -> FactKind | None:
    """Return the kind of a run of letters, digits and underscores with dots and hyphens; None for a plain word."""
    if word.isalpha():
        return _kind_of_letters(word)
    if not any(map(str.isdigit, word)):
        if "_" in word.strip("_"):
            return FactKind.NAME
        dotted = "." in word and min(map(len, word.split("."))) > 1 and not _GLUED.fullmatch(word)
        return FactKind.NAME if dotted else None
    if not any(map(str.isalpha, word)):
        if len(word) == 1:
            return FactKind.DIGIT
        return FactKind.DATE if _ISO_DATE.fullmatch(word) else FactKind.NUMBER
    if _ORDINAL.fullmatch(word):
        return FactKind.NUMBER
    if _COUNTED.fullmatch(word):  # such as h1 or address2
        return FactKind.NAME
    measure = _MEASURE.fullmatch(word)
    return FactKind.AMOUNT if measure is not None and measure[2] in _UNITS else FactKind.IDENTIFIER


def _kind_of_letters(word: str) -> FactKind | None:
    if len(word) < 2 or word.islower() or word.istitle():
        return FactKind.ERROR if word in ("Error", "Exception") else None
    if _ERROR.fullmatch(word) or word in _ERRORS:
        return FactKind.ERROR
    if word.isupper():
        return FactKind.CODE
    return FactKind.NAME if _CAMEL.fullmatch(word) else None


def _path_kind(path: str) -> FactKind | None:
    """Return ADDRESS, unless the path is only two words with a slash between them, such as `and/or`."""
    if path[:1] in "/~." or path.count("/") > 1 or "." in path.rpartition("/")[2]:
        return FactKind.ADDRESS if len(path) > 1 else None
    return FactKind.NUMBER if any(map(str.isdigit, path)) else None


def _shorten(sentence: str, place: int) -> str:
    """Return the sentence, or the part of a long one around a position."""
    if len(sentence) <= _MAX_SENTENCE:
        return sentence
    start = max(0, place - _MAX_SENTENCE // 2)
    cut = sentence[start : start + _MAX_SENTENCE]
    if start and " " in cut[:40]:
        cut = cut.partition(" ")[2]
    if start + _MAX_SENTENCE < len(sentence) and " " in cut[-40:]:
        cut = cut.rpartition(" ")[0]
    return cut


def _is_separate(text: str, start: int, end: int) -> bool:
    """Return whether the text between two positions is not part of a longer word or number."""
    if start and _joins(text[start - 1]) and _joins(text[start]):
        return False
    after, last = text[end : end + 2], text[end - 1]
    if after and _joins(after[0]) and _joins(last):
        return False
    return not (last.isdigit() and after[:1] in (".", ",", ":") and after[1:].isdigit())


def _joins(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


_SPEAKER_RANK: Final = {"user": 0, "assistant": 3, "system": 3, "tool": 6}
"""Added to the rank of a fact by its speaker: facts of the user and the assistant matter most."""
_MOST_MENTIONS = 4
"""The most that further mentions of a fact improve its rank."""
_FIELD = re.compile(r"[a-z]+(?:_[a-z]+)+")
_FIELD_RANK = FactKind.NAME + _SPEAKER_RANK["assistant"]
"""A word such as `user_id` in a call or a result is the name of a field. It is no fact of the folded text."""
_CALL_ID = re.compile(r"(?:call|toolu|tooluse|fc|chatcmpl-tool)[_-][A-Za-z0-9_-]+")
_MAX_CHARACTERS = 600_000
"""The characters of a fold unit whose facts are listed. Of a longer text, the beginning and the end are read."""


class FactCheck:
    """The facts of pages that are folded together. `is_ignored` returns whether a word is a name that quire gave."""

    def __init__(self, is_ignored: Callable[[str], bool] = lambda fact: False) -> None:
        self._is_ignored = is_ignored
        self._mentions: dict[str, int] = {}
        self.ranks: dict[str, int] = {}
        """The rank of every fact. A summary takes facts with a low rank first."""
        self.unreachable: list[str] = []
        """The facts that `find` cannot reach."""
        self.unread = 0
        """The number of characters whose facts were not listed."""
        self._room = _MAX_CHARACTERS

    def ranked_facts(self) -> list[str]:
        """Return the facts without the user's constraints, in the order in which a summary takes them."""
        ranks, mentions = self.ranks, self._mentions
        facts = (fact for fact, rank in ranks.items() if rank >= 0 and is_distinctive(fact))
        facts = (fact for fact in facts if ranks[fact] < _FIELD_RANK or not _FIELD.fullmatch(fact))
        return sorted(facts, key=lambda fact: ranks[fact] - min(_MOST_MENTIONS, mentions.get(fact, 0)))

    def constraints(self) -> Iterator[str]:
        """Yield the sentences in which the user insists on something."""
        return (fact for fact, rank in self.ranks.items() if rank < 0)

    def account(self, shown: str) -> FactAccount:
        """Return the account of the facts if `shown` replaces the text."""
        out = [fact for fact in self.ranks if not occurs_in(fact, shown)]
        lost = len(set(out).intersection(self.unreachable)) if self.unreachable else 0
        return FactAccount(len(self.ranks) - len(out), len(out) - lost, lost, self.unread)

    def missing(self, shown: str) -> list[str]:
        """Return the facts that would be lost: neither in `shown` nor reachable."""
        return [fact for fact in dict.fromkeys(self.unreachable) if not occurs_in(fact, shown)]

    def read_exchange(self, messages: Sequence[Message]) -> None:
        """Add the facts of one exchange."""
        reach = searchable_text(messages)
        for message in messages:
            for text in _message_texts(message):
                self._read(text, reach, _SPEAKER_RANK[message.role], has_constraints=message.role == "user")

    def read_text(self, text: str, reach: str) -> None:
        """Add the facts of a text page; `reach` is the text that `find` searches."""
        self._read(text, reach, _SPEAKER_RANK["assistant"], has_constraints=False)

    def _read(self, text: str, reach: str, speaker: int, *, has_constraints: bool) -> None:
        found = self.ranks if text in reach else {}
        for piece in self._split(text):
            for fact in extract_constraints(piece) if has_constraints else ():
                found[fact] = -1
            for fact, kind in extract_facts(piece):
                rank = kind + speaker
                if fact in self.ranks:
                    self._mentions[fact] = self._mentions.get(fact, 0) + 1
                if (fact not in found or found[fact] > rank) and not self._is_ignored(fact):
                    found[fact] = rank
        if found is not self.ranks:  # rare: compare fact by fact
            known = reach.casefold()
            self.unreachable += [fact for fact in found if not all(word in known for word in fact.casefold().split())]
            for fact, rank in found.items():
                self.ranks[fact] = min(rank, self.ranks.get(fact, rank))

    def _split(self, text: str) -> list[str]:
        """Return the pieces of a text whose facts are listed."""
        room = self._room
        self._room = max(0, room - len(text))
        if len(text) <= room:
            return [text]
        self.unread += len(text) - room
        head = room * 3 // 4
        return [text[:head], text[len(text) - (room - head) :]] if room else []


def check_facts(reader: Reader, pages: Sequence[PageRecord]) -> tuple[FactCheck, list[Message]]:
    """Return the check for pages that are folded together, and their messages."""
    check = FactCheck(partial(_is_quire_name, reader))
    all_messages: list[Message] = []
    for page in pages:
        if page.header.numbers:
            messages = [reader.message(number).message for number in page.header.numbers]
            check.read_exchange(messages)
            all_messages += messages
        elif page.header.body:
            body = reader.body(page.header.body)
            check.read_text(body, body)
    return check, all_messages


def _is_quire_name(reader: Reader, word: str) -> bool:
    """Return whether a word is the index of a page or the id of a call: the text has it from quire or a provider."""
    segment, _, number = word.rpartition("-")  # most words fail the first two checks, which are quick
    if number.isdigit() and reader.number_of(segment) is not None and reader.key_of(word) is not None:
        return True
    return _CALL_ID.fullmatch(word) is not None


def _message_texts(message: Message) -> Iterator[str]:
    """Yield the texts of a message that a model has seen, without the escapes of JSON."""
    calls = {call.arguments for call in message.tool_calls}
    for text in iterate_texts(message):
        yield unescape_json(text) if text in calls or text[:1] in ("{", "[", '"') else text
