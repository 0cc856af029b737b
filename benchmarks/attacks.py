"""Clients that attack the server: how long another client waits meanwhile, and how much memory the server takes.

A small index is made and served, as `subtext serve` serves it, in a process of its own. Each attack runs in a further
process from an address of its own. Meanwhile another client asks for /healthz and searches by words, ten times a
second. For each attack its longest wait is printed, and how many of its requests were refused, and the most memory that
the server and its children had at one time. The address of the attacker is 127.0.0.3, that of the other client
127.0.0.1.

--command measures another server under the same clients: a command line with {index} and {port}.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import os
import random
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

ITEMS, WIDTH = 11_000, 64
ATTACKER, OTHER = "127.0.0.3", "127.0.0.1"
TOKEN = "a token of the benchmark"
HOST = b"Host: localhost\r\n"
SERVE = """
import sys
from subtext.server.settings import Settings
from subtext.server.serve import start
start(Settings((sys.argv[1],), port=int(sys.argv[2]), log="", read_token=sys.argv[3]), quiet=True)
"""
SYLLABLES = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]


def word(number: int) -> str:
    """A word of three syllables; there are 343,000."""
    size = len(SYLLABLES)
    return SYLLABLES[number % size] + SYLLABLES[number // size % size] + SYLLABLES[number // size**2 % size]


def made(place: Path) -> Path:
    """An index of random vectors, each image with a text and a title of its own, by a run that was never trained."""
    from subtext.models.checkpoint import Record, save_run
    from subtext.recipes.build import build
    from subtext.retrieval.build import model_fingerprint
    from subtext.retrieval.manifest import Manifest
    from subtext.retrieval.stores.folder import Folder
    from subtext.retrieval.stores.item import Change, IndexEntry
    from subtext.training.setup import BuildContext

    known = [word(31 * number) for number in range(500)]
    options: dict[str, object] = {"image": "tiny", "image_size": 32, "embed_dim": WIDTH, "min_count": 1, "text": "bag"}
    model = build("dual", options, context=BuildContext(texts=tuple(known) * 10)).model.eval()
    save_run(place / "run", model, Record(model="dual", arguments=options, status="finished"))
    manifest = Manifest(
        fingerprint=model_fingerprint(model), run=str(place / "run"), model_name="dual", width=WIDTH, root=str(place)
    )
    generator, names = np.random.default_rng(0), random.Random(0)
    with Folder.create(place / "index", manifest).writing("build") as writer:
        for side in ("images", "texts"):
            rows = generator.standard_normal((ITEMS, 1, WIDTH), dtype=np.float32)
            rows /= np.linalg.norm(rows, axis=2, keepdims=True)
            entries = [
                IndexEntry(
                    f"item{n}", n.to_bytes(8, "little"), metadata={"year": 1900 + n % 100, "title": title(names)}
                )
                if side == "images"
                else IndexEntry(f"item{n}/0", n.to_bytes(8, "little"), text=" ".join(word(7 * n + k) for k in range(6)))
                for n in range(ITEMS)
            ]
            links = [(f"item{n}", f"item{n}/0") for n in range(ITEMS)] if side == "texts" else []
            writer.put(Change(side, entries, rows, links=links))
    return place / "index"


def title(names: random.Random) -> str:
    """About forty letters that no other item has."""
    return " ".join(word(names.randrange(300_000)) for _ in range(6))


# Pictures whose decoding costs far more than their size tells.


def scans(width: int = 8192, height: int = 5888, count: int = 1000) -> bytes:
    """A grey progressive JPEG of so many scans, each of which changes nothing: 173 KB, and half a minute of work."""

    def table(kind: int, lengths: dict[int, int]) -> bytes:
        body = bytes([kind]) + bytes(int(n in lengths) for n in range(1, 17)) + bytes(lengths.values())
        return b"\xff\xc4" + struct.pack(">H", len(body) + 2) + body

    blocks = -(-width // 8) * -(-height // 8)
    # One bit a block for its mean; then runs of 32,767 blocks without a change, in 15 bits each, and single ones.
    runs, single = divmod(blocks, 32_767)
    bits = ("0" + "1" * 14) * runs + "10" * single
    padded = bits + "1" * (-len(bits) % 8)
    coded = int(padded, 2).to_bytes(len(padded) // 8, "big").replace(b"\xff", b"\xff\x00")
    mean = bytes(blocks // 8) + (bytes([(1 << (8 - blocks % 8)) - 1]) if blocks % 8 else b"")
    start = b"\xff\xd8\xff\xdb\x00\x43\x00" + bytes([1] * 64)
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes([1, 0x11, 0])
    first = b"\xff\xda\x00\x08\x01\x01\x00\x00\x00\x00" + mean
    more = b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00" + coded
    tables = table(0x00, {1: 0}) + table(0x10, {1: 0xE0, 2: 0x00})
    return start + frame + tables + first + more * count + b"\xff\xd9"


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *, before: bytes = b"", interlaced: bool = False) -> bytes:
    """A grey PNG of zeros, with further chunks before its pixels."""
    # Each row starts with a byte for its filter; interlaced there are almost twice as many rows.
    coder, left = zlib.compressobj(9), height * (2 + width)
    data = b""
    while left > 0:
        data += coder.compress(bytes(min(left, 2**20)))
        left -= 2**20
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + before + chunk(b"IDAT", data + coder.flush()) + chunk(b"IEND")


def markers() -> bytes:
    """A JPEG of 16 MB of empty application markers: each costs a step of Python before the picture is known."""
    return b"\xff\xd8" + b"\xff\xe1\x00\x02" * 4_000_000 + scans(64, 64, 1)[2:]


def comments() -> bytes:
    """A GIF of 16 MB of comments of one letter."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("P", (8, 8)).save(buffer, "GIF")
    data = buffer.getvalue()
    at = 13 + 3 * 2 ** (1 + (data[10] & 7)) if data[10] & 128 else 13
    return data[:at] + b"\x21\xfe\x01x\x00" * 3_300_000 + data[at:]


def strips(width: int = 50, height: int = 400_000) -> bytes:
    """A TIFF of a strip a row, which all are the same megabyte of PackBits: it says nothing, until the row comes."""
    packed = b"\x80" * 10**6 + b"\x81\x00" * (width // 128 + 1)
    tags = [(256, 4, [width]), (257, 4, [height]), (258, 3, [8]), (259, 3, [32_773]), (262, 3, [1])]
    tags += [(273, 4, [8] * height), (277, 3, [1]), (278, 4, [1]), (279, 4, [len(packed)] * height)]
    table, more, where = b"", b"", 8 + len(packed)
    after = where + 2 + 12 * len(tags) + 4
    for tag, kind, values in tags:
        raw = b"".join(struct.pack("<I" if kind == 4 else "<H", value) for value in values)
        if len(raw) > 4:
            table += struct.pack("<HHII", tag, kind, len(values), after + len(more))
            more += raw
        else:
            table += struct.pack("<HHI", tag, kind, len(values)) + raw.ljust(4, b"\x00")
    return b"II*\x00" + struct.pack("<I", where) + packed + struct.pack("<H", len(tags)) + table + bytes(4) + more


def animation(form: str, side: int = 400, frames: int = 20) -> bytes:
    """An animation of many frames."""
    from PIL import Image

    buffer, noise = io.BytesIO(), np.random.default_rng(0)
    pictures = [Image.fromarray(noise.integers(0, 255, (side, side, 3), dtype=np.uint8)) for _ in range(frames)]
    pictures[0].save(buffer, form, save_all=True, append_images=pictures[1:], quality=50)
    return buffer.getvalue()


PICTURES: dict[str, Callable[[], bytes]] = {
    "JPEG of a thousand scans": scans,
    "JPEG of a hundred thousand scans": lambda: scans(count=100_000),
    "JPEG of four million markers": markers,
    "PNG of one pixel's width": lambda: png(1, 49_000_000),
    "PNG of one pixel's height": lambda: png(49_000_000, 1),
    "PNG, interlaced": lambda: png(7000, 7000, interlaced=True),
    "PNG of a million chunks": lambda: png(8, 8, before=chunk(b"teXt") * 1_300_000),
    "GIF of three million comments": comments,
    "TIFF whose strips are one": strips,
    "animation in WebP": lambda: animation("WEBP"),
    "animation in AVIF": lambda: animation("AVIF", 200, 10),
}
"""Name -> a picture that needs much for its size."""


# The clients. Each attacks a port for so many seconds.


def opened(port: int, data: bytes = b"", *, window: int = 0) -> socket.socket:
    """A connection of the attacker that has sent this, as far as it is taken at once."""
    line = socket.socket()
    if window:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    line.bind((ATTACKER, 0))
    line.settimeout(2)
    with contextlib.suppress(OSError):
        line.connect(("127.0.0.1", port))
        line.sendall(data)
    return line


ANSWERS: Counter[str] = Counter()
"""What the attacker is answered: statuses, or errors of its connections."""


def begun() -> None:
    """Tell that all is made that is sent, and that the attack begins."""
    print("begun", flush=True)


def held(port: int, seconds: float, *, count: int, data: bytes, reads: bool = True, window: int = 0) -> None:
    """So many connections that have sent this, and are opened again when they end; `reads`: what is answered."""
    lines: list[socket.socket] = []
    begun()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for line in [*lines]:
            line.setblocking(False)
            try:
                # One that does not read only looks whether there is an end.
                found = line.recv(4096, 0 if reads else socket.MSG_PEEK)
                ended = found == b""
                ANSWERS.update([found[9:12].decode()] if reads and found.startswith(b"HTTP") else [])
            except BlockingIOError:
                ended = False
            except OSError as problem:
                ended = True
                ANSWERS[type(problem).__name__] += 1
            if ended:
                line.close()
                lines.remove(line)
        lines += [opened(port, data, window=window) for _ in range(min(50, count - len(lines)))]
        time.sleep(0.05)
    for line in lines:
        line.close()


def sends(
    port: int, seconds: float, *, clients: int, head: bytes, body: Callable[[], bytes], length: bool | None = True
) -> None:
    """So many clients that send the same request again and again; with a length, without, or without an end of head."""
    data = body()
    between = b"" if length is None else b"Content-Length: %d\r\n\r\n" % len(data) if length else b"\r\n"
    whole = (HOST.join([head, between]) if length is not None else head) + data
    begun()
    until = time.monotonic() + seconds

    def again() -> None:
        while time.monotonic() < until:
            with contextlib.closing(opened(port)) as line:
                line.settimeout(max(0.1, until - time.monotonic()))
                try:
                    # What refuses a head does not read the body.
                    with contextlib.suppress(ConnectionError):
                        line.sendall(whole)
                    answer = line.recv(65_536)
                    ANSWERS[answer[9:12].decode() if answer.startswith(b"HTTP") else "closed"] += 1
                    while line.recv(65_536):
                        pass
                except OSError as problem:
                    ANSWERS[type(problem).__name__] += 1

    threads = [threading.Thread(target=again) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def nothing(port: int, seconds: float) -> None:
    """No attack."""
    begun()
    time.sleep(seconds)


def get(path: str, **parameters: object) -> bytes:
    """The start of a GET."""
    return f"GET {path}?{urlencode(parameters, doseq=True)} HTTP/1.1\r\nConnection: close\r\n".encode()


def unknown_words() -> str:
    """Words that no text has."""
    letters = random.Random(1)
    return " ".join("".join(letters.choices("bcdfghjklmnpqrstvwxz", k=8)) for _ in range(110))


def unknown_values() -> list[str]:
    """Conditions with many values that no item has."""
    letters = random.Random(2)
    values = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz ", k=40)) for _ in range(30)]
    return [json.dumps({"field": "title", "test": "!=", "value": values})] * 8


def keys(start: bytes = b'{"q":"x","ids":["a"]', count: int = 2_000_000) -> bytes:
    """JSON of so many keys that nobody asked for."""
    return start + b"".join(b',"%x":1' % number for number in range(count)) + b"}"


def lists(start: bytes = b'{"q":"x","ids":[[]', count: int = 6_600_000) -> bytes:
    """JSON of so many empty lists."""
    return start + b",[]" * count + b"]}"


JSON, IMAGE = b"Content-Type: application/json\r\n", b"Content-Type: image/jpeg\r\n"
POST = b"POST /search HTTP/1.1\r\nConnection: close\r\n"
PIPE = b" HTTP/1.1\r\n" + HOST + b"\r\n"

ATTACKS: dict[str, Callable[[int, float], None]] = {
    "nothing": nothing,
    "JSON of two million keys": partial(sends, clients=2, head=b"POST /score HTTP/1.1\r\n" + JSON, body=keys),
    "JSON of six million lists": partial(sends, clients=2, head=b"POST /score HTTP/1.1\r\n" + JSON, body=lists),
    "JSON for an image": partial(sends, clients=2, head=POST + JSON, body=keys),
    "JSON for a route that takes none": partial(sends, clients=2, head=b"GET /items HTTP/1.1\r\n" + JSON, body=keys),
    "JSON for /delete": partial(
        sends, clients=2, head=b"POST /delete HTTP/1.1\r\n" + JSON, body=partial(lists, b'{"ids":[[]')
    ),
    "never read /metrics": partial(held, count=110, data=(b"GET /metrics" + PIPE) * 60, reads=False, window=2304),
    "never read the page": partial(held, count=110, data=(b"GET /page/app.js" + PIPE) * 20, reads=False, window=2304),
    "never read answers": partial(
        held, count=110, data=(b"GET /items?top=200" + PIPE) * 20, reads=False, window=2304
    ),
    "never read, 600 connections": partial(held, count=600, data=b"GET /page/app.js" + PIPE, reads=False, window=2304),
    "pipelines of 9,000 requests": partial(held, count=60, data=(b"GET /" + PIPE) * 9000),
    "chunks of one byte": partial(
        sends, clients=8, head=POST + IMAGE + b"Transfer-Encoding: chunked\r\n", length=False,
        body=lambda: b"1\r\nx\r\n" * 10**6 + b"0\r\n\r\n",
    ),
    "slow bodies": partial(held, count=120, data=POST + IMAGE + HOST + b"Content-Length: 1000\r\n\r\nx"),
    "slow bodies for /healthz": partial(
        held, count=120, data=b"POST /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\nx"
    ),
    "slow bodies of 600 connections": partial(
        held, count=600, data=POST + IMAGE + HOST + b"Content-Length: 1000\r\n\r\nx"
    ),
    "bodies that lack a byte": partial(
        held, count=120, data=POST + IMAGE + HOST + b"Content-Length: 2000001\r\n\r\n" + bytes(2 * 10**6)
    ),
    "slow heads of 600 connections": partial(held, count=600, data=b"GET /search?q=x HTTP/1.1\r\n" + HOST),
    "heads of 5,000 lines": partial(
        sends, clients=8, head=b"GET /healthz HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(5000)),
        body=bytes,
    ),
    "heads without end": partial(
        sends, clients=8, head=b"GET /healthz HTTP/1.1\r\nX: ", body=lambda: b"x" * 10**8, length=None
    ),
    "queries of unknown words": partial(
        sends, clients=24, head=get("/search", q=unknown_words()), body=bytes
    ),
    "filters of unknown values": partial(
        sends, clients=8, head=get("/search", q="x", where=unknown_values()), body=bytes
    ),
    **{
        f"{name}": partial(sends, clients=2, head=POST + b"Content-Type: image/png\r\n", body=picture)
        for name, picture in PICTURES.items()
    },
}  # fmt: skip
"""Name -> client."""


@dataclass
class Waits:
    """What another client saw of a path: its waits in seconds, and how many answers were of which status."""

    path: str
    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)


def watched(port: int, waits: Waits, until: float, token: str) -> None:
    """Ask ten times a second, on a new connection each time; the words differ each time."""
    number = 0
    while time.monotonic() < until:
        number += 1
        started = time.monotonic()
        path = waits.path.format(word(31 * (number % 500)) + "+" + word(31 * (number * 7 % 500)))
        try:
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(OTHER, 0))
            with contextlib.closing(line):
                line.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
                answer = line.getresponse()
                answer.read()
                waits.statuses[str(answer.status)] += 1
        except (OSError, http.client.HTTPException) as problem:
            waits.statuses[type(problem).__name__] += 1
        waits.seconds.append(time.monotonic() - started)
        time.sleep(max(0.0, 0.1 - waits.seconds[-1]))


def family(number: int) -> Iterator[int]:
    """A process and its descendants."""
    yield number
    # A child is listed with the thread that started it.
    for children in Path(f"/proc/{number}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text(encoding="ascii").split():
                yield from family(int(child))


def resident(number: int) -> float:
    """Megabytes of a process and its descendants now."""
    pages = 0
    for one in family(number):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{one}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[int]:
    """A server that answers; its number."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as line:
                line.sendall(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")
                if b" 200 " in line.recv(100):
                    break
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("the server does not start")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measured(command: list[str], port: int, name: str, seconds: float, token: str) -> dict[str, Any]:
    """What another client sees of a new server under an attack."""
    with serving(command, port) as number:
        waits = [Waits("/healthz"), Waits("/search?q={}&top=5")]
        # The first answer loads what every answer needs.
        watched(port, Waits(waits[1].path), time.monotonic() + 0.5, token)
        resting = most = resident(number)
        words = [sys.executable, "-m", "benchmarks.attacks", "--client", name, str(port), str(seconds + 1)]
        attack = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert attack.stdout is not None
        attack.stdout.readline()
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=watched, args=(port, wait, until, token)) for wait in waits]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, resident(number))
            time.sleep(0.05)
        try:
            answers = json.loads(attack.communicate(timeout=60)[0])
        except (subprocess.TimeoutExpired, ValueError):
            attack.kill()
            attack.wait()
            answers = {}
        time.sleep(1)
        left = resident(number)
    return {
        "attack": name,
        **{
            wait.path.split("?")[0]: {"longest_s": round(max(wait.seconds), 2), "statuses": dict(wait.statuses)}
            for wait in waits
        },
        "resting_mb": round(resting), "most_mb": round(most), "after_mb": round(left), "attacker": answers,
    }  # fmt: skip


def main() -> None:
    """Attack and print."""
    parser = argparse.ArgumentParser(description="the server under clients that attack it")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each attack")
    parser.add_argument("--only", action="append", default=[], help="attacks with this in their name; repeatable")
    parser.add_argument("--token", action="store_true", help="the server needs a token that the attacker has not")
    parser.add_argument("--port", type=int, default=8766)
    parser.add_argument("--command", help="another server: its command line with {index} and {port}")
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        name, port, seconds = given.client
        ATTACKS[name](int(port), float(seconds))
        print(json.dumps(ANSWERS))
        return
    chosen = [name for name in ATTACKS if not given.only or any(part in name for part in given.only)]
    token = TOKEN if given.token else ""
    with tempfile.TemporaryDirectory() as place:
        index = made(Path(place))
        command = [sys.executable, "-c", SERVE, str(index), str(given.port), token]
        if given.command:
            command = [part.format(index=index, port=given.port) for part in shlex.split(given.command)]
        if not given.json:
            print(
                f"{'':34}{'/healthz':>10}{'/search':>10}{'refused':>9}{'memory (at rest)':>20}  answers to the attacker"
            )
        for name in chosen:
            found = measured(command, given.port, name, given.seconds, token)
            if given.json:
                print(json.dumps(found), flush=True)
                continue
            health, search = found["/healthz"], found["/search"]
            refused = sum(n for one in (health, search) for status, n in one["statuses"].items() if status != "200")
            asked = sum(n for one in (health, search) for n in one["statuses"].values())
            print(
                f"{name:34}{health['longest_s']:>8.2f} s{search['longest_s']:>8.2f} s{refused:>5}/{asked:<4}"
                f"{found['most_mb']:>8} MB ({found['resting_mb']})  {found['attacker']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
