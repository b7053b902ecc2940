# Peer around zfec, the Python binding of Rizzo's fec; it has one code and one kernel.
# The timed calls are the ones a Python program makes, so the library allocates their output itself.
import mmap
import random
import sys
import time

import zfec

MAX_LEN = 1 << 30


class Refused(Exception):
    pass


def make_stripes(k, length, stripes):
    """Blocks in one page-aligned arena, written once so that no page fault lands inside the clock."""
    pitch = (length + 63) // 64 * 64
    arena = mmap.mmap(-1, pitch * k * stripes)
    source = random.Random(1)
    for at in range(0, len(arena), pitch):
        arena[at:at + pitch] = source.randbytes(pitch)
    view = memoryview(arena)
    blocks = [view[at:at + length] for at in range(0, len(arena), pitch)]
    return [blocks[s * k:(s + 1) * k] for s in range(stripes)]


class Coder:
    def __init__(self, k, m, lost=()):
        self.k, self.lost = k, lost
        self.parity = list(range(k, k + m))
        self.encoder = zfec.Encoder(k, k + m)
        self.decoder = zfec.Decoder(k, k + m)
        # A surviving data block stands at its own number and parity fills the gaps: otherwise the library
        # swaps blocks inside the caller's list (but not their numbers), which spoils the list for a second call.
        spare = (i for i in self.parity if i not in lost)
        self.survivors = [next(spare) if i in lost else i for i in range(k)]
        self.lost_data = [i for i in lost if i < k]
        self.lost_parity = [i for i in lost if i >= k]

    def encode(self, data):
        return self.encoder.encode(data, self.parity)

    def decode(self, blocks):
        """The lost blocks. zfec inverts its matrix in every call; there is no way to keep the inverse."""
        data = self.decoder.decode(blocks, self.survivors) if self.lost_data else blocks
        coded = self.encoder.encode(data, self.lost_parity) if self.lost_parity else []
        return [data[i] for i in self.lost_data] + list(coded)


def encode(words, payload):
    k, m, length = sizes(words)
    data = [payload[i * length:(i + 1) * length] for i in range(k)]
    return b"".join(Coder(k, m).encode(data))


def decode(words, payload):
    k, m, length = sizes(words)
    coder = Coder(k, m, losses(words[6:], k, m))
    blocks = [payload[i * length:(i + 1) * length] for i in range(k + m)]
    for i, block in zip(coder.lost, coder.decode([blocks[i] for i in coder.survivors])):
        blocks[i] = block
    return b"".join(blocks)


def timed(words):
    k, m, length = sizes(words)
    decoding = words[0] == "time-decode"
    count, rounds = number(words[6], 1 << 24), number(words[7], 1 << 30)
    if not count:
        raise Refused("STRIPES must be positive")
    coder = Coder(k, m, losses(words[8:], k, m) if decoding else [])
    stripes = make_stripes(k, length, count)
    work, expected = coder.encode, None
    if decoding:
        if not coder.lost:
            raise Refused("nothing is lost")
        for s, data in enumerate(stripes):
            blocks = data + list(coder.encode(data))
            stripes[s] = [blocks[i] for i in coder.survivors]
            expected = [bytes(blocks[i]) for i in coder.lost]
        work = coder.decode
    work(stripes[0])
    start = time.perf_counter()
    for _ in range(rounds):
        for stripe in stripes:
            work(stripe)
    took = time.perf_counter() - start
    if decoding and [bytes(b) for b in work(stripes[-1])] != expected:
        raise Refused("decoded wrongly")
    return took


def number(word, limit):
    if not word.isdigit() or int(word) > limit:
        raise Refused("malformed request")
    return int(word)


def sizes(words):
    k, m, length = (int(w) for w in words[2:5])
    if words[1] != "zfec":
        raise Refused("unknown code")
    if words[5] != "0":
        raise Refused("a byte code has no packets")
    if not (k and m and length):
        raise Refused("K, M and LEN must be positive")
    if k + m > 256:
        raise Refused("more than 256 blocks")
    return k, m, length


def losses(words, k, m):
    lost = sorted({number(w, 255) for w in words[0].split(",") if w != "-"}) if words else []
    if any(i >= k + m for i in lost):
        raise Refused("a lost position is out of range")
    if len(lost) > m:
        raise Refused("more blocks lost than parity")
    return lost


def answer(words, requests):
    if words[:1] == ["hello"]:
        return b"ok zfec %s codes=zfec kernel=auto\n" % zfec.__version__.encode()
    if not words or words[0] not in ("encode", "decode", "time-encode", "time-decode"):
        raise Refused("unknown request")
    if len(words) < (8 if words[0].startswith("time-") else 6):
        raise Refused("malformed request")
    k, m = number(words[2], 1 << 16), number(words[3], 1 << 16)
    length = number(words[4], MAX_LEN)
    if words[0].startswith("time-"):
        return b"ok %.9f\n" % timed(words)
    # The payload is read before anything is judged, so that a refusal leaves the stream in step.
    payload = memoryview(requests.read((k + m if words[0] == "decode" else k) * length))
    result = (encode if words[0] == "encode" else decode)(words, payload)
    return b"ok %d\n" % len(result) + result


def serve(requests, answers):
    for line in iter(requests.readline, b""):
        if line.strip() == b"quit":
            return
        try:
            reply = answer(line.decode("ascii", "replace").split(), requests)
        except Refused as why:
            reply = f"no {why}\n".encode()
        except (zfec.Error, MemoryError, ValueError, IndexError) as why:
            reply = f"no {' '.join(str(why).split()) or type(why).__name__}\n".encode()
        answers.write(reply)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
