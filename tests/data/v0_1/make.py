"""Writes the files of this folder with Subtext 0.1.0, commit 2da5db5: what later versions have to go on opening.

    git worktree add OLD 2da5db5
    cp tests/data/v0_1/make.py OLD/make.py && cd OLD
    OMP_NUM_THREADS=1 PYTHONPATH=$PWD/src:$PWD/tests python make.py NEW        # NEW: an empty folder

It runs at that commit alone: it calls modules of it by their names of then, and another version would write other
files. It is kept so that one can see what made each file. Everything is made from numbers drawn with a seed.

Old runs and indexes name their data by absolute paths. Those of one machine are of no use to another, so `neutral`
cuts them to paths from this folder, and writes SQLite's files with smaller pages; nothing else is changed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

import numpy as np
import tiny_models
from click.testing import CliRunner
from PIL import Image

COLOURS = ("red", "blue", "green", "black", "white", "brown", "pink", "grey")
THINGS = ("dog", "cat", "bird", "car", "tree", "house", "boat", "horse")
SPLITS = {"train": 32, "val": 10, "test": 10}
LOOSE = ("runs/dual", "--data", "loose.jsonl", "--labels", "labels.json", "--graph", "graph_loose", "--json", "-q")
HELD = 100
"""Pairs of a set of their own, which an index is calibrated by."""
WIDTH = 12
PAIRS = ("--data", "captions.jsonl", "--features", "features.npz")
SMALL = ("--width", 12, "--batch-size", 16, "--lr", "5e-3", "--workers", 0)
WORDS = ("--word-width", 8, "--min-count", 1)
QUIET = ("--device", "cpu", "-q")


def main() -> None:
    """Make everything in the folder that is named."""
    out = Path(sys.argv[1]).resolve()
    if sys.argv[2:] == ["neutral"]:
        neutral(out)
        return
    out.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, str(Path(__file__).resolve()), str(out), "neutral"]
    os.chdir(out)
    for step in (data, prepared, runs, stopped, figures, table, indexes, postgres, expected):
        step()
    # This process still has files of SQLite open, which are to be rewritten: another takes its place.
    os.execv(program[0], program)


def call(*words: object, file: str | None = None) -> str:
    """What a command says, which may be kept in a file."""
    from subtext.app.cli import main as command

    print("subtext", *words, f"> {file}" if file else "")
    done = CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    if file:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(done.stdout, encoding="utf-8")
    return done.stdout


def data() -> None:
    """Pairs with features of pictures that are no files, others to calibrate by, and pictures that are files."""
    rng = np.random.default_rng(7)
    topics = rng.normal(size=(len(COLOURS) + len(THINGS), WIDTH))

    def write(file: str, features: str, places: np.ndarray, splits: list[str]) -> None:
        rows, names, grids = [], [], []
        for number, (place, split) in enumerate(zip(places, splits, strict=True)):
            one, other = divmod(int(place), len(THINGS))
            shown = topics[[one, len(COLOURS) + other]] + 0.3 * rng.normal(size=(2, WIDTH))
            names.append(f"{file[0]}{number:02d}.jpg")
            grids.append(np.concatenate([shown, 0.3 * rng.normal(size=(1, WIDTH))]))
            texts = [f"a {COLOURS[one]} {THINGS[other]}", f"the {THINGS[other]} there is {COLOURS[one]}"]
            row = {"image": names[-1], "captions": texts, "split": split, "year": 1980 + int(place) % 40}
            rows.append({**row, "desk": ("news", "sport", "arts")[number % 3]})
        Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

        grid = np.asarray(grids, dtype=np.float32)
        np.savez(f"{features}.npz", names=np.array(names), grid=grid, pooled=grid.mean(axis=1))

    every = len(COLOURS) * len(THINGS)
    splits = [name for name, count in SPLITS.items() for _ in range(count)]
    write("captions.jsonl", "features", rng.permutation(every)[: len(splits)], splits)
    write("held.jsonl", "held", rng.permutation(HELD) % every, ["held"] * HELD)

    Path("pictures").mkdir()
    rows = []
    for number, name in enumerate(COLOURS):
        pixels = np.full((16, 16, 3), np.random.default_rng(number).integers(0, 256, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"pictures/{name}.png")
        split = "train" if number < 6 else "test"
        rows.append({"file_name": f"{name}.png", "captions": [f"a {name} square", f"all {name}"], "split": split})
    Path("pictures/metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def prepared() -> None:
    """What is made from texts before a training: graphs, and a loosened data set with its labels."""
    lsa = ("--space", "lsa", "--width", 6, "--neighbours", 5)
    call("neighbours", "build", "graph", "--data", "captions.jsonl", *lsa)
    loosen = ("--kind", "mixed", "--share", 0.3, "--graph", "graph", "--ranks", "1-5")
    call("data", "loosen", "captions.jsonl", *loosen, "--out", "loose.jsonl", "--labels", "labels.json")
    call("neighbours", "build", "graph_loose", "--data", "loose.jsonl", *lsa)


def runs() -> None:
    """Runs of one vector an item, of several with weights from banks, of regions and words, of pictures, and joined."""
    words = (*PAIRS, *SMALL, *WORDS, *QUIET)
    call("train", "dual", *words, "--epochs", 30, "--keep-epochs", 30, "--out", "runs/dual")
    call("train", "dual", *words, "--epochs", 2, "--seed", 1, "--out", "runs/dual1")
    pulled = ("--with", "neighbourhoods:graph=graph,pool=5", "--with", "diversity:graph=graph,first=encode")
    call("train", "pvse", *words, "--views", 2, *pulled, "--epochs", 2, "--out", "runs/pvse")
    call("train", "scan", *words, "--epochs", 2, "--out", "runs/scan")
    call("ensemble", "runs/dual", "runs/dual1", "--out", "runs/both")
    for shape in (tiny_models._TEXT, tiny_models._VISION):
        shape.update(hidden_size=8, num_hidden_layers=1, intermediate_size=8)
    tiny_models.vit(Path("vit"))
    tiny_models.WORDS = ("a", "the", "there", "is", *COLOURS, *THINGS)
    tiny_models.bert(Path("bert"))
    own = ("--image", "vit", "--val-split", "none", "--epochs", 1)
    call("train", "vse", "--data", "pictures", *SMALL, *WORDS, *QUIET, *own, "--out", "runs/pictures")
    shutil.rmtree("vit")
    call("export", "runs/dual", "--hf", "hub", "-q")


def stopped() -> None:
    """Trainings that were killed on their way, what goes on with them, and the same ones whole."""
    again: dict[str, list[str]] = {}
    averaged = (*WORDS, "--epochs", 4, "--average", "ema", "--schedule", "plateau")
    banks = (*WORDS, "--views", 2, "--with", "combined:graph=graph,first=encode", "--epochs", 4)
    frozen = ("--epochs", 3, "--text", "bert", "--freeze-epochs", -1)
    for name, host, options, moment in (
        ("dual", "dual", averaged, 7), ("pvse", "pvse", banks, 9), ("frozen", "vse", frozen, 5)
    ):  # fmt: skip
        words = ("train", host, *PAIRS, *SMALL, *QUIET, *options, "--checkpoint-every", 2, "--keep", 1, "--out")
        call(*words, f"whole/{name}")
        again[name] = [*map(str, words), f"stopped/{name}", "--resume"]
        child = os.fork()
        if not child:
            _killed_after(moment)
            call(*words, f"stopped/{name}")
            os._exit(1)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        for left in Path(f"stopped/{name}").rglob(".writing-*"):
            shutil.rmtree(left)
    Path("resume.json").write_text(json.dumps(again, indent=1) + "\n", encoding="utf-8")


def _killed_after(step: int) -> None:
    """From now on this process is killed once a checkpoint of that step or a later one has been written."""
    from subtext.training import fit

    plain = fit.write_snapshot

    def write(run: Path, snapshot: object, *, keep: int) -> None:
        plain(run, snapshot, keep=keep)  # type: ignore[arg-type]
        if snapshot.step >= step:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGKILL)

    fit.write_snapshot = write


def figures() -> None:
    """Figures, values a query, vectors and matrices, and what two systems' figures are when they are compared."""
    for name in ("dual", "dual1", "pvse", "scan", "both", "pictures"):
        kept = ["--json", f"evaluated/{name}.json"]
        kept += ["--per-query", f"evaluated/{name}.npz"] if name.startswith("dual") else []
        call("evaluate", f"runs/{name}", "--split", "test", *kept, *QUIET, "--workers", 0)
    for name in ("dual", "pvse", "frozen"):
        call("evaluate", f"whole/{name}", "--split", "test", "--json", f"evaluated/whole_{name}.json", *QUIET)
        # Of the whole trainings no more than the weights is wanted.
        shutil.move(f"whole/{name}/model.safetensors", f"whole/{name}.safetensors")
        shutil.rmtree(f"whole/{name}")
    shutil.rmtree("runs/dual1")
    call(
        "compare", "evaluated/dual.json", "evaluated/dual1.json", "--samples", 200, "--json", "evaluated/compared.json"
    )
    for ending in ("npz", "parquet"):
        call("embed", "runs/dual", "--split", "test", "--out", f"vectors/dual.{ending}", *QUIET)
    relevance = ("--relevance", "tfidf1", "--cache", "relevance")
    call("evaluate", "runs/dual", "--split", "test", *relevance, "--json", "evaluated/relevance.json", *QUIET)


def table() -> None:
    """A table of which one row was trained, with what was measured of it."""
    own = ("--data", "mine=captions.jsonl", "--features", "mine=features.npz", "--rows", "pvse", "--seeds", 1)
    quick = ("--epochs", 1, "--c", 3, "--workers", 0, *QUIET)
    changes = [word for change in ("width=8", "word_width=6", "batch_size=16") for word in ("--set", change)]
    words = ("table", "cvprw2022_table2", *own, *quick, *changes, "--out", "table")
    call(*words)
    Path("table.json").write_text(json.dumps([str(word) for word in words]) + "\n", encoding="utf-8")
    for ending in ("md", "svg", "tex"):
        Path(f"table/cvprw2022_table2.{ending}").unlink()


def indexes() -> None:
    """A folder and shards, after additions and deletions; what searches found in them."""
    call("index", "build", "index", "--run", "runs/dual", "--split", "train", *QUIET)
    call("index", "add", "index", "--data", "captions.jsonl", "--features", "features.npz", "--split", "test", *QUIET)
    call("index", "delete", "index", "c03.jpg")
    held = ("--data", "held.jsonl", "--features", "held.npz", "--split", "held")
    call("index", "calibrate", "index", *held, *QUIET)
    for file in ("held.jsonl", "held.npz"):
        Path(file).unlink()
    searches("index", "folder")
    _shards(Path("shards").resolve())


def _shards(out: Path) -> None:
    """What `subtext index build --ray local --shards 2` writes, without a cluster."""
    from subtext.app.indexing import sharding
    from subtext.app.indexing.embedder import Embedder
    from subtext.app.job import Sources, Work
    from subtext.opening import load
    from subtext.retrieval.index import Engine, Query
    from subtext.stores.shards.manifest import write_shards
    from subtext.stores.shards.store import Sharded

    plan = sharding.planned(Work(Path("runs/dual"), None, Sources(), "test", workers=0, quiet=True), out, 2)
    out.mkdir()
    write_shards(out, plan.listed)
    embedder = Embedder(plan.task)
    for number, share in enumerate(plan.shares):
        embedder.shard(number, plan.pairs.subset(share.images, share.texts))
    sharding.finish(out, plan.listed)
    answer = Engine(Sharded(out, here=True), load(Path("runs/dual"))).answer(Query("a red dog"), top=8)
    hits = {"hits": [hit.to_json() for hit in answer.hits]}
    Path("found/shards_words.json").write_text(json.dumps(hits, indent=2) + "\n", encoding="utf-8")


def searches(index: str, name: str) -> None:
    """What is found by words, under a condition, and for a text."""
    for kind, words in SEARCHES.items():
        call("search", index, *words, "--json", "--device", "cpu", file=f"found/{name}_{kind}.json")


SEARCHES = {
    "words": ("a red dog", "--top", 8),
    "where": ("a red dog", "--top", 8, "--where", "year >= 1995", "--where", "desk = news", "--why"),
    "texts": ("the boat there is blue", "--for", "texts", "--top", 5),
}


def postgres() -> None:
    """An index in PostgreSQL, as `pg_dump --schema` writes it."""
    from database import started

    with started() as server:
        address = server.address("library")
        call("index", "build", address, "--run", "runs/dual", "--split", "test", *QUIET)
        call("index", "delete", address, "c45.jpg")
        searches(address, "postgres")
        _neutral_rows(address)
        dump = server.run("pg_dump", "--schema=library", "--no-owner", "--no-privileges", "postgres")
    # psql of before 2025 does not know the command that says where its own commands are locked.
    lines = [line for line in dump.splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))]
    Path("postgres.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for file in Path("found").glob("postgres_*.json"):
        told = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**told, "index": "postgresql:///postgres?index=library"}, indent=2) + "\n")


def expected() -> None:
    """The numbers that must come out, from all that was written."""
    found: dict[str, object] = {"figures": {}, "fingerprints": {}, "hits": {}}
    for file in sorted(Path("evaluated").glob("*.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        if "model" in told:
            found["figures"][file.stem] = {name: value for name, value in told.items() if isinstance(value, float)}
            found["fingerprints"][file.stem] = told["model"]["fingerprint"]
    for file in sorted(Path("found").glob("*.json")):
        hits = json.loads(file.read_text(encoding="utf-8"))["hits"]
        found["hits"][file.stem] = [[hit["id"], hit["score"], hit.get("probability")] for hit in hits]
    found["loose"] = json.loads(call("data", "found", *LOOSE))
    found["near"] = json.loads(call("neighbours", "show", "graph", "--item", "c00.jpg", "--json"))
    Path("expected.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _neutral_rows(address: str) -> None:
    from psycopg import connect, sql

    from subtext.stores.postgres.address import Address

    given = Address.parse(address)
    with connect(**given.parameters) as connection:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(given.name)))
        (told,) = connection.execute("SELECT json FROM manifest").fetchone()
        connection.execute("UPDATE manifest SET json = %s", (_checked(_relative(told, Path.cwd())),))
        for number, source in connection.execute("SELECT number, source FROM jobs").fetchall():
            connection.execute("UPDATE jobs SET source = %s WHERE number = %s", (_relative(source, Path.cwd()), number))


def neutral(out: Path) -> None:
    """Paths from this folder in place of absolute ones, and what depends on them made anew; tables on small pages."""
    for file in out.rglob("*.sqlite"):
        connection = sqlite3.connect(file, isolation_level=None)
        for number, source in connection.execute("SELECT number, source FROM jobs").fetchall():
            connection.execute("UPDATE jobs SET source = ? WHERE number = ?", (_relative(source, out), number))
        for statement in ("journal_mode = DELETE", "page_size = 1024"):
            connection.execute(f"PRAGMA {statement}")
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
    for file in sorted(out.rglob("*")):
        if file.suffix in (".json", ".jsonl", ".md", ".txt") and str(out) in (text := file.read_text(encoding="utf-8")):
            text = _relative(text, out)
            file.write_text(_checked(text) if '"checksum"' in text else text, encoding="utf-8")
    for file in out.rglob("*"):
        if file.is_file() and (str(out).encode() in file.read_bytes()):
            print("still names the folder that it was made in:", file)


def _relative(text: str | None, out: Path) -> str | None:
    return None if text is None else text.replace(f"{out}/", "").replace(f'"{out}"', '"."')


def _checked(text: str) -> str:
    """The JSON of a manifest with its checksum made anew; of shards also that of the manifest inside."""
    from subtext.stores.checksum import checksum

    found = json.loads(text)
    for each in [*filter(lambda one: isinstance(one, dict) and "checksum" in one, found.values()), found]:
        each.pop("checksum", None)
        each["checksum"] = checksum(each)
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
