"""A worker process of test_turn_workers.py: it runs turns on one context until it is done, killed or stopped."""

import sys

import quire


def main(url: str, name: str, count: str, last: str) -> None:
    """Run `count` turns. The last one ends as `last` says: `end`, or `hang` and `hang-kept` after a message."""
    with quire.Library(url) as library:
        for number in range(int(count)):
            with library.turn("talk", key=f"{name}-{number}", wait=60, keep=last == "hang-kept") as ctx:
                ctx.user(f"{name}-{number}?")
                if number == int(count) - 1 and last.startswith("hang"):
                    _hang(ctx)
                ctx.assistant(f"{name}-{number}!")


def _hang(ctx: quire.Context) -> None:
    """Tell the test, wait for its answer, and try to commit once more."""
    sys.stdout.write("waiting\n")
    sys.stdout.flush()
    sys.stdin.readline()
    try:
        ctx.assistant("too late")
        sys.stdout.write("committed\n")
    except quire.QuireError as error:
        sys.stdout.write(f"{error.code}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
