"""A generated life in messages to an assistant: facts, some of which change, small talk, and later questions."""

import re
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

HOUR = 3_600_000
START = 1_767_225_600_000
"""The first of January 2026, in milliseconds since 1970."""

_ENGLISH = tuple(
    f"{what} of {whose}"
    for what, owners in {
        "the code": ("the garage", "the safe", "the bike lock", "the cellar", "the alarm"),
        "the phone number": ("my dentist", "the plumber", "Aunt Rosa", "the school", "Dr Weber"),
        "the library card": ("my daughter", "my nephew Jonas", "my father"),
        "the booking number": ("our table at Sole Mio", "the office party"),
    }.items()
    for whose in owners
)
_CHINESE = (
    "公寓门的密码",
    "奶奶的电话",
    "我的车牌号",
    "健身房储物柜的号码",
    "女儿的学号",
    "咖啡店的无线密码",
    "仓库的门牌号",
)
_SMALL_TALK = (
    "It rained again when I walked to work, and the tram was {n} minutes late. Nobody seemed to mind.",
    "We had noodles for dinner, and afterwards I read {n} pages of that long novel about whales.",
    "The meeting about the budget took {n} minutes longer than planned. I made some notes and went home.",
    "I ran {n} kilometres along the river this morning. My knee is much better than last month.",
    "今天开会开了{n}分钟，大家都很累，最后什么也没有决定。",
    "晚饭吃了饺子，然后散步走了{n}公里，天气很舒服。",
    "周末想去爬山，可是天气预报说有{n}级的风。",
)


class Turn(NamedTuple):
    """A message with its time. A fact or a question also has its subject and the answer that is correct now."""

    time: int
    said: str
    subject: str = ""
    value: str = ""
    asks: bool = False


def live(turns: int, seed: int = 7) -> Iterator[Turn]:
    """Yield the turns of a life, about eight a day. The same seed gives the same life."""
    random = Random(seed)
    subjects = [*_ENGLISH, *_CHINESE]
    random.shuffle(subjects)
    known: dict[str, str] = {}
    time = START
    for number in range(turns):
        time += random.choice((HOUR // 60, HOUR // 20, HOUR // 4, HOUR, 9 * HOUR))
        chance = random.random()
        if chance < 0.25 and subjects and number < max(60, turns // 3):
            yield _told(time, random, subjects.pop(), known)
        elif chance > 0.985 and known:
            yield _told(time, random, random.choice(list(known)), known)
        elif chance > 0.88 and known:
            subject = random.choice(list(known))
            yield Turn(time, _question(subject, random.random() < 0.3), subject, known[subject], asks=True)
        else:
            yield Turn(time, random.choice(_SMALL_TALK).format(n=random.randrange(3, 60)))


def values_of(subject: str, text: str) -> list[str]:
    """Return every value that a text gives for a subject, in the order of the text."""
    return [str(value) for value in re.findall(rf"{re.escape(subject)}(?: is(?: now)? |是)(\d+)", text, re.IGNORECASE)]


def _told(time: int, random: Random, subject: str, known: dict[str, str]) -> Turn:
    """Return a new fact or a changed fact."""
    changed, value = subject in known, str(random.randrange(10_000, 99_999))
    known[subject] = value
    if subject in _CHINESE:
        said = f"改了：{subject}是{value}。" if changed else f"请记住，{subject}是{value}。"
    else:
        said = f"It changed: {subject} is now {value}." if changed else f"Please remember that {subject} is {value}."
    return Turn(time, said, subject, value)


def _question(subject: str, polite: bool) -> str:
    """Return a question, or a request in another form."""
    if subject in _CHINESE:
        return f"请告诉我{subject}。" if polite else f"{subject}是多少？"
    return f"Please remind me of {subject}." if polite else f"What is {subject}?"
