"""Opening what was kept: a run's folder becomes a model again, an index becomes a search engine.

A run's folder is the whole convention: `run.json`, `model.safetensors` and `assets/` are what a model is made of, and
`load` reads a folder that `save_pretrained` wrote just as one that training left. Nothing in it can run code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from subtext.data.atomic import write_text
from subtext.data.build_context import BuildContext
from subtext.data.features import FeatureFile
from subtext.errors import IndexError_
from subtext.models.checkpoint import Record, require_new_folder, save_run
from subtext.models.model import Model
from subtext.recipes.load import attach as attach
from subtext.recipes.load import reopened
from subtext.report.model_card import model_card

if TYPE_CHECKING:
    from subtext.search import Engine

CARD = "README.md"


@dataclass(frozen=True)
class Run:
    """An opened run.

    model   with the kept weights, in eval mode
    record  what was trained, on what, how well
    path    its folder
    context  what the recipe was built from
    """

    model: Model
    record: Record
    path: Path
    context: BuildContext

    def save_pretrained(self, folder: Path | str) -> None:
        """Write the run without its log and checkpoints; see `save_pretrained`."""
        save_pretrained(self.model, self.record, folder)


def load(run: Path | str, *, device: str = "cpu") -> Model:
    """The model of a run's folder, ready for embed_images, embed_texts and compare.

    Raises CheckpointError when the folder is no run, or is damaged or incomplete.
    """
    return open_run(run, device=device).model


from_pretrained = load
"""`load` by the name that other libraries have taught."""


def open_run(
    path: Path | str,
    *,
    features: Path | str | None = None,
    text_features: Path | str | None = None,
    device: str = "cpu",
) -> Run:
    """A run's folder as a model, its record and its context.

    features, text_features  files that replace those which the run remembers. A remembered file that is gone is no
                             error until an item is looked up in it by name

    Raises CheckpointError when the folder is no run, or is damaged or of another recipe; DataError when a file that was
    given cannot be read or has other widths; RecipeError when a file is given for a modality that reads none.
    """
    folder = Path(path).expanduser()
    found = reopened(
        folder,
        features=None if features is None else Path(features),
        text_features=None if text_features is None else Path(text_features),
    )
    return Run(found.model.to(device), found.record, folder, found.context)


def save_pretrained(model: Model, record: Record, folder: Path | str) -> None:
    """Write a model as a folder that `load` reads: record, weights, assets and a model card.

    Raises CheckpointError when the folder holds something, or the disk is full.
    """
    folder = Path(folder).expanduser()
    require_new_folder(folder, "save_pretrained")
    save_run(folder, model, record)
    write_text(folder / CARD, model_card(record))


def open_engine(
    index: Path | str,
    *,
    run: Path | str | None = None,
    features: Path | str | None = None,
    device: str = "cpu",
) -> Engine:
    """The search engine of an index, with the model of the run that its manifest names.

    index     a folder, or the address of an index in PostgreSQL: postgresql://USER@HOST/DATABASE?index=NAME
    run       where that run is now, when it was moved
    features  file of picture features that a query picture is looked up in, for a model that reads them; by default
              the one that the index was built from, where it is still there

    Raises IndexError_ when the index cannot be read, its run is gone, or the model is not the one that made it; for a
    file that is given, what `open_run` raises.
    """
    from subtext.search import Engine
    from subtext.search.stores.opened import open_store

    folder = open_store(index)
    place = run if run is not None else folder.manifest.run
    if not place:
        raise IndexError_(
            f"{folder.path} needs the run that made it, and names none; say where it is (run, or --run RUN)"
        )
    if not Path(place).expanduser().is_dir():
        raise IndexError_(
            f"{folder.path} needs the run that made it; {place} is not there; say where it is now (run, or --run RUN)"
        )
    engine = Engine(folder, load(place, device=device))
    for modality, given in (("image", features), ("text", None)):
        remembered = folder.manifest.data.get("features" if modality == "image" else "text_features")
        if given is not None:
            attach(getattr(engine.model, modality), FeatureFile.open(Path(given).expanduser()), modality)
        elif remembered is not None and Path(remembered).exists():
            attach(getattr(engine.model, modality), FeatureFile.open(Path(remembered)), modality)
    return engine
