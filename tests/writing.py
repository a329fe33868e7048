"""Add pages to a context while other processes do the same. `test_concurrency.py` runs it as a program.

It prints `ready`, waits for a line, adds its pages with refresh and retry, and prints the number of conflicts.
"""

import sys

import quire
from quire import Busy, Conflict, EstimateCounter


def main(url: str, context: str, writer: str, count: str) -> None:
    quire.open("memory:", counter=EstimateCounter()).pages.create_detail_page("warm", "", "up", "mem-0")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    conflicts = 0
    with quire.open(url, context, counter=EstimateCounter()) as book:
        for number in range(int(count)):
            while True:
                try:
                    book.pages.create_detail_page(f"{writer}-{number}", "", f"text of {writer}-{number}", "mem-0")
                    break
                except (Conflict, Busy):
                    conflicts += 1
                    book.refresh()
    sys.stdout.write(f"{conflicts}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
