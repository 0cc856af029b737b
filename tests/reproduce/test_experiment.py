"""The experiment on weights with a positive control: what it plants, how it ranks, and how a rate is searched."""

from __future__ import annotations

from pathlib import Path

import made_data
import numpy as np
import pytest
import torch

import subtext as st
from reproduce import claims, topics
from reproduce.experiment import report, rows, runs, sets
from reproduce.experiment.rows import Oracle
from subtext.api.train import flat_arguments
from subtext.core import Comparison, Embeddings, Epoch, Scene, Truth
from subtext.evaluation import evaluate_scores
from subtext.evaluation.metrics import CWay
from subtext.objectives.weighting import Neighbourhood


def moved(seed: int = 0) -> tuple[sets.Moved, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    written = np.repeat(np.arange(600), 5)
    of_image = np.where(np.arange(600) % 6 == 0, "test", "train")
    known = {
        "written": written,
        "splits": of_image[written],
        "topic": rng.integers(0, 12, len(written)),
        "visual": rng.integers(0, 10, 600),
    }
    centres = rng.standard_normal((10, 4))
    return sets.move_captions(**known, centres=centres), known


def test_a_quarter_of_the_captions_is_moved_to_images_of_their_topics_kinds() -> None:
    found, known = moved()
    abstract, train = found.kinds > 0, known["splits"] == "train"
    assert 0.25 <= abstract[train].mean() < 0.25 + 1.5 / 12
    assert (found.image[~abstract] == known["written"][~abstract]).all()
    assert (found.image[abstract] != known["written"][abstract]).all()
    assert (known["splits"] == np.where(found.image % 6 == 0, "test", "train")).all(), "texts stay in their split"
    for topic in np.unique(known["topic"][abstract]):
        of_topic = known["topic"] == topic
        kinds = {
            split: set(known["visual"][found.image[of_topic & (known["splits"] == split)]])
            for split in ("train", "test")
        }
        assert len(set(found.kinds[of_topic])) == 1 and kinds["test"] <= kinds["train"]
        assert len(kinds["train"]) == found.kinds[of_topic][0] in sets.KINDS


def test_thirds_are_of_likeness_and_not_of_order() -> None:
    overlap = [0.9, None, 0.1, 0.5, 0.0, 0.8]
    cosine = np.array([0.8, 0.1, 0.2, 0.4, 0.3, 0.9], dtype=np.float32)
    third = sets.thirds(overlap, cosine)
    assert third.tolist() == [2, 0, 1, 1, 0, 2]
    order = np.random.default_rng(0).permutation(6)
    assert (sets.thirds([overlap[place] for place in order], cosine[order]) == third[order]).all()
    with pytest.raises(ValueError, match="nan"):
        sets.thirds([0.1, 0.2, float("nan")], cosine[:3])


def test_oracle_knows_abstract_pairs_kinds_and_exchanged_pairs() -> None:
    none = np.zeros(3, dtype=np.int64)
    some = np.array([True, False, False])
    known = sets.Known(np.array(["train"] * 3), some, ~some, none, np.array([False, False, True]), none)
    assert known.oracle.tolist() == [sets.ORACLE, 1.0, 0.0]
    every = sets.Known(known.split, some | True, some & False, np.array([2, 4, 8]), some & False, none)
    assert every.oracle.tolist() == [2.0, 4.0, 8.0]


def scene_of(ids: list[int]) -> Scene:
    items = Embeddings(torch.ones(len(ids), 1, 1), torch.tensor(ids))
    forward = Comparison(torch.zeros(len(ids), len(ids)), Truth(torch.eye(len(ids), dtype=torch.bool)), items, items)
    return Scene(forward, forward.flip())


def test_oracle_weights_follow_the_table_and_their_permutation_the_seed(tmp_path: Path) -> None:
    file = tmp_path / "oracle.npy"
    np.save(file, np.array([1.0, 3.0, 1.0, 1.0, 2.0, 5.0, 1.0, 1.0]))
    weights = Oracle(total=4.0, file=str(file))(scene_of([1, 0, 4]), Epoch(1, 0))
    assert weights.tolist() == pytest.approx([2.0, 2 / 3, 4 / 3])
    permuted = [
        Oracle(total=8.0, file=str(file), permuted=True)(scene_of(list(range(8))), Epoch(number, seed)).tolist()
        for number, seed in ((1, 0), (2, 0), (1, 1))
    ]
    assert permuted[0] == permuted[1] != permuted[2], "the same in all epochs, another for each seed"
    assert sorted(permuted[0]) == pytest.approx(
        sorted(Oracle(total=8.0, file=str(file))(scene_of(list(range(8))), Epoch(1, 0)).tolist())
    )


def test_ranks_and_choices_equal_the_packages_own() -> None:
    """One text an image: the exact choice among 20 is that of `evaluate`."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((40, 40)).astype(np.float32) + 2 * np.eye(40, dtype=np.float32)
    ranks, others = runs.pair_ranks(scores, np.arange(40))
    found = runs.Finished(0.0, 1.0, 1.0, 0.0, np.zeros(0, np.float32), ranks, others, np.zeros(0, np.float32))
    result = evaluate_scores(torch.from_numpy(scores), np.arange(40), np.arange(40), metrics=[CWay(20)])
    expected = [result.per_query[f"{way}/20_way@1"] for way in ("image_to_text", "text_to_image")]
    np.testing.assert_allclose(found.choice(20), expected, rtol=1e-6)


def test_other_texts_of_an_image_do_not_compete() -> None:
    scores = np.array([[0.9, 0.8, 0.1], [0.2, 0.85, 0.7]], dtype=np.float32)
    ranks, others = runs.pair_ranks(scores, np.array([0, 0, 1]))
    assert ranks.tolist() == [[1.0, 1.0, 2.0], [1.0, 2.0, 1.0]]
    assert others.tolist() == [[1, 1, 2], [1, 1, 1]]


@pytest.mark.parametrize(
    ("peak", "tried", "inner"),
    [(3e-3, [3e-3, 1e-3, 1e-2], True), (1e-3, [3e-3, 1e-3, 3e-4], True), (3e-2, [3e-3, 1e-3, 1e-2, 3e-2], False)],
)
def test_search_of_a_rate_ends_between_two_worse_ones_or_at_the_edge(
    peak: float, tried: list[float], inner: bool
) -> None:
    found: dict[float, float] = {}
    order = []
    while (rate := runs.Search(found).next_rate) is not None:
        order.append(rate)
        found[rate] = -abs(np.log(rate / peak))
    assert set(order) >= set(tried) - {3e-4} and order[0] == runs.RATES[runs.START]
    assert runs.Search(found).inner == inner and runs.RATES[runs.Search(found).best] == peak


def test_finished_run_is_read_from_its_file_and_not_trained_again(tmp_path: Path) -> None:
    task = runs.tasks()[0]
    empty, three = np.zeros(0, np.float32), np.ones((2, 3), np.float32)
    rates = runs.RATES[runs.START - 1 : runs.START + 2]
    for rate, rsum in zip(rates, (1.0, 2.0, 1.5), strict=True):
        made = runs.Finished(rsum, 2.0, 30.0, -3.5, np.ones(2, np.float32), three, np.full((2, 3), 9, np.int32), empty)
        for seed in runs.SEARCHING:
            made.write(runs.result_file(tmp_path, task, "uniform", seed, rate))
    assert runs.Finished.read(runs.result_file(tmp_path, task, "uniform", 0, rates[0])).sign == -3.5
    left = runs.waiting(tmp_path, task, "uniform")
    assert [seed for seed, _ in left] == list(runs.SEEDS[2:]) and {rate for _, rate in left} == {rates[1]}
    assert runs.plan_lines(tmp_path)[0].startswith("topics-25-infonce, uniform: 6 runs done, about 8 left, 4 min")


def test_main_set_and_host_have_every_row_and_all_sets_the_positive_control() -> None:
    plan = rows.plan()
    assert next(iter(plan)) == (rows.MAIN_SET, rows.MAIN_HOST)
    assert {name for name, _ in plan} == {*sets.SHARES, sets.OPENSTAX} and {host for _, host in plan} == set(rows.HOSTS)
    for own in plan.values():
        assert {"uniform", "oracle", "oracle permuted"} <= own.keys()
        assert all(f"{name} permuted" in own for name in own if name.endswith("images 75"))


@pytest.mark.parametrize("host", rows.HOSTS)
def test_every_row_without_files_is_a_training_that_is_not_refused(tmp_path: Path, host: str) -> None:
    data, features = made_data.write(tmp_path)
    config = st.DataConfig(data, features=features)
    tried = 0
    for task in runs.tasks():
        for spec in task.rows.values():
            if task.host != host or any("{" in method for method in spec.methods):
                continue
            recipe = spec.recipe(task.set, host, files={}, sign=None)
            options = flat_arguments(recipe.model, recipe.options | {"batch_size": 8})
            st.train(recipe.model, data=config, out=tmp_path / "run", dry_run=True, quiet=True, **options)
            tried += 1
    assert tried


def test_each_row_of_a_task_has_files_of_its_own(tmp_path: Path) -> None:
    for task in runs.tasks():
        files = {runs.result_file(tmp_path, task, row, 0, runs.RATES[0]) for row in task.rows}
        assert len(files) == len(task.rows), f"two rows of {task.folder} share a file"


def test_sign_of_an_effective_size_is_found_by_bisection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = tuple(rng.normal(0.5, 0.1, 2560).astype(np.float32) for _ in range(2))
    monkeypatch.setattr(runs, "_scores_of_host", lambda *_: {"diversity": scores})
    task = runs.tasks()[0]
    for name in ("diversity images 75", "diversity texts 85", "diversity difference 95"):
        spec = task.rows[name]
        sign = runs.find_sign(sets.TrainingSet(task.set, tmp_path), task, spec, tmp_path, tmp_path)
        weighting = Neighbourhood(32.0, batch=32, sign=sign, combine=rows.FORMS[spec.form])
        assert 100 * topics.effective_size(*scores, weighting, batch=256) == pytest.approx(spec.size, abs=0.1)
        assert sign < 0, "more weight where neighbours are diverse"


def finished_runs(folder: Path, best: dict[str, float]) -> None:
    """Runs of the main set on linear maps: of a row the mean rank of the right item of abstract pairs, of 400 others.

    A row "last" is best at the last rate.
    """
    task = next(task for task in runs.tasks() if task.folder == "topics-25-linear")
    rng = np.random.default_rng(5)
    abstract = np.arange(600) % 4 == 0
    known = {"abstract": abstract, "literal": ~abstract, "clusters": np.arange(600) // 2}
    folder.mkdir()
    np.savez(folder / "topics-25.npz", **known)
    for row, place in best.items():
        at = 4 if row == "discrepancy images 75" else 2
        for number, rate in enumerate(runs.RATES):
            if abs(number - at) > 1:
                continue
            for seed in task_seeds(task, number == at):
                ranks = np.ceil(rng.exponential(np.where(abstract, place, 10.0), (2, 600)))
                made = runs.Finished(
                    rsum=100.0 - abs(number - at),
                    epochs=9.0,
                    seconds=1.0,
                    sign=-3.0,
                    sizes=np.array([70.0, 75.0]) / 100 if row.startswith("div") else np.zeros(0),
                    ranks=np.clip(ranks, 1, 401).astype(np.float32),
                    others=np.full((2, 600), 400, dtype=np.int32),
                    described=np.zeros(0, dtype=np.float32),
                )
                made.write(runs.result_file(folder, task, row, seed, rate))


def task_seeds(task: runs.Task, best: bool) -> tuple[int, ...]:
    return runs.seeds_of(task) if best else runs.SEARCHING


def test_report_judges_finished_rows_beside_the_oracle(tmp_path: Path) -> None:
    places = {"uniform": 60.0, "oracle": 15.0, "oracle permuted": 60.0, "diversity images 75": 25.0}
    places |= {"diversity images 75 permuted": 60.0, "discrepancy images 75": 25.0}
    finished_runs(tmp_path / "results", {**places, "discrepancy images 75 permuted": 60.0})
    found = report.part(tmp_path / "results")
    assert found.keys() == {"topics-25-linear"}
    part = found["topics-25-linear"]
    assert part["oracle"]["gap"] > 10 and part["oracle"]["low"] > 0 and part["waiting"] == ["hardest"]
    by_row = {claim["row"]: claim for claim in part["claims"]}
    assert by_row["diversity images 75"]["verdict"] == claims.HOLDS
    assert by_row["discrepancy images 75"]["verdict"] == claims.OPEN, "its best rate is the last"
    assert by_row["discrepancy images 75"]["edge"] == ["discrepancy images 75"]
    assert 0.3 < report.recovered(part, "diversity images 75") < 1
    right = np.mean(part["rows"]["diversity images 75"]["abstract"]) - np.mean(part["rows"]["uniform"]["abstract"])
    above = part["rows"]["diversity images 75"]["above uniform"]["abstract"]
    assert above["difference"] == pytest.approx(right) and above["low"] < right < above["high"]
    weak = {**places, "oracle": 59.0}
    finished_runs(tmp_path / "weak", weak)
    weak_part = report.part(tmp_path / "weak")["topics-25-linear"]
    assert {claim["verdict"] for claim in weak_part["claims"]} == {claims.NOTHING}
    assert report.recovered(weak_part, "diversity images 75") is None
