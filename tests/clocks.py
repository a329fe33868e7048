"""A clock for tests."""


class SteppingClock:
    """A clock for tests: each call advances it by one step."""

    def __init__(self, start: int = 1_700_000_000_000, step: int = 1_000) -> None:
        self._now = start
        self._step = step

    def __call__(self) -> int:
        self._now += self._step
        return self._now
