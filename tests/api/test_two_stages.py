"""A dual encoder and a model of regions and words together: one finds, the other orders, and one teaches the other."""

from __future__ import annotations

import importlib
import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import made_data
import numpy as np
import pytest
import small_training
from command import call
from curve_points import curve_points

from subtext.api.load import load
from subtext.api.search import open_index
from subtext.evaluation import Result
from subtext.evaluation.two_stages.sweep import plot_sweep, sweep_text
from subtext.report import progress
from subtext.retrieval.index import Index
from subtext.retrieval.rerank import Reranker

SMALL = ["--embed-dim", "24", "--batch-size", "16", "--lr", "5e-3", "--epochs", "5", "--workers", "0", "-q"]


def measured(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("evaluate", *words, "--json", "-", "-q").stdout)
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of three regions, two of which show what the texts name; a fast run, a dear one, and an index."""
    folder = tmp_path_factory.mktemp("made")
    made_data.write_regions(folder)
    call("train", "vse", *given(folder), "--out", folder / "fast", "--word-dim", "16", *SMALL)
    call("train", "scan", *given(folder), "--out", folder / "dear", "--word-dim", "16", *SMALL)
    call("index", "build", folder / "index", "--run", folder / "fast", "--split", "all", "-q")
    return folder


def given(made: Path) -> list[object]:
    return ["--data", made / "pairs.jsonl", "--features", made / "regions.npz"]


def test_two_stages_with_all_candidates_equal_second_model(made: Path) -> None:
    whole = measured(made / "dear")
    both = measured(made / "fast", "--rerank", made / "dear", "--candidates", "24")
    assert both["image_to_text/mean_rank"] == whole["image_to_text/mean_rank"]
    assert both["text_to_image/recall@1"] == whole["text_to_image/recall@1"]
    told = both["two_stage"]
    assert told["rerank"]["model"] == "scan" and told["split_role"] == "selection" and "sweep" not in told
    few = measured(made / "fast", "--rerank", made / "dear", "--candidates", "4")["two_stage"]
    assert few["pairs"] == {**few["pairs"], "image_to_text": 12 * 4, "text_to_image": 24 * 4}
    assert few["share_of_pairs"]["text_to_image"] == pytest.approx(4 / 12)


def test_sweep_prints_table(made: Path) -> None:
    screen = call("evaluate", made / "fast", "--rerank", made / "dear", "--candidates", "2,6,24", "-q").stdout
    firsts = [line.split()[0] for line in screen.splitlines() if line.strip() and "enough" not in line]
    assert [first for first in firsts if first in ("2", "6", "24", "every")] == ["2", "6", "24", "every"]
    found = measured(made / "fast", "--rerank", made / "dear", "--candidates", "2,6,24")["two_stage"]
    pictures, texts = (found["enough_of"][way] for way in ("image_to_text", "text_to_image"))
    each = f"(image queries: {pictures}, text queries: {texts})"
    said = f"{found['enough']} candidates are enough: at most 0.2 points of R@1 lost in each direction {each}"
    assert said in screen and found["enough"] == max(pictures, texts)
    assert "note: two stages: the second model scored" in screen and "they count as misses" in screen
    assert "note: the re-ranking run: split val selected the epoch" in screen
    assert "1e-6" not in screen, "a sweep's scores are those of every pair"
    once = call("evaluate", made / "fast", "--rerank", made / "dear", "--candidates", "6", "-q").stdout
    assert "note: two stages: the second model's scores may differ from those of scoring every pair by 1e-6" in once


def test_cost_within_folds_gives_note(made: Path) -> None:
    words = ("--rerank", made / "dear", "--candidates", "2,4", "--folds", "3")
    found = measured(made / "fast", *words)
    assert found["two_stage"]["share_of_pairs"]["text_to_image"] == 1, "a fold has four pictures"
    assert any("two stages, 3 folds: the second model scored 96 pairs, 100.0 % of all within a fold" in note
               for note in found["notes"])  # fmt: skip


def test_pmrp_in_two_stages(made: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (made / "pairs.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        if number % 3:
            row["labels"] = [row["captions"][0].split()[1]]
    data = made_data.write_rows(tmp_path / "labelled.jsonl", rows)
    words = ("--data", data, "--features", made / "regions.npz", "--pmrp")
    both = measured(made / "fast", "--rerank", made / "dear", "--candidates", "24", *words)
    alone = measured(made / "dear", *words)
    for name in ("image_to_text/pmrp", "text_to_image/pmrp"):
        assert both[name] == alone[name]


def sweep(recall: list[int], enough: dict[str, int | None]) -> Result:
    """What a sweep under such recalls may come to: two numbers of candidates, of which the first loses a point."""
    figures = {f"{way}/recall@{k}": 10.0 * k for way in enough for k in recall}
    lower = {name: value - 1 for name, value in figures.items()}
    costs = {"share_of_pairs": dict.fromkeys([*enough, "together"], 0.25), "missed": dict.fromkeys(enough, 5.0)}
    rows = [
        {"candidates": 10, **costs, **lower, "lost": dict.fromkeys(enough, 1.0)},
        {"candidates": 20, **costs, **figures, "lost": dict.fromkeys(enough, 0.0)},
    ]
    found = {
        "sweep": rows,
        "exhaustive": figures,
        "allowed": {"recall": min(recall), "points": 0.75},
        "enough": 20 if all(enough.values()) else None,
        "enough_of": enough,
    }
    return Result(figures, {}, {}, {}, {}, about={"two_stage": found})


def test_sweep_text_reports_measured_ranks() -> None:
    table, verdict = sweep_text(sweep([7, 5], {"image_to_text": 20, "text_to_image": None}).about["two_stage"])
    head = table.splitlines()[0]
    assert "images: R@5" in head and "R@7" in head and head.count("R@5 lost") == 2 and "R@1" not in head
    assert verdict == (
        "none of these numbers is enough: at most 0.75 points of R@5 lost in each direction "
        "(image queries: 20, text queries: none)"
    )
    table, verdict = sweep_text(sweep([3], {"image_to_text": 10, "text_to_image": 20}).about["two_stage"])
    assert table.splitlines()[0].count("R@3") == 4
    assert verdict.startswith("20 candidates are enough: at most 0.75 points of R@3")


def test_plot_without_recall_at_1() -> None:
    assert "R@5 of every pair" in plot_sweep(sweep([5, 10], {"image_to_text": 20, "text_to_image": 20}))


def test_sweep_plot_has_recall_curves(made: Path, tmp_path: Path) -> None:
    file = tmp_path / "sweep.svg"
    words = ["--rerank", made / "dear", "--candidates", "2,6", "--plot", file]
    sweep = measured(made / "fast", *words)["two_stage"]["sweep"]
    root = ElementTree.parse(file).getroot()
    found = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"images as queries", "texts as queries", "R@1", "R@10", "R@1 of every pair"} <= set(found)
    lines = curve_points(file.read_text())
    # Two panels of three recalls over both numbers and every pair, and of the line that they come to.
    assert [len(line) for line in lines] == [3, 3, 3, 2] * 2
    # The first point stands at the least cost, and the second where its share of pairs is on a scale of powers.
    across = [x for x, _ in lines[0]]
    shares = [row["share_of_pairs"]["image_to_text"] for row in sweep] + [1.0]
    steps = np.diff(np.log10(shares)) / np.log10(shares[-1] / shares[0])
    assert np.diff(across) / (across[-1] - across[0]) == pytest.approx(steps, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--plot", "sweep.svg"], "--plot is for --rerank RUN"),
        (["--rerank", "{dear}", "--plot", "sweep.svg"], "--plot needs a sweep: several --candidates"),
        (["--candidates", "5"], "--candidates is for --rerank RUN"),
        (
            ["--rerank", "{dear}", "--alignment-uniformity"],
            "neither with another program's output nor with metrics of one model: neighbours of a graph",
        ),
        (["--rerank", "{dear}", "--candidates", "0"], "whole numbers with commas between them, each 1 or more"),
    ],
)
def test_incompatible_options_raise(words: list[str], message: str, made: Path) -> None:
    told = call("evaluate", made / "fast", *(word.format(dear=made / "dear") for word in words), code=2)
    assert message in " ".join(told.output.split())


def test_pair_model_as_first_stage_raises(made: Path) -> None:
    told = call("evaluate", made / "dear", "--rerank", made / "dear", "-q", code=1)
    assert "a first stage needs a model whose vectors decide the score" in told.output


def test_search_returns_order_of_second_model(made: Path) -> None:
    words = "a red and a dog"
    plain = json.loads(call("search", made / "index", words, "--top", "8", "--json").stdout)
    found = json.loads(
        call(
            "search", made / "index", words, "--top", "5", "--candidates", "8", "--rerank", made / "dear", "--json"
        ).stdout
    )
    assert found["candidates"] == 8 and len(found["hits"]) == 5
    assert {hit["id"] for hit in found["hits"]} <= {hit["id"] for hit in plain["hits"]}
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)
    model = load(made / "dear")
    wanted = model.compare(model.embed_images([hit["id"] for hit in found["hits"]]), model.embed_texts([words]))
    assert scores == pytest.approx(wanted[:, 0].tolist(), abs=1e-5)
    reranker = Reranker(model, "dear", candidates=8)
    answer = open_index(made / "index").search(words, top=5, rerank=reranker)
    assert [(hit.id, hit.score) for hit in answer.hits] == [(hit["id"], hit["score"]) for hit in found["hits"]]
    assert answer.request["rerank"] == "dear" and answer.hits[0].probability is None
    texts = call(
        "search", made / "index", "--image", "photo003.jpg", "--target", "texts", "--rerank", made / "dear"
    ).stdout
    assert "score" in texts.splitlines()[0]


@pytest.mark.parametrize("here", [True, False])
def test_pairs_are_scored_in_bfloat16_where_supported(here: bool, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("subtext.ops.numerics", "subtext.models.model"):
        monkeypatch.setattr(importlib.import_module(module), "supported", lambda device="cpu": here)
    score, told = ("evaluate", made / "dear", "--bootstrap", "0"), "does not multiply in bfloat16; scores are made in"
    exact, half = (json.loads(call(*score, *more, "--json", "-", "-q").stdout) for more in ([], ["--bf16"]))
    assert half["model"].get("scores_in_bf16", False) is here and "scores_in_bf16" not in exact["model"]
    mean = "image_to_text/mean_rank"
    assert half[mean] == pytest.approx(exact[mean], abs=0.5), "the same model, a little blurred"
    assert (told not in call(*score, "--bf16").stderr) is here
    both = measured(made / "fast", "--rerank", made / "dear", "--candidates", "24", "--bf16")
    assert both["two_stage"]["rerank"].get("scores_in_bf16", False) is here and "scores_in_bf16" not in both["model"]
    ask = ("search", made / "index", "a red and a dog", "--rerank", made / "dear", "--json")
    plain, blurred = (
        {hit["id"]: hit["score"] for hit in json.loads(call(*ask, *more).stdout)["hits"]} for more in ([], ["--bf16"])
    )
    shared = plain.keys() & blurred.keys()
    apart = max(abs(plain[name] - blurred[name]) for name in shared)
    assert (1e-5 < apart < 0.05) if here else apart == 0
    audited = json.loads(call("audit", made / "dear", "--bf16", "--json", "-", "-q").stdout)
    assert audited["passed"] and audited.get("scores_in_bf16", False) is here


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["evaluate", "{fast}", "--bf16"], 1, "bfloat16 is for the scores of models that compare regions with words"),
        (["evaluate", "--scores", "{dear}", "--bf16"], 2, "another program's output is scored already"),
        (["search", "{index}", "a dog", "--bf16"], 2, "--bf16 needs a second model that re-ranks"),
    ],
)
def test_bfloat16_without_effect_raises(words: list[str], code: int, message: str, made: Path) -> None:
    places = {name: made / name for name in ("fast", "dear", "index")}
    told = call(*(word.format(**places) for word in words), code=code)
    assert message in " ".join(told.output.split())


def test_unrankable_search_raises(made: Path) -> None:
    told = call("search", made / "index", "a red dog", "--target", "texts", "--rerank", made / "dear", code=1)
    assert "--rerank compares images with texts; here text searches texts" in told.output
    told = call("search", made / "index", "a red dog", "--candidates", "4", code=2)
    assert "--candidates needs a second model that re-ranks" in told.output


def test_student_learns_from_teacher(made: Path, tmp_path: Path) -> None:
    teach = f"distil:teacher={made / 'dear'},mined_candidates=5"
    call("train", "vse", *given(made), "--out", tmp_path / "taught", "--with", teach, "--word-dim", "16", *SMALL)
    lines = [json.loads(line) for line in (tmp_path / "taught" / "log.jsonl").read_text().splitlines()]
    epochs = [line["parts"] for line in lines if line["event"] == "epoch"]
    for name in ("distil image_to_text", "distil text_to_image"):
        assert epochs[-1][name] < 0.8 * epochs[0][name]
    mined = [parts["distil mined text_to_image"] for parts in epochs]
    assert mined[0] == 0 and min(mined[1:]) > 0
    assert not (tmp_path / "taught" / "tables").exists()
    record = json.loads((tmp_path / "taught" / "run.json").read_text())
    assert record["methods"][0][0] == "distil" and record["methods"][0][1]["mined_candidates"] == 5
    # The teacher is not needed to use what was taught.
    (made / "dear").rename(made / "elsewhere")
    try:
        assert measured(tmp_path / "taught")["rsum"] > 0
    finally:
        (made / "elsewhere").rename(made / "dear")


def test_resumed_student_gives_equal_weights(made: Path, tmp_path: Path) -> None:
    teach = f"distil:teacher={made / 'dear'},mined_candidates=3"
    words = ["train", "vse", *given(made), "--with", teach, "--word-dim", "16", *SMALL, "--epochs", "3"]
    call(*words, "--out", tmp_path / "whole")
    interrupt = small_training.Interrupt(9)
    with pytest.MonkeyPatch.context() as patch:
        meter = progress.training_meter

        def stopping(*, quiet: bool) -> Any:
            @contextmanager
            def both() -> Any:
                with meter(quiet=quiet):
                    yield interrupt

            return both()

        patch.setattr("subtext.api.train.training_meter", stopping)
        call(*words, "--out", tmp_path / "halves", code=130)
    call(*words, "--out", tmp_path / "halves", "--resume")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "halves")]
    assert weights[0] == weights[1]


def test_teacher_of_other_data_raises(made: Path, tmp_path: Path) -> None:
    rows = (made / "pairs.jsonl").read_text().splitlines()
    (tmp_path / "fewer.jsonl").write_text("\n".join(rows[1:]) + "\n")
    told = call(
        *("train", "vse", "--data", tmp_path / "fewer.jsonl", "--features", made / "regions.npz"),
        *("--out", tmp_path / "run", "--with", f"distil:teacher={made / 'dear'}", "--word-dim", "16", *SMALL),
        code=1,
    )  # fmt: skip
    assert "a teacher needs to have learnt from the pairs that its student learns from" in told.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("host", "method", "message"),
    [
        ("vse", "distil", "distil needs teacher=RUN"),
        ("scan", "distil:teacher={dear}", "by the cosine of their vectors; this one compares by CrossAttention"),
        ("vse", "distil:teacher={dear},weight=0,mined_candidates=0", "a weight above 0, of the batch's lists or"),
        ("vse", "distil:teacher=nowhere", "nowhere"),
    ],
)  # fmt: skip
def test_unsuitable_teacher_raises(host: str, method: str, message: str, made: Path, tmp_path: Path) -> None:
    told = call(
        "train",
        host,
        *given(made),
        "--out",
        tmp_path / "run",
        "--with",
        method.format(dear=made / "dear"),
        *SMALL,
        code=1,
    )
    assert message in told.output


@pytest.fixture(scope="module")
def short(made: Path) -> Path:
    """A model of pairs that takes four tokens, and so the first two words of a text."""
    out = made / "short"
    call("train", "scan", *given(made), "--out", out, "--word-dim", "16", "--max-tokens", "4", *SMALL)
    return out


CUT = "are longer than the 4 tokens that the model takes"


def test_texts_truncated_by_second_model_give_note(made: Path, short: Path) -> None:
    told = call("evaluate", made / "fast", "--rerank", short, "--candidates", "3")
    assert f"note: the re-ranking run: 24 texts of 24 {CUT}" in told.stderr and told.stderr.count(CUT) == 1
    assert measured(made / "fast", "--rerank", short)["two_stage"]["rerank"]["texts_cut"] == 24
    assert "texts_cut" not in measured(made / "fast", "--rerank", made / "dear")["two_stage"]["rerank"]


def test_search_warns_about_texts_truncated_by_second_model(made: Path, short: Path) -> None:
    told = call("search", made / "index", "a red and a dog", "--rerank", short, "--candidates", "4")
    assert "warning: the re-ranking run: 1 text of 1 is longer than the 4 tokens" in told.stderr
    answer = call("search", made / "index", "red dog", "--rerank", short, "--candidates", "4", "--json")
    assert "longer" not in answer.stderr and json.loads(answer.stdout)["warning"] is None
    words = ("--image", "photo003.jpg", "--target", "texts", "--top", "3", "--candidates", "3")
    told = call("search", made / "index", *words, "--rerank", short)
    assert f"warning: the re-ranking run: 3 texts of 3 {CUT}" in told.stderr


@pytest.mark.parametrize("how", ["weight=0", "mined_candidates=0", "mined_candidates=3"])
def test_texts_truncated_by_teacher_give_one_note(how: str, made: Path, short: Path, tmp_path: Path) -> None:
    words = ["--embed-dim", "24", "--epochs", "1", "--workers", "0", "--word-dim", "16", "--out", tmp_path / "run"]
    told = call("train", "vse", *given(made), *words, "--with", f"distil:teacher={short},{how}")
    assert f"the teacher {short}: 80 texts of 80 {CUT}" in told.stderr and told.stderr.count(CUT) == 1


def test_missing_rerank_features_raise_before_embedding(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with np.load(made / "regions.npz") as found:
        few = {name: array[:5] for name, array in found.items()}
    np.savez(tmp_path / "few.npz", **few)

    def never(*given: object, **named: object) -> None:
        raise AssertionError("the first model embeds")

    monkeypatch.setattr("subtext.api.load.LoadedRun.embed", never)
    words = ("evaluate", made / "fast", "--rerank", made / "dear", "-q")
    told = call(*words, "--rerank-features", tmp_path / "few.npz", code=1)
    assert "few.npz needs a row for every item; " in told.output
    told = call("evaluate", made / "fast", "--rerank", made / "nowhere", "-q", code=1)
    assert "nowhere" in told.output


def test_missing_rerank_features_raise_before_search(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: object, **named: object) -> None:
        raise AssertionError("the index is searched")

    monkeypatch.setattr(Index, "_read", never)
    told = call("search", made / "index", "a red dog", "--rerank", made / "nowhere", code=1)
    assert "nowhere" in told.output
    told = call("search", made / "index", "a red dog", "--target", "texts", "--rerank", made / "dear", code=1)
    assert "here text searches texts" in told.output
    regions = np.ones((1, 3, made_data.WIDTH))
    np.savez(tmp_path / "other.npz", names=np.array(["x"]), grid=regions, pooled=regions[:, 0])
    words = ("--image", "photo003.jpg", "--target", "texts", "--rerank", made / "dear")
    told = call("search", made / "index", *words, "--rerank-features", tmp_path / "other.npz", code=1)
    assert "--rerank-features needs the file that has the image 'photo003.jpg'" in told.output
    (made / "regions.npz").rename(made / "gone.npz")
    try:
        told = call("search", made / "index", "a red dog", "--rerank", made / "dear", code=1)
    finally:
        (made / "gone.npz").rename(made / "regions.npz")
    assert "--rerank-features needs a file: the re-ranking model reads precomputed features" in told.output
