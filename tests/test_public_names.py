"""The public names: pinned, documented, and cheap to import."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.errors
from quire import Context, ContextSystem, Conversation, Library, QuireError
from quire.system import PageStorage

NAMES = [
    "AgentContext",
    "App",
    "Busy",
    "Close",
    "CompressionConfig",
    "Conflict",
    "ContentsPage",
    "Context",
    "ContextSystem",
    "Conversation",
    "Corrupt",
    "DetailPage",
    "Entry",
    "EstimateCounter",
    "FileStorage",
    "Hit",
    "InvalidOperation",
    "InvalidValue",
    "IrreducibleFloor",
    "LeaseLost",
    "Library",
    "Lifecycle",
    "MemoryStorage",
    "Message",
    "NoSuchContext",
    "NoSuchPage",
    "NoSuchSegment",
    "OutcomeUnknown",
    "Page",
    "PageIndex",
    "Permission",
    "PermissionDenied",
    "PostgresStorage",
    "Price",
    "QuireError",
    "Quota",
    "QuotaExceeded",
    "Refresh",
    "RenderOptions",
    "S3Storage",
    "SQLiteStorage",
    "Segment",
    "SegmentType",
    "Storage",
    "StorageClosed",
    "StorageFailure",
    "TokenCounter",
    "ToolCall",
    "Tools",
    "View",
    "Visibility",
    "VocabularyCounter",
    "Window",
    "Windows",
    "action",
    "backup",
    "check_legal",
    "count_tools",
    "doctor",
    "migrate",
    "open_storage",
    "redact_secrets",
]
ALIASES = {"Page", "PageIndex"}
NAMES_OF_MODULES = {
    "quire.formats": "LogFile LoggedConversation SkippedRecord format_session read_log",
    "quire.conversation": "Cleanup Finding ImportReport Item MarkMap Messages Modification",
    "quire.errors": (
        "Hint NewerFormat NoSuchAction NoSuchApp NoSuchWindow NotInstalled ReadOnly UnknownOption Wording"
    ),
    "quire.maintenance.backup": "Backup",
    "quire.maintenance.context_usage": "ContextInfo ContextUsage",
    "quire.maintenance.doctor": "Diagnosis",
    "quire.maintenance.erasure": "Erasure",
    "quire.maintenance.retention": "Expired",
    "quire.model.pages": "Form Mark",
    "quire.providers.legal": "IllegalMessage",
    "quire.storage.base": "Remainder Symptom",
    "quire.core.context_copy": "Progress",
    "quire.storage.five_calls": "FiveCallStorage",
    "quire.storage.sqlite.connection": "SQLiteConnectionStorage",
    "quire.system": "Change PageStorage Problem",
    "quire.system.purge": "Purged",
    "quire.view.cost": "Bill Outlook Usage",
    "quire.view.explain": "Stats Why",
    "quire.windows.app": "WindowEvent",
}
"""Public names that are imported from their module."""
FURTHER_NAMES = [f"{module}.{name}" for module, names in NAMES_OF_MODULES.items() for name in names.split()]

OPERATIONS = [
    "add_segment",
    "remove_segment",
    "get_segment",
    "list_segments",
    "segment_of",
    "update_segment",
    "set_segment_permission",
    "add_page",
    "get_page",
    "remove_page",
    "list_pages",
    "load_page",
    "evict_page",
    "evict_lru",
    "generate_index",
    "create_detail_page",
    "create_contents_page",
    "update_page",
    "set_detail",
    "expand",
    "hide",
    "move_page",
    "archive",
    "restore",
    "recall",
    "pin",
    "unpin",
    "children",
    "parent",
    "ancestors",
    "find",
    "has_child",
    "child_count",
    "detail",
    "marshal",
    "unmarshal",
    "save",
    "load",
    "set_storage",
    "storage",
    "migrate",
    "check",
    "history",
    "undo",
    "purge",
]
MESSAGE_OPERATIONS = [
    "insert",
    "delete",
    "replace",
    "compress",
    "modify",
    "batch_start",
    "batch_end",
    "batch_commit",
    "mark_map",
    "is_modified",
    "cleanup",
]
CONTEXT_OPERATIONS = [
    "system",
    "user",
    "assistant",
    "tool_result",
    "add",
    "messages",
    "import_messages",
    "pending_calls",
    "temporary",
    "checkpoint",
    "rollback",
    "undo",
    "fork",
    "history",
    "seq",
    "find",
    "refresh",
    "check",
    "close",
]
"""Section 4 of the contract, with `detail` of section 13 and the folder's calls of section 2."""

CODES = {
    "QuireError": "error",
    "NoSuchPage": "no_such_page",
    "NoSuchSegment": "no_such_segment",
    "NoSuchContext": "no_such_context",
    "NoSuchWindow": "no_such_window",
    "NoSuchApp": "no_such_app",
    "NoSuchAction": "no_such_action",
    "InvalidOperation": "invalid_operation",
    "InvalidValue": "invalid_value",
    "UnknownOption": "unknown_option",
    "NotInstalled": "invalid_operation",
    "PermissionDenied": "permission_denied",
    "QuotaExceeded": "quota_exceeded",
    "Conflict": "conflict",
    "LeaseLost": "lease_lost",
    "Busy": "busy",
    "IrreducibleFloor": "irreducible_floor",
    "StorageClosed": "storage_closed",
    "StorageFailure": "storage_failure",
    "OutcomeUnknown": "outcome_unknown",
    "ReadOnly": "read_only",
    "Corrupt": "corrupt",
    "NewerFormat": "newer_format",
}


def test_the_public_names_are_these() -> None:
    assert list(quire.__all__) == NAMES
    assert all(hasattr(quire, name) for name in NAMES)


def test_every_operation_of_the_contract_exists() -> None:
    assert [name for name in OPERATIONS if not hasattr(ContextSystem, name)] == []
    assert [name for name in MESSAGE_OPERATIONS if not hasattr(Conversation, name)] == []
    assert [name for name in CONTEXT_OPERATIONS if not hasattr(Context, name)] == []


def test_the_codes_of_errors_are_stable() -> None:
    errors = {name: value for name, value in vars(quire.errors).items() if inspect.isclass(value)}
    found = {name: value.code for name, value in errors.items() if issubclass(value, QuireError)}
    assert found == CODES


@pytest.mark.parametrize("name", [*(f"quire.{name}" for name in NAMES if name not in ALIASES), *FURTHER_NAMES])
def test_every_public_name_has_a_docstring_of_its_own(name: str) -> None:
    module, _, last = name.rpartition(".")
    value = getattr(import_module(module), last)
    assert value.__module__.startswith("quire")
    first = (vars(value) if isinstance(value, type) else {"__doc__": value.__doc__}).get("__doc__") or ""
    assert first.strip().splitlines()[0].endswith((".", ":", ")"))


def public_members(kind: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in inspect.getmembers(kind)
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }


@pytest.mark.parametrize("kind", [ContextSystem, Context, Conversation, Library, PageStorage])
def test_every_public_method_has_a_docstring(kind: type) -> None:
    members = public_members(kind)
    assert len(members) > 4
    assert [name for name, value in members.items() if not (value.__doc__ or "").strip()] == []


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        (quire.open, ["where", "context", "budget", "durability", "counter", "compression", "segments"]),
        (ContextSystem.create_detail_page, ["self", "name", "description", "detail", "parent"]),
        (ContextSystem.create_contents_page, ["self", "name", "description", "parent", "children"]),
        (ContextSystem.move_page, ["self", "source", "target", "before"]),
        (ContextSystem.detail, ["self", "index"]),
        (ContextSystem.undo, ["self", "entry"]),
        (Context.find, ["self", "query", "limit"]),
        (Context.system, ["self", "text", "name"]),
        (Context.user, ["self", "content"]),
        (Context.assistant, ["self", "content", "tool_calls"]),
        (Context.tool_result, ["self", "call_id", "content"]),
        (Context.add, ["self", "message"]),
        (Context.messages, ["self", "all"]),
        (Context.checkpoint, ["self", "name"]),
        (Context.rollback, ["self", "to"]),
        (Context.fork, ["self", "new_name", "at"]),
        (Library.fork, ["self", "name", "new_name"]),
    ],
)
def test_parameters_that_outside_checks_use_are_called_so(method: Any, parameters: list[str]) -> None:
    found = list(inspect.signature(method).parameters)
    assert [name for name in found if name in parameters] == parameters


def test_importing_quire_loads_no_tokenizer_prints_nothing_and_creates_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, quire\n"
        "quire.open, quire.Library, quire.QuireError\n"
        "heavy = {'splintr', 'tiktoken', 'hypothesis', 'pytest', '_pytest', 'psycopg', 'boto3', 'numpy'}\n"
        "sys.exit(', '.join(sorted(heavy & sys.modules.keys())) or None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_what_type_checkers_see_is_what_is_found_when_it_is_asked_for() -> None:
    source = ast.parse(Path(quire.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("quire.")
        for alias in node.names
    }
    assert seen.pop("embedders") == "quire.search"
    assert seen == quire._MODULE_OF
    assert {*quire.__all__, "open"} == seen.keys()


def test_embedders_are_reached_without_an_import_of_their_own() -> None:
    assert quire.__getattr__("embedders").wordllama is quire.embedders.wordllama
    assert "embedders" in dir(quire)
