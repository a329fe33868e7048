"""The handlers of the routes: each makes a few library calls and fills a response. `quire.server.routes` calls them.

A handler declares its parameters as keyword-only arguments of the types below, which validate and document them;
`quire.server.routes` derives the request type from them.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Limit = Annotated[int, Meta(ge=1, le=1_000, description="The largest number of items to return.")]
Seq = Annotated[int, Meta(ge=0, le=2**53)]
Budget = Annotated[int, Meta(ge=0, le=10_000_000, description="Tokens; by default the budget of the context.")]
Share = Annotated[float, Meta(ge=0, le=1, description="Recall relevant pages, using at most this share of the budget.")]
Format = Literal["openai", "anthropic", "responses"]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Index = Annotated[str, Meta(min_length=1, max_length=64, description="A page index, such as usr-7.")]


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Return changes after this entry; by default, or beyond the last entry, new changes only.

    The header Last-Event-ID has the same meaning.
    """

    after: Seq | None = None


class History(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The history to import."""

    messages: list[Any]


ActionArguments = dict[str, Any]
"""The arguments of a window's action, by name."""
MessageOrList = dict[str, Any] | list[Any]
"""A message in any provider's format, or a list of them."""
HistoryOrList = History | list[Any]
