"""Protocol: how an evaluation is done, stated with its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from subtext.errors import RequirementError
from subtext.ops.rank import Ties
from subtext.settings import named_fields


@named_fields()
@dataclass(frozen=True)
class Protocol:
    """How an evaluation is done.

    Args:
        ties: Rank of a positive among negatives with the same score: last ("pessimistic"), first ("optimistic"), the
            mean over all orders ("expected"), or by column ("stable"). Every metric uses this rule.
        folds: Number of folds, 1 or more. A fold is a block of consecutive images with their texts. Figures are means
            over folds. COCO's "1K" divides 5,000 images into 5 folds.
        fold_sizes: Images per fold, such as (1000, 5000), instead of `folds`. All sizes use the same scores. The
            largest size has the usual names of figures. The names of the others end in "(1k)" for 1,000 images, else in
            "(N folds)".
        references: Number of texts of an image that define its graded relevance: the first N; None for all.
        bootstrap: Bootstrap samples of images for the 95 % intervals; 0 for no intervals.
        seed: Seed of the bootstrap.
        exact: Compute scores in fixed tiles. This is slower, but the bits do not depend on block size and order.

    Raises:
        RequirementError: If a value is out of range, or both `folds` and `fold_sizes` are set.

    Example:
        >>> Protocol(folds=5, bootstrap=0)
        Protocol(folds=5, bootstrap=0)
    """

    ties: Ties = "pessimistic"
    folds: int = 1
    fold_sizes: Sequence[int] = ()
    references: int | None = None
    bootstrap: int = 1000
    seed: int = 0
    exact: bool = False

    def __post_init__(self) -> None:
        if self.ties not in ("pessimistic", "optimistic", "expected", "stable"):
            raise RequirementError(
                f"ties need 'pessimistic', 'optimistic', 'expected' or 'stable'; it got '{self.ties}'"
            )
        if self.folds < 1:
            raise RequirementError(f"folds need to be 1 or more; it got {self.folds}")
        if self.fold_sizes and (min(self.fold_sizes) < 1 or len(set(self.fold_sizes)) < len(self.fold_sizes)):
            raise RequirementError(f"fold_sizes need to be 1 or more, each once; it got {tuple(self.fold_sizes)}")
        if self.fold_sizes and self.folds != 1:
            raise RequirementError(
                f"folds and fold_sizes say the same in two ways; it got folds={self.folds} and "
                f"fold_sizes={tuple(self.fold_sizes)}; leave one out"
            )
        if self.references is not None and self.references < 1:
            raise RequirementError(f"references need to be 1 or more; it got {self.references}")
        if self.bootstrap < 0:
            raise RequirementError(f"bootstrap needs to be 0 or more; it got {self.bootstrap}")

    def __repr__(self) -> str:
        defaults = Protocol.__dataclass_fields__
        changed = [f"{n}={getattr(self, n)!r}" for n, field in defaults.items() if getattr(self, n) != field.default]
        return f"Protocol({', '.join(changed)})"

    def fold_counts(self, images: int) -> tuple[int, ...]:
        """Numbers of folds of a gallery.

        Args:
            images: Images of the gallery.

        Returns:
            The number of folds per size; first the size whose figures have the usual names.

        Raises:
            RequirementError: If the number of images is not a multiple of a fold size.
        """
        if not self.fold_sizes:
            return (self.folds,)
        if wrong := [size for size in self.fold_sizes if images % size]:
            raise RequirementError(
                f"folds of {wrong[0]:,} images need a multiple of as many; there are {images:,}; give a number of folds"
            )
        return tuple(sorted(images // size for size in self.fold_sizes))
