"""The curator's page in a browser: sorted, filtered by kind and words, nothing loaded, and clean to screen readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from subtext.curation.export import page
from subtext.curation.judged import Judged
from subtext.data.dataset import Dataset, Items

pytestmark = browser.needed
KINDS = ["mismatched", "literal", "loose", "literal"]
COSINES = [0.1, 0.9, 0.5, -0.2]


def judged() -> Judged:
    """Four pairs without pictures; one text is an attack."""
    rows = np.arange(4, dtype=np.int64)
    names, splits = [f"p{n}" for n in rows], np.array(["train"] * 4)
    captions = ["a dog", "a cat", "<script>document.title='broken'</script>", "a tree"]
    pairs = Dataset(
        Items(names, [None] * 4, rows, splits),
        Items([f"t{n}" for n in rows], list(captions), rows, splits),
        np.stack([rows, rows], axis=1),
        Path(),
    )
    likely = {kind: [0.9 if own == kind else 0.05 for own in KINDS] for kind in ("literal", "loose", "mismatched")}
    columns = {
        "image": names, "text": pairs.texts.ids, "caption": captions, "split": ["train"] * 4, "language": ["en"] * 4,
        "cosine": COSINES, "alignment": [-1.0, -2.0, -3.0, -4.0], **likely, "kind": KINDS, "agreement": [None] * 4,
        "image_copies": [-1] * 4, "text_copies": [-1, 0, 0, -1], "flags": [[], [], ["markup"], []],
    }  # fmt: skip
    return Judged(pairs, columns, {}, {}, image_groups=np.full(4, -1))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[object]:
    text = page(
        judged(),
        [["mismatched (0.90)"], [], [], []],
        [0, 1, 2, 3],
        title="Dataset",
        lead="Four of them.",
        lines=["one line"],
    )
    (tmp_path / "index.html").write_text(text, encoding="utf-8")
    with browser.started() as chromium:
        found = chromium.new_page()
        wrong: list[str] = []
        found.on("pageerror", lambda error: wrong.append(str(error)))
        found.on("console", lambda message: wrong.append(message.text))
        found.goto((tmp_path / "index.html").as_uri())
        yield found
        assert wrong == []


def shown(page) -> list[int]:
    told = page.eval_on_selector_all("#pairs > li:not([hidden])", "all => all.map(one => Number(one.dataset.cosine))")
    return [COSINES.index(value) for value in told]


def test_page_sorts_and_filters_pairs(opened) -> None:
    assert shown(opened)[0] == 0 and opened.title() == "Dataset", "mismatched first; the text runs nothing"
    opened.select_option("#by", "cosine")
    assert shown(opened) == [1, 2, 0, 3]
    opened.select_option("#way", "up")
    assert shown(opened) == [3, 0, 2, 1]
    opened.select_option("#kind", "literal")
    assert shown(opened) == [3, 1] and opened.inner_text("#count") == "2 of 4 shown"
    opened.select_option("#kind", "out")
    assert shown(opened) == [0]
    opened.select_option("#kind", "all")
    opened.fill("#words", "MARKUP")
    assert shown(opened) == [2]
    assert "agreement" not in opened.inner_text("#by"), "what nobody knows is not sorted by"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_accessible(opened, scheme) -> None:
    opened.emulate_media(color_scheme=scheme)
    found = Axe().run(opened).response["violations"]
    assert not found, [(one["id"], one["nodes"][0]["html"][:200]) for one in found]
