"""Measure one cell of the tables in a separate process: the request and the answer are JSON."""

import json
import logging
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers.workloads import life, resume, search, turn, writers

WORKS: dict[str, Callable[..., dict[str, Any]]] = {
    "turn": turn.measure,
    "build": resume.build,
    "resume": resume.measure,
    "write": writers.write,
    "check": writers.check,
    "search": search.measure,
    "life": life.measure,
}
ANSWER = "answer "


def main() -> None:
    """Measure the request in the first argument and print the answer with a marker, because peers print too."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    asked: dict[str, Any] = json.loads(sys.argv[1])
    module, name = asked.pop("where").split(":")
    kind = getattr(import_module(f"bench.peers.adapters.{module}"), name)
    answer = WORKS[asked.pop("work")](kind, Path(asked.pop("folder")), **asked)
    print(f"\n{ANSWER}{json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main()
