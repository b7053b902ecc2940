"""A client of a cluster, and processes that work on it together."""

import errno
import multiprocessing
import pickle

import pytest
import weft
from conftest import run, serving
from workers import Samples, read_all, write_one


@pytest.fixture
def volume(cluster, name):
    with weft.Volume(cluster) as volume:
        volume.mkdir(name)
        yield volume


def test_workers_read_samples(volume, name):
    """As a DataLoader with several workers does: each gets the data set pickled."""
    samples = Samples.make(volume, f"{name}/samples", 60)
    assert read_all("spawn", samples) == list(range(60))


def test_workers_may_fork_before_a_volume_is_open(cluster, name, python):
    """A data set with a lazy volume also goes to workers that are forked, as DataLoader's are by default."""
    program = f"""
import sys
sys.path.insert(0, {__file__.rpartition("/")[0]!r})
import weft
from workers import Samples, read_all
path = sys.argv[2] + "/samples"
if sys.argv[3] == "make":
    with weft.Volume(sys.argv[1]) as volume:
        volume.mkdir(sys.argv[2])
        Samples.make(volume, path, 40)
else:
    samples = Samples(weft.Volume(sys.argv[1], lazy=True), path, 40)
    assert read_all("fork", samples) == list(range(40))
    assert samples[7] == 7
"""
    python(program, cluster, name, "make")
    python(program, cluster, name, "read")


def test_what_a_worker_wrote_is_there_after_its_end(volume, name):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=write_one, args=(volume, f"{name}/f"))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert volume.read_bytes(f"{name}/f") == b"from a worker"


def test_clients_see_each_other(volume, name, cluster, python):
    volume.write_bytes(f"{name}/f", b"1" * 10)
    program = (
        "import sys, weft\nv = weft.Volume(sys.argv[1])\nf = v.open(sys.argv[2], 'r+b')\n"
        "print(f.read().decode())\nf.write(b'2')\nf.close()"
    )
    assert python(program, cluster, f"{name}/f") == "1" * 10 + "\n"
    assert volume.read_bytes(f"{name}/f") == b"1" * 10 + b"2"


def test_an_unpickled_volume_opens_when_it_is_needed(cluster):
    volume = weft.Volume("weft://:/none", lazy=True)
    copy = pickle.loads(pickle.dumps(volume))
    assert repr(copy) == "weft.Volume('weft://:/none')"
    with pytest.raises(OSError, match="address"):
        copy.listdir()
    with weft.Volume(cluster) as volume:
        assert volume.name == "try"


def test_another_name_is_refused(cluster):
    with pytest.raises(OSError, match="it has the volume try"):
        weft.Volume(cluster.rpartition("/")[0] + "/other")


def test_members_of_a_cluster_show_their_certificate(tmp_path, python):
    pki, disks = tmp_path / "pki", [tmp_path / f"disk{number}" for number in range(3)]
    for disk in disks:
        disk.mkdir()
    servers = ["--member", "meta=127.0.0.1", "--member", "store=127.0.0.1"]
    run("cluster", "init", pki, "--operator", "admin", *servers, "--member", "laptop")
    with serving("store", *disks, "--identity", pki / "store") as targets:
        places = ["--allow-sharing", "--code", "rs:2+1", *targets]
        run("volume", "create", tmp_path / "volume", "--identity", pki / "admin", *places)
        with serving("meta", tmp_path / "volume", "--identity", pki / "meta") as (address,):
            program = (
                "import pickle, sys, weft\ntry: weft.Volume(sys.argv[1])\nexcept OSError: print('refused')\n"
                "v = weft.Volume(sys.argv[1], identity=sys.argv[2] + '/laptop')\nv.write_bytes('f', b'1')\n"
                "v = pickle.loads(pickle.dumps(v))\nprint(v.listdir())\n"
                "try: weft.Volume(sys.argv[1], identity=sys.argv[2] + '/admin')\n"
                "except OSError as why: print(why.errno)"
            )
            assert python(program, address, pki).split() == ["refused", "['f']", str(errno.EINVAL)]
