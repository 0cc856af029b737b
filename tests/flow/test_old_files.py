"""What Subtext 0.1.0 wrote opens with the Subtext of today, and gives the numbers that it gave then.

tests/data/v0_1 was written at commit 2da5db5 by the make.py that stands in it, and is never written again: a file that
can no longer be read, or gives other numbers, is a promise broken to whoever has one like it. Paths in these files are
from that folder, so that everything here is done inside a copy of it. Nearly all of it is done by commands, which stay
when modules move.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import database
import made_data
import pytest
from command import call
from safetensors.numpy import load_file

OLD = Path(__file__).parents[1] / "data" / "v0_1"
EXPECTED: dict[str, Any] = json.loads((OLD / "expected.json").read_text(encoding="utf-8"))
QUIET = ("--device", "cpu", "--workers", 0, "-q")
NEAR = 1e-5
"""Another processor may add in another order; figures of ranks, scores and probabilities move by less than this."""
SEARCHES: dict[str, tuple[object, ...]] = {
    "words": ("a red dog", "--top", 8),
    "where": ("a red dog", "--top", 8, "--where", "year >= 1995", "--where", "desk = news", "--why"),
    "texts": ("the boat there is blue", "--for", "texts", "--top", 5),
}


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the old files, and the folder that commands are called in."""
    made = shutil.copytree(OLD, tmp_path / "old")
    monkeypatch.chdir(made)
    return made


def assert_near(found: Any, wanted: Any, where: str = "") -> None:
    """Assert that what was measured is what is wanted: all that is wanted is there, and numbers are near."""
    if isinstance(wanted, dict):
        assert set(wanted) <= set(found), where
        for name, value in wanted.items():
            assert_near(found[name], value, f"{where}/{name}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_near(one, other, f"{where}/{place}")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=NEAR, abs=NEAR), where
    else:
        assert found == wanted, where


def gallery(then: dict[str, Any]) -> dict[str, int]:
    """The numbers of images and texts of an old file, under the names of today."""
    counts = then["protocol"]["gallery"]
    return {"images": counts["pictures"], "texts": counts["texts"]}


def measured(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("evaluate", *words, "--split", "test", "--json", "-", *QUIET).stdout)
    return found


def hits(index: object, kind: str, *more: object) -> list[list[object]]:
    """What a search finds: ids, scores and probabilities."""
    told = json.loads(call("search", index, *SEARCHES[kind], *more, "--json", "--device", "cpu").stdout)
    return [[hit["id"], hit["score"], hit.get("probability")] for hit in told["hits"]]


@pytest.mark.parametrize("name", ["dual", "pvse", "scan", "both", "pictures"])
def test_a_run_opens_and_has_its_figures(old: Path, name: str) -> None:
    found = measured(f"runs/{name}")
    assert_near(found, EXPECTED["figures"][name])
    # Indexes know the model that made them by this word: with another one they would be refused.
    assert found["model"]["fingerprint"] == EXPECTED["fingerprints"][name]
    then = json.loads(Path(f"evaluated/{name}.json").read_text(encoding="utf-8"))
    for part in ("intervals", "chance"):
        assert_near(found[part], then[part], part)
    assert found["protocol"]["data"] == then["protocol"]["data"]
    assert found["protocol"]["gallery"] == gallery(then)


def test_a_run_tells_of_its_data_from_anywhere(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = ("--data", "old/captions.jsonl", "--features", "old/features.npz")
    assert_near(measured("old/runs/dual", *data), EXPECTED["figures"]["dual"])


@pytest.mark.parametrize("run", ["hub", "runs/dual/epochs/30"])
def test_what_was_written_of_a_run_opens_as_one(old: Path, run: str) -> None:
    found = measured(run)
    assert found["model"]["host"] == "dual"
    if run == "hub":
        assert_near(found, EXPECTED["figures"]["dual"])


def test_old_runs_are_listed(old: Path) -> None:
    found = {Path(row["run"]).name: row for row in json.loads(call("runs", "runs", "stopped", "--json").stdout)}
    assert {"dual", "pvse", "scan", "both", "pictures", "frozen"} <= set(found)


@pytest.mark.parametrize("name", ["dual", "pvse", "frozen"])
def test_a_training_that_was_killed_goes_on_to_the_same_end(old: Path, name: str) -> None:
    """One with averaged weights, one with weights from banks, one with cached outputs of a frozen encoder."""
    words = json.loads(Path("resume.json").read_text(encoding="utf-8"))[name]
    log, out = Path(f"stopped/{name}/log.jsonl"), Path(f"stopped/{name}")
    before = log.read_text(encoding="utf-8")
    step = max(int(place.name.split("-")[1]) for place in (out / "checkpoints").iterdir())
    kept = [line for line in before.splitlines() if json.loads(line).get("step", 0) <= step]
    call(*words)
    # Lines tell seconds: had it begun anew, they would be others.
    assert kept and log.read_text(encoding="utf-8").splitlines()[: len(kept)] == kept
    record = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert record["status"] == "finished" and not (out / "checkpoints").exists()
    assert_near(measured(out), EXPECTED["figures"][f"whole_{name}"])
    ours, theirs = load_file(out / "model.safetensors"), load_file(f"whole/{name}.safetensors")
    assert set(ours) == set(theirs)
    for tensor, values in theirs.items():
        assert ours[tensor].dtype == values.dtype and ours[tensor] == pytest.approx(values, rel=0, abs=1e-6), tensor


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_folder_finds_what_it_found(old: Path, kind: str) -> None:
    """Grown by another split, with an item deleted, and calibrated."""
    shown = () if kind == "texts" else ("--min-probability", 0)  # It shows probabilities that say little, too.
    assert_near(hits("index", kind, *shown), EXPECTED["hits"][f"folder_{kind}"])


def changed(index: str) -> None:
    """Add an item to an index and delete another; it is whole before and afterwards."""
    assert ": whole" in call("index", "verify", index).stdout
    row = {"image": "c35.jpg", "captions": ["a red dog"], "split": "new", "year": 2020, "desk": "news"}
    made_data.write_rows(Path("new.jsonl"), [row])
    given = ("--data", "new.jsonl", "--features", "features.npz", *QUIET)
    assert "2 items embedded" in call("index", "add", index, *given).stdout
    first = hits(index, "words")[0][0]
    assert "1 image and 2 texts deleted" in call("index", "delete", index, first).stdout
    now = [hit[0] for hit in hits(index, "words", "--top", 99)]
    assert first not in now and "c35.jpg" in now
    assert "c35.jpg" in [hit[0] for hit in hits(index, "where", "--top", 99)]
    assert ": whole" in call("index", "verify", index).stdout
    call("index", "compact", index)
    assert ": whole" in call("index", "verify", index).stdout
    assert sorted(hit[0] for hit in hits(index, "words", "--top", 99)) == sorted(now)


def test_a_folder_goes_on_living(old: Path) -> None:
    told = json.loads(call("index", "info", "index", "--json").stdout)
    assert told["counts"] == {"images": 41, "texts": 82} and all(job["finished"] for job in told["jobs"])
    # What was deleted stays away.
    assert "3 left out" in call("index", "update", "index", *QUIET).stdout
    changed("index")


def test_shards_are_copied_and_find_what_they_found(old: Path) -> None:
    assert "embedded" not in call("index", "migrate", "shards", "new").stdout
    assert ": whole" in call("index", "verify", "new").stdout
    assert_near(hits("new", "words"), EXPECTED["hits"]["shards_words"])
    changed("new")


@pytest.fixture(scope="module")
def server() -> Iterator[database.Server]:
    with database.started() as found:
        yield found


def test_a_dump_of_postgresql_finds_what_it_found_and_goes_on_living(old: Path, server: database.Server) -> None:
    server.run("psql", "--set=ON_ERROR_STOP=1", "--command=CREATE EXTENSION vector", "postgres")
    server.run("psql", "--set=ON_ERROR_STOP=1", "--file=postgres.sql", "postgres")
    address = server.address("library")
    for kind in SEARCHES:
        assert_near(hits(address, kind), EXPECTED["hits"][f"postgres_{kind}"])
    changed(address)


def test_a_graph_has_its_neighbours(old: Path) -> None:
    found = json.loads(call("neighbours", "show", "graph", "--item", "c00.jpg", "--json").stdout)
    assert_near(found, EXPECTED["near"])


def test_labels_of_loose_pairs_are_read(old: Path) -> None:
    given = ("--data", "loose.jsonl", "--labels", "labels.json", "--graph", "graph_loose", "--json", *QUIET)
    assert_near(json.loads(call("data", "found", "runs/dual", *given).stdout), EXPECTED["loose"])


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_vectors_in_a_file_are_judged_and_searched(old: Path, ending: str) -> None:
    file, data = f"vectors/dual.{ending}", ("--data", "captions.jsonl")
    found = measured("--image-embeddings", file, "--text-embeddings", file, *data)
    assert_near(found, EXPECTED["figures"]["dual"])
    call("index", "import", "imported", file, "--run", "runs/dual", *data)
    # The dump holds the same split but for one picture.
    now = [hit for hit in hits("imported", "words", "--top", 99) if hit[0] != "c45.jpg"]
    assert_near(now[:8], EXPECTED["hits"]["postgres_words"])


def test_old_figures_are_compared(old: Path) -> None:
    files = ("evaluated/dual.json", "evaluated/dual1.json")
    found = json.loads(call("compare", *files, "--samples", 200, "--json", "-").stdout)
    then = json.loads(Path("evaluated/compared.json").read_text(encoding="utf-8"))
    then["protocol"]["gallery"] = gallery(then)
    assert_near(found, then)


def test_old_figures_are_compared_with_new_ones(old: Path) -> None:
    new = ("--json", "new.json", "--per-query", "new.npz")
    call("evaluate", "runs/dual", "--split", "test", *new, *QUIET)
    found = json.loads(call("compare", "evaluated/dual.json", "new.json", "--samples", 100, "--json", "-").stdout)
    assert found["lines"] and all(line["difference"] == pytest.approx(0, abs=NEAR) for line in found["lines"])


def test_matrices_of_relevance_are_not_made_again(old: Path) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in Path("relevance").iterdir()}
    found = measured("runs/dual", "--relevance", "tfidf1", "--cache", "relevance")
    assert_near(found, EXPECTED["figures"]["relevance"])
    assert {file.name: file.stat().st_mtime_ns for file in Path("relevance").iterdir()} == before


def test_a_table_takes_the_rows_that_were_trained(old: Path) -> None:
    """Folders of trainings are named after where their data stands, among all else: here that is another place.

    The row starts from learnt word vectors since, which this run did not, and asks with every text of an image: what
    was measured of images that ask is measured anew.
    """
    words = json.loads(Path("table.json").read_text(encoding="utf-8"))
    words[-2:-2] = ["--set", "word_vectors=random"]
    written = Path("table/cvprw2022_table2.json").read_text(encoding="utf-8")
    call(*words[:-1], "fresh")
    (name,) = (place.name for place in Path("fresh/runs/mine").iterdir())
    (trained,) = Path("table/runs/mine").iterdir()
    trained.rename(trained.with_name(name))
    before = {file: file.stat().st_mtime_ns for file in Path("table/runs").rglob("*")}
    assert "to train: 0" in call(*words, "--plan").stdout
    call(*words)
    after = {file: file.stat().st_mtime_ns for file in Path("table/runs").rglob("*")}
    assert all(after[file] == time for file, time in before.items() if file.is_file())
    assert all("question3" in file.name for file in after.keys() - before.keys())
    for place in ("table", "fresh"):
        now = json.loads(Path(place, "cvprw2022_table2.json").read_text(encoding="utf-8"))
        then = json.loads(written)
        for row, earlier in zip(now["rows"], then["rows"], strict=True):
            cell = "mine I→T"
            assert row["cells"].pop(cell)["mean"] <= earlier["cells"].pop(cell)["mean"]
        assert_near(now["rows"], then["rows"])
