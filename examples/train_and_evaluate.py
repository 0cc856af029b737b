# %% [markdown]
# # Train and evaluate
#
# Train a model on a file of pairs, and measure its recall with confidence intervals. The data is 144 generated drawings
# of coloured shapes, with two captions each. Replace `data` by the path of your own file.

# %%
import tempfile
from pathlib import Path

from shapes import write_shapes

import subtext as st

folder = Path(tempfile.mkdtemp())
data = write_shapes(folder / "shapes")

# %% [markdown]
# Look at the data first. `check` reports every problem row by row, duplicates, and leaks between splits.

# %%
print(st.check_dataset(data))

# %% [markdown]
# Train the default model, a dual encoder, from scratch. The keyword arguments are the options that
# `subtext train dual --help` lists. A data set without splits is divided 80-10-10.

# %%
run = st.train(
    "dual",
    data=data,
    out=folder / "run",
    options={"image": "tiny", "image_size": 32, "embed_dim": 64, "min_count": 1},
    plan=st.Plan(epochs=6, batch_size=32),
    quiet=True,
)
print(run)

# %% [markdown]
# Evaluate on the test split. It was used neither for the training nor for selecting the epoch.

# %%
result = st.evaluate(run, split="test", quiet=True)
print(result)

# %% [markdown]
# The loaded model compares any images and texts.

# %%
images = run.model.embed_images([str(folder / "shapes/images/red-circle-0.png")])
texts = run.model.embed_texts(["a red circle", "a blue square"])
print(run.model.compare(images, texts))
