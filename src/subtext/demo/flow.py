"""`subtext.demo`: images, training, evaluation, index, searches and a page, step by step."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from subtext.api.options import Device, Quiet, Range, Section, Workers, verb
from subtext.errors import CheckpointError, RequirementError
from subtext.report.progress import meter, say
from subtext.report.text_table import duration
from subtext.version import __version__

if TYPE_CHECKING:
    from subtext.demo.findings import Findings

T = TypeVar("T")

MARK = "demo.json"
HOST = "dual"
ARGUMENTS: dict[str, Any] = {
    "image": "tiny",
    "image_size": 32,
    "min_crop_area": 0.8,
    "embed_dim": 256,
    "min_count": 1,
    "token_mask": 0.1,
    "temperature": 0.07,
    "text": "bag",
    "word_dim": 256,
    "embedding_dropout": 0.2,
    "dropout": 0.2,
    "image_dropout": 0.2,
    "mlp": False,
    "learn_temperature": True,
}
PLAN: dict[str, Any] = {
    "epochs": 16,
    "batch_size": 768,
    "caption_sampling": "together",
    "lr": 4e-3,
    "weight_decay": 0.05,
    "weight_average": "none",
}
"""What the recommended recipe is told for a few thousand small drawings; found on emoji of the training split."""


@dataclass(frozen=True)
class Demo:
    """The settings of a demonstration.

    out     its folder: data, run, index, figures and page          seed    of the split, the weights and every draw
    epochs  of training; None for the usual number                  limit   the first so many emoji alone, for tests
    """

    out: Path
    seed: int = 0
    epochs: int | None = None
    limit: int | None = None
    device: str = "cpu"
    workers: int = 2
    quiet: bool = False

    @property
    def plan(self) -> dict[str, Any]:
        """How it is trained."""
        return PLAN if self.epochs is None else {**PLAN, "epochs": self.epochs}


@dataclass(frozen=True)
class Demonstration:
    """The summary of a demonstration; `stopped` if the training was interrupted before."""

    text: str
    stopped: bool = False

    def __str__(self) -> str:
        return self.text


@verb
def demo(
    *,
    out: Annotated[str | Path, "Folder for data, run, index and page.", Section("Demonstration")] = "demo",
    seed: Annotated[int, "Seed of every random choice.", Section("Demonstration")] = 0,
    epochs: Annotated[
        int | None, "Epochs of the training; fewer are faster and worse.", Range(1), Section("Demonstration")
    ] = None,
    limit: int | None = None,
    device: Device = "cpu",
    workers: Workers = 2,
    quiet: Quiet = False,
) -> Demonstration:
    """Show every step on a small example, in minutes: some 3,900 emoji with their names in six languages.

    It writes the emoji as a data set, trains a small model, evaluates it on emoji that it has not seen, builds an
    index, answers three searches, and writes a page with the results. It needs the extra "demo"
    (pip install 'subtext[demo]'). Run the command again to resume an interrupted demonstration.

    limit  use only the first so many emoji

    Raises RequirementError when packages are missing, or the folder is not this demonstration's.
    """
    settings = Demo(Path(out), seed, epochs, limit, device, workers, quiet)
    started = time.monotonic()
    _enter(settings)
    step = _Steps(5, quiet=settings.quiet)
    step(f"pictures and texts of emoji -> {settings.out / 'data'}", lambda: _prepare(settings))
    if step(f"training from scratch -> {settings.out / 'run'}", lambda: _train(settings)):
        return Demonstration("stopped; the same command goes on from there", stopped=True)
    findings = step("evaluating on emoji that were held out", lambda: _evaluate(settings))
    step(f"index of all pictures -> {settings.out / 'index'}", lambda: _index(settings))
    page = settings.out / "page.html"
    step(f"three searches -> {page}", lambda: _page(settings, findings, page))
    say(f"all in {duration(time.monotonic() - started)}", quiet=settings.quiet)
    return Demonstration(f"{findings.text()}\n\nopen the page:\n  {_opener()} {shlex.quote(str(page))}")


class _Steps:
    """Says which step of how many is taken, and how long it took."""

    def __init__(self, count: int, *, quiet: bool) -> None:
        self.count, self.done, self.quiet = count, 0, quiet

    def __call__(self, step: str, take: Callable[[], T]) -> T:
        self.done += 1
        say(f"[{self.done}/{self.count}] {step}", quiet=self.quiet)
        started = time.monotonic()
        result = take()
        say(f"      {duration(time.monotonic() - started)}", quiet=self.quiet)
        return result


def _enter(asked: Demo) -> None:
    """Make the folder, or see that it is this demonstration's."""
    from subtext.data.atomic import write_text
    from subtext.demo.emoji import emoji

    settings = {"seed": asked.seed, "limit": asked.limit, "arguments": ARGUMENTS, "plan": asked.plan}
    mark = asked.out / MARK
    if mark.is_file():
        recorded = json.loads(mark.read_text(encoding="utf-8"))
        if recorded.get("settings") != settings:
            raise RequirementError(
                f"{asked.out} holds a demonstration of other settings ({recorded.get('settings')}); "
                "name another folder with --out, or remove this one"
            )
        return
    if asked.out.exists() and (not asked.out.is_dir() or any(asked.out.iterdir())):
        raise RequirementError(
            f"the demonstration needs a new or empty folder; {asked.out} holds something; name another with --out"
        )
    emoji()  # so that missing packages are told before a folder is made
    write_text(mark, json.dumps({"settings": settings, "version": __version__}, indent=2) + "\n")


def _prepare(settings: Demo) -> None:
    from subtext.demo.emoji import emoji
    from subtext.demo.prepare import prepare

    folder = settings.out / "data"
    if folder.is_dir():
        say("      already there", quiet=settings.quiet)
        return
    total = len(emoji()[: settings.limit])
    with meter("drawing", total, quiet=settings.quiet) as progress:
        prepare(folder, seed=settings.seed, limit=settings.limit, progress=progress)


def _train(settings: Demo) -> bool:
    """Train, or go on; True when somebody stopped it."""
    from subtext.api.train import train
    from subtext.models.checkpoint import load_record

    run = settings.out / "run"
    try:
        if load_record(run).status == "finished":
            say("      already trained", quiet=settings.quiet)
            return False
    except CheckpointError:
        pass  # Nothing was begun, or not as far as a record: training starts, or goes on from its own checkpoints.
    options: dict[str, Any] = {
        "seed": settings.seed,
        "device": settings.device,
        "workers": settings.workers,
        "quiet": settings.quiet,
    }
    trained = train(
        HOST, data=settings.out / "data", out=run, resume=run.exists(), **options, **ARGUMENTS, **settings.plan
    )
    return trained.record.status == "stopped"


def _evaluate(settings: Demo) -> Findings:
    from subtext.demo.findings import measure

    return measure(settings.out, seed=settings.seed, workers=settings.workers, quiet=settings.quiet)


def _index(settings: Demo) -> None:
    from subtext.api.index.build import build_index, interrupted_build

    index = settings.out / "index"
    if index.is_dir() and interrupted_build(index) is None:
        say("      already there", quiet=settings.quiet)
        return
    build_index(index, run=settings.out / "run", device=settings.device, workers=settings.workers, quiet=settings.quiet)


def _page(settings: Demo, findings: Findings, page: Path) -> None:
    from subtext.demo.showing import show

    say(show(settings.out, findings, page), quiet=settings.quiet)


def _opener() -> str:
    return {"darwin": "open", "win32": "start"}.get(sys.platform, "xdg-open")
