"""Readers of published data sets, each in the form of its authors' release. Importing this module registers them.

`python -m reproduce.NAME` reads these data sets by itself, and `python -m reproduce` is the command `subtext` with
these readers: `python -m reproduce data check FOLDER`. In Python: `import reproduce.readers`.
"""

from __future__ import annotations

import subtext
from reproduce.readers import conceptual, cub, flickr, goodnews, politics

for _reader in (politics, conceptual, goodnews, cub, flickr):
    subtext.register_reader(_reader)
