"""What processes of multiprocessing do for test_cluster.py. They import it by its name."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor


class Samples:
    """A data set as those of torch: workers get a copy of it and read samples by number."""

    SIZE = 4096

    def __init__(self, volume, path, count):
        self.volume, self.path, self.count = volume, path, count

    @classmethod
    def make(cls, volume, path, count):
        with volume.open(path, "wb") as file:
            for number in range(count):
                file.write(number.to_bytes(4, "big") * (cls.SIZE // 4))
        volume.sync()
        return cls(volume, path, count)

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        with self.volume.open(self.path, "rb", buffering=0) as file:
            sample = file.pread(self.SIZE, number * self.SIZE)
        return int.from_bytes(sample[-4:], "big")


def begin(samples):
    global own
    own = samples


def read(number):
    return own[number]


def read_all(method, samples, workers=3):
    """Reads all samples as a DataLoader does: each worker gets the data set once, and then numbers."""
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(workers, context, begin, (samples,)) as pool:
        return list(pool.map(read, range(len(samples))))


def write_one(volume, path):
    # Neither the file nor the volume is closed: the end of the process does it.
    global kept
    kept = volume.open(path, "wb", buffering=0)
    kept.write(b"from a worker")
