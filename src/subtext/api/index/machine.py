"""Texts of images that a machine wrote: `subtext.add_machine_texts`, and `subtext.ocr_index`, which reads them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from subtext.api.index.build import refresh_spaces
from subtext.api.index.maintain import IndexReport
from subtext.api.load import ModelSource
from subtext.api.options import DEFAULTS, AnyPath, Device, IndexArgument, IndexPretrained, IndexRun, Quiet
from subtext.errors import DataError, Setting
from subtext.report.progress import meter, say
from subtext.settings import Flag, Metavar, OptionGroup, command
from subtext.text_helpers import counted, listed

if TYPE_CHECKING:
    from subtext.models.model import Model
    from subtext.retrieval.stores.store import Store

_INDEX = OptionGroup("Index")
_BLOCK = 64
"""Images that are read before their texts are put in: what a kill loses at most."""


@command(defaults=DEFAULTS)
def add_machine_texts(
    index: IndexArgument,
    file: Annotated[str | Path, "Table with an image and a text in each row.", _INDEX, Metavar("FILE")],
    *,
    machine: Annotated[Literal["ocr", "captioner"], "What wrote the texts.", Flag("--as"), _INDEX],
    columns: Annotated[str | None, "Columns with other names: image=filename,text=caption.", _INDEX] = None,
    run: IndexRun = None,
    model: IndexPretrained = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> IndexReport:
    """Add texts that a machine wrote to the images of an index, as a field of their own.

    They are searched like the other texts, and shown behind [ocr] or [captioner]. No training and no calibration reads
    them. They stay when the index is updated or moved to another model, as long as their images do. Given again, the
    texts of an image take the place of its former ones by the same machine.

    Args:
        index: Folder of an index, or its address.
        file: CSV, TSV, JSON lines, Parquet or Excel; images by their id, their path or their file name.
        machine: "ocr" or "captioner".
        columns: Columns with other names.
        run: New folder of the run of the index, if it was moved.
        model: New folder of the pretrained model of the index, if it was moved.
        device: Device that embeds the texts.
        quiet: Show no progress.

    Returns:
        Number of texts, and of rows whose image the index does not have.

    Raises:
        DataError: If the file cannot be read, or the index has none of its images.
        RequirementError: If the model of the index embeds no words.
    """
    from subtext.data.read import read
    from subtext.retrieval.machine_texts import put_machine_texts
    from subtext.retrieval.stores.registry import open_store

    table = read(Path(file).expanduser(), need_images=False, columns=columns, on_error="skip", embedded=False)
    store = open_store(index)
    named: dict[str, list[str]] = defaultdict(list)
    for image, text in table.links.tolist():
        named[table.images.ids[image]].append(str(table.texts.values[text]))
    with store.reading() as view:
        ids = view.resolve("images", list(named))
        paths = defaultdict[str, list[str]](list)
        for row in view.rows("images", keys=view.keys("images").tolist()):
            for name in {row.path or "", Path(row.path or "").name}:
                paths[name].append(row.id)
    values = dict(zip(table.images.ids, map(str, table.images.values), strict=True))
    texts, unknown = dict[str, list[str]](), list[str]()
    for name, own in named.items():
        found = [ids[name]] if name in ids else paths.get(values[name]) or paths.get(Path(values[name]).name) or []
        if len(found) == 1:
            texts.setdefault(found[0], []).extend(own)
        else:
            unknown.append(name)
    if not texts:
        raise DataError(
            f"{file} needs images of {store.path}, by id, path or file name; it has {counted(len(named), 'image')} "
            f"with texts, and the index none of them (first: {next(iter(named), '-')!r}); name the columns "
            "(",
            Setting("columns", "image=...,text=..."),
            ")",
        )
    embedder = _embedder(store, run, model, device)
    added, done = 0, 0
    with store.writing("texts") as writer, meter("embedding", len(texts), quiet=quiet) as progress:
        images = list(texts)
        for start in range(0, len(images), _BLOCK):
            block = images[start : start + _BLOCK]
            added += put_machine_texts(writer, embedder, {image: texts[image] for image in block}, machine)
            done += len(block)
            progress(done)
        refresh_spaces(writer, quiet=quiet)
        writer.compact_large()
    lines = [f"{counted(added, 'text')} by {machine} put in, of {counted(len(texts), 'image')}"]
    if unknown:
        first = listed([repr(name) for name in unknown])
        lines.append(f"{counted(len(unknown), 'image')} of {Path(file).name} not in the index, or not one: {first}")
    if table.problems:
        lines.append(f"{counted(len(table.problems), 'row')} not read, first: {table.problems[0]}")
    return IndexReport(str(store.path), tuple(lines), {"texts": added, "images": len(texts), "unknown": len(unknown)})


@command(defaults=DEFAULTS)
def ocr_index(
    index: IndexArgument,
    *,
    again: Annotated[bool, "Read all images again, also those that were read before.", _INDEX] = False,
    run: IndexRun = None,
    model: IndexPretrained = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> IndexReport:
    """Read the text inside the images of an index, and add it as texts of a machine; see `add_machine_texts`.

    RapidOCR reads it (extra `ocr`), on the processor and without a network. It takes about a second an image. Run the
    command again after an interruption, or after new images were added: images that were read are not read again.

    Args:
        index: Folder of an index, or its address.
        again: Read all images again.
        run: New folder of the run of the index, if it was moved.
        model: New folder of the pretrained model of the index, if it was moved.
        device: Device that embeds the texts.
        quiet: Show no progress.

    Returns:
        Number of images that were read, and of texts.

    Raises:
        RequirementError: If RapidOCR is not installed, or the model of the index embeds no words.
    """
    from subtext.data.addresses import is_address
    from subtext.data.image_files import open_image
    from subtext.data.object_store import fetched, release
    from subtext.data.ocr import reader, text_in
    from subtext.retrieval.machine_texts import put_machine_texts
    from subtext.retrieval.stores.documents import READ_BY_OCR
    from subtext.retrieval.stores.item import Change
    from subtext.retrieval.stores.registry import open_store

    reader()  # What is missing is said before anything else.
    store = open_store(index)
    embedder = _embedder(store, run, model, device)
    with store.reading() as view:
        read = view.records(READ_BY_OCR)
        before = int(read[0][0]) if read and not again else -1
        rows = [row for row in view.rows("images", keys=view.keys("images").tolist()) if row.key > before]
    root, added, with_text = Path(store.manifest.root), 0, 0
    unread, without = list[str](), sum(row.path is None for row in rows)
    rows = sorted((row for row in rows if row.path is not None), key=lambda row: row.key)
    with store.writing("ocr") as writer, meter("reading", len(rows), quiet=quiet) as progress:
        for start in range(0, len(rows), _BLOCK):
            texts = dict[str, list[str]]()
            block = fetched(rows[start : start + _BLOCK], lambda row: row.path if is_address(row.path) else None)
            for number, row in enumerate(block, start=start + 1):
                try:
                    text = text_in(open_image(str(row.path), root))
                    texts[row.id] = [text] if text else []
                    with_text += bool(text)
                except DataError as problem:
                    unread.append(str(problem))
                release([row.path])
                progress(number)
            last = rows[min(start + _BLOCK, len(rows)) - 1].key
            added += put_machine_texts(writer, embedder, texts, "ocr")
            # Afterwards: a kill in between has these images read again.
            writer.apply(Change(documents={READ_BY_OCR: str(last)}))
        refresh_spaces(writer, quiet=quiet)
        writer.compact_large()
    lines = [f"{counted(len(rows) - len(unread), 'image')} read; text in {with_text:,}, {added:,} new or changed"]
    if without:
        lines.append(f"{counted(without, 'image')} without a file not read")
    if unread:
        lines.append(f"{counted(len(unread), 'image')} not read, first: {unread[0]}")
        say("note: images that could not be read are tried again with --again", quiet=quiet)
    return IndexReport(str(store.path), tuple(lines), {"images": len(rows), "texts": added, "unread": len(unread)})


def _embedder(store: Store, run: AnyPath | None, model: AnyPath | None, device: str) -> Model:
    """The model of an index, which has to embed words."""
    from subtext.retrieval.build import require_model
    from subtext.retrieval.machine_texts import require_words

    source = ModelSource.of_index(store.manifest, run, model, index=str(store.path))
    opened = source.open(device=device)[0].to_indexable("an index")
    require_model(store, store.manifest, opened)
    require_words(opened)
    return opened
