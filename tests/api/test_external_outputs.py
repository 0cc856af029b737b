"""`subtext evaluate` of scores and vectors that another program made: every format, and what is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import call
from safetensors.numpy import save_file

from subtext.data.read import read

NOUNS = ("dog", "cat", "car", "tree", "house", "boat", "bird", "horse", "river", "bridge", "train", "cloud")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures that nobody needs, two texts each, with labels."""
    folder = tmp_path_factory.mktemp("outside")
    rows = [
        {
            "image": f"{noun}.png",
            "captions": [f"a {noun} beside a {NOUNS[place - 1]}", f"one large {noun} " * (place % 4 + 1)],
            "labels": [noun, "thing"],
            "split": "test",
        }
        for place, noun in enumerate(NOUNS)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "pairs.jsonl"


def made(data: Path) -> tuple[np.ndarray, list[str], list[str]]:
    pairs = read(data, need_images=False, verify=False)
    g = np.random.default_rng(0)
    scores = g.random((12, 24), dtype=np.float32)
    scores[np.arange(24) // 2, np.arange(24)] += 0.5
    return scores, pairs.images.ids, pairs.texts.ids


def measured(data: Path, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        call("evaluate", "--data", data, "--split", "test", "--json", "-", "-q", *words).stdout
    )
    return found


def test_scores_of_every_format_give_equal_figures(data: Path, tmp_path: Path) -> None:
    scores, images, texts = made(data)
    order, across = np.random.default_rng(1).permutation(12), np.random.default_rng(2).permutation(24)
    moved = np.ascontiguousarray(scores[order][:, across])
    names, captions = [images[row] for row in order], [texts[row] for row in across]
    np.savez(tmp_path / "a.npz", scores=moved, image_ids=np.array(names), text_ids=np.array(captions))
    np.save(tmp_path / "b.npy", moved.astype(np.float64))
    (tmp_path / "b.image_ids.txt").write_text("\n".join(names) + "\n")
    (tmp_path / "b.text_ids.json").write_text(json.dumps(captions))
    told = {"image_ids": json.dumps(names), "text_ids": json.dumps(captions)}
    save_file({"scores": moved}, tmp_path / "c.safetensors", metadata=told)
    rows, columns = np.divmod(np.arange(288), 24)
    pq.write_table(
        pa.table(
            {
                "image_id": [names[row] for row in rows],
                "text_id": [captions[column] for column in columns],
                "score": moved.ravel(),
            }
        ),
        tmp_path / "d.parquet",
    )
    found = [measured(data, "--scores", tmp_path / n) for n in ("a.npz", "b.npy", "c.safetensors", "d.parquet")]
    assert all(one["text_to_image/recall@1"] == found[0]["text_to_image/recall@1"] for one in found)
    expected = (scores.argmax(axis=0) == np.arange(24) // 2).mean()
    assert found[0]["text_to_image/recall@1"] == pytest.approx(100 * expected)
    assert found[0]["model"] == {"scores": str(tmp_path / "a.npz")} and found[0]["split"] == "test"


def test_vectors_equal_their_products_in_figures(data: Path, tmp_path: Path) -> None:
    _, images, texts = made(data)
    g = np.random.default_rng(3)
    x, y = g.standard_normal((12, 4)).astype(np.float32), g.standard_normal((24, 4)).astype(np.float32)
    both = {"image_ids": np.array(images), "text_ids": np.array(texts), "image_vectors": x, "text_vectors": y}
    np.savez(tmp_path / "both.npz", **both)
    np.save(tmp_path / "i.npy", x[::-1].copy())
    (tmp_path / "i.ids.txt").write_text("\n".join(images[::-1]))
    save_file({"embeddings": y}, tmp_path / "t.safetensors")
    (tmp_path / "words.json").write_text(json.dumps(texts))
    pq.write_table(pa.table({"id": images, "vector": x.tolist()}), tmp_path / "i.parquet")
    where = {
        "one file": ["--image-embeddings", tmp_path / "both.npz", "--text-embeddings", tmp_path / "both.npz"],
        "npy": ["--image-embeddings", tmp_path / "i.npy", "--text-embeddings", tmp_path / "both.npz"],
        "mixed": ["--image-embeddings", tmp_path / "i.parquet", "--text-embeddings", tmp_path / "t.safetensors",
                  "--text-ids", tmp_path / "words.json"],
    }  # fmt: skip
    found = [measured(data, *words, "--alignment-uniformity", "--hubness", 3) for words in where.values()]
    unit = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ (y / np.linalg.norm(y, axis=1, keepdims=True)).T
    hits = 100 * (unit.argmax(axis=0) == np.arange(24) // 2).mean()
    dots = 100 * ((x @ y.T).argmax(axis=0) == np.arange(24) // 2).mean()
    assert [one["text_to_image/recall@1"] for one in found] == pytest.approx([hits] * 3)
    assert found[0]["alignment"] == pytest.approx(found[2]["alignment"], abs=1e-5)
    plain = measured(data, *where["one file"], "--similarity", "dot")
    assert plain["text_to_image/recall@1"] == pytest.approx(dots)


def test_all_figures_are_printed(data: Path, tmp_path: Path) -> None:
    scores, images, texts = made(data)
    np.savez(tmp_path / "s.npz", scores=scores, image_ids=np.array(images), text_ids=np.array(texts))
    (tmp_path / "people.csv").write_text(
        "text,image,score\n" + "".join(f"{texts[n]},{images[n // 2]},{n % 5}\n" for n in range(24))
    )
    words = [
        "--scores", tmp_path / "s.npz", "--relevance", "tfidf1,ciderd", "--asp-top", "5,10", "--r-precision",
        "--pmrp", "--by-length", "--hubness", 2, "--human-ratings", tmp_path / "people.csv", "--folds", 2,
        "--cache", tmp_path / "cache", "--json", tmp_path / "out.json", "--per-query", tmp_path / "out.npz",
    ]  # fmt: skip
    screen = call("evaluate", "--data", data, "--split", "test", "-q", *words).stdout
    for wanted in ("asp(tfidf1)", "asp@5(ciderd)", "best order", "r precision", "pmrp", "human/kendall", "(words 0-9)"):
        assert wanted in screen, screen
    told = json.loads((tmp_path / "out.json").read_text())
    counts = told["protocol"]["words"]
    assert "texts by length: " + ", ".join(f"{name} {count}" for name, count in counts.items()) in screen
    assert {"asp@5(tfidf1)", "asp(ciderd)"} <= told["protocol"]["metrics"].keys()
    assert {"image_to_text/asp(tfidf1)", "text_to_image/gain@5(ciderd)"} <= told.keys()
    assert len(list((tmp_path / "cache").iterdir())) == 2
    with np.load(tmp_path / "out.npz", allow_pickle=False) as kept:
        assert kept["image_to_text/asp(tfidf1)"].shape == (12,)


def test_invalid_files_raise_one_sentence(data: Path, tmp_path: Path) -> None:
    scores, images, texts = made(data)
    good = {"scores": scores, "image_ids": np.array(images), "text_ids": np.array(texts)}
    broken = scores.copy()
    broken[1, 2], broken[3, 4] = np.nan, np.inf
    bad = {
        "nan": ({**good, "scores": broken}, f"needs finite numbers; '{images[1]}' has nan in column 2"),
        "turned": ({**good, "scores": scores.T}, "transpose the matrix"),
        "short": ({**good, "scores": scores[:, 1:]}, "of shape (12, 24) as it has ids"),
        "flat": ({**good, "scores": scores.ravel()}, "needs 'scores' (images, texts)"),
        "whole": ({**good, "scores": np.ones((12, 24), dtype=np.int64)}, "needs fractions"),
        "twice": ({**good, "image_ids": np.array([images[0], *images[:-1]])}, "ids that are unique; 1 come more than"),
        "others": ({**good, "text_ids": np.array([f"x{n}" for n in range(24)])}, "24 of 24 have none"),
        "nameless": ({"scores": scores}, "needs 'image_ids' in it"),
    }
    for name, (arrays, sentence) in bad.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        said = call("evaluate", "--data", data, "--split", "test", "--scores", tmp_path / f"{name}.npz", "-q", code=1)
        assert sentence in said.output, said.output
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(scores))
    (tmp_path / "scores.csv").write_text("1,2")
    for name, sentence in (
        ("objects.npy", "needs to be an npy of plain numbers"),
        ("model.pkl", "may hold pickled objects"),
        ("scores.csv", "scores and vectors need npz, npy, safetensors or parquet"),
        ("none.npz", "it is not there"),
    ):
        said = call("evaluate", "--data", data, "--split", "test", "--scores", tmp_path / name, "-q", code=1)
        assert sentence in said.output, said.output


def test_incompatible_options_raise(data: Path, tmp_path: Path) -> None:
    scores, images, texts = made(data)
    np.savez(tmp_path / "s.npz", scores=scores, image_ids=np.array(images), text_ids=np.array(texts))
    where = ["--data", data, "--split", "test", "-q"]
    here = ["--scores", tmp_path / "s.npz"]
    for words, code, sentence in (
        ([*where], 2, "give one of these"),
        (["run", *where, *here], 2, "give one of these"),
        ([*where, "--image-embeddings", "x.npz"], 2, "--image-embeddings needs vectors of images and of texts"),
        ([*where, "--text-ids", "x.txt"], 2, "--text-ids needs a file of scores or vectors"),
        (["-q", *here], 2, "--data needs the images, texts and pairs"),
        ([*where, *here, "--relevance", "bleu"], 1, "it got 'bleu'"),
        ([*where, *here, "--truth", "eccv"], 2, "--truth needs eccv=FOLDER"),
        ([*where, *here, "--alignment-uniformity"], 2, "--alignment-uniformity needs embeddings"),
        ([*where, *here, "--folds", "1k+5k"], 1, "folds of 1,000 images need a multiple of as many; there are 12"),
        ([*where, *here, "--folds", "many"], 2, "needs a number of folds"),
        ([*where, *here, "--gain", "0"], 2, "whole numbers with commas between them, each 1 or more"),
    ):
        said = call("evaluate", *words, code=code)
        assert sentence in " ".join(said.output.split()), said.output
