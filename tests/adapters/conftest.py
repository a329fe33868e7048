"""A strict provider, and clients of two SDKs that use it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.strict_provider import State, StrictProvider

if TYPE_CHECKING:
    from anthropic import Anthropic
    from openai import OpenAI


@pytest.fixture(scope="module")
def endpoint() -> Iterator[StrictProvider]:
    with StrictProvider(State(limit=8_000)) as made:
        yield made


@pytest.fixture
def client(endpoint: StrictProvider) -> "Iterator[OpenAI]":
    from openai import OpenAI

    endpoint.forget()
    with OpenAI(base_url=f"{endpoint.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def claude(endpoint: StrictProvider) -> "Iterator[Anthropic]":
    from anthropic import Anthropic

    endpoint.forget()
    with Anthropic(base_url=endpoint.url, api_key="none", max_retries=0) as made:
        yield made
