# %% [markdown]
# # Curate an archive
#
# Find the pairs whose text does not belong to the image. This example exchanges a fifth of the captions to check the
# result. A model cannot judge its own training pairs, so train on one half of the archive and curate the other half.

# %%
import json
import random
import tempfile
from pathlib import Path

from shapes import write_shapes

import subtext as st

folder = Path(tempfile.mkdtemp())
clean = write_shapes(folder / "shapes")

# %%
rows = [json.loads(line) for line in clean.read_text(encoding="utf-8").splitlines()]
rng = random.Random(0)
rng.shuffle(rows)
for i, row in enumerate(rows):
    row["split"] = "train" if i % 2 else "archive"
    row["caption"] = row.pop("captions")[i % 2]
    del row["group"]
wrong = rng.sample([row for row in rows if row["split"] == "archive"], 14)
captions = [row["caption"] for row in wrong]
for row, caption in zip(wrong, captions[1:] + captions[:1], strict=True):
    row["caption"] = caption
data = folder / "shapes" / "archive.jsonl"
data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

# %%
run = st.train(
    "dual",
    data=st.DataConfig(data, val_split=None),
    out=folder / "run",
    options={"image": "tiny", "image_size": 32, "embed_dim": 64, "min_count": 1},
    plan=st.Plan(epochs=12, batch_size=32),
    quiet=True,
)

# %% [markdown]
# `curate` writes a page to sort and filter, and a table of all pairs with the probability of each kind: literal, loose,
# mismatched. It also lists duplicates, unreadable images and copies in other splits.

# %%
result = st.curate(data, run=run, split="archive", out=folder / "curated", quiet=True)
print(result)

# %% [markdown]
# How many of the exchanged pairs did `curate` leave out?

# %%
exchanged = {row["image"] for row in wrong}
texts = zip(result.columns["text"], result.left_out, strict=True)
left_out = {text.partition("#")[0] for text, reasons in texts if reasons}
print(f"exchanged: {len(left_out & exchanged)} of the {len(left_out)} pairs left out; {len(exchanged)} of all pairs")
