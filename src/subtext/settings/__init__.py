"""Settings: each is described once, by the annotation of a parameter or of a dataclass field.

    lr: Annotated[float, "peak learning rate", Interval(above=0)] = 2e-4

`fields_of` reads the annotations of a function or of a dataclass; `to_click` makes options of the command line of them
and `to_pydantic` fields of an HTTP request. A parameter whose type is a dataclass is unfolded: each of its fields is a
setting, so that the flat flags of the command line and the objects of Python have one description.
"""

from subtext.settings.command import command, named_fields
from subtext.settings.field import Field, did_you_mean
from subtext.settings.marks import Commas, Flag, Interval, IsPath, Metavar, OptionGroup, Shown, Unfold
from subtext.settings.reader import fields_of, objects_of
from subtext.settings.values import require_path

__all__ = [
    "Commas",
    "Field",
    "Flag",
    "Interval",
    "IsPath",
    "Metavar",
    "OptionGroup",
    "Shown",
    "Unfold",
    "command",
    "did_you_mean",
    "fields_of",
    "named_fields",
    "objects_of",
    "require_path",
]
