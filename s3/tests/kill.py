#!/usr/bin/env python3
"""Kills a gateway again and again while clients write: `kill.py PATH/TO/weft [PUTS]`. Each object
that was acknowledged must be there, byte for byte; each other one absent or whole."""

import os
import sys
import tempfile
import threading
import time

from boto import Gateway, noise

THREADS = 8
KILLS = 8
SIZES = [0, 100, 4096, 40_000, 300_000, (2 << 20) + 5]


def content(thread, number):
    size = SIZES[(thread + number) % len(SIZES)]
    head = f"{thread}/{number}/".encode()
    return head + noise(size, number)


class Writer(threading.Thread):
    def __init__(self, gateway, thread, puts):
        super().__init__()
        self.gateway, self.thread, self.puts = gateway, thread, puts
        self.acknowledged, self.tried = {}, {}

    def run(self):
        url, s3 = None, None
        for number in range(self.puts):
            # Half of them replace older ones.
            key = f"{self.thread}/{number // 2}"
            body = content(self.thread, number)
            while True:
                if url != self.gateway.url:
                    url = self.gateway.url
                    s3 = self.gateway.client(connect_timeout=5, read_timeout=60)
                self.tried.setdefault(key, []).append(body)
                try:
                    s3.put_object(Bucket="kill", Key=key, Body=body)
                    self.acknowledged[key] = body
                    self.tried[key] = []
                    break
                except Exception:
                    time.sleep(0.05)


def main():
    puts = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    with tempfile.TemporaryDirectory() as place:
        gateway = Gateway(os.path.abspath(sys.argv[1]), place)
        try:
            gateway.client().create_bucket(Bucket="kill")
            writers = [Writer(gateway, thread, puts // THREADS) for thread in range(THREADS)]
            for writer in writers:
                writer.start()
            kills = 0
            while any(writer.is_alive() for writer in writers):
                done = sum(len(writer.acknowledged) for writer in writers)
                if kills < KILLS and done >= (kills + 1) * puts / 2 / (KILLS + 1):
                    gateway.process.kill()
                    gateway.process.wait()
                    gateway.start()
                    kills += 1
                time.sleep(0.01)
            gateway.process.kill()
            gateway.process.wait()
            gateway.start()
            s3, whole = gateway.client(), 0
            for writer in writers:
                for key, body in writer.acknowledged.items():
                    found = s3.get_object(Bucket="kill", Key=key)["Body"].read()
                    # A put that was not acknowledged may have come later.
                    assert found == body or found in writer.tried[key], f"{key} has other bytes"
                    whole += 1
            keys = [found["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket="kill") for found in page.get("Contents", [])]
            assert len(keys) == len(set(keys)) == whole, (len(keys), whole)
            gateway.end()
            said = gateway.run("volume", "verify", gateway.volume)
            print(f"{puts} puts, {kills + 1} kills, {whole} objects: all are right; {said.strip().splitlines()[-1]}")
        finally:
            gateway.process.kill()


if __name__ == "__main__":
    main()
