"""The semantic graph: spaces, building, what is refused, saving, and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import made_data
import numpy as np
import pytest
import tiny_models
import torch
from click.testing import CliRunner
from find_parts import ROOT

from subtext.cli import main
from subtext.core import Comparison, Truth
from subtext.data.dataset import Dataset, Items
from subtext.data.feature_file import FeatureFile
from subtext.data.read import read
from subtext.errors import DataError, OutputError, RequirementError
from subtext.evaluation.checks.graph_quality import CIDERD, TFIDF, graph_quality
from subtext.evaluation.metrics.preservation import Preservation
from subtext.evaluation.relevance.cider import products
from subtext.graphs import graph as graphs
from subtext.graphs.build import GraphOptions, build_graph
from subtext.graphs.graph import Graph, image_of_text
from subtext.graphs.spaces import (
    DistanceName,
    Doc2VecSpace,
    FeatureSpace,
    LsaSpace,
    SentenceSpace,
    TextProgress,
    TextVectors,
    cosines,
    doc2vec_words,
    tfidf,
)
from subtext.models.encoders.language import SentenceEncoder
from subtext.ops import draw


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    data, features = made_data.write(folder)
    return data, features, read(data, need_images=False)


def pairs_of(texts: list[str | None], *, pictures: list[int] | None = None, splits: list[str] | None = None) -> Dataset:
    """Texts a picture each, or as told."""
    own = list(range(len(texts))) if pictures is None else pictures
    count = max(own) + 1
    split = np.array(splits or ["train"] * len(texts))
    groups = np.array(own, dtype=np.int64)
    names = [f"t{row}" for row in range(len(texts))]
    images = Items([f"p{row}" for row in range(count)], [None] * count, np.arange(count), np.array(["train"] * count))
    links = np.array([[picture, text] for text, picture in enumerate(own)], dtype=np.int64)
    return Dataset(images, Items(names, list(texts), groups, split), links, Path())


@dataclass(frozen=True)
class Array:
    """A space of given vectors, a row a text."""

    vectors: np.ndarray
    distance: DistanceName = "l2"

    def settings(self) -> dict[str, str]:
        return {"name": "array"}

    def __call__(self, pairs: Dataset, learn: np.ndarray, progress: TextProgress | None = None) -> TextVectors:
        return TextVectors(self.vectors.astype(np.float32), np.ones(len(self.vectors), dtype=bool))


def line(places: list[float], **more) -> tuple[Dataset, Array]:
    pairs = pairs_of([f"words {place} {row}" for row, place in enumerate(places)], **more)
    return pairs, Array(np.float32(places)[:, None])


def test_doc2vec_words_follow_published_preprocessing():
    text = "The U.S. President's <b>Border-wall</b> plan is a 5-year, $25bn idea; it isn't cheap!"
    assert " ".join(doc2vec_words(text)) == "president border wall plan year 25bn idea isn cheap"
    assert doc2vec_words("One dog runs. Two cats sleep! Three birds fly.", sentences=2) == [
        "dog",
        "runs",
        "cats",
        "sleep",
    ]
    assert doc2vec_words("Zoë's piñata café") == ["ata", "caf"]


def test_neighbours_are_nearest_others():
    pairs, space = line([0, 1, 2.1, 3.3, 10])
    graph = build_graph(pairs, space, GraphOptions(neighbours=2))
    assert graph.neighbours.tolist() == [[1, 2], [0, 2], [1, 3], [2, 1], [3, 2]]
    np.testing.assert_allclose(graph.distances[0], [1, 2.1], rtol=1e-6)
    assert graph.counts.tolist() == [2] * 5


def test_preservation_equals_worked_value():
    """Card: Omega lists and M lists of five places on a line share two in five."""
    pairs, space = line([0, 1, 2.1, 3.3, 10])
    graph = build_graph(pairs, space, GraphOptions(neighbours=2))
    places = torch.tensor([0, 5, 1, 1.5, 4], dtype=torch.float64)
    scores = -(places[:, None] - places[None]).abs()
    values = Preservation()(Comparison(scores, graph.truth(0, 5)))
    assert values.mean().item() == pytest.approx(0.4)
    half = Preservation()(Comparison(scores[2:4], graph.truth(2, 4)))
    torch.testing.assert_close(half, values[2:4])


def test_preservation_equals_plain_loop():
    match = torch.rand(6, 20) < 0.3
    ignored = (torch.rand(6, 20) < 0.2) & ~match
    scores = torch.randn(6, 20, dtype=torch.float64)
    values = Preservation()(Comparison(scores, Truth(match, ignored)))
    for query in range(6):
        fit = [c for c in range(20) if not ignored[query, c]]
        wanted = int(match[query].sum())
        best = sorted(fit, key=lambda c: (-scores[query, c].item(), c))[:wanted]
        assert values[query].item() == pytest.approx(sum(bool(match[query, c]) for c in best) / wanted)


@pytest.mark.parametrize("search", ["exact", "approximate"])
def test_equal_texts_vectors_and_images_are_no_neighbours(search):
    texts = ["a", "a", "b", "c", "d", "e", "f"]
    pairs = pairs_of(texts, pictures=[0, 1, 1, 2, 3, 4, 5])
    space = Array(np.float32([[0], [3], [1], [1], [2], [5], [9]]))
    kept = build_graph(pairs, space, GraphOptions(neighbours=3, same_image="keep", search=search))
    dropped = build_graph(pairs, space, GraphOptions(neighbours=3, search=search))
    assert kept.neighbours[0].tolist() == [2, 3, 4]  # never 1: the same words
    assert kept.neighbours[2].tolist() == [0, 4, 1]  # never 3: the same place
    assert dropped.neighbours[2].tolist() == [0, 4, 5]  # nor 1: the same picture


def test_approximate_search_has_high_recall():
    """3,000 places in 64 dimensions, where a walk that looks at no more than it gives misses one in nine."""
    texts = [f"word{place}" for place in range(3000)]
    space = Array(np.random.default_rng(0).normal(size=(3000, 64)).astype(np.float32))
    exact, walked = (
        build_graph(pairs_of(texts), space, GraphOptions(neighbours=50, search=search))
        for search in ("exact", "approximate")
    )
    both = zip(exact.neighbours, walked.neighbours, strict=True)
    assert np.mean([len(np.intersect1d(one, other)) / 50 for one, other in both]) > 0.98


def test_only_texts_of_the_split_are_neighbours():
    pairs, space = line([0, 1, 2, 3, 4, 5], splits=["train", "val", "train", "test", "train", "train"])
    graph = build_graph(pairs, space, GraphOptions(neighbours=2))
    assert set(graph.neighbours.ravel().tolist()) == {0, 2, 4, 5}
    assert graph.neighbours[1].tolist() == [0, 2] and graph.neighbours[3].tolist() == [2, 4]


def test_short_lists_are_padded_with_minus_one():
    pairs = pairs_of(["a", "a", "a", "b", "c"])
    graph = build_graph(pairs, Array(np.float32([[0], [1], [2], [3], [4]])), GraphOptions(neighbours=3))
    assert graph.neighbours[0].tolist() == [3, 4, -1] and graph.distances[0, 2] == np.inf
    assert graph.counts.tolist() == [2, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("texts", "choice", "words"),
    [
        (["a b", "c d", "e f"], GraphOptions(neighbours=3), "3 neighbours need more than 3 texts.*use at most 2"),
        (["a b"] * 9, GraphOptions(neighbours=3), "all 9 are the same"),
        (["a b", None, "c", "d"], GraphOptions(neighbours=2), "'t1' has none; use a space of features"),
        (["a b", "c d"], GraphOptions(neighbours=1, candidate_split="dev"), "there are 0 among 2; name another split"),
        (["a b", "?!", "..."], GraphOptions(neighbours=1), "that the space has a vector for; there are 1 among 3"),
    ],
)
def test_unsuitable_texts_or_settings_raise(texts, choice, words):
    with pytest.raises(DataError, match=words):
        build_graph(pairs_of(texts), LsaSpace(width=2), choice)


def test_texts_without_known_words_are_skipped():
    pairs = pairs_of(["red dog", "?!", "red cat", "blue dog", "blue cat"])
    graph = build_graph(pairs, LsaSpace(width=2), GraphOptions(neighbours=2))
    assert graph.counts.tolist() == [2, 0, 2, 2, 2] and 1 not in graph.neighbours


def test_lsa_equals_singular_value_decomposition(made):
    texts = made[2].texts
    learn = texts.splits == "train"
    rows = tfidf([str(value) for value in texts.values], learn)
    dense = rows.toarray().astype(np.float64)
    directions = np.linalg.svd(dense[learn], full_matrices=False)[2][:5]
    wanted = dense @ directions.T
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    places = LsaSpace(width=5)(made[2], learn)
    np.testing.assert_allclose(places.vectors @ places.vectors.T, wanted @ wanted.T, atol=2e-3)
    assert places.known.all() and places.vectors.shape[1] == 5


def test_tfidf_cosines_equal_dense_rows():
    texts = ["a dog and a dog", "the dog", "a cat", "birds"]
    rows = tfidf(texts, np.ones(4, dtype=bool))
    left, right = np.array([0, 0, 1, 3]), np.array([1, 2, 1, 0])
    dense = np.zeros((4, 6))
    words = ["a", "and", "birds", "cat", "dog", "the"]
    for row, text in enumerate(texts):
        for word in text.split():
            holders = sum(word in other.split() for other in texts)
            dense[row, words.index(word)] += np.log(5 / (1 + holders)) + 1
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    np.testing.assert_allclose(rows.toarray(), dense, atol=1e-6)
    np.testing.assert_allclose(cosines(rows, left, right), (dense[left] * dense[right]).sum(axis=1), atol=1e-6)


@pytest.mark.slow
def test_doc2vec_vectors_are_equal_in_every_process(made, tmp_path):
    code = f"""
import numpy as np
from subtext.data.read import read
from subtext.graphs.spaces import Doc2VecSpace
data = read({str(made[0])!r}, need_images=False)
places = Doc2VecSpace(width=8, min_count=2, epochs=3)(data, np.ones(len(data.texts), dtype=bool))
np.save({str(tmp_path / "places.npy")!r}, places.vectors)
"""
    # Python's hash of a text is another with another seed, unless this process happens to have the same.
    environment = {**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    places = Doc2VecSpace(width=8, min_count=2, epochs=3)(made[2], np.ones(len(made[2].texts), dtype=bool))
    assert np.array_equal(np.load(tmp_path / "places.npy", allow_pickle=False), places.vectors)


def test_doc2vec_inference_equals_gensim(made, monkeypatch):
    space = Doc2VecSpace(width=8, min_count=2, epochs=3, output="ns")
    model = space._train([doc2vec_words(text) for text in made[2].texts.values])
    words = tuple(model.wv.index_to_key[:3])

    def start(size, seed_string):
        drawn = draw.uniform(np.array([draw.key(seed_string)]), seed=0, epoch=0, purpose="doc2vec", count=size)
        return ((drawn[0] - 0.5) / size).astype(np.float32)

    monkeypatch.setattr("gensim.models.doc2vec.pseudorandom_weak_vector", start)
    ours = space._infer(model, words)
    model.random.seed(0)
    np.testing.assert_allclose(ours, model.infer_vector(list(words)), rtol=1e-5)


def test_doc2vec_is_reproducible_and_depends_on_words_alone(made):
    space = Doc2VecSpace(width=8, min_count=2, epochs=3)
    learn = made[2].texts.splits == "train"
    places = space(made[2], learn)
    again = space(made[2], learn)
    np.testing.assert_array_equal(places.vectors, again.vectors)
    # The texts that are learnt from stay in their order; the others stand behind them, turned round.
    order = np.concatenate([np.flatnonzero(learn), np.flatnonzero(~learn)[::-1]])
    other = replace(made[2], texts=made[2].texts.take(order))
    turned = space(other, learn[order])
    assert turned.known.all() and places.known.all() and (~learn).sum() > 1
    np.testing.assert_array_equal(turned.vectors, places.vectors[order])
    with pytest.raises(DataError, match="occur 999 times"):
        Doc2VecSpace(min_count=999)(made[2], learn)
    with pytest.raises(RequirementError, match="width of 1 or more"):
        Doc2VecSpace(width=0)


def test_sentence_encoder_is_read_from_folder(tmp_path):
    folder = tiny_models.bert(tmp_path / "bert")
    texts = ["a dog runs", "two red boats in water", "a man rides", "dog on the beach"]
    told: list[int] = []
    places = SentenceSpace(SentenceEncoder(str(folder), batch_size=3))(
        pairs_of(texts), np.ones(4, dtype=bool), told.append
    )
    one = SentenceSpace(SentenceEncoder(str(folder), batch_size=1))(pairs_of(texts[1:2]), np.ones(1, dtype=bool))
    np.testing.assert_allclose(places.vectors[1], one.vectors[0], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(places.vectors, axis=1), 1, atol=1e-5)
    assert told == [3, 4]


def test_neighbours_by_similar_images(made):
    _, features, pairs = made
    train = pairs.split("train")
    graph = build_graph(train, FeatureSpace(FeatureFile.open(features)), GraphOptions(neighbours=4))
    pictures = image_of_text(train)
    rows = FeatureFile.open(features).rows(train.images.ids, train.images.values)
    vectors = FeatureFile.open(features).take("pooled", rows)
    gaps = np.linalg.norm(vectors - vectors[pictures[0]], axis=1)
    gaps[pictures[0]] = np.inf
    assert set(pictures[graph.neighbours[0]]) == set(np.argsort(gaps)[:2])


@pytest.fixture
def graph(made):
    return build_graph(made[2].split("train"), LsaSpace(width=6), GraphOptions(neighbours=5), source={"data": "d"})


def test_graph_round_trip(graph, made, tmp_path):
    graph.save(tmp_path / "g")
    again = Graph.load(tmp_path / "g")
    assert again.fingerprint == graph.fingerprint and again.ids == graph.ids and again.space == graph.space
    np.testing.assert_array_equal(again.neighbours, graph.neighbours)
    np.testing.assert_array_equal(again.distances, graph.distances)
    again.require(made[2].split("train").texts)
    with pytest.raises(DataError, match="holds something"):
        graph.save(tmp_path / "g")


def test_graph_of_other_data_raises(graph, made):
    train = made[2].split("train")
    changed = replace(train.texts, values=["other words", *train.texts.values[1:]])
    with pytest.raises(DataError, match="it knows 79; it was built for other data"):
        graph.require(changed)
    with pytest.raises(DataError, match="it got 24, of which it knows 0"):
        graph.require(made[2].split("val").texts)
    with pytest.raises(DataError, match="not 'photo"):
        graph.restrict_to(made[2].split("val").texts)
    other = build_graph(replace(train, texts=changed), LsaSpace(width=6), GraphOptions(neighbours=5))
    assert other.fingerprint != graph.fingerprint


def test_subset_of_graph_keeps_order(graph, made):
    texts = made[2].split("train").texts
    rows = np.arange(0, len(texts), 2)[::-1].copy()
    part = graph.restrict_to(texts.take(rows))
    part.require(texts.take(rows))
    for new, old in enumerate(rows):
        kept = [other for other in graph.neighbours[old] if other in rows]
        assert [rows[other] for other in part.neighbours[new] if other >= 0] == kept
        assert np.isinf(part.distances[new, len(kept) :]).all() and (part.neighbours[new, len(kept) :] == -1).all()
        assert (np.diff(part.distances[new, : len(kept)]) >= 0).all()


@pytest.mark.parametrize("harm", ["neighbours.npy", "ids.json", "marks.npy", "graph.json"])
def test_damaged_graph_raises(graph, tmp_path, harm):
    graph.save(tmp_path / "g")
    (tmp_path / "g" / harm).write_bytes(b"[]")
    with pytest.raises(DataError, match=r"damaged|not the manifest"):
        Graph.load(tmp_path / "g")
    with pytest.raises(DataError, match="is not there"):
        Graph.load(tmp_path / "nothing")


@pytest.mark.parametrize("array", ["neighbours", "distances"])
def test_arrays_not_matching_manifest_raise(graph, tmp_path, array):
    graph.save(tmp_path / "g")
    np.save(tmp_path / "g" / f"{array}.npy", getattr(graph, array)[:, ::-1])
    with pytest.raises(DataError, match="its arrays are not those of its manifest"):
        Graph.load(tmp_path / "g")
    file = tmp_path / "g" / "graph.json"
    told = json.loads(file.read_text())
    del told["arrays"]
    file.write_text(json.dumps(told))
    with pytest.raises(DataError, match="its arrays are not those of its manifest"):
        Graph.load(tmp_path / "g")


def test_graph_of_other_format_raises(graph, tmp_path):
    graph.save(tmp_path / "g")
    told = json.loads((tmp_path / "g" / "graph.json").read_text())
    (tmp_path / "g" / "graph.json").write_text(json.dumps({**told, "format": 99}))
    with pytest.raises(DataError, match=r"was made by an earlier Subtext, .* with `subtext neighbours build`"):
        Graph.load(tmp_path / "g")


def test_interrupted_write_leaves_nothing(graph, tmp_path, monkeypatch):
    def full(*_given, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(graphs.np, "save", full)
    with pytest.raises(OutputError, match="no free space"):
        graph.save(tmp_path / "g")
    assert not list(tmp_path.iterdir())


def test_ciderd_of_pairs_equals_full_matrix(made):
    texts = made[2].texts
    words = [str(value) for value in texts.values]
    every = products(words, np.arange(len(words)), words).all()
    left, right = np.divmod(np.arange(600) * 37 % len(words) ** 2, len(words))
    np.testing.assert_allclose(CIDERD.values(texts, left, right), every[left, right], rtol=1e-5, atol=1e-6)
    assert 0 < every[left, right].max() < 10.01


def test_quality_separates_word_graph_from_chance(graph, made):
    texts = made[2].split("train").texts
    quality = graph_quality(graph, texts, TFIDF, pairs=200)
    assert quality.pairs == 200 and quality.neighbours > quality.random + 20
    assert quality.neighbours_mean > quality.random_mean


def test_command_line_builds_and_shows_graph(made, tmp_path):
    data, _, pairs = made
    out = tmp_path / "graph"
    run = CliRunner()
    words = ["neighbours", "build", str(out), "--data", str(data), "--space", "lsa", "--neighbours", "6", "-q"]
    built = run.invoke(main, words)
    assert built.exit_code == 0, built.output
    assert "80 texts, 6 neighbours each" in built.output
    again = run.invoke(main, words)
    assert again.exit_code == 1 and "is not empty" in again.output
    item = pairs.split("train").images.ids[3]
    page = tmp_path / "page.html"
    shown = run.invoke(main, ["neighbours", "show", str(out), "--item", item, "--top", "3", "--html", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "related by tfidf" in shown.output and "distance" in shown.output
    assert "Neighbours of a text" in page.read_text() and "http" not in page.read_text().split("<main>")[1]
    told = json.loads(run.invoke(main, ["neighbours", "show", str(out), "--item", item, "--json"]).stdout)
    assert len(told["hits"]) == 6 and told["item"]["image"] == item and told["quality"].keys() == {"tfidf", "ciderd"}
    assert all(quality["pairs"] > 100 for quality in told["quality"].values())
    wrong = run.invoke(main, [*words[:2], str(tmp_path / "x"), *words[3:], "--min-count", "2"])
    assert wrong.exit_code == 2 and "--min-count belongs to another space; lsa does not read it" in wrong.output
    strange = run.invoke(main, ["neighbours", "show", str(out), "--item", "nobody"])
    assert strange.exit_code == 1 and "'nobody' is neither" in strange.output


def test_showing_graph_of_changed_data_raises(made, tmp_path):
    rows = [json.loads(each) for each in made[0].read_text().splitlines()]
    data = made_data.write_rows(tmp_path / "pairs.jsonl", rows)
    run = CliRunner()
    out = str(tmp_path / "graph")
    words = ["neighbours", "build", out, "--data", str(data), "--space", "lsa", "--neighbours", "6", "-q"]
    assert run.invoke(main, words).exit_code == 0
    rows[0]["captions"] = ["something else", "and more"]
    made_data.write_rows(data, rows)
    shown = run.invoke(main, ["neighbours", "show", out])
    assert shown.exit_code == 1 and "built for other data" in shown.output


@pytest.mark.parametrize("space", ["doc3vec", "sentence:", "lsa:5", "features:nothing.npz"])
def test_invalid_space_raises(made, tmp_path, space):
    words = ["neighbours", "build", str(tmp_path / "g"), "--data", str(made[0]), "--space", space]
    answer = CliRunner().invoke(main, words)
    assert answer.exit_code == 1 and ("a space needs" in answer.output or "is not there" in answer.output)
