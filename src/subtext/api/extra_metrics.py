"""What `subtext evaluate` measures beyond recall, from its options and the split's pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext.errors import RequirementError
from subtext.report.progress import say

if TYPE_CHECKING:
    from subtext.data.dataset import Dataset
    from subtext.evaluation import ExtraMetrics
    from subtext.evaluation.relevance.match import Match

TRUTHS = ("eccv", "cxc")


@dataclass(frozen=True)
class Wanted:
    """The options, as they were typed.

    relevance   names of relevances          references  texts that a picture is known by; None for all
    cache       folder for their matrices    asp_ties, asp_top, gain, ndcg   as in `ExtraMetrics`
    truth       "eccv=FOLDER", "cxc=FILE"    human       table of people's scores, and from which they say yes
    precision, plausible, words              switches    hubness             k, 0 for none
    space, space_of_pairs   alignment and uniformity, of items by themselves and as each is with its partner
    """

    relevance: tuple[str, ...] = ()
    references: int | None = None
    cache: Path | None = None
    asp_ties: Any = "ordinal"
    asp_top: tuple[int, ...] = ()
    gain: tuple[int, ...] = (5, 10, 20)
    ndcg: tuple[int, ...] = (10,)
    truth: tuple[str, ...] = ()
    human: Path | None = None
    rated: float | None = None
    precision: bool = False
    plausible: bool = False
    words: bool = False
    hubness: int = 0
    space: bool = False
    space_of_pairs: bool = False

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Wanted:
        """What is asked for among a command's options."""
        return Wanted(**{f.name: values[f.name] for f in fields(Wanted)})

    def check(self) -> None:
        """Raise RequirementError for names that are unknown, before anything is read."""
        from subtext.evaluation.relevance.grade import check

        for name in self.relevance:
            check(name)
        for one in self.truth:
            _truth_of(one)

    def of(self, pairs: Dataset, device: str, *, quiet: bool) -> ExtraMetrics:
        """With the relevances computed, and the files read.

        Raises what reading them raises.
        """
        from subtext.data.lengths import word_counts
        from subtext.evaluation import ExtraMetrics
        from subtext.evaluation.relevance import plausible
        from subtext.evaluation.relevance.grade import Asked, graded
        from subtext.evaluation.relevance.ratings import read_human

        how = Asked(references=self.references, cache=self.cache, device=device)
        relevances = []
        for name in self.relevance:
            say(f"relevance {name}: {len(pairs.images):,} pictures x {len(pairs.texts):,} texts", quiet=quiet)
            relevances.append(graded(pairs, name, how))
        people = None if self.human is None else read_human(self.human.expanduser())
        return ExtraMetrics(
            relevances=tuple(relevances),
            truths=dict(_match(one, pairs) for one in self.truth),
            r_precision=self.precision,
            labels=plausible.of_pairs(pairs) if self.plausible else None,
            ratings=None if people is None else people.judgements(pairs.images.ids, pairs.texts.ids),
            positive_rating=self.rated,
            lengths=word_counts(pairs.texts.values) if self.words else None,
            hubness=self.hubness,
            asp_ties=self.asp_ties,
            asp_top=self.asp_top,
            gain=self.gain,
            ndcg=self.ndcg,
        )


def _truth_of(typed: str) -> tuple[str, Path]:
    name, _, path = typed.partition("=")
    if name not in TRUTHS or not path:
        raise RequirementError(
            "--truth needs eccv=FOLDER (the JSON files of eccv_caption) or cxc=PATH (that folder, or sits_test.csv); "
            f"it got '{typed}'"
        )
    return name, Path(path).expanduser()


def _match(typed: str, pairs: Dataset) -> tuple[str, Match]:
    from subtext.evaluation.relevance import eccv

    name, path = _truth_of(typed)
    if name == "cxc" and not path.is_dir():
        found = eccv.read_cxc(path)
    else:
        found = eccv.read_eccv(path, "cxc" if name == "cxc" else "eccv")
    return name, found.match(pairs.images.ids, _caption_ids(pairs))


def _caption_ids(pairs: Dataset) -> list[str]:
    """Names of the texts: COCO's own, where a column "caption_ids" of the pictures has one for each of their texts."""
    lists = pairs.images.metadata.get("caption_ids", [])
    of_picture = {name: listed for name, listed in zip(pairs.images.ids, lists, strict=False) if listed}
    found = []
    for name in pairs.texts.ids:
        picture, _, place = name.rpartition("#")
        listed = of_picture.get(picture, ())
        found.append(str(listed[int(place)]) if place.isdecimal() and int(place) < len(listed) else name)
    return found
