"""Flickr8k with grid features: models that compare regions with words, beside one that does not.

    SUBTEXT_DATA=... python -m reproduce.studies.regions --grid FILE --out DIR [--rows scan ascl ...] [--seeds 0 1 2]

FILE is an .npz with `names`, `pooled` and `grid` (images, cells, width). All rows share a width of 256, standardised
features, 32 pairs a step, one sampled caption of every image an epoch, and the same epochs; the last 200 train images
choose the epoch, and val is evaluated once a run. The rows are those of AsCL's tables and figure 3 and the papers'
other models, each with its paper's loss; losses on the hardest negative sum over all negatives for the first three
epochs, as some of these models learn nothing here otherwise. AsCL has 4 heads.
Under the table stands what AsCL's figures 4 and 5 show of its rows: alignment, uniformity, and recall by length; and
of the rows with DAA and those beside them the average semantic precision (ASP) under two relevances.
Everything is written below DIR, and the same call resumes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import subtext as st
from reproduce.studies.common import (
    HEAD,
    Recipe,
    averaged,
    data_folder,
    file_name,
    line,
    measure,
    options,
    selection,
)
from reproduce.studies.ranking import ASP_HEAD, RELEVANCES, asp_lines
from subtext.evaluation.metric import Measure
from subtext.evaluation.metrics import ASP, AlignmentUniformity, Recall, default_metrics

HELD_OUT = 200
WORDS: dict[str, Any] = {"text": "gru", "min_count": 2, "word_dim": 200, "feature_scaling": "standard"}
_COMMON: dict[str, Any] = {
    "embed_dim": 256,
    "batch_size": 32,
    "caption_sampling": "one",
    "optimiser": "adam",
    "lr": 5e-4,
    "schedule": "step",
    **WORDS,
}


def plain(model: str, **changes: Any) -> Recipe:
    """A model under the common options."""
    return Recipe(model, **{**_COMMON, **changes})


def hinge(model: str, **changes: Any) -> Recipe:
    """The same for a model whose loss takes the hardest negative."""
    return plain(model, **{"all_negatives_epochs": 3, **changes})


ASCL = plain("ascl", heads=4)
SAF, SGR = (hinge("sgraf", reasoning=reasoning, similarity_dim=64) for reasoning in ("saf", "sgr"))
EVERY_NEGATIVE = 1000
"""Epochs over all negatives, more than there are."""
ROWS = {
    "vse_infinity": hinge("vse_infinity"),
    "scan": hinge("scan"),
    "ascl": ASCL.but(methods=["asymmetry"]),
    "ascl w/o P&N": ASCL,
    "chan": hinge("chan"),
    "saf": SAF,
    "sgr": SGR,
    # Means and deviations at the published COCO settings; no averaged weights, which the other rows have none of.
    "pcme_plus": plain("pcme_plus", weight_average="none"),
    "pcme": plain("pcme"),
    "imram": hinge("imram"),
    "dsran": hinge("dsran"),
    "ascl w/o Pos": ASCL.but(methods=["asymmetry:positives=none"]),
    "ascl w/o Neg": ASCL.but(methods=["asymmetry:negatives=none"]),
    "ascl w/o MF": plain("ascl", attention=False, methods=["asymmetry"]),
    "ascl triplet": ASCL.but(loss="triplet", all_negatives_epochs=3, methods=["asymmetry"]),
    "ascl triplet, all negatives": ASCL.but(loss="triplet", all_negatives_epochs=EVERY_NEGATIVE, methods=["asymmetry"]),
    **{
        f"ascl, noise {name}": ASCL.but(methods=[f"asymmetry:negatives={name}"])
        for name in ("gaussian", "shuffle", "cutoff", "dropout")
    },
    "ascl, noise shuffle of vectors": ASCL.but(methods=["asymmetry:negatives=shuffle,shuffle=embedding"]),
    **{f"ascl, positives {name}": ASCL.but(methods=[f"asymmetry:positives={name}"]) for name in ("long", "short")},
    "scan + daa": hinge("scan", methods=["daa"]),
    "saf + daa": SAF.but(methods=["daa"]),
    "sgr + daa": SGR.but(methods=["daa"]),
    "pcme + daa": plain("pcme", methods=["daa"]),
    # Not their papers' loss: is it the hardest negative that these fail by?
    "scan, all negatives": hinge("scan", all_negatives_epochs=EVERY_NEGATIVE),
    "chan, all negatives": hinge("chan", all_negatives_epochs=EVERY_NEGATIVE),
    "saf, all negatives": SAF.but(all_negatives_epochs=EVERY_NEGATIVE),
    "sgr, all negatives": SGR.but(all_negatives_epochs=EVERY_NEGATIVE),
    "saf, all negatives + daa": SAF.but(all_negatives_epochs=EVERY_NEGATIVE, methods=["daa"]),
    "sgr, all negatives + daa": SGR.but(all_negatives_epochs=EVERY_NEGATIVE, methods=["daa"]),
}
MEANS = {
    "sgraf": ("saf", "sgr"),
    "sgraf + daa": ("saf + daa", "sgr + daa"),
    "sgraf, all negatives": ("saf, all negatives", "sgr, all negatives"),
}
"""Rows that average the runs of two others; these are trained first."""
RANKED = frozenset(row for name in ROWS if name.endswith(" + daa") for row in (name, name.removesuffix(" + daa")))
"""Rows with DAA, and the same without it."""


def space_lines(name: str, run: Path) -> list[str]:
    """Alignment and uniformity of a run's space on val, and its R@1 from texts by their length in words."""
    figures = json.loads(run.with_name(f"{run.name}-val.json").read_text(encoding="utf-8"))
    keys = ("alignment", "text/alignment", "image/uniformity", "text/uniformity", "text/uniformity_variance")
    lengths = {key: value for key, value in figures.items() if key.startswith("text_to_image/recall@1(words")}
    by_length = ", ".join(f"{key.partition('(')[2].rstrip(')')}: {value:.1f}" for key, value in lengths.items())
    return [name, *(f"  {key} {figures[key]:.4f}" for key in keys), f"  R@1 of texts by {by_length}"]


def main() -> None:
    """Train and evaluate the rows, and print the table."""
    parser = options(__doc__, rows=[*ROWS, *MEANS], seeds=[0])
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=8)
    config = parser.parse_args()
    folder = data_folder("flickr8k")
    config.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", config.out / "captions.jsonl", held_out=HELD_OUT)
    sources: dict[str, Any] = {"data": data, "images": folder / "images", "features": config.grid}
    plan: dict[str, Any] = {"epochs": config.epochs, "step_epochs": max(1, round(0.7 * config.epochs))}
    plan["val_split"] = "select"

    def run_of(name: str, seed: int) -> Path:
        run: Path = config.out / f"{file_name(name)}-{seed}"
        return run

    def result_of(name: str, seed: int) -> dict[str, Any]:
        if name in MEANS:
            for member in MEANS[name]:
                result_of(member, seed)
            return averaged(run_of(name, seed), [run_of(member, seed) for member in MEANS[name]])
        is_ascl = name.startswith("ascl")
        metrics: list[Measure] = [Recall(1, 5, 10, by_length=is_ascl), *default_metrics()[1:]]
        metrics += [AlignmentUniformity()] if is_ascl else []
        metrics += [ASP(relevance) for relevance in RELEVANCES if name in RANKED]
        evaluation = {"metrics": metrics, "config": st.ComputeConfig(cache=config.out / "relevance")}
        run = run_of(name, seed)
        return measure(run, ROWS[name], split="val", evaluation=evaluation, seed=seed, **sources, **plan)

    rows = []
    for name in config.rows:
        rows.append(line(name, [result_of(name, seed) for seed in config.seeds]))
        print("\n".join(["\nval\n", HEAD, *rows]), flush=True)
        if name.startswith("ascl"):
            print("\n".join(space_lines(name, run_of(name, config.seeds[0]))), flush=True)
        if name in RANKED:
            files = [run.with_name(f"{run.name}-val.json") for run in (run_of(name, seed) for seed in config.seeds)]
            figures = [{"val": json.loads(file.read_text(encoding="utf-8"))} for file in files]
            print("\n".join([*ASP_HEAD, *asp_lines(name, figures)]), flush=True)


if __name__ == "__main__":
    main()
