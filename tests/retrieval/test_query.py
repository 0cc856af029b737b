"""A query by itself: its parts and their weights, its ranges, and when it is answered in a batch or from the cache."""

from __future__ import annotations

from dataclasses import fields, replace
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import stored_items
from PIL import Image

from subtext.api.search import search
from subtext.data.pixels import ReadImage
from subtext.errors import RequirementError
from subtext.retrieval.confidence import Background
from subtext.retrieval.evidence import Part
from subtext.retrieval.query import CombinedQuery, Query, exact_words, ids_of, part_scores, phrased, require_target
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.item import Change, Hits, IndexEntry, Side
from subtext.retrieval.stores.store import View

PICTURE = b"bytes of an image"


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        (Query(text="a"), [("text", "a", 1.0)]),
        (Query(text="a", image_weight=0.9), [("text", "a", 1.0)]),
        (Query(image=PICTURE, image_weight=0.2), [("image", PICTURE, 1.0)]),
        (Query(text="a", image=PICTURE, image_weight=0.25), [("text", "a", 0.75), ("image", PICTURE, 0.25)]),
        (Query(text="a", image=PICTURE, image_weight=0), [("text", "a", 1.0)]),
        (Query(text="a", image=PICTURE, image_weight=1), [("image", PICTURE, 1.0)]),
        (Query(like=("x", "y"), image_weight=0.2), [("items", ("x", "y"), 1.0)]),
        (Query(text="a", like=("x", "y")), [("text", "a", 1.0)]),
        (Query(text="a", like=("x", "y"), image_weight=1), [("items", ("x", "y"), 1.0)]),
        (Query(image=PICTURE, like=("x",)), [("image", PICTURE, 1.0)]),
        (
            Query(text="a", not_like=("x",), not_text="b", not_like_weight=0.6),
            [("text", "a", 1.0), ("text", "b", -0.6)],
        ),
        (Query(text="a", not_text="b", not_like_weight=0), [("text", "a", 1.0)]),
    ],
)
def test_query_weights_are_normalised_by_sign(query: Query, parts: list[tuple]) -> None:
    assert [part[:2] for part in query.parts] == [part[:2] for part in parts]
    assert [part[2] for part in query.parts] == pytest.approx([part[2] for part in parts])
    assert query.texts == [value for kind, value, _ in parts if kind == "text"]
    words = [value for kind, value, weight in parts if kind == "text" and weight > 0]
    assert query.positive_text == (words[0] if words else None)
    assert query.text_only == (not query.like and all(kind == "text" for kind, _, weight in parts if weight > 0))


def test_judged_items_weigh_as_asked() -> None:
    query = Query(text="a", like=("x", ("texts", "y")), not_like=("z",), not_like_weight=0.25, image_weight=0.75)
    assert query.judged == [("x", 1, 1), (("texts", "y"), 1, 1), ("z", -1, 0.25)] and query.feedback_strength == 3
    assert not replace(query, image_weight=0).feedback_strength and not query.batchable
    assert Query(text="a", not_like=("z",), not_like_weight=0).judged == []
    assert Query(image=PICTURE, text="a", like=("x",), image_weight=0.2).feedback_strength == 1


def test_one_value_stands_for_a_list_of_one() -> None:
    query = Query(text="a", where="year > 1900", like="xy", not_like="zu", phrases="so it is")
    assert (query.where, query.like, query.not_like, query.phrases) == (
        ("year > 1900",), ("xy",), ("zu",), ("so it is",),
    )  # fmt: skip
    condition = query.conditions[0]
    assert Query(text="a", where=condition).where == (condition,) and Query(text="a", where=[condition]).where == [
        condition
    ]


def test_query_values_outside_ranges_raise() -> None:
    good = [("image_weight", 0), ("image_weight", 1), ("diversity", 0), ("diversity", 1), ("not_like_weight", 0)]
    for name, value in [*good, ("not_like_weight", 1000.0), ("depth", 1), ("top", 1)]:
        Query(text="a", **{name: value})
    for name, value, told in [
        ("image_weight", -0.1, "image_weight needs to be from 0 to 1; it got -0.1"),
        ("image_weight", 1.1, "from 0 to 1"), ("diversity", -0.1, "diversity needs to be from 0 to 1"),
        ("diversity", 1.1, "from 0 to 1"),
        ("not_like_weight", -1, "not_like_weight needs to be from 0 to 1000; it got -1"),
        ("not_like_weight", 1001, "1001"),
        ("depth", 0, "depth needs to be 1 or more; it got 0"), ("top", 0, "a search needs top of 1 or more; it got 0"),
        ("hubness", "cls", "hubness needs to be csls or softmax; it got 'cls'"),
        (
            "signals",
            ("pixel",),
            "needs some of pixels, texts, words, machine_texts, machine_words, fields, neighbours; it got 'pixel'",
        ),
        ("target", "words", "a search looks for 'images' or 'texts'; it got 'words'"),
    ]:  # fmt: skip
        with pytest.raises(RequirementError, match=told):
            Query(text="a", **{name: value})
    with pytest.raises(RequirementError, match="a search needs text, an image or an example item"):
        Query(not_text="a")
    assert require_target("images", 1) == "images" and require_target("texts", 1) == "texts"
    Query(image=PICTURE), Query(like=("x",)), Query(text="a", hubness="softmax")


def test_single_part_queries_are_batchable() -> None:
    assert Query(text="a").batchable and Query(image=PICTURE).batchable
    options = [{"hubness": "csls"}, {"diversity": 0.5}]
    for option in [*options, {"min_probability": 0.0}, {"explain": True}, {"not_text": "b"}, {"like": ("x",)}]:
        query = Query(text="a", **option)
        assert not query.batchable and query.by_score == (option not in options)
    assert not Query(like=("x",)).batchable


@pytest.mark.parametrize("quotes", ['""', "“”", "„“", "””", "«»", "»«", "„”"])
def test_every_kind_of_quotes_makes_a_phrase(quotes: str) -> None:
    read = Query(text=f"{quotes[0]}the ruling{quotes[1]} stands -{quotes[0]}a dog{quotes[1]}").understood
    assert (read.text, read.phrases, read.not_text) == ("the ruling stands", ("the ruling",), "a dog")
    spaced = Query(text=f"{quotes[0]} the ruling {quotes[1]} stands").understood
    assert (spaced.text, spaced.phrases) == ("the ruling stands", ("the ruling",))
    assert Query(text="it's ‘so’").understood == Query(text="it's ‘so’")


def test_equal_queries_have_equal_cache_keys() -> None:
    read = [ReadImage(np.full((2, 2, 3), value, np.uint8), "f") for value in (0, 0, 1)]
    queries = [Query(text="a"), Query(text="b"), Query(text="a", top=3), Query(image=PICTURE), Query(image=b"other")]
    queries += [Query(image=value) for value in (Image.new("L", (2, 3)), Image.new("L", (3, 2)), "a.png", "b.png")]
    keys = [query.cache_key for query in queries] + [Query(image=it).cache_key for it in read[1:]]
    assert len(set(keys)) == len(keys)
    assert (
        Query(text="a").cache_key == keys[0] and Query(image=bytes(PICTURE)).cache_key == Query(image=PICTURE).cache_key
    )
    assert Query(image=read[0]).cache_key == Query(image=read[1]).cache_key


def test_part_is_scored_by_best_views() -> None:
    vectors = np.array([[[1, 0], [0, 1]], [[0, 0.5], [0.5, 0]]], np.float32)
    part = Part(1.0, np.array([[2, 1], [0, 3]], np.float32), "texts")
    assert part_scores(part, vectors).tolist() == [3, 1.5] and part_scores(part, vectors[:0]).tolist() == []
    alone = CombinedQuery([part], None)
    assert alone.single and alone.scaled() == [(part, 0.0, 1.0)]
    assert not CombinedQuery([part, part], None).single


@pytest.mark.parametrize("count", [0, 1, 4])
def test_combined_scores_are_standardised_sums(count: int) -> None:
    random = np.random.default_rng(0)
    sample, vectors = (random.standard_normal((number, 1, 3)).astype(np.float32) for number in (count, 5))
    parts = [Part(weight, random.standard_normal((1, 3)).astype(np.float32), "texts") for weight in (0.7, -0.4)]
    wanted = np.zeros(5)
    for part in parts:
        of_sample, own = ((those[:, 0] @ part.vectors[0]).astype(float) for those in (sample, vectors))
        mean, spread = (of_sample.mean() if count else 0, of_sample.std() if count > 1 else 1)
        wanted += part.weight * (own - mean) / spread
    combined = CombinedQuery(parts, Background(np.arange(count), sample, 9))
    np.testing.assert_allclose(combined.scores(vectors), wanted, rtol=1e-4, atol=1e-5)


class Asked:
    """A view that writes down how many items it was asked for."""

    def __init__(self, view: View) -> None:
        self.view, self.tops = view, []

    def __getattr__(self, name: str) -> object:
        return getattr(self.view, name)

    def nearest(self, side: Side, queries: np.ndarray, *, top: int, among: np.ndarray | None) -> list[Hits]:
        self.tops.append(top)
        return self.view.nearest(side, queries, top=top, among=among)


@pytest.mark.parametrize("side", ["texts", "images"])
def test_combined_query_is_exact_or_uses_each_part(tmp_path: Path, side: Side) -> None:
    with stored_items.made(tmp_path / "index", pictures=400, words=400).reading() as store:
        view, keys = Asked(store), store.keys(side)
        background, vectors = Background.of(store, side), store.vectors(side, keys)
        left, right, away = np.eye(3, stored_items.WIDTH, dtype=np.float32)[:, None]
        parts = [Part(0.5, left, "texts"), Part(0.5, right, side, key=int(keys[7])), Part(-1.0, away, "texts")]
        combined = CombinedQuery(parts, background)
        totals = combined.scores(vectors)
        best = {int(place) for part in parts[:2] for place in np.argsort(-part_scores(part, vectors))[:20]}
        assert int(np.argmax(totals)) not in best, "good for all parts, and among the best of none"
        found = combined.search(view, side, 1, among=None)
        np.testing.assert_allclose(found.scores, totals[np.searchsorted(keys, found.keys)], rtol=1e-4)
        allowed = np.setdiff1d(keys, found.keys)
        second = combined.search(view, side, 3, among=allowed)
        assert second.keys[0] != found.keys[0] and len(second.keys) == 3
        alone = CombinedQuery([replace(parts[1], vectors=vectors[7, :1])], None).search(view, side, 2, among=None)
        assert alone.keys[0] != keys[7] and len(alone.keys) == 2, "the example itself is left out"
        assert (found.keys[0] == keys[np.argmax(totals)]) == (side == "texts")
        assert view.tops == ([2, 4, 3] if side == "texts" else [20, 40, 3])


def test_query_defaults_equal_search_defaults() -> None:
    parameters = signature(search).parameters
    for field in fields(Query):
        if field.name in parameters:
            assert parameters[field.name].default == field.default, field.name
    assert {"top", "image_weight", "not_like_weight", "diversity", "signals", "explain"} <= set(parameters)
    assert Query(text="a").depth == 200


def test_background_of_two_items_has_a_deviation() -> None:
    sample = np.array([[[1, 0]], [[0, 1]]], np.float32)
    part = Part(1.0, np.array([[1, 0]], np.float32), "texts")
    assert CombinedQuery([part, part], Background(np.arange(2), sample, 2)).scaled() == [(part, 0.5, 2.0)] * 2


def test_conditions_say_whether_dates_have_to_be_certain() -> None:
    for dates, certain in (("certain", True), ("possible", False)):
        (condition,) = Query(text="a", where=("taken < 1990",), dates=dates).conditions
        assert condition.certain is certain


@pytest.mark.parametrize(
    ("query", "strength"),
    [
        (Query(text="a", like=("x",), image_weight=0.5), 1.0),
        (Query(text="a", like=("x",), image_weight=0.75), 3.0),
        (Query(text="a", like=("x",), image_weight=0.2), 0.25),
        (Query(text="a", like=("x",), image_weight=1), 1.0),
        (Query(text="a", image_weight=0.75), 1.0),
        (Query(like=("x",), image_weight=0.75), 1.0),
        (Query(text="a", image=PICTURE, like=("x",), image_weight=0.75), 1.0),
    ],
)
def test_weight_of_images_is_the_strength_of_liked_items_beside_words(query: Query, strength: float) -> None:
    assert query.feedback_strength == pytest.approx(strength)


def test_phrases_are_those_of_texts_or_of_their_images(tmp_path: Path) -> None:
    folder = stored_items.made(tmp_path / "index")
    with folder.reading() as view:
        for target, found in (("texts", ["t5"]), ("images", ["p5"])):
            query = Query(text="word5", target=target, phrases=("word5",))
            keys = phrased(view, query)
            assert [item.id for item in view.items(query.target, keys)] == found
        many = [f"word{number}" for number in range(10, 20)]
        assert exact_words(view, ["word5", "no phrase"], many)[0] == ("word5", *many[:8]), "eight words are looked up"


def test_items_are_named_by_id_or_by_the_path_that_is_shown(tmp_path: Path) -> None:
    folder = Folder.create(tmp_path / "index", replace(stored_items.manifest(), root=str(tmp_path)))
    entries = [IndexEntry("a", b"a", path="a.png"), IndexEntry("b", b"b", path="b.png"), IndexEntry("c", b"c")]
    with folder.writing("add") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(3), stored_items.VIEWS)))
    (tmp_path / "b.png").write_bytes(b"")
    with folder.reading() as view:
        names = ["a", "b.png", str(tmp_path / "b.png"), "a.png", "x" * 5000]
        assert ids_of(view, "images", names) == {"a": "a", "b.png": "b", str(tmp_path / "b.png"): "b"}
