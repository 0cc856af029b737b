"""Runs joined to one: SGRAF from SAF and SGR, two dual encoders in an index, and what cannot be joined."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import made_data
import pytest
import tiny_models
import torch
from command import call

from subtext.api.load import load, open_run, save_pretrained
from subtext.data.inputs import SeveralInputs
from subtext.data.read import read
from subtext.data.text import cut_note, too_long
from subtext.errors import RecipeError, ShapeError
from subtext.evaluation import embed_pairs, scoring
from subtext.models.ensemble import MeanSimilarity, build_ensemble
from subtext.models.model import Model
from subtext.models.similarity.cosine import Cosine

SMALL = [
    "--embed-dim",
    "12",
    "--word-dim",
    "8",
    "--batch-size",
    "16",
    "--lr",
    "5e-3",
    "--epochs",
    "2",
    "--workers",
    "0",
]
SGRAF = [*SMALL, "--similarity-dim", "6", "-q"]


def given(made: Path) -> list[object]:
    return ["--data", made / "pairs.jsonl", "--features", made / "regions.npz"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SAF, SGR and two dual encoders, with the ensembles of either two."""
    folder = tmp_path_factory.mktemp("made")
    made_data.write_regions(folder)
    for reasoning in ("saf", "sgr"):
        call("train", "sgraf", *given(folder), "--out", folder / reasoning, "--reasoning", reasoning, *SGRAF)
    for seed in ("0", "1"):
        call("train", "vse", *given(folder), "--out", folder / f"vse{seed}", *SMALL, "--seed", seed, "-q")
    call("ensemble", folder / "saf", folder / "sgr", "--out", folder / "sgraf")
    call("ensemble", folder / "vse0", folder / "vse1", "--out", folder / "dual")
    return folder


def scores(model: Model, made: Path, *, split: str = "val") -> torch.Tensor:
    pairs = read(made / "pairs.jsonl", need_images=False).split(split)
    return scoring.matrix(model.similarity, *embed_pairs(model, pairs, workers=0), exact=True)


def test_sgraf_is_bitwise_mean_of_saf_and_sgr(made: Path) -> None:
    both = load(made / "sgraf")
    assert isinstance(both.similarity, MeanSimilarity) and not both.indexable
    one, other = (scores(load(made / name), made) for name in ("saf", "sgr"))
    assert one.std() > 0 and not torch.equal(one, other)
    assert torch.equal(scores(both, made), (one + other) / 2)


def test_ensemble_is_evaluated_audited_and_re_ranks(made: Path) -> None:
    found = json.loads(call("evaluate", made / "sgraf", "--json", "-", "-q").stdout)
    assert found["model"]["model"] == "ensemble" and found["split_role"] == "selection"
    assert [member["arguments"]["reasoning"] for member in found["model"]["arguments"]["members"]] == ["saf", "sgr"]
    assert any("selected the epochs of its members" in note for note in found["notes"])
    audited = json.loads(call("audit", made / "sgraf", "--split", "test", "--json", "-", "-q").stdout)
    assert {"repeat", "order", "blocks", "neighbours", "names"} <= {
        check["name"] for check in audited["checks"] if check["outcome"] == "pass"
    }
    both = json.loads(
        call("evaluate", made / "vse0", "--rerank", made / "sgraf", "--candidates", "24", "--json", "-", "-q").stdout
    )
    assert both["rsum"] == pytest.approx(found["rsum"])
    call("index", "build", made / "index", "--run", made / "vse0", "--split", "all", "-q")
    words = "a red and a dog"
    hits = json.loads(call("search", made / "index", words, "--rerank", made / "sgraf", "--json").stdout)["hits"]
    model = load(made / "sgraf")
    wanted = model.compare(model.embed_images([hit["id"] for hit in hits]), model.embed_texts([words]))
    assert [hit["score"] for hit in hits] == pytest.approx(wanted[:, 0].tolist(), abs=1e-5)
    listed = call("runs", made, "--json").stdout
    assert sum(run["recipe"] == "ensemble" for run in json.loads(listed)) == 2


def test_ensemble_is_a_teacher(made: Path, tmp_path: Path) -> None:
    teach = f"distil:teacher={made / 'sgraf'},mined_candidates=3"
    call("train", "vse", *given(made), "--out", tmp_path / "taught", "--with", teach, *SMALL, "-q")
    assert (tmp_path / "taught" / "model.safetensors").is_file()


def test_two_dual_encoders_build_an_index(made: Path, tmp_path: Path) -> None:
    both = load(made / "dual")
    assert isinstance(both.similarity, Cosine) and both.indexable
    one, other = (scores(load(made / name), made) for name in ("vse0", "vse1"))
    torch.testing.assert_close(scores(both, made), (one + other) / 2, atol=1e-6, rtol=0)
    call("index", "build", tmp_path / "index", "--run", made / "dual", "--split", "all", "-q")
    words = ["a red and a dog", "--signals", "pixels", "--json", "--top", "60"]
    hits = json.loads(call("search", tmp_path / "index", *words).stdout)["hits"]
    images = both.embed_images([hit["id"] for hit in hits])
    wanted = both.compare(images, both.embed_texts(["a red and a dog"]))[:, 0]
    assert [hit["score"] for hit in hits] == pytest.approx(wanted.tolist(), abs=1e-5)


def test_dual_encoders_with_different_text_inputs_build_an_index(made: Path, tmp_path: Path) -> None:
    bert, out = tiny_models.bert(tmp_path / "bert"), tmp_path / "subwords"
    options = ["--embed-dim", "10", "--batch-size", "16", "--epochs", "1", "--workers", "0", "--text", bert, "-q"]
    call("train", "vse", *given(made), "--out", out, *options)
    call("ensemble", made / "vse0", out, "--out", tmp_path / "both")
    shutil.rmtree(bert)
    both = load(tmp_path / "both")
    one, other = (scores(load(run), made) for run in (made / "vse0", out))
    assert one.std() > 0 and other.std() > 0
    torch.testing.assert_close(scores(both, made), (one + other) / 2, atol=1e-6, rtol=0)
    call("index", "build", tmp_path / "index", "--run", tmp_path / "both", "--split", "all", "-q")
    words = "a red zebra and a dog"
    options = ["--signals", "pixels", "--json", "--top", "60"]
    hits = json.loads(call("search", tmp_path / "index", words, *options).stdout)["hits"]
    wanted = both.compare(both.embed_images([hit["id"] for hit in hits]), both.embed_texts([words]))[:, 0]
    assert [hit["score"] for hit in hits] == pytest.approx(wanted.tolist(), abs=1e-5)
    # The longest text of the members that cuts most is what is said; and the order of members matters.
    first, second = both.text.input_spec.members
    long = ["dog " * 70, "dog"]
    assert too_long(both.text.input_spec, long) == max(too_long(first, long), too_long(second, long)) == 1
    assert "1 text of 2 is longer than the" in str(cut_note(both.text.input_spec, long))
    assert both.text.input_spec.fingerprint != SeveralInputs((second, first)).fingerprint
    told = call("export", tmp_path / "both", "--onnx", tmp_path / "onnx", code=1).output
    assert "an ONNX graph needs texts that are read in one way" in " ".join(told.split())
    call("export", tmp_path / "both", "--hf", tmp_path / "hub")


def test_learnt_scales_weight_dual_encoders(made: Path) -> None:
    models = [load(made / name) for name in ("vse0", "vse1")]
    plain = [scores(model, made) for model in models]
    models[1].similarity = Cosine(scale=3.0)
    both = scores(build_ensemble(models), made)
    torch.testing.assert_close(both, (plain[0] + 3 * plain[1]) / 4, atol=1e-6, rtol=0)


def test_ensemble_saves_and_exports_completely(made: Path, tmp_path: Path) -> None:
    run = open_run(made / "sgraf")
    save_pretrained(run.model, run.record, tmp_path / "again")
    call("export", made / "sgraf", "--hf", tmp_path / "hub")
    for folder in ("again", "hub"):
        again = open_run(tmp_path / folder, features=made / "regions.npz").model
        assert torch.equal(scores(again, made), scores(run.model, made))


def test_incompatible_runs_raise(made: Path, tmp_path: Path) -> None:
    def refused(*runs: Path, code: int = 1) -> str:
        words = call("ensemble", *runs, "--out", tmp_path / "out", code=code).output
        assert not (tmp_path / "out").exists()
        return " ".join(words.split())

    def trained(name: str, host: str, *words: object) -> Path:
        call("train", host, *given(made), "--out", tmp_path / name, *SMALL, "--epochs", 1, *words, "-q")
        return tmp_path / name

    saf = made / "saf"
    assert "an ensemble needs two runs or more" in refused(saf, code=2)
    assert "is an ensemble itself; name its runs instead" in refused(saf, made / "sgraf")
    assert "model 2 reads texts in another way than the first" in refused(
        saf, trained("few", "scan", "--max-tokens", 5)
    )
    assert "needs one embed_dim; these have 12, 16" in refused(saf, trained("wide", "scan", "--embed-dim", 16))
    other = trained("other", "scan", "--train-split", "test")
    assert "trained on the same pairs" in refused(saf, other)
    uncertain = trained("uncertain", "pcme_plus")
    copy = shutil.copytree(uncertain, tmp_path / "copy")
    assert "those of a probabilistic model are distributions" in refused(uncertain, copy)
    assert f"an ensemble needs different runs; {saf} is there twice" in refused(made / "sgr", saf, saf, code=2)
    told = call("ensemble", saf, made / "sgr", "--out", made / "sgraf", code=1).output
    assert "holds something; name another" in told


def test_mismatched_regions_raise(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "appended"
    call("train", "scan", *given(made), "--out", out, *SMALL, "--append-pooled", "-q")
    both = build_ensemble([load(made / "saf"), load(out)])
    with pytest.raises(ShapeError, match="see the same regions and words"):
        both.embed_images(["photo003.jpg"])
    with pytest.raises(RecipeError, match="two models or more; it got 1"):
        build_ensemble([load(out)])
    two = tmp_path / "two"
    call("train", "pvse", *given(made), "--out", two, *SMALL, "--views", "2", "-q")
    with pytest.raises(ShapeError, match="one vector an item; one gives 2"):
        build_ensemble([load(two), load(two)]).embed_texts(["a dog"])


def test_ensemble_has_no_training_setup(made: Path) -> None:
    with pytest.raises(RecipeError, match="there is no model called 'ensemble'"):
        open_run(made / "sgraf").setup()


def test_record_without_members_raises(made: Path, tmp_path: Path) -> None:
    call("ensemble", made / "saf", made / "sgr", "--out", tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "arguments": {}}))
    told = call("evaluate", tmp_path / "run", "-q", code=1).output
    assert "needs its members' recipes" in told and "join the runs again" in told


def test_table_joins_its_rows(made: Path, tmp_path: Path) -> None:
    data = ["--data", f"mine={made / 'pairs.jsonl'}", "--features", f"mine={made / 'regions.npz'}"]
    changes = ["embed_dim=12", "word_dim=8", "similarity_dim=6", "batch_size=16", "lr=0.005"]
    quick = ["--seeds", 2, "--epochs", 1, "--workers", 0, "--device", "cpu", "-q"]
    words = ["table", "daa2022_table3", *data, *quick, *(w for c in changes for w in ("--set", c)), "--out", tmp_path]
    plan = call(*words, "--rows", "sgraf", "--plan").stdout
    assert "to train: 4" in plan
    call(*words, "--rows", "sgraf")
    found = json.loads((tmp_path / "daa2022_table3.json").read_text())
    row = next(row for row in found["rows"] if row["row"] == "SGRAF")
    ours = [cell for cell in row["cells"].values() if cell.get("mean") is not None]
    assert ours and all(len(cell["values"]) == 2 for cell in ours if "values" in cell)
    assert len(found["runs"]["sgraf/mine"]) == 4
    assert "finished" in call(*words, "--rows", "sgraf", "--plan").stdout
    # The rows that it joins are trained once.
    assert "to train: 0" in call(*words, "--rows", "saf,sgr,sgraf", "--plan").stdout


def test_study_joins_its_trained_rows() -> None:
    regions = importlib.import_module("reproduce.studies.regions")
    assert {member for members in regions.MEANS.values() for member in members} <= set(regions.ROWS)
    assert not set(regions.MEANS) & set(regions.ROWS)
