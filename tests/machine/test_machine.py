"""Every operation of the public API in any order: all stores and the plain model agree after each step."""

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.machine import Machine
from tests.seeds import SEED


class PostgresMachine(Machine):
    kinds = ("memory", "postgres")


class S3Machine(Machine):
    kinds = ("memory", "s3")


def _run(machine: type[Machine], request: pytest.FixtureRequest, examples: int) -> None:
    """Run a machine: always the same choices, or many new ones with `--long`. A failure shows code that replays it."""
    long = bool(request.config.getoption("--long"))
    profile = settings(
        max_examples=examples * (40 if long else 1),
        stateful_step_count=60 if long else 25,
        deadline=None,
        derandomize=False,
        print_blob=True,
        report_multiple_bugs=False,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if long else (Phase.generate,),
    )
    run_state_machine_as_test(seed(SEED)(machine), settings=profile)


def test_every_store_agrees_with_the_model_after_every_operation(request: pytest.FixtureRequest) -> None:
    _run(Machine, request, 8)


@pytest.mark.servers
@pytest.mark.parametrize("machine", [PostgresMachine, S3Machine])
def test_every_server_agrees_with_the_model_after_every_operation(
    machine: type[Machine], request: pytest.FixtureRequest
) -> None:
    _run(machine, request, 2)
