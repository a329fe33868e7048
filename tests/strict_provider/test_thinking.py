"""Thinking is bound to everything before it: what the documentation calls an edit is refused, the rest is not."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from anthropic import Anthropic, BadRequestError
from openai import BadRequestError as OpenAIBadRequest
from openai import OpenAI

from tests.strict_provider import Body, Call, Reply, State, StrictProvider, check_request
from tests.strict_provider.anthropic_answers import make_answer
from tests.strict_provider.cases import MODEL
from tests.strict_provider.requests import BINDING_BETA, Request

TOOLS = [{"name": "look", "description": "Look it up.", "input_schema": {"type": "object", "properties": {}}}]
BOUND = "The block is bound to a different conversation."
DROP = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


class Talk:
    """A conversation with the provider without HTTP. Every answer thinks; every second one calls a tool."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()
        self.body: Body = {"model": MODEL, "max_tokens": 100, "system": "Be brief.", "tools": TOOLS, "messages": []}

    def ask(self, content: Any, *calls: str, thinking: tuple[str, ...] = ("hm",)) -> None:
        """Send a user message and add the answer, with these calls."""
        self.body["messages"].append({"role": "user", "content": content})
        assert check_request("anthropic", self.body, self.state) is None
        reply = Reply("Yes.", tuple(Call(call, "look", {}) for call in calls), thinking)
        answer = make_answer(Request("anthropic", self.body), reply, self.state, len(self.body["messages"]))
        self.body["messages"].append({"role": "assistant", "content": answer["content"]})

    def run(self) -> Body:
        """Return a request after three turns; the second one has a tool loop."""
        self.ask("one")
        self.ask("two", "t1", "t2", thinking=("first", "", "third"))
        self.ask([result("t1"), result("t2"), text("and now?")], "t3")
        self.ask([result("t3")])
        return copy.deepcopy({**self.body, "messages": [*self.body["messages"], {"role": "user", "content": "three"}]})


def result(call: str) -> Body:
    return {"type": "tool_result", "tool_use_id": call, "content": "found"}


def text(words: str) -> Body:
    return {"type": "text", "text": words}


def drop_thinking(body: Body, *places: int) -> None:
    """Leave out the thinking of these assistant messages, counted from 0."""
    spoken = [message for message in body["messages"] if message["role"] == "assistant"]
    for place in places:
        spoken[place]["content"] = [block for block in spoken[place]["content"] if "thinking" not in block["type"]]


def drop_first_blocks(body: Body) -> None:
    """Leave out the first thinking blocks; one of them has others behind it in the same message."""
    drop_thinking(body, 0)
    body["messages"][3]["content"].pop(0)


def swap(body: Body) -> None:
    """Exchange the thinking of two messages."""
    first, second = body["messages"][1]["content"], body["messages"][5]["content"]
    first[0], second[0] = second[0], first[0]


ALLOWED: dict[str, Callable[[Body], Any]] = {
    "nothing": lambda body: None,
    "a message at the end": lambda body: body["messages"].append({"role": "user", "content": "four"}),
    "thinking from the start on": lambda body: drop_thinking(body, 0, 1),
    "thinking from the end on": lambda body: drop_thinking(body, 3, 2),
    "all thinking": lambda body: drop_thinking(body, 0, 1, 2, 3),
    "the first of several blocks of an answer": drop_first_blocks,
    "a cache marker": lambda body: body["messages"][2].update(
        content=[{"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}]
    ),
    "a string as a block": lambda body: body["messages"][0].update(content=[text("one")]),
    "a prompt as a block": lambda body: body.update(system=[text("Be brief.")]),
    "other parameters": lambda body: body.update(max_tokens=5, thinking={"type": "adaptive"}, tool_choice=None),
    "the order of keys": lambda body: body.update(tools=[dict(reversed(TOOLS[0].items()))]),
}
EDITS: dict[str, tuple[Callable[[Body], Any], str]] = {
    "the prompt": (lambda body: body.update(system="Be long."), "messages.1.content.0: "),
    "no prompt": (lambda body: body.pop("system"), "The `system` prompt differs"),
    "a tool": (lambda body: body.update(tools=[{**TOOLS[0], "description": "Look."}]), "The `tools` list differs"),
    "no tools": (lambda body: body.pop("tools"), "The `tools` list differs"),
    "the first message": (lambda body: body["messages"][0].update(content="One"), "from message 0 on."),
    "a result": (lambda body: body["messages"][4]["content"][0].update(content=""), "messages.5.content.0: "),
    "a text added to a turn": (lambda body: body["messages"][4]["content"].append(text("!")), "from message 4 on."),
    "an answer": (lambda body: body["messages"][1]["content"][1].update(text="No."), "messages.3.content.0: "),
    "an input": (lambda body: body["messages"][5]["content"][2].update(input={"a": 1}), "messages.7.content.0: "),
    "a message left out": (lambda body: body["messages"].__delitem__(slice(0, 2)), "messages.1.content.0: "),
    "a message between": (lambda body: body["messages"].insert(2, {"role": "user", "content": "so"}), "messages.4."),
    "thinking left out between others": (lambda body: drop_thinking(body, 2), "that preceded this one"),
    "one of several blocks": (lambda body: body["messages"][3]["content"].pop(1), "messages.3.content.1: "),
    "thinking moved": (swap, "messages.1.content.0: "),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_not_an_edit_is_accepted(name: str) -> None:
    talk = Talk()
    body = talk.run()
    ALLOWED[name](body)
    assert check_request("anthropic", body, talk.state) is None


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_refused(name: str) -> None:
    talk = Talk()
    body = talk.run()
    edit, words = EDITS[name]
    edit(body)
    problem = check_request("anthropic", body, talk.state)
    assert problem is not None
    assert problem.rule == "thinking bound to prefix"
    assert BOUND in problem.message
    assert words in problem.message
    assert f"requires the `{BINDING_BETA}` value" in problem.message


def test_a_block_that_was_left_out_does_not_come_back() -> None:
    talk = Talk()
    talk.ask("one")
    whole = copy.deepcopy(talk.body["messages"][1])
    drop_thinking(talk.body, 0)
    talk.ask("two")
    talk.body["messages"][1] = whole
    talk.body["messages"].append({"role": "user", "content": "three"})
    problem = check_request("anthropic", talk.body, talk.state)
    assert problem is not None
    assert problem.message.startswith("messages.3.content.0: Invalid `signature` in `thinking` block.")


def test_blocks_are_dropped_on_request(strict: StrictProvider, claude: Anthropic) -> None:
    def ask(system: str, messages: list[Body], **more: Any) -> Any:
        return claude.beta.messages.create(
            model=MODEL,
            max_tokens=100,
            system=system,
            messages=messages,  # type: ignore[arg-type]
            **more,
        )

    strict.script = lambda _: Reply("Yes.", thinking=("hm",))
    messages: list[Body] = [{"role": "user", "content": "one"}]
    answer = ask("Be brief.", messages)
    messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "two"}]
    with pytest.raises(BadRequestError, match=BOUND):
        ask("Be long.", messages)
    answer = ask("Be long.", messages, thinking=DROP, betas=[BINDING_BETA])
    assert [(entry.path, entry.reason) for entry in answer.input_transformations] == [
        ("messages.1.content.0", "prefix_binding_mismatch")
    ]
    messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "three"}]
    answer = ask("Be long.", messages, thinking=DROP, betas=[BINDING_BETA])
    assert [entry.path for entry in answer.input_transformations] == ["messages.1.content.0"]
    assert len(strict.refused) == 1


def test_encrypted_reasoning_is_checked(strict: StrictProvider, client: OpenAI) -> None:
    strict.script = lambda _: Reply("Yes.", thinking=("hm",))
    options: dict[str, Any] = {"model": "gpt-5", "store": False, "include": ["reasoning.encrypted_content"]}
    items: list[Any] = [{"role": "user", "content": "one"}]
    first = client.responses.create(input=items, **options)
    items += [*(item.model_dump(exclude_none=True) for item in first.output), {"role": "user", "content": "two"}]
    assert client.responses.create(input=items, **options).output_text == "Yes."
    items[0] = {"role": "user", "content": "One"}
    assert client.responses.create(input=items, **options).output_text == "Yes."
    strict.state.bind_reasoning = True
    with pytest.raises(OpenAIBadRequest, match=r"could not be verified\. Reason: The messages before"):
        client.responses.create(input=items, **options)
    strict.state.bind_reasoning = False
    items[1]["encrypted_content"] = items[1]["encrypted_content"][:-8] + "AAAAAAA="
    with pytest.raises(OpenAIBadRequest, match=r"The encrypted content gAAA\.\.\.AAA= could not be verified\."):
        client.responses.create(input=items, **options)
