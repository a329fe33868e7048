"""A worker process of test_summary_board.py: it runs turns with a slow summariser, and logs every call of it."""

import os
import sys
import time
from pathlib import Path

import quire


def main(url: str, log: str, name: str, turns: str, seconds: str) -> None:
    """Run turns on the context `talk`, with a handle each. With 0 turns, work off what is pending."""

    def summarise(text: str, tokens: int) -> str:
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()} {text.splitlines()[0]!r}\n")
        time.sleep(float(seconds))
        return "The model says something."

    library = quire.Library(url, summariser=summarise)
    for number in range(int(turns)):
        with library.turn("talk", budget=1_500, wait=60) as ctx:
            ctx.user(f"Question {name}-{number} about HAT{number}. " + "I would like to know. " * 12)
            view = ctx.render()
            ctx.assistant(f"Answer {name}-{number}. " + "That is all. " * 12, view=view)
    if not int(turns):
        library.summarise()
    sys.stdout.write("done\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
