"""The command line can list every recipe and its options without anything heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain

from subtext.recipes import catalogue
from subtext.training.plan import Plan

PROBE = """
import json, sys, time
start = time.process_time()
from subtext.recipes import catalogue
found = {**catalogue.models(), **catalogue.methods()}
options = sum(len(recipe.options) for recipe in found.values())
seconds = time.process_time() - start
heavy = [name for name in ("torch", "numpy", "transformers", "pyarrow", "PIL", "numba") if name in sys.modules]
print(json.dumps({"heavy": heavy, "seconds": seconds, "recipes": len(found), "options": options}))
"""


def probe() -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_options_are_listed_without_heavy_imports() -> None:
    found = probe()
    assert found["heavy"] == []
    assert found["recipes"] >= 6 and found["options"] > 50


def test_listing_options_is_fast() -> None:
    # Of the processor's time, and the shortest of three: other work on the machine is not what is measured.
    assert min(float(probe()["seconds"]) for _ in range(3)) < 0.3


def test_option_names_are_unique() -> None:
    plan = set(Plan.__dataclass_fields__)
    for recipe in catalogue.models().values():
        names = [option.name for option in recipe.options]
        assert len(set(names)) == len(names), recipe.name
        assert not plan & set(names), f"{recipe.name} repeats a training option"


def test_every_recipe_and_option_has_help() -> None:
    everything = list(chain(catalogue.models().values(), catalogue.methods().values()))
    assert all(recipe.summary.endswith(".") and len(recipe.summary) > 20 for recipe in everything)
    assert all(len(option.help) > 3 for recipe in everything for option in recipe.options)
    assert catalogue.RECOMMENDED in catalogue.models()
