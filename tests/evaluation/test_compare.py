"""`subtext compare`: from files of figures to a table, what it claims and what it refuses to compare."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import coloured_images
import numpy as np
import pytest
import torch
from command import call

from subtext.errors import DataError, RequirementError
from subtext.evaluation import Protocol, Result, evaluate_scores
from subtext.evaluation.compare import Measured, compare, read_measured
from subtext.evaluation.intervals import holm
from subtext.evaluation.metrics import CWay, Recall, default_metrics

PICTURES = 40


def result(lift: float, seed: int, *, pictures: int = PICTURES, metrics: object = None, **protocol: object) -> Result:
    """Figures of scores that know the truth by so much."""
    owners = np.repeat(np.arange(pictures), 2)
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(pictures, len(owners))) + lift * (np.arange(pictures)[:, None] == owners)
    asked = Protocol(bootstrap=0, **protocol)
    found = evaluate_scores(torch.from_numpy(scores), np.arange(pictures), owners, metrics=metrics, protocol=asked)
    model = {"model": "vse", "arguments": {"lift": lift}, "methods": [], "seed": seed, "fingerprint": f"{lift}/{seed}"}
    return replace(found, about={"model": model, "split": "test", "split_role": "held out"})


def kept(folder: Path, name: str, found: Result) -> Path:
    found.save(folder / f"{name}.json")
    found.save_queries(folder / f"{name}.npz")
    return folder / f"{name}.json"


def runs(folder: Path, name: str, lift: float, seeds: range) -> list[Measured]:
    return [read_measured(kept(folder, f"{name}{seed}", result(lift, seed))) for seed in seeds]


def test_better_method_is_detected(tmp_path: Path) -> None:
    ours, plain = runs(tmp_path, "ours", 3.0, range(4)), runs(tmp_path, "plain", 1.0, range(4))
    found = compare(ours, plain)
    assert found.same_seeds
    lines = {line.name: line for line in found.lines}
    assert set(lines) >= {"image_to_text/recall@1", "text_to_image/mrr", "rsum"} and not any(
        name.endswith(("tie_share", "rank")) for name in lines
    )
    line = lines["text_to_image/recall@1"]
    assert line.difference == pytest.approx(np.mean([run.figures[line.name] for run in ours]) - line.second)
    assert line.low > 0 and line.p_queries < 0.05 and line.better == "first"
    assert line.raw_p_runs < 0.05 and line.p_runs >= line.raw_p_runs
    assert found.verdict.endswith("(by runs: trainings and queries like these)")
    tested = [each for each in found.lines if each.tested]
    assert [each.p_queries for each in tested] == pytest.approx(holm([each.raw_p_queries for each in tested]))
    turned = {each.name: each for each in compare(plain, ours).lines}
    assert turned[line.name].better == "second" and turned[line.name].difference == -line.difference


def test_lower_is_better_for_ranks(tmp_path: Path) -> None:
    found = compare(runs(tmp_path, "a", 3.0, range(1)), runs(tmp_path, "b", 0.5, range(1)), figures=["mean_rank"])
    assert [line.name for line in found.lines] == ["image_to_text/mean_rank", "text_to_image/mean_rank"]
    assert all(line.difference < 0 and line.better == "first" for line in found.lines)


def test_equal_or_single_runs_give_no_claim(tmp_path: Path) -> None:
    one, other = (runs(tmp_path, name, 1.0, range(seed, seed + 1)) for name, seed in (("a", 0), ("b", 9)))
    found = compare(one, other)
    assert not found.same_seeds
    assert not any(line.better for line in found.lines)
    assert all(np.isnan(line.p_runs) for line in found.lines)
    assert any("does not speak for a method" in note for note in found.notes)


def test_verdict_of_three_runs_is_by_runs_and_of_two_by_queries(tmp_path: Path) -> None:
    """A side whose trainings spread widely is not better by runs, however sure its queries are."""
    lifts = (0.5, 1.0, 4.5)
    spread = [
        read_measured(kept(tmp_path, f"wide{seed}", replace(result(lift, seed), about=result(1.0, seed).about)))
        for seed, lift in enumerate(lifts)
    ]
    plain = runs(tmp_path, "plain", 1.0, range(3))
    by_runs, by_queries = compare(spread, plain), compare(spread[1:], plain[1:])
    name = "text_to_image/mrr"
    line = next(line for line in by_runs.lines if line.name == name)
    assert line.p_queries < 0.01 and line.p_runs > 0.05 and line.low < 0 < line.high and not line.better
    assert "no figure distinguishes" in by_runs.verdict
    line = next(line for line in by_queries.lines if line.name == name)
    assert line.better == "first" and np.isnan(line.p_runs)
    assert by_queries.verdict.endswith("(by queries: these trained models)")
    assert any("does not speak for a method" in note for note in by_queries.notes)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (result(1, 1, ties="optimistic"), r"differ in ties \(pessimistic and optimistic\)"),
        (result(1, 1, pictures=30), r"gallery.images \(40 and 30\)"),
        (result(1, 1, folds=2), r"folds \(1 and 2\)"),
    ],
)
def test_other_protocols_and_galleries_raise_by_name(tmp_path: Path, changed: Result, told: str) -> None:
    one = read_measured(kept(tmp_path, "one", result(1, 0)))
    with pytest.raises(RequirementError, match=told):
        compare([one], [read_measured(kept(tmp_path, "other", changed))])


def test_unshared_figures_are_skipped_and_ambiguous_metrics_raise(tmp_path: Path) -> None:
    def of(name: str, *metrics: object) -> Measured:
        return read_measured(kept(tmp_path, name, result(1, len(name), metrics=metrics)))

    lines = compare([of("a", Recall(1, 5), CWay(5))], [of("bb", Recall(1, 10))]).lines
    assert {line.name for line in lines} == {"image_to_text/recall@1", "text_to_image/recall@1", "rsum"}
    with pytest.raises(RequirementError, match=r"metrics.5_way@1 \(CWay\(\) and CWay\(again=True\)\)"):
        compare([of("a", *default_metrics(), CWay(5))], [of("bb", *default_metrics(), CWay(5, again=True))])


def test_other_ids_or_truth_raise(tmp_path: Path) -> None:
    one = read_measured(kept(tmp_path, "one", result(1, 0)))
    renamed = {**one.queries, "text_to_image/id": np.roll(one.queries["text_to_image/id"], 1)}
    with pytest.raises(RequirementError, match=r"text to image id \(80 of 80 names, first '0' and '79'"):
        compare([one], [replace(one, queries=renamed)])
    with pytest.raises(RequirementError, match=r"data \(- and abc\)"):
        compare([one], [replace(one, protocol={**one.protocol, "data": "abc"})])
    drawn_anew = {**one.protocol, "seed": 3, "bootstrap": 7, "versions": {"torch": "other"}}
    notes = compare([one], [replace(one, protocol=drawn_anew)]).notes
    assert any("different versions" in note for note in notes) and any("on trust" in note for note in notes)


def test_side_must_be_one_model_over_seeds(tmp_path: Path) -> None:
    one, two = runs(tmp_path, "a", 1.0, range(2))
    (other,) = runs(tmp_path, "b", 2.0, range(1))
    with pytest.raises(RequirementError, match="one and the same model"):
        compare([one, one], [two])
    with pytest.raises(RequirementError, match="differ in arguments"):
        compare([one, other], [two])


def test_runs_with_other_random_draws_raise(tmp_path: Path) -> None:
    def of(draws: int, lift: float) -> Measured:
        found = result(lift, 0)
        found = replace(found, about={**found.about, "model": {**found.about["model"], "draws": draws}})
        return read_measured(kept(tmp_path, f"draws{draws}", found))

    with pytest.raises(RequirementError, match=r"draws1\.json and .*draws2\.json need the same random draws"):
        compare([of(1, 1.0)], [of(2, 2.0)])
    untrained = replace(of(1, 1.0), about={"model": {"pretrained": "clip"}, "metrics": of(1, 1.0).about["metrics"]})
    assert compare([untrained], [of(2, 2.0)]).lines


def test_missing_or_foreign_per_query_values_raise(tmp_path: Path) -> None:
    path = kept(tmp_path, "one", result(1, 0))
    (tmp_path / "one.npz").unlink()
    with pytest.raises(RequirementError, match=r"evaluate RUN --json .*one.json --per-query .*one.npz"):
        read_measured(path)
    result(2, 5).save_queries(tmp_path / "one.npz")
    with pytest.raises(RequirementError, match="which is of another evaluation"):
        read_measured(path)
    result(1, 0, pictures=30).save_queries(tmp_path / "one.npz")
    with pytest.raises(RequirementError, match="30 images and 60 texts"):
        read_measured(path)
    values = {name: column for name, column in result(1, 0).per_query.items() if not name.endswith("/image")}
    np.savez(tmp_path / "one.npz", **values)
    with pytest.raises(RequirementError, match="text_to_image/image is not there"):
        read_measured(path)
    np.savez(tmp_path / "one.npz", a=np.array([{}], dtype=object))
    with pytest.raises(DataError, match="plain arrays"):
        read_measured(path)
    for wrong in (b"PK\x03\x04 cut off", b"", b"no npz"):
        (tmp_path / "one.npz").write_bytes(wrong)
        with pytest.raises(DataError, match="plain arrays"):
            read_measured(path)
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match="plain arrays"):
        read_measured(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "needs to be JSON"),
        ("[1]", "needs figures with the protocol"),
        ('{"protocol": {"ties": "x"}, "format": 1}', "needs figures such as"),
        ('{"protocol": {"ties": "x"}, "rsum": 3}', r"earlier Subtext, .*; build it again with `subtext evaluate`"),
        ('{"protocol": {"ties": "x"}, "rsum": 3, "format": 2}', "was made by an earlier Subtext"),
    ],
)
def test_invalid_files_raise(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=told):
        read_measured(tmp_path / "a.json")
    with pytest.raises(DataError, match="is not there"):
        read_measured(tmp_path / "b.json")


def test_compare_command(tmp_path: Path) -> None:
    data = coloured_images.write(tmp_path / "data")
    files = []
    for seed in range(4):
        run, out = coloured_images.run(data, tmp_path / f"run{seed}", seed=seed), tmp_path / f"f{seed}.json"
        call("evaluate", run, "--split", "all", "--json", out, "--per-query", out.with_suffix(".npz"), "-q")
        files.append(out)
    alone = call("compare", files[0], files[1]).output
    assert "A - B" in alone and "does not speak for a method" in alone and "on what a run learnt from" in alone
    many = call("compare", *files[:2], "vs", *files[2:], "--metric", "recall@5", "--json", tmp_path / "c.json").output
    assert "seeds 0, 1" in many and "train each side with 3 seeds or more" in many and "mrr" not in many
    found = json.loads((tmp_path / "c.json").read_text())
    assert [line["name"] for line in found["lines"]] == ["image_to_text/recall@5", "text_to_image/recall@5"]
    assert (
        json.loads(call("compare", *files[:2], "vs", *files[2:], "--metric", "recall@5", "--json", "-").stdout) == found
    )
    assert "these runs have recall@1" in call("compare", *files[:2], "--metric", "asp", code=1).output
    assert "'vs' between them" in call("compare", *files[:3], code=2).output
    assert "'vs' between them" in call("compare", "vs", *files[:3], code=2).output
