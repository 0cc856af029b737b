"""The commands that are one public function each: usage, examples, and what is special about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import click

import subtext
from subtext.cli.command import PATH, CommandGroup, example, verb_command
from subtext.errors import counted


class Entry(TypedDict, total=False):
    """How a function becomes a command; see `verb_command`.

    verb     the public function, where it has neither the name of the command nor that with its group: build_index
    summary  its line in the help of its group, where that is not the first paragraph of its own help
    """

    verb: str
    summary: str
    usage: str
    examples: list[str]
    required: list[str]
    json: bool
    renamed: dict[str, str]
    exit_code: Callable[[Any], int]
    text: Callable[[Any], str]
    extra_arguments: Callable[[click.Context], dict[str, Any]]


def sides(words: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Files before and after `vs`; of two files without it, each is a side.

    Raises click.UsageError for anything else.
    """
    positions = [position for position, word in enumerate(words) if str(word) == "vs"]
    if not positions and len(words) == 2:
        return (words[0],), (words[1],)
    if len(positions) != 1 or positions[0] in (0, len(words) - 1):
        raise click.UsageError(
            "name two files, or those of two sides with the word 'vs' between them: A1.json A2.json vs B1.json B2.json"
        )
    return tuple(words[: positions[0]]), tuple(words[positions[0] + 1 :])


VERBS: dict[str, Entry] = {
    "demo": {
        "examples": ["subtext demo", "subtext demo --out emoji --seed 1"],
        "exit_code": lambda shown: 130 if shown.stopped else 0,
    },
    "ensemble": {
        "examples": [
            "subtext ensemble runs/saf runs/sgr --out runs/sgraf",
            "subtext evaluate runs/fast --rerank runs/sgraf --candidates 100",
        ]
    },
    "evaluate": {
        "usage": "RUN | --model NAME_OR_PATH | --scores FILE [OPTIONS]",
        "examples": [
            "subtext evaluate runs/first --split val --json figures.json",
            "subtext evaluate runs/first --data other.jsonl --split all",
            "subtext evaluate --model openai/clip-vit-base-patch32 --data captions.jsonl --split test",
            "subtext evaluate runs/fast --rerank runs/expensive --candidates 10,20,50,100,200 --plot sweep.svg",
            "subtext evaluate --scores mine.npz --data captions.jsonl --split test --relevance tfidf1",
        ],
        "renamed": {"--words": "--by-length"},
    },
    "compare": {
        "usage": "A.json B.json | A1.json A2.json ... vs B1.json B2.json ... [OPTIONS]",
        "examples": [
            "subtext compare a.json b.json",
            "subtext compare ours-*.json vs plain-*.json --metric recall@10 --json compared.json",
        ],
        "extra_arguments": lambda ctx: dict(zip(("first", "second"), sides(ctx.params["files"]), strict=True)),
    },
    "audit": {
        "usage": "RUN | --model NAME_OR_PATH | --scores FILE [OPTIONS]",
        "examples": [
            "subtext audit runs/first --split test --html audit.html",
            "subtext audit runs/first --data other.jsonl --split all --json audit.json",
            "subtext audit --model openai/clip-vit-base-patch32 --data captions.jsonl --split test",
            "subtext audit --scores mine.npz --data captions.jsonl --split test --train-split train --html audit.html",
        ],
        "exit_code": lambda audit: int(not audit.passed),
    },
    "embed": {
        "examples": [
            "subtext embed runs/first --out vectors.npz",
            "subtext embed runs/first --data other.jsonl --split all --out vectors.parquet",
        ],
        "required": ["out"],
    },
    "search": {
        "usage": 'INDEX "QUERY" | --image FILE | --like ID [OPTIONS]',
        "examples": [
            'subtext search library "a dog that waits for its owner"',
            "subtext search library --image photo.jpg --target texts --top 5",
            'subtext search library "the same at night" --image photo.jpg --image-weight 0.7',
            'subtext search library --like 1936-041 --not-text "a dog" --diversity 0.3',
            'subtext search library "empty street" --min-probability 0.2 --explain --json',
            'subtext search library "a dog that waits" --rerank runs/expensive --candidates 200',
            "subtext search library \"empty street\" --where 'year < 1950' --where 'place in Paris, Wien'",
        ],
        "json": True,
    },
    "serve": {
        "examples": [
            "subtext serve library",
            "subtext serve library other --port 9000 --token-file token",
            "subtext serve 'postgresql://editor@db/archive?index=library' --storage-dir storage --token-file token",
        ]
    },
    "score": {"examples": ["subtext score claims.jsonl --run runs/first --index library --json"], "json": True},
    "curate": {
        "examples": [
            "subtext curate pairs.jsonl --run runs/first --out curated",
            "subtext curate pairs.jsonl --run runs/first --out curated --export clean.parquet --mismatch-threshold 0.8",
        ],
        "renamed": {"--mismatched": "--mismatch-threshold", "--shown": "--page-pairs"},
    },
    "export": {
        "usage": "RUN --hf DIR | --onnx DIR",
        "examples": ["subtext export runs/first --hf first-hf", "subtext export runs/first --onnx first-onnx"],
    },
    "runs": {
        "examples": ["subtext runs", "subtext runs experiments --json", "subtext runs --verify"],
        "json": True,
        "exit_code": lambda listed: int(not listed.intact),
    },
    "data check": {
        "examples": [
            "subtext data check captions.jsonl",
            "subtext data check captions.csv --images photos --verify",
            "subtext data check shards --json > report.json",
        ],
        "json": True,
        "exit_code": lambda report: int(not report.usable),
    },
    "data prepare": {
        "examples": ["subtext data prepare politics --longer-than 500 --max-sentences 2 --out politics2.jsonl"],
        "required": ["out"],
        "renamed": {"--sentences": "--max-sentences"},
    },
    "data dedup": {
        "examples": ["subtext data dedup politics2.jsonl --images politics --out politics3.jsonl"],
        "required": ["out"],
        "renamed": {"--words": "--shingle-size"},
    },
    "data join": {"examples": ["subtext data join resnet_grid.npz butd.npz --out both.npz"]},
    "data corrupt": {
        "examples": [
            "subtext data corrupt captions.jsonl --graph graphs/lsa --out noisy.jsonl --labels labels.json",
            "subtext data corrupt captions.jsonl --noise-type mismatch --noise-rate 0.5 --out noisy.jsonl "
            "--labels labels.json",
        ],
        "required": ["out", "labels"],
        "renamed": {"--kind": "--noise-type", "--ranks": "--neighbour-ranks", "--share": "--noise-rate"},
    },
    "data detect-noise": {
        "examples": ["subtext data detect-noise runs/noisy --labels labels.json --graph graphs/noisy"],
        "required": ["labels"],
        "json": True,
    },
    "index build": {
        "summary": "Embed images and texts and store them in a new index.",
        "examples": [
            "subtext index build library --run runs/first",
            "subtext index build library --run runs/first --data photos.jsonl --images photos",
        ],
    },
    "index add": {
        "verb": "add_to_index",
        "summary": "Add the new and changed items of a data set.",
        "usage": "INDEX --data DATA [OPTIONS]",
        "examples": ["subtext index add library --data new.jsonl --images photos", "subtext index add library"],
    },
    "index update": {
        "summary": "Apply the changes of the data set to its index.",
        "examples": ["subtext index update library", "subtext index update library --keep-missing"],
    },
    "index watch": {
        "summary": "Update an index whenever its data changes.",
        "examples": ["subtext index watch library", "subtext index watch library --interval 5"],
        "text": lambda checks: f"checked {counted(checks, 'time')}",
    },
    "index move": {
        "summary": "Embed all items with another run.",
        "examples": ["subtext index move library --run runs/better"],
    },
    "index import": {
        "summary": "Import vectors from a file.",
        "examples": ["subtext index import library vectors.npz --run runs/first --data photos.jsonl"],
    },
    "index calibrate": {
        "summary": "Turn scores into probabilities of a match.",
        "examples": ["subtext index calibrate library --data photos.jsonl --split test"],
    },
    "index delete": {
        "verb": "delete_from_index",
        "summary": "Delete images and their texts.",
        "examples": [
            "subtext index delete library 1936-041",
            "subtext index delete library --where 'rights = withdrawn'",
        ],
    },
    "index compact": {
        "summary": "Free disk space and speed up large indexes.",
        "examples": ["subtext index compact library"],
    },
    "index info": {
        "verb": "index_info",
        "summary": "Show the contents of an index.",
        "examples": ["subtext index info library", "subtext index info library --json"],
        "json": True,
    },
    "index verify": {
        "summary": "Check an index for damage.",
        "examples": ["subtext index verify library"],
        "json": True,
        "exit_code": lambda result: int(not result.intact),
    },
    "index upgrade": {
        "summary": "Upgrade the schema of a PostgreSQL index.",
        "examples": ["subtext index upgrade 'postgresql://editor@db/archive?index=library'"],
    },
    "index migrate": {
        "summary": "Copy an index in shards into a new index.",
        "examples": ["subtext index migrate archive library"],
    },
    "index backup": {
        "summary": "Copy an index into a new folder.",
        "examples": ["subtext index backup library backups/monday"],
    },
    "index restore": {
        "summary": "Restore a backup to a new index.",
        "examples": ["subtext index restore backups/monday library"],
    },
    "neighbours build": {
        "examples": [
            "subtext neighbours build graphs/lsa --data captions.jsonl --space lsa",
            "subtext neighbours build graphs/d2v --data captions.jsonl --neighbours 50 --min-count 5",
        ],
        "renamed": {
            "--among": "--candidate-split",
            "--same-picture": "--same-image",
            "--sentences": "--max-sentences",
            "--space-epochs": "--doc2vec-epochs",
            "--width": "--dim",
        },
    },
    "neighbours show": {
        "examples": [
            "subtext neighbours show graphs/lsa",
            "subtext neighbours show graphs/lsa --item 1000268201_693b08cb0e.jpg --html near.html",
        ],
        "json": True,
    },
}
"""Command, with its group -> how it is made. In the order of a user's needs."""

GROUPS: dict[str, tuple[str, list[str]]] = {
    "data": ("Check a data set, or derive a new one from it.", ["subtext data check pairs.jsonl"]),
    "index": (
        """Build a search index over images and texts, change it, check it, and back it up.

        An index is a folder, or it is in a PostgreSQL database: postgresql://USER@HOST/DATABASE?index=NAME (set the
        password in PGPASSWORD or ~/.pgpass). A folder allows one writing process at a time, a database any number. Any
        number of processes can search at the same time. Completed changes survive a crash. Run an interrupted command
        again to resume it.""",
        [
            "subtext index build library --run runs/first",
            "subtext index add library --data new.jsonl --images photos",
            "subtext index delete library 1936-041 1936-042",
            "subtext index verify library",
        ],
    ),
    "neighbours": (
        "Find the semantic neighbours of each text, or show them.",
        [
            "subtext neighbours build neighbours --data pairs.jsonl --space lsa",
            "subtext neighbours show neighbours --item 17",
        ],
    ),
}
"""Group -> its help and examples."""

RENAMED: Mapping[str, Mapping[str, str]] = {"data": {"found": "detect-noise", "loosen": "corrupt"}}
"""Group -> old command -> its name now."""


def command(name: str) -> click.Command:
    """The command, or the group of commands, of that name."""
    if name not in GROUPS:
        return _verb_command(name)
    help, examples = GROUPS[name]
    commands = {full.partition(" ")[2]: _verb_command(full) for full in VERBS if full.partition(" ")[0] == name}
    return CommandGroup(name, commands, help=help, epilog=example(*examples), renamed=RENAMED.get(name, {}))


def _verb_command(full_name: str) -> click.Command:
    entry: dict[str, Any] = {**VERBS[full_name]}
    group, _, name = full_name.rpartition(" ")
    names = entry.pop("verb", ""), f"{name}_{group}", name.replace("-", "_")
    verb = getattr(subtext, next(verb_name for verb_name in names if verb_name in subtext.__all__))
    summary = entry.pop("summary", None)
    click_command = verb_command(verb, name=name, **entry)
    click_command.short_help = summary
    if name == "compare":
        click_command.params.insert(0, click.Argument(["files"], type=PATH, nargs=-1, required=True))
    return click_command
