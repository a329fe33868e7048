"""Strategies that keep a conversation within a budget: quire, and twelve others in a few lines each.

Only quire's own code runs here. Each other strategy does what the named package does, according to its documentation
and source. Settings that the package leaves to its user are derived from the budget.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import structs

import quire
from quire import Message
from quire.cli.replay.pricing import TokenCounts
from quire.errors import InvalidValue

QUIRE = "quire"
SUMMARY_TOKENS = 400
INSTRUCTION_TOKENS = 491
"""The tokens of a summariser's instructions: those of LangChain's prompt."""

_MIN_WINDOW = 4
_REDUCER_SLACK = 0.25
_TRUNCATION_TARGET = 0.5
_FLUSH_TRIGGER, _FLUSH_CHUNK = 0.7, 0.1
_CLEAR_TRIGGER, _UNCLEARED_RESULTS = 0.5, 3
_CLEARED = "[cleared]"
_SUMMARY_TRIGGER, _SUMMARY_REST = 0.85, 0.10
_COMPACT_TRIGGER = 0.75
_SUMMARY_START = "Here is a summary of the conversation to date, number"


class SummaryCall(NamedTuple):
    """A model call that a strategy makes for a summary: its input, its instructions, and its output.

    If `follows` is set, it is the last request of the conversation with a question added, and uses the prompt cache.
    Otherwise it has a separate prompt.
    """

    messages: Sequence[Message]
    instructions: int
    written: int
    follows: bool


class StrategySetup(NamedTuple):
    """The setup of a strategy: the prompt, the budget, and the mean tokens of a message."""

    prompt: Message | None
    budget: int
    mean: float
    counts: TokenCounts

    @property
    def room(self) -> int:
        """The budget without the prompt."""
        return max(0, self.budget - (self.counts.of(self.prompt) if self.prompt else 0))

    @property
    def window(self) -> int:
        """The number of messages of mean length that fit the budget."""
        return max(_MIN_WINDOW, int(self.room / max(1.0, self.mean)))


class Strategy:
    """Manages one conversation: messages are added one by one, and each request is rendered.

    By itself it sends the prompt and all messages.
    """

    def __init__(self, setup: StrategySetup) -> None:
        self._setup = setup
        self._counts = setup.counts
        self._prompt = [] if setup.prompt is None else [setup.prompt]
        self._messages: list[Message] = []

    def add(self, message: Message) -> None:
        """Add a message. The prompt is not added: it is part of the setup."""
        self._messages.append(message)

    def render(self) -> Sequence[Message]:
        """Return the messages that would be sent now, the prompt first."""
        return (*self._prompt, *self._messages)

    def take_summary_calls(self) -> Sequence[SummaryCall]:
        """Return the summary calls since the last time."""
        return ()

    def _tokens(self) -> int:
        """Return the tokens of the prompt and all messages."""
        return self._counts.total(self._prompt) + self._counts.total(self._messages)


class QuireStrategy(Strategy):
    """A context in memory that folds without a model."""

    def __init__(self, setup: StrategySetup) -> None:
        super().__init__(setup)
        self.context = quire.open("memory:", budget=setup.budget)
        if setup.prompt is not None:
            self.context.add(setup.prompt)

    def add(self, message: Message) -> None:
        self.context.add(message)

    def render(self) -> Sequence[Message]:
        """Return the messages of the view. Raises `IrreducibleFloor` if the budget is too small."""
        return self.context.render().messages


class NewestMessages(Strategy):
    """Sends the prompt and the newest messages that fit. A call and its results stay together."""

    def render(self) -> Sequence[Message]:
        room, first = self._setup.room, len(self._messages)
        for place in reversed(range(len(self._messages))):
            room -= self._counts.of(self._messages[place])
            if room < 0:
                break
            if place == 0 or self._messages[place].role != "tool":
                first = place
        return (*self._prompt, *self._messages[first:])


class TrimmedMessages(Strategy):
    """Sends the newest messages that fit, starting with a user message.

    If the last turn does not fit, it sends only the prompt.
    """

    def render(self) -> Sequence[Message]:
        room, first = self._setup.room, len(self._messages)
        while first and room >= self._counts.of(self._messages[first - 1]):
            first -= 1
            room -= self._counts.of(self._messages[first])
        while first < len(self._messages) and self._messages[first].role != "user":
            first += 1
        return (*self._prompt, *self._messages[first:])


class LastMessages(Strategy):
    """Sends the last N messages at every call, even if that separates a result from its call."""

    def render(self) -> Sequence[Message]:
        return (*self._prompt, *self._messages[-self._setup.window :])


class SessionLimit(Strategy):
    """Starts each turn with the last N messages, without incomplete calls, and sends the whole turn after them."""

    def __init__(self, setup: StrategySetup) -> None:
        super().__init__(setup)
        self._turn: list[Message] = []

    def add(self, message: Message) -> None:
        if message.role == "user":
            self._turn = _complete_calls(self._messages[-self._setup.window :])
        self._turn.append(message)
        super().add(message)

    def render(self) -> Sequence[Message]:
        return (*self._prompt, *self._turn)


class SlidingMessages(Strategy):
    """At the end of a turn, drops the oldest messages until N are left, starting with a user message.

    Without a user message among the last N, it starts with a call that has its result.
    """

    def add(self, message: Message) -> None:
        super().add(message)
        ends_turn = message.role == "assistant" and not message.tool_calls
        if ends_turn and len(self._messages) > self._setup.window:
            del self._messages[: self._cut(len(self._messages) - self._setup.window)]

    def _cut(self, start: int) -> int:
        messages, later = self._messages, range(start, len(self._messages))
        user = next((place for place in later if messages[place].role == "user"), None)
        calls = (place for place in later[:-1] if messages[place + 1].role == "tool" and messages[place].tool_calls)
        return next(calls, 0) if user is None else user


class Reducer(Strategy):
    """Above N messages, keeps three quarters. Calls keep their results. It prefers to start with a user message.

    N includes the prompt, which stays.
    """

    def __init__(self, setup: StrategySetup) -> None:
        super().__init__(setup)
        self._slack = int(setup.window * _REDUCER_SLACK)
        self._target = setup.window - self._slack

    def render(self) -> Sequence[Message]:
        history = [*self._prompt, *self._messages]
        if len(history) > self._target + self._slack:
            self._messages = self._messages[self._cut(self._target - len(self._prompt)) :]
        return super().render()

    def _cut(self, target: int) -> int:
        """Return the place of the first message to keep."""
        messages = self._messages
        place, earliest = len(messages) - target, len(messages) - target - self._slack
        while place > 0 and _belongs_to_call(messages[place]) and _belongs_to_call(messages[place - 1]):
            place -= 1
        users = (n for n in range(place, max(0, earliest) - 1, -1) if messages[n].role == "user")
        return next(users, place)


class Truncation(Strategy):
    """Above the budget, drops the oldest calls with their results, and messages, until half of the budget is left."""

    def render(self) -> Sequence[Message]:
        tokens = self._tokens()
        if tokens > self._setup.budget:
            groups, dropped = _group_calls(self._messages), 0
            while dropped < len(groups) and tokens > _TRUNCATION_TARGET * self._setup.budget:
                tokens -= self._counts.total(groups[dropped])
                dropped += 1
            self._messages = [message for group in groups[dropped:] for message in group]
        return super().render()


class Flush(Strategy):
    """Above 70 % of the room, drops chunks of a tenth, each up to the next user message. The last turn stays."""

    def add(self, message: Message) -> None:
        super().add(message)
        limit = _FLUSH_TRIGGER * self._setup.room
        while self._counts.total(self._messages) > limit and len(self._messages) > 1:
            if not self._flush():
                break

    def _flush(self) -> bool:
        """Drop a chunk, and return whether there was one."""
        messages, end, tokens = self._messages, 0, 0
        last = len(messages) - 1
        while tokens < int(_FLUSH_CHUNK * self._setup.room) and end < last:
            tokens += self._counts.of(messages[end])
            end += 1
        while messages[end].role != "user" and end < last:
            end += 1
        if end == last and messages[end].role != "user":  # only the end of the last turn is left: keep the turn
            users = (place for place in range(last, -1, -1) if messages[place].role == "user")
            end = next(users, len(messages))
        del messages[:end]
        return end > 0


class ClearedResults(Strategy):
    """Above half of the budget, replaces all tool results but the last three by a placeholder; drops nothing."""

    def __init__(self, setup: StrategySetup) -> None:
        super().__init__(setup)
        self._placeholders: dict[int, Message] = {}
        self._size = self._counts.total(self._prompt)

    def add(self, message: Message) -> None:
        super().add(message)
        self._size += self._counts.of(message)

    def render(self) -> Sequence[Message]:
        if self._size <= _CLEAR_TRIGGER * self._setup.budget:
            return super().render()
        results = [place for place, message in enumerate(self._messages) if message.role == "tool"]
        request = list(self._messages)
        for place in results[:-_UNCLEARED_RESULTS]:
            request[place] = self._placeholder(place)
        return (*self._prompt, *request)

    def _placeholder(self, place: int) -> Message:
        if place not in self._placeholders:
            self._placeholders[place] = structs.replace(self._messages[place], content=_CLEARED, raw=None)
        return self._placeholders[place]


class _Summarising(Strategy):
    """Replaces the oldest messages by a summary. No model runs: the summary is a text of a fixed size."""

    def __init__(self, setup: StrategySetup) -> None:
        super().__init__(setup)
        self._summary_calls: list[SummaryCall] = []
        self._summaries = 0

    def take_summary_calls(self) -> Sequence[SummaryCall]:
        calls, self._summary_calls = self._summary_calls, []
        return calls

    def _summarise(self, read: Sequence[Message], rest: Sequence[Message], *, follows: bool) -> None:
        self._summaries += 1
        instructions = 0 if follows else INSTRUCTION_TOKENS
        self._summary_calls.append(SummaryCall(tuple(read), instructions, SUMMARY_TOKENS, follows))
        head = f"{_SUMMARY_START} {self._summaries}:"
        self._messages = [Message(role="user", content=head + " summary" * (SUMMARY_TOKENS - 14)), *rest]


class Summarisation(_Summarising):
    """From 85 % of the budget on, a summariser reads all but the newest tenth, and its summary replaces that part."""

    def render(self) -> Sequence[Message]:
        if self._tokens() >= _SUMMARY_TRIGGER * self._setup.budget:
            place = self._cut(_SUMMARY_REST * self._setup.budget)
            if place > 0:
                self._summarise(self._messages[:place], self._messages[place:], follows=False)
        return super().render()

    def _cut(self, limit: float) -> int:
        """Return the place of the first message to keep: they fit `limit`, at least one, and no call is separated."""
        messages, place, tokens = self._messages, len(self._messages), 0
        while place and tokens + self._counts.of(messages[place - 1]) <= limit:
            place -= 1
            tokens += self._counts.of(messages[place])
        place = min(place, len(messages) - 1)
        wanted = messages[place].tool_call_id if messages and messages[place].role == "tool" else None
        if wanted is None:
            return place
        callers = (n for n in range(place - 1, -1, -1) if any(call.id == wanted for call in messages[n].tool_calls))
        return next(callers, place)


class Compaction(_Summarising):
    """From 75 % of the budget on, the model reads the whole conversation, and its summary replaces everything."""

    def render(self) -> Sequence[Message]:
        if len(self._messages) > 1 and self._tokens() >= _COMPACT_TRIGGER * self._setup.budget:
            self._summarise([*self._prompt, *self._messages], (), follows=True)
        return super().render()


def _group_calls(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the messages in groups: a call with its results, or one message."""
    groups: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def _complete_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without results that have no call, and without calls that have no result."""
    complete: list[Message] = []
    for first, *results in _group_calls(messages):
        wanted = {call.id for call in first.tool_calls}
        answered = {result.tool_call_id for result in results}
        if first.role != "tool" and wanted <= answered:
            complete += [first, *(result for result in results if result.tool_call_id in wanted)]
    return complete


def _belongs_to_call(message: Message) -> bool:
    return message.role == "tool" or bool(message.tool_calls)


class StrategyKind(NamedTuple):
    """A strategy: its name, its constructor, what it does, and the software that does it."""

    name: str
    make: Callable[[StrategySetup], Strategy]
    description: str
    source: str


_KINDS = (
    StrategyKind(QUIRE, QuireStrategy, "folds the oldest exchanges into lines, in rare large steps", "quire"),
    StrategyKind("unmanaged", Strategy, "sends everything", "no management"),
    StrategyKind(
        "newest", NewestMessages, "the newest messages that fit, calls with their results", "many hand-written agents"
    ),
    StrategyKind("trim", TrimmedMessages, "the newest that fit, from a user message on", "LangChain trim_messages"),
    StrategyKind("last-n", LastMessages, "the last N messages, wherever that cuts", "pydantic-ai keep_recent"),
    StrategyKind(
        "session-limit", SessionLimit, "the last N at the start of a turn", "openai-agents SessionSettings(limit)"
    ),
    StrategyKind(
        "sliding",
        SlidingMessages,
        "down to N messages at the end of a turn",
        "strands SlidingWindowConversationManager",
    ),
    StrategyKind(
        "reducer", Reducer, "above N messages, down to 3/4 of them", "semantic-kernel ChatHistoryTruncationReducer"
    ),
    StrategyKind(
        "truncation", Truncation, "above the budget, down to half of it", "Microsoft Agent Framework TruncationStrategy"
    ),
    StrategyKind("flush", Flush, "above 70 %, a tenth at a time", "llama-index Memory"),
    StrategyKind(
        "clear-tools",
        ClearedResults,
        "above half, clears all but 3 tool results",
        "Anthropic clear_tool_uses, LangChain",
    ),
    StrategyKind(
        "summarise",
        Summarisation,
        "at 85 %, a summary of all but a tenth",
        "LangChain SummarizationMiddleware, deepagents",
    ),
    StrategyKind("compact", Compaction, "at 75 %, a summary of everything", "Anthropic compaction, coding agents"),
)
STRATEGIES: dict[str, StrategyKind] = {kind.name: kind for kind in _KINDS}
"""All strategies, quire first."""


def select_strategies(names: str | None) -> Sequence[StrategyKind]:
    """Return quire and the strategies of a list such as `newest,compact`; all for None. Raises `InvalidValue`."""
    if names is None:
        return _KINDS
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = next((name for name in wanted if name not in STRATEGIES), None)
    if unknown is not None or not wanted:
        from difflib import get_close_matches

        near = get_close_matches(unknown or "", STRATEGIES, n=1, cutoff=0.5)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        fact = f"is {unknown or names!r}; one or more of {', '.join(STRATEGIES)} are needed.{meant}"
        raise InvalidValue(fact, argument="strategies")
    return [kind for kind in _KINDS if kind.name in (QUIRE, *wanted)]
