"""The files of a run: one record in JSON, tensors as safetensors, and nothing that can run code.

    RUN/run.json            Record: what was trained, on which data, and its figures
    RUN/model.safetensors   the kept weights, with their checksum; while it trains, without those of the next file; and
                            without those of frozen starter towers, which their packages hold
    RUN/frozen.safetensors  while it trains: the weights that never learn, written once
    RUN/assets/image, text  what rebuilds each branch beside its tensors (vocabulary, tokeniser, backbone settings)
    RUN/log.jsonl           one line a logged step and epoch      RUN/README.md   the model card
    RUN/tables/epoch-0002.safetensors   scores of all training pairs that sample weights read, one file an epoch
    RUN/checkpoints/, cache/   during training alone

Every file is written under another name in the same folder, flushed to the disk and renamed: a reader sees the old file
or the new one, never a part of one.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from importlib.metadata import version
from math import nan
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from subtext.data.atomic import write_file, write_folder, write_text
from subtext.data.config import DataConfig
from subtext.errors import CheckpointError, Setting
from subtext.text_helpers import json_text
from subtext.version import DRAWS, FORMAT, require_format

RECORD, WEIGHTS, ASSETS, TABLES = "run.json", "model.safetensors", "assets", "tables"
FROZEN = "frozen.safetensors"
_CHECKSUM = "crc32"


@dataclass(frozen=True)
class Record:
    """The options, data and results of one run.

    Attributes:
        model: Name of the model.
        arguments: Options of the model.
        methods: (name, arguments) of each training method, in the order applied.
        plan: The training plan, as plain data.
        phases: Phases of the training, as plain data.
        data: The source of the pairs, which later commands read again.
        fingerprint: Of the training and validation pairs (`data.fingerprint`).
        inputs: Fingerprint of all other inputs: feature files, vocabulary, transform, precision of cached outputs of
            frozen encoders, and graphs of neighbours.
        seed: Of every draw.
        status: "training" until the end; "stopped" when a person, a signal or a bad number ended it.
        best: Validation figures of the kept weights; empty before there are any.
        best_epoch: Their epoch, from 1; 0 is the model before training, where that takes part in the selection; None
            before there are any.
        start: Validation figures of that model; empty where it does not take part.
        epochs: Number of finished epochs.
        steps: Number of finished steps.
        seconds: Of training, over all resumptions.
        version: Of Subtext.
        versions: Of its libraries.
        draws: `version.DRAWS` of the Subtext that trained the run.
        format: `version.FORMAT` of that Subtext.
    """

    model: str
    arguments: dict[str, Any] = field(default_factory=dict)
    methods: tuple[tuple[str, dict[str, Any]], ...] = ()
    plan: dict[str, Any] = field(default_factory=dict)
    phases: tuple[dict[str, Any], ...] = ()
    data: DataConfig = DataConfig()
    fingerprint: str = ""
    inputs: str = ""
    seed: int = 0
    status: Literal["training", "finished", "stopped"] = "training"
    best: dict[str, float] = field(default_factory=dict)
    best_epoch: int | None = None
    start: dict[str, float] = field(default_factory=dict)
    epochs: int = 0
    steps: int = 0
    seconds: float = 0.0
    version: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    draws: int = DRAWS
    format: int = FORMAT

    def to_json(self) -> str:
        """The record as indented JSON.

        Returns:
            The text, which ends with a line break.
        """
        return json_text(self.plain(), indent=2) + "\n"

    def plain(self) -> dict[str, Any]:
        """The record as plain data.

        Returns:
            The fields by name, as JSON values.
        """
        return {**vars(self), "data": self.data.plain()}

    @staticmethod
    def from_json(text: str | bytes, *, where: str = RECORD) -> Record:
        """Read a record.

        Args:
            text: JSON.
            where: Path of the file, for messages.

        Returns:
            The record.

        Raises:
            CheckpointError: If the text is not JSON, has another format, or has fields that are unknown or of another
                type.
        """
        try:
            values = dict(json.loads(text))
            require_format(values.get("format"), where, "train", CheckpointError)
            types: dict[type, tuple[type, ...]] = {tuple: (list,), DataConfig: (dict,), float: (float, int)}
            for name, default in vars(Record(model="")).items():
                expected = (int, type(None)) if default is None else types.get(type(default), (type(default),))
                if name in values and (not isinstance(values[name], expected) or isinstance(values[name], bool)):
                    raise TypeError(f"'{name}' is {values[name]!r:.60}")
            for name in ("best", "start"):  # JSON has null for what is no number.
                values[name] = {key: nan if value is None else value for key, value in values.get(name, {}).items()}
            source = values.pop("data", {})
            methods = tuple((str(name), dict(arguments)) for name, arguments in values.pop("methods", ()))
            phases = tuple(dict(phase) for phase in values.pop("phases", ()))
            return Record(**values, data=DataConfig(**source), methods=methods, phases=phases)
        except (ValueError, TypeError, AttributeError, RecursionError) as problem:
            raise CheckpointError(
                f"{where} needs to be the record of a run of this version of Subtext; {problem}; "
                "use the version that wrote it, or train again"
            ) from problem

    def differences(self, record: Record) -> list[str]:
        """What makes another record another training.

        Options are written as on the command line. Another model is reported alone, because its options differ anyway.

        Args:
            record: The other record.

        Returns:
            Such as "--option this -> other"; empty when it is the same training.
        """
        if self.model != record.model:
            return [f"the model: {self.model} -> {record.model}"]
        first, second = ({"seed": run.seed} | _plain(run.arguments) | _plain(run.plan) for run in (self, record))
        names = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
        result = [_difference(name, first.get(name), second.get(name)) for name in names]
        if _plain(self.methods) != _plain(record.methods):
            result.append(f"{_with(self.methods)} -> {_with(record.methods)}")
        if _plain(self.phases) != _plain(record.phases):
            result.append(f"phases {list(self.phases)} -> {list(record.phases)}")
        if self.fingerprint != record.fingerprint:
            result.append(f"the pairs: {self.data.data or 'those of the run'} -> other pairs or other splits")
        if self.inputs != record.inputs:
            result.append(
                "how images and texts are read: other features or cache precision, or files that have changed"
            )
        return result


def save_record(run: Path, record: Record) -> None:
    """Write RUN/run.json.

    Args:
        run: Folder of the run.
        record: Its record.
    """
    write_text(run / RECORD, record.to_json())


def require_new_folder(folder: Path, subject: str) -> None:
    """Check that a folder is new or empty.

    Args:
        folder: Its path.
        subject: What needs it, for the message.

    Raises:
        CheckpointError: If it holds something, or is a file.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{subject} needs a new or an empty folder; {folder} holds something; name another")


def load_record(run: Path) -> Record:
    """Read RUN/run.json.

    Args:
        run: Folder of the run.

    Returns:
        The record.

    Raises:
        CheckpointError: If there is no record, or it cannot be read.
    """
    path = run / RECORD
    if not path.is_file():
        raise CheckpointError(
            f"{run} needs to be the folder of a run with a {RECORD}; there is none; name a folder that "
            "`subtext train --out` wrote"
        )
    return Record.from_json(path.read_bytes(), where=str(path))


def save_run(run: Path, model: nn.Module, record: Record, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write a complete run: record, weights but those of installed packages, and the assets of both branches.

    Args:
        run: Folder of the run.
        model: A `Model`.
        record: Its record.
        weights: What is written; None for those of the model.
    """
    save_assets(run, model)
    if weights is None:
        installed = getattr(model, "installed", {})
        weights = {name: it for name, it in model.state_dict().items() if name not in installed}
    write_tensors(run / WEIGHTS, weights)
    save_record(run, record)


def save_assets(run: Path, model: nn.Module) -> None:
    """Write RUN/assets: what rebuilds the two branches, beside their tensors.

    Args:
        run: Folder of the run.
        model: A `Model`.
    """

    def fill(folder: Path) -> None:
        for modality in ("image", "text"):
            path = folder / modality
            path.mkdir()
            getattr(model, modality).save_assets(path)

    write_folder(run / ASSETS, fill)


def load_run(run: Path) -> tuple[Record, dict[str, Tensor]]:
    """The record and the kept weights of a run.

    Args:
        run: Folder of the run.

    Returns:
        The record, and tensors by name.

    Raises:
        CheckpointError: If the folder is no run, or has no weights yet.
    """
    record = load_record(run)
    if not (run / WEIGHTS).is_file():
        raise CheckpointError(
            f"{run} needs {WEIGHTS} to be opened; it has none: its training did not finish an epoch; continue it with ",
            Setting("resume"),
        )
    # First those that the end of a training removes: what is read after them has all others in any case.
    frozen = read_tensors(run / FROZEN) if (run / FROZEN).is_file() else {}
    return record, frozen | read_tensors(run / WEIGHTS)


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A hash of tensors.

    Args:
        tensors: By name.

    Returns:
        32 hexadecimal digits that change with any name, shape, type or bit.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(tensors):
        digest.update(part)
    return digest.hexdigest()


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """8 hexadecimal digits that tell damage of the tensors; four times as fast as a fingerprint."""
    return f"{reduce(lambda value, part: crc32(part, value), _parts(tensors), 0):08x}"


def _parts(tensors: Mapping[str, Tensor]) -> Iterator[Any]:
    """The names, types, shapes and bytes of tensors, by name."""
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        yield f"{name}/{value.dtype}/{tuple(value.shape)}".encode()
        if value.numel():
            yield value.reshape(-1).view(torch.uint8).numpy().data


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as one safetensors file, in one step.

    Args:
        path: Of the file.
        tensors: By name.
    """
    write_file(path, lambda temporary: put_tensors(temporary, tensors))


def put_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors with their checksum to a temporary file; tensors that share memory are written separately.

    Args:
        path: Of the file.
        tensors: By name.
    """
    pointers: set[int] = set()
    plain: dict[str, Tensor] = {}
    for name, value in tensors.items():
        flat = value.detach().cpu().contiguous()
        memory = flat.untyped_storage()
        plain[name] = flat.clone() if memory.data_ptr() in pointers or memory.nbytes() != flat.nbytes else flat
        pointers.add(memory.data_ptr())
    path.touch()
    mode = path.stat().st_mode
    # The checksum lies in the same file, so that no interruption parts the two. One key alone: safetensors writes
    # several in any order, and the same tensors are to give the same bytes.
    save_file(plain, path, metadata={_CHECKSUM: _checksum(plain)})
    # `save_file` lets the owner alone read; a run may be read by everyone who may read its folder.
    path.chmod(mode)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, copied into memory.

    Args:
        path: Of the file.

    Returns:
        Tensors by name.

    Raises:
        CheckpointError: If the file is missing or damaged, or has no checksum.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a mapping
            checksum = (file.metadata() or {}).get(_CHECKSUM)
    except (OSError, SafetensorError) as problem:
        raise CheckpointError(f"{path} needs to be a whole safetensors file; {problem}") from problem
    if checksum is None:
        raise CheckpointError(
            f"{path} needs the checksum that Subtext writes into its files of tensors; it has none, so something else "
            "wrote it; restore it from a copy, or train again"
        )
    if checksum != _checksum(tensors):
        raise CheckpointError(
            f"{path} needs the tensors that were written into it; their checksum is another, the file is damaged; "
            "restore it from a copy, or train again"
        )
    return tensors


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries, for a Record.

    Returns:
        Versions by name.
    """
    versions = {name: version(name) for name in ("torch", "transformers", "accelerate", "numpy", "safetensors")}
    return {"python": platform.python_version(), **versions}


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _difference(name: str, first: Any, second: Any) -> str:
    """An option that differs, as on the command line."""
    option = name.replace("_", "-")
    if isinstance(first, bool) and isinstance(second, bool):
        return " -> ".join(f"--{'' if value else 'no-'}{option}" for value in (first, second))
    first, second = ("not given" if value is None or value == "" else value for value in (first, second))
    return f"--{option} {first} -> {second}"


def _with(methods: tuple[tuple[str, dict[str, Any]], ...]) -> str:
    """The methods as --with has them."""
    texts = ((name, ",".join(f"{key}={value}" for key, value in options.items())) for name, options in methods)
    return " ".join(f"--with {':'.join(filter(None, text))}" for text in texts) or "no --with"
