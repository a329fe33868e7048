"""Apps in the box: a todo list, a scratch pad, a viewer of files and one of SQLite tables."""

from quire.windows.box.files import Files
from quire.windows.box.scratch import Scratch
from quire.windows.box.tables import Tables
from quire.windows.box.todo import Todo

__all__ = ["Files", "Scratch", "Tables", "Todo"]
