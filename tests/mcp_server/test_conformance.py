"""The protocol's own tests from npm: its conformance suite and its inspector. They run with `-m clients`, as in CI.

The whole suite runs for the protocol with a handshake and for the one without. Some scenarios need tools, resources and
prompts that only a server for the suite has; all others must pass. Packages are installed once per run, with a recent
Node. If they cannot be installed, the tests are skipped, and fail in CI.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import quire
from tests.mcp_server.clients import command
from tests.mcp_server.conftest import NAME, URI, fill

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("conformance")]  # one worker installs the packages
NODE = ("node@22",)
PACKAGES = (
    "@modelcontextprotocol/conformance@0.1.16",
    "conformance-next@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2",
)
HANDSHAKE = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
    "server-sse-multiple-streams",
)
MODERN = (
    "server-stateless",
    "tools-list",
    "resources-list",
    "prompts-list",
    "sep-2164-resource-not-found",
    "dns-rebinding-protection",
    "server-sse-multiple-streams",
    "caching",
    "http-header-validation",
    "input-required-result-unsupported-methods",
    "input-required-result-validate-input",
)
SESSIONS = (*HANDSHAKE, "server-session-lifecycle")
RUNS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "the released suite": ("@modelcontextprotocol/conformance", (), HANDSHAKE),
    "the next suite, with a handshake": ("conformance-next", ("--spec-version", "2025-11-25"), SESSIONS),
    "the next suite, without one": ("conformance-next", ("--spec-version", "2026-07-28"), MODERN),
}
"""The suites to run, and the scenarios that every server must pass."""

WANTS_ITS_OWN_SERVER = re.compile(
    r"No (tool|prompt) 'test_|No page 'test://|Not testable: server (does not list|exposes no)"
    r"|Tool 'json_schema_2020_12_tool' not found|Expected InputRequiredResult|could not get initial InputRequiredResult"
)
WITHOUT = {"logging-set-level", "completion-complete", "tools-call-with-logging"}
"""Scenarios of features that the server does not offer: logging and completion."""


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the packages and return their folder."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true}')
    try:
        for wanted in (NODE, PACKAGES):  # the second call runs npm with the new Node, which selects matching versions
            subprocess.run(
                [shutil.which("npm") or "npm", "install", "--no-audit", "--no-fund", "--no-package-lock", *wanted],
                cwd=folder,
                env=environment(folder),
                check=True,
                capture_output=True,
                timeout=600,
            )
    except (OSError, subprocess.SubprocessError) as error:
        told = f"{error} {getattr(error, 'stderr', b'')!r}"
        if os.environ.get("CI") == "true":
            pytest.fail(f"The packages of the MCP conformance suite could not be installed: {told}")
        pytest.skip(f"needs npm and the packages {', '.join(PACKAGES)}: {told[:300]}")
    return folder


def environment(folder: Path) -> dict[str, str]:
    path = f"{folder / 'node_modules' / '.bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "MCP_AUTO_OPEN_ENABLED": "false", "HOME": str(folder)}


@pytest.fixture(scope="session", params=RUNS)
def checks(
    request: pytest.FixtureRequest, packages: Path, http: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[tuple[str, ...], dict[str, list[dict[str, Any]]]]:
    """Run the whole suite; return the scenarios to pass, and the checks by scenario."""
    package, options, wanted = RUNS[request.param]
    results = tmp_path_factory.mktemp("results")
    program = packages / "node_modules" / package / "dist" / "index.js"
    words = [*options, "--suite", "all", "--url", http[1], "--output-dir", str(results)]
    ran = subprocess.run(
        ["node", str(program), "server", *words],
        env=environment(packages),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = {
        re.sub(r"^server-(.*)-\d{4}-\d\d-\d\dT.*$", r"\1", file.parent.name): json.loads(file.read_text())
        for file in results.glob("*/checks.json")
    }
    assert found, ran.stdout + ran.stderr
    return wanted, found


def test_every_scenario_that_needs_no_special_server_passes(
    checks: tuple[tuple[str, ...], dict[str, list[dict[str, Any]]]],
) -> None:
    wanted, found = checks
    assert set(wanted) <= found.keys()
    for scenario in wanted:
        assert any(check["status"] == "SUCCESS" for check in found[scenario]), scenario
    failed = [
        f"{scenario}: {check['id']}: {check.get('errorMessage')}"
        for scenario, list_ in found.items()
        for check in list_
        if check["status"] == "FAILURE" and scenario not in WITHOUT
    ]
    assert [line for line in failed if not WANTS_ITS_OWN_SERVER.search(line)] == []
    excused = {line.partition(":")[0] for line in failed} & set(wanted) - {"server-stateless"}
    assert not excused  # the suite tests some features with tools of its own, which this server does not have


def inspect(packages: Path, target: list[str], *words: str) -> Any:
    """Return the output of the inspector."""
    ran = subprocess.run(
        [str(packages / "node_modules" / ".bin" / "mcp-inspector"), "--cli", *target, *words],
        env=environment(packages),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_lists_tools_and_resources(
    packages: Path, http: tuple[Path, str], tmp_path: Path, transport: str
) -> None:
    store = tmp_path / "store.db"
    with fill(quire.open(store, NAME)) as ctx:
        names = ctx.tools.names()
    target = command(store) if transport == "stdio" else [http[1]]
    assert [tool["name"] for tool in inspect(packages, target, "--method", "tools/list")["tools"]] == names
    called = inspect(packages, target, "--method", "tools/call", "--tool-name", "read_page", "--tool-arg", "page=usr-1")
    assert called["content"][0]["text"] == "User: I want to fly to Seattle."
    listed = inspect(packages, target, "--method", "resources/list")["resources"]
    assert f"{URI}sys-1" in [one["uri"] for one in listed]
    text = inspect(packages, target, "--method", "resources/read", "--uri", f"{URI}sys-1")["contents"][0]["text"]
    assert text == "System: You are a careful travel agent."
    prompt = inspect(packages, target, "--method", "prompts/get", "--prompt-name", "preamble")
    assert prompt["messages"][0]["content"]["text"].startswith("Context key: ")
    assert len(inspect(packages, target, "--method", "resources/templates/list")["resourceTemplates"]) == 2


def test_the_inspector_finds_no_fault_with_the_schemas(packages: Path, http: tuple[Path, str]) -> None:
    assert inspect(packages, [http[1]], "--method", "tools/list", "--strict")["tools"]
