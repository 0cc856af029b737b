"""The commands that are one public function each: name, summary, examples, usage, and what is special about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from subtext.text_helpers import counted


@dataclass(frozen=True)
class CommandEntry:
    """How a public function becomes a command.

    Attributes:
        examples: Lines that its help shows.
        summary: Its line in a list of commands; by default the first paragraph of the function's docstring.
        function: The public function, where it has neither the name of the command nor that with its group:
            `build_index`.
        usage: What stands after the command's name in its usage line; by default the arguments and required options.
        required: Parameters that the command line needs though Python does not, such as the file to write.
        json: Adds --json, which prints the result's `to_json`, as `--json -` does where `json` names a file.
        jsonl: Adds --jsonl, which prints a line of JSON for each of these values of a result; None for no such option.
        instead_of_jsonl: A parameter that the command line needs without --jsonl.
        queries: A parameter of text whose value - stands for lines of the standard input.
        text: What is printed of the result, unless that is None.
        exit_code: Of a result.
        extra_arguments: Extra arguments of the function.
    """

    examples: Sequence[str]
    summary: str = ""
    function: str = ""
    usage: str | None = None
    required: Sequence[str] = ()
    json: bool = False
    jsonl: Callable[[Any], Iterable[Any]] | None = None
    instead_of_jsonl: str = ""
    queries: str = ""
    text: Callable[[Any], str] = str
    exit_code: Callable[[Any], int] = lambda result: getattr(result, "exit_code", 0)
    extra_arguments: Callable[[click.Context], dict[str, Any]] = lambda ctx: {}


@dataclass(frozen=True)
class GroupEntry:
    """A group of commands: its line in `subtext --help`, and its own help.

    Attributes:
        summary: Its line in `subtext --help`.
        help: The paragraphs of its own help.
        examples: Lines that its help shows.
    """

    summary: str
    help: str
    examples: Sequence[str]


def sides(words: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Files before and after `vs`; of two files without it, each is a side.

    Args:
        words: Paths, and at most one word `vs`.

    Returns:
        Files of the first and of the second side.

    Raises:
        click.UsageError: For anything else.
    """
    positions = [position for position, word in enumerate(words) if str(word) == "vs"]
    if not positions and len(words) == 2:
        return (words[0],), (words[1],)
    if len(positions) != 1 or positions[0] in (0, len(words) - 1):
        raise click.UsageError(
            "name two files, or those of two sides with the word 'vs' between them: A1.json A2.json vs B1.json B2.json"
        )
    return tuple(words[: positions[0]]), tuple(words[positions[0] + 1 :])


EXAMPLES = (
    "subtext data check captions.jsonl",
    "subtext train --data captions.jsonl --out runs/first",
    "subtext evaluate runs/first --split val",
    "subtext index build library --run runs/first --split all",
    'subtext search library "a dog that waits for its owner"',
)
"""Lines that `subtext --help` shows."""

GROUPS: dict[str, GroupEntry] = {
    "data": GroupEntry(
        "Check a data set, or derive a new one from it.",
        help="Check a data set, or derive a new one from it.",
        examples=("subtext data check pairs.jsonl",),
    ),
    "index": GroupEntry(
        "Build a search index over images and texts, change it, check it, back it up.",
        help=(
            "Build a search index over images and texts, change it, check it, and back it up.\n\n"
            "An index is a folder; it is in a PostgreSQL database: postgresql://USER@HOST/DATABASE?index=NAME (set the "
            "password in PGPASSWORD or ~/.pgpass); or it is a LanceDB table: lance://FOLDER, or s3://BUCKET/NAME, "
            "gs:// and az:// in an object store. A folder allows one writing process at a time, the others any number. "
            "Any number of processes can search at the same time. Completed changes survive a crash. Run an "
            "interrupted command again to "
            "resume it."
        ),
        examples=(
            "subtext index build library --run runs/first",
            "subtext index add library --data new.jsonl --images photos",
            "subtext index delete library 1936-041 1936-042",
            "subtext index verify library",
        ),
    ),
    "neighbours": GroupEntry(
        "Find the semantic neighbours of each text, for methods that learn from them.",
        help="Find the semantic neighbours of each text, or show them.",
        examples=(
            "subtext neighbours build neighbours --data pairs.jsonl --space lsa",
            "subtext neighbours show neighbours --item 17",
        ),
    ),
}
"""Group -> its texts."""

COMMANDS: dict[str, CommandEntry] = {
    "demo": CommandEntry(
        summary="Train, evaluate and search on emoji and icons, in some minutes.",
        examples=(
            "subtext demo",
            "subtext demo --out emoji --seed 1",
        ),
        function="run_demo",
        exit_code=lambda shown: 130 if shown.stopped else 0,
    ),
    "data check": CommandEntry(
        examples=(
            "subtext data check captions.jsonl",
            "subtext data check captions.csv --images photos --verify",
            "subtext data check shards --json > report.json",
        ),
        function="check_dataset",
        json=True,
        exit_code=lambda report: int(not report.usable),
    ),
    "data prepare": CommandEntry(
        examples=("subtext data prepare politics --longer-than 500 --max-sentences 2 --out politics2.jsonl",),
        required=("out",),
    ),
    "data dedup": CommandEntry(
        examples=(
            "subtext data dedup photos/",
            "subtext data dedup politics2.jsonl --images politics --out politics3.jsonl",
        ),
        json=True,
    ),
    "data join": CommandEntry(
        examples=("subtext data join resnet_grid.npz butd.npz --out both.npz",), function="join_features"
    ),
    "data corrupt": CommandEntry(
        examples=(
            "subtext data corrupt captions.jsonl --graph graphs/lsa --out noisy.jsonl --labels labels.json",
            "subtext data corrupt captions.jsonl --noise-type mismatch --noise-rate 0.5 --out noisy.jsonl "
            "--labels labels.json",
        ),
        required=("out", "labels"),
    ),
    "data detect-noise": CommandEntry(
        examples=("subtext data detect-noise runs/noisy --labels labels.json --graph graphs/noisy",),
        required=("labels",),
        json=True,
    ),
    "train": CommandEntry(
        summary="Train a model on pairs of images and texts.",
        examples=(
            "subtext train --data captions.jsonl --out runs/first",
            "subtext train pvse --data captions.jsonl --out runs/pvse --views 4 --epochs 20",
            "subtext train vse --data captions.jsonl --out runs/vse --features features.npz",
        ),
    ),
    "ensemble": CommandEntry(
        summary="Combine several runs into one run that averages their scores.",
        examples=(
            "subtext ensemble runs/saf runs/sgr --out runs/sgraf",
            "subtext ensemble runs/first --model starter --out runs/both",
            "subtext evaluate runs/fast --rerank runs/sgraf --candidates 100",
        ),
        function="ensemble_runs",
    ),
    "interpolate": CommandEntry(
        summary="Keep the share of an adaptation that is best on the validation split.",
        examples=(
            "subtext interpolate runs/adapted --out runs/between",
            "subtext interpolate runs/adapted --out runs/between --general captions.jsonl --json > curve.json",
        ),
        function="interpolate_run",
        json=True,
    ),
    "evaluate": CommandEntry(
        summary="Measure the retrieval of a run, or of another model's output, with confidence intervals.",
        examples=(
            "subtext evaluate runs/first --split val --json figures.json",
            "subtext evaluate runs/first --data other.jsonl --split all",
            "subtext evaluate --model openai/clip-vit-base-patch32 --data captions.jsonl --split test",
            "subtext evaluate runs/fast --rerank runs/expensive --candidates 10,20,50,100,200 --plot sweep.svg",
            "subtext evaluate --scores mine.npz --data captions.jsonl --split test --relevance tfidf1",
        ),
        usage="RUN | --model NAME_OR_FOLDER | --scores FILE [OPTIONS]",
    ),
    "compare": CommandEntry(
        summary="Test whether one run, or one method with several seeds, is better than another.",
        examples=(
            "subtext compare a.json b.json",
            "subtext compare ours-*.json vs plain-*.json --metric recall@10 --json compared.json",
        ),
        usage="A.json B.json | A1.json A2.json ... vs B1.json B2.json ... [OPTIONS]",
        extra_arguments=lambda ctx: dict(zip(("first", "second"), sides(ctx.params["files"]), strict=True)),
    ),
    "audit": CommandEntry(
        summary="Check an evaluation for leaks, and for scores that depend on other pairs.",
        examples=(
            "subtext audit runs/first --split test --html audit.html",
            "subtext audit runs/first --data other.jsonl --split all --json audit.json",
            "subtext audit --model openai/clip-vit-base-patch32 --data captions.jsonl --split test",
            "subtext audit --scores mine.npz --data captions.jsonl --split test --train-split train --html audit.html",
        ),
        usage="RUN | --model NAME_OR_FOLDER | --scores FILE [OPTIONS]",
        exit_code=lambda audit: int(not audit.passed),
    ),
    "embed": CommandEntry(
        summary="Write the vectors of a data set's images and texts to a file.",
        examples=(
            "subtext embed runs/first --out vectors.npz",
            "subtext embed runs/first --data other.jsonl --split all --out vectors.parquet",
            "subtext embed --model google/siglip2-base-patch16-224 --data captions.jsonl --out vectors.npz",
            "subtext embed runs/first --jsonl | head",
        ),
        jsonl=lambda embedded: embedded.entries(),
        instead_of_jsonl="out",
        usage="RUN | --model NAME_OR_FOLDER --data DATA, --out FILE | --jsonl [OPTIONS]",
    ),
    "index build": CommandEntry(
        summary="Embed images and texts and store them in a new index.",
        examples=(
            "subtext index build library photos/ --model starter",
            "subtext index build library export.csv --images photos/ --model google/siglip2-base-patch16-224",
            "subtext index build library photos/ --model models/clip --text-prompt 'a photo of {}'",
            "subtext index build library --run runs/first",
            "subtext index build library --run runs/first --data photos.jsonl --images photos",
        ),
        usage="INDEX [DATA] --run RUN | --model NAME_OR_FOLDER [OPTIONS]",
    ),
    "index add": CommandEntry(
        summary="Add the new and changed items of a data set.",
        examples=(
            "subtext index add library new.jsonl --images photos",
            "subtext index add library",
        ),
        function="add_to_index",
        usage="INDEX DATA [OPTIONS]",
    ),
    "index update": CommandEntry(
        summary="Apply the changes of the data set to its index.",
        examples=(
            "subtext index update library",
            "subtext index update library --keep-missing",
        ),
    ),
    "index watch": CommandEntry(
        summary="Update an index whenever its data changes.",
        examples=(
            "subtext index watch library",
            "subtext index watch library --interval 5",
        ),
        text=lambda checks: f"checked {counted(checks, 'time')}",
    ),
    "index move": CommandEntry(
        summary="Embed all items with another run.",
        examples=("subtext index move library --run runs/better",),
        usage="INDEX --run RUN | --model NAME_OR_FOLDER [OPTIONS]",
    ),
    "index import": CommandEntry(
        summary="Import vectors from a file.",
        examples=(
            "subtext index import library vectors.npz --run runs/first --data photos.jsonl",
            "subtext index import library vectors.npz --model google/siglip2-base-patch16-224 --data photos.jsonl",
        ),
    ),
    "index texts": CommandEntry(
        summary="Add texts that a machine wrote, as a field of their own.",
        examples=(
            "subtext index texts library signs.csv --as ocr",
            "subtext index texts library captions.jsonl --as captioner --columns image=file,text=caption",
        ),
        function="add_machine_texts",
    ),
    "index ocr": CommandEntry(
        summary="Read the text inside the images of an index.",
        examples=("subtext index ocr library",),
    ),
    "index calibrate": CommandEntry(
        summary="Turn scores into probabilities of a match.",
        examples=("subtext index calibrate library --data photos.jsonl --split test",),
    ),
    "index delete": CommandEntry(
        summary="Delete images and their texts.",
        examples=(
            "subtext index delete library 1936-041",
            "subtext index delete library --where 'rights = withdrawn' --dry-run",
        ),
        function="delete_from_index",
        extra_arguments=lambda ctx: {} if ctx.params["yes"] else {"confirm": click.confirm},
    ),
    "index compact": CommandEntry(
        summary="Free disk space and speed up large indexes.", examples=("subtext index compact library",)
    ),
    "index info": CommandEntry(
        summary="Show the contents of an index.",
        examples=(
            "subtext index info library",
            "subtext index info library --json",
        ),
        function="index_info",
        json=True,
    ),
    "index verify": CommandEntry(
        summary="Check an index for damage.",
        examples=("subtext index verify library",),
        json=True,
        exit_code=lambda result: int(not result.intact),
    ),
    "index backup": CommandEntry(
        summary="Copy an index into a new folder.", examples=("subtext index backup library backups/monday",)
    ),
    "index restore": CommandEntry(
        summary="Restore a backup to a new index.", examples=("subtext index restore backups/monday library",)
    ),
    "search": CommandEntry(
        summary="Search an index with words, an image, or items of the index.",
        examples=(
            'subtext search library "a dog that waits for its owner"',
            "subtext search library --image photo.jpg --target texts --top 5",
            'subtext search library "the same at night" --image photo.jpg --image-weight 0.7',
            'subtext search library --like 1936-041 --not-text "a dog" --diversity 0.3',
            'subtext search library "empty street" --min-probability 0.2 --explain --json',
            'subtext search library "a dog that waits" --rerank runs/expensive --candidates 200',
            "subtext search library \"empty street\" --where 'year < 1950' --where 'place in Paris, Wien'",
            "subtext search library - --jsonl < queries.txt",
        ),
        usage='INDEX "QUERY" | --image FILE | --like ID [OPTIONS]',
        json=True,
        jsonl=lambda answers: [answer.to_json() for answer in (answers if isinstance(answers, list) else [answers])],
        queries="text",
    ),
    "serve": CommandEntry(
        summary="Serve indexes over HTTP, with a search page.",
        examples=(
            "subtext serve library",
            "subtext serve library other --port 9000 --token-file token",
            "subtext serve 'postgresql://editor@db/archive?index=library' --storage-dir storage --token-file token",
        ),
    ),
    "mcp": CommandEntry(
        summary="Offer indexes to other programs as tools of the Model Context Protocol.",
        examples=(
            "subtext mcp library",
            "subtext mcp library --where 'rights = open'",
        ),
        function="serve_mcp",
    ),
    "score": CommandEntry(
        summary="Score pairs: does the image support the text?",
        examples=("subtext score claims.jsonl --run runs/first --index library --json",),
        json=True,
        usage="PAIRS --run RUN | --model NAME_OR_FOLDER [OPTIONS]",
    ),
    "curate": CommandEntry(
        summary="Find mismatched pairs, duplicates, leaks, and unusual images and texts.",
        examples=(
            "subtext curate pairs.jsonl --run runs/first --out curated",
            "subtext curate pairs.jsonl --model openai/clip-vit-base-patch32 --out curated",
            "subtext curate pairs.jsonl --run runs/first --out curated --export clean.parquet --mismatch-threshold 0.8",
        ),
        usage="DATA --run RUN | --model NAME_OR_FOLDER, --out DIR [OPTIONS]",
    ),
    "export": CommandEntry(
        summary="Write a run for other libraries: safetensors for the Hub, or ONNX.",
        examples=(
            "subtext export runs/first --hf first-hf",
            "subtext export runs/first --onnx first-onnx",
        ),
        function="export_run",
        usage="RUN --hf DIR | --onnx DIR",
    ),
    "neighbours build": CommandEntry(
        examples=(
            "subtext neighbours build graphs/lsa --data captions.jsonl --space lsa",
            "subtext neighbours build graphs/d2v --data captions.jsonl --neighbours 50 --min-count 5",
        )
    ),
    "neighbours show": CommandEntry(
        examples=(
            "subtext neighbours show graphs/lsa",
            "subtext neighbours show graphs/lsa --item 1000268201_693b08cb0e.jpg --html near.html",
        ),
        json=True,
    ),
    "models": CommandEntry(
        summary="List the encoders that a training can start from.",
        examples=(
            "subtext models",
            "subtext models --json",
        ),
        function="list_models",
        json=True,
    ),
    "cache": CommandEntry(
        summary="Show or empty the cache of the outputs of frozen encoders.",
        examples=(
            "subtext cache",
            "subtext cache --clear",
        ),
        function="show_cache",
        json=True,
    ),
    "runs": CommandEntry(
        summary="List trained runs: recipe, data, best results, disk use.",
        examples=(
            "subtext runs",
            "subtext runs experiments --json",
            "subtext runs --verify",
        ),
        function="list_runs",
        json=True,
        exit_code=lambda listed: int(not listed.intact),
    ),
}
"""Command, with its group -> how it is made. In the order of a user's needs."""

SUMMARIES: dict[str, str] = {
    name: GROUPS[name].summary if name in GROUPS else COMMANDS[name].summary
    for name in dict.fromkeys(full.partition(" ")[0] for full in COMMANDS)
}
"""What `subtext --help` lists."""
