"""Every study on a small made data set: it trains, evaluates and prints its tables, and a second call reads them."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from operator import add
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made_data
import numpy as np
import pytest
import scipy.io
from PIL import Image

import subtext as st
from reproduce.studies import common, curated, nonliteral
from reproduce.studies.common import HEAD, NAMES, Cost, gains, line, selection
from reproduce.studies.flickr8k import unseen_table
from subtext.api.train import flat_arguments
from subtext.data.words import tokenise
from subtext.recipes.catalogue import methods, models, read_method, read_options
from subtext.training.plan import Plan

STUDIES = sorted(
    path.stem for path in Path(common.__file__).parent.glob("*.py") if path.stem not in ("__init__", "common")
)
TRAIN, VAL, CELLS, WIDTH = 56, 110, 4, 12
Study = Callable[..., str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What SUBTEXT_DATA points at: made captions and features in the layouts that the studies read."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    flickr, things = folder / "flickr8k", made_data.THINGS
    (flickr / "images").mkdir(parents=True)
    topics = rng.normal(size=(len(things), CELLS, WIDTH))
    rows, cells = [], []
    for number in range(TRAIN + VAL):
        pair = rng.permutation(len(things))[:2]
        first, second = (things[index] for index in pair)
        captions = [
            f"a {first} and a {second} {number}",
            f"the {second} is near the {first}",
            f"{first} with {second} on day {number % 9}",
            f"one {second} beside the {first} in {number % 7} parts",
            f"this {first} has the {second} of {number % 11}",
        ]
        split = "train" if number < TRAIN else "val"
        rows.append({"image": f"photo{number:03d}.jpg", "captions": captions, "split": split})
        cells.append(topics[pair].sum(axis=0) + 0.1 * rng.normal(size=(CELLS, WIDTH)))
    made_data.write_rows(flickr / "captions.jsonl", rows)
    names, grid = np.array([row["image"] for row in rows]), np.array(cells, dtype=np.float32)
    np.savez(flickr / "mobilenet_pooled.npz", names=names, pooled=grid.mean(axis=1))
    np.savez(folder / "grid.npz", names=names, pooled=grid.mean(axis=1), grid=grid)
    for name in names:
        Image.new("RGB", (16, 16), tuple(rng.integers(0, 255, 3).tolist())).save(flickr / "images" / str(name))
    questions = ["a kitchen with a red stove", "pizza on a black plate", "a man in a kitchen", "cake near a boat"]
    (folder / "coco5k_text").mkdir()
    made_data.write_rows(folder / "coco5k_text" / "karpathy_test_5k.jsonl", [{"captions": questions}])
    (folder / "tiny_coco").mkdir()
    made_data.write_rows(folder / "tiny_coco" / "captions.jsonl", [*rows[:12], *rows[TRAIN : TRAIN + 12]])
    (folder / "tiny_coco" / "images").symlink_to(flickr / "images")
    asked = [
        {"query": query, "kind": kind, "images": [f"photo{TRAIN + row:03d}.jpg" for row in range(*rows)]}
        for query, kind, rows in [
            ("zebra", "narrower", (0, VAL)),
            ("a zebra", "broader", (5, VAL)),
            ("ox", "broader", (0, 1)),
        ]
    ]
    (folder / "unseen_words.json").write_text(json.dumps({"queries": asked}))
    write_wikipedia(folder / "wikipedia", rng)
    return folder


def write_wikipedia(folder: Path, rng: np.random.Generator) -> None:
    """Pairs of ten classes as the release has them."""
    folder.mkdir()
    arrays = {}
    for split, suffix, count in (("train", "tr", 230), ("test", "te", 20)):
        classes = rng.integers(1, 11, count)
        lines = [f"{split}-text-{row}\t{split}-image-{row}\t{number}\n" for row, number in enumerate(classes)]
        (folder / f"{split}set_txt_img_cat.list").write_text("".join(lines))
        arrays[f"I_{suffix}"] = rng.random((count, 16)) + np.eye(16)[classes]
        arrays[f"T_{suffix}"] = rng.random((count, 12)) + np.eye(12)[classes]
    scipy.io.savemat(folder / "raw_features.mat", arrays)
    (folder / "categories.list").write_text("\n".join(f"class{number}" for number in range(10)))


@pytest.fixture
def study(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Study:
    """Runs the main function of a study with these words; returns what it prints."""
    monkeypatch.setenv("SUBTEXT_DATA", str(data))

    def in_this_process(function: Callable[..., Any], *arguments: Any) -> tuple[Any, Cost]:
        return function(*arguments), Cost(1.0, 1.0, 1.0)

    def run(name: str, *words: object) -> str:
        module = importlib.import_module(f"reproduce.studies.{name}")
        for changed in (common, module):
            monkeypatch.setattr(changed, "in_new_process", in_this_process, raising=False)
        for setting, value in {"HELD_OUT": 10, "UNSEEN": data / "unseen_words.json"}.items():
            if hasattr(module, setting):
                monkeypatch.setattr(module, setting, value)
        for recipe in getattr(module, "ROWS", {}).values():
            monkeypatch.setitem(recipe.options, "epochs", 6 if name == "ranking" else 2)
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        module.main()
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


def rows_of(text: str, name: str) -> list[list[str]]:
    """The cells of the lines of tables that begin with a name."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return [row for row in cells if row[0] == name]


@pytest.mark.parametrize("name", STUDIES)
def test_help_prints_docstring(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"reproduce.studies.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert module.__doc__.splitlines()[0] in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in ("spread_and_gain",)])
def test_missing_data_raises(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SUBTEXT_DATA", raising=False)
    words = {"agreement": [], "curated": ["--loosened", "o"], "nothing_fits": ["run", "--out", "o"]}
    grid = ["--grid", "g.npz"] if name in ("planted", "regions", "teaching", "weighting_cost") else []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *words.get(name, ["--out", "o"]), *grid])
    with pytest.raises(SystemExit, match="set SUBTEXT_DATA to the folder that holds"):
        importlib.import_module(f"reproduce.studies.{name}").main()


@pytest.mark.parametrize("name", STUDIES)
def test_row_recipes_are_valid(name: str, tmp_path: Path) -> None:
    """Names and values of models, methods and options are those of today."""
    module = importlib.import_module(f"reproduce.studies.{name}")
    recipes = {**getattr(module, "ROWS", {}), **({"teacher": module.TEACHER} if name == "teaching" else {})}
    files = {file: tmp_path / file for file in ("graph", "image_graph", "features")}
    for row, recipe in recipes.items():
        flat = {"data": "data", "out": "out", **recipe.of(**files).options}
        arguments = flat_arguments(recipe.model, flat)
        assert set(arguments) <= set(inspect.signature(st.train).parameters), row
        chosen, plan = arguments["options"], arguments.get("plan", Plan())
        values = read_options("option", models()[recipe.model].options, chosen)
        assert {name: values[name] for name in chosen} == chosen, row
        assert all(getattr(plan, name) == flat[name] for name in plan.given), row
        for method, options in map(read_method, arguments.get("methods", ())):
            methods()[method].arguments(options)


def test_teacher_recipe_is_parsed() -> None:
    from reproduce.studies.teaching import teacher_recipe

    assert vars(teacher_recipe("vse:epochs=2,lr=0.1")) == {"model": "vse", "options": {"epochs": "2", "lr": "0.1"}}
    assert teacher_recipe("scan").options == {}


def test_function_runs_in_new_process() -> None:
    value, cost = common.in_new_process(add, 2, 3)
    assert value == 5 and cost.seconds > 0 and cost.processor_seconds > 0
    assert 5 < cost.peak_mb < 500, "of the new process alone: this one holds torch"


def test_last_training_images_select_and_first_ones_train(tmp_path: Path) -> None:
    splits = ["train"] * 3 + ["val"] + ["train"] * 3
    rows = [{"image": f"{number}.jpg", "split": split} for number, split in enumerate(splits)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def chosen(first: int | None) -> dict[str, str]:
        file = selection(tmp_path / "all.jsonl", tmp_path / "chosen.jsonl", held_out=2, first=first)
        rows = [json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()]
        return {row["image"][0]: row["split"] for row in rows}

    train = dict.fromkeys("0124", "train")
    assert chosen(None) == {**train, "5": "select", "6": "select", "3": "val"}
    assert chosen(1) == {"0": "train", "5": "select", "6": "select", "3": "val"}


def test_row_shows_means_ranges_and_peak_memory() -> None:
    results = [
        dict.fromkeys(NAMES, value) | {"rsum": 6 * value, "seconds": 2.0, "processor_seconds": 1.0, "peak_mb": peak}
        for value, peak in ((10.0, 300.0), (20.0, 400.0))
    ]
    row = line("plain", results)
    assert "15.0 / 15.0 / 15.0 [10.0-20.0]" in row
    assert "90.0 [60.0-120.0]" in row
    assert row.endswith("| 2 (1) | 400 |")
    assert row.count("|") == HEAD.splitlines()[0].count("|")


def test_gains_over_controls_are_listed_by_seed() -> None:
    lines = gains({"pvse": [200.0, 190.0], "hal": [201.5, 188.0]}, {"pvse": ["pvse"], "hal": ["pvse", "uniform"]})
    assert lines == ["| hal | pvse | -0.2 | +1.5, -2.0 |"]


def test_every_row_has_control_rows() -> None:
    assert set(nonliteral.CONTROLS) == set(nonliteral.ROWS)
    assert {control for controls in nonliteral.CONTROLS.values() for control in controls} <= set(nonliteral.ROWS)


def test_archive_is_corrupted_within_splits(tmp_path: Path) -> None:
    words = ["red", "blue", "green", "black", "dog", "cat", "bird", "car", "tree", "house", "boat", "horse"]
    rows = [
        {
            "image": f"{n}.jpg",
            "captions": [f"{words[n % 12]} {words[n % 11]} {n}", f"{words[n % 7]} by {words[n % 5]}{n}"],
        }
        for n in range(150)
    ]
    for n, row in enumerate(rows):
        row["split"] = "val" if n % 3 == 0 else "train"
    file = tmp_path / "captions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    pairs = st.read(file, need_images=False)
    planted = curated.corrupted(pairs, {"neighbour": 0.2, "mismatch": 0.1}, ("train", "val"))
    for split, count in (("train", 200), ("val", 100)):
        own = pairs.texts.splits == split
        kinds = planted.kinds[own].tolist()
        assert (kinds.count("neighbour"), kinds.count("mismatch")) == (count // 5, count // 10)
        assert (pairs.texts.splits[planted.source[own]] == split).all()
    again = curated.corrupted(pairs, {"neighbour": 0.2, "mismatch": 0.1}, ("train", "val"))
    assert (again.source == planted.source).all()
    assert curated.corrupted(pairs, {}, ("train",)).dataset is pairs


def test_estimated_kinds_are_compared_with_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = np.array(["", "mismatch", "", "neighbour"])
    links = np.stack([np.arange(4), np.array([0, 1, 2, 3])], axis=1)
    columns = {"mismatched": [0.1, 0.9, 0.2, 0.3], "loose": [0.1, 0.1, 0.2, 0.6]}
    kind = ["literal", "mismatched", "literal", "mismatched"]
    estimated = SimpleNamespace(shares={"loose": 0.3, "mismatched": 0.2})
    monkeypatch.setattr(curated, "kinds_of_pairs", lambda *_, graph: ({**columns, "kind": kind}, estimated, 1.0))
    values = curated.figures(SimpleNamespace(links=links), truth, None, None, None)
    assert set(values) == set(curated.FIGURES)
    assert values["auc mismatched"] == values["auc loose"] == 1.0 and values["right"] == 0.5
    clean = curated.figures(SimpleNamespace(links=links), np.full(4, ""), None, None, None)
    assert not {"auc loose", "auc mismatched", "right"} & set(clean) and clean["share loose"] == 0.3


def test_flickr8k_study(study: Study, out: Path, data: Path) -> None:
    words = [
        "--out",
        out / "flickr8k",
        "--seeds",
        0,
        "--grid",
        data / "grid.npz",
        "--rows",
        "dual",
        "pvse, K = 2 + grid",
    ]
    text = study("flickr8k", *words)
    assert len(rows_of(text, "dual")) == 3 and len(rows_of(text, "pvse, K = 2 + grid")) == 1
    assert study("flickr8k", *words) == text
    unseen = rows_of(text, "dual")[2]
    assert unseen[3] == "0.0 / 0.0 [0.0-0.0]" and unseen[-1] == "2", "a bag of words knows the article alone"
    asked = rows_of(text, "row")[2]
    assert asked[2:5] == ["all (3)", "narrower (1)", "broader (2)"]
    assert rows_of(text, "chance")[0][3] == "100.0 / 100.0 [100.0-100.0]"
    saved = json.loads((out / "flickr8k" / "dual-0.json").read_text())
    assert saved["intervals"]["text_to_image/recall@10"] and saved["seconds"] == 1.0
    assert rows_of(text, "dual")[1][4].startswith(f"{saved['rsum']:.1f}")


UNSEEN = json.loads(Path(common.__file__).with_name("unseen_words.json").read_text(encoding="utf-8"))


def test_unseen_word_queries_follow_their_rules() -> None:
    rows = UNSEEN["queries"]
    assert len({row["query"] for row in rows}) == len(rows) == 200
    assert {row["kind"] for row in rows} == {"synonym", "broader", "narrower", "situation", "figurative"}
    for row in rows:
        assert set(tokenise(row["query"])) - set(UNSEEN["function_words"]), row
        assert 1 <= len(set(row["images"])) == len(row["images"]) <= 24, row
        assert all(re.fullmatch(r"\d+_[0-9a-f]{10}\.jpg", name) for name in row["images"]), row


@pytest.mark.data
@pytest.mark.skipif("SUBTEXT_DATA" not in os.environ, reason="needs SUBTEXT_DATA")
def test_query_words_are_unseen_and_accepted_images_are_validation() -> None:
    pairs = st.read(Path(os.environ["SUBTEXT_DATA"]) / "flickr8k" / "captions.jsonl", need_images=False)
    captions = np.array(pairs.texts.values)[pairs.texts.splits == "train"]
    seen = {word for caption in captions for word in tokenise(caption)} - set(UNSEEN["function_words"])
    val = set(np.array(pairs.images.ids)[pairs.images.splits == "val"])
    assert (len(captions), len(val)) == (30_000, 1_000)
    for row in UNSEEN["queries"]:
        assert not seen & set(tokenise(row["query"])), row
        assert val.issuperset(row["images"]), row


def test_answered_queries_and_chance_are_reported() -> None:
    queries = [{"kind": kind, "images": ["a"]} for kind in ("synonym", "synonym", "broader")]
    table = unseen_table({"bag": [[1, 0, 10], [2, 0, 11]]}, queries, 20)
    assert rows_of(table, "bag") == [
        ["bag", "2", "16.7 / 50.0 [33.3-66.7]", "25.0 / 50.0 [50.0-50.0]", "0.0 / 50.0 [0.0-100.0]", "1"]
    ]
    assert rows_of(table, "chance")[0][2] == "5.0 / 50.0 [50.0-50.0]"


def test_agreement_study(study: Study) -> None:
    text = study("agreement")
    for name in ("tfidf1", "ciderd", "cider", "lsa", "visual"):
        asp, correlation = rows_of(text, name)
        assert len(asp) == len(correlation) == 7
    assert float(rows_of(text, "lsa")[1][4]) == 100.0


def test_nothing_fits_and_curated_studies_read_flickr8k_runs(study: Study, out: Path) -> None:
    study("flickr8k", "--out", out / "flickr8k", "--seeds", 0, "--rows", "dual")
    run = out / "flickr8k" / "dual-0"
    text = study("nothing_fits", run, "--out", out / "nothing")
    assert rows_of(text, "rooms")[0][1] == "1" and rows_of(text, "food")[0][1] == "2"
    assert 0 <= float(rows_of(text, "taken out")[0][2]) <= 1
    assert study("nothing_fits", run, "--out", out / "nothing") == text
    text = study("curated", run, "--rows", 0, 3)
    assert rows_of(text, "nothing")[0][6] == "-" and 0 <= float(rows_of(text, "neighbour 0.1, mismatch 0.1")[0][6]) <= 1


def test_curated_study_of_an_archive(study: Study, out: Path) -> None:
    words = ["--loosened", out / "archive", "--rows", 3, "--seeds", 0, "--epochs", 2]
    text = study("curated", *words)
    assert [row[1] for row in rows_of(text, "neighbour 0.1, mismatch 0.1")] == ["val, not seen", "train, learnt from"]
    assert study("curated", *words) == text


@pytest.mark.slow
def test_nonliteral_planted_and_spread_studies(
    study: Study, out: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, epochs = ["--grid", data / "grid.npz"], ["--epochs", 3]
    monkeypatch.setattr("reproduce.studies.nonliteral.RATES", (4e-3,))
    rows = ["pvse", "diversity", "neighbourhoods by pictures", "angular"]
    text = study("nonliteral", "--out", out / "nonliteral", "--seeds", 0, *grid, *epochs, "--rows", *rows)
    assert len(rows_of(text, "diversity")) == 2 and rows_of(text, "diversity")[1][1] == "pvse"
    assert [row[1] for row in rows_of(text, "neighbourhoods by pictures")[1:]] == ["angular"]
    words = ["--out", out / "planted", "--shares", 0.2, "--seeds", 0, 1, *grid, *epochs, "--rows", "pvse", "diversity"]
    text = study("planted", *words)
    areas = rows_of(text, "diversity, neighbour 0.2")
    assert len(areas[0]) == 7 and [row[1] for row in areas[1:3]] == ["R@10, literal", "R@10, loose"]
    assert any(row[1].startswith("AUC of diversity") for row in areas)
    assert "diversity, deviation in the last epoch" in text
    assert study("planted", *words) == text
    folders = ["--flickr8k", out / "nonliteral", "--planted", out / "planted"]
    text = study("spread_and_gain", "--out", out / "spread", *folders)
    assert len(rows_of(text, "flickr8k")) == 1 and "Spearman of the gain with the effective" in text
    assert (out / "spread" / "flickr8k-diversity-0.json").is_file()


@pytest.mark.slow
def test_pixels_study(study: Study, out: Path) -> None:
    text = study("pixels", "--out", out / "pixels", "--seeds", 0, "--rows", "tiny_coco")
    assert "tiny_coco, seed 0: text_to_image/recall@10" in text and len(rows_of(text, "tiny_coco")) == 1


@pytest.mark.slow
def test_ranking_study(study: Study, out: Path) -> None:
    words = ["--out", out / "ranking", "--seeds", 0, "--rows", "dual + smooth_ap"]
    text = study("ranking", *words)
    splits = [row[1] for row in rows_of(text, "dual + smooth_ap")[1:]]
    assert splits[:4] == ["tfidf1, val", "ciderd, val", "tfidf1, select, epoch 6", "ciderd, select, epoch 6"]
    assert study("ranking", *words) == text


@pytest.mark.slow
def test_regions_study(study: Study, out: Path, data: Path) -> None:
    words = ["--out", out / "regions", "--grid", data / "grid.npz", "--epochs", 1, "--rows", "sgraf", "ascl"]
    text = study("regions", *words)
    assert len(rows_of(text, "sgraf")) == 2, "printed after each row"
    assert "text/uniformity_variance" in text and "R@1 of texts by words" in text
    assert study("regions", *words) == text


@pytest.mark.slow
def test_teaching_study(study: Study, out: Path, data: Path) -> None:
    words = ["--out", out / "teaching", "--grid", data / "grid.npz", "--epochs", 1, "--student-epochs", 2, "--mined", 4]
    text = study("teaching", *words)
    assert len(rows_of(text, "student, taught")) == 1 and "  10 candidates" in text
    assert study("teaching", *words) == text


@pytest.mark.slow
def test_weighting_cost_study(study: Study, out: Path, data: Path) -> None:
    words = ["--out", out / "cost", "--grid", data / "grid.npz", "--rows", "diversity", "--epochs", 4]
    share = rows_of(study("weighting_cost", *words), "diversity")[0][1]
    assert 0 < float(share.split(" %")[0]) < 100
    from subtext.recipes.neighbour_scores import NeighbourScores

    assert NeighbourScores.open.__name__ == "open"


def test_wikipedia_study(study: Study, out: Path) -> None:
    words = ["--out", out / "wikipedia", "--seeds", 0, "--rows", "pvse", "hal"]
    text = study("wikipedia", *words)
    assert len(rows_of(text, "hal")) == 1 and rows_of(text, "hal")[0][1] == "pvse"
    assert study("wikipedia", *words) == text


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif("SUBTEXT_DATA" not in os.environ, reason="needs SUBTEXT_DATA")
def test_tiny_coco_study_learns_from_pixels(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "reproduce.studies.pixels",
        "--out",
        str(tmp_path),
        "--rows",
        "tiny_coco",
        "--seeds",
        "0",
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=550).stdout
    assert "tiny_coco, seed 0: text_to_image/recall@10" in text
    assert "chance 20.0" in text
    record = json.loads((tmp_path / "tiny-coco-0" / "run.json").read_text(encoding="utf-8"))
    assert record["status"] == "finished"
