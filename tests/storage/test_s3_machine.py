"""The state machine of tests/test_machine.py with S3 instead of files."""

from collections.abc import Callable

import pytest

from quire import Storage
from tests.machines import run_machine
from tests.servers.s3 import fresh_prefix, open_s3, server
from tests.storage.s3_engine import tiny
from tests.test_machine import Machine

__all__ = ["tiny"]


class S3Machine(Machine):
    def opener(self, kind: str) -> Callable[[], Storage]:
        if kind != "file":
            return super().opener(kind)
        prefix = fresh_prefix()
        return lambda: open_s3(prefix, upkeep="inline", cache_bytes=20_000)


@pytest.mark.usefixtures("tiny")
def test_the_same_trace_gives_the_same_state_on_s3(request: pytest.FixtureRequest) -> None:
    long = bool(request.config.getoption("--long", default=False))
    server()
    run_machine(S3Machine, examples=25 if long else 3, steps=60 if long else 25, derandomize=not long)
