"""The state machine of the foundation with S3 in the place of files: any operations in any order, as the model says."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from quire import Storage
from tests.servers.s3 import fresh_prefix, open_s3, server
from tests.storage.s3engine import tiny
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
    profile = settings(
        max_examples=25 if long else 3,
        stateful_step_count=60 if long else 25,
        derandomize=not long,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    run_state_machine_as_test(S3Machine, settings=profile)
