"""Protocol: how an evaluation is done, stated with its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from subtext.errors import RequirementError
from subtext.ops.rank import Ties


@dataclass(frozen=True)
class Protocol:
    """How an evaluation is done.

    Args:
        ties: Where a positive stands among negatives of its own score: behind all ("pessimistic"), before all
            ("optimistic"), at the mean of all orders ("expected"), or by column ("stable"). It is the rule of every
            metric.
        folds: Number of consecutive blocks that the images are cut into, each with the texts of its images, 1 or more;
            figures are means over blocks. COCO's "1K" is 5 folds of 5,000 images.
        fold_sizes: Instead of a number of folds: images per fold, 1 or more, such as (1000, 5000). All sizes are
            measured from the same scores. Figures of the largest size have their usual names; names of the others end
            in "(1k)" where a fold has 1,000 images, else in "(N folds)".
        references: Graded relevance to an image is computed from its first N texts; None for all.
        bootstrap: Resamplings of images behind the 95 % intervals; 0 for none.
        seed: Seed of the bootstrap.
        exact: Compute scores in fixed tiles, so that they are equal to the bit for any block size and order; slower.

    Raises:
        RequirementError: For numbers that mean nothing.

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
            The number of folds of the figures with their usual names, followed by those of extra sizes.

        Raises:
            RequirementError: If the images are no multiple of a size.
        """
        if not self.fold_sizes:
            return (self.folds,)
        if wrong := [size for size in self.fold_sizes if images % size]:
            raise RequirementError(
                f"folds of {wrong[0]:,} images need a multiple of as many; there are {images:,}; give a number of folds"
            )
        return tuple(sorted(images // size for size in self.fold_sizes))
