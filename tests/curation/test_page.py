"""The curator's page in a browser: sorted, filtered by kind and words, nothing loaded, and clean to screen readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from subtext.curation.copies import Copy
from subtext.curation.export import COPY_MARKS, MARKS, copies_page, page, read_marks
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
        "cosine": COSINES, "alignment": [-1.0, -2.0, -3.0, -4.0], "rank": [4, 3, 2, 1],
        **likely, "kind": KINDS, "agreement": [None] * 4,
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
    assert shown(opened) == [3, 2, 1, 0] and opened.title() == "Dataset", "what fits worst first; the text runs nothing"
    opened.select_option("#by", "cosine")
    assert shown(opened) == [3, 0, 2, 1]
    opened.select_option("#way", "down")
    assert shown(opened) == [1, 2, 0, 3]
    opened.select_option("#way", "up")
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


LONG = "archive/2019-10-14_a_very_long_folder_name_without_any_space/negatives/box_0000000000000000000017/sheet"


@pytest.fixture
def long_page(tmp_path: Path) -> Iterator[object]:
    """Pairs, and copies, whose paths are longer than a card is wide."""
    found = judged()
    names = [f"{LONG}/{name}.tiff" for name in found.columns["image"]]
    found.columns["image"] = names
    pairs = found.pairs
    pairs.images.ids[:] = names
    text = page(found, [[], [LONG], [], []], [0, 1, 2, 3], title=LONG, lead=LONG, lines=[LONG])
    (tmp_path / "pairs.html").write_text(text, encoding="utf-8")
    copies = [Copy(1, 0, "resized", (640, 480)), Copy(2, 0, "rotated", (64, 48)), Copy(3, 2, "mirrored", (64, 48))]
    text = copies_page(pairs.images, Path(), copies, title=LONG, lead=LONG, lines=[LONG], most=10)
    (tmp_path / "copies.html").write_text(text, encoding="utf-8")
    with browser.started() as chromium:
        yield lambda name, width: opened_at(chromium, tmp_path / name, width)


def opened_at(chromium, file: Path, width: int):
    found = chromium.new_page(viewport={"width": width, "height": 900})
    found.goto(file.as_uri())
    return found


@pytest.mark.parametrize("width", [1366, 390])
@pytest.mark.parametrize("name", ["pairs.html", "copies.html"])
def test_long_paths_overlap_nothing(long_page, name: str, width: int) -> None:
    found = long_page(name, width)
    assert found.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = found.eval_on_selector_all(
        "#pairs > li, #pairs > li *:not(wbr)",
        """all => all.map(one => [one.closest('li'), one]).filter(([card, one]) => {
            const a = card.getBoundingClientRect(), b = one.getBoundingClientRect();
            return one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline'
              || b.left < a.left - 1 || b.right > a.right + 1 || b.bottom > a.bottom + 1;
        }).map(([, one]) => one.outerHTML.slice(0, 100))""",
    )
    assert not boxes
    cards = found.eval_on_selector_all(
        "#pairs > li", "all => all.map(one => one.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])"
    )
    for row, one in enumerate(cards):
        for other in cards[row + 1 :]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    assert not Axe().run(found).response["violations"]


def test_marks_are_kept_and_saved(opened, tmp_path: Path) -> None:
    first = opened.locator("#pairs > li").nth(0)
    first.get_by_role("button", name="fix").click()
    opened.locator("#pairs > li").nth(1).get_by_role("button", name="keep").click()
    assert opened.inner_text("#count") == "4 of 4 shown, 1 fix, 1 keep"
    opened.select_option("#kind", "mark:fix")
    assert opened.locator("#pairs > li:not([hidden])").count() == 1
    with opened.expect_download() as saved:
        opened.click("#save")
    saved.value.save_as(tmp_path / "marks.csv")
    assert sorted(read_marks(tmp_path / "marks.csv", "text", MARKS).values()) == ["fix", "keep"]
    opened.reload()
    assert opened.inner_text("#count") == "4 of 4 shown, 1 fix, 1 keep", "the browser keeps them"


def test_mirror_images_are_marked_to_stay(long_page, tmp_path: Path) -> None:
    copies = long_page("copies.html", 1366)
    with copies.expect_download() as saved:
        copies.click("#save")
    saved.value.save_as(tmp_path / "copies.csv")
    marks = read_marks(tmp_path / "copies.csv", "of", COPY_MARKS)
    assert list(marks.values()) == ["drop", "drop", "keep"], "a mirror image stays unless it is marked"
