# %% [markdown]
# # Extend the library
#
# Write your own reader, loss and metric outside the package. Each is a class or a function, and a decorator registers
# it. To contribute one, put the same code into a new file of the package.

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
# Suppose that an archive stores its pairs in text files with the suffix `.pairs` and lines `image|split|group|caption`.
# A reader has two methods: one checks whether it recognises a path, the other reads the rows.

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
# Larger scores are better. This loss is a triplet loss with a softplus instead of the hinge.


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
# This training method replaces the losses between images and texts, in both directions, by the new loss.


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
    options={"image": "tiny", "image_size": 32, "embed_dim": 64, "min_count": 1},
    methods=["soft_triplet:temperature=0.2"],
    plan=st.Plan(epochs=3, batch_size=32),
    quiet=True,
)

# %% [markdown]
# ## A metric
#
# A metric also maps a `Comparison` to one value per query, or NaN if it is undefined. The library computes means,
# confidence intervals and paired tests. This metric is the gap between the best positive and the best negative.


# %%
@st.register_metric
@dataclass(frozen=True)
class ScoreGap(st.Metric):
    """Score of the best positive minus the score of the best negative."""

    name = "score_gap"
    percent = False
    digits = 3

    def __call__(self, comparison):
        """(Q) values."""
        scores, truth = comparison.scores.double(), comparison.truth
        best = scores.masked_fill(~truth.match, -torch.inf).amax(dim=1)
        worst = scores.masked_fill(~truth.negative, -torch.inf).amax(dim=1)
        return (best - worst).masked_fill(~torch.isfinite(best - worst), torch.nan)


print(st.evaluate(run, split="test", quiet=True))
