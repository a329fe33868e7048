"""The interface of a topic, and the values that it returns.

A topic is a module `proof.<name>` with:

- `TITLE` and `ABOUT`: its heading and its first paragraph on the page.
- `run(options)`: makes the checks, and yields one `Check` for each backend and kind of check.
- `control(options)`: makes the same checks on a broken subject (no fsync, an open gate), and yields a `Control` for
  each. A control that finds nothing shows that the check cannot find anything: the command then fails.
- `SHARE`, if it needs more time than others: 2.0 is twice the time.
- `INSTALLS = True`, if it installs packages: then only `--long` and `--only` run it.

Every random choice comes from `options.seed`. The same seed and the same options make the same choices.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Protocol

from msgspec import Struct

BACKENDS = ("memory", "sqlite", "file", "postgres", "s3")


class Options(Struct, frozen=True, kw_only=True):
    """The options of one run."""

    folder: Path
    """An empty folder for the stores of this topic. The caller removes it."""
    seed: int
    seconds: float | None = None
    """The time for this topic. A check that reaches its share stops and reports the smaller count. None: no limit."""
    long: bool = False
    """Make the counts of the long form, instead of those of the short form."""
    backends: tuple[str, ...] = ()
    """The backends to test; empty: all backends of the topic."""

    def chosen(self, *available: str) -> list[str]:
        """Return the backends of the topic that this run tests."""
        return [name for name in available if not self.backends or name in self.backends]

    def random(self, *key: object) -> Random:
        """Return a source of random choices for one check. `key` separates the checks."""
        return Random(repr((self.seed, *key)))


class Check(Struct, kw_only=True):
    """The result of one check."""

    name: str
    """What was tested. The name is unique within a topic and backend."""
    backend: str = ""
    count: int
    """How often it was tested."""
    unit: str
    """What `count` counts: kills, faults, requests."""
    facts: dict[str, int | float | str] = {}
    """Other figures of this check, by name."""
    findings: list[str] = []
    """What was wrong. A finding has all that is needed to repeat it."""


class Control(Struct, kw_only=True):
    """The result of a check on a broken subject."""

    name: str
    """What was broken: "fsync removed"."""
    backend: str = ""
    found: bool
    """Whether the check found the damage, as it must."""
    evidence: str
    """The first finding, shortened, or how often the check ran without one."""


class Topic(Protocol):
    """A module of this package that tests one promise."""

    TITLE: str
    ABOUT: str

    def run(self, options: Options) -> Iterator[Check]: ...

    def control(self, options: Options) -> Iterator[Control]: ...
