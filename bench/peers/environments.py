"""The environments that the peers are installed in: made once for every list of requirements, and kept.

A peer whose requirements do not agree with those of the others has an environment of its own.
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
"""Nothing is sent or fetched while it is measured."""


@dataclass
class Environment:
    """A Python that can import quire as it stands here, and some peers; `missing` says why it cannot import others."""

    python: Path
    missing: dict[str, str] = field(default_factory=dict)

    def variables(self) -> Mapping[str, str]:
        """What its processes run with: quire and the benchmark come from this checkout."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, **_QUIET, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}

    def versions(self, packages: Iterable[str]) -> dict[str, str]:
        """The versions of the packages it has."""
        done = subprocess.run([self.python, "-c", _VERSIONS], capture_output=True, text=True, check=True)
        found = dict(pair.split("=", 1) for pair in done.stdout.split())
        return {name: found[name] for name in packages if name in found}


def made(entries: Iterable[Entry]) -> dict[str, Environment]:
    """The environments these peers need, by name, made if they are not there yet."""
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
    """Install all at once, so that their versions agree; if that fails one by one, to know which one it is."""
    if _failure(environment, files) is None:
        return {}
    return {file: why for file in files if (why := _failure(environment, [file])) is not None}


def _failure(environment: Environment, files: list[str]) -> str | None:
    """Why pip could not install these requirements; None if it could."""
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
