"""`subtext serve`."""

from __future__ import annotations

import subtext
from subtext.cli.command import verb_command

serve = verb_command(
    subtext.serve,
    examples=[
        "subtext serve library",
        "subtext serve library other --port 9000 --token-file token",
        "subtext serve 'postgresql://editor@db/archive?index=library' --storage-dir storage --token-file token",
    ],
    usage="INDEX... [OPTIONS]",
    renamed={
        "--behind-proxy": "--trust-proxy",
        "--keep": "--storage-dir",
        "--name": "--allowed-host",
        "--pictures": "--image-folder",
    },
)
