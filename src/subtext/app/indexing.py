"""`subtext index`: a run and a data set become an index folder, and an index folder is told in words."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from subtext.app.job import Work
from subtext.app.opened import open_work, remembered
from subtext.app.progress import meter
from subtext.app.table import size, table
from subtext.data.features import FeatureInput
from subtext.errors import counted
from subtext.evaluate import embed_pairs
from subtext.model import Branch
from subtext.search import build_index
from subtext.stores.folder import Folder, require_new


def build(work: Work, out: Path) -> str:
    """Embed the split by the run and write the index; says what is in it.

    Raises what opening and reading raise, RequirementError for a model that only scores pairs, and IndexError_ when
    `out` holds something.
    """
    assert work.run is not None
    require_new(out)
    opened = open_work(work)
    opened.model.require_indexable("an index")
    assert opened.record is not None
    pairs = opened.pairs
    sources = work.sources.over(remembered(opened.record.data))
    sources = replace(sources, features=_file(opened.model.image), text_features=_file(opened.model.text))
    with meter("embedding", len(pairs.images) + len(pairs.texts), quiet=work.quiet) as told:
        embeddings = embed_pairs(opened.model, pairs, batch_size=work.batch_size, workers=work.workers, progress=told)
    folder = build_index(
        out,
        opened.model,
        pairs,
        embeddings=embeddings,
        run=str(work.run.expanduser().resolve()),
        host=opened.record.host,
        source={**sources.to_json(), "split": work.split},
    )
    counts = folder.manifest.counts
    return (
        f"{out}: {counted(counts['images'], 'picture')} and {counted(counts['texts'], 'text')}, vectors of "
        f"{_shape(folder)}, "
        f'{size(folder.bytes)}\nnext:\n  subtext search {shlex.quote(str(out))} "words"'
    )


def info(index: Path, *, as_json: bool) -> str:
    """What an index holds, as a table or as JSON.

    Raises IndexError_ when it cannot be read.
    """
    folder = Folder(index)
    manifest = folder.manifest
    if as_json:
        found: dict[str, Any] = json.loads(manifest.to_json())
        return json.dumps({**found, "bytes": folder.bytes}, indent=2, ensure_ascii=False)
    rows = [
        ["pictures", f"{manifest.counts['images']:,}"],
        ["texts", f"{manifest.counts['texts']:,}"],
        ["vectors", _shape(folder)],
        ["size", size(folder.bytes)],
        ["run", manifest.run or "-"],
        ["host", manifest.host or "-"],
        ["fingerprint", manifest.fingerprint],
        ["data", str(manifest.data.get("data", "-"))],
        ["split", str(manifest.data.get("split", "-"))],
        *[
            [name.replace("_", " "), path]
            for name in ("features", "text_features")
            if (path := manifest.data.get(name))
        ],
        ["made", f"{manifest.created} by Subtext {manifest.version}"],
    ]
    return table(["index", str(index)], rows)


def _file(branch: Branch) -> Path | None:
    """The file of features that a branch has read: given, remembered by the run, or part of the data set."""
    return branch.reads.file.path if isinstance(branch.reads, FeatureInput) and branch.reads.file is not None else None


def _shape(folder: Folder) -> str:
    manifest = folder.manifest
    images, texts = manifest.views["images"], manifest.views["texts"]
    views = f"{images} x " if images == texts and images > 1 else f"{images} and {texts} x " if images != texts else ""
    return f"{views}{manifest.width}"
