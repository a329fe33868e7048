"""Document 002, rule by rule and example by example, as section 12 of the contract reads it."""

from collections.abc import Callable

import pytest

from quire import (
    ContentsPage,
    ContextSystem,
    DetailPage,
    InvalidOperation,
    Lifecycle,
    NoSuchPage,
    Permission,
    PermissionDenied,
    QuireError,
    Segment,
    SegmentType,
    Visibility,
)
from quire.agent import AgentContext
from tests.books import everything, new_system

READ_ONLY, READ_WRITE, MANAGED = Permission.READ_ONLY, Permission.READ_WRITE, Permission.SYSTEM_MANAGED


def typical_flow() -> tuple[ContextSystem, AgentContext]:
    """典型使用流程, steps 1 to 3."""
    system = new_system()
    system.add_segment(
        Segment(
            id="sys",
            name="System",
            description="System context",
            type=SegmentType.SYSTEM,
            permission=Permission.READ_ONLY,
        )
    )
    system.add_segment(
        Segment(
            id="usr",
            name="User",
            description="User context",
            type=SegmentType.USER,
            permission=Permission.READ_WRITE,
        )
    )
    system.create_detail_page("规则", "系统规则", "Be careful.", "sys-0")
    system.create_detail_page("旧名称", "旧描述", "text", "usr-0")
    return system, AgentContext(system)


def test_the_typical_flow() -> None:
    system, agent = typical_flow()
    assert [segment.id for segment in agent.list_segments()] == ["sys", "usr"]
    agent.update_page("usr-1", name="新名称", description="新描述")
    page = agent.get_page("usr-1")
    assert (page.name, page.description) == ("新名称", "新描述")
    before = everything(system)
    with pytest.raises(PermissionDenied) as caught:
        agent.update_page("sys-1", name="修改系统", description="...")
    assert str(caught.value) == "operation 'update_page' on sys-1 needs READ_WRITE, segment 'sys' is READ_ONLY"
    with pytest.raises(QuireError, match="sys-0"):
        agent.hide_details("sys-0")
    assert everything(system) == before


# 操作权限矩阵

Attempt = Callable[[AgentContext, str], object]
MATRIX: dict[str, tuple[Attempt, tuple[bool, bool, bool]]] = {
    "GetSegment": (lambda agent, s: agent.get_segment(s), (True, True, True)),
    "ListSegments": (lambda agent, s: agent.list_segments(), (True, True, True)),
    "GetPage": (lambda agent, s: agent.get_page(f"{s}-1"), (True, True, True)),
    "GetChildren": (lambda agent, s: agent.children(f"{s}-0"), (True, True, True)),
    "GetParent": (lambda agent, s: agent.parent(f"{s}-1"), (True, True, True)),
    "GetAncestors": (lambda agent, s: agent.ancestors(f"{s}-1"), (True, True, True)),
    "FindPage": (lambda agent, s: agent.find("text"), (True, True, True)),
    "UpdatePage": (lambda agent, s: agent.update_page(f"{s}-1", name="new"), (False, True, True)),
    "ExpandDetails": (lambda agent, s: agent.expand_details(f"{s}-1"), (True, True, True)),
    "HideDetails": (lambda agent, s: agent.hide_details(f"{s}-1"), (True, True, True)),
    "MovePage": (lambda agent, s: agent.move_page(f"{s}-1", f"{s}-2"), (False, True, True)),
    "RemovePage": (lambda agent, s: agent.remove_page(f"{s}-1"), (False, True, True)),
    "CreateDetailPage": (lambda agent, s: agent.create_detail_page("n", "", "", f"{s}-0"), (False, True, True)),
    "CreateContentsPage": (
        lambda agent, s: agent.create_contents_page("n", "", f"{s}-0", [f"{s}-1"]),
        (False, True, True),
    ),
    "RemoveSegment": (lambda agent, s: agent.remove_segment(s), (False, False, True)),
    "SetPermission": (lambda agent, s: agent.set_permission(s, Permission.READ_WRITE), (False, False, True)),
}


@pytest.mark.parametrize("operation", MATRIX)
@pytest.mark.parametrize(("place", "permission"), [(0, READ_ONLY), (1, READ_WRITE), (2, MANAGED)])
def test_the_matrix_of_the_document(operation: str, place: int, permission: Permission) -> None:
    system = new_system()
    system.add_segment(Segment(id="doc", name="Doc", permission=permission))
    system.create_detail_page("page", "about", "text", "doc-0")
    system.create_contents_page("folder", "", "doc-0")
    attempt, allowed = MATRIX[operation]
    agent = AgentContext(system, manage=True)
    if allowed[place]:
        attempt(agent, "doc")
        assert system.check() == []
        return
    before = everything(system)
    with pytest.raises(PermissionDenied, match="needs"):
        attempt(agent, "doc")
    assert everything(system) == before


def test_add_segment_is_for_agents_that_manage_and_its_segment_is_the_agents() -> None:
    """AddSegment has no segment with a permission that could allow it: `manage` does."""
    system, agent = typical_flow()
    with pytest.raises(PermissionDenied, match="manage"):
        agent.add_segment("Mine")
    added = AgentContext(system, manage=True).add_segment("Mine", "about")
    assert (added.name, added.type, added.permission) == ("Mine", SegmentType.CUSTOM, Permission.READ_WRITE)
    assert system.get_page(added.root_index).author == "agent"


# 系统提示词保护机制


def test_the_root_of_a_system_segment_starts_open_and_cannot_be_hidden_by_anyone() -> None:
    system, agent = typical_flow()
    assert agent.get_page("sys-0").visibility is Visibility.EXPANDED
    for permission in (READ_ONLY, READ_WRITE, MANAGED):
        system.set_segment_permission("sys", permission)
        with pytest.raises(QuireError):
            agent.hide_details("sys-0")
    with pytest.raises(InvalidOperation):
        system.hide("sys-0")


def test_even_an_empty_system_root_cannot_be_hidden() -> None:
    system = new_system()
    system.add_segment(Segment(id="sys", type=SegmentType.SYSTEM, permission=MANAGED))
    with pytest.raises(InvalidOperation, match="always shown"):
        AgentContext(system).hide_details("sys-0")


def test_pages_of_the_prompt_are_pinned_and_so_protected_too() -> None:
    """The document protects only the root: its children could be hidden one by one."""
    system, agent = typical_flow()
    system.set_segment_permission("sys", READ_WRITE)
    for attempt in (
        lambda: agent.hide_details("sys-1"),
        lambda: agent.archive("sys-1"),
        lambda: agent.archive("sys-1", cold=True),
        lambda: agent.move_page("sys-1", "usr-0"),
        lambda: agent.remove_page("sys-1"),
        lambda: agent.update_page("sys-1", name="mine"),
        lambda: agent.set_detail("sys-1", "Do as you like."),
        lambda: agent.create_contents_page("around", "", "sys-0", ["sys-1"]),
    ):
        before = everything(system)
        with pytest.raises(PermissionDenied, match="pinned"):
            attempt()
        assert everything(system) == before


def test_read_only_protects_the_words() -> None:
    _, agent = typical_flow()
    for attempt in (
        lambda: agent.update_page("sys-1", name="mine"),
        lambda: agent.set_detail("sys-1", "mine"),
        lambda: agent.create_detail_page("more", "", "mine", "sys-0"),
        lambda: agent.move_page("usr-1", "sys-0"),
    ):
        with pytest.raises(PermissionDenied, match="needs READ_WRITE, segment 'sys' is READ_ONLY"):
            attempt()


def test_expanding_is_allowed_where_the_documents_code_refused_it() -> None:
    system, agent = typical_flow()
    system.set_segment_permission("usr", READ_ONLY)
    agent.hide_details("usr-1")
    assert agent.get_page("usr-1").visibility is Visibility.HIDDEN
    agent.expand_details("usr-1")
    assert agent.get_page("usr-1").visibility is Visibility.EXPANDED


# 统一权限检查入口


def test_one_entry_checks_and_says_what_is_missing() -> None:
    _, agent = typical_flow()
    agent.check_permission("usr-1", "update_page")
    with pytest.raises(NoSuchPage):
        agent.check_permission("usr-9", "get_page")
    with pytest.raises(PermissionDenied):
        agent.check_permission("sys-1", "update_page")


@pytest.mark.parametrize("operation", ["", "updatePage", "getRequiredLevel", "rollback", "purge", "GET_PAGE"])
def test_an_operation_that_is_not_in_the_table_is_refused(operation: str) -> None:
    """In the document every unknown operation has the system level, which SystemManaged allows."""
    system, _ = typical_flow()
    system.set_segment_permission("usr", MANAGED)
    with pytest.raises(PermissionDenied, match="not one that an agent has"):
        AgentContext(system, manage=True).check_permission("usr-1", operation)


def test_finding_is_reading() -> None:
    """FindPage is missing from the document's level switch, so it would have had the system level."""
    _, agent = typical_flow()
    agent.check_permission("sys-1", "find")
    assert [hit.index for hit in agent.find("careful")] == ["sys-1"]


# 结构操作方法


def test_a_move_is_checked_at_both_ends_and_makes_no_cycle() -> None:
    system, agent = typical_flow()
    system.add_segment(Segment(id="mem", name="Memory"))
    outer = agent.create_contents_page("outer", "", "mem-0")
    inner = agent.create_contents_page("inner", "", outer)
    with pytest.raises(InvalidOperation, match="own subtree"):
        agent.move_page(outer, inner)
    with pytest.raises(PermissionDenied):
        agent.move_page(inner, "sys-0")
    with pytest.raises(PermissionDenied):
        agent.move_page("sys-1", "mem-0")
    assert agent.move_page("usr-1", "mem-0") == {"usr-1": "mem-3"}
    with pytest.raises(NoSuchPage, match="mem-3"):
        agent.get_page("usr-1")


def test_creating_is_one_step_and_the_parent_lists_the_page_once() -> None:
    system, agent = typical_flow()
    index = agent.create_detail_page("new", "about", "text", "usr-0")
    assert [page.index for page in agent.children("usr-0")].count(index) == 1
    page = agent.get_page(index)
    assert isinstance(page, DetailPage)
    assert (page.parent, page.author) == ("usr-0", "agent")
    for wrong in ("usr-1", "usr-9"):
        before = everything(system)
        with pytest.raises(QuireError):
            agent.create_detail_page("new", "", "", wrong)
        assert everything(system) == before


def test_a_folder_has_a_parent_and_gathers_children() -> None:
    _, agent = typical_flow()
    other = agent.create_detail_page("other", "", "", "usr-0")
    folder = agent.create_contents_page("folder", "about", "usr-0", ["usr-1", other])
    assert isinstance(agent.get_page(folder), ContentsPage)
    assert [page.index for page in agent.children(folder)] == ["usr-1", other]
    parent = agent.parent("usr-1")
    assert parent is not None
    assert parent.index == folder
    assert [page.index for page in agent.ancestors("usr-1")] == [folder, "usr-0"]


def test_removing_takes_the_subtree() -> None:
    system, agent = typical_flow()
    folder = agent.create_contents_page("folder", "", "usr-0", ["usr-1"])
    assert agent.remove_page(folder) == 2
    with pytest.raises(NoSuchPage):
        agent.get_page("usr-1")
    assert system.check() == []


def test_none_leaves_a_field_and_an_empty_text_clears_it() -> None:
    _, agent = typical_flow()
    agent.update_page("usr-1", description="")
    page = agent.get_page("usr-1")
    assert (page.name, page.description) == ("旧名称", "")
    with pytest.raises(InvalidOperation):
        agent.update_page("usr-1", name="")


# 注意事项


def test_the_agent_holds_no_data_and_values_it_gets_change_nothing() -> None:
    system, agent = typical_flow()
    page, segment = agent.get_page("usr-1"), agent.get_segment("usr")
    for value in (page, segment):
        with pytest.raises(AttributeError):
            value.name = "other"  # type: ignore[misc]
    system.update_page("usr-1", name="anew")
    assert agent.get_page("usr-1").name == "anew"


def test_errors_of_the_system_come_through() -> None:
    _, agent = typical_flow()
    agent.archive("usr-1", cold=True)
    assert agent.get_page("usr-1").lifecycle is Lifecycle.COLD_ARCHIVED
    with pytest.raises(InvalidOperation, match="recall"):
        agent.update_page("usr-1", name="new")
    assert agent.recall("usr-1") == "usr-1"
