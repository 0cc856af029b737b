"""One look at a GPU: does it give what the processor gives, and how long do steps take beside plain PyTorch loops.

    python -m benchmarks.gpu --out gpu.json               # at most eight minutes
    python -m benchmarks.gpu --device cpu --quick         # tries the script where there is no GPU

Checked against the processor: every loss with its gradient, every similarity between regions and words, neighbour
scores, and a training that is stopped and resumed. Timed in the same run: training steps of `pvse` and `dual` on
features (the peer is a loop over a copy of the same modules, all inputs already on the device), and of `clip` with
random weights of ViT-B/32's size on JPEGs (the peer is `transformers` with a DataLoader of as many workers, in the
same half precision); DAA at B = 4,096 (the peer is the cube of all differences, in slices that fit); scores of SGRAF
at COCO's size (the peer is a loop over captions, on a sample); images a second from a JPEG to a vector.

A part that fails is written down with its error, the others go on, and the script ends with 1.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# What an earlier repeat gave is not to be kept for a later one.
os.environ["SUBTEXT_CACHE_LIMIT"] = "0"

import numpy as np
import torch
from torch import Tensor, nn

import subtext as st
from benchmarks.daa import made as daa_scores
from benchmarks.embed import Files, model, photographs
from benchmarks.pairs import made as regions_and_words, one_text
from benchmarks.saf import plain as plain_saf
from benchmarks.sgr import plain as plain_sgr
from subtext.api.train import build_setup, read_training_data
from subtext.core import Comparison, Embeddings, Epoch, Truth
from subtext.evaluation.embedding import embed_items
from subtext.evaluation.scoring import matrix
from subtext.models.checkpoint import Record
from subtext.models.similarity.ascl import Ascl
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.cross_attention import CrossAttention
from subtext.models.similarity.sgraf import Saf, Sgr
from subtext.objectives.losses.angular import Angular
from subtext.objectives.losses.daa import DAA
from subtext.objectives.losses.hal import HAL
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.losses.listwise import Listwise
from subtext.objectives.losses.margin import Margin
from subtext.objectives.losses.ratio import Ratio
from subtext.objectives.losses.sigmoid import Sigmoid
from subtext.objectives.losses.smooth_ap import SmoothAP
from subtext.objectives.losses.soft_contrastive import SoftContrastive
from subtext.objectives.losses.structure import Structure
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.scene import compose
from subtext.ops.neighbour_scores import neighbour_scores
from subtext.training.bank import BankSet
from subtext.training.loop import Trainer
from subtext.training.plan import RunConfig
from subtext.training.processes import Processes

LOSSES = (
    Triplet(), InfoNCE(), Sigmoid(), Angular(), DAA(0.01), HAL(), Listwise(), Margin(), Ratio(), SmoothAP(),
    SoftContrastive(), Structure(),
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """What is measured where.

    device  of torch       quick  small enough for a processor
    place   a folder that is deleted in the end
    """

    device: str
    quick: bool
    place: Path

    def size(self, full: int, quick: int) -> int:
        """One of two sizes."""
        return quick if self.quick else full

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if torch.device(self.device).type == "cuda":
            torch.cuda.synchronize()

    def timed(self, contestants: dict[str, Callable[[], object]], *, repeats: int) -> dict[str, list[float]]:
        """Seconds of each repeat, in turn, after one that is not counted."""
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(repeats + 1):
            for name, run in contestants.items():
                self.wait()
                started = time.perf_counter()
                run()
                self.wait()
                if turn:
                    seconds[name].append(time.perf_counter() - started)
        return seconds


def told(seconds: dict[str, list[float]], *, per: float = 1.0) -> dict[str, Any]:
    """Medians in milliseconds, over `per`, with the fastest and the slowest; the ratio of the peer to ours."""
    found: dict[str, Any] = {
        f"{name} ms": [round(1e3 * pick(values) / per, 3) for pick in (statistics.median, min, max)]
        for name, values in seconds.items()
    }
    if "peer" in seconds:
        found["ratio"] = round(statistics.median(seconds["peer"]) / statistics.median(seconds["ours"]), 3)
    return found


def apart(first: Tensor, second: Tensor) -> float:
    """Largest difference over the largest value."""
    first, second = first.detach().double().cpu(), second.detach().double().cpu()
    return float((first - second).abs().max() / second.abs().max().clamp_min(1e-12))


def losses(task: Task) -> dict[str, Any]:
    """Values and gradients of every loss: relative difference of the device in float32 to the processor in float64."""
    g = torch.Generator().manual_seed(0)
    size = 256
    vectors = [nn.functional.normalize(torch.randn(size, 1, 64, generator=g).double(), dim=-1) for _ in range(2)]
    relevance = torch.rand(size, size, generator=g).double()

    def run(loss: Any, device: str, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        images, texts = (each.to(device, kind).requires_grad_() for each in vectors)
        ids = torch.arange(size, device=device)
        sides = Embeddings(images, ids), Embeddings(texts, ids)
        own = torch.eye(size, dtype=torch.bool, device=device)
        truth = Truth(own, relevance=((relevance.to(device, kind) + own) / 2), scale="made")
        values = loss(Comparison(Cosine()(*sides), truth, *sides))
        return values, torch.autograd.grad(values.mean(), images)[0]

    found = {}
    for loss in LOSSES:
        exact, here = run(loss, "cpu", torch.float64), run(loss, task.device, torch.float32)
        found[type(loss).__name__] = [apart(ours, right) for ours, right in zip(here, exact, strict=True)]
    return {"relative difference of values, of gradients": found, "size": size}


def kernels(task: Task) -> dict[str, Any]:
    """Similarities between regions and words, and neighbour scores: largest relative difference to the processor."""
    images, texts = regions_and_words(16, 32)
    here = images.to(task.device), texts.to(task.device)
    torch.manual_seed(0)
    parts = {
        "scan, words ask": CrossAttention(attending="text_to_image"),
        "scan, regions ask": CrossAttention(attending="image_to_text"),
        "saf": Saf(),
        "sgr": Sgr(),
        "ascl": Ascl(width=1024),
    }
    found = {}
    for name, part in parts.items():
        part.eval()
        right = matrix(part, images, texts)
        found[name] = apart(matrix(copy.deepcopy(part).to(task.device), *here), right)
    bank = nn.functional.normalize(torch.randn(2000, 64), dim=1)
    lists = torch.stack([torch.randperm(2000)[:100] for _ in range(2000)])
    right = neighbour_scores(bank, lists)
    ours = neighbour_scores(bank.to(task.device), lists.to(task.device))
    for name in ("diversity", "discrepancy"):
        found[f"{name} of neighbours"] = apart(getattr(ours, name), getattr(right, name))
    return {"relative difference": found}


class Stop:
    """Stops a training after some steps, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        self.left = after

    def on_step(self, _: object) -> None:
        """Count."""
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def features(task: Task, count: int, width: int = 2048) -> st.DataConfig:
    """Pairs whose images have features, and captions of ten drawn words, three of which tell of the features."""
    folder = task.place / f"features-{count}-{width}"
    if not folder.is_dir():
        folder.mkdir()
        rng = np.random.default_rng(0)
        kinds = rng.integers(0, 12, (count, 3))
        base = rng.standard_normal((3, 12, width)).astype(np.float32)
        pooled = sum(base[place, kinds[:, place]] for place in range(3)) + rng.standard_normal((count, width))
        words = rng.integers(0, 4000, (count, 7))
        rows = [
            {
                "image": f"{row:06d}",
                "caption": " ".join([*(f"k{p}x{k}" for p, k in enumerate(kinds[row])), *(f"w{w}" for w in words[row])]),
                "split": "val" if row % 10 == 0 else "train",
            }
            for row in range(count)
        ]
        (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        names = np.array([row["image"] for row in rows])
        np.savez(folder / "features.npz", names=names, pooled=pooled.astype(np.float32))
    return st.DataConfig(folder / "pairs.jsonl", features=folder / "features.npz")


def training(task: Task) -> dict[str, Any]:
    """A training on the processor, on the device, and there stopped in the middle and resumed."""
    data = features(task, 2000, 64)
    shared: dict[str, Any] = {"plan": {"epochs": 4, "batch_size": 64}, "options": {"embed_dim": 64}, "quiet": True}

    def run(name: str, device: str, **more: Any) -> dict[str, Tensor]:
        config = RunConfig(device=device, resume=name == "resumed", workers=2)
        trained = st.train("pvse", data=data, out=task.place / name, run=config, **shared, **more)
        history[name] = [round(entry["figures"]["rsum"], 2) for entry in trained.history.entries]
        return {key: value.detach().cpu().double() for key, value in trained.model.state_dict().items()}

    history: dict[str, list[float]] = {}
    there = run("processor", "cpu")
    here = run("device", task.device)
    stopped = "no"
    try:
        config = RunConfig(device=task.device, workers=2)
        st.train("pvse", data=data, out=task.place / "resumed", run=config, callbacks=[Stop(60)], **shared)
    except KeyboardInterrupt:
        stopped = "yes"
    resumed = run("resumed", task.device)

    def far(one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
        return max(float((one[key] - two[key]).abs().max()) for key in one)

    return {
        "stopped": stopped,
        "largest difference of a weight, resumed to straight": far(resumed, here),
        "largest difference of a weight, device to processor": far(here, there),
        "sum of recalls by epoch": history,
    }


def steps(task: Task, recipe: str, options: dict[str, Any], *, batch: int) -> dict[str, Any]:
    """Steps of a training on features, beside a plain loop over a copy of its modules with its inputs on the device."""
    count = task.size(24, 4)
    config = features(task, (count + 1) * batch * 10 // 9 + 10)
    pairs = read_training_data(config, quiet=True)
    setup = build_setup(
        recipe, options, plan={"batch_size": batch, "caption_sampling": "all", "drop_last": True}, pairs=pairs, seed=0
    )
    processes, run = Processes(task.device), RunConfig(device=task.device, workers=task.size(4, 2))
    setup.model.to(processes.device)
    theirs = copy.deepcopy(setup.model)
    place = task.place / f"steps-{recipe}"
    place.mkdir()
    trainer = Trainer(
        setup, setup.model, pairs.train, None, place, run, processes, (), BankSet(), record=Record(recipe)
    )
    batches = trainer.batches(0)[:count]
    optimiser = torch.optim.Adam(theirs.parameters(), lr=1e-4)

    def read(side: Any, items: Any, column: int) -> list[dict[str, Tensor]]:
        from subtext.data.batches import item_batch

        given = [side.input_spec(item_batch(items, rows[:, column], pairs.train.root)) for rows in batches]
        return [{name: value.to(processes.device) for name, value in each.items()} for each in given]

    images, texts = read(theirs.image, pairs.train.images, 0), read(theirs.text, pairs.train.texts, 1)

    def ours() -> None:
        for _, _ in zip(range(count), trainer.epoch_steps(threading.Event()), strict=False):
            pass
        trainer.end_epoch()
        trainer.state.totals.zero_()

    def peer() -> None:
        theirs.train()
        for rows, left, right in zip(batches, images, texts, strict=True):
            ids = torch.from_numpy(rows[:, 0]).to(processes.device)
            scene = compose(theirs.similarity, *theirs(left, right), ids, positives=setup.plan.positives)
            loss, _ = setup.objective(scene, Epoch(number=0, seed=0))
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(theirs.parameters(), 2.0)
            optimiser.step()

    seconds = task.timed({"ours": ours, "peer": peer}, repeats=task.size(7, 2))
    weights = sum(weight.numel() for weight in setup.model.parameters())
    return {"batch": batch, "steps": count, "weights": weights, "a step": told(seconds, per=count)}


def pvse(task: Task) -> dict[str, Any]:
    """Training steps of PVSE at its published width."""
    return steps(task, "pvse", {"embed_dim": task.size(1024, 64)}, batch=128)


def dual(task: Task) -> dict[str, Any]:
    """Training steps of a dual encoder of words."""
    return steps(task, "dual", {"embed_dim": task.size(512, 64)}, batch=task.size(512, 128))


def clip_files(task: Task) -> tuple[list[Path], Path]:
    """JPEGs and a random CLIP: as large as ViT-B/32, or narrow."""
    folder = task.place / "clip"
    if not folder.is_dir():
        photos = task.place / "photos"
        photos.mkdir()
        photographs(photos, task.size(512, 32))
        model(folder, quick=task.quick)
    return sorted((task.place / "photos").iterdir()), folder


def clip(task: Task) -> dict[str, Any]:
    """Seconds of an epoch of `clip`, random weights, from JPEGs, beside transformers with a DataLoader."""
    import transformers
    from torch.utils.data import DataLoader

    paths, folder = clip_files(task)
    batch, workers = task.size(128, 16), task.size(12, 2)
    rows = [{"image": path.name, "caption": "a", "split": "train"} for path in paths]
    config = st.DataConfig(st.read(rows, images=paths[0].parent), val_split=None)
    pairs = read_training_data(config, quiet=True)
    plan = {"batch_size": batch, "caption_sampling": "all", "precision": "bf16", "drop_last": True}
    setup = build_setup("clip", {"model": str(folder)}, plan=plan, pairs=pairs, seed=0)
    processes, run = Processes(task.device), RunConfig(device=task.device, workers=workers)
    setup.model.to(processes.device)
    place = task.place / "steps-clip"
    place.mkdir()
    trainer = Trainer(
        setup, setup.model, pairs.train, None, place, run, processes, (), BankSet(), record=Record("clip")
    )
    plain: Any = transformers.CLIPModel.from_pretrained(folder).to(task.device).train()
    processor = transformers.CLIPImageProcessorPil.from_pretrained(folder)
    optimiser = torch.optim.AdamW(plain.parameters(), lr=1e-5, weight_decay=0.05)
    ids, kind = torch.tensor([[2, 3]] * batch, device=task.device), torch.device(task.device).type

    def ours() -> None:
        for _ in trainer.epoch_steps(threading.Event()):
            pass
        trainer.end_epoch()
        trainer.state.totals.zero_()

    def peer() -> None:
        loader = DataLoader(Files(paths, processor), batch_size=batch, num_workers=workers, drop_last=True)
        for pixels in loader:
            with torch.autocast(kind, torch.bfloat16):
                loss = plain(input_ids=ids, pixel_values=pixels.to(task.device), return_loss=True).loss
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
            optimiser.step()

    seconds = task.timed({"ours": ours, "peer": peer}, repeats=task.size(3, 1))
    weights = sum(weight.numel() for weight in plain.parameters())
    count = len(paths) // batch
    return {"batch": batch, "workers": workers, "weights": weights, "a step": told(seconds, per=count)}


def daa(task: Task) -> dict[str, Any]:
    """DAA and its gradient, beside all differences of as many queries at once as fit into 8 GB."""
    size = task.size(4096, 256)
    given = daa_scores(size)
    scores = given.scores.detach().to(task.device).requires_grad_()
    truth = replace(
        given.truth, match=given.truth.match.to(task.device), relevance=given.truth.relevance.to(task.device)
    )
    last: dict[str, tuple[Tensor, Tensor]] = {}
    height = max(1, 2**31 // (8 * size * size))

    def ours() -> None:
        values = DAA(0.01)(Comparison(scores, truth))
        last["ours"] = values.detach(), torch.autograd.grad(values.mean(), scores)[0]

    def ranks(lists: Tensor) -> Tensor:
        return 0.5 + torch.sigmoid((lists[:, None, :] - lists[:, :, None]) / 0.01).sum(dim=2)

    def peer() -> None:
        values, gradients = [], []
        for start in range(0, size, height):
            rows = scores[start : start + height].detach().requires_grad_()
            found, wanted = ranks(rows), ranks(truth.relevance[start : start + height])
            some = 1 - (torch.minimum(found, wanted) / torch.maximum(found, wanted)).mean(dim=1)
            gradients.append(torch.autograd.grad(some.sum() / size, rows)[0])
            values.append(some.detach())
        last["peer"] = torch.cat(values), torch.cat(gradients)

    seconds = task.timed({"ours": ours, "peer": peer}, repeats=task.size(3, 2))
    # The largest difference would speak of single entries: where both ranks agree to the last bit, rounding chooses the
    # larger one, and the gradient has the other sign.
    (values, gradient), (right, slope) = last["ours"], last["peer"]
    other = ((gradient - slope).abs() > 1e-3 * slope.abs().max()).sum()
    found = {
        "relative difference of values": apart(values, right),
        "relative length of the gradients' difference": float((gradient - slope).norm() / slope.norm()),
        "entries of the gradient that differ": int(other),
    }
    return {"batch": size, **found, **told(seconds)}


def sgraf(task: Task) -> dict[str, Any]:
    """Pairs a second by SAF and SGR at COCO's size, beside a loop over captions, on a sample of these."""
    count, sample = task.size(1000, 16), task.size(100, 8)
    images, texts = regions_and_words(count, 5 * count)
    found: dict[str, Any] = {"images": count, "texts": 5 * count, "texts of the peer": sample}
    for name, part, loop in (("saf", Saf(), plain_saf), ("sgr", Sgr(), plain_sgr)):
        here, there = part.eval().to(task.device), images.to(task.device)
        last: dict[str, Tensor] = {}

        def ours(here: nn.Module = here, last: dict[str, Tensor] = last) -> None:
            last["ours"] = matrix(here, images, texts).cpu()

        def peer(here: nn.Module = here, loop: Any = loop, there: Any = there, last: Any = last) -> None:
            with torch.inference_mode():
                columns = []
                for row in range(sample):
                    columns.append(loop(here, there, one_text(texts, row).to(task.device)))
                last["peer"] = torch.stack(columns, dim=1).cpu()

        seconds = task.timed({"ours": ours, "peer": peer}, repeats=1)
        rates = {
            "ours": count * 5 * count / statistics.median(seconds["ours"]),
            "peer": count * sample / statistics.median(seconds["peer"]),
        }
        found[name] = {
            "pairs a second": {who: round(rate) for who, rate in rates.items()},
            "ratio": round(rates["ours"] / rates["peer"], 2),
            "relative difference": apart(last["ours"][:, :sample], last["peer"]),
        }
    return found


def embed(task: Task) -> dict[str, Any]:
    """Images a second from a JPEG to a vector, beside transformers with a DataLoader."""
    import transformers
    from torch.utils.data import DataLoader

    paths, folder = clip_files(task)
    batch, workers = 64, task.size(12, 2)
    own = st.load(model=folder, device=task.device)
    items = st.read([{"image": path.name, "caption": "a"} for path in paths], images=paths[0].parent)
    plain: Any = transformers.CLIPModel.from_pretrained(folder).to(task.device).eval()
    processor = transformers.CLIPImageProcessorPil.from_pretrained(folder)
    last: dict[str, Tensor] = {}

    def ours() -> None:
        last["ours"] = embed_items(own, own.image, items.images, items.root, reading=(batch, workers)).vectors[:, 0]

    def peer() -> None:
        loader = DataLoader(Files(paths, processor), batch_size=batch, num_workers=workers)
        with torch.inference_mode():
            vectors = [plain.get_image_features(pixel_values=each.to(task.device)).pooler_output for each in loader]
        last["peer"] = nn.functional.normalize(torch.cat(vectors), dim=1)

    seconds = task.timed({"ours": ours, "peer": peer}, repeats=task.size(3, 1))
    rates = {name: round(len(paths) / statistics.median(values), 1) for name, values in seconds.items()}
    return {"images": len(paths), "images a second": rates, "largest difference": apart(last["ours"], last["peer"]),
            "ratio": round(rates["ours"] / rates["peer"], 3)}  # fmt: skip


PARTS = (losses, kernels, training, pvse, dual, daa, sgraf, clip, embed)


def about(device: str) -> dict[str, Any]:
    """The machine, in words."""
    kind = torch.device(device).type
    name = torch.cuda.get_device_name(device) if kind == "cuda" else "the processor"
    return {"device": name, "torch": torch.__version__, "tf32": torch.backends.cuda.matmul.allow_tf32}


def results(task: Task, parts: Iterator[Callable[[Task], dict[str, Any]]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, what was found) of each part; what failed has its error."""
    for part in parts:
        started = time.perf_counter()
        try:
            found = part(task)
        except Exception as error:  # noqa: BLE001 (one part that fails must not cost the others)
            found = {"error": "".join(traceback.format_exception(error)[-4:])}
        yield part.__name__, {**found, "seconds": round(time.perf_counter() - started, 1)}


def main() -> int:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description="losses, kernels, trainings and their speed on a GPU")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="small sizes: tries the script on a processor")
    parser.add_argument("--only", nargs="*", default=[part.__name__ for part in PARTS], help="parts")
    parser.add_argument("--out", type=Path, help="file of the result, written after each part")
    asked = parser.parse_args()
    found: dict[str, Any] = about(asked.device)
    with tempfile.TemporaryDirectory() as place:
        task = Task(asked.device, asked.quick, Path(place))
        for name, part in results(task, (each for each in PARTS if each.__name__ in asked.only)):
            found[name] = part
            print(name, json.dumps(part), file=sys.stderr, flush=True)
            if asked.out:
                asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))
    return int(any("error" in part for part in found.values() if isinstance(part, dict)))


if __name__ == "__main__":
    sys.exit(main())
