#!/usr/bin/env python3
"""Compares mounts operation by operation: python3 bench/alternate.py ROUNDS LABEL=DIR LABEL=DIR ..

Each round does each operation once in each directory, in random order, so that what else the
machine does meets all of them alike. The first directory is what the others are compared with. Give
two mounts of one build to see how much the figures say: two equal clusters differ by some percent.

For two builds: six stores, a metadata server and a mount of each, as bench/cluster.sh starts them.
"""
import os, random, statistics, sys, time

RECORD = os.urandom(1 << 20)
BURST = 16 << 20


def timed(work):
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class Place:
    def __init__(self, directory):
        self.directory = directory
        os.makedirs(directory, exist_ok=True)
        self.file = os.open(f"{directory}/synced", os.O_RDWR | os.O_CREAT)

    def fsync(self, _):
        os.pwrite(self.file, RECORD[:4096], random.randrange(4096) * 4096)
        os.fsync(self.file)

    def create(self, number):
        with open(f"{self.directory}/{number}", "wb") as new:
            new.write(RECORD[:4096])

    def unlink(self, number):
        os.unlink(f"{self.directory}/{number}")

    def burst(self, record):
        file = os.open(f"{self.directory}/burst", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for _ in range(BURST // record):
            os.write(file, RECORD[:record])
        os.fsync(file)
        os.close(file)

    def write_128k(self, _):
        self.burst(128 << 10)

    def write_1m(self, _):
        self.burst(1 << 20)

    def read(self, _):
        file = os.open(f"{self.directory}/burst", os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(file, 1 << 20):
            pass
        os.close(file)


# What is done, and every how many rounds.
OPERATIONS = [("fsync", 1), ("create", 1), ("unlink", 1), ("write_128k", 10), ("write_1m", 10), ("read", 10)]


def main():
    rounds = int(sys.argv[1])
    places = {label: Place(directory) for label, directory in (given.split("=", 1) for given in sys.argv[2:])}
    times = {name: {label: [] for label in places} for name, _ in OPERATIONS}
    for number in range(rounds):
        for name, every in OPERATIONS:
            if number % every:
                continue
            order = random.sample(list(places), len(places))
            for label in order:
                times[name][label].append(timed(lambda: getattr(places[label], name)(number)))
    first = next(iter(places))
    print(f"{'':12}{'':10}   median us   mean us  speed to {first}: of medians, of means (fastest 98 %)")
    for name, by_label in times.items():
        mean = {label: statistics.mean(sorted(all_)[: max(1, len(all_) * 98 // 100)]) for label, all_ in by_label.items()}
        median = {label: statistics.median(all_) for label, all_ in by_label.items()}
        for label in by_label:
            ratios = median[first] / median[label], mean[first] / mean[label]
            print(f"{name:12}{label:10}{median[label] * 1e6:12.0f}{mean[label] * 1e6:10.0f}  {ratios[0]:.3f} {ratios[1]:.3f}")


main()
