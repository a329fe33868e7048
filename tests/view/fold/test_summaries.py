"""Summaries and names: no identifier is cut into another one, and none occurs twice."""

import re

import pytest

import quire
from quire.core.exchanges import exchange_name
from quire.model.messages import Message
from quire.model.tokens import VocabularyCounter
from quire.view.fold.facts import FactCheck
from quire.view.fold.summaries import shorten_to, summarise_turns

COUNT = VocabularyCounter().count
ORDER = re.compile(r"ORD-[0-9]*")


def test_a_name_of_chinese_text_has_whole_identifiers_only() -> None:
    assert exchange_name(Message(role="user", content="请帮我查询订单号ORD-1026的状态和物流")) == "请帮我查询订单号…"
    assert exchange_name(Message(role="user", content="x" * 80)) == "x" * 29 + "…"
    assert exchange_name(Message(role="user", content="查ORD-1026")) == "查ORD-1026"


@pytest.mark.parametrize("limit", range(1, 30))
def test_a_text_within_so_many_tokens_has_whole_identifiers_only(limit: int) -> None:
    text = shorten_to("请先查询订单ORD-1026再查询订单ORD-2048然后取消订单ORD-4096谢谢", limit, COUNT)
    assert COUNT(text) <= limit
    assert set(ORDER.findall(text)) <= {"ORD-1026", "ORD-2048", "ORD-4096"}


def test_folded_lines_name_only_orders_that_there_are() -> None:
    ctx = quire.open("memory:", budget=1_200)
    for turn in range(40):
        ctx.user(f"{'请' * (turn % 9)}查询客户的订单ORD-{1026 + turn}并且告诉我什么时候送到因为我很着急" * 2)
        ctx.assistant(f"订单ORD-{1026 + turn}已经发货预计明天送到请您放心" * 3)
        ctx.render()
    lines = [message["content"] for message in ctx.render().openai() if "Folded earlier" in message["content"]]
    named = set(ORDER.findall("".join(lines)))
    assert named
    assert named <= {f"ORD-{1026 + turn}" for turn in range(40)}


def test_a_fact_that_stands_in_one_that_is_told_is_not_told_again() -> None:
    messages = [
        Message(
            role="user",
            content="The tea is fine. " * 40 + "Cancel ORD-32 and ORD-33, please: 32 first, 33 later, then 71.",
        ),
        Message(role="assistant", content="Done."),
    ]
    gate = FactCheck()
    gate.read_exchange(messages)
    summary, account = summarise_turns("Name", messages, gate, 40, COUNT)
    assert summary.split(", ") == ["ORD-32", "ORD-33"]  # and 71 is no word to search for
    assert account.lost == 0
