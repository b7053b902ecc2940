"""The file system `weft://` of fsspec: `weft://HOST:PORT/NAME:/path` for a volume of a cluster, `weft:///DIRECTORY:/path`
for one in a directory of this machine, and `weft://path` with the option `volume`.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import stat
import time
from collections import defaultdict
from typing import Any

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.utils import stringify_path  # type: ignore[import-untyped]

from ._files import BUFFER_BYTES
from ._volume import DirEntry, Volume, part_of

_SCHEME = "weft://"


def _split(url: str) -> tuple[str | None, str]:
    """The volume that an address names, if it names one, and the path in it.

    >>> _split("weft://host:7600/films:/a/b")
    ('weft://host:7600/films', 'a/b')
    >>> _split("weft:///srv/films:/a")
    ('/srv/films', 'a')
    >>> _split("weft://a/b"), _split("/a/b")
    ((None, 'a/b'), (None, '/a/b'))
    """
    if not url.startswith(_SCHEME):
        return None, url
    rest = url[len(_SCHEME) :]
    volume, separator, path = rest.partition(":/")
    if not separator:
        return None, rest
    return volume if volume.startswith("/") else _SCHEME + volume, path


class WeftFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Files of a Weft volume.

    `volume` is its directory or `weft://` address, `identity` and `read_only` are those of `weft.Volume`. Files that
    are written make the directories above them, unless `auto_mkdir` is false. What `pipe`, `cp_file` and transactions
    write appears whole; a file that was opened for writing is visible before it is closed.
    """

    protocol = "weft"
    root_marker = "/"

    def __init__(
        self,
        volume: str | os.PathLike[str] | None = None,
        identity: str | os.PathLike[str] | None = None,
        read_only: bool = False,
        auto_mkdir: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if volume is None:
            raise ValueError("no volume: weft://HOST:PORT/NAME:/path and weft:///DIRECTORY:/path name one, or volume=")
        self.auto_mkdir = auto_mkdir
        self.volume = Volume(volume, identity=identity, read_only=read_only, lazy=True)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        _, path = _split(stringify_path(path))
        return "/" + "/".join(name for name in path.split("/") if name not in ("", "."))

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        volume, _ = _split(stringify_path(path))
        return {} if volume is None else {"volume": volume}

    def unstrip_protocol(self, name: str) -> str:
        return f"{_SCHEME}{self.volume.address.removeprefix(_SCHEME)}:{self._strip_protocol(name)}"

    @property
    def fsid(self) -> str:
        return f"weft-{self.volume.address}"

    def _info(self, entry: DirEntry) -> dict[str, Any]:
        is_link = entry.is_symlink()
        info: dict[str, Any] = {"name": entry.path, "islink": is_link}
        if is_link:
            info["destination"] = self.volume.readlink(entry.path)
            with contextlib.suppress(OSError):
                entry = self.volume.entry(entry.path)
        found = entry.stat(follow_symlinks=False)
        kind = {stat.S_IFDIR: "directory", stat.S_IFREG: "file"}.get(stat.S_IFMT(found.st_mode), "other")
        info |= {"size": 0 if kind == "directory" else found.st_size, "type": kind, "created": entry.created_ns / 1e9}
        return info | {name: getattr(found, f"st_{name}") for name in ("mode", "uid", "gid", "mtime", "ino", "nlink")}

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return self._info(self.volume.entry(self._strip_protocol(path), follow_symlinks=False))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            entries = self.volume.scandir(path)
        except NotADirectoryError:
            info = self.info(path)
            return [info] if detail else [path]
        if not detail:
            return [entry.path for entry in entries]
        return [self._info(entry) for entry in entries]

    def exists(self, path: str, **_: Any) -> bool:
        return self.volume.exists(self._strip_protocol(path))

    def lexists(self, path: str, **_: Any) -> bool:
        return self.volume._mode(self._strip_protocol(path), follow_symlinks=False) != 0

    def isdir(self, path: str) -> bool:
        return self.volume.is_dir(self._strip_protocol(path))

    def isfile(self, path: str) -> bool:
        return self.volume.is_file(self._strip_protocol(path))

    def islink(self, path: str) -> bool:
        return stat.S_ISLNK(self.volume._mode(self._strip_protocol(path), follow_symlinks=False))

    def created(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["created"], tz=datetime.UTC)

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.UTC)

    def ukey(self, path: str) -> str:
        found = self.volume.stat(self._strip_protocol(path))
        return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.volume.makedirs(path)
        else:
            self.volume.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.volume.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.volume.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self.volume.unlink(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for one in self.expand_path(path, recursive=False):
            if not self.isdir(one) or self.islink(one):
                self.volume.unlink(one)
            elif recursive:
                self.volume.rmtree(one)
            else:
                raise IsADirectoryError(f"{one} is a directory: recursive=True removes it")

    def _make_room(self, path: str) -> None:
        if self.auto_mkdir:
            self.volume.makedirs(self._parent(path), exist_ok=True)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        self._make_room(path2)
        if self.isdir(path1):
            self.volume.makedirs(path2, exist_ok=True)
        else:
            self.volume.copy(path1, path2)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        if isinstance(path1, list) or isinstance(path2, list) or maxdepth is not None or not self.exists(path1):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path2):
            path2 = f"{path2.rstrip('/')}/{path1.rpartition('/')[2]}"
        self._make_room(path2)
        self.volume.rename(path1, path2)

    rename = mv

    def link(self, src: str, dst: str, **_: Any) -> None:
        self.volume.link(self._strip_protocol(src), self._strip_protocol(dst))

    def symlink(self, src: str, dst: str, **_: Any) -> None:
        self.volume.symlink(src, self._strip_protocol(dst))

    def chmod(self, path: str, mode: int) -> None:
        self.volume.chmod(self._strip_protocol(path), mode)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        self._make_room(path)
        self.volume.open(path, "ab").close()
        now = time.time_ns()
        if truncate:
            self.volume.truncate(path, 0)
        self.volume.utime(path, ns=(now, now))

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **_: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if "r" not in mode:
            self._make_room(path)
        if not autocommit and "r" not in mode:
            return _Later(self.volume, path, mode)
        return self.volume.open(path, mode, block_size if isinstance(block_size, int) else -1)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.volume.read_bytes(path)
        with self.volume.open(path, "rb", 0) as file:
            begin, end = _span(start, end, file)
            return file.pread(end - begin, begin)

    def cat_ranges(
        self, paths: Any, starts: Any, ends: Any, max_gap: int | None = None, on_error: str = "return", **_: Any
    ) -> list[Any]:
        starts = [starts] * len(paths) if not isinstance(starts, list) else starts
        ends = [ends] * len(paths) if not isinstance(ends, list) else ends
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("there is a start and an end for each path")
        by_path = defaultdict(list)
        for index, path in enumerate(paths):
            by_path[self._strip_protocol(path)].append(index)
        result: list[Any] = [b""] * len(paths)
        for path, indices in by_path.items():
            try:
                with self.volume.open(path, "rb", 0) as file:
                    spans = [_span(starts[index], ends[index], file) for index in indices]
                    found = file.read_ranges([(begin, end - begin) for begin, end in spans])
            except OSError as why:
                if on_error != "return":
                    raise
                found = [why] * len(indices)  # type: ignore[list-item]
            for index, data in zip(indices, found, strict=True):
                result[index] = data
        return result

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        path = self._strip_protocol(path)
        self._make_room(path)
        self.volume.write_bytes(path, value, overwrite=mode != "create")


def _span(start: int | None, end: int | None, file: Any) -> tuple[int, int]:
    """The bytes of a slice of a file. Negative numbers count from its end."""
    size = file.size() if end is None or (start or 0) < 0 or end < 0 else 0
    begin = 0 if start is None else start if start >= 0 else max(size + start, 0)
    until = size if end is None else end if end >= 0 else size + end
    return begin, max(begin, until)


class _Later(io.BufferedWriter):
    """A file that gets its name when a transaction ends."""

    def __init__(self, volume: Volume, path: str, mode: str) -> None:
        self._volume, self._path, self._overwrite = volume, path, "x" not in mode
        self._part = part_of(path)
        if "a" in mode and volume.exists(path):
            volume.copy(path, self._part)
            super().__init__(volume.open(self._part, "ab", buffering=0), BUFFER_BYTES)
        else:
            super().__init__(volume.open(self._part, "xb", buffering=0), BUFFER_BYTES)

    def commit(self) -> None:
        if not self.closed:
            self.close()
        self._volume.rename(self._part, self._path, overwrite=self._overwrite)

    def discard(self) -> None:
        if not self.closed:
            self.close()
        self._volume.unlink(self._part)
