"""Drive a conversation through quire, and let the strict provider judge every request.

Every reply of the model thinks. A window is open and changes at every third turn, recall is on, and the model writes a
note at every third turn. Each view is checked in all three forms; the replies are in the form of one API.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

import quire
from quire.windows.apps import Todo
from tests.strict_provider import anthropic_answers, chat_answers, responses_answers
from tests.strict_provider.replies import Call, Reply
from tests.strict_provider.requests import Api, Body, Problem, Request, State
from tests.strict_provider.rules import check_request
from tests.strict_provider.signatures import find_thinking
from tests.strict_provider.tokens import count_request

APIS: tuple[Api, ...] = ("anthropic", "chat", "responses")
MODEL = "claude-fable-5-1"
EVERY = 3
"""The window changes, and the model writes a note, at every third turn."""
_ANSWERS: Mapping[Api, ModuleType] = {
    "anthropic": anthropic_answers,
    "chat": chat_answers,
    "responses": responses_answers,
}


Disturb = Callable[[quire.Context], object]
"""A change of the context before a turn."""


class TooLarge(NamedTuple):
    """A view above a limit: the call, the limit, its tokens by quire's count and by the provider's."""

    call: int
    limit: str
    allowed: int
    tokens: int
    counted: int


@dataclass
class Outcome:
    """The results of one or more conversations."""

    calls: int = 0
    folds: int = 0
    thinking: int = 0
    """Thinking blocks and reasoning items that were sent back."""
    in_loop: int = 0
    """Requests in a tool loop without any thinking: the APIs accept them, but the model loses its thoughts."""
    notes: int = 0
    """Notes that the model wrote."""
    refused: list[tuple[int, Api, Problem]] = field(default_factory=list)
    too_large: list[TooLarge] = field(default_factory=list)
    floors: list[tuple[int, str]] = field(default_factory=list)
    """Calls that quire refused because what must be shown exceeds the budget."""

    def __iadd__(self, other: "Outcome") -> "Outcome":
        for name in ("calls", "folds", "thinking", "in_loop", "notes", "refused", "too_large", "floors"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def count_causes(self) -> Counter[str]:
        """Return how often each rule refused a request."""
        return Counter(f"{api}: {problem.rule}" for _, api, problem in self.refused)


class Driver:
    """One conversation: the model answers with the next recorded reply, and every request is judged first."""

    def __init__(self, api: Api, budget: int, *, capacity: int = 0, disturb: Disturb | None = None) -> None:
        self.api, self.budget, self.capacity = api, budget, capacity
        self.ctx = quire.open("memory:", budget=budget, key="kestrel-fen-quarry")
        self.state = State(limit=budget, bind_reasoning=True)
        self._others = State(limit=2 * budget)  # room is reserved for the tools in the form of `api`
        self.outcome = Outcome()
        if capacity:
            self.ctx.pages.update_segment("mem", max_capacity=capacity)
        self.ctx.windows.register(Todo)
        self.ctx.windows.open("todo")
        for number in range(8):
            self.ctx.windows.act("todo_1", "add", text=f"Booking {number}: wait for the answer of the desk.")
        self._disturb = disturb
        self._turns = 0
        self._in_loop = False

    def play(self, messages: Iterable[Body]) -> Outcome:
        """Replay a conversation in the form of OpenAI chat."""
        for message in messages:
            match message["role"]:
                case "system":
                    self.ctx.system(message["content"])
                case "user":
                    self._start_turn(message["content"])
                case "assistant":
                    self._reply(_to_reply(message, self.outcome.calls))
                case _:
                    self._add_result(message["tool_call_id"], message["content"])
        written = [page for page in self.ctx.pages.list_pages("mem") if page.name.startswith("note ")]
        assert len(written) == self.outcome.notes, "a note was not written"
        return self.outcome

    def _start_turn(self, content: str) -> None:
        self._turns += 1
        self._in_loop = False
        if self._disturb is not None:
            self._disturb(self.ctx)
        self.ctx.user(content)
        if self._turns % EVERY == 0:
            self.ctx.windows.act("todo_1", "done", index=3, done=self._turns % 2 == 0)
            note = {"name": f"note {self._turns}", "text": f"The user said in turn {self._turns}: {content[:200]}"}
            call = Call(f"note_{self._turns}", "write_page", note)
            self._reply(Reply("", (call,), (_think(self.outcome.calls),)))
            self._add_result(call.id, self.ctx.tools.call(call.name, call.arguments))
            self.outcome.notes += 1

    def _add_result(self, call_id: str, content: str) -> None:
        self._in_loop = True
        self.ctx.tool_result(call_id, content)

    def _reply(self, reply: Reply) -> None:
        """Render, judge the requests, and add the reply."""
        outcome = self.outcome
        outcome.calls += 1
        try:
            view = self.ctx.render(recall=True, tools=self._tools(self.api))
        except quire.IrreducibleFloor as error:
            outcome.floors.append((outcome.calls, str(error)))
            self.ctx.assistant(reply.text or None, [_to_chat_call(call) for call in reply.calls])
            return
        outcome.folds += view.fold is not None
        request = Request(self.api, self._request(view, self.api))
        self._measure(view, request)
        for api in APIS:
            is_own = api == self.api
            body = request.body if is_own else self._request(view, api)
            problem = check_request(api, body, self.state if is_own else self._others)
            if problem is not None:
                outcome.refused.append((outcome.calls, api, problem))
        thinking, _ = find_thinking(request)
        outcome.thinking += len(thinking)
        outcome.in_loop += self._in_loop and not thinking
        answer = _ANSWERS[self.api].make_answer(request, reply, self.state, outcome.calls)
        self.ctx.add(answer)

    def _request(self, view: quire.View, api: Api) -> Body:
        tools = self._tools(api)
        match api:
            case "anthropic":
                return {"model": MODEL, "max_tokens": 1_000, "tools": tools, **view.anthropic(cache=True, model=MODEL)}
            case "chat":
                return {"model": MODEL, "tools": tools, "messages": view.openai()}
            case _:
                include = ["reasoning.encrypted_content"]
                body = {"model": MODEL, "tools": tools, "input": view.responses(model=MODEL)}
                return {**body, "store": False, "include": include}

    def _tools(self, api: Api) -> list[Body]:
        tools = self.ctx.tools.only("find", "write_page")
        return {"anthropic": tools.anthropic, "chat": tools.openai, "responses": tools.responses}[api]()

    def _measure(self, view: quire.View, request: Request) -> None:
        """Compare the view with the budget, and its notes with their capacity; recalled notes do not count there."""
        counted = count_request(request)
        if max(view.tokens, counted) > self.budget:
            self._exceed("budget", self.budget, view.tokens, counted)
        shown = [page for part in view.parts if part.kind != "recalled" for page in part.pages]
        notes = sum(page.tokens for page in shown if page.index.startswith("mem-"))
        if self.capacity and notes > self.capacity:
            self._exceed("capacity of mem", self.capacity, notes, notes)

    def _exceed(self, limit: str, allowed: int, tokens: int, counted: int) -> None:
        self.outcome.too_large.append(TooLarge(self.outcome.calls, limit, allowed, tokens, counted))


def _think(number: int) -> str:
    return f"Thought {number}: the user wants a change, so I look at the policy first. " * (1 + number % 3)


def _to_reply(message: Body, number: int) -> Reply:
    calls = [
        Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    if message.get("truncated"):
        return Reply(thinking=(_think(number),), truncated=True)
    return Reply(message.get("content") or "", tuple(calls), (_think(number),))


def _to_chat_call(call: Call) -> Body:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}


_TOPICS = (
    "a flight to Seattle",
    "the invoice of May",
    "seat 14C",
    "上海的酒店",
    "the refund QX-4471-Z",
    "a window seat",
)


def make_talk(seed: int, turns: int) -> Iterator[Body]:
    """Yield a conversation in the form of OpenAI chat: loops of parallel calls, long results, cut-off replies."""
    random = Random(seed)
    numbers = iter(range(10**9))
    yield {"role": "system", "content": "You are a careful travel agent. Look up what you do not know."}
    for turn in range(turns):
        topic = random.choice(_TOPICS)
        yield {
            "role": "user",
            "content": f"Turn {turn}: what about {topic}? " + "Please be exact. " * random.randint(0, 9),
        }
        if random.random() < 0.1:
            yield {"role": "assistant", "truncated": True}
            yield {"role": "user", "content": "Go on."}
        for _ in range(random.choice((0, 0, 1, 2, 6))):
            ids = [f"call_{next(numbers)}" for _ in range(random.randint(1, 3))]
            called = [_to_chat_call(Call(call_id, "look_up", {"topic": topic})) for call_id in ids]
            yield {"role": "assistant", "content": random.choice((None, "Let me see.")), "tool_calls": called}
            for call_id in ids:
                found = f"{topic}: record {turn}-{call_id}. " + "More words about it. " * random.choice((1, 9, 80))
                yield {"role": "tool", "tool_call_id": call_id, "content": found}
        yield {
            "role": "assistant",
            "content": f"About {topic}: it is booked under {turn:04}-Q. " + "Anything else? " * 3,
        }


def make_loop(steps: int) -> Iterator[Body]:
    """Yield one user message and an answer that needs this many tool calls, one after the other."""
    yield {"role": "system", "content": "You are a careful engineer."}
    yield {"role": "user", "content": "Fix the failing test."}
    for step in range(steps):
        call = _to_chat_call(Call(f"call_{step}", "run", {"command": f"pytest tests/{step}"}))
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": call["id"], "content": f"{step} failed. " + "A line of the log. " * 20}
    yield {"role": "assistant", "content": "It is fixed."}


def drive(messages: Sequence[Body], api: Api, budget: int, **options: Any) -> Outcome:
    """Return the outcome of one conversation."""
    return Driver(api, budget, **options).play(messages)
