"""`subtext.check`: the content, defects and readiness of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from subtext.api.options import Metavar, Quiet, Section, verb

if TYPE_CHECKING:
    from subtext.curation.check import CheckReport


@verb
def check(
    data: Annotated[str | Path, "Data set: a file or folder.", Section("Data"), Metavar("DATA")],
    *,
    images: Annotated[
        str | Path | None, "Folder that image paths start from; DATA's own by default.", Section("Data")
    ] = None,
    features: Annotated[
        str | Path | None, "Image features to check: do they cover DATA (docs/datasets.md)?", Section("Data")
    ] = None,
    text_features: Annotated[str | Path | None, "Text features: check that they cover DATA.", Section("Data")] = None,
    split_seed: Annotated[int, "Seed of the 80-10-10 split of data without splits.", Section("Data")] = 0,
    verify: Annotated[bool, "Decode every image.", Section("Check")] = False,
    on_error: Annotated[
        Literal["raise", "skip"], "raise: unusable rows make DATA unusable; skip: they are left out.", Section("Check")
    ] = "raise",
    quiet: Quiet = False,
) -> CheckReport:
    """Report what a data set contains, its defects, and whether it can be used for training and evaluation.

    Exit code 1 when it can be used for neither.

    DATA is a JSON-lines, CSV or Parquet file, a folder with metadata.csv or metadata.jsonl, WebDataset tars, a
    Karpathy JSON, a SCAN "precomp" folder, a folder with corpus, queries and qrels, or a release of COCO, Flickr30K,
    CUB Captions, GoodNews, Conceptual Captions or Politics.

    Returns a report; a data set that cannot be read gives a report with the reason.
    """
    from subtext.curation.check import check_dataset
    from subtext.report.progress import image_meter

    def path(value: str | Path | None) -> Path | None:
        return None if value is None else Path(value).expanduser()

    with image_meter(quiet=quiet or not verify) as progress:
        return check_dataset(
            Path(data).expanduser(),
            images=path(images),
            split_seed=split_seed,
            on_error=on_error,
            verify=verify,
            features=path(features),
            text_features=path(text_features),
            progress=progress,
        )
