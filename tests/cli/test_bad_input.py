"""What goes wrong is told in one sentence that says what to do, and never by a traceback."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import made_data
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from subtext.cli import main
from subtext.cli.train import model_command
from subtext.errors import RecipeError, Setting
from subtext.models.checkpoint import read_tensors, write_tensors
from subtext.recipes.catalogue import models

TRAIN = ["--embed-dim", "8", "--word-dim", "8", "--batch-size", "16", "--epochs", "1", "--workers", "0", "-q"]
Rows = list[dict[str, object]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made_data.write(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    made_data.write(folder)
    train(folder, "dual", out="run")
    return folder


def call(*words: object) -> tuple[int, str]:
    answer = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    return answer.exit_code, answer.output


def train(folder: Path, host: str, *more: object, out: str = "new", code: int = 0) -> str:
    where = ["--data", folder / "pairs.jsonl", "--features", folder / "features.npz", "--out", folder / out]
    found, output = call("train", host, *where, *TRAIN, *more)
    assert found == code, output
    return output


def rows(folder: Path) -> Rows:
    return [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]


def edit(folder: Path, change: Callable[[Rows], None]) -> None:
    found = rows(folder)
    change(found)
    made_data.write_rows(folder / "pairs.jsonl", found)


def features(folder: Path, names: list[str], width: int) -> None:
    np.savez(folder / "features.npz", names=np.array(names), pooled=np.ones((len(names), width), dtype=np.float32))


def no_file(folder: Path) -> None:
    (folder / "pairs.jsonl").unlink()


def no_features(folder: Path) -> None:
    (folder / "features.npz").unlink()


def wrong_columns(folder: Path) -> None:
    made_data.write_rows(folder / "pairs.jsonl", [{"foto": "a.jpg", "words": "a dog"}])


def not_json(folder: Path) -> None:
    (folder / "pairs.jsonl").write_text("{ this is no row\n")


def empty_file(folder: Path) -> None:
    (folder / "pairs.jsonl").write_text("")


def no_validation(folder: Path) -> None:
    edit(folder, lambda found: [row.update(split="train") for row in found] and None)


def other_names(folder: Path) -> None:
    features(folder, [f"other{number}.jpg" for number in range(60)], 16)


def some_names(folder: Path) -> None:
    features(folder, [str(row["image"]) for row in rows(folder)[:-15]], 16)


def not_finite(folder: Path) -> None:
    names = [str(row["image"]) for row in rows(folder)]
    np.savez(folder / "features.npz", names=np.array(names), pooled=np.full((60, 16), np.nan, dtype=np.float32))


def one_not_finite_in_validation(folder: Path) -> None:
    found = rows(folder)
    numbers = np.ones((60, 16), dtype=np.float32)
    numbers[next(place for place, row in enumerate(found) if row["split"] == "val")] = np.inf
    np.savez(folder / "features.npz", names=np.array([str(row["image"]) for row in found]), pooled=numbers)


def one_too_large(folder: Path) -> None:
    names = [str(row["image"]) for row in rows(folder)]
    numbers = np.ones((60, 16), dtype=np.float32)
    numbers[1, 3] = -3e38
    np.savez(folder / "features.npz", names=np.array(names), pooled=numbers)


def one_too_large_for_float32(folder: Path) -> None:
    names = [str(row["image"]) for row in rows(folder)]
    numbers = np.ones((60, 16))
    numbers[1, 3] = 1e300
    np.savez(folder / "features.npz", names=np.array(names), pooled=numbers)


def complex_features(folder: Path) -> None:
    names = [str(row["image"]) for row in rows(folder)]
    np.savez(folder / "features.npz", names=np.array(names), pooled=np.full((60, 16), 1 + 1j))


def empty_texts(folder: Path) -> None:
    edit(folder, lambda found: found[4].update(captions=["a dog", "  "]))


def one_row(folder: Path) -> None:
    made_data.write_rows(folder / "pairs.jsonl", [{"image": "photo000.jpg", "caption": "a dog"}])


def one_id_twice(folder: Path) -> None:
    edit(folder, lambda found: [row.update(id=f"p{max(number, 1)}") for number, row in enumerate(found)] and None)


def numbers_for_texts(folder: Path) -> None:
    edit(folder, lambda found: [row.update(captions=[number]) for number, row in enumerate(found)] and None)


def pickled(folder: Path) -> None:
    np.savez(folder / "features.npz", names=np.array(["a", None], dtype=object), pooled=np.ones((2, 16)))


BAD_DATA = [
    (no_file, "pairs.jsonl"),
    (no_features, "features.npz does not exist"),
    (wrong_columns, "image"),
    (not_json, "line 1"),
    (empty_file, "pairs.jsonl"),
    (no_validation, "split 'val' needs at least one pair"),
    (other_names, "needs a row for every item; 40 of 40 have none"),
    (some_names, "'photo045.jpg'"),
    (not_finite, "NaN or infinity"),
    (one_not_finite_in_validation, "NaN or infinity"),
    (one_too_large, "of 'photo001.jpg' has a number of 3e+38 in size"),
    (one_too_large_for_float32, "of 'photo001.jpg' has NaN or infinity"),
    (complex_features, "axes of real numbers (items, width); it got complex128"),
    (empty_texts, "line 5"),
    (one_row, "split '"),
    (pickled, "features.npz"),
    (one_id_twice, "line 2: id 'p1' names another image (photo000.jpg, line 1)"),
    (numbers_for_texts, "line 1: the text needs to be a string; it is the number 0"),
]


@pytest.mark.parametrize(("spoil", "told"), BAD_DATA, ids=[spoil.__name__ for spoil, _ in BAD_DATA])
def test_bad_data_raises_before_writing(data: Path, spoil: Callable[[Path], None], told: str) -> None:
    spoil(data)
    output = train(data, "dual", code=1)
    assert output.startswith("error: ") and told in output
    assert len(output.splitlines()) == 1 and not (data / "new").exists()


@pytest.mark.parametrize("spoil", [spoil for spoil, _ in BAD_DATA], ids=[spoil.__name__ for spoil, _ in BAD_DATA])
def test_data_check_agrees_with_training_errors(data: Path, spoil: Callable[[Path], None]) -> None:
    words = ["data", "check", data / "pairs.jsonl", "--features", data / "features.npz", "--json"]
    assert json.loads(call(*words)[1])["trainable"] is True
    spoil(data)
    code, output = call(*words)
    found = json.loads(output)
    assert found["trainable"] is False and found["reasons"]["train"]
    assert code == (0 if found["evaluable"] or found["indexable"] else 1)


@pytest.mark.parametrize("width", [10**9, 10**18, 10**19])
def test_width_beyond_memory_raises(data: Path, width: int) -> None:
    output = train(data, "dual", "--embed-dim", width, code=1)
    assert (
        output.startswith("error: 'dual' needs more memory for its weights than there is")
        and len(output.splitlines()) == 1
    )
    assert not (data / "new").exists()


def test_data_check_reports_usable_purposes(data: Path) -> None:
    words = ["data", "check", data / "pairs.jsonl", "--features", data / "features.npz"]
    assert call(*words)[1].endswith("usable: for training, and for evaluation (test, train, val)\n")
    no_validation(data)
    code, output = call(*words)
    assert code == 0 and "usable: for evaluation (train); not for training: training needs a split 'val'" in output
    one_row(data)
    code, output = call(*words)
    assert code == 0 and "1 image, 1 text, 1 pair" in output and "usable: for an index" in output


def test_missing_images_give_one_sentence(data: Path) -> None:
    place = f"none of the 60 exists; the first path was {data / 'photo000.jpg'}; name their folder (--images)"
    where = ["--data", data / "pairs.jsonl", "--out", data / "new"]
    code, output = call("train", "dual", *where, *TRAIN)
    assert code == 1 and place in output and len(output.splitlines()) == 1
    code, output = call("data", "check", data / "pairs.jsonl")
    assert code == 1 and place in output and len(output.splitlines()) == 3


def test_unreadable_images_are_listed_by_line(data: Path) -> None:
    for row in rows(data):
        (data / str(row["image"])).write_bytes(b"<html>not found</html>")
    code, output = call("train", "dual", "--data", data / "pairs.jsonl", "--out", data / "new", *TRAIN)
    assert code == 1 and len(output.splitlines()) == 1
    assert "line 1 and 59 like it (line 2, line 3, ...): photo000.jpg is no image that can be read" in output


WRONG_LINES = [
    (["vsee"], "there is no model called 'vsee'; did you mean vse"),
    (["dual", "--embed-dmi", "8"], "--embed-dim"),
    (["dual", "--with", "mithum"], "there is no method called 'mithum'; did you mean mithun?"),
    (["vse", "--with", "mithun:strenght=1"], "did you mean strength?"),
    (["vse", "--with", "mithun:strength=much"], "strength needs a number"),
    (["vse", "--with", "mithun:strength"], "needs the form option=value"),
    (["vse", "--negatives", "easy"], "'all', 'hardest', 'semi-hard'"),
    (["dual", "--epochs", "many"], "not a valid integer"),
]


@pytest.mark.parametrize(("words", "told"), WRONG_LINES, ids=[" ".join(words) for words, _ in WRONG_LINES])
def test_usage_error_exits_with_two_and_suggestions(words: list[str], told: str) -> None:
    code, output = call("train", *words, "--data", "d.jsonl", "--out", "r")
    assert code == 2 and told in output and "Usage:" in output


def test_missing_data_or_out_exits_with_two() -> None:
    assert call("train", "dual", "--out", "r")[0] == 2
    code, output = call("train", "--data", "d.jsonl")
    assert code == 2 and "--out" in output
    code, output = call("evaluate")
    assert code == 2 and "RUN" in output and "--model" in output
    code, output = call("evaluate", "--model", "some/name")
    assert code == 2 and "--data" in output
    code, output = call("embed", "run", "--out", "vectors.txt")
    assert code == 2 and ".npz or .parquet" in output
    code, output = call("evaluate", "run", "--c-way", "5,x")
    assert code == 2 and "'5,x' needs whole numbers with commas between them, each 2 or more" in output


def test_unsupported_method_lists_suitable_models(data: Path) -> None:
    output = train(data, "dual", "--with", "mithun", code=1)
    assert "mithun needs a model with a triplet loss" in output and "vse" in output


def test_invalid_options_raise(data: Path) -> None:
    assert "--batch-size needs 1 or more" in train(data, "dual", "--batch-size", "0", code=1)
    assert "--lr needs a number above 0" in train(data, "dual", "--lr", "-1", code=1)
    assert "--device" in train(data, "dual", "--device", "quantum", code=1)


def test_unused_options_are_named_as_typed(data: Path) -> None:
    output = train(data, "vse", "--feature-dropout", "0.1", "--flip", "0.2", code=1)
    assert output.startswith("error: --flip needs --image tiny or a backbone; ") and "leave --flip out" in output
    output = train(data, "dual", "--freeze-epochs", "-1", code=1)
    assert output.startswith(
        "error: --freeze-epochs needs a pretrained encoder that learns; it got none; leave --freeze-epochs out"
    )
    output = train(data, "dual", "--image", "resnet18", code=1)
    assert output.startswith("error: --features needs --image features; --image is resnet18; leave --features out")
    output = train(data, "dual", "--text", "./nowhere", code=1)
    assert output.startswith("error: --word-dim needs --text gru|bag; --text is ./nowhere; leave --word-dim out")
    assert not (data / "new").exists()


def test_run_records_used_options(trained: Path) -> None:
    arguments = json.loads((trained / "run" / "run.json").read_text())["arguments"]
    assert {"embed_dim", "word_dim", "token_mask", "feature_scaling", "text", "dropout"} <= arguments.keys()
    assert not {"flip", "image_weights", "gru_layers", "gru_dim", "text_pooling", "text_scaling"} & arguments.keys()


def test_training_accepts_texts_of_any_script_and_length(data: Path) -> None:
    """Other scripts, emoji, one word, ten thousand words, words never seen before."""

    def change(found: Rows) -> None:
        for row, text in zip(found, ("犬と猫", "собака", "🐕🚤", "x", "dog " * 10_000), strict=False):
            row["captions"] = [text]
        found[45]["captions"] = ["ποτέ 🦄", "unseen words alone"]

    edit(data, change)
    assert "finished after 1 epoch," in train(data, "dual")


def test_on_error_skip_drops_unusable_rows(data: Path) -> None:
    empty_texts(data)
    assert "finished" in train(data, "dual", "--on-error", "skip")
    assert json.loads((data / "new" / "run.json").read_text())["data"]["on_error"] == "skip"


def test_misplaced_arguments_get_a_hint(data: Path) -> None:
    code, output = call("train", data / "pairs.jsonl", "--out", data / "run")
    assert code == 2 and f"a data set is named by --data {data / 'pairs.jsonl'}" in " ".join(output.split())
    code, output = call("check", data / "pairs.jsonl")
    assert code == 2 and "there is no command called 'check'; did you mean subtext data check?" in output
    code, output = call("search", "library", "a", "red", "field")
    assert code == 2 and "put words that belong together in quotes" in " ".join(output.split())


def test_non_empty_out_raises_before_reading_data(data: Path) -> None:
    (data / "full").mkdir()
    (data / "full" / "file").touch()
    code, output = call("train", "--data", data / "gone.jsonl", "--out", data / "full")
    assert code == 1 and "full holds something; name another" in output and "gone" not in output


def test_non_empty_out_is_kept(trained: Path) -> None:
    output = train(trained, "dual", out="run", code=1)
    assert "holds something" in output and "--resume" in output


@pytest.mark.parametrize("more", [[], ["--resume"]], ids=["new", "resume"])
def test_out_that_is_a_file_raises(data: Path, more: list[str]) -> None:
    output = train(data, "dual", *more, out="pairs.jsonl", code=1)
    assert output == f"error: --out needs a folder; {data / 'pairs.jsonl'} is a file; name another\n"


def test_resume_with_other_options_raises(trained: Path) -> None:
    output = train(trained, "dual", "--resume", "--dropout", "0.5", out="run", code=1)
    assert "--dropout 0.3 -> 0.5" in output and "train in a new folder" in output


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be damaged."""
    return Path(shutil.copytree(trained / "run", tmp_path / "copy"))


def no_run(run: Path) -> None:
    shutil.rmtree(run)


def no_weights(run: Path) -> None:
    (run / "model.safetensors").unlink()


def half_weights(run: Path) -> None:
    path = run / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_recipe(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"model": "vse", "arguments": {"embed_dim": 24, "word_dim": 8}}))


def unknown_recipe(run: Path) -> None:
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text.replace('"model": "dual"', '"model": "duel"'))


def later_version(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"mood": "hopeful"}))


def half_record(run: Path) -> None:
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text[: len(text) // 2])


def no_assets(run: Path) -> None:
    shutil.rmtree(run / "assets")


def further_tensor(run: Path) -> None:
    path = run / "model.safetensors"
    write_tensors(path, read_tensors(path) | {"image.extra": torch.zeros(3)})


DAMAGED = [
    (no_run, "needs to be the folder of a run"),
    (no_weights, "needs model.safetensors"),
    (half_weights, "needs to be a whole safetensors file"),
    (other_recipe, "its tensors are of another"),
    (unknown_recipe, "did you mean dual?"),
    (later_version, "mood"),
    (half_record, "run.json"),
    (no_assets, "assets"),
    (further_tensor, "1 unknown, first image.extra"),
]


@pytest.mark.parametrize(("damage", "told"), DAMAGED, ids=[damage.__name__ for damage, _ in DAMAGED])
def test_damaged_run_raises(run: Path, damage: Callable[[Path], None], told: str) -> None:
    damage(run)
    code, output = call("evaluate", run, "-q")
    assert code == 1 and output.startswith("error: ") and told in output and len(output.splitlines()) == 1


def test_runs_command_marks_damaged_run(run: Path) -> None:
    half_record(run)
    code, output = call("runs", run.parent)
    assert code == 0 and "damaged" in output


def test_features_of_wrong_width_raise(run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", names=np.array(["a"]), pooled=np.ones((1, 99), dtype=np.float32))
    code, output = call("evaluate", run, "--features", tmp_path / "wide.npz", "-q")
    assert code == 1 and "width 16" in output and "99" in output


def test_missing_features_error_names_option(run: Path, trained: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    record["data"]["features"] = str(run / "gone.npz")
    (run / "run.json").write_text(json.dumps(record))
    code, output = call("evaluate", run, "-q")
    assert code == 1 and "--features" in output
    assert call("evaluate", run, "--features", trained / "features.npz", "-q")[0] == 0


def test_missing_split_lists_existing_ones(run: Path) -> None:
    code, output = call("evaluate", run, "--split", "dev", "-q")
    assert code == 1 and "split 'dev'" in output and "test (8)" in output


def test_too_many_folds_raise(run: Path) -> None:
    code, output = call("evaluate", run, "--folds", "50", "-q")
    assert code == 1 and "folds" in output


def test_full_disk_raises_and_leaves_no_file(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, output = call("embed", run, "--out", tmp_path / "v.npz", "-q")
    assert code == 1 and "free space" in output
    assert not (tmp_path / "v.npz").exists() and not list(tmp_path.glob(".*"))


def test_other_os_errors_are_one_sentence(run: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    code, output = call("evaluate", run, "--json", tmp_path / "folder", "-q")
    assert code == 1 and output.startswith("error: ") and len(output.splitlines()) == 1


def test_a_message_names_settings_as_each_interface_spells_them() -> None:
    needs = Setting("attention", "True"), " or ", Setting("attention", "False"), ", not ", Setting("lr")
    error = RecipeError("word_dim needs ", *needs, " or ", Setting("elsewhere", "X"), field="word_dim")
    assert str(error) == "word_dim needs attention=True or attention=False, not lr or elsewhere=X"
    typed = "--word-dim needs --attention or --no-attention, not --lr or elsewhere=X"
    assert model_command(models()["ascl"]).spelt(error) == typed
