"""Tables of other programs: other names, separators, encodings and types of columns; each is guessed, or said."""

from __future__ import annotations

import datetime
import json
import shutil
from decimal import Decimal
from pathlib import Path

import coloured_images
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import call

import subtext as st
from subtext.data.config import DataConfig
from subtext.data.read import read
from subtext.data.rows import RowError, parse_columns, plain_value, with_lists
from subtext.errors import ArgumentError, DataError

ROWS = [
    {"Filename": "red.png", "Headline": "Café", "Caption": "The ruling stands", "taken_on": "2021-03-05", "Year": 1950},
    {"Filename": "blue.png", "Headline": "Zwei", "Caption": None, "taken_on": "2021-04-05", "Year": 1999},
    {"Filename": "green.png", "Headline": None, "Caption": None, "taken_on": "2021-05-05", "Year": 2015},
]
COLUMNS = "image=Filename,text=Headline+Caption,date=taken_on,year=Year"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured_images.runs(tmp_path_factory.mktemp("tables"), "run") / "data"


def written(folder: Path, form: str) -> Path:
    path = folder / f"list.{form.partition(' ')[0]}"
    names = list(ROWS[0])
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        book.active.append(names)
        for row in ROWS:
            day = datetime.datetime.fromisoformat(str(row["taken_on"]))
            book.active.append([day if name == "taken_on" else row[name] for name in names])
        book.save(path)
    else:
        mark = {"csv": ",", "tsv": "\t", "csv ;": ";", "csv tab": "\t"}[form.removesuffix(" cp1252")]
        lines = [mark.join(names), *(mark.join(str(row[name] or "") for name in names) for row in ROWS)]
        path.write_bytes("\n".join(lines).encode("cp1252" if "cp1252" in form else "utf-8"))
    return path


@pytest.mark.parametrize("form", ["csv", "tsv", "csv ;", "csv tab", "csv ; cp1252", "xlsx", "jsonl", "parquet"])
def test_named_columns_in_every_format(images: Path, tmp_path: Path, form: str) -> None:
    data = read(written(tmp_path, form), images=images, columns=COLUMNS)
    assert data.images.ids == ["red.png", "blue.png", "green.png"]
    assert data.texts.values == ["Café", "The ruling stands", "Zwei"]
    assert data.links.tolist() == [[0, 0], [0, 1], [1, 2]]
    assert data.images.metadata == {"date": [row["taken_on"] for row in ROWS], "year": [1950, 1999, 2015]}
    told = [problem.what for problem in data.problems]
    assert ("is not UTF-8; it was read as Windows-1252 (cp1252)" in told) == ("cp1252" in form)


def test_usual_column_names_are_guessed_and_printed(images: Path, tmp_path: Path) -> None:
    shown = call("data", "check", written(tmp_path, "csv"), "--images", images).stdout
    assert "its columns were guessed: image=Filename,text=Headline+Caption; name others with --columns" in shown
    assert "3 images, 3 texts, 3 pairs" in shown
    assert "line 4: has no text; its image is an item of an index, and of no pair" in shown


def test_unknown_column_suggests_nearest_names(images: Path, tmp_path: Path) -> None:
    path = written(tmp_path, "csv")
    with pytest.raises(
        DataError, match=r"has no 'Filenam', which is named for 'image'; the nearest names are 'Filename'"
    ):
        read(path, images=images, columns="image=Filenam")
    (tmp_path / "other.csv").write_text("imgae,words\nred.png,x\n")
    with pytest.raises(
        DataError, match=r"its columns are 'imgae', 'words'; name yours: --columns image=imgae,text=COLUMN"
    ):
        read(tmp_path / "other.csv", images=images)


@pytest.mark.parametrize(
    ("columns", "told"),
    [("image", "it got 'image'"), ("image=", "it got 'image='"), ("image=a,filename=b", "'image' is there twice")],
)
def test_malformed_columns_option_raises(images: Path, tmp_path: Path, columns: str, told: str) -> None:
    with pytest.raises(ArgumentError, match=f"columns needs ROLE=COLUMN with commas, .*{told}"):
        read(written(tmp_path, "csv"), images=images, columns=columns)


def test_columns_for_fixed_formats_raise(tmp_path: Path) -> None:
    (tmp_path / "dataset_coco.json").write_text(json.dumps({"images": [{"filename": "a.png", "sentences": []}]}))
    with pytest.raises(ArgumentError, match="columns and text_fields are for tables and folders of images"):
        read(tmp_path / "dataset_coco.json", columns="image=a")


def test_rows_without_image_are_reported(images: Path, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("Foto,Titel,Bild\nx,Eins,red.png\ny,Zwei,\n")
    with pytest.raises(DataError, match="line 3: has no image"):
        read(tmp_path / "list.csv", images=images)
    data = read(tmp_path / "list.csv", images=images, on_error="skip")
    assert data.images.ids == ["red.png"] and data.images.metadata == {"Foto": ["x"]}


def test_columns_are_typed_and_mixed_ones_reported(images: Path, tmp_path: Path) -> None:
    rows = [
        "red.png,a,1950,1.5,05.03.2021,007",
        "blue.png,b,c. 1951,2,06.03.2021,008",
        "green.png,c,1952,,2021/03/07,009",
    ]
    (tmp_path / "list.csv").write_text("\n".join(["image,text,year,size,day,code", *rows]))
    data = read(tmp_path / "list.csv", images=images)
    assert data.images.metadata == {
        "year": ["1950", "c. 1951", "1952"], "size": [1.5, 2, None], "day": ["05.03.2021", "06.03.2021", "2021/03/07"],
        "code": ["007", "008", "009"],
    }  # fmt: skip
    assert [str(problem) for problem in data.problems if "in no row" not in problem.what] == [
        "list.csv: column 'year' has 2 numbers and 1 other cell, 'c. 1951' (line 3); < and > compare its numbers and "
        "its dates, and pass over the others"
    ]


def test_one_invalid_utf8_line_does_not_affect_others(images: Path, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes("image,text\nred.png,Łódź\nblue.png,".encode() + b"caf\xe9\n")
    with pytest.raises(DataError, match="line 3: is not valid UTF-8"):
        read(tmp_path / "list.csv", images=images)
    assert read(tmp_path / "list.csv", images=images, on_error="skip").texts.values == ["Łódź"]


def test_invalid_workbook_raises(tmp_path: Path) -> None:
    (tmp_path / "list.xlsx").write_bytes(b"no workbook")
    with pytest.raises(DataError, match=r"list.xlsx needs to be an Excel workbook \(.xlsx\)"):
        read(tmp_path / "list.xlsx")


def test_run_and_index_remember_columns(images: Path, tmp_path: Path) -> None:
    path, run = written(tmp_path, "csv ;"), images.parent / "run"
    words = ["index", "build", tmp_path / "index", "--run", run, "--data", path, "--images", images, "--quiet"]
    call(*words, "--columns", COLUMNS)
    assert "3 images" in (told := call("index", "update", tmp_path / "index", "--quiet").stdout) or "0 items" in told
    assert {hit.id for hit in st.search(tmp_path / "index", "x", where=("year >= 1999",)).hits} == {
        "blue.png",
        "green.png",
    }
    derived = tmp_path / "own.jsonl"
    call("data", "prepare", path, "--images", images, "--columns", COLUMNS, "--out", derived)
    assert json.loads(derived.read_text().splitlines()[0])["date"] == "2021-03-05"


def test_conditional_deletion_previews_and_deletes_the_same(images: Path, tmp_path: Path) -> None:
    path, index = written(tmp_path, "csv"), tmp_path / "index"
    call(
        "index",
        "build",
        index,
        "--run",
        images.parent / "run",
        "--data",
        path,
        "--images",
        images,
        "--columns",
        COLUMNS,
        "--quiet",
    )
    shown = call("index", "delete", index, "--where", "year < 1995", "--dry-run").stdout
    assert shown.splitlines() == [f"{index}: 1 image would be deleted", "red.png"]
    for answer in ("n\n", ""):
        asked = call_with(answer, "index", "delete", index, "--where", "year < 1995")
        assert "Delete 1 image with year < 1995?" in asked and st.index_info(index).counts["images"] == 3
    assert "1 image" in call("index", "delete", index, "--where", "year < 1995", "--yes").stdout
    assert st.index_info(index).counts["images"] == 2
    told = call("index", "delete", index, "--where", "date < soon", "--yes", code=1).stderr
    assert "'date' is a date (2021-04-05, 2021-05-05); name a day, a month or a year" in told
    shown = str(st.search(index, "x", top=1).hits[0].path)
    lowered = st.search(index, "x", not_like=(shown,)).hits
    assert lowered == st.search(index, "x", not_like=(Path(shown).name,)).hits
    assert "1 image" in call("index", "delete", index, shown).stdout, "the path of the hit table names the item"


def call_with(answer: str, *words: object) -> str:
    from command import invoke

    return invoke(*words, input=answer).output


def test_remembered_columns_apply_to_their_table_only() -> None:
    remembered = DataConfig(data=Path("list.csv"), columns=COLUMNS, text_fields="headline")
    assert DataConfig(data=Path("./list.csv")).over(remembered).columns == COLUMNS
    other = DataConfig(data=Path("own.jsonl")).over(remembered)
    assert (other.columns, other.text_fields) == (None, None)
    assert DataConfig().over(remembered).columns == COLUMNS


def test_id_column_names_images(images: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,Photo,Title\n17,red.png,A red day\n18,blue.png,A blue one\n")
    data = read(path, images=images)
    assert data.images.ids == ["17", "18"] and data.images.values == ["red.png", "blue.png"]
    assert data.texts.values == ["A red day", "A blue one"]
    assert "its columns were guessed: image=Photo,text=Title" in str(data.problems[0])


def test_columns_of_one_word_in_several_languages_are_all_guessed(images: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "Datei;Titel;Titre;Title;Beschreibung\nred.png;Der Tag;Le jour;;Rot.\nblue.png;Die Nacht;;The night;\n"
    path.write_text(rows, encoding="utf-8")
    data = read(path, images=images)
    assert data.texts.values == ["Der Tag", "Le jour", "Rot.", "Die Nacht", "The night"]
    assert "guessed: image=Datei,text=Titel+Titre+Title+Beschreibung; name others" in str(data.problems[0])


def test_exiftool_table_is_guessed(images: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("SourceFile,Headline,Caption-Abstract\n./red.png,A red day,It was red.\n")
    data = read(path, images=images)
    assert data.images.values == ["red.png"] and data.texts.values == ["A red day", "It was red."]


def test_unusable_table_in_image_folder_raises_with_hint(images: Path, tmp_path: Path) -> None:
    shutil.copy(images / "red.png", tmp_path)
    (tmp_path / "notes.json").write_text('[{"a": 1}]')
    with pytest.raises(DataError, match=r"a folder of images alone has no table: then move notes.json out of it"):
        read(tmp_path)


def test_windows_paths_are_resolved(images: Path, tmp_path: Path) -> None:
    for name in ("Prints/Köln Straße.png", "Prints/box/a.png", "Prints/box/A.png", "x.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(images / "red.png", tmp_path / name)
    named = [r"Prints\Köln Straße.png", r"PRINTS\BOX\a.PNG", r".\X.PNG", r"Prints\gone.png", r"none\x.png"]
    rows = [{"Datei": path, "Titel": f"image {number}"} for number, path in enumerate(named)]
    data = read(rows, images=tmp_path, on_error="skip", columns="image=Datei,text=Titel")
    # Of a.png and A.png none is a.PNG.
    assert data.images.values == ["Prints/Köln Straße.png", "x.png"]
    assert [problem.where for problem in data.problems] == ["row 2", "row 4", "row 5"]


def test_conflicting_metadata_of_an_image_is_reported(images: Path, tmp_path: Path) -> None:
    rows = ["red.png,a,1950,,", "red.png,b,1951,x,y", "red.png,c,1952,z,y", "blue.png,d,1950,,", "blue.png,e,1950,,"]
    (tmp_path / "list.csv").write_text("\n".join(["image,text,year,box,language", *rows]))
    data = read(tmp_path / "list.csv", images=images)
    assert data.images.metadata["year"] == [1950, 1950] and data.images.metadata["box"] == ["x", None]
    assert [str(problem) for problem in data.problems if not (problem.fatal or "in no row" in problem.what)] == [
        "line 3: an image has one value of 'year'; 'red.png' has '1950' and '1951'; the first is kept",
        "line 4: an image has one value of 'box'; 'red.png' has 'x' and 'z'; the first is kept",
    ]
    assert len(data.texts) == 5


def test_excel_number_and_date_formats_are_parsed(images: Path, tmp_path: Path) -> None:
    rows = ["red.png;a;12,50;1.3.2001;1.250;3", "blue.png;b;-3;31.12.2001;12,50;1,5", ";;;;;", "  ", ""]
    (tmp_path / "list.csv").write_text("\r\n".join(["sep=;", "image;text;price;day;mixed;size", *rows]))
    data = read(tmp_path / "list.csv", images=images, on_error="skip")
    assert data.images.metadata == {
        "price": [12.5, -3], "day": ["1.3.2001", "31.12.2001"], "mixed": ["1.250", "12,50"], "size": [3, 1.5],
    }  # fmt: skip
    assert [str(problem) for problem in data.problems if "in no row" not in problem.what] == [
        "list.csv: column 'mixed' has 1 number and 1 other cell, '12,50' (line 4); < and > compare its numbers and "
        "its dates, and pass over the others"
    ]


def test_ambiguous_numbers_and_dates_are_reported(images: Path, tmp_path: Path) -> None:
    rows = [
        'red.png,a,"1,250",03/05/2021,1.2.3,2',
        'blue.png,b,"12,50",c. 1950,4.5.6,2.5',
        'green.png,c,,3/5/2021,"a,b",',
    ]
    (tmp_path / "list.csv").write_text("\n".join(["image,text,price,day,code,size", *rows]))
    data = read(tmp_path / "list.csv", images=images)
    assert data.images.metadata["price"] == ["1,250", "12,50", None] and data.images.metadata["size"] == [2, 2.5, None]
    told = "< and > compare its numbers and its dates, and pass over the others"
    assert [str(problem) for problem in data.problems if "in no row" not in problem.what] == [
        f"list.csv: column 'price' has 2 unclear numbers such as '1,250' (line 2); {told}",
        "list.csv: column 'day' has '03/05/2021' (line 2), which is read as 2021-05-03: the day stands before the "
        "month",
    ]
    assert data.images.metadata["day"] == ["03/05/2021", "c. 1950", "3/5/2021"]


def test_file_outside_named_folder_raises_as_missing(images: Path, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("image,text\nred.png,a\nimg\\Bild 4.jpg,b\n")
    with pytest.raises(DataError, match=r"image 'img.Bild 4.jpg' is not in .*; correct its path, or add the file"):
        read(tmp_path / "list.csv", images=images)
    shutil.copy(images / "red.png", tmp_path)
    with pytest.raises(
        DataError, match=r"correct its path, add the file, or name the folder of the images \(--images\)"
    ):
        read(tmp_path / "list.csv")


def odd(folder: Path, form: str) -> Path:
    """A table whose columns have the same name, or none."""
    names, cells = ["image", "text", "place", "", "place"], ["red.png", "a", "Paris, Texas", "1", "Rome"]
    path = folder / f"odd.{form}"
    if form == "csv":
        path.write_text(";".join(names) + "\n" + ";".join(cells))
    elif form == "xlsx":
        book = openpyxl.Workbook()
        book.active.append(names)
        book.active.append(cells)
        book.save(path)
    else:
        pq.write_table(pa.Table.from_arrays([pa.array([cell]) for cell in cells], names=names), path)
    return path


@pytest.mark.parametrize("form", ["csv", "xlsx", "parquet"])
def test_columns_of_one_name_or_none_are_read(images: Path, tmp_path: Path, form: str) -> None:
    data = read(odd(tmp_path, form), images=images)
    number = 1 if form == "csv" else "1"
    assert data.images.metadata == {"place": ["Paris, Texas"], "column 4": [number], "place (2)": ["Rome"]}
    assert [problem.what for problem in data.problems if "in no row" not in problem.what] == [
        "needs columns with different names; the later ones are read as 'place (2)'",
        "has columns without a name; they are read as 'column 4'",
    ]


@pytest.mark.parametrize("form", ["csv", "jsonl", "xlsx", "parquet"])
def test_cell_is_a_list_only_in_named_columns(images: Path, tmp_path: Path, form: str) -> None:
    row = {
        "image": "red.png", "text": "a; b", "Keywords": "law; court, high | x", "tags": "a, b, a",
        "place": "Paris; Rome", "Wörter": "c;d",
    }  # fmt: skip
    path = tmp_path / f"list.{form}"
    if form == "jsonl":
        path.write_text(json.dumps(row))
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    elif form == "xlsx":
        book = openpyxl.Workbook()
        book.active.append(list(row))
        book.active.append(list(row.values()))
        book.save(path)
    else:
        path.write_text("\t".join(row) + "\n" + "\t".join(row.values()))
    data = read(path, images=images)
    assert data.texts.values == ["a; b"]
    assert {name: column[0] for name, column in data.images.metadata.items()} == {
        "Keywords": ["law", "court, high", "x"], "tags": ["a", "b"], "place": "Paris; Rome", "Wörter": "c;d",
    }  # fmt: skip
    data = read(path, images=images, columns="subject=Wörter")
    assert data.images.metadata["subject"] == [["c", "d"]]


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([1958, 1960, 1962, "circa 1890"], "3 numbers and 1 other cell, 'circa 1890' (row 5)"),
        ([1958, "n/a", "n/a", "n/a"], "3 texts and 1 other cell, '1958' (row 2)"),
        (["1890", "um 1900", "o. D.", "1923?"], "3 dates and 1 other cell, 'o. D.' (row 4)"),
        (["a", "b", "c", "d"], ""), ([1, 2, None, 3.5], ""), (["1890", "um 1900", "1-2-1951", ""], ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["jsonl", "xlsx"])
def test_column_of_mixed_cells_is_named(
    images: Path, tmp_path: Path, form: str, cells: list[object], told: str
) -> None:
    rows = [["image", "text", "taken"], *(["red.png", f"text {number}", cell] for number, cell in enumerate(cells))]
    path = tmp_path / f"list.{form}"
    if form == "xlsx":
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(path)
    else:
        path.write_text("\n".join(json.dumps(dict(zip(rows[0], row, strict=True))) for row in rows[1:]))
        told = told.replace("row 5", "line 4").replace("row 4", "line 3").replace("row 2", "line 1")
    notes = [str(problem) for problem in read(path, images=images).problems if "column 'taken' has" in str(problem)]
    notes = [note for note in notes if "stands before the month" not in note]
    assert [told in note for note in notes] == ([True] if told else [])


def test_cells_of_every_type_are_read_or_named(images: Path, tmp_path: Path) -> None:
    columns = {
        "image": ["red.png", "blue.png", "green.png"], "text": ["a\0b", "b", "c"],
        "price": pa.array([Decimal("12.50"), None, Decimal("3.00")]), "share": [0.5, float("nan"), float("-inf")],
        "size": [{"width": 7, "of": {"it": "x"}}] * 3, "long": pa.array([2**64 - 1, 1, 2], pa.uint64()),
        "day": [datetime.date(1890, 1, 2), datetime.date(1, 1, 1), None], "bytes": [b"x", None, None],
        "note": ["x\0y", "", "z"],
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "list.parquet")
    data = read(tmp_path / "list.parquet", images=images)
    assert data.texts.values == ["a b", "b", "c"] and data.images.metadata == {
        "price": [12.5, None, 3], "share": [0.5, None, "-inf"], "size": [{"width": 7, "of": {"it": "x"}}] * 3,
        "long": [2**64 - 1, 1, 2], "day": ["1890-01-02", "0001-01-01", None], "note": ["x y", "", "z"],
    }  # fmt: skip
    assert [str(problem) for problem in data.problems if "in no row" not in problem.what] == [
        "row 1: 'bytes' is bytes, which cannot be shown or searched; it is left out"
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('"deep": ' + '{"a":' * 20 + "1" + "}" * 20, "'deep' is nested in more than 16 lists and objects"),
        ('"n": ' + "9" * 301, "'n' has a number of more than 300 digits"),
        ('"n": ' + "9" * 5000, "is no JSON"),
        ('"n": 1, "n": 2', "the name 'n' is there twice in one object"),
        ('"id": "a\\u0000b"', r"'id' needs to be without control characters"),
    ],
)
def test_cells_that_no_index_holds_are_a_problem_of_their_row(
    images: Path, tmp_path: Path, line: str, told: str
) -> None:
    good = '{"image": "blue.png", "text": "b", "n": NaN, "m": Infinity}'
    (tmp_path / "list.jsonl").write_text('{"image": "red.png", "text": "a", ' + line + "}\n" + good)
    data = read(tmp_path / "list.jsonl", images=images, on_error="skip")
    assert data.images.ids == ["blue.png"] and data.images.metadata == {"m": ["inf"]}
    assert [told in problem.what for problem in data.problems if problem.where == "line 1"] == [True]


@pytest.mark.parametrize(
    ("texts", "numbers", "dates", "is_mixed"),
    [
        (50, 4, 0, False), (50, 5, 0, True), (49, 4, 0, True), (60, 5, 0, False), (50, 0, 0, False), (0, 5, 0, False),
        (3, 0, 3, False), (2, 0, 3, True), (0, 0, 3, False), (3, 1, 3, True), (60, 3, 2, False), (50, 3, 2, True),
    ],
)  # fmt: skip
def test_column_is_mixed_where_more_than_a_few_cells_are_of_another_kind(
    images: Path, tmp_path: Path, texts: int, numbers: int, dates: int, is_mixed: bool
) -> None:
    """A tenth of at least fifty texts is few; dates, as many as texts or fewer, are those of texts that have some."""
    cells = ["seen"] * texts + ["7"] * numbers + ["1951-02-03"] * dates
    lines = [f"red.png,n{number},said,{cell}\n" for number, cell in enumerate(cells)]
    (tmp_path / "list.csv").write_text("image,id,text,about\n" + "".join(lines))
    notes = [problem.what for problem in read(tmp_path / "list.csv", images=images).problems]
    assert any("column 'about' has" in note for note in notes) == is_mixed


@pytest.mark.parametrize(
    ("cell", "is_noted"), [("3/4/2020", True), ("12/1/2020", True), ("4/4/2020", False), ("13/4/2020", False)]
)
def test_day_and_month_that_may_be_exchanged_are_noted(images: Path, tmp_path: Path, cell: str, is_noted: bool) -> None:
    (tmp_path / "list.csv").write_text(f"image,text,taken\nred.png,said,{cell}\n")
    notes = [problem.what for problem in read(tmp_path / "list.csv", images=images).problems]
    assert any("the day stands before the month" in note for note in notes) == is_noted


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("image,text,", None), ("image,,text", "column 2"), ("image,text,,", "column 3', 'column 4"),
        (",image,text", "column 1"), ("image,text,more", None),
    ],
)  # fmt: skip
def test_columns_without_a_name_are_named_but_for_a_last_one(
    images: Path, tmp_path: Path, header: str, told: str | None
) -> None:
    """A comma at the end of each line is no column."""
    names = header.split(",")
    cells = ["red.png" if name == "image" else "said" for name in names]
    (tmp_path / "list.csv").write_text(f"{header}\n{','.join(cells)}\n")
    reading = read(tmp_path / "list.csv", images=images)
    notes = [problem.what for problem in reading.problems if "columns without a name" in problem.what]
    assert len(reading.images) == 1 and bool(notes) == (told is not None) and (told or "") in "".join(notes)


def test_list_in_a_cell_is_json_or_is_cut_at_its_separators() -> None:
    assert with_lists({"keywords": '["law, court", 7]'}) == {"keywords": ["law, court", "7"]}
    assert with_lists({"tags": " [law, court"}) == {"tags": ["[law", "court"]}
    assert with_lists({"Subject": "law;court;law"}) == {"Subject": ["law", "court"]}


def test_decimals_are_whole_numbers_of_up_to_300_digits() -> None:
    for digits in (1, 299, 300):
        value = plain_value(Decimal(10) ** (digits - 1), "price")
        assert value == 10 ** (digits - 1) and type(value) is int
    assert type(plain_value(Decimal(10) ** 300, "price")) is float
    with pytest.raises(RowError, match="more than 300 digits"):
        plain_value(10**300, "price")


@pytest.mark.parametrize(
    ("columns", "fields", "told"),
    [(None, "a,", "it names an empty field"), ("text=b", "a", "columns names the text, too; give one of them")],
)
def test_fields_of_texts_that_cannot_be_used_are_refused(columns: str | None, fields: str, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        parse_columns(columns, fields)
