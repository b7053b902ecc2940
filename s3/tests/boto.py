#!/usr/bin/env python3
"""What boto3 does with a gateway: `boto.py PATH/TO/weft`. It makes a volume and a gateway in a
temporary directory, and removes both. It ends with a line for each test, and the first failure."""

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import zlib

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

MIB = 1 << 20


class Gateway:
    """A volume of four targets and a gateway of it."""

    def __init__(self, weft, place):
        self.weft, self.volume = weft, os.path.join(place, "volume")
        targets = [os.path.join(place, f"disk{n}") for n in range(4)]
        for target in targets:
            os.mkdir(target)
        self.run("volume", "create", self.volume, "--code", "rs:2+1", *targets)
        self.keys = json.loads(self.run("s3", "key", "add", self.volume, "--json"))
        self.start()

    def run(self, *words):
        done = subprocess.run([self.weft, *words], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"weft {' '.join(words)}: {done.stderr}")
        return done.stdout

    def start(self):
        self.begin(self.volume)

    def begin(self, *of):
        command = [self.weft, "s3", *of, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        # s3 server on ADDRESS: what it serves
        self.url = f"http://{line.split()[3].rstrip(':')}"

    def client(self, keys=None, **config):
        keys = keys or self.keys
        settings = {"signature_version": "s3v4", "s3": {"addressing_style": "path"}, "retries": {"max_attempts": 0}, **config}
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=keys["access_key"],
            aws_secret_access_key=keys["secret_key"],
            region_name="us-east-1",
            config=Config(**settings),
        )

    def end(self):
        self.process.terminate()
        assert self.process.wait(60) == 0


def noise(size, seed=1):
    """Bytes that do not repeat."""
    out = bytearray()
    block = hashlib.sha512(str(seed).encode()).digest()
    while len(out) < min(size, MIB):
        block = hashlib.sha512(block).digest()
        out += block
    whole = bytes(out) * (size // max(len(out), 1) + 1)
    return whole[:size]


def refused(code, call, **arguments):
    """Expects an error of this code."""
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, f"{found} instead of {code}: {error}"
    else:
        raise AssertionError(f"no {code}")


def buckets(gateway, s3):
    s3.create_bucket(Bucket="first")
    refused("BucketAlreadyOwnedByYou", s3.create_bucket, Bucket="first")
    refused("InvalidBucketName", s3.create_bucket, Bucket="Not_One")
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["first"]
    s3.head_bucket(Bucket="first")
    refused("404", s3.head_bucket, Bucket="second")
    s3.put_object(Bucket="first", Key="a/b", Body=b"x")
    refused("BucketNotEmpty", s3.delete_bucket, Bucket="first")
    s3.delete_object(Bucket="first", Key="a/b")
    s3.delete_bucket(Bucket="first")
    assert s3.list_buckets()["Buckets"] == []
    refused("NoSuchBucket", s3.put_object, Bucket="first", Key="a", Body=b"x")


def objects(gateway, s3):
    s3.create_bucket(Bucket="data")
    for size in [0, 1, 4096, 100_000, MIB, MIB + 1, 20 * MIB + 3]:
        body = noise(size, size)
        put = s3.put_object(Bucket="data", Key=f"size/{size}", Body=body, ContentType="text/x", Metadata={"n": str(size)})
        assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"', put
        got = s3.get_object(Bucket="data", Key=f"size/{size}")
        assert got["Body"].read() == body, size
        assert (got["ContentType"], got["Metadata"]) == ("text/x", {"n": str(size)})
        head = s3.head_object(Bucket="data", Key=f"size/{size}")
        assert (head["ContentLength"], head["ETag"]) == (size, put["ETag"])
        s3.put_object(Bucket="data", Key=f"size/{size}", Body=body[::-1])
        assert s3.get_object(Bucket="data", Key=f"size/{size}")["Body"].read() == body[::-1]
    refused("NoSuchKey", s3.get_object, Bucket="data", Key="size")
    refused("NoSuchKey", s3.get_object, Bucket="data", Key="none")
    refused("404", s3.head_object, Bucket="data", Key="none")
    s3.delete_object(Bucket="data", Key="none")


def ranges(gateway, s3):
    body = noise(5 * MIB)
    s3.put_object(Bucket="data", Key="range", Body=body)
    for asked, begin, end in [
        ("bytes=0-0", 0, 1),
        ("bytes=100-4000000", 100, 4000001),
        ("bytes=5242879-", 5242879, 5242880),
        ("bytes=-10", 5242870, 5242880),
    ]:
        got = s3.get_object(Bucket="data", Key="range", Range=asked)
        assert got["Body"].read() == body[begin:end], asked
        assert got["ContentRange"] == f"bytes {begin}-{end - 1}/{len(body)}"
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    refused("InvalidRange", s3.get_object, Bucket="data", Key="range", Range="bytes=5242880-")
    s3.put_object(Bucket="data", Key="empty", Body=b"", ContentType="text/x", CacheControl="no-store")
    refused("InvalidRange", s3.get_object, Bucket="data", Key="empty", Range="bytes=-5")
    got = s3.get_object(Bucket="data", Key="empty", ResponseContentType="text/y", ResponseCacheControl="private")
    assert (got["ContentType"], got["CacheControl"]) == ("text/y", "private")


def conditions(gateway, s3):
    tag = s3.put_object(Bucket="data", Key="if", Body=b"1", IfNoneMatch="*")["ETag"]
    refused("PreconditionFailed", s3.put_object, Bucket="data", Key="if", Body=b"2", IfNoneMatch="*")
    refused("PreconditionFailed", s3.put_object, Bucket="data", Key="if", Body=noise(2 * MIB), IfNoneMatch="*")
    refused("PreconditionFailed", s3.put_object, Bucket="data", Key="if", Body=b"2", IfMatch='"other"')
    new = s3.put_object(Bucket="data", Key="if", Body=b"2", IfMatch=tag)["ETag"]
    refused("PreconditionFailed", s3.put_object, Bucket="data", Key="if", Body=b"3", IfMatch=tag)
    refused("NoSuchKey", s3.put_object, Bucket="data", Key="if-none", Body=b"3", IfMatch=tag)
    refused("304", s3.get_object, Bucket="data", Key="if", IfNoneMatch=new)
    refused("PreconditionFailed", s3.get_object, Bucket="data", Key="if", IfMatch=tag)
    assert s3.get_object(Bucket="data", Key="if", IfMatch=new)["Body"].read() == b"2"
    later = s3.head_object(Bucket="data", Key="if")["LastModified"]
    refused("304", s3.get_object, Bucket="data", Key="if", IfModifiedSince=later)


def awkward_keys(gateway, s3):
    s3.create_bucket(Bucket="awkward")
    keys = ["a", "a/b", "a//b", "a/", "a/b/", "./x", "..", "../y", "/lead", ".s3", ".s3=a", "ä ö/ü+%41&=", "e\u0301", "-", "a-b"]
    keys += ["x" * 255, "a.b", "tab\tkey", "new\nline", "emoji \U0001f980", " ", "end.", "a/b/c"]
    for key in keys:
        s3.put_object(Bucket="awkward", Key=key, Body=key.encode())
    for key in keys:
        assert s3.get_object(Bucket="awkward", Key=key)["Body"].read() == key.encode(), key
    listed = [found["Key"] for found in s3.list_objects_v2(Bucket="awkward")["Contents"]]
    assert listed == sorted(keys, key=str.encode), listed
    refused("KeyTooLongError", s3.put_object, Bucket="awkward", Key="x" * 256, Body=b"")
    for key in keys:
        s3.delete_object(Bucket="awkward", Key=key)
    assert "Contents" not in s3.list_objects_v2(Bucket="awkward")
    s3.delete_bucket(Bucket="awkward")


def listing(gateway, s3):
    s3.create_bucket(Bucket="list")
    keys = sorted([f"{a}{sep}{b}" for a in "abc" for sep in ["/", "-", "0"] for b in range(12)] + ["a", "b/x/y/z"])
    for key in keys:
        s3.put_object(Bucket="list", Key=key, Body=b".")
    for size in [1, 2, 7, 1000]:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket="list", PaginationConfig={"PageSize": size})
        assert [found["Key"] for page in pages for found in page.get("Contents", [])] == keys, size
        pages = s3.get_paginator("list_objects").paginate(Bucket="list", PaginationConfig={"PageSize": size})
        assert [found["Key"] for page in pages for found in page.get("Contents", [])] == keys, size
        for prefix in ["", "a", "a/", "b/x", "b-1", "zzz"]:
            for delimiter in ["/", "-", "x/"]:
                contents, prefixes = [], []
                for key in keys:
                    if key.startswith(prefix):
                        at = key.find(delimiter, len(prefix))
                        into, what = (contents, key) if at < 0 else (prefixes, key[: at + len(delimiter)])
                        if what not in into:
                            into.append(what)
                asked = {"Bucket": "list", "Prefix": prefix, "Delimiter": delimiter}
                for name in ["list_objects_v2", "list_objects"]:
                    pages = s3.get_paginator(name).paginate(**asked, PaginationConfig={"PageSize": size})
                    pages = list(pages)
                    got = [found["Key"] for page in pages for found in page.get("Contents", [])]
                    common = [found["Prefix"] for page in pages for found in page.get("CommonPrefixes", [])]
                    assert (got, common) == (contents, prefixes), (name, size, prefix, delimiter, got, common)
    after = s3.list_objects_v2(Bucket="list", StartAfter="b/5")["Contents"]
    assert [found["Key"] for found in after] == [key for key in keys if key > "b/5"]
    tags = {found["Key"]: found["ETag"] for found in after}
    assert tags["c-1"] == s3.head_object(Bucket="list", Key="c-1")["ETag"]
    done = s3.delete_objects(Bucket="list", Delete={"Objects": [{"Key": key} for key in keys + ["none"]]})
    assert len(done["Deleted"]) == len(keys) + 1 and "Errors" not in done
    assert s3.list_objects_v2(Bucket="list")["KeyCount"] == 0
    s3.delete_bucket(Bucket="list")


def many_keys(gateway, s3):
    s3.create_bucket(Bucket="many")
    keys = [f"k{number:05}" for number in range(2500)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket="many", Key=key, Body=key.encode()), keys))
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="many", PaginationConfig={"PageSize": 100})
    seen = []
    for page in pages:
        seen += [found["Key"] for found in page["Contents"]]
        # What goes while a listing is under way is not listed any more.
        if len(seen) == 100:
            s3.delete_object(Bucket="many", Key="k00150")
    assert seen == [key for key in keys if key != "k00150"]


def copies(gateway, s3):
    body = noise(9 * MIB)
    s3.put_object(Bucket="data", Key="from", Body=body, Metadata={"a": "b"}, ContentType="text/y", Tagging="t=u")
    copied = s3.copy_object(Bucket="data", Key="to/copy", CopySource={"Bucket": "data", "Key": "from"})
    got = s3.get_object(Bucket="data", Key="to/copy")
    assert got["Body"].read() == body and got["Metadata"] == {"a": "b"} and got["ContentType"] == "text/y"
    assert copied["CopyObjectResult"]["ETag"] == got["ETag"]
    changed = {"MetadataDirective": "REPLACE", "Metadata": {"c": "d"}, "ContentType": "text/z"}
    s3.copy_object(Bucket="data", Key="from", CopySource="data/from", **changed)
    got = s3.get_object(Bucket="data", Key="from")
    assert got["Body"].read() == body and got["Metadata"] == {"c": "d"} and got["ContentType"] == "text/z"
    refused("InvalidRequest", s3.copy_object, Bucket="data", Key="from", CopySource="data/from")
    s3.put_object(Bucket="data", Key="to?x", Body=b"right")
    s3.put_object(Bucket="data", Key="to", Body=b"wrong")
    s3.copy_object(Bucket="data", Key="asked", CopySource={"Bucket": "data", "Key": "to?x"})
    assert s3.get_object(Bucket="data", Key="asked")["Body"].read() == b"right"
    refused("NoSuchKey", s3.copy_object, Bucket="data", Key="x", CopySource="data/none")
    s3.delete_object(Bucket="data", Key="from")
    assert s3.get_object(Bucket="data", Key="to/copy")["Body"].read() == body


def multipart(gateway, s3):
    parts = [noise(5 * MIB, number) for number in range(3)] + [b"the end"]
    begun = s3.create_multipart_upload(Bucket="data", Key="m/parts", Metadata={"x": "y"})
    asked = {"Bucket": "data", "Key": "m/parts", "UploadId": begun["UploadId"]}
    tags = []
    for number, body in enumerate(parts, 1):
        s3.upload_part(**asked, PartNumber=number, Body=b"replaced later")
        tags.append(s3.upload_part(**asked, PartNumber=number, Body=body)["ETag"])
    listed = s3.list_parts(**asked)["Parts"]
    assert [(part["PartNumber"], part["Size"], part["ETag"]) for part in listed] == [
        (number, len(body), tag) for number, (body, tag) in enumerate(zip(parts, tags), 1)
    ]
    uploads = s3.list_multipart_uploads(Bucket="data")["Uploads"]
    assert [(upload["Key"], upload["UploadId"]) for upload in uploads] == [("m/parts", begun["UploadId"])]
    refused("404", s3.head_object, Bucket="data", Key="m/parts")
    whole = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
    refused("InvalidPartOrder", s3.complete_multipart_upload, **asked, MultipartUpload={"Parts": whole[::-1]})
    wrong = [{"PartNumber": 1, "ETag": '"0"'}]
    refused("InvalidPart", s3.complete_multipart_upload, **asked, MultipartUpload={"Parts": wrong})
    done = s3.complete_multipart_upload(**asked, MultipartUpload={"Parts": whole})
    sums = b"".join(hashlib.md5(body).digest() for body in parts)
    assert done["ETag"] == f'"{hashlib.md5(sums).hexdigest()}-4"', done
    got = s3.get_object(Bucket="data", Key="m/parts")
    assert got["Body"].read() == b"".join(parts) and got["Metadata"] == {"x": "y"} and got["ETag"] == done["ETag"]
    refused("NoSuchUpload", s3.list_parts, **asked)
    begun = s3.create_multipart_upload(Bucket="data", Key="m/aborted")
    asked = {"Bucket": "data", "Key": "m/aborted", "UploadId": begun["UploadId"]}
    s3.upload_part(**asked, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(**asked)
    refused("NoSuchUpload", s3.upload_part, **asked, PartNumber=2, Body=b"x")
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="data")
    begun = s3.create_multipart_upload(Bucket="data", Key="m/copied")
    asked = {"Bucket": "data", "Key": "m/copied", "UploadId": begun["UploadId"]}
    tags = []
    for number, (begin, end) in enumerate([(0, 6 * MIB), (6 * MIB, 15 * MIB)], 1):
        span = f"bytes={begin}-{end - 1}"
        copied = s3.upload_part_copy(**asked, PartNumber=number, CopySource="data/m/parts", CopySourceRange=span)
        tags.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})
    s3.complete_multipart_upload(**asked, MultipartUpload={"Parts": tags})
    assert s3.get_object(Bucket="data", Key="m/copied")["Body"].read() == b"".join(parts[:3])


def checksums_of_parts(gateway, s3):
    parts = [noise(5 * MIB), noise(6 * MIB, 1), b"the end"]
    body = b"".join(parts)
    for algorithm, kind in [
        ("CRC32", "FULL_OBJECT"),
        ("CRC32C", "FULL_OBJECT"),
        ("CRC64NVME", "FULL_OBJECT"),
        ("CRC32", "COMPOSITE"),
        ("SHA256", "COMPOSITE"),
    ]:
        name = f"Checksum{algorithm}"
        key = f"sums/{algorithm}-{kind}"
        one = s3.put_object(Bucket="data", Key=key, Body=body, ChecksumAlgorithm=algorithm)
        assert one["ChecksumType"] == "FULL_OBJECT", one
        begun = s3.create_multipart_upload(Bucket="data", Key=key, ChecksumAlgorithm=algorithm, ChecksumType=kind)
        asked = {"Bucket": "data", "Key": key, "UploadId": begun["UploadId"]}
        listed = []
        for number, part in enumerate(parts, 1):
            put = s3.upload_part(**asked, PartNumber=number, Body=part, ChecksumAlgorithm=algorithm)
            listed.append({"PartNumber": number, "ETag": put["ETag"], name: put[name]})
        there = s3.list_parts(**asked)
        assert [part[name] for part in there["Parts"]] == [part[name] for part in listed]
        assert (there["ChecksumAlgorithm"], there["ChecksumType"]) == (algorithm, kind)
        wrong = [dict(part, **{name: listed[0][name]}) for part in listed]
        refused("InvalidPart", s3.complete_multipart_upload, **asked, MultipartUpload={"Parts": wrong})
        whole = {"MultipartUpload": {"Parts": listed}}
        refused("InvalidRequest", s3.complete_multipart_upload, **asked, **whole, MpuObjectSize=1)
        refused("BadDigest", s3.complete_multipart_upload, **asked, **whole, **{name: listed[0][name]})
        if kind == "FULL_OBJECT":
            sum = one[name]
            whole |= {name: sum, "ChecksumType": kind, "MpuObjectSize": len(body)}
        else:
            sums = b"".join(base64.b64decode(part[name]) for part in listed)
            digest = hashlib.sha256(sums).digest() if algorithm == "SHA256" else zlib.crc32(sums).to_bytes(4, "big")
            sum = base64.b64encode(digest).decode() + "-3"
        done = s3.complete_multipart_upload(**asked, **whole)
        head = s3.head_object(Bucket="data", Key=key, ChecksumMode="ENABLED")
        assert (done[name], done["ChecksumType"]) == (head[name], head["ChecksumType"]) == (sum, kind), (done, head)
        assert s3.get_object(Bucket="data", Key=key, ChecksumMode="ENABLED")["Body"].read() == body
    none = {"ChecksumAlgorithm": "SHA1", "ChecksumType": "FULL_OBJECT"}
    refused("InvalidRequest", s3.create_multipart_upload, Bucket="data", Key="k", **none)


def early_answers(gateway, s3):
    """A body that the client keeps back after an error is not taken from its next request."""
    asked = {"Bucket": "data", "Key": "none", "UploadId": "0"}
    for _ in range(500):
        refused("NoSuchUpload", s3.upload_part, **asked, PartNumber=2, Body=b"x")
        s3.list_multipart_uploads(Bucket="data")


def transfers(gateway, s3):
    with tempfile.NamedTemporaryFile() as file:
        body = noise(30 * MIB, 7)
        file.write(body)
        file.flush()
        s3.upload_file(file.name, "data", "transfer")
    with tempfile.NamedTemporaryFile() as file:
        s3.download_file("data", "transfer", file.name)
        assert open(file.name, "rb").read() == body


def checksums(gateway, s3):
    body = noise(3 * MIB, 9)
    for algorithm in ["CRC32", "CRC32C", "SHA1", "SHA256", "CRC64NVME"]:
        try:
            put = s3.put_object(Bucket="data", Key=algorithm, Body=body, ChecksumAlgorithm=algorithm)
        except Exception as why:
            if "Missing Dependency" in str(why):
                print(f"   skipped {algorithm}: {why}")
                continue
            raise
        head = s3.head_object(Bucket="data", Key=algorithm, ChecksumMode="ENABLED")
        assert head[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"], algorithm
        assert s3.get_object(Bucket="data", Key=algorithm, ChecksumMode="ENABLED")["Body"].read() == body
    refused("BadDigest", s3.put_object, Bucket="data", Key="bad", Body=b"x", ChecksumSHA256="A" * 43 + "=")
    refused("BadDigest", s3.put_object, Bucket="data", Key="bad", Body=b"x", ContentMD5="A" * 22 + "==")
    refused("404", s3.head_object, Bucket="data", Key="bad")


def tags(gateway, s3):
    s3.put_object(Bucket="data", Key="tags", Body=b"x", Tagging="a=1&b=x%20y")
    found = s3.get_object_tagging(Bucket="data", Key="tags")["TagSet"]
    assert found == [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "x y"}]
    s3.put_object_tagging(Bucket="data", Key="tags", Tagging={"TagSet": [{"Key": "c", "Value": "2"}]})
    assert s3.get_object(Bucket="data", Key="tags")["TagCount"] == 1
    s3.delete_object_tagging(Bucket="data", Key="tags")
    assert s3.get_object_tagging(Bucket="data", Key="tags")["TagSet"] == []


def signatures(gateway, s3):
    s3.put_object(Bucket="data", Key="signed key", Body=b"signed")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "signed key"}, ExpiresIn=60)
    assert urllib.request.urlopen(url).read() == b"signed"
    other = url[:-1] + ("1" if url[-1] == "0" else "0")
    for wrong in [other, url.replace("signed", "other"), url.split("?")[0]]:
        try:
            urllib.request.urlopen(wrong)
            raise AssertionError("it was answered")
        except urllib.error.HTTPError as error:
            assert error.code == 403, error
    put = s3.generate_presigned_url("put_object", Params={"Bucket": "data", "Key": "by url"}, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(put, data=b"by url", method="PUT"))
    assert s3.get_object(Bucket="data", Key="by url")["Body"].read() == b"by url"
    # A header that the URL's signer did not sign would make another request of it.
    put = s3.generate_presigned_url("put_object", Params={"Bucket": "data", "Key": "by url"}, ExpiresIn=60)
    copy = urllib.request.Request(put, method="PUT", headers={"x-amz-copy-source": "data/signed%20key"})
    # The older signature, right, with names that are encoded.
    text = "GET\n\n\n9999999999\n/data/by%20url"
    mac = hmac.new(gateway.keys["secret_key"].encode(), text.encode(), "sha1").digest()
    asked = f"AWSAccessKey%49d={gateway.keys['access_key']}&Expires=9999999999"
    old = f"{gateway.url}/data/by%20url?{asked}&Sign%61ture={urllib.parse.quote(base64.b64encode(mac), '')}"
    for wrong, code in [(copy, 403), (old, 400)]:
        try:
            urllib.request.urlopen(wrong)
            raise AssertionError("it was answered")
        except urllib.error.HTTPError as error:
            assert error.code == code, (error, error.read())
    assert s3.get_object(Bucket="data", Key="by url")["Body"].read() == b"by url"
    # A form, whatever the case of its type.
    form = urllib.request.Request(f"{gateway.url}/data", data=b"x", headers={"Content-Type": "Multipart/form-data; boundary=x"})
    try:
        urllib.request.urlopen(form)
        raise AssertionError("it was answered")
    except urllib.error.HTTPError as error:
        assert error.code == 501, error
    other = gateway.client({"access_key": gateway.keys["access_key"], "secret_key": "x" * 40})
    refused("SignatureDoesNotMatch", other.list_buckets)
    other = gateway.client({"access_key": "WEFTNOBODY", "secret_key": "x" * 40})
    refused("InvalidAccessKeyId", other.list_buckets)


def rights(gateway, s3):
    s3.create_bucket(Bucket="private")
    words = ["s3", "key", "add", gateway.volume, "--json", "--read-only", "--bucket", "data"]
    keys = json.loads(gateway.run(*words))
    reader = gateway.client(keys)
    assert reader.get_object(Bucket="data", Key="by url")["Body"].read() == b"by url"
    assert [bucket["Name"] for bucket in reader.list_buckets()["Buckets"]] == ["data"]
    refused("AccessDenied", reader.put_object, Bucket="data", Key="no", Body=b"")
    refused("AccessDenied", reader.list_objects_v2, Bucket="private")
    writer = gateway.client(json.loads(gateway.run("s3", "key", "add", gateway.volume, "--json", "--bucket", "data")))
    writer.put_object(Bucket="data", Key="yes", Body=b"")
    s3.put_object(Bucket="private", Key="secret", Body=b"")
    refused("AccessDenied", writer.copy_object, Bucket="data", Key="no", CopySource="private/secret")
    assert keys["access_key"] in gateway.run("s3", "key", "list", gateway.volume)
    gateway.run("s3", "key", "remove", gateway.volume, keys["access_key"])
    assert keys["access_key"] not in gateway.run("s3", "key", "list", gateway.volume)


def grants(gateway, s3):
    s3.create_bucket(Bucket="parts")
    for key in ["2024/a", "2024/in/a", "2025/a"]:
        s3.put_object(Bucket="parts", Key=key, Body=b"x")
    words = ["--list", "parts/2024/", "--read", "parts/2024/", "--write", "parts/2024/in/"]
    some = gateway.client(json.loads(gateway.run("s3", "key", "add", gateway.volume, "--json", *words)))
    assert some.get_object(Bucket="parts", Key="2024/a")["Body"].read() == b"x"
    assert some.list_objects_v2(Bucket="parts", Prefix="2024/in")["KeyCount"] == 1
    assert [bucket["Name"] for bucket in some.list_buckets()["Buckets"]] == ["parts"]
    some.put_object(Bucket="parts", Key="2024/in/b", Body=b"y")
    some.copy_object(Bucket="parts", Key="2024/in/c", CopySource="parts/2024/a")
    upload = some.create_multipart_upload(Bucket="parts", Key="2024/in/d")["UploadId"]
    some.abort_multipart_upload(Bucket="parts", Key="2024/in/d", UploadId=upload)
    refused("AccessDenied", some.get_object, Bucket="parts", Key="2025/a")
    refused("AccessDenied", some.put_object, Bucket="parts", Key="2024/a", Body=b"")
    refused("AccessDenied", some.list_objects_v2, Bucket="parts")
    refused("AccessDenied", some.copy_object, Bucket="parts", Key="2024/in/c", CopySource="parts/2025/a")
    refused("AccessDenied", some.create_bucket, Bucket="other")
    refused("AccessDenied", some.put_bucket_policy, Bucket="parts", Policy="{}")
    done = some.delete_objects(Bucket="parts", Delete={"Objects": [{"Key": "2024/in/b"}, {"Key": "2024/a"}]})
    assert [found["Key"] for found in done["Deleted"]] == ["2024/in/b"]
    assert [(found["Key"], found["Code"]) for found in done["Errors"]] == [("2024/a", "AccessDenied")]
    assert "writes parts/2024/in/" in gateway.run("s3", "key", "list", gateway.volume)


def asked(url, method="GET", **headers):
    """The status and the headers of a request without a signature."""
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers))
        return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def policies(gateway, s3):
    s3.create_bucket(Bucket="open")
    for key in ["public/a", "a"]:
        s3.put_object(Bucket="open", Key=key, Body=b"x")
    refused("NoSuchBucketPolicy", s3.get_bucket_policy, Bucket="open")
    assert asked(f"{gateway.url}/open/public/a")[0] == 403
    reader = json.loads(gateway.run("s3", "key", "add", gateway.volume, "--json", "--read", "none"))
    statements = [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::open/public/*"},
        {
            "Effect": "Allow",
            "Principal": {"AWS": [reader["access_key"]]},
            "Action": ["s3:ListBucket"],
            "Resource": ["arn:aws:s3:::open"],
            "Condition": {"StringLike": {"s3:prefix": "public/*"}},
        },
        {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": "arn:aws:s3:::open/public/*"},
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    s3.put_bucket_policy(Bucket="open", Policy=policy)
    assert s3.get_bucket_policy(Bucket="open")["Policy"] == policy
    assert s3.get_bucket_policy_status(Bucket="open")["PolicyStatus"]["IsPublic"]
    assert urllib.request.urlopen(f"{gateway.url}/open/public/a").read() == b"x"
    assert asked(f"{gateway.url}/open/a")[0] == 403
    assert asked(f"{gateway.url}/open?list-type=2")[0] == 403
    assert asked(f"{gateway.url}/")[0] == 403
    assert asked(f"{gateway.url}/open/public/a", "PUT")[0] == 403
    reader = gateway.client(reader)
    assert reader.list_objects_v2(Bucket="open", Prefix="public/")["KeyCount"] == 1
    refused("AccessDenied", reader.list_objects_v2, Bucket="open")
    refused("AccessDenied", s3.delete_object, Bucket="open", Key="public/a")
    statements[0]["Condition"] = {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    refused("MalformedPolicy", s3.put_bucket_policy, Bucket="open", Policy=policy)
    s3.delete_bucket_policy(Bucket="open")
    assert asked(f"{gateway.url}/open/public/a")[0] == 403
    s3.delete_object(Bucket="open", Key="public/a")


def pages_of_other_sites(gateway, s3):
    s3.create_bucket(Bucket="web")
    refused("NoSuchCORSConfiguration", s3.get_bucket_cors, Bucket="web")
    rule = {"AllowedOrigins": ["https://*.example"], "AllowedMethods": ["PUT", "GET"], "AllowedHeaders": ["*"], "MaxAgeSeconds": 60, "ExposeHeaders": ["ETag"]}
    s3.put_bucket_cors(Bucket="web", CORSConfiguration={"CORSRules": [rule]})
    assert s3.get_bucket_cors(Bucket="web")["CORSRules"] == [rule]
    wanted = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "content-type"}
    status, headers = asked(f"{gateway.url}/web/a", "OPTIONS", **wanted)
    assert (status, headers["Access-Control-Allow-Origin"], headers["Access-Control-Max-Age"]) == (200, "https://a.example", "60")
    assert asked(f"{gateway.url}/web/a", "OPTIONS", **{**wanted, "Origin": "https://other"})[0] == 403
    s3.put_object(Bucket="web", Key="a", Body=b"x")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "web", "Key": "a"}, ExpiresIn=60)
    status, headers = asked(url, Origin="https://a.example")
    assert (status, headers["Access-Control-Expose-Headers"]) == (200, "ETag")
    assert "Access-Control-Allow-Origin" not in asked(url, Origin="https://other")[1]
    s3.delete_bucket_cors(Bucket="web")
    assert asked(f"{gateway.url}/web/a", "OPTIONS", **wanted)[0] == 403


def lifecycles(gateway, s3):
    s3.create_bucket(Bucket="ends")
    refused("NoSuchLifecycleConfiguration", s3.get_bucket_lifecycle_configuration, Bucket="ends")
    rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 30}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}}
    s3.put_bucket_lifecycle_configuration(Bucket="ends", LifecycleConfiguration={"Rules": [rule]})
    assert s3.get_bucket_lifecycle_configuration(Bucket="ends")["Rules"] == [rule]
    tagged = {**rule, "Filter": {"Tag": {"Key": "a", "Value": "b"}}}
    refused("NotImplemented", s3.put_bucket_lifecycle_configuration, Bucket="ends", LifecycleConfiguration={"Rules": [tagged]})
    s3.delete_bucket_lifecycle(Bucket="ends")
    refused("NoSuchLifecycleConfiguration", s3.get_bucket_lifecycle_configuration, Bucket="ends")


def refusals(gateway, s3):
    refused("NotImplemented", s3.put_object, Bucket="data", Key="x", Body=b"", ServerSideEncryption="AES256")
    versioning = {"Status": "Enabled"}
    refused("NotImplemented", s3.put_bucket_versioning, Bucket="data", VersioningConfiguration=versioning)
    refused("NotImplemented", s3.get_object_lock_configuration, Bucket="data")
    refused("NotImplemented", s3.create_bucket, Bucket="locked", ObjectLockEnabledForBucket=True)
    refused("NotImplemented", s3.list_object_versions, Bucket="data")
    refused("InvalidStorageClass", s3.put_object, Bucket="data", Key="x", Body=b"", StorageClass="GLACIER")
    assert "Status" not in s3.get_bucket_versioning(Bucket="data")


def restart(gateway, s3):
    body = noise(2 * MIB, 11)
    s3.put_object(Bucket="data", Key="stays", Body=body)
    gateway.end()
    gateway.start()
    s3 = gateway.client()
    assert s3.get_object(Bucket="data", Key="stays")["Body"].read() == body


def outside(gateway, s3):
    """Files that came without the gateway."""
    gateway.end()
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"from outside")
        file.flush()
        gateway.run("mkdir", "-p", f"{gateway.volume}:/data/outside/empty")
        gateway.run("cp", file.name, f"{gateway.volume}:/data/outside/file")
    gateway.start()
    s3 = gateway.client()
    got = s3.get_object(Bucket="data", Key="outside/file")
    assert got["Body"].read() == b"from outside" and "-" in got["ETag"]
    listed = s3.list_objects_v2(Bucket="data", Prefix="outside/", Delimiter="/")
    assert [(found["Key"], found["ETag"]) for found in listed["Contents"]] == [("outside/file", got["ETag"])]
    s3.put_object(Bucket="data", Key="outside/file", Body=b"new")
    gateway.end()
    assert gateway.run("cat", f"{gateway.volume}:/data/outside/file") == "new"
    gateway.start()


TESTS = [buckets, objects, ranges, conditions, awkward_keys, listing, many_keys, copies, multipart, checksums_of_parts, early_answers, transfers]
TESTS += [checksums, tags, signatures, rights, grants, policies, pages_of_other_sites, lifecycles, refusals, restart, outside]


def main():
    wanted = sys.argv[2:]
    with tempfile.TemporaryDirectory() as place:
        gateway = Gateway(os.path.abspath(sys.argv[1]), place)
        try:
            for test in TESTS:
                if not wanted or test.__name__ in wanted or test is objects:
                    test(gateway, gateway.client())
                    print(f"{test.__name__}: right", flush=True)
            gateway.end()
        finally:
            gateway.process.kill()


if __name__ == "__main__":
    main()
