"""Figures for Prometheus, counted on the event loop alone, so without a lock."""

from collections.abc import Iterator

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """What the server did: requests by route and status, how long they took, what is open now."""

    def __init__(self) -> None:
        self.running = 0
        self.retried = 0
        self.refused: dict[str, int] = {}
        self._requests: dict[tuple[str, str, int], int] = {}
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Take note of a request that was answered."""
        key = (method, route, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        buckets = self._buckets.setdefault(route, [0] * (len(_BOUNDS) + 1))
        place = next((n for n, bound in enumerate(_BOUNDS) if seconds <= bound), len(_BOUNDS))
        buckets[place] += 1
        self._seconds[route] = self._seconds.get(route, 0.0) + seconds

    def refuse(self, why: str) -> None:
        """Take note of a request that did not come in."""
        self.refused[why] = self.refused.get(why, 0) + 1

    def text(self, **gauges: int) -> str:
        """All of it in Prometheus' form, with what is open now."""
        return "\n".join([*self._lines(), *_gauges(requests_running=self.running, **gauges), ""])

    def _lines(self) -> Iterator[str]:
        yield from _head("quire_http_requests_total", "counter", "Requests that were answered.")
        for (method, route, status), number in sorted(self._requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            yield f"quire_http_requests_total{{{labels}}} {number}"
        yield from _head("quire_http_refused_total", "counter", "Requests that did not come in.")
        for why, number in sorted(self.refused.items()):
            yield f'quire_http_refused_total{{why="{why}"}} {number}'
        yield from _head("quire_conflicts_retried_total", "counter", "Changes made again after another writer's.")
        yield f"quire_conflicts_retried_total {self.retried}"
        yield from _head("quire_http_request_seconds", "histogram", "How long answers took.")
        for route, buckets in sorted(self._buckets.items()):
            below = 0
            for bound, number in zip((*map(str, _BOUNDS), "+Inf"), buckets, strict=True):
                below += number
                yield f'quire_http_request_seconds_bucket{{route="{route}",le="{bound}"}} {below}'
            yield f'quire_http_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'quire_http_request_seconds_count{{route="{route}"}} {below}'


def _gauges(**values: int) -> Iterator[str]:
    for name, value in values.items():
        yield from _head(f"quire_{name}", "gauge", f"{name.replace('_', ' ').capitalize()} now.")
        yield f"quire_{name} {value}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
