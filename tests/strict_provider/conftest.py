"""A strict provider and clients of it. A new client takes a tenth of a second."""

from collections.abc import Iterator

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.strict_provider import State, StrictProvider


@pytest.fixture(scope="module")
def open_provider() -> Iterator[StrictProvider]:
    with StrictProvider() as made:
        yield made


@pytest.fixture
def strict(open_provider: StrictProvider) -> StrictProvider:
    open_provider.forget()
    open_provider.state = State()
    return open_provider


@pytest.fixture(scope="module")
def claude(open_provider: StrictProvider) -> Iterator[Anthropic]:
    with Anthropic(base_url=open_provider.url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def client(open_provider: StrictProvider) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{open_provider.url}/v1", api_key="none", max_retries=0) as made:
        yield made
