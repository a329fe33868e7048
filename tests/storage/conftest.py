"""A PostgreSQL storage, and a connection that does not go through quire."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers.postgres import postgres_url

if TYPE_CHECKING:
    import psycopg

    from quire import PostgresStorage


@pytest.fixture
def storage() -> "Iterator[PostgresStorage]":
    from quire import PostgresStorage

    made = PostgresStorage(postgres_url())
    yield made
    made.close()


@pytest.fixture
def db() -> "Iterator[psycopg.Connection[Any]]":
    """A connection that does not go through quire."""
    import psycopg

    from quire.storage.postgres.address import parse

    with psycopg.connect(parse(postgres_url()).url, autocommit=True) as connection:
        yield connection
