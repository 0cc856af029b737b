"""Tables whose papers read two sentences of an article of Politics: whole articles are refused."""

from __future__ import annotations

import json
from pathlib import Path

import made_data
import numpy as np
import pytest
from command import call

from reproduce.tables.material import POLITICS
from reproduce.tables.specification import tables
from subtext.data.read import read
from subtext.data.write import write_dataset

QUICK = ("--epochs", 1, "--seeds", 1, "--split-seed", 0, "--workers", 0, "--device", "cpu", "-q")
SMALL = ("--set", "embed_dim=16", "--set", "word_dim=8", "--set", "batch_size=16", "--rows", "uniform")


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Politics as it is released: whole articles under the release's own names."""
    _, features = made_data.write(tmp_path)
    folder = tmp_path / "politics"
    folder.mkdir()
    with np.load(features) as file:
        names = [str(name) for name in file["names"]]
    lines = [
        {"local_path": name, "content_text": f"Rally {place}. It was loud {place}. They left. Police came."}
        for place, name in enumerate(names)
    ]
    (folder / "politics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def words(release: Path, data: object, *more: object, name: str = "cvprw2022_table3") -> list[object]:
    out, features = release.parent / "tables", release.parent / "features.npz"
    return ["table", name, "--data", data, "--features", f"politics={features}", "--out", out, *QUICK, *SMALL, *more]


@pytest.mark.parametrize("more", [(), ("--plan",)])
def test_unprepared_release_raises(release: Path, more: tuple[str, ...]) -> None:
    for data in (f"politics={release}", release.parent):
        told = call(*words(release, data, *more), code=1)
        assert "needs the first 2 sentences of each article of Politics" in told.output + told.stderr
        assert f"python -m reproduce data prepare {release} --max-sentences 2" in told.output + told.stderr
    assert not (release.parent / "tables").exists()


def test_prepared_articles_are_accepted_and_full_ones_raise(release: Path) -> None:
    whole, cut = release.parent / "whole.jsonl", release.parent / "cut.jsonl"
    write_dataset(read(release, need_images=False), whole)
    refused = call(*words(release, f"politics={whole}"), code=1)
    assert "of 60 texts" in refused.stdout and "60 have more" in refused.stdout
    call("data", "prepare", release, "--max-sentences", 2, "--out", cut)
    found = call(*words(release, f"politics={cut}"))
    assert "60 have more" not in found.stdout and "two sentences of each article" in found.stdout


def test_only_tables_of_their_papers_need_two_sentences() -> None:
    asked = {name for name, table in tables().items() if table.sentences.get(POLITICS) == 2}
    assert asked == {name for name in tables() if name.startswith(("eccv2020", "cvprw2022"))}
