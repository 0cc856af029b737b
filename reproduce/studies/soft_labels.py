"""What soft labels of two frozen teachers add to a dual encoder, and what weight interpolation keeps of `adapt`.

    SUBTEXT_DATA=... python -m reproduce.studies.soft_labels --out DIR [--rows PART ...] [--seeds 0 1 2]

Soft labels: `dual` on frozen vectors of the starter towers, which are the teachers, too. Its rate is chosen among
four. Each row then has the same search over weights and temperatures with the first seed, by the split that chooses:
of Flickr8k the last 500 training images, of the others val. Reported are Flickr8k's val, and the test splits of the
others. 1,000 of Flickr8k's and 3,000 of the icons' training images train, evenly spaced; with --all, all of them. The
weights are the published ones, and those times the size of the batch, by which the released code divides the other loss
once more; temperatures 0.1, or the published 0.45 (not learnt here) and 1.

    both       targets between and within the modalities (Huang et al. 2024)
    across     targets between images and texts alone
    within     targets within each modality alone
    permuted   both, where each item has the teacher of another: the same permutation for every seed
    flat       both, where no two items are alike

Interpolation: `adapt --model starter` on OpenStax and on icons, and `subtext interpolate` with Flickr8k's val as the
general set. A finished run leaves a file of some kilobytes; the same call does what is left. DIR/soft_labels.json has
every figure, and DIR/soft_labels.md is the page made from it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

import subtext as st
from reproduce.studies.common import NAMES, Recipe, best, data_folder, options, selection
from reproduce.studies.starter import DATA, HELD_OUT, once, trained
from subtext.api.interpolate import scale_updates
from subtext.api.train import flat_arguments
from subtext.evaluation import evaluate_model
from subtext.evaluation.metrics import metrics_of
from subtext.recipes.methods.soft_labels.teachers import image_vectors, text_vectors

HOST = Recipe("dual", text_mlp=True, embed_dim=256, batch_size=256, epochs=12)
RATES = (1e-3, 2e-3, 4e-3, 8e-3)
ACROSS, WITHIN = 0.1, 0.5
"""Published weights of the host CLIP."""
SCALES = (1, 256)
TEMPERATURES = {"0.1, 0.1": (0.1, 0.1), "0.45, 1": (0.45, 1.0)}
"""Of the model's cosines and of the teachers'."""
PARTS = {"both": (1, 1, "none"), "across": (1, 0, "none"), "within": (0, 1, "none")} | {
    control: (1, 1, control) for control in ("permuted", "flat")
}
"""Row -> whether it has targets across and within modalities, and its control."""
CONTROLS = ("permuted", "flat")
NEIGHBOURS = {"flickr8k": 200, "openstax": 20, "icons": 50}
LIMITS = {"flickr8k": 1000, "icons": 3000}
"""Training images, unless all are asked for."""
INTERPOLATION = "adapt-"
ARCHIVES, GENERAL = ("openstax", "icons"), "flickr8k"
SHOWN = {"rsum": "rsum", "ASP": "asp", "kept neighbours": "kept"}


def settings() -> dict[str, tuple[int, str]]:
    """Name -> scale of the weights and temperatures, of everything that a row is searched over."""
    return {f"x {scale}, {name}": (scale, name) for scale in SCALES for name in TEMPERATURES}


def method(row: str, setting: str, teachers: Sequence[Path]) -> str:
    """A row of this setting as `subtext.train` takes methods."""
    across, within, control = PARTS[row]
    scale, (own, theirs) = settings()[setting][0], TEMPERATURES[settings()[setting][1]]
    given = {
        "weight": across * ACROSS * scale,
        "within_weight": within * WITHIN * scale,
        "temperature": own,
        "teacher_temperature": theirs,
        "control": control,
    }
    if control != "flat":
        given |= {"image_teacher": teachers[0], "text_teacher": teachers[1]}
    return "soft_labels:" + ",".join(f"{name}={value}" for name, value in given.items())


class Judged:
    """Soft labels on one data set: trainings, each a small file of figures."""

    def __init__(self, name: str, out: Path, limit: int | None = None) -> None:
        self.name, self.place = name, out / name
        self.place.mkdir(parents=True, exist_ok=True)
        folder = data_folder(name)
        images, self.chosen, self.reported = DATA[name]
        data = folder / "captions.jsonl"
        if self.chosen == "select":
            data = selection(data, self.place / "selecting.jsonl", held_out=HELD_OUT)
        if limit is not None:
            data = spaced(data, self.place / "captions.jsonl", limit)
        pairs = st.read(data, images=folder / images)
        self.count = int((pairs.images.splits == "train").sum())
        self.files = [self.place / f"{side}.npz" for side in ("images", "texts")]
        for file, items, vectors in zip(
            self.files, (pairs.images, pairs.texts), (image_vectors, text_vectors), strict=True
        ):
            if not file.is_file():
                np.savez(file, allow_pickle=False, names=np.array(items.ids), pooled=vectors("starter", pairs))
        self.source = st.DataConfig(data, features=self.files[0], text_features=self.files[1], val_split=self.chosen)
        self.graph = self.place / "graph"
        if not self.graph.is_dir():
            count = NEIGHBOURS[name]
            st.build_neighbours(self.graph, data=data, space="lsa", split=self.reported, neighbours=count, quiet=True)

    def run(self, row: str, setting: str, rate: float, seed: int) -> dict[str, float]:
        """Figures of a training: "selecting", the rsum of the split that chooses, and those that are reported."""
        name = f"{row}-{setting}-{rate:g}-{seed}".replace(", ", "-").replace(" ", "")
        return once(self.place / f"{name}.json", partial(self._run, self.place / name, row, setting, rate, seed))

    def _run(self, folder: Path, row: str, setting: str, rate: float, seed: int) -> dict[str, float]:
        methods = [] if row == "host" else [method(row, setting, self.files)]
        given = flat_arguments(HOST.model, {**HOST.but(methods=methods, lr=rate).options})
        running = st.RunConfig(seed=seed, resume=True)
        run = st.train(HOST.model, data=self.source, out=folder, run=running, quiet=True, **given)
        if run.record.status != "finished":
            sys.exit(f"the training of {folder} was stopped; the same call resumes it")
        wanted = metrics_of(["recall@1", "recall@5", "recall@10", "asp:tfidf1", f"neighbours_kept:{self.graph}"])
        source = st.DataConfig(self.source.data, features=self.files[0], text_features=self.files[1])
        protocol = st.Protocol(bootstrap=0)
        result = st.evaluate(folder, data=source, split=self.reported, metrics=wanted, protocol=protocol, quiet=True)
        found = {"selecting": best(folder)["rsum"], **{name: float(result.figures[name]) for name in NAMES}}
        found["rsum"] = sum(found[name] for name in NAMES)
        for name, part in (("asp", "/asp"), ("kept", "/neighbours_kept")):
            values = [float(value) for key, value in result.figures.items() if part in key]
            if len(values) != 2:
                raise RuntimeError(
                    f"{name} needs a figure of each direction; {sorted(result.figures)} has {len(values)}"
                )
            found[name] = sum(values) / 2
        shutil.rmtree(folder)
        return found

    def judge(self, seeds: Sequence[int]) -> dict[str, Any]:
        """Search with the first seed, then train the best setting of each row with all."""
        by_rate = {f"{rate:g}": self.run("host", "", rate, seeds[0])["selecting"] for rate in RATES}
        rate = float(max(by_rate, key=lambda name: by_rate[name]))
        found: dict[str, Any] = {
            "reported": self.reported,
            "images": self.count,
            "rate": rate,
            "rates": by_rate,
            "rows": {},
        }
        for row in ("host", *PARTS):
            tried = {} if row == "host" else {it: self.run(row, it, rate, seeds[0])["selecting"] for it in settings()}
            setting = max(tried, key=lambda name: tried[name]) if tried else ""
            runs = [self.run(row, setting, rate, seed) for seed in seeds]
            found["rows"][row] = {"setting": setting, "tried": tried, "runs": runs}
        return found


def spaced(captions: Path, target: Path, count: int) -> Path:
    """The captions with `count` training images, evenly spaced in the file; all where there are fewer."""
    rows = [json.loads(line) for line in captions.read_text(encoding="utf-8").splitlines()]
    train = [number for number, row in enumerate(rows) if row["split"] == "train"]
    kept = {train[place] for place in np.linspace(0, len(train) - 1, min(count, len(train))).round().astype(int)}
    chosen = [row for number, row in enumerate(rows) if row["split"] != "train" or number in kept]
    target.write_text("".join(json.dumps(row) + "\n" for row in chosen), encoding="utf-8")
    return target


def interpolated(name: str, out: Path, seed: int) -> dict[str, Any]:
    """The curve of a run of `adapt` on an archive, and its test split at no, half, all and the chosen share."""
    folder, general = data_folder(name), data_folder(GENERAL)
    images, chosen, reported = DATA[name]
    source, place = st.DataConfig(folder / "captions.jsonl", images=folder / images), out / f"adapt-{name}-{seed}"
    run = trained("adapt", place, source, seed, chosen)
    between = place.with_name(f"{place.name}-between")
    if between.is_dir():
        shutil.rmtree(between)
    found = st.interpolate_run(
        run.path,
        out=between,
        general=general / "captions.jsonl",
        general_images=general / DATA[GENERAL][0],
        general_split=DATA[GENERAL][2],
        quiet=True,
    )
    test, pairs = {}, st.read(source.data, images=source.images).split(reported)
    for share in sorted({0.0, 0.5, 1.0, found.share}):
        opened = st.open_run(run.path)
        scale_updates(opened.model, share)
        result = evaluate_model(opened.model, pairs, protocol=st.Protocol(bootstrap=0))
        test[f"{share:g}"] = float(result.figures["rsum"])
    return {"share": found.share, "curve": list(found.curve), "test": test}


def apart(values: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """The mean of paired differences, and half of its interval of 95 % by t over seeds."""
    differences = np.asarray(values) - np.asarray(others)
    if len(differences) < 2:
        return float(differences.mean()), float("inf")
    scale = float(student.ppf(0.975, len(differences) - 1)) / np.sqrt(len(differences))
    return float(differences.mean()), float(scale * differences.std(ddof=1))


def signed(values: Sequence[float], others: Sequence[float]) -> str:
    """A difference with its interval."""
    mean, half = apart(values, others)
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


def spread(values: Sequence[float]) -> str:
    """The mean, and the range over seeds."""
    return f"{np.mean(values):.1f} [{min(values):.1f}-{max(values):.1f}]"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines] + [""]


def section(name: str, result: Mapping[str, Any]) -> list[str]:
    """What the page says of soft labels on a data set."""
    found = result["soft labels"][name]
    rows = found["rows"]
    figures = {row: {key: [run[key] for run in own["runs"]] for key in own["runs"][0]} for row, own in rows.items()}
    recalls = [(NAMES[:3], "text to image R@1 / 5 / 10"), (NAMES[3:], "image to text R@1 / 5 / 10")]
    lines = [f"## {name}, {found['reported']}", ""]
    lines += [
        f"{found['images']:,} images train. Rate {found['rate']:g}; {len(rows['host']['runs'])} seeds. Means, and the "
        "range over seeds.",
        "",
    ]
    lines += table(
        ["row", "weights, temperatures", *(title for _, title in recalls), *SHOWN],
        [
            [
                row,
                rows[row]["setting"] or "-",
                *(" / ".join(f"{np.mean(own[key]):.1f}" for key in keys) for keys, _ in recalls),
                *(spread(own[key]) for key in SHOWN.values()),
            ]
            for row, own in figures.items()
        ],
    )
    deep = {"text to image R@10": NAMES[2], "image to text R@10": NAMES[5], **SHOWN}
    compared = [(row, "host") for row in figures if row != "host"] + [("both", control) for control in CONTROLS]
    lines += [f"{name}: differences, paired by seed, with the interval of 95 % by t over seeds.", ""]
    lines += table(
        ["rows", *deep],
        [
            [f"{row} less {other}", *(signed(figures[row][key], figures[other][key]) for key in deep.values())]
            for row, other in compared
        ],
    )
    lines += [f"{name}: rsum of the split that chooses, by setting, first seed; the host has {_host(found)}.", ""]
    names = list(rows["both"]["tried"])
    lines += table(
        ["row", *names], [[row, *(f"{rows[row]['tried'][it]:.1f}" for it in names)] for row in rows if row != "host"]
    )
    return lines


def _host(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{value:.1f} at the rate {rate}" for rate, value in found["rates"].items())


def _edges(found: Mapping[str, Any]) -> str:
    """What was best at the end of what was tried."""
    says, rates = [], [float(rate) for rate in found["rates"]]
    if found["rate"] in (min(rates), max(rates)):
        says.append("the host's rate")
    largest = [row for row, own in found["rows"].items() if own["setting"].startswith(f"x {SCALES[-1]},")]
    if largest:
        says.append(f"the weights of {', '.join(largest)}")
    return f" At the end of what was tried: {' and '.join(says)}." if says else ""


def page(result: Mapping[str, Any]) -> str:
    """The page of docs that these results give."""
    lines = ["# Soft labels and weight interpolation", ""]
    lines += [
        "Made by `python -m reproduce.studies.soft_labels`, whose docstring says what the rows are;",
        "[soft_labels.json](../results/soft_labels.json) has every figure. Figures are in per cent. ASP is by TF-IDF,",
        "kept neighbours are those of a text in a space of latent semantic analysis, both means of both sides; chance",
        "of ASP is about 50. Teachers are the towers whose vectors the host reads: they know nothing that it has not.",
        "",
    ]
    soft, curves = result["soft labels"], result["interpolation"]
    waiting = [name for name in DATA if name not in soft]
    waiting += [f"{INTERPOLATION}{name}" for name in ARCHIVES if name not in curves]
    if waiting:
        lines += [f"Not trained yet: `--rows {' '.join(waiting)}`.", ""]
    if soft:
        lines += ["## In short", ""]
        for name, found in soft.items():
            by = {
                row: {key: [run[key] for run in own["runs"]] for key in SHOWN.values()}
                for row, own in found["rows"].items()
            }
            says = [
                f"{title} {signed(by['both'][key], by['host'][key])} to the host"
                + "".join(f", {signed(by['both'][key], by[control][key])} to {control} targets" for control in CONTROLS)
                for title, key in SHOWN.items()
            ]
            lines += [f"* {name}, soft labels in both ways: {'; '.join(says)}.{_edges(found)}"]
        lines += [""]
    for name in soft:
        lines += section(name, result)
    if curves:
        lines += ["## Weight interpolation", ""]
        lines += [
            "rsum by the share of what `adapt --model starter` learnt, mean and range over seeds: of the archive's",
            f"val, which chooses, and of a general set, {GENERAL}'s {DATA[GENERAL][2]}, which the run never saw.",
            "",
        ]
        for name, runs in curves.items():
            count = range(len(runs[0]["curve"]))
            lines += table(
                ["share", f"{name} val", "general"],
                [
                    [
                        f"{runs[0]['curve'][place]['share']:g}",
                        *(spread([run["curve"][place][key] for run in runs]) for key in ("rsum", "general rsum")),
                    ]
                    for place in count
                ],
            )
            kept = ", ".join(f"{run['share']:g}" for run in runs)
            at = {share: [run["test"][share] for run in runs] for share in ("0", "0.5", "1")}
            at["chosen"] = [run["test"][f"{run['share']:g}"] for run in runs]
            lines += [
                f"Chosen on val, by seed: {kept}. rsum of {name}'s {DATA[name][2]}: "
                + ", ".join(f"{share} {spread(values)}" for share, values in at.items())
                + f". Chosen less 1: {signed(at['chosen'], at['1'])}.",
                "",
            ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Train what is left, write the figures and the page, and print the page."""
    parser = options(__doc__, rows=[*DATA, *(f"{INTERPOLATION}{name}" for name in ARCHIVES)])
    parser.add_argument("--all", action="store_true", help="train on all training images")
    config = parser.parse_args()
    data_folder(GENERAL)
    config.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"soft labels": {}, "interpolation": {}}
    for name in config.rows:
        if name in DATA:
            limit = None if config.all else LIMITS.get(name)
            result["soft labels"][name] = Judged(name, config.out, limit).judge(config.seeds)
        else:
            archive = name.removeprefix(INTERPOLATION)
            result["interpolation"][archive] = [
                once(config.out / f"between-{archive}-{seed}.json", partial(interpolated, archive, config.out, seed))
                for seed in config.seeds
            ]
        (config.out / "soft_labels.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (config.out / "soft_labels.md").write_text(page(result), encoding="utf-8")
    print(page(result))


if __name__ == "__main__":
    main()
