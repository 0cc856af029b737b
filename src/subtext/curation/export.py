"""The results of curation as files: the pairs that stay, all pairs with their reasons, and one page to look at them."""

from __future__ import annotations

import csv
import io
import tarfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.curation.copies import Copy
from subtext.curation.judged import Judged
from subtext.curation.kinds import KINDS
from subtext.data import atomic, write
from subtext.data.dataset import Items
from subtext.data.image_files import identify, read_bytes, thumbnail
from subtext.errors import DataError
from subtext.report.page import document
from subtext.text_helpers import counted, json_text

TAR = ".tar"
NUMBERS = (
    "rank", "mismatched", "loose", "literal", "alignment", "cosine", "agreement", "diversity_image", "diversity_text",
    "discrepancy_image", "discrepancy_text",
)  # fmt: skip
"""Columns by which the page can be sorted."""
MARKS = ("keep", "fix")
"""What can be marked of a pair."""
COPY_MARKS = ("keep", "drop")
"""What can be marked of a copy."""
VISIBLE = frozenset({"mismatched", "loose", "literal", "alignment", "cosine"})
"""Columns that every card shows; it folds the others."""

_STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")

_SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")

_TOOLS = Template(Path(__file__).with_suffix(".html").read_text(encoding="utf-8"))


def export(judgement: Judged, links: NDArray[np.int64], out: Path) -> None:
    """Write the chosen pairs to a file: .jsonl, .parquet, or .tar for WebDataset. Graded judgements are left out.

    Args:
        judgement: The pairs and their columns.
        links: Indices of the pairs to write.
        out: The new file.

    Raises:
        DataError: If the suffix is another, or no pair is left.
        OutputError: If it cannot be written.
    """
    if out.suffix not in (*write.SUFFIXES, TAR):
        raise DataError(f"an export needs a file that ends in {', '.join((*write.SUFFIXES, TAR))}; it got {out.name}")
    if not len(links):
        raise DataError("an export needs one pair or more; every pair was left out; drop for fewer reasons")
    if out.suffix == TAR:
        atomic.write_file(out, lambda path: _fill_tar(judgement, links, path))
    else:
        chosen = judgement.pairs.links[links]
        pairs = replace(judgement.pairs, links=chosen, judgements=None)
        write.write_dataset(pairs.subset(np.unique(chosen[:, 0]), np.unique(chosen[:, 1])), out)


def write_rows(judgement: Judged, why: Sequence[Sequence[str]], links: NDArray[np.int64], out: Path) -> None:
    """Write all columns of the chosen pairs and the reasons ("left_out"), a row per pair, as .jsonl or .parquet.

    Args:
        judgement: The pairs and their columns.
        why: Reasons of every pair.
        links: Indices of the pairs to write.
        out: The new file.
    """
    write.write_rows([{**judgement.row(link), "left_out": list(why[link])} for link in links.tolist()], out)


def _fill_tar(judgement: Judged, links: NDArray[np.int64], path: Path) -> None:
    """A sample per image: its bytes, its first text, and all columns of its pairs as JSON."""
    images = judgement.pairs.images
    links_of: dict[int, list[int]] = defaultdict(list)
    for link in links.tolist():
        links_of[int(judgement.pairs.links[link, 0])].append(link)
    with tarfile.open(path, "w") as tar:
        for number, (row, image_links) in enumerate(sorted(links_of.items())):
            value = images.values[row]
            if value is None:
                raise DataError(
                    f"a tar needs images; '{images.ids[row]}' is known by features alone; export to .jsonl or .parquet"
                )
            data = read_bytes(value, judgement.pairs.root)
            with identify(io.BytesIO(data), images.ids[row]) as image:
                suffix = f".{image.format}".lower().replace("jpeg", "jpg")
            facts = [judgement.row(link) for link in image_links]
            captions = [fact["caption"] for fact in facts]
            content = {
                "id": images.ids[row], "captions": captions, "split": facts[0]["split"],
                "text_ids": [fact["text"] for fact in facts], "pairs": facts,
            }  # fmt: skip
            for ending, member in (
                (suffix, data),
                (".txt", str(captions[0] or "").encode("utf-8", "surrogatepass")),
                (".json", json_text(content).encode()),
            ):
                # Without a time and an owner the same pairs give the same bytes.
                info = tarfile.TarInfo(f"{number:09d}{ending}")
                info.size = len(member)
                tar.addfile(info, io.BytesIO(member))


def page(
    judgement: Judged, why: Sequence[Sequence[str]], links: Sequence[int], *, title: str, lead: str,
    lines: Sequence[str],
) -> str:  # fmt: skip
    """Render pairs as one HTML document with images, texts and scores; it loads nothing, and escapes all texts.

    Args:
        judgement: The pairs and their columns.
        why: Of every pair the reasons to leave it out.
        links: The pairs on the page, in this order.
        title: Title of the page.
        lead: Sentence below the title.
        lines: The results, listed above the pairs.

    Returns:
        The document.
    """
    names = [name for name in NUMBERS if any(value is not None for value in judgement.columns.get(name, ()))]
    thumbnails: dict[int, str | None] = {}
    cards = []
    for link in links:
        row = int(judgement.pairs.links[link, 0])
        if row not in thumbnails:
            value = judgement.pairs.images.values[row]
            thumbnails[row] = None if value is None else thumbnail(value, judgement.pairs.root)
        cards.append(_card(judgement.row(link), why[link], thumbnails[row], names))
    named = [kind for kind in KINDS if any(own == kind for own in judgement.columns["kind"])]
    shown = [("all", "all"), *((kind, kind) for kind in named), ("out", "left out"), *_mark_choices(MARKS)]
    return _document(
        title, lead, lines, cards, second="text", shown=shown, numbers=[(name, _label(name)) for name in names]
    )


def copies_page(
    images: Items, root: Path, copies: Sequence[Copy], *, title: str, lead: str, lines: Sequence[str], most: int
) -> str:
    """Render copies beside the images that stay, as one HTML document like `page`.

    Args:
        images: The items.
        root: Folder of relative paths.
        copies: The copies, and mirror images.
        title: Title of the page.
        lead: Sentence below the title.
        lines: The results, listed above the copies.
        most: Copies that the page shows at most.

    Returns:
        The document.
    """
    cards = [_copy_card(images, root, copy) for copy in copies[:most]]
    kinds = list(dict.fromkeys(copy.kind for copy in copies[:most]))
    shown = [("all", "all"), *((kind, kind) for kind in kinds), *_mark_choices(COPY_MARKS)]
    numbers = [("number", "order"), ("pixels", "pixels")]
    return _document(title, lead, lines, cards, second="of", shown=shown, numbers=numbers)


def _copy_card(images: Items, root: Path, copy: Copy) -> str:
    """A copy, and the image that stays, as an item of the list."""
    names = images.ids[copy.row], images.ids[copy.of]
    both = "".join(
        _picture(name, None if (value := images.values[row]) is None else thumbnail(value, root))
        for name, row in zip(names, (copy.row, copy.of), strict=True)
    )
    split = f" · {images.splits[copy.row]} and {images.splits[copy.of]}"
    return (
        f'<li data-kind="{copy.kind}" data-number="{copy.row}" data-pixels="{copy.size[0] * copy.size[1]}" '
        f'{_marking(*names, "keep" if copy.kind == "mirrored" else "drop")}><div class="two">{both}</div>'
        f'<p>{_path(names[0])}</p><span class="kind">{copy.kind}</span><p class="facts">of {_path(names[1])}</p>'
        f'<span class="facts">{copy.size[0]} x {copy.size[1]}{escape(split)}</span>{_buttons(COPY_MARKS)}</li>'
    )


def _document(
    title: str,
    lead: str,
    lines: Sequence[str],
    cards: Sequence[str],
    *,
    second: str,
    shown: Sequence[tuple[str, str]],
    numbers: Sequence[tuple[str, str]],
) -> str:
    """A page of cards that can be sorted, filtered and marked."""
    options = "".join(f'<option value="{name.replace("_", "")}">{escape(label)}</option>' for name, label in numbers)
    kinds = "".join(f'<option value="{value}">{escape(label)}</option>' for value, label in shown)
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return document(
        title,
        [
            f"<header><h1>{escape(title)}</h1><p>{escape(lead)}</p>"
            f'<details id="results" open><summary>Results</summary><ul>{items}</ul></details></header><main>',
            _TOOLS.substitute(options=options, kinds=kinds),
            f'<ol class="pairs" id="pairs" data-second="{second}">{"".join(cards)}</ol></main>',
        ],
        style=_STYLE,
        script=_SCRIPT,
    )


def _mark_choices(marks: Sequence[str]) -> list[tuple[str, str]]:
    return [*((f"mark:{mark}", f"marked {mark}") for mark in marks), ("mark:", "not marked")]


def _marking(image: str, second: str, first: str = "") -> str:
    """Attributes of a card that can be marked; `first` is what it is marked before anybody has looked."""
    return f'data-image="{escape(image)}" data-second="{escape(second)}" data-first="{first}"'


def _buttons(marks: Sequence[str]) -> str:
    return "".join(
        [
            '<div class="marks">',
            *(f'<button type="button" data-mark="{mark}">{mark}</button>' for mark in marks),
            "</div>",
        ]
    )


def _picture(name: str, image: str | None) -> str:
    if image is None:
        return "<span class=gone>no image</span>"
    return f'<img src="{escape(image)}" alt="{escape(name)}" loading="lazy">'


def _path(text: str) -> str:
    """A path that may be broken behind its slashes."""
    return escape(text).replace("/", "/<wbr>")


def _card(row: dict[str, Any], why: Sequence[str], image: str | None, names: Sequence[str]) -> str:
    """One pair as an item of the list; `image` is a data URI."""
    scores = {name: row[name] for name in names if row[name] is not None}
    data = " ".join(
        f'data-{name.replace("_", "")}="{f"{scores[name]:.6f}" if name in scores else ""}"' for name in names
    )
    kind = row["kind"] or ""
    visible, folded = (
        " · ".join(f"{_label(name)} {score:.2f}" for name, score in scores.items() if name != kind and is_visible(name))
        for is_visible in (VISIBLE.__contains__, lambda name: name not in VISIBLE)
    )
    details = f"<details><summary>more</summary>{escape(folded)}</details>" if folded else ""
    out = f'<p class="out">left out: {escape("; ".join(why))}</p>' if why else ""
    copies = ["copies"] if row["image_copies"] >= 0 or row["text_copies"] >= 0 else []
    remarks = " · ".join([str(row["split"]), str(row["language"] or "und"), *row["flags"], *copies])
    return (
        f'<li class="{kind}" data-kind="{kind}" data-out="{int(bool(why))}" {data} '
        f"{_marking(row['image'], row['text'])}>"
        f"{_picture(row['image'], image)}<p>{escape(str(row['caption'] or row['text']))}</p>"
        f'<span class="kind">{escape(f"{kind} {row[kind]:.2f}" if kind else "")}</span>{out}'
        f'<div class="facts">{escape(visible)}{details}</div>'
        f'<span class="facts">{_path(str(row["image"]))} · {escape(remarks)}</span>{_buttons(MARKS)}</li>'
    )


def _label(name: str) -> str:
    """A column as a title, such as diversity_image as "diversity of the images"."""
    if name == "rank":
        return "fit"
    score, _, modality = name.partition("_")
    return f"{score} of the {modality}s" if modality else name


def refuse_other_marks(left: Mapping[tuple[str, str], str], kind: str, between: str) -> None:
    """Refuse marks that belong to other data.

    Args:
        left: Marks that fit nothing, as `read_marks` gives them.
        kind: What was marked: "pairs" or "copies".
        between: Words between the two ids of a mark.

    Raises:
        DataError: If there are some.
    """
    if left:
        first, second = next(iter(left))
        raise DataError(
            f"marks needs {kind} of this data; of {counted(len(left), 'other')}, the first is image {first!r} "
            f"{between} {second!r}; save the marks of a page of this data",
            field="marks",
        )


def read_marks(file: Path, second: str, marks: Sequence[str]) -> dict[tuple[str, str], str]:
    """The marks that a page has saved.

    Args:
        file: CSV with the columns "image", `second` and "mark".
        second: "text" of a pair, or "of" of a copy.
        marks: What may be marked.

    Returns:
        (image, second) -> mark.

    Raises:
        DataError: If it cannot be read, or has other columns or marks.
    """
    try:
        with file.expanduser().open(encoding="utf-8-sig", newline="") as opened:
            rows = list(csv.DictReader(opened))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise DataError(f"marks needs a CSV that the page has saved; {file} cannot be read: {problem}") from problem
    found = dict[tuple[str, str], str]()
    for number, row in enumerate(rows, start=2):
        if None in (image := row.get("image"), other := row.get(second), mark := row.get("mark")) or mark not in marks:
            raise DataError(
                f"marks needs the columns image, {second} and mark, which is {' or '.join(marks)}; line {number} of "
                f"{file} is otherwise; save the marks of the page again"
            )
        found[str(image), str(other)] = str(mark)
    return found
