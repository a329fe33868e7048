"""Create the virtual environments of the peers, one per list of requirements, and reuse them.

A peer with requirements that conflict with the others has its own environment.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.registry import Entry

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "bench" / ".environments"
REQUIREMENTS = Path(__file__).parent / "requirements"
_MINUTES = 15
_VERSIONS = "from importlib.metadata import distributions as d; print(*(f'{one.name}={one.version}' for one in d()))"
_QUIET = {
    "ANONYMIZED_TELEMETRY": "false",
    "HEADROOM_TELEMETRY": "off",
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "OTEL_SDK_DISABLED": "true",
}
"""Variables that prevent network access during a measurement."""


@dataclass
class Environment:
    """A Python that can import this checkout of quire and some peers; `missing` says why it cannot import others."""

    python: Path
    missing: dict[str, str] = field(default_factory=dict)

    def variables(self) -> Mapping[str, str]:
        """The variables of its processes: quire and the benchmark come from this checkout."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, **_QUIET, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}

    def versions(self, packages: Iterable[str]) -> dict[str, str]:
        """Return the versions of the installed packages."""
        done = subprocess.run([self.python, "-c", _VERSIONS], capture_output=True, text=True, check=True)
        found = dict(pair.split("=", 1) for pair in done.stdout.split())
        return {name: found[name] for name in packages if name in found}


def made(entries: Iterable[Entry]) -> dict[str, Environment]:
    """Return the environments of these peers by name; create missing ones."""
    wanted: dict[str, dict[str, None]] = {}
    for entry in entries:
        wanted.setdefault(entry.environment, {"quire": None})[entry.requirements or "quire"] = None
    return {name: _environment(name, list(files)) for name, files in wanted.items()}


def _environment(name: str, files: list[str]) -> Environment:
    texts = "".join((REQUIREMENTS / f"{file}.txt").read_text() for file in files)
    digest = hashlib.sha256(f"{sys.version}{texts}".encode()).hexdigest()[:12]
    folder = HERE / f"{name}-{digest}"
    environment = Environment(folder / "bin" / "python")
    ready = folder / "ready"
    if not ready.exists():
        print(f"installing the environment {folder.name} (once, some minutes) …", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        ready.write_text("".join(f"{file}\t{why}\n" for file, why in _installed(environment, files).items()))
    environment.missing = dict(line.split("\t", 1) for line in ready.read_text().splitlines())
    return environment


def _installed(environment: Environment, files: list[str]) -> dict[str, str]:
    """Install all requirements together, so that versions agree; on failure one by one, to find the cause."""
    if _failure(environment, files) is None:
        return {}
    return {file: why for file in files if (why := _failure(environment, [file])) is not None}


def _failure(environment: Environment, files: list[str]) -> str | None:
    """Install these requirements; return pip's error, or None."""
    lists = [argument for file in files for argument in ("-r", str(REQUIREMENTS / f"{file}.txt"))]
    command = [str(environment.python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *lists]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MINUTES * 60)
    except subprocess.TimeoutExpired:
        return f"pip took more than {_MINUTES} minutes"
    if done.returncode == 0:
        return None
    told = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (told[0].removeprefix("ERROR: ") if told else "pip failed").replace("\t", " ")[:200]
