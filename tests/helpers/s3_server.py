"""An S3 server on 127.0.0.1 with one bucket, "archive", for the tests of object stores: `python s3.py [FAIL]`.

The key "reader" may not write, "stranger" is no key, and without a key nothing may be read; nobody may read objects
whose names have "secret". The bucket goes away, and comes back, by a POST to /gone and /back, and with the object that
a POST to /gone-after/NAME names. /counted has the number of requests, and the bytes of the answers; /log each request.

It says its port, and refuses one request in FAIL as a busy server does. Parts of objects are read as such: moto alone
reads the whole object for each, which with one of 400 MB takes longer than a request may.
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
from urllib.request import Request, urlopen


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
        path = environ["PATH_INFO"].encode("latin-1").decode()  # WSGI has bytes as text.
        log.append(f"{environ['REQUEST_METHOD']} {path}?{environ['QUERY_STRING']}".rstrip("?"))
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
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", environ.get("HTTP_RANGE", ""))
        stored = objects.get(environ["PATH_INFO"].removeprefix("/archive/"))
        if method != "GET" or part is None or stored is None or int(part[1]) >= stored.size:
            return application(environ, start)
        first, after = int(part[1]), min(int(part[2]) + 1, stored.size)
        with stored.lock:
            stored._value_buffer.seek(first)
            content = stored._value_buffer.read(after - first)
            of = {name: stored.response_dict[name] for name in ("ETag", "last-modified")}
        headers = {
            **of,
            "Content-Length": str(len(content)),
            "Content-Range": f"bytes {first}-{after - 1}/{stored.size}",
        }
        start("206 Partial Content", list(headers.items()))
        return [content]

    server = make_server("127.0.0.1", 0, counted, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
