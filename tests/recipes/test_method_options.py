"""Options of a method: named as they stand in --with, and found from everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import made_data
import pytest
from command import call

TRAIN = ["--embed-dim", 8, "--word-dim", 8, "--batch-size", 16, "--workers", 0, "--device", "cpu", "-q"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with data, features and a graph called near."""
    data, _ = made_data.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    call("neighbours", "build", "near", "--data", data, "--space", "lsa", "--dim", 4, "--neighbours", 3, "-q")
    return tmp_path


def refused(here: Path, host: str, *words: object) -> str:
    data = ["--data", here / "pairs.jsonl", "--features", here / "features.npz", "--out", here / "run"]
    return call("train", host, *data, *TRAIN, "--epochs", 1, *words, code=1).output


@pytest.mark.parametrize(
    ("words", "told", "wrong"),
    [
        (["vse", "--with", "amrani"], "amrani needs features=FILE", "--features"),
        (["vse", "--with", "neighbourhoods"], "image_weight=0 and text_weight=0", "--image"),
        (["pvse", "--views", 2, "--with", "discrepancy:graph=near,second_order=unique"], "views=mean", "--views"),
        (["pvse", "--views", 1, "--with", "discrepancy:graph=near,views=mean"], "leave views out", "--views"),
        (["pvse", "--views", 2, "--with", "discrepancy:graph=near,views=mean,samples=5"], "views=max", "--views"),
        (
            ["vse", "--with", "diversity:graph=near,total_weight=0"],
            "--with diversity: Neighbourhood needs a total above 0",
            "0 or more",
        ),
        (["vse", "--with", "diversity:graph=near,total_weight=-3"], "a total above 0; it got -3", "0 or more"),
    ],
)
def test_method_options_are_named_as_typed(here: Path, words: list[object], told: str, wrong: str) -> None:
    found = refused(here, str(words[0]), *words[1:])
    assert told in found and wrong not in found


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("hal", "a bank need pairs, a text for each image"),
        ("discrepancy:graph=near,use_current=yes", "weights from present embeddings need pairs"),
    ],
)
def test_method_that_reads_pairs_raises_before_first_epoch(here: Path, method: str, said: str) -> None:
    found = refused(here, "dual", "--with", method)
    assert said in found and "--caption-sampling is together; change it" in found and not (here / "run").exists()
    call("train", "dual", "--data", here / "pairs.jsonl", "--features", here / "features.npz", "--out", here / "run",
         *TRAIN, "--epochs", 2, "--with", method, "--caption-sampling", "all")  # fmt: skip


def test_relative_graph_path_is_found_from_elsewhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = ["train", "vse", "--data", here / "pairs.jsonl", "--features", here / "features.npz", *TRAIN]
    weighted = [*train, "--epochs", 2, "--out", here / "weighted", "--with"]
    call(*weighted, "diversity:graph=near,first_epoch=encode")
    call(*train, "--epochs", 2, "--out", here / "plain")
    record = here / "weighted" / "run.json"
    told = json.loads(record.read_text())
    assert told["methods"][0][1]["graph"] == str(here / "near")
    (here / "other").mkdir()
    monkeypatch.chdir(here / "other")
    call("weights", "gain", "../weighted=../plain", "-q")
    monkeypatch.chdir(here)
    call(*weighted, "diversity:graph=near,first_epoch=encode", "--resume")
