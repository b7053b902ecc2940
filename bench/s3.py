#!/usr/bin/env python3
"""A gateway: `s3.py PATH/TO/weft`. Objects of 64 MiB and of 4 KiB are put and got, on a volume of
rs:4+2 on six directories, and the processor time of the gateway for each is shown. With several
programs, an earlier build and a later one, they are measured side by side, in turns, and with
`--etag md5 blake3` each once with either kind of ETags.

Peers in the same turns, which `go install` makes: `--minio PATH` (github.com/minio/minio, EC:2 on
six directories) and `--versitygw PATH` (github.com/versity/versitygw, files of one directory, no
redundancy).

Objects are got twice: weft puts past the page cache, so the first time they come from the disk. In
a virtual machine, memory that is touched for the first time takes long, and the page cache takes
such memory as long as there is some. `--fill FILE` reads a file before all else: one as long as the
memory makes that as on a server that has run for a while.

`--sender PATH` sends the requests with a program instead of with threads of this one, which take
0.1 ms of the processors for each request: `cargo build --release -p bench --example requests` makes
target/release/examples/requests.

`s3.py PATH/TO/weft --list VOLUME` lists the bucket `b` of a volume that is there instead, page by
page; the ignored test `pages_of_a_million_keys` of the crate s3 makes one (`WEFT_S3_KEEP=1`)."""

import argparse
import concurrent.futures
import datetime
import functools
import hashlib
import hmac
import http.client
import itertools
import json
import os
import re
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse

LARGE, SMALL = 64 << 20, 4 << 10
TICKS = os.sysconf("SC_CLK_TCK")


class Client:
    """Requests with Signature Version 4, whose bodies are not signed; a connection for each thread."""

    def __init__(self, address, key, secret):
        self.address, self.key, self.secret = address, key, secret
        self.local = threading.local()

    def sign(self, method, path, query=""):
        """The headers of a request."""
        now = datetime.datetime.now(datetime.timezone.utc)
        date, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        headers = {"host": self.address, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": date}
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        asked = "\n".join([method, path, query, lines, names, "UNSIGNED-PAYLOAD"])
        scope = f"{day}/us-east-1/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(asked.encode()).hexdigest()])
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.new(key, text.encode(), "sha256").hexdigest()
        credential = f"Credential={self.key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**headers, "authorization": f"AWS4-HMAC-SHA256 {credential}"}

    def ask(self, method, path, query=""):
        """Sends a request, and returns what comes back."""
        connection = http.client.HTTPConnection(self.address)
        try:
            connection.request(method, f"{path}?{query}" if query else path, b"", self.sign(method, path, query))
            answer = connection.getresponse()
            read = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {read[:300]}")
        return read

    def prepare(self, method, path, body=b""):
        """A request as bytes: a client that is measured neither signs nor formats."""
        headers = {**self.sign(method, path), "content-length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode(), body

    def send(self, prepared):
        """Sends such a request, and returns the length of the body that comes back."""
        if not hasattr(self.local, "socket"):
            host, port = self.address.split(":")
            self.local.socket = socket.create_connection((host, int(port)))
            self.local.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.local.buffer = bytearray(1 << 20)
        wire, buffer = self.local.socket, self.local.buffer
        head, body = prepared
        try:
            wire.sendall(head + body if len(body) <= SMALL else head)
            if len(body) > SMALL:
                wire.sendall(body)
        except BrokenPipeError:
            # It says why, and takes no more.
            raise SystemExit(f"{self.address} refuses a body: {bytes(wire.recv(1000))}") from None
        read = 0
        while (end := buffer.find(b"\r\n\r\n", 0, read)) < 0:
            more = wire.recv_into(memoryview(buffer)[read:])
            if not more:
                raise SystemExit("the connection was closed")
            read += more
        answer = bytes(buffer[:end])
        length = re.search(rb"(?i)\ncontent-length: *(\d+)", answer)
        if not answer[9:12].startswith(b"2") or not length:
            raise SystemExit(f"{head[:60]}: {answer[:300]}")
        length, rest = int(length[1]), read - end - 4
        while rest < length:
            more = wire.recv_into(buffer)
            if not more:
                raise SystemExit("a body is short")
            rest += more
        if re.search(rb"(?i)\nconnection: *close", answer):
            wire.close()
            del self.local.socket
        return length


class Server:
    def __init__(self, name, process, client):
        self.name, self.process, self.client = name, process, client

    def processor(self):
        """Seconds that it has computed."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def weft(program, place, etag):
    volume = os.path.join(place, "volume")
    targets = [os.path.join(place, f"disk{n}") for n in range(6)]
    for target in targets:
        os.makedirs(target)
    subprocess.run([program, "volume", "create", volume, "--code", "rs:4+2", *targets], check=True, stdout=subprocess.DEVNULL)
    made = subprocess.run([program, "s3", "key", "add", volume, "--json"], check=True, stdout=subprocess.PIPE)
    return begun(program, volume, json.loads(made.stdout), etag)


def begun(program, volume, keys, etag="md5"):
    # Earlier builds do not have the option, and ignore the variable.
    words = {**os.environ, "WEFT_S3_ETAG": etag}
    command = [program, "s3", volume, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=words, stdout=subprocess.PIPE, text=True)
    address = process.stdout.readline().split()[3].rstrip(":")
    return Server(f"{program} {etag}", process, Client(address, keys["access_key"], keys["secret_key"]))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(server):
    """Waits until a peer answers."""
    for _ in range(600):
        try:
            server.client.ask("GET", "/")
            return server
        except (OSError, http.client.HTTPException, SystemExit):
            if server.process.poll() is not None:
                break
            time.sleep(0.1)
    server.process.kill()
    raise SystemExit(f"{server.name} does not answer")


def minio(program, place):
    disks = [os.path.join(place, f"disk{n}") for n in range(6)]
    for disk in disks:
        os.makedirs(disk)
    address, console = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    # Without the last word it refuses directories on the disk of the system.
    words = {"MINIO_ROOT_USER": "bench", "MINIO_ROOT_PASSWORD": "bench-secret", "MINIO_STORAGE_CLASS_STANDARD": "EC:2", "MINIO_CI_CD": "1"}
    command = [program, "server", "--quiet", "--address", address, "--console-address", console, *disks]
    process = subprocess.Popen(command, env={**os.environ, **words}, stdout=subprocess.DEVNULL)
    return answers(Server("minio", process, Client(address, "bench", "bench-secret")))


def versitygw(program, place):
    directory, address = os.path.join(place, "files"), f"127.0.0.1:{free_port()}"
    os.makedirs(directory)
    command = [program, "--access", "bench", "--secret", "bench-secret", "--port", address, "--quiet", "posix", directory]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    return answers(Server("versitygw", process, Client(address, "bench", "bench-secret")))


def by_threads(client, requests, threads, comes):
    """Sends all requests, and returns how long that took."""
    ask = lambda prepared: client.send(prepared) == comes or exit("a body has another length")
    begun_at = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(ask, requests))
    return time.monotonic() - begun_at


def by_program(sender, place):
    """The same, by a program that is lighter than this one."""

    def send(client, requests, threads, comes):
        body, path = requests[0][1], os.path.join(place, "body")
        with open(path, "wb") as file:
            file.write(body)
        heads = b"".join(len(head).to_bytes(4, "little") + head for head, _ in requests)
        command = [sender, client.address, str(threads), str(comes), path]
        return float(subprocess.run(command, check=True, input=heads, stdout=subprocess.PIPE).stdout)

    return send


def measure(server, what, size, requests, send):
    """Rate and processor time of many requests."""
    before = server.processor()
    took = send(server.client, requests)
    computed, moved = server.processor() - before, len(requests) * size
    return {"server": server.name, "what": what, "mib_s": moved / took / 2**20, "a_second": len(requests) / took, "cpu_s_gib": computed / (moved / 2**30)}


def side_by_side(servers, rounds, large, small, send):
    body = {size: os.urandom(size) for size in (LARGE, SMALL)}
    for server in servers:
        server.client.ask("PUT", "/bench")
    found = []
    for number in range(rounds):
        for server in servers:
            client = server.client
            for size, name, count, threads in [(LARGE, "64 MiB", large, 2), (SMALL, "4 KiB", small, 16)]:
                path = f"/bench/{number}-{size}-"
                puts = [client.prepare("PUT", f"{path}{n}", body[size]) for n in range(count)]
                gets = [client.prepare("GET", f"{path}{n}") for n in range(count)]
                for what, requests, comes in [("put", puts, 0), ("get", gets, size), ("get again", gets, size)]:
                    one = measure(server, f"{what} {name}", size, requests, functools.partial(send, threads=threads, comes=comes))
                    found.append({**one, "round": number})
    for what in dict.fromkeys(one["what"] for one in found):
        for server in servers:
            of = [one for one in found if (one["what"], one["server"]) == (what, server.name)]
            middle = {key: statistics.median(one[key] for one in of) for key in ("mib_s", "a_second", "cpu_s_gib")}
            print(f"{what:16} {server.name} {middle['mib_s']:8.1f} MiB/s {middle['a_second']:8.1f} a second {middle['cpu_s_gib']:8.2f} CPU seconds per GiB")


def pages(server, bucket):
    """A listing, page by page, as a client that reads the keys sees it."""
    token, keys, times, begun_at = None, 0, [], time.monotonic()
    while True:
        query = "list-type=2&max-keys=1000"
        if token:
            query = f"continuation-token={urllib.parse.quote(token, safe='')}&{query}"
        at = time.monotonic()
        read = server.client.ask("GET", f"/{bucket}", query).decode()
        times.append(1000 * (time.monotonic() - at))
        keys += read.count("<Key>")
        more = re.search("<NextContinuationToken>(.*?)</NextContinuationToken>", read)
        if not more:
            break
        token = more[1]
    took = time.monotonic() - begun_at
    first, ordered = times[0], sorted(times)
    print(f"{keys} keys in {took:.2f} s; pages: first {first:.1f} ms, median {statistics.median(times):.1f}, 99 % {ordered[len(times) * 99 // 100 - 1]:.1f}, worst {ordered[-1]:.1f}", flush=True)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("weft", nargs="+", help="builds of weft")
    words.add_argument("--etag", nargs="+", default=["md5"], help="what each makes its ETags of: md5, blake3 or both")
    words.add_argument("--minio", metavar="PATH", help="MinIO beside it")
    words.add_argument("--versitygw", metavar="PATH", help="Versity's gateway beside it")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--large", type=int, default=8, help="objects of 64 MiB a round")
    words.add_argument("--small", type=int, default=2000, help="objects of 4 KiB a round")
    words.add_argument("--fill", metavar="FILE", help="read this file first")
    words.add_argument("--sender", metavar="PATH", help="a program that sends the requests")
    words.add_argument("--list", metavar="VOLUME", help="list the bucket b of this volume, three times")
    given = words.parse_args()
    if given.fill:
        with open(given.fill, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
    servers = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as place:
        try:
            if given.list:
                made = subprocess.run([given.weft[0], "s3", "key", "add", given.list, "--json"], check=True, stdout=subprocess.PIPE)
                servers.append(begun(given.weft[0], given.list, json.loads(made.stdout)))
                for _ in range(3):
                    pages(servers[0], "b")
                return
            for number, (program, etag) in enumerate(itertools.product(given.weft, given.etag)):
                servers.append(weft(program, os.path.join(place, str(number)), etag))
            for begin, program in ((minio, given.minio), (versitygw, given.versitygw)):
                if program:
                    servers.append(begin(program, os.path.join(place, begin.__name__)))
            send = by_program(given.sender, place) if given.sender else by_threads
            side_by_side(servers, given.rounds, given.large, given.small, send)
        finally:
            for server in servers:
                server.process.terminate()
                server.process.wait()


if __name__ == "__main__":
    main()
