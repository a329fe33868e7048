"""Run cells as processes: start them with a request, limit their time, and read the answer."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.cell import ANSWER
from bench.peers.environments import Environment
from bench.peers.registry import Entry

ERROR = "error"
_PLACE = re.compile(r"\w+://\S+|(?<=host=)\S+|(?:/[\w.+-]+){2,}")
"""Matches an address, a host that could not be reached, or a path."""
Answer = dict[str, Any]


@dataclass(frozen=True)
class Cells:
    """The cells of one peer."""

    entry: Entry
    environment: Environment

    def ask(self, work: str, folder: Path, limit: float, **asked: Any) -> Answer:
        """Return the answer of one process; it has an `error` if the process fails or exceeds `limit` seconds."""
        return finished(self.start(work, folder, **asked), limit)

    def start(self, work: str, folder: Path, **asked: Any) -> "subprocess.Popen[str]":
        """Start the process."""
        text = json.dumps({"work": work, "where": self.entry.where, "folder": str(folder), **asked})
        return subprocess.Popen(
            [self.environment.python, "-m", "bench.peers.cell", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment.variables(),
            cwd=folder,
        )


def finished(process: "subprocess.Popen[str]", limit: float, said: str | None = None) -> Answer:
    """Wait for the process and return its answer; write `said` to it first."""
    try:
        out, errors = process.communicate(said, timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {ERROR: f"not done in {limit:.0f} s"}
    lines = [line for line in out.splitlines() if line.startswith(ANSWER)]
    if process.returncode == 0 and lines:
        answer: Answer = json.loads(lines[-1].removeprefix(ANSWER))
        return answer
    told = errors.strip().splitlines() or ["it ended without a word"]
    return {ERROR: without_paths(told[-1])[:200]}


def without_paths(text: str) -> str:
    """Return an error's text without details of the machine."""
    return _PLACE.sub("…", text)
