"""The commands as a user calls them, on a small made data set."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import made_data
import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny_models
from command import call
from PIL import Image

from subtext.cli import SUMMARIES
from subtext.recipes.catalogue import RECOMMENDED

SMALL = ["--embed-dim", "24", "--word-dim", "16", "--min-count", "1", "--batch-size", "16", "--lr", "5e-3"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    made_data.write(folder)
    return folder


def options(made: Path, out: Path) -> list[object]:
    return ["--data", made / "pairs.jsonl", "--features", made / "features.npz", "--out", out, *SMALL]


@pytest.fixture(scope="module")
def run(made: Path) -> Path:
    """A run of two epochs, trained by the command line."""
    out = made / "runs" / "first"
    answer = call("train", "dual", *options(made, out), "--epochs", 2, "--workers", 0)
    assert "finished after 2 epochs" in answer.stdout and "chance" in answer.stdout
    assert f"subtext evaluate {out} --split val" in answer.stdout
    assert re.search(r"epoch 2 of 2: loss \d", answer.stderr), answer.stderr
    return out


def test_data_check_describes_dataset(made: Path) -> None:
    answer = call("data", "check", made / "pairs.jsonl", "--features", made / "features.npz")
    assert "60 images, 120 texts, 120 pairs" in answer.stdout
    assert re.search(r"train +40 +80 +80", answer.stdout)
    assert "features of all 60 images (pooled 16)" in answer.stdout
    found = json.loads(
        call("data", "check", made / "pairs.jsonl", "--features", made / "features.npz", "--json").stdout
    )
    assert found["usable"] is True and found["images"] == 60 and found["splits"]["val"]["texts"] == 24


def test_data_check_of_unusable_data_exits_with_one(made: Path) -> None:
    answer = call("data", "check", made / "pairs.jsonl", code=1)
    assert "photo000.jpg" in answer.stdout and "not usable" in answer.stdout
    assert json.loads(call("data", "check", made / "pairs.jsonl", "--json", code=1).stdout)["usable"] is False


def test_training_writes_complete_run(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    assert record["model"] == "dual" and record["arguments"]["embed_dim"] == 24 and record["plan"]["epochs"] == 2
    assert Path(record["data"]["data"]).is_absolute() and Path(record["data"]["features"]).is_file()
    assert (run / "model.safetensors").is_file() and (run / "assets" / "text").is_dir()
    card = (run / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: subtext\n") and "| image to text |" in card


def test_train_without_model_takes_recommended_model(made: Path, tmp_path: Path) -> None:
    answer = call("train", *options(made, tmp_path / "run"), "--epochs", 8, "--dry-run")
    assert "recommended" in answer.stderr and answer.stdout.startswith(f"{RECOMMENDED}: built, not trained")
    assert re.search(r"image +924 +924", answer.stdout), "16 to 24, and 16 to 12 to 24 beside it, with their biases"
    assert "8 epochs of 5 steps of 16 pairs: 40 steps" in answer.stdout
    assert not (tmp_path / "run").exists()


def test_model_argument_may_come_last(made: Path, tmp_path: Path) -> None:
    where = ["--data", made / "pairs.jsonl", "--features", made / "features.npz", "--out", tmp_path / "run"]
    answer = call("train", *where, "vse", "--dry-run")
    assert answer.stdout.startswith("vse: built") and "recommended" not in answer.stderr


def test_method_is_applied_and_recorded(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    small = ["--embed-dim", 24, "--word-dim", 16, "--batch-size", 16, "--epochs", 1, "--workers", 0, "-q"]
    data = ["--data", made / "pairs.jsonl", "--features", made / "features.npz"]
    call("train", "vse", *data, "--out", out, "--with", "mithun:strength=0.5", *small)
    assert json.loads((out / "run.json").read_text())["methods"] == [
        ["mithun", {"strength": 0.5, "hardest_only": True, "average_directions": True}]
    ]
    assert "vse + mithun" in call("runs", tmp_path).stdout


def test_evaluation_writes_figures_and_protocol(run: Path, made: Path, tmp_path: Path) -> None:
    out, queries = tmp_path / "figures.json", tmp_path / "queries.npz"
    answer = call("evaluate", run, "--split", "val", "--json", out, "--per-query", queries, "--c-way", "5", "-q")
    found = json.loads(out.read_text())
    assert 0 <= found["image_to_text/recall@10"] <= 100 and 0 <= found["text_to_image/recall@10"] <= 100
    assert found["chance"]["text_to_image/recall@1"] == pytest.approx(100 / 12)
    assert found["protocol"]["ties"] == "pessimistic" and found["protocol"]["gallery"]["images"] == 12
    assert "95 %" in answer.stdout and "chance" in answer.stdout and "5 way@1" in answer.stdout
    with np.load(queries, allow_pickle=False) as arrays:
        assert 100 * arrays["text_to_image/recall@10"].mean() == pytest.approx(found["text_to_image/recall@10"])
    best = json.loads((run / "run.json").read_text())["best"]
    assert best["rsum"] == pytest.approx(found["rsum"])


def test_evaluation_writes_json_to_stdout(run: Path, made: Path) -> None:
    answer = call("evaluate", run, "--data", made / "pairs.jsonl", "--split", "test", "--json", "-", "--bootstrap", 0)
    found = json.loads(answer.stdout)
    assert found["split"] == "test" and found["protocol"]["gallery"] == {"images": 8, "texts": 16}


def test_npz_and_parquet_vectors_are_equal(run: Path, tmp_path: Path) -> None:
    call("embed", run, "--out", tmp_path / "v.npz")
    call("embed", run, "--out", tmp_path / "v.parquet", "--split", "val", "-q")
    with np.load(tmp_path / "v.npz", allow_pickle=False) as arrays:
        found = dict(arrays)
    assert found["image_vectors"].shape == (60, 24) and found["text_vectors"].shape == (120, 24)
    assert found["image_groups"][0] == found["text_groups"][0]
    table = pq.read_table(tmp_path / "v.parquet")
    assert table.num_rows == 12 + 24 and set(table["modality"].to_pylist()) == {"image", "text"}
    first = table.slice(0, 1).to_pylist()[0]
    row = found["image_ids"].tolist().index(first["id"])
    np.testing.assert_allclose(first["vector"], found["image_vectors"][row], rtol=1e-5, atol=1e-6)


def test_runs_command_lists_runs(run: Path, tmp_path: Path) -> None:
    answer = call("runs", run.parent.parent)
    assert "dual" in answer.stdout and "finished" in answer.stdout and "pairs.jsonl" in answer.stdout
    (found,) = json.loads(call("runs", run.parent, "--json").stdout)
    assert found["recipe"] == "dual" and found["disk_bytes"] > 10_000 and "rsum" in found["best"]
    assert "no runs" in call("runs", tmp_path).stdout


def test_runs_verify_reports_damaged_runs(run: Path, tmp_path: Path) -> None:
    for name in ("empty", "flipped", "good"):
        shutil.copytree(run, tmp_path / name)
    flipped = tmp_path / "flipped" / "model.safetensors"
    (tmp_path / "empty" / "model.safetensors").unlink()
    data = bytearray(flipped.read_bytes())
    data[-1] ^= 1
    flipped.write_bytes(data)
    assert call("runs", tmp_path).stdout.count(" finished ") == 3
    *_, problem, counts = call("runs", tmp_path, "--verify", code=1).stdout.splitlines()
    assert problem.startswith(f"{flipped} needs the tensors that were written into it")
    assert counts == "3 runs verified: 1 damaged, 1 without weights"
    found = json.loads(call("runs", tmp_path, "--verify", "--json", code=1).stdout)
    assert [entry.get("checksum", entry["status"]) for entry in found] == ["none", "damaged", "right"]
    assert "the file is damaged" in call("evaluate", tmp_path / "flipped", "-q", code=1).stderr
    assert "0 damaged, 0 without" in call("runs", tmp_path / "good", "--verify").stdout


def test_resuming_finished_training_changes_nothing(run: Path, made: Path) -> None:
    weights = (run / "model.safetensors").read_bytes()
    call("train", "dual", *options(made, run), "--epochs", 2, "--workers", 0, "--resume", "-q")
    assert (run / "model.safetensors").read_bytes() == weights


def test_resume_without_checkpoint_starts_from_beginning(made: Path, tmp_path: Path) -> None:
    answer = call("train", "dual", *options(made, tmp_path / "new"), "--epochs", 1, "--resume", "-q")
    assert "finished after 1 epoch," in answer.stdout


def test_pixel_training_and_pretrained_evaluation(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows: list[dict[str, object]] = []
    (tmp_path / "photos").mkdir()
    for number in range(12):
        pixels = rng.integers(0, 255, size=(40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
        split = "train" if number < 8 else "val"
        rows.append({"image": f"{number}.png", "caption": f"a dog and {number} red boats", "split": split})
    data = made_data.write_rows(tmp_path / "pairs.jsonl", rows)
    where = ["--data", data, "--images", tmp_path / "photos"]
    call("train", "dual", *where, "--out", tmp_path / "run", *SMALL, "--epochs", 1, "--image-size", 32, "-q")
    assert "4 images, 4 texts" in call("evaluate", tmp_path / "run", "-q").stdout
    model = tmp_path / "clip"
    model.mkdir()
    tiny_models.clip(model)
    answer = call("evaluate", "--model", model, *where, "--split", "all", "--json", "-", "-q")
    assert json.loads(answer.stdout)["protocol"]["gallery"]["images"] == 12


def test_installed_command_trains(made: Path, tmp_path: Path) -> None:
    words = [str(word) for word in ("train", "dual", *options(made, tmp_path / "run"), "--epochs", 1)]
    command = [sys.executable, "-c", "from subtext.cli import main; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "epoch 1 of 1" in done.stderr and "epoch" not in done.stdout.splitlines()[1]


def test_interrupted_training_resumes(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [str(word) for word in ("train", "dual", *options(made, out), "--epochs", 3000, "--workers", 0)]
    command = [sys.executable, "-c", "from subtext.cli import main; main()", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "epoch 1 of" not in (line := process.stderr.readline()):
            assert line, "it ended before it was asked to"
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume to continue" in stdout
    assert json.loads((out / "run.json").read_text())["status"] == "stopped"
    assert "stopped" in call("runs", tmp_path).stdout


HELPS = [[], ["train", "pvse"], ["data", "check"], ["data", "corrupt"], ["index", "build"], ["index", "info"]]
HELPS += [["neighbours", "build"], ["neighbours", "show"]]
HELPS += [[name] for name in SUMMARIES]


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_every_help_has_an_example(words: list[str]) -> None:
    answer = call(*words, "--help")
    assert "Example:\n" in answer.stdout and f"subtext {' '.join(words)}".strip() in answer.stdout


def test_model_help_has_sections() -> None:
    text = call("train", "vse", "--help").stdout
    places = [text.index(heading) for heading in ("Data:", "Options of vse:", "Training:", "Run:", "Example:")]
    assert places == sorted(places)
    assert "[all|hardest|semi-hard]" in text and "[default: hardest]" in text
    assert text.index("--lr FLOAT") < text.index("--resume")
