"""`subtext data prepare`, `dedup` and `corrupt`, from a file to a file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import made_data
import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from subtext.cli import main
from subtext.data.noise import read_labels
from subtext.data.read import read


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def done(*words: object) -> str:
    result = run(*words)
    assert result.exit_code == 0, result.output + result.stderr
    return result.output


def refused(*words: object, code: int = 1) -> str:
    result = run(*words)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    rows: list[dict[str, object]] = [
        {"image": f"{n}.jpg", "caption": f"Mr. Lee met guest {n}. It was day {n * n}. They left by train {n}."}
        for n in range(20)
    ]
    rows += [
        {"image": f"b{n}.jpg", "caption": "We use cookies on this site and so do others. Say yes."} for n in range(4)
    ]
    return made_data.write_rows(tmp_path / "articles.jsonl", rows)


def test_prepare_cuts_drops_and_resplits(articles: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "cut.jsonl"
    (tmp_path / "0.jpg").touch()
    told = done("data", "prepare", articles, "--out", out, "--max-sentences", 2, "--longer-than", 54, "--resplit")
    assert "20 images, 20 texts (4 texts and 4 images removed)" in told
    assert f"subtext data check {out} --images {tmp_path}" in told
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[0]["captions"] == ["Mr. Lee met guest 0. It was day 0."]
    assert {row["split"] for row in rows} == {"train", "val", "test"}


def test_prepare_needs_a_change_and_a_new_file(articles: Path, tmp_path: Path) -> None:
    assert "nothing to do" in refused("data", "prepare", articles, "--out", tmp_path / "x.jsonl", code=2)
    assert "the suffix .jsonl or .parquet; it got" in refused(
        "data", "prepare", articles, "--out", tmp_path / "x.csv", "--resplit"
    )
    assert "exists; name another or remove it" in refused("data", "prepare", articles, "--out", articles, "--resplit")


def test_dedup_reports_most_copied_text(articles: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    told = done("data", "dedup", articles, "--out", out, "--quiet")
    assert "21 images, 21 texts (3 texts and 3 images removed)" in told
    assert "3 copies of 'We use cookies on this site and so do others. Say yes.'" in told
    assert len(read(out, need_images=False).texts) == 21


def test_corrupt_by_mismatch(tmp_path: Path) -> None:
    data, _ = made_data.write(tmp_path)
    out, labels = tmp_path / "loose.jsonl", tmp_path / "labels.json"
    told = done(
        "data", "corrupt", data, "--out", out, "--labels", labels, "--noise-type", "mismatch", "--noise-rate", 0.25
    )
    assert "20 of 80 texts of train are corrupted (20 mismatch)" in told
    before, after = (read(path, need_images=False) for path in (data, out))
    kinds = read_labels(labels).of(after)
    changed = np.array([a != b for a, b in zip(before.texts.values, after.texts.values, strict=True)])
    assert before.texts.ids == after.texts.ids
    assert (changed == (kinds == "mismatch")).all() and changed.sum() == 20
    assert set(map(str, after.texts.splits[changed])) == {"train"}


@pytest.mark.parametrize("among", [("--split", "train"), ("--split", "all")])
def test_corrupt_by_neighbours(tmp_path: Path, among: tuple[str, str]) -> None:
    data, _ = made_data.write(tmp_path)
    graph, out, labels = tmp_path / "graph", tmp_path / "loose.jsonl", tmp_path / "labels.json"
    done("neighbours", "build", graph, "--data", data, "--space", "lsa", "--dim", 5, "--neighbours", 12, "-q", *among)
    told = done(
        "data", "corrupt", data, "--out", out, "--labels", labels, "--noise-type", "mixed", "--noise-rate", 0.4,
        "--graph", graph, "--neighbour-ranks", "2-9", "--seed", 3,
    )  # fmt: skip
    assert "(16 mismatch, 16 neighbour)" in told and "distance of exchanged neighbours: median" in told
    settings = json.loads(labels.read_text())["settings"]
    assert settings["ranks"] == [2, 9] and settings["seed"] == 3 and settings["graph"]["space"]["name"] == "lsa"
    read_labels(labels).require(read(out, need_images=False))


def test_corrupt_with_invalid_settings_raises(tmp_path: Path) -> None:
    data, _ = made_data.write(tmp_path)
    graph, out = tmp_path / "graph", ("--out", tmp_path / "o.jsonl")
    labels = ("--labels", tmp_path / "l.json")
    done("neighbours", "build", graph, "--data", data, "--space", "lsa", "--dim", 5, "--neighbours", 12, "-q")
    assert "needs a graph of neighbours (--graph GRAPH)" in refused("data", "corrupt", data, *out, *labels)
    assert "from 1 to 12" in refused(
        "data", "corrupt", data, *out, *labels, "--graph", graph, "--neighbour-ranks", "1-20"
    )
    none = refused("data", "corrupt", data, *out, *labels, "--noise-type", "mismatch", "--noise-rate", 1e-4)
    assert "a noise rate of 0.0001 of " in none and "is none; use a higher rate" in none
    assert "such as 1-20; it got x" in refused("data", "corrupt", data, *out, *labels, "--neighbour-ranks", "x", code=2)
    assert "labels need a file of their own" in refused("data", "corrupt", data, *out, "--labels", tmp_path / "o.jsonl")
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    other = made_data.write_rows(tmp_path / "other.jsonl", [{**row, "captions": ["x", "y z"]} for row in rows])
    assert "built for other data" in refused(
        "data", "corrupt", other, *out, *labels, "--graph", graph, "--neighbour-ranks", "1-9"
    )
    assert not (tmp_path / "o.jsonl").exists() and not (tmp_path / "l.json").exists()


def test_corrupt_keeps_existing_labels(tmp_path: Path) -> None:
    data, _ = made_data.write(tmp_path)
    out, labels = tmp_path / "loose.jsonl", tmp_path / "labels.json"
    labels.write_text("those of another data set")
    asked = ("data", "corrupt", data, "--noise-type", "mismatch", "--labels", labels)
    assert "labels needs a new file" in refused(*asked, "--out", out)
    assert labels.read_text() == "those of another data set" and not out.exists()


def test_corrupt_writes_both_files_or_none(tmp_path: Path) -> None:
    """No pairs without labels, and no labels without pairs: the same command can be given again."""
    data, _ = made_data.write(tmp_path)
    out, labels = tmp_path / "loose.jsonl", tmp_path / "labels.json"
    asked = ("data", "corrupt", data, "--noise-type", "mismatch")
    assert "needs to be written" in refused(*asked, "--out", out, "--labels", data / "labels.json")
    assert not out.exists()
    assert "needs to be written" in refused(*asked, "--out", data / "loose.jsonl", "--labels", labels)
    assert not labels.exists()
    done(*asked, "--out", out, "--labels", labels)


@pytest.mark.slow
def test_detect_noise_separates_mismatched_pairs(tmp_path: Path) -> None:
    data, features = made_data.write(tmp_path)
    out, labels, run_ = tmp_path / "loose.jsonl", tmp_path / "labels.json", tmp_path / "run"
    done("data", "corrupt", data, "--out", out, "--labels", labels, "--noise-type", "mismatch", "--noise-rate", 0.3)
    done(
        "train", "dual", "--data", out, "--features", features, "--out", run_, "--epochs", 15, "--batch-size", 16,
        "--embed-dim", 16, "--min-count", 1, "--workers", 0, "-q",
    )  # fmt: skip
    graph = tmp_path / "graph"
    done("neighbours", "build", graph, "--data", out, "--space", "lsa", "--dim", 5, "--neighbours", 8, "-q")
    told = json.loads(done("data", "detect-noise", run_, "--labels", labels, "--graph", graph, "--json", "-q"))
    assert told["pairs"] == {"literal": 56, "mismatch": 24}
    areas = {name: row["mismatch from literal"] for name, row in told["auc"].items()}
    assert areas["cosine"]["auc"] < 0.35 and areas["triplet loss"]["auc"] > 0.65
    assert areas["cosine"]["interval"][0] < areas["cosine"]["auc"] < areas["cosine"]["interval"][1]
    assert {"words", "diversity, image", "discrepancy, text", "diversity, modalities apart"} <= set(areas)
    assert {"rank weight", "density", "combined 3:1", "combined by statistics"} <= set(areas)
    assert areas["rank weight"]["auc"] > 0.6, "a wrong partner is ranked low"
    assert areas["rank weight"]["interval"][0] < areas["rank weight"]["auc"]
    alone = ("--beta", 0, "--gamma", 1)
    told = json.loads(done("data", "detect-noise", run_, "--labels", labels, "--graph", graph, *alone, "--json", "-q"))
    assert "combined 0:1" in told["auc"]
    assert "--beta needs --graph FOLDER" in refused(
        "data", "detect-noise", run_, "--labels", labels, "--beta", 2, code=2
    )
    assert "56 literal, 24 mismatch" in done("data", "detect-noise", run_, "--labels", labels, "-q")
    assert "the labels need the data set that they were written with" in refused(
        "data", "detect-noise", run_, "--labels", labels, "--data", data, "-q"
    )


def test_suggested_command_names_image_folder(articles: Path, tmp_path: Path) -> None:
    photos, out = tmp_path / "photos", tmp_path / "new" / "own.jsonl"
    told = done("data", "prepare", articles, "--out", out, "--resplit")
    assert f"subtext data check {out} --images FOLDER\nFOLDER is the folder of the images; {tmp_path} has no 0" in told
    photos.mkdir()
    (photos / "3.JPG").touch()
    out.unlink()
    told = done("data", "prepare", articles, "--images", photos, "--out", out, "--resplit")
    assert told.endswith(f"subtext data check {out} --images {photos}\n")


def test_dedup_keeps_images_without_texts(tmp_path: Path) -> None:
    texts = ["We use cookies on this site and so do others."] * 2 + ["A dog runs.", None]
    rows = [{"image": f"{number}.jpg", "captions": [text] if text else []} for number, text in enumerate(texts)]
    out = tmp_path / "out.jsonl"
    told = done("data", "dedup", made_data.write_rows(tmp_path / "list.jsonl", rows), "--out", out, "--quiet")
    assert "3 images, 2 texts (1 text and 1 image removed)" in told
    kept = read(out, need_images=False)
    assert "3.jpg" in kept.images.ids and "2.jpg" in kept.images.ids and len(kept.texts) == 2


def test_dedup_compares_images_that_a_table_names_by_number(tmp_path: Path) -> None:
    folder = tmp_path / "scans" / "box 1"
    folder.mkdir(parents=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(
        folder / "1950-100.png"
    )
    shutil.copy(folder / "1950-100.png", folder / "1950-101.png")
    table = tmp_path / "list.csv"
    table.write_text("Inventarnummer;Titel\n1950/100;Hafen\n1950/101;Noch ein Boot\n", encoding="utf-8")
    told = done("data", "dedup", table, "--images", tmp_path / "scans")
    assert "1 copy among 2 images: 1 exact" in told and "could not be read" not in told
    table.write_text("Inventarnummer;Titel\n1950/100;Hafen\n1950/102;Noch ein Boot\n", encoding="utf-8")
    assert "image '1950/102' is not in" in run("data", "dedup", table, "--images", tmp_path / "scans").output
