"""Tool schemas in the shapes of OpenAI, Anthropic and MCP, made from the table."""

from typing import Any

from quire.agent.table import Parameter, Tool

_TYPES: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "page": {"type": "string"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "pages": {"type": "array", "items": {"type": "string"}},
    "object": {"type": "object"},
}


def openai(tool: Tool, name: str) -> dict[str, Any]:
    """A function tool of OpenAI's chat completions."""
    function = {"name": name, "description": tool.about, "parameters": parameters(tool)}
    return {"type": "function", "function": function}


def responses(tool: Tool, name: str) -> dict[str, Any]:
    """A function tool of OpenAI's Responses API."""
    return {"type": "function", "name": name, "description": tool.about, "parameters": parameters(tool)}


def anthropic(tool: Tool, name: str) -> dict[str, Any]:
    """A tool of Anthropic's messages."""
    return {"name": name, "description": tool.about, "input_schema": parameters(tool)}


def mcp(tool: Tool, name: str) -> dict[str, Any]:
    """A tool of the Model Context Protocol, with what a client may want to know before it lets it run."""
    hints = {"readOnlyHint": tool.reads, "destructiveHint": tool.takes, "openWorldHint": False}
    return {"name": name, "description": tool.about, "inputSchema": parameters(tool), "annotations": hints}


def parameters(tool: Tool) -> dict[str, Any]:
    """The JSON schema of a tool's arguments."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {parameter.name: _property(parameter) for parameter in tool.parameters},
    }
    required = [parameter.name for parameter in tool.parameters if parameter.required]
    return {**schema, "required": required} if required else schema


def _property(parameter: Parameter) -> dict[str, Any]:
    choices = {"enum": list(parameter.choices)} if parameter.choices else {}
    return {**_TYPES[parameter.kind], **choices, "description": parameter.about}
