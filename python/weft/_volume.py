"""Volumes, and the names in them."""

from __future__ import annotations

import io
import logging
import os
import secrets
import stat as _stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, overload

from . import _weft
from ._files import RawFile, buffered, close_all, flags_of, writes_at_the_end

if TYPE_CHECKING:
    from typing_extensions import Buffer

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_log = logging.getLogger("weft")
_SCHEME = "weft://"


def parent_of(path: str) -> str:
    """The directory of a file; empty for one of the root."""
    return path.rstrip("/").rpartition("/")[0]


def part_of(path: str) -> str:
    """The name under which the new content of a file is written, in the same directory."""
    return f"{parent_of(path)}/.weft-part-{secrets.token_hex(8)}"


class Usage(NamedTuple):
    """Space and files of a volume."""

    total: int
    """Bytes of data that fit in total."""
    free: int
    """Bytes of data that still fit."""
    files: int
    """The number of files."""


def _stat_result(found: tuple[int, ...]) -> os.stat_result:
    mode, ino, links, uid, gid, size, device, blocks, accessed, modified, changed, _ = found
    times = {"st_atime": accessed, "st_mtime": modified, "st_ctime": changed}
    more: dict[str, Any] = {name: time / 1e9 for name, time in times.items()}
    more |= {f"{name}_ns": time for name, time in times.items()}
    more |= {"st_rdev": device, "st_blocks": blocks, "st_blksize": 4096}
    seconds = (time // 10**9 for time in (accessed, modified, changed))
    return os.stat_result((mode, ino, 0, links, uid, gid, size, *seconds), more)


class DirEntry:
    """A name in a directory, with the attributes of its file: `os.DirEntry` without another look."""

    __slots__ = ("_stat", "_volume", "name", "path")

    def __init__(self, volume: Volume, path: str, name: str, found: tuple[int, ...]) -> None:
        self.name = name
        self.path = path
        self._volume = volume
        self._stat = found

    def __repr__(self) -> str:
        return f"<weft.DirEntry {self.name!r}>"

    def __fspath__(self) -> str:
        return self.path

    @property
    def created_ns(self) -> int:
        """When the file was created, in nanoseconds since 1970, which `os.stat_result` has no place for."""
        return self._stat[-1]

    def inode(self) -> int:
        return self._stat[1]

    def is_symlink(self) -> bool:
        return _stat.S_ISLNK(self._stat[0])

    def _mode(self, follow_symlinks: bool) -> int:
        if not (follow_symlinks and self.is_symlink()):
            return self._stat[0]
        try:
            return self._volume.stat(self.path).st_mode
        except OSError:
            return 0

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return _stat.S_ISDIR(self._mode(follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return _stat.S_ISREG(self._mode(follow_symlinks))

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        if follow_symlinks and self.is_symlink():
            return self._volume.stat(self.path)
        return _stat_result(self._stat)


class Volume:
    """An open volume: a directory with a volume, or the address of its metadata servers,
    `weft://HOST:PORT/NAME`.

    Its methods are those of `os` and `shutil`, with paths from the root of the volume. Errors are `OSError` and its
    subclasses. All methods can be called from several threads at a time, and other threads run while one waits.

    `identity` is the certificate to show to servers, `DIR/NAME` as for `weft --identity`; without it the variable
    WEFT_IDENTITY counts. A process has one identity. With `lazy`, the volume is opened when it is first needed.

    A volume can be pickled. The copy opens the volume anew where it is unpickled, when it is first needed. A directory
    is open in one process only; a cluster has many clients.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        *,
        identity: str | os.PathLike[str] | None = None,
        read_only: bool = False,
        lazy: bool = False,
    ) -> None:
        text = os.fspath(address)
        identity = os.environ.get("WEFT_IDENTITY") or None if identity is None else os.fspath(identity)
        self.address = text if text.startswith(_SCHEME) else os.path.realpath(text)
        self.read_only = read_only
        self._identity = identity if identity is None else os.path.abspath(identity)
        self._volume = _weft.Volume(self.address, self._identity, read_only, lazy)
        _close_at_the_end_of_a_worker()
        self._log_warnings()

    def _log_warnings(self) -> None:
        for line in self._volume.take_warnings():
            _log.warning("%s: %s", self.address, line)

    def __repr__(self) -> str:
        more = ", read_only=True" if self.read_only else ""
        return f"weft.Volume({self.address!r}{more})"

    def __reduce__(self) -> tuple[Callable[..., Volume], tuple[Any, ...]]:
        return _unpickled, (self.address, self._identity, self.read_only)

    def __enter__(self) -> Volume:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._volume.closed

    @property
    def name(self) -> str:
        """The name that the owner gave the volume."""
        return self._volume.name()

    def close(self) -> None:
        """Commits everything that was written and closes the volume. Files that are open then cannot be used any
        more. If other `Volume` objects of this process have it, it stays open for them.
        """
        self._log_warnings()
        self._volume.close()

    def sync(self) -> None:
        """Returns when everything that was written is durable."""
        self._volume.sync()

    def usage(self) -> Usage:
        """Space and files, like `shutil.disk_usage`."""
        return Usage(*self._volume.usage())

    @overload
    def open(self, path: Path, mode: str, buffering: Literal[0], *, permissions: int = 0o644) -> RawFile: ...  # type: ignore[overload-overlap]

    @overload
    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> IO[Any]: ...

    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> Any:
        """Opens a file, as the built-in `open` does. `buffering=0` gives a `RawFile`, for binary modes only."""
        flags, is_text = flags_of(mode)
        if is_text and buffering == 0:
            raise ValueError("a text file has a buffer")
        if not is_text and (encoding, errors, newline) != (None, None, None):
            raise ValueError("encoding, errors and newline are for text")
        opened = self._volume.open(os.fsencode(path), flags, permissions)
        raw = RawFile(opened, os.fsdecode(path), flags)
        if flags & os.O_APPEND:
            raw.seek(0, os.SEEK_END)
        binary = buffered(raw, flags, -1 if is_text and buffering == 1 else buffering)
        file = binary
        if is_text:
            file = io.TextIOWrapper(binary, encoding, errors, newline, line_buffering=buffering == 1)
            file.mode = mode  # type: ignore[misc]
        if raw.writable() and file is not raw:
            writes_at_the_end(file)
        return file

    def read_bytes(self, path: Path) -> bytes:
        """The whole content of a file."""
        return self._volume.read_bytes(os.fsencode(path))

    def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The whole content of a file, as text."""
        return self.read_bytes(path).decode(encoding, errors)

    def write_bytes(self, path: Path, data: Buffer, *, permissions: int = 0o644, overwrite: bool = True) -> int:
        """Makes a file of this content, or replaces one, and returns the number of bytes. Readers see the old
        content or the new one, never a part, and it is durable when this returns. Without `overwrite`, a file that
        is there is an error.
        """
        return self._volume.write_bytes(os.fsencode(path), data, permissions, overwrite)

    def write_text(self, path: Path, text: str, encoding: str = "utf-8", errors: str = "strict") -> int:
        """As `write_bytes`, for text."""
        return self.write_bytes(path, text.encode(encoding, errors))

    @contextmanager
    def replace(self, path: Path, mode: str = "wb", *, permissions: int = 0o644, **options: Any) -> Iterator[IO[Any]]:
        """A new file that takes the place of `path` when the block ends: whole and durable, or not at all if the
        block raises an error.

        Use it as `with volume.replace("model.bin") as file: file.write(...)`.
        """
        if not mode.startswith(("w", "x")):
            raise ValueError(f"mode {mode!r}: a new file is written, with w or x")
        path = os.fsdecode(path)
        part = part_of(path)
        file = self.open(part, mode.replace("w", "x"), permissions=permissions, **options)
        try:
            with file:
                yield file
                file.flush()
                _raw(file).sync()
            self.rename(part, path, overwrite=not mode.startswith("x"))
        except BaseException:
            try:
                self.unlink(part)
            except OSError as why:
                _log.warning("%s: %s stays: %s", self.address, part, why)
            raise
        self._volume.sync_directory(os.fsencode(parent_of(path)))

    def copy(self, source: Path, target: Path) -> int:
        """Copies a file within the volume, and returns its size. Both share what is stored: no data is read or
        written. The copy appears whole, and replaces a file that is there.
        """
        return self._volume.copy(os.fsencode(source), os.fsencode(target))

    def stat(self, path: Path = "", *, follow_symlinks: bool = True) -> os.stat_result:
        """The attributes of a file, like `os.stat`. `st_dev` is 0."""
        return _stat_result(self._volume.stat(os.fsencode(path), follow_symlinks))

    def lstat(self, path: Path) -> os.stat_result:
        """As `stat`, of a symbolic link itself."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: Path) -> bool:
        """Whether there is a file at a path, of any kind."""
        return self._mode(path) != 0

    def is_file(self, path: Path) -> bool:
        """Whether there is a regular file at a path."""
        return _stat.S_ISREG(self._mode(path))

    def is_dir(self, path: Path) -> bool:
        """Whether there is a directory at a path."""
        return _stat.S_ISDIR(self._mode(path))

    def _mode(self, path: Path, *, follow_symlinks: bool = True) -> int:
        """The kind and permissions of a file, 0 when there is no file."""
        try:
            return self.stat(path, follow_symlinks=follow_symlinks).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def listdir(self, path: Path = "") -> list[str]:
        """The names in a directory, in the order of their bytes."""
        return [name for name, _ in self._volume.list(os.fsencode(path))]

    def scandir(self, path: Path = "") -> list[DirEntry]:
        """The entries of a directory with their attributes, in the order of their names' bytes."""
        above = os.fsdecode(path)
        above = f"{above.rstrip('/')}/" if above else ""
        return [DirEntry(self, above + name, name, found) for name, found in self._volume.list(os.fsencode(path))]

    def entry(self, path: Path, *, follow_symlinks: bool = True) -> DirEntry:
        """One file, as `scandir` shows it."""
        path = os.fsdecode(path)
        found = self._volume.stat(os.fsencode(path), follow_symlinks)
        return DirEntry(self, path, path.rstrip("/").rpartition("/")[2], found)

    def walk(self, top: Path = "") -> Iterator[tuple[str, list[str], list[str]]]:
        """Every directory below one with its directories and its other files, like `os.walk`, from the top down.
        It does not follow symbolic links.
        """
        entries = self.scandir(top)
        directories = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        others = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
        top = os.fsdecode(top)
        yield top, directories, others
        for name in directories:
            yield from self.walk(f"{top.rstrip('/')}/{name}" if top else name)

    def mkdir(self, path: Path, mode: int = 0o755) -> None:
        """Makes a directory."""
        self._volume.mkdir(os.fsencode(path), mode)

    def makedirs(self, path: Path, mode: int = 0o755, exist_ok: bool = False) -> None:
        """Makes a directory, and those above it where they are missing."""
        path = os.fsdecode(path)
        try:
            self.mkdir(path, mode)
        except FileNotFoundError:
            above = parent_of(path)
            if not above:
                raise
            self.makedirs(above, mode, exist_ok=True)
            self.makedirs(path, mode, exist_ok)
        except FileExistsError:
            if not (exist_ok and self.is_dir(path)):
                raise

    def unlink(self, path: Path) -> None:
        """Removes a name of a file that is no directory."""
        self._volume.unlink(os.fsencode(path))

    remove = unlink

    def rmdir(self, path: Path) -> None:
        """Removes an empty directory."""
        self._volume.rmdir(os.fsencode(path))

    def rmtree(self, path: Path) -> None:
        """Removes a directory with everything in it."""
        for entry in self.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                self.rmtree(entry.path)
            else:
                self.unlink(entry.path)
        if os.fsdecode(path).strip("/"):
            self.rmdir(path)

    def rename(self, source: Path, target: Path, *, overwrite: bool = True) -> None:
        """Gives a file another name, like `os.replace`; without `overwrite`, a file that has the name already is an
        error.
        """
        self._volume.rename(os.fsencode(source), os.fsencode(target), overwrite)

    def link(self, source: Path, target: Path) -> None:
        """Gives a file one more name."""
        self._volume.link(os.fsencode(source), os.fsencode(target))

    def symlink(self, target: Path, path: Path) -> None:
        """Makes a symbolic link at `path`. One that leads to an absolute path leads out of the volume, and is not
        followed here.
        """
        self._volume.symlink(os.fsencode(target), os.fsencode(path))

    def readlink(self, path: Path) -> str:
        """Where a symbolic link leads."""
        return self._volume.readlink(os.fsencode(path))

    def chmod(self, path: Path, mode: int, *, follow_symlinks: bool = True) -> None:
        """Sets the permission bits."""
        self._volume.set_attributes(os.fsencode(path), follow_symlinks, mode=mode)

    def chown(self, path: Path, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Sets owner and group; -1 leaves one as it is."""
        owner = {name: value for name, value in (("uid", uid), ("gid", gid)) if value != -1}
        self._volume.set_attributes(os.fsencode(path), follow_symlinks, **owner)

    def utime(self, path: Path, *, ns: tuple[int, int], follow_symlinks: bool = True) -> None:
        """Sets the times of access and modification, in nanoseconds since 1970."""
        self._volume.set_attributes(os.fsencode(path), follow_symlinks, accessed=ns[0], modified=ns[1])

    def truncate(self, path: Path, size: int) -> None:
        """Sets the size of a file, in bytes."""
        self._volume.set_attributes(os.fsencode(path), True, size=size)

    def getxattr(self, path: Path, name: str | bytes) -> bytes:
        """The value of an extended attribute, like `user.colour`."""
        return self._volume.getxattr(os.fsencode(path), os.fsencode(name))

    def setxattr(self, path: Path, name: str | bytes, value: bytes) -> None:
        """Sets an extended attribute."""
        self._volume.setxattr(os.fsencode(path), os.fsencode(name), value)

    def removexattr(self, path: Path, name: str | bytes) -> None:
        """Removes an extended attribute."""
        self._volume.removexattr(os.fsencode(path), os.fsencode(name))

    def listxattr(self, path: Path) -> list[str]:
        """The names of the extended attributes."""
        return self._volume.listxattr(os.fsencode(path))


def _unpickled(address: str, identity: str | None, read_only: bool) -> Volume:
    return Volume(address, identity=identity, read_only=read_only, lazy=True)


def _raw(file: Any) -> RawFile:
    """The file below its buffers."""
    while not isinstance(file, RawFile):
        file = file.buffer if hasattr(file, "buffer") else file.raw
    return file


def _close_at_the_end_of_a_worker() -> None:
    """A process of multiprocessing ends without what `atexit` has: it has a list of its own."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None or _closes_in.pid == os.getpid() or multiprocessing.parent_process() is None:
        return
    _closes_in.pid = os.getpid()
    sys.modules["multiprocessing.util"].Finalize(None, close_all, exitpriority=0)


class _closes_in:
    pid = 0
