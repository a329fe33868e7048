"""The names that outside code uses: they exist, have docstrings and stable codes, and cost little to import."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.errors
from quire import AgentContext, Context, ContextSystem, Conversation, Library, QuireError, View

REFERENCE = Path(__file__).parent.parent / "docs/reference"
NAMES = """
    AgentContext App Busy Close CompressionConfig Conflict ContentsPage Context ContextSystem Conversation Corrupt
    DetailPage Entry EstimateCounter FileStorage Hit InvalidOperation InvalidValue IrreducibleFloor LeaseLost Library
    Lifecycle MemoryStorage Message NoSuchContext NoSuchPage NoSuchSegment OutcomeUnknown Page PageIndex Permission
    PermissionDenied PostgresStorage Price QuireError Quota QuotaExceeded Refresh RenderOptions S3Storage SQLiteStorage
    Segment SegmentType Storage StorageClosed StorageFailure TokenCounter ToolCall Tools View Visibility
    VocabularyCounter Window Windows action backup check_legal count_tools doctor migrate open_storage redact_secrets
"""
OPERATIONS: dict[type, str] = {
    ContextSystem: """
        add_segment remove_segment get_segment list_segments segment_of update_segment set_segment_permission add_page
        get_page remove_page list_pages load_page evict_page evict_lru generate_index create_detail_page
        create_contents_page update_page set_detail expand hide move_page archive restore recall pin unpin children
        parent ancestors find has_child child_count detail marshal unmarshal save load set_storage storage migrate check
        history undo purge
    """,
    Conversation: """
        insert delete replace compress modify batch_start batch_end batch_commit mark_map is_modified cleanup
    """,
    Context: """
        system user assistant tool_result add messages import_messages render pages agent conversation windows tools
        pending_calls temporary checkpoint rollback undo fork history items seq find why stats dump report_usage refresh
        check close turn budget as_agent
    """,
    AgentContext: """
        get_segment list_segments get_page children parent ancestors find read_page view budget expand_details
        hide_details update_page set_detail move_page remove_page create_detail_page create_contents_page archive recall
        remove_segment set_permission add_segment check_permission
    """,
    Library: "open list exists delete fork turn erase scrub",
    View: "messages openai anthropic responses tokens shared_prefix diff fold",
}
CODES = """
    QuireError error, NoSuchPage no_such_page, NoSuchSegment no_such_segment, NoSuchContext no_such_context,
    NoSuchWindow no_such_window, NoSuchApp no_such_app, NoSuchAction no_such_action, InvalidOperation invalid_operation,
    InvalidValue invalid_value, UnknownOption unknown_option, NotInstalled invalid_operation,
    PermissionDenied permission_denied, QuotaExceeded quota_exceeded, Conflict conflict, LeaseLost lease_lost,
    Busy busy, IrreducibleFloor irreducible_floor, StorageClosed storage_closed, StorageFailure storage_failure,
    OutcomeUnknown outcome_unknown, ReadOnly read_only, Corrupt corrupt, NewerFormat newer_format,
    OlderFormat older_format
"""


def test_the_public_names_are_there() -> None:
    assert set(NAMES.split()) <= set(quire.__all__)
    assert [name for name in quire.__all__ if not hasattr(quire, name)] == []


def test_every_operation_of_the_contract_exists() -> None:
    ctx = quire.open("memory:")
    ctx.user("Hello.")
    values = (ctx.pages, ctx.conversation, ctx, ctx.agent, quire.Library("memory:"), ctx.render())
    found = {type(value): set(dir(value)) for value in values}
    missing = {kind: set(names.split()) - found[kind] for kind, names in OPERATIONS.items()}
    assert {kind: names for kind, names in missing.items() if names} == {}


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
def test_every_public_method_has_a_docstring(kind: type) -> None:
    methods = inspect.getmembers(kind, lambda value: inspect.isfunction(value) or isinstance(value, property))
    assert [name for name, value in methods if not name.startswith("_") and not (value.__doc__ or "").strip()] == []


def test_the_codes_of_errors_are_stable() -> None:
    errors = [
        value for value in vars(quire.errors).values() if inspect.isclass(value) and issubclass(value, QuireError)
    ]
    pairs = (pair.split() for pair in CODES.split(","))
    assert {error.__name__: error.code for error in errors} == dict(pairs)


def documented() -> list[tuple[str, str]]:
    """Return the names on the pages of the reference, each with its module."""
    pages = (page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
    names = [name for page in pages for name in re.findall(r"^::: (quire\S*)\.([A-Za-z_]+)$", page, re.MULTILINE)]
    aliases = {"Page", "PageIndex"}
    return [
        (module, name) for module, name in names if name not in aliases and not inspect.ismodule(find(module, name))
    ]


def find(module: str, name: str) -> Any:
    found = getattr(import_module(module), name, None)
    return import_module(f"{module}.{name}") if found is None and module == "quire" else found


def test_every_documented_name_has_a_docstring_of_its_own() -> None:
    values = [(name, find(module, name)) for module, name in documented()]
    named = [(name, value) for name, value in values if inspect.isclass(value) or inspect.isfunction(value)]
    assert len(named) > 60
    for name, value in named:
        first = (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""
        assert first.strip().splitlines()[0].endswith((".", ":", ")")), name


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        (quire.open, "where context budget durability counter compression segments"),
        (ContextSystem.create_detail_page, "self name description detail parent"),
        (ContextSystem.create_contents_page, "self name description parent children"),
        (ContextSystem.move_page, "self source target before"),
        (ContextSystem.detail, "self index"),
        (Context.undo, "self entry"),
        (Context.find, "self query limit"),
        (Context.system, "self text name"),
        (Context.user, "self content"),
        (Context.assistant, "self content tool_calls"),
        (Context.tool_result, "self call_id content id at"),
        (Context.add, "self message"),
        (Context.messages, "self all"),
        (Context.checkpoint, "self name"),
        (Context.rollback, "self to"),
        (Context.fork, "self new_name at"),
        (Library.fork, "self name new_name"),
    ],
)
def test_parameters_that_outside_checks_use_are_called_so(method: Any, parameters: str) -> None:
    found = list(inspect.signature(method).parameters)
    assert [name for name in found if name in parameters.split()] == parameters.split()


def test_importing_quire_loads_no_tokenizer_and_no_telemetry_prints_nothing_and_creates_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, quire\n"
        "quire.open, quire.Library, quire.QuireError\n"
        "heavy = {'splintr', 'tiktoken', 'hypothesis', 'pytest', 'psycopg', 'obstore', 'numpy', 'opentelemetry'}\n"
        "assert not heavy & sys.modules.keys()\n"
        "ctx = quire.open('memory:'); ctx.user('x'); ctx.render(); ctx.assistant('y')\n"
        "assert 'opentelemetry' not in sys.modules\n"
        "assert quire.embedders.wordllama\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
