"""The state machine of tests/test_machine.py on S3."""

import pytest

from tests.machines import run_machine
from tests.servers.s3 import server
from tests.storage.s3_engine import tiny
from tests.test_machine import Machine

__all__ = ["tiny"]


class S3Machine(Machine):
    kinds = ("memory", "s3")


@pytest.mark.usefixtures("tiny")
def test_the_same_trace_gives_the_same_state_on_s3(request: pytest.FixtureRequest) -> None:
    long = bool(request.config.getoption("--long", default=False))
    server()
    run_machine(S3Machine, examples=25 if long else 1, steps=60 if long else 30, derandomize=not long)
