"""Relevance from files and data sets to matrices and truths: by name, kept on disk, by people, labels and classes."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch

from subtext.data.dataset import Dataset, Items, Judgements
from subtext.data.read import read as read_dataset
from subtext.errors import DataError, RequirementError, ShapeError
from subtext.evaluation.relevance import cider, classes, graded as relevances, plausible, tfidf
from subtext.evaluation.relevance.graded import Graded, graded, sentence_relevance
from subtext.evaluation.relevance.judgements import read_cxc, read_eccv, read_ratings
from subtext.evaluation.relevance.match import of_groups
from subtext.models.encoders.language import SentenceEncoder
from subtext.ops.sparse import CandidateLists

TEXTS = ["a red dog runs", "the dog is red", "two cats sleep", "cats on a red mat", "a bird", "birds fly away"]
DATA = pytest.mark.skipif("SUBTEXT_DATA" not in os.environ, reason="needs SUBTEXT_DATA")


def pairs(**more: list) -> Dataset:
    """Three pictures with two texts each; the last text belongs to the first picture as well."""
    groups = np.repeat(np.arange(3), 2)
    links = np.array([*zip(groups.tolist(), range(6), strict=True), (0, 5)])
    return Dataset(
        images=Items(["p0", "p1", "p2"], [None] * 3, np.arange(3), np.array(["test"] * 3), more),
        texts=Items([f"t{row}" for row in range(6)], list(TEXTS), groups, np.array(["test"] * 6)),
        links=links,
        root=Path(),
    )


def cells(found: CandidateLists) -> list[list[int]]:
    return [found[row : row + 1].expand()[1].tolist() for row in range(len(found))]


@pytest.mark.parametrize("name", ["tfidf1", "ciderd", "cider"])
def test_relevance_is_computed_by_links(name):
    own = [0, 0, 1, 1, 2, 2, 0]
    references = [*TEXTS, TEXTS[5]]
    found = graded(pairs(), name)
    module = tfidf.products if name == "tfidf1" else cider.products
    chosen = {} if name == "tfidf1" else {"variant": name}
    np.testing.assert_array_equal(found.values, module(references, own, TEXTS, **chosen).all())
    assert found.name == name and found.shape == (3, 6)


def test_image_relevance_may_use_first_texts():
    found = graded(pairs(), "tfidf1", references=1)
    np.testing.assert_array_equal(found.values, tfidf.products([TEXTS[0], TEXTS[2], TEXTS[4]], [0, 1, 2], TEXTS).all())


def test_block_equals_slice_of_full_matrix():
    for module in (tfidf, cider):
        made = module.products(TEXTS, [0, 0, 1, 1, 2, 2], TEXTS)
        rows, columns = np.array([2, 0]), np.array([5, 1, 1])
        np.testing.assert_allclose(made.block(rows, columns), made.all()[rows][:, columns], atol=1e-6)


def test_half_precision_output_and_groups_without_texts():
    out = np.empty((4, 6), dtype=np.float16)
    found = tfidf.products(TEXTS[:4], [0, 0, 1, 1], TEXTS, count=4).all(out)
    assert found is out and not found[2:].any()
    np.testing.assert_allclose(found[:2], tfidf.products(TEXTS[:4], [0, 0, 1, 1], TEXTS).all(), atol=1e-3)
    # A picture without texts does not make words rarer.
    np.testing.assert_array_equal(
        cider.products(TEXTS[:4], [0, 0, 2, 2], TEXTS, count=4).all()[[0, 2]],
        cider.products(TEXTS[:4], [0, 0, 1, 1], TEXTS).all(),
    )


def test_cached_matrix_is_reused(tmp_path, monkeypatch):
    asked = {"cache": tmp_path / "new"}
    first = graded(pairs(), "ciderd", **asked)
    assert isinstance(first.values, np.memmap)
    np.testing.assert_array_equal(first.values, graded(pairs(), "ciderd").values)
    monkeypatch.setattr(cider, "products", lambda *given, **named: pytest.fail("computed again"))
    np.testing.assert_array_equal(graded(pairs(), "ciderd", **asked).values, first.values)
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_every_setting_has_own_cached_matrix(tmp_path):
    changed = replace(pairs(), texts=replace(pairs().texts, values=[*TEXTS[:5], "another"]))
    for data, name, asked in [
        (pairs(), "tfidf1", {}),
        (pairs(), "ciderd", {}),
        (pairs(), "tfidf1", {"references": 1}),
        (changed, "tfidf1", {}),
    ]:
        kept, plain = graded(data, name, cache=tmp_path, **asked), graded(data, name, **asked)
        np.testing.assert_array_equal(kept.values, plain.values)
    assert len(list(tmp_path.iterdir())) == 4


def test_damaged_cached_matrix_raises(tmp_path):
    graded(pairs(), "tfidf1", cache=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(DataError, match="damaged"):
        graded(pairs(), "tfidf1", cache=tmp_path)
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="damaged"):
        graded(pairs(), "tfidf1", cache=tmp_path)


def test_failed_matrix_leaves_no_file(tmp_path):
    def fail(out: np.ndarray) -> None:
        raise DataError("no")

    with pytest.raises(DataError):
        relevances.cached(tmp_path, {}, shape=(2, 2), fill=fail)
    assert not list(tmp_path.iterdir())


def test_both_directions_read_one_matrix():
    found = graded(pairs(), "tfidf1")
    for size in (1, 40, 2**20):
        rows = np.concatenate([block for _, _, block in found.blocks("image_to_text", size)])
        columns = np.concatenate([block for _, _, block in found.blocks("text_to_image", size)])
        assert np.array_equal(rows, found.values) and np.array_equal(columns, found.values.T)
    part = found.take(np.array([2, 0]), np.array([5, 1]))
    assert np.array_equal(part.values, found.values[[2, 0]][:, [5, 1]]) and part.name == "tfidf1"
    truth = found.truth("text_to_image", 1, 4, of_groups(np.arange(3), pairs().texts.groups))
    assert truth.scale == "tfidf1" and torch.equal(truth.relevance, torch.from_numpy(found.values.T[1:4].copy()))
    assert truth.match.int().argmax(1).tolist() == [0, 1, 1]


def test_non_finite_or_wrong_relevance_raises():
    values = np.zeros((2, 3), dtype=np.float32)
    values[1, 2] = np.nan
    made = Graded("made", values)
    with pytest.raises(DataError, match="text_to_image query 2, candidate 1 has nan"):
        made.block("text_to_image", 1, 3)
    assert not made.block("image_to_text", 0, 1).any()
    with pytest.raises(ShapeError, match="float64"):
        Graded("made", values.astype(np.float64))


def test_judgements_become_relevance():
    judged = Judgements(np.array([5, 0]), np.array([0, 1]), np.array([2.0, 1.0], dtype=np.float32))
    found = graded(replace(pairs(), judgements=judged), "judged")
    assert found.values[0, 5] == 2 and found.values[1, 0] == 1 and found.values.sum() == 3
    with pytest.raises(RequirementError, match="brings none"):
        graded(pairs(), "judged")


def test_class_relevance_of_dataset():
    data = pairs(labels=["bird", ["cat"], "bird"])
    images, texts = classes.of_pairs(data)
    assert images == ["bird", "cat", "bird"] and texts == ["bird", "bird", "cat", "cat", "bird", "bird"]
    found = graded(data, "class_tfidf1")
    assert np.array_equal(found.values[0], found.values[2]) and found.values[1, 2] > found.values[1, 0]
    with pytest.raises(RequirementError, match="'p1' has 2"):
        classes.of_pairs(pairs(labels=["a", ["b", "c"], "a"]))
    with pytest.raises(RequirementError, match="'p0' has 0"):
        graded(pairs(), "class_tfidf1")


def test_unknown_relevance_name_or_missing_words_raise():
    with pytest.raises(RequirementError, match="one of tfidf1, ciderd"):
        graded(pairs(), "cidre")
    with pytest.raises(RequirementError, match="one of tfidf1"):
        relevances.check("sentence:")
    data = pairs()
    with pytest.raises(DataError, match="'t1' has none"):
        graded(replace(data, texts=replace(data.texts, values=["a", None, *TEXTS[2:]])))
    with pytest.raises(RequirementError, match="at least one reference"):
        graded(data, "tfidf1", references=0)


@pytest.mark.parametrize(
    ("references", "groups", "message"),
    [
        ([], [], "at least one reference"),
        (["a"], [0, 1], "0 references|1 references and groups of shape"),
        (["a", "b"], [0, -1], "from -1 to 0"),
        (["a", "b"], [0, 7], "0 to 2; they go from 0 to 7"),
    ],
)
def test_mismatched_texts_and_groups_raise(references, groups, message):
    with pytest.raises(DataError, match=message):
        cider.products(references, groups, ["a"], count=3).all()


def test_pmrp_positives_equal_worked_example():
    """Codes 1001, 1000, 0110, 1101; R-Precision of the card's lists at zeta 0, 1, 2 and their mean."""
    labels = [{"a", "d"}, {"a"}, {"b", "c"}, {"a", "b", "d"}]
    lists = [[1, 0, 2, 3], [1, 3, 0, 2], [0, 2, 3, 1], [3, 0, 1, 2]]
    found = plausible.labelled(labels, np.arange(4))
    values = []
    for zeta in (0, 1, 2):
        positives = cells(found.match(zeta).image_to_text)
        assert positives == cells(found.match(zeta).text_to_image)
        values.append([len({*ranked[: len(p)]} & {*p}) / len(p) for ranked, p in zip(lists, positives, strict=True)])
    wanted = [[0, 1, 0, 1], [2 / 3, 0.5, 0, 1], [2 / 3, 1, 0, 1]]
    np.testing.assert_allclose(values, wanted)
    assert 100 * np.mean(values) == pytest.approx(56.944444, abs=1e-6)


def test_images_without_labels_are_excluded():
    found = plausible.of_pairs(pairs(labels=[["x"], [], ["x", "y"]]))
    assert found.image_rows.tolist() == [0, 2] and found.text_rows.tolist() == [0, 1, 4, 5]
    assert cells(found.match(0).image_to_text) == [[0, 1, 3], [2]]  # the last text is the first picture's, too
    assert cells(found.match(1).image_to_text) == [[0, 1, 2, 3]] * 2
    with pytest.raises(RequirementError, match="none of 3 has any"):
        plausible.of_pairs(pairs())
    with pytest.raises(RequirementError, match="zeta"):
        found.match(-1)


def table(path: Path, rows: list[dict]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_human_ratings_are_joined_by_name(tmp_path):
    rows = [{"caption": "t3", "image": "p0", "agg_score": 4.5}, {"caption": "t9", "image": "p0", "agg_score": 1}]
    found = read_ratings(table(tmp_path / "judged.csv", rows))
    judged = found.judgements(["p0", "p1"], ["t3", "t4"])
    assert (judged.images.tolist(), judged.texts.tolist(), judged.scores.tolist()) == ([0], [0], [4.5])
    rows = [{"query-id": "p0", "corpus-id": "t4", "score": 2}]
    (tmp_path / "qrels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    turned = read_ratings(tmp_path / "qrels.jsonl").judgements(["p0", "p1"], ["t3", "t4"])
    assert (turned.images.tolist(), turned.texts.tolist()) == ([0], [1])
    with pytest.raises(DataError, match="name them alike"):
        found.judgements(["x"], ["p0"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"a": 1, "b": 2}], "a column 'query'"),
        ([{"query": "a", "image": "b"}], "a column 'score'"),
        ([{"query": "a", "image": "b", "score": "nan"}], "line 2 needs a query, a candidate and a finite score"),
        ([{"query": "a", "image": "b", "score": 1}] * 2, "'a' and 'b' are at line 2 and at line 3"),
        ([{"query": "", "image": "b", "score": 1}], "line 2 needs a query"),
    ],
)
def test_incomplete_ratings_table_raises(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        read_ratings(table(tmp_path / "judged.csv", rows))


def positives(folder: Path) -> None:
    for name, lists in {
        "eccv_image_to_caption": {"7": [70, 80, 99]},
        "eccv_caption_to_image": {"70": [7, 8], "99": [8]},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(lists))


def test_eccv_positives_are_joined_by_number(tmp_path):
    positives(tmp_path)
    found = read_eccv(tmp_path).match(["COCO_val2014_000000000007.jpg", "8"], [70, 71, 80])
    assert cells(found.image_to_text) == [[0, 2], []] and cells(found.text_to_image) == [[0, 1], [], []]


def test_invalid_eccv_files_or_names_raise(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_eccv(tmp_path)
    positives(tmp_path)
    read = read_eccv(tmp_path)
    with pytest.raises(DataError, match="none of 2 has one of 1 judged numbers"):
        read.match([1, 2], [3])
    with pytest.raises(DataError, match=r"'7' and '07\.jpg' have the same"):
        read.match(["7", "07.jpg"], [70])
    with pytest.raises(DataError, match="end in a number"):
        read.match(["seven"], [70])
    (tmp_path / "eccv_image_to_caption.json").write_text("[1]")
    with pytest.raises(DataError, match="an object of lists"):
        read_eccv(tmp_path)
    (tmp_path / "eccv_image_to_caption.json").write_text("{")
    with pytest.raises(DataError, match="needs to be JSON"):
        read_eccv(tmp_path)


@pytest.mark.data
@DATA
def test_judgements_of_coco_test_set():
    """Queries and positives per query as counted in the package's files; CxC is those rated 3 or more.

    Two of ECCV's 22,550 captions are the sixth of their pictures, which the test set leaves out.
    """
    folder = Path(os.environ["SUBTEXT_DATA"]) / "coco5k_text"
    rows = [json.loads(line) for line in (folder / "karpathy_test_5k.jsonl").read_text().splitlines()]
    images, texts = [row["image_id"] for row in rows], [name for row in rows for name in row["caption_ids"]]
    found = {kind: read_eccv(folder / "eccv_caption", kind).match(images, texts) for kind in ("eccv", "cxc", "coco")}
    told = {
        kind: [
            (len(n), round(float(n.mean()), 3), int(n.max()))
            for n in (cells.lengths[cells.lengths > 0] for cells in (match.image_to_text, match.text_to_image))
        ]
        for kind, match in found.items()
    }
    assert told == {
        "eccv": [(1261, 17.881, 48), (1332, 8.468, 19)],
        "cxc": [(5000, 7.117, 19), (24972, 1.425, 8)],
        "coco": [(5000, 5.0, 5), (25000, 1.0, 1)],
    }
    rated = read_cxc(folder / "cxc" / "sits_test.csv").match(images, texts)
    shipped = read_eccv(folder / "eccv_caption", "cxc").match(images, texts)
    assert all(
        np.array_equal(a, b) for a, b in zip(rated.image_to_text.expand(), shipped.image_to_text.expand(), strict=True)
    )
    assert all(
        np.array_equal(a, b) for a, b in zip(rated.text_to_image.expand(), shipped.text_to_image.expand(), strict=True)
    )


@pytest.mark.data
@DATA
def test_plausible_images_of_tiny_coco():
    """Labels are read from the instances of COCO; a plain loop over all pairs of pictures agrees."""
    data = read_dataset(Path(os.environ["SUBTEXT_DATA"]) / "tiny_coco" / "captions.jsonl")
    found = plausible.of_pairs(data)
    labels = [set(data.images.metadata["labels"][row]) for row in found.image_rows]
    assert 90 < len(labels) <= 100
    for zeta in (0, 1, 2):
        near = [[5 * b + t for b, y in enumerate(labels) if len(x ^ y) <= zeta for t in range(5)] for x in labels]
        assert cells(found.match(zeta).image_to_text) == near


def test_sentence_encoder_folder_gives_relevance(tmp_path):
    """Unlike words without its weights: the model's own vectors decide, and new weights are another relevance."""
    folder = tiny_models.bert(tmp_path / "bert")
    asked = {"cache": tmp_path / "kept"}
    found = graded(pairs(), f"sentence:{folder}", **asked)
    vectors = SentenceEncoder(str(folder), batch_size=1)(TEXTS)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(found.values[1], (unit[[2, 3]] @ unit.T).mean(axis=0), atol=1e-5)
    assert found.name == "sentence:bert" and found.values[1].std() > 0
    changed = tiny_models.bert(tmp_path / "bert")
    assert changed == folder
    graded(pairs(), f"sentence:{folder}", **asked)
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_sentence_without_direction_raises():
    with pytest.raises(DataError, match="'a bird'"):
        sentence_relevance(
            TEXTS, range(6), TEXTS, encoder=lambda texts: np.array([[float(text != "a bird")] for text in texts])
        )
