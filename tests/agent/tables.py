"""The tables of docs/agent.md, made from the data. `python -m tests.agent.tables` writes them again."""

from pathlib import Path

from quire import Permission
from quire.agent import Quota
from quire.agent.gate import ALLOWED, OPERATIONS, Right
from quire.agent.tool_table import TOOLS, Tool

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "agent.md"
_NEEDS = {"": "", "windows": "while there are apps", "manage": "with `manage=True`"}
_OF_NO_SEGMENT = "add_segment"
_RULES = {
    Right.READ: "",
    Right.HIDE: "never a pinned page or one above it",
    Right.WRITE: "never a pinned page",
    Right.MANAGE: "with `manage=True`; no SYSTEM segment; never to or from PRIVATE",
}


def permissions() -> str:
    """Return the allowed operations by permission."""
    shown = [permission for permission in Permission if permission is not Permission.PRIVATE]
    head = ["operation", *(permission.name for permission in shown), "PRIVATE", ""]
    rows = []
    for right in Right:
        named = [name for name, needed in OPERATIONS.items() if needed is right and name != _OF_NO_SEGMENT]
        names = ", ".join(f"`{name}`" for name in named)
        marks = ["✓" if permission in ALLOWED[right] else "✗" for permission in shown]
        rows.append([names, *marks, "not there", _RULES[right]])
    rows.append([f"`{_OF_NO_SEGMENT}`", *("–" for _ in Permission), "with `manage=True`; quire chooses its id"])
    return _table(head, rows)


def tools() -> str:
    """Return the tools and their arguments."""
    return _table(
        ["tool", "arguments", "description for the model", ""],
        [[f"`{tool.name}`", _arguments(tool), tool.about, _NEEDS[tool.needs]] for tool in TOOLS],
    )


def quotas() -> str:
    """Return the default quotas."""
    values = Quota()
    return _table(
        ["`Quota`", "default"], [[f"`{name}`", f"{getattr(values, name):,}"] for name in Quota.__struct_fields__]
    )


TABLES = {"permissions": permissions, "tools": tools, "quotas": quotas}


def written(page: str) -> str:
    """Return the page with its tables from the data. Each table is between two comments that name it."""
    for name, table in TABLES.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = page.partition(start)
        _, found, tail = rest.partition(end)
        if not found:
            raise ValueError(f"docs/agent.md has no place for the table {name!r}.")
        page = f"{head}{start}{table()}{end}{tail}"
    return page


def _arguments(tool: Tool) -> str:
    return ", ".join(f"`{p.name}`" if p.required else f"`{p.name}?`" for p in tool.parameters)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
