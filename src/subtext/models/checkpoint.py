"""What a run leaves on disk: one record in JSON, tensors as safetensors, and nothing that can run code.

    RUN/run.json            Record: what was trained, on what, how well
    RUN/model.safetensors   the kept weights
    RUN/assets/image, text  what each branch needs to read its input again (vocabulary, tokeniser, backbone settings)
    RUN/log.jsonl           one line a logged step and epoch      RUN/README.md   the model card
    RUN/tables/epoch-0002.safetensors   scores of every training pair that weights were made from, one file an epoch
    RUN/checkpoints/, cache/   while training; a finished run has neither

Every file is written under another name in the same folder, flushed to the disk and renamed into place: a reader sees
the old file or the new one, never half of one.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from subtext.data.atomic import write_file, write_folder, write_text
from subtext.errors import CheckpointError
from subtext.models.renamed_options import current_record

RECORD, WEIGHTS, ASSETS, TABLES = "run.json", "model.safetensors", "assets", "tables"


@dataclass(frozen=True)
class DataSource:
    """Where a run's data came from, so that later commands need not be told again.

    data                     file or folder of pairs; empty for pairs made in memory
    images                   folder that picture paths start from, when it was given apart
    features, text_features  files of precomputed features
    train_split, val_split   names of splits; val_split is None for a run without validation
    split_seed               of the 80-10-10 split of data without splits
    on_error                 "raise" or "skip" rows that cannot be used
    fingerprint              of the training and validation pairs (`data.fingerprint`)
    inputs                   of how images and texts are read: feature files, vocabulary, transform, in what
                             precision outputs of frozen encoders are cached, and graphs that neighbours are drawn from
    """

    data: str = ""
    images: str | None = None
    features: str | None = None
    text_features: str | None = None
    train_split: str = "train"
    val_split: str | None = "val"
    split_seed: int = 0
    on_error: Literal["raise", "skip"] = "raise"
    fingerprint: str = ""
    inputs: str = ""


@dataclass(frozen=True)
class Record:
    """One run in words and numbers.

    model, arguments  the model recipe and its options
    methods           (name, arguments) of each training method, in the order applied
    plan, phases      how it is trained, as plain data
    data              where the pairs came from
    seed              of every draw
    status            "training" until the end; "stopped" when a person, a signal or a bad number ended it
    best, best_epoch  validation figures of the kept weights, and their epoch counted from 1; empty and None before
    epochs, steps     finished so far
    seconds           of training, over all resumptions
    version, versions of Subtext, and of the libraries underneath
    """

    model: str
    arguments: dict[str, Any] = field(default_factory=dict)
    methods: tuple[tuple[str, dict[str, Any]], ...] = ()
    plan: dict[str, Any] = field(default_factory=dict)
    phases: tuple[dict[str, Any], ...] = ()
    data: DataSource = DataSource()
    seed: int = 0
    status: Literal["training", "finished", "stopped"] = "training"
    best: dict[str, float] = field(default_factory=dict)
    best_epoch: int | None = None
    epochs: int = 0
    steps: int = 0
    seconds: float = 0.0
    version: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The record as indented JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str | bytes, *, where: str = RECORD) -> Record:
        """The record again.

        Raises CheckpointError, naming `where`, when the text is not JSON or has fields that this version does not know.
        """
        try:
            values = current_record(json.loads(text))
            _require_kinds(values)
            source = values.pop("data", {})
            if "bad" in source:
                # Runs of version 0.1 call it so.
                source["on_error"] = source.pop("bad").replace("refuse", "raise")
            methods = tuple((str(name), dict(arguments)) for name, arguments in values.pop("methods", ()))
            phases = tuple(dict(phase) for phase in values.pop("phases", ()))
            return Record(**values, data=DataSource(**source), methods=methods, phases=phases)
        except (ValueError, TypeError, AttributeError, RecursionError) as problem:
            raise CheckpointError(
                f"{where} needs to be the record of a run of this version of Subtext; {problem}; "
                "use the version that wrote it, or train again"
            ) from problem

    def differences(self, record: Record, defaults_before: Sequence[Mapping[str, object]] = ()) -> list[str]:
        """What would make `record` another training: one "--option this -> other" each; empty when it is the same.

        defaults_before  values that held for options which this record, of an older version, does not have: those of
                         the model and the plan, then those of each method. Without it a missing option is a difference

        Options are spelt as the command line has them. Another model is reported alone: its options are others anyway.
        """
        if self.model != record.model:
            return [f"the model: {self.model} -> {record.model}"]
        found: list[str] = []
        mine, theirs = ({"seed": each.seed} | _plain(each.arguments) | _plain(each.plan) for each in (self, record))
        mine = _said(mine, theirs, defaults_before[0] if defaults_before else {})
        for name in sorted(set(mine) | set(theirs)):
            _compare(name, mine.get(name), theirs.get(name), found)
        methods = self.methods
        if [name for name, _ in methods] == [name for name, _ in record.methods] and len(defaults_before) == len(
            methods
        ) + 1:
            methods = tuple(
                (name, _said(had, has, defaults))
                for (name, had), (_, has), defaults in zip(methods, record.methods, defaults_before[1:], strict=True)
            )
        if _plain(methods) != _plain(record.methods):
            found.append(f"{_with(methods)} -> {_with(record.methods)}")
        if _plain(self.phases) != _plain(record.phases):
            found.append(f"phases {list(self.phases)} -> {list(record.phases)}")
        if self.data.fingerprint != record.data.fingerprint:
            found.append(f"the pairs: {self.data.data or 'those of the run'} -> other pairs or other splits")
        if self.data.inputs != record.data.inputs:
            found.append("how images and texts are read: other features or cache precision, or files that have changed")
        return found


def _require_kinds(values: dict[str, Any]) -> None:
    """Raise TypeError where a field is not of the kind that its default is of."""
    kinds: dict[type, tuple[type, ...]] = {
        tuple: (list,), DataSource: (dict,), float: (float, int), type(None): (int, type(None)),
    }  # fmt: skip
    empty = Record(model="")
    for name in sorted(set(values) & {record_field.name for record_field in fields(Record)}):
        default = type(getattr(empty, name))
        if not isinstance(values[name], kinds.get(default, (default,))) or isinstance(values[name], bool):
            raise TypeError(f"'{name}' is {values[name]!r:.60}")


def save_record(run: Path, record: Record) -> None:
    """Write RUN/run.json."""
    write_text(run / RECORD, record.to_json())


def require_new_folder(folder: Path, subject: str) -> None:
    """Raise CheckpointError, about `subject`, unless the folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{subject} needs a new or an empty folder; {folder} holds something; name another")


def load_record(run: Path) -> Record:
    """Read RUN/run.json.

    Raises CheckpointError when there is none.
    """
    path = run / RECORD
    if not path.is_file():
        raise CheckpointError(
            f"{run} needs to be the folder of a run with a {RECORD}; there is none; name a folder that "
            "`subtext train --out` wrote"
        )
    return Record.from_json(path.read_bytes(), where=str(path))


def save_run(run: Path, model: nn.Module, record: Record) -> None:
    """Write a whole run: record, weights, and the assets of both branches (`reads.save`, `encoder.save_assets`)."""
    save_assets(run, model)
    write_tensors(run / WEIGHTS, model.state_dict())
    save_record(run, record)


def save_assets(run: Path, model: nn.Module) -> None:
    """Write RUN/assets: what the two branches need to be built again, beside their tensors."""

    def fill(folder: Path) -> None:
        for modality in ("image", "text"):
            path = folder / modality
            path.mkdir()
            branch = getattr(model, modality)
            branch.input_spec.save(path)
            if hasattr(branch.encoder, "save_assets"):
                branch.encoder.save_assets(path)

    write_folder(run / ASSETS, fill)


def load_run(run: Path) -> tuple[Record, dict[str, Tensor]]:
    """The record and the kept weights of a run.

    Raises CheckpointError when the folder is no run, or has no weights yet.
    """
    record = load_record(run)
    if not (run / WEIGHTS).is_file():
        raise CheckpointError(
            f"{run} needs {WEIGHTS} to be opened; it has none: its training did not finish an epoch; "
            "continue it with --resume"
        )
    return record, read_tensors(run / WEIGHTS)


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """32 hexadecimal digits that change with any name, shape, type or bit of the tensors."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}/{value.dtype}/{tuple(value.shape)}".encode())
        if value.numel():
            digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as one safetensors file, whole or not at all."""
    write_file(path, lambda place: put_tensors(place, tensors))


def put_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a file that is not yet in its place; those that share memory are written each."""
    pointers: set[int] = set()
    plain: dict[str, Tensor] = {}
    for name, value in tensors.items():
        flat = value.detach().cpu().contiguous()
        memory = flat.untyped_storage()
        plain[name] = flat.clone() if memory.data_ptr() in pointers or memory.nbytes() != flat.nbytes else flat
        pointers.add(memory.data_ptr())
    path.touch()
    mode = path.stat().st_mode
    save_file(plain, path, metadata={"format": "pt"})
    # It makes a file that its owner alone may read; a run is for whom its folder is for.
    path.chmod(mode)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, in memory of their own.

    Raises CheckpointError when the file is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, SafetensorError) as problem:
        raise CheckpointError(f"{path} needs to be a whole safetensors file; {problem}") from problem


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries underneath, as a Record has them."""
    versions = {name: version(name) for name in ("torch", "transformers", "accelerate", "numpy", "safetensors")}
    return {"python": platform.python_version(), **versions}


def _said(had: Mapping[str, Any], has: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, Any]:
    """The options of an older record, and for those that it lacks and the newer one has what holds defaults_before."""
    old = {name: values[name] for name in has if name in values} | dict(had)
    # A file or folder may stand there as it was typed: it is the same from where it was typed.
    typed = {
        name for name, value in old.items() if isinstance(value, str) and str(Path(value).absolute()) == has.get(name)
    }
    return old | {name: has[name] for name in typed}


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _compare(name: str, mine: Any, theirs: Any, differences: list[str]) -> None:
    if mine == theirs:
        return
    spelt = name.replace("_", "-")
    if isinstance(mine, bool) and isinstance(theirs, bool):
        differences.append(f"--{'' if mine else 'no-'}{spelt} -> --{'' if theirs else 'no-'}{spelt}")
    else:
        differences.append(f"--{spelt} {_value(mine)} -> {_value(theirs)}")


def _value(value: Any) -> str:
    return "not given" if value is None or value == "" else str(value)


def _with(methods: tuple[tuple[str, dict[str, Any]], ...]) -> str:
    """The methods as --with has them."""
    texts = ((name, ",".join(f"{key}={value}" for key, value in options.items())) for name, options in methods)
    return " ".join(f"--with {':'.join(filter(None, text))}" for text in texts) or "no --with"
