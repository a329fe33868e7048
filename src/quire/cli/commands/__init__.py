"""The table of commands. A new one is a module beside this one with its `COMMANDS`, and its row here.

The module is imported when its command is called, so that the table can be shown at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from quire.cli.command import Command


class Row(NamedTuple):
    """A command's name, the module it is in, and what it does in a line."""

    name: str
    module: str
    summary: str


GROUPS: tuple[tuple[str, tuple[Row, ...]], ...] = (
    (
        "begin",
        (
            Row("demo", "demo", "replay a short agent conversation and show how its view is kept"),
            Row("new", "contexts", "make a context"),
            Row("import", "importing", "take in a conversation from a file"),
            Row(
                "replay",
                "replay",
                "tell what recorded conversations would cost, with quire and as others do it",
            ),
        ),
    ),
    (
        "look",
        (
            Row("ls", "contexts", "list the contexts of a store"),
            Row("tree", "looking", "show a context's pages with their tokens"),
            Row("show", "looking", "show one page whole"),
            Row("find", "looking", "search the pages, archived ones too"),
            Row("stats", "looking", "count what a context holds"),
        ),
    ),
    (
        "the view",
        (
            Row("view", "views", "show what fills the model's window, as a map; nothing is written"),
            Row("render", "views", "print what the model would see; nothing is written"),
            Row("why", "views", "say why a page is shown as it is, and what would change that"),
        ),
    ),
    (
        "change pages",
        (
            Row("expand", "pages", "open a page and the chain above it"),
            Row("hide", "pages", "show only a page's summary line"),
            Row("pin", "pages", "show a page whole, always"),
            Row("unpin", "pages", "lift a pin"),
            Row("archive", "pages", "take a page out of the window"),
            Row("restore", "pages", "bring an archived page back into the window"),
            Row("recall", "pages", "bring a page back from the cold archive"),
            Row("move", "pages", "move a page with all below it into a folder"),
        ),
    ),
    (
        "history",
        (
            Row("history", "timeline", "list what was done, by whom and when"),
            Row("undo", "timeline", "undo one entry and keep all that came after"),
            Row("checkpoint", "timeline", "name the state of a context, to come back to"),
            Row("rollback", "timeline", "bring a context back to a checkpoint or an entry"),
            Row("fork", "contexts", "make another context of one, as it is or as it was"),
        ),
    ),
    (
        "care",
        (
            Row("export", "keeping", "write one context to a file"),
            Row("backup", "keeping", "copy a whole store that may be in use"),
            Row("migrate", "keeping", "copy contexts to another store, verified"),
            Row("doctor", "care", "examine a store, and repair what is safe to repair"),
            Row("purge", "care", "remove pages and every trace of them, for good"),
            Row("serve", "serving", "serve a store over HTTP, with the inspector"),
            Row("mcp", "mcp", "serve a context to clients of the Model Context Protocol"),
            Row("completion", "completion", "print the completion script of a shell"),
        ),
    ),
)
"""All commands, in the order of the help."""

ROWS: dict[str, Row] = {row.name: row for _, rows in GROUPS for row in rows}


def load(row: Row) -> "Command":
    """The command of a row."""
    command: Command = import_module(f"{__name__}.{row.module}").COMMANDS[row.name]
    return command
