"""The curator's view: how well the pairs of a data set belong together, what is copied, and what to leave out."""

from subtext.curation.kinds import KINDS, Alignment, Kinds, align, kinds_of

__all__ = ["KINDS", "Alignment", "Kinds", "align", "kinds_of"]
