"""Probabilities of hits: fitted on one half of held-out pairs, true on others, kept, stale, and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import coloured_images
import database
import numpy as np
import pytest
import torch
from command import call
from PIL import Image
from stored_items import calibration as calibration_of

from subtext.api.search import open_index
from subtext.core import Embeddings
from subtext.data.dataset import Dataset, Items
from subtext.errors import DataError, RequirementError, SearchIndexError
from subtext.retrieval.calibration import Calibration, DirectionCalibration, changed_since, store_calibration
from subtext.retrieval.condition import parse
from subtext.retrieval.confidence import (
    Background,
    Confidence,
    Evidence,
    HeldOutPairs,
    fit_calibration,
    fit_pair_curve,
    observe,
    probabilities,
)
from subtext.retrieval.index import Index, Query
from subtext.retrieval.manifest import Manifest
from subtext.retrieval.stores.folder import Folder, backup
from subtext.retrieval.stores.item import Change, Hits, IndexEntry
from subtext.retrieval.stores.postgres import Database
from subtext.retrieval.verification import verify

WIDTH = 16


MANIFEST = Manifest(fingerprint="f" * 32, run="r", model_name="dual", width=WIDTH)


def unit(values: np.ndarray) -> np.ndarray:
    return (values / np.linalg.norm(values, axis=-1, keepdims=True)).astype(np.float32)


def made(start: int, count: int, *, noise: float = 0.5) -> HeldOutPairs:
    """Pictures at random, each with two texts near it."""
    pictures = unit(np.random.default_rng(start).standard_normal((count, WIDTH)))
    texts = np.repeat(pictures, 2, axis=0)
    texts = unit(texts + noise * np.random.default_rng(start + 1).standard_normal(texts.shape) / np.sqrt(WIDTH) * 2)
    groups = np.arange(start, start + count, dtype=np.int64)
    rows = np.arange(2 * count, dtype=np.int64)
    images = Items([f"p{n}" for n in groups], [None] * count, groups, np.array(["held"] * count))
    names, words = [f"t{n}" for n in 2 * start + rows], [f"text {n}" for n in rows]
    items = Items(names, words, groups.repeat(2), np.array(["held"] * (2 * count)))
    pairs = Dataset(images, items, np.stack([rows // 2, rows], axis=1), Path())
    return HeldOutPairs(
        pairs, *(Embeddings(torch.from_numpy(v[:, None]), torch.arange(len(v))) for v in (pictures, texts))
    )


def stored(path: Path, held: HeldOutPairs) -> Folder:
    """An index of these items."""
    return filled(Folder.create(path, MANIFEST), held)


def filled(store, held: HeldOutPairs):
    with store.writing("build") as writer:
        put(writer, held)
    return store


def put(writer, held: HeldOutPairs) -> None:
    for side in ("images", "texts"):
        items, vectors = held.side(side)
        entries = [IndexEntry(name, name.encode(), text=v) for name, v in zip(items.ids, items.values, strict=True)]
        links = [(held.pairs.images.ids[i], held.pairs.texts.ids[t]) for i, t in held.pairs.links] * (side == "texts")
        writer.put(Change(side, entries, vectors, links=links))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return stored(tmp_path_factory.mktemp("calibration") / "index", made(0, 300))


@pytest.fixture(scope="module")
def found(folder: Folder) -> Calibration:
    return fit_calibration(folder, made(5000, 400), data={"split": "held"}, seed=1)


def test_probabilities_are_calibrated_on_held_out_pairs(folder: Folder, found: Calibration) -> None:
    for side in ("images", "texts"):
        measured = found.directions[side].metrics
        assert measured["calibration_error"] < 0.05 and measured["calibration_error_first"] < 0.1
        assert measured["brier"] < 0.8 * measured["brier_baseline"], "better than the share alone"
        assert 0.01 < measured["false_no_match"] < 0.12
    # Others, of which the calibration has not heard at all, in an index that has them.
    fresh = made(9000, 300)
    with folder.reading() as view:
        told = observe(view, fresh, "images")
    direction = found.directions["images"]
    likely = np.concatenate(
        [probabilities(each.scores, each.level(direction.temperature), direction) for each in told.evidence]
    )
    assert abs(likely.mean() - np.concatenate(told.correct).mean()) < 0.02
    assert found.pairs["calibration_error"] < 0.08


def test_metrics_use_held_out_half(folder: Folder, found: Calibration) -> None:
    held = made(5000, 400)
    for side in ("images", "texts"):
        direction = found.directions[side]
        with folder.reading() as view:
            asked = observe(view, held, side, seed=1)
        briers = []
        for half in (asked.fitted, ~asked.fitted):
            rows = np.flatnonzero(half)
            likely = [
                probabilities(each.scores, each.level(direction.temperature), direction)
                for each in (asked.evidence[row] for row in rows)
            ]
            truth = np.concatenate([asked.correct[row] for row in rows])
            briers.append(np.mean((np.concatenate(likely) - truth) ** 2))
        assert direction.metrics["brier"] == pytest.approx(briers[1]) != pytest.approx(briers[0])
        assert direction.metrics["queries"] == (~asked.fitted).sum() != asked.fitted.sum()


def test_pair_probability_is_measured_on_held_out_half(folder: Folder) -> None:
    held = made(5000, 400)
    with folder.reading() as view:
        # By image: every image is a query for texts.
        fitted = observe(view, held, "texts", seed=1).fitted
    assert len(fitted) == len(held.pairs.images)
    good = fit_pair_curve(held, seed=1)
    vectors = held.texts.vectors.clone()
    spoilt = torch.from_numpy(~fitted.repeat(2))
    vectors[spoilt] = vectors[spoilt].roll(101, dims=0)
    bad = fit_pair_curve(replace(held, texts=Embeddings(vectors, held.texts.ids)), seed=1)
    assert (bad["xs"], bad["ys"]) == (good["xs"], good["ys"]), "fitted on the other half"
    assert good["brier"] < 0.15 and bad["brier"] > 0.3 and bad["pairs"] == spoilt.sum()


def test_observations_equal_plain_loop(folder: Folder) -> None:
    """Half of the items are in the index already, and are taken from there."""
    held = made(5000, 120)
    index, own = made(0, 300), held.side("texts")[1][:, 0]
    with folder.reading() as view:
        told = observe(view, held, "images")
    gallery = np.concatenate([index.side("images")[1][:, 0], held.side("images")[1][:, 0]])
    for row in (0, 7, 239):
        scores = gallery @ own[row]
        best = np.argsort(-scores)[:10]
        np.testing.assert_allclose(told.evidence[row].scores, scores[best], atol=1e-6)
        assert told.correct[row].tolist() == [place == 300 + row // 2 for place in best]
        wanted = np.log(np.exp(scores.astype(float) / 0.1).sum())
        assert told.evidence[row].level(0.1) == pytest.approx(wanted, abs=0.15), "items outside the index are drawn for"
        assert told.truth[row] == pytest.approx([scores[300 + row // 2]], abs=1e-6)
    with folder.reading() as view:
        inside = observe(view, index, "images")
    scores = index.side("images")[1][:, 0] @ index.side("texts")[1][4, 0]
    assert inside.evidence[4].total == 300 and inside.correct[4].sum() <= 1
    assert inside.evidence[4].level(0.1) == pytest.approx(np.log(np.exp(scores.astype(float) / 0.1).sum()), abs=1e-4)
    # The captions of one's own picture do not make a question familiar: three texts of 600 are left out or its own.
    assert np.isnan(inside.evidence[4].same_side).sum() == 2


def test_calibration_needs_100_held_out_groups(folder: Folder) -> None:
    with pytest.raises(DataError, match="needs 100 held-out images with texts, or more; it got 99"):
        fit_calibration(folder, made(5000, 99), data={})
    enough = fit_calibration(folder, made(5000, 100), data={})
    assert enough.data == {"images": 100, "texts": 200, "groups": 100}
    assert enough.pairs == fit_pair_curve(made(5000, 100)) == fit_pair_curve(made(5000, 100), seed=0)
    assert {len(direction.quantiles) for direction in enough.directions.values()} == {101}, "percents"


def test_item_with_changed_vector_is_a_new_item(folder: Folder) -> None:
    held = made(0, 300)
    held.images.vectors[0] *= 0.9
    held.images.vectors[1] *= 0.999
    with folder.reading() as view:
        assert observe(view, held, "images").evidence[0].total == 301


def test_only_cross_modal_queries_are_judged(tmp_path: Path) -> None:
    """Few hits are searched again; a judgement is the evidence of the ten best, by the way of the side searched."""
    index = made(0, 300)
    folder = stored(tmp_path / "index", index)
    line = {"xs": [-9.0, 9.0], "ys": [0.0, 1.0]}
    directions = {
        side: DirectionCalibration(0.1, (slope, -0.5), 0.2, line, {"level": [0.0, 1.0]}, [0.0, 0.5, 1.0], 0.05, {})
        for side, slope in (("images", 1.0), ("texts", 2.0))
    }
    with folder.reading() as view:
        last = {side: int(view.keys(side).max()) for side in directions}
        made_of = Calibration(directions, line, {}, dict(view.counts), last, folder.manifest.identity)
        store_calibration(folder, made_of, "<svg/>")
    queries = index.side("texts")[1][:2]
    with folder.reading() as view:
        known = Confidence(view)
        assert list(known.judge("images", "images", queries, [])) == [None, None]
        best = view.nearest("images", queries, top=12)
        fewer = [Hits(each.keys[:3], each.scores[:3]) for each in best]
        for results in ([], fewer, best):
            judged = known.judge("images", "texts", queries, results)
            for own, hits, query in zip(judged, best, queries, strict=True):
                sample, same = known.background("images"), known.background("texts")
                evidence = Evidence.collect(
                    hits.keys[:10], hits.scores[:10], sample, sample.scores(query[None])[0], same.scores(query[None])[0]
                )
                assert own is not None and own.direction == directions["images"] and own.stale is None
                assert own.level == pytest.approx(evidence.level(0.1))
                assert own.fit.percentile == pytest.approx(evidence.percentile(directions["images"]))
                wanted = [(float(s) / 0.1 - 0.5 * own.level + 0.2 + 9) / 18 for s in hits.scores]
                assert own.probabilities(hits.scores).tolist() == pytest.approx(np.clip(wanted, 0, 1).tolist())


def test_unpaired_item_has_no_group(tmp_path: Path) -> None:
    with stored(tmp_path / "index", made(9000, 30)).reading() as view:
        first, other = (
            [np.isnan(each.same_side).sum() for each in observe(view, made(start, 20), "images").evidence]
            for start in (0, 9000)
        )
    assert first == [0] * 40 and other == [2] * 40


def test_empty_side_is_skipped_and_first_item_is_new(tmp_path: Path) -> None:
    held = made(0, 120)
    folder = Folder.create(tmp_path / "index", MANIFEST)
    with folder.writing("build") as writer:
        items, vectors = held.side("images")
        writer.put(Change("images", [IndexEntry(name, name.encode()) for name in items.ids], vectors))
    calibration = fit_calibration(folder, made(5000, 120), data={})
    assert set(calibration.directions) == {"images"} and calibration.last["texts"] == 0 < calibration.last["images"]


def test_constant_scores_raise(tmp_path: Path) -> None:
    def equal(start: int, count: int) -> HeldOutPairs:
        held = made(start, count)
        fixed = [
            Embeddings(torch.eye(1, WIDTH).expand(len(each), 1, WIDTH), each.ids) for each in (held.images, held.texts)
        ]
        return HeldOutPairs(held.pairs, *fixed)

    with pytest.raises(RequirementError, match="needs larger scores to be right more often; here they are not"):
        fit_calibration(stored(tmp_path / "index", equal(0, 120)), equal(0, 120), data={})


def test_sampled_background_level_is_close_to_full_level() -> None:
    random = np.random.default_rng(0)
    vectors = unit(random.standard_normal((5000, WIDTH)))
    query = unit(random.standard_normal((1, WIDTH)))
    scores = (vectors @ query[0]).astype(np.float32)
    keys = np.sort(random.permutation(5000)[:1000]).astype(np.int64)
    some = Background(keys, vectors[keys][:, None], 5000)
    best = np.argsort(-scores)[:10].astype(np.int64)
    seen = Evidence.collect(best, scores[best], some, some.scores(query[None])[0], np.zeros(0, np.float32))
    assert seen.level(0.1) == pytest.approx(np.log(np.exp(scores.astype(float) / 0.1).sum()), abs=0.1)
    assert set(seen.signals(0.1)) == {"level"}, "an index without texts has no familiar words"


def test_calibration_is_stored_verified_and_not_copied(folder: Folder, found: Calibration, tmp_path: Path) -> None:
    assert store_calibration(folder, found, "<svg/>").endswith("calibration.svg")
    assert calibration_of(folder) == found
    copy = backup(folder, tmp_path / "copy")
    assert calibration_of(copy) == found and (copy.store / "calibration.svg").is_file() and verify(copy.path) == []
    file = copy.store / "calibration.json"
    file.write_text(file.read_text().replace('"threshold": 0.05', '"threshold": 0.06', 1))
    with pytest.raises(SearchIndexError, match="needs its own checksum"):
        calibration_of(copy)
    assert [each.where for each in verify(copy.path)] == ["calibration"]
    for text in ("{", "[]", '{"format": 9}', "{}"):
        file.write_text(text)
        with pytest.raises(SearchIndexError, match=r"calibrate the index again|with `subtext index calibrate`"):
            calibration_of(copy)
    file.unlink()
    assert calibration_of(copy) is None


def test_calibration_is_stale_after_ten_percent_change(found: Calibration, tmp_path: Path) -> None:
    folder = stored(tmp_path / "index", made(0, 300))
    with folder.reading() as view:
        assert Confidence(view).stale is None, "nothing to be stale"
    store_calibration(folder, found, "<svg/>")
    with folder.reading() as view:
        assert Confidence(view).stale is None
    with folder.writing("delete") as writer:
        writer.delete("images", [f"p{n}" for n in range(20)])
        put(writer, made(700, 9))
    with folder.reading() as view:
        assert Confidence(view).stale is None, "29 of 300 pictures"
        assert changed_since(view, found) == pytest.approx(29 / 300)
    with folder.writing("add") as writer:
        put(writer, made(800, 2))
    with folder.reading() as view:
        assert Confidence(view).stale == pytest.approx(31 / 300)


def test_too_few_or_uninformative_pairs_raise(folder: Folder) -> None:
    with pytest.raises(DataError, match="needs 100 held-out images with texts, or more; it got 30"):
        fit_calibration(folder, made(5000, 30), data={})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the twelve drawings, and 120 further ones with words of their own."""
    folder = tmp_path_factory.mktemp("calibrate")
    coloured_images.write(folder / "data")
    coloured_images.run(folder / "data", folder / "run")
    call("index", "build", folder / "index", "--run", folder / "run", "--quiet")
    (folder / "held").mkdir()
    rows = []
    for number in range(120):
        Image.new("RGB", (8, 8), (2 * number, 255 - 2 * number, 7 * number % 256)).save(
            folder / "held" / f"h{number}.png"
        )
        rows.append(
            {"file_name": f"h{number}.png", "id": f"h{number}", "captions": [f"held {number}"], "split": "held"}
        )
    (folder / "held" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def told(place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the command says of pairs whose embeddings are put in its hands: the model is not trained."""
    held = made(5000, 120)

    def given(model, pairs, **options):
        texts = replace(held.texts, vectors=held.texts.vectors[::2], ids=held.texts.ids[:120])
        return tuple(
            replace(each, vectors=torch.nn.functional.pad(each.vectors, (0, width))) for each in (held.images, texts)
        )

    width = 0
    monkeypatch.setattr("subtext.evaluation.embed_pairs", given)
    return call("index", "calibrate", place / "index", "--data", place / "held", "--split", "held", "--quiet").stdout


def test_calibrate_command_gives_search_probabilities(place: Path, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "calibrated by 120 images and 120 texts of split held" in told and "calibration error" in told
    store = Folder(place / "index").store
    ElementTree.parse(store / "calibration.svg")
    assert "120 images of split held" in call("index", "info", place / "index").stdout
    # Of this model, which is not trained, nothing matches well.
    calibration = calibration_of(Folder(place / "index"))
    assert calibration is not None
    directions = {side: replace(direction, threshold=0.0) for side, direction in calibration.directions.items()}
    store_calibration(Folder(place / "index"), replace(calibration, directions=directions), "<svg/>")
    engine = open_index(place / "index")
    answer = engine.search("a red square", top=12, signals=["pixels"])
    likely = [hit.probability for hit in answer.hits]
    assert answer.fit is not None and likely == sorted(likely, reverse=True) and all(0 <= p <= 1 for p in likely)
    few = engine.search("a red square", top=12, min_probability=likely[3], signals=["pixels"])
    assert [hit.probability for hit in few.hits] == [p for p in likely if p >= likely[3]]
    assert few.left_out == 12 - len(few.hits)
    # The same numbers whatever is filtered, asked for in a batch, or shown of it.
    vectors = engine.embed_text("a red square").vectors.numpy()
    batch = engine.nearest(vectors, modality="texts", top=3)[0]
    assert [hit.probability for hit in batch.hits] == pytest.approx(likely[:3]) and batch.fit == answer.fit
    held = engine.search("a red square", top=12, where=[parse("place < 6")], signals=["pixels"])
    every = {hit.id: hit.probability for hit in answer.hits}
    assert {hit.id: hit.probability for hit in held.hits} == pytest.approx({h.id: every[h.id] for h in held.hits})
    assert held.fit == answer.fit
    # Ranked by all evidence, a hit has the probability of its cosine, as too few pairs are of images of the index.
    whole = engine.search("a red square", top=12)
    assert {hit.id: hit.probability for hit in whole} == pytest.approx(every) and whole.fit == answer.fit
    assert whole.unit == "evidence"
    assert engine.search(like=["red"]).fit is None, "one's own kind is not calibrated"
    found = json.loads(call("search", place / "index", "a red square", "--json", "--signals", "pixels").stdout)
    assert found["has_no_match"] is found["fit"]["has_no_match"] and found["hits"][0]["probability"] == likely[0]
    assert (
        "share of hits like this that are pairs in the data" in call("search", place / "index", "a red square").stdout
    )
    # Of a word that was seen twice, the same score is worth less than of one that was seen often.
    engine = engine.with_model()
    spec = engine.model.text.input_spec
    counts = tuple(2 if word == "red" else 1000 for word in spec.vocabulary.tokens[4:])
    seldom = replace(spec, vocabulary=replace(spec.vocabulary, counts=counts))
    monkeypatch.setattr(engine.model.text, "input_spec", seldom)
    rare = engine.answer_many([Query(text="a red square"), Query(text="a blue square")])
    assert [answer.rare_words for answer in rare] == [{"red": 2}, {}] and rare[0].warnings[0].startswith(
        "the model saw"
    )
    assert {hit.probability for hit in rare[0]} == {None} and rare[0].exact_words == ("red",)
    assert rare[1][0].probability is not None and engine.search("red", min_probability=0.0)[0].probability is not None


def test_poor_match_is_reported(place: Path, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calibration = calibration_of(Folder(place / "index"))
    assert calibration is not None
    hard = {
        side: replace(direction, signal_quantiles={"level": [9.0] * 101}, quantiles=[0.1, 1.0])
        for side, direction in calibration.directions.items()
    }
    store_calibration(Folder(place / "index"), replace(calibration, directions=hard), "<svg/>")
    answer = call("search", place / "index", "a red square", "--top", 2)
    assert answer.stdout.startswith("nothing here matches well: no queries that have a match in this index")
    assert answer.stdout.count("square") >= 2, "what is nearest is shown all the same"
    found = json.loads(call("search", place / "index", "a red square", "--json").stdout)
    assert found["has_no_match"] is True and found["fit"]["percentile"] == 0
    assert "probability" not in answer.stdout and {hit["probability"] for hit in found["hits"]} == {None}
    sure = call("search", place / "index", "a red square", "--min-probability", 1).stdout
    assert "10 left out, below the minimum probability" in sure and sure.startswith("nothing here matches well")
    for more in ([], ["--min-probability", 0.5]):
        none = call("search", place / "index", "a red square", "--where", "place > 1000", *more)
        assert none.stdout == "nothing meets these conditions\n"
    many = open_index(place / "index").answer_many([Query(text=text, where=("place > 1000",)) for text in ("a", "red")])
    assert [answer.fit for answer in many] == [None, None]
    old = replace(calibration, counts={"images": 100, "texts": 24})
    store_calibration(Folder(place / "index"), old, "<svg/>")
    assert "88 % of the items were added or deleted" in call("search", place / "index", "a red square").stderr
    assert "stale" in call("index", "info", place / "index").stdout


def test_training_pairs_raise(place: Path) -> None:
    for split in ("train", "val", "all"):
        answer = call("index", "calibrate", place / "index", "--data", place / "data", "--split", split, code=1).stderr
        assert "neither for training nor for model selection" in answer and "are in split" in answer
    other = place / "other.jsonl"
    rows = [{"image": "blue.png", "caption": "something else"}, {"image": "cyan.png", "caption": "cyan"}]
    other.write_text("".join(json.dumps({**row, "split": "x"}) + "\n" for row in rows))
    more = ["--data", other, "--images", place / "data", "--split", "x"]
    assert "1 are in split 'train'" in call("index", "calibrate", place / "index", *more, code=1).stderr
    assert "held-out images" in call("index", "calibrate", place / "index", *more, "--skip-leak-check", code=1).stderr
    assert "DATA --split SPLIT" in call("index", "calibrate", place / "index", "--split", "x", code=2).stderr
    call("index", "calibrate", place / "index", "--data", other, code=2)


def test_missing_run_data_raises_in_leak_check(place: Path, tmp_path: Path) -> None:
    record = json.loads((place / "run" / "run.json").read_text())
    record["data"]["data"] = str(tmp_path / "gone")
    index = place / "index"
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in (place / "run").rglob("*"):
        target = moved / file.relative_to(place / "run")
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file():
            target.write_bytes(file.read_bytes())
    (moved / "run.json").write_text(json.dumps(record))
    answer = call("index", "calibrate", index, "--run", moved, "--data", place / "held", "--split", "held", code=1)
    assert "the run's own data cannot be read" in answer.stderr and "--skip-leak-check" in answer.stderr


def test_uncalibrated_direction_has_no_probability(place: Path) -> None:
    folder, line, last = Folder(place / "index"), {"xs": [0.0], "ys": [0.5]}, {"images": 9, "texts": 9}
    calibration = Calibration({}, line, {}, {"images": 12, "texts": 24}, last, folder.manifest.identity)
    store_calibration(folder, calibration, "<svg/>")
    engine: Index = open_index(place / "index")
    assert engine.search("a")[0].probability is None
    assert isinstance(
        DirectionCalibration(0.1, (1.0, -1.0), 0.0, {"xs": [0.0], "ys": [1.0]}, {}, [0.0], 0.05, {}).curve(np.zeros(1))[
            0
        ],
        float,
    )


def test_database_calibrates_as_folder(found: Calibration) -> None:
    with database.started() as server:
        store = filled(Database.create(server.address("calibrated"), MANIFEST), made(0, 300))
        own = fit_calibration(store, made(5000, 400), data={"split": "held"}, seed=1)
        assert replace(own, created=found.created) == found
        store_calibration(store, own, "<svg/>")
        with store.reading() as view:
            known = Confidence(view)
            assert known.calibration == own and known.stale is None
            assert known.judge("images", "texts", made(0, 300).side("texts")[1][:1], [])[0] is not None
        with store.writing("delete") as writer:
            writer.delete("images", [f"p{n}" for n in range(31)])
        with store.reading() as view:
            assert Confidence(view).stale == pytest.approx(31 / 300)
        assert calibration_of(Database(server.address("calibrated"))) == own
