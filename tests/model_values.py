"""The values of the models, written from the contract: the models share no code with quire."""

from enum import IntEnum


class Lifecycle(IntEnum):
    ACTIVE = 0
    HOT_ARCHIVED = 1
    COLD_ARCHIVED = 2


class Visibility(IntEnum):
    EXPANDED = 0
    HIDDEN = 1


class SegmentType(IntEnum):
    SYSTEM = 0
    USER = 1
    TOOL = 2
    CUSTOM = 3


class Permission(IntEnum):
    READ_ONLY = 0
    READ_WRITE = 1
    SYSTEM_MANAGED = 2
    PRIVATE = 3


class Mark(IntEnum):
    NONE = 0
    DELETED = 1
    REPLACED = 2
    COMPRESSED = 3
    ENDED = 4
    UNSHOWABLE = 5
    REMOVED = 6
