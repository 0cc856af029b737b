"""Saved lists over HTTP, and the links that a server prints."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import served_index
from command import call

import subtext
from subtext.server.serve import address_lines
from subtext.server.settings import Settings

WRITES = {"headers": served_index.WRITES}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    served_index.made(folder, "library")
    return folder


@pytest.fixture
def fresh(place: Path, tmp_path: Path) -> Path:
    call("index", "restore", place / "library", tmp_path / "library")
    return tmp_path / "library"


def test_a_list_is_saved_read_changed_and_deleted(fresh: Path) -> None:
    new = {"name": "Ausstellung", "ids": ["red", "blue"], "query": "a red square", "judged": {"like": ["pink"]}}
    with served_index.client(fresh) as client:
        made = client.post("/lists", json=new, **WRITES)
        assert made.status_code == 201
        link = made.json()["link"]
        assert client.get("/lists").json()["lists"] == [
            {
                "name": "Ausstellung",
                "link": link,
                "items": 2,
                "query": "a red square",
                "created": made.json()["created"],
            }
        ]
        found = client.get(f"/lists/{link}").json()
        assert found == made.json() and found["ids"] == ["red", "blue"]
        assert found["judged"] == {"like": ["pink"], "not_like": []}
        page = {item["id"]: item for item in client.get("/items", params={"top": 50}).json()["items"]}
        assert found["items"] == [page["red"], page["blue"]]
        changed = client.put(f"/lists/{link}", json={"ids": ["cyan", "red"]}, **WRITES).json()
        assert (changed["ids"], changed["name"], changed["judged"]["like"]) == (
            ["cyan", "red"],
            "Ausstellung",
            ["pink"],
        )
        assert client.put(f"/lists/{link}", json={"name": "new"}, **WRITES).json()["ids"] == ["cyan", "red"]
        assert client.post("/delete", json={"ids": ["cyan", "pink"]}, **WRITES).status_code == 200
        assert client.get(f"/lists/{link}").json()["ids"] == ["red"]
        assert subtext.verify_index(fresh).intact
        assert client.delete(f"/lists/{link}", **WRITES).json()["name"] == "new"
        assert client.get("/lists").json()["lists"] == []
        for method in ("get", "put", "delete"):
            options = {"json": {"name": "x"}} if method == "put" else {}
            answer = client.request(method, f"/lists/{link}", **options, **(WRITES if method != "get" else {}))
            assert answer.status_code == 404 and "no such list" in answer.json()["error"]


def test_a_list_needs_the_token_for_changes_and_only_reading_to_be_seen(fresh: Path) -> None:
    new = {"name": "a", "ids": ["red"]}
    with served_index.client(fresh, read_token=served_index.READ_TOKEN) as client:
        reads = {"headers": {"Authorization": f"Bearer {served_index.READ_TOKEN}"}}
        link = client.post("/lists", json=new, **WRITES).json()["link"]
        for path in ("/lists", f"/lists/{link}"):
            assert client.get(path).status_code == 401
            assert client.get(path, **reads).status_code == 200
        assert client.post("/lists", json=new, **reads).status_code == 401
        assert client.put(f"/lists/{link}", json={"name": "b"}, **reads).status_code == 401
        assert client.delete(f"/lists/{link}", **reads).status_code == 401
    with served_index.client(fresh, token="") as client:
        assert client.get(f"/lists/{link}").json()["name"] == "a"
        refused = client.post("/lists", json=new)
        assert refused.status_code == 403 and "--token-file" in refused.json()["error"]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"name": "a", "ids": ["gone"]}, 404, "not in this library"),
        ({"name": "a", "ids": ["red"], "judged": {"like": ["gone"]}}, 404, "not in this library"),
        ({"name": " ", "ids": ["red"]}, 422, "'name'"),
        ({"name": "a\nb", "ids": ["red"]}, 422, "'name'"),
        ({"ids": ["red"]}, 422, "'name' is missing"),
        ({"name": "a", "ids": ["red"], "more": 1}, 422, "'more' is not accepted"),
        ({"name": "a", "ids": "red"}, 422, "'ids' needs a list"),
    ],
)
def test_a_list_that_cannot_be_saved_is_refused(
    place: Path, body: dict[str, object], status: int, sentence: str
) -> None:
    with served_index.client(place / "library") as client:
        answer = client.post("/lists", json=body, **WRITES)
        assert answer.status_code == status and sentence in answer.json()["error"]
        assert client.get("/lists").json()["lists"] == []


def test_a_list_survives_an_update_a_move_and_a_backup(place: Path, fresh: Path, tmp_path: Path) -> None:
    with served_index.client(fresh) as client:
        link = client.post("/lists", json={"name": "a", "ids": ["red", "blue"]}, **WRITES).json()["link"]
    call("index", "backup", fresh, tmp_path / "backup")
    call("index", "update", fresh, "-q")
    served_index.coloured_images.run(place / "data", tmp_path / "run-next", seed=7)
    call("index", "move", fresh, "--run", tmp_path / "run-next", "--even-if-worse", "-q")
    for index in (fresh, tmp_path / "backup"):
        with served_index.client(index) as client:
            assert client.get(f"/lists/{link}").json()["ids"] == ["red", "blue"]
    # The store of the former model lies there until the index is compacted.
    call("index", "delete", fresh, "red")
    said = [file.read_text() for file in fresh.rglob("lists.json")]
    assert len(said) == 2 and not any("red" in text for text in said)


def test_a_list_follows_an_image_that_got_another_name(tmp_path: Path) -> None:
    data = served_index.coloured_images.write(tmp_path / "data")
    served_index.coloured_images.run(data, tmp_path / "run")
    call(
        "index",
        "build",
        tmp_path / "index",
        "--run",
        tmp_path / "run",
        "--split",
        "all",
        "--text-encoder",
        "none",
        "-q",
    )
    with served_index.client(tmp_path / "index") as client:
        link = client.post("/lists", json={"name": "a", "ids": ["red", "blue"]}, **WRITES).json()["link"]
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    rows[0]["id"] = "crimson"
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call("index", "update", tmp_path / "index", "-q")
    with served_index.client(tmp_path / "index") as client:
        assert client.get(f"/lists/{link}").json()["ids"] == ["crimson", "blue"]


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, "http://localhost:8000/"),
        ({"host": "::1", "port": 81}, "http://localhost:81/"),
        ({"host": "0.0.0.0"}, f"http://{socket.gethostname()}:8000/"),
        ({"host": "::"}, f"http://{socket.gethostname()}:8000/"),
        ({"host": "0.0.0.0", "allowed_hosts": ("search.museum.example",)}, "http://search.museum.example:8000/"),
        ({"host": "fe80::1"}, "http://[fe80::1]:8000/"),
    ],
)
def test_serve_prints_an_address_that_opens(settings: dict[str, object], address: str) -> None:
    line, *more = address_lines(Settings(("index",), **settings)).splitlines()  # type: ignore[arg-type]
    assert line.split()[0] == address and not more


def test_a_token_is_named_in_the_fragment_of_a_link_alone(fresh: Path) -> None:
    token = "Ein geheimes Wort/+&#1"
    settings = Settings(("index",), token=token, read_token="another secret 123")
    _, change, read = address_lines(settings).splitlines()
    assert change.startswith("http://localhost:8000/#token=Ein%20geheimes%20Wort/%2B%26%231 ")
    assert read.startswith("http://localhost:8000/#token=another%20secret%20123 ")
    with served_index.client(fresh) as client:
        for path in ("/", "/page/app.js", "/lists", "/search?q=red"):
            assert client.get(path).headers["referrer-policy"] == "no-referrer"
        # As a parameter it opens nothing, and the log does not keep it.
        made = client.post("/lists", params={"token": served_index.TOKEN}, json={"name": "a", "ids": ["red"]})
        assert made.status_code == 401
        client.get("/lists", params={"token": served_index.TOKEN}, **WRITES)
    logs = "".join(file.read_text() for file in (fresh / "logs").glob("*.jsonl"))
    assert "/lists" in logs and served_index.TOKEN not in logs
