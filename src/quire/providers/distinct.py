"""Call ids that differ throughout a list: some models count their calls anew in every answer, some providers mind.

Within one exchange a result finds its call by the id, whoever else used it before. Anthropic wants every id once in a
request, and servers of the Responses API pair calls and outputs across the whole list.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from quire.messages import Message, ToolCall


def with_distinct_calls(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with another id for every call whose id was used before, and for its result.

    What an id becomes depends on what stands before it only, so that a list that grows at its end stays as it was.
    """
    ids = [call.id for message in messages for call in message.tool_calls]
    if len(set(ids)) == len(ids):
        return messages
    times: dict[str, int] = {}
    renamed: dict[str, str] = {}
    changed: list[Message] = []
    for message in messages:
        if message.tool_calls:
            calls = tuple(_renamed(call, times) for call in message.tool_calls)
            renamed |= {old.id: new.id for old, new in zip(message.tool_calls, calls, strict=True)}
            message = message if calls == message.tool_calls else replace(message, tool_calls=calls, raw=None)
        elif message.role == "tool":
            known = renamed.get(message.tool_call_id or "", message.tool_call_id)
            message = message if known == message.tool_call_id else replace(message, tool_call_id=known, raw=None)
        changed.append(message)
    return changed


def _renamed(call: ToolCall, times: dict[str, int]) -> ToolCall:
    """The call with an id that none before it has; `times` says how often each was used."""
    fresh = call.id
    while fresh in times:
        times[call.id] += 1
        fresh = f"{call.id}_{times[call.id]}"
    times[fresh] = 1
    return call if fresh == call.id else replace(call, id=fresh)
