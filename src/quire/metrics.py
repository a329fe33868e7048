"""Metrics of this process in Prometheus format.

    quire.metrics.start()       # once, when the program starts
    text = quire.metrics.text()  # for GET /metrics

`measure` is the one place that turns operations into metrics; `quire.otel` uses it too. No metric has content or the
name of a context.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any, Final, Literal, NamedTuple

from quire import probes
from quire.errors import Busy, Conflict, LeaseLost
from quire.probes import Operation

__all__ = ["CONTENT_TYPE", "Registry", "start", "stop", "text"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of `text`."""
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of the buckets of a histogram, in seconds. They suit the operations of a store."""
_MODEL_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)

Labels = tuple[tuple[str, str], ...]
Kind = Literal["counter", "histogram", "gauge"]


class Family(NamedTuple):
    """A metric: its kind, what it counts, and the bounds of a histogram."""

    kind: Kind
    about: str
    bounds: tuple[float, ...] = BOUNDS


class Measurement(NamedTuple):
    """A value of a metric: the increment of a counter, or one observation of a histogram."""

    name: str
    value: float
    labels: Mapping[str, str]


FAMILIES: Final[Mapping[str, Family]] = {
    "quire_turns_total": Family("counter", "Turns by outcome: finished, failed, busy, lost."),
    "quire_turn_seconds": Family("histogram", "Duration of turns.", _MODEL_BOUNDS),
    "quire_turn_wait_seconds": Family("histogram", "Time that turns waited for the turn of another worker."),
    "quire_renders_total": Family("counter", "Rendered views at the budget of their context."),
    "quire_render_seconds": Family("histogram", "Time to render a view."),
    "quire_view_tokens_total": Family("counter", "Tokens of rendered views by part."),
    "quire_view_cached_tokens_total": Family("counter", "Tokens at the start of views that equal the previous view."),
    "quire_folds_total": Family("counter", "Folds."),
    "quire_folded_exchanges_total": Family("counter", "Folded exchanges."),
    "quire_commits_total": Family("counter", "Commits by operation."),
    "quire_commit_seconds": Family("histogram", "Time to commit."),
    "quire_commit_errors_total": Family("counter", "Commits that failed, by error."),
    "quire_conflicts_total": Family("counter", "Commits that failed because another writer committed first."),
    "quire_find_seconds": Family("histogram", "Time of a search."),
    "quire_tool_calls_total": Family("counter", "Tool calls by tool and outcome."),
    "quire_tool_seconds": Family("histogram", "Time of a tool call."),
    "quire_model_calls_total": Family("counter", "Model calls by model and outcome."),
    "quire_model_seconds": Family("histogram", "Time of a model call.", _MODEL_BOUNDS),
    "quire_billed_tokens_total": Family("counter", "Input tokens that models billed, by model."),
    "quire_billed_cached_tokens_total": Family("counter", "Billed input tokens that were read from the cache."),
}


class Registry:
    """Counters, histograms and gauges of the given families. All threads may use it."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = families
        self._values: dict[str, dict[Labels, float]] = {name: {} for name in families}
        self._buckets: dict[tuple[str, Labels], list[int]] = {}
        self._lock = Lock()

    def add(self, name: str, value: float = 1, /, **labels: object) -> None:
        """Add a value to a counter or a gauge, or a measured value to a histogram."""
        family, key = self._families[name], tuple(sorted((label, str(text)) for label, text in labels.items()))
        with self._lock:
            known = self._values[name]
            known[key] = known.get(key, 0) + value
            if family.kind == "histogram":
                buckets = self._buckets.setdefault((name, key), [0] * (len(family.bounds) + 1))
                buckets[bisect_left(family.bounds, value)] += 1

    def set(self, name: str, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[name][()] = value

    def text(self) -> str:
        """Return all metrics in Prometheus format."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        for name, family in self._families.items():
            yield f"# HELP {name} {family.about}"
            yield f"# TYPE {name} {family.kind}"
            values = self._values[name]
            for labels, value in sorted(values.items()):
                if family.kind == "histogram":
                    yield from _histogram(name, labels, family.bounds, self._buckets[name, labels], value)
                else:
                    yield f"{name}{_braces(labels)} {_number(value)}"
            if not values and family.kind != "histogram":
                yield f"{name} 0"


def _histogram(name: str, labels: Labels, bounds: tuple[float, ...], buckets: list[int], total: float) -> Iterator[str]:
    below = 0
    for bound, number in zip((*map(str, bounds), "+Inf"), buckets, strict=True):
        below += number
        yield f"{name}_bucket{_braces((*labels, ('le', bound)))} {below}"
    yield f"{name}_sum{_braces(labels)} {total:.6f}"
    yield f"{name}_count{_braces(labels)} {below}"


def _braces(labels: Labels) -> str:
    pairs = ",".join(f'{label}="{_escape(value)}"' for label, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}"


# What is measured


def measure(done: Operation) -> Iterator[Measurement]:
    """Yield the measurements of a finished operation."""
    for name, value, *labels in _MEASURES[done.kind](done):
        yield Measurement(f"quire_{name}", value, dict(labels))


_Values = Iterator[tuple[Any, ...]]


def _turn(done: Operation) -> _Values:
    if done.facts.get("joins"):
        return
    names = {Busy: "busy", LeaseLost: "lost", type(None): "finished"}
    yield "turns_total", 1, ("outcome", names.get(type(done.error), "failed"))
    yield "turn_seconds", done.seconds


def _wait(done: Operation) -> _Values:
    yield "turn_wait_seconds", done.seconds


def _render(done: Operation) -> _Values:
    yield "render_seconds", done.seconds
    if done.error is None and not done.facts["is_preview"]:
        yield "renders_total", 1
        yield "view_cached_tokens_total", done.facts["cached"]
        for part, tokens in done.facts["parts"].items():
            yield "view_tokens_total", tokens, ("part", part)


def _fold(done: Operation) -> _Values:
    if "exchanges" in done.facts:
        yield "folds_total", 1
        yield "folded_exchanges_total", done.facts["exchanges"]


def _commit(done: Operation) -> _Values:
    yield "commit_seconds", done.seconds
    if done.error is None:
        yield "commits_total", 1, ("operation", done.facts["operation"])
        return
    yield "commit_errors_total", 1, ("error", type(done.error).__name__)
    if isinstance(done.error, Conflict):
        yield "conflicts_total", 1


def _find(done: Operation) -> _Values:
    yield "find_seconds", done.seconds


def _tool(done: Operation) -> _Values:
    tool = ("tool", done.facts["tool"])
    failed = done.error is not None or done.facts.get("failed", False)
    yield "tool_calls_total", 1, tool, ("outcome", "failed" if failed else "finished")
    yield "tool_seconds", done.seconds, tool


def _model(done: Operation) -> _Values:
    model = ("model", done.facts["model"])
    yield "model_calls_total", 1, model, ("outcome", "failed" if done.error is not None else "finished")
    yield "model_seconds", done.seconds, model


def _usage(done: Operation) -> _Values:
    if done.error is None:
        model = ("model", done.facts["model"])
        yield "billed_tokens_total", done.facts["billed"], model
        yield "billed_cached_tokens_total", done.facts["cached"], model


_MEASURES = {
    "turn": _turn,
    "wait": _wait,
    "render": _render,
    "fold": _fold,
    "commit": _commit,
    "find": _find,
    "tool": _tool,
    "model": _model,
    "usage": _usage,
}


class _ProcessMetrics:
    """The observer that counts finished operations in the registry of this process."""

    def __init__(self) -> None:
        self.registry: Registry | None = None

    def parent(self) -> None:
        """Return nothing: counters have no parents."""

    def start(self, operation: Operation, parent: object) -> None:
        """Do nothing: operations are counted when they end."""

    def detach(self, operation: Operation, mark: object) -> None:
        """Do nothing."""

    def finish(self, operation: Operation, mark: object) -> None:
        """Count an operation."""
        registry = self.registry
        if registry is not None:
            for found in measure(operation):
                registry.add(found.name, found.value, **found.labels)


_process = _ProcessMetrics()


def start() -> None:
    """Count the operations of this process from now on. A second call changes nothing."""
    if _process.registry is None:
        _process.registry = Registry(FAMILIES)
        probes.observe(_process)


def stop() -> None:
    """Stop counting and forget all counts."""
    probes.unobserve(_process)
    _process.registry = None


def text() -> str:
    """Return the metrics of this process in Prometheus format; "" before `start`."""
    return "" if _process.registry is None else _process.registry.text()
