"""An S3 server on 127.0.0.1 with one bucket, "archive", for the tests of object stores: `python s3.py [FAIL]`.

The key "reader" may not write, "stranger" is no key, and without a key nothing may be read; nobody may read objects
whose names have "secret". The bucket goes away, and comes back, by a POST to /gone and /back, and with the object that
a POST to /gone-after/NAME names. /counted has the number of requests, and the bytes of the answers; /log each request.

It says its port, and refuses one request in FAIL as a busy server does. Objects are read and listed here: moto alone
takes milliseconds for each request, and reads a whole object for each part of it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import parse_qs, quote
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape


@contextmanager
def served(fail: int = 0) -> Iterator[dict[str, str]]:
    """A server, which ends with the block; the variables of the environment that lead to it."""
    words = [sys.executable, __file__, str(fail)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            address = f"http://127.0.0.1:{int(process.stdout.readline())}"
            keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
            yield {"AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", **keys}
        finally:
            process.kill()


class Bucket:
    """The bucket "archive" as the tests fill it, and what it was asked.

    Args:
        address: Of the server.
    """

    def __init__(self, address: str) -> None:
        from pyarrow import fs

        self.address, self._seen = address, 0
        server = address.removeprefix("http://")
        self._system = fs.S3FileSystem(
            access_key="key", secret_key="secret", region="us-east-1", endpoint_override=server, scheme="http"
        )

    def put(self, name: str, content: bytes) -> str:
        with self._system.open_output_stream(f"archive/{name}") as file:
            file.write(content)
        return f"s3://archive/{name}"

    def delete(self, name: str) -> None:
        self._system.delete_file(f"archive/{name}")

    def post(self, path: str) -> None:
        urlopen(Request(f"{self.address}/{path}", method="POST")).close()

    def asked(self) -> list[str]:
        """The requests since this was last called, sorted; a listing is "LIST"."""
        with urlopen(f"{self.address}/log") as answer:
            every = json.load(answer)
        new, self._seen = every[self._seen :], len(every)
        return sorted("LIST" if "list-type" in line else line.replace(" /archive/", " ") for line in new)


def path_of(environ: dict[str, Any]) -> str:
    """The path of a request; WSGI has bytes as text."""
    return str(environ["PATH_INFO"]).encode("latin-1").decode()


def listed(objects: Any, asked: dict[str, str]) -> bytes:
    """The answer to ListObjectsV2."""
    prefix, sign, most = asked.get("prefix", ""), asked.get("delimiter", ""), int(asked.get("max-keys", 1000))
    after = asked.get("continuation-token") or asked.get("start-after", "")
    entries = dict[str, Any]()
    for name in sorted(name for name in list(objects) if name.startswith(prefix)):
        folder, found, _ = name[len(prefix) :].partition(sign) if sign else ("", "", "")
        entries[f"{prefix}{folder}{sign}" if found else name] = None if found else objects[name]
    left = [name for name in entries if name > after]
    parts, encode = [], quote if asked.get("encoding-type") == "url" else escape
    for name in left[:most]:
        stored = entries[name]
        if stored is None:
            parts.append(f"<CommonPrefixes><Prefix>{encode(name)}</Prefix></CommonPrefixes>")
        else:
            about = f"<Key>{encode(name)}</Key><LastModified>{stored.last_modified_ISO8601}</LastModified>"
            about += (
                f"<ETag>{escape(stored.etag)}</ETag><Size>{stored.size}</Size><StorageClass>STANDARD</StorageClass>"
            )
            parts.append(f"<Contents>{about}</Contents>")
    rest = f"<NextContinuationToken>{escape(left[most - 1])}</NextContinuationToken>" if len(left) > most else ""
    answer = (
        f"<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{rest}<KeyCount>{len(parts)}</KeyCount>{''.join(parts)}"
    )
    return f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{answer}</ListBucketResult>'.encode()


def main(fail: int) -> None:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server
    from werkzeug.test import Client

    application = DomainDispatcherApplication(create_backend_app)
    assert Client(application).put("/archive", base_url="http://127.0.0.1").status_code == 200
    numbers, told, log = count(1), [0, 0], list[str]()
    objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets["archive"].keys
    gone, last = list[str](), list[str]()

    def counted(environ: dict[str, Any], start: Any) -> Any:
        if environ["PATH_INFO"] == "/counted":
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(told).encode()]
        if environ["PATH_INFO"] == "/log":
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(log).encode()]
        log.append(f"{environ['REQUEST_METHOD']} {path_of(environ)}?{environ['QUERY_STRING']}".rstrip("?"))
        answer = list(answered(environ, start))
        told[0] += 1
        told[1] += sum(map(len, answer))
        return answer

    def answered(environ: dict[str, Any], start: Any) -> Any:
        if fail and next(numbers) % fail == 0:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"]
        method, refusal = environ["REQUEST_METHOD"], b""
        if environ["PATH_INFO"] in ("/gone", "/back"):
            gone[:] = [environ["PATH_INFO"]] * (environ["PATH_INFO"] == "/gone")
            start("200 OK", [("Content-Length", "0")])
            return [b""]
        signed = environ.get("HTTP_AUTHORIZATION", "")
        if environ["PATH_INFO"].startswith("/gone-after/"):
            last[:] = [environ["PATH_INFO"].removeprefix("/gone-after/")]
            start("200 OK", [("Content-Length", "0")])
            return [b""]
        if last and method == "GET" and environ["PATH_INFO"].endswith(last[0]):
            gone[:], last[:] = ["/gone"], []
        if gone:
            status, refusal = "404 Not Found", b"<Error><Code>NoSuchBucket</Code><Message>No bucket</Message></Error>"
        elif "=stranger/" in signed:
            status = "403 Forbidden"
            refusal = b"<Error><Code>InvalidAccessKeyId</Code><Message>There is no such key</Message></Error>"
        elif (
            not signed
            or (method in ("GET", "HEAD") and "secret" in environ["PATH_INFO"])
            or (method in ("PUT", "POST", "DELETE") and "=reader/" in signed)
        ):
            status, refusal = "403 Forbidden", b"<Error><Code>AccessDenied</Code><Message>Denied</Message></Error>"
        if refusal:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start(status, [("Content-Type", "application/xml")])
            return [refusal if method != "HEAD" else b""]
        asked = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
        conditions = [name for name in environ if name.startswith("HTTP_IF_")]
        if method == "GET" and environ["PATH_INFO"] in ("/archive", "/archive/") and "list-type" in asked:
            start("200 OK", [("Content-Type", "application/xml")])
            return [listed(objects, {name: values[0] for name, values in asked.items()})]
        if method not in ("GET", "HEAD") or asked or conditions:
            return application(environ, start)
        stored = objects.get(path_of(environ).removeprefix("/archive/"))
        if stored is None:
            start("404 Not Found", [("Content-Type", "application/xml")])
            return (
                [b"<Error><Code>NoSuchKey</Code><Message>No such key</Message></Error>"] if method == "GET" else [b""]
            )
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", environ.get("HTTP_RANGE", ""))
        if (environ.get("HTTP_RANGE") and part is None) or (part is not None and int(part[1]) >= stored.size):
            return application(environ, start)
        first, after = (0, stored.size) if part is None else (int(part[1]), min(int(part[2]) + 1, stored.size))
        with stored.lock:
            stored._value_buffer.seek(first)
            content = stored._value_buffer.read(after - first) if method == "GET" else b""
            of = {name: stored.response_dict[name] for name in ("ETag", "last-modified")}
        headers = {**of, "Content-Length": str(after - first), "Accept-Ranges": "bytes"}
        if part is not None:
            headers["Content-Range"] = f"bytes {first}-{after - 1}/{stored.size}"
        start("200 OK" if part is None else "206 Partial Content", list(headers.items()))
        return [content]

    server = make_server("127.0.0.1", 0, counted, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
