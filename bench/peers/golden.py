#!/usr/bin/env python3
# Writes ec/tests/golden/<peer>.txt: the parity that each peer gives for one fixed stream of data.
# Run it after `cargo xtask peers`; the files are committed, so that tests need no peer.
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = 0x57454654  # "WEFT"
MASK = (1 << 64) - 1

COMMON = [(2, 1), (4, 1), (4, 2), (4, 3), (8, 2), (8, 3), (8, 4), (16, 3), (16, 4), (5, 3), (6, 2), (10, 4),
          (12, 4), (12, 6)]
WIDE = [(160, 32), (160, 40), (160, 80)]
# RAID-6 codes see few of the shapes above, and cauchy-good has a table of its own for two parities.
PAIRS = [(k, 2) for k in (2, 3, 5, 7, 10, 11, 13, 23)]
LONG_PAIRS = [(k, 2) for k in (100, 200, 253, 254)]
SINGLES = [(k, 1) for k in (3, 7, 10, 16, 31)]


def splitmix64(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        yield z ^ (z >> 31)


def stream(length):
    """The first `length` bytes of the data; block j of a shape is bytes j*LEN to (j+1)*LEN of them."""
    words = splitmix64(SEED)
    return b"".join(next(words).to_bytes(8, "little") for _ in range(-(-length // 8)))[:length]


def random_shapes(count):
    words = splitmix64(1)
    shapes = []
    while len(shapes) < count:
        k, m = 2 + next(words) % 48, 1 + next(words) % 20
        if k + m <= 60 and (k, m) not in COMMON + shapes:
            shapes.append((k, m))
    return shapes


RANDOM = random_shapes(10)


def invertible_vandermonde(k, m):
    """The shapes for which ISA-L's documentation vouches; it encodes others, but they may not decode."""
    return k <= 3 or m <= 3 or (k == 4 and k + m <= 25) or (k == 5 and k + m <= 10) or (k <= 21 and m == 4)


def byte_lines(code, shapes):
    """(code, k, m, packet, len); a byte code treats every position alike, so wide shapes need few."""
    return [(code, k, m, 0, 16 if k + m > 100 and code != "raid6" else 64) for k, m in shapes]


def bit_lines(code, shapes, word=lambda k: 8):
    """One packet row for every shape; some shapes also with two rows of longer packets, to show the layout."""
    lines = [(code, k, m, 8, 8 * word(k)) for k, m in shapes]
    return lines + [(code, k, m, 16, 32 * word(k)) for k, m in shapes if (k, m) in [(4, 2), (10, 4), (5, 2)]]


def liberation_word(k):
    w = max(k, 3)
    while any(w % d == 0 for d in range(2, w)):
        w += 1
    return w


def wanted():
    every = COMMON + RANDOM
    two = [shape for shape in every if shape[1] == 2] + PAIRS
    one = [shape for shape in every if shape[1] == 1] + SINGLES
    bits = every + WIDE
    return {
        "isal": byte_lines("rs", every + WIDE)
        + byte_lines("rs-isa-vandermonde", [s for s in every if invertible_vandermonde(*s)])
        + byte_lines("raid6", two + LONG_PAIRS) + byte_lines("xor", one),
        "jerasure": byte_lines("rs-vandermonde", every + WIDE)
        + bit_lines("cauchy-original", bits) + bit_lines("cauchy-good", bits + PAIRS + LONG_PAIRS)
        + bit_lines("liberation", two, liberation_word)
        + bit_lines("liberation/7", [(4, 2)], lambda k: 7) + bit_lines("liberation/5", [(2, 2)], lambda k: 5)
        + byte_lines("raid6", two + LONG_PAIRS),
        "zfec": byte_lines("zfec", every + WIDE),
        "klauspost": byte_lines("rs-points", every + WIDE) + byte_lines("rs", every + WIDE),
        "reed-solomon-erasure": byte_lines("rs-points", every + WIDE),
    }


class Peer:
    """One running peer; see README.md for the protocol."""

    def __init__(self, name, env=None):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([ROOT / "target/peers" / name], stdin=pipe, stdout=pipe, env=env)

    def ask(self, *words, payload=b""):
        """The words after "ok"; a refusal is an error."""
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n" + payload)
        self.process.stdin.flush()
        verdict, *rest = self.process.stdout.readline().decode().split()
        if verdict != "ok":
            raise ValueError(f"{words}: {' '.join(rest)}")
        return rest

    def blocks(self, *words, payload):
        return self.process.stdout.read(int(self.ask(*words, payload=payload)[0]))

    def quit(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    folder = ROOT / "ec/tests/golden"
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in wanted().items():
        peer = Peer(name)
        version = peer.ask("hello")[1]
        text = [f"# {name} {version}, through bench/peers/golden.py; data: splitmix64 from seed {SEED:#x}. "
                "Columns: CODE K M PACKET LEN HEX_OF_PARITY"]
        for code, k, m, packet, length in dict.fromkeys(lines):
            parity = peer.blocks("encode", code, k, m, length, packet, payload=stream(k * length))
            text.append(f"{code} {k} {m} {packet} {length} {parity.hex()}")
        peer.quit()
        path = folder / f"{name}.txt"
        path.write_text("\n".join(text) + "\n")
        print(f"{path.name}: {len(text) - 1} lines, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
