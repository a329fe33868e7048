"""A program: a worker of a service. It runs turns on a few shared contexts until its input ends.

    turn_workers.py URL WORKER CONTEXTS SEED

A turn adds a question and an answer. A turn that fails is retried with its key, as a service retries a request. Each
acknowledged turn is printed as `context key`, and each error as `!name`. An error that is not safe to retry ends it.
`+` is printed when the library is open: a first connection does not wait for a server that is away.
"""

import random
import sys
import threading
import time

import quire
from quire import OutcomeUnknown


def main(url: str, worker: str, contexts: str, seed: str) -> None:
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    chance = random.Random(f"{seed} {worker}")
    number = 0
    with quire.Library(url) as library:
        _say("+")
        while not ended.is_set():
            number += 1
            context, key = f"user-{chance.randrange(int(contexts))}", f"{worker}.{number}"
            while not _turn(library, context, key, chance):
                time.sleep(0.02)
            _say(f"{context} {key}")


def _turn(library: quire.Library, context: str, key: str, chance: random.Random) -> bool:
    """Run one turn. Return False if it must be retried."""
    try:
        with library.turn(context, key=key, wait=10, budget=2_000) as ctx:
            ctx.user(f"question {key}.")
            ctx.render()
            time.sleep(chance.random() * 0.01)  # the model
            ctx.assistant(f"answer {key}.")
    except (quire.Busy, quire.Conflict, OutcomeUnknown) as error:
        _say(f"!{type(error).__name__}")
        return False
    return True


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
