# %% [markdown]
# # Extend the library
#
# A reader, a loss and a metric of your own, from outside the package. Each is a class or a function with one line that
# names it to the library. To contribute one, put it into a file of its own in the package; the code stays the same.

# %%
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from shapes import write_shapes

import subtext as st

folder = Path(tempfile.mkdtemp())
captions = write_shapes(folder / "shapes", variants=2)

# %% [markdown]
# ## A reader
#
# Suppose an archive stores its pairs in text files of the form `image|split|group|caption`, with the suffix `.pairs`. A
# reader says which paths it recognises, and turns a path into rows.

# %%
lines = []
for row in map(json.loads, captions.read_text(encoding="utf-8").splitlines()):
    lines += ["|".join((row["image"], row["split"], row["group"], caption)) for caption in row["captions"]]
data = folder / "shapes" / "archive.pairs"
data.write_text("\n".join(lines), encoding="utf-8")


@st.register_reader
class PairsReader:
    """Lines of image|split|group|caption."""

    LOOKS_FOR = "NAME.pairs with lines image|split|group|caption"
    PRIORITY = 50

    def recognises(self, path):
        """Whether the path is such a file."""
        return path.suffix == ".pairs" and path.is_file()

    def read(self, path, images):
        """One row per line; rows with the same image become one image with several texts."""

        def rows():
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                image, split, group, caption = line.split("|")
                yield st.Row(f"{path.name}:{number}", image, image, [caption], split=split, group=group)

        return st.Source(rows(), root=images or path.parent)


print(st.read(data))

# %% [markdown]
# ## A loss
#
# A loss maps a `Comparison`, the scores of queries (Q) against candidates (C) with their truth, to one value per query.
# Larger scores are better. This one is a triplet loss with a softplus in place of the hinge.


# %%
@dataclass(frozen=True)
class SoftTriplet:
    """value_q = mean over positives p and negatives n of softplus((s_qn - s_qp) / temperature)."""

    temperature: float = 0.1

    def __call__(self, comparison):
        """(Q) values."""
        truth, scores = comparison.truth, comparison.scores
        positive, negative = truth.match, truth.negative
        gaps = (scores[:, None, :] - scores[:, :, None]) / self.temperature
        counted = positive[:, :, None] & negative[:, None, :]
        values = torch.nn.functional.softplus(gaps) * counted
        return values.sum(dim=(1, 2)) / counted.sum(dim=(1, 2)).clamp(min=1)


# %% [markdown]
# A training method puts it in the place of the losses between images and texts, in both directions.


# %%
@st.register_method
def soft_triplet(setup, *, temperature: Annotated[float, "temperature of the softplus, in score"] = 0.1):
    """Replaces the losses between images and texts by a soft triplet loss."""
    loss = SoftTriplet(temperature)
    terms = {direction: st.Term(loss, on=direction) for direction in ("image_to_text", "text_to_image")}
    return st.replace_terms("soft_triplet", setup, terms)


run = st.train(
    "dual",
    data=data,
    out=folder / "run",
    with_=["soft_triplet:temperature=0.2"],
    image="tiny",
    image_size=32,
    embed_dim=64,
    epochs=3,
    batch_size=32,
    min_count=1,
    quiet=True,
)

# %% [markdown]
# ## A metric
#
# A metric maps a `Comparison` to one value per query, too: NaN where it is undefined. Means, confidence intervals and
# paired tests follow. This one is the gap between the best positive and the best negative.


# %%
@st.register_metric
@dataclass(frozen=True)
class ScoreGap(st.Metric):
    """Score of the best positive less that of the best negative."""

    name = "score_gap"
    percent = False

    def __call__(self, comparison):
        """(Q) values."""
        scores, truth = comparison.scores, comparison.truth
        best = scores.masked_fill(~truth.match, -torch.inf).amax(dim=1)
        worst = scores.masked_fill(~truth.negative, -torch.inf).amax(dim=1)
        return (best - worst).masked_fill(~torch.isfinite(best - worst), torch.nan)


print(st.evaluate(run, split="test", quiet=True))
