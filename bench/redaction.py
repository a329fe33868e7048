"""What `quire.redact_secrets` removes from the recorded conversations, and its speed: `python -m bench.redaction`.

The conversations contain no real secrets, so everything that it removes there is wrong, unless it is an example of a
secret. Each removed text is printed with what is around it, for a person to judge.
"""

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.traces import TRACES
from quire import redact_secrets

_MARK = re.compile(r"\[redacted ([A-Za-z ]+)\]")
_AROUND = 60


def main() -> None:
    """Print the figures of each file, and all removed texts."""
    for path in sorted(TRACES.parent.glob("*.jsonl.gz")):
        texts = list(_read(path))
        start = perf_counter()
        clean = [redact_secrets(text) for text in texts]
        seconds = perf_counter() - start
        characters = sum(map(len, texts))
        removed = [(old, new) for old, new in zip(texts, clean, strict=True) if old != new]
        kinds = Counter(kind for old, new in removed for kind in _MARK.findall(new))
        _print(
            f"{path.name}: {len(texts):,} texts, {characters / 1e6:,.1f} million characters,"
            f" {sum(kinds.values())} removed {dict(kinds)}, {characters / seconds / 1e6:.0f} million characters/s"
        )
        for before in sorted({place for old, new in removed for place in _places(old, new)}):
            _print(f"    {before!r}")


def _read(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield from _texts(json.loads(line))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _places(old: str, new: str) -> Iterator[str]:
    """Yield what was removed, with what is around it."""
    position = 0
    for found in _MARK.finditer(new):
        before = new[max(0, found.start() - 20) : found.start()]
        position = max(0, old.find(before, position))
        yield old[position : position + _AROUND]
        position += 1


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
