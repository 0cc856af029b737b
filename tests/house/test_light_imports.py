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


def test_every_option_is_read_without_anything_heavy() -> None:
    found = probe()
    assert found["heavy"] == []
    assert found["recipes"] >= 6 and found["options"] > 50


def test_it_takes_less_than_three_tenths_of_a_second() -> None:
    # Of the processor's time, and the shortest of three: other work on the machine is not what is measured.
    assert min(float(probe()["seconds"]) for _ in range(3)) < 0.3


def test_no_option_has_the_name_of_another() -> None:
    plan = set(Plan.__dataclass_fields__)
    for recipe in catalogue.models().values():
        names = [option.name for option in recipe.options]
        assert len(set(names)) == len(names), recipe.name
        assert not plan & set(names), f"{recipe.name} repeats a training option"


def test_every_recipe_and_option_says_what_it_is() -> None:
    everything = list(chain(catalogue.models().values(), catalogue.methods().values()))
    assert all(recipe.summary.endswith(".") and len(recipe.summary) > 20 for recipe in everything)
    assert all(len(option.help) > 3 for recipe in everything for option in recipe.options)
    assert catalogue.RECOMMENDED in catalogue.models()
