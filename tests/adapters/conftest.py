"""A strict provider, and clients of two SDKs that use it. A new client takes a tenth of a second."""

from collections.abc import Iterator

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.strict_provider import State, StrictProvider


@pytest.fixture(scope="module")
def endpoint() -> Iterator[StrictProvider]:
    with StrictProvider(State(limit=8_000)) as made:
        yield made


@pytest.fixture(scope="module")
def open_clients(endpoint: StrictProvider) -> Iterator[tuple[OpenAI, Anthropic]]:
    with (
        OpenAI(base_url=f"{endpoint.url}/v1", api_key="none", max_retries=0) as openai,
        Anthropic(base_url=endpoint.url, api_key="none", max_retries=0) as anthropic,
    ):
        yield openai, anthropic


@pytest.fixture
def client(endpoint: StrictProvider, open_clients: tuple[OpenAI, Anthropic]) -> OpenAI:
    endpoint.forget()
    return open_clients[0]


@pytest.fixture
def claude(endpoint: StrictProvider, open_clients: tuple[OpenAI, Anthropic]) -> Anthropic:
    endpoint.forget()
    return open_clients[1]
