"""Files as Python's `io` wants them."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from . import _weft

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger("weft")

# What a buffered reader asks for at a time, in bytes. A stripe is read from all its targets at
# once, so large reads are faster.
BUFFER_BYTES = 1 << 20


def flags_of(mode: str) -> tuple[int, bool]:
    """The flags of open(2) of a mode like `rb` or `w+`, and whether it is text.

    >>> flags_of("rb") == (os.O_RDONLY, False)
    True
    >>> flags_of("w+") == (os.O_RDWR | os.O_CREAT | os.O_TRUNC, True)
    True
    >>> flags_of("rw")
    Traceback (most recent call last):
    ValueError: mode 'rw': it has one of r, w, x and a, and perhaps b or t, and +
    """
    kinds = [letter for letter in mode if letter in "rwxa"]
    if len(kinds) != 1 or len(set(mode)) != len(mode) or set(mode) - set("rwxabt+") or {"b", "t"} <= set(mode):
        raise ValueError(f"mode {mode!r}: it has one of r, w, x and a, and perhaps b or t, and +")
    flags = {
        "r": 0,
        "w": os.O_CREAT | os.O_TRUNC,
        "x": os.O_CREAT | os.O_EXCL,
        "a": os.O_CREAT | os.O_APPEND,
    }[kinds[0]]
    access = os.O_RDWR if "+" in mode else os.O_RDONLY if kinds[0] == "r" else os.O_WRONLY
    return flags | access, "b" not in mode


class RawFile(io.RawIOBase):
    """A file without a buffer. `pread`, `readinto_at`, `pwrite` and `read_ranges` can be called from several
    threads at a time; `read`, `write` and `seek` share one position.
    """

    def __init__(self, file: _weft.File, name: str, flags: int) -> None:
        access = flags & os.O_ACCMODE
        self._file = file
        self._position = 0
        self._appends = bool(flags & os.O_APPEND)
        self._readable = access != os.O_WRONLY
        self._writable = access != os.O_RDONLY
        if self._readable:
            # Without a step in between: each one holds the interpreter, which other threads want.
            self.pread = file.pread  # type: ignore[method-assign]
            self.readinto_at = file.preadinto  # type: ignore[method-assign]
        self.name = name
        self.mode = "rb" if not self._writable else "rb+" if self._readable else "ab" if self._appends else "wb"

    def __repr__(self) -> str:
        return f"<weft.RawFile name={self.name!r} mode={self.mode!r}{' closed' if self.closed else ''}>"

    def readable(self) -> bool:
        self._check()
        return self._readable

    def writable(self) -> bool:
        self._check()
        return self._writable

    def seekable(self) -> bool:
        self._check()
        return True

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _check_readable(self) -> None:
        self._check()
        if not self._readable:
            raise io.UnsupportedOperation("the file is not open for reading")

    def _check_writable(self) -> None:
        self._check()
        if not self._writable:
            raise io.UnsupportedOperation("the file is not open for writing")

    def size(self) -> int:
        """The size in bytes."""
        self._check()
        return self._file.size()

    def tell(self) -> int:
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check()
        match whence:
            case os.SEEK_SET:
                base = 0
            case os.SEEK_CUR:
                base = self._position
            case os.SEEK_END:
                base = self._file.size()
            case _:
                raise ValueError(f"whence is 0, 1 or 2, not {whence}")
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Buffer, /) -> int:
        self._check_readable()
        count = self._file.preadinto(buffer, self._position)
        self._position += count
        return count

    def read(self, size: int = -1, /) -> bytes:
        self._check_readable()
        if size is None or size < 0:
            return self.readall()
        data = self._file.pread(size, self._position)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        self._check_readable()
        data = self._file.pread(max(self._file.size() - self._position, 0), self._position)
        self._position += len(data)
        return data

    def write(self, data: Buffer, /) -> int:
        self._check_writable()
        if self._appends:
            count = self._file.append(data)
            self._position = self._file.size()
        else:
            count = self._file.pwrite(data, self._position)
            self._position += count
        return count

    def truncate(self, size: int | None = None, /) -> int:
        self._check_writable()
        size = self._position if size is None else size
        if size < 0:
            raise ValueError(f"negative size {size}")
        self._file.truncate(size)
        return size

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`, fewer only at the end of the file. The position stays."""
        self._check_readable()
        return self._file.pread(size, offset)

    def readinto_at(self, buffer: Buffer, offset: int) -> int:
        """Reads from `offset` into a buffer, as `os.preadv` does. The position stays."""
        self._check_readable()
        return self._file.preadinto(buffer, offset)

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Writes all of `data` at `offset`. The position stays."""
        self._check_writable()
        return self._file.pwrite(data, offset)

    def read_ranges(self, ranges: Iterable[tuple[int, int]], threads: int = 16) -> list[bytes]:
        """Several ranges, each `(offset, size)`, with up to `threads` reads at a time."""
        self._check_readable()
        return self._file.read_ranges(list(ranges), threads)

    def sync(self) -> None:
        """Returns when everything that was written is durable, like `os.fsync`. A file with a buffer is to be
        flushed first.
        """
        self._check()
        self._file.sync()

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file of a volume has no descriptor")

    def close(self) -> None:
        """Closes the file. What was written is durable after `sync`, or when the volume is closed."""
        if self.closed:
            return
        try:
            super().close()
        finally:
            self._file.close()


_writers: WeakSet[Any] = WeakSet()
"""Open files with a buffer of what was written."""
# What the parent had written is for the parent to store.
os.register_at_fork(after_in_child=_writers.clear)


def writes_at_the_end(file: Any) -> None:
    """Has a file written to its volume when the interpreter ends, before volumes are closed, as Python's own are."""
    _writers.add(file)


def close_all() -> None:
    """Commits and closes every volume of this process, after what is in the buffers of files."""
    for file in list(_writers):
        try:
            file.flush()
        except (OSError, ValueError) as why:
            if not file.closed:
                _log.error("%s: what was written last is lost: %s", file.name, why)
    _weft.close_all()


def buffered(raw: RawFile, flags: int, buffering: int) -> Any:
    """The file with the buffer that it needs."""
    if buffering == 0:
        return raw
    size = BUFFER_BYTES if buffering < 0 else buffering
    access = flags & os.O_ACCMODE
    kind: Any = {os.O_RDONLY: io.BufferedReader, os.O_WRONLY: io.BufferedWriter, os.O_RDWR: io.BufferedRandom}[access]
    return kind(raw, size)
