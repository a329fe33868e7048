"""How long ago the last view was sent: after a long pause the provider has forgotten it."""

from quire.records import PageRecord
from quire.state import State

_LOOKED_AT = 64
"""How many of the newest messages are looked at: a reply is among the last few, or there was none for long."""


def answered_at(state: State) -> int:
    """When the newest message of the assistant's came, in milliseconds since 1970; 0 if none is near the end."""
    newest = state.next_message - 1
    for number in range(newest, max(-1, newest - _LOOKED_AT), -1):
        found = state.message(number)
        page = state.page(found.page) if found.message.role == "assistant" else None
        if isinstance(page, PageRecord):  # one that was removed or moved tells no time
            return page.header.created
    return 0
