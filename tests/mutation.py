"""Plants small faults in modules, one at a time, and counts those that the tests find: `make mutation`.

The faults are those of cosmic-ray's operators (extra `mutation`). Tests are collected once. The process forks for each
fault; the child puts the faulty code into the functions, and runs the tests that executed its lines before, the fastest
first, until one fails. A fault outside of functions needs the package to be imported again. Results are appended to a
file, so a run that is cut off goes on.

    python tests/mutation.py losses metrics --most 60 --out build/mutation.jsonl
"""

from __future__ import annotations

import argparse
import ast
import difflib
import gc
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import parso.python.tree  # noqa: F401  (cosmic-ray imports it in a circle)
import pytest
from _pytest.runner import runtestprotocol
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
GROUPS = {
    "losses": ("objectives/losses/*.py", "objectives/losses/* models/similarity/pcme"),
    "objectives": (
        "objectives/*.py",
        "objectives/* objectives/losses/hal objectives/losses/triplet ops/density models/similarity/pcme "
        "recipes/models/pvse recipes/ranking_options recipes/methods/asymmetry_values recipes/methods/mithun "
        "recipes/methods/batch_relevance recipes/methods/neighbour_sampling training/images_with_all_texts",
    ),
    "metrics": (
        "evaluation/metrics/*.py",
        "evaluation/metrics/* evaluation/relevance/eccv_caption evaluation/relevance/word_relevance "
        "evaluation/checks/space evaluation/chance_figures evaluation/extra_metrics extend/own_metric graphs/graphs",
    ),
    "calibration": ("retrieval/confidence.py", "retrieval/answer retrieval/calibration retrieval/confidence"),
    "dates": ("data/dates.py", "data/dates"),
    "rows": (
        "data/rows.py data/readers/table.py",
        "data/rows data/bad_data data/every_input data/dataset_in_memory data/join data/readers/table "
        "data/readers/foreign_tables data/readers/every_reader",
    ),
    "words": ("retrieval/words.py", "retrieval/words retrieval/condition retrieval/query retrieval/answer"),
    "filters": (
        "retrieval/condition.py retrieval/query.py retrieval/stores/facets.py",
        "retrieval/answer retrieval/condition retrieval/query retrieval/confidence retrieval/stores/facets api/search "
        "api/search_features",
    ),
}
"""Name -> patterns of its modules in the package, and of the tests that may reach them, FOLDER/test_NAME.py in `tests`.

The examples in the docstrings of the modules are tests of theirs, too.
"""

REPLACED = {
    "Binary": "Add-Sub Sub-Add Mul-Div Div-Mul FloorDiv-Div Mod-FloorDiv Pow-Mul BitAnd-BitOr BitOr-BitAnd",
    "Comparison": "Lt-LtE Lt-GtE LtE-Lt LtE-Gt Gt-GtE Gt-LtE GtE-Gt GtE-Lt Eq-NotEq NotEq-Eq Is-IsNot IsNot-Is",
    "Unary": "Delete-USub Delete-Not Delete-Invert",
}
OPERATORS = [
    *(f"Replace{kind}Operator_{pair.replace('-', '_')}" for kind, pairs in REPLACED.items() for pair in pairs.split()),
    "AddNot", "NumberReplacer", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop", "ExceptionReplacer",
    "RemoveDecorator",
]  # fmt: skip
"""Each operator of the code is replaced by its opposite, and at a boundary by its neighbour."""
SLOWEST, MOST_SECONDS = 4.0, 120
"""Seconds of the slowest test that is run for a fault; seconds after which a fault counts as found, as it hangs."""
OPTIONS = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not gpu and not data"]

Lines = dict[str, dict[str, list[int]]]
"""File -> test -> lines of the file that it executes."""


def digest(*texts: str) -> str:
    """16 hexadecimal digits of texts."""
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=8).hexdigest()


def changed_lines(text: str, source: str) -> str:
    """The lines of a text that another one changes, and what they become."""
    lines = difflib.ndiff(text.splitlines(), source.splitlines())
    return " -> ".join(f"`{line[2:].strip()}`" for line in lines if line[0] in "+-")


def places(text: str) -> Iterator[dict[str, Any]]:
    """Where a fault can be in a module: operator, occurrence, lines. None in annotations and decorators' arguments."""
    excluded = []
    for node in ast.walk(ast.parse(text)):
        excluded += [getattr(node, name, None) for name in ("annotation", "returns")]
        for decorator in getattr(node, "decorator_list", ()):
            excluded += [*getattr(decorator, "args", ()), *getattr(decorator, "keywords", ())]
    spans = [((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)) for node in excluded if node]
    nodes, lines = list(ast_nodes(get_ast(text))), text.splitlines()
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        positions = [position for node in nodes for position in operator.mutation_positions(node)]
        for occurrence, (start, end) in enumerate(positions):
            # The * before arguments that have to be named is no product.
            marker = lines[start[0] - 1][start[1] :].startswith("*,")
            if not (marker or any(first <= start and end <= last for first, last in spans)):
                yield {"operator": name, "occurrence": occurrence, "lines": [start[0], end[0]]}


def faults(text: str, seed: str) -> Iterator[dict[str, Any]]:
    """The faults of a module with the source of each, in an order drawn by a seed."""
    every, plain = list(places(text)), ast.dump(ast.parse(text))
    random.Random(seed).shuffle(every)
    for fault in every:
        # cosmic-ray takes the ** of an unpacking for a power, and no other operator can stand there; and it cannot
        # replace an exception whose name has a dot, where several stand in brackets.
        with suppress(SyntaxError, AttributeError):
            source = mutate_code(text, get_operator(f"core/{fault['operator']}")(), fault["occurrence"])
            if source is not None and ast.dump(ast.parse(source)) != plain:
                yield {**fault, "source": source}


class Faulty(MetaPathFinder, SourceFileLoader):
    """Imports one module from another source."""

    def __init__(self, file: Path, source: str) -> None:
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        SourceFileLoader.__init__(self, name, str(file))
        self.source = source

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The module, where it is this one."""
        return spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None

    def get_code(self, fullname: str) -> Any:
        """The code of the other source."""
        return compile(self.source, self.path, "exec", dont_inherit=True)


def changed_functions(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """The functions that differ between two codes of a module; None where something outside of functions does."""
    own = [[it for it in code.co_consts if not isinstance(it, CodeType)] for code in (old, new)]
    nested = [[it for it in code.co_consts if isinstance(it, CodeType)] for code in (old, new)]
    if old.co_code != new.co_code or repr(own[0]) != repr(own[1]) or old.co_names != new.co_names:
        return None
    pairs: list[tuple[CodeType, CodeType]] = []
    for before, after in zip(*nested, strict=True):
        # The body of a class is run when it is made; it is no optimised code, as that of a function is.
        inner = [(before, after)] if before.co_flags & 1 and before != after else []
        if not before.co_flags & 1:
            of_class = changed_functions(before, after)
            if of_class is None:
                return None
            inner = of_class
        pairs += inner
    return pairs


def forked(work: Callable[[Connection], int], seconds: int) -> tuple[int, Any]:
    """The exit status of a child that does some work, and what it sent."""
    receiver, sender = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        _work_and_end(work, sender, seconds)
    sender.close()
    message = None
    with suppress(EOFError):
        message = receiver.recv()
    receiver.close()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), message


def imported(modules: Sequence[str]) -> None:
    """Import what tests import late, so that no child has to."""
    for name in modules:
        with suppress(ImportError):
            import_module(name)


def _work_and_end(work: Callable[[Connection], int], sender: Connection, seconds: int) -> NoReturn:
    signal.alarm(seconds)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    status = 70
    try:
        status = work(sender)
    finally:
        os._exit(status)


class Planting:
    """A plugin of pytest that runs the tests once to see what they execute, and then for each fault of some files.

    options  of the command line       tests  pattern of their files, for the cache of what they execute
    """

    def __init__(self, files: Sequence[Path], key: str, options: argparse.Namespace) -> None:
        self.files = files
        self.key = key
        self.options = options
        self.lines: dict[str, dict[str, set[int]]] = {str(file): defaultdict(set) for file in files}
        self.test = ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Plant the faults, instead of running the tests."""
        self.items = {item.nodeid: item for item in session.items}
        self.executed, self.seconds = self.reach()
        if unreached := [file.name for file in self.files if not self.executed[str(file)]]:
            raise pytest.UsageError(f"a test is needed that executes {', '.join(unreached)}; none of these files' does")
        wanted = {str(file) for file in self.files}
        self.functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        for it in gc.get_objects():
            if type(it) is FunctionType and it.__code__.co_filename in wanted:
                code = it.__code__
                self.functions[code.co_filename, code.co_qualname, code.co_firstlineno].append(it)
        for file in self.files:
            self.plant(file)
        return True

    def reach(self) -> tuple[Lines, dict[str, float]]:
        """The lines of the files that each test executes, and its seconds; without tests that fail anyway."""
        cache = self.options.out.with_suffix(".reach.json")
        rows = json.loads(cache.read_text(encoding="utf-8")) if cache.is_file() else {}
        if self.key in rows:
            imported(rows[self.key][2])
            return tuple(rows[self.key][:2])

        def work(sender: Connection) -> int:
            seconds, failed = {}, []
            items = list(self.items.values())
            for item, following in zip(items, [*items[1:], None], strict=True):
                self.test, started = item.nodeid, time.perf_counter()
                threading.settrace(self.trace)
                sys.settrace(self.trace)
                reports = runtestprotocol(item, log=False, nextitem=following)
                sys.settrace(None)
                seconds[item.nodeid] = round(time.perf_counter() - started, 3)
                failed += [item.nodeid] if any(report.failed for report in reports) else []
            lines = {
                file: {test: sorted(of_test) for test, of_test in tests.items() if test not in failed}
                for file, tests in self.lines.items()
            }
            sender.send((lines, seconds, failed, list(sys.modules)))
            return 0

        lines, seconds, failed, modules = forked(work, 3600)[1]
        imported(modules)
        if failed:
            print(f"left out, as they fail without a fault: {', '.join(failed)}", flush=True)
        cache.write_text(json.dumps({**rows, self.key: [lines, seconds, modules]}), encoding="utf-8")
        return lines, seconds

    def trace(self, frame: Any, event: str, argument: Any) -> Any:
        """Called by Python for each function that is entered."""
        return self.line if frame.f_code.co_filename in self.lines else None

    def line(self, frame: Any, event: str, argument: Any) -> Any:
        """Called by Python for each line of one of the files."""
        self.lines[frame.f_code.co_filename][self.test].add(frame.f_lineno)
        return self.line

    def plant(self, file: Path) -> None:
        """Plant the faults of one file, and print how many were found, and those that were not."""
        text, name, options = file.read_text(encoding="utf-8"), str(file.relative_to(SOURCE)), self.options
        sample = list(islice(faults(text, f"{options.seed} {name}"), options.most))
        tests = digest(self.key.partition(" ")[0], text)
        count, survivors = 0, []
        for fault in sample:
            key = name, fault["operator"], fault["occurrence"], digest(text)
            row = options.done.get(key)
            # Tests that are added may find what was not found.
            if row is None or (not row["killed"] and row["tests"] != tests and options.again):
                if time.monotonic() > options.until:
                    pytest.exit("out of time; run it again to go on", returncode=3)
                row = {**dict(zip(("file", "operator", "occurrence", "of"), key, strict=True)), "lines": fault["lines"]}
                row |= {"killed": self.found(file, text, fault), "tests": tests}
                options.done[key] = row
                with options.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
            count += row["killed"]
            survivors += [] if row["killed"] else [fault]
        share = 100 * count / max(1, len(sample))
        print(
            f"{name}: {count} of {len(sample)} found ({share:.0f} %), of {len(list(places(text)))} in all", flush=True
        )
        for fault in survivors:
            where = f"{fault['lines'][0]} {fault['operator']} {fault['occurrence']}"
            print(f"  {where}: {changed_lines(text, fault['source'])}", flush=True)

    def found(self, file: Path, text: str, fault: dict[str, Any]) -> bool:
        """Whether a test fails with a fault: one of those that execute its lines, or any for lines run at import."""
        first, last = fault["lines"]
        span, executed = set(range(first, last + 1)), self.executed[str(file)]
        codes = [compile(source, str(file), "exec", dont_inherit=True) for source in (text, fault["source"])]
        changed = changed_functions(*codes)
        # What is made at import can be read by a test that executes none of the module's lines.
        reaching = [test for test, lines in executed.items() if span.intersection(lines)]
        if changed is None:
            reaching = sorted({test for of_file in self.executed.values() for test in of_file})
        tests = [test for test in reaching if self.seconds[test] < SLOWEST and test in self.items]
        tests.sort(key=self.seconds.__getitem__)

        def in_place(_: Connection) -> int:
            for before, after in changed or ():
                for function in self.functions[str(file), before.co_qualname, before.co_firstlineno]:
                    function.__code__ = after
            items = [self.items[test] for test in tests]
            for item, following in zip(items, [*items[1:], None], strict=True):
                if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                    return 1
            return 0

        def anew(_: Connection) -> int:
            for name, module in list(sys.modules.items()):
                path = str(getattr(module, "__file__", None) or "")
                if path.startswith(str(ROOT)) and "site-packages" not in path and name != "__main__":
                    del sys.modules[name]
            sys.meta_path.insert(0, Faulty(file, fault["source"]))
            return int(pytest.main([*OPTIONS, "-x", *tests]))

        return bool(tests) and forked(anew if changed is None else in_place, MOST_SECONDS)[0] != 0


def main() -> None:
    """Run the groups that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=list(GROUPS), help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--only", default="", help="part of a module's path")
    parser.add_argument("--most", type=int, help="faults per module, sampled; default: all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--minutes", type=float, default=1e9, help="end after this time; the next run goes on")
    parser.add_argument("--again", action="store_true", help="try again what other tests did not find")
    parser.add_argument("--out", type=Path, default=Path("build/mutation.jsonl"), help="results")
    options = parser.parse_args()
    options.until = time.monotonic() + 60 * options.minutes
    options.out = options.out.absolute()
    os.chdir(ROOT)
    # The package of this folder, whatever is installed or named in the environment.
    sys.path.insert(0, str(SOURCE))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = options.out.read_text(encoding="utf-8").splitlines() if options.out.is_file() else []
    options.done = {(row["file"], row["operator"], row["occurrence"], row["of"]): row for row in map(json.loads, lines)}
    for group in options.groups:
        modules, patterns = GROUPS[group]
        files = sorted(file for pattern in modules.split() for file in (SOURCE / "subtext").glob(pattern))
        wanted = [
            f"{folder}/test_{name}.py" for folder, _, name in (pattern.rpartition("/") for pattern in patterns.split())
        ]
        tests = sorted({file for pattern in wanted for file in (ROOT / "tests").glob(pattern)})
        key = digest(*(file.read_text(encoding="utf-8") for file in [*files, *tests]))
        files = [file for file in files if file.name != "__init__.py" and options.only in str(file)]
        if files:
            planting = Planting(files, f"{key} {options.only}", options)
            names = [".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in files]
            examples = [f"tests/house/test_docs.py::test_examples_run[{name}]" for name in names]
            status = pytest.main([*OPTIONS, *map(str, tests), *examples], plugins=[planting])
            if status:
                raise SystemExit(int(status))


if __name__ == "__main__":
    main()
