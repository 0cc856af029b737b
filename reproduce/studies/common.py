"""What the studies share: recipes, the selection split, trainings in a process of their own, and rows of tables."""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

import subtext as st
from subtext.api.train import flat_arguments
from subtext.data import atomic
from subtext.data.batches import item_batch
from subtext.recipes.build import build
from subtext.training.setup import BuildContext

NAMES = [f"{direction}/recall@{k}" for direction in ("text_to_image", "image_to_text") for k in (1, 5, 10)]
HEAD = (
    "| row | seeds | text to image R@1 / 5 / 10 | image to text R@1 / 5 / 10 | rsum | seconds (processor) | MB |\n"
    "|---|---|---|---|---|---|---|"
)
T = TypeVar("T")


class Recipe:
    """A model recipe and its options, as `subtext.train` takes them. Methods may name files in braces: {graph}."""

    def __init__(self, model: str, /, **options: Any) -> None:
        self.model, self.options = model, options

    def but(self, **options: Any) -> Recipe:
        """The recipe with other options."""
        return Recipe(self.model, **{**self.options, **options})

    def reads(self, file: str) -> bool:
        """Whether a method names this file."""
        return any(f"{{{file}}}" in method for method in self.options.get("methods", ()))

    def of(self, **values: Path | str) -> Recipe:
        """The recipe with these files and numbers in place of their names."""
        return self.but(methods=[method.format(**values) for method in self.options.get("methods", ())])


@dataclass(frozen=True)
class Cost:
    """What a call took: seconds on the clock and of processor time, and the most memory that its process held."""

    seconds: float
    processor_seconds: float
    peak_mb: float


def options(
    description: str | None, *, rows: Sequence[str] = (), default: Sequence[str] = (), seeds: Sequence[int] = (0, 1, 2)
) -> argparse.ArgumentParser:
    """The options --out, --rows (for a study with rows; `default`: all of them) and --seeds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    if rows:
        chosen = list(default or rows)
        parser.add_argument("--rows", nargs="+", choices=rows, default=chosen, metavar="ROW", help=str([*rows]))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(seeds))
    return parser


def data_folder(name: str) -> Path:
    """A folder in SUBTEXT_DATA; ends the script where that is not set."""
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit(f"this study needs data: set SUBTEXT_DATA to the folder that holds {name}/")
    return Path(os.environ["SUBTEXT_DATA"]) / name


def file_name(row: str) -> str:
    """The name of a row as a name of files: a sign stays, so that rows of -1 and of +1 have files of their own."""
    return "".join(letter if letter.isalnum() or letter == "+" else "-" for letter in row)


def selection(captions: Path, target: Path, *, held_out: int, first: int | None = None) -> Path:
    """The captions with the last `held_out` train images in a split of their own, "select".

    first  use only the first N of the other train images; None for all
    """
    rows = [json.loads(line) for line in captions.read_text(encoding="utf-8").splitlines()]
    train = [row for row in rows if row["split"] == "train"]
    selecting = [{**row, "split": "select"} for row in train[-held_out:]]
    rows = [*train[:-held_out][:first], *selecting, *(row for row in rows if row["split"] != "train")]
    # Two calls at once must not read each other's half-written file.
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return temporary.replace(target)


def neighbours(data: Path, graph: Path, space: str, *, split: str = "train") -> Path:
    """The graph of a split, 200 neighbours a text in this space, built once."""
    if not graph.is_dir():
        st.build_neighbours(graph, data=data, space=space, split=split)
    return graph


def starter_features(pairs: st.Dataset, out: Path, *, image_size: int = 0) -> Path:
    """A feature file of what the starter's image tower gives for each image: with a size its cells, too.

    image_size  of the squashed images, in pixels, 32 of them a cell; 0 for the tower's own crop
    """
    file = out / (f"starter-images-{image_size}.npz" if image_size else "starter-images.npz")
    if not file.is_file():
        arguments = {"image": "starter", "min_count": 1, "image_size": image_size}
        arguments |= {"resize": "squash"} if image_size else {}
        side = build("dual", arguments, context=BuildContext(texts=("none",))).model.image.eval()
        parts: dict[str, list[NDArray[Any]]] = {"pooled": [], **({"grid": []} if image_size else {})}
        for rows in np.array_split(np.arange(len(pairs.images)), max(1, len(pairs.images) // 64)):
            with torch.inference_mode():
                encoded = side.encoder(side.input_spec(item_batch(pairs.images, rows, pairs.root)))
            parts["pooled"].append(encoded.pooled.numpy())
            if image_size:
                parts["grid"].append(encoded.parts.half().numpy())
        arrays = {name: np.concatenate(blocks) for name, blocks in parts.items()}
        np.savez(file, allow_pickle=False, names=np.array(pairs.images.ids), **arrays)
    return file


def write_arrays(file: Path, values: Mapping[str, Any]) -> None:
    """Write arrays and numbers as a compressed .npz, in one piece; its folder is made."""

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as opened:
            np.savez_compressed(opened, allow_pickle=False, **{name: np.asarray(it) for name, it in values.items()})

    file.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_file(file, fill)


def in_new_process(function: Callable[..., T], *arguments: Any) -> tuple[T, Cost]:
    """What a function of a module returns in a new process, whose memory holds nothing else, and what that took."""
    started = time.monotonic()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        value, processor_seconds, peak_mb = pool.submit(_with_usage, function, *arguments).result()
    return value, Cost(time.monotonic() - started, processor_seconds, peak_mb)


def _with_usage(function: Callable[..., T], *arguments: Any) -> tuple[T, float, float]:
    value, usage = function(*arguments), resource.getrusage(resource.RUSAGE_SELF)
    status = Path("/proc/self/status")
    if status.is_file():
        # On Linux, the peak of getrusage includes that of the process that started this one.
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        assert peak is not None
        return value, usage.ru_utime + usage.ru_stime, int(peak[1]) / 2**10
    return value, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def train(model: str, arguments: Mapping[str, Any]) -> str:
    """Train, or resume; returns the status of the run."""
    return st.train(model, **flat_arguments(model, {**arguments, "resume": True})).record.status


def evaluate(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate, and write the result as JSON where `json` names a file; returns it as plain data."""
    file = arguments.get("json")
    result = st.evaluate(**{name: value for name, value in arguments.items() if name != "json"})
    if file is not None:
        result.save(file)
    return result.to_json()


def best(run: Path) -> dict[str, float]:
    """The results of the selected epoch on the selection set."""
    return dict(st.list_runs((run,)).entries[0]["best"])


def measure(
    run: Path,
    recipe: Recipe,
    *,
    split: str | None,
    evaluation: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Train into a folder and evaluate on a split once, or read what that gave before.

    split       None for the results on the selection set that chose the epoch
    evaluation  further arguments of `subtext.evaluate`, whose JSON is RUN-SPLIT.json, beside the run
    arguments   of `subtext.train`, beside those of the recipe
    """
    file = run.with_name(f"{run.name}.json")
    if not file.is_file():
        status, cost = in_new_process(train, recipe.model, {**recipe.options, **arguments, "out": run})
        if status != "finished":
            sys.exit(f"the training of {run} was stopped; the same call resumes it")
        figures: dict[str, Any] = best(run)
        if split is not None:
            target = run.with_name(f"{run.name}-{split}.json")
            figures = evaluate({"model": run, "split": split, "json": target, **(evaluation or {})})
        write_results(file, figures, cost)
    return dict(json.loads(file.read_text(encoding="utf-8")))


def averaged(run: Path, members: Sequence[Path]) -> dict[str, Any]:
    """The results of an ensemble on val, and what its members and its evaluation took together."""
    file = run.with_name(f"{run.name}.json")
    if not file.is_file():
        if not (run / "run.json").is_file():
            st.ensemble_runs(tuple(members), out=run)
        figures, cost = in_new_process(
            evaluate, {"model": run, "split": "val", "json": run.with_name(f"{run.name}-val.json")}
        )
        results = [
            json.loads(member.with_name(f"{member.name}.json").read_text(encoding="utf-8")) for member in members
        ]
        total = Cost(
            cost.seconds + sum(result["seconds"] for result in results),
            cost.processor_seconds + sum(result["processor_seconds"] for result in results),
            max(cost.peak_mb, *(result["peak_mb"] for result in results)),
        )
        write_results(file, figures, total)
    return dict(json.loads(file.read_text(encoding="utf-8")))


def write_results(file: Path, figures: Mapping[str, Any], cost: Cost) -> None:
    """Write recalls, their intervals and chance, and what the run took."""
    used = {key: figures[key] for key in (*NAMES, "rsum", "intervals", "chance") if key in figures}
    file.write_text(json.dumps({**used, **asdict(cost)}, indent=2) + "\n", encoding="utf-8")


def line(name: str, results: Sequence[Mapping[str, Any]]) -> str:
    """A row under HEAD: means over seeds, and ranges of what is compared."""

    def mean(key: str) -> float:
        return sum(result[key] for result in results) / len(results)

    def spread(key: str) -> str:
        values = [result[key] for result in results]
        return f"[{min(values):.1f}-{max(values):.1f}]"

    recalls = [" / ".join(f"{mean(key):.1f}" for key in keys) for keys in (NAMES[:3], NAMES[3:])]
    cells = [f"{recall} {spread(key)}" for recall, key in zip(recalls, (NAMES[2], NAMES[5]), strict=True)]
    total = f"{mean('rsum'):.1f} {spread('rsum')}"
    seconds = f"{mean('seconds'):.0f} ({mean('processor_seconds'):.0f})"
    peak = max(result["peak_mb"] for result in results)
    return f"| {name} | {len(results)} | {cells[0]} | {cells[1]} | {total} | {seconds} | {peak:.0f} |"


def gains(results: Mapping[str, Sequence[float]], controls: Mapping[str, Sequence[str]], digits: int = 1) -> list[str]:
    """Lines of a table: how far each row's values by seed lie above those of each of its controls that is there."""
    lines = []
    for row, values in results.items():
        for control in controls[row]:
            if control in results and control != row:
                by_seed = [value - base for value, base in zip(values, results[control], strict=True)]
                seeds = ", ".join(f"{gain:+.{digits}f}" for gain in by_seed)
                lines.append(f"| {row} | {control} | {sum(by_seed) / len(by_seed):+.{digits}f} | {seeds} |")
    return lines
