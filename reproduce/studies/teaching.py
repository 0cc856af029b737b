"""Flickr8k with grid features: a dual encoder alone, taught by a model of pairs, and re-ranked by it.

    SUBTEXT_DATA=... python -m reproduce.studies.teaching --grid FILE --out DIR [--seeds 0 1 2] [--first 2000]
        [--mined 16]

FILE is an .npz with `names`, `pooled` and `grid` (images, cells, width). Both models train on the same images; the last
500 train images choose the epochs, and val is evaluated once a run: the teacher, the student without it and with it,
and both students re-ranked by the teacher at 10 to 200 candidates. Everything is written below DIR, and the same call
resumes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import subtext as st
from reproduce.studies.common import HEAD, Recipe, data_folder, line, measure, options, selection
from reproduce.studies.regions import WORDS

HELD_OUT = 500
TEACHER = Recipe(
    "scan",
    embed_dim=256,
    batch_size=32,
    optimiser="adam",
    lr=5e-4,
    schedule="cosine",
    all_negatives_epochs=3,
    **WORDS,
)
"""SCAN as it learns in `reproduce.studies.regions`: raw features and larger batches left it near chance."""
STUDENT = Recipe("dual", text="bag")
CANDIDATES = (10, 20, 50, 100, 200)


def teacher_recipe(text: str) -> Recipe:
    """MODEL[:option=value,...], as methods are named."""
    model, _, assignments = text.partition(":")
    return Recipe(model, **dict(assignment.split("=", 1) for assignment in filter(None, assignments.split(","))))


def sweep(run: Path, teacher: Path) -> dict[str, Any]:
    """What two stages lose on val, for each number of candidates; computed once."""
    file = run.with_name(f"{run.name}-by-{teacher.name}.json")
    if not file.is_file():
        stage, protocol = st.SecondStage(teacher, CANDIDATES), st.Protocol(bootstrap=0)
        st.evaluate(run, rerank=stage, split="val", protocol=protocol, quiet=True).save(file)
    return dict(json.loads(file.read_text(encoding="utf-8"))["two_stage"])


def main() -> None:
    """Train and evaluate, and print the tables."""
    parser = options(__doc__, seeds=[0])
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--first", type=int, default=2000, help="images that are trained on, five pairs each")
    parser.add_argument(
        "--teacher", type=teacher_recipe, default=TEACHER, metavar="MODEL[:option=value,...]", help="default: SCAN"
    )
    parser.add_argument("--epochs", type=int, default=10, help="of the teacher")
    parser.add_argument("--student-epochs", type=int, default=16)
    parser.add_argument("--mined", type=int, default=16, help="candidates of each item that the teacher scores")
    config = parser.parse_args()
    folder = data_folder("flickr8k")
    config.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", config.out / "captions.jsonl", held_out=HELD_OUT, first=config.first)
    sources: dict[str, Any] = {"data": data, "images": folder / "images", "features": config.grid}
    sources["val_split"] = "select"
    results: dict[str, list[dict[str, Any]]] = {"teacher": [], "student": [], "student, taught": []}
    for seed in config.seeds:
        teacher = config.out / f"teacher-{seed}"
        result = measure(teacher, config.teacher, split="val", epochs=config.epochs, seed=seed, **sources)
        results["teacher"].append(result)
        student = STUDENT.but(epochs=config.student_epochs)
        taught = student.but(methods=[f"distil:teacher={teacher},mined_candidates={config.mined}"])
        for name, recipe in (("student", student), ("student, taught", taught)):
            run = config.out / f"{name.replace(', ', '-')}-{seed}"
            results[name].append(measure(run, recipe, split="val", seed=seed, **sources))
            stages = sweep(run, teacher)
            print(f"\n{name}, seed {seed}: {stages['enough'] or 'none of these'} candidates are enough")
            for row in stages["sweep"]:
                lost = " ".join(f"{direction} {value:+.2f}" for direction, value in row["lost"].items())
                share = 100 * row["share_of_pairs"]["together"]
                print(f"  {row['candidates']:>4} candidates, {share:.2f} % of pairs: rsum {row['rsum']:.1f}; {lost}")
    print("\n".join(["\nval\n", HEAD, *(line(name, rows) for name, rows in results.items())]))


if __name__ == "__main__":
    main()
