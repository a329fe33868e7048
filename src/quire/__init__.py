"""quire: an agent's whole memory as a book of pages under a token budget."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quire.context import Context
from quire.context import open as open  # noqa: A004 - not in __all__, so that `import *` leaves Python's own open alone
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
from quire.storage.base import Storage
from quire.storage.file import FileStorage
from quire.storage.memory import MemoryStorage
from quire.storage.migrate import Progress, migrate
from quire.storage.opening import open_storage
from quire.storage.sqlite import SQLiteStorage
from quire.system import Change, ContextSystem, Entry, PageStorage, Problem
from quire.tokens import EstimateCounter, TokenCounter, VocabularyCounter

if TYPE_CHECKING:  # what not every program uses is imported when it is first asked for
    from quire.agent import AgentContext, Quota
    from quire.agent.tools import Tools
    from quire.search.finding import Hit
    from quire.windows.actions import action
    from quire.windows.app import App, Close, Refresh
    from quire.windows.facade import Windows
    from quire.windows.window import Window, WindowEvent

__version__ = "0.1.0.dev0"

__all__ = [
    "AgentContext",
    "App",
    "Bill",
    "Busy",
    "Change",
    "Cleanup",
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
    "Price",
    "Problem",
    "Progress",
    "QuireError",
    "Quota",
    "QuotaExceeded",
    "Refresh",
    "RenderOptions",
    "SQLiteStorage",
    "Segment",
    "SegmentType",
    "Stats",
    "Storage",
    "StorageClosed",
    "StorageFailure",
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
    "check_legal",
    "count_tools",
    "migrate",
    "open_storage",
]

_LATE = {
    "AgentContext": "quire.agent",
    "App": "quire.windows.app",
    "Close": "quire.windows.app",
    "Hit": "quire.search.finding",
    "Quota": "quire.agent",
    "Refresh": "quire.windows.app",
    "Tools": "quire.agent.tools",
    "Window": "quire.windows.window",
    "WindowEvent": "quire.windows.window",
    "Windows": "quire.windows.facade",
    "action": "quire.windows.actions",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'quire' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})
