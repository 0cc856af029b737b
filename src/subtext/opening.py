"""Opening what was kept: a run's folder becomes a model again, an index becomes a search engine.

A run's folder is the whole convention: `run.json`, `model.safetensors` and `assets/` are what a model is made of, and
`load` reads a folder that `save_pretrained` wrote just as one that training left. Nothing in it can run code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from subtext.checkpoint import ASSETS, Record, load_run, save_run, write_text
from subtext.data.features import FeatureFile, FeatureInput
from subtext.data.supply import Supply
from subtext.errors import CheckpointError, DataError, IndexError_, RecipeError, RequirementError
from subtext.model import Branch, Model
from subtext.recipes.build import build
from subtext.report.model_card import model_card

if TYPE_CHECKING:
    from torch import Tensor

    from subtext.search import Engine

CARD = "README.md"


@dataclass(frozen=True)
class Run:
    """An opened run.

    model   with the kept weights, in eval mode
    record  what was trained, on what, how well
    path    its folder
    supply  what the recipe was built from
    """

    model: Model
    record: Record
    path: Path
    supply: Supply

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
    """A run's folder as a model, its record and its supply.

    features, text_features  files that replace those which the run remembers. A remembered file that is gone is no
                             error until an item is looked up in it by name

    Raises CheckpointError when the folder is no run, or is damaged or of another recipe; DataError when a file that was
    given cannot be read or has other widths; RecipeError when a file is given for a modality that reads none.
    """
    folder = Path(path).expanduser()
    record, tensors = load_run(folder)
    supply = Supply(assets=folder / ASSETS, seed=record.seed)
    model = _rebuilt(folder, record, supply)
    _fill(model, tensors, folder)
    for modality, given, remembered in (
        ("image", features, record.data.features),
        ("text", text_features, record.data.text_features),
    ):
        branch = getattr(model, modality)
        if given is not None:
            attach(branch, FeatureFile.open(Path(given).expanduser()), modality)
        elif remembered is not None and Path(remembered).exists() and isinstance(branch.reads, FeatureInput):
            attach(branch, FeatureFile.open(Path(remembered)), modality)
    return Run(model.to(device).eval(), record, folder, supply)


def attach(branch: Branch, file: FeatureFile, modality: str) -> None:
    """Let a branch look its items up in a file of features.

    Raises RecipeError when the branch reads something else, and DataError when the widths differ.
    """
    if not isinstance(branch.reads, FeatureInput):
        option = "features" if modality == "image" else "text features"
        raise RecipeError(
            f"{option} need a model whose {modality} side reads them; this one reads by {type(branch.reads).__name__}; "
            f"leave the {option} out"
        )
    branch.reads = branch.reads.with_file(file)


def save_pretrained(model: Model, record: Record, folder: Path | str) -> None:
    """Write a model as a folder that `load` reads: record, weights, assets and a model card.

    Raises CheckpointError when the folder holds something, or the disk is full.
    """
    folder = Path(folder).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"save_pretrained needs a new or an empty folder; {folder} holds something; name another")
    save_run(folder, model, record)
    write_text(folder / CARD, model_card(record))


def open_engine(
    index: Path | str,
    *,
    run: Path | str | None = None,
    features: Path | str | None = None,
    device: str = "cpu",
) -> Engine:
    """The search engine of an index folder, with the model of the run that its manifest names.

    run       where that run is now, when it was moved
    features  file of picture features that a query picture is looked up in, for a model that reads them; by default
              the one that the index was built from, where it is still there

    Raises IndexError_ when the index cannot be read, its run is gone, or the model is not the one that made it; for a
    file that is given, what `open_run` raises.
    """
    from subtext.search import Engine
    from subtext.stores.folder import Folder

    folder = Folder(Path(index).expanduser())
    place = run if run is not None else folder.manifest.run
    if not place:
        raise IndexError_(f"{index} needs the run that made it, and names none; say where it is (run, or --run RUN)")
    if not Path(place).expanduser().is_dir():
        raise IndexError_(
            f"{index} needs the run that made it; {place} is not there; say where it is now (run, or --run RUN)"
        )
    engine = Engine(folder, load(place, device=device))
    for modality, given in (("image", features), ("text", None)):
        remembered = folder.manifest.data.get("features" if modality == "image" else "text_features")
        if given is not None:
            attach(getattr(engine.model, modality), FeatureFile.open(Path(given).expanduser()), modality)
        elif remembered is not None and Path(remembered).exists():
            attach(getattr(engine.model, modality), FeatureFile.open(Path(remembered)), modality)
    return engine


def _rebuilt(folder: Path, record: Record, supply: Supply) -> Model:
    """The recipe called again, as it was for training; its weights are still to be filled in."""
    try:
        return build(record.host, record.arguments, methods=record.methods, plan=record.plan, supply=supply).model
    except (RecipeError, RequirementError, DataError) as error:
        raise CheckpointError(
            f"{folder} needs the recipe '{record.host}' as it was (Subtext {record.version}), and its assets; {error}"
        ) from error


def _fill(model: Model, tensors: dict[str, Tensor], folder: Path) -> None:
    own = model.state_dict()
    missing, further = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    shaped = [
        f"{name} {tuple(tensors[name].shape)} for {tuple(value.shape)}"
        for name, value in own.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    wrong = [
        f"{len(names)} {what}, first {names[0]}"
        for what, names in (("missing", missing), ("unknown", further), ("of another shape", shaped))
        if names
    ]
    if wrong:
        raise CheckpointError(
            f"{folder} needs weights of the recipe that its record names; its tensors are of another: "
            f"{'; '.join(wrong)}; put back the run.json and model.safetensors that belong together"
        )
    model.load_state_dict(tensors, strict=True)
