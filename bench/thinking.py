"""Thinking and the tail: the cost if every reply has thinking, alone, with a window that changes, and with recall.

A recorded conversation is replayed with a view at every model call. The next recorded reply answers it, with a signed
thinking block. The signature is the prefix of the block: a block that comes back after another prefix is illegal.
"""

import json
from hashlib import blake2b
from typing import Any

import quire
from bench.figures import Figure
from bench.traces import TRACES, Values, conversation, system
from quire import App

MESSAGES = 800
BUDGETS = (4_000, 8_000, 32_000)
CACHED = 0.1
THOUGHT = "The user wants a change of the booking. The policy allows it only in some cases, so I look at it first. "
KINDS: dict[str, dict[str, bool]] = {
    "no window, no recall": {},
    "one window": {"window": True},
    "recall": {"recall": True},
}
BILLS = {
    ("no window, no recall", 4_000): 592,
    ("no window, no recall", 8_000): 832,
    ("no window, no recall", 32_000): 2_236,
    ("one window", 4_000): 693,
    ("one window", 8_000): 900,
    ("one window", 32_000): 2_354,
    ("recall", 4_000): 745,
    ("recall", 8_000): 997,
    ("recall", 32_000): 2_425,
}
"""The limits: the figures of the prototype."""


class Board(App):
    """A window of about 120 tokens."""

    name = "board"
    changes = 0

    def content(self) -> list[str]:
        """Return some items, one of which depends on the number of changes."""
        return [f"Booking {n}: checked {Board.changes * (n == 3)} times by the desk." for n in range(8)]


class Replay:
    """One replay: the tokens, those read from the cache, and the thinking that came back, was lost, or was illegal."""

    def __init__(self, budget: int, *, window: bool = False, recall: bool = False) -> None:
        self.ctx = quire.open("memory:", budget=budget, key="kestrel")
        self.ctx.system(system())
        self.recall = recall
        self.window = window
        self.calls = self.tokens = self.shared = self.folds = 0
        self.kept = self.possible = self.illegal = self.in_loop = 0
        self._signatures: set[str] = set()
        self._since = 0
        self._last: str = ""
        if window:
            self.ctx.windows.register(Board)
            self.ctx.windows.open("board")

    def play(self) -> None:
        """Replay the conversation."""
        turns = 0
        for message in conversation(MESSAGES):
            if message["role"] == "assistant":
                self.ctx.add(self._with_thinking(message))
                self._since += 1
                continue
            self.ctx.add(message)
            turns += message["role"] == "user"
            if self.window and message["role"] == "user" and turns % 3 == 0:
                Board.changes += 1
            self._call(message["role"])

    def _call(self, role: str) -> None:
        view = self.ctx.render(recall=self.recall or None)
        self.calls += 1
        self.tokens += view.tokens
        self.shared += view.shared_prefix
        if view.fold is not None:
            self.folds += 1
            self.in_loop += role == "tool"
            self._since = 0
        self._last = self._check(view.anthropic())
        self.possible += self._since

    def _check(self, request: Any) -> str:
        """Count the blocks that come back, and those with another prefix. Return the signature of the next block."""
        digest = blake2b(json.dumps(request["system"]).encode())
        for message in request["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else [message["content"]]
            for block in blocks:
                if isinstance(block, dict) and block["type"] == "thinking":
                    self.kept += 1
                    self.illegal += block["signature"] != digest.hexdigest()
                else:
                    digest.update(json.dumps([message["role"], block], ensure_ascii=False).encode())
        return digest.hexdigest()

    def _with_thinking(self, message: Values) -> Values:
        """Return a recorded reply in Anthropic's shape, with a block that is signed for the last request."""
        blocks: list[Values] = [{"type": "thinking", "thinking": THOUGHT, "signature": self._last}]
        blocks += [{"type": "text", "text": message["content"]}] if message["content"] else []
        for call in message.get("tool_calls", ()):
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": name, "input": arguments})
        return {"role": "assistant", "content": blocks}

    @property
    def bill(self) -> float:
        """The mean cost of a call in plain tokens."""
        return (self.tokens - (1 - CACHED) * self.shared) / self.calls

    @property
    def note(self) -> str:
        return (
            f"{self.calls} calls, {100 * self.shared / self.tokens:.1f} % cached, {self.folds} folds, {self.in_loop} of"
            f" them inside a turn; {100 * self.kept / self.possible:.0f} % of the thinking since the fold sent back"
        )


def run() -> list[Figure]:
    """Return all figures of thinking; none without the recorded conversations."""
    if not TRACES.exists():
        return []
    figures = []
    for name, options in KINDS.items():
        for budget in BUDGETS:
            played = Replay(budget, **options)
            played.play()
            label = f"{name}, thinking in every reply, {budget // 1_000}k"
            figures += [
                Figure(f"bill per call: {label}", played.bill, "tokens", BILLS[name, budget], played.note),
                Figure(f"illegal thinking blocks: {label}", played.illegal, "", 0),
            ]
    return figures
