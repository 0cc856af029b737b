"""A worker that makes shards of an index: a model that is loaded once, and one share of the items after the other."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext.api.job import Sources
from subtext.api.load import open_run
from subtext.api.loaded import choose_device
from subtext.data.check_images import check_images
from subtext.data.dataset import Dataset
from subtext.data.features import FeatureInput
from subtext.data.read import told
from subtext.errors import DataError, counted
from subtext.models.model import Model
from subtext.search.growing import Growing, grow
from subtext.search.stores.folder import Folder, create
from subtext.search.stores.manifest import MANIFEST, Manifest
from subtext.search.stores.opened import make_lists
from subtext.search.stores.shards.manifest import read_shards, write_record


@dataclass(frozen=True)
class Task:
    """What all workers of a build are told, as plain data.

    index    its folder      run   the folder of the run that embeds; every machine has to see both under these paths
    source   where the items come from, as the journal names it
    device   "auto", "cpu" or "cuda"
    """

    index: str
    run: str
    source: Mapping[str, Any]
    device: str
    batch_size: int
    workers: int


class Embedder:
    """Makes shards, each as an index folder; nothing is opened before the first of them is asked for."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._model: Model | None = None

    def shard(self, number: int, share: Dataset) -> dict[str, int]:
        """Make a shard of these items, or go on with one that was cut off; gives how many pictures and texts it has.

        That it is done is on the disk when this returns. Raises DataError when an item cannot be read, and what the
        store raises.
        """
        index = Path(self.task.index)
        listed = read_shards(index, whole=False)
        source = Sources.from_json(self.task.source)
        model = self._opened(source)
        if not isinstance(model.image.input_spec, FeatureInput):
            _require_readable(share)
        how = Growing(verb="build", source=self.task.source, batch_size=self.task.batch_size, workers=self.task.workers)
        folder = _folder(index / listed.shards[number].folder, listed.manifest)
        with folder.writing("build") as writer:
            grow(writer, model, share, how=how)
            make_lists(writer)
        counts = folder.counts
        folder.close()
        write_record(index, listed.shards[number], counts)
        return counts

    def _opened(self, source: Sources) -> Model:
        if self._model is None:
            run = open_run(
                Path(self.task.run),
                features=source.features,
                text_features=source.text_features,
                device=choose_device(self.task.device),
            )
            self._model = run.model.indexed("an index")
        return self._model


def _require_readable(share: Dataset) -> None:
    """Raise DataError where some pictures cannot be decoded; those that were to be skipped are in no share."""
    names = [f"picture '{name}'" for name in share.images.ids]
    problems = check_images(share, names, verify=True)[1] if names else []
    if problems:
        raise DataError(
            f"a shard has {counted(len(problems), 'problem')}: {'; '.join(told(problems)[:3])}; mend them, or skip bad "
            "rows (--bad skip)"
        )


def _folder(place: Path, manifest: Manifest) -> Folder:
    """The folder of a shard: as it was left, or a new one."""
    if (place / MANIFEST).is_file():
        return Folder(place)
    # Cut off before it had a manifest, and so before anything was acknowledged.
    shutil.rmtree(place, ignore_errors=True)
    return create(place, manifest)
