"""Reads a store in a process of its own and prints what it finds: `python read_only_reader.py URL`."""

import sys
from tempfile import TemporaryDirectory

import quire


def main(where: str) -> None:
    with quire.open(where) as ctx:
        print(f"messages {len(ctx.messages())} seq {ctx.seq} problems {len(ctx.check())}")  # noqa: T201
        print(f"view {ctx.render().openai()[-1]['content']}")  # noqa: T201
        print(f"found {len(ctx.find('hello'))}")  # noqa: T201
        print(f"contexts {list(quire.Library(where).list())}")  # noqa: T201
        try:
            ctx.user("One more")
        except quire.QuireError as error:
            print(f"{type(error).__name__} {error.code}")  # noqa: T201
        print(f"healthy {quire.doctor(where).healthy}")  # noqa: T201
    with TemporaryDirectory() as folder:
        print(f"backup {quire.backup(where, f'{folder}/copy.db').contexts}")  # noqa: T201
    try:
        quire.open(where, "another")
    except quire.QuireError as error:
        print(f"{type(error).__name__} {error.code}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
