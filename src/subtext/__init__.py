"""Subtext searches archives of images whose texts do not describe the images.

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

if sys.platform == "win32":
    raise ImportError(
        "Subtext needs the file locks of Linux or macOS; this is Windows, where files are locked otherwise; run it in "
        "the Windows Subsystem for Linux"
    )

from subtext.version import __version__ as __version__

_MODULES = {
    "add_machine_texts": "subtext.api.index.machine",
    "add_to_index": "subtext.api.index.build",
    "Answer": "subtext.retrieval.index",
    "ArgumentError": "subtext.errors",
    "audit": "subtext.api.audit",
    "backup_index": "subtext.api.index.maintain",
    "build_index": "subtext.api.index.build",
    "build_neighbours": "subtext.api.neighbours",
    "calibrate_index": "subtext.api.index.maintain",
    "CalibrationReport": "subtext.api.index.maintain",
    "CacheReport": "subtext.api.cache",
    "check_dataset": "subtext.api.prepare",
    "CheckpointError": "subtext.errors",
    "CheckReport": "subtext.curation.check",
    "compact_index": "subtext.api.index.maintain",
    "compare": "subtext.api.evaluate",
    "Comparison": "subtext.core",
    "ComputeConfig": "subtext.api.evaluate",
    "corrupt": "subtext.api.prepare",
    "curate": "subtext.api.curate",
    "Curation": "subtext.api.curate",
    "DataConfig": "subtext.data.config",
    "DataError": "subtext.errors",
    "Dataset": "subtext.data.dataset",
    "dedup": "subtext.api.prepare",
    "Deduplicated": "subtext.api.prepare",
    "delete_from_index": "subtext.api.index.maintain",
    "Demonstration": "subtext.demo.flow",
    "detect_noise": "subtext.api.curate",
    "embed": "subtext.api.embed",
    "EmbeddedDataset": "subtext.api.embed",
    "ensemble_runs": "subtext.api.runs",
    "evaluate": "subtext.api.evaluate",
    "Export": "subtext.api.export",
    "export_run": "subtext.api.export",
    "ExternalConfig": "subtext.api.evaluate",
    "from_pretrained": "subtext.api.load",
    "Hit": "subtext.retrieval.index",
    "import_index": "subtext.api.index.build",
    "Index": "subtext.retrieval.index",
    "index_info": "subtext.api.index.maintain",
    "IndexChange": "subtext.api.index.build",
    "IndexInfo": "subtext.api.index.maintain",
    "IndexReport": "subtext.api.index.maintain",
    "interpolate_run": "subtext.api.interpolate",
    "Interpolation": "subtext.api.interpolate",
    "join_features": "subtext.api.prepare",
    "JoinedFeatures": "subtext.api.prepare",
    "list_models": "subtext.api.models",
    "list_runs": "subtext.api.runs",
    "load": "subtext.api.load",
    "Metric": "subtext.evaluation.metric",
    "Model": "subtext.models.model",
    "ModelList": "subtext.api.models",
    "move_index": "subtext.api.index.build",
    "MtebEncoder": "subtext.interop.mteb_encoder",
    "NeighbourGraph": "subtext.api.neighbours",
    "NeighbourReport": "subtext.api.neighbours",
    "NoiseDetection": "subtext.api.curate",
    "ocr_index": "subtext.api.index.machine",
    "open_index": "subtext.api.search",
    "open_run": "subtext.api.load",
    "OutputError": "subtext.errors",
    "PairScores": "subtext.api.curate",
    "prepare": "subtext.api.prepare",
    "Plan": "subtext.training.plan",
    "PreparedDataset": "subtext.api.prepare",
    "Protocol": "subtext.evaluation.protocol",
    "Query": "subtext.retrieval.index",
    "read": "subtext.data.read",
    "RecipeError": "subtext.errors",
    "register_method": "subtext.recipes.catalogue",
    "register_metric": "subtext.evaluation.metric",
    "register_reader": "subtext.data.readers",
    "replace_terms": "subtext.recipes.parts",
    "RequirementError": "subtext.errors",
    "restore_index": "subtext.api.index.maintain",
    "Result": "subtext.evaluation.result",
    "Row": "subtext.data.rows",
    "Run": "subtext.api.load",
    "RunConfig": "subtext.training.plan",
    "run_demo": "subtext.demo.flow",
    "RunList": "subtext.api.runs",
    "save_pretrained": "subtext.api.load",
    "score": "subtext.api.curate",
    "SecondStage": "subtext.api.evaluate",
    "search": "subtext.api.search",
    "SearchIndexError": "subtext.errors",
    "serve": "subtext.server.serve",
    "serve_mcp": "subtext.server.serve_mcp",
    "ShapeError": "subtext.errors",
    "show_cache": "subtext.api.cache",
    "show_neighbours": "subtext.api.neighbours",
    "Source": "subtext.data.rows",
    "StoreError": "subtext.errors",
    "SubtextError": "subtext.errors",
    "Term": "subtext.objectives.objective",
    "train": "subtext.api.train",
    "TrainingError": "subtext.errors",
    "update_index": "subtext.api.index.build",
    "verify_index": "subtext.api.index.maintain",
    "VerifyResult": "subtext.api.index.maintain",
    "watch_index": "subtext.api.index.build",
}
"""Public name -> the module that defines it. `__init__.pyi` repeats them for type checkers; a test compares the two."""

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        from difflib import get_close_matches

        near = " or ".join(get_close_matches(name, _MODULES, n=2))
        raise AttributeError(f"module 'subtext' has no attribute '{name}'{near and f'; did you mean {near}?'}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return sorted(__all__)
