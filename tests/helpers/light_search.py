"""A search on the command line in a process of its own, which prints the heavy packages that it imported."""

from __future__ import annotations

HEAVY = ("torch", "transformers", "PIL", "pyarrow", "pandas", "numba", "tokenizers")
PROBE = f"""
import sys
from subtext.cli import main
try:
    main(sys.argv[1:])
except SystemExit as done:
    assert not done.code
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
