"""From a run to an index to answers, by Python and by the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import coloured_images
import numpy as np
import pytest
import small_training
import torch
from command import call
from PIL import Image

import subtext
from subtext.api.load import load
from subtext.api.search import open_index, search
from subtext.data.inputs import InputBatch
from subtext.data.read import read
from subtext.errors import ArgumentError, DataError, RequirementError, SearchIndexError
from subtext.evaluation import embed_pairs
from subtext.retrieval.answer import Answer, Hit
from subtext.retrieval.build import model_fingerprint
from subtext.retrieval.index import Index


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = coloured_images.runs(tmp_path_factory.mktemp("search"), "run", "other", "views")
    call("index", "build", folder / "index", "--run", folder / "run", "--text-encoder", "none", "-q")
    return folder


@pytest.fixture
def engine(place: Path) -> Index:
    return open_index(place / "index")


def test_text_search_returns_best_scores(place: Path, engine: Index) -> None:
    model, pairs = load(place / "run"), read(place / "data")
    images, _ = embed_pairs(model, pairs)
    query = model.embed_texts(["a blue square"])
    wanted = model.similarity.cosine(images, query)[:, 0]
    hits = engine.search("a blue square", top=12, signals=["pixels"])
    scores = dict(zip(pairs.images.ids, wanted.tolist(), strict=True))
    assert {hit.id for hit in hits} == set(scores)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    np.testing.assert_allclose([hit.score for hit in hits], [scores[hit.id] for hit in hits], atol=1e-6)
    found = engine.search(text="a blue square", top=3, target="texts")
    assert found[0].captions == ["a blue square"] and found[0].score == max(hit.score for hit in found)
    assert found[0].metadata["images"] == ["blue"] and found[0].metadata["language"] == "en"


def test_search_function_accepts_open_index(place: Path, engine: Index) -> None:
    hits = subtext.search(place / "index", "a blue square", top=3)
    assert [hit.id for hit in subtext.search(engine, "a blue square", top=3)] == [hit.id for hit in hits]
    with pytest.raises(ArgumentError, match="give them to open_index"):
        subtext.search(engine, "a blue square", run=place / "run")


def test_hit_contains_path_captions_and_metadata(place: Path, engine: Index) -> None:
    hit = next(hit for hit in engine.search(text="anything", top=12) if hit.id == "cyan")
    assert hit.path is not None and Path(hit.path) == (place / "data" / "cyan.png").resolve()
    assert hit.captions == ["a cyan square", "ein Quadrat, cyan"]
    assert hit.metadata["split"] == "test" and hit.metadata["place"] == 11
    assert set(hit.to_json()) == {"id", "score", "path", "captions", "metadata", "probability", "reasons", "level"}
    assert hit.probability is None and hit.reasons == []
    assert len(engine) == 12


@pytest.mark.parametrize("kind", ["text path", "path", "bytes", "picture"])
def test_image_finds_itself(place: Path, engine: Index, kind: str) -> None:
    path = place / "data" / "purple.png"
    with Image.open(path) as picture:
        image = {"text path": str(path), "path": path, "bytes": path.read_bytes(), "picture": picture}[kind]
        hits = engine.search(image=image, top=2)
    assert hits[0].id == "purple" and hits[0].score == pytest.approx(1, abs=1e-5)
    assert len(hits) == 2


def test_large_jpeg_finds_itself(place: Path, engine: Index, tmp_path: Path) -> None:
    """JPEG is decoded at a smaller scale where that is enough: for a question as for the index."""
    pixels = np.random.default_rng(0).integers(0, 255, size=(300, 300, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.jpg")
    input_spec = engine.model.image.input_spec
    batch = InputBatch(["noise.jpg"], ["noise"], np.zeros(1, np.int64), np.zeros(1, np.int64), tmp_path)
    with torch.inference_mode():
        indexed = engine.model.image(input_spec(batch)).vectors
    asked = engine.embed_image(tmp_path / "noise.jpg").vectors
    torch.testing.assert_close(asked, indexed, rtol=0, atol=1e-6)


def test_item_with_several_views_is_one_hit(place: Path, tmp_path: Path) -> None:
    call("index", "build", tmp_path / "index", "--run", place / "views", "--text-encoder", "none", "-q")
    found = subtext.open_index(tmp_path / "index")
    hits = found.search(text="a red square", top=50)
    assert len({hit.id for hit in hits}) == len(hits) == 12
    assert found.store.manifest.views == {"images": 3, "texts": 3}


def test_another_model_raises(place: Path) -> None:
    assert model_fingerprint(load(place / "run")) == model_fingerprint(load(place / "run"))
    with pytest.raises(SearchIndexError, match=r"needs the model that made it, .*run .*; it got another"):
        Index.open(place / "index", load(place / "other"))
    answer = call("search", place / "index", "words", "--run", place / "other", code=1)
    assert "build the index again with this model" in answer.stderr


def test_text_input_is_part_of_model_fingerprint(place: Path) -> None:
    model = load(place / "run")
    before = model_fingerprint(model)
    input_spec = model.text.input_spec
    model.text.input_spec = type(input_spec)(input_spec.vocabulary, max_tokens=5)  # type: ignore[attr-defined]
    assert model_fingerprint(model) != before


def test_pair_model_raises(place: Path) -> None:
    model = load(place / "run")
    model.similarity.indexable = False
    with pytest.raises(RequirementError, match=r"a search needs a model whose vectors decide the score; .*two stages"):
        Index.open(place / "index", model)


def test_invalid_queries_raise(engine: Index, tmp_path: Path) -> None:
    with pytest.raises(RequirementError, match="it got none"):
        engine.search()
    with pytest.raises(DataError, match="the text is empty"):
        engine.search(text="  ")
    with pytest.raises(RequirementError, match="needs top of 1 or more; it got 0"):
        engine.nearest(np.zeros((1, 1, 16), np.float32), top=0)
    (tmp_path / "no.png").write_text("no picture")
    with pytest.raises(DataError, match=r"no\.png is no image that can be read"):
        engine.search(image=tmp_path / "no.png")
    for words in ("🚣🏽", "слово", "ganz unbekannte Wörter", "x" * 10_000, "word " * 10_000):
        assert len(engine.search(text=words, top=3)) == 3


def test_search_command_prints_and_returns_json(place: Path) -> None:
    index = place / "index"
    answer = call("search", index, "a green square", "--top", 2)
    assert answer.stdout.count("square") == 2 and "evidence" in answer.stdout and ".png" in answer.stdout
    found = json.loads(
        call("search", index, "--image", place / "data" / "pink.png", "--target", "texts", "--json").stdout
    )
    assert found["target"] == "texts" and len(found["hits"]) == 10 and found["query"]["image"].endswith("pink.png")
    told = call("index", "info", index).stdout
    assert "12" in told and "24" in told and str(place / "run") in told
    assert json.loads(call("index", "info", index, "--json").stdout)["counts"] == {"images": 12, "texts": 24}


def test_unknown_words_give_warning(place: Path) -> None:
    index = place / "index"
    some = call("search", index, "a blue wardrobe, two wardrobes", "--top", 1)
    assert (
        some.stderr
        == "warning: the model does not know 'wardrobe', 'two', 'wardrobes'; the answer uses only the other words\n"
    )
    assert "warning" not in some.stdout and "square" in some.stdout
    none = call("search", index, "Kleiderschrank?", "--json")
    assert none.stderr == "warning: the model knows no word of the query: 'kleiderschrank'; this answer means nothing\n"
    found = json.loads(none.stdout)
    assert found["unknown_words"] == ["kleiderschrank"] and found["warning"].endswith("means nothing")
    assert len(found["hits"]) == 10
    assert "knows no word of the query; it has no words" in call("search", index, "?!").stderr
    assert "'w7' and 12 more;" in call("search", index, "red " + " ".join(f"w{n}" for n in range(20))).stderr
    known = call("search", index, "a red square", "--json")
    assert known.stderr == "" and json.loads(known.stdout)["unknown_words"] == []
    assert json.loads(known.stdout)["warning"] is None
    picture = json.loads(call("search", index, "--image", place / "data" / "red.png", "--json").stdout)
    assert picture["unknown_words"] == [] and picture["query"]["features_of"] is None


def test_known_words_of_a_query(engine: Index) -> None:
    assert engine.known_words("A red tram, a tram!") == {"a": True, "red": True, "tram": False}
    assert engine.known_words("...") == {}
    longest = engine.model.text.input_spec.max_tokens - 2  # type: ignore[attr-defined]
    assert engine.known_words("red " * longest + "tram") == {"red": True}, "what is cut off is not read"


def test_subword_model_has_no_unknown_words(engine: Index) -> None:
    engine = engine.with_model()
    engine.model.text.input_spec = small_training.Traits()
    assert engine.known_words("Kleiderschrank") is None


def test_one_split_can_be_indexed(place: Path, tmp_path: Path) -> None:
    answer = call("index", "build", tmp_path / "val", "--run", place / "run", "--split", "val", "--quiet")
    assert "2 images and 4 texts" in answer.stdout
    assert {hit.id for hit in open_index(tmp_path / "val").search(text="a", top=9)} == {"purple", "brown"}


def test_command_line_rejects_invalid_arguments(place: Path, tmp_path: Path) -> None:
    assert "holds an index" in call("index", "build", place / "index", "--run", place / "run", code=1).stderr
    assert "is not there" in call("search", tmp_path / "nowhere", "words", code=1).stderr
    assert "a search needs text (QUERY), --image or --like" in call("search", place / "index", code=2).stderr
    call("search", place / "index", "words", "--top", 0, code=2)
    assert "nowhere" in call("index", "build", tmp_path / "index", "--run", tmp_path / "nowhere", code=1).stderr
    gone = call("search", place / "index", "--image", tmp_path / "gone.png", code=1).stderr
    assert "gone.png" in gone and "--" not in gone, "no advice of options that this command has not"
    answer = call("search", place / "index", "--image", place / "data" / "red.png", "--features", "f.npz", code=1)
    assert "f.npz is not there" in answer.stderr
    assert "--features needs an image" in call("search", place / "index", "words", "--features", "f.npz", code=2).stderr
    np.savez(tmp_path / "f.npz", names=np.array(["red.png"]), pooled=np.ones((1, 4)))
    answer = call("search", place / "index", "--image", "red.png", "--features", tmp_path / "f.npz", code=1)
    assert "features need a model whose image side reads them; this one reads by PixelInput" in answer.stderr


@pytest.mark.parametrize("options", [{"diversity": 0.5}, {"hubness": "csls"}, {"signals": ["words"]}])
@pytest.mark.parametrize("target", ["images", "texts"])
def test_unmatched_conditions_return_no_hits(engine: Index, target: str, options: dict) -> None:
    assert len(engine.search("a dog", target=target, where=["id = nobody"], **options)) == 0


def test_results_are_written_as_csv_for_a_spreadsheet(
    place: Path, engine: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hits.csv"
    for locale, sign, point in (("C.UTF-8", ",", "."), ("de_DE.UTF-8", ";", ","), ("de_CH.UTF-8", ",", ".")):
        monkeypatch.setenv("LC_ALL", locale)
        answer = search(engine, "a red square", top=3, csv=file)
        with file.open(encoding="utf-8-sig", newline="") as opened:
            rows = list(csv.DictReader(opened, delimiter=sign))
        assert [row["id"] for row in rows] == [hit.id for hit in answer]
        assert [row["score"] for row in rows] == [repr(hit.score).replace(".", point) for hit in answer]
        assert rows[0]["query"] == "a red square" and rows[0]["captions"].split(" | ") == answer[0].captions
        assert rows[0]["file"] == answer[0].path and rows[0]["place"] == str(answer[0].metadata["place"])
    call("search", place / "index", "a red square", "--top", 2, "--csv", file, "--separator", "semicolon")
    assert len(file.read_text(encoding="utf-8-sig").splitlines()) == 3 and ";" in file.read_text()
    answers = search(engine, ["a red square", "a blue square"], top=2, csv=file, separator="tab")
    assert [line.split("\t")[0] for line in file.read_text(encoding="utf-8-sig").splitlines()[1:]] == [
        query for query in ("a red square", "a blue square") for _ in answers[0]
    ]
    refused = call("search", place / "index", "a red square", "--separator", "tab", code=2)
    assert "separator needs a file, --csv" in refused.stderr


def test_a_cell_is_never_a_formula(tmp_path: Path) -> None:
    hit = Hit("=1+1", -0.5, None, ["+49 30", "@a"], {"credit": "-Müller", "tags": ["a", "b"], "year": -3})
    Answer([hit]).to_csv(tmp_path / "hits.csv", separator="comma")
    with (tmp_path / "hits.csv").open(encoding="utf-8-sig", newline="") as opened:
        (row,) = csv.DictReader(opened)
    assert row["id"] == "'=1+1" and row["captions"] == "'+49 30 | @a" and row["credit"] == "'-Müller"
    assert row["score"] == "-0.5" and row["tags"] == "a | b" and row["year"] == "-3"
    with pytest.raises(ArgumentError, match="separator"):
        Answer([hit]).to_csv(tmp_path / "hits.csv", separator="pipe")  # type: ignore[arg-type]
