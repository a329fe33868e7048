"""What a version of quire shows and costs, without a clock: the same on every machine. Public names only."""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import quire
from bench import traces
from bench.compare.talks import Dialogue, dialogues, opened
from bench.traces import Values, conversation, cost, system

PRICES = {"fresh": 1.0, "read": 0.1, "write": 1.25}
"""Of an input token: sent anew, read from the provider's cache, sent anew and written to it."""
_MODEL_PROMPT = "You are a helpful companion who remembers what was said."
_HITS = 5
_FACT = re.compile(
    r"https?://[^\s\"'<>)]+|[\w.+-]+@[\w-]+(?:\.\w+)+|(?:/[\w.-]+){2,}|\d{4}-\d\d-\d\d(?:T[\d:]+\d)?|\d{1,2}:\d\d(?::\d\d)?"
    r"|[$€£¥]\d[\d,]*(?:\.\d+)?|\w+(?:Error|Exception)\b|(?=\w*\d)(?=\w*[A-Za-z])\w{3,}|\d+(?:[.,]\d+)*\d"
)
"""Addresses, paths, dates, times, money, names of errors, identifiers with a digit, numbers of two digits."""


class Replay:
    """A conversation that is drawn at every call of a model, and what was sent."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.sums: Counter[str] = Counter()

    def play(self, messages: Iterable[Values], prompt: str, **options: Any) -> quire.Context:
        """Play a conversation and return its context."""
        ctx = opened("memory:", budget=self.budget)
        ctx.system(prompt)
        texts: set[str] = set()
        before: list[Values] = []
        for message in messages:
            ctx.add(message)
            texts.add(message["content"])
            if message["role"] != "assistant":
                before = self._see(ctx.render(**options), before, texts)
        return ctx

    def _see(self, view: quire.View, before: list[Values], texts: set[str]) -> list[Values]:
        sent = view.openai()
        pairs = enumerate(zip(sent, before, strict=False))
        same = next((place for place, (one, other) in pairs if one != other), min(len(sent), len(before)))
        tokens = [cost(message) for message in sent]
        whole = [
            size
            for message, size in zip(sent, tokens, strict=True)
            if message["role"] != "system" and message.get("content") in texts
        ]
        prompt = sum(size for message, size in zip(sent, tokens, strict=True) if message["role"] == "system")
        forms = (("openai", sent), ("responses", view.responses()), ("anthropic", view.anthropic()))
        self.sums.update(
            calls=1,
            tokens=sum(tokens),
            read=sum(tokens[:same]),
            verbatim=sum(whole),
            lines=sum(tokens) - sum(whole) - prompt,
            over=int(max(view.tokens, sum(tokens)) > self.budget),
            illegal=int(any(quire.check_legal(form, provider) for provider, form in forms)),
            folds=int(view.fold is not None),
        )
        return sent


def bill(budget: int, starts: list[int], length: int, recall: bool = False) -> dict[str, float]:
    """Return the means of all calls of some conversations, and how many views are over the budget or illegal."""
    replay = Replay(budget)
    for start in starts:
        replay.play(conversation(length, start), system(), recall=recall or None).close()
    sums = replay.sums
    calls, fresh = sums["calls"], sums["tokens"] - sums["read"]
    return {
        "cached": sums["read"] / sums["tokens"],
        "plain": (PRICES["read"] * sums["read"] + PRICES["fresh"] * fresh) / calls,
        "marked": (PRICES["read"] * sums["read"] + PRICES["write"] * fresh) / calls,
        **{name: sums[name] / calls for name in ("tokens", "verbatim", "lines")},
        **{name: float(sums[name]) for name in ("calls", "over", "illegal", "folds")},
    }


def facts(budget: int, starts: list[int], length: int) -> dict[str, float]:
    """Return how many facts of messages that are not shown whole are in a line, found by `find`, or lost."""
    found: Counter[str] = Counter()
    for start in starts:
        messages = conversation(length, start)
        ctx = Replay(budget).play(messages, system())
        view = [str(message.get("content") or "") for message in ctx.render().openai()]
        text, shown = "\n".join(view), set(view)
        for fact in {
            fact
            for message in messages
            if message["content"] not in shown
            for fact in _FACT.findall(message["content"])
        }:
            found["line" if fact in text else "found" if _is_found(ctx, fact) else "lost"] += 1
        ctx.close()
    return {name: float(found[name]) for name in ("line", "found", "lost")}


def _is_found(ctx: quire.Context, fact: str) -> bool:
    """Return whether one of the first hits for a fact contains it."""
    wanted = fact.casefold()
    for hit in ctx.find(fact, limit=_HITS):
        page = ctx.pages.get_page(hit.index)
        body = ctx.pages.detail(hit.index) if isinstance(page, quire.DetailPage) else ""
        if wanted in f"{page.name} {page.description} {body}".casefold():
            return True
    return False


def strict(budget: int, step: int) -> dict[str, float]:
    """Return how many requests the strict provider refuses, with thinking, a window, notes and recall."""
    from tests.strict_provider.driver import APIS, drive

    sums: Counter[str] = Counter()
    for number, run in enumerate(traces.traces()):
        if number % step:
            continue
        outcome = drive(traces.with_distinct_calls(run), APIS[number // step % len(APIS)], budget, capacity=budget // 8)
        sums.update(calls=outcome.calls, refused=len(outcome.refused), over=len(outcome.too_large))
    return {name: float(sums[name]) for name in ("calls", "refused", "over")}


def shown(name: str, budget: int, recall: float | bool, first: int, step: int) -> dict[str, float]:
    """Return the share of questions with all evidence in the view, and the mean tokens of the views.

    Takes the first dialogues of a data set and every `step`-th question. Each dialogue is drawn as it grows.
    """
    asked = whole = tokens = 0
    part = 0.0
    for dialogue in dialogues(name)[:first]:
        ctx = _told(dialogue, budget)
        end = max(when for when, _ in dialogue.messages) + timedelta(hours=1)
        for question in dialogue.questions[::step]:
            with ctx.temporary():
                ctx.user(question.text, at=end)
                view = ctx.render(recall=recall)
            text = _flat("\n".join(str(message.get("content") or "") for message in view.openai()))
            there = [_flat(each) in text for each in question.evidence]
            asked, whole, tokens = asked + 1, whole + all(there), tokens + view.tokens
            part += sum(there) / len(there)
        ctx.close()
    return {"asked": float(asked), "whole": whole / asked, "part": part / asked, "tokens": tokens / asked}


def _told(dialogue: Dialogue, budget: int) -> quire.Context:
    """Return a dialogue as a program stores it: a view before every reply."""
    ctx = opened("memory:", budget=budget)
    ctx.system(_MODEL_PROMPT)
    for when, message in dialogue.messages:
        ctx.add(message, at=when)
        if message["role"] == "user":
            ctx.render()
    return ctx


def _flat(text: str) -> str:
    """Return a text in one line, because further lines of recalled texts are indented."""
    return " ".join(text.split())
