"""What is thrown at a server that stands in the open: each is answered by a clear 4xx, and nothing is given away."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import re
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import served_index
from gloo import free_port
from PIL import Image

from benchmarks import attacks
from subtext.server import connection, schemas, security
from subtext.server.decoding import require_image
from subtext.server.refusal import Refusal

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
IMAGE = {"Content-Type": "image/png"}
linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere this machine has one address, 127.0.0.1")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return served_index.made(tmp_path_factory.mktemp("attacked"), "library")[0]


@pytest.fixture(scope="module")
def client(index: Path):
    with served_index.client(index, limits={"body": 2**20, "pixels": 4_000_000}) as found:
        yield found


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few kilobytes that says to be huge, and is."""
    row = zlib.compress(bytes(1 + width // 8) * 64, 9)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", row) + chunk(b"IEND", b"")


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("run.sh", "echo")
    return buffer.getvalue()


PICTURES = {
    "svg with script": (SVG, 415),
    "html": (b"<html><script>alert(1)</script></html>", 415),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) run\n", 415),
    "nothing but bytes": (bytes(range(256)) * 8, 415),
    "decompression bomb": (bomb(60_000, 60_000), 413),
    "bomb below Pillow's limit": (bomb(9_000, 9_000), 413),
    "picture and page": (served_index.picture() + b"<SCRIPT>alert(1)</script>", 415),
    "picture and archive": (served_index.picture() + archive(), 415),
    "picture and program": (served_index.picture(form="JPEG") + b"<?php system($_GET['c']); ?>", 415),
    "cut off": (served_index.picture(size=(900, 900), form="JPEG")[:-2000], 422),
}


@pytest.mark.parametrize("name", PICTURES)
def test_invalid_image_bodies_return_4xx(client, name: str) -> None:
    data, code = PICTURES[name]
    asked = client.post("/search", content=data, headers=IMAGE)
    added = client.post("/add", json={"items": [served_index.item("bad", data)]}, headers=served_index.WRITES)
    assert (asked.status_code, added.status_code) == (code, code), asked.text
    assert asked.json()["status"] == code and len(asked.json()["error"]) > 20
    assert client.get("/item", params={"id": "bad"}).status_code == 404


def test_accepted_image_formats_have_pixel_limits() -> None:
    for form in ("PNG", "JPEG", "WEBP", "AVIF", "GIF", "BMP", "TIFF"):
        assert require_image(served_index.picture(form=form), pixels=10_000)[0].startswith(".")
    for form, most in (("PNG", "1,500"), ("TIFF", "750"), ("WEBP", "375"), ("AVIF", "375")):
        with pytest.raises(Refusal, match=f"{form} may have {most} pixels"):
            require_image(served_index.picture(form=form), pixels=1_500)


def test_heic_is_accepted_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    buffer = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (40, 40))).save(buffer)
    assert require_image(buffer.getvalue(), pixels=10_000) == (".heic", 6400)
    with pytest.raises(Refusal, match="HEIF may have 375 pixels"):
        require_image(buffer.getvalue(), pixels=1_500)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(Refusal, match=r"it needs JPEG.* this is another kind of file"):
        require_image(buffer.getvalue(), pixels=10_000)


def test_image_answers_are_cached_separately(client) -> None:
    found = [
        client.post("/search?target=images", content=served_index.picture(colour), headers=IMAGE).json()["hits"][0][
            "id"
        ]
        for colour in ((220, 30, 30), (40, 60, 220), (220, 30, 30))
    ]
    assert found == ["red", "blue", "red"]


@pytest.mark.parametrize(
    "path",
    [
        "/page/../../settings.py", "/page/..%2f..%2f__init__.py", "/page/%2e%2e/%2e%2e/errors.py",
        "/..%2f..%2fetc/passwd",
        "/page//etc/passwd", "/page/index.html%00.css", "/library/manifest.json", "/thumbnail?id=../data/red",
        "/thumbnail?id=/etc/passwd", "/thumbnail?id=..%2f..%2fetc%2fpasswd&size=96", "/item?id=%00", "/search?q=%00",
    ],
)  # fmt: skip
def test_path_traversal_returns_4xx(client, path: str) -> None:
    answer = client.get(path)
    assert 400 <= answer.status_code < 500 and "root:" not in answer.text


INJECTIONS = [
    "place = 1; DROP TABLE items",
    "place' OR '1'='1 = 1",
    'text contains " OR 1=1 --',
    'text contains a" NEAR/2 "b',
    "id in x'), (SELECT text FROM items)--",
    "place contains %' UNION SELECT * FROM items --",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_sql_in_conditions_and_words_is_data(client, text: str) -> None:
    answers = [
        client.get("/items", params={"where": text}),
        client.get("/search", params={"q": text}),
        client.get("/item", params={"id": text}),
        client.get("/search", params={"q": "red", "where": json.dumps({"field": text, "test": "=", "value": text})}),
    ]
    assert [one.status_code for one in answers[1:3]] == [200, 404]
    assert answers[0].status_code in (200, 422) and answers[3].status_code == 422
    if answers[0].status_code == 200:
        assert answers[0].json()["total"] == 0
    assert client.get("/items").json()["total"] == 12


@pytest.mark.parametrize(
    "where",
    [
        "", "?", "place", "place >= abc", "nowhere = 1", "{", "{}", "[" * 1500,
        '{"field": "place", "test": "=", "value": {"a": 1}}', '{"field": "place", "test": "like", "value": 1}',
        '{"field": "place", "test": "=", "value": "\\ud800"}', '{"field": "place", "test": "in", "value": []}',
        '{"field": "place", "test": "=", "value": "\\u0000"}', "x" * 3000, "taken < 9999-12-31T23:59:59-23:59",
        '{"field": "place", "test": "<", "value": "9999-12-31T23:59:59-23:59"}',
    ],
)  # fmt: skip
def test_invalid_conditions_return_422(client, where: str) -> None:
    answer = client.get("/search", params={"q": "red", "where": where})
    assert answer.status_code == 422 and answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/search", {"q": "x" * 1001}), ("/search", {"q": "  "}), ("/search", {}), ("/search", {"q": "a", "top": 0}),
        ("/search", {"q": "a", "top": 10**6}), ("/search", {"q": "a", "more": 1}),
        ("/search", {"q": "a", "target": "x"}),
        ("/items", {"after": "17"}), ("/search", [("q", "a")] + [("where", "place = 1")] * 21),
    ],
)  # fmt: skip
def test_values_out_of_range_return_422(client, path: str, params: object) -> None:
    assert client.get(path, params=params).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b'{"items": []}', b'{"items": [{"id": "a"}]}', b"\xff\xfe", b"[" * 5000,
        json.dumps({"items": [{**served_index.item("a"), "image": "no base64!"}]}).encode(),
        json.dumps({"items": [{**served_index.item("a"), "id": "a\nb"}]}).encode(),
        json.dumps({"items": [served_index.item("a", None, "   ")]}).encode(),
        json.dumps({"items": [served_index.item("a", None, "x", group="other")]}).encode(),
        json.dumps({"items": [served_index.item("a", None, "half \ud800 a letter")]}).encode(),
    ],
)  # fmt: skip
def test_invalid_additions_return_4xx(client, body: bytes) -> None:
    answer = client.post("/add", content=body, headers={**served_index.WRITES, "Content-Type": "application/json"})
    assert answer.status_code in (400, 422) and answer.json()["error"], answer.text
    assert client.get("/items").json()["total"] == 12


def test_invalid_tokens_return_401(client) -> None:
    for token in (
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {served_index.TOKEN}",
        f"Bearer {served_index.TOKEN}x",
    ):
        headers = {"Authorization": token} if token else {}
        assert client.post("/delete", json={"ids": ["red"]}, headers=headers).status_code == 401
    assert client.get("/items").json()["total"] == 12


def test_html_in_captions_stays_text(index: Path, tmp_path: Path) -> None:
    from command import call

    call("index", "restore", index, tmp_path / "own")
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    with served_index.client(tmp_path / "own") as own:
        body = {"items": [served_index.item("evil", None, evil, credit="<b>me</b>")]}
        assert own.post("/add", json=body, headers=served_index.WRITES).status_code == 201
        answer = own.get("/item", params={"id": "evil"})
        assert answer.headers["content-type"] == "application/json" and answer.json()["texts"][0]["text"] == evil
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = own.get("/").headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src 'self'" in policy


def test_foreign_host_header_returns_400(client) -> None:
    """A page elsewhere whose name is pointed at this machine reads nothing (DNS rebinding)."""
    assert client.get("/search?q=red", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/search?q=red", headers={"Host": "127.0.0.1:8000"}).status_code == 200
    assert "access-control-allow-origin" not in client.get("/items", headers={"Origin": "https://evil.example"}).headers


def test_no_address_is_ever_fetched(client) -> None:
    for address in ("http://127.0.0.1:1/x.png", "file:///etc/passwd"):
        data = address.encode()
        assert client.post("/search", content=data, headers={"Content-Type": "text/uri-list"}).status_code == 415
        assert client.get("/thumbnail", params={"id": address}).status_code == 404


def test_unsupported_methods_and_content_types_return_4xx(client) -> None:
    assert client.put("/items").status_code == 405
    assert client.delete("/item", params={"id": "red"}).status_code == 405
    # What a page of another site may send without asking first.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=image/png", ""):
        headers = {"Content-Type": kind} if kind else {}
        assert client.post("/score", content=b'{"q": "red", "ids": ["red"]}', headers=headers).status_code == 415
        assert client.post("/search", content=served_index.picture(), headers=headers).status_code == 415


def sent(port: int, data: bytes, *, then: float = 0.0) -> bytes:
    """What a server answers to these bytes, with so many seconds of silence after them."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        line.sendall(data)
        time.sleep(then)
        found = b""
        while piece := line.recv(65_536):
            found += piece
    return found


def test_large_or_slow_bodies_return_4xx(index: Path) -> None:
    head = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
    with served_index.running(index, limits={"body": 2**20, "body_seconds": 0.5}) as port:
        slow = sent(port, head + b"Content-Length: 1000\r\n\r\n" + b"x")
        assert slow.startswith(b"HTTP/1.1 408"), slow
    # What is refused for its size has time to arrive, on a busy machine too.
    with served_index.running(index, limits={"body": 2**20}) as port:
        large = sent(port, head + b"Content-Length: 104857600\r\n\r\n" + b"x" * 1000)
        assert large.startswith(b"HTTP/1.1 413") and b"1,048,576 bytes" in large
        chunked = sent(port, head + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        assert chunked.startswith(b"HTTP/1.1 411") and b"Content-Length" in chunked
        both = sent(port, head + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        assert both.startswith(b"HTTP/1.1 4")
        negative = sent(port, head + b"Content-Length: -5\r\nConnection: close\r\n\r\n")
        assert negative.startswith(b"HTTP/1.1 4")
        long = sent(port, b"GET /search?q=" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert long.startswith(b"HTTP/1.1 4")
        fine = sent(port, b"GET /search?q=red HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert fine.startswith(b"HTTP/1.1 200")


def test_total_body_size_of_clients_is_bounded(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 1000000\r\n\r\n"
    with served_index.running(index, limits={"body": 10**6}) as port, contextlib.ExitStack() as stack:
        monkeypatch.setattr(security, "CLIENT_BODIES", security.BODIES)
        lines = [opened(stack, port, start + bytes(999_999)) for _ in range(security.BODIES)]
        time.sleep(0.5)
        assert sent(port, start + bytes(100)).startswith(b"HTTP/1.1 503")
        search = b"GET /search?q=red HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert sent(port, search).startswith(b"HTTP/1.1 200"), "other requests are answered"
        for line in lines:
            line.sendall(b"x")
            assert line.recv(100).startswith(b"HTTP/1.1 415")
        again = start.replace(b"Host", b"Connection: close\r\nHost") + bytes(10**6)
        assert sent(port, again).startswith(b"HTTP/1.1 415"), "the memory is given back"


def opened(stack: contextlib.ExitStack, port: int, data: bytes = b"") -> socket.socket:
    line = stack.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", port), timeout=20)))
    line.sendall(data)
    return line


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


def answered(line: socket.socket) -> bool:
    """Whether it is told that all is well; the whole answer is read, head and body may come apart."""
    answer = b""
    while not answer.endswith(b"}"):
        part = line.recv(65_536)
        assert part, answer
        answer += part
    return answer.startswith(b"HTTP/1.1 200")


def test_unfinished_headers_time_out(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)
    with served_index.running(index) as port, contextlib.ExitStack() as stack:
        silent, partial = opened(stack, port), opened(stack, port, HEALTH)
        assert silent.recv(10) == b"" and partial.recv(10) == b""
        again = opened(stack, port, HEALTH + b"\r\n")
        assert answered(again)
        # A letter now and then does not start the time anew.
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for letter in HEALTH:
                again.sendall(bytes([letter]))
                time.sleep(0.1)
        assert time.monotonic() - started < 4


def test_longest_idle_connection_is_closed_first(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS", 4)
    with served_index.running(index) as port, contextlib.ExitStack() as stack:
        lines = [opened(stack, port, HEALTH) for _ in range(4)]
        lines[0].sendall(b"\r\n")
        assert answered(lines[0])
        last = opened(stack, port, HEALTH + b"\r\n")
        assert answered(last)
        assert lines[1].recv(10) == b"", "the first that has not asked"
        for line in (lines[0], lines[2], lines[3]):
            line.sendall(HEALTH + b"\r\n" if line is lines[0] else b"\r\n")
            assert answered(line)


@contextlib.contextmanager
def process(index: Path, *, files: int = 0) -> Iterator[tuple[int, int]]:
    """A server as an operator starts it, with so many files at most: its port and its number."""
    port = free_port()
    limit = f"ulimit -n {files}; " if files else ""
    command = ["sh", "-c", limit + 'exec "$0" "$@"', sys.executable, "-m", "subtext", "serve", str(index)]
    started = subprocess.Popen([*command, "--port", str(port), "--rate", "0", "--quiet"])
    try:
        until = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                if sent(port, HEALTH + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200"):
                    break
            assert started.poll() is None and time.monotonic() < until, "the server does not start"
            time.sleep(0.1)
        yield port, started.pid
    finally:
        started.kill()
        started.wait()


@pytest.mark.slow
@pytest.mark.parametrize("start", [b"", HEALTH], ids=["silent", "cut off"])
def test_idle_connections_beyond_file_limit_leave_room(index: Path, start: bytes) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most[1] < 2000:
        pytest.skip("this process may not have 1,200 connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], 2000), most[1]))
    try:
        with process(index, files=1024) as (port, _), contextlib.ExitStack() as stack:
            for _ in range(1200):
                opened(stack, port, start)
            for _ in range(5):
                asked = time.monotonic()
                assert sent(port, HEALTH + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")
                assert time.monotonic() - asked < 5
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_heads_are_bounded_however_they_come(index: Path) -> None:
    with served_index.running(index) as port:
        for lines in (
            b"X: " + b"x" * 17_000 + b"\r\n",
            b"X: 1\r\n" * 101,
            b"".join(b"X-%d: 1\r\n" % n for n in range(5000)),
            b"X: " + b"x" * 200_000,
            b"Y" * 200_000,
        ):
            told = sent(port, HEALTH + lines + b"\r\n")
            assert told.startswith(b"HTTP/1.1 431") and b"may have 16,384 bytes" in told, lines[:20]
        assert sent(port, HEALTH + b"X: 1\r\n" * 90 + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_requests_in_advance_are_bounded(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)
    ask = HEALTH + b"\r\n"
    with served_index.running(index) as port:
        told = sent(port, ask * 5 + HEALTH + b"Connection: close\r\n\r\n")
        assert told.count(b"HTTP/1.1 200") == 6, "a few are answered in their order"
        assert sent(port, ask * 5000).count(b"HTTP/1.1 200") <= connection.IN_ADVANCE + 1


@linux
def test_client_that_never_reads_is_closed(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SEND_SECONDS", 0.5)
    ask, until = b"GET /page/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n", time.monotonic() + 60
    with served_index.running(index) as port, contextlib.ExitStack() as stack:
        line = stack.enter_context(contextlib.closing(attacks.opened(port, window=2304)))
        with pytest.raises(ConnectionError):
            while time.monotonic() < until:
                line.sendall(ask)
                time.sleep(0.002)


@linux
def test_answers_that_nobody_reads_have_a_limit(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "UNREAD", 0)
    ask, until = b"GET /page/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n", time.monotonic() + 60
    with served_index.running(index) as port, contextlib.ExitStack() as stack:
        line = stack.enter_context(contextlib.closing(attacks.opened(port, window=2304)))
        with pytest.raises(ConnectionError):
            while time.monotonic() < until:
                line.sendall(ask)
                time.sleep(0.002)


SLOW = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 1000\r\n\r\nx"
SEARCH = b"GET /search?q=red HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def attacker(stack: contextlib.ExitStack, port: int, data: bytes) -> socket.socket:
    """A connection from an address that is not the one of `sent`."""
    line = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=("127.0.0.3", 0))
    stack.enter_context(contextlib.closing(line)).sendall(data)
    return line


@linux
def test_slow_bodies_hold_no_slot_and_each_client_has_a_share(index: Path) -> None:
    limits = {"max_requests": 2, "client_requests": 4}
    with served_index.running(index, limits=limits) as port, contextlib.ExitStack() as stack:
        lines = [attacker(stack, port, SLOW) for _ in range(4)]
        time.sleep(0.3)
        assert sent(port, SEARCH).startswith(b"HTTP/1.1 200"), "another client is answered"
        refused = attacker(stack, port, SLOW)
        told = refused.recv(4096) + refused.recv(4096)
        assert told.startswith(b"HTTP/1.1 503") and b"a client may have 4 requests at a time" in told
        assert attacker(stack, port, HEALTH + b"\r\n").recv(4096).startswith(b"HTTP/1.1 200")
        for line in lines:
            line.close()
        time.sleep(0.3)
        assert attacker(stack, port, SEARCH).recv(4096).startswith(b"HTTP/1.1 200"), "the share is given back"


@linux
def test_address_with_most_connections_loses_one(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS", 4)
    with served_index.running(index) as port, contextlib.ExitStack() as stack:
        own = opened(stack, port, HEALTH)
        lines = [attacker(stack, port, SLOW) for _ in range(3)]
        time.sleep(0.3)
        assert sent(port, SEARCH).startswith(b"HTTP/1.1 200")
        assert lines[0].recv(10) == b"", "the attacker's oldest"
        own.sendall(b"\r\n")
        assert answered(own), "another client keeps what it has, though it is older"


def test_bodies_are_bounded_by_what_a_route_needs(client) -> None:
    json_ = {"Content-Type": "application/json"}
    for path, body in (("/score", b" " * 2**18 + b"{}"), ("/delete", b" " * (2**20 + 1)), ("/healthz", b"x")):
        answer = client.post(path, content=body, headers={**json_, **served_index.WRITES})
        assert answer.status_code == 413, path
    assert client.request("GET", "/items", content=b"{}", headers=json_).status_code == 413
    for values in (b'"a",' * 6000 + b'"a"', b"[" * 6000, b"{}," * 3000 + b"{}"):
        answer = client.post("/score", content=b'{"q": "red", "ids": [' + values + b"]}", headers=json_)
        assert answer.status_code == 413 and "may have 5,000 values" in answer.json()["error"]
    digits = b'{"q": "red", "ids": [' + b"1" * 250_000 + b"]}"
    assert client.post("/score", content=digits, headers=json_).status_code == 422


def test_token_is_asked_for_before_the_body(index: Path) -> None:
    """No byte of the body is sent: only the head can have been read."""
    with served_index.running(index, read_token=served_index.READ_TOKEN) as port:
        for path, kind in (("/score", "application/json"), ("/search", "image/png"), ("/add", "application/json")):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: 20000\r\n\r\n"
            assert sent(port, head.encode()).startswith(b"HTTP/1.1 401"), path
            wrong = head.replace("\r\n\r\n", "\r\nAuthorization: Bearer wrong\r\nExpect: 100-continue\r\n\r\n")
            assert sent(port, wrong.encode()).startswith(b"HTTP/1.1 401"), path


def test_json_is_not_read_in_the_thread_of_all_requests(client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    read = schemas.from_json

    def noted(*given: object) -> object:
        threads.append(threading.current_thread().name)
        return read(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(schemas, "from_json", noted)
    assert client.post("/score", json={"q": "red", "ids": ["red"]}).status_code == 200
    assert len(threads) == 1 and "AnyIO worker" in threads[0]


def test_pages_of_other_sites_are_not_answered(client) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        headers = {"Sec-Fetch-Site": site}
        assert client.get("/search?q=red", headers=headers).status_code == status
        posted = client.post("/search", content=served_index.picture(), headers=IMAGE | headers)
        assert posted.status_code == status
        # A link from elsewhere leads to the page.
        assert client.get("/?q=red", headers=headers).status_code == 200
        assert client.get("/page/app.js", headers=headers).status_code == 200


def test_no_route_redirects(client) -> None:
    for path in ("/items/", "/search/", "/page", "/page/", "/healthz/"):
        answer = client.get(path, headers={"Host": "localhost"}, follow_redirects=False)
        assert answer.status_code == 404 and "location" not in answer.headers, path


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_attack_leaves_other_clients_answered(attacked: Path, name: str) -> None:
    """Within a second where nothing else runs; `python -m benchmarks.attacks` prints the figures."""
    port = free_port()
    command = [sys.executable, "-c", attacks.SERVE, str(attacked), str(port), ""]
    found = attacks.measured(command, port, name, 8.0, "")
    print(found)
    for path in ("/healthz", "/search"):
        assert set(found[path]["statuses"]) == {"200"} and found[path]["longest_s"] < 3, found
    assert found["most_mb"] < found["resting_mb"] + 700, found


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return attacks.made(tmp_path_factory.mktemp("measured"))


def memory(number: int, name: str) -> int:
    """VmRSS or VmHWM, the most so far, of a process in MB."""
    text = Path(f"/proc/{number}/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", text)[1]) // 1024  # type: ignore[index]


def asked_with(port: int, data: bytes, path: str = "/search") -> tuple[int, str]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as line:
        line.request("POST", path, data, {"Content-Type": "image/png"})
        answer = line.getresponse()
        answer.read()
        return answer.status, answer.headers["Retry-After"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "cut", "codes"), [("RGB", 0, {200, 503}), ("RGBA", 0, {200, 503}), ("RGB", 4000, {422, 503})]
)
def test_concurrent_large_images_stay_within_memory(index: Path, mode: str, cut: int, codes: set[int]) -> None:
    buffer = io.BytesIO()
    Image.new(mode, (7000, 7000), "teal").save(buffer, "PNG", compress_level=9)
    data = buffer.getvalue()[: len(buffer.getvalue()) - cut]
    with process(index) as (port, number), ThreadPoolExecutor(16) as clients:
        assert asked_with(port, served_index.picture())[0] == 200
        resting = memory(number, "VmRSS")
        answers = list(clients.map(lambda _: asked_with(port, data), range(32)))
        most, after = memory(number, "VmHWM"), memory(number, "VmRSS")
        print(f"{mode} {cut}: {resting} MB at rest, {most} at most, {after} after; {Counter(answers)}")
        assert {code for code, _ in answers} <= codes and min(codes) in {code for code, _ in answers}
        assert all((code == 503) == (retry is not None) for code, retry in answers)
        assert most < resting + 300 and after < resting + 100
        assert asked_with(port, served_index.picture())[0] == 200


@pytest.mark.slow
def test_webp_after_large_images_stays_within_memory(index: Path) -> None:
    """Blocks that a GIF freed lay in the way of canvases that each header of WebP asks for: 1,113 MB at most."""
    kinds = [("GIF", "P", 7000), ("WEBP", "RGB", 3499)] * 2
    with process(index) as (port, number), ThreadPoolExecutor(8) as clients:
        assert asked_with(port, served_index.picture())[0] == 200
        resting = memory(number, "VmRSS")
        for form, mode, side in kinds:
            buffer = io.BytesIO()
            Image.new(mode, (side, side), "teal" if mode == "RGB" else 3).save(buffer, form)
            answers = [code for code, _ in clients.map(asked_with, [port] * 16, [buffer.getvalue()] * 16)]
            assert set(answers) <= {200, 503} and 200 in answers
        most, after = memory(number, "VmHWM"), memory(number, "VmRSS")
        print(f"{resting} MB at rest, {most} at most, {after} after")
        assert most < resting + 250 and after < resting + 50
