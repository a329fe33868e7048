"""The table of commands. To add one, add a row here and its function `run_NAME` in the module.

A name can have two words, such as `gateway run`; the function of this one is `run_gateway_run`.

The module is imported when its command runs, so that the help needs no imports.
"""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from quire.cli.command import Command


class CommandRow(NamedTuple):
    """A command: its name, its module, and one line of help."""

    name: str
    module: str
    summary: str


GROUPS: dict[str, tuple[CommandRow, ...]] = {
    "start": (
        CommandRow("demo", "demo", "replay a short agent conversation and show how its view is kept in budget"),
        CommandRow("new", "contexts", "create a context"),
        CommandRow("import", "imports", "import a conversation from a file"),
        CommandRow("replay", "replay", "compare the cost of recorded conversations across strategies"),
    ),
    "read": (
        CommandRow("ls", "contexts", "list the contexts of a store"),
        CommandRow("tree", "pages", "show the pages of a context with their tokens"),
        CommandRow("show", "pages", "show one page with its full text"),
        CommandRow("find", "pages", "search all pages, folded and archived too"),
        CommandRow("stats", "pages", "count messages, pages and tokens of a context"),
    ),
    "view": (
        CommandRow("view", "view", "show a map of the model's window; writes nothing"),
        CommandRow("render", "view", "print the messages that a model would get; writes nothing"),
        CommandRow("why", "view", "explain how a page is shown, why, and how to change that"),
    ),
    "change pages": (
        CommandRow("write", "pages", "write a page by name, or replace its text"),
        CommandRow("expand", "pages", "open a page and all folders above it"),
        CommandRow("hide", "pages", "fold a page to its summary line"),
        CommandRow("pin", "pages", "always show the full text of a page"),
        CommandRow("unpin", "pages", "remove a pin"),
        CommandRow("archive", "pages", "archive a page: it leaves the view"),
        CommandRow("restore", "pages", "restore an archived page to the view"),
        CommandRow("recall", "pages", "restore a cold-archived page to its place"),
        CommandRow("move", "pages", "move a page, with all pages below it, into a folder"),
    ),
    "history": (
        CommandRow("history", "history", "list journal entries: operation, actor, time, pages"),
        CommandRow("undo", "history", "undo one entry and keep all later ones"),
        CommandRow("checkpoint", "history", "name the current state of a context"),
        CommandRow("rollback", "history", "return a context to a checkpoint, an entry or the state before a message"),
        CommandRow("fork", "contexts", "create a context from the current or an earlier state of another"),
    ),
    "copy and maintain": (
        CommandRow("export", "contexts", "write one context to a file"),
        CommandRow("backup", "contexts", "copy a whole store, even while it is in use"),
        CommandRow("migrate", "contexts", "copy contexts to another store and verify them"),
        CommandRow("check", "maintain", "check that every invariant of a context holds"),
        CommandRow("doctor", "maintain", "check a store and repair what can be repaired safely"),
        CommandRow("purge", "maintain", "delete pages permanently, with every trace of them"),
        CommandRow("delete", "maintain", "remove a context with its history; its forks stay"),
        CommandRow("expire", "maintain", "remove the contexts that were not changed for a long time"),
        CommandRow("erase", "maintain", "remove a context with its forks and every byte of them"),
        CommandRow("scrub", "maintain", "erase the bytes of everything that was deleted from a store"),
        CommandRow("serve", "serve", "serve a store over HTTP, with the inspector"),
        CommandRow("mcp", "serve", "serve a context to clients of the Model Context Protocol"),
        CommandRow("gateway", "gateway", "record the conversations of unchanged clients, and keep them in budget"),
        CommandRow("gateway run", "gateway", "start a client, such as claude or codex, with a gateway"),
        CommandRow("gateway demo", "gateway", "send a recorded conversation through a gateway, offline"),
        CommandRow("gateway sessions", "gateway", "list the sessions that gateways recorded, with figures"),
        CommandRow("gateway handoff", "gateway", "write a session that a client resumes without the gateway"),
        CommandRow("completion", "completion", "print the completion script for a shell"),
    ),
}
"""All commands, in the order of the help."""

ROWS: dict[str, CommandRow] = {row.name: row for rows in GROUPS.values() for row in rows}


def load(row: CommandRow) -> "Command":
    """Import and return the command of a row."""
    command: Command = getattr(import_module(f"{__name__}.{row.module}"), f"run_{row.name.replace(' ', '_')}")
    return command
