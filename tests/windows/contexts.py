"""Contexts with windows, and their windows in views."""

from typing import Any

import quire
from quire import Context
from quire.windows.apps import Todo
from tests.windows.sample_apps import Counter


def opened(where: Any = "memory:", **options: Any) -> Context:
    ctx = quire.open(where, budget=options.pop("budget", 8_000), key="kestrel", **options)
    ctx.windows.register(Counter)
    ctx.windows.register(Todo)
    return ctx


def frames(ctx: Context, **options: Any) -> list[str]:
    """Return the windows of a view."""
    return [message.text for message in ctx.render(**options).messages if message.text.startswith("<Window ")]


def numbers(ctx: Context, **options: Any) -> list[str]:
    """Return the numbers of the counters in a view."""
    return [text.partition("#")[2].partition("#")[0] for text in frames(ctx, **options)]
