"""The conversations of the corpus, in no tool's form: each turn has a role, a text, calls, a call id and a time.

LangChain, pydantic-ai, the OpenAI Agents SDK and LangGraph wrote their files of the corpus themselves. Those of Claude
Code and Codex follow sessions that Claude Code 2.1.197 and Codex 0.166.0 wrote with a stub model.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

CORPUS = Path(__file__).parent / "corpus"
START = datetime(2026, 3, 11, 2, 14, 9, 122_000, tzinfo=UTC)


class Call(NamedTuple):
    """A call of a tool."""

    id: str
    name: str
    arguments: dict[str, Any]


class Turn(NamedTuple):
    """One message. `minute` is its time after `START`."""

    role: str
    text: str
    minute: int
    calls: tuple[Call, ...] = ()
    answers: str | None = None

    @property
    def at(self) -> datetime:
        return START + timedelta(minutes=self.minute)


def asks(minute: int, text: str) -> Turn:
    return Turn("user", text, minute)


def says(minute: int, text: str, *calls: Call) -> Turn:
    return Turn("assistant", text, minute, calls)


def returns(minute: int, call_id: str, text: str) -> Turn:
    return Turn("tool", text, minute, answers=call_id)


PROMPT = Turn("system", "You are a careful travel agent.\n用中文回答。", 0)
TALKS: dict[str, list[Turn]] = {
    "chat": [
        PROMPT,
        asks(1, "我想五月二十日去西雅图。"),
        says(2, "好的，从哪里出发？"),
        asks(60 * 24 * 3, "From Denver, with 2 bags."),
        says(60 * 24 * 3 + 1, "HAT136 leaves at 05:00 🛫"),
    ],
    "call": [
        PROMPT,
        asks(1, "Which flight is the cheapest?"),
        says(2, "I look for it.", Call("call_1", "search_flights", {"from": "DEN", "to": "SEA", "day": "2026-05-20"})),
        returns(3, "call_1", '{"flights": [{"id": "HAT136", "price": 121.5}]}'),
        says(4, "HAT136 for 121.50 dollars."),
    ],
    "parallel": [
        asks(0, "Compare the weather."),
        says(
            1,
            "I ask for both.",
            Call("call_a", "weather", {"city": "Seattle"}),
            Call("call_b", "weather", {"city": "成都", "units": ["C", "F"]}),
        ),
        returns(2, "call_a", "rain, 11 °C"),
        returns(3, "call_b", "sun, 24 °C"),
        says(4, "Chengdu is warmer."),
        asks(5, "Thanks"),
        says(6, "You are welcome."),
    ],
    "loop": [
        PROMPT,
        asks(1, "Fix the test.\n\n```python\nassert parse('1\\t2') == [1, 2]\n```"),
        says(2, "", Call("call_1", "read_file", {"path": "src/parse.py"})),
        returns(3, "call_1", "def parse(text):\n    return text.split(' ')\n"),
        says(4, "It splits at spaces only.", Call("call_2", "edit", {"path": "src/parse.py", "old": "' '", "new": ""})),
        returns(5, "call_2", "Error: 2 places match"),
        says(6, "", Call("call_3", "edit", {"path": "src/parse.py", "old": "(' ')", "new": "()", "deep": {"n": None}})),
        returns(7, "call_3", "ok"),
        says(8, "Done: `split()` splits at any white space."),
        asks(9, '<b>&amp;</b> "quoted" \\ back'),
        says(10, "Noted."),
    ],
    "long": [
        turn
        for n in range(12)
        for turn in (asks(90 * n, f"Question {n}: what is {n} × {n}?"), says(90 * n + 1, f"{n} × {n} = {n * n}."))
    ],
}


def langchain_messages(turns: list[Turn]) -> list[Any]:
    """Return the turns as messages of LangChain."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    found: list[Any] = []
    for n, turn in enumerate(turns):
        match turn.role:
            case "system":
                found.append(SystemMessage(turn.text, id=f"m{n}"))
            case "user":
                found.append(HumanMessage(turn.text, id=f"m{n}"))
            case "tool":
                found.append(ToolMessage(turn.text, tool_call_id=turn.answers, id=f"m{n}"))
            case _:
                calls = [{"name": c.name, "args": c.arguments, "id": c.id, "type": "tool_call"} for c in turn.calls]
                found.append(AIMessage(turn.text, tool_calls=calls, id=f"m{n}"))
    return found
