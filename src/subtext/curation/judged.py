"""Every pair of a data set with its scores, copies, leaks and flags, and the reasons to leave it out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from subtext.core import Embeddings
from subtext.curation.copies import HELD_OUT, find_copies, numbered, stays
from subtext.curation.kinds import (
    KINDS,
    ExchangeTest,
    Kinds,
    align,
    aligned,
    chance_links,
    exchange_test,
    kinds_of,
    near_links,
    surroundings,
)
from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset, Items
from subtext.data.image_files import open_image
from subtext.data.languages import language_of
from subtext.data.prepare import near_copies
from subtext.data.words import tokenise
from subtext.errors import DataError, RequirementError
from subtext.graphs.graph import Graph
from subtext.ops.roc import auc
from subtext.text_helpers import counted

Reason = Literal["mismatched", "copies", "leaks", "unusable", "flagged"]
FEWEST = 50
"""Pairs needed to estimate kinds: shares of fewer pairs are noise."""
TELLS = 0.7
"""Area under the curve of the pairs' alignments against those of random pairs, below which kinds are not reported.

A perfect model has more until 60 % of the pairs are mismatched: half of those lie above a random pair."""
MIN_WORDS = 6
"""Words from which equal texts of different images are copies: shorter texts fit many images."""
UNUSABLE = frozenset({"no words", "cannot be read"})
"""Flags of an item from which nothing can be learnt."""
SHORT, LONG = 3, 100
"""Words below and above which a text is flagged."""
SMALL = 64
"""Pixels of the shorter side below which an image is flagged."""
NARROW = 4.0
"""Longer side over shorter side above which an image is flagged."""
PLAIN = 4.0
"""Standard deviation of greys, of 255, below which an image is of one colour."""

SAYS_NOTHING = frozenset({"no words", "no title", "a file name"})
"""Flags of a text that says nothing of its image: no kind is named of its pairs."""
_NO_TITLE = re.compile(
    r"\W*(untitled|no title|without title|ohne titel|o\. ?t\.?|unbetitelt|titel unbekannt|sans titre|s\. ?t\.?|"
    r"senza titolo|"
    r"sin t[ií]tulo|sem t[ií]tulo|zonder titel|uden titel|utan titel|uten tittel|nimet[oö]n|bez tytu[lł]u|bez n[aá]zvu|"
    r"без названия|無題|无题|unknown|unbekannt|inconnu|n/?a)(\W*(no\.?|nr\.?|#)?\W*[\dIVX]*\W*)",
    re.IGNORECASE,
)
"""What stands where a title is missing, perhaps with a number."""
_ADDRESS = re.compile(r"https?://|www\.|\S+@\S+\.\w")
_MARKUP = re.compile(r"</?[a-z][a-z0-9]*\b[^>]*>|&[a-z]+;|\{\{|\]\]", re.IGNORECASE)
_FILE = re.compile(r"^\S+\.(jpe?g|png|gif|webp|tiff?|bmp|raw)$|^(img|dsc|image|photo)[_ -]?\d+$", re.IGNORECASE)


@dataclass(frozen=True)
class Judged:
    """Pairs with their columns.

    Attributes:
        pairs: The data set.
        columns: Name -> (L) values, one for each link of `pairs`.
        shares: Estimated shares of loose and mismatched pairs; empty where there are too few pairs.
        how: In words, how copies of texts and of images were detected.
        image_groups: (I) number of each image's group of copies, of images without a text, too; -1 for none.
        test: How well the order tells captions that were exchanged as a test; None where it tells nothing.
        mirrored: Images that mirror another one; they are no copies.
    """

    pairs: Dataset
    columns: dict[str, list[Any]]
    shares: dict[str, float]
    how: dict[str, str]
    image_groups: NDArray[np.int64]
    test: ExchangeTest | None = None
    mirrored: int = 0

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.pairs.links)

    def row(self, link: int) -> dict[str, Any]:
        """Get the columns of one pair.

        Args:
            link: Index of the pair.

        Returns:
            Name -> value.
        """
        return {name: values[link] for name, values in self.columns.items()}


def judge(
    pairs: Dataset,
    images: Embeddings,
    texts: Embeddings,
    *,
    graph: Graph | None = None,
    workers: int = 2,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Judged:
    """Compute the columns of the pairs of a data set.

    Args:
        pairs: The data set.
        images: Embeddings of its items, in their order.
        texts: See `images`.
        graph: Of its texts; without it there are no scores of neighbours, and no pair is called loose.
        workers: Threads that read images.
        seed: Seed of the samples.
        progress: Called with the number of images that were read.

    Returns:
        The pairs with their columns.

    Complexity:
        That of `align`, of reading every image, and time I^2 for copies among images.
    """
    scores, kinds, area = kinds_of_pairs(pairs, images, texts, graph=graph, seed=seed)
    order = np.argsort(scores["alignment"], kind="stable")
    scores["rank"] = (np.argsort(order) + 1).tolist()
    test = None if kinds is None else kinds.test
    if test is not None and not test.names_kinds:
        kinds = None
        scores |= {name: [None] * len(pairs.links) for name in (*KINDS, "kind")}
    if graph is not None:
        for name, column in surroundings(graph, pairs, images, texts).items():
            scores[name] = [None if np.isnan(value) else float(value) for value in column]
    for side, (modality, items) in enumerate((("image", images), ("text", texts))):
        if (uncertainty := items.uncertainty) is not None:
            scores[f"{modality}_uncertainty"] = uncertainty[torch.from_numpy(pairs.links[:, side])].tolist()
    found = find_copies(pairs.images, pairs.root, own_splits=pairs.own_splits, workers=workers, progress=progress)
    flags_of_images: list[list[str]] = [[] for _ in pairs.images.ids]
    same_images, later_images = found.groups, np.zeros(len(pairs.images), dtype=np.bool_)
    later_images[[copy.row for copy in found.copies]] = True
    if found.unread == len(pairs.images):
        how_images = "no image can be read: copies and flags of images are unknown"
    else:
        how_images = "difference hash of the image in four turns, confirmed by greys"
        flags_of_images = list(
            read_ahead(pairs.images.values, lambda value: image_flags(value, pairs.root), workers=workers)
        )
    same_texts, how_texts = text_copies(pairs)
    image_rows, text_rows = pairs.links.T
    paths, captions = (
        [value if isinstance(value, str) else None for value in items.values] for items in (pairs.images, pairs.texts)
    )
    flags_of_texts = [[] if caption is None else text_flags(caption) for caption in captions]
    languages = pairs.texts.metadata.get("language")
    if languages is None:
        languages = [None if caption is None else language_of(caption) for caption in captions]
    columns: dict[str, list[Any]] = {
        "image": [pairs.images.ids[row] for row in image_rows],
        "text": [pairs.texts.ids[row] for row in text_rows],
        "caption": [captions[row] for row in text_rows],
        "path": [paths[row] for row in image_rows],
        "split": [str(pairs.images.splits[row]) for row in image_rows],
        "language": [None if languages[row] is None else str(languages[row]) for row in text_rows],
        **scores,
        "image_copies": same_images[image_rows].tolist(),
        "text_copies": same_texts[text_rows].tolist(),
        "copy": (later_images[image_rows] & later(pairs.texts, same_texts)[text_rows]).tolist(),
        "leak": (leaks(pairs.images, same_images)[image_rows] | leaks(pairs.texts, same_texts)[text_rows]).tolist(),
        "flags": [[*flags_of_images[image], *flags_of_texts[text]] for image, text in pairs.links],
    }
    how = {"text copies": how_texts, "image copies": how_images}
    for link, flags in enumerate(columns["flags"]):
        if SAYS_NOTHING.intersection(flags):
            # What says nothing of an image is neither right nor wrong of it.
            for name in (*KINDS, "kind"):
                columns[name][link] = None
    if test is not None and kinds is None:
        how["kinds"] = (
            f"kinds of pairs are not named: of {counted(test.exchanged, 'caption')} that were exchanged as a test, "
            f"{test.called:,} would be called mismatched; look at the pairs in their order"
        )
    elif area is not None and kinds is None:
        how["kinds"] = cannot_judge(area)
    return Judged(pairs, columns, {} if kinds is None else kinds.shares, how, same_images, test, len(found.mirrored))


def kinds_of_pairs(
    pairs: Dataset, images: Embeddings, texts: Embeddings, *, graph: Graph | None, seed: int = 0
) -> tuple[dict[str, list[Any]], Kinds | None, float | None]:
    """Estimate the kind of each pair: literal, loosely aligned or mismatched.

    The last value is the area under the curve of the pairs against random ones, by their alignment: 0.5 for chance.

    With too few pairs for an estimate, all but the scores are None; with an area below `TELLS`, probabilities and
    shares are.

    Args:
        pairs: The data set.
        images: Embeddings (N K D) of the pairs.
        texts: See `images`.
        graph: Of the texts; None to ignore neighbours.
        seed: Seed of the samples.

    Returns:
        Name -> a value per link (cosine, alignment, probability of each kind, likeliest kind); the estimated shares;
        and the area under the curve of the pairs against random ones by their alignment, 0.5 for chance.
    """
    (cosine, alignment), candidates = align(pairs, images, texts, seed=seed)
    columns: dict[str, list[Any]] = {"cosine": cosine.tolist(), "alignment": alignment.tolist()}
    chance = chance_links(pairs, seed=seed)
    nothing: dict[str, list[Any]] = {name: [None] * len(pairs.links) for name in (*KINDS, "kind")}
    if len(pairs.links) < FEWEST or len(chance) < FEWEST:
        return columns | nothing, None, None
    vectors = images.vectors.float().numpy(), texts.vectors.float().numpy()
    constructed = [chance] if graph is None else [chance, near_links(graph, pairs, seed=seed)]
    references = [aligned(candidates, pairs, *vectors, links)[1] for links in constructed]
    truth = np.arange(len(alignment) + len(chance)) < len(alignment)
    area = auc(np.concatenate([alignment, references[0]]), truth)
    if area < TELLS:
        return columns | nothing, None, area
    kinds = kinds_of(alignment, *references)
    probabilities = [getattr(kinds, name) for name in KINDS]
    columns |= {name: column.tolist() for name, column in zip(KINDS, probabilities, strict=True)}
    kinds = replace(kinds, test=exchange_test(alignment, *references, seed=seed))
    return columns | {"kind": [KINDS[row] for row in kinds.likeliest]}, kinds, area


def cannot_judge(area: float) -> str:
    """Explain that a model cannot judge the pairs.

    Args:
        area: Area under the curve, below `TELLS`.

    Returns:
        A sentence.
    """
    return (
        f"the model cannot judge these pairs: a pair is better aligned than a random one in {100 * area:.0f} % of "
        f"cases ({100 * TELLS:.0f} % are needed, 50 % is chance), so kinds of pairs are not reported; use a model "
        "that reads the language of the texts and knows such images, or one trained on pairs of this kind"
    )


def left_out(judgement: Judged, drop: Sequence[Reason], *, least: float = 0.5) -> list[list[str]]:
    """List the reasons to leave pairs out.

    Args:
        judgement: The pairs and their columns.
        drop: Reasons that count.
        least: Probability of a mismatch from which a pair is left out.

    Returns:
        For each pair the reasons in words; an empty list for a pair that stays.
    """
    reasons: list[list[str]] = []
    for link in range(len(judgement)):
        pair = judgement.row(link)
        flags, wrong = set(pair["flags"]), pair["mismatched"]
        phrases: dict[Reason, str] = {
            "mismatched": f"mismatched ({wrong:.2f})" if wrong is not None and wrong >= least else "",
            "copies": "a copy of another pair" if pair["copy"] else "",
            "leaks": "has a copy in a held-out split" if pair["leak"] else "",
            "unusable": ", ".join(sorted(flags & UNUSABLE)),
            "flagged": ", ".join(sorted(flags - UNUSABLE)),
        }
        reasons.append([phrase for reason, phrase in phrases.items() if phrase and reason in drop])
    return reasons


def text_copies(pairs: Dataset) -> tuple[NDArray[np.int64], str]:
    """Group copies of texts of different images.

    Near copies by MinHash where datasketch is installed; else equal texts of `MIN_WORDS` words or more.

    Args:
        pairs: The data set.

    Returns:
        (T) the number of each text's group, -1 without a copy; and how copies were detected.
    """
    long = [isinstance(value, str) and len(tokenise(value)) >= MIN_WORDS for value in pairs.texts.values]
    first_of_group: dict[str, dict[int, int]] = defaultdict(dict)
    for row in np.flatnonzero(long).tolist():
        text = str(pairs.texts.values[row]).casefold()
        first_of_group[text].setdefault(int(pairs.texts.groups[row]), row)
    edges = [(min(rows.values()), row) for rows in first_of_group.values() for row in rows.values()]
    how = f"equal texts of {MIN_WORDS} words or more"
    if all(isinstance(value, str) for value in pairs.texts.values):
        try:
            copy_of = near_copies(pairs).copy_of
            edges += [(int(copy_of[row]), row) for row in np.flatnonzero(copy_of >= 0).tolist() if long[row]]
            how = f"texts of {MIN_WORDS} words or more that share 0.8 of their runs of three words (MinHash)"
        except RequirementError:
            how += "; near copies need datasketch"
    return numbered(len(pairs.texts), edges), how


def leaks(items: Items, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark items that have a copy in a held-out split other than their own; the held-out copy is no leak.

    Args:
        items: (N) images or texts.
        numbers: (N) number of each item's group of copies; -1 for none.

    Returns:
        (N) marks.
    """
    splits = np.array([str(split) for split in items.splits])
    leaked = np.zeros(len(items), dtype=np.bool_)
    for number in np.unique(numbers[numbers >= 0]):
        rows = np.flatnonzero(numbers == number)
        if held_out := next((name for name in HELD_OUT if (splits[rows] == name).any()), None):
            leaked[rows[splits[rows] != held_out]] = True
    return leaked


def later(items: Items, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark items that are a copy of one that stays: of a held-out one, else of the first.

    Args:
        items: (N) images or texts.
        numbers: (N) number of each item's group of copies; -1 for none.

    Returns:
        (N) marks.
    """
    has_copy = numbers >= 0
    has_copy[list(stays(items, numbers).values())] = False
    return has_copy


def text_flags(text: str) -> list[str]:
    """List the defects and oddities of a text.

    Args:
        text: The text.

    Returns:
        Their names.

    Example:
        >>> text_flags("IMG_1234"), text_flags("A dog runs along the beach.")
        (['a file name', 'short'], [])
    """
    words = tokenise(text)
    letters = [letter for letter in text if letter.isalpha()]
    checks = {
        "no words": not words,
        "no title": _NO_TITLE.fullmatch(text.strip()),
        "a file name": _FILE.search(text.strip()),
        "short": 0 < len(words) < SHORT,
        "long": len(words) > LONG,
        "an address": _ADDRESS.search(text),
        "markup": _MARKUP.search(text),
        "capitals": len(letters) > 10 and all(letter.isupper() for letter in letters),
        "repeats itself": len(words) >= 6 and len(set(words)) <= len(words) / 3,
    }
    return [flag for flag, applies in checks.items() if applies]


def image_flags(value: str | bytes | None, root: Path) -> list[str]:
    """List the defects and oddities of an image.

    Args:
        value: Path or bytes; None for an image with features only, which has no flags.
        root: Folder of relative paths.

    Returns:
        Their names.
    """
    if value is None:
        return []
    try:
        image = open_image(value, root)
    except DataError:
        return ["cannot be read"]
    short, long = sorted(image.size)
    greys = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.BOX), dtype=np.float32)
    checks = {"small": short < SMALL, "narrow": long > NARROW * max(1, short), "of one colour": greys.std() < PLAIN}
    return [flag for flag, applies in checks.items() if applies]
