"""`weft://`: fsspec's own tests, and what only this file system has."""

import os
import pickle

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)
from weft.fsspec import WeftFileSystem


class WeftFixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, volume, shared_directory):
        return WeftFileSystem(shared_directory)

    @pytest.fixture
    def fs_path(self):
        return "/tests"


class TestCopy(WeftFixtures, AbstractCopyTests):
    pass


class TestGet(WeftFixtures, AbstractGetTests):
    pass


class TestPut(WeftFixtures, AbstractPutTests):
    pass


class TestOpen(WeftFixtures, AbstractOpenTests):
    pass


class TestPipe(WeftFixtures, AbstractPipeTests):
    pass


@pytest.fixture
def fs(volume, shared_directory):
    return WeftFileSystem(shared_directory)


def test_addresses(fs, shared_directory):
    with fsspec.open(f"weft://{shared_directory}:/a/b.txt", "w") as file:
        file.write("text")
    found, path = fsspec.url_to_fs(f"weft://{shared_directory}:/a/b.txt")
    assert isinstance(found, WeftFileSystem) and path == "/a/b.txt"
    assert fs.unstrip_protocol("a/b.txt") == f"weft://{os.path.realpath(shared_directory)}:/a/b.txt"
    assert fsspec.open(fs.unstrip_protocol("a/b.txt"), "r").fs.cat("a/b.txt") == b"text"
    assert fsspec.open("weft://a/b.txt", volume=shared_directory).fs.cat("a/b.txt") == b"text"
    assert WeftFileSystem._get_kwargs_from_urls("weft://h:7600,i/v:/a") == {"volume": "weft://h:7600,i/v"}
    assert WeftFileSystem._strip_protocol("weft://h:7600,i/v:/a//b/./c/") == "/a/b/c"
    assert WeftFileSystem._strip_protocol("weft://h:7600/v:/") == "/"
    with pytest.raises(ValueError, match="no volume"):
        fsspec.filesystem("weft")


def test_files_and_directories(fs):
    fs.pipe({"a/x": b"0123456789", "a/y": b"abc"})
    assert fs.ls("a", detail=False) == ["/a/x", "/a/y"]
    assert fs.ls("/a/x", detail=False) == ["/a/x"]
    info = fs.info("a/x")
    assert (info["name"], info["type"], info["size"]) == ("/a/x", "file", 10)
    assert fs.info("a")["type"] == fs.info("/")["type"] == "directory"
    assert fs.find("/") == ["/a/x", "/a/y"] and fs.glob("/a/*x") == ["/a/x"]
    assert fs.du("/") == 13
    assert fs.cat_file("a/x", 2, 5) == fs.cat_file("a/x", -8, -5) == b"234"
    found = fs.cat_ranges(["a/x", "a/y", "a/x", "none"], [0, 1, 8, 0], [2, 3, None, 1])
    assert found[:3] == [b"01", b"bc", b"89"] and isinstance(found[3], FileNotFoundError)
    assert fs.modified("a/x").timestamp() == pytest.approx(info["mtime"])
    fs.mv("a/x", "b/z")
    assert fs.cat("b/z") == b"0123456789" and not fs.exists("a/x")
    fs.cp("b", "c", recursive=True)
    assert fs.cat("c/z") == b"0123456789"
    fs.symlink("z", "c/link")
    assert fs.islink("c/link") and fs.info("c/link")["destination"] == "z" and fs.cat("c/link") == b"0123456789"
    with pytest.raises(FileExistsError):
        fs.mkdir("a")
    with pytest.raises(IsADirectoryError):
        fs.rm("c")
    fs.rm("c", recursive=True)
    fs.rm(["a", "b"], recursive=True)
    assert fs.ls("/") == []


def test_a_transaction_names_its_files_at_its_end(fs):
    fs.pipe("old", b"old")
    with fs.transaction:
        with fs.open("new", "wb") as file:
            file.write(b"new")
        with fs.open("old", "wb") as file:
            file.write(b"newer")
        assert not fs.exists("new") and fs.cat("old") == b"old"
    assert (fs.cat("new"), fs.cat("old")) == (b"new", b"newer")
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open("new", "wb") as file:
            file.write(b"never")
        1 / 0  # noqa: B018
    assert fs.cat("new") == b"new" and fs.ls("/", detail=False) == ["/new", "/old"]


def test_a_transaction_appends_and_creates_at_its_end(fs):
    fs.pipe("log", b"one")
    with fs.transaction:
        with fs.open("log", "ab") as file:
            file.write(b" two")
        with fs.open("new", "xb") as file:
            file.write(b"new")
        assert fs.cat("log") == b"one" and not fs.exists("new")
    assert (fs.cat("log"), fs.cat("new")) == (b"one two", b"new")


def test_without_auto_mkdir_directories_must_be_there(volume, shared_directory):
    fs = WeftFileSystem(shared_directory, auto_mkdir=False)
    with pytest.raises(FileNotFoundError):
        fs.open("a/b", "wb")
    fs.mkdir("a/b/c")
    with pytest.raises(FileNotFoundError):
        fs.mkdir("x/y", create_parents=False)


def test_it_can_be_pickled(fs):
    fs.pipe("f", b"data")
    assert pickle.loads(pickle.dumps(fs)).cat("f") == b"data"


def test_text_compression_and_local_copies(fs, tmp_path):
    with fs.open("t.gz", "wt", compression="gzip") as file:
        file.write("line\n" * 1000)
    with fs.open("t.gz", "rt", compression="infer") as file:
        assert sum(1 for _ in file) == 1000
    fs.get("t.gz", str(tmp_path / "t.gz"))
    fs.put(str(tmp_path / "t.gz"), "back.gz")
    assert fs.cat("back.gz") == fs.cat("t.gz") == (tmp_path / "t.gz").read_bytes()
