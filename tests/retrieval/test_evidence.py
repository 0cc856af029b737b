"""Search by all evidence: the same as a plain loop over every item, and reasons that sum to the score."""

from __future__ import annotations

import json
import math
from itertools import chain
from pathlib import Path

import coloured_images
import numpy as np
import pytest
import tiny_models
from command import call
from PIL import Image

from subtext.api.search import open_index
from subtext.errors import RequirementError
from subtext.retrieval import evidence, explain, segments
from subtext.retrieval.evidence import Gatherer, Part
from subtext.retrieval.index import Index, Query
from subtext.retrieval.manifest import EncoderRecord, Manifest
from subtext.retrieval.ranker import FIXED, HIGHEST, LEXICAL, Ranker, stored_ranker
from subtext.retrieval.stores.facets import item_words
from subtext.retrieval.stores.folder import Folder
from subtext.retrieval.stores.item import Change, DerivedRow, IndexEntry, StoredRow, machine_of
from subtext.retrieval.stores.registry import create_store
from subtext.retrieval.stores.store import Store
from subtext.retrieval.words import query_words, words


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images: two without texts, two with a second text, places and inventory numbers in columns."""
    folder = coloured_images.runs(tmp_path_factory.mktemp("evidence"), "run")
    rows = [json.loads(line) for line in (folder / "data" / "metadata.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row |= {"place": ["Köln", "Paris", "Genève"][number % 3], "inventory": f"1987-{100 + number}"}
        if number < 2:
            row["captions"] = []
    (folder / "data" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    encoder = tiny_models.bert(folder / "encoder")
    for name, own in (("alone", "none"), ("read", encoder), ("alone by machines", "none"), ("by machines", encoder)):
        options = ["--run", folder / "run", "--split", "all", "--text-encoder", own, "-q"]
        call("index", "build", folder / name, *options)
    for name in ("alone by machines", "by machines"):
        # Of an image with texts of people, of one without, and twice of one.
        written = {"captioner": {rows[4]["id"]: "a blue square", rows[0]["id"]: "a red wall"}, "ocr": {}}
        written["ocr"] = {rows[4]["id"]: "no entry", rows[7]["id"]: "square 5"}
        for machine, texts in written.items():
            table = folder / f"{machine}.csv"
            table.write_text("id,text\n" + "".join(f"{own},{text}\n" for own, text in texts.items()))
            call("index", "texts", folder / name, table, "--as", machine, "-q")
    return folder


@pytest.fixture(params=["alone", "read", "alone by machines", "by machines"])
def engine(request: pytest.FixtureRequest, place: Path) -> Index:
    return open_index(place / request.param)


def by_loops(engine: Index, query: Query) -> dict[str, float]:
    """The score of every image, one item and one signal at a time."""
    ranker_weights = FIXED
    with engine.store.reading() as view:
        gatherer = Gatherer(view, "images", ranker_weights)
        parts = engine._parts(view, query)[0]
        keys = view.keys("images").tolist()
        texts, images = view.owner_links()
        linked = {key: [int(t) for t, i in zip(texts, images, strict=True) if i == key] for key in keys}
        by_machines = {
            row.key for row in view.rows("texts", keys=view.keys("texts").tolist()) if machine_of(row.metadata)
        }
        wordings = {row.key: row.text or "" for row in view.rows("texts", keys=view.keys("texts").tolist())}
        own = {key: [text for text in some if text not in by_machines] for key, some in linked.items()}
        theirs = {key: [text for text in some if text in by_machines] for key, some in linked.items()}
        totals = dict.fromkeys(keys, 0.0)
        found = view.rows("images", keys=keys)
        rows = {row.key: item_words(row.id, row.path, row.fields) for row in found}
        has_encoder = view.manifest.encoder is not None
        for part in parts:
            compared = part.sentence if has_encoder else part.toward_texts
            raw: dict[str, dict[int, float | None]] = {"pixels": {}}
            for key in keys:
                views = view.vectors("images", np.array([key]))[0]
                raw["pixels"][key] = max(float(a @ b) for a in part.vectors for b in views)
            if part.text is not None:
                bm25 = dict(view.search_words("texts", part.text, top=None))
                fields = dict(view.search_words("images", part.text, top=None))
                kinds = {"": own, "machine_": theirs} if by_machines else {"": own}
                for kind, some in kinds.items():
                    raw |= {f"{kind}texts": {}, f"{kind}words": {}}
                    for key in keys:
                        said = [view.vectors_in(gatherer.text_space, np.array([text]))[0][0, 0] for text in some[key]]
                        # The soft maximum of the texts, of temperature 0.1.
                        shares = [math.exp(float(compared[0] @ v) / 0.1) for v in said]
                        raw[f"{kind}texts"][key] = 0.1 * math.log(sum(shares) / len(shares)) if said else None
                        raw[f"{kind}words"][key] = max((bm25.get(text, 0.0) for text in some[key]), default=None)
                    if not any(raw[f"{kind}words"].values()):
                        del raw[f"{kind}words"]
                if fields:
                    raw["fields"] = {key: fields.get(key, 0.0) for key in keys}
                if has_encoder:
                    raw["neighbours"] = {}
                    for key in keys:
                        lent, there = view.vectors_in("neighbours", np.array([key]))
                        raw["neighbours"][key] = float(part.sentence[0] @ lent[0, 0]) if there[0] else None
            if not part.readable:
                raw = {name: raw[name] for name in raw if name != "pixels" and (has_encoder or "texts" not in name)}
            first = next((name for name in ("texts", "words") if name in raw), None)
            first_by_machines = next((name for name in ("machine_texts", "machine_words") if name in raw), None)
            scores = dict.fromkeys(keys, 0.0)
            for signal, values in raw.items():
                known = [value for value in values.values() if value is not None]
                mean, spread = float(np.mean(known)), float(np.std(known))
                spread = max(spread, (max(known) - mean) / HIGHEST) if signal in LEXICAL else spread
                spread = spread if spread > 1e-9 * max(1, *map(abs, known)) else 1.0
                asked, rises = set(query_words(part.text or "")), 1.0
                if signal in LEXICAL:
                    said_by = {"words": own, "machine_words": theirs}.get(signal)
                    said = [*rows.values()] if said_by is None else [wordings[t] for t in chain(*said_by.values())]
                    rises = (max(len(asked & set(words(some))) for some in said) / len(asked)) ** (
                        2 if signal == "fields" else 1
                    )
                for key in keys:
                    value, bare = values[key], not own[key]
                    weights = {name: weight * rises for name, weight in (FIXED.bare if bare else FIXED.full).items()}
                    if part.text is None:
                        scores[key] += (value - mean) / spread
                    elif value is not None:
                        scores[key] += weights.get(signal, 0.0) * (value - mean) / spread
                    elif signal == first:
                        scores[key] += FIXED.without_texts
                    elif signal == first_by_machines:
                        scores[key] += FIXED.without_machine_texts
            factor = 1.0 if len(parts) == 1 else part.weight / float(np.std(list(scores.values())))
            totals = {key: totals[key] + factor * scores[key] for key in keys}
            if not part.readable and not has_encoder:  # Words alone leave out what has none of them.
                keys = [key for key in keys if any((raw[name][key] or 0) > 0 for name in raw)]
                totals = {key: totals[key] for key in keys}
        names = {row.key: row.id for row in found}
    return {names[key]: total for key, total in totals.items()}


QUERIES = [
    Query(text="a red square", top=12),
    Query(text="Koln blau", top=12),
    Query(text="a blue square", not_text="red", top=12),
    Query(text="a green square", image_weight=0.4, like=("red",), not_like=("black",), top=12),
    Query(like=("red", "black"), not_text="a blue square", top=12),
]


@pytest.mark.identity
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: str(query.text))
@pytest.mark.parametrize("where", [(), ("place = Paris",)])
def test_best_items_are_those_of_a_loop_over_all(engine: Index, query: Query, where: tuple[str, ...]) -> None:
    wanted = by_loops(engine, query)
    for name in (*query.like, *query.not_like):
        del wanted[str(name)]
    answer = engine.answer(Query(**{**vars(query), "where": where}))
    if where:
        with engine.store.reading() as view:
            places = {row.id: row.fields["place"] for row in view.rows("images", keys=view.keys("images").tolist())}
        wanted = {name: score for name, score in wanted.items() if places[name] == "Paris"}
    assert {hit.id: hit.score for hit in answer} == pytest.approx(wanted, abs=1e-4)
    scores = [hit.score for hit in answer]
    assert scores == sorted(scores, reverse=True) and answer.unit == "evidence" and not answer.approximate
    few = engine.answer(Query(**{**vars(query), "where": where, "top": 2}))
    assert [hit.id for hit in few] == [hit.id for hit in answer][:2]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """1,200 images: some are copies, some without texts, with several, or without neighbours; some were deleted."""
    encoder = EncoderRecord("starter", "e" * 32, 16, ("en",))
    store = create_store(
        tmp_path_factory.mktemp("large") / "index", Manifest("f" * 32, "", "made", 24, encoder=encoder)
    )
    random = np.random.default_rng(0)

    def units(count: int, width: int) -> np.ndarray:
        drawn = random.standard_normal((count, width)).astype(np.float32)
        drawn[count // 2 :: 5] = drawn[0]  # Equal scores.
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    with store.writing("build") as writer:
        for start in (0, 600):
            numbers = range(start, start + 600)
            entries = [IndexEntry(f"p{n}", b"%d" % n, f"{n}.jpg", metadata={"kind": n % 7}) for n in numbers]
            writer.put(Change("images", entries, units(600, 24)[:, None]))
            texts = [
                IndexEntry(f"t{n}", b"t%d" % n, text=f"boat w{n % 11} w{n % 3}") for n in range(start, start + 500)
            ]
            rows = dict(zip([text.id for text in texts], map(DerivedRow, units(500, 16)), strict=True))
            links = [(f"p{start + (n * 3) % 450}", f"t{n}") for n in range(start, start + 500)]
            writer.put(Change("texts", texts, units(500, 24)[:, None], links=links, derived={"sentences": rows}))
            lent = {f"p{n}": DerivedRow(row, farthest=-np.inf) for n, row in zip(numbers, units(600, 16), strict=True)}
            writer.apply(Change(derived={"neighbours": {name: row for name, row in lent.items() if name[-1] != "3"}}))
        writer.delete("images", [f"p{n}" for n in range(5, 1200, 40)])
    return store


@pytest.mark.identity
@pytest.mark.parametrize("said", ["boat w3", "w1", "none"])
def test_best_by_codes_are_those_of_all_scores(large: Store, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few items are scored exactly, and the best of them are the best of all, with filters and equal scores."""
    monkeypatch.setattr(segments, "CODED", 1)
    monkeypatch.setattr(evidence, "SAMPLES", 300)
    random = np.random.default_rng(len(said))
    with large.reading() as view:
        every = view.keys("images")
        for _ in range(6):
            vectors = [random.standard_normal((1, width)).astype(np.float32) for width in (24, 16, 24)]
            parts = [Part(1.0, vectors[0], "texts", text=said, sentence=vectors[1])]
            if random.random() < 0.5:
                parts.append(Part(-0.5, vectors[2], "images"))
            among = np.sort(random.choice(every, 500, replace=False)) if random.random() < 0.5 else None
            first, without = random.choice(every, 4), random.choice(every, 3).tolist()
            gatherer = Gatherer(view, "images", FIXED)
            whole = gatherer.gather(parts, count=len(every))
            assert len(whole.keys) == len(every)
            few = gatherer.gather(parts, count=8, among=among, without=without, first=first)
            assert few.exact and len(few.keys) < 400
            scores = dict(zip(whole.keys.tolist(), whole.scores.astype(np.float32).tolist(), strict=True))
            for limits, left_out, before in ((among, without, first), (None, (), ())):
                allowed = sorted(set((every if limits is None else limits).tolist()) - set(left_out))
                wanted = sorted(allowed, key=lambda key: (key not in before, -scores[key], key))[:8]
                assert few.best(8, among=limits, without=left_out, first=before).keys.tolist() == wanted
        assert view.scores("images", vectors[0])[2].max() > 1e-4, "codes were used"


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: str(query.text))
def test_score_is_what_its_reasons_sum_to(engine: Index, query: Query) -> None:
    for hit in engine.answer(Query(**{**vars(query), "explain": True})):
        again = 0.0
        for reason in hit.reasons:
            amount = reason.amount
            if reason.value is not None:
                amount = reason.weight * (reason.value - reason.mean) / reason.deviation
                assert amount == pytest.approx(reason.amount, abs=1e-6)
            again += amount
            assert (reason.share is None) == (reason.amount < 0)
        assert again == pytest.approx(hit.score, abs=1e-4)
        shares = [reason.share for reason in hit.reasons if reason.share is not None]
        assert not shares or sum(shares) == pytest.approx(1)


def test_reason_names_the_values_of_a_list_as_a_person_writes_them() -> None:
    row = StoredRow(0, "1", None, None, '{"keywords": ["Alltag", "Hafen"], "city": "Genf"}', b"", None, b"")
    assert explain._fields(row, "Hafen")["text"] == "keywords Alltag; Hafen"


def test_reason_names_the_text_and_the_field(engine: Index) -> None:
    hit = engine.search("1987-105", explain=True, top=1)[0]
    assert hit.metadata["inventory"] == "1987-105"
    field = next(reason for reason in hit.reasons if reason.signal == "fields")
    assert field.fields == ("inventory",) and field.text == "inventory 1987-105" and field.share > 0.5
    told = call("search", engine.store.path, "koln", "--explain", "--top", 1).stdout
    assert "field: place Köln" in told and "%" in told
    for found in engine.search("a red square", explain=True, top=12):
        own = [reason for reason in found.reasons if reason.signal == "texts"]
        assert all(reason.text in found.captions for reason in own if reason.value is not None)
        by_people = [text for text in found.captions if not text.startswith("[")]
        assert all(reason.value is not None for reason in own) == bool(by_people)
        theirs = [reason for reason in found.reasons if reason.signal == "machine_texts" and reason.value is not None]
        assert bool(theirs) == (len(by_people) < len(found.captions))
        assert all(reason.text in found.captions and reason.label.startswith("machine text: [") for reason in theirs)
        if engine.store.manifest.encoder is not None:
            lent = [reason for reason in found.reasons if reason.signal == "neighbours"]
            assert all(reason.id != found.id and reason.text for reason in lent)


def test_filter_does_not_change_scores(engine: Index) -> None:
    every = {hit.id: hit.score for hit in engine.search("a red square", top=12)}
    some = {hit.id: hit.score for hit in engine.search("a red square", top=12, where=["place = Köln"])}
    assert 0 < len(some) < len(every) and some == {name: every[name] for name in some}


def test_candidates_are_found_by_each_signal(engine: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that gives candidates, enough of them for so few items, has the same answer, and says what it is."""
    exact = [engine.answer(query) for query in QUERIES]
    monkeypatch.setattr("subtext.retrieval.stores.folder.FolderView.exact_spaces", False)
    for query, wanted in zip(QUERIES, exact, strict=True):
        found = engine.answer(query)
        assert found.approximate and not wanted.approximate
        scores = {hit.id: hit.score for hit in wanted}
        assert [hit.score for hit in found] == pytest.approx([scores[hit.id] for hit in found], abs=1e-4)
        assert found[0].id == wanted[0].id and (len(found) == len(wanted) or query.text == "Koln blau")
    monkeypatch.setattr(evidence, "LEAST_CANDIDATES", 1)
    monkeypatch.setattr(evidence, "CANDIDATES", 1)
    best = engine.search("1987-105", top=1, signals=["fields", "pixels"])
    assert best[0].metadata["inventory"] == "1987-105"


def test_switches_leave_signals_out(engine: Index) -> None:
    signals = lambda **options: {  # noqa: E731
        reason.signal for hit in engine.search("blue square", top=12, explain=True, **options) for reason in hit.reasons
    }
    assert signals(signals=["pixels"]) == {"pixels"} and signals(signals=["words"]) == {"words"}
    assert signals() >= {"pixels", "texts", "words"}
    with pytest.raises(RequirementError, match="signals needs evidence that the index has for this query"):
        engine.search("zebra", signals=["fields"])


def test_very_long_query_is_answered(engine: Index) -> None:
    long = " ".join(f"word{number}" for number in range(10_000)) + " red"
    assert len(engine.search(f"red {long}", top=12)) == 12


def test_ranker_of_another_model_is_refused_in_a_sentence(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "index"
    call("index", "build", path, "--run", place / "run", "--split", "all", "-q", "--text-encoder", "none")
    with Folder(path).reading() as view:
        ranker = stored_ranker(view)
    assert ranker is not None and ranker.fit == "fixed weights" and "200 are needed" in ranker.about["note"]
    file = next(path.rglob("ranker.json"))
    for change, told in (
        ({"fingerprint": "f" * 32}, "needs to be of the model"),
        ({"encoder": "e" * 32}, "needs to be of the sentence encoder"),
        ({"identity": "i" * 32}, "needs to be of this index"),
    ):
        file.write_text(Ranker(**{**vars(ranker), **change}).to_json())
        said = call("search", path, "red", code=1).stderr
        assert told in said and "subtext index update" in said and "Traceback" not in said
        assert told in call("index", "verify", path, code=1).output
    file.write_text(ranker.to_json().replace("fixed", "mixed", 1))
    assert "needs its own checksum" in call("search", path, "red", code=1).stderr
    call("index", "update", path, "-q")
    assert len(open_index(path).search("red")) == 10, "an update fits it again"
    assert "fixed weights: pixels 0.30, texts 1.00" in call("index", "info", path).stdout


@pytest.fixture(scope="module")
def photographs(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of 200 photographs: numbers in ids and columns, places and names, texts on two thirds of them."""
    folder, random = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    rows = []
    for number in range(200):
        pixels = random.integers(256, size=(8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"IMG_{4000 + number}.png")
        rows.append(
            {
                "id": f"1987-{100 + number}",
                "image": f"IMG_{4000 + number}.png",
                "place": "Köln" if number == 17 else ["Paris", "Genève", "Łódź"][number % 3],
                "photographer": "Anna Müller" if number == 42 else ["Anna Schmidt", "Jean Müller"][number % 2],
                "accession": f"AB/{number}/77",
                "captions": [f"a {['red', 'blue', 'green'][number % 3]} square at the river"] if number % 3 else [],
            }
        )
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--run", place / "run", "--split", "all", "--text-encoder", place / "encoder", "-q"]
    call("index", "build", folder / "archive", folder / "rows.jsonl", *options)
    return folder / "archive"


@pytest.mark.parametrize(
    ("query", "item", "field"),
    [
        ("Köln", 17, "place"), ("koln", 17, "place"), ("Anna Müller", 42, "photographer"), ("1987-118", 18, "id"),
        ("anna muller", 42, "photographer"), ("IMG_4123", 123, "file name"), ("4123", 123, "file name"),
        ("AB/66/77", 66, "accession"), ("1987-299", 199, "id"),
    ],
)  # fmt: skip
def test_names_places_and_numbers_find_their_image(photographs: Path, query: str, item: int, field: str) -> None:
    answer = json.loads(call("search", photographs, query, "--explain", "--json").stdout)
    hit = answer["hits"][0]
    assert hit["id"] == f"1987-{100 + item}"
    best = hit["reasons"][0]
    assert best["signal"] == "fields" and field in best["fields"] and best["share"] > 0.5
    assert f"field: {field} " in call("search", photographs, query, "--explain", "--top", 1).stdout
