"""JudgedVectors items change a query: the learnt vector, and what it does to the ranking by pixels and by own texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import stored_items

from subtext.retrieval.feedback import JudgedVectors, learn_query, said_by, with_feedback
from subtext.retrieval.manifest import EncoderRecord
from subtext.retrieval.stores.item import Change, DerivedRow, IndexEntry
from subtext.retrieval.stores.registry import create_store
from subtext.retrieval.stores.store import Store

V = np.array([[1, 0], [4, 3], [3, 4], [0, 1], [-3, 4]]) / np.array([[1], [5], [5], [1], [5]])


@pytest.mark.golden
def test_query_vector_is_that_of_logistic_regression_with_a_prior() -> None:
    labels = np.array([1.0, 1, -1, -1])
    judged = V[[0, 1, 3, 4]]
    np.testing.assert_allclose(learn_query(np.zeros(2), judged, labels), [0.81188895, -0.40594448], atol=1e-7)
    learnt = learn_query(4 * np.array([0.6, 0.8]), judged, labels)
    np.testing.assert_allclose(learnt, [2.77091647, 1.96146737], atol=1e-7)
    assert np.argmax(V @ learnt) == 1, "it stays near the query"


def test_query_vector_is_the_minimum_for_weights_and_any_strength() -> None:
    random = np.random.default_rng(0)
    query, vectors, labels = random.standard_normal(12), random.standard_normal((7, 12)), np.sign(np.arange(7) - 3.5)
    weights = random.random(7)
    for strength in (1e-3, 0.5, 30.0):
        found = learn_query(query, vectors, labels, weights=weights, strength=strength, bias=0.4)
        shares = 1 / (1 + np.exp(labels * (vectors @ found + 0.4)))
        slope = (found - query) / strength - vectors.T @ (weights * labels * shares)
        assert np.abs(slope).max() < 1e-6, "the function is convex: where it is flat it is least"
    copies = learn_query(query, vectors[[0, 0, 0]], np.ones(3), strength=1e4)
    assert np.isfinite(copies).all() and vectors[0] @ copies > vectors[0] @ query


def archive(place: Path) -> Store:
    """40 images of four kinds in pixels and four in texts; every fifth has no texts."""
    random = np.random.default_rng(1)
    kinds = np.eye(8)[:4] * 2
    encoder = EncoderRecord("starter", "e" * 32, 8, ("en",))
    manifest = replace(stored_items.manifest(), views={"images": 1, "texts": 1}, encoder=encoder)
    store = create_store(place, manifest)

    def unit(rows: np.ndarray) -> np.ndarray:
        noisy = rows + 0.3 * random.standard_normal(rows.shape)
        return (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float32)

    with store.writing("build") as writer:
        numbers = np.arange(40)
        entries = [IndexEntry(f"p{n}", b"%d" % n, path=f"{n}.png") for n in numbers]
        writer.put(Change("images", entries, unit(kinds[numbers % 4])[:, None]))
        said = [n for n in numbers.tolist() if n % 5]
        texts = [IndexEntry(f"t{n}", b"t%d" % n, text=f"word{n // 10}") for n in said]
        rows = {f"t{n}": DerivedRow(row) for n, row in zip(said, unit(kinds[np.array(said) // 10]), strict=True)}
        links = [(f"p{n}", f"t{n}") for n in said]
        vectors = unit(kinds[np.array(said) % 4])[:, None]
        writer.put(Change("texts", texts, vectors, links=links, derived={"sentences": rows}))
    return store


def test_liked_and_disliked_items_change_pixels_and_texts(tmp_path: Path) -> None:
    """The query is about two kinds alike; liked items are of the second, a disliked one of the first."""
    with archive(tmp_path / "index").reading() as view:
        keys = view.keys_of("images", [f"p{n}" for n in range(40)])
        both = np.zeros((1, 8), dtype=np.float32)
        both[0, :2] = np.sqrt(0.5)
        for space, kind in (("images", lambda n: n % 4), ("sentences", lambda n: n // 10)):
            names = [f"p{n}" for n in range(40) if n % 5]
            liked = [name for name in names if kind(int(name[1:])) == 1][:2]
            disliked = [name for name in names if kind(int(name[1:])) == 0][:1]
            rows, labels = [keys[name] for name in (*liked, *disliked)], (1.0, 1.0, -1.0)
            if space == "images":
                own = dict(zip(rows, view.vectors("images", np.array(rows))[:, 0], strict=True))
            else:
                own = {key: vector for (_, key), vector in said_by(view, space, [("images", k) for k in rows]).items()}
            judged = JudgedVectors.of([(own[key], space, label, 1.0) for key, label in zip(rows, labels, strict=True)])
            assert judged is not None

            def lead(query: np.ndarray, space: str = space, kind: object = kind, names: list[str] = names) -> float:
                """How far items of the second kind are above those of the first, in deviations over all."""
                scored = {}
                for name in names:
                    vector = (
                        view.vectors("images", np.array([keys[name]]))[0, 0]
                        if space == "images"
                        else said_by(view, "sentences", [("images", keys[name])])["images", keys[name]]
                    )
                    scored[name] = float(vector @ query[0])
                means = [np.mean([s for n, s in scored.items() if kind(int(n[1:])) == own]) for own in (0, 1)]  # type: ignore[operator]
                return float(means[1] - means[0]) / float(np.std([*scored.values()]))

            learnt = with_feedback(view, space, both, judged, strength=1.0)  # type: ignore[arg-type]
            assert lead(learnt) > lead(both) + 0.5
            much = with_feedback(view, space, both, judged, strength=20.0)  # type: ignore[arg-type]
            little = with_feedback(view, space, both, judged, strength=1e-6)  # type: ignore[arg-type]
            assert lead(much) > lead(learnt)
            np.testing.assert_allclose(little, both, atol=1e-4)
        alone = said_by(view, "sentences", [("images", keys["p0"]), ("images", keys["p1"])])
        assert list(alone) == [("images", keys["p1"])], "an image without texts says nothing"
