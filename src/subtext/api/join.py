"""`subtext data join`: features of two networks as one file."""

from __future__ import annotations

from pathlib import Path

from subtext.data.feature_file import FeatureFile
from subtext.data.join import join_parts
from subtext.data.output import require_file
from subtext.errors import RequirementError, counted
from subtext.report.progress import meter


def join(cells: Path, regions: Path, out: Path, *, quiet: bool = False) -> str:
    """Write both as one file of features; what there is in it, in words.

    Raises RequirementError for a file that is no npz or stands there, and what reading and writing raise.
    """
    out = out.expanduser()
    if out.suffix != ".npz":
        raise RequirementError(f"--out needs a name that ends in .npz; it got {out.name}")
    if out.exists():
        raise RequirementError(f"--out needs a new file; {out} is there; name another, or remove it")
    require_file(out)
    first, second = (FeatureFile.open(path.expanduser()) for path in (cells, regions))
    with meter("joining", len(second.names), quiet=quiet) as told:
        made = join_parts(first, second, out, progress=told)
    few, many = made.regions
    several = counted(few, "region") if few == many else f"{few:,} to {many:,} regions"
    narrow = "" if len(set(made.widths)) == 1 else f" ({made.widths[0]:,} of cells, {made.widths[1]:,} of regions)"
    return (
        f"{out}: {counted(made.pictures, 'picture')}, each with {counted(made.cells, 'cell')} and {several} of width "
        f"{max(made.widths):,}{narrow}; train dsran with --cells {made.cells}"
    )
