"""Erasure codes on blocks in memory: bytes, arrays of numpy and everything else that has a buffer. Nothing is copied.

>>> code = Code("rs:4+2")
>>> data = [b"four", b"data", b"bloc", b"ks.."]
>>> parity = code.encode(data)
>>> stored = [*data, *parity]
>>> stored[1] = stored[2] = None
>>> [bytes(block) for block in code.decode(stored)]
[b'four', b'data', b'bloc', b'ks..']

Blocks of a stripe have equal lengths, a multiple of `Code.unit`. `numpy.reshape` cuts an array into them:

>>> import numpy
>>> array = numpy.arange(1 << 16, dtype="float32").reshape(4, -1)
>>> parity = numpy.empty_like(array[:2])
>>> _ = code.encode(array, out=parity)
>>> blocks = [array[0], None, array[2], array[3], parity[0], None]
>>> lost = code.repair(blocks, lost=[1])
>>> bytes(lost[1]) == array[1].tobytes()
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from . import _weft
from ._weft import Code

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Code", "Family", "decode", "encode", "families", "repair"]


class Family(NamedTuple):
    """A family of codes."""

    name: str
    """The name in specs."""
    example: str
    """A typical spec."""
    title: str
    """What it is, in a few words."""


def families() -> list[Family]:
    """All families of codes.

    >>> next(family for family in families() if family.name == "rs").example
    'rs:4+2'
    """
    return [Family(*family) for family in _weft.families()]


@lru_cache(maxsize=64)
def _code(spec: str) -> Code:
    return Code(spec)


def encode(spec: str, data: Iterable[Buffer], out: Sequence[Buffer] | None = None) -> list[Buffer]:
    """`Code(spec).encode(data, out)`, with the codes of the last specs kept.

    >>> [bytes(block) for block in encode("xor:2+1", [b"ab", b"AB"])]
    [b'  ']
    """
    return _code(spec).encode(data, out)


def repair(
    spec: str,
    blocks: Iterable[Buffer | None],
    lost: Sequence[int] | None = None,
    out: Sequence[Buffer] | None = None,
) -> dict[int, Buffer]:
    """`Code(spec).repair(blocks, lost, out)`.

    >>> repair("xor:2+1", [b"ab", None, b"  "])
    {1: bytearray(b'AB')}
    """
    return _code(spec).repair(blocks, lost, out)


def decode(spec: str, blocks: Iterable[Buffer | None], out: Sequence[Buffer] | None = None) -> list[Buffer]:
    """`Code(spec).decode(blocks, out)`.

    >>> decode("xor:2+1", [b"ab", None, b"  "])
    [b'ab', bytearray(b'AB')]
    """
    return _code(spec).decode(blocks, out)
