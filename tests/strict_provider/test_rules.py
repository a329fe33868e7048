"""Every rule of the strict provider: a legal request passes, an illegal one is refused, with the same error everywhere.

The same requests are checked as values, sent as plain HTTP, and sent with the SDKs of OpenAI and Anthropic.
"""

import json
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from importlib.metadata import version
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest
from anthropic import Anthropic
from anthropic import APIStatusError as AnthropicError
from openai import APIStatusError as OpenAIError
from openai import OpenAI

from tests.strict_provider import RULES, Api, Body, State, StrictProvider, check_request, fields
from tests.strict_provider.cases import CASES, LONG, MODEL, REASONING, anthropic, assistant, user

PATHS: dict[Api, str] = {
    "anthropic": "/v1/messages",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
}
ELSEWHERE = {("anthropic", "no trailing blanks"), ("anthropic", "thinking bound to prefix")}
"""Rules that need a setting or an earlier answer; other tests check them."""


def make_state(**settings: Any) -> State:
    state = State(limit=200, **settings)
    state.stored["rs_stored"] = REASONING
    state.reasoning_of["fc_stored"] = "rs_stored"
    return state


@pytest.fixture(scope="module")
def provider() -> Iterator[StrictProvider]:
    with StrictProvider(make_state()) as made:
        yield made


def send(provider: StrictProvider, api: Api, body: Body) -> tuple[int, Body]:
    """Return the status and the body of the answer to a plain HTTP request."""
    data = json.dumps(body).encode()
    request = HttpRequest(provider.url + PATHS[api], data, {"content-type": "application/json"})
    try:
        with urlopen(request) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture(scope="module")
def clients(provider: StrictProvider) -> Iterator[tuple[Anthropic, OpenAI]]:
    with (
        Anthropic(base_url=provider.url, api_key="none", max_retries=0) as claude,
        OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield claude, client


def ask_sdk(clients: tuple[Anthropic, OpenAI], api: Api, body: Body) -> Any:
    """Send a request with the SDK of the API. The body goes as it is: the SDK checks and changes nothing."""
    if api == "anthropic":
        return clients[0].post(PATHS[api], body=body, cast_to=object)
    return clients[1].post(PATHS[api].removeprefix("/v1"), body=body, cast_to=object)


def test_every_rule_has_a_case_a_name_and_a_source() -> None:
    listed = {(api, rule.name) for api, rules in RULES.items() for rule in rules}
    assert {(api, rule) for api, rule, *_ in CASES} | ELSEWHERE == listed
    for rules in RULES.values():
        for rule in rules:
            assert rule.check.__doc__, rule.name
            assert rule.source.startswith(("https://", "openai-python, ", "anthropic-sdk-python, ", "observed: "))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}: {case[1]}")
def test_a_legal_request_passes_and_an_illegal_one_is_refused(
    provider: StrictProvider, clients: tuple[Anthropic, OpenAI], case: tuple[Api, str, Body, Body, str]
) -> None:
    api, rule, legal, illegal, text = case
    assert check_request(api, legal, make_state()) is None
    problem = check_request(api, illegal, make_state())
    assert problem is not None
    assert problem.rule == rule
    assert text in problem.message
    assert send(provider, api, legal)[0] == 200
    status, body = send(provider, api, illegal)
    assert status == problem.status
    assert body["error"]["message"] == problem.message
    assert provider.refused[-1] == problem
    assert ask_sdk(clients, api, legal)
    kind: type[Exception] = AnthropicError if api == "anthropic" else OpenAIError
    with pytest.raises(kind, match=f"^Error code: {problem.status} - .*{re.escape(text)}"):
        ask_sdk(clients, api, illegal)


def test_trailing_blanks_are_refused_for_models_with_prefill() -> None:
    state = make_state(prefill=True)
    assert check_request("anthropic", anthropic(user(), assistant("The answer is")), state) is None
    problem = check_request("anthropic", anthropic(user(), assistant("The answer is ")), state)
    assert problem is not None
    assert problem.message == "messages: final assistant content cannot end with trailing whitespace"


def test_count_tokens_follows_the_same_rules(clients: tuple[Anthropic, OpenAI]) -> None:
    count = clients[0].messages.count_tokens
    counted = count(model=MODEL, messages=[{"role": "user", "content": "word " * 100}])
    assert 100 <= counted.input_tokens <= 110
    with pytest.raises(AnthropicError, match="prompt is too long"):
        count(model=MODEL, messages=[{"role": "user", "content": LONG}])


def test_the_known_fields_are_those_of_the_sdks() -> None:
    import anthropic.types as claude
    from anthropic.types.beta.message_create_params import MessageCreateParamsBase as Beta
    from anthropic.types.message_create_params import MessageCreateParamsBase as Message
    from openai.types import chat as completions
    from openai.types import responses as items
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase as Completion
    from openai.types.responses import response_input_item_param as inputs
    from openai.types.responses.response_create_params import ResponseCreateParamsBase as Response

    def names(*types: Any) -> set[str]:
        return {name for each in types for name in each.__annotations__}

    def compare(package: str, known: AbstractSet[str], found: AbstractSet[str]) -> None:
        """Check that the rules know the fields of the SDK. A newer SDK than that of the rules may have more."""
        assert known <= found
        assert known == found or version(package) != fields.VERSIONS[package]

    older = {"temperature", "top_k", "top_p"}  # still known for older models
    header = {"betas", "workspace_id"}  # the SDK sends these as headers
    compare("anthropic", fields.ANTHROPIC_REQUEST - {"stream"} - older, names(Message) - header)
    compare("anthropic", fields.ANTHROPIC_BETA, names(Beta) - header - fields.ANTHROPIC_REQUEST)
    for kind, known in fields.ANTHROPIC_BLOCKS.items():
        name = "".join(word.capitalize() for word in kind.split("_")) + "BlockParam"
        compare("anthropic", known, names(getattr(claude, name)))
    compare("openai", fields.CHAT_REQUEST - {"stream"}, names(Completion))
    for role, known in fields.CHAT_MESSAGES.items():
        compare("openai", known, names(getattr(completions, f"ChatCompletion{role.capitalize()}MessageParam")))
    compare("openai", fields.RESPONSES_REQUEST - {"stream"}, names(Response))
    found = {
        "message": names(items.EasyInputMessageParam, items.ResponseOutputMessageParam, inputs.Message),
        "function_call": names(items.ResponseFunctionToolCallParam),
        "function_call_output": names(inputs.FunctionCallOutput),
        "custom_tool_call": names(items.ResponseCustomToolCallParam),
        "custom_tool_call_output": names(items.ResponseCustomToolCallOutputParam),
        "reasoning": names(items.ResponseReasoningItemParam),
    }
    assert found.keys() == fields.RESPONSES_ITEMS.keys()
    for kind, known in fields.RESPONSES_ITEMS.items():
        compare("openai", known, found[kind])
