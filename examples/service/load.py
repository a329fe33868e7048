"""A load for the service: many users, some requests at a time; every request is repeated until it is answered.

python -m service.load --users 200 --in-flight 12 --turns 5 http://127.0.0.1:8001 http://127.0.0.1:8002
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx


@dataclass
class Outcome:
    """What happened: the answered requests, repeats, and the seconds of each request from the first try."""

    answered: dict[str, list[str]] = field(default_factory=dict)
    repeats: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


async def run(
    urls: Sequence[str], users: int, in_flight: int, turns: int, *, until: float | None = None, seed: int = 0
) -> Outcome:
    """Send `turns` requests for each user, or as many as fit until a time; a user waits for one answer at a time."""
    outcome, chance, gate = Outcome(), random.Random(seed), asyncio.Semaphore(in_flight)
    limits = httpx.Limits(max_connections=in_flight * 2, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:

        async def talk(user: str) -> None:
            for number in range(turns):
                async with gate:
                    if until is not None and time.monotonic() > until:
                        return
                    await _ask(client, urls, user, f"{user}-{number}", chance, outcome)

        await asyncio.gather(*(talk(f"user-{number}") for number in range(users)))
    return outcome


async def _ask(
    client: httpx.AsyncClient, urls: Sequence[str], user: str, request_id: str, chance: random.Random, outcome: Outcome
) -> None:
    """Send a request to any worker until one answers it."""
    start = time.monotonic()
    text = f"Question {request_id}: what is the status of order W{chance.randrange(10_000):04}?"
    for attempt in range(200):
        try:
            problem = await _send(client, chance.choice(urls), user, {"id": request_id, "text": text})
        except httpx.HTTPError as error:
            problem = type(error).__name__
        if problem is None:
            outcome.answered.setdefault(user, []).append(request_id)
            outcome.seconds.append(time.monotonic() - start)
            outcome.repeats += attempt
            return
        await asyncio.sleep(chance.uniform(0.02, 0.3))
    outcome.failures.append(f"{request_id}: {problem}")


async def _send(client: httpx.AsyncClient, url: str, user: str, body: dict[str, str]) -> str | None:
    """Return None if the request was answered to its end, else the problem."""
    event = ""
    async with client.stream("POST", f"{url}/chat/{user}", json=body) as response:
        if response.status_code != 200:
            return f"status {response.status_code}"
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif event == "error" and line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                if not data["retry"]:
                    raise RuntimeError(data["error"])
                return str(data["code"])
    return None if event == "done" else "the stream ended early"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--in-flight", type=int, default=12)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    start = time.monotonic()
    done = asyncio.run(run(given.urls, given.users, given.in_flight, given.turns))
    taken = sorted(done.seconds) or [0.0]
    total = sum(map(len, done.answered.values()))
    print(f"{total} requests answered in {time.monotonic() - start:.1f} s, {done.repeats} repeats")
    print(f"median {taken[len(taken) // 2]:.3f} s, p99 {taken[len(taken) * 99 // 100]:.3f} s")
    for failure in done.failures:
        print(f"not answered: {failure}")


if __name__ == "__main__":
    main()
