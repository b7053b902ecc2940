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

    def synced(self, record):
        os.pwrite(self.file, RECORD[:record], random.randrange(16) * len(RECORD))
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

    def read(self):
        file = os.open(f"{self.directory}/burst", os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(file, 1 << 20):
            pass
        os.close(file)


# What is done, and every how many rounds.
OPERATIONS = {
    "fsync": (1, lambda place, _: place.synced(4 << 10)),
    "fsync_16k": (1, lambda place, _: place.synced(16 << 10)),
    "fsync_32k": (1, lambda place, _: place.synced(32 << 10)),
    "fsync_128k": (2, lambda place, _: place.synced(128 << 10)),
    "create": (1, Place.create),
    "unlink": (1, Place.unlink),
    "write_128k": (10, lambda place, _: place.burst(128 << 10)),
    "write_1m": (10, lambda place, _: place.burst(1 << 20)),
    "read": (10, lambda place, _: place.read()),
}


def main():
    rounds = int(sys.argv[1])
    places = {label: Place(directory) for label, directory in (given.split("=", 1) for given in sys.argv[2:])}
    times = {name: {label: [] for label in places} for name in OPERATIONS}
    for number in range(rounds):
        for name, (every, work) in OPERATIONS.items():
            if number % every:
                continue
            order = random.sample(list(places), len(places))
            for label in order:
                times[name][label].append(timed(lambda: work(places[label], number)))
    first = next(iter(places))
    print(f"{'':12}{'':10}   median us   mean us  speed to {first}: of medians, of means (fastest 98 %)")
    for name, by_label in times.items():
        mean = {label: statistics.mean(sorted(all_)[: max(1, len(all_) * 98 // 100)]) for label, all_ in by_label.items()}
        median = {label: statistics.median(all_) for label, all_ in by_label.items()}
        for label in by_label:
            ratios = median[first] / median[label], mean[first] / mean[label]
            print(f"{name:12}{label:10}{median[label] * 1e6:12.0f}{mean[label] * 1e6:10.0f}  {ratios[0]:.3f} {ratios[1]:.3f}")


main()
