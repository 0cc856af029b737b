"""What becomes of the cells of a table: in CSV, JSON, Excel and Parquet, whoever wrote it."""

from __future__ import annotations

import csv
import datetime
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subtext.data.dataset import RowIssue
from subtext.data.readers import images, readers, store, table
from subtext.data.rows import Row
from subtext.errors import DataError

MARK = b"\xef\xbb\xbf"


def rows(path: Path, content: bytes = b"", **columns: tuple[str, ...]) -> list[Any]:
    """The rows of a table that has this content: columns, or what is said of one."""
    if content:
        path.write_bytes(content)
    return [str(row) if isinstance(row, RowIssue) else row for _, row in table.typed_records(path, columns)]


def workbook(path: Path, *cells: list[Any], write_only: bool = False) -> Path:
    book = openpyxl.Workbook(write_only=write_only)
    sheet = book.create_sheet() if write_only else book.active
    for row in cells:
        sheet.append(row)
    book.save(path)
    return path


def test_table_of_a_folder_stays_its_table_when_others_come(tmp_path: Path) -> None:
    folder, file = tmp_path, tmp_path / "b.csv"
    file.write_text("image,text\na.png,x\n")
    (tmp_path / "c.csv").mkdir()
    (tmp_path / "notes.txt").touch()
    assert table.recognises(folder) and table.recognises(file)
    assert not any(table.recognises(tmp_path / name) for name in ("c.csv", "notes.txt", "gone.csv"))
    assert (table.part(folder), table.part(file)) == ("b.csv", "")
    (tmp_path / "a.csv").write_text("image,text\nb.png,y\n")
    assert not table.recognises(folder) and not table.part(folder)
    source = table.read(folder, None, part="b.csv")
    assert [row.texts for row in source.rows if isinstance(row, Row)] == [["x"]] and source.tables == (file,)


def test_images_of_no_row_are_told_where_the_folder_is_that_of_the_table_alone(tmp_path: Path) -> None:
    file, other = tmp_path / "a.csv", tmp_path / "photos"
    file.write_text("image,text\na.png,x\n")
    for path, given, root, whole in [
        (tmp_path, None, tmp_path, tmp_path), (tmp_path, other, other, other), (tmp_path, tmp_path, tmp_path, None),
        (file, None, tmp_path, None), (file, other, other, other), (file, tmp_path, tmp_path, None),
    ]:  # fmt: skip
        source = table.read(path, given)
        assert (source.root, source.whole) == (root, whole)


def test_tables_are_tried_after_other_formats_and_before_images(tmp_path: Path) -> None:
    others = [reader.PRIORITY for reader in readers() if reader not in (table, images, store)]
    assert store.PRIORITY < images.PRIORITY < table.PRIORITY < min(others)
    (tmp_path / "a.csv").touch()
    (tmp_path / "a.png").touch()
    assert [reader for reader in readers() if reader.recognises(tmp_path)] == [table]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.parquet", "a.xlsx"])
def test_file_that_cannot_be_opened_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=rf"(?i){name} cannot be read: .*is a directory"):
        list(table.records(tmp_path / name))


@pytest.mark.parametrize("piece", [1, 2, 7, 2**16])
def test_json_list_is_the_same_in_pieces_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(table, "_PIECE", piece)
    wanted = [{"a": "ä€😀\n" * 3, "b": [1, 2.5e3, None, True, {"c": "}],"}]}, {}, {"n": 12345678901234567890}]
    for indent in (None, 1):
        for ascii_only in (True, False):
            text = json.dumps(wanted, indent=indent, ensure_ascii=ascii_only)
            assert rows(tmp_path / "a.json", b"\xef\xbb\xbf" + f" {text}\n ".encode()) == wanted
    for content, place in (
        (b'[{"a": 1}', "Expecting ',' delimiter: line 1 column 10 (char 9)"),
        (b'[\n{"a": 1},\n{"a": tru}]', "Expecting value: line 3 column 7 (char 18)"),
        (b'[{"a": "x]', "Unterminated string starting at: line 1 column 8 (char 7)"),
        (b'[{"a": 1}] 2', "Extra data: line 1 column 12 (char 11)"),
        (b'[{"a": "\xff"}]', "it is not valid UTF-8"),
    ):
        with pytest.raises(DataError, match=re.escape(f"one JSON object per line; {place}")):
            rows(tmp_path / "a.json", content)


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff"])
@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_utf16_is_named(tmp_path: Path, name: str, mark: bytes) -> None:
    with pytest.raises(DataError, match="it is UTF-16; save it again as UTF-8"):
        rows(tmp_path / name, mark + b"a\0b\0")


@pytest.mark.parametrize("mark", [b"", MARK])
@pytest.mark.parametrize("padding", [0, 100_000])
def test_json_is_read_in_either_form(tmp_path: Path, mark: bytes, padding: int) -> None:
    wanted = [{"image": "a", "text": "x" * padding}, {"image": "b", "text": "y"}]
    first, second = (json.dumps(row).encode() for row in wanted)
    for content in (b"[%s,%s]", b" \r\n\n [\n%s\n,%s]\n", b"%s\n%s", b"\n%s\n\n \r\n%s\r\n", b"%s\n" + MARK + b"%s\n"):
        for name in ("a.json", "a.jsonl")[: 2 - content.count(b"[")]:
            assert rows(tmp_path / name, mark + content % (first, second)) == wanted, content
    places = [where for where, _ in table.records(tmp_path / "a.json", "shard ")]
    assert places == ["shard line 1", "shard line 2"]
    (tmp_path / "a.json").write_bytes(mark + b'[{"a": 1}, 5]')
    assert [(where, isinstance(row, RowIssue)) for where, row in table.records(tmp_path / "a.json", "shard ")] == [
        ("shard entry 1", False), ("shard entry 2", True),
    ]  # fmt: skip


def test_json_that_is_no_table_is_named(tmp_path: Path) -> None:
    for content, told in {
        b"{\n}": "needs to be a JSON list, or one JSON object per line; it is one long object",
        b"[1,": "needs to be a JSON list, or one JSON object per line; Expecting value",
        b"[" * 100_000: "needs to be a JSON list, or one JSON object per line; maximum recursion",
        b'[{"a": 1, "a": 2}]': "the name 'a' is there twice in one object; rename one",
    }.items():
        with pytest.raises(DataError, match=told):
            rows(tmp_path / "a.json", content)
    lines = [b'{"a": 1, "b": 2, "b": 3, "a": 4}', b"[1]", b'"\xe9"', b"[" * 100_000, b"5" * 5000, b"{}"]
    found = rows(tmp_path / "a.jsonl", b"\n".join(lines))
    told = [
        "line 1: is no JSON: the name 'b' is there twice in one object; rename one",
        'line 2: needs a JSON object ({"image": ..., "captions": [...]}); it is a list',
        "line 3: is not valid UTF-8; save the file as UTF-8", "line 4: is no JSON: maximum recursion depth exceeded",
        "line 5: is no JSON: Exceeds the limit",
    ]  # fmt: skip
    assert found[-1] == {} and [row[: len(said)] for row, said in zip(found, told, strict=False)] == told
    (long,) = rows(tmp_path / "a.jsonl", b'{"%s": 1, "%s": 2}' % ((b"x" * 500,) * 2))
    assert long == f"line 1: is no JSON: the name '{'x' * 190}"[: len("line 1: is no JSON: ") + 200]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_separator_of_cells_is_that_of_the_first_line(tmp_path: Path, name: str, separator: str) -> None:
    first = "" if separator != "|" else "sep=|\r\n"
    for names in (["image", "text", "a,b;c"], ["image", "text", *(f"column {number}" for number in range(500))]):
        for start in (b"", MARK, b"\n\r\n"):
            path, cells = tmp_path / name, ["a.png", "x, y; z", *("" for _ in names[2:])]
            with path.open("w", newline="", encoding="utf-8") as file:
                file.write(first)
                csv.writer(file, delimiter=separator).writerows([names, cells, [""] * len(names), []])
            (row,) = rows(path, start * (not first or start == MARK) + path.read_bytes())
            assert row == dict(zip(names, ["a.png", "x, y; z", *(None for _ in names[2:])], strict=True))
    usual = {"a.csv": ",", "a.tsv": "\t"}[name]
    assert rows(tmp_path / name, f"image{usual}a;b\nx{usual}y\n".encode()) == [{"image": "x", "a;b": "y"}]


def test_rows_of_csv_have_the_cells_of_the_first_line(tmp_path: Path) -> None:
    lines = ["image,text", "a,b", "a", '"a', 'b",c', "a,b,c", "", " , ", "", f"a,{'x' * 200_000}"]
    assert rows(tmp_path / "a.csv", "\n".join(lines).encode()) == [
        {"image": "a", "text": "b"},
        "line 3: needs 2 cells, as the first line; it has 1; put texts with commas in quotes",
        {"image": "a\nb", "text": "c"},
        "line 6: needs 2 cells, as the first line; it has 3; put texts with commas in quotes",
        {"image": "a", "text": "x" * 200_000},
    ]
    for content, told in {b" \n\n": "the file is empty", b'"image,text\n': "it is no CSV: unexpected end"}.items():
        with pytest.raises(DataError, match=f"needs a first line that names its columns; {told}"):
            rows(tmp_path / "a.csv", content)
    assert rows(tmp_path / "a.csv", b'image,text\na,"b"c\nd,e\n')[1:] == [{"image": "d", "text": "e"}]


@pytest.mark.parametrize(
    ("lines", "is_windows"),
    [
        ([b"caf\xe9"], True), ([b"plain", b"caf\xe9", b"plain"], True), (["é".encode(), b"caf\xe9"], False),
        ([b"caf\xe9", "é".encode()], False), (["é".encode()], False), ([b"plain"], False),
    ],
)  # fmt: skip
def test_table_is_windows_1252_where_no_accent_is_utf8(tmp_path: Path, lines: list[bytes], is_windows: bool) -> None:
    content = b"\n".join([b"image,text", *(b"a," + line for line in lines)])
    said, *found = [*rows(tmp_path / "a.csv", content)] if is_windows else ["", *rows(tmp_path / "a.csv", content)]
    assert said == ("a.csv: is not UTF-8; it was read as Windows-1252 (cp1252)" if is_windows else "")
    wanted = [line.decode("cp1252" if is_windows else "utf-8", "replace") for line in lines]
    assert [row["text"] if isinstance(row, dict) else "caf\ufffd" for row in found] == wanted
    marked = rows(tmp_path / "b.csv", MARK + content)
    assert ["is not valid UTF-8" in row for row in marked] == [b"\xe9" in line for line in lines], "a mark says UTF-8"


def test_columns_of_one_name_are_counted(tmp_path: Path) -> None:
    changed, unnamed, row = rows(tmp_path / "a.csv", b"a,a,a (2),a,,x\ty,,column 5\n1a,2a,3a,4a,5a,6a,7a,8a")
    assert row == {
        "a": "1a", "a (3)": "2a", "a (2)": "3a", "a (4)": "4a", "column 5 (2)": "5a", "x y": "6a", "column 7": "7a",
        "column 5": "8a",
    }  # fmt: skip
    assert changed == ("a.csv: needs columns with different names; the later ones are read as 'a (3)', 'a (4)', 'x y'")
    assert unnamed == "a.csv: has columns without a name; they are read as 'column 5 (2)', 'column 7'"
    assert rows(tmp_path / "a.csv", b"a,b,\n1a,2a,") == [{"a": "1a", "b": "2a", "column 3": None}]


def test_cells_of_a_workbook_are_those_that_excel_shows(tmp_path: Path) -> None:
    day = datetime.datetime(1950, 2, 3)
    cells = [
        [" image ", None, "n", "n"], ["a", "", 7.0, 7.5], [None] * 4, ["b", day, day.replace(hour=4), datetime.time(4)],
        [True, "", "", 0],
    ]  # fmt: skip
    path = workbook(tmp_path / "a.xlsx", *cells)
    found = list(table.records(path, "shard "))
    assert [where for where, _ in found[2:]] == ["shard row 2", "shard row 4", "shard row 5"]
    assert [list(row.values()) for _, row in found[2:] if isinstance(row, dict)] == [
        ["a", None, 7, 7.5], ["b", "1950-02-03", "1950-02-03T04:00:00", "04:00:00"], [True, None, None, 0],
    ]  # fmt: skip
    assert type(found[2][1]["n"]) is int and list(found[2][1]) == ["image", "column 2", "n", "n (2)"]
    with pytest.raises(DataError, match="needs a first row that names its columns; it is empty"):
        rows(workbook(tmp_path / "b.xlsx", [None, " "], ["a", "b"]))
    with pytest.raises(DataError, match="needs a first row that names its columns; it is empty"):
        rows(workbook(tmp_path / "b.xlsx"))


def test_first_sheet_is_read_with_the_results_of_its_formulas(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["image", "size"], ["a", "=3+4"]):
        book.active.append(row)
    book.create_sheet().append(["other"])
    book.save(tmp_path / "plain.xlsx")
    with zipfile.ZipFile(tmp_path / "plain.xlsx") as plain, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as calculated:
        for name in plain.namelist():
            calculated.writestr(name, re.sub(rb"</f><v( ?/>|></v>)", b"</f><v>7</v>", plain.read(name)))
    assert rows(tmp_path / "a.xlsx") == [{"image": "a", "size": 7}]


def test_workbook_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match=r"a\.xlsx is Excel, which needs openpyxl; "):
        rows(tmp_path / "a.xlsx")


def test_cells_of_a_workbook_beside_the_columns_are_told(tmp_path: Path) -> None:
    """Workbooks that say no size have rows as long as what is in them."""
    cells = [["image", "text"], ["a", "b", None, ""], ["a"], ["a", "b", "c"], [], [None, "b"]]
    assert rows(workbook(tmp_path / "a.xlsx", *cells, write_only=True)) == [
        {"image": "a", "text": "b"}, {"image": "a", "text": None},
        "row 4: needs 2 cells, as the first row; it has 3; name all columns there", {"image": None, "text": "b"},
    ]  # fmt: skip


def test_rows_of_parquet_are_counted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": ["a", "b"], "": [1, None]}), tmp_path / "a.parquet")
    found = list(table.records(tmp_path / "a.parquet", "shard "))
    assert found[-2:] == [
        ("shard row 1", {"image": "a", "column 2": 1}), ("shard row 2", {"image": "b", "column 2": None}),
    ]  # fmt: skip
    data = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(DataError, match="needs to be a Parquet file; after 0 rows: "):
        rows(tmp_path / "a.parquet", data[:-20])


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (["1", "a", "2", "b", "3"], "3 numbers and 2 other cells, first 'a' (line 3)"),
        (["a", "1", "b"], "2 texts and 1 other cell, '1' (line 3)"),
        (["1,5", "2,5"], "2 unclear numbers such as '1,5' (line 2)"),
        (["1,5"], "1 unclear number such as '1,5' (line 2)"),
        (["1,5", "x" * 50, "x"], "2 texts and 1 other cell, '1,5' (line 2)"),
        (["x" * 50, "1", "2"], f"2 numbers and 1 other cell, '{'x' * 40}' (line 2)"), (["1950-02-03", "a"], ""),
        (["1950-02-03", "a", "1951-02-03"], "2 dates and 1 other cell, 'a' (line 3)"), (["1", "2"], ""),
        (["1", ""], ""),
        (["1950-02-03", "a", "1"], "1 date and 2 other cells, first 'a' (line 3)"),
    ],
)  # fmt: skip
def test_column_of_mixed_cells_names_the_most_frequent_kind_and_one_other(
    tmp_path: Path, cells: list[str], told: str
) -> None:
    lines = [f'image,text,about,"number"\na,said,"{cells[0]}",1', *(f'a,said,"{cell}",' for cell in cells[1:])]
    notes = [row for row in rows(tmp_path / "a.csv", "\n".join(lines).encode()) if isinstance(row, str)]
    end = "; < and > compare its numbers and its dates, and pass over the others"
    assert notes == ([f"a.csv: column 'about' has {told}{end}"] if told else [])


def test_numbers_of_csv_have_one_decimal_mark(tmp_path: Path) -> None:
    for separator, cells, wanted in [
        (",", ["1.5", "-2", "0"], [1.5, -2, 0]), (";", ["1,5", "2", "-0,25"], [1.5, 2, -0.25]),
        (";", ["1.5", "2"], [1.5, 2]),
        (",", ["07", "1"], ["07", "1"]), (",", ["1" * 15, "1"], [int("1" * 15), 1]),
        (",", ["1" * 16, "1"], ["1" * 16, "1"]),
        (";", ["1,5", "1.5"], ["1,5", "1.5"]), (";", ["1.5", "1,5"], ["1.5", "1,5"]),
    ]:  # fmt: skip
        lines = [separator.join(("image", "text", "size")), *(separator.join(("a", "5", cell)) for cell in cells)]
        found = [row for row in rows(tmp_path / "a.csv", "\n".join(lines).encode()) if isinstance(row, dict)]
        assert [(row["size"], row["text"]) for row in found] == [(number, "5") for number in wanted]
        assert [type(row["size"]) for row in found] == list(map(type, wanted))


def test_kinds_of_cells_that_have_types_are_counted_without_empty_ones() -> None:
    cells = [1, 2.5, float("nan"), None, "", True, [1], "x", "1951-02-03", "7"]
    records = [
        (f"row {number}", {"list": [1], "about": cell, "labels": cell}) for number, cell in enumerate(cells, start=1)
    ]
    records.insert(3, ("row 0", RowIssue("row 0", "is no JSON")))
    found = list(table.typed_rows(records, {}, "rows", header=True))
    assert [str(row) for _, row in found if isinstance(row, RowIssue)] == [
        "row 0: is no JSON",
        "rows: column 'about' has 2 numbers and 3 other cells, first 'x' (row 8); < and > compare its numbers and its "
        "dates, and pass over the others",
    ]
    assert len(found) == len(records) + 1


def test_roles_are_named_before_cells_are_read(tmp_path: Path) -> None:
    content = b"file,said,size,Tags\na.png,5,7,a;b\nb.png,6\n"
    assert rows(tmp_path / "a.csv", content, image=("file",), text=("said",)) == [
        {"size": 7, "Tags": ["a", "b"], "image": "a.png", "captions": ["5"]},
        "line 3: needs 4 cells, as the first line; it has 2; put texts with commas in quotes",
    ]
