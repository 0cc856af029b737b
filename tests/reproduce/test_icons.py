"""The icons benchmark, from made packages: what is read, which concepts are held out, and what is right for a query."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path

import made_data
import numpy as np
import pytest
from click.testing import CliRunner

import subtext as st
from reproduce import icons
from subtext.api.train import flat_arguments
from subtext.errors import DataError

resvg_py = pytest.importorskip("resvg_py")


def drawing(seed: int) -> str:
    """Squares that are another image for each seed, however it is turned."""
    cells = np.argwhere(np.random.default_rng(seed).random((8, 8)) < 0.5).tolist()
    squares = "".join(f"M{x} {y}h1v1h-1z" for x, y in cells)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><path d="{squares}" fill="currentColor"/></svg>'


def pack(folder: Path, package: str, files: dict[str, str]) -> None:
    """A file as `npm pack` writes it."""
    about = {"name": package, "version": "1.2.3"}
    path = folder / f"{package.strip('@').replace('/', '-')}-1.2.3.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {"package.json": json.dumps(about), **files}.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


JUSTICE = ["justice", "law", "court"]
PHOSPHOR = """
const icons = [
  {name: "gavel", pascal_name: "Gavel", categories: ["OBJECTS"], tags: ["*new*", "court", "law", "verdict", "Gavel"]},
  {name: "logo", pascal_name: "Logo", categories: ["BRAND"], tags: ["brand", "company", "sign"]},
]
"""
YAML = """
hammer:
  styles: [solid]
  search: {terms: [tool, repair, build]}
github:
  styles: [brands]
  search: {terms: [octocat, code, brand]}
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    lucide = {
        "gavel": JUSTICE,
        "gavel-off": [*JUSTICE, "gavel", "off"],
        "acorn": ["savings", "nut", "seed"],
        "few": ["one"],
    }
    extra = {f"thing{n}": [f"tag{n}", f"word{n}", "shared"] for n in range(40)}
    pack(
        folder,
        "lucide-static",
        {"tags.json": json.dumps(lucide | extra)}
        | {f"icons/{name}.svg": drawing(seed) for seed, name in enumerate(lucide | extra)},
    )
    tabler = {
        # Drawn as lucide's acorn: one concept with it, under another name.
        "oak-fruit": {"category": "Nature", "tags": ["tree", "autumn", "forest"]},
        "brand-x": {"category": "Brand", "tags": ["a1", "b1", "c1"]},
        "undrawn": {"category": "Nature", "tags": ["k1", "l1", "m1"]},
    }
    drawn = {"icons/outline/oak-fruit.svg": drawing(2), "icons/outline/brand-x.svg": drawing(60)}
    pack(folder, "@tabler/icons", {"icons.json": json.dumps(tabler), **drawn})
    pack(folder, "@phosphor-icons/core", {"dist/index.mjs": PHOSPHOR, "assets/regular/gavel.svg": drawing(70)})
    pack(folder, "@fortawesome/fontawesome-free", {"metadata/icons.yml": YAML, "svgs/solid/hammer.svg": drawing(80)})
    carbon = {"icons": [{"name": "scales", "namespace": [""], "aliases": ["balance", "weight", "law"]}]}
    pack(folder, "@carbon/icons", {"metadata.json": json.dumps(carbon), "svg/32/scales.svg": drawing(90)})
    octicons = {"law": {"keywords": ["legal", "balance", "license"]}}
    pack(folder, "@primer/octicons", {"build/data.json": json.dumps(octicons), "build/svg/law-24.svg": drawing(100)})
    return folder


@pytest.fixture(scope="module")
def built(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("icons") / "out"
    icons.build(packages, out=out, side=16, quiet=True)
    return out


def rows(folder: Path) -> dict[str, dict]:
    return {row["id"]: row for row in map(json.loads, (folder / "captions.jsonl").read_text().splitlines())}


def test_icon_tags_exclude_words_of_their_names(built: Path) -> None:
    found = rows(built)
    assert len(found) == 3 + 40 + 1 + 1 + 1 + 1 + 1
    assert not {"lucide/few", "tabler/brand-x", "tabler/undrawn", "phosphor/logo", "fontawesome/github"} & found.keys()
    assert found["lucide/gavel"]["captions"] == ["justice, law, court"] == found["lucide/gavel-off"]["captions"]
    assert found["phosphor/gavel"]["tags"] == ["court", "law", "verdict"]
    assert found["octicons/law"]["literal"] == "law" and found["fontawesome/hammer"]["tags"] == [
        "tool",
        "repair",
        "build",
    ]
    report = st.check_dataset(built / "captions.jsonl", images=built / "images", verify=True, quiet=True)
    assert not report.leaks and "usable: for training" in str(report)
    card = (built / "README.md").read_text()
    assert "| phosphor | @phosphor-icons/core 1.2.3 | MIT | 1 |" in card and "Limits:" in card


def test_concept_is_in_one_split(built: Path) -> None:
    """By name, by drawing, and by tags."""
    found = rows(built)
    assert (
        found["lucide/gavel"]["concept"] == found["lucide/gavel-off"]["concept"] == found["phosphor/gavel"]["concept"]
    )
    assert found["lucide/acorn"]["concept"] == found["tabler/oak-fruit"]["concept"]
    split_of: dict[str, set[str]] = {}
    for row in found.values():
        split_of.setdefault(row["concept"], set()).add(row["split"])
    assert all(len(splits) == 1 for splits in split_of.values())
    assert {row["split"] for row in found.values()} == {"train", "val", "test"}
    assert icons.splits_of(["often"] * 50 + [f"c{n}" for n in range(99)], 0)["often"] == "train"


def test_every_icon_with_the_word_is_relevant() -> None:
    def icon(name: str, *tags: str) -> icons.Icon:
        return icons.Icon(f"s--{name}.png", name, tags, "s", name, "")

    some = [icon("gavel", "law", "court"), icon("law", "book", "court"), icon("scales", "law", "weight")]
    assert icons.queries(some, "tag")["court"] == ["s/gavel", "s/law"]
    assert icons.queries(some, "literal") == {
        "gavel": ["s/gavel"],
        "law": ["s/law", "s/gavel", "s/scales"],
        "scales": ["s/scales"],
    }
    assert icons.queries(some, "tags")["law, court"] == ["s/gavel"]


def test_queries_are_read_with_judgements(built: Path) -> None:
    held_out = [row for row in rows(built).values() if row["split"] == "test"]
    pairs = st.read(built / "queries-tag")
    assert len(pairs.images) == len(held_out)
    truth = {(pairs.texts.values[text], pairs.images.ids[image]) for image, text in pairs.links.tolist()}
    assert truth == {(tag, row["id"]) for row in held_out for tag in row["tags"]}
    assert pairs.judgements is not None and len(pairs.judgements.scores) == len(truth)


def test_weights_are_described_before_training(built: Path, tmp_path: Path) -> None:
    names = [row["image"] for row in rows(built).values()]
    vectors = np.random.default_rng(0).normal(size=(len(names), 6)).astype(np.float32)
    np.savez(tmp_path / "features.npz", names=names, pooled=vectors)
    told = CliRunner().invoke(
        icons.main,
        [*f"describe {built} --features {tmp_path}/features.npz --neighbours 5 --out {tmp_path}/tags.html".split()],
        catch_exceptions=False,
    )
    assert told.exit_code == 0, told.output
    assert "diversity: images" in told.output and "% of the default weights" in told.output
    assert "most diverse tags (mean cosine of their icons): shared" in told.output
    assert "shared" in (tmp_path / "tags.html").read_text()
    pairs = st.read(built / "captions.jsonl", images=built / "images").split("train")
    same = np.tile([[1.0, 0.0]], (len(pairs.texts), 1))
    assert icons.tag_spread(pairs, same) == {"shared": pytest.approx(1.0)}


WORDS = ("law", "sea", "tree", "war", "peace", "time", "money", "trust", "risk", "luck")


def test_models_are_evaluated_by_query_kind_and_concreteness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(icons, "AT", 1)
    monkeypatch.setattr(icons, "WAYS", 2)
    monkeypatch.setattr(icons, "LEAST_ICONS", 2)
    random = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    drawn = []
    for number in range(40):
        tags = [str(word) for word in random.choice(WORDS, 3, replace=False)]
        name = {
            "image": f"s--i{number}.png",
            "id": f"s/i{number}",
            "literal": f"thing{number}",
            "concept": f"c{number}",
        }
        (tmp_path / "images" / name["image"]).write_bytes(b"drawing")
        split = "train" if number < 24 else "test"
        drawn.append({**name, "captions": [", ".join(tags)], "tags": tags, "set": "s", "split": split})
    made_data.write_rows(tmp_path / "captions.jsonl", drawn)
    features = tmp_path / "features.npz"
    vectors = random.normal(size=(len(drawn), 6)).astype(np.float32)
    np.savez(features, names=[row["image"] for row in drawn], pooled=vectors)
    runs = [str(tmp_path / f"run-{seed}") for seed in (0, 1)]
    data = {"data": tmp_path / "captions.jsonl", "features": features, "val_split": "none"}
    data["images"] = tmp_path / "images"
    for seed, run in enumerate(runs):
        st.train(
            "dual",
            **flat_arguments(
                "dual", {**data, "text": "bag", "min_count": 1, "epochs": 1, "seed": seed, "out": run, "quiet": True}
            ),
        )
    held_out = [row for row in drawn if row["split"] == "test"]
    asked = {tag for row in held_out for tag in row["tags"]}
    rated = {tag: float(at) for at, tag in enumerate(sorted(asked))}
    ratings = tmp_path / "ratings.csv"
    ratings.write_text("Word,Rating,Other\n" + "".join(f"{tag.upper()},{at},\n" for tag, at in rated.items()))

    words = {"runs": runs, "features": features, "ratings": ratings}
    told = icons.evaluate(tmp_path, **words, column="Rating").text
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.split("\n")]
    table = {cells[0]: cells[1:] for cells in lines}
    low, high = np.quantile([*rated.values()], (1 / 3, 2 / 3))
    groups = {
        "tag": [*rated],
        f"tag, rated below {low:.2f}": [tag for tag, at in rated.items() if at < low],
        f"tag, rated {low:.2f} to {high:.2f}": [tag for tag, at in rated.items() if low <= at < high],
        f"tag, rated {high:.2f} or more": [tag for tag, at in rated.items() if at >= high],
    }
    assert [*table][2:8] == ["literal", "tags", *groups] and len(table) == 2 + 3 + 2 * 3
    expected = [plain_loop(run, held_out, tmp_path, features) for run in runs]
    for group, own in groups.items():
        assert table[group][0] == str(len(own))
        for measure, cell in enumerate(table[group][-2:]):
            means = [np.mean([100 * by_tag[tag][measure] for tag in own]) for by_tag in expected]
            shown = [float(number) for number in re.findall(r"[\d.]+", cell)]
            assert shown == pytest.approx([np.mean(means), min(means), max(means)], abs=0.051), (group, measure)
    right = [sum(tag in row["tags"] for row in held_out) for tag in rated]
    assert float(table["tag"][1]) == pytest.approx(100 * np.mean(right) / len(held_out), abs=0.051)

    fields = r"\['Word', 'Rating', 'Other'\]"
    with pytest.raises(DataError, match=rf"ratings need the columns Word and Missing; .* has {fields}"):
        icons.evaluate(tmp_path, **words, column="Missing")
    with pytest.raises(DataError, match="three groups of tags by 'rated' need three tags of test"):
        icons.evaluate(tmp_path, **words, column="Other")


def plain_loop(run: str, held_out: list[dict], tmp_path: Path, features: Path) -> dict[str, tuple[float, float]]:
    """Tag -> whether a right icon is first, and the share of wrong icons that a right one is above, mean of these."""
    asked, out = tmp_path / "asked.jsonl", Path(f"{run}.npz")
    made_data.write_rows(asked, [{"image": row["image"], "captions": row["tags"]} for row in held_out])
    st.embed(run, data=asked, images=tmp_path / "images", features=features, split="all", out=out, quiet=True)
    tags = [tag for row in held_out for tag in row["tags"]]
    with np.load(out) as file:
        images, texts = file["image_vectors"], dict(zip(tags, file["text_vectors"], strict=True))
    found = {}
    for tag, vector in texts.items():
        scores = images @ vector
        right = np.array([tag in row["tags"] for row in held_out])
        above = [score > other for score in scores[right] for other in scores[~right]]
        found[tag] = float(scores[right].max() > scores[~right].max()), float(np.mean(above))
    return found


def test_invalid_packages_or_folders_raise(packages: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"icons need the .tgz files of `npm pack`"):
        icons.build(tmp_path, out=tmp_path / "out")
    pack(tmp_path, "left-pad", {})
    with pytest.raises(DataError, match=r"icons need packages of .*; left-pad-1.2.3.tgz is 'left-pad'"):
        icons.build(tmp_path, out=tmp_path / "out")
    with pytest.raises(DataError, match="icons need a new folder"):
        icons.build(packages, out=tmp_path)
