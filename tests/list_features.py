"""Walks the code and lists its features as (kind, name). `python tests/list_features.py` prints them.

The tables at the top say where things are. Each entry lists the places to try; the first that exists is used, so a room
can move at any time. `features.txt` says what becomes of each feature, `house/test_features.py` compares the two.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import click

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "features.txt"

# Folders of parts: kind -> places. A part is a public class that can be called, as a Loss or as a torch module.
PARTS = {
    "loss": ["src/subtext/objectives/losses", "src/subtext/losses"],
    "weighting": ["src/subtext/objectives/weighting.py", "src/subtext/weighting"],
    "mining": ["src/subtext/objectives/mining.py", "src/subtext/mining"],
    "regulariser": ["src/subtext/objectives/regularisers.py", "src/subtext/regularisers"],
    "generation": ["src/subtext/objectives/generation.py", "src/subtext/generation"],
    "similarity": ["src/subtext/models/similarity", "src/subtext/similarity"],
    "head": ["src/subtext/models/heads", "src/subtext/heads"],
    "encoder": ["src/subtext/models/encoders", "src/subtext/encoders"],
    "metric": ["src/subtext/evaluation/metrics", "src/subtext/metrics"],
}
BASES = ("Metric", "GainMetric", "_Choice", "GalleryMetric", "PMRP", "PairSimilarity", "_OfNodes")
"""Base classes of parts, which call them."""
FUNCTIONS_COUNT = ("generation", "metric")
"""Kinds whose public functions are features, too."""
FUNCTIONS_OUTSIDE = {
    "metric": ["src/subtext/evaluation/metric.py", "src/subtext/evaluation/checks/space.py", "src/subtext/ops/roc.py"]
}
"""Kind -> files outside of its folder that have some of its functions."""
READERS = ["src/subtext/data/readers"]
STORES = ["src/subtext/retrieval/stores/store.py", "src/subtext/stores/store.py"]
PROTOCOLS = {"store": ["Store"], "view": ["View"], "writer": ["Writer"]}
"""Part of a store -> names that its protocol may have."""
PAGE = ["src/subtext/server/page", "src/subtext/app/page"]
SERVER = ["src/subtext/server", "src/subtext/app/server"]
SCRIPTS = {"benchmark": ["benchmarks"], "study": ["reproduce/studies", "runs"]}
PACKAGES = {"core": ["src/subtext/core"], "evaluation": ["src/subtext/evaluation", "src/subtext/evaluate"]}
"""Packages whose `__all__` people import from."""
INTEROP = ["src/subtext/export", "src/subtext/interop"]

# Objects: places as "module:name".
CLI = ["subtext.cli:main", "subtext.app.cli:main"]
MODELS = ["subtext.recipes.catalogue:models", "subtext.recipes.catalogue:hosts"]
METHODS = ["subtext.recipes.catalogue:methods"]
TABLES = ["reproduce.tables.specification:tables", "subtext.recipes.published:tables"]
SYSTEMS = ["reproduce.systems:__path__", "subtext.recipes.systems:__path__"]
SYSTEM = ["reproduce.tables.specification:System", "subtext.recipes.published:System"]
FIGURES = [
    "reproduce.figures.catalogue:FIGURES",
    "subtext.app.figuring.known:FIGURES",
]
RELEVANCES = ["subtext.evaluation.relevance.graded:NAMES", "subtext.relevance.grade:NAMES"]
BACKBONES = ["subtext.models.encoders.hub:BACKBONES", "subtext.encoders.known:KNOWN"]
COLUMNS = ["subtext.data.rows", "subtext.data.columns", "subtext.data.readers.columns"]
APPLICATION = ["subtext.server.application", "subtext.app.server.application"]
SETTINGS = ["subtext.server.serve:Settings", "subtext.server.settings:Settings", "subtext.app.server.settings:Settings"]

FILE = re.compile(
    r"[\w{}.-]*\.(json|jsonl|npz|npy|safetensors|html|svg|csv|tsv|md|sqlite|parquet|onnx|tar|txt)", re.ASCII
)
NO_FILES = {"torch.onnx"}
SIDE_FILES = {"{}.onnx": ("image.onnx", "text.onnx")}
"""File names of which a variable is the whole stem -> what they are."""
EVALUATE = (
    "--c-way 2,4 --graph {graph} --relevance tfidf1 --asp-top 5 --gain 2 --ndcg 2 --precision --plausible "
    "--human {human} --words --hubness 3 --space"
)
"""Arguments that make evaluate report all that needs no model; hidden aliases keep them good."""


def walk() -> Iterator[tuple[str, str]]:
    """Every feature of the code but the figures of an evaluation, which take seconds: see `figures`."""
    for one in (
        commands, recipes, parts, relevances, readers, stores, routes, page, published, scripts, python_names, files,
        project,
    ):  # fmt: skip
        yield from one()


# ---- places ----


def folder(places: list[str]) -> Path:
    """The first place that exists. Raises LookupError where none does."""
    for place in places:
        if (ROOT / place).exists():
            return ROOT / place
    raise LookupError(f"none of {places} exists; add the new place to the table at the top of list_features.py")


def imported(place: str) -> Any:
    """An object by "module:name", or a module; None where there is none."""
    module, _, name = place.partition(":")
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        return None
    own = importlib.import_module(module)
    return getattr(own, name, None) if name else own


def thing(places: list[str]) -> Any:
    """The first place that exists. Raises LookupError where none does."""
    for place in places:
        if (found := imported(place)) is not None:
            return found
    raise LookupError(f"none of {places} exists; add the new place to the table at the top of list_features.py")


@cache
def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def strings(place: Path) -> frozenset[str]:
    """Every string of a package's code; gaps of f-strings are {}."""
    found = set()
    for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.JoinedStr):
                found.add("".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return frozenset(found)


def mentioned(text: str, *places: str) -> bool:
    """Whether a string of the code, or a source file's text in these places, has this in it."""
    where = [ROOT / place for place in places or ("src/subtext",)]
    return any(text in _joined(place) for place in where if place.exists())


@cache
def _joined(place: Path) -> str:
    """All strings of a package in one text, which is quicker to search than each by itself."""
    return "\0".join(strings(place))


# ---- the command line ----


def tree() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command that is shown, by its words: "data check". Commands of models are by name under `train`."""
    main = thing(CLI)

    def below(
        words: tuple[str, ...], command: click.Command, ctx: click.Context
    ) -> Iterator[tuple[str, click.Command, click.Context]]:
        yield " ".join(words), command, ctx
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                inner = command.get_command(ctx, name)
                assert inner is not None, name
                if not inner.hidden:
                    yield from below((*words, name), inner, click.Context(inner, info_name=name, parent=ctx))

    yield from below((), main, click.Context(main, info_name="subtext"))


def flag_of(parameter: click.Parameter) -> str:
    """How a parameter is typed: --split-seed, or DATA for an argument."""
    if isinstance(parameter, click.Argument):
        return str(parameter.name).upper()
    return next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0])


def commands() -> Iterator[tuple[str, str]]:
    """Commands, options, arguments, and the values that an option chooses from.

    What every model's command has (data, plan, run) is listed once, under MODEL; its own options are `recipes`.
    """
    models = thing(MODELS)()
    found: set[tuple[str, str]] = set()
    for words, command, ctx in tree():
        group, _, last = words.rpartition(" ")
        own: set[str] = set()
        if last in models and group:
            words = f"{group} MODEL"
            own = {f"--{option.name.replace('_', '-')}" for option in models[last].options}
        if words:
            found.add(("command", words))
        for parameter in command.get_params(ctx):
            flag = flag_of(parameter)
            if getattr(parameter, "hidden", False) or flag == "--help" or flag in own:
                continue
            name = f"{words} {flag}".strip()
            found.add(("argument" if isinstance(parameter, click.Argument) else "option", name))
            if isinstance(parameter.type, click.Choice):
                found |= {("choice", f"{name} {choice}") for choice in parameter.type.choices}
    yield from sorted(found)


def recipes() -> Iterator[tuple[str, str]]:
    """Models and methods with their options."""
    for kind, places, form, value in (
        ("model", MODELS, "{} --{}", "{} {}"),
        ("method", METHODS, "{}:{}", "{}={}"),
    ):
        for name, recipe in thing(places)().items():
            yield kind, name
            for option in recipe.options:
                if getattr(option, "hidden", False):
                    continue
                flag = option.name.replace("_", "-") if kind == "model" else option.name
                whole = form.format(name, flag)
                yield f"{kind} option", whole
                for choice in option.choices or ():
                    yield f"{kind} choice", value.format(whole, choice)


# ---- parts ----


def parts() -> Iterator[tuple[str, str]]:
    """Classes of the folders of parts; functions where these are features."""
    for kind, places in PARTS.items():
        place = folder(places)
        more = [ROOT / each for each in FUNCTIONS_OUTSIDE.get(kind, ())]
        for file in [place, *more] if place.is_file() else [*sorted(place.glob("*.py")), *more]:
            for node in parsed(file).body:
                if getattr(node, "name", "_").startswith("_"):
                    continue
                if isinstance(node, ast.ClassDef) and file not in more and _called(node, kind):
                    yield kind, node.name
                elif isinstance(node, ast.FunctionDef) and kind in FUNCTIONS_COUNT:
                    yield f"{kind} function", node.name


def _called(node: ast.ClassDef, kind: str) -> bool:
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    calls = bool(methods & {"__call__", "forward"})
    if any(isinstance(base, ast.Name) and base.id in BASES for base in node.bases):
        return True
    return calls or (kind == "encoder" and any(not name.startswith("__") for name in methods))


def relevances() -> Iterator[tuple[str, str]]:
    """Relevances by the name that --relevance takes, backbones by the one that --image does."""
    for name in thing(RELEVANCES):
        yield "relevance", name
    for name in thing(BACKBONES):
        yield "backbone", name


def readers() -> Iterator[tuple[str, str]]:
    """Formats of data sets: a file of the readers' folder that defines `read_<its name>`, or a class that reads."""
    for file in sorted(folder(READERS).glob("*.py")):
        for node in parsed(file).body:
            name = getattr(node, "name", "")
            if name in (f"read_{file.stem}", f"read_{file.stem}s", "recognises"):
                yield "reader", name.removeprefix("read_") if name != "recognises" else file.stem
    columns = thing(COLUMNS)
    for meaning in ("IMAGE", "TEXT", "TEXT_ID"):
        for name in getattr(columns, meaning, ()):
            yield "column", name


def stores() -> Iterator[tuple[str, str]]:
    """Methods and attributes of the stores' protocols."""
    classes = {n.name: n for n in parsed(folder(STORES)).body if isinstance(n, ast.ClassDef)}
    for part, names in PROTOCOLS.items():
        for node in (classes[name] for name in names if name in classes):
            for member in node.body:
                for name in _members(member):
                    yield "store verb", f"{part}.{name}"


def _members(member: ast.stmt) -> list[str]:
    """The public methods and attributes that a statement of a class body defines."""
    names = []
    if isinstance(member, ast.FunctionDef) and member.name == "__init__":
        names = [n.attr for n in ast.walk(member) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
    elif isinstance(member, ast.FunctionDef):
        names = [member.name]
    elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
        names = [member.target.id]
    return [name for name in names if not name.startswith("_")]


# ---- the server ----


@cache
def openapi() -> dict[str, Any]:
    """What the server says of itself; no index is opened for it."""
    application: ModuleType = thing(APPLICATION)
    with patch.object(application, "ServerState"):
        app = application.build(thing(SETTINGS)(("index",)))
    return dict(app.openapi())


def routes() -> Iterator[tuple[str, str]]:
    """Addresses, what a request may say, and the fields of answers."""
    described = openapi()
    for path, verbs in described["paths"].items():
        for verb, about in verbs.items():
            name = f"{verb.upper()} {path}"
            yield "route", name
            for parameter in about.get("parameters", []):
                yield "route parameter", f"{name} {parameter['name']}"
            body = about.get("requestBody", {}).get("content", {})
            for field in sorted(set(_fields([one.get("schema", {}) for one in body.values()], described))):
                yield "route parameter", f"{name} body.{field}"
            answers = [answer for status, answer in about["responses"].items() if status.startswith("2")]
            content = [one.get("schema", {}) for a in answers for one in a.get("content", {}).values()]
            for field in sorted(set(_fields(content, described))):
                yield "answer field", f"{name} {field}"
    for file in sorted(folder(SERVER).rglob("*.py")):
        for verb, path in re.findall(r'@\w+\.(get|post)\(\s*"(/[^"]*)"', file.read_text(encoding="utf-8")):
            if path not in described["paths"]:
                yield "route", f"{verb.upper()} {path}"


def _fields(schemas: list[dict[str, Any]], described: dict[str, Any], before: str = "") -> Iterator[str]:
    for schema in schemas:
        if "$ref" in schema:
            inner = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            yield from _fields([inner], described, before)
        yield from _fields([*schema.get("anyOf", []), *schema.get("allOf", [])], described, before)
        if isinstance(schema.get("items"), dict):
            yield from _fields([schema["items"]], described, f"{before.removesuffix('.')}[].")
        for name, inner in schema.get("properties", {}).items():
            yield before + name
            yield from _fields([inner], described, f"{before}{name}.")


def page() -> Iterator[tuple[str, str]]:
    """What the page can do, by its scripts and its HTML."""
    found: set[tuple[str, str]] = set()
    where = folder(PAGE)
    for file in sorted(where.glob("*.js")):
        text = file.read_text(encoding="utf-8")
        name = r"(?:async )?(?:function|class|const) (\w+)"
        found |= {("page function", f"{file.stem}.{one}") for one in re.findall(rf"^export {name}", text, re.M)}
        for kind, inner in re.findall(r"^export class (\w+)[^{]*\{\n(.*?)^\}", text, re.M | re.S):
            methods = re.findall(r"^  (?:async |get )?(\w+)\([^)]*\) \{", inner, re.M)
            found |= {("page function", f"{kind}.{one}") for one in methods if one != "constructor"}
        found |= {("page key", one) for one in re.findall(r'event\.key === "([^"]+)"', text)}
        for inner in re.findall(r"\{([^{}]*)\}\[event\.key\]", text):
            found |= {("page key", (a or b)) for a, b in re.findall(r'(?:"([^"]+)"|(\w+)): ["\[]', inner)}
        found |= {
            ("page event", f"{a} {b}") for a, b in re.findall(r'by\("([\w-]+)"\)\.addEventListener\("(\w+)"', text)
        }
        found |= {
            ("page event", f"{a} {b}") for a, b in re.findall(r'(document|window)\.addEventListener\("(\w+)"', text)
        }
        found |= {("page request", one) for one in re.findall(r'ask\("(/\w+)"', text)}
        found |= {("page request", one) for one in re.findall(r"`(/\w+)\?", text)}
        found |= {("page storage", one) for one in re.findall(r'"(subtext\.\w+)"', text) if not one.endswith("csv")}
        found |= {("page download", one) for one in re.findall(r'download\("([^"]+)"', text)}
        for names in re.findall(r"^const (?:ONE|MANY) = \[([^\]]*)\]", text, re.M):
            found |= {("page parameter", one) for one in re.findall(r'"(\w+)"', names)}
        found |= {("page parameter", one) for one in re.findall(r'given\.get\("(\w+)"\)', text)}
        for line in text.splitlines():
            if "event.key" not in line and ('node("button"' in line or "tool(" in line or "acts." in line):
                found |= {("page button", one) for one in re.findall(r'"([A-Z][A-Za-z ]+\w)[:"]', line)}
    html = (where / "index.html").read_text(encoding="utf-8")
    found |= {
        ("page control", one) for one in re.findall(r'<(?:button|input|select|dialog|form)[^>]* id="([\w-]+)"', html)
    }
    yield from sorted(found)


# ---- papers, scripts, names, files ----


def published() -> Iterator[tuple[str, str]]:
    """Published tables with their rows, figures, and the systems of papers."""
    for name, table in thing(TABLES)().items():
        yield "published table", name
        for row in table.rows:
            yield "table row", f"{name} {row.key}"
    for name in thing(FIGURES):
        yield "published figure", name
    system = thing(SYSTEM)
    place = Path(next(iter(thing(SYSTEMS))))
    package = ".".join(place.relative_to(ROOT / "src" if "src" in place.parts else ROOT).parts)
    for file in sorted(place.glob("[a-z]*.py")):
        for name, value in vars(importlib.import_module(f"{package}.{file.stem}")).items():
            if isinstance(value, system):
                yield "system", f"{file.stem}.{name}"
            elif isinstance(value, dict) and value and all(isinstance(one, system) for one in value.values()):
                for key in value:
                    yield "system", f"{file.stem}.{name}.{key}"


def scripts() -> Iterator[tuple[str, str]]:
    """Benchmarks and studies."""
    for kind, places in SCRIPTS.items():
        for file in sorted(folder(places).glob("*.py")):
            if not file.stem.startswith("__"):
                yield kind, file.stem


def python_names() -> Iterator[tuple[str, str]]:
    """The public names of `subtext`, of packages that people import from, and of what other libraries call."""
    import subtext

    for name in subtext.__all__:
        yield "python name", f"subtext.{name}"
    for package, places in PACKAGES.items():
        for node in parsed(folder(places) / "__init__.py").body:
            if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
                for name in ast.literal_eval(node.value):
                    yield "python name", f"{package}.{name}"
    for file in sorted(folder(INTEROP).glob("mteb*.py")):
        for node in parsed(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield "python name", f"export.{node.name}"


def files() -> Iterator[tuple[str, str]]:
    """Names and endings of files that the code reads or writes."""
    for text in sorted(strings(ROOT / "src" / "subtext")):
        if text in SIDE_FILES:
            for name in SIDE_FILES[text]:
                yield "file", name
        elif FILE.fullmatch(text) and text not in NO_FILES and re.search("[A-Za-z]", text.rpartition(".")[0]):
            yield "file", text
        elif text.startswith(".") and FILE.fullmatch(text):
            yield "file ending", text


def project() -> Iterator[tuple[str, str]]:
    """Extras of the wheel, environment variables, metrics of the server."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in about["optional-dependencies"]:
        yield "extra", name
    for name in about["scripts"]:
        yield "script", name
    whole = "\n".join(sorted(strings(ROOT / "src" / "subtext")))
    for name in sorted(set(re.findall(r"\bSUBTEXT_[A-Z]+\b", whole))):
        yield "environment", name


# ---- figures of an evaluation ----


def figures() -> Iterator[tuple[str, str]]:
    """Names of the figures that evaluate reports, from an evaluation of random embeddings; numbers are K.

    Those that need a model or a benchmark's files (--space-of-pairs, --truth) are not among them.
    """
    import numpy as np
    from click.testing import CliRunner

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        rows = [
            {"id": f"p{i}", "image": f"p{i}.png", "captions": [_words(i, 3 + 6 * n) for n in range(2)], "split": "test",
             "labels": ["odd" if i % 2 else "even"]}
            for i in range(12)
        ]  # fmt: skip
        (place / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        ids = {"image": [f"p{i}" for i in range(12)], "text": [f"p{i}#{n}" for i in range(12) for n in range(2)]}
        for side, names in ids.items():
            vectors = rng.standard_normal((len(names), 8)).astype(np.float32)
            np.savez(place / f"{side}.npz", ids=np.array(names), vectors=vectors)
        people = [
            {"query": t, "candidate": p, "score": i % 3}
            for i, (t, p) in enumerate(zip(ids["text"], ids["image"] * 2, strict=True))
        ]
        (place / "human.jsonl").write_text("".join(json.dumps(row) + "\n" for row in people))
        run = CliRunner()
        main = thing(CLI)
        source = f"--data {place}/data.jsonl --split test -q"
        _did(run.invoke(main, f"neighbours build {place}/graph {source} --space lsa --width 4 --neighbours 3".split()))
        start = (
            f"evaluate {source} --image-embeddings {place}/image.npz --text-embeddings {place}/text.npz "
            f"--bootstrap 0 --json {place}/out.json --device cpu "
        )
        more = EVALUATE.format(graph=place / "graph", human=place / "human.jsonl")
        _did(run.invoke(main, (start + more).split()))
        told = json.loads((place / "out.json").read_text())
        numbers = {name for name, value in told.items() if isinstance(value, float | int)}
        for figure in sorted({generic(one) for one in numbers}):
            yield "figure", figure
        for field in sorted(set(told) - numbers):
            yield "result field", field


def generic(figure: str) -> str:
    """A figure's name with K for numbers, DIRECTION for both directions, and without its folds.

    >>> generic("image_to_text/recall@10(2 folds)"), generic("text_to_image/5_way@3")
    ('DIRECTION/recall@K', 'DIRECTION/K_way@K')
    """
    figure = re.sub(r"^(image_to_text|text_to_image)/", "DIRECTION/", figure)
    figure = re.sub(r"\((\d+k|\d+ folds|whole)\)$", "", figure)
    figure = re.sub(r"\(words [\d-]+\)", "(words LOW-HIGH)", figure)
    figure = re.sub(r"(?<=@)\d+|\b\d+(?=_way)|(?<=zeta )\d+", "K", figure)
    return re.sub(r"\(tfidf1\)", "(RELEVANCE)", figure)


def _words(item: int, count: int) -> str:
    names = ["dog", "court", "rain", "ruling", "market", "harbour", "winter", "garden"]
    return " ".join(names[(item + step * (item % 3 + 1)) % len(names)] for step in range(count))


def _did(result: Any) -> None:
    if result.exit_code:
        raise AssertionError(result.output) from result.exception


# ---- the list ----


def listed() -> dict[tuple[str, str], str]:
    """(kind, name) -> fate, from features.txt. Raises ValueError for a line that is none, or stands twice."""
    found: dict[tuple[str, str], str] = {}
    for number, line in enumerate(LIST.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pieces = [piece.strip() for piece in line.split(" | ")]
        if len(pieces) != 3 or tuple(pieces[:2]) in found:
            raise ValueError(f"features.txt:{number} needs 'kind | name | fate', once; it has '{line}'")
        found[pieces[0], pieces[1]] = pieces[2]
    return found


WALKS: tuple[Callable[[], Iterator[tuple[str, str]]], ...] = (walk, figures)

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for each in WALKS:
        for kind_, name_ in each():
            print(f"{kind_} | {name_}")
