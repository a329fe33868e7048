"""The tools a model gets, as data: schemas, validation, dispatch and documentation all come from this table."""

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from quire.agent import handlers
from quire.agent.desk import Desk

Kind = Literal["string", "page", "integer", "boolean", "pages", "object"]
"""A page is an index, also as it stands in a line: `[usr-1 10]`."""


class Parameter(Struct, frozen=True, kw_only=True):
    """One argument of a tool."""

    name: str
    kind: Kind
    about: str
    required: bool = False
    choices: tuple[str, ...] = ()
    least: int = 0
    """The smallest number that makes sense."""


class Tool(Struct, frozen=True, kw_only=True):
    """One tool: what a model is told of it, and what runs when it is called."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]
    run: Callable[..., str]
    needs: Literal["", "windows", "manage"] = ""
    reads: bool = False
    """Whether it changes nothing, neither pages nor what is shown."""
    takes: bool = False
    """Whether it may take away what was there."""

    def call(self, desk: Desk, arguments: dict[str, Any]) -> str:
        """Run it."""
        return self.run(desk, **arguments)


_PAGE = Parameter(name="page", kind="page", about="Index, such as usr-12", required=True)

TOOLS: tuple[Tool, ...] = (
    Tool(
        name="find",
        about="Search all pages, folded and archived too. Use it before you say that something is lost.",
        parameters=(
            Parameter(name="query", kind="string", about='Words, "exact phrases", prefix*', required=True),
            Parameter(name="limit", kind="integer", about="Most hits, default 5", least=1),
        ),
        run=handlers.find,
        reads=True,
    ),
    Tool(
        name="read_page",
        about="Read a page's text without opening it, or list a folder. Without page: the table of contents.",
        parameters=(
            Parameter(name="page", kind="page", about="Page index"),
            Parameter(name="start", kind="integer", about="First character (in a folder: first entry), default 0"),
            Parameter(name="length", kind="integer", about="Most characters, as far as there is room", least=1),
        ),
        run=handlers.read_page,
        reads=True,
    ),
    Tool(
        name="expand_details",
        about="Open a folded or hidden page in your window, to work with it over several steps.",
        parameters=(_PAGE,),
        run=handlers.expand_details,
    ),
    Tool(
        name="hide_details",
        about="Show a page as one line from the next fold on, to free room. Nothing is lost.",
        parameters=(_PAGE,),
        run=handlers.hide_details,
    ),
    Tool(
        name="write_page",
        about="Write a note of what must outlast folding. With page: change one. With pages: make a folder of them.",
        parameters=(
            Parameter(name="name", kind="string", about="Title in one line"),
            Parameter(name="summary", kind="string", about="What it says, in one line"),
            Parameter(name="text", kind="string", about="The text"),
            Parameter(name="folder", kind="page", about="Folder to put it in, default your notes"),
            Parameter(name="page", kind="page", about="Page to change"),
            Parameter(name="pages", kind="pages", about="Pages to gather under the new folder"),
        ),
        run=handlers.write_page,
        takes=True,
    ),
    Tool(
        name="move_page",
        about="Move a page into a folder.",
        parameters=(
            _PAGE,
            Parameter(name="folder", kind="page", about="Folder's index", required=True),
            Parameter(name="before", kind="page", about="Page in the folder to stand before"),
        ),
        run=handlers.move_page,
    ),
    Tool(
        name="remove_page",
        about="Remove a page with all in it. Prefer hide_details or archive.",
        parameters=(_PAGE,),
        run=handlers.remove_page,
        takes=True,
    ),
    Tool(
        name="archive",
        about="Put a page away that is done with. find still finds it.",
        parameters=(_PAGE, Parameter(name="cold", kind="boolean", about="Out of the tree, until recall")),
        run=handlers.archive,
    ),
    Tool(
        name="recall",
        about="Bring a page back from the cold archive to its place.",
        parameters=(_PAGE,),
        run=handlers.recall,
    ),
    Tool(
        name="budget",
        about="How full your window is, by what, and what would be folded next.",
        parameters=(),
        run=handlers.budget,
        reads=True,
    ),
    Tool(
        name="window",
        about="Open an app's window, act in one, or close it. Windows stand at the end, always up to date.",
        parameters=(
            Parameter(name="do", kind="string", about="What", required=True, choices=("create", "action", "close")),
            Parameter(name="id", kind="string", about="App to create, or window's id", required=True),
            Parameter(name="action", kind="string", about="Action's id"),
            Parameter(name="arguments", kind="object", about="Its parameters; for close: summary, what stays"),
        ),
        run=handlers.window,
        needs="windows",
        takes=True,
    ),
    Tool(
        name="segment",
        about="Add a segment, remove one, or set what agents may do in it.",
        parameters=(
            Parameter(name="do", kind="string", about="What", required=True, choices=("add", "remove", "permit")),
            Parameter(name="segment", kind="string", about="Its id, or the name of a new one", required=True),
            Parameter(name="permission", kind="string", about="READ_ONLY, READ_WRITE or SYSTEM_MANAGED"),
        ),
        run=handlers.segment,
        needs="manage",
        takes=True,
    ),
)
"""At most twelve, the reading operations merged: every schema costs tokens in every call."""
