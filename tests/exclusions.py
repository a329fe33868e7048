"""What the random machines and the real clients leave out, because it is known to fail.

Each row names the step of the redesign that mends it. `tests/known_failures` has a fixed example of each. The list must
be empty after step 6.
"""

from typing import NamedTuple


class Exclusion(NamedTuple):
    """A known failure: its name, the step that mends it, and what happens today."""

    name: str
    step: int
    why: str


EXCLUSIONS: tuple[Exclusion, ...] = (
    Exclusion("fold_after_archive", 3, "A fold after `archive` moves the archived message behind newer ones."),
    Exclusion(
        "system_after_fold", 5, "A fold leaves a `system` message before a `user` message; Anthropic refuses it."
    ),
    Exclusion("unmarshal_in_batch", 2, "JSON has an open batch, but not which marks belong to it."),
)

_NAMES = {row.name for row in EXCLUSIONS}


def excluded(name: str) -> bool:
    """Return whether a known failure is left out."""
    return name in _NAMES
