"""A strict provider and clients of it."""

from collections.abc import Iterator

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.strict_provider import StrictProvider


@pytest.fixture
def strict() -> Iterator[StrictProvider]:
    with StrictProvider() as made:
        yield made


@pytest.fixture
def claude(strict: StrictProvider) -> Iterator[Anthropic]:
    with Anthropic(base_url=strict.url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def client(strict: StrictProvider) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{strict.url}/v1", api_key="none", max_retries=0) as made:
        yield made
