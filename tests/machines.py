"""Run a Hypothesis state machine with a number of examples and steps."""

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def run_machine(
    machine: type[RuleBasedStateMachine],
    *,
    examples: int,
    steps: int,
    derandomize: bool = False,
    number: int | None = None,
    shrink: bool = True,
) -> None:
    """Run the machine; a failure is shown with the code that replays it. The same `number` makes the same choices."""
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=derandomize and number is None,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
    )
    run_state_machine_as_test(machine if number is None else seed(number)(machine), settings=profile)
