"""Scripts for the strict provider, and what they leave in a context."""

import quire
from tests.strict_provider import Body, Call, Reply, StrictProvider


def calling(endpoint: StrictProvider, *calls: Call) -> None:
    """Let the model make these calls once, then answer with the results that it sees."""

    def script(body: Body) -> Reply:
        return Reply("", calls) if len(endpoint.requests) == 1 else Reply("Done.")

    endpoint.script = script


def results(ctx: quire.Context) -> dict[str, str]:
    return {str(message.tool_call_id): message.text for message in ctx.messages() if message.role == "tool"}
