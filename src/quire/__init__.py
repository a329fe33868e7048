"""quire: an agent's whole memory as a tree of pages, shown to a model under a token budget.

`open` and `Library` are the entry points. The names below are those that most programs import; the reference names
the module of every other one. `quire.aio` is the same API for asyncio.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # at run time each name is imported when it is first used, so that the command line starts fast
    from quire import aio as aio
    from quire.agent import AgentContext as AgentContext
    from quire.agent import Quota as Quota
    from quire.agent.tools import Tools as Tools
    from quire.context import Context as Context
    from quire.context import open as open
    from quire.conversation import Conversation as Conversation
    from quire.core.context_copy import migrate as migrate
    from quire.core.redaction import redact_secrets as redact_secrets
    from quire.errors import Busy as Busy
    from quire.errors import Conflict as Conflict
    from quire.errors import Corrupt as Corrupt
    from quire.errors import InvalidOperation as InvalidOperation
    from quire.errors import InvalidValue as InvalidValue
    from quire.errors import IrreducibleFloor as IrreducibleFloor
    from quire.errors import LeaseLost as LeaseLost
    from quire.errors import NoSuchContext as NoSuchContext
    from quire.errors import NoSuchPage as NoSuchPage
    from quire.errors import NoSuchSegment as NoSuchSegment
    from quire.errors import OutcomeUnknown as OutcomeUnknown
    from quire.errors import PermissionDenied as PermissionDenied
    from quire.errors import QuireError as QuireError
    from quire.errors import QuotaExceeded as QuotaExceeded
    from quire.errors import StorageClosed as StorageClosed
    from quire.errors import StorageFailure as StorageFailure
    from quire.library import Library as Library
    from quire.maintenance.backup import backup as backup
    from quire.maintenance.doctor import doctor as doctor
    from quire.model.messages import Message as Message
    from quire.model.messages import ToolCall as ToolCall
    from quire.model.pages import ContentsPage as ContentsPage
    from quire.model.pages import DetailPage as DetailPage
    from quire.model.pages import Lifecycle as Lifecycle
    from quire.model.pages import Page as Page
    from quire.model.pages import PageIndex as PageIndex
    from quire.model.pages import Permission as Permission
    from quire.model.pages import Segment as Segment
    from quire.model.pages import SegmentType as SegmentType
    from quire.model.pages import Visibility as Visibility
    from quire.model.tokens import EstimateCounter as EstimateCounter
    from quire.model.tokens import TokenCounter as TokenCounter
    from quire.model.tokens import VocabularyCounter as VocabularyCounter
    from quire.providers.legal import check_legal as check_legal
    from quire.providers.tool_schemas import count_tools as count_tools
    from quire.search import embedders as embedders  # a module, reached as `quire.embedders`
    from quire.search.find import Hit as Hit
    from quire.storage.contract import Storage as Storage
    from quire.storage.file import FileStorage as FileStorage
    from quire.storage.memory import MemoryStorage as MemoryStorage
    from quire.storage.postgres import PostgresStorage as PostgresStorage
    from quire.storage.s3 import S3Storage as S3Storage
    from quire.storage.sqlite import SQLiteStorage as SQLiteStorage
    from quire.storage.urls import open_storage as open_storage
    from quire.system import ContextSystem as ContextSystem
    from quire.system import Entry as Entry
    from quire.view.cost import Price as Price
    from quire.view.options import CompressionConfig as CompressionConfig
    from quire.view.options import RenderOptions as RenderOptions
    from quire.view.view import View as View
    from quire.windows.actions import action as action
    from quire.windows.app import App as App
    from quire.windows.app import Close as Close
    from quire.windows.app import Refresh as Refresh
    from quire.windows.app import Window as Window
    from quire.windows.windows import Windows as Windows

__version__ = "0.2.0"

_NAMES_BY_MODULE = {
    "quire.agent": "AgentContext Quota",
    "quire.agent.tools": "Tools",
    "quire.conversation": "Conversation",
    "quire.errors": (
        "Busy Conflict Corrupt InvalidOperation InvalidValue IrreducibleFloor LeaseLost NoSuchContext NoSuchPage "
        "NoSuchSegment OutcomeUnknown PermissionDenied QuireError QuotaExceeded StorageClosed StorageFailure"
    ),
    "quire.library": "Library",
    "quire.maintenance.backup": "backup",
    "quire.maintenance.doctor": "doctor",
    "quire.core.context_copy": "migrate",
    "quire.model.messages": "Message ToolCall",
    "quire.model.pages": ("ContentsPage DetailPage Lifecycle Page PageIndex Permission Segment SegmentType Visibility"),
    "quire.core.redaction": "redact_secrets",
    "quire.model.tokens": "EstimateCounter TokenCounter VocabularyCounter",
    "quire.providers.legal": "check_legal",
    "quire.providers.tool_schemas": "count_tools",
    "quire.search.find": "Hit",
    "quire.context": "Context open",
    "quire.storage.contract": "Storage",
    "quire.storage.file": "FileStorage",
    "quire.storage.memory": "MemoryStorage",
    "quire.storage.postgres": "PostgresStorage",
    "quire.storage.s3": "S3Storage",
    "quire.storage.sqlite": "SQLiteStorage",
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
__all__ = [name for name in sorted(_MODULE_OF) if name != "open"]  # `import *` keeps Python's own open
_SUBMODULES = {
    "aio": "quire.aio",
    "embedders": "quire.search.embedders",
    "metrics": "quire.metrics",
    "otel": "quire.otel",
}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(_SUBMODULES[name])
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'quire' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_SUBMODULES})


class _Loader(SourceFileLoader):
    """Loads a module of quire. If the system cannot open its file, a call that needs it raises an error of quire."""

    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except OSError as error:
            from quire.errors import StorageFailure

            raise StorageFailure(f"The module {self.name} cannot be loaded: {error}.") from error


class _Finder:
    """Finds the modules of quire, many of which are imported by the first call that needs them."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target) if name.startswith("quire.") else None
        if found is not None and type(found.loader) is SourceFileLoader:
            found.loader = _Loader(found.loader.name, found.loader.path)
        return found


if not any(getattr(finder, "__module__", None) == __name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder)
