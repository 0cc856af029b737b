"""The first minutes of a new user, run by `make dist` in an environment that has only the wheel.

    PYTHON tests/smoke.py FOLDER

It makes twelve images of one colour in FOLDER, and trains, evaluates, indexes and searches them by the command line and
from Python. It uses what the wheel brings and nothing of this repository.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from PIL import Image

COLOURS = {
    "red": (220, 30, 30), "green": (30, 180, 60), "blue": (40, 60, 220), "yellow": (240, 220, 40),
    "black": (10, 10, 10), "white": (245, 245, 245), "grey": (128, 128, 128), "orange": (250, 140, 20),
    "purple": (130, 40, 160), "brown": (120, 80, 40), "pink": (250, 150, 190), "cyan": (40, 210, 220),
}  # fmt: skip


def data(folder: Path) -> Path:
    """Write the images and captions.jsonl; returns the path of the latter."""
    rows = []
    for number, (name, colour) in enumerate(COLOURS.items()):
        Image.new("RGB", (40, 40), colour).save(folder / f"{name}.png")
        split = "train" if number < 8 else "val" if number < 10 else "test"
        texts = [f"a {name} square", f"one square, {name}"]
        rows.append({"image": f"{name}.png", "id": name, "captions": texts, "split": split})
    path = folder / "captions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def subtext(*arguments: str | Path) -> str:
    """Run the command as it was installed, and return what it prints; it must end well."""
    command = [str(Path(sys.executable).parent / "subtext"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def main(folder: Path) -> None:
    """Run it all."""
    import subtext as st

    repository = Path(__file__).resolve().parent.parent
    installed = Path(st.__file__).resolve()
    assert repository / "src" not in installed.parents, f"{installed} is the source, not the wheel"

    folder.mkdir(parents=True)
    captions = data(folder)
    run, library = folder / "run", folder / "library"
    assert "Commands:" in subtext("--help")
    subtext("data", "check", captions)
    small = ["--image-size", "32", "--epochs", "2", "--batch-size", "4"]
    subtext("train", "dual", "--data", captions, "--out", run, *small, "--quiet")
    subtext("evaluate", run, "--split", "all", "--json", folder / "result.json", "--quiet")
    assert json.loads((folder / "result.json").read_text(encoding="utf-8"))
    subtext("index", "build", library, "--run", run, "--split", "all", "--quiet")
    assert ".png" in subtext("search", library, "a red square", "--top", "3")

    model = st.load(run)
    scores = model.compare(model.embed_images([str(folder / "red.png")]), model.embed_texts(["a red square"]))
    assert tuple(scores.shape) == (1, 1)
    print(f"subtext {st.__version__} from {installed.parent}: help, check, train, evaluate, index and search work")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
