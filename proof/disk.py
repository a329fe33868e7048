"""A disk after a power failure, from recorded system calls.

A file keeps all that a sync confirmed. Of the later writes, the disk has any part: each write completely, not at all,
or some of its sectors. Names (new files, renames, removals) follow the order of the calls, as in a journal: those
before the last confirmed sync of a folder are there, and then any number of the next ones.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

SECTOR = 512
CALLS = (
    "openat,write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync_file_range,ftruncate,truncate,fallocate,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlinkat,copy_file_range,sendfile"
)
"""The traced calls: all that change files or names."""
_LINE = re.compile(r"^(?P<process>\d+)\s+(?P<rest>.*)$")
_CALL = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+)", re.DOTALL)
_HEX = re.compile(r"(?:\\x[0-9a-f]{2})+")
_FILE = re.compile(r"^-?\w+<([^>]*)>$")


@dataclass(frozen=True)
class Call:
    """A finished system call."""

    name: str
    arguments: list[str]
    result: int

    def path(self, position: int) -> str:
        """Return the path of an argument: of a descriptor, or as text."""
        text = self.arguments[position]
        found = _FILE.match(text)
        return _bytes(found.group(1) if found else text.strip('"')).decode()

    def data(self, position: int) -> bytes:
        """Return the bytes of an argument."""
        text = self.arguments[position]
        if text.endswith("..."):
            raise ValueError("strace cut the data of a call")
        return _bytes(text.strip('"'))


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", "")) if _HEX.match(text) else text.encode()


def read_trace(path: Path) -> Iterator[Call]:
    """Yield the calls that succeeded, in the order of their ends."""
    unfinished: dict[str, str] = {}
    with path.open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            found = _LINE.match(line)
            if found is None:
                continue
            process, rest = found["process"], found["rest"]
            if rest.endswith("<unfinished ...>"):
                unfinished[process] = rest.removesuffix("<unfinished ...>").rstrip()
                continue
            if rest.startswith("<... "):
                rest = unfinished.pop(process, "") + rest.partition("resumed>")[2]
            call = _CALL.match(rest)
            if call is not None and int(call["result"]) >= 0:
                yield Call(call["name"], call["arguments"].split(", "), int(call["result"]))


@dataclass
class Write:
    """A change of a file: bytes at an offset, or a new length if there are no bytes."""

    offset: int
    data: bytes | None


@dataclass(eq=False)
class File:
    """A file: what a sync confirmed, and the later changes."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    length: int = 0

    def sync(self) -> None:
        for write in self.pending:
            apply(self.synced, write)
        self.pending.clear()

    def image(self, random: Random, *, tear: bool) -> bytes:
        """Return the content after a failure."""
        content = bytearray(self.synced)
        chance = random.choice((0.0, 0.3, 0.7, 0.95, 1.0))
        for write in self.pending:
            if random.random() < chance:
                apply(content, write)
            elif tear and write.data is not None and random.random() < 0.5:
                for part in sectors(write):
                    if random.random() < 0.5:
                        apply(content, part)
        return bytes(content)


def sectors(write: Write) -> Iterator[Write]:
    """Yield the parts of a write that a disk writes as one."""
    data, start = write.data or b"", 0
    while start < len(data):
        end = min(len(data), start + SECTOR - (write.offset + start) % SECTOR)
        yield Write(write.offset + start, data[start:end])
        start = end


def apply(content: bytearray, write: Write) -> None:
    """Change the content of a file."""
    if write.data is None:
        del content[write.offset :]
        content.extend(bytes(write.offset - len(content)))
        return
    content.extend(bytes(max(0, write.offset - len(content))))
    content[write.offset : write.offset + len(write.data)] = write.data


class Disk:
    """The files and names below a folder. `names` are all changes of names in order; the first ones are confirmed."""

    def __init__(self, root: Path, *, syncs: bool = True) -> None:
        self.root = str(root)
        self.syncs = syncs
        """False: the disk ignores all syncs, for a control."""
        self.names: list[tuple[str, str, object]] = []
        self.confirmed = 0
        self._now: dict[str, File | None] = {}
        """The names as the program sees them; None is a folder."""
        self._handlers: dict[str, Callable[[Call], None]] = {
            "openat": self._open,
            "write": self._write,
            "pwrite64": self._pwrite,
            "fsync": self._sync,
            "fdatasync": self._sync,
            "ftruncate": self._truncate,
            "rename": lambda call: self._rename(call, 0, 1),
            "renameat": lambda call: self._rename(call, 1, 3),
            "renameat2": lambda call: self._rename(call, 1, 3),
            "link": lambda call: self._add(call.path(1), self._now.get(call.path(0))),
            "unlink": lambda call: self._unlink(call.path(0)),
            "unlinkat": self._unlink_at,
            "rmdir": lambda call: self._unlink(call.path(0)),
            "mkdir": lambda call: self._add(call.path(0), None),
            "mkdirat": lambda call: self._add(call.path(1), None),
        }

    def apply(self, call: Call) -> None:
        """Apply a call. Raises `ValueError` for a call that this disk does not know."""
        handler = self._handlers.get(call.name)
        if handler is not None:
            handler(call)
        elif self.concerns(call):
            raise ValueError(f"the writer made a call that is not simulated: {call.name}")

    def concerns(self, call: Call) -> bool:
        """Return True if a call names a file below the folder."""
        return any(self.root in _decoded(argument) for argument in call.arguments)

    def fail(self, target: Path, random: Random, *, tear: bool = True) -> None:
        """Write the files as a power failure leaves them."""
        count = random.choice((self.confirmed, len(self.names), random.randint(self.confirmed, len(self.names))))
        seen: dict[str, object] = {}
        for action, path, value in self.names[:count]:
            if action == "add":
                seen[path] = value
            elif action == "remove":
                seen.pop(path, None)
            else:
                _move(seen, path, str(value))
        self._write_files(seen, target, cache(lambda file: file.image(random, tear=tear)))

    def whole(self, target: Path) -> None:
        """Write the files without a failure."""

        def content(file: File) -> bytes:
            result = bytearray(file.synced)
            for write in file.pending:
                apply(result, write)
            return bytes(result)

        self._write_files(dict(self._now), target, content)

    def _write_files(self, seen: dict[str, object], target: Path, content: Callable[[File], bytes]) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for path, file in sorted(seen.items()):
            place = target / path.removeprefix(self.root).lstrip("/")
            if file is None:
                place.mkdir(parents=True, exist_ok=True)
            elif isinstance(file, File) and not path.endswith("-shm"):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content(file))

    def _inside(self, path: str) -> bool:
        return path.startswith(self.root)

    def _add(self, path: str, file: File | None) -> None:
        if self._inside(path):
            self._now[path] = file
            self.names.append(("add", path, file))

    def _open(self, call: Call) -> None:
        path = call.path(1)
        if not path.startswith("/"):
            path = f"{call.path(0)}/{path}"
        flags = call.arguments[2]
        if not self._inside(path) or ("O_CREAT" not in flags and "O_TRUNC" not in flags):
            return
        file = self._now.get(path)
        if file is None:
            self._add(path, File())
        elif "O_TRUNC" in flags:
            file.pending.append(Write(0, None))
            file.length = 0

    def _file(self, call: Call) -> File | None:
        path = call.path(0)
        file = self._now.get(path)
        if file is None and self._inside(path) and not path.endswith(" (deleted)"):
            raise ValueError(f"{path} was not created in the trace")
        return file

    def _write(self, call: Call) -> None:
        """Apply a write at the current position. The writers append: a descriptor begins at the start."""
        if not self._inside(call.path(0)):
            return
        file = self._file(call)
        if file is not None:
            self._put(file, file.length, call.data(1)[: call.result])

    def _pwrite(self, call: Call) -> None:
        file = self._file(call) if self._inside(call.path(0)) else None
        if file is not None:
            self._put(file, int(call.arguments[3]), call.data(1)[: call.result])

    def _put(self, file: File, offset: int, data: bytes) -> None:
        file.pending.append(Write(offset, data))
        file.length = max(file.length, offset + len(data))

    def _truncate(self, call: Call) -> None:
        file = self._file(call) if self._inside(call.path(0)) else None
        if file is not None:
            file.pending.append(Write(int(call.arguments[1]), None))
            file.length = int(call.arguments[1])

    def _sync(self, call: Call) -> None:
        path = call.path(0)
        if not self.syncs or not self._inside(path):
            return
        file = self._now.get(path)
        if file is not None:
            file.sync()
        elif path in self._now or path == self.root:
            self.confirmed = len(self.names)

    def _rename(self, call: Call, old: int, new: int) -> None:
        source, target = call.path(old), call.path(new)
        if self._inside(source):
            _move(self._now, source, target)
            self.names.append(("move", source, target))

    def _unlink_at(self, call: Call) -> None:
        path = call.path(1)
        self._unlink(path if path.startswith("/") else f"{call.path(0)}/{path}")

    def _unlink(self, path: str) -> None:
        if self._inside(path):
            self._now.pop(path, None)
            self.names.append(("remove", path, None))


def _decoded(argument: str) -> str:
    return _HEX.sub(lambda found: _bytes(found.group(0)).decode(errors="replace"), argument)


def _move(names: "dict[str, object] | dict[str, File | None]", source: str, target: str) -> None:
    for path in [path for path in names if path == source or path.startswith(f"{source}/")]:
        names[target + path.removeprefix(source)] = names.pop(path)  # type: ignore[assignment]
