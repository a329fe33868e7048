"""An app for the tests, contexts with it, and their windows in views."""

from typing import Any

import quire
from quire import App, Close, Context, Refresh, action
from quire.windows.apps import Todo


class Counter(App):
    """Counts; shows its number in a unique form."""

    name = "counter"
    description = "A counter"

    def __init__(self) -> None:
        self.number = 0
        self.padding = ""

    def open(self, start: int = 0, padding: int = 0) -> None:
        self.number = start
        self.padding = "word " * padding

    def content(self) -> str:
        return f"#{self.id}={self.number}# {self.padding}".strip()

    @action("Count on")
    def count(self, by: int = 1) -> str:
        self.number += by
        return f"{self.number} now"

    @action("Count on, and be refreshed")
    def renew(self) -> Refresh:
        self.number += 1
        return Refresh("renewed")

    @action("Have done")
    def finish(self, summary: str = "") -> Close:
        return Close(summary or f"counted to {self.number}", "finished")

    @action("Change and fail")
    def fail(self) -> None:
        self.number += 1_000
        raise RuntimeError("counted too far")

    def save(self) -> dict[str, Any]:
        return {"number": self.number, "padding": self.padding}

    def restore(self, saved: Any) -> None:
        self.number, self.padding = saved["number"], saved["padding"]


def opened(where: Any = "memory:", budget: int | None = 8_000, **options: Any) -> Context:
    ctx = quire.open(where, budget=budget, key="kestrel", **options)
    ctx.windows.register(Counter)
    ctx.windows.register(Todo)
    return ctx


def frames(ctx: Context, **options: Any) -> list[str]:
    """Return the windows of a view."""
    return [message.text for message in ctx.render(**options).messages if message.text.startswith("<Window ")]


def numbers(ctx: Context, **options: Any) -> list[str]:
    """Return the numbers of the counters in a view."""
    return [text.partition("#")[2].partition("#")[0] for text in frames(ctx, **options)]
