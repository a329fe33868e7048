"""What a version of quire shows and costs, without a clock: the same on every machine. Public names only."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import quire
from bench.compare.talks import dialogues, opened
from bench.traces import Values, conversation, cost, system, traces, with_distinct_calls

PRICES = {"fresh": 1.0, "read": 0.1, "write": 1.25}
"""Of an input token: sent anew, read from the provider's cache, sent anew and written to it."""
_PROMPT = "You are a helpful companion who remembers what was said."
_FACT = re.compile(
    r"https?://[^\s\"'<>)]+|[\w.+-]+@[\w-]+(?:\.\w+)+|(?:/[\w.-]+){2,}|\d{4}-\d\d-\d\d(?:T[\d:]+\d)?|\d{1,2}:\d\d(?::\d\d)?"
    r"|[$€£¥]\d[\d,]*(?:\.\d+)?|\w+(?:Error|Exception)\b|(?=\w*\d)(?=\w*[A-Za-z])\w{3,}|\d+(?:[.,]\d+)*\d"
)
"""Addresses, paths, dates, times, money, names of errors, identifiers with a digit, numbers of two digits."""


def bill(budget: int, starts: list[int], length: int, recall: bool = False) -> dict[str, float]:
    """Return the means of all calls of some conversations, and how many views are over the budget or illegal."""
    sums: Counter[str] = Counter()
    for start in starts:
        _play(conversation(length, start), budget, sums, recall).close()
    calls, read, fresh = sums["calls"], sums["read"], sums["tokens"] - sums["read"]
    return {
        "cached share": read / sums["tokens"],
        "bill of a call, writing is free": (PRICES["read"] * read + PRICES["fresh"] * fresh) / calls,
        "bill of a call": (PRICES["read"] * read + PRICES["write"] * fresh) / calls,
        "tokens of a view": sums["tokens"] / calls,
        "tokens of whole messages": sums["verbatim"] / calls,
        "tokens of lines": sums["lines"] / calls,
        **{name: sums[name] for name in ("folds", "views over the budget", "illegal views")},
    }


def _play(messages: Sequence[Values], budget: int, sums: Counter[str], recall: bool = False) -> quire.Context:
    """Draw a conversation at every call of a model and add up what was sent. Return the context."""
    ctx = opened("memory:", budget=budget)
    ctx.system(system())
    texts: set[str] = set()
    before: list[Values] = []
    for message in messages:
        ctx.add(message)
        texts.add(message["content"])
        if message["role"] != "assistant":
            view = ctx.render(recall=recall)
            sent = view.openai()
            sums.update(_judge(view, sent, before, texts))
            before = sent
    return ctx


def _judge(view: quire.View, sent: list[Values], before: list[Values], texts: set[str]) -> dict[str, int]:
    """Return the tokens of a view by what they are, and its faults."""
    same = next((n for n, pair in enumerate(zip(sent, before, strict=False)) if pair[0] != pair[1]), len(before))
    sizes = [cost(message) for message in sent]
    kinds: Counter[str] = Counter()
    for message, size in zip(sent, sizes, strict=True):
        is_whole = message.get("content") in texts
        kinds["prompt" if message["role"] == "system" else "verbatim" if is_whole else "lines"] += size
    illegal = [
        *quire.check_legal(sent, "openai"),
        *quire.check_legal(view.responses(), "responses"),
        *quire.check_legal(view.anthropic(), "anthropic"),
    ]
    faults = {"over": max(view.tokens, sum(sizes)) > view.budget, "illegal": bool(illegal)}
    return {
        "calls": 1,
        "tokens": sum(sizes),
        "read": sum(sizes[:same]),
        "folds": view.fold is not None,
        **kinds,
        **faults,
    }


def facts(budget: int, starts: list[int], length: int) -> dict[str, float]:
    """Return how many facts of messages that are not shown whole are in a line, found by `find`, or lost."""
    counts = [0, 0, 0]
    for start in starts:
        messages = conversation(length, start)
        ctx = _play(messages, budget, Counter())
        view = [str(message.get("content") or "") for message in ctx.render().openai()]
        text, hidden = "\n".join(view), {message["content"] for message in messages} - {*view}
        for fact in {fact for content in hidden for fact in _FACT.findall(content)}:
            counts[0 if fact in text else 1 if _is_found(ctx, fact) else 2] += 1
        ctx.close()
    names = ("facts in a line", "facts that find returns", "facts lost")
    return dict(zip(names, counts, strict=True))


def _is_found(ctx: quire.Context, fact: str) -> bool:
    """Return whether one of the first five hits for a fact contains it."""
    for page in (ctx.pages.get_page(hit.index) for hit in ctx.find(fact, limit=5)):
        body = ctx.pages.detail(page.index) if isinstance(page, quire.DetailPage) else ""
        if fact.casefold() in f"{page.name} {page.description} {body}".casefold():
            return True
    return False


def strict(budget: int, step: int) -> dict[str, float]:
    """Return how many requests the strict provider refuses, with thinking, a window, notes and recall."""
    from tests.strict_provider.driver import APIS, drive

    calls = refused = large = 0
    for number, run in enumerate(traces()[::step]):
        outcome = drive(with_distinct_calls(run), APIS[number % len(APIS)], budget, capacity=budget // 8)
        calls += outcome.calls
        refused += len(outcome.refused)
        large += len(outcome.too_large)
    return {"requests judged strictly": calls, "requests refused": refused, "requests over a limit": large}


def shown(name: str, budget: int, recall: float | bool, first: int, step: int) -> dict[str, float]:
    """Return the share of questions with all evidence in the view, and the mean tokens of the views.

    Takes the first dialogues of a data set and every `step`-th question. A dialogue is drawn before every reply.
    """
    asked = whole = tokens = 0
    part = 0.0
    for dialogue in dialogues(name)[:first]:
        ctx = opened("memory:", budget=budget)
        ctx.system(_PROMPT)
        for when, message in dialogue.messages:
            ctx.add(message, at=when)
            if message["role"] == "user":
                ctx.render()
        end = max(when for when, _ in dialogue.messages) + timedelta(hours=1)
        for question, answers in dialogue.questions[::step]:
            with ctx.temporary():
                ctx.user(question, at=end)
                view = ctx.render(recall=recall)
            words = " ".join(str(message.get("content") or "") for message in view.openai()).split()
            text = " ".join(words)  # in one line, because further lines of recalled texts are indented
            there = [" ".join(each.split()) in text for each in answers]
            asked, whole, tokens = asked + 1, whole + all(there), tokens + view.tokens
            part += sum(there) / len(there)
        ctx.close()
    return {"all evidence": whole / asked, "part of evidence": part / asked, "tokens": tokens / asked}
