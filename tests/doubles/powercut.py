"""What a power cut leaves: a trace of system calls, and every file as it may be found afterwards.

The model is the strict one: what was written is on the disk when an `fsync` of that file, begun after the write,
has returned; a name is there when its folder was synced. Of everything else any part may be there: some of the
writes, torn at any sector, and the first so many changes of names.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

CALLS = "openat,pwrite64,write,writev,sendto,sendmsg,ftruncate,rename,unlink,fdatasync,fsync"
SECTOR = 512

_LINE = re.compile(r"^(\d+) +(\w+)\((.*)$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)$")
_HEX = re.compile(r"\\x([0-9a-f]{2})")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FILE = re.compile(r"^(\d+)<((?:\\x[0-9a-f]{2})*)>")


def tracing(trace: Path) -> list[str]:
    """The command before a command: every call's bytes go to the trace, its process keeps its own id."""
    return [
        "strace",
        "-D",
        "-f",
        "--seccomp-bpf",
        "-y",
        "-xx",
        "-s",
        "500000",
        "-o",
        str(trace),
        "-e",
        f"trace={CALLS}",
    ]


@dataclasses.dataclass(frozen=True)
class Call:
    """One call, twice in the list: when it began and when it returned."""

    thread: int
    name: str
    path: str
    """Of the file that it is about."""
    data: bytes
    number: int
    """Offset, size, or flags."""
    other: str = ""
    """The second path of a rename."""


@dataclasses.dataclass(frozen=True)
class Moment:
    call: Call
    began: bool


def read(trace: Path) -> Iterator[Moment]:
    """The calls in the order in which they began and returned."""
    open_: dict[tuple[int, str], Call] = {}
    with trace.open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            if found := _RESUMED.match(line):
                key = (int(found[1]), found[2])
                if key in open_ and not _failed(found[3]):
                    yield Moment(open_.pop(key), began=False)
            elif found := _LINE.match(line):
                call = _call(int(found[1]), found[2], found[3])
                if line.rstrip().endswith("<unfinished ...>"):
                    open_[call.thread, call.name] = call
                    yield Moment(call, began=True)
                elif not _failed(found[3]):
                    yield Moment(call, began=True)
                    yield Moment(call, began=False)


def _failed(rest: str) -> bool:
    return " = -1 " in rest[-120:]


def _call(thread: int, name: str, rest: str) -> Call:
    texts = [_bytes(one) for one in _TEXT.findall(rest)]
    file = _FILE.match(rest)
    path = _bytes(file[2]).decode(errors="replace") if file else ""
    if name in ("rename", "unlink"):
        names = [one.decode() for one in texts]
        return Call(thread, name, names[0], b"", 0, names[-1])
    if name == "openat":
        return Call(thread, name, texts[-1].decode() if texts else "", b"", int("O_CREAT" in rest))
    tail = re.search(r", (\d+)(?:\) += .*| <unfinished \.\.\.>)?$", rest.rstrip())
    return Call(thread, name, path, b"".join(texts), int(tail[1]) if tail else 0)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


# ------------------------------------------------------------------------------------------------- the disk


class File:
    """What is on the disk for certain, and what was written since."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.pending: list[Call] = []
        self.written = 0
        """How many writes there were; the last of them may be pending."""
        self.length = 0
        """As its writers see it: plain writes go to the end."""

    def write(self, call: Call) -> None:
        if call.name == "write":
            call = dataclasses.replace(call, number=self.length)
        if call.name == "ftruncate":
            self.length = call.number
        else:
            self.length = max(self.length, call.number + len(call.data))
        self.pending.append(call)
        self.written += 1

    def sync(self, written: int) -> None:
        """What was written before the sync began is there."""
        count = max(0, len(self.pending) - (self.written - written))
        for call in self.pending[:count]:
            _apply(self.durable, call)
        del self.pending[:count]

    def found(self, chance: random.Random) -> bytes:
        """After the cut: some of what was not synced may be there too, or a part of it."""
        content = bytearray(self.durable)
        mood = chance.random()
        for call in self.pending:
            if mood < 0.3 or (mood < 0.8 and chance.random() < 0.5):
                continue
            data = call.data
            if data and chance.random() < 0.3:
                data = data[: chance.randrange(len(data) // SECTOR + 1) * SECTOR]
            _apply(content, dataclasses.replace(call, data=data))
        return bytes(content)


def _apply(content: bytearray, call: Call) -> None:
    if call.name == "ftruncate":
        if call.number < len(content):
            del content[call.number :]
        else:
            content.extend(bytes(call.number - len(content)))
        return
    if len(content) < call.number:
        content.extend(bytes(call.number - len(content)))
    content[call.number : call.number + len(call.data)] = call.data


class Disk:
    """The files of one folder, and of those below it, through a trace."""

    def __init__(self, folder: Path, *, ignored: Sequence[str] = ("-shm", ".owner")) -> None:
        self._folder = str(folder)
        self._ignored = tuple(ignored)
        self._names: dict[str, File] = {}
        self._durable_names: dict[str, File] = {}
        self._changes: list[tuple[str, File | None]] = []
        self._syncs: dict[int, tuple[File, int] | int] = {}

    def see(self, moment: Moment) -> None:
        call = moment.call
        if not call.path.startswith(self._folder) or call.path.endswith(self._ignored):
            return
        if call.name in ("fsync", "fdatasync"):
            self._sync(call, began=moment.began)
        elif not moment.began:
            self._change(call)

    def _change(self, call: Call) -> None:
        if call.name == "openat":
            if call.number and call.path not in self._names:
                self._name(call.path, File())
        elif call.name == "rename":
            self._name(call.other, self._names[call.path])
            self._name(call.path, None)
        elif call.name == "unlink":
            self._name(call.path, None)
        elif call.path in self._names and call.name in ("write", "pwrite64", "ftruncate"):
            self._names[call.path].write(call)

    def _name(self, path: str, file: File | None) -> None:
        if file is None:
            self._names.pop(path, None)
        else:
            self._names[path] = file
        self._changes.append((path, file))

    def _sync(self, call: Call, *, began: bool) -> None:
        file = self._names.get(call.path)
        if began:
            self._syncs[call.thread] = len(self._changes) if file is None else (file, file.written)
            return
        noted = self._syncs.pop(call.thread)
        if isinstance(noted, tuple):
            noted[0].sync(noted[1])
            return
        for path, changed in self._changes[:noted]:
            _rename(self._durable_names, path, changed)
        del self._changes[:noted]

    def cut(self, chance: random.Random, into: Path) -> None:
        """The files as somebody finds them after a power cut now."""
        names = dict(self._durable_names)
        for path, file in self._changes[: chance.randint(0, len(self._changes))]:
            _rename(names, path, file)
        for path, file in names.items():
            found = into / Path(path).relative_to(self._folder)
            found.parent.mkdir(parents=True, exist_ok=True)
            found.write_bytes(file.found(chance))


def _rename(names: dict[str, File], path: str, file: File | None) -> None:
    if file is None:
        names.pop(path, None)
    else:
        names[path] = file
