"""Every operation of the public API in any order: all stores and the plain model agree after each step."""

import os
from random import SystemRandom

import pytest

from tests.machine.machine import Machine
from tests.machines import run_machine


class PostgresMachine(Machine):
    kinds = ("memory", "postgres")


class S3Machine(Machine):
    kinds = ("memory", "s3")


def _run(machine: type[Machine], request: pytest.FixtureRequest, examples: int) -> None:
    """Run a machine: always the same choices, or many new ones with `--long`. `QUIRE_SEED` replays a run."""
    long = bool(request.config.getoption("--long"))
    number = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))
    print(f"QUIRE_SEED={number}")  # noqa: T201 - shown when it fails
    run_machine(machine, examples=examples * (40 if long else 1), steps=60 if long else 25, number=number, shrink=long)


def test_every_store_agrees_with_the_model_after_every_operation(request: pytest.FixtureRequest) -> None:
    _run(Machine, request, 8)


@pytest.mark.servers
@pytest.mark.parametrize("machine", [PostgresMachine, S3Machine])
def test_every_server_agrees_with_the_model_after_every_operation(
    machine: type[Machine], request: pytest.FixtureRequest
) -> None:
    _run(machine, request, 2)
