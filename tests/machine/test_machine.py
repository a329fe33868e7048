"""Every operation of the public API in any order: all stores and the plain model agree after each step."""

import pytest

from tests.machine.machine import Machine
from tests.machines import run_machine
from tests.seeds import SEED


class PostgresMachine(Machine):
    kinds = ("memory", "postgres")


class S3Machine(Machine):
    kinds = ("memory", "s3")


def _run(machine: type[Machine], request: pytest.FixtureRequest, examples: int) -> None:
    """Run a machine: always the same choices, or many new ones with `--long`."""
    long = bool(request.config.getoption("--long"))
    run_machine(machine, examples=examples * (40 if long else 1), steps=60 if long else 25, number=SEED, shrink=long)


def test_every_store_agrees_with_the_model_after_every_operation(request: pytest.FixtureRequest) -> None:
    _run(Machine, request, 8)


@pytest.mark.servers
@pytest.mark.parametrize("machine", [PostgresMachine, S3Machine])
def test_every_server_agrees_with_the_model_after_every_operation(
    machine: type[Machine], request: pytest.FixtureRequest
) -> None:
    _run(machine, request, 2)
