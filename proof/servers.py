"""The servers of the tests, for the topics."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from tests.servers.postgres import postgres_url
from tests.servers.s3 import server

T = TypeVar("T")


class NoServer(Exception):
    """A server cannot be started here."""


def postgres() -> str:
    """Return the URL of a PostgreSQL server of this process, with a tenant that is not used. Raises `NoServer`."""
    return _started(postgres_url)


def s3() -> dict[str, Any]:
    """Return the options of `S3Storage` for an S3 server, without a prefix. Raises `NoServer`."""
    there = _started(server)
    return {"bucket": there.bucket, **there.options()}


def _started(start: Callable[[], T]) -> T:
    try:
        return start()
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        raise NoServer(str(reason)) from None
