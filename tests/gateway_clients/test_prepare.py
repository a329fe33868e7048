"""How clients are started: variables and arguments, and nothing in their configuration."""

import json

import pytest

from quire.errors import InvalidValue
from quire.gateway.clients import prepare

URL = "http://127.0.0.1:8379"
MCP = ["quire", "mcp", "agent.db"]


def test_claude_code_gets_a_variable_and_an_argument() -> None:
    plain = prepare(["claude", "-c"], URL, environment={})
    assert plain == (["claude", "-c"], {"ANTHROPIC_BASE_URL": URL})
    command, variables = prepare(["/opt/bin/claude", "fix it"], URL, mcp=MCP, environment={})
    assert variables == {"ANTHROPIC_BASE_URL": URL}
    program, server, prompt = command
    assert (program, prompt) == ("/opt/bin/claude", "fix it")
    assert json.loads(server.removeprefix("--mcp-config=")) == {
        "mcpServers": {"quire": {"command": "quire", "args": ["mcp", "agent.db"]}}
    }


def test_codex_gets_settings_as_arguments() -> None:
    command, variables = prepare(["codex", "exec", "fix it"], URL, mcp=MCP, environment={})
    assert variables == {}
    assert command == [
        "codex",
        "-c",
        f'openai_base_url="{URL}/v1"',
        "-c",
        'mcp_servers.quire.command="quire"',
        "-c",
        'mcp_servers.quire.args=["mcp","agent.db"]',
        "-c",
        "mcp_servers.quire.startup_timeout_sec=60",
        "exec",
        "fix it",
    ]


def test_opencode_gets_its_configuration_in_a_variable() -> None:
    given = {"OPENCODE_CONFIG_CONTENT": '{"theme":"dark","provider":{"local":{"name":"Local"}}}'}
    command, variables = prepare(["opencode", "run", "-m", "local/qwen"], URL, mcp=MCP, environment=given)
    assert command == ["opencode", "run", "-m", "local/qwen"]
    config = json.loads(variables["OPENCODE_CONFIG_CONTENT"])
    assert config["theme"] == "dark"
    assert config["provider"]["local"] == {"name": "Local", "options": {"baseURL": f"{URL}/v1"}}
    assert {config["provider"][name]["options"]["baseURL"] for name in ("anthropic", "openai")} == {f"{URL}/v1"}
    assert config["mcp"]["quire"]["command"] == MCP


def test_aider_gets_variables() -> None:
    _, variables = prepare(["aider"], URL, environment={})
    assert variables == {"OPENAI_API_BASE": f"{URL}/v1", "ANTHROPIC_API_BASE": URL}


def test_another_client_gets_the_variables_that_the_user_names() -> None:
    launch = prepare(["my-agent", "-v"], URL, names=["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"], environment={})
    assert launch == (["my-agent", "-v"], {"OPENAI_BASE_URL": f"{URL}/v1", "ANTHROPIC_BASE_URL": URL})


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ([], {}, "Known clients: claude, codex, opencode, aider"),
        (["my-agent"], {}, "is needed for 'my-agent'"),
        (["my-agent"], {"names": ["BASE"], "mcp": MCP}, "cannot be used with 'my-agent'"),
        (["aider"], {"mcp": MCP}, "cannot be used with 'aider'"),
        (["opencode"], {"environment": {"OPENCODE_CONFIG_CONTENT": "{"}}, "not a JSON object"),
    ],
)
def test_what_cannot_be_started_is_refused(command: list[str], options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        prepare(command, URL, **{"environment": {}, **options})  # type: ignore[arg-type]
