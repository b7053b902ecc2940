"""Files and names of a volume, without a mount."""

import errno
import io
import os
import pickle
import random
import stat
import subprocess
import sys
import threading

import pytest
import weft
from conftest import WEFT, run


def test_bytes_and_text_go_in_and_come_out(volume):
    assert volume.write_bytes("a", b"hello") == 5
    assert volume.read_bytes("/a") == b"hello"
    with volume.open("b", "w") as file:
        print("grüße", file=file)
        print("line", file=file)
    with volume.open("b") as file:
        assert list(file) == ["grüße\n", "line\n"]
    assert volume.read_text("b") == "grüße\nline\n"
    assert volume.listdir() == ["a", "b"]


def test_a_file_is_one_of_io(volume):
    data = random.Random(1).randbytes(3_000_000)
    with volume.open("f", "wb") as file:
        assert isinstance(file, io.BufferedWriter)
        for begin in range(0, len(data), 70_000):
            file.write(data[begin : begin + 70_000])
    with volume.open("f", "rb") as file:
        assert isinstance(file, io.BufferedReader)
        assert isinstance(file.raw, io.RawIOBase)
        assert file.read(10) == data[:10]
        assert file.seek(-5, os.SEEK_END) == len(data) - 5
        assert file.read() == data[-5:]
        file.seek(1_000_000)
        room = bytearray(1_500_000)
        assert file.readinto(room) == len(room)
        assert room == data[1_000_000:2_500_000]
    with volume.open("f", "r+b") as file:
        file.seek(100)
        file.write(b"changed")
        file.seek(98)
        assert file.read(11) == data[98:100] + b"changed" + data[107:109]
        file.truncate(200)
    assert volume.stat("f").st_size == 200
    with volume.open("f", "ab") as file:
        assert file.tell() == 200
        file.write(b"end")
    assert volume.read_bytes("f") == data[:100] + b"changed" + data[107:200] + b"end"


def test_a_raw_file_reads_and_writes_anywhere(volume):
    with volume.open("f", "w+b", buffering=0) as file:
        assert isinstance(file, weft.RawFile)
        assert file.pwrite(b"0123456789", 5) == 10
        assert file.pread(4, 3) == b"\0\x0001"
        room = bytearray(4)
        assert file.readinto_at(room, 13) == 2
        assert bytes(room) == b"89\0\0"
        assert file.read_ranges([(5, 2), (14, 100), (99, 3)]) == [b"01", b"9", b""]
        assert (file.size(), file.tell()) == (15, 0)
        file.sync()
        assert file.read(6) == b"\0\0\0\0\x000"
        assert file.readall() == b"123456789"
        assert (file.read(1), file.readall()) == (b"", b"")
        with pytest.raises(ValueError):
            file.seek(-1)
        assert file.pread(1 << 40, 14) == b"9"
    with pytest.raises(ValueError):
        file.pread(1, 0)
    with volume.open("f", "rb", buffering=0) as file:
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
        with pytest.raises(ValueError, match="read-only"):
            file.readinto(b"bytes cannot change")
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()


def test_threads_read_at_once(volume):
    data = random.Random(2).randbytes(1 << 20)
    volume.write_bytes("f", data)
    wrong = []

    def read(seed):
        places = random.Random(seed)
        for _ in range(200):
            begin = places.randrange(len(data) - 4096)
            if file.pread(4096, begin) != data[begin : begin + 4096]:
                wrong.append(begin)

    with volume.open("f", "rb", buffering=0) as file:
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_names(volume):
    volume.makedirs("a/b/c")
    volume.makedirs("a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        volume.makedirs("a/b/c")
    volume.write_bytes("a/b/f", b"1")
    volume.rename("a/b/f", "a/g")
    volume.write_bytes("a/h", b"2")
    with pytest.raises(FileExistsError):
        volume.rename("a/g", "a/h", overwrite=False)
    volume.rename("a/g", "a/h")
    assert volume.read_bytes("a/h") == b"1"
    volume.link("a/h", "a/i")
    assert volume.stat("a/i").st_nlink == 2
    volume.symlink("../i", "a/b/link")
    assert volume.readlink("a/b/link") == "../i"
    assert volume.read_bytes("a/b/link") == b"1"
    assert stat.S_ISLNK(volume.lstat("a/b/link").st_mode)
    assert volume.read_bytes("a/b/../i") == b"1"
    assert volume.read_bytes("../../a/./i") == b"1"
    assert list(volume.walk()) == [
        ("", ["a"], []),
        ("a", ["b"], ["h", "i"]),
        ("a/b", ["c"], ["link"]),
        ("a/b/c", [], []),
    ]
    entries = {entry.name: entry for entry in volume.scandir("a/b")}
    assert entries["c"].is_dir() and not entries["c"].is_file()
    assert entries["link"].is_file() and not entries["link"].is_file(follow_symlinks=False)
    assert entries["link"].path == "a/b/link" == os.fspath(entries["link"])
    assert entries["link"].stat().st_size == 1
    volume.write_bytes(b"caf\xe9", b"not UTF-8")
    assert volume.read_bytes(os.fsdecode(b"caf\xe9")) == b"not UTF-8"
    volume.rmtree("a")
    assert volume.listdir() == [os.fsdecode(b"caf\xe9")]


def test_errors_are_those_of_os(volume):
    volume.makedirs("d/e")
    volume.write_bytes("f", b"")
    volume.symlink("loop", "loop")
    volume.symlink("/etc/passwd", "out")
    for raises, number, what in [
        (FileNotFoundError, errno.ENOENT, lambda: volume.open("none")),
        (FileNotFoundError, errno.ENOENT, lambda: volume.unlink("none")),
        (FileExistsError, errno.EEXIST, lambda: volume.open("f", "x")),
        (FileExistsError, errno.EEXIST, lambda: volume.mkdir("d")),
        (FileExistsError, errno.EEXIST, lambda: volume.mkdir("/")),
        (FileExistsError, errno.EEXIST, lambda: volume.write_bytes("f", b"", overwrite=False)),
        (IsADirectoryError, errno.EISDIR, lambda: volume.open("d")),
        (IsADirectoryError, errno.EISDIR, lambda: volume.unlink("d")),
        (IsADirectoryError, errno.EISDIR, lambda: volume.write_bytes("d", b"")),
        (NotADirectoryError, errno.ENOTDIR, lambda: volume.open("f/g", "w")),
        (NotADirectoryError, errno.ENOTDIR, lambda: volume.listdir("f")),
        (NotADirectoryError, errno.ENOTDIR, lambda: volume.rmdir("f")),
        (OSError, errno.ENOTEMPTY, lambda: volume.rmdir("d")),
        (OSError, errno.ENAMETOOLONG, lambda: volume.mkdir("x" * 256)),
        (OSError, errno.ELOOP, lambda: volume.open("loop")),
        (OSError, errno.EXDEV, lambda: volume.open("out")),
        (OSError, errno.ENODATA, lambda: volume.getxattr("f", "user.none")),
        (OSError, errno.EBUSY, lambda: volume.rmdir("/")),
    ]:
        with pytest.raises(raises) as found:
            what()
        assert found.value.errno == number, found.value
    with pytest.raises(FileNotFoundError) as found:
        volume.open("some/none")
    assert found.value.filename == "some/none"
    assert volume.exists("d") and not volume.exists("none") and not volume.exists("f/g")


def test_attributes(volume):
    with volume.open("f", "wb", permissions=0o600) as file:
        file.write(b"12345")
    found = volume.stat("f")
    assert (stat.S_IFMT(found.st_mode), stat.S_IMODE(found.st_mode)) == (stat.S_IFREG, 0o600)
    assert (found.st_size, found.st_uid, found.st_gid) == (5, os.geteuid(), os.getegid())
    volume.chmod("f", 0o640)
    volume.utime("f", ns=(1_500_000_000_123_456_789, -1))
    volume.truncate("f", 3)
    volume.utime("f", ns=(1_500_000_000_123_456_789, -1))
    found = volume.stat("f")
    assert (stat.S_IMODE(found.st_mode), found.st_size) == (0o640, 3)
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_500_000_000_123_456_789, -1)
    assert found.st_mtime == pytest.approx(-1e-9)
    volume.setxattr("f", "user.colour", b"blue")
    volume.setxattr("f", b"user.size", b"large")
    assert volume.listxattr("f") == ["user.colour", "user.size"]
    assert volume.getxattr("f", "user.colour") == b"blue"
    volume.removexattr("f", "user.size")
    assert volume.listxattr("f") == ["user.colour"]
    usage = volume.usage()
    assert usage.files >= 1 and 0 < usage.free <= usage.total


def test_a_file_is_replaced_whole_or_not_at_all(volume):
    volume.write_bytes("f", b"old")
    with volume.open("f", "rb") as old:
        with volume.replace("f") as file:
            file.write(b"new, and longer")
            assert volume.read_bytes("f") == b"old"
        assert volume.read_bytes("f") == b"new, and longer"
        assert old.read() == b"old"
    with pytest.raises(ZeroDivisionError), volume.replace("f", "w") as text:
        text.write("never")
        1 / 0  # noqa: B018
    assert volume.read_bytes("f") == b"new, and longer"
    with pytest.raises(FileExistsError), volume.replace("f", "xb"):
        pass
    with volume.replace("g", "w", encoding="utf-16") as text:
        text.write("text")
    assert volume.read_text("g", "utf-16") == "text"
    assert volume.listdir() == ["f", "g"]


def test_copies_share_what_is_stored(volume):
    data = random.Random(3).randbytes(5_000_000)
    volume.write_bytes("f", data)
    assert volume.copy("f", "g") == len(data)
    with volume.open("f", "r+b") as file:
        file.write(b"changed")
    assert volume.read_bytes("g") == data


def test_a_volume_opened_again_is_the_same(volume, shared_directory):
    volume.write_bytes("f", b"1")
    other = weft.Volume(os.path.relpath(shared_directory))
    copy = pickle.loads(pickle.dumps(volume))
    assert other.read_bytes("f") == copy.read_bytes("f") == b"1"
    with other.open("f", "rb") as file:
        other.close()
        with pytest.raises(ValueError, match="closed"):
            other.listdir()
        # Others have the volume open.
        assert file.read() == b"1"
    copy.close()
    assert volume.listdir() == ["f"]


def test_a_closed_volume_closes_its_files(directory):
    volume = weft.Volume(directory)
    file = volume.open("f", "wb", buffering=0)
    file.write(b"kept")
    volume.close()
    with pytest.raises(ValueError, match="closed"):
        file.write(b"more")
    file.close()
    with weft.Volume(directory, read_only=True) as volume:
        assert volume.read_bytes("f") == b"kept"
        with pytest.raises(OSError) as found:
            volume.write_bytes("f", b"")
        assert found.value.errno == errno.EROFS


def test_a_volume_that_another_process_has_is_busy(volume, shared_directory, python):
    program = "import sys, weft\ntry: weft.Volume(sys.argv[1])\nexcept OSError as why: print(why.errno, why)"
    number, text = python(program, shared_directory).split(" ", 1)
    assert int(number) == errno.EBUSY and "open" in text, text


def test_what_is_not_a_volume_is_refused(tmp_path):
    with pytest.raises(OSError) as found:
        weft.Volume(tmp_path / "none")
    assert found.value.filename == str(tmp_path / "none")
    with pytest.raises(OSError, match="address"):
        weft.Volume("weft://:/")


def test_what_was_written_is_there_after_a_program_that_closes_nothing(directory, python):
    program = "import sys, weft\nweft.Volume(sys.argv[1]).open('f', 'wb', buffering=0).write(b'kept')"
    python(program, directory)
    program = "import sys, weft\nv = weft.Volume(sys.argv[1])\nf = v.open('g', 'wb')\nf.write(b'kept')\nf.close()"
    python(program, directory)
    program = "import sys, weft\nf = weft.Volume(sys.argv[1]).open('h', 'w')\nf.write('kept in a buffer')"
    assert python(program, directory, check=False).stderr == ""
    with weft.Volume(directory) as volume:
        assert (volume.read_bytes("f"), volume.read_bytes("g")) == (b"kept", b"kept")
        assert volume.read_text("h") == "kept in a buffer"
    assert run("cat", f"{directory}:/f") == "kept"


def test_a_replaced_file_survives_a_kill(directory, python):
    program = (
        "import os, signal, sys, weft\nv = weft.Volume(sys.argv[1])\nv.write_bytes('f', b'1' * 100_000)\n"
        "with v.replace('g') as f: f.write(b'2' * 100_000)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    assert python(program, directory, check=False).returncode == -9
    with weft.Volume(directory) as volume:
        assert (volume.read_bytes("f"), volume.read_bytes("g")) == (b"1" * 100_000, b"2" * 100_000)


FORK = """
import os, sys, weft
volume = weft.Volume(sys.argv[1])
volume.write_bytes("f", b"parent")
file = volume.open("f", "rb", buffering=0)
writer = volume.open("g", "wb")
writer.write(b"once")
child = os.fork()
if child == 0:
    for what in (lambda: volume.read_bytes("f"), lambda: file.pread(1, 0), lambda: weft.Volume(sys.argv[1])):
        try:
            what()
        except RuntimeError as why:
            assert "fork" in str(why) and "spawn" in str(why)
        else:
            os._exit(1)
    file.close()
    volume.close()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert volume.read_bytes("f") == b"parent"
"""


def test_a_forked_child_gets_a_clear_error_and_the_parent_goes_on(directory, python):
    python(FORK, directory)
    with weft.Volume(directory) as volume:
        assert (volume.read_bytes("f"), volume.read_bytes("g")) == (b"parent", b"once")


def test_other_threads_run_while_one_waits():
    """A thread that waits for the server of a volume must not stop the interpreter."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        program = (
            "import sys, threading, weft\n"
            "t = threading.Thread(target=lambda: weft.Volume(sys.argv[1]), daemon=True)\n"
            "t.start()\nsys.stdin.readline()\nprint(t.is_alive(), flush=True)\nsys.stdin.readline()"
        )
        command = [sys.executable, "-c", program, f"weft://127.0.0.1:{silent.getsockname()[1]}/v"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        connection, _ = silent.accept()
        # The other thread waits for an answer now.
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "True\n", "the other thread gave up before this one could run"
        process.kill()
        process.wait()
        connection.close()


def test_the_command_line_sees_the_same_files(directory):
    with weft.Volume(directory) as volume:
        volume.makedirs("a/b")
        volume.write_bytes("a/b/f", b"from Python")
    assert run("cat", f"{directory}:/a/b/f") == "from Python"
    done = subprocess.run([WEFT, "ls", f"{directory}:/a"], capture_output=True, text=True)
    assert done.stdout.split() == ["b"]
