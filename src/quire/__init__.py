"""quire: an agent's whole memory as a book of pages under a token budget."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # whatever is used is imported when it is first asked for, so that a command line starts at once
    from quire import aio as aio
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
    from quire.library import Library
    from quire.maintenance.backup import Backup, backup
    from quire.maintenance.context_usage import ContextInfo, ContextUsage
    from quire.maintenance.doctor import Diagnosis, doctor
    from quire.maintenance.retention import Expired
    from quire.model.messages import Message, ToolCall
    from quire.model.pages import (
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
    from quire.model.tokens import EstimateCounter, TokenCounter, VocabularyCounter
    from quire.providers.legal import IllegalMessage, check_legal
    from quire.providers.tool_schemas import count_tools
    from quire.search import embedders as embedders  # not in __all__: a module, reached as `quire.embedders`
    from quire.search.find import Hit
    from quire.storage.base import Storage, Symptom
    from quire.storage.file.storage import FileStorage
    from quire.storage.memory import MemoryStorage
    from quire.storage.migrate import Progress, migrate
    from quire.storage.postgres import PostgresStorage
    from quire.storage.s3 import S3Storage
    from quire.storage.sqlite.storage import SQLiteStorage
    from quire.storage.urls import open_storage
    from quire.system import Change, ContextSystem, Entry, PageStorage, Problem
    from quire.system.purge import Purged
    from quire.view.billing_factor import Usage
    from quire.view.cost import Bill, Price
    from quire.view.explain import Stats, Why
    from quire.view.options import CompressionConfig, RenderOptions
    from quire.view.renderer import Outlook
    from quire.view.view import View
    from quire.windows.actions import action
    from quire.windows.app import App, Close, Refresh, Window, WindowEvent
    from quire.windows.windows import Windows

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
    "quire.providers.legal": "IllegalMessage check_legal",
    "quire.providers.tool_schemas": "count_tools",
    "quire.library": "Library",
    "quire.model.messages": "Message ToolCall",
    "quire.maintenance.backup": "Backup backup",
    "quire.maintenance.doctor": "Diagnosis doctor",
    "quire.maintenance.retention": "Expired",
    "quire.maintenance.context_usage": "ContextInfo ContextUsage",
    "quire.model.pages": (
        "ContentsPage DetailPage Form Lifecycle Mark Page PageIndex Permission Segment SegmentType Visibility"
    ),
    "quire.view.billing_factor": "Usage",
    "quire.view.cost": "Bill Price",
    "quire.view.explain": "Stats Why",
    "quire.view.options": "CompressionConfig RenderOptions",
    "quire.view.view": "View",
    "quire.view.renderer": "Outlook",
    "quire.search.find": "Hit",
    "quire.storage.base": "Storage Symptom",
    "quire.storage.file.storage": "FileStorage",
    "quire.storage.memory": "MemoryStorage",
    "quire.storage.migrate": "Progress migrate",
    "quire.storage.urls": "open_storage",
    "quire.storage.postgres": "PostgresStorage",
    "quire.storage.s3": "S3Storage",
    "quire.storage.sqlite.storage": "SQLiteStorage",
    "quire.system": "Change ContextSystem Entry PageStorage Problem",
    "quire.system.purge": "Purged",
    "quire.model.tokens": "EstimateCounter TokenCounter VocabularyCounter",
    "quire.windows.actions": "action",
    "quire.windows.app": "App Close Refresh Window WindowEvent",
    "quire.windows.windows": "Windows",
}
"""Where each public name is found."""
_LATE = {name: module for module, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "embedders":
        return import_module("quire.search.embedders")
    if name == "aio":  # a part of the package rather than a name in it
        return import_module("quire.aio")
    if name not in _LATE:
        raise AttributeError(f"module 'quire' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE, "embedders"})
