"""quire: an agent's whole memory as a tree of pages, shown to a model under a token budget.

`open` and `Library` are the entry points. The names below are those that most programs import; the reference names
the module of every other one. `quire.aio` is the same API for asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # at run time each name is imported when it is first used, so that the command line starts fast
    from quire import aio as aio
    from quire.agent import AgentContext, Quota
    from quire.agent.tools import Tools
    from quire.context import Context
    from quire.context import open as open  # noqa: A004 - not in __all__, so `import *` keeps Python's own open
    from quire.conversation import Conversation
    from quire.errors import (
        Busy,
        Conflict,
        Corrupt,
        InvalidOperation,
        InvalidValue,
        IrreducibleFloor,
        NoSuchContext,
        NoSuchPage,
        NoSuchSegment,
        PermissionDenied,
        QuireError,
        QuotaExceeded,
        StorageClosed,
        StorageFailure,
    )
    from quire.library import Library
    from quire.maintenance.backup import backup
    from quire.maintenance.doctor import doctor
    from quire.maintenance.migrate import migrate
    from quire.model.messages import Message, ToolCall
    from quire.model.pages import (
        ContentsPage,
        DetailPage,
        Lifecycle,
        Page,
        PageIndex,
        Permission,
        Segment,
        SegmentType,
        Visibility,
    )
    from quire.model.tokens import EstimateCounter, TokenCounter, VocabularyCounter
    from quire.providers.legal import check_legal
    from quire.providers.tool_schemas import count_tools
    from quire.search import embedders as embedders  # a module, reached as `quire.embedders`
    from quire.search.find import Hit
    from quire.storage.base import Storage
    from quire.storage.file.storage import FileStorage
    from quire.storage.memory import MemoryStorage
    from quire.storage.postgres import PostgresStorage
    from quire.storage.s3 import S3Storage
    from quire.storage.sqlite.storage import SQLiteStorage
    from quire.storage.urls import open_storage
    from quire.system import ContextSystem, Entry
    from quire.view.cost import Price
    from quire.view.options import CompressionConfig, RenderOptions
    from quire.view.view import View
    from quire.windows.actions import action
    from quire.windows.app import App, Close, Refresh, Window
    from quire.windows.windows import Windows

__version__ = "0.1.0"

__all__ = [
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
    "Library",
    "Lifecycle",
    "MemoryStorage",
    "Message",
    "NoSuchContext",
    "NoSuchPage",
    "NoSuchSegment",
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
]

_NAMES_BY_MODULE = {
    "quire.agent": "AgentContext Quota",
    "quire.agent.tools": "Tools",
    "quire.context": "Context open",
    "quire.conversation": "Conversation",
    "quire.errors": (
        "Busy Conflict Corrupt InvalidOperation InvalidValue IrreducibleFloor NoSuchContext NoSuchPage "
        "NoSuchSegment PermissionDenied QuireError QuotaExceeded StorageClosed StorageFailure"
    ),
    "quire.library": "Library",
    "quire.maintenance.backup": "backup",
    "quire.maintenance.doctor": "doctor",
    "quire.maintenance.migrate": "migrate",
    "quire.model.messages": "Message ToolCall",
    "quire.model.pages": ("ContentsPage DetailPage Lifecycle Page PageIndex Permission Segment SegmentType Visibility"),
    "quire.model.tokens": "EstimateCounter TokenCounter VocabularyCounter",
    "quire.providers.legal": "check_legal",
    "quire.providers.tool_schemas": "count_tools",
    "quire.search.find": "Hit",
    "quire.storage.base": "Storage",
    "quire.storage.file.storage": "FileStorage",
    "quire.storage.memory": "MemoryStorage",
    "quire.storage.postgres": "PostgresStorage",
    "quire.storage.s3": "S3Storage",
    "quire.storage.sqlite.storage": "SQLiteStorage",
    "quire.storage.urls": "open_storage",
    "quire.system": "ContextSystem Entry",
    "quire.view.cost": "Price",
    "quire.view.options": "CompressionConfig RenderOptions",
    "quire.view.view": "View",
    "quire.windows.actions": "action",
    "quire.windows.app": "App Close Refresh Window",
    "quire.windows.windows": "Windows",
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}
_SUBMODULES = {"aio": "quire.aio", "embedders": "quire.search.embedders"}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(_SUBMODULES[name])
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'quire' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_SUBMODULES})
