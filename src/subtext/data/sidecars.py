"""Which .xmp file belongs to which image of a folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from subtext.data.dataset import RowIssue
from subtext.data.embedded import SIDECAR, sidecar_suffix
from subtext.data.folders import IMAGES, SAME_SUFFIX, Folders
from subtext.data.image_files import image_exists

BESIDE = ("", ".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")
"""Suffixes of files beside an image that its sidecar may belong to as well."""


class NearSidecars:
    """The .xmp files of images anywhere below a folder; what was found of a few sub-folders is held.

    Args:
        folder: The folder.
        few: Whether files are looked at one by one, and no folder is listed.
    """

    def __init__(self, folder: Path, *, few: bool = False) -> None:
        self.folder, self.few = folder, few
        self._files = Folders(lambda entry: not entry.name.startswith(".") and not entry.is_dir())
        self._last: tuple[str, Sidecars | None] | None = None

    def of(self, image: str) -> tuple[str | None, list[RowIssue]]:
        """See `Sidecars.of`.

        Args:
            image: Path of the image.

        Returns:
            The path; None for none; and notes on others that have its name.
        """
        inner = image.rpartition("/")[0]
        if self._last is None or self._last[0] != inner:
            self._last = inner, self._in(inner)
        near = self._last[1]
        return (Sidecars(self.folder, beside(image, self.folder)) if near is None else near).of(image)

    def _in(self, inner: str) -> Sidecars | None:
        """Those of a sub-folder; None for one whose files are looked at one by one."""
        files = None if self.few else self._files.of(os.path.join(self.folder, inner))  # noqa: PTH118 (100,000 paths)
        if files is None:
            return None
        xmp = [name for name, is_file in files.items() if is_file and name.lower().endswith(SIDECAR)]
        stems = {name[: -len(SIDECAR)] for name in xmp}
        near = [name for name in (files if stems else ()) if os.path.splitext(name)[0] in stems]  # noqa: PTH122
        names = sorted({*xmp, *(name for name in near if files[name])})
        return Sidecars(self.folder, [f"{inner}/{name}" if inner else name for name in names])


def beside(image: str, folder: Path) -> list[str]:
    """Find an image, its sidecars, and the images that share them, by the usual names.

    Args:
        image: Path of the image.
        folder: Folder of relative paths.

    Returns:
        Those that there are.
    """
    stem = os.path.splitext(image)[0]  # noqa: PTH122 (100,000 paths)
    endings = (SIDECAR, SIDECAR.upper())
    own = (*(name + end for name in (image, stem) for end in endings), *(stem + end for end in BESIDE))
    return [image, *(name for name in dict.fromkeys(own) if name != image and image_exists(name, folder))]


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
