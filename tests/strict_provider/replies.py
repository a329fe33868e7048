"""The answers of the scripted model."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

Body = dict[str, Any]


class Call(NamedTuple):
    """A tool call of the scripted model. A text as `arguments` makes a custom call of Responses.

    `namespace` is that of the tool in Responses.
    """

    id: str
    name: str
    arguments: Body | str
    namespace: str = ""


class Fault(NamedTuple):
    """An error instead of an answer: 429, 500 or 529."""

    status: int
    message: str = ""
    retry_after: str = ""


class Reply(NamedTuple):
    """An answer of the scripted model.

    `thinking` has the texts of its thinking blocks, in front of the text and the calls; an empty text is a redacted
    block. `truncated` means that `max_tokens` cut it off. A stream ends after `cut` events: without a last chunk, or
    cleanly if `clean`, or with an error event if there is a `fault`. `pause` is the time before each event in seconds.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: tuple[str, ...] = ()
    truncated: bool = False
    cut: int | None = None
    clean: bool = False
    fault: Fault | None = None
    pause: float = 0.0


Script = Callable[[Body], Reply | Fault]
"""Takes the body of a request and returns the answer."""

_WORDS = [
    "the",
    "booking",
    "was",
    "moved",
    "to",
    "a",
    "later",
    "flight",
    "and",
    "the",
    "fare",
    "changes",
    "by",
    "forty",
    "euros",
    "before",
    "noon",
]


def make_script(seed: int, *, faults: float = 0.0) -> Script:
    """Return a script of random answers: text, thinking, up to three parallel calls of the request's tools, faults.

    After a tool result it calls again in one of two cases, so every loop ends.
    """
    random = Random(seed)
    numbers = iter(range(10**9))

    def say(most: int) -> str:
        return " ".join(random.choices(_WORDS, k=random.randint(1, most)))

    def answer(body: Body) -> Reply | Fault:
        if random.random() < faults:
            return Fault(random.choice((429, 500, 529)))
        thinking = tuple(say(30) for _ in range(random.choice((0, 1, 1, 2))))
        if thinking and random.random() < 0.05:
            return Reply(thinking=thinking, truncated=True)
        names = [(tool.get("function") or tool)["name"] for tool in body.get("tools") or ()]
        if not names or random.random() < 0.5:
            return Reply(say(60), thinking=thinking)
        calls = [Call(f"call_{next(numbers)}", random.choice(names), {"query": say(5)}) for _ in range(3)]
        return Reply(random.choice(("", say(10))), tuple(calls[: random.randint(1, 3)]), thinking)

    return answer
