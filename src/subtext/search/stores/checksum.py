"""What tells that a JSON file of an index was changed or damaged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def checksum(found: Mapping[str, Any]) -> str:
    """16 hexadecimal digits of an object that JSON can hold; in whatever order its names stand.

    >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1})
    True
    """
    text = json.dumps(found, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
