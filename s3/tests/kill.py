#!/usr/bin/env python3
"""Kills a gateway again and again while clients write, and then the metadata server of a cluster's
gateway: `kill.py PATH/TO/weft [PUTS]`. Each object that was acknowledged must be there, byte for
byte; each other one absent or whole."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

from boto import Gateway, noise

THREADS = 8
KILLS = 8
META_KILLS = 3
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


class Cluster(Gateway):
    """Stores, a metadata server and a gateway, each a process of its own."""

    def __init__(self, weft, place):
        self.weft, self.volume = weft, os.path.join(place, "volume")
        targets = [os.path.join(place, f"disk{n}") for n in range(4)]
        for target in targets:
            os.mkdir(target)
        store, self.meta_address = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.others = [self.serve("store", *targets, "--listen", store)]
        names = [f"store://{store}/disk{n}" for n in range(4)]
        self.run("volume", "create", self.volume, "--code", "rs:2+1", "--allow-sharing", *names)
        self.start_meta()
        self.address = f"weft://{self.meta_address}/{os.path.basename(self.volume)}"
        self.key_file = os.path.join(place, "s3.key")
        self.keys = json.loads(self.run("s3", "key", "add", self.address, "--key-file", self.key_file, "--json"))
        self.start()

    def serve(self, *words):
        process = subprocess.Popen([self.weft, "serve", *words], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline(), f"weft serve {words[0]} did not begin"
        return process

    def start_meta(self):
        self.meta = self.serve("meta", self.volume, "--listen", self.meta_address)

    def start(self):
        self.begin(self.address, "--key-file", self.key_file)

    def kill_one(self):
        self.meta.kill()
        self.meta.wait()
        self.start_meta()

    def verify(self):
        return self.run("volume", "verify", self.address)

    def stop_all(self):
        for process in [self.process, self.meta, *self.others]:
            process.kill()


class Alone(Gateway):
    """A gateway of a volume in a directory."""

    def kill_one(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def verify(self):
        self.end()
        return self.run("volume", "verify", self.volume)

    def stop_all(self):
        self.process.kill()


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def killed(kind, weft, puts, kills):
    with tempfile.TemporaryDirectory() as place:
        gateway = kind(weft, place)
        try:
            gateway.client().create_bucket(Bucket="kill")
            writers = [Writer(gateway, thread, puts // THREADS) for thread in range(THREADS)]
            for writer in writers:
                writer.start()
            done = 0
            while any(writer.is_alive() for writer in writers):
                acknowledged = sum(len(writer.acknowledged) for writer in writers)
                if done < kills and acknowledged >= (done + 1) * puts / 2 / (kills + 1):
                    gateway.kill_one()
                    done += 1
                time.sleep(0.01)
            gateway.kill_one()
            s3, whole = gateway.client(), 0
            for writer in writers:
                for key, body in writer.acknowledged.items():
                    found = s3.get_object(Bucket="kill", Key=key)["Body"].read()
                    # A put that was not acknowledged may have come later.
                    assert found == body or found in writer.tried[key], f"{key} has other bytes"
                    whole += 1
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket="kill")
            keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
            assert len(keys) == len(set(keys)) == whole, (len(keys), whole)
            said = gateway.verify().strip().splitlines()[-1]
            print(f"{kind.__name__}: {puts} puts, {done + 1} kills, {whole} objects: all are right; {said}", flush=True)
        finally:
            gateway.stop_all()


def main():
    weft, puts = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    killed(Alone, weft, puts, KILLS)
    # A metadata server that begins again waits for its clients, so fewer do.
    killed(Cluster, weft, puts // 2, META_KILLS)


if __name__ == "__main__":
    main()
