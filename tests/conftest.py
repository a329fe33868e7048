"""Options of the whole suite, and settings that make it fast: compile once, use memory for temporary folders."""

import faulthandler
import gc
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from random import SystemRandom
from types import ModuleType

import pytest
from hypothesis import HealthCheck, core, settings
from hypothesis.internal import constants_ast
from hypothesis.internal.conjecture import providers

from tests.frameworks import FOLDERS

HELPERS = ("gateway_clients", "machine", "storage.folders", "surfaces", "view_laws")
pytest.register_assert_rewrite("quire.testing", *(f"tests.{name}" for name in HELPERS))

_MEMORY = Path("/dev/shm")
_ROOM = 4 * 2**30
"""The bytes that must be free there; some containers have only a few megabytes."""

# Otherwise each worker and each program that a test starts compiles the library again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A killed process loses nothing written to memory or to disk, so waiting for a disk proves nothing more.
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    tempfile.tempdir = os.environ.setdefault("TMPDIR", str(_MEMORY))  # for folders that are not pytest's


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked slow too, and longer forms of others")


def pytest_configure(config: pytest.Config) -> None:
    """Make the same random choices in each normal run, without time limits; the long proofs choose new ones.

    A seed in the environment repeats a run (see tests/seeds.py). It is printed at once: a run can be killed.
    """
    is_long = config.getoption("--long")
    settings.register_profile(
        "quire", derandomize=not is_long, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("quire")
    seed = os.environ.setdefault("QUIRE_SEED", str(SystemRandom().getrandbits(32)) if is_long else "7")
    vars(core)["global_force_seed"] = int(seed)  # a derandomized test does not use it
    if is_long and not hasattr(config, "workerinput"):
        sys.stderr.write(f"QUIRE_SEED={seed}\n")


def _draw_the_same_constants(*, many: bool) -> None:
    """Make what Hypothesis draws independent of the modules that are imported before.

    It takes constants from them. Now it takes many, those of every module of quire, or none.
    """
    for path in sorted(Path(__file__).parents[1].glob("src/**/*.py")) if many else ():
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        providers._local_constants |= constants_ast.constants_from_module(module)
    vars(providers)["is_local_module_file"] = lambda path: False


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seed of a run in which a test failed."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"QUIRE_SEED={os.environ['QUIRE_SEED']} repeats the random choices of this run")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out tests of other tiers whose package is not installed; tests/test_frameworks.py names it in CI."""
    package, _ = FOLDERS.get(collection_path.name, ("pytest", ""))
    return True if find_spec(package) is None else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the folders of other tiers, and leave out the tests marked slow, without --long."""
    for item in items:
        _, tier = FOLDERS.get(item.path.name) or FOLDERS.get(item.path.parent.name, ("", ""))
        if tier and "servers" not in item.keywords:
            item.add_marker(tier)
    if not config.getoption("--long"):
        slow = [item for item in items if "slow" in item.keywords]
        items[:] = [item for item in items if "slow" not in item.keywords]
        config.hook.pytest_deselected(items=slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Take away the time limit of a test (see pyproject.toml) in a run of the long proofs."""
    if item.config.getoption("--long"):
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fix what tests draw. Exclude tests and modules from garbage collection: they live until the end."""
    _draw_the_same_constants(many=session.config.getoption("--long"))
    gc.collect()
    gc.freeze()
