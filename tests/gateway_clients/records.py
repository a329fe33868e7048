"""What a gateway recorded of the runs of real clients."""

from pathlib import Path

import quire
from quire.gateway.gateway_server import RunningGateway


def record_of(gateway: RunningGateway, folder: Path) -> dict[str, list[quire.Message]]:
    """Return the messages of every recorded conversation, by the end of its name."""
    gateway.stop()
    with quire.Library(folder / "agent.db") as reader:
        found = {}
        for name in reader.list(prefix="gateway/"):
            with reader.open(name) as context:
                found[name.rpartition("/")[2]] = list(context.messages())
        return found


def calls_in(messages: list[quire.Message]) -> list[str]:
    return [call.id for message in messages for call in message.tool_calls or ()]


def results_in(messages: list[quire.Message]) -> list[str]:
    return [str(message.tool_call_id) for message in messages if message.role == "tool"]


def answers_in(messages: list[quire.Message]) -> int:
    return sum(message.role == "assistant" for message in messages)
