#!/usr/bin/env python3
"""Recovers data without Weft, from any blocks that suffice:

    python3 recover.py FRAGMENT.. > FILE                 a single file from its fragments
    python3 recover.py --volume TARGET.. --to DIRECTORY  the files of a volume from the chunks on its targets

It is docs/codes.md and docs/format.md as code: slow, and it checks no checksum. It reads the points of `crs` from
codes.md, which has to be in the same folder. Of a volume it finds what is in stripes: no files of up to 2 KiB and no
links, but perhaps files that were removed or renamed since.
"""
import glob
import os
import re
import sys

# Fields. GF(256) has the polynomial 0x11D, GF(16) 0x13, GF(32) 0x25.
def times(a, b, w=8):
    product, poly = 0, {4: 0x13, 5: 0x25, 8: 0x11D}[w]
    while b:
        product, b = product ^ (a if b & 1 else 0), b >> 1
        a = a << 1 ^ (poly if a >> w - 1 & 1 else 0)
    return product

def inverse(a, w=8):
    return next(b for b in range(1, 1 << w) if times(a, b, w) == 1)

def power(a, e):
    return 1 if e == 0 else times(a, power(a, e - 1))

def solve(rows, values, unknowns):
    """The unknowns of rows * unknowns = values by Gauss and Jordan; values are byte strings of one length."""
    scale = lambda a, row: [times(a, x) for x in row]
    scaled = lambda a, value: value if a == 1 else value.translate(bytes(times(a, x) for x in range(256)))
    add = lambda a, b: (int.from_bytes(a, "big") ^ int.from_bytes(b, "big")).to_bytes(len(a), "big")
    rows, values = [list(row) for row in rows], list(values)
    for column in range(unknowns):
        pivot = next((r for r in range(column, len(rows)) if rows[r][column]), None)
        if pivot is None:
            sys.exit("too few blocks")
        rows[column], rows[pivot] = rows[pivot], rows[column]
        values[column], values[pivot] = values[pivot], values[column]
        one = inverse(rows[column][column])
        rows[column], values[column] = scale(one, rows[column]), scaled(one, values[column])
        for r in range(len(rows)):
            if r != column and rows[r][column]:
                factor = rows[r][column]
                rows[r] = [x ^ y for x, y in zip(rows[r], scale(factor, rows[column]))]
                values[r] = add(values[r], scaled(factor, values[column]))
    return values[:unknowns]

# Matrices: the rows of the parity blocks (of all blocks for gluster) over the k data blocks.
def evaluation(points, k):
    """Parity rows of the code that evaluates the polynomial through the data at these points."""
    def row(x):                                               # Lagrange
        out = []
        for j in range(k):
            up = down = 1
            for t in range(k):
                if t != j:
                    up, down = times(up, x ^ points[t]), times(down, points[j] ^ points[t])
            out.append(times(up, inverse(down)))
        return out
    return [row(x) for x in points[k:]]

def jerasure(k, m):
    d = [[power(i, c) for c in range(k)] for i in range(k + m)]
    d[0], d[-1] = [1] + [0] * (k - 1), [0] * (k - 1) + [1]
    for i in range(1, k):
        p = next(r for r in range(i, k + m) if d[r][i])
        d[i], d[p] = d[p], d[i]
        s = inverse(d[i][i])
        for row in d:
            row[i] = times(row[i], s)
        for j in range(k):
            t = d[i][j]
            if j != i and t:
                for row in d:
                    row[j] ^= times(t, row[i])
    for j in range(k):
        s = inverse(d[k][j])
        for row in d[k:]:
            row[j] = times(row[j], s)
    return [d[k]] + [[times(x, inverse(row[0])) for x in row] for row in d[k + 1:]]

def lrc(k, l, g):
    group = lambda j: next(i for i in range(l) if i * k // l <= j < (i + 1) * k // l)
    local = [[int(group(j) == i) for j in range(k)] for i in range(l)]
    if l == g == 2 and -(-k // l) <= 15:
        x = [(j - group(j) * k // l + 1) << 4 * group(j) for j in range(k)]
        return local + [x, [times(a, a) for a in x]]
    c = lambda i, j: inverse((k + i) ^ j)
    return local + [[times(c(i, j), inverse(c(0, j))) for j in range(k)] for i in range(1, g + 1)]

def ones(e, w):
    """Ones in the bit matrix of an element."""
    return sum(bin(times(e, 1 << x, w)).count("1") for x in range(w))

def cauchy_good(k, m):
    if m == 2:
        return [[1] * k, sorted(range(1, 256), key=lambda e: (ones(e, 8), e))[:k]]
    a = [[times(inverse(i ^ m + j), m + j) for j in range(k)] for i in range(m)]
    for i in range(1, m):
        best, row = sum(ones(e, 8) for e in a[i]), a[i]
        for divisor in (e for e in row if e != 1):
            tried = [times(e, inverse(divisor)) for e in row]
            if sum(ones(e, 8) for e in tried) < best:
                best, a[i] = sum(ones(e, 8) for e in tried), tried
    return a

def crs(k, m, w, table):
    weight = lambda row: sum(ones(e, w) for e in row)
    if m <= 3:
        key = lambda e: (ones(e, w) + (ones(inverse(e, w), w) if m == 3 else 0), e)
        a = sorted(range(1, 1 << w), key=key)[:k]
        return [[1] * k, a, [inverse(e, w) for e in a]][:m]
    points = [int(c, 32) for c in table[k, m]]
    x, y, rows = points[:m], points[m:], []
    for i in range(m):
        row = [times(inverse(x[i] ^ b, w), x[0] ^ b, w) for b in y]
        tried = [[times(s, e, w) for e in row] for s in range(1, 1 << w)]
        rows.append(min(tried, key=weight) if i else row)     # of equals the first counts
    return rows

def bits(rows, w):
    """The bit matrix of a matrix over GF(2^w)."""
    return [[times(e, 1 << x, w) >> l & 1 for e in row for x in range(w)] for row in rows for l in range(w)]

def array(name, k, prime):
    w = prime if name == "liberation" else prime - 1
    q = [[0] * (k * w) for _ in range(w)]
    for i in range(w):
        for j in range(k):
            if name == "liberation":
                q[i][j * w + (i + j) % w] ^= 1
                if j > 0 and i == j * ((w - 1) // 2) % w:
                    q[i][j * w + (i + j - 1) % w] ^= 1
            for diagonal in [i, prime - 1] if name == "evenodd" else [i] if name == "rdp" else []:
                if (diagonal - j) % prime < w:
                    q[i][j * w + (diagonal - j) % prime] ^= 1
            if name == "rdp" and (i + 1) % prime < w:         # P stands at column prime - 1
                q[i][j * w + (i + 1) % prime] ^= 1
    p = [[int(column % w == i) for column in range(k * w)] for i in range(w)]
    return p + q, w

def generator(spec, table={}):
    """(rows of all stored planes over all data planes, planes w of a block, packet length or None)"""
    head, *parameters = spec.split(",")
    name, numbers = head.split(":")
    k, m, *more = [int(n) for n in numbers.split("+")] + ([0] if name == "none" else [])
    given, w = {key: int(value) for key, value in (p.split("=") for p in parameters)}, 1
    byte = {
        "rs": lambda: [[inverse((k + i) ^ j) for j in range(k)] for i in range(m)],
        "rs-isa-vandermonde": lambda: [[power(power(2, i), j) for j in range(k)] for i in range(m)],
        "rs-vandermonde": lambda: jerasure(k, m),
        "rs-points": lambda: evaluation(range(k + m), k),
        "zfec": lambda: evaluation([0] + [power(2, e) for e in range(k + m - 1)], k),
        "raid6": lambda: [[1] * k, [power(2, j) for j in range(k)]],
        "lrc": lambda: lrc(k, m, *more),
        "xor": lambda: [[1] * k],
        "replica": lambda: [[1]] * m,
        "none": lambda: [],
    }
    if name in byte:
        parity = byte[name]()
    elif name == "crs":
        w = 4 if k + m <= 16 else 5
        parity = bits(crs(k, m, w, table), w)
    elif name == "cauchy-original":
        w, parity = 8, bits([[inverse(i ^ m + j) for j in range(k)] for i in range(m)], 8)
    elif name == "cauchy-good":
        w, parity = 8, bits(cauchy_good(k, m), 8)
    elif name == "gluster":
        rows = [[power(r + 1, k - 1 - j) for j in range(k)] for r in range(k + m)]
        return bits(rows, 8), 8, 64
    else:
        parity, w = array(name, k, given["w" if name == "liberation" else "p"])
    unit = [[int(i == j) for j in range(k * w)] for i in range(k * w)]
    return unit + parity, w, 64 if name == "crs" else given.get("packet")

def planes(block, w, packet):
    """A block's planes: packet y of every region, one behind the other."""
    if packet is None:
        return [block]
    tail = len(block) - len(block) % (w * packet)
    regions = [(at, packet) for at in range(0, tail, w * packet)] + [(tail, (len(block) - tail) // w)]
    return [b"".join(block[at + y * n:at + (y + 1) * n] for at, n in regions) for y in range(w)]

def block_of(planes, w, packet):
    """The block of its planes."""
    if packet is None:
        return planes[0]
    return b"".join(p[at:at + packet] for at in range(0, len(planes[0]), packet) for p in planes)

def decode(spec, blocks, table={}):
    """The k data blocks from {position: block} of enough stored blocks."""
    rows, w, packet = generator(spec, table)
    k = len(rows[0]) // w
    known = [p * w + y for p in sorted(blocks) for y in range(w)]
    values = [plane for p in sorted(blocks) for plane in planes(blocks[p], w, packet)]
    data = solve([rows[r] for r in known], values, k * w)
    return [block_of(data[j * w:(j + 1) * w], w, packet) for j in range(k)]

# Fragments (docs/format.md).
def number(bytes, at, length):
    return int.from_bytes(bytes[at:at + length], "little")

def fragment(path):
    """(spec, k, length of the object, position, blocks of all stripes); nothing is checked."""
    raw = open(path, "rb").read()
    assert raw[:8] == b"\x89WEFT\r\n\x1a", path
    k, unit, length, granule = number(raw, 58, 2), number(raw, 164, 4), number(raw, 176, 8), number(raw, 172, 4)
    at, blocks = 4096, []
    for _ in range(number(raw, 184, 8)):
        size = number(raw, at + 40, 4)
        at += 64 + (8 * -(-size // granule) + 63) // 64 * 64
        blocks.append(raw[at:at + size])
        at += size
    return raw[64:64 + number(raw, 62, 2)].decode(), k, length, number(raw, 56, 2), blocks

# Volumes (docs/format.md).
def records(path):
    """(chunk set, position, spec, k, {(where the record begins, sequence): (data length, manifest length, block)})"""
    raw, out = open(path, "rb").read(), {}
    assert raw[:8] == b"\x89WFTC\r\n\x1a", path
    at = 4096
    while at + 80 <= len(raw):
        size, granules = number(raw, at + 52, 4), number(raw, at + 56, 4)
        if raw[at:at + 8] != b"WEFTSTR\n" or number(raw, at + 40, 4) != at:
            at += 64                                          # a hole
            continue
        multiple = 4096 if size >= 256 << 10 and size % 4096 == 0 else 64
        block = at + -(-(80 + 8 * granules) // multiple) * multiple
        lengths = number(raw, at + 44, 4), number(raw, at + 48, 4)
        out[at, number(raw, at + 32, 8)] = *lengths, raw[block:block + size]
        at = -(-(block + size) // 64) * 64
    spec = raw[64:64 + number(raw, 62, 2)].decode()
    return number(raw, 48, 8), number(raw, 56, 2), spec, number(raw, 58, 2), out

class Postcard:
    def __init__(self, data):
        self.data, self.at = data, 0

    def bytes(self, length):
        self.at += length
        return self.data[self.at - length:self.at]

    def unsigned(self):
        value = shift = 0
        while True:
            byte = self.bytes(1)[0]
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

def pieces(manifest):
    """(number of the file, where in it, length, path and size or None) of what a stripe has, in order"""
    reader = Postcard(manifest)
    for _ in range(reader.unsigned()):
        ino, offset, length, file = reader.unsigned(), reader.unsigned(), reader.unsigned(), None
        if reader.bytes(1)[0]:
            file = reader.bytes(reader.unsigned()), reader.unsigned()
            for _ in range(5):                                # mode, uid, gid, modified
                reader.unsigned()
        yield ino, offset, length, file

def volume(targets, directory):
    sets, stripes = {}, []
    for path in sorted(p for t in targets for p in glob.glob(os.path.join(t, "chunks", "*", "*.chunk"))):
        number, position, spec, k, found = records(path)
        for place, record in found.items():
            sets.setdefault((number, spec, k, *place), {})[position] = record
    for (_, spec, k, _, sequence), found in sets.items():
        if len(found) < k:
            print(f"stripe {sequence}: {len(found)} blocks of {k}", file=sys.stderr)
            continue
        data_length, manifest_length = next(iter(found.values()))[:2]
        table = crs_points() if spec.startswith("crs") else {}
        data = b"".join(decode(spec, {position: record[2] for position, record in found.items()}, table))
        stripes.append((sequence, data[:data_length], data[data_length:data_length + manifest_length]))
    files = {}
    for _, data, manifest in sorted(stripes):                 # newer stripes over older ones
        at = 0
        for ino, offset, length, file in pieces(manifest):
            path, size = files.get(ino, (None, 0)) if file is None else file
            files[ino] = path, size
            name = os.path.join(os.fsencode(directory), path)
            os.makedirs(os.path.dirname(name), exist_ok=True)
            with open(name, "r+b" if os.path.exists(name) else "wb") as out:
                out.truncate(size)
                out.seek(offset)
                out.write(data[at:at + length][:max(0, size - offset)])
            at += length

def crs_points():
    """The Cauchy points of `crs` by (k, m), from the table at the end of codes.md."""
    page = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "codes.md")).read()
    table = page[page.index("## The points of `crs`"):]
    return {(int(k), int(m)): points for k, m, points in re.findall(r"\b(\d+) (\d+) ([0-9a-v]+)\b", table)}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--volume"] and sys.argv[-2:-1] == ["--to"]:
        sys.exit(volume(sys.argv[2:-2], sys.argv[-1]))
    found = [fragment(path) for path in sys.argv[1:]]
    if not found:
        sys.exit(__doc__)
    spec, k, left = found[0][:3]
    table = crs_points() if spec.startswith("crs") else {}
    for stripe in range(len(found[0][4])):
        data = b"".join(decode(spec, {f[3]: f[4][stripe] for f in found}, table))[:left]
        sys.stdout.buffer.write(data)
        left -= len(data)
