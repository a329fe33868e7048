"""quire: an agent's whole memory as a book of pages under a token budget."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # whatever is used is imported when it is first asked for, so that a command line starts at once
    from quire import aio as aio
    from quire import embedders as embedders  # not in __all__: a module, reached as `quire.embedders`
    from quire.agent import AgentContext, Quota
    from quire.agent.tools import Tools
    from quire.context import Context
    from quire.context import open as open  # noqa: A004 - not in __all__: `import *` leaves Python's own open alone
    from quire.conversation import Cleanup, Conversation, Finding, ImportReport, Item, MarkMap, Messages, Modification
    from quire.errors import (
        Busy,
        Conflict,
        Corrupt,
        InvalidOperation,
        InvalidValue,
        IrreducibleFloor,
        NewerFormat,
        NoSuchAction,
        NoSuchApp,
        NoSuchContext,
        NoSuchPage,
        NoSuchSegment,
        NoSuchWindow,
        OutcomeUnknown,
        PermissionDenied,
        QuireError,
        QuotaExceeded,
        StorageClosed,
        StorageFailure,
    )
    from quire.legal import IllegalMessage, check_legal
    from quire.library import Library
    from quire.messages import Message, ToolCall
    from quire.operations.backup import Backup, backup
    from quire.operations.doctor import Diagnosis, doctor
    from quire.operations.retention import Expired
    from quire.operations.usage import ContextInfo, ContextUsage
    from quire.pages import (
        ContentsPage,
        DetailPage,
        Form,
        Lifecycle,
        Mark,
        Page,
        PageIndex,
        Permission,
        Segment,
        SegmentType,
        Visibility,
    )
    from quire.rendering import Bill, CompressionConfig, Price, RenderOptions, Stats, Usage, View, Why
    from quire.rendering.outlook import Outlook
    from quire.schemas import count_tools
    from quire.search.finding import Hit
    from quire.storage.base import Storage
    from quire.storage.file import FileStorage
    from quire.storage.memory import MemoryStorage
    from quire.storage.migrate import Progress, migrate
    from quire.storage.opening import open_storage
    from quire.storage.postgres import PostgresStorage
    from quire.storage.s3 import S3Storage
    from quire.storage.sqlite import SQLiteStorage
    from quire.storage.symptoms import Symptom
    from quire.system import Change, ContextSystem, Entry, PageStorage, Problem
    from quire.system.forgetting import Purged
    from quire.tokens import EstimateCounter, TokenCounter, VocabularyCounter
    from quire.windows.actions import action
    from quire.windows.app import App, Close, Refresh
    from quire.windows.facade import Windows
    from quire.windows.window import Window, WindowEvent

__version__ = "0.1.0"

__all__ = [
    "AgentContext",
    "App",
    "Backup",
    "Bill",
    "Busy",
    "Change",
    "Cleanup",
    "Close",
    "CompressionConfig",
    "Conflict",
    "ContentsPage",
    "Context",
    "ContextInfo",
    "ContextSystem",
    "ContextUsage",
    "Conversation",
    "Corrupt",
    "DetailPage",
    "Diagnosis",
    "Entry",
    "EstimateCounter",
    "Expired",
    "FileStorage",
    "Finding",
    "Form",
    "Hit",
    "IllegalMessage",
    "ImportReport",
    "InvalidOperation",
    "InvalidValue",
    "IrreducibleFloor",
    "Item",
    "Library",
    "Lifecycle",
    "Mark",
    "MarkMap",
    "MemoryStorage",
    "Message",
    "Messages",
    "Modification",
    "NewerFormat",
    "NoSuchAction",
    "NoSuchApp",
    "NoSuchContext",
    "NoSuchPage",
    "NoSuchSegment",
    "NoSuchWindow",
    "OutcomeUnknown",
    "Outlook",
    "Page",
    "PageIndex",
    "PageStorage",
    "Permission",
    "PermissionDenied",
    "PostgresStorage",
    "Price",
    "Problem",
    "Progress",
    "Purged",
    "QuireError",
    "Quota",
    "QuotaExceeded",
    "Refresh",
    "RenderOptions",
    "S3Storage",
    "SQLiteStorage",
    "Segment",
    "SegmentType",
    "Stats",
    "Storage",
    "StorageClosed",
    "StorageFailure",
    "Symptom",
    "TokenCounter",
    "ToolCall",
    "Tools",
    "Usage",
    "View",
    "Visibility",
    "VocabularyCounter",
    "Why",
    "Window",
    "WindowEvent",
    "Windows",
    "action",
    "backup",
    "check_legal",
    "count_tools",
    "doctor",
    "migrate",
    "open_storage",
]

_PLACES = {
    "quire.agent": "AgentContext Quota",
    "quire.agent.tools": "Tools",
    "quire.context": "Context open",
    "quire.conversation": "Cleanup Conversation Finding ImportReport Item MarkMap Messages Modification",
    "quire.errors": (
        "Busy Conflict Corrupt InvalidOperation InvalidValue IrreducibleFloor NewerFormat NoSuchAction "
        "NoSuchApp NoSuchContext NoSuchPage NoSuchSegment NoSuchWindow OutcomeUnknown PermissionDenied "
        "QuireError QuotaExceeded StorageClosed StorageFailure"
    ),
    "quire.legal": "IllegalMessage check_legal",
    "quire.library": "Library",
    "quire.messages": "Message ToolCall",
    "quire.operations.backup": "Backup backup",
    "quire.operations.doctor": "Diagnosis doctor",
    "quire.operations.retention": "Expired",
    "quire.operations.usage": "ContextInfo ContextUsage",
    "quire.pages": (
        "ContentsPage DetailPage Form Lifecycle Mark Page PageIndex Permission Segment SegmentType Visibility"
    ),
    "quire.rendering": "Bill CompressionConfig Price RenderOptions Stats Usage View Why",
    "quire.rendering.outlook": "Outlook",
    "quire.schemas": "count_tools",
    "quire.search.finding": "Hit",
    "quire.storage.base": "Storage",
    "quire.storage.file": "FileStorage",
    "quire.storage.memory": "MemoryStorage",
    "quire.storage.migrate": "Progress migrate",
    "quire.storage.opening": "open_storage",
    "quire.storage.postgres": "PostgresStorage",
    "quire.storage.s3": "S3Storage",
    "quire.storage.sqlite": "SQLiteStorage",
    "quire.storage.symptoms": "Symptom",
    "quire.system": "Change ContextSystem Entry PageStorage Problem",
    "quire.system.forgetting": "Purged",
    "quire.tokens": "EstimateCounter TokenCounter VocabularyCounter",
    "quire.windows.actions": "action",
    "quire.windows.app": "App Close Refresh",
    "quire.windows.facade": "Windows",
    "quire.windows.window": "Window WindowEvent",
}
"""Where each public name is found."""
_LATE = {name: module for module, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "embedders":
        return import_module("quire.embedders")
    if name == "aio":  # a part of the package rather than a name in it
        return import_module("quire.aio")
    if name not in _LATE:
        raise AttributeError(f"module 'quire' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE, "embedders"})
