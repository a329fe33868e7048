"""Anthropic SDK: a turn with a model in one call, and the memory tool with a context behind it.

    ctx.user("Which flights are there?")
    reply = complete(client, ctx, model="claude-sonnet-5", max_tokens=1_000, tools=[QuireMemoryTool(ctx)])

The view is sent with cache marks, the answer added, its usage reported; calls of the context's tools and of yours are
run, and the model is asked again until it answers. `a…` are for async clients, `stream…` give what arrives as it
arrives. `client` can be `client.beta` too.
"""

from quire.adapters.anthropic.asking import acomplete, astream, complete, stream
from quire.adapters.anthropic.memory import QuireAsyncMemoryTool, QuireMemoryTool
from quire.adapters.shared.turns import TurnOptions

__all__ = ["QuireAsyncMemoryTool", "QuireMemoryTool", "TurnOptions", "acomplete", "astream", "complete", "stream"]
