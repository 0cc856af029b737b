"""The experiment on sample weights: what it plans, that it resumes, and what it compares."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import made_data
import numpy as np
import pytest
from find_parts import ROOT
from PIL import Image

import subtext as st
from reproduce import claims, evidence
from reproduce.claims import Values
from subtext.core import DIRECTIONS
from subtext.errors import DataError
from subtext.version import DRAWS

Call = Callable[..., str]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs it with these words; returns what it prints."""

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["evidence", *map(str, words)])
        evidence.main()
        return capsys.readouterr().out

    return run


def finished(*, seconds: float = 1.0, ranks: object = (), kept: object = ()) -> evidence.Finished:
    both = np.asarray(ranks, dtype=np.uint16).reshape(2, -1)
    return evidence.Finished(
        rsum=100.0,
        seconds=seconds,
        sizes=np.zeros(0),
        ranks=both,
        kept=np.asarray(kept, dtype=np.float32).reshape(2, -1),
        abstract=np.arange(both.shape[1]) % 2 == 1,
    )


def test_plan_lists_every_run_with_its_cost(tmp_path: Path, script: Call) -> None:
    results = tmp_path / "results"
    words = ["--out", tmp_path, "--results", results, "--plan", "--rows", "pvse", "diversity", "--seeds", 0, 1, 2]
    lines = script(*words).splitlines()
    assert len(lines) == 2 * (2 + 2) + 1 and lines[0].startswith("pvse, seed 0, rate 0.002: about ")
    for seed, rate, seconds in ((0, 2e-3, 100.0), (1, 1e-3, 300.0)):
        finished(seconds=seconds).write(evidence.result_file(results / "planted", "pvse", seed, rate))
    lines = script(*words).splitlines()
    assert lines[:4] == [
        "pvse, seed 0, rate 0.002: done in 100 s",
        "pvse, seed 0, rate 0.001: about 200 s",
        "pvse, seed 1, the chosen rate: done in 300 s",
        "pvse, seed 2, the chosen rate: about 200 s",
    ]
    assert lines[-1] == "2 of 8 runs done, about 0.3 hours of a core left"
    assert list(tmp_path.iterdir()) == [results]


def test_finished_run_is_read_from_its_file(tmp_path: Path) -> None:
    """Its values follow from the ranks: recall at k, and the exact choice among c of five pairs."""
    ranks, kept = [[1, 2, 5, 4, 3], [1, 1, 1, 5, 2]], np.linspace(0, 1, 10).reshape(2, 5)
    finished(ranks=ranks, kept=kept).write(tmp_path / "results" / "run.npz")
    values = evidence.Finished.read(tmp_path / "results" / "run.npz").values
    assert values.abstract.tolist() == [False, True, False, True, False]
    assert values.values["image_to_text/recall@1"].tolist() == [True, False, False, False, False]
    assert values.values["text_to_image/recall@5"].all()
    # Among all five, the first alone is right.
    np.testing.assert_allclose(values.values["text_to_image/5_way@1"], [1, 1, 1, 0, 0])
    np.testing.assert_allclose(values.values["text/neighbours_kept"], kept[1], rtol=1e-6)
    assert "image_to_text/20_way@1" not in values.values, "five pairs make no choice among 20"


def test_runs_with_other_random_draws_raise(tmp_path: Path, script: Call) -> None:
    results = tmp_path / "results"
    words = ["--out", tmp_path / "out", "--results", results, "--data", "icons-lite2", "--rows", "pvse", "--seeds", 0]
    file = evidence.result_file(results / "icons-lite2", "pvse", 0, 2e-3)
    replace(finished(), draws=DRAWS + 1).write(file)
    with pytest.raises(DataError, match="need the same random draws"):
        script(*words)
    assert not (tmp_path / "out").exists()
    made = evidence.Material("icons", tmp_path, *[tmp_path] * 2, {}, (), (), {}, tmp_path, "val", "test", 196.0)
    with pytest.raises(DataError, match=r"pvse-0\.002-0\.npz and what is trained now need the same random draws"):
        made.train("pvse", 0, 2e-3, results / "icons-lite2", evaluated=True)


def test_every_finished_run_records_its_random_draws() -> None:
    files = sorted(evidence.RESULTS.glob("*/*.npz"))
    assert len(files) > 600 and {evidence.Finished.read(file).draws for file in files} == {1}


def test_unevaluated_finished_run_is_retrained_for_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = evidence.Material("icons", tmp_path, *[tmp_path] * 2, {}, (), (), {}, tmp_path, "val", "test", 196.0)
    file = evidence.result_file(tmp_path / "results", "pvse", 0, 2e-3)
    finished(seconds=5.0).write(file)
    trained: list[Path] = []
    monkeypatch.setattr(evidence.Material, "_trained", lambda self, *words: (trained.append(words[-1]), finished())[1])
    monkeypatch.setattr(
        evidence.Material, "_evaluated", lambda self, before, run: finished(ranks=[[1], [1]], kept=[[0.5], [0.5]])
    )
    assert made.train("pvse", 0, 2e-3, tmp_path / "results").seconds == 5 and not trained
    made.train("pvse", 0, 2e-3, tmp_path / "results", evaluated=True)
    assert trained == [evidence.run_folder(tmp_path, "pvse", 0, 2e-3)]
    assert made.train("pvse", 0, 2e-3, tmp_path / "results", evaluated=True).ranks.size and len(trained) == 1


def test_every_claim_names_planned_rows() -> None:
    assert len(evidence.runs(list(evidence.ROWS), evidence.SEEDS)) == len(evidence.ROWS) * (len(evidence.SEEDS) + 1)
    for claim in claims.CLAIMS:
        assert {claim.row, *claim.controls} <= evidence.ROWS.keys() and claim.row not in claim.controls, claim
        assert claim.controls and claim.part in claims.PARTS


def made(right: np.ndarray) -> list[Values]:
    """Runs with these shares of right choices (seed, pair), the last third of the pairs abstract."""
    abstract = np.arange(right.shape[1]) >= right.shape[1] * 2 // 3
    names = [f"{direction}/{claims.CHOICE}" for direction in DIRECTIONS]
    return [Values(abstract, dict.fromkeys(names, row)) for row in right]


def test_verdicts_follow_the_rule() -> None:
    """A row that is better for nearly every pair holds; one that is its control fails; few loud pairs tell nothing."""
    rng = np.random.default_rng(0)
    base = rng.random((3, 600))
    rows = {
        "pvse": made(base),
        "uniform": made(base + 0.001 * rng.standard_normal(base.shape)),
        "diversity permuted": made(base),
        "diversity": made(base + 0.2 + 0.1 * rng.standard_normal(base.shape)),
        "discrepancy permuted": made(base),
        "discrepancy": made(base + rng.standard_normal(base.shape)),
        "discrepancy random": made(base),
        "thomas random": made(base),
        "thomas": made(base + np.array([[0.3], [0.3], [-0.2]]) + 0.01 * rng.standard_normal(base.shape)),
    }
    found = {(claim["row"], claim["says"]): claim for claim in claims.judged(rows)}
    verdicts = {
        (claim.row, claim.controls): found[claim.row, claim.says]["verdict"]
        for claim in claims.CLAIMS
        if {claim.row, *claim.controls} <= rows.keys()
    }
    assert verdicts[("diversity", ("diversity permuted", "pvse"))] == claims.HOLDS
    assert verdicts[("discrepancy", ("discrepancy permuted", "pvse"))] == claims.OPEN
    thomas = next(claim for (row, _), claim in found.items() if row == "thomas")
    assert max(effect["p_corrected"] for effect in thomas["effects"] if effect["decides"]) < claims.LEVEL
    assert thomas["verdict"] == claims.OPEN, "better for every pair, and another training may be worse"
    assert verdicts[("uniform", ("discrepancy random",))] == claims.FAILS, "not a point is left"
    assert verdicts[("discrepancy", ("diversity",))] == claims.FAILS, "twenty points worse"
    effects = found["diversity", claims.CLAIMS[0].says]["effects"]
    assert [(effect["control"], effect["part"]) for effect in effects] == [
        (control, part) for control in ("diversity permuted", "pvse") for part in claims.PARTS
    ]
    assert all(effect["difference"] == pytest.approx(20, abs=2) for effect in effects)
    not_run = next(claim for (row, _), claim in found.items() if row == "angular thomas")
    assert not_run["verdict"] == claims.OPEN and not not_run["effects"]


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", text)


def test_page_is_generated_from_its_json() -> None:
    report = json.loads((ROOT / "docs" / "evidence.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8") == claims.page(report)
    assert claims.PLANTED in report and report.keys() <= {claims.PLANTED, claims.ICONS, claims.LITE2, claims.PIXELS}
    for part in report.values():
        assert [(claim["row"], claim["says"]) for claim in part["claims"]] == [
            (claim.row, claim.says) for claim in claims.CLAIMS
        ]
        effects = [effect for claim in part["claims"] for effect in claim["effects"]]
        assert effects and all(effect["low"] <= effect["difference"] <= effect["high"] for effect in effects)


def test_training_icons_repeated_in_val_or_test_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    rows = []
    for name, split, tags, drawing in [
        ("a", "train", ["law", "court"], b"1"),
        ("b", "train", ["sea"], b"2"),
        ("c", "train", ["tree"], b"3"),
        ("d", "val", ["wave"], b"2"),
        ("e", "val", ["court", "law"], b"4"),
        ("f", "val", ["road"], b"5"),
        ("g", "test", ["law", "court"], b"6"),
        ("h", "test", ["law", "court"], b"7"),
    ]:
        (tmp_path / "images" / f"{name}.png").write_bytes(drawing)
        rows.append({"image": f"{name}.png", "captions": [", ".join(tags)], "split": split, "tags": tags})
    made_data.write_rows(tmp_path / "captions.jsonl", rows)
    left_out = evidence.distinct_icons(tmp_path, tmp_path / "kept.jsonl")
    kept = [json.loads(line)["image"][0] for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert left_out == {"test": 0, "val": 1, "train": 2} and kept == ["c", "d", "f", "g", "h"]


@pytest.fixture
def icons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data with icons of topics; returns a file of their features."""
    folder = tmp_path / "data" / "icons"
    (folder / "images").mkdir(parents=True)
    made_data.write_topics(folder)
    rows = [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        (folder / row["image"]).unlink()
        Image.new("RGB", (8, 8), (number % 256, number // 256, 0)).save(folder / "images" / row["image"], format="PNG")
        row["captions"] = row["captions"][:1]
    made_data.write_rows(folder / "captions.jsonl", [{**row, "tags": row["captions"]} for row in rows])
    with np.load(folder / "features.npz") as file:
        names, pooled = file["names"], file["pooled"]
    np.savez(tmp_path / "grid.npz", names=names, pooled=pooled, grid=np.stack([pooled, -pooled], axis=1))
    monkeypatch.setenv("SUBTEXT_DATA", str(folder.parent))
    monkeypatch.setattr(evidence, "NEIGHBOURS", 20)
    return tmp_path / "grid.npz"


def test_abstract_icons_have_most_diverse_neighbours(
    tmp_path: Path, icons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images of a fifth of the topics lie anywhere, so the neighbours of their texts are most diverse."""
    monkeypatch.setattr(evidence, "NEIGHBOURS", 4)  # A topic has five test icons.
    with np.load(icons) as file:
        names, pooled = file["names"], file["pooled"].copy()
    scattered = {str(name) for name in names if int(name.removesuffix(".jpg")) % made_data.TOPICS % 5 == 0}
    rows = [number for number, name in enumerate(names) if str(name) in scattered]
    pooled[rows] = 3 * np.random.default_rng(1).normal(size=(len(rows), pooled.shape[1]))
    np.savez(icons, names=names, pooled=pooled, grid=np.stack([pooled, -pooled], axis=1))
    (tmp_path / "out").mkdir()
    material = evidence.Material.icons(tmp_path / "out", icons)
    data = st.read(material.data, images=material.images).split("test")
    image_of = dict(data.links[:, ::-1].tolist())
    text_of = {str(name): str(data.images.ids[image_of[row]]) for row, name in enumerate(data.texts.ids)}
    found = {text_of[name] for name in material.abstract}
    assert len(found) == round(evidence.ABSTRACT * len(data)) == material.about["loose"]
    assert len(found & scattered) >= 0.9 * len(found), sorted(found - scattered)
    assert material.total == (196 if max(material.about["published"].values()) <= 0.8 else 640)
    assert f"lambda {material.total:g}" in material.described


def test_interval_covers_next_seed_in_95_percent() -> None:
    drawn = 40 + 3 * np.random.default_rng(0).standard_normal((4000, 6))
    inside = [low <= sixth <= high for *five, sixth in drawn.tolist() for low, high in [evidence.next_seed(five)]]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.01)
    assert evidence.next_seed([40.0]) == (-np.inf, np.inf)


def test_signs_make_other_forms_as_even_as_default(tmp_path: Path, icons: Path) -> None:
    (tmp_path / "out").mkdir()
    material = evidence.Material.icons(tmp_path / "out", icons)
    signs = material.even_signs()
    assert set(signs) == {"diversity_sum", "discrepancy_images", "discrepancy_texts"}
    for (score, form), sign in zip(evidence.EVEN, signs.values(), strict=True):
        combine = evidence.FORMS[form]["combine"]
        assert material.effective(score, combine=combine, sign=sign) == pytest.approx(
            material.effective(score), abs=0.01
        )
        assert abs(material.effective(score, **evidence.FORMS[form]) - material.effective(score)) > 0.02
    assert material.unevenness()[-1].endswith(f"discrepancy of texts {signs['discrepancy_texts']:g}")


@pytest.mark.parametrize("claim", claims.RECORDED, ids=lambda claim: claim.says)
def test_figures_of_recorded_claim_are_in_its_note(claim: claims.Recorded) -> None:
    page, heading = claim.section
    sections = (ROOT / "reproduce" / "notes" / f"{page}.md").read_text(encoding="utf-8").split("\n## ")
    section = next(text for text in sections if text.partition("\n")[0] == heading)
    assert set(numbers(claim.found)) <= set(numbers(section)), claim.found


@pytest.mark.slow
def test_evidence_trains_evaluates_and_resumes(tmp_path: Path, script: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gensim")
    data, out = tmp_path / "data" / "flickr8k", tmp_path / "out"
    (data / "images").mkdir(parents=True)
    made_data.write_topics(data)
    rows = [json.loads(line) for line in (data / "pairs.jsonl").read_text().splitlines()]
    made_data.write_rows(
        data / "captions.jsonl", [{**row, "split": row["split"].replace("test", "val")} for row in rows]
    )
    for row in rows:
        (data / row["image"]).rename(data / "images" / row["image"])
    with np.load(data / "features.npz") as file:
        names, pooled = file["names"], file["pooled"]
    np.savez(data / "mobilenet_pooled.npz", names=names, pooled=pooled)
    np.savez(tmp_path / "grid.npz", names=names, grid=np.stack([pooled, -pooled], axis=1))
    monkeypatch.setenv("SUBTEXT_DATA", str(data.parent))
    clusters = {"topics": made_data.TOPICS, "visual_clusters": made_data.TOPICS, "neighbours": 20, "seed": 0}
    for name, value in {
        "HELD_OUT": 60,
        "NEIGHBOURS": 20,
        "EPOCHS": {claims.PLANTED: 2},
        "CLUSTERS": clusters,
        "C": (5, 20),
    }.items():
        monkeypatch.setattr(evidence, name, value)
    words = [
        "--out",
        out,
        "--results",
        tmp_path / "results",
        "--grid",
        tmp_path / "grid.npz",
        "--seeds",
        0,
        1,
    ]
    rows = ["--rows", "diversity", "diversity permuted"]
    first = script(*words, *rows)
    assert "AUC: diversity of images" in first and "6 of 6 runs done, about 0.0 hours of a core left" in first
    report = json.loads((out / "evidence.json").read_text())
    part = report[claims.PLANTED]
    assert part["data"]["accepted"] and part["rows"].keys() == {"diversity", "diversity permuted"}
    figures = part["rows"]["diversity"]
    assert {
        "text_to_image/recall@10/abstract",
        "image_to_text/20_way@1/literal",
        "text/neighbours_kept/abstract",
    } <= figures.keys()
    assert all(len(values) == 2 for values in figures.values())
    judged = {claim["says"]: claim for claim in part["claims"] if claim["effects"]}
    assert len(judged[claims.CLAIMS[0].says]["effects"]) == 3, "against the permuted weights, in three parts"
    assert (out / "evidence.md").read_text() == claims.page(report) and (out / "evidence.png").stat().st_size > 1000
    with monkeypatch.context() as patch:
        patch.setattr(st, "train", lambda *rest, **options: pytest.fail("trained again"))
        again = script(*words, *rows)
    assert (
        json.loads((out / "evidence.json").read_text()) == report and again.splitlines()[-1] == first.splitlines()[-1]
    )


@pytest.mark.slow
def test_icons_report_is_written_from_features(
    tmp_path: Path, icons: Path, script: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gensim")
    monkeypatch.setattr(evidence, "EPOCHS", {claims.ICONS: 2})
    monkeypatch.setattr(evidence, "C", (5, 20))
    out, beside = tmp_path / "out", ROOT / "docs" / "evidence.json"
    words = ["--data", "icons", "--out", out, "--results", tmp_path / "results", "--grid", icons]
    described, _, unevenness = script(*words, "--describe").partition("\n| effective sample size")
    assert "of default weights" in described and not list(out.glob("uniform*"))
    assert unevenness.count("\n|") == 1 + 1 + len(evidence.FORMS)
    done = script(*words, "--rows", "uniform", "diversity", "--seeds", 0, "--beside", beside)
    report = json.loads((out / "evidence.json").read_text())
    planted = json.loads(beside.read_text(encoding="utf-8"))[claims.PLANTED]
    assert report[claims.PLANTED] == planted and report[claims.ICONS]["rows"].keys() == {"uniform", "diversity"}
    assert done.startswith(described) and (out / "evidence.png").stat().st_size > 1000
    page = (out / "evidence.md").read_text()
    assert page == claims.page(report) and page.count("DIVERSITY beats uniform weights") == 2
    sizes = report[claims.ICONS]["trained"]
    assert sizes.keys() == {"diversity"} and len(sizes["diversity"]) == 1 and 0 < sizes["diversity"][0][0] <= 1
    run = json.loads((evidence.run_folder(out, "diversity", 0, 2e-3) / "run.json").read_text())
    assert f'"total_weight": {report[claims.ICONS]["data"]["total"]:.1f}' in json.dumps(run)

    rows = ["--rows", "adapt", "adapt diversity", "--seeds", 0]
    with pytest.raises(SystemExit, match=r"need a dual encoder .* name its run with --stand-in RUN"):
        script(*words, *rows)
    stand_in = st.train(
        "dual",
        data=st.DataConfig(icons.parent / "data/icons/pairs.jsonl", features=icons),
        out=tmp_path / "dual",
        plan=st.Plan(epochs=1),
        run=st.RunConfig(seed=0),
    )
    script(*words, *rows, "--stand-in", stand_in.path)
    started = [json.loads((evidence.run_folder(out, row, 0, 2e-3) / "run.json").read_text()) for row in rows[1:3]]
    first = [run["log"][0] if "log" in run else run["start"] for run in started]
    assert first[0] == first[1], "epoch 0 is the stand-in"


@pytest.mark.slow
def test_icons_report_is_written_from_pixels(
    tmp_path: Path, icons: Path, script: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gensim")
    monkeypatch.setattr(evidence, "EPOCHS", {claims.PIXELS: 1})
    monkeypatch.setattr(evidence, "C", (5, 20))
    out, beside = tmp_path / "out", ROOT / "docs" / "evidence.json"
    words = ["--data", "icons-pixels", "--out", out, "--results", tmp_path / "results", "--grid", icons, "--seeds", 0]
    script(*words, "--rows", "uniform", "diversity", "--beside", beside)
    run = json.loads((evidence.run_folder(out, "diversity", 0, 2e-3) / "run.json").read_text())
    assert "features" not in run["data"] or run["data"]["features"] is None
    report = json.loads((out / "evidence.json").read_text())
    page = (out / "evidence.md").read_text()
    assert page == claims.page(report)
    assert "from images of 48 pixels with the rest (1 seeds, 1 epochs)" in " ".join(page.split())
    ends = [line.split(" | ")[-1] for line in page.splitlines() if "DIVERSITY beats uniform weights" in line]
    assert ends == [f"{claims.word(report[name]['claims'][2])} |" for name in (claims.ICONS, claims.PIXELS)]
    assert "| not run |" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "icons", "--rows", "pvse"], "trainings need features of cells: name them with --grid FILE"),
        (["--data", "icons-lite2", "--grid", "file"], "the features of icons-lite2 are computed: leave out --grid"),
        (["--data", "icons-pixels", "--grid", "file", "--rows", "adapt"], "rows of `adapt` learn on stored vectors"),
    ],
)
def test_incompatible_options_raise(words: list[str], message: str, tmp_path: Path, script: Call) -> None:
    with pytest.raises(SystemExit, match=message):
        script("--out", tmp_path, *words)
