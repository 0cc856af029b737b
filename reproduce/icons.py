"""The icons benchmark: images that stand for what their designers wrote, from six permissively licensed packages.

    npm pack lucide-static@1.62.0 @tabler/icons@3.51.0 @phosphor-icons/core@2.1.1 \
        @fortawesome/fontawesome-free@7.3.1 @carbon/icons@11.89.0 @primer/octicons@19.42.0
    python -m reproduce.icons build FOLDER --out icons
    python -m reproduce.icons describe icons --features features.npz --out icons/tags.html
    python -m reproduce.icons evaluate icons --runs dual-0,dual-1 --features features.npz --ratings ratings.csv

FOLDER has the .tgz files. `build` writes captions.jsonl (one text an icon: its tags without the words of its name),
images/, three sets of queries with human judgements in MTEB's form, and a card (README.md). `describe` says, before
any training, how far the weights of neighbourhoods are from uniform, and which tags are drawn most and least alike.
`evaluate` asks trained models the three kinds of queries, and those of one tag by how concrete it is.
Drawing needs resvg-py, FontAwesome's metadata pyyaml.
"""

from __future__ import annotations

import csv
import json
import re
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import hypergeom

import reproduce.readers  # noqa: F401  (registers the readers of the data sets that the papers use)
import subtext as st
from reproduce import topics
from reproduce.command import Text, command, group
from subtext.core import DIRECTIONS
from subtext.data import atomic
from subtext.data.feature_file import FeatureFile
from subtext.data.image_files import thumbnail
from subtext.errors import DataError, RequirementError
from subtext.evaluation.metrics import CWay, default_metrics
from subtext.graphs.build import GraphOptions, build_graph
from subtext.graphs.spaces import LsaSpace
from subtext.ops import draw
from subtext.ops.neighbour_scores import neighbour_scores
from subtext.report.page import Figure, HtmlPage, PageHit, PageSearch, PageSection, render
from subtext.report.progress import meter
from subtext.settings import Commas, Interval, Metavar

LEAST_TAGS = 3
"""Tags beyond the words of its name that an icon needs."""
_FORMS = """
a add alert arrow b bold bottom bolt broken c cancel center check circle code cog copy dash dashed dollar dot dots
dotted double down download duotone edit exclamation fill filled half heart in large left light line lines lock medium
mini minus new off on open out outline pause pin play plus question regular remove right round rounded search settings
share simple slash small solid square star stop subtract thin top up upload view warning x xl 0 1 2 3 4 5 6 7 8 9
"""
FORMS = frozenset(_FORMS.split())
"""Words of names that say how an icon is drawn, or what is added to another: they name no concept."""

Read = Callable[[str], bytes]
Drawn = tuple[str, Iterable[object], str]
"""Name of an icon, its tags, and the path of its drawing in the package."""


def _lucide(read: Read) -> Iterator[Drawn]:
    for name, tags in json.loads(read("tags.json")).items():
        yield name, tags, f"icons/{name}.svg"


def _tabler(read: Read) -> Iterator[Drawn]:
    for name, entry in json.loads(read("icons.json")).items():
        if entry.get("category") != "Brand":
            yield name, entry.get("tags") or (), f"icons/outline/{name}.svg"


_PHOSPHOR = re.compile(r'(?<![a-z_])name: "(?P<name>[^"]+)",(?P<body>.*?)tags: \[(?P<tags>[^\]]*)\]', re.DOTALL)


def _phosphor(read: Read) -> Iterator[Drawn]:
    for entry in _PHOSPHOR.finditer(read("dist/index.mjs").decode("utf-8")):
        if "BRAND" not in entry["body"]:
            # A tag with an asterisk is a note on the release.
            tags = [tag for tag in re.findall(r'"([^"]*)"', entry["tags"]) if not tag.startswith("*")]
            yield entry["name"], tags, f"assets/regular/{entry['name']}.svg"


def _fontawesome(read: Read) -> Iterator[Drawn]:
    try:
        import yaml
    except ImportError as problem:
        raise RequirementError("FontAwesome's metadata needs pyyaml; pip install pyyaml") from problem
    for name, entry in yaml.safe_load(read("metadata/icons.yml")).items():
        style = next((style for style in ("solid", "regular") if style in entry["styles"]), None)
        if style is not None:
            yield str(name), (entry.get("search") or {}).get("terms") or (), f"svgs/{style}/{name}.svg"


def _carbon(read: Read) -> Iterator[Drawn]:
    for entry in json.loads(read("metadata.json"))["icons"]:
        if not any(entry.get("namespace") or ()):
            yield entry["name"], entry.get("aliases") or (), f"svg/32/{entry['name']}.svg"


def _octicons(read: Read) -> Iterator[Drawn]:
    for name, entry in json.loads(read("build/data.json")).items():
        yield name, entry.get("keywords") or (), f"build/svg/{name}-24.svg"


@dataclass(frozen=True)
class IconSet:
    """A package: its short name here, the licence of its drawings, and how its tags are read."""

    name: str
    licence: str
    entries: Callable[[Read], Iterator[Drawn]]


SETS = {
    "lucide-static": IconSet("lucide", "ISC", _lucide),
    "@tabler/icons": IconSet("tabler", "MIT", _tabler),
    "@phosphor-icons/core": IconSet("phosphor", "MIT", _phosphor),
    "@fortawesome/fontawesome-free": IconSet("fontawesome", "CC BY 4.0", _fontawesome),
    "@carbon/icons": IconSet("carbon", "Apache-2.0", _carbon),
    "@primer/octicons": IconSet("octicons", "MIT", _octicons),
}


@dataclass(frozen=True)
class Icon:
    """An icon: its image, name, tags beyond its name, and the set and the concept that it belongs to."""

    image: str
    literal: str
    tags: tuple[str, ...]
    set: str
    concept: str
    svg: str

    @property
    def caption(self) -> str:
        """The tags as one text."""
        return ", ".join(self.tags)

    @property
    def id(self) -> str:
        """Its set and its file there."""
        return f"{self.set}/{self.image.removesuffix('.png').partition('--')[2]}"


def read_package(path: Path) -> tuple[str, str, list[Icon]]:
    """Name and version of an npm package of `SETS`, and its icons, whose concept is yet their name.

    Raises DataError for another package.
    """
    files: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            inner = member.name.partition("/")[2]
            if member.isfile() and Path(inner).suffix in (".json", ".yml", ".mjs", ".svg"):
                file = archive.extractfile(member)
                assert file is not None
                files[inner] = file.read()
    about = json.loads(files.get("package.json", b"{}"))
    if about.get("name") not in SETS:
        raise DataError(f"icons need packages of {', '.join(SETS)}; {path.name} is {about.get('name')!r}; remove it")
    icon_set = SETS[about["name"]]
    icons = []
    for name, tags, drawing in icon_set.entries(files.__getitem__):
        own = _words(name)
        kept = tuple(dict.fromkeys(" ".join(_words(tag)) for tag in tags if _says_more(_words(tag), own)))
        if len(kept) >= LEAST_TAGS and drawing in files:
            image = f"{icon_set.name}--{name}.png"
            icons.append(Icon(image, " ".join(own), kept, icon_set.name, "", files[drawing].decode("utf-8")))
    return about["name"], str(about["version"]), icons


def _words(text: object) -> list[str]:
    return re.findall(r"[a-z0-9]+", str(text).lower())


def _says_more(tag: Sequence[str], own: Sequence[str]) -> bool:
    """Whether a tag has words, says more than a form, and repeats no word of the icon's own that names something."""
    return bool(tag) and not set(tag) <= FORMS and not set(tag) & (set(own) - FORMS)


def with_concepts(icons: Sequence[Icon], drawings: Sequence[bytes]) -> list[Icon]:
    """The same with their concepts: of the words of a name that name something, the rarest over all names.

    "gavel" and "scale-gavel" are one concept, whichever set drew them. Icons of one drawing, and icons with the same
    tags, are of one concept, too, whose name is then the first of theirs.
    """
    named = [[word for word in icon.literal.split() if word not in FORMS] or icon.literal.split() for icon in icons]
    counts = Counter(word for words in named for word in set(words))
    first = [min(words, key=lambda word: (counts[word], word)) for words in named]
    leader = {concept: concept for concept in first}

    def lead(concept: str) -> str:
        while leader[concept] != concept:
            concept = leader[concept]
        return concept

    same: dict[object, str] = {}
    for icon, drawing, concept in zip(icons, drawings, first, strict=True):
        for mark in (drawing, frozenset(icon.tags)):
            joined = sorted((lead(same.setdefault(mark, concept)), lead(concept)))
            leader[joined[1]] = joined[0]
    return [Icon(**{**vars(icon), "concept": lead(concept)}) for icon, concept in zip(icons, first, strict=True)]


MOST_HELD_OUT = 0.02
"""Share of all icons beyond which a concept is never held out: numerals and arrows, which tags tie together."""


def splits_of(concepts: Sequence[str], seed: int) -> dict[str, str]:
    """Concept -> "train", "val" or "test" (80-10-10 of the concepts), a function of its name and the seed.

    concepts  of every icon; one of more than `MOST_HELD_OUT` of them is in train
    """
    counts = Counter(concepts)
    names = sorted(counts)
    drawn = draw.uniform(draw.keys(names), seed=seed, epoch=0, purpose="icons: splits")[:, 0]
    large = {name for name in names if counts[name] > max(1, MOST_HELD_OUT * len(concepts))}
    return {
        name: "train" if name in large or at >= 0.2 else "test" if at < 0.1 else "val"
        for name, at in zip(names, drawn, strict=True)
    }


KINDS = {
    "literal": "the name of an icon; right are icons of that name, and icons that have it as a tag",
    "tags": "all tags of an icon; right are icons with the same tags",
    "tag": "one tag; right are all icons that have it",
}
"""Kind of a query -> what it is, and the human truth about it."""


def queries(icons: Sequence[Icon], kind: str) -> dict[str, list[str]]:
    """Text of each query of a kind -> icons that are right."""
    right: dict[str, dict[str, None]] = defaultdict(dict)
    for icon in icons:
        texts = {"literal": [icon.literal], "tags": [icon.caption], "tag": icon.tags}[kind]
        for text in texts:
            right[text][icon.id] = None
    if kind == "literal":
        for icon in icons:
            for tag in icon.tags:
                if tag in right:
                    right[tag][icon.id] = None
    return {text: list(ids) for text, ids in right.items()}


def build(
    packages: Annotated[str | Path, "Folder of the .tgz files of `npm pack`.", Metavar("FOLDER")],
    *,
    out: Annotated[str | Path, "New folder.", Metavar("DIR")],
    side: Annotated[int, "Width and height of the images in pixels.", Interval(8)] = 96,
    seed: Annotated[int, "Seed of the splits."] = 0,
    quiet: Annotated[bool, "No progress."] = False,
) -> Text:
    """Build the icons benchmark from npm packages.

    Raises DataError without packages and for a folder that exists, RequirementError without resvg-py.
    """
    try:
        import resvg_py
    except ImportError as problem:
        raise RequirementError("drawing icons needs resvg-py; pip install resvg-py") from problem
    source, folder = Path(packages).expanduser(), Path(out).expanduser()
    files = sorted(source.glob("*.tgz"))
    if not files:
        raise DataError(f"icons need the .tgz files of `npm pack`; {source} has none; name their folder")
    if folder.exists():
        raise DataError(f"icons need a new folder; {folder} exists; name another or remove it")
    found = [read_package(file) for file in files]
    icons = [icon for _, _, own in found for icon in own]
    drawings = []
    with meter("drawing icons", len(icons), quiet=quiet) as progress:
        for done, icon in enumerate(icons, start=1):
            drawing = icon.svg.replace("currentColor", "#000")
            # No fonts: what is drawn must not depend on the machine.
            png = resvg_py.svg_to_bytes(
                svg_string=drawing, width=side, height=side, background="#ffffff", skip_system_fonts=True
            )
            drawings.append(bytes(png))
            progress(done)
    icons = with_concepts(icons, drawings)
    split_of = splits_of([icon.concept for icon in icons], seed)
    (folder / "images").mkdir(parents=True)
    for icon, png in zip(icons, drawings, strict=True):
        (folder / "images" / icon.image).write_bytes(png)
    rows = [
        {
            "image": icon.image,
            "id": icon.id,
            "captions": [icon.caption],
            "split": split_of[icon.concept],
            "literal": icon.literal,
            "tags": list(icon.tags),
            "set": icon.set,
            "concept": icon.concept,
        }
        for icon in icons
    ]
    _write_lines(folder / "captions.jsonl", rows)
    sizes = {}
    held_out = [icon for icon in icons if split_of[icon.concept] == "test"]
    for kind in KINDS:
        right = queries(held_out, kind)
        sizes[kind] = len(right)
        _write_queries(folder / f"queries-{kind}", held_out, right, "../images/")
    card = _card([(name, version, len(own)) for name, version, own in found], rows, sizes, side)
    atomic.write_text(folder / "README.md", card)
    counts = ", ".join(f"{split} {count:,}" for split, count in sorted(Counter(row["split"] for row in rows).items()))
    asked = ", ".join(f"{kind} {count:,}" for kind, count in sizes.items())
    return Text(f"{folder}: {len(rows):,} icons of {len(found)} sets ({counts}); test queries: {asked}")


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    atomic.write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _write_queries(folder: Path, icons: Sequence[Icon], right: Mapping[str, Sequence[str]], images: str = "") -> None:
    """Corpus, queries and judgements in MTEB's form; `images` is their folder, from this one."""
    (folder / "qrels").mkdir(parents=True)
    _write_lines(folder / "corpus.jsonl", ({"id": icon.id, "image": f"{images}{icon.image}"} for icon in icons))
    names = {text: f"q{number}" for number, text in enumerate(right)}
    _write_lines(folder / "queries.jsonl", ({"id": name, "text": text} for text, name in names.items()))
    lines = [f"{names[text]}\t{icon}\t1\n" for text, ids in right.items() for icon in ids]
    atomic.write_text(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\n" + "".join(lines))


def _card(
    packages: Sequence[tuple[str, str, int]], rows: Sequence[Mapping[str, Any]], sizes: Mapping[str, int], side: int
) -> str:
    table = "\n".join(
        f"| {SETS[name].name} | {name} {version} | {SETS[name].licence} | {count:,} |"
        for name, version, count in packages
    )
    splits = "\n".join(
        f"| {split} | {sum(row['split'] == split for row in rows):,} | "
        f"{len({row['concept'] for row in rows if row['split'] == split}):,} |"
        for split in ("train", "val", "test")
    )
    kinds = "\n".join(f"* `queries-{kind}`: {sizes[kind]:,} queries: {about}." for kind, about in KINDS.items())
    return f"""# Icons

{len(rows):,} icons of open-source sets, with the words that their designers wrote for what each stands for. A gavel:
"justice, law, court". The relation of image and text is mostly not literal, and people wrote it.

| set | package | licence of the drawings | icons |
|---|---|---|---|
{table}

Drawings and tags belong to the authors of these packages, under the licences above; CC BY 4.0 asks for attribution.
Brands are left out, since logos are trademarks, and icons with fewer than {LEAST_TAGS} tags beyond their name.

| split | icons | concepts |
|---|---|---|
{splits}

Splits are by concept, the rarest word of a name that names something: icons of one concept are in one split, whichever
set drew them, and so are icons of one drawing or with the same tags. A concept of more than 2 % of the icons (numerals)
is in train. Two concepts may share a tag, so a tag of a test
icon may occur in training; its drawing and its text do not.

Images are {side} x {side} pixels, black on white. A text is the tags of its icon without the words of its name
(`literal`).

Test queries, over the test icons, with human truth:

{kinds}

Limits: line drawings, which photographs' features know little of; short lists of tags in English; written by designers
of user interfaces for designers, so "justice" is a gavel and "settings" a cog. A tag that an icon does not have may
still fit it: the truth has gaps, and recall counts them as errors.
"""


MOST_SHOWN, IN_A_ROW, LEAST_ICONS = 8, 12, 10
"""Tags at either end of the gallery, icons of each, and icons that a tag needs."""


def describe(
    icons: Annotated[str | Path, "Folder of the benchmark.", Metavar("DIR")],
    *,
    features: Annotated[str | Path, "Features of the images that were not trained on them."],
    out: Annotated[str | Path | None, "Gallery of the most and least diverse tags as HTML.", Metavar("FILE")] = None,
    neighbours: Annotated[int, "Neighbours per text, by latent semantic analysis.", Interval(1)] = 200,
    seed: Annotated[int, "Seed of the batches."] = 0,
) -> Text:
    """Describe the weights of neighbourhoods on the training icons before any training.

    Raises DataError for fewer texts than neighbours and for images without features.
    """
    folder = Path(icons).expanduser()
    whole = st.read(folder / "captions.jsonl", images=folder / "images")
    vectors = topics.image_vectors(whole, FeatureFile.open(Path(features).expanduser()))
    pairs = whole.split("train")
    row_of = {name: row for row, name in enumerate(whole.images.ids)}
    images = vectors[[row_of[name] for name in pairs.images.ids]][pairs.links[np.argsort(pairs.links[:, 1]), 0]]
    space = LsaSpace(topics.TEXT_WIDTH, seed)
    lists = torch.from_numpy(build_graph(pairs, space, GraphOptions(neighbours, "all")).neighbours)
    texts = space(pairs, np.ones(len(pairs.texts), dtype=bool)).vectors
    scores = {
        side: neighbour_scores(torch.from_numpy(bank), lists) for side, bank in (("image", images), ("text", texts))
    }
    lines = [f"{len(pairs):,} training icons, {neighbours} neighbours by LSA of their tags; no training"]
    for score in ("diversity", "discrepancy"):
        image, text = (getattr(scores[side], score).numpy() for side in ("image", "text"))
        sizes = [topics.effective_size(image, text, w, seed=seed) for w in (topics.SHARP, topics.PUBLISHED)]
        lines.append(
            f"{score}: images {np.nanmean(image):.3f} (deviation {np.nanstd(image):.3f}), texts {np.nanmean(text):.3f} "
            f"({np.nanstd(text):.3f}); effective sample size {100 * sizes[0]:.1f} % of softmax(-20 x score of images), "
            f"{100 * sizes[1]:.1f} % of the default weights"
        )
    spread = tag_spread(pairs, images)
    order = sorted(spread, key=lambda tag: spread[tag])
    least, most = order[::-1][:MOST_SHOWN], order[:MOST_SHOWN]
    shown = [", ".join(f"{tag} {spread[tag]:.2f}" for tag in end) for end in (most, least)]
    lines += [f"most diverse tags (mean cosine of their icons): {shown[0]}", f"least diverse tags: {shown[1]}"]
    if out is not None:
        page = _gallery(pairs, spread, {"Most diverse tags": most, "Least diverse tags": least}, lines)
        atomic.write_text(Path(out).expanduser(), render(page))
        lines.append(f"gallery: {out}")
    return Text("\n".join(lines))


def tags_of(text: object) -> list[str]:
    """The tags of a text."""
    return str(text).split(", ")


def tag_spread(pairs: st.Dataset, images: np.ndarray) -> dict[str, float]:
    """Tag -> mean cosine between two of its icons, for tags of `LEAST_ICONS` icons or more; low is diverse."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(pairs.texts.values):
        for tag in tags_of(text):
            rows[tag].append(row)
    spread = {}
    for tag, own in rows.items():
        if len(own) >= LEAST_ICONS:
            total = images[own].sum(axis=0)
            # Of unit rows: all pairs of two different ones.
            spread[tag] = float((total @ total - len(own)) / (len(own) * (len(own) - 1)))
    return spread


def _gallery(
    pairs: st.Dataset, spread: Mapping[str, float], ends: Mapping[str, Sequence[str]], lines: Sequence[str]
) -> HtmlPage:
    image_of = dict(pairs.links[:, ::-1].tolist())
    sections = []
    for title, tags in ends.items():
        searches = []
        for tag in tags:
            own = [row for row, text in enumerate(pairs.texts.values) if tag in tags_of(text)][:IN_A_ROW]
            cards = [
                PageHit(
                    str(pairs.texts.values[row]),
                    spread[tag],
                    thumbnail(str(pairs.images.values[image_of[row]]), pairs.root),
                )
                for row in own
            ]
            searches.append(PageSearch(tag, cards, f"Mean cosine between two of its icons: {spread[tag]:.2f}."))
        sections.append(PageSection(title, "Icons whose tags have the word.", searches))
    figures = [Figure(tag, 100 * spread[tag], 0.0) for tags in ends.values() for tag in tags[:3]]
    return HtmlPage(
        title="Tags of the icons benchmark",
        lead=lines[0],
        verdict="; ".join(lines[1:3]),
        figures=figures,
        figures_text="Mean cosine between the icons of a tag, in per cent.",
        sections=sections,
        facts=[],
    )


AT, WAYS = 10, 20


def evaluate(
    icons: Annotated[str | Path, "Folder of the benchmark.", Metavar("DIR")],
    *,
    runs: Annotated[tuple[str, ...], "Trained models: one row with several seeds.", Commas(), Metavar("RUN,...")],
    features: Annotated[str | Path, "Features of the images that were not trained on them."],
    ratings: Annotated[
        str | Path | None, "Concreteness of words: a CSV with the columns Word and --column.", Metavar("FILE")
    ] = None,
    column: Annotated[str, "Column of the ratings."] = "Concreteness",
) -> Text:
    """Evaluate trained models on the test queries, by kind and by how concrete a tag is.

    Prints a table: the share of queries with a right icon among the first ten, and the exact share of right choices
    among 20, in which every right icon is a question of its own, so that queries with few and with many right ones
    compare. Tags are in three groups of one size, by their rating and, of those with ten icons or more, by the mean
    cosine between two of their icons in all splits.
    Raises DataError for ratings without these columns, images without features, and fewer tags than groups.
    """
    folder = Path(icons).expanduser()
    whole = st.read(folder / "captions.jsonl", images=folder / "images")
    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    held_out = [
        Icon(row["image"], row["literal"], tuple(row["tags"]), row["set"], row["concept"], "")
        for row in rows
        if row["split"] == "test"
    ]
    vectors = topics.image_vectors(whole, FeatureFile.open(Path(features).expanduser()))
    spread = tag_spread(whole, vectors[whole.links[np.argsort(whole.links[:, 1]), 0]])
    by_kind = {kind: queries(held_out, kind) for kind in KINDS}
    groups = {"cosine of icons": spread}
    if ratings is not None:
        groups = {"rated": read_ratings(Path(ratings).expanduser(), column), **groups}
    parts = {kind: np.ones(len(right), dtype=bool) for kind, right in by_kind.items()}
    for name, values in groups.items():
        of_tag = np.array([values.get(tag, np.nan) for tag in by_kind["tag"]])
        if np.isfinite(of_tag).sum() < 3:
            raise DataError(f"three groups of tags by '{name}' need three tags of test that have one; there are fewer")
        low, high = np.nanquantile(of_tag, (1 / 3, 2 / 3))
        parts[f"tag, {name} below {low:.2f}"] = of_tag < low
        parts[f"tag, {name} {low:.2f} to {high:.2f}"] = (of_tag >= low) & (of_tag < high)
        parts[f"tag, {name} {high:.2f} or more"] = of_tag >= high
    results = {kind: [_per_query(run, folder, held_out, right) for run in runs] for kind, right in by_kind.items()}
    measures = (f"recall@{AT}", f"{WAYS}_way@1")
    heads = [f"{way.replace('_', ' ')}: {measure}" for way in DIRECTIONS for measure in measures]
    lines = [f"| queries | number | chance of recall@{AT} | {' | '.join(heads)} |", "|---" * (len(heads) + 3) + "|"]
    for part, chosen in parts.items():
        kind = part.partition(",")[0]
        counts = np.array([len(ids) for ids in by_kind[kind].values()])[chosen]
        chance = 100 * np.mean(hypergeom.sf(0, len(held_out), counts, AT))
        cells = []
        for way, measure in product(DIRECTIONS, measures):
            by_run = [result[f"{way}/{measure}"] for result in results[kind]]
            means = [100 * float(np.mean(each[chosen] if way == "text_to_image" else each)) for each in by_run]
            # An icon is asked for all of its texts, so its questions have no groups.
            whole_only = way == "image_to_text" and part != kind
            cells.append("-" if whole_only else f"{np.mean(means):.1f} [{min(means):.1f}-{max(means):.1f}]")
        lines.append(f"| {part} | {len(counts):,} | {chance:.1f} | {' | '.join(cells)} |")
    return Text("\n".join(lines))


def read_ratings(path: Path, column: str) -> dict[str, float]:
    """Word in lower case -> rating; words without one are left out. Raises DataError for a file without the columns."""
    with path.open(encoding="utf-8", newline="") as opened:
        reader = csv.DictReader(opened)
        missing = {"Word", column} - set(reader.fieldnames or ())
        if missing:
            raise DataError(f"ratings need the columns Word and {column}; {path} has {reader.fieldnames}")
        return {row["Word"].lower(): float(row[column]) for row in reader if row[column]}


def _per_query(
    run: str, folder: Path, icons: Sequence[Icon], right: Mapping[str, Sequence[str]]
) -> Mapping[str, NDArray[Any]]:
    """What a model has on each query, and on each icon."""
    with TemporaryDirectory() as made:
        asked = Path(made) / "queries"
        _write_queries(asked, icons, right)
        result = st.evaluate(
            run,
            st.DataConfig(asked, images=folder / "images"),
            split="test",
            metrics=[*default_metrics(), CWay(WAYS)],
            protocol=st.Protocol(bootstrap=0),
            quiet=True,
        )
    return result.per_query


USAGE = "python -m reproduce.icons"
main = group(
    USAGE,
    "Build and describe the icons benchmark, and evaluate models on its queries.",
    [
        command(build, name="build", examples=[f"{USAGE} build packages --out icons"], usage="FOLDER --out DIR"),
        command(
            describe,
            name="describe",
            examples=[f"{USAGE} describe icons --features features.npz --out tags.html"],
            usage="DIR --features FILE [OPTIONS]",
        ),
        command(
            evaluate,
            name="evaluate",
            examples=[f"{USAGE} evaluate icons --runs dual-0,dual-1 --features features.npz"],
            usage="DIR --runs RUN,... --features FILE [OPTIONS]",
        ),
    ],
)

if __name__ == "__main__":
    main(prog_name=main.name)
