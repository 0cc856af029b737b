"""An index in PostgreSQL over HTTP: what a folder's server answers, and what is done while the database is away."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coloured_images
import database
import pytest
import served_index
from command import call
from database import Server, started
from fastapi.testclient import TestClient
from gloo import free_port

from subtext.retrieval.stores.postgres import Database
from subtext.server.application import build
from subtext.server.settings import Settings


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with started() as found:
        yield found


def options(runs: Path) -> list[object]:
    """Options of `subtext index build`."""
    return ["--run", runs / "run", "--data", runs / "data", "--quiet", "--batch-size", 3]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = coloured_images.runs(tmp_path_factory.mktemp("runs"), "run", "other")
    call("index", "build", folder / "library", *options(folder))
    return folder


@pytest.fixture
def address(server: Server, runs: Path) -> Iterator[str]:
    call("index", "build", server.address("library"), *options(runs))
    yield server.address("library")
    Database(server.address("library")).remove()


def asking(address: str, **changes: object) -> TestClient:
    values = {**vars(served_index.settings(**changes)), "indexes": (address,)}
    return TestClient(build(Settings(**values)), base_url="http://localhost")


def test_outage_returns_503_until_recovery(address: str, server: Server, runs: Path) -> None:
    with asking(address, log="") as found:
        wanted = found.get(served_index.ASKED[0]).json()
        server.server.stop()
        for asked in (*served_index.ASKED, "/readyz", "/libraries", "/thumbnail?id=red"):
            answer = found.get(asked)
            assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0, asked
            assert "s3cret" not in answer.text and server.socket not in answer.text
        changes = [("/add", {"items": [served_index.item("teal")]}), ("/delete", {"ids": ["red"]})]
        codes = [found.post(at, json=what, headers=served_index.WRITES).status_code for at, what in changes]
        # It has no folder for images; whether it says so, or that its index is away, hangs on when it looked last.
        assert codes[0] in (403, 503) and codes[1] == 503
        assert "subtext_http_requests_total" in found.get("/metrics").text, (
            "what it counts does not hang on the database"
        )
        server.server.ensure_postgres_running()
        assert found.get("/readyz").status_code == 200 and found.get(served_index.ASKED[0]).json() == wanted
        server.restart()
        assert found.get(served_index.ASKED[0]).json() == wanted, "between two questions nobody notices"


def test_many_clients_share_few_connections(address: str) -> None:
    with asking(f"{address}&application_name=many&connections=3", log="") as found:
        wanted = {asked: found.get(asked).json() for asked in served_index.ASKED}
        most = [0]
        asking_on = threading.Event()

        def counted() -> None:
            watching, done = Database(address), False
            while not done:
                done = asking_on.is_set()  # Once more afterwards, so that it counts however soon they are answered.
                with watching.reading() as view:
                    statement = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'many'"
                    most[0] = max(most[0], view.tables.connection.execute(statement).fetchone()[0])  # type: ignore[index]
            watching.close()

        watcher = threading.Thread(target=counted)
        watcher.start()
        with ThreadPoolExecutor(12) as threads:
            answers = list(threads.map(lambda asked: (asked, found.get(asked).json()), served_index.ASKED * 4))
        asking_on.set()
        watcher.join()
    assert all(answer == wanted[asked] for asked, answer in answers)
    assert 1 <= most[0] <= 3


def test_serve_accepts_address_and_hides_password(address: str, runs: Path, tmp_path: Path) -> None:
    answer = call("serve", address, "--log", "index", code=2)
    assert "--log index needs a folder" in answer.output and "s3cret" not in answer.output
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        answer = call("serve", address, "--storage-dir", tmp_path, "--port", taken.getsockname()[1], code=1)
        assert "needs an address of its own" in answer.stderr and "s3cret" not in answer.output + answer.stderr
    answer = call("serve", runs / "library", "--storage-dir", tmp_path, code=2)
    assert "--storage-dir is for an index that is no folder" in answer.output
    for other in (address.replace("index=library", "index=none"), address.replace("postgres:", "nobody:")):
        told = call("serve", other, "--port", free_port(), code=1)
        assert database.PASSWORD not in told.output + told.stderr and "error" in told.stderr
