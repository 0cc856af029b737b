"""Every pair looked at: kinds on planted data, copies and leaks beside plain loops, the page, and what is exported."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import coloured_images
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from command import call
from PIL import Image

from subtext.core import Embeddings
from subtext.curation import judged as judging, kinds as kinds_module
from subtext.curation.copies import find_copies
from subtext.curation.judged import (
    image_flags,
    judge,
    later,
    leaks,
    left_out,
    text_copies,
    text_flags,
)
from subtext.curation.kinds import KINDS, align, aligned, chance_links, kinds_of, near_links, surroundings
from subtext.data.dataset import Dataset, Items
from subtext.data.noise import TextNeighbours, plant
from subtext.data.read import read
from subtext.errors import DataError
from subtext.evaluation.checks.overlap import alike, fingerprint_images
from subtext.graphs.build import GraphOptions, build_graph
from subtext.graphs.spaces import LsaSpace
from subtext.ops.roc import auc, reliability
from subtext.retrieval.calibration import store_calibration

THINGS = [
    f"{a} {b}" for a in ("red", "wet", "old", "tall", "shy", "mad") for b in ("dog", "tram", "tree", "cook", "lamp")
]


def world(count: int = 900, seed: int = 0) -> tuple[Dataset, np.ndarray]:
    """Pictures of a thing in a place, and a text that says so; and where each pair lies: things alike lie together."""
    random = np.random.default_rng(seed)
    things = random.integers(0, len(THINGS), count)
    centres = random.standard_normal((len(THINGS), 24))
    places = centres[things] + 0.9 * random.standard_normal((count, 24))
    texts = [f"a {THINGS[thing]} called n{place}" for place, thing in enumerate(things)]
    rows = np.arange(count, dtype=np.int64)
    split = np.array(["train"] * count)
    pairs = Dataset(
        Items([f"p{n}" for n in rows], [None] * count, rows, split),
        Items([f"t{n}" for n in rows], list(texts), rows, split),
        np.stack([rows, rows], axis=1),
        Path(),
    )
    return pairs, places / np.linalg.norm(places, axis=1, keepdims=True)


def embedded(places: np.ndarray, came_from: np.ndarray) -> tuple[Embeddings, Embeddings]:
    """A model that sees each place with a little noise; texts are where those that they came from were."""
    random = np.random.default_rng(5)

    def seen(values: np.ndarray) -> Embeddings:
        noisy = values + 0.12 * random.standard_normal(values.shape)
        noisy /= np.linalg.norm(noisy, axis=1, keepdims=True)
        return Embeddings(torch.from_numpy(noisy[:, None].astype(np.float32)), torch.arange(len(noisy)))

    return seen(places), seen(places[came_from])


@pytest.fixture(scope="module")
def planted():
    """A fifth of the pairs loosened: half with a neighbour's text, half with any."""
    pairs, places = world()
    graph = build_graph(pairs, LsaSpace(width=20), GraphOptions(neighbours=40, candidate_split="all"))
    near = TextNeighbours(
        np.asarray(graph.neighbours).astype(np.int64), np.asarray(graph.distances).astype(np.float64), 1, 20
    )
    found = plant(pairs, {"neighbour": 0.1, "mismatch": 0.1}, neighbours=near)
    return found, embedded(places, found.source)


def test_planted_noise_has_calibrated_probabilities(planted):
    found, (images, texts) = planted
    graph = build_graph(found.dataset, LsaSpace(width=20), GraphOptions(neighbours=40, candidate_split="all"))
    judged = judge(found.dataset, images, texts, graph=graph)
    kinds = found.kinds
    wrong, loose, right = (np.array(judged.columns[name]) for name in ("mismatched", "loose", "literal"))
    np.testing.assert_allclose(wrong + loose + right, 1, atol=1e-12)
    assert auc(wrong, kinds == "mismatch") > 0.95
    some = kinds != "mismatch"
    assert auc(loose[some] + wrong[some], kinds[some] == "neighbour") > 0.9
    assert abs(judged.shares["mismatched"] - 0.1) < 0.05 and judged.shares["loose"] < 0.2
    assert reliability(wrong, kinds == "mismatch").error < 0.05
    sure = wrong > 0.5
    assert (kinds[sure] == "mismatch").mean() > 0.7 and sure.sum() > 50
    assert set(judged.columns["kind"]) <= set(KINDS)
    # A pair whose text is another's has pictures around it that do not agree with its own.
    agreement = np.array(judged.columns["agreement"])
    assert agreement[kinds == "mismatch"].mean() < agreement[kinds == ""].mean()


def test_alignment_equals_plain_loop(planted):
    found, (images, texts) = planted
    pairs = found.dataset
    mine, crowd = align(pairs, images, texts, candidate_count=200)
    x, y = (each.vectors.numpy()[:, 0].astype(np.float64) for each in (images, texts))
    t = crowd.temperature
    of_texts, of_images = crowd.text_groups, crowd.image_groups
    for link in (0, 17, 899):
        own = x[link] @ y[link]
        told = 0.0
        for query, others, groups in ((x[link], y, of_texts), (y[link], x, of_images)):
            rest = [np.exp(query @ others[group] / t) for group in groups if group != link]
            total = sum(rest) * len(groups) / len(rest)
            told += np.log(np.exp(own / t) / (np.exp(own / t) + total)) / 2
        assert mine[1, link] == pytest.approx(told, abs=1e-5)
        assert mine[0, link] == pytest.approx(own, abs=1e-6)
    again = aligned(crowd, pairs, images.vectors.numpy(), texts.vectors.numpy(), pairs.links[[17]])
    assert again[1, 0] == pytest.approx(mine[1, 17], abs=1e-6)


def test_estimated_shares_of_clean_and_random_pairs():
    random = np.random.default_rng(0)
    good, chance = random.standard_normal(2000) + 4, random.standard_normal(2000)
    assert kinds_of(good, chance).shares["mismatched"] < 0.01
    assert kinds_of(chance, random.standard_normal(2000)).shares["mismatched"] > 0.9
    mixed = np.concatenate([good[:1500], random.standard_normal(500)])
    found = kinds_of(mixed, chance)
    assert found.shares["mismatched"] == pytest.approx(0.25, abs=0.03)
    assert found.mismatched.mean() == pytest.approx(0.25, abs=0.05)
    order = np.argsort(mixed)
    assert (np.diff(found.mismatched[order]) <= 1e-12).all(), "never likelier where the alignment is larger"
    assert kinds_of(mixed, chance, None).loose.sum() == 0
    near = random.standard_normal(2000) + 2
    three = np.concatenate([good[:1400] + 2, random.standard_normal(200), random.standard_normal(400) + 2])
    told = kinds_of(three, chance, near)
    assert told.shares["mismatched"] == pytest.approx(0.1, abs=0.03)
    assert told.shares["loose"] == pytest.approx(0.2, abs=0.05)


def test_made_pairs_join_different_groups(planted):
    found, _ = planted
    graph = build_graph(found.dataset, LsaSpace(width=20), GraphOptions(neighbours=40, candidate_split="all"))
    for links in (chance_links(found.dataset), near_links(graph, found.dataset)):
        assert len(links) > 700 and (links[:, 0] != links[:, 1]).all()
    near = np.asarray(graph.neighbours)[:, :20]
    assert all(text in near[image] for image, text in near_links(graph, found.dataset).tolist())


def test_neighbourhood_columns_equal_means_over_neighbours(planted):
    found, (images, texts) = planted
    graph = build_graph(found.dataset, LsaSpace(width=20), GraphOptions(neighbours=5, candidate_split="all"))
    told = surroundings(graph, found.dataset, images, texts)
    x = images.vectors.numpy()[:, 0]
    for row in (3, 500):
        near = np.asarray(graph.neighbours)[row]
        assert told["agreement"][row] == pytest.approx(float(np.mean([x[row] @ x[other] for other in near])), abs=1e-5)
        both = np.mean([x[one] @ x[other] for one in near for other in near])
        assert told["diversity_image"][row] == pytest.approx(float(both), abs=1e-5)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The twelve drawings with copies, a leak, and texts and pictures that are odd."""
    folder = tmp_path_factory.mktemp("curate")
    data = coloured_images.write(folder / "data")
    coloured_images.run(data, folder / "run")
    noise = np.random.default_rng(0).integers(0, 255, (90, 120, 3), dtype=np.uint8)
    smooth = Image.fromarray(noise).resize((12, 9)).resize((240, 180))
    smooth.save(data / "one.png")
    smooth.resize((120, 90)).save(data / "two.jpg", quality=95)
    shutil.copy(data / "red.png", data / "again.png")
    shutil.copy(data / "red.png", data / "dots.png")
    rows = [
        {
            "file_name": "one.png",
            "id": "one",
            "captions": ["a cloud over the hill behind the old mill"],
            "split": "train",
        },
        {
            "file_name": "two.jpg",
            "id": "two",
            "captions": ["a cloud over the hill behind the old mill"],
            "split": "test",
        },
        {"file_name": "again.png", "id": "again", "captions": ["IMG_1234", "<b>A</b> http://x.y"], "split": "train"},
        {"file_name": "dots.png", "id": "dots", "captions": ["..."], "split": "train"},
    ]
    with (data / "metadata.jsonl").open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps({**row, "language": "en", "place": 1}) + "\n" for row in rows))
    return folder


def test_copies_and_leaks_are_detected(place: Path):
    pairs = read(place / "data")
    numbers = find_copies(pairs.images, pairs.root).groups
    of = dict(zip(pairs.images.ids, numbers.tolist(), strict=True))
    assert of["one"] == of["two"] >= 0 and of["red"] == of["again"] == of["dots"] >= 0
    assert sum(number >= 0 for number in numbers) == 5, "other pictures of one colour are no copies"
    looks = fingerprint_images(pairs.images, pairs.root, 0, None, 0)
    both_ways = [pair for pair in alike(looks, list(looks)) if pair[0] < pair[1]]
    assert list(alike(looks, looks)) == both_ways != []
    texts, how = text_copies(pairs)
    same = [row for row, value in enumerate(pairs.texts.values) if "behind the old mill" in str(value)]
    assert texts[same[0]] == texts[same[1]] >= 0 and (texts >= 0).sum() == 2 and "words" in how
    gone = dict(zip(pairs.images.ids, leaks(pairs.images, numbers).tolist(), strict=True))
    assert gone["one"] and not gone["two"] and not gone["red"], "what is held out stays"
    again = later(pairs.images, numbers)
    assert [name for name, copy in zip(pairs.images.ids, again, strict=True) if copy] == ["one", "again", "dots"]


def exchanged(noise: float, count: int = 600, wrong: int = 40) -> tuple[judging.Judged, np.ndarray]:
    """Pairs of which some captions were exchanged, judged by a model that sees through so much noise; and which."""
    pairs, places = world(count, seed=3)
    random = np.random.default_rng(11)
    rows = random.permutation(count)[:wrong]
    source = np.arange(count)
    source[rows] = np.roll(rows, 1)
    texts = pairs.texts
    texts.values[:] = [texts.values[row] for row in source]

    def seen(values: np.ndarray) -> Embeddings:
        noisy = values + noise * random.standard_normal(values.shape)
        noisy /= np.linalg.norm(noisy, axis=1, keepdims=True)
        return Embeddings(torch.from_numpy(noisy[:, None].astype(np.float32)), torch.arange(len(noisy)))

    graph = build_graph(pairs, LsaSpace(width=20), GraphOptions(neighbours=40, candidate_split="all"))
    judged = judge(pairs, seen(places), seen(places[source]), graph=graph)
    return judged, np.isin(np.arange(count), rows)


def test_exchanged_captions_come_first():
    judged, wrong = exchanged(noise=0.22)
    rank = np.array(judged.columns["rank"])
    assert sorted(rank) == list(range(1, 601))
    assert auc(-rank.astype(float), wrong) > 0.95 and wrong[rank <= 40].sum() >= 26
    assert judged.test is not None and judged.test.exchanged == 40
    assert judged.test.in_worst_fifth >= 35 and judged.test.area > 0.95


def test_no_kind_is_named_where_exchanged_captions_are_not_found():
    """With a weaker model the order still tells most of them, and the kinds do not: none is named, none left out."""
    judged, wrong = exchanged(noise=0.3)
    rank = np.array(judged.columns["rank"])
    assert auc(-rank.astype(float), wrong) > 0.8 and wrong[rank <= 40].sum() >= 15
    test = judged.test
    assert test is not None and test.exchanged == 40 and not test.names_kinds
    assert f"of 40 captions that were exchanged as a test, {test.called} would be called" in judged.how["kinds"]
    assert set(judged.columns["kind"]) == {None} == set(judged.columns["mismatched"])
    assert not any(left_out(judged, ["mismatched"]))


def test_kinds_are_named_where_exchanged_captions_are_found():
    judged, wrong = exchanged(noise=0.05)
    assert judged.test is not None and judged.test.names_kinds and "kinds" not in judged.how
    called = np.array([kind == "mismatched" for kind in judged.columns["kind"]])
    assert called[wrong].mean() > 0.7 and called[~wrong].mean() < 0.05


@pytest.mark.parametrize(
    "text",
    ["Ohne Titel", "ohne titel (Nr. 3)", "Untitled", "Untitled #12", "o. T.", "Sans titre", "[Ohne Titel]", "無題"],
)
def test_a_missing_title_is_no_literal_text(text: str):
    assert "no title" in text_flags(text)
    assert "no title" not in text_flags(f"{text} von Max Ernst, Öl auf Leinwand")


def test_no_kind_is_named_of_a_text_that_says_nothing():
    judged, _ = exchanged(noise=0.05)
    pairs, places = judged.pairs, world(600, seed=3)[1]
    pairs.texts.values[0] = "Ohne Titel"
    again = judge(pairs, *embedded(places, np.arange(600)))
    assert again.columns["kind"][0] is None and again.columns["literal"][0] is None
    assert again.columns["kind"][1] is not None and "no title" in again.columns["flags"][0]


def test_marks_of_the_page_decide(place: Path, tmp_path: Path):
    marks = tmp_path / "marks.csv"
    every = call("curate", place / "data", "--run", place / "run", "--out", tmp_path / "first", "--quiet").stdout
    rows = pq.read_table(tmp_path / "first" / "pairs.parquet").to_pylist()
    gone, stays = next(row for row in rows if row["left_out"]), next(row for row in rows if not row["left_out"])
    marks.write_text(f"image,text,mark\n{gone['image']},{gone['text']},keep\n{stays['image']},{stays['text']},fix\n")
    options = ["--run", place / "run", "--marks", marks, "--quiet"]
    call("curate", place / "data", "--out", tmp_path / "second", *options)
    table = pq.read_table(tmp_path / "second" / "pairs.parquet").to_pylist()
    again = {(row["image"], row["text"]): row["left_out"] for row in table}
    assert not again[gone["image"], gone["text"]] and again[stays["image"], stays["text"]] == ["marked fix"]
    assert "2 left out" in every
    marks.write_text("image,text,mark\nnowhere,t,keep\n")
    refused = call("curate", place / "data", "--out", tmp_path / "third", *options, code=1).stderr
    assert "of 1 other, the first is image 'nowhere'" in refused, refused


def test_unusual_texts_and_images_are_flagged(tmp_path: Path):
    assert text_flags("...") == ["no words"] and "markup" in text_flags("<b>bold words here</b>")
    assert text_flags("see https://a.b for more of it") == ["an address"]
    assert text_flags("BREAKING NEWS FROM THE HILL") == ["capitals"]
    assert text_flags("ha ha ha ha ha ha") == ["repeats itself"] and text_flags("word " * 101)[0] == "long"
    assert text_flags("Ein Hund läuft über den Strand") == []
    Image.new("RGB", (400, 40)).save(tmp_path / "thin.png")
    assert image_flags("thin.png", tmp_path) == ["small", "narrow", "of one colour"]
    (tmp_path / "bad.png").write_bytes(b"no")
    assert image_flags("bad.png", tmp_path) == ["cannot be read"] and image_flags(None, tmp_path) == []


def test_curate_command_writes_page_table_and_pairs(place: Path, tmp_path: Path):
    out = tmp_path / "out"
    files = [tmp_path / f"kept.{ending}" for ending in ("jsonl", "parquet", "tar")]
    exports = [word for file in files for word in ("--export", file)]
    answer = call("curate", place / "data", "--run", place / "run", "--out", out, *exports, "--quiet").stdout
    assert "29 pairs of split all" in answer and "copies among images: 5 of 16" in answer
    report = json.loads((out / "report.json").read_text())
    assert report["kinds"] is None, "29 pairs are too few to say"
    assert report["leaks"] == 1 and report["flags"]["no words"] == 1 and report["left_out"] == 2
    every = pq.read_table(out / "pairs.parquet").to_pylist()
    assert len(every) == 29 and {"cosine", "alignment", "flags", "left_out", "language"} <= set(every[0])
    gone = [json.loads(line) for line in (out / "left_out.jsonl").read_text().splitlines()]
    why = {row["image"]: row["left_out"] for row in gone}
    assert why == {"one": ["a copy of another pair", "has a copy in a held-out split"], "dots": ["no words"]}
    for file in files:
        images = () if file.suffix == ".tar" else ("--images", place / "data")
        kept = read(file, **({"images": images[1]} if images else {}))
        assert len(kept.links) == 27 and sorted(map(str, kept.texts.values)) == sorted(
            row["caption"] for row in every if not row["left_out"]
        )
    assert all(file.name in answer for file in files)
    page = (out / "index.html").read_text()
    assert "<b>A</b>" not in page and "&lt;b&gt;A&lt;/b&gt;" in page, "texts are escaped"
    assert page.count("<li class=") == 29 and "script-src 'sha256-" in page and "http-equiv" in page
    assert not re.search(r"(src|href)=\"(?!data:)", page), "nothing is loaded from elsewhere"
    assert "is not empty" in call("curate", place / "data", "--run", place / "run", "--out", out, code=1).stderr


def test_reasons_for_removal_can_be_selected(place: Path, planted):
    found, (images, texts) = planted
    judged = judge(found.dataset, images, texts)
    assert judged.columns["loose"][0] == 0 and "agreement" not in judged.columns, "no graph, no neighbours"
    assert not any(judged.columns["flags"]) and "no image can be read" in judged.how["image copies"], (
        "features need no files"
    )
    some = left_out(judged, ["mismatched"], least=0.9)
    more = left_out(judged, ["mismatched"], least=0.1)
    assert 0 < sum(map(bool, some)) < sum(map(bool, more)) and not any(left_out(judged, ["leaks"]))
    data, run, out = place / "data", place / "run", place / "flagged"
    call("curate", data, "--run", run, "--out", out, "--drop", "flagged", "--split", "train", "--quiet")
    gone = [json.loads(line) for line in (out / "left_out.jsonl").read_text().splitlines()]
    assert {"again"} <= {row["image"] for row in gone} and "small" in gone[0]["left_out"][0]
    with pytest.raises(DataError, match="every pair was left out"):
        from subtext.curation.export import export

        export(judged, np.zeros(0, np.int64), place / "none.jsonl")


def test_curate_abstains_for_weak_model(planted):
    found, (images, texts) = planted
    mixed = torch.from_numpy(np.random.default_rng(1).permutation(len(texts)))
    weak = judge(found.dataset, images, texts[mixed])
    assert re.search(r"cannot judge these pairs: .* than a random one in (4[5-9]|5[0-5]) % of cases", weak.how["kinds"])
    assert set(weak.columns["kind"]) == {None} == set(weak.columns["loose"]) and weak.shares == {}
    assert not any(left_out(weak, ["mismatched"])) and "kinds" not in judge(found.dataset, images, texts).how


def test_curate_reports_accuracy_against_labels(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On made data of random weights the numbers mean nothing; that they are there is what is tested."""
    rows = [json.loads(line) for line in (place / "data" / "metadata.jsonl").read_text().splitlines()[:12]]
    many = tmp_path / "many.jsonl"
    lines = [
        {
            "image": row["file_name"],
            "id": row["id"],
            "split": "train",
            "captions": [f"{row['id']} {n} of these" for n in range(6)],
        }
        for row in rows
    ]
    many.write_text("".join(json.dumps(line) + "\n" for line in lines))
    loose, labels = tmp_path / "loose.jsonl", tmp_path / "labels.json"
    more = ["--images", place / "data"]
    call(
        "data",
        "corrupt",
        many,
        *more,
        "--noise-type",
        "mismatch",
        "--noise-rate",
        0.3,
        "--out",
        loose,
        "--labels",
        labels,
    )
    weak = call("curate", loose, *more, "--run", place / "run", "--out", tmp_path / "weak", "--quiet").stdout
    assert "warning: the model cannot judge these pairs" in weak and "likeliest kinds" not in weak
    page = (tmp_path / "weak" / "index.html").read_text()
    cards = re.findall(r'data-out="(\d)" data-rank="\S+" data-alignment="(\S+)"', page)
    assert cards == sorted(cards, key=lambda card: (-int(card[0]), -float(card[1]))) and "surest of" in page
    monkeypatch.setattr(judging, "TELLS", 0.0)
    monkeypatch.setattr(kinds_module, "CALLED", 0.0)
    told = call(
        "curate", loose, *more, "--run", place / "run", "--out", tmp_path / "out", "--labels", labels, "--quiet"
    )
    assert "planted, mismatched: area under the curve" in told.stdout
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["planted"]["pairs"] == {"literal": 50, "loose": 0, "mismatched": 22}
    assert 0 <= report["planted"]["mismatched"]["auc"] <= 1


def test_curate_warns_about_training_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It knows them by heart, the wrong ones as well."""
    monkeypatch.setattr(judging, "TELLS", 0.0)  # The run is not trained.
    data = tmp_path / "data"
    data.mkdir()
    lines = []
    for split, names in (("train", "abcdefghijkl"), ("other", "mnopqrstuvwx")):
        for number, name in enumerate(names):
            Image.new("RGB", (40, 40), (20 * number, 100, 200)).save(data / f"{name}.png")
            captions = [f"{name} {n} of these" for n in range(6)]
            lines.append({"image": f"{name}.png", "id": name, "split": split, "captions": captions})
    (data / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = coloured_images.run(data / "pairs.jsonl", tmp_path / "run")
    roles = {"train": "training", "all": "training", "other": "held out"}
    for split, role in roles.items():
        out = tmp_path / split
        told = call("curate", data / "pairs.jsonl", "--run", run, "--split", split, "--out", out, "--quiet").stdout
        report = json.loads((out / "report.json").read_text())
        assert report["order"]["exchanged"] == 10 and report["split_role"] == role
        assert ("warning: split" in told) == (role == "training")
        assert ("was used for training" in (out / "index.html").read_text()) == (role == "training")
    (tmp_path / "copy.jsonl").write_text((data / "pairs.jsonl").read_text())
    call("curate", tmp_path / "copy.jsonl", "--images", data, "--run", run, "--out", tmp_path / "copy", "--quiet")
    assert json.loads((tmp_path / "copy" / "report.json").read_text())["split_role"] == "unknown"


def test_score_command_scores_pairs(place: Path, tmp_path: Path):
    data, run = place / "data", place / "run"
    found = json.loads(call("score", data, "--run", run, "--json", "--quiet").stdout)
    assert len(found["pairs"]) == 29 and found["pairs"][0]["probability"] is None
    assert found["pairs"][0]["looseness"] is None and "needs 50 pairs" in found["note"]
    from subtext.api.load import load
    from subtext.evaluation import embed_pairs

    pairs = read(data)
    images, texts = embed_pairs(load(run), pairs)
    wanted = [float(images.vectors[i, 0] @ texts.vectors[t, 0]) for i, t in pairs.links.tolist()]
    np.testing.assert_allclose([row["similarity"] for row in found["pairs"]], wanted, atol=1e-5)
    text = call("score", data, "--run", run, "--quiet").stdout
    assert "similarity" in text and "and 9 more" in text
    written = call("score", data, "--run", run, "--out", tmp_path / "scores.jsonl", "--quiet").stdout
    assert "29 pairs" in written and len((tmp_path / "scores.jsonl").read_text().splitlines()) == 29
    call("index", "build", tmp_path / "index", "--run", run, "--quiet")
    answer = call("score", data, "--run", run, "--index", tmp_path / "index", code=1).stderr
    assert "a probability needs an index that is calibrated" in answer
    from subtext.retrieval.calibration import Calibration
    from subtext.retrieval.stores.folder import Folder

    curve = {"xs": [-1.0, 1.0], "ys": [0.0, 1.0], "calibration_error": 0.01}
    folder = Folder(tmp_path / "index")
    last = {"images": 16, "texts": 45}
    made = Calibration({}, curve, {}, {"images": 16, "texts": 29}, last, folder.manifest.identity)
    store_calibration(folder, made, "<svg/>")
    rows = json.loads(call("score", data, "--run", run, "--index", tmp_path / "index", "--json", "--quiet").stdout)
    for row in rows["pairs"]:
        assert row["probability"] == pytest.approx((row["similarity"] + 1) / 2)
