"""A program that writes one context and prints each step that was acknowledged. `racing.py` runs and kills it.

    writer.py URL LIFE STEPS SEED

A step is one commit: a page, or up to 16 messages. A step that fails is tried again. It must not be made twice: the
messages have an id, and a page is looked for first.
"""

import sys
import time
from random import Random

import quire
from quire import Busy, Conflict, Context, EstimateCounter, StorageFailure

REPEATED = (1, 1, 10, 30)
"""How often a text is repeated."""


def main(url: str, life: str, steps: str, seed: str) -> None:
    random, book = Random(f"{seed} {life}"), None
    for number in range(int(steps)):
        step, count = f"{life}-{number}", random.choice((0, random.randint(1, 16)))
        names = [f"{step}.{part}/{count}" for part in range(1, count + 1)] or [step]
        texts = [f"text of {name} " * random.choice(REPEATED) for name in names]
        while True:
            try:
                book = book or quire.open(url, "book", counter=EstimateCounter())
                book.refresh()
                _add(book, step, texts, count > 0)
                break
            except (Busy, Conflict, StorageFailure):
                time.sleep(random.uniform(0, 0.05))
        sys.stdout.write("".join(f"{name}\n" for name in names))
        sys.stdout.flush()


def _add(book: Context, step: str, texts: list[str], are_messages: bool) -> None:
    if are_messages:
        book.add([{"role": "user", "content": text} for text in texts], id=step)
    elif all(page.name != step for page in book.pages.children("mem-0")):
        book.pages.create_detail_page(step, "", texts[0], "mem-0")


if __name__ == "__main__":
    main(*sys.argv[1:])
