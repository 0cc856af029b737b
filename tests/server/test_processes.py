"""Servers as processes: killed in the midst of changes, several on one index, ended as an operator ends them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
import served_index
import uvicorn
from command import call
from gloo import free_port

from subtext.retrieval.condition import matching
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.verification import verify
from subtext.server.application import build

SEEDS = [pytest.param(seed, marks=[] if seed < 3 else pytest.mark.slow) for seed in range(50)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    served_index.made(folder, "library")
    return folder


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    headers = {**served_index.WRITES, "Content-Type": "application/json"}
    # The server may die at any moment of this: what is left open would fail whichever test runs next.
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as line:
        line.request(method, path, None if body is None else json.dumps(body), headers)
        with line.getresponse() as answer:
            text = answer.read()
    return answer.status, json.loads(text) if text.startswith(b"{") else {"text": text.decode()}


def answers(port: int, *, seconds: float = 60.0) -> None:
    """Wait until a server answers."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if ask(port, "GET", "/healthz")[0] == 200:
                return
        assert time.monotonic() < until, "the server does not answer"
        time.sleep(0.05)


def forked(index: Path, port: int) -> int:
    """A server in a process of its own, made of this one; its number."""
    child = os.fork()
    if child:
        return child
    try:
        config = uvicorn.Config(
            build(served_index.settings(index)), port=port, log_level="error", access_log=False, ws="none"
        )
        uvicorn.Server(config).run()
    except BaseException:  # noqa: BLE001  (a child must not go on as a second test run)
        traceback.print_exc()
    finally:
        os._exit(0)


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_server_loses_no_acknowledged_change(place: Path, tmp_path: Path, seed: int) -> None:
    index, port, drawn_ = tmp_path / "library", free_port(), random.Random(seed)
    call("index", "restore", place / "library", index)
    child = forked(index, port)
    answers(port)
    wanted, maybe = {"red", "blue"}, set()
    until = time.monotonic() + drawn_.uniform(0.05, 1.2)
    killer = subprocess.Popen(
        [sys.executable, "-S", "-c", f"import os,time; time.sleep({until - time.monotonic()}); os.kill({child}, 9)"]
    )
    for number in range(200):
        name, old = f"new{number}", f"new{number - 2}"
        try:
            maybe = {name}
            if ask(port, "POST", "/add", {"items": [served_index.item(name)]})[0] == 201:
                wanted.add(name)
            if number > 1:
                maybe = {old}
                if ask(port, "POST", "/delete", {"ids": [old]})[0] == 200:
                    wanted.discard(old)
        except (OSError, http.client.HTTPException):
            break
    else:
        os.kill(child, signal.SIGKILL)
    killer.wait()
    os.waitpid(child, 0)
    assert verify(index) == []
    with Folder(index).reading() as view:
        there = {item.id for item in view.items("images", matching(view, "images", []))}
    assert wanted - maybe <= there, "what was acknowledged as added is there"
    assert {name for name in there - wanted - maybe if name.startswith("new")} == set(), "what was deleted is not"
    with served_index.client(index) as own:
        assert own.get("/search", params={"q": "a red square"}).status_code == 200
    rows = index / "added" / "metadata.jsonl"
    names = {json.loads(line)["id"] for line in rows.read_text().splitlines()} if rows.exists() else set()
    files = list((index / "added").glob("*.png"))
    assert names == {name for name in there if name.startswith("new")} and len(files) == len(names)


@pytest.mark.slow
def test_several_server_processes_share_index_and_stop(place: Path, tmp_path: Path) -> None:
    index, port, token = tmp_path / "library", free_port(), tmp_path / "token"
    call("index", "restore", place / "library", index)
    token.write_text(served_index.TOKEN + "\n")
    command = [sys.executable, "-m", "subtext", "serve", str(index), "--port", str(port), "--workers", "2"]
    process = subprocess.Popen([*command, "--token-file", str(token), "--quiet"])
    try:
        answers(port, seconds=180)
        assert ask(port, "POST", "/add", {"items": [served_index.item("teal")]})[0] == 201
        for _ in range(12):
            status, found = ask(port, "GET", "/search?q=a+teal+square&top=50")
            assert status == 200 and any(hit["id"] == "teal" for hit in found["hits"])
        assert ask(port, "POST", "/delete", {"ids": ["teal"]})[0] == 200
        for _ in range(12):
            _, found = ask(port, "GET", "/search?q=a+teal+square&top=50")
            assert all(hit["id"] != "teal" for hit in found["hits"]), "no process answers from memory"
        counts = str(ask(port, "GET", "/metrics")[1]["text"])
        assert 'subtext_http_requests_total{method="GET",route="/search",status="200"} 24' in counts
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
    assert verify(index) == []


@pytest.mark.slow
def test_server_memory_is_stable_for_ten_minutes(tmp_path: Path) -> None:
    """100,000 items, 8 clients that never pause, every question another one."""
    from benchmarks.server import Server, made, memory

    server = Server(made(tmp_path), free_port(), 96)
    try:
        found = memory(server, 10)
    finally:
        server.close()
    assert found["grown_percent"] < 5, found
