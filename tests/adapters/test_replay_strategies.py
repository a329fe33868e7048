"""The strategies of `quire replay` send what the packages themselves send, message for message."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from langchain.agents.middleware import SummarizationMiddleware
from langchain.agents.middleware.context_editing import ClearToolUsesEdit
from langchain.agents.middleware.summarization import DEFAULT_SUMMARY_PROMPT
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)

from quire import Message, VocabularyCounter
from quire.cli.commands.demo import load_conversation
from quire.cli.replay.pricing import TokenCounts
from quire.cli.replay.strategies import (
    INSTRUCTION_TOKENS,
    ClearedResults,
    StrategySetup,
    Summarisation,
    TrimmedMessages,
)

DEMO_TALK = load_conversation()

PROMPT = DEMO_TALK.prompt
COUNTS = TokenCounts()
CLEARED = SUMMARY = -2
SUMMARY_TOKENS = 404
"""The placeholder of 400 tokens as a message."""
Sent = list[list[int]]


def played(strategy: Any) -> Sent:
    """Return the positions of the messages of each request: -1 is the prompt, -2 a message of the strategy."""
    places = {id(message): place for place, message in enumerate(DEMO_TALK.messages)} | {id(PROMPT): -1}
    sent = []
    for message in DEMO_TALK.messages:
        if message.role == "assistant":
            sent.append([places.get(id(one), -2) for one in strategy.render()])
        strategy.add(message)
    return sent


def theirs(render: Callable[[list[AnyMessage]], Sequence[BaseMessage]]) -> Sent:
    """Return the same for a function of LangChain that builds a request from the messages, and may change them."""
    messages: list[AnyMessage] = []
    sent = []
    for place, message in enumerate(DEMO_TALK.messages):
        if message.role == "assistant":
            made = render(messages)
            sent.append([int(one.id or 0) if one.content != "[cleared]" else CLEARED for one in made])
        messages.append(converted(message, str(place)))
    return sent


def converted(message: Message, place: str) -> AnyMessage:
    if message.role == "user":
        return HumanMessage(message.text, id=place)
    if message.role == "tool":
        return ToolMessage(message.text, tool_call_id=message.tool_call_id or "", id=place)
    calls = [{"id": call.id, "name": call.name, "args": json.loads(call.arguments)} for call in message.tool_calls]
    return AIMessage(message.text, id=place, tool_calls=calls)


def tokens(messages: Iterable[Any]) -> int:
    """Return the tokens of messages as quire counts them."""
    return sum(
        COUNTS.of(PROMPT)
        if one.id == "-1"
        else SUMMARY_TOKENS
        if one.id == "-2"
        else COUNTS.of(DEMO_TALK.messages[int(one.id)])
        for one in messages
    )


def setting(budget: int) -> StrategySetup:
    return StrategySetup(PROMPT, budget, 0, COUNTS)


@pytest.mark.parametrize("budget", [600, 1_000, 2_000, 5_000, 50_000])
def test_trim_sends_what_trim_messages_sends(budget: int) -> None:
    def render(messages: list[AnyMessage]) -> list[BaseMessage]:
        whole = [SystemMessage(DEMO_TALK.system, id="-1"), *messages]
        return trim_messages(
            whole, max_tokens=budget, token_counter=tokens, strategy="last", start_on="human", include_system=True
        )

    assert played(TrimmedMessages(setting(budget))) == theirs(render)


@pytest.mark.parametrize("budget", [600, 2_000, 5_000, 50_000])
def test_clear_tools_sends_what_the_context_editing_middleware_sends(budget: int) -> None:
    edit = ClearToolUsesEdit(trigger=budget // 2)

    def render(messages: list[AnyMessage]) -> list[AnyMessage]:
        made = list(messages)
        edit.apply(made, count_tokens=lambda given: COUNTS.of(PROMPT) + tokens(given))
        return [SystemMessage(DEMO_TALK.system, id="-1"), *made]

    assert played(ClearedResults(setting(budget))) == theirs(render)


@pytest.mark.parametrize("budget", [2_000, 3_000, 5_000, 50_000])
def test_summarise_keeps_what_the_summarization_middleware_keeps(budget: int) -> None:
    middleware: SummarizationMiddleware[Any, Any] = SummarizationMiddleware(
        FakeListChatModel(responses=["A summary."]),
        trigger=("tokens", int(0.85 * budget) - COUNTS.of(PROMPT)),
        keep=("tokens", int(0.10 * budget)),
        token_counter=tokens,
        trim_tokens_to_summarize=None,
    )

    def render(messages: list[AnyMessage]) -> list[AnyMessage]:
        changed = middleware.before_model({"messages": messages}, None)  # type: ignore[arg-type]
        if changed is not None:
            _, summary, *kept = changed["messages"]
            messages[:] = [summary.model_copy(update={"id": str(SUMMARY)}), *kept]
        return [SystemMessage(DEMO_TALK.system, id="-1"), *messages]

    ours = played(Summarisation(setting(budget)))
    assert ours == theirs(render)
    assert any(SUMMARY in sent for sent in ours) == (budget < 10_000)


def test_the_instructions_of_a_summariser_are_as_long_as_their_own() -> None:
    assert VocabularyCounter().count(DEFAULT_SUMMARY_PROMPT) == INSTRUCTION_TOKENS
