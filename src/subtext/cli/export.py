"""`subtext export`."""

from __future__ import annotations

from subtext.api.export import export as verb
from subtext.cli.command import verb_command

export = verb_command(
    verb,
    examples=["subtext export runs/first --hf first-hf", "subtext export runs/first --onnx first-onnx"],
    usage="RUN --hf DIR | --onnx DIR",
)
