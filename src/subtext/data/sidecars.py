"""Which .xmp file belongs to which image of a folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from subtext.data.dataset import RowIssue
from subtext.data.embedded import SIDECAR, sidecar_suffix
from subtext.data.folders import IMAGES, SAME_SUFFIX


class Sidecars:
    """The .xmp files of a folder, and the images that they belong to.

    Args:
        folder: The folder.
        names: Paths of all its files.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self.folder = folder
        self._of: dict[str, list[str]] = {}
        self._used, self._suffixes, self._beside = set[str](), dict[str, str | None](), Counter[str]()
        for name in names:
            stem, suffix = os.path.splitext(name)  # noqa: PTH122 (100,000 paths)
            # Some programs write a.XMP.
            if suffix.lower() == SIDECAR:
                self._of.setdefault(stem, []).append(name)
            elif suffix.lower() in IMAGES:
                self._beside[stem] += 1

    def of(self, image: str) -> tuple[str | None, list[RowIssue]]:
        """Find the .xmp file of an image, which says whose it is where several files have one name.

        Args:
            image: Path of the image.

        Returns:
            The path; None for none; and notes on others that have its name.
        """
        # darktable and digiKam write a.jpg.xmp; Lightroom writes a.xmp beside a.jpg.
        stem, suffix = os.path.splitext(image)  # noqa: PTH122 (100,000 paths)
        own, notes, where = list[str](), list[RowIssue](), f"image {image}"
        for name in (*self._of.get(image, ()), *self._of.get(stem, ())):
            said = self._suffix(name)
            if said is None or said == suffix.lower() or any({said, suffix.lower()} <= same for same in SAME_SUFFIX):
                own.append(name)
            else:
                self._used.add(name)
                what = f"'{name}' is the sidecar of the file that ends in {said}; it is not read for this one"
                notes.append(RowIssue(where, what, fatal=False, name=f"'{name}'"))
        self._used.update(own)
        if len(own) > 1:
            shown = f"'{own[0]}' is read, and '{own[1]}' is not"
            notes.append(RowIssue(where, f"has {len(own)} sidecars; {shown}", fatal=False, name=shown))
        elif own and self._beside[stem] > 1 and own[0] in self._of.get(stem, ()) and self._suffix(own[0]) is None:
            what = f"'{own[0]}' is beside {self._beside[stem]} images of its name, and is read for each of them"
            notes.append(RowIssue(where, what, fatal=False, name=f"'{own[0]}'"))
        return (own[0] if own else None), notes

    def _suffix(self, sidecar: str) -> str | None:
        if sidecar not in self._suffixes:
            self._suffixes[sidecar] = sidecar_suffix(self.folder / sidecar)
        return self._suffixes[sidecar]

    def unused(self) -> list[str]:
        """Name the .xmp files that have the name of no image.

        Returns:
            Their paths.
        """
        return [name for names in self._of.values() for name in names if name not in self._used]
