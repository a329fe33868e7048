"""The cells of the matrix: every operation on every page, through Python and through the tools."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from quire import Permission, QuireError
from quire import errors as all_errors
from tests.surfaces.agent_rights import (
    ASKED,
    PERMISSIONS,
    Leaf,
    has_right,
    may,
    may_gather,
    may_hold_a_new_folder,
    may_move,
    may_remove_segment,
    may_set_permission,
)
from tests.surfaces.bookcase import Bookcase

UNKNOWN = ("purge", "undo", "rollback", "pin", "unpin", "update_segment", "cleanup", "marshal", "", "Get_Page")
"""Operations that no agent has: developers' ones, and no operations at all."""
_ERRORS = tuple(
    f"{name}:" for name, value in vars(all_errors).items() if isinstance(value, type) and issubclass(value, QuireError)
)


class Cell(NamedTuple):
    """One attempt of an agent, and whether its rights allow it."""

    name: str
    allowed: bool
    run: Callable[[Bookcase], object]
    """Raises a `QuireError` if it is refused."""
    writes: bool = True
    missing: bool = False
    """Whether the refusal says that the page does not exist."""


def run_tool(tool: str, /, **arguments: Any) -> Callable[[Bookcase], object]:
    """Return a tool call that raises its answer if the answer is an error."""

    def run(case: Bookcase) -> object:
        answer = case.tools.call(tool, arguments)
        if answer.startswith((*_ERRORS, "InternalError:")):
            raise QuireError(answer)
        return answer

    return run


def page_cells(case: Bookcase, page: Leaf) -> Iterator[Cell]:
    """Yield every operation on one page."""
    gathers = has_right("create_contents_page", case.parent_of(page) or page, manage=False)
    for face in (_in_python, _by_tool):
        for operation, allowed, run, writes in face(case, page):
            missing = page.unseen and ("gathering" not in operation or gathers)
            yield Cell(f"{operation} on {describe(page)}", allowed, run, writes, missing)
    for operation in (*ASKED, *UNKNOWN):
        ask = _asking(page.index, operation)
        allowed = has_right(operation, page, case.agent.manages)
        missing = page.unseen and operation in ASKED
        yield Cell(f"asking for {operation!r} on {describe(page)}", allowed, ask, False, missing)


def move_cells(sources: Iterable[Leaf], targets: Iterable[Leaf], *, both: bool) -> Iterator[Cell]:
    """Yield every pair of a page and a target, in Python and by tool. Without `both` the two alternate, so that each
    still covers every page and every folder.
    """
    into = list(targets)
    for row, source in enumerate(sources):
        for column, target in enumerate(into):
            name = f"moving {describe(source)} into {describe(target)}"
            allowed = may_move(source, target)
            missing = source.unseen or (target.unseen and has_right("move_page", source, manage=False))
            if both or (row + column) % 2 == 0:
                yield Cell(name, allowed, _moving(source.index, target.index), missing=missing)
            if both or (row + column) % 2 == 1:
                by_tool = run_tool("move_page", page=source.index, folder=target.index)
                yield Cell(f"{name} by tool", allowed, by_tool, missing=missing)


def segment_cells(case: Bookcase) -> Iterator[Cell]:
    """Yield every operation on whole segments."""
    manage = case.agent.manages
    for place in case.places:
        where = f"{place.id} ({place.type}, {place.permission}, manage={manage})"
        seen = place.permission != "PRIVATE"
        yield Cell(f"get_segment {where}", seen, _on_segment("get_segment", place.id), False, not seen)
        gone = may_remove_segment(place, manage)
        yield Cell(f"remove_segment {where}", gone, _on_segment("remove_segment", place.id), missing=not seen)
        if manage:
            yield Cell(f"tool {where}", gone, run_tool("segment", do="remove", segment=place.id), missing=not seen)
        for wanted in PERMISSIONS:
            changed = may_set_permission(place, wanted, manage)
            name = f"set_permission {wanted} {where}"
            yield Cell(name, changed, _on_segment("set_permission", place.id, Permission[wanted]), missing=not seen)
            by_tool = run_tool("segment", do="permit", segment=place.id, permission=wanted)
            yield Cell(f"{name} by tool", changed, by_tool, missing=manage and not seen)
    yield Cell("add_segment", manage, lambda case: case.agent.add_segment("New"))
    yield Cell("segment add", manage, run_tool("segment", do="add", segment="New"))


def describe(page: Leaf) -> str:
    pinned = " pinned" if page.pinned else " above pinned" if page.above_pinned else ""
    return f"{page.index} ({page.place.type} {page.place.permission} {page.state}{pinned} {page.kind})"


_Row = tuple[str, bool, Callable[[Bookcase], object], bool]


def _in_python(case: Bookcase, page: Leaf) -> Iterator[_Row]:
    index = page.index
    for operation in ("get_page", "children", "parent", "ancestors", "read_page"):
        yield operation, may(operation, page), _on_page(operation, index), False
    for operation in ("expand_details", "hide_details", "remove_page", "recall", "archive"):
        yield operation, may(operation, page), _on_page(operation, index), True
    yield "archive cold", may("archive", page), lambda case: case.agent.archive(index, cold=True), True
    yield "update_page", may("update_page", page), lambda case: case.agent.update_page(index, name="other"), True
    yield "describing", may("update_page", page), lambda case: case.agent.update_page(index, description="new"), True
    yield "set_detail", may("set_detail", page), lambda case: case.agent.set_detail(index, "other"), True
    into = may("create_detail_page", page)
    yield "create_detail_page", into, lambda case: case.agent.create_detail_page("new", "", "text", index), True
    into = may_hold_a_new_folder(page)
    yield "create_contents_page", into, lambda case: case.agent.create_contents_page("new", "", index), True
    parent = case.parent_of(page) or page
    gathered = may_gather(page, parent)
    yield "gathering", gathered, lambda case: case.agent.create_contents_page("new", "", parent.index, [index]), True


def _by_tool(case: Bookcase, page: Leaf) -> Iterator[_Row]:
    index = page.index
    yield "tool read_page", not page.unseen, run_tool("read_page", page=index), False
    for operation in ("expand_details", "hide_details", "remove_page", "recall", "archive"):
        yield f"tool {operation}", may(operation, page), run_tool(operation, page=index), True
    yield "tool archive cold", may("archive", page), run_tool("archive", page=index, cold=True), True
    yield "tool renaming", may("update_page", page), run_tool("write_page", page=index, name="other"), True
    yield "tool rewriting", may("set_detail", page), run_tool("write_page", page=index, text="other"), True
    into = may("create_detail_page", page)
    yield "tool writing", into, run_tool("write_page", folder=index, name="new", text="text"), True
    into = may_hold_a_new_folder(page)
    yield "tool folder", into, run_tool("write_page", folder=index, name="new", pages=[]), True
    parent = case.parent_of(page) or page
    gathered = may_gather(page, parent)
    yield "tool gathering", gathered, run_tool("write_page", folder=parent.index, name="new", pages=[index]), True


def _on_page(operation: str, index: str) -> Callable[[Bookcase], object]:
    return lambda case: getattr(case.agent, operation)(index)


def _on_segment(operation: str, *arguments: object) -> Callable[[Bookcase], object]:
    return lambda case: getattr(case.agent, operation)(*arguments)


def _asking(index: str, operation: str) -> Callable[[Bookcase], object]:
    return lambda case: case.agent.check_permission(index, operation)


def _moving(source: str, target: str) -> Callable[[Bookcase], object]:
    return lambda case: case.agent.move_page(source, target)
