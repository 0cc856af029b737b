"""What weights are made from, told in words, as JSON and as a picture."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import command
import made_data
import numpy as np
import pytest
import torch

from reproduce.weights.statistics import explain, mean_weights, single_score, spread
from subtext.core import Comparison, Embeddings, Epoch, Scene, Truth
from subtext.errors import DataError
from subtext.evaluation.metrics.agreement import spearman
from subtext.objectives.weighting import Neighbourhood
from subtext.recipes.neighbour_scores import moments


def table(count: int = 70) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(0)
    names = [f"{score}/{m}" for score in ("diversity", "discrepancy") for m in ("image", "text")]
    return {name: torch.from_numpy(generator.normal(0.5, 0.1, count)) for name in names}


def test_effective_sizes_equal_those_of_weights() -> None:
    made = table()
    uniform = explain(made, Neighbourhood(96.0, sign=0.0))
    assert uniform.effective == pytest.approx({"diversity": 1.0, "discrepancy": 1.0})
    uneven, single = (explain(made, Neighbourhood(total)).effective["diversity"] for total in (196.0, 32.0))
    assert 1 / 32 < uneven < single < 1
    outer = explain(made, Neighbourhood(196.0, placement="outer")).effective["diversity"]
    assert outer == pytest.approx(1.0, abs=1e-4)


# Five pairs of the published formulas' worked example, all in one batch.
SCORES = {
    "discrepancy/image": [0.2, 0.7, 0.0, 0.55, -0.1],
    "discrepancy/text": [0.6, 0.89, 0.62, 0.80, 0.30],
    "diversity/image": [0.9, 0.5, 0.5, 0.5, 0.8],
    "diversity/text": [0.98, 0.80, 0.80, 0.20, 0.90],
}
WEIGHTS = {
    "diversity": [1.40252625, 3.45810390, 3.45810390, 10.17780373, 1.50346223],
    "discrepancy": [2.50017414, 4.37378493, 6.71375348, 3.90142896, 2.51085849],
    "val": [1.74713470, 2.80941740, 4.56298554, 7.79106163, 3.08940073],
    "val, absdiff": [0.01102554, 0.04492426, 0.97180056, 18.95488402, 0.01736562],
    "stats": [3.86933923, 3.82811900, 4.10965626, 4.09039898, 4.10248653],
}


def test_combined_effective_sizes_equal_worked_example() -> None:
    made = {name: torch.tensor(values, dtype=torch.float64) for name, values in SCORES.items()}
    val = Neighbourhood(20.0, diversity=3.0, discrepancy=1.0, combine="mean", batch=0)
    combined = {
        "val": val,
        "val, absdiff": replace(val, combine="absdiff"),
        "stats": replace(val, diversity=1.0, discrepancy=1.0, statistics="pooled"),
    }
    found = explain(made | moments(made), Neighbourhood(20.0, batch=0), combined=combined, batch=5).effective
    for name, weights in WEIGHTS.items():
        told = np.array(weights)
        assert found[name] == pytest.approx(told.sum() ** 2 / (5 * (told**2).sum()), rel=1e-6), name
    assert found["stats"] > 0.99 > found["val"] > found["val, absdiff"]
    still = explain(made, Neighbourhood(20.0, batch=0), combined={"still": replace(val, sign=0.0)}, batch=5)
    assert still.effective["still"] == pytest.approx(1.0)


def test_statistics_may_be_per_modality() -> None:
    """As the weighting makes them in training, from tables with moments."""
    made = {name: torch.tensor(values) for name, values in SCORES.items()}
    way = Neighbourhood(20.0, diversity=1.0, discrepancy=1.0, combine="sum", statistics="each", batch=0)
    forward = Comparison(torch.eye(5), Truth(torch.eye(5, dtype=torch.bool)), *[EMBEDDED] * 2)
    weights = way(Scene(forward, forward.flip()), Epoch(1, 0, table=made | moments(made)))
    wanted = float(weights.sum() ** 2 / (5 * weights.square().sum()))
    assert explain(made | moments(made), way, combined={"each": way}, batch=5).effective["each"] == pytest.approx(
        wanted, rel=1e-5
    )


EMBEDDED = Embeddings(torch.eye(5)[:, None], torch.arange(5))


def test_mean_weight_equals_average_over_many_batches() -> None:
    made = table(40)
    made["diversity/text"][7] = torch.nan
    weighting = Neighbourhood(96.0, batch=8)
    found = mean_weights(made, single_score(weighting, "diversity"), batch=8, repeats=400)
    assert found[7].isnan() and float(found[~found.isnan()].mean()) == pytest.approx(12.0, rel=0.02)
    # A loop over batches drawn by another generator says the same of the heaviest pair.
    generator, heaviest, seen = np.random.default_rng(1), int(found.nan_to_num(-1).argmax()), []
    others = np.delete(np.arange(40), [7, heaviest])
    for _ in range(4000):
        rows = torch.from_numpy(np.append(generator.choice(others, 7, replace=False), heaviest))
        image, text = ((-made[f"diversity/{m}"][rows]).softmax(dim=0) * 96 * 8 / 8 for m in ("image", "text"))
        seen.append(float(((image - text).abs().softmax(dim=0) * 96)[-1]))
    assert float(found[heaviest]) == pytest.approx(np.mean(seen), rel=0.1)
    whole = mean_weights(made, single_score(weighting, "diversity"), batch=64, repeats=1)
    assert float(whole.nansum()) == pytest.approx(96.0 * 39 / 8), "a batch larger than the data is the data"


def test_spreads_skip_unknown_scores() -> None:
    made = table()
    made["diversity/image"][:3] = torch.nan
    found = explain(made, Neighbourhood(96.0))
    one = found.spreads["diversity/image"]
    assert (found.pairs, one.known, sum(one.counts)) == (67, 67, 67)
    assert one.mean == pytest.approx(float(made["diversity/image"].nanmean()))
    assert spread(torch.full((3,), torch.nan)).known == 0
    with pytest.raises(DataError, match="needs two pairs with neighbours or more; it got 0"):
        explain({name: torch.full((3,), torch.nan) for name in made}, Neighbourhood(96.0))


def test_explain_command(tmp_path: Path) -> None:
    data, features = made_data.write(tmp_path)
    run, graph, plot = tmp_path / "run", tmp_path / "graph", tmp_path / "scores.svg"
    build = ["neighbours", "build", graph, "--data", data, "--space", "lsa", "--dim", 4, "--neighbours", 3, "-q"]
    assert command.invoke(*build).exit_code == 0
    train = ["train", "vse", "--data", data, "--features", features, "--embed-dim", 8, "--word-dim", 8, "--epochs", 2]
    train += ["--batch-size", 16, "--device", "cpu", "--out", run, "-q", "--with", f"diversity:graph={graph}"]
    done = command.invoke(*train)
    assert done.exit_code == 0, done.output
    assert json.loads((run / "run.json").read_text())["methods"][0][1]["graph"] == str(graph)
    page = tmp_path / "pairs.html"
    report = ["weights", "report", run, "--graph", graph, "--plot", plot, "--device", "cpu", "-q"]
    report += ["--page", page, "--top", 3]
    told = command.invoke(*report)
    assert told.exit_code == 0, told.output
    assert "Spearman's correlation" in told.output and "effective sample size" in told.output
    assert plot.read_text().startswith("<svg") and "diversity/image" in plot.read_text()
    assert page.read_text().count("<li") == 24, "three at each end of both scores, and of two ways to combine them"
    found = json.loads(command.invoke(*report, "--json", "-").stdout)
    assert set(found["spreads"]) == {f"{s}/{m}" for s in ("diversity", "discrepancy") for m in ("image", "text")}
    assert 0 < found["effective"]["discrepancy"] <= 1
    assert set(found["effective"]) == {"diversity", "discrepancy", "combined 3:1", "combined by statistics"}
    assert found["effective"]["combined by statistics"] > 0.99, "nearly uniform, as printed"
    assert found["combine"] == {"diversity": "absdiff", "discrepancy": "absdiff", "combined": "mean"}
    other = json.loads(command.invoke(*report, "--json", "-", "--beta", "1", "--gamma", "4").stdout)["effective"]
    assert other["combined 1:4"] != found["effective"]["combined 3:1"] and other["diversity"] == pytest.approx(
        found["effective"]["diversity"]
    )
    assert "combined 3:1 " in told.output and "combined: mean" in told.output
    one = command.invoke(*report, "--views", "mean")
    assert one.exit_code == 1 and "--views mean needs a run with several views per item" in one.output


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pairs of a run with DIVERSITY and one without, and one with DISCREPANCY."""
    folder = tmp_path_factory.mktemp("weighted")
    data, features = made_data.write(folder)
    graph = folder / "graph"
    build = ["neighbours", "build", graph, "--data", data, "--space", "lsa", "--dim", 4, "--neighbours", 3, "-q"]
    command.call(*build)
    train = ["train", "vse", "--data", data, "--features", features, "--embed-dim", 8, "--word-dim", 8, "--lr", 1e-2]
    train += ["--batch-size", 16, "--device", "cpu", "-q", "--workers", 0, "--epochs"]
    for seed in range(3):
        command.call(*train, 1, "--seed", seed, "--out", folder / f"plain-{seed}")
        near = f"diversity:graph={graph},total_weight=20,reference_batch=16,first_epoch=encode"
        command.call(*train, (1, 3, 4)[seed], "--seed", seed, "--out", folder / f"div-{seed}", "--with", near)
    command.call(*train, 1, "--out", folder / "dis", "--with", f"discrepancy:graph={graph},first_epoch=encode")
    command.call(*train, 1, "--out", folder / "first", "--with", f"diversity:graph={graph}")
    return folder


@pytest.mark.slow
def test_gain_is_reported_beside_unevenness(weighted: Path) -> None:
    pairs = [f"{weighted / f'div-{seed}'}={weighted / f'plain-{seed}'}" for seed in range(3)]
    pairs.append(f"{weighted / 'dis'}={weighted / 'plain-0'}")
    told = json.loads(command.call("weights", "gain", *pairs, "-q", "--json", "-").stdout)
    assert [run["score"] for run in told["runs"]] == ["diversity"] * 3 + ["discrepancy"]
    for run in told["runs"]:
        before, after = (
            json.loads(command.call("evaluate", run[name], "--json", "-", "-q").stdout)["rsum"]
            for name in ("baseline", "run")
        )
        assert (run["before"], run["after"]) == (before, after)
        assert run["gain"] == pytest.approx(100 * (after - before) / before)
        report = ["weights", "report", run["run"], "--graph", weighted / "graph", "-q", "--json", "-"]
        # Lambda is for 32 pairs, unless it is said to be for others; batches are of 16.
        own = ["--total", 20 if run["score"] == "diversity" else 98, "--pairs", 16]
        seen = json.loads(command.call(*report, *own).stdout)
        assert run["effective"] == pytest.approx(seen["effective"][run["score"]])
        deviations = [seen["spreads"][f"{run['score']}/{side}"]["deviation"] for side in ("image", "text")]
        assert run["deviation"] == pytest.approx(np.mean(deviations))
    first = told["runs"][:3]
    columns = {name: np.array([run[name] for run in first]) for name in ("deviation", "effective", "gain")}
    related = {name: spearman(columns[name], columns["gain"]) for name in ("deviation", "effective")}
    assert not np.isnan(list(related.values())).any()
    assert {name: one["rho"] for name, one in told["spearman"]["diversity"].items()} == related
    for name, one in told["spearman"]["diversity"].items():
        orders = [spearman(columns[name], np.array(order)) for order in itertools.permutations(columns["gain"])]
        assert one["p"] == pytest.approx(np.mean([abs(each) >= abs(related[name]) - 1e-9 for each in orders]))
    assert told["spearman"]["discrepancy"] is None
    assert {run["split"] for run in told["runs"]} == {"val"}
    assert [run["apart"] for run in told["runs"]] == [[], ["epochs (3, 1)"], ["epochs (4, 1)"], []]
    words = command.call("weights", "gain", *pairs, pairs[0], "-q").stdout
    assert "discrepancy: 1 pair of runs; a correlation needs 3 or more" in words
    assert "where the paper finds small variance good" in words and "over 3 pairs of runs" in words
    assert "also differ in epochs (4, 1)" in words and "evaluated on the split val" in words


def test_gain_of_unweighted_or_other_runs_raises(weighted: Path, tmp_path: Path) -> None:
    told = command.call("weights", "gain", f"{weighted / 'plain-0'}={weighted / 'plain-1'}", "-q", code=1)
    assert "needs to be trained with diversity or discrepancy" in told.output
    told = command.call("weights", "gain", f"{weighted / 'first'}={weighted / 'plain-0'}", "-q", code=1)
    assert "first needs an epoch with weights: it kept its first, whose weights are uniform" in told.output
    told = command.call("weights", "gain", weighted / "div-0", "-q", code=2)
    assert "needs two folders of runs with = between them" in told.output
    told = command.call("weights", "gain", f"{weighted / 'div-0'}={weighted / 'none'}", "-q", code=2)
    assert "none is no run" in " ".join(told.output.replace("│", " ").split())
    data, features = made_data.write(tmp_path)
    data.write_text(data.read_text().replace(" is near the ", " stands by the "))
    train = ["train", "vse", "--data", data, "--features", features, "--embed-dim", 8, "--word-dim", 8, "--epochs", 1]
    command.call(*train, "--batch-size", 16, "--out", tmp_path / "other", "-q", "--workers", 0)
    told = command.call("weights", "gain", f"{weighted / 'div-0'}={tmp_path / 'other'}", "-q", code=1)
    assert "a gain needs two runs evaluated on the same pairs" in told.output


def test_gain_over_zero_baseline_raises(weighted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reproduce.weights import gain_report as gaining

    def tied(*given: object, **rest: object) -> SimpleNamespace:
        return SimpleNamespace(figures={"rsum": 0.0}, protocol={"data": ""})

    monkeypatch.setattr(gaining.st, "evaluate", tied)
    told = command.call("weights", "gain", f"{weighted / 'div-0'}={weighted / 'plain-0'}", "-q", code=1)
    assert "a gain in per cent needs a baseline above 0; " in told.output
