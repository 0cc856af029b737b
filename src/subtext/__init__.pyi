"""The public names: `__init__.py` reads this list, and imports each name when it is first used."""

from subtext.api.audit import audit as audit
from subtext.api.curate import (
    Curation as Curation,
)
from subtext.api.curate import (
    NoiseDetection as NoiseDetection,
)
from subtext.api.curate import (
    PairScores as PairScores,
)
from subtext.api.curate import (
    curate as curate,
)
from subtext.api.curate import (
    detect_noise as detect_noise,
)
from subtext.api.curate import (
    score as score,
)
from subtext.api.embed import EmbeddedDataset as EmbeddedDataset
from subtext.api.embed import embed as embed
from subtext.api.evaluate import compare as compare
from subtext.api.evaluate import evaluate as evaluate
from subtext.api.export import Export as Export
from subtext.api.export import export as export
from subtext.api.index.build import (
    IndexChange as IndexChange,
)
from subtext.api.index.build import (
    add_to_index as add_to_index,
)
from subtext.api.index.build import (
    build_index as build_index,
)
from subtext.api.index.build import (
    import_index as import_index,
)
from subtext.api.index.build import (
    move_index as move_index,
)
from subtext.api.index.build import (
    update_index as update_index,
)
from subtext.api.index.build import (
    watch_index as watch_index,
)
from subtext.api.index.maintain import (
    CalibrationReport as CalibrationReport,
)
from subtext.api.index.maintain import (
    IndexInfo as IndexInfo,
)
from subtext.api.index.maintain import (
    IndexReport as IndexReport,
)
from subtext.api.index.maintain import (
    VerifyResult as VerifyResult,
)
from subtext.api.index.maintain import (
    backup_index as backup_index,
)
from subtext.api.index.maintain import (
    calibrate as calibrate,
)
from subtext.api.index.maintain import (
    compact_index as compact_index,
)
from subtext.api.index.maintain import (
    delete_from_index as delete_from_index,
)
from subtext.api.index.maintain import (
    index_info as index_info,
)
from subtext.api.index.maintain import (
    migrate_index as migrate_index,
)
from subtext.api.index.maintain import (
    restore_index as restore_index,
)
from subtext.api.index.maintain import (
    upgrade_index as upgrade_index,
)
from subtext.api.index.maintain import (
    verify_index as verify_index,
)
from subtext.api.load import (
    Run as Run,
)
from subtext.api.load import (
    from_pretrained as from_pretrained,
)
from subtext.api.load import (
    load as load,
)
from subtext.api.load import (
    open_run as open_run,
)
from subtext.api.load import (
    save_pretrained as save_pretrained,
)
from subtext.api.neighbours import (
    NeighbourGraph as NeighbourGraph,
)
from subtext.api.neighbours import (
    NeighbourReport as NeighbourReport,
)
from subtext.api.neighbours import (
    build_neighbours as build_neighbours,
)
from subtext.api.neighbours import (
    neighbours as neighbours,
)
from subtext.api.neighbours import (
    show_neighbours as show_neighbours,
)
from subtext.api.prepare import (
    JoinedFeatures as JoinedFeatures,
)
from subtext.api.prepare import (
    PreparedDataset as PreparedDataset,
)
from subtext.api.prepare import (
    check as check,
)
from subtext.api.prepare import (
    corrupt as corrupt,
)
from subtext.api.prepare import (
    dedup as dedup,
)
from subtext.api.prepare import (
    join as join,
)
from subtext.api.prepare import (
    prepare as prepare,
)
from subtext.api.runs import RunList as RunList
from subtext.api.runs import ensemble as ensemble
from subtext.api.runs import runs as runs
from subtext.api.search import open_index as open_index
from subtext.api.search import search as search
from subtext.api.train import train as train
from subtext.core import Comparison as Comparison
from subtext.curation.check import CheckReport as CheckReport
from subtext.data.dataset import Dataset as Dataset
from subtext.data.read import read as read
from subtext.data.readers import register_reader as register_reader
from subtext.data.rows import Row as Row
from subtext.data.rows import Source as Source
from subtext.demo.flow import Demonstration as Demonstration
from subtext.demo.flow import demo as demo
from subtext.evaluation.metric import Metric as Metric
from subtext.evaluation.metric import register_metric as register_metric
from subtext.evaluation.results import Result as Result
from subtext.export.mteb_encoder import MtebEncoder as MtebEncoder
from subtext.models.model import Model as Model
from subtext.objectives.objective import Term as Term
from subtext.recipes.catalogue import register_method as register_method
from subtext.recipes.parts import replace_terms as replace_terms
from subtext.search import Answer as Answer
from subtext.search import Hit as Hit
from subtext.search import Index as Index
from subtext.search import Query as Query
from subtext.server.serve import serve as serve
from subtext.version import __version__ as __version__

__all__: list[str]
