"""Extractive summaries: what was said, in the speaker's own words, shortened; no model is needed."""

import re
from collections.abc import Sequence

from quire.messages import Message
from quire.text import MAX_DESCRIPTION, in_one_line

_SENTENCE = re.compile(r"(?<=[。！？!?])|(?<=[.;:])\s")
_FACT = re.compile(
    r"https?://[^\s<>\"')\]]+"  # addresses
    r"|(?<![\w.~/-])(?:[\w.~-]{0,80}/){2,40}[\w.-]{1,80}"  # paths
    r"|\b[A-Za-z_]\w{0,80}(?:Error|Exception)\b"  # names of errors
    r"|\b\d{4}-\d{2}-\d{2}(?:T[\d:.Z+-]+)?"  # dates
    r"|\b[A-Z]{2,}-?\d[\w-]*\b"  # identifiers such as HAT136
    r"|\b\d[\d,.:]*\d\b"  # numbers of two digits and more
)
_LINE = 160
_DETAIL = 4_000
_SUMMARY = 400


def summarise(messages: Sequence[Message]) -> tuple[str, str]:
    """A summary in one line, and a longer one with a line for each message, as far as there is room."""
    lines = [line for message in messages if (line := _line(message))]
    detail = _fitted(lines, _DETAIL, "\n")
    short = _fitted([_clipped(line, _LINE // 2) for line in lines], _SUMMARY, " · ")
    facts = _facts(messages, known=detail)
    if facts:
        detail += "\n" + _clipped("Also: " + ", ".join(facts), _DETAIL // 4)
    return short[:MAX_DESCRIPTION], detail


def _line(message: Message) -> str:
    said = in_one_line(message.text)
    calls = ", ".join(f"{call.name}({_clipped(in_one_line(call.arguments), 60)})" for call in message.tool_calls)
    words = " → ".join(part for part in (_first_sentences(said), calls) if part)
    return f"{message.role.capitalize()}: {words}" if words else ""


def _first_sentences(text: str) -> str:
    """As many whole sentences from the beginning as fit a line, or the beginning of the first."""
    taken = ""
    for sentence in _SENTENCE.split(text):
        if taken and len(taken) + len(sentence) + 1 > _LINE:
            break
        taken = f"{taken} {sentence}".strip() if taken and taken[-1] not in "。！？" else taken + sentence
        if len(taken) > _LINE:
            break
    return _clipped(taken, _LINE)


def _facts(messages: Sequence[Message], known: str) -> list[str]:
    """Names, numbers and addresses that the lines above leave out, each once, in order."""
    found: dict[str, None] = {}
    for message in messages:
        for match in _FACT.finditer(message.text[:20_000]):
            if match.group() not in known:
                found.setdefault(match.group())
    return list(found)[:60]


def _fitted(lines: Sequence[str], limit: int, separator: str) -> str:
    """The lines that fit, from both ends towards the middle, with a word on what is left out."""
    if sum(len(line) + len(separator) for line in lines) <= limit:
        return separator.join(lines)
    head: list[str] = []
    end: list[str] = []
    room = limit - 30
    for step in range(len(lines)):
        line = lines[step // 2] if step % 2 == 0 else lines[-1 - step // 2]
        room -= len(line) + len(separator)
        if room < 0:
            break
        (head if step % 2 == 0 else end).append(line)
    left = len(lines) - len(head) - len(end)
    return separator.join([*head, f"… {left} more …", *reversed(end)])


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
