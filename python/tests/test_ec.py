"""The codes on buffers."""

import itertools
import pickle
import random

import numpy
import pytest
from weft import ec


def stripe(code, length, seed=0):
    data = [random.Random(seed + block).randbytes(length) for block in range(code.k)]
    coded = code.encode(data)
    return data, [*data, *coded] if code.systematic else coded


@pytest.mark.parametrize("family", ec.families(), ids=lambda family: family.name)
def test_every_family_makes_its_blocks_again(family):
    code = ec.Code(family.example)
    data, stored = stripe(code, code.unit * 3)
    assert len(stored) == code.n
    for lost in itertools.islice(itertools.combinations(range(code.n), min(code.tolerates, 2)), 30):
        blocks = [None if position in lost else block for position, block in enumerate(stored)]
        repaired = code.repair(blocks)
        assert set(repaired) == set(lost)
        assert all(repaired[position] == stored[position] for position in lost)
        assert [bytes(block) for block in code.decode(blocks)] == data


def test_arrays_are_coded_in_place():
    code = ec.Code("rs:4+2", threads=2)
    array = numpy.random.default_rng(1).standard_normal((4, 1 << 16))
    parity = numpy.zeros((2, 1 << 16))
    made = code.encode(array, out=parity)
    assert parity.view("u1").any() and made[0].base is parity
    damaged = array.copy()
    damaged[1] = damaged[3] = 0
    code.repair([damaged[0], None, damaged[2], None, *parity], out=[damaged[1], damaged[3]])
    assert (damaged == array).all()
    decoded = code.decode([None, *array[1:], parity[0], None])
    # What is stored as it is comes back, and is no copy.
    assert decoded[1].base is array
    assert bytes(decoded[0]) == array[0].tobytes()


def test_what_does_not_fit_is_refused():
    code = ec.Code("rs:2+1")
    a, b = bytearray(64), bytearray(64)
    for wrong, why in [
        (lambda: ec.Code("rs:0+1"), "rs:0"),
        (lambda: ec.Code("nothing"), "nothing"),
        (lambda: code.encode([a]), "2 data blocks"),
        (lambda: code.encode([a, bytes(63)]), "length"),
        (lambda: code.encode([a, b], out=[bytes(64)]), "read-only"),
        (lambda: code.encode([a, b], out=[bytearray(63)]), "64 bytes"),
        (lambda: code.encode([a, b], out=[bytearray(64)] * 2), "1 blocks"),
        (lambda: code.encode([a, b], out=[a]), "overlap"),
        (lambda: code.encode([a, b], out=[memoryview(a)[:]]), "overlap"),
        (lambda: code.encode([a, numpy.zeros(128, "u1")[::2]]), "contiguous"),
        (lambda: code.repair([a, None, None]), "2 are needed"),
        (lambda: code.repair([a, b]), "3 blocks"),
        (lambda: code.repair([a, b, None], lost=[0]), "lost"),
        (lambda: code.repair([a, b, None], lost=[2, 2]), "lost"),
        (lambda: code.repair([a, b, None], lost=[3]), "lost"),
        (lambda: code.decode([None, None, a]), "2 are needed"),
        (lambda: code.reads([0], [0, 1]), "twice"),
        (lambda: ec.Code("cauchy-good:2+1").encode([a, b]), "multiples"),
    ]:
        with pytest.raises(ValueError, match=why):
            wrong()
    with pytest.raises(TypeError):
        code.encode([1, 2])


def test_empty_blocks_and_the_rest():
    code = ec.Code("rs:2+1")
    assert code.encode([b"", b""]) == [b""]
    assert (code.k, code.m, code.n, code.tolerates, code.systematic, code.spec) == (2, 1, 3, 1, True, "rs:2+1")
    assert pickle.loads(pickle.dumps(ec.Code("rs:2+1", threads=3))).threads == 3
    assert repr(code) == "Code('rs:2+1')"
    # A local parity needs a part of the stripe only.
    code = ec.Code("lrc:12+2+2")
    assert len(code.reads([0], list(range(1, 16)))) == 6
