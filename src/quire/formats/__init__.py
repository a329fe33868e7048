"""Formats: sessions of other tools, read into messages with their times, and written so that the tool can resume them.

`read_log` reads a file or a database, and `format_session` writes the messages of a conversation.
"""

from quire.formats.files import read_log
from quire.formats.log import LogFile, LoggedConversation, SkippedRecord
from quire.formats.writing import SESSION_FORMATS, SessionFormat, format_session

__all__ = [
    "SESSION_FORMATS",
    "LogFile",
    "LoggedConversation",
    "SessionFormat",
    "SkippedRecord",
    "format_session",
    "read_log",
]
