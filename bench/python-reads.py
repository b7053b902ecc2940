#!/usr/bin/env python3
"""Reads of a volume by Python beside those of a mount of it: `python-reads.py PATH/TO/weft DIRECTORY`. It makes a
volume of six targets with a file in DIRECTORY, reads it both ways in turn, and removes all. Mounting needs root or
fusermount3.

Random: 4 KiB at a time, each place once, by 16 threads of Python: `RawFile.pread`, and `os.pread` on the mount.
Sequential: the whole file, 1 MiB at a time into one buffer. The pages of the targets are in memory both ways; those
of the mounted file are not, as it is mounted anew for each turn.
"""

import os
import random
import subprocess
import sys
import tempfile
import threading
import time

import weft

MIB = 1 << 20
THREADS = 16
TURNS = 3


def shared(threads, work):
    """Runs work(number) in threads, and returns the seconds that it took."""
    all_threads = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    begun = time.perf_counter()
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    return time.perf_counter() - begun


def random_reads(pread, places):
    """4 KiB at each place, by all threads; reads a second."""

    def work(number):
        for place in places[number::THREADS]:
            if len(pread(4096, place)) != 4096:
                raise SystemExit("a short read")

    return len(places) / shared(THREADS, work)


def sequential(readinto, size):
    """The whole file; bytes a second."""
    room = memoryview(bytearray(MIB))
    begun = time.perf_counter()
    read = 0
    while count := readinto(room):
        read += count
    if read != size:
        raise SystemExit(f"{read} of {size} bytes")
    return size / (time.perf_counter() - begun)


def main():
    program, place = sys.argv[1], tempfile.mkdtemp(prefix="weft-reads-", dir=sys.argv[2])
    size, count = int(os.environ.get("MIB", 1024)) * MIB, int(os.environ.get("READS", 32_000))
    volume, mountpoint = f"{place}/volume", f"{place}/mnt"
    disks = [f"{place}/disk{number}" for number in range(6)]
    for directory in [*disks, mountpoint]:
        os.mkdir(directory)
    run = lambda *words: subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL)  # noqa: E731
    run("volume", "create", volume, "--code", "rs:4+2", *disks)
    content = random.Random(1)
    with weft.Volume(volume) as opened, opened.open("f", "wb") as file:
        for _ in range(size // MIB):
            file.write(content.randbytes(MIB))
    all_places = random.Random(2).sample(range(0, size, 4096), count)
    rates = {}
    note = lambda what, rate: rates.setdefault(what, []).append(rate)  # noqa: E731
    for _ in range(TURNS):
        with weft.Volume(volume) as opened, opened.open("f", "rb", buffering=0) as file:
            note("random, Python", random_reads(file.pread, all_places))
            begun = time.perf_counter()
            file.read_ranges([(at, 4096) for at in all_places], THREADS)
            note("random, Python, read_ranges", count / (time.perf_counter() - begun))
            note("sequential, Python", sequential(file.readinto, size))
        run("mount", volume, mountpoint)
        with open(f"{mountpoint}/f", "rb", buffering=0) as file:
            note("random, mount", random_reads(lambda length, at: os.pread(file.fileno(), length, at), all_places))
        run("unmount", mountpoint)
        run("mount", volume, mountpoint)
        with open(f"{mountpoint}/f", "rb", buffering=0) as file:
            note("sequential, mount", sequential(file.readinto, size))
        run("unmount", mountpoint)
    for what, found in sorted(rates.items()):
        unit = "reads/s" if what.startswith("random") else "MiB/s"
        shown = sorted(rate if what.startswith("random") else rate / MIB for rate in found)
        print(f"{what:30} {shown[len(shown) // 2]:10.0f} {unit}  ({', '.join(f'{rate:.0f}' for rate in shown)})")
    subprocess.run(["rm", "-rf", place], check=True)


main()
