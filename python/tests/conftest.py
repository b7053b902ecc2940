"""Volumes and a cluster for the tests. The variable WEFT names the program."""

import os
import random
import shutil
import subprocess
import sys
import uuid
from contextlib import contextmanager

import pytest
import weft

WEFT = os.environ.get("WEFT", "weft")

# Most tests wait for what they write to be durable. In memory it is at once.
MEMORY = "/dev/shm"
if os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ["PYTEST_DEBUG_TEMPROOT"] = MEMORY


def run(*words):
    done = subprocess.run([WEFT, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"weft {words}: {done.stderr}"
    return done.stdout


def make_volume(place, code="rs:2+1", targets=3):
    disks = [place / f"disk{number}" for number in range(targets)]
    for disk in disks:
        disk.mkdir(parents=True)
    run("volume", "create", place / "volume", "--code", code, *disks)
    return place / "volume"


@contextmanager
def serving(*words):
    """Runs a server, and gives the addresses that it prints: `store server on ADDRESS: ADDRESS ..`."""
    command = [WEFT, "serve", *map(str, words), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().split()[4:]
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory):
    return make_volume(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def whole_volume(shared_directory):
    with weft.Volume(shared_directory) as volume:
        yield volume


@pytest.fixture
def volume(whole_volume):
    """A volume that is empty again for each test."""
    yield whole_volume
    whole_volume.rmtree("/")


@pytest.fixture
def directory(tmp_path):
    """A volume that is not open here, for tests with other processes."""
    return make_volume(tmp_path)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """The address of a cluster of processes' parts in one process."""
    place = tmp_path_factory.mktemp("cluster") / "try"
    for _ in range(20):
        port = random.randrange(20000, 60000, 10)
        command = [WEFT, "cluster", "dev", str(place), "--stores", "3", "--code", "rs:2+1", "--port", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        if "weft://" in line:
            break
        # Another process has one of the ports.
        process.wait()
    yield line.split()[-1]
    # File systems of fsspec, which keeps them, would wait for the servers at the end.
    weft._files.close_all()
    process.terminate()
    process.wait()


@pytest.fixture
def name():
    return uuid.uuid4().hex


@pytest.fixture
def python():
    """Runs a program in a Python of its own, and returns what it prints."""

    def python(program, *words, check=True):
        command = [sys.executable, "-c", program, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True)
        if check:
            assert done.returncode == 0, done.stderr
        return done.stdout if check else done

    return python
