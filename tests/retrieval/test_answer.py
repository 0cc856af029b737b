"""Answers by several things at once, in other orders, with reasons; beside plain loops over every item."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path

import coloured_images
import numpy as np
import pytest
from command import call

from subtext.api.load import load
from subtext.api.search import open_index
from subtext.data.read import read
from subtext.errors import RequirementError
from subtext.evaluation import embed_pairs
from subtext.retrieval import query as query_module
from subtext.retrieval.feedback import STRENGTH, learn_query
from subtext.retrieval.index import Index, Query
from subtext.retrieval.query import exact_words, suggest_words
from subtext.retrieval.stores.folder import Folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = coloured_images.runs(tmp_path_factory.mktemp("answers"), "run", "views")
    for name in ("run", "views"):
        call("index", "build", folder / f"index-{name}", "--run", folder / name, "--text-encoder", "none", "-q")
    return folder


@pytest.fixture(params=["run", "views"])
def both(request: pytest.FixtureRequest, place: Path) -> Index:
    return open_index(place / f"index-{request.param}")


@pytest.fixture
def engine(place: Path) -> Index:
    return open_index(place / "index-run")


class Plain:
    """Every item's vectors, and scores by loops."""

    def __init__(self, place: Path, engine: Index) -> None:
        name = Path(engine.store.manifest.run).name
        model, self.pairs = load(place / name), read(place / "data")
        images, texts = embed_pairs(model, self.pairs)
        self.vectors = {"images": images.vectors.numpy(), "texts": texts.vectors.numpy()}
        self.ids = {"images": self.pairs.images.ids, "texts": self.pairs.texts.ids}
        self.model = model

    def words(self, text: str) -> np.ndarray:
        return self.model.embed_texts([text]).vectors.numpy()[0]

    def item(self, side: str, name: str) -> np.ndarray:
        return self.vectors[side][self.ids[side].index(name)]

    def scores(self, query: np.ndarray, side: str) -> np.ndarray:
        return np.array([max(float(u @ v) for u in query for v in own) for own in self.vectors[side]])

    def together(self, parts: list[tuple[float, np.ndarray]], side: str) -> dict[str, float]:
        total = np.zeros(len(self.ids[side]))
        for weight, query in parts:
            scores = self.scores(query, side)
            total += weight * (scores - scores.mean()) / scores.std()
        return dict(zip(self.ids[side], total.tolist(), strict=True))


def best(scores: dict[str, float], *, without: tuple[str, ...] = ()) -> list[str]:
    return sorted((name for name in scores if name not in without), key=lambda name: -scores[name])


def test_text_and_image_scores_are_weighted(place: Path, both: Index) -> None:
    plain = Plain(place, both)
    picture = place / "data" / "red.png"
    asked = Query(text="a blue square", image=picture, image_weight=0.3, top=12, signals=("pixels",))
    parts = [(0.7, plain.words("a blue square")), (0.3, plain.item("images", "red"))]
    wanted = plain.together(parts, "images")
    answer = both.answer(asked)
    assert answer.unit == "deviations" and [hit.id for hit in answer.hits] == best(wanted)
    np.testing.assert_allclose([hit.score for hit in answer.hits], sorted(wanted.values(), reverse=True), atol=2e-3)
    alone = both.search("a blue square", image=picture, image_weight=1.0, top=12)
    assert alone.unit == "cosine" and alone.hits[0].id == "red" and alone.hits[0].score == pytest.approx(1, abs=1e-5)


def test_like_query_excludes_its_example(place: Path, both: Index) -> None:
    plain = Plain(place, both)
    wanted = dict(zip(plain.ids["images"], plain.scores(plain.item("images", "pink"), "images"), strict=True))
    hits = both.search(like=["pink"], top=12)
    assert [hit.id for hit in hits] == best(wanted, without=("pink",)) and len(hits) == 11
    text = plain.ids["texts"][4]
    found = both.search(like=[text], top=12)
    scores = dict(zip(plain.ids["images"], plain.scores(plain.item("texts", text), "images"), strict=True))
    assert [hit.id for hit in found] == best(scores), "an item of the other kind leaves nothing out"
    assert len(both.search(like=["pink"], top=50, target="texts")) == 24


def test_judged_items_change_the_query(place: Path, both: Index) -> None:
    plain = Plain(place, both)
    rows = plain.vectors["images"].mean(axis=1).astype(np.float64)
    mean = rows.mean(axis=0)
    root = np.sqrt(np.mean(np.sum((rows - mean) ** 2, axis=1)))
    judged = (np.stack([rows[plain.ids["images"].index(name)] for name in ("pink", "black")]) - mean) / root
    learnt = []
    for view in plain.words("a square").astype(np.float64):
        scale = root / (rows @ view).std()
        bias = -float((judged @ (scale * view)).mean())
        options = {"weights": np.array([1.0, 0.8]), "bias": bias, "strength": STRENGTH}
        learnt.append(learn_query(scale * view, judged, np.array([1.0, -1]), **options) / scale)
    wanted = plain.together([(1.0, np.array(learnt)), (-0.8, plain.words("white"))], "images")
    options = {"like": ["pink"], "not_like": ["black"], "not_text": "white", "signals": ("pixels",)}
    answer = both.answer(Query(text="a square", not_like_weight=0.8, top=12, **options))
    assert answer.unit == "deviations" and [hit.id for hit in answer] == best(wanted, without=("pink", "black"))
    np.testing.assert_allclose([hit.score for hit in answer], [wanted[hit.id] for hit in answer], atol=2e-3)
    alone = both.search("a square", like=["pink"], signals=["pixels"], top=12)
    assert alone.unit == "deviations" and alone.fit is None
    plainly = [hit.id for hit in both.search("a square", top=12)]
    assert [h.id for h in both.search("a square", not_like=["black"], not_like_weight=0.0, top=12)] == plainly
    ignored = both.search("a square", like=["black"], image_weight=0.0, top=12)
    assert [hit.id for hit in ignored] == [name for name in plainly if name != "black"]
    only = both.search("a square", like=["pink"], image_weight=1.0, top=12)
    assert [hit.id for hit in only] == [hit.id for hit in both.search(like=["pink"], top=12)]


def test_judged_item_that_is_gone_is_named(place: Path, both: Index) -> None:
    for options in ({"like": ["gone"]}, {"not_like": ["pink", "gone"]}, {"like": [("texts", "pink")]}):
        with pytest.raises(RequirementError, match=r"needs the id of an item .* there is no '(gone|pink)'; give"):
            both.search("a square", **options)


@pytest.fixture(scope="module")
def archive(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with captions of names, numbers and a phrase, which the model, of colours alone, does not know."""
    folder = tmp_path_factory.mktemp("archive")
    rows = [json.loads(line) for line in (place / "data" / "metadata.jsonl").read_text().splitlines()]
    said = {
        "red": "Havana, 1958", "blue": "a red square of Havana", "grey": "the red ruling stands", "pink": "red stands",
        "cyan": "a square in 1958", "white": "A street", "black": "near a Square",
    }  # fmt: skip
    rows = [row | ({"captions": [said[row["id"]]]} if row["id"] in said else {}) for row in rows]
    shutil.copytree(place / "data", folder / "data")
    (folder / "data" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = ["--data", folder / "data", "--text-encoder", "none"]
    call("index", "build", folder / "index", "--run", place / "run", *data, "-q")
    return folder / "index"


def test_words_rank_where_the_model_knows_none(archive: Path) -> None:
    answer = json.loads(call("search", archive, "Havana 1958", "--explain", "--json").stdout)
    assert answer["hits"][0]["id"] == "red" and answer["unit"] == "evidence"
    assert {hit["id"] for hit in answer["hits"][1:]} == {"blue", "cyan"}, "those with one of the words, and no others"
    assert answer["exact_words"] == ["havana", "1958"] and answer["warning"] is None
    assert "pixels" not in {reason["signal"] for hit in answer["hits"] for reason in hit["reasons"]}
    some = json.loads(call("search", archive, "Havana wardrobe", "--json").stdout)
    assert some["exact_words"] == ["havana"] and "the model does not know 'wardrobe'" in some["warning"]
    alone = open_index(archive).search("Havana 1958", signals=["pixels"])
    assert len(alone) == 10 and alone.unit == "cosine"


def test_words_join_the_ranking_of_the_model(archive: Path) -> None:
    engine = open_index(archive)
    answer = engine.search("red HAVANA", top=12)
    assert answer.unit == "evidence" and len(answer) == 12
    # Two have the word that the model does not know: they stand higher than without it.
    joined, alone = (
        [hit.id for hit in found]
        for found in (answer, engine.search("red HAVANA", top=12, signals=["pixels", "texts"]))
    )
    assert sum(map(joined.index, ("red", "blue"))) < sum(map(alone.index, ("red", "blue")))
    many = engine.answer_many([Query(text="a red square"), Query(text="red 1958"), Query(text="red", top=3)])
    assert [answer.exact_words for answer in many] == [(), ("1958",), ()]
    assert [[hit.id for hit in answer] for answer in many] == [
        [hit.id for hit in engine.search(text, top=top)]
        for text, top in (("a red square", 10), ("red 1958", 10), ("red", 3))
    ]


def test_quoted_phrase_ranks_first(archive: Path) -> None:
    engine = open_index(archive)
    assert engine.search('"red stands"')[0].id == "pink" and engine.search('"ruling stands"')[0].id == "grey"
    assert [hit.id for hit in engine.search('"red stands"', top=1)] == ["pink"], "others have no place"
    plain = engine.search("red square")
    assert [hit.id for hit in engine.search('"square red"')] == [hit.id for hit in engine.search("square red")]
    assert len(plain) == 10 and engine.search('red "" "!"').exact_words == ()


def test_misspelt_word_gets_suggestion(archive: Path) -> None:
    told = call("search", archive, "Havanna 1958")
    assert "did you mean havana?" in told.stderr and open_index(archive).search("havana").suggestions == {}
    assert json.loads(call("search", archive, "rulinng", "--json").stdout)["did_you_mean"] == {"rulinng": "ruling"}
    assert open_index(archive).search("loneliness").suggestions == {}


def test_few_unknown_words_get_suggestions(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(query_module, "near_texts", lambda word, *_, **__: compared.append(word) or [])
    strange = ["".join(letters) for letters in product("qxz", repeat=5)]
    with Folder(archive).reading() as view:
        assert suggest_words(view, strange) == {} and len(compared) == 3


def test_words_and_phrases_of_the_index_are_told_from_others(archive: Path) -> None:
    with Folder(archive).reading() as view:
        assert exact_words(view, (), ("havana", "zebra", "1958", "?")) == (("havana", "1958"), ())
        phrases = ("no such phrase", "ruling stands")
        assert exact_words(view, phrases, ()) == (("ruling stands",), ("no text has 'no such phrase'",))
        assert suggest_words(view, ["Havanna", "Ruling", "1985", "Zebra", "Rul", "nea"]) == {"Havanna": "havana"}


def test_weight_without_matching_query_part_raises(place: Path) -> None:
    index, picture = place / "index-run", next((place / "data").glob("*.png"))
    for words in (["a", "--image-weight", 0.9], ["--image", picture, "--image-weight", 0.9]):
        told = call("search", index, *words, code=2).output
        assert "--image-weight needs text together with an image" in told, told
    told = call("search", index, "a", "--not-like-weight", 3, code=2).output
    assert "--not-like-weight needs" in told
    call("search", index, "a", "--image", picture, "--image-weight", 0.9)
    call("search", index, "a -b", "--not-like-weight", 3)


def test_terms_missing_from_index_give_note(archive: Path) -> None:
    engine = open_index(archive)
    phrase, split = "no text has 'no such phrase'", "no image has split 'tset'; the nearest: 'test'"
    assert engine.search("“no such phrase” red").notes == (phrase,)
    assert phrase in json.loads(call("search", archive, "red «no such phrase»", "--json").stdout)["warning"]
    assert engine.search("red “ruling stands”").notes == engine.search("red zebra").notes == ()
    told = call("search", archive, "red", "--where", "split = tset")
    assert split in told.stderr and told.stdout == "nothing meets these conditions\n"
    many = engine.answer_many(
        [Query(text=text, where=("split = tset",)) for text in ("a red one", "a blue one", "“no such phrase” red")]
    )
    assert [answer.notes for answer in many] == [(split,), (split,), (phrase, split)]
    assert engine.search("a red one", where=["split != tset"]).notes == (split,)


def test_minus_word_means_not_text_everywhere(archive: Path) -> None:
    engine = open_index(archive)
    for typed, query in [
        ("red -blue", Query(text="red", not_text="blue")),
        ('red -"blue square"', Query(text="red", not_text="blue square")),
        ("red -blue -green", Query(text="red", not_text="blue, green")), ("-blue", Query(text="-blue")),
        ("red-blue", Query(text="red-blue")), ("red - blue -1", Query(text="red - blue -1")),
    ]:  # fmt: skip
        for words in (["--json", "--", typed], [typed, "--json"]):
            told = json.loads(call("search", archive, *words).stdout)
            assert [hit["id"] for hit in told["hits"]] == [hit.id for hit in engine.answer(query)], typed
            assert told["query"].get("not_text") == query.not_text and told["query"]["text"] == query.text
    assert json.loads(call("search", archive, "-blue", "--like", "red", "--json").stdout)["query"]["not_text"] == "blue"
    for typed in ("-house", "-Öl -blue"):
        assert json.loads(call("search", archive, typed, "--json").stdout)["query"]["text"] == typed
    assert json.loads(call("search", archive, "red", "--not-text", "-b", "--json").stdout)["query"]["not_text"] == "-b"
    for wrong in ("-x", "--xyz"):
        assert f"No such option '{wrong}'" in call("search", archive, wrong, code=2).output
    both = Query(text="-blue", like=("red",)).understood
    assert (both.text, both.not_text) == (None, "blue")


def test_hubness_correction_and_diversity_reorder_hits(place: Path, both: Index) -> None:
    plain = Plain(place, both)
    query = plain.words("a green square")
    own = plain.scores(query, "images")
    crowd = np.array([plain.scores(text, "images") for text in plain.vectors["texts"]]).T
    wanted = 2 * own - np.sort(crowd, axis=1)[:, -10:].mean(axis=1)
    names = dict(zip(plain.ids["images"], wanted.tolist(), strict=True))
    pixels = {"signals": ["pixels"]}
    found = both.search("a green square", top=12, hubness="csls", **pixels)
    assert [hit.id for hit in found] == best(names)
    assert {hit.id: hit.score for hit in found} == {
        h.id: h.score for h in both.search("a green square", top=12, **pixels)
    }
    assert len(both.search("a green square", top=5, hubness="softmax")) == 5
    apart = both.search("a green square", top=2, diversity=1.0, **pixels)
    least = min(range(12), key=lambda row: plain.scores(plain.item("images", apart[0].id), "images")[row])
    assert (
        apart[0].id == both.search("a green square", top=1, **pixels)[0].id
        and apart[1].id == plain.ids["images"][least]
    )
    with pytest.raises(RequirementError, match="hubness needs a query of one part"):
        both.search("a", not_text="red", hubness="csls")
    assert len(both.search("a", like=["red"], hubness="csls", top=12)) == 11


def test_invalid_query_or_order_raises(engine: Index) -> None:
    with pytest.raises(RequirementError, match="there is no 'nobody'; give another"):
        engine.search(like=["nobody"])
    for wrong in ({"image_weight": 2.0}, {"not_like_weight": -1.0}, {"diversity": 2.0}, {"depth": 0}):
        with pytest.raises(RequirementError, match="needs to be"):
            Query(text="a", **wrong)
    with pytest.raises(RequirementError, match="min_probability needs an index that is calibrated"):
        engine.search("a", min_probability=0.5)
    assert engine.search("a").fit is None


def test_command_line_searches_with_several_parts(place: Path) -> None:
    index = place / "index-run"
    picture = place / "data" / "red.png"
    found = json.loads(
        call(
            "search", index, "a blue square", "--image", picture, "--image-weight", 0.2, "--not-like", "black",
            "--not-text", "white", "--explain", "--top", 3, "--json", "--signals", "pixels",
        ).stdout
    )  # fmt: skip
    assert found["unit"] == "deviations" and found["query"]["not_like"] == ["black"] and len(found["hits"]) == 3
    assert found["query"]["image_weight"] == 0.2 and found["has_no_match"] is None and found["fit"] is None
    for hit in found["hits"]:
        assert {reason["part"] for reason in hit["reasons"]} == {"text", "image", "-text"}
        assert sum(reason["amount"] for reason in hit["reasons"]) == pytest.approx(hit["score"], abs=1e-4)
    text = call(
        "search", index, "--like", "red", "--diversity", 0.5, "--hubness", "csls", "--explain", "--top", 2
    ).stdout
    assert "why 1: picture 100 %" in text and "cosine" in text and "why 2:" in text
    assert "evidence" in call("search", index, "Quadrat", "--like", "red").stdout
    assert "not" in call("search", index, "a", "--min-probability", 0.5, code=1).stderr
    for name, told in (("nobody", "nobody'"), ("~nobody/x", "~nobody/x'"), ("x" * 5000, "x" * 200)):
        assert f"no '{told}"[:200] in call("search", index, "--like", name, code=1).stderr
