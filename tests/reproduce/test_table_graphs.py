"""Graphs and places that the rows of a table share: those that are given, and those that are built once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
from command import call

from reproduce.tables import material
from reproduce.tables.config import DataPaths, TableConfig, read_graph
from reproduce.tables.specification import Column, PublishedTable, Row, Shared, System, tables
from reproduce.tables.trainings import training
from subtext.errors import DataError, RequirementError
from subtext.graphs.graph import Graph
from subtext.graphs.spaces import LsaSpace

SMALL = ("embed_dim=16", "word_dim=8", "batch_size=16", "lr=0.005")
FIGURES = ("image_preservation", "text_preservation", "diversity_mean", "discrepancy_deviation")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    made_data.write(folder)
    return folder


@pytest.fixture(scope="module")
def graphs(made: Path) -> tuple[Path, Path]:
    """Two graphs of the same name, of other neighbours in another space."""
    found = (made / "a" / "graph", made / "b" / "graph")
    for place, width, neighbours in zip(found, (5, 3), (4, 3), strict=True):
        built = ("--data", made / "pairs.jsonl", "--space", "lsa", "--dim", width, "--neighbours", neighbours)
        call("neighbours", "build", place, *built, "--split", "train", "-q")
    return found


def words(made: Path, out: Path, rows: str, *more: object, name: str = "cvprw2022_table2") -> list[object]:
    changes = [word for change in SMALL for word in ("--set", change)]
    data = ["--data", f"mine={made / 'pairs.jsonl'}", "--features", f"mine={made / 'features.npz'}"]
    quick = ["--rows", rows, "--epochs", 1, "--c", 3, "--workers", 0, "--device", "cpu", "-q"]
    return ["table", name, *data, *quick, *changes, "--out", out, *more]


def told(out: Path, name: str = "cvprw2022_table2") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    return found


def kept(monkeypatch: Any) -> None:
    """A table of what rows keep of neighbourhoods, in the place of one of the papers'."""
    rows = tuple(Row(key, key, System("pvse", {"word_dim": 8, "views": views}), (None,) * 4) for key, views in
                 (("one", 1), ("two", 2)))  # fmt: skip
    columns = tuple(Column("coco", figure) for figure in FIGURES)
    table = PublishedTable("t", "p", columns, rows, tables()["cvprw2022_table2"].plan, {}, ())
    monkeypatch.setitem(tables(), "eccv2020_table3", table)


@pytest.mark.slow
def test_row_is_trained_with_each_given_graph(made: Path, graphs: tuple[Path, Path], tmp_path: Path) -> None:
    for count, graph in enumerate(graphs, start=1):
        call(*words(made, tmp_path, "pvse,thomas", "--seeds", 1, "--graph", f"mine={graph}"))
        assert len(list(tmp_path.glob("runs/mine/pvse+neighbourhoods-*"))) == count
        found, there = told(tmp_path), Graph.load(graph)
        told_of = found["data"]["mine"]["graph"]
        assert told_of["fingerprint"].startswith(there.fingerprint) and told_of["given"] == str(graph.resolve())
        assert told_of["neighbours"] == there.width and told_of["space"] == dict(there.space)
        assert "space" not in found["protocol"] and "neighbours" not in found["protocol"]
        assert any(f"({there.width} per text, by cosine in lsa; " in note for note in found["notes"])
        (run,) = (Path(each) for each in found["runs"]["thomas/mine"])
        method = json.loads((tmp_path / run / "run.json").read_text())["methods"][0][1]
        assert method["pool_size"] == there.width and method["graph"] == str(graph.resolve())
    # A row that reads no graph is one and the same.
    assert len(list(tmp_path.glob("runs/mine/pvse-*"))) == 1
    assert not (tmp_path / "shared").exists() or not list(tmp_path.glob("shared/mine/text_graph-*"))


def test_preservation_uses_given_graph(made: Path, graphs: tuple[Path, Path], tmp_path: Path, monkeypatch: Any) -> None:
    """In its space and with as many neighbours, where the row itself learnt from none."""
    kept(monkeypatch)
    values = []
    for graph in graphs:
        call(*words(made, tmp_path, "one", "--seeds", 1, "--graph", f"mine={graph}", name="eccv2020_table3"))
        values.append(told(tmp_path, "eccv2020_table3")["rows"][0]["cells"])
    built = [Graph.load(folder) for folder in tmp_path.glob("shared/mine/scored_graph-*")]
    assert sorted((each.width, each.space["width"], each.space["name"]) for each in built) == [
        (3, 3, "lsa"),
        (4, 5, "lsa"),
    ]
    assert all(values[0][head]["mean"] != values[1][head]["mean"] for head in values[0] if head.startswith("mine"))
    assert len(list((tmp_path / "runs" / "mine").iterdir())) == 1


def test_scored_texts_are_embedded_once(made: Path, tmp_path: Path, monkeypatch: Any) -> None:
    kept(monkeypatch)
    built = []
    real = material.build_graph

    def counted(pairs: Any, *arguments: Any, **options: Any) -> Graph:
        built.append(len(pairs.texts))
        return real(pairs, *arguments, **options)

    monkeypatch.setattr(material, "build_graph", counted)
    asked = ("--seeds", 2, "--space", "lsa", "--neighbours", 4)
    call(*words(made, tmp_path, "one,two", *asked, name="eccv2020_table3"))
    assert sorted(built) == [8, 80], "of two rows with two seeds: the graph of scored texts, and that of training"
    cells = {row["row"]: row["cells"] for row in told(tmp_path, "eccv2020_table3")["rows"]}
    assert all(len(cells[key]["mine I"]["seeds"]) == 2 for key in ("one", "two"))


def test_amrani_uses_text_space_of_graph(made: Path, tmp_path: Path) -> None:
    call(*words(made, tmp_path, "amrani", "--seeds", 1, "--space", "lsa", "--neighbours", 4))
    run = json.loads(next(tmp_path.glob("runs/mine/*/*/run.json")).read_text())
    place = Path(run["methods"][0][1]["text_features"])
    assert place.parent == tmp_path / "shared" / "mine" and place.name.startswith("text_places-")
    with np.load(place) as file:
        assert len(file["names"]) == 80 and np.allclose(np.linalg.norm(file["pooled"], axis=1), 1, atol=1e-5)
    assert any(note.startswith("AMRANI's densities") for note in told(tmp_path)["notes"])


def test_other_space_gives_another_run_folder(made: Path, graphs: tuple[Path, Path]) -> None:
    table = tables()["cvprw2022_table2"]
    sources = DataPaths(data=made / "pairs.jsonl", features=made / "features.npz")

    def folder(**more: Any) -> Path:
        asked = TableConfig(name="t", table=table, rows=table.rows, out=Path("out"), data={"mine": sources}, **more)
        return training(asked, next(row for row in table.rows if row.key == "amrani"), "mine", seed=0).folder

    given = [{"mine": graph} for graph in graphs]
    found = {folder(), folder(space="lsa"), folder(min_count=1), *(folder(graphs=each) for each in given)}
    assert len(found) == 5


def test_names_without_given_graph_are_unchanged() -> None:
    """A graph that is not given is no part of a run's name, nor of a graph's."""
    table = tables()["cvprw2022_table2"]
    sources = DataPaths(data=Path("/data/p.jsonl"), features=Path("/data/f.npz"))
    asked = TableConfig(name="t", table=table, rows=table.rows, out=Path("/o"), data={"coco": sources})
    row = next(each for each in table.rows if each.key == "diversity")
    assert training(asked, row, "coco", seed=0).folder == Path(
        "/o/runs/coco/pvse+diversity-943b02aca1/seed0-rate0.0001"
    )
    without = TableConfig(
        name="t", table=table, rows=(), out=Path("/o"), data={"coco": DataPaths(data=Path("/data/p.jsonl"))}
    )
    assert without.graph("coco", Shared.TEXT_GRAPH) == Path("/o/shared/coco/text_graph-7896b1108f")
    assert without.graph("coco", Shared.IMAGE_GRAPH) == Path("/o/shared/coco/image_graph-47b0cf45e4")


def test_invalid_graph_raises_before_training(made: Path, tmp_path: Path) -> None:
    asked = words(made, tmp_path, "thomas", "--seeds", 1, "--graph", f"mine={tmp_path / 'none'}")
    answer = call(*asked, code=1)
    assert "--graph needs a folder that `subtext neighbours build` wrote" in answer.output + answer.stderr
    assert not (tmp_path / "runs").exists() and not (tmp_path / "none").exists()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "graph.json").write_text('{"kind": "something"}')
    with pytest.raises(DataError, match="it is of another kind"):
        read_graph(tmp_path / "odd")


def test_unreproducible_space_must_be_named(graphs: tuple[Path, Path]) -> None:
    from dataclasses import replace

    given = read_graph(graphs[0])
    assert given.text_space(lambda: LsaSpace(), "cpu") == LsaSpace(width=5)
    of_file = replace(given, space={"name": "features", "of": "texts", "features": "f"})
    with pytest.raises(RequirementError, match=", features; --space is lsa"):
        of_file.text_space(lambda: LsaSpace(), "cpu")
