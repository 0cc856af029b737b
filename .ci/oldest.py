"""Print the oldest version that `pyproject.toml` allows of each dependency, as constraints for pip.

    python .ci/oldest.py > oldest.txt

Tools of development are left out: only what a user may have has to work.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

TOOLS = ("dev", "docs", "mutation")

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = [rows for extra, rows in project["optional-dependencies"].items() if extra not in TOOLS]
for row in sum(extras, start=project["dependencies"]):
    if found := re.match(r"([\w.-]+)(?:\[[\w,]+\])?[>=]=([\w.]+)", row):
        print(f"{found[1]}=={found[2]}")
