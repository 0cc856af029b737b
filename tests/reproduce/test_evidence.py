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
from reproduce import claims, evidence, evidence_page
from reproduce.claims import Values
from reproduce.experiment import report as experiment_report
from reproduce.experiment.report import claims_of
from reproduce.experiment.runs import tasks
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
    words = [
        "--data",
        "icons",
        "--out",
        tmp_path,
        "--results",
        results,
        "--plan",
        "--rows",
        "pvse",
        "diversity",
        "--seeds",
        0,
        1,
        2,
    ]
    lines = script(*words).splitlines()
    assert len(lines) == 2 * (2 + 2) + 1 and lines[0].startswith("pvse, seed 0, rate 0.002: about ")
    for seed, rate, seconds in ((0, 2e-3, 100.0), (1, 1e-3, 300.0)):
        finished(seconds=seconds).write(evidence.result_file(results / "icons", "pvse", seed, rate))
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
    values = evidence.Finished.read(tmp_path / "results" / "run.npz").values()
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
    files = sorted(evidence.RESULTS.glob("icons*/*.npz"))
    assert len(files) > 350 and {evidence.Finished.read(file).draws for file in files} == {1}


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
        assert {claim.row, claim.control, *claim.beside} <= evidence.ROWS.keys(), claim
    for task in tasks():
        for claim in claims_of(task):
            assert {claim.row, claim.control, *claim.beside} <= task.rows.keys(), claim
        assert claim.row not in (claim.control, *claim.beside) and claim.part in claims.PARTS
    pairs = [(claim.row, claim.control, claim.part, claim.measure) for claim in claims.CLAIMS]
    assert len(set(pairs)) == len(pairs), "a pair of rows decides one claim"


def test_share_of_right_choices_equals_simulated_signal_detection() -> None:
    drawn = np.random.default_rng(0).standard_normal((200_000, 5))
    for c in (2, 5):
        simulated = (drawn[:, 0] + 0.7 > drawn[:, 1:c].max(axis=1)).mean()
        assert claims.choice(0.7, c) == pytest.approx(simulated, abs=0.004)
    assert [claims.choice(0.0, c) for c in (2, 5, 20, 100)] == pytest.approx([1 / 2, 1 / 5, 1 / 20, 1 / 100], rel=1e-3)
    assert claims.d_prime(claims.choice(1.1, 20), 20) == pytest.approx(1.1)
    assert claims.d_prime(0.5, 0) == 0


def test_margin_is_half_of_the_published_gain_in_d_prime() -> None:
    """Politics, both directions of a choice among 5: uniform weights .6046 and .6020, DIVERSITY .6268 and .6366."""
    claim = next(claim for claim in claims.CLAIMS if (claim.row, claim.control) == ("diversity", "uniform"))
    gain = np.mean(
        [claims.d_prime(after, 5) - claims.d_prime(before, 5) for after, before in ((0.6268, 0.6046), (0.6366, 0.6020))]
    )
    assert claim.source.gain(claim.measure) == pytest.approx(gain)
    reached = 100 * claims.choice(claims.d_prime(0.4, 20) + gain / 2, 20)
    assert claim.margin(40.0) == pytest.approx(reached - 40) and 0.5 < claim.margin(40.0) < 3


def test_every_published_gain_is_above_zero() -> None:
    assert all(0 < claim.source.gain(claim.measure) < 0.5 for claim in claims.CLAIMS)


@pytest.mark.parametrize(
    ("low", "high", "p", "gap", "verdict"),
    [
        (1.5, 3.0, 0.01, None, claims.HOLDS),
        (0.1, 0.4, 0.01, None, claims.HOLDS),
        (0.1, 0.4, 0.20, None, claims.FAILS),
        (-0.4, 0.9, 0.80, None, claims.FAILS),
        (-0.4, 1.1, 0.80, None, claims.OPEN),
        (0.1, 3.0, 0.06, None, claims.OPEN),
        (1.5, 3.0, 0.01, {"gap": 2.0}, claims.HOLDS),
        (1.5, 3.0, 0.01, {"gap": 1.9}, claims.NOTHING),
        (-0.4, 0.9, 0.80, {"gap": -3.0}, claims.NOTHING),
        (1.5, 3.0, 0.01, {"gap": None}, claims.NOTHING),
    ],
)
def test_first_rule_that_fits_decides(low: float, high: float, p: float, gap: object, verdict: str) -> None:
    effect = {"low": low, "high": high, "p_corrected": p}
    assert claims.verdict(effect, 1.0, gap) == verdict


def test_claim_without_a_trained_pair_cannot_be_told() -> None:
    assert claims.verdict(None, None) == claims.OPEN
    assert claims.verdict({"low": -9.0, "high": -8.0, "p_corrected": 0.0}, None) == claims.OPEN, "no margin is known"


def made(right: np.ndarray, clusters: np.ndarray | None = None) -> list[Values]:
    """Runs with these shares of right choices (seed, pair), the last third of the pairs abstract."""
    abstract = np.arange(right.shape[1]) >= right.shape[1] * 2 // 3
    names = [f"{direction}/{claims.CHOICE}" for direction in DIRECTIONS]
    own = evidence.NO_CLUSTERS if clusters is None else clusters
    return [Values(abstract, dict.fromkeys(names, row), own) for row in right]


def test_verdicts_follow_the_rule() -> None:
    """A row that is better for nearly every pair holds; one that is its control fails; few loud pairs tell nothing."""
    rng = np.random.default_rng(0)
    base = 0.2 + 0.2 * rng.random((3, 600))
    rows = {
        "pvse": made(base),
        "uniform": made(base + 0.001 * rng.standard_normal(base.shape)),
        "diversity permuted": made(base),
        "diversity": made(base + 0.2 + 0.1 * rng.standard_normal(base.shape)),
        "discrepancy": made(base + rng.standard_normal(base.shape)),
        "thomas random": made(base),
        "thomas": made(base + np.array([[0.3], [0.3], [-0.2]]) + 0.01 * rng.standard_normal(base.shape)),
    }
    found = {(claim["row"], claim["control"]): claim for claim in claims.judged(rows)}
    assert found["diversity", "pvse"]["verdict"] == claims.HOLDS
    assert found["discrepancy", "pvse"]["verdict"] == claims.OPEN
    assert found["thomas", "thomas random"]["verdict"] == claims.OPEN, "another training may be worse"
    assert found["uniform", "pvse"]["verdict"] == claims.FAILS, "no gain is left"
    effects = found["diversity", "pvse"]["effects"]
    assert [(effect["control"], effect["part"]) for effect in effects] == [
        (control, part) for control in ("pvse", "diversity permuted") for part in claims.PARTS
    ]
    assert [effect["primary"] for effect in effects] == [True, *[False] * 5]
    assert all(effect["difference"] == pytest.approx(20, abs=2) for effect in effects)
    not_run = found["angular thomas", "angular"]
    assert not_run["verdict"] == claims.OPEN and not not_run["effects"] and evidence_page.word(not_run) == "not run"
    without = claims.judged(rows, oracle={"gap": None})
    assert {claim["verdict"] for claim in without} == {claims.NOTHING}


def test_icons_of_one_concept_are_no_samples_of_their_own() -> None:
    """Twelve concepts of fifty equal icons: drawn one by one, a difference between concepts would look certain."""
    rng = np.random.default_rng(1)
    clusters = np.repeat(np.arange(12), 50)
    base = np.full((3, 600), 0.3)
    better = base + (0.05 + 0.15 * rng.standard_normal(12))[clusters]
    alone, together = (
        claims.primary_of(claims.judged({"diversity": made(better, own), "pvse": made(base, own)})[0])
        for own in (None, clusters)
    )
    assert alone is not None and together is not None
    assert alone["difference"] == together["difference"]
    assert together["high"] - together["low"] > 4 * (alone["high"] - alone["low"])


def test_recorded_claims_are_tested_over_seeds() -> None:
    found = {claim.says: (effect, said) for claim, effect, said in claims.recorded()}
    effect, said = next(value for says, value in found.items() if "beats triplets" in says)
    assert said == claims.HOLDS and effect["difference"] == pytest.approx(45.467, abs=1e-3)
    effect, said = next(value for says, value in found.items() if "every single noise" in says)
    assert said == claims.OPEN and not effect, "one seed has no test"


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", text)


def test_page_is_generated_from_its_json() -> None:
    report = json.loads((ROOT / "docs" / "evidence.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8") == evidence_page.page(report)
    assert report.keys() == {claims.EXPERIMENT, claims.ICONS, claims.LITE2, claims.PIXELS}
    icons = [(claims.CLAIMS, part) for name, part in report.items() if name != claims.EXPERIMENT]
    of_task = {task.folder: claims_of(task) for task in tasks()}
    trained = [(of_task[folder], part) for folder, part in report[claims.EXPERIMENT].items()]
    assert all(part["oracle"] is None for _, part in icons) and all(part["oracle"] for _, part in trained)
    for claimed, part in [*icons, *trained]:
        for claim in part["claims"]:
            primary, edge = claims.primary_of(claim), bool(claim.get("edge"))
            said = claims.verdict(primary, claim.get("margin"), part["oracle"], edge=edge)
            assert claim["verdict"] == said, "a verdict that the rule does not give"
        assert [(claim["row"], claim["says"]) for claim in part["claims"]] == [
            (claim.row, claim.says) for claim in claimed
        ]
        effects = [effect for claim in part["claims"] for effect in claim["effects"]]
        assert all(effect["low"] <= effect["difference"] <= effect["high"] for effect in effects)


def test_experiment_is_read_from_its_finished_runs() -> None:
    """The page's figures of the experiment are those of the files beside it."""
    report = json.loads((ROOT / "docs" / "evidence.json").read_text(encoding="utf-8"))
    assert_alike(experiment_report.part(evidence.RESULTS / claims.EXPERIMENT), report[claims.EXPERIMENT])


def assert_alike(found: object, expected: object) -> None:
    """Plain data are equal, numbers to nine digits: processors round sums in other orders."""
    if isinstance(expected, dict):
        assert isinstance(found, dict) and list(found) == list(expected)
        for name, value in expected.items():
            assert_alike(found[name], value)
    elif isinstance(expected, list | tuple):
        assert isinstance(found, list | tuple) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    else:
        assert found == (pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected)


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
    made_data.write_rows(
        folder / "captions.jsonl", [{**row, "tags": row["captions"], "concept": row["captions"][0]} for row in rows]
    )
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


def test_published_figure_of_the_page_is_the_one_that_is_judged() -> None:
    """The page's verdicts are those of its finished runs, by hand on one claim of icons."""
    report = json.loads((ROOT / "docs" / "evidence.json").read_text(encoding="utf-8"))
    part = report[claims.ICONS]
    rows = {
        row: np.stack(
            [
                evidence.Finished.read(
                    evidence.result_file(evidence.RESULTS / claims.ICONS, row, seed, part["rates"][row])
                )
                .values()
                .of(claims.CHOICE, "all")
                for seed in part["seeds"]
            ]
        )
        for row in ("diversity", "pvse")
    }
    effect = claims.primary_of(part["claims"][0])
    assert effect is not None and effect["difference"] == pytest.approx((rows["diversity"] - rows["pvse"]).mean())
    assert effect["images"] == part["protocol"]["concepts"] < part["protocol"]["test"]


@pytest.mark.parametrize("claim", claims.RECORDED, ids=lambda claim: claim.says)
def test_figures_of_recorded_claim_are_in_its_note(claim: claims.Recorded) -> None:
    page, heading = claim.section
    sections = (ROOT / "reproduce" / "notes" / f"{page}.md").read_text(encoding="utf-8").split("\n## ")
    section = next(text for text in sections if text.partition("\n")[0] == heading)
    assert set(numbers(claim.found)) <= set(numbers(section)), claim.found


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
    experiment = json.loads(beside.read_text(encoding="utf-8"))[claims.EXPERIMENT]
    assert report[claims.EXPERIMENT] == experiment and report[claims.ICONS]["rows"].keys() == {"uniform", "diversity"}
    assert done.startswith(described) and (out / "evidence.png").stat().st_size > 1000
    page = (out / "evidence.md").read_text()
    assert page == evidence_page.page(report) and page.count("| DIVERSITY beats uniform weights") == 2
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
    assert page == evidence_page.page(report)
    assert "from images of 48 pixels with the rest (1 seeds, 1 epochs)" in " ".join(page.split())
    line = next(line for line in page.splitlines() if "DIVERSITY beats uniform weights" in line and "Gamma" not in line)
    number = next(n for n, claim in enumerate(claims.CLAIMS) if "DIVERSITY beats uniform weights" in claim.says)
    assert line.endswith(f"| {evidence_page.word(report[claims.PIXELS]['claims'][number])} |") and "| not run |" in page


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
