"""A process without free file handles: every call works or raises an error of quire, and nothing is damaged."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, resource, sys
import quire
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
place, target = sys.argv[1:]
ctx, library = quire.open(place), quire.Library(place)
ctx.user("hello")
library.open("a" * 180).user("A long name has a hash in its folder.")
calls = {
    "render": lambda: ctx.render(),
    "add": lambda: ctx.user("again"),
    "find": lambda: ctx.find("hello"),
    "check": lambda: ctx.check(),
    "history": lambda: list(ctx.history()),
    "open": lambda: quire.open(place, "other"),
    "open a library": lambda: quire.Library(place),
    "backup": lambda: quire.backup(place, target),
    "doctor": lambda: quire.doctor(place),
    "export": lambda: library.export("default", target + ".export"),
    "save": lambda: ctx.pages.save(target + ".json"),
    "tools": lambda: ctx.tools.openai(),
    "windows": lambda: ctx.windows,
    "fork": lambda: ctx.fork("copy"),
    "purge": lambda: ctx.pages.purge("usr-1"),
    "list": lambda: list(library.list()),
}
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for name, call in calls.items():
    try:
        answer = call()
        if name == "list":
            assert "a" * 180 in answer, answer
    except quire.QuireError as error:
        assert "does its folder exist" not in str(error), error
        assert error.code == "storage_failure", (name, error)
for handle in held:
    os.close(handle)
assert ctx.check() == []
ctx.render()
assert "a" * 180 in list(library.list())
assert quire.doctor(place).healthy
"""


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_exhausted_file_handles_give_errors_of_quire(scheme: str, tmp_path: Path) -> None:
    values = (f"{scheme}:{tmp_path / 'store'}", str(tmp_path / "target"))
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *values], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
