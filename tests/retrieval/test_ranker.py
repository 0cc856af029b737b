"""The ranker: the solver beside an optimiser of SciPy, signals that are missing, and what made queries teach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import stored_items
from scipy.optimize import minimize

from subtext.data.read import read
from subtext.retrieval.confidence import Confidence
from subtext.retrieval.everyday import EVERYDAY
from subtext.retrieval.learning import (
    LEAST,
    TextEmbedders,
    Trial,
    fit_everyday,
    fit_given,
    fit_made,
    given_trials,
    make_trials,
    run_trials,
)
from subtext.retrieval.made_queries import sentences, taken_out
from subtext.retrieval.ranker import FIXED, HIGHEST, Moments, Ranker, Weights, fit_choices, learn, store_ranker
from subtext.retrieval.stores.item import Change, IndexEntry
from subtext.retrieval.stores.registry import create_store
from subtext.retrieval.stores.store import Store
from subtext.retrieval.word_index import WordIndex
from subtext.retrieval.words import spaced


@pytest.mark.golden
@pytest.mark.parametrize("signed", [(), (1,)])
def test_weights_are_those_of_a_bounded_optimiser(signed: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    inputs = random.standard_normal((40, 30, 4))
    truth = np.argmax(inputs @ [1.0, -0.6, 0.3, 0.0] + random.gumbel(size=(40, 30)), axis=1)
    allowed = random.random((40, 30)) < 0.8
    allowed[np.arange(40), truth] = True

    def loss(weights: np.ndarray) -> float:
        total = 0.0
        for query in range(40):
            scores = [float(inputs[query, item] @ weights) for item in range(30) if allowed[query, item]]
            total += np.log(np.sum(np.exp(scores))) - inputs[query, truth[query]] @ weights
        return total / 40 + 0.01 * float(weights @ weights) / 2

    bounds = [(None if row in signed else 0, None) for row in range(4)]
    wanted = minimize(loss, np.ones(4), method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14, "gtol": 1e-9}).x
    found = fit_choices(inputs, allowed, truth, signed=signed, penalty=0.01)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert (found[1] == 0) == (not signed), "no signal has a negative weight"


def test_moments_leave_missing_items_out_and_bound_a_rare_word() -> None:
    assert Moments.of(np.array([1.0, np.nan, 3.0])) == Moments(2.0, 1.0)
    assert Moments.of(np.array([np.nan])) == Moments.of(np.zeros(0)) == Moments(0.0, 1.0)
    assert Moments.of(np.full(3, 0.1)).deviation == 1.0
    rare = Moments.of(np.zeros(100), best=12.0)
    assert (12.0 - rare.mean) / rare.deviation == pytest.approx(HIGHEST)


def right_ones(random: np.random.Generator, count: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    """(Q) the right item of each query, and (Q N) 1 for it."""
    truth = random.integers(items, size=count)
    return truth, np.eye(items)[truth]


def test_item_without_texts_is_neither_lifted_nor_buried() -> None:
    """Half of the items have no texts, and are right as often as the others: they are the first as often, too."""
    random = np.random.default_rng(1)
    count, items = 300, 200
    bare = np.arange(items) % 2 == 0
    truth, right = right_ones(random, count, items)
    deviations = {
        "pixels": random.standard_normal((count, items)) + 1.5 * right,
        "texts": np.where(bare, np.nan, random.standard_normal((count, items)) + 3 * right),
        "words": np.where(bare, np.nan, random.standard_normal((count, items)) + right),
    }
    half = count // 2
    fitted = {signal: values[:half] for signal, values in deviations.items()}
    weights = learn(fitted, np.ones((half, items), bool), truth[:half])
    rest = {signal: values[half:] for signal, values in deviations.items()}

    def chance(own: dict[str, np.ndarray]) -> float:
        """How likely an item without texts is to be the right one, as the scores say."""
        scores = weights.score(own)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return float((odds[:, bare].sum(axis=1) / odds.sum(axis=1)).mean())

    assert chance(rest) == pytest.approx(bare[truth[half:]].mean(), abs=0.06)
    filled = {signal: np.nan_to_num(values) for signal, values in rest.items()}
    assert chance(filled) < 0.25, "with the mean in place of what is missing they would be buried"
    assert weights.bare["pixels"] != weights.full["pixels"] and weights.without_texts != 0


def test_constant_of_images_without_texts_is_held_with_pixels() -> None:
    """Right images of both kinds; queries that flatter pixels would teach what lacks texts too high a constant."""
    random = np.random.default_rng(5)
    count, items = 200, 120
    bare = np.arange(items) < 60
    truth, right = right_ones(random, count, items)
    deviations = {
        "pixels": random.standard_normal((count, items)) + 4 * right,
        "texts": np.where(bare, np.nan, random.standard_normal((count, items)) + 2 * right),
    }
    weights = learn(deviations, np.ones((count, items), bool), truth, held=("pixels",))
    scale = weights.full["texts"] / FIXED.full["texts"]
    assert weights.bare["pixels"] == pytest.approx(scale * FIXED.bare["pixels"])
    assert weights.without_texts == pytest.approx(scale * FIXED.without_texts)
    free = learn(deviations, np.ones((count, items), bool), truth)
    assert abs(free.without_texts - weights.without_texts) > 0.1


def test_images_without_texts_alone_teach_nothing_of_images_with_texts() -> None:
    """All right images lack texts; wrong ones with texts would teach that texts, and pixels beside them, are bad."""
    random = np.random.default_rng(3)
    count, items = 200, 120
    bare = np.arange(items) < 60
    truth = random.integers(60, size=count)
    right = np.zeros((count, items))
    right[np.arange(count), truth] = 1
    deviations = {
        "pixels": random.standard_normal((count, items)) + 2 * right,
        "texts": np.where(bare, np.nan, random.standard_normal((count, items)) + 2),
        "neighbours": random.standard_normal((count, items)) + right,
    }
    weights = learn(deviations, np.ones((count, items), bool), truth)
    scale = weights.full["texts"] / FIXED.full["texts"]
    assert weights.full["pixels"] == pytest.approx(scale * FIXED.full["pixels"]) and scale > 0.5
    assert weights.without_texts == pytest.approx(scale * FIXED.without_texts)
    alone = learn({s: v[:, :60] for s, v in deviations.items()}, np.ones((count, 60), bool), truth)
    assert weights.bare["pixels"] == pytest.approx(alone.bare["pixels"], abs=1e-4)
    # The other way round: all right images have texts.
    said = np.where(bare, random.standard_normal((count, items)) + 2 * right, np.nan)
    other = learn({**deviations, "texts": said}, np.ones((count, items), bool), truth)
    assert other.full["texts"] > 0.5
    assert other.bare["pixels"] / other.bare["neighbours"] == pytest.approx(
        FIXED.bare["pixels"] / FIXED.bare["neighbours"]
    )


@pytest.mark.parametrize("worth", [0.0, 3.0])
def test_texts_of_machines_weigh_what_right_images_teach(worth: float) -> None:
    """A good captioner weighs much, a bad one nothing; where few right images have such texts, half of own texts."""
    random = np.random.default_rng(4)
    count, items = 200, 100
    truth, right = right_ones(random, count, items)
    drawn = random.standard_normal((3, count, items))
    said = np.arange(items) % 2 == 0
    deviations = {
        "pixels": drawn[0] + right,
        "texts": drawn[1] + 2 * right,
        "machine_texts": np.where(said, drawn[2] + worth * right, np.nan),
    }
    weights = learn(deviations, np.ones((count, items), bool), truth)
    assert (weights.full["machine_texts"] > 1) if worth else (weights.full["machine_texts"] < 0.15)
    assert worth == 0 or weights.without_machine_texts > 1, "an image without them is not buried"
    few = np.isin(truth, np.arange(0, items, 2)[:3]) | (truth % 2 == 1)
    some = learn({s: v[few] for s, v in deviations.items()}, np.ones((few.sum(), items), bool), truth[few])
    scale = some.full["texts"] / FIXED.full["texts"]
    assert some.full["machine_texts"] == pytest.approx(scale * FIXED.full["machine_texts"])
    assert some.without_machine_texts == pytest.approx(scale * FIXED.without_machine_texts)


def test_images_that_the_model_was_trained_on_are_no_wrong_ones(tmp_path: Path) -> None:
    """A model finds what it remembers of its own images' texts: as wrong images they say nothing of its pixels."""
    with archive(tmp_path / "index", LEAST + 60).reading() as view:
        keys = view.keys("images")
        trials = [Trial(text_of(n), int(keys[n]), text_of(n), ()) for n in range(3)]
        models, used = TextEmbedders(embed, None), {f"p{n}" for n in range(2, 50)}
        ran = run_trials(view, trials, models, used, hide_texts=False)
        assert ran.learnt.tolist() == [2 <= n < 50 for n in range(LEAST + 60)]
        assert ran.teaching[:, 50:].all() and ran.teaching[2].sum() == LEAST + 13 and ran.teaching[2, 2]
        assert not ran.teaching[0, 2:50].any() and ran.allowed[0, 2:50].all()
        every = run_trials(view, trials, models, None, hide_texts=False)
        assert (every.teaching == every.allowed).all(), "there are no others"


def test_signals_that_teach_nothing_keep_their_ratio() -> None:
    random = np.random.default_rng(2)
    truth = random.integers(50, size=200)
    right = np.zeros((200, 50))
    right[np.arange(200), truth] = 1
    deviations = {name: random.standard_normal((200, 50)) + 3 * right for name in ("pixels", "texts", "neighbours")}
    free = learn(deviations, np.ones((200, 50), bool), truth)
    held = learn(deviations, np.ones((200, 50), bool), truth, held=("pixels", "neighbours"), least=("words",))
    assert free.full["pixels"] > 0.7 * free.full["texts"]
    for signal in ("pixels", "neighbours", "words"):
        assert held.full[signal] / held.full["texts"] == pytest.approx(FIXED.full[signal] / FIXED.full["texts"])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []), ("One.", ["One."]), ("No marks at all", ["No marks at all"]),
        ("He paid 3.50 euro at a.example.org. She left!", ["He paid 3.50 euro at a.example.org.", "She left!"]),
        ("白い犬。黒い猫。", ["白い犬。", "黒い猫。"]), ("First line\nSecond line", ["First line", "Second line"]),
        ("\"Go away!\" he said. ... Then it rained.", ["\"Go away!\"", "he said. ...", "Then it rained."]),
    ],
)  # fmt: skip
def test_sentences_end_where_marks_stand_before_spaces(text: str, parts: list[str]) -> None:
    assert sentences(text) == parts


def test_query_and_rest_make_up_the_text() -> None:
    long = "a b c d e f g h i j k l m n o p q r s t"
    for chance in np.linspace(0, 0.999, 37):
        query, rest = taken_out(long, float(chance)) or ("", "")
        assert 3 <= len(query.split()) <= 8 and sorted(f"{query} {rest}".split()) == long.split()
        sentence, others = taken_out("It rains. A dog waits. Nobody comes.", float(chance)) or ("", "")
        assert sentence not in others and sorted(f"{sentence} {others}".split()) == sorted(
            ["It", "rains.", "A", "dog", "waits.", "Nobody", "comes."]
        )
    assert taken_out("justice, law", 0.5) is None and taken_out("", 0.1) is None


WORDS = ["river", "boat", "court", "judge", "flag", "crowd", "lamp", "clock"]
WORDS += ["street", "child", "horse", "field", "tower", "bridge", "storm", "letter"]


def vector(text: str) -> np.ndarray:
    """A bag of words of `WORDS`: texts with a word in common are near."""
    found = np.array([text.split().count(word) for word in WORDS], dtype=np.float32) + 1e-3
    return found / np.linalg.norm(found)


def embed(texts: Sequence[str]) -> np.ndarray:
    return np.stack([vector(text)[None, :8] for text in texts])


def text_of(number: int) -> str:
    random = np.random.default_rng(number)
    return " ".join(random.choice(random.choice(WORDS, 4), 12)) + f" n{number}"


def archive(place: Path, count: int, *, two_texts: bool = False) -> Store:
    """Images whose vectors are those of their texts, some noise added."""
    from dataclasses import replace

    store = create_store(place, replace(stored_items.manifest(), views={"images": 1, "texts": 1}))
    with store.writing("build") as writer:
        numbers = range(count)
        noise = np.random.default_rng(0).standard_normal((count, 1, 8)).astype(np.float32)
        pictures = embed([text_of(number) for number in numbers]) + 0.05 * noise
        writer.put(Change("images", [IndexEntry(f"p{n}", b"%d" % n, path=f"{n}.png") for n in numbers], pictures))
        said = {f"t{n}": (f"p{n}", text_of(n)) for n in numbers}
        if two_texts:
            said |= {f"u{n}": (f"p{n}", f"{WORDS[n % 16]} second n{n}") for n in numbers}
        entries = [IndexEntry(name, text.encode(), text=text) for name, (_, text) in said.items()]
        links = [(image, name) for name, (image, _) in said.items()]
        writer.put(Change("texts", entries, embed([text for _, text in said.values()]), links=links))
    return store


def test_words_are_counted_as_the_store_does(tmp_path: Path) -> None:
    with archive(tmp_path / "index", 60).reading() as view:
        keys = view.keys("texts").tolist()
        rows = sorted(view.rows("texts", keys=keys), key=lambda row: row.key)
        counted = WordIndex([spaced(row.text or "") for row in rows])
        for query in ("river court n7", "lamp lamp storm", "nothing"):
            asked = " ".join(dict.fromkeys(query.split()))
            wanted = dict(view.search_words("texts", asked, top=None))
            np.testing.assert_allclose(counted.scores(query), [wanted.get(key, 0.0) for key in keys], rtol=1e-5)
            for _ in range(2):  # What a frequent word adds is kept at the first time.
                found = dict(zip(keys, view.word_scores("texts", query).tolist(), strict=True))
                assert found == pytest.approx({key: wanted.get(key, 0.0) for key in keys}, rel=1e-5)
        text = spaced(text_of(7))
        assert counted.score("river court n7", text) == pytest.approx(counted.scores("river court n7")[7])


def test_made_queries_come_from_images_that_the_model_has_not_seen(tmp_path: Path) -> None:
    with archive(tmp_path / "index", 30).reading() as view:
        trials = make_trials(view, {f"p{number}" for number in range(20)})
        assert [trial.learnt for trial in trials] == [False] * 10 + [True] * 20
        for trial in trials:
            assert sorted(f"{trial.query} {trial.rest}".split()) == sorted(trial.source.split())
        assert all(trial.learnt for trial in make_trials(view, None))
        again = make_trials(view, set())
        assert again == make_trials(view, set()) != make_trials(view, set(), seed=1)
    with archive(tmp_path / "two", 30, two_texts=True).reading() as view:
        trials = make_trials(view, set())
        assert all(len(trial.kept) == 1 and trial.rest is None and trial.query == trial.source for trial in trials)


def test_query_is_hidden_from_the_text_that_it_is_made_of(tmp_path: Path) -> None:
    with archive(tmp_path / "index", 40).reading() as view:
        keys = view.keys("images")
        texts = view.keys("texts")
        trials = [
            Trial("river court n3", int(keys[3]), text_of(3), (), "lamp n3"),
            Trial("n3", int(keys[5]), text_of(3), ()),
        ]
        ran = run_trials(view, trials, TextEmbedders(embed, None), set(), hide_texts=False)
        whole = run_trials(
            view,
            [Trial("river court n3", int(keys[3]), text_of(3), (int(texts[3]),))],
            TextEmbedders(embed, None),
            set(),
        )
        row = int(whole.truth[0])
        assert ran.deviations["texts"][0, ran.truth[0]] < whole.deviations["texts"][0, row]
        assert np.isnan(ran.deviations["texts"][1, ran.truth[1]]), "nothing is left of its only text"
        assert not ran.allowed[1, 3] and ran.allowed[1, ran.truth[1]], "another that has the words as much is left out"


def test_small_archive_has_fixed_weights_and_says_so(tmp_path: Path) -> None:
    with archive(tmp_path / "index", 20).reading() as view:
        ranker = fit_made(view, TextEmbedders(embed, None), set())
    assert ranker.fit == "fixed weights" and ranker.weights == FIXED and not ranker.levels
    assert "20 images with texts, and 200 are needed" in ranker.about["note"]
    assert Ranker.from_json(ranker.to_json(), where="x") == ranker


def test_archive_teaches_its_ranker(tmp_path: Path) -> None:
    with archive(tmp_path / "two", LEAST + 50, two_texts=True).reading() as view:
        fresh = fit_made(view, TextEmbedders(embed, None), set())
    with archive(tmp_path / "index", LEAST + 50).reading() as view:
        seen = fit_made(view, TextEmbedders(embed, None), None)
        parts = fit_made(view, TextEmbedders(embed, None), set())
        assert parts.weights.full == seen.weights.full and "parts of a sentence" in parts.about["note"]
        assert fresh.fit == seen.fit == "made queries" and fresh.about["queries"] == LEAST + 50
        assert len(fresh.levels) == 101 and fresh.levels == sorted(fresh.levels)
        assert "was trained on images of this archive" in seen.about["note"] and not fresh.about["note"]
        scale = max(seen.weights.full[signal] / FIXED.full[signal] for signal in ("texts", "words"))
        assert seen.weights.full["pixels"] == pytest.approx(scale * FIXED.full["pixels"])
        assert fresh.weights.full["pixels"] != pytest.approx(seen.weights.full["pixels"], rel=0.2)
        pairs = read(
            [{"id": f"p{n}", "image": f"{n}.png", "captions": [text_of(n)]} for n in range(LEAST)], need_images=False
        )
        given = given_trials(view, pairs)
        assert len(given) == LEAST and all(not trial.kept for trial in given), "the index has these very texts"
        taught = fit_given(view, pairs, TextEmbedders(embed, None), set(), data={"split": "val"})
        assert taught is not None and taught.fit == "given pairs" and taught.weights.full != fresh.weights.full
        assert Ranker.from_json(taught.to_json(), where="x") == taught
        assert Weights(**vars(taught.weights)) == taught.weights


def test_everyday_captions_tell_whether_anything_fits_a_bare_folder(tmp_path: Path) -> None:
    manifest = stored_items.manifest()
    store = create_store(tmp_path / "index", manifest)
    ahead = np.eye(1, 8, dtype=np.float32)

    def said(texts: Sequence[str]) -> np.ndarray:
        drawn = np.stack([np.random.default_rng(list(text.encode())).standard_normal((1, 8)) for text in texts])
        return (drawn / np.linalg.norm(drawn, axis=2, keepdims=True)).astype(np.float32)

    with store.writing("build") as writer:
        count = 150
        drawn = stored_items.vectors(range(count), 2) + 2 * ahead
        entries = [IndexEntry(f"p{n}", b"%d" % n, path=f"{n}.png") for n in range(count)]
        writer.put(Change("images", entries, (drawn / np.linalg.norm(drawn, axis=2, keepdims=True)).astype(np.float32)))
        with store.reading() as view:
            ranker = fit_everyday(view, TextEmbedders(said, None))
        assert ranker is not None and ranker.fit == "everyday captions" and ranker.weights == FIXED
        assert ranker.levels == sorted(ranker.levels) and "tell whether anything fits" in ranker.summary
        store_ranker(writer, ranker)
    with store.reading() as view:
        judged = Confidence(view).judge("images", "texts", np.stack([ahead, -ahead]), [])
        fits = [own.fit for own in judged if own is not None]
        assert [fit.has_no_match for fit in fits] == [False, True]
        assert "nothing here seems to match: only 0 % of 200 everyday captions" in fits[1].sentence
        scores = said(EVERYDAY)[:, 0] @ np.concatenate(
            [view.vectors("images", view.keys("images"))[:, v].T for v in (0, 1)], 1
        )
        assert Confidence(view).judge("texts", "images", ahead[None], []) == [None]
        among = np.maximum(scores[:, :count], scores[:, count:])
        temperature = 1.5 * among.std(axis=1).mean()
        levels = temperature * np.log(np.exp(among / temperature).mean(axis=1))
        np.testing.assert_allclose(ranker.levels, np.quantile(levels, np.linspace(0, 1, 101)), atol=1e-5)
    few = create_store(tmp_path / "few", manifest)
    with few.reading() as view:
        assert fit_everyday(view, TextEmbedders(said, None)) is None
