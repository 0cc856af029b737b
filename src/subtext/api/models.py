"""`subtext.list_models` lists the encoders that a training can name, and whether their weights are on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from subtext.errors import RequirementError
from subtext.report.text_table import TableReport, table
from subtext.settings import command

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, repr=False)
class ModelList(TableReport):
    """Encoders as plain data.

    Attributes:
        entries: One mapping per encoder and side: name (what `image` or `text` takes), side, model, weights (where they
            come from), state ("ready", "not here" or "damaged"; "untrained" for random weights alone), and of the
            starter towers width, licence, trained_on, and problem where one is not ready.
    """

    entries: tuple[dict[str, Any], ...]

    def to_frame(self) -> pandas.DataFrame:
        """One row per encoder and side. Needs pandas.

        Returns:
            One row per entry, with the columns of `entries`.
        """
        from subtext.data.dataset import frame

        return frame(list(self.entries))

    def _lines(self) -> list[str]:
        head = ["name", "side", "model", "weights", "state"]
        problems = [entry["problem"] for entry in self.entries if "problem" in entry]
        named = "image and text also take the folder of a model, or its name on the Hugging Face hub"
        both = "--model starter is both starter towers as one dual encoder, which searches photographs untrained"
        return [table(head, [[entry[name] for name in head] for entry in self.entries]), *problems, both, named]


@command
def list_models() -> ModelList:
    """List the encoders that --image and --text of `train` name, and whether their weights are on this machine.

    The files of the starter towers are read and compared with their published hashes. Nothing is fetched.

    Returns:
        One entry per encoder and side.
    """
    from huggingface_hub import try_to_load_from_cache

    from subtext.models.encoders.hub import BACKBONES

    untrained = [("tiny", "image"), ("bag", "text"), ("gru", "text")]
    entries = [_starter("image"), _starter("text")]
    entries += [
        {"name": name, "side": side, "model": name, "weights": "none", "state": "untrained"} for name, side in untrained
    ]
    for name, backbone in BACKBONES.items():
        if backbone.hub is not None:
            is_here = isinstance(try_to_load_from_cache(backbone.hub, "model.safetensors"), str)
            state = "ready" if is_here else "not here"
            model = backbone.hub.rpartition("/")[2]
            entries.append({"name": name, "side": "image", "model": model, "weights": backbone.hub, "state": state})
    return ModelList(tuple(entries))


def _starter(side: Literal["image", "text"]) -> dict[str, Any]:
    from subtext.data.starter import NAME, STARTER, starter_file

    file = STARTER[side]
    entry: dict[str, Any] = {
        "name": NAME,
        "side": side,
        "model": file.model,
        "weights": f"{file.package} {file.version}",
        "state": "ready",
        "width": file.width,
        "licence": file.licence,
        "trained_on": file.trained_on,
    }
    try:
        starter_file(side)
    except RequirementError as error:
        state = "not here" if "not installed" in str(error) else "damaged"
        return {**entry, "state": state, "problem": str(error)}
    return entry
