"""The public names, for type checkers and editors; `_MODULES` in `__init__.py` has the same names."""

from subtext.api.audit import audit as audit
from subtext.api.cache import CacheReport as CacheReport, show_cache as show_cache
from subtext.api.curate import (
    Curation as Curation,
    NoiseDetection as NoiseDetection,
    PairScores as PairScores,
    curate as curate,
    detect_noise as detect_noise,
    score as score,
)
from subtext.api.embed import EmbeddedDataset as EmbeddedDataset, embed as embed
from subtext.api.evaluate import (
    ComputeConfig as ComputeConfig,
    ExternalConfig as ExternalConfig,
    SecondStage as SecondStage,
    compare as compare,
    evaluate as evaluate,
)
from subtext.api.export import Export as Export, export_run as export_run
from subtext.api.index.build import (
    IndexChange as IndexChange,
    add_to_index as add_to_index,
    build_index as build_index,
    import_index as import_index,
    move_index as move_index,
    update_index as update_index,
    watch_index as watch_index,
)
from subtext.api.index.machine import add_machine_texts as add_machine_texts, ocr_index as ocr_index
from subtext.api.index.maintain import (
    CalibrationReport as CalibrationReport,
    IndexInfo as IndexInfo,
    IndexReport as IndexReport,
    VerifyResult as VerifyResult,
    backup_index as backup_index,
    calibrate_index as calibrate_index,
    compact_index as compact_index,
    delete_from_index as delete_from_index,
    index_info as index_info,
    restore_index as restore_index,
    verify_index as verify_index,
)
from subtext.api.interpolate import Interpolation as Interpolation, interpolate_run as interpolate_run
from subtext.api.load import (
    Run as Run,
    from_pretrained as from_pretrained,
    load as load,
    open_run as open_run,
    save_pretrained as save_pretrained,
)
from subtext.api.models import ModelList as ModelList, list_models as list_models
from subtext.api.neighbours import (
    NeighbourGraph as NeighbourGraph,
    NeighbourReport as NeighbourReport,
    build_neighbours as build_neighbours,
    show_neighbours as show_neighbours,
)
from subtext.api.prepare import (
    Deduplicated as Deduplicated,
    JoinedFeatures as JoinedFeatures,
    PreparedDataset as PreparedDataset,
    check_dataset as check_dataset,
    corrupt as corrupt,
    dedup as dedup,
    join_features as join_features,
    prepare as prepare,
)
from subtext.api.runs import RunList as RunList, ensemble_runs as ensemble_runs, list_runs as list_runs
from subtext.api.search import open_index as open_index, search as search
from subtext.api.train import train as train
from subtext.core import Comparison as Comparison
from subtext.curation.check import CheckReport as CheckReport
from subtext.data.config import DataConfig as DataConfig
from subtext.data.dataset import Dataset as Dataset
from subtext.data.read import read as read
from subtext.data.readers import register_reader as register_reader
from subtext.data.rows import Row as Row, Source as Source
from subtext.demo.flow import Demonstration as Demonstration, run_demo as run_demo
from subtext.errors import (
    ArgumentError as ArgumentError,
    CheckpointError as CheckpointError,
    DataError as DataError,
    OutputError as OutputError,
    RecipeError as RecipeError,
    RequirementError as RequirementError,
    SearchIndexError as SearchIndexError,
    ShapeError as ShapeError,
    StoreError as StoreError,
    SubtextError as SubtextError,
    TrainingError as TrainingError,
)
from subtext.evaluation.metric import Metric as Metric, register_metric as register_metric
from subtext.evaluation.protocol import Protocol as Protocol
from subtext.evaluation.result import Result as Result
from subtext.interop.mteb_encoder import MtebEncoder as MtebEncoder
from subtext.models.model import Model as Model
from subtext.objectives.objective import Term as Term
from subtext.recipes.catalogue import register_method as register_method
from subtext.recipes.parts import replace_terms as replace_terms
from subtext.retrieval.index import Answer as Answer, Hit as Hit, Index as Index, Query as Query
from subtext.server.serve import serve as serve
from subtext.server.serve_mcp import serve_mcp as serve_mcp
from subtext.training.plan import Plan as Plan, RunConfig as RunConfig
from subtext.version import __version__ as __version__

__all__: list[str]
