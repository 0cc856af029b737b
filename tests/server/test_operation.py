"""A server as an operator runs it: warm before its first answer, reloaded, stopped and killed under load."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import served_index
from command import call
from gloo import free_port

import subtext
from subtext.api.index.build import update_index
from subtext.errors import ArgumentError
from subtext.retrieval.index import Index
from subtext.server.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operation")
    served_index.made(folder, "library")
    return folder


def status(port: int, path: str = "/search?q=a+blue+square") -> int:
    """The status of an answer that was read to its end; 0 where there is none."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(line), contextlib.suppress(OSError, http.client.HTTPException):
        line.request("GET", path, headers={"Host": "localhost"})
        with line.getresponse() as answer:
            answer.read()
            return answer.status
    return 0


@contextlib.contextmanager
def process(index: Path, port: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server as a process, which answers."""
    command = [
        sys.executable,
        "-m",
        "subtext",
        "serve",
        str(index),
        "--port",
        str(port),
        "--rate",
        "0",
        "--log",
        "none",
    ]
    said = log_of(port).open("wb")
    server = subprocess.Popen([*command, *words], stdin=subprocess.DEVNULL, stderr=said)
    try:
        until = time.monotonic() + 180
        while status(port, "/readyz") != 200:
            assert server.poll() is None and time.monotonic() < until, "the server does not start"
            time.sleep(0.1)
        yield server
    finally:
        server.kill()
        server.wait()
        said.close()
        log_of(port).unlink()


def log_of(port: int) -> Path:
    """What a server writes to standard error."""
    return Path(tempfile.gettempdir(), f"subtext-test-server-{port}.log")


@contextlib.contextmanager
def asked_meanwhile(ask: Callable[[], int]) -> Iterator[Counter[int]]:
    """Four clients that never pause; the statuses of their answers, when the block has ended."""
    found, stop = Counter[int](), threading.Event()

    def work() -> None:
        while not stop.is_set():
            found[ask()] += 1

    clients = [threading.Thread(target=work) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        yield found
    finally:
        stop.set()
        for client in clients:
            client.join()


def test_index_is_warm_before_the_first_answer(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, plain = list[str](), Index.answer

    def counted(self: Index, query: object, **options: object) -> object:
        asked.append(query.target if getattr(query, "text", None) else "image")  # type: ignore[attr-defined]
        return plain(self, query, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Index, "answer", counted)
    with served_index.client(place / "library") as own:
        assert asked == ["images", "texts", "image"], "before any request"
        own.app.state.server.reload()  # type: ignore[attr-defined]
        assert asked[3:] == asked[:3] and own.get("/readyz").json()["status"] == "ready"


def test_request_in_flight_is_answered_when_the_server_stops(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, begun = Index.answer_many, threading.Event()

    def slow(self: Index, *words: object, **options: object) -> object:
        begun.set()
        time.sleep(1)
        return plain(self, *words, **options)  # type: ignore[arg-type]

    found = list[int]()
    with served_index.running(place / "library") as port:
        monkeypatch.setattr(Index, "answer_many", slow)
        client = threading.Thread(target=lambda: found.append(status(port)))
        client.start()
        assert begun.wait(10)
    client.join()
    assert found == [200] and status(port) == 0


def test_failed_reload_keeps_the_former_index(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served_index.client(place / "library") as own:
        library = own.app.state.server.libraries["library"]  # type: ignore[attr-defined]
        former, library._open = library.index, lambda: served_index_missing()
        own.app.state.server.reload()  # type: ignore[attr-defined]
        assert "library is not opened again, and goes on as it was: it is away" in capsys.readouterr().err
        assert library.index is former and own.get("/search", params={"q": "a blue square"}).status_code == 200


def served_index_missing() -> Index:
    from subtext.errors import SearchIndexError

    raise SearchIndexError("it is away")


def test_seconds_are_counted_by_route(place: Path) -> None:
    with served_index.client(place / "library") as own:
        own.get("/search", params={"q": "a green square"})
        text = own.get("/metrics").text
    assert 'subtext_http_request_duration_seconds_count{method="GET",route="/search"} 1.0' in text
    assert 'subtext_http_request_duration_seconds_bucket{le="10.0",method="GET",route="/search"} 1.0' in text
    assert "subtext_http_requests_in_progress" in text
    names = re.findall(r"^# TYPE (subtext\S*) (\w+)", text, re.MULTILINE)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in names), "names by the conventions"


def test_hangup_while_a_server_gets_warm_does_not_end_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(_: Settings) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        raise ArgumentError("warm enough")

    monkeypatch.setattr("subtext.server.application.build", build)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    before = signal.getsignal(signal.SIGHUP)
    try:
        with pytest.raises(ArgumentError, match="warm enough"):
            subtext.serve(place / "library", port=free_port(), quiet=True)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_hangup_reloads_without_a_failed_request(place: Path, tmp_path: Path, workers: int) -> None:
    index, port = tmp_path / "library", free_port()
    call("index", "restore", place / "library", index)
    with process(index, port, "--workers", str(workers)) as server:
        with asked_meanwhile(lambda: status(port)) as found:
            for _ in range(2):
                time.sleep(1)
                server.send_signal(signal.SIGHUP)
            time.sleep(15)
        assert set(found) == {200} and found[200] > 20, found
        server.send_signal(signal.SIGTERM)
        # uvicorn ends one process by the signal itself.
        assert server.wait(timeout=60) in (0, -signal.SIGTERM)
        if workers == 1:
            assert log_of(port).read_bytes().count(b"library is opened again: 12 images") == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nginx", path=f"{os.environ.get('PATH')}:/usr/sbin") is None, reason="needs nginx")
def test_search_goes_on_when_one_of_two_servers_behind_nginx_is_killed(place: Path, tmp_path: Path) -> None:
    """The configuration is that of docs/operating.md, without TLS and with other addresses."""
    ports, front = (free_port(), free_port()), free_port()
    block = re.search(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    text = re.sub(r" *(ssl_|listen|server_name).*\n", "", block[1])
    for number, port in enumerate(ports, start=1):
        text = text.replace(f"10.0.0.{number}:8000", f"127.0.0.1:{port}")
    text = text.replace("server {\n", f"server {{\n    listen 127.0.0.1:{front};\n", 1)
    files = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    head = f"pid {tmp_path}/pid;\nerror_log {tmp_path}/error.log;\ndaemon off;\nevents {{}}\n"
    (tmp_path / "nginx.conf").write_text(f"{head}http {{\naccess_log off;\n{files}{text}}}\n")
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(process(place / "library", port, "--trust-proxy")) for port in ports]
        nginx = subprocess.Popen(["/usr/sbin/nginx", "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"])
        stack.callback(nginx.wait)
        stack.callback(nginx.terminate)
        while status(front, "/readyz") != 200:
            assert nginx.poll() is None
            time.sleep(0.1)
        with asked_meanwhile(lambda: status(front)) as found:
            time.sleep(3)
            servers[0].kill()
            time.sleep(5)
            before = found.total()
            time.sleep(2)
        assert set(found) == {200}, (found, "four clients have four requests in flight")
        assert found.total() > before > 20 and status(ports[1]) == 200
        assert status(ports[0]) == 0
        assert update_index(place / "library", quiet=True).unchanged == 36
