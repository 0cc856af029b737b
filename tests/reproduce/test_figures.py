"""`subtext figure` as a user calls it: figures of runs and files, their numbers beside plain loops, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import made_data
import numpy as np
import pytest
from command import call
from curve_points import curve_points

from reproduce.figures.catalogue import FIGURES, OTHERS
from subtext.data.dataset import Dataset
from subtext.data.read import read
from subtext.evaluation.relevance.graded import graded


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made data, a run that kept both of its epochs, its vectors, and scores of two other systems."""
    folder = tmp_path_factory.mktemp("figures")
    data, features = made_data.write(folder)
    small = ["--embed-dim", 16, "--word-dim", 8, "--batch-size", 16, "--epochs", 2, "--save-every-epochs", 1,
             "--workers", 0, "--min-count", 1, "-q"]  # fmt: skip
    call("train", "vse", "--data", data, "--features", features, "--out", folder / "run", *small)
    call("embed", folder / "run", "--split", "val", "--out", folder / "vectors.npz", "-q")
    pairs = val(folder)
    g = np.random.default_rng(0)
    for name in ("one", "two"):
        scores = g.standard_normal((len(pairs.images), len(pairs.texts))).astype(np.float32)
        scores[pairs.links[:, 0], pairs.links[:, 1]] += 9
        ids = {"image_ids": np.array(pairs.images.ids), "text_ids": np.array(pairs.texts.ids)}
        np.savez(folder / f"{name}.npz", scores=scores, **ids)
    return folder


def val(folder: Path) -> Dataset:
    return read(folder / "pairs.jsonl", need_images=False, verify=False).split("val")


def drawn(name: str, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("figure", name, *words, "--json", "-", "-q").stdout)
    assert found["figure"] == name and found["relevance"] == "tfidf1"
    return found


def asp(scores: np.ndarray, relevance: np.ndarray, top: int) -> float:
    """Mean over rows in per cent, by double argsort among the most relevant, larger first."""
    found = []
    for mine, theirs in zip(scores, relevance, strict=True):
        some = np.argsort(-theirs, kind="stable")[:top]
        some = np.sort(some)
        first, second = (np.argsort(np.argsort(-row[some], kind="stable")) + 1 for row in (mine, theirs))
        found.append(np.mean(np.minimum(first, second) / np.maximum(first, second)))
    return 100 * float(np.mean(found))


def test_list_names_every_figure() -> None:
    said = call("figure", "--list").stdout
    assert all(name in said for name in FIGURES) and "Figure 1b" in said and "2 runs, or files" in said


def test_texts_of_one_image_are_listed_in_order(home: Path, tmp_path: Path) -> None:
    pairs = val(home)
    name = pairs.images.ids[3]
    page = tmp_path / "a.html"
    words = ["--data", home / "pairs.jsonl", "--split", "val", "--item", name, "--count", 6]
    found = drawn("daa2022_fig1a", *words)
    values = graded(pairs).values[3]
    order = sorted(range(len(values)), key=lambda text: -values[text])[:6]
    assert [each["id"] for each in found["listed"]] == [pairs.texts.ids[text] for text in order]
    assert [each["relevance"] for each in found["listed"]] == pytest.approx(values[order].tolist())
    assert [each["own"] for each in found["listed"]] == [pairs.texts.groups[t] == pairs.images.groups[3] for t in order]
    said = call("figure", "daa2022_fig1a", home / "run", "--out", page, "-q").stdout
    assert "most relevant to" in said and str(page) in said
    html = page.read_text()
    assert ">right</span>" in html and "http" not in html.replace("http-equiv", "") and "<script" not in html


def test_pairs_above_thresholds_equal_plain_count(home: Path, tmp_path: Path) -> None:
    pairs = val(home)
    values, own = graded(pairs).values, pairs.images.groups[:, None] == pairs.texts.groups[None]
    found = drawn("daa2022_fig1b", home / "run")
    assert len(found["thresholds"]) == 20 and found["threshold"] == 0.3 and found["all"] == values.size
    for level, count, mine in zip(found["thresholds"], found["pairs"], found["own"], strict=True):
        cells = [(i, t) for i, t in np.ndindex(*values.shape) if values[i, t] > np.float32(level)]
        assert (count, mine) == (len(cells), sum(bool(own[cell]) for cell in cells))
    assert found["texts_a_picture"] == (values > np.float32(0.3)).sum() / len(pairs.images)
    svg = tmp_path / "b.svg"
    said = call("figure", "daa2022_fig1b", home / "run", "--thresholds", "0.2,0.6", "--out", svg, "-q").stdout
    assert f"{(values > np.float32(0.2)).sum():,} of {values.size:,} pairs are above 0.2" in said
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")


@pytest.mark.parametrize("direction", ["text_to_image", "image_to_text"])
def test_two_lists_of_equal_recall(home: Path, tmp_path: Path, direction: str) -> None:
    pairs = val(home)
    words = [
        f"first={home / 'one.npz'}",
        f"second={home / 'two.npz'}",
        "--data",
        home / "pairs.jsonl",
        "--split",
        "val",
    ]
    found = drawn("daa2022_fig1c", *words, "--direction", direction, "--count", 5, "--seed", 1)
    turn = direction == "text_to_image"
    asks, answers = (pairs.texts, pairs.images) if turn else (pairs.images, pairs.texts)
    query = asks.ids.index(found["query"]["id"])
    relevance = graded(pairs).values.T[query] if turn else graded(pairs).values[query]
    assert found["equal_recall"] and found["queries_of_equal_recall"] == len(asks), "both find every partner first"
    for name, told in zip(("one", "two"), found["systems"], strict=True):
        scores = np.load(home / f"{name}.npz")["scores"]
        row = scores[:, query] if turn else scores[query]
        order = np.argsort(-row, kind="stable")[:5]
        assert [each["id"] for each in told["found"]] == [answers.ids[place] for place in order]
        assert [each["relevance"] for each in told["found"]] == pytest.approx(relevance[order].tolist())
        assert told["mean_relevance"] == pytest.approx(relevance[order].mean())
        assert told["found"][0]["right"]
    page = tmp_path / "c.html"
    said = call("figure", "daa2022_fig1c", *words, "--direction", direction, "--out", page, "-q").stdout
    assert "of equal recall" in said
    html = page.read_text()
    assert html.count("<article>") == 2 and "first" in html and "--columns:2" in html


def test_asp_over_n_of_runs_files_and_vectors(home: Path, tmp_path: Path) -> None:
    pairs = val(home)
    relevance = graded(pairs).values
    systems = [f"run={home / 'run'}", f"vectors={home / 'vectors.npz'}", home / "one.npz"]
    found = drawn("daa2022_fig3", *systems, "--tops", "2,5,9")
    scores = np.load(home / "one.npz")["scores"]
    assert [each["name"] for each in found["systems"]] == ["run", "vectors", "one"]
    for direction, mine, theirs in (("image_to_text", scores, relevance), ("text_to_image", scores.T, relevance.T)):
        tops = found[direction]["tops"]
        assert tops == [2, 5, 9, mine.shape[1]]
        assert found["systems"][2][direction] == pytest.approx([asp(mine, theirs, top) for top in tops])
        assert found[direction]["chance"] == pytest.approx([100 * (top + 1) / (2 * top) for top in tops])
        assert found["systems"][0][direction] == pytest.approx(found["systems"][1][direction], abs=1e-4)
        assert all(best <= 100 + 1e-9 for best in found[direction]["best_order"])
    told = json.loads(
        call("evaluate", home / "run", "--relevance", "tfidf1", "--bootstrap", 0, "--json", "-", "-q").stdout
    )
    for direction in ("image_to_text", "text_to_image"):
        assert found["systems"][0][direction][-1] == pytest.approx(told[f"{direction}/asp(tfidf1)"])
        assert found[direction]["best_order"][-1] == pytest.approx(told["ceiling"][f"{direction}/asp(tfidf1)"])
        assert found[direction]["chance"][-1] == pytest.approx(told["chance"][f"{direction}/asp(tfidf1)"])
    page = tmp_path / "asp.html"
    said = call("figure", "daa2022_fig3", *systems, "--out", page, "--json", tmp_path / "asp.json", "-q").stdout
    assert "a random order has about 50" in said and str(page) in said
    assert page.read_text().count('id="curve of ') == 2 * 5
    assert json.loads((tmp_path / "asp.json").read_text())["image_to_text"]["tops"][-1] == len(pairs.texts)


def test_asp_by_epoch_reads_saved_epochs_or_log(home: Path, tmp_path: Path) -> None:
    found = drawn("daa2022_fig4", home / "run")
    (told,) = found["systems"]
    assert told["name"] == "run" and told["epochs"] == [1, 2]
    for place, epoch in enumerate((1, 2)):
        words = ["--relevance", "tfidf1", "--bootstrap", 0, "--json", "-", "-q"]
        alone = json.loads(call("evaluate", home / "run" / "epochs" / str(epoch), *words).stdout)
        for name in ("image_to_text/asp(tfidf1)", "text_to_image/recall@1", "rsum"):
            assert told["figures"][name][place] == pytest.approx(alone[name])
        assert told["chance"]["text_to_image/asp(tfidf1)"] == alone["chance"]["text_to_image/asp(tfidf1)"]
    other = tmp_path / "logged"
    other.mkdir()
    (other / "run.json").write_text((home / "run" / "run.json").read_text())
    measured = {f"{way}/asp(tfidf1)": value for way, value in (("image_to_text", 51.0), ("text_to_image", 52.0))}
    lines = [{"event": "step", "step": 1}, {"event": "epoch", "epoch": 3, "figures": measured}]
    (other / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    both = drawn("daa2022_fig4", f"kept={home / 'run'}", f"log={other}")["systems"]
    assert both[0]["figures"] == told["figures"] and both[1]["epochs"] == [3]
    assert both[1]["figures"]["text_to_image/asp(tfidf1)"] == [52.0]
    svg = tmp_path / "d.svg"
    said = call("figure", "daa2022_fig4", home / "run", other, "--out", svg, "-q").stdout
    assert "from the first epoch measured to the last" in said
    assert len(curve_points(svg.read_text())) == 2 * 4


@pytest.mark.slow
def test_asp_by_epoch_of_a_row_of_a_table(home: Path, tmp_path: Path) -> None:
    """With --save-every-epochs a table's trainings keep their epochs; a finished training without them is refused."""
    changes = [word for option in ("embed_dim=8", "word_dim=8", "batch_size=16") for word in ("--set", option)]
    files = ["--data", f"mine={home / 'pairs.jsonl'}", "--features", f"mine={home / 'features.npz'}", *changes]
    words = ["daa2022_table1", *files, "--rows", "vse", "--seeds", 1, "--epochs", 2, "--workers", 0, "-q"]
    table = tmp_path / "daa2022_table1.json"
    call("table", *words, "--out", tmp_path)
    refused = call("table", *words, "--out", tmp_path, "--save-every-epochs", 1, code=1).stdout
    assert "was finished without them; remove that folder" in refused
    shutil.rmtree(tmp_path / "runs")
    call("table", *words, "--out", tmp_path, "--save-every-epochs", 1)
    found = drawn("daa2022_fig4", f"{table}#vse/mine")
    assert [(each["name"], each["epochs"]) for each in found["systems"]] == [("vse/mine", [1, 2])]
    named = drawn("daa2022_fig4", f"VSE++={table}#vse/mine")
    assert named["systems"][0]["figures"] == found["systems"][0]["figures"] and named["systems"][0]["name"] == "VSE++"
    said = call("figure", "daa2022_fig4", f"{table}#pcme/mine", code=1).output
    assert "daa2022_table1.json has vse/mine" in " ".join(said.split())


def test_figures_of_other_commands_are_listed_with_them() -> None:
    listed = call("figure", "--list").stdout
    for name, other in OTHERS.items():
        assert name in listed and other.command in listed
        assert other.command in " ".join(call("figure", name, code=2).output.split())


def test_invalid_arguments_raise(home: Path, tmp_path: Path) -> None:
    here = ["--data", home / "pairs.jsonl", "--split", "val", "-q"]
    out, one = ["--out", tmp_path / "x.html"], home / "one.npz"
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "run.json").write_text((home / "run" / "run.json").read_text())
    for words, code, sentence in (
        ([], 2, "name a figure"),
        (["daa2022_fig2", *out], 2, "did you mean daa2022_fig"),
        (["daa2022_fig1b", *out, "-q"], 1, "needs a data set"),
        (["daa2022_fig1b", one, *here, *out], 1, "one.npz is a file"),
        (["daa2022_fig1c", one, *here, *out], 1, "needs 2 runs, or files of scores or vectors; it got 1"),
        (["daa2022_fig3", one, one, *here, *out], 1, "needs systems with different names; it got one, one"),
        (["daa2022_fig4", one, *here, *out], 1, "one.npz is a file"),
        (["daa2022_fig4", bare, *out, "-q"], 1, "train with --save-every-epochs 1"),
        (["daa2022_fig1a", *here, "--out", tmp_path / "x.svg"], 1, "is written as .html; it got x.svg"),
        (["daa2022_fig3", one, *here, "--out", tmp_path / "x.png"], 1, "is written as .html or .svg"),
        (["daa2022_fig1a", *here, *out, "--item", "nobody"], 1, "'nobody' is none of them"),
        (["daa2022_fig1a", *here, *out, "--relevance", "bleu"], 1, "it got 'bleu'"),
        (["daa2022_fig1b", *here, *out, "--thresholds", "a"], 2, "needs numbers with commas"),
        (["daa2022_fig1b", *here, *out, "--json", tmp_path / "x.html"], 1, "give two different files"),
        (["daa2022_fig3", tmp_path / "none", *here, *out], 1, "needs to be the folder of a run"),
        (["daa2022_fig3", tmp_path / "none.npz", *here, *out], 1, "it is not there"),
    ):
        said = call("figure", *words, code=code)
        assert sentence in " ".join(said.output.split()), said.output
    assert not (tmp_path / "x.html").exists()


def test_runs_of_other_data_raise(home: Path, tmp_path: Path) -> None:
    made_data.write(tmp_path)
    words = (tmp_path / "pairs.jsonl").read_text()
    (tmp_path / "pairs.jsonl").write_text(words.replace("a red", "one red"))
    record = json.loads((home / "run" / "run.json").read_text())
    other = tmp_path / "other"
    other.mkdir()
    for path in ("model.safetensors",):
        (other / path).write_bytes((home / "run" / path).read_bytes())
    (other / "assets").symlink_to(home / "run" / "assets")
    record["data"]["data"] = str(tmp_path / "pairs.jsonl")
    (other / "run.json").write_text(json.dumps(record))
    said = call("figure", "daa2022_fig3", home / "run", other, "--out", tmp_path / "x.html", "-q", code=1)
    assert "compares on the same pairs" in said.output
