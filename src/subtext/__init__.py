"""Subtext finds images for words and words for images when the two do not say the same thing.

    import subtext as st

    run = st.train("dual", data="captions.jsonl", out="runs/first")
    print(st.evaluate(run, split="test"))
    index = st.build_index("library", run="runs/first", split="all")
    st.search("library", "the ruling stands")

Every name is imported when it is first used, so `import subtext` is fast.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subtext.api.audit import audit
    from subtext.api.curate import Curation, NoiseDetection, PairScores, curate, detect_noise, score
    from subtext.api.embed import EmbeddedDataset, embed
    from subtext.api.evaluate import compare, evaluate
    from subtext.api.export import Export, export
    from subtext.api.index.build import (
        IndexChange,
        add_to_index,
        build_index,
        import_index,
        move_index,
        update_index,
        watch_index,
    )
    from subtext.api.index.maintain import (
        CalibrationReport,
        IndexInfo,
        IndexReport,
        VerifyResult,
        backup_index,
        calibrate,
        compact_index,
        delete_from_index,
        index_info,
        migrate_index,
        restore_index,
        upgrade_index,
        verify_index,
    )
    from subtext.api.load import Run, from_pretrained, load, open_run, save_pretrained
    from subtext.api.neighbours import NeighbourGraph, NeighbourReport, build_neighbours, neighbours, show_neighbours
    from subtext.api.prepare import JoinedFeatures, PreparedDataset, check, corrupt, dedup, join, prepare
    from subtext.api.runs import RunList, ensemble, runs
    from subtext.api.search import open_index, search
    from subtext.api.search import open_index as open_engine
    from subtext.api.train import train
    from subtext.core import Comparison
    from subtext.curation.check import CheckReport
    from subtext.data.dataset import Dataset
    from subtext.data.read import read
    from subtext.data.readers import register_reader
    from subtext.data.rows import Row, Source
    from subtext.demo.flow import Demonstration
    from subtext.demo.flow import demo as demo
    from subtext.evaluation.metric import Metric, register_metric
    from subtext.evaluation.results import Result
    from subtext.export.mteb_encoder import MtebEncoder
    from subtext.models.model import Model
    from subtext.objectives.objective import Term
    from subtext.recipes.catalogue import register_method
    from subtext.recipes.parts import replace_terms
    from subtext.search import Answer, Hit, Index, Query
    from subtext.server.serve import serve as serve

from subtext.version import __version__

_MODULES = {
    name: f"subtext.{module}"
    for module, names in {
        "api.audit": "audit",
        "api.curate": "Curation NoiseDetection PairScores curate detect_noise score",
        "api.embed": "EmbeddedDataset embed",
        "api.evaluate": "compare evaluate",
        "api.export": "Export export",
        "api.index.build": "IndexChange add_to_index build_index import_index move_index update_index watch_index",
        "api.index.maintain": "CalibrationReport IndexInfo IndexReport VerifyResult backup_index calibrate "
        "compact_index delete_from_index index_info migrate_index restore_index upgrade_index verify_index",
        "api.load": "Run from_pretrained load open_run save_pretrained",
        "api.neighbours": "NeighbourGraph NeighbourReport build_neighbours neighbours show_neighbours",
        "api.prepare": "JoinedFeatures PreparedDataset check corrupt dedup join prepare",
        "api.runs": "RunList ensemble runs",
        "api.search": "open_engine open_index search",
        "api.train": "train",
        "core": "Comparison",
        "curation.check": "CheckReport",
        "data.dataset": "Dataset",
        "data.read": "read",
        "data.rows": "Row Source",
        "demo.flow": "Demonstration demo",
        "data.readers": "register_reader",
        "evaluation.metric": "Metric register_metric",
        "evaluation.results": "Result",
        "export.mteb_encoder": "MtebEncoder",
        "models.model": "Model",
        "objectives.objective": "Term",
        "recipes.catalogue": "register_method",
        "recipes.parts": "replace_terms",
        "search": "Answer Hit Index Query",
        "server.serve": "serve",
    }.items()
    for name in names.split()
}
"""Public name -> the module that defines it."""

__all__ = [
    "Answer", "CalibrationReport", "CheckReport", "Comparison", "Curation", "Dataset", "Demonstration",
    "EmbeddedDataset", "Export", "Hit", "Index", "IndexChange", "IndexInfo", "IndexReport", "JoinedFeatures",
    "Metric", "Model", "MtebEncoder", "NeighbourGraph", "NeighbourReport", "NoiseDetection", "PairScores",
    "PreparedDataset", "Query", "Result", "Row", "Run", "RunList", "Source", "Term", "VerifyResult", "__version__",
    "add_to_index", "audit", "backup_index", "build_index", "build_neighbours", "calibrate", "check",
    "compact_index", "compare", "corrupt", "curate", "dedup", "delete_from_index", "demo", "detect_noise", "embed",
    "ensemble", "evaluate", "export", "from_pretrained", "import_index", "index_info", "join", "load",
    "migrate_index", "move_index", "neighbours", "open_engine", "open_index", "open_run", "prepare", "read",
    "register_method", "register_metric", "register_reader", "replace_terms", "restore_index", "runs",
    "save_pretrained", "score", "search", "serve", "show_neighbours", "train", "update_index", "upgrade_index",
    "verify_index", "watch_index",
]  # fmt: skip
"""A literal, which type checkers read; the names of `_MODULES`."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "open_engine":
        import warnings

        warnings.warn("subtext.open_engine is now subtext.open_index", DeprecationWarning, stacklevel=2)
        name = "open_index"
    if name not in _MODULES:
        raise AttributeError(f"module 'subtext' has no attribute '{name}'")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The package, whose public functions are not hidden by subpackages of the same name, such as `search`."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
