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
    from subtext.api.check import check
    from subtext.api.compare import compare
    from subtext.api.curate import Curation, curate
    from subtext.api.detect_noise import NoiseDetection, detect_noise
    from subtext.api.embed import EmbeddedDataset, embed
    from subtext.api.ensemble import ensemble
    from subtext.api.evaluate import evaluate
    from subtext.api.export import Export, export
    from subtext.api.extend import register_method, register_metric, register_reader
    from subtext.api.index.build import IndexChange, add_to_index, build_index, move_index, update_index, watch_index
    from subtext.api.index.calibrate import CalibrationReport, calibrate
    from subtext.api.index.importing import import_index
    from subtext.api.index.maintain import (
        IndexInfo,
        IndexReport,
        VerifyResult,
        backup_index,
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
    from subtext.api.prepare import JoinedFeatures, PreparedDataset, corrupt, dedup, join, prepare
    from subtext.api.runs import RunList, runs
    from subtext.api.score import PairScores, score
    from subtext.api.search import open_index, search
    from subtext.api.search import open_index as open_engine
    from subtext.api.train import train
    from subtext.core import Comparison
    from subtext.curation.check import CheckReport
    from subtext.data.dataset import Dataset
    from subtext.data.read import read
    from subtext.data.rows import Row, Source
    from subtext.demo.flow import Demonstration
    from subtext.demo.flow import demo as demo
    from subtext.evaluation.metric import Metric
    from subtext.export.mteb_encoder import MtebEncoder
    from subtext.models.model import Model
    from subtext.objectives.objective import Term
    from subtext.recipes.parts import replace_terms
    from subtext.search import Answer, Hit, Index, Query
    from subtext.server.serve import serve as serve

from subtext.version import __version__

_MODULES = {
    "Answer": "subtext.search",
    "CalibrationReport": "subtext.api.index.calibrate",
    "CheckReport": "subtext.curation.check",
    "Comparison": "subtext.core",
    "Curation": "subtext.api.curate",
    "Dataset": "subtext.data.dataset",
    "EmbeddedDataset": "subtext.api.embed",
    "Export": "subtext.api.export",
    "Hit": "subtext.search",
    "Index": "subtext.search",
    "Demonstration": "subtext.demo.flow",
    "demo": "subtext.demo.flow",
    "IndexChange": "subtext.api.index.build",
    "IndexInfo": "subtext.api.index.maintain",
    "IndexReport": "subtext.api.index.maintain",
    "JoinedFeatures": "subtext.api.prepare",
    "Metric": "subtext.evaluation.metric",
    "Model": "subtext.models.model",
    "MtebEncoder": "subtext.export.mteb_encoder",
    "NeighbourGraph": "subtext.api.neighbours",
    "NeighbourReport": "subtext.api.neighbours",
    "NoiseDetection": "subtext.api.detect_noise",
    "PairScores": "subtext.api.score",
    "PreparedDataset": "subtext.api.prepare",
    "Query": "subtext.search",
    "Row": "subtext.data.rows",
    "Run": "subtext.api.load",
    "RunList": "subtext.api.runs",
    "Source": "subtext.data.rows",
    "Term": "subtext.objectives.objective",
    "VerifyResult": "subtext.api.index.maintain",
    "add_to_index": "subtext.api.index.build",
    "audit": "subtext.api.audit",
    "backup_index": "subtext.api.index.maintain",
    "build_index": "subtext.api.index.build",
    "build_neighbours": "subtext.api.neighbours",
    "calibrate": "subtext.api.index.calibrate",
    "check": "subtext.api.check",
    "compact_index": "subtext.api.index.maintain",
    "compare": "subtext.api.compare",
    "corrupt": "subtext.api.prepare",
    "curate": "subtext.api.curate",
    "dedup": "subtext.api.prepare",
    "delete_from_index": "subtext.api.index.maintain",
    "detect_noise": "subtext.api.detect_noise",
    "embed": "subtext.api.embed",
    "ensemble": "subtext.api.ensemble",
    "evaluate": "subtext.api.evaluate",
    "export": "subtext.api.export",
    "from_pretrained": "subtext.api.load",
    "import_index": "subtext.api.index.importing",
    "index_info": "subtext.api.index.maintain",
    "join": "subtext.api.prepare",
    "load": "subtext.api.load",
    "migrate_index": "subtext.api.index.maintain",
    "move_index": "subtext.api.index.build",
    "neighbours": "subtext.api.neighbours",
    "open_engine": "subtext.api.load",
    "open_index": "subtext.api.search",
    "open_run": "subtext.api.load",
    "prepare": "subtext.api.prepare",
    "read": "subtext.data.read",
    "register_method": "subtext.api.extend",
    "register_metric": "subtext.api.extend",
    "register_reader": "subtext.api.extend",
    "replace_terms": "subtext.recipes.parts",
    "restore_index": "subtext.api.index.maintain",
    "runs": "subtext.api.runs",
    "save_pretrained": "subtext.api.load",
    "score": "subtext.api.score",
    "search": "subtext.api.search",
    "serve": "subtext.server.serve",
    "show_neighbours": "subtext.api.neighbours",
    "train": "subtext.api.train",
    "update_index": "subtext.api.index.build",
    "upgrade_index": "subtext.api.index.maintain",
    "verify_index": "subtext.api.index.maintain",
    "watch_index": "subtext.api.index.build",
}
"""Public name -> the module that defines it."""

__all__ = ["__version__", *_MODULES]


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
