"""The study of soft labels: its settings, its intervals, its page from its figures, and a small run."""

from __future__ import annotations

import json
from pathlib import Path

import made_data
import numpy as np
import pytest
from PIL import Image

import subtext as st
from reproduce.studies import soft_labels
from reproduce.studies.soft_labels import PARTS, Judged, apart, method, page, settings, spaced
from subtext.recipes.catalogue import methods, read_method

ROOT = Path(__file__).parents[2]


def test_page_is_made_from_the_figures() -> None:
    """Every number of the page is in the file of figures."""
    result = json.loads((ROOT / "reproduce" / "results" / "soft_labels.json").read_text(encoding="utf-8"))
    written = (ROOT / "reproduce" / "notes" / "soft_labels.md").read_text(encoding="utf-8")
    assert written == page(result), "copy DIR/soft_labels.md of the study beside its figures"
    assert result["soft labels"] and result["interpolation"]


def test_settings_are_valid_and_at_both_published_scales(tmp_path: Path) -> None:
    files = [tmp_path / "images.npz", tmp_path / "texts.npz"]
    for row in PARTS:
        for setting in settings():
            name, options = read_method(method(row, setting, files))
            methods()[name].arguments(options)
    _, plain = read_method(method("both", "x 1, 0.45, 1", files))
    _, coded = read_method(method("both", "x 256, 0.45, 1", files))
    assert [float(plain[name]) for name in ("weight", "within_weight")] == [0.1, 0.5]
    assert [float(coded[name]) for name in ("weight", "within_weight")] == pytest.approx([25.6, 128.0])
    assert soft_labels.HOST.options["batch_size"] == 256, "by which the released code divides once more"
    assert float(read_method(method("across", "x 256, 0.1, 0.1", files))[1]["within_weight"]) == 0
    assert float(read_method(method("within", "x 256, 0.1, 0.1", files))[1]["weight"]) == 0


def test_training_images_are_evenly_spaced(tmp_path: Path) -> None:
    rows = [{"image": f"{number}", "split": "val" if number == 3 else "train"} for number in range(11)]
    made_data.write_rows(tmp_path / "all.jsonl", rows)
    lines = spaced(tmp_path / "all.jsonl", tmp_path / "few.jsonl", 4).read_text().splitlines()
    assert [json.loads(line)["image"] for line in lines] == ["0", "3", "4", "7", "10"]
    assert (
        spaced(tmp_path / "all.jsonl", tmp_path / "few.jsonl", 99).read_text() == (tmp_path / "all.jsonl").read_text()
    )


def test_interval_is_by_t_over_seeds() -> None:
    mean, half = apart([3.0, 5.0, 4.0], [2.0, 2.0, 2.0])
    assert mean == 2.0 and half == pytest.approx(4.302653 * 1.0 / 3**0.5, rel=1e-6)
    assert apart([1.0], [0.0]) == (1.0, float("inf"))


@pytest.mark.slow
def test_rows_are_searched_then_trained_and_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made_data.write(tmp_path / "data" / "openstax")
    folder = tmp_path / "data" / "openstax"
    (folder / "pairs.jsonl").rename(folder / "captions.jsonl")
    for number, line in enumerate((folder / "captions.jsonl").read_text().splitlines()):
        Image.new("RGB", (16, 16), (4 * number, 9, 9)).save(folder / json.loads(line)["image"])
    monkeypatch.setenv("SUBTEXT_DATA", str(tmp_path / "data"))
    rng = np.random.default_rng(0)

    def vectors(teacher: str, pairs: st.Dataset) -> np.ndarray:
        assert teacher == "starter"
        return rng.standard_normal((len(pairs.images), 8)).astype(np.float32)

    def of_texts(teacher: str, pairs: st.Dataset) -> np.ndarray:
        return rng.standard_normal((len(pairs.texts), 6)).astype(np.float32)

    monkeypatch.setattr(soft_labels, "image_vectors", vectors)
    monkeypatch.setattr(soft_labels, "text_vectors", of_texts)
    monkeypatch.setattr(soft_labels, "RATES", (1e-3,))
    monkeypatch.setattr(soft_labels, "SCALES", (1, 16))
    monkeypatch.setattr(soft_labels, "TEMPERATURES", {"0.1, 0.1": (0.1, 0.1)})
    monkeypatch.setattr(soft_labels, "NEIGHBOURS", {"openstax": 3})
    monkeypatch.setattr(soft_labels, "HOST", soft_labels.HOST.but(epochs=1, embed_dim=8, batch_size=16))
    found = Judged("openstax", tmp_path / "out").judge([0])
    assert set(found["rows"]) == {"host", *PARTS}
    for row, own in found["rows"].items():
        tried = own["tried"]
        assert set(tried) == (set() if row == "host" else set(settings()))
        assert not tried or own["setting"] == max(tried, key=tried.get)
        assert set(own["runs"][0]) > {"selecting", "rsum", "asp", "kept"}
    assert not [path for path in (tmp_path / "out" / "openstax").iterdir() if (path / "run.json").is_file()]
    monkeypatch.setattr(Judged, "_run", lambda *_: pytest.fail("a finished run is read"))
    assert Judged("openstax", tmp_path / "out").judge([0]) == found
    said = page({"soft labels": {"openstax": found}, "interpolation": {}})
    assert "## openstax, test" in said and f"{found['rows']['both']['runs'][0]['rsum']:.1f} [" in said
