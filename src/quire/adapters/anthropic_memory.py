"""Memory files: the memory tool of Anthropic with the pages of a context as files."""

from collections.abc import Callable, Iterator
from functools import wraps
from posixpath import normpath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from quire.adapters.context_pool import AnyContext, context_of, requires_extra
from quire.agent.agent import AgentContext
from quire.aio.calls import CallQueue
from quire.errors import InvalidOperation, QuireError, short_repr
from quire.model.pages import ContentsPage, Page, PageIndex

with requires_extra("anthropic"):
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

if TYPE_CHECKING:
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818Command,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )


ROOT = "/memories"
ACTOR = "memory"
_FOLDER = "memories"
_MAX_LINES = 999_999
_WIDTH = 6
_DIRECTORY = 4_096  # the usual size of a directory on disk


class Place(NamedTuple):
    """A path below `/memories`: as the model wrote it, and split into names."""

    path: str
    names: tuple[str, ...]


Command = TypeVar("Command")


def _command(run: "Callable[[QuireMemoryTool, Command], str]") -> "Callable[[QuireMemoryTool, Command], str]":
    """Decorate a command: it raises only `ToolError`, also if it is called directly and not by `execute`."""

    @wraps(run)
    def run_command(tool: "QuireMemoryTool", command: Command) -> str:
        return str(tool._run(lambda: run(tool, command)))

    return run_command


class QuireMemoryTool(BetaAbstractMemoryTool):
    """The memory tool with pages of a context as files: directories are folders, files are text pages.

    `/memories` is the folder `memories` in the agent's notes, or the folder of the given index. `agent` sets the name,
    the permissions and the quota of the model. The journal has all its changes, and `ctx.undo` undoes them. The answers
    are those of Anthropic's tool, word for word.
    """

    def __init__(
        self,
        ctx: AnyContext,
        folder: PageIndex | None = None,
        *,
        agent: AgentContext | None = None,
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._ctx = context_of(ctx)
        self._agent = (agent or self._ctx.as_agent(ACTOR))._without_quoted_writes()
        self._given = folder

    def execute(self, command: "BetaMemoryTool20250818Command") -> Any:
        """Run a command. Raise `ToolError` with the text for the model."""
        return self._run(lambda: super(QuireMemoryTool, self).execute(command))

    def clear_all_memory(self) -> Any:
        """Remove all files."""
        return self._run(self._clear)

    # The commands

    @_command
    def view(self, command: "BetaMemoryTool20250818ViewCommand") -> str:
        """Return a directory two levels deep, or the numbered lines of a file."""
        place, lines = _place(command.path), command.view_range
        page = self._at(place)
        if isinstance(page, ContentsPage):
            return self._list_directory(place, page)
        every = self._text(page).split("\n")
        if len(every) > _MAX_LINES:
            raise ToolError(f"File {place.path} exceeds maximum line limit of 999,999 lines.")
        first, end = 0, len(every)
        if lines and len(lines) == 2:
            first, end = max(1, lines[0]) - 1, end if lines[1] == -1 else lines[1]
        numbered = _number_lines(every[first:end], first + 1)
        return f"Here's the content of {place.path} with line numbers:\n" + "\n".join(numbered)

    def _list_directory(self, place: Place, folder: Page) -> str:
        lines = [f"{_size(_DIRECTORY)}\t{place.path}"]
        for name, page in self._below(folder.index):
            is_folder = isinstance(page, ContentsPage)
            size = _DIRECTORY if is_folder else len(self._text(page).encode())
            lines.append(f"{_size(size)}\t{place.path}/{name}{'/' if is_folder else ''}")
        header = f"Here're the files and directories up to 2 levels deep in {place.path}, excluding hidden items:"
        return "\n".join([header, *lines])

    def _below(self, folder: PageIndex, above: str = "") -> Iterator[tuple[str, Page]]:
        """Yield the pages in a folder and in its folders, by name, with their paths."""
        for page in sorted(self._agent.children(folder), key=lambda page: page.name):
            if page.name.startswith("."):
                continue
            yield above + page.name, page
            if isinstance(page, ContentsPage) and not above:
                yield from self._below(page.index, f"{page.name}/")

    @_command
    def create(self, command: "BetaMemoryTool20250818CreateCommand") -> str:
        """Create a file, and the directories above it."""
        place = _place(command.path)
        if self._find_page(place.names) is not None:
            raise ToolError(f"File {place.path} already exists")
        folder = self._make_folder(place, place.names[:-1])
        self._agent.create_detail_page(place.names[-1], "", command.file_text, folder)
        return f"File created successfully at: {place.path}"

    @_command
    def str_replace(self, command: "BetaMemoryTool20250818StrReplaceCommand") -> str:
        """Replace a text that occurs once in a file."""
        place, old = _place(command.path), command.old_str
        page, text = self._file(place)
        lines = [text[:at].count("\n") + 1 for at in _find_all(old, text)]
        if text.count(old) == 0:
            raise ToolError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {place.path}.")
        if text.count(old) > 1:
            listed = ", ".join(map(str, lines))
            raise ToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {listed}."
                " Please ensure it is unique"
            )
        self._agent.set_detail(page.index, changed := text.replace(old, command.new_str))
        every, at = changed.split("\n"), lines[0] - 1
        first = max(0, at - 2)
        snippet = _number_lines(every[first : at + 3], first + 1)
        head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        return head + "\n".join(snippet)

    @_command
    def insert(self, command: "BetaMemoryTool20250818InsertCommand") -> str:
        """Insert a text after a line of a file; 0 is the beginning."""
        place, line = _place(command.path), command.insert_line
        page, before = self._file(place)
        lines = before.split("\n")
        if lines[-1] == "":
            lines.pop()
        if line < 0 or line > len(lines):
            raise ToolError(
                f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(lines)}]."
            )
        lines.insert(line, command.insert_text.rstrip("\n"))
        changed = "\n".join(lines)
        self._agent.set_detail(page.index, changed if changed.endswith("\n") else changed + "\n")
        return f"The file {place.path} has been edited."

    @_command
    def delete(self, command: "BetaMemoryTool20250818DeleteCommand") -> str:
        """Remove a file, or a directory with its content."""
        place = _place(command.path)
        if not place.names:
            raise ToolError(f"Cannot delete the {ROOT} directory itself")
        page = self._find_page(place.names)
        if page is None:
            raise ToolError(f"The path {place.path} does not exist")
        self._agent.remove_page(page.index)
        return f"Successfully deleted {place.path}"

    @_command
    def rename(self, command: "BetaMemoryTool20250818RenameCommand") -> str:
        """Rename or move a file or a directory."""
        old, new = _place(command.old_path), _place(command.new_path)
        if not old.names:
            raise ToolError(f"Cannot rename the {ROOT} directory itself")
        if self._find_page(new.names) is not None:
            raise ToolError(f"The destination {new.path} already exists")
        page = self._find_page(old.names)
        if page is None:
            raise ToolError(f"The path {old.path} does not exist")
        if new.names[: len(old.names)] == old.names:
            raise ToolError(f"Cannot move {old.path} into itself: {new.path} is below it")
        folder = self._make_folder(new, new.names[:-1])
        if page.parent != folder:
            self._agent.move_page(page.index, folder)
        if page.name != new.names[-1]:  # retried alone: a retry of the whole command would not find the moved page
            self._ctx.pages._engine.retry(lambda: self._agent.update_page(page.index, name=new.names[-1]))
        return f"Successfully renamed {old.path} to {new.path}"

    def _clear(self) -> str:
        for page in self._agent.children(self._root()):
            self._agent.remove_page(page.index)
        return "All memory cleared"

    # Pages by their paths

    def _root(self) -> PageIndex:
        if self._given is not None:
            return self._given
        notes = next((segment for segment in self._agent.list_segments() if segment.id == "mem"), None)
        if notes is None:
            raise InvalidOperation("This context has no segment 'mem' for memory files. Name another folder.")
        found = self._child(notes.root_index, _FOLDER)
        if found is None:
            made = self._agent.create_contents_page(_FOLDER, "The memory files", notes.root_index)
            self._agent.hide_details(made)  # the model reads the files with the tool, so the view shows one line
            return made
        return found.index

    def _find_page(self, names: tuple[str, ...]) -> Page | None:
        page: Page | None = self._agent.get_page(self._root())
        for name in names:
            page = self._child(page.index, name) if isinstance(page, ContentsPage) else None
        return page

    def _child(self, folder: PageIndex, name: str) -> Page | None:
        return next((page for page in self._agent.children(folder) if page.name == name), None)

    def _at(self, place: Place) -> Page:
        page = self._find_page(place.names)
        if page is None:
            raise ToolError(f"The path {place.path} does not exist. Please provide a valid path.")
        return page

    def _file(self, place: Place) -> tuple[Page, str]:
        page = self._at(place)
        if isinstance(page, ContentsPage):
            raise ToolError(f"The path {place.path} is not a file.")
        return page, self._text(page)

    def _text(self, page: Page) -> str:
        return self._agent.read_page(page.index, 0, self._agent.length(page.index))

    def _make_folder(self, place: Place, names: tuple[str, ...]) -> PageIndex:
        """Return the folder of these names; create it if it is missing."""
        folder = self._root()
        for name in names:
            page = self._child(folder, name)
            if page is not None and not isinstance(page, ContentsPage):
                raise ToolError(f"Cannot write {place.path}: {name} is a file, not a directory")
            folder = page.index if page is not None else self._agent.create_contents_page(name, "", folder)
        return folder

    def _run(self, command: Callable[[], Any]) -> Any:
        """Run a command. Raise an error as the SDK's `ToolError`, whose text the model gets."""
        try:
            return self._ctx.pages._engine.retry(command)
        except QuireError as error:
            raise ToolError(f"{type(error).__name__}: {error}") from error
        except (AttributeError, NotImplementedError, TypeError) as error:  # a field is missing, or of another type
            raise ToolError(f"Invalid memory command: {error}") from error


class QuireAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """`QuireMemoryTool` for async clients: the work is done in a thread, one command after the other."""

    def __init__(
        self,
        ctx: AnyContext,
        folder: PageIndex | None = None,
        *,
        agent: AgentContext | None = None,
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = QuireMemoryTool(ctx, folder, agent=agent)
        self._queue = CallQueue()

    async def execute(self, command: "BetaMemoryTool20250818Command") -> Any:
        """Run a command. Raise `ToolError` with the text for the model."""
        return await self._queue.run(self._tool.execute, command)

    view = create = str_replace = insert = delete = rename = execute

    async def clear_all_memory(self) -> Any:
        """Remove all files."""
        return await self._queue.run(self._tool.clear_all_memory)


def _place(path: str) -> Place:
    """Split a path into names. Raise `ToolError` for a path that is not in `/memories`."""
    if not isinstance(path, str) or not (path == ROOT or path.startswith(f"{ROOT}/")):
        raise ToolError(f"Path must start with {ROOT}, got: {path if isinstance(path, str) else short_repr(path)}")
    below = normpath("/" + path[1:].lstrip("/"))
    if below != ROOT and not below.startswith(f"{ROOT}/"):
        raise ToolError(f"Path {path} would escape {ROOT} directory")
    return Place(path, tuple(below.split("/")[2:]))


def _number_lines(lines: list[str], first: int) -> list[str]:
    return [f"{str(number).rjust(_WIDTH)}\t{line}" for number, line in enumerate(lines, first)]


def _find_all(part: str, text: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _size(count: int) -> str:
    """Format a size like `ls -h`."""
    if count == 0:
        return "0B"
    power = min((count.bit_length() - 1) // 10, 3)
    size = count / 1024**power
    return f"{int(size) if size == int(size) else f'{size:.1f}'}{'BKMG'[power]}"
