"""The strategies by name."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from quire.cli.replaying.strategies.base import Setting, Strategy
from quire.cli.replaying.strategies.clearing import ClearedResults
from quire.cli.replaying.strategies.ours import Quire
from quire.cli.replaying.strategies.summarising import Compacted, Summarised
from quire.cli.replaying.strategies.truncating import Flushed, Reducer, Truncation
from quire.cli.replaying.strategies.windows import LastN, Newest, SessionLimit, Sliding, Trimmed, Unmanaged
from quire.errors import InvalidValue

OURS = "quire"


class Kind(NamedTuple):
    """A strategy: its name, how one is made, what it does in a line, and who does just that."""

    name: str
    make: Callable[[Setting], Strategy]
    does: str
    whose: str


_KINDS = (
    Kind(OURS, Quire, "folds the oldest exchanges into lines, seldom and far", "quire"),
    Kind("unmanaged", Unmanaged, "sends everything", "no management at all"),
    Kind("newest", Newest, "the newest messages that fit, calls with their results", "what agents write by hand"),
    Kind("trim", Trimmed, "the newest that fit, from a user message on", "LangChain trim_messages"),
    Kind("last-n", LastN, "the last N messages, wherever that cuts", "pydantic-ai keep_recent"),
    Kind("session-limit", SessionLimit, "the last N as a turn begins", "openai-agents SessionSettings(limit)"),
    Kind("sliding", Sliding, "down to N messages at the end of a turn", "strands SlidingWindowConversationManager"),
    Kind("reducer", Reducer, "above N messages, down to 3/4 of them", "semantic-kernel ChatHistoryTruncationReducer"),
    Kind(
        "truncation", Truncation, "above the budget, down to half of it", "Microsoft Agent Framework TruncationStrategy"
    ),
    Kind("flush", Flushed, "above 70 %, a tenth at a time", "llama-index Memory"),
    Kind(
        "clear-tools", ClearedResults, "from half on, clears all but 3 results", "Anthropic clear_tool_uses, LangChain"
    ),
    Kind(
        "summarise",
        Summarised,
        "at 85 %, a summary of all but a tenth",
        "LangChain SummarizationMiddleware, deepagents",
    ),
    Kind("compact", Compacted, "at 75 %, a summary of everything", "Anthropic compaction, coding agents"),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
"""All strategies, quire first."""


def chosen(names: str | None) -> Sequence[Kind]:
    """The strategies of a list such as `newest,compact`, and quire; all of them for None. Raises `InvalidValue`."""
    if names is None:
        return _KINDS
    asked = [name.strip() for name in names.split(",") if name.strip()]
    unknown = next((name for name in asked if name not in KINDS), None)
    if unknown is not None or not asked:
        from difflib import get_close_matches

        near = get_close_matches(unknown or "", KINDS, n=1, cutoff=0.5)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidValue(f"strategies is {unknown or names!r}; there are {', '.join(KINDS)}.{meant}")
    return [kind for kind in _KINDS if kind.name in (OURS, *asked)]
