"""What stands for folded messages: a name, a summary in one line, and an account of the facts in it.

The summary is extractive: the speakers' own words, shortened, then facts as far as there is room. A fact that is not in
it can be found: it stands word for word in the text of a page below.
"""

import re
from collections.abc import Callable, Sequence

from quire.fold.facts import facts
from quire.messages import Message
from quire.text import MAX_DESCRIPTION, in_one_line
from quire.view.folded import Account

Count = Callable[[str], int]
_END = re.compile(r"(?<=[。！？!?])|(?<=[.;])\s")
_ASKED, _SAID = 90, 90
_SHARE = 0.1
_LEAST, _MOST = 10, 70


def summarise_turns(messages: Sequence[Message], tokens: int, count: Count) -> tuple[str, Account]:
    """One line for a few turns, in at most a tenth of their tokens; and the account of their facts."""
    limit = max(_LEAST, min(_MOST, int(tokens * _SHARE) - _LEAST))
    asked = next((message.text for message in messages if message.role == "user"), "")
    said = next((m.text for m in reversed(messages) if m.role == "assistant" and m.text.strip()), "")
    called = dict.fromkeys(call.name for message in messages for call in message.tool_calls)
    pieces = [_first(asked, _ASKED)[32:], ", ".join(called), _first(said, _SAID)]
    found = list(facts(_texts(messages)))
    return _fitted([piece for piece in pieces if piece], found, limit, count)


def summarise_chapters(lines: Sequence[tuple[str, str]], count: Count) -> str:
    """One line for several folded ones, given by name and summary."""
    names = [name for name, _ in lines]
    found = list(facts(summary for _, summary in lines))
    return _fitted([" · ".join(names[1:])], found, _MOST, count)[0]


def _fitted(pieces: Sequence[str], found: Sequence[str], limit: int, count: Count) -> tuple[str, Account]:
    """The pieces and then the facts, as far as they fit; which facts are in, and which are to be looked for."""
    text = _clip("; ".join(pieces), limit, count)
    left = [fact for fact in found if fact not in text]
    room = limit - count(text)
    taken: list[str] = []
    for fact in left:
        room -= count(f" {fact},")
        if room < 0:
            break
        taken.append(fact)
    if taken:
        text = f"{text} | {' '.join(taken)}" if text else " ".join(taken)
    text = in_one_line(text)[:MAX_DESCRIPTION]
    kept = sum(fact in text for fact in found)
    return text, Account(kept, len(found) - kept)


def _clip(text: str, limit: int, count: Count) -> str:
    text = in_one_line(text)
    while text and count(text) > limit:
        text = text[: int(len(text) * 0.8)].rstrip()
    return text


def _first(text: str, limit: int) -> str:
    """The first sentence, or its beginning."""
    text = in_one_line(text[: 4 * limit])
    sentence = next((piece for piece in _END.split(text) if piece), "")
    return sentence[:limit]


def _texts(messages: Sequence[Message]) -> list[str]:
    texts = []
    for message in messages:
        texts.append(message.text)
        texts.extend(call.arguments for call in message.tool_calls)
    return texts
