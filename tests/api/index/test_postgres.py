"""The commands on an index in PostgreSQL, by its address: the same verbs and answers as on a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import coloured_images
import database
import pytest
from command import call
from database import Server, started

from subtext.retrieval.stores.postgres import Database


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = coloured_images.runs(tmp_path_factory.mktemp("runs"), "run", "other")
    call("index", "build", folder / "index", "--run", folder / "run", "--data", folder / "data", "--quiet")
    return folder


@pytest.fixture
def place(server: Server, runs: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an index of a copy of the data, and that copy."""
    shutil.copytree(runs / "data", tmp_path / "data")
    address = server.address("library")
    told = call("index", "build", address, "--run", runs / "run", "--data", tmp_path / "data", "--quiet").stdout
    assert "12 images and 24 texts, vectors of 16" in told and "s3cret" not in told
    yield address, tmp_path / "data"
    Database(address).remove()


def ids(address: str, *more: object) -> list[str]:
    answer = json.loads(call("search", address, "a square", "--json", "--top", 50, *more).stdout)
    assert "s3cret" not in json.dumps(answer) and answer["index"].startswith("postgresql://postgres@")
    return [hit["id"] for hit in answer["hits"]]


def test_info_describes_index(place: tuple[str, Path]) -> None:
    told = call("index", "info", place[0]).stdout
    for wanted in ("images: no; texts: no", "language, place, split", "pgvector", "PostgreSQL", "library"):
        assert wanted in told
    found = json.loads(call("index", "info", place[0], "--json").stdout)
    assert found["counts"] == {"images": 12, "texts": 24} and found["advice"] == [] and found["bytes"] > 0
    assert found["jobs"][0]["finished"] is not None
    assert "s3cret" not in told + json.dumps(found)


def test_verify_reports_damage(place: tuple[str, Path]) -> None:
    with Database(place[0]).writing("test") as writer:
        writer.tables.run("DELETE FROM items WHERE id = 'pink' AND side = 0")
    answer = call("index", "verify", place[0], code=1).stdout
    assert "items: has 11 of 12 images" in answer and "s3cret" not in answer
    assert json.loads(call("index", "verify", place[0], "--json", code=1).stdout)["intact"] is False


def test_backup_and_restore_refer_to_database_tools(place: tuple[str, Path], runs: Path, tmp_path: Path) -> None:
    assert "pg_dump --format=custom" in call("index", "backup", place[0], tmp_path / "copy", code=1).stderr
    assert "pg_restore" in call("index", "restore", runs / "index", place[0], code=1).stderr
    told = call("index", "info", place[0].replace("library", "nowhere"), code=1).stderr
    assert "needs to be an index that `subtext index build` made" in told and database.PASSWORD not in told
