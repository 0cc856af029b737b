"""The columns of a row, whatever table they come from: roles, texts, names, values, and the splits that are drawn."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import pytest

from subtext.data.dataset import RowIssue
from subtext.data.objects import NAME
from subtext.data.rows import (
    Record,
    Row,
    RowError,
    clean_name,
    columns_setting,
    components,
    described,
    draw_splits,
    folder_of,
    id_error,
    image_of,
    lines_of,
    name_of,
    parse_columns,
    plain_value,
    read_object,
    renamed,
    require_columns,
    rows_of,
    split_in_name,
    with_roles,
)
from subtext.errors import ArgumentError, DataError
from subtext.ops import draw


def numbered(records: Iterable[Mapping[str, Any]]) -> list[Record]:
    return [(f"line {number}", record) for number, record in enumerate(records, start=1)]


def read(*records: Mapping[str, Any], **options: Any) -> list[Row | RowIssue]:
    return list(rows_of(numbered(records), None, **options))


def row_of(record: Mapping[str, Any], **options: Any) -> Row:
    (row,) = read(record, **options)
    assert isinstance(row, Row)
    return row


@pytest.mark.identity
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 40])
def test_splits_are_those_that_a_loop_draws(count: int) -> None:
    for seed in range(300 if count < 5 else 60):
        names = [f"image {number} of {seed}" for number in range(count)]
        drawn = draw.uniform(draw.keys(names), seed=seed, epoch=0, purpose="split")[:, 0].tolist()
        splits = ["train" if number < 0.8 else "val" if number < 0.9 else "test" for number in drawn]
        for split, middle in (("val", 0.85), ("test", 0.95), ("train", 0.4)):
            if count >= 3 and split not in splits:
                others = [place for place in range(count) if splits.count(splits[place]) > 1]
                splits[min(others, key=lambda place: abs(drawn[place] - middle))] = split
        assert draw_splits(names, seed=seed).tolist() == splits


@pytest.mark.identity
def test_components_are_those_that_are_reached_by_edges() -> None:
    chance = random.Random(0)
    for nodes in [2, 3, 8] * 30:
        edges = [(chance.randrange(nodes), chance.randrange(nodes)) for _ in range(chance.randrange(2 * nodes))]
        reached = {node: {node} for edge in edges for node in edge}
        for _ in edges:
            for left, right in edges:
                reached[left] |= reached[right]
                reached[right] |= reached[left]
        found = components(edges)
        assert {node: {other for other in found if found[other] == found[node]} for node in found} == reached
        assert list(found) == list(reached) and all(found[root] == root for root in found.values())


def test_good_texts_of_a_row_keep_their_names_beside_bad_ones() -> None:
    names = ["1", "2", "3", "4"]
    first, second, row = read({"image": "a.png", "id": "a", "captions": ["x", "", 5, "y\0 "], "text_ids": names})
    assert isinstance(row, Row) and (row.texts, row.text_ids) == (["x", "y"], ["1", "4"])
    assert [str(first), str(second)] == [
        "line 1: text 2 of 4 is empty; add a caption, or remove it",
        "line 1: text 3 of 4 needs to be a string; it is the number 5",
    ]
    assert isinstance(first, RowIssue) and first.item == "a" and first.fatal
    (alone,) = read({"image": "a.png", "captions": [5]})
    assert str(alone) == "line 1: the text needs to be a string; it is the number 5" and alone.item == "a.png"
    # An image without any text is an item; one whose texts cannot be used is a problem.
    assert row_of({"image": "a.png", "captions": ["", None, " "]}).texts == []
    note, row = read({"image": "a.png", "blob": b"x"})
    assert isinstance(note, RowIssue) and not note.fatal and isinstance(row, Row) and not row.texts
    assert row_of({"id": "a", "text_ids": [1, 2.0, "c"]}).texts == [None] * 3
    assert row_of({"id": "a", "text_id": 7}).text_ids == ["7"] and row_of({"id": "a"}).text_ids is None
    for wrong, told in (
        ({"captions": ["x"], "text_ids": ["1", "2"]}, "needs one name per text; it got 2 names and 1 texts"),
        ({"captions": ["x"], "text_ids": [""]}, "'text_ids' has an empty name"),
    ):
        (problem,) = read({"id": "a", **wrong})
        assert str(problem) == f"line 1: {told}"


def test_columns_without_a_role_are_metadata() -> None:
    row = row_of({
        "image": "a.png", "text": "x", "id": "i", "group": 3, "split": "dev", "filename": "scan.tif", "year": 1950,
        "note": "a\0b", "empty": None, "not a number": float("nan"), "tab\tname": "y", "size": {"w": 1, "h": None},
    })  # fmt: skip
    assert (row.image, row.image_id, row.group, row.split) == ("a.png", "i", "3", "dev")
    assert row.metadata == {"filename": "scan.tif", "year": 1950, "note": "a b", "tab name": "y", "size": {"w": 1}}
    named = row_of({"filename": "a.png", "text": "x"}, folder="photos/1", split="test")
    assert (named.image, named.image_id, named.split, named.metadata) == ("photos/1/a.png", None, "test", {})
    assert not named.unpaired
    for bad in ({"na\ud83d": "x"}, {"note": "\ud83d"}):
        (problem,) = read({"image": "a.png", "text": "x", **bad})
        assert str(problem).startswith("line 1: has a column that is not valid UTF-8")
    for named, item in (({"image": "a.png", "id": "i"}, "i"), ({"image": "a.png"}, "a.png"), ({"image": b"x"}, "")):
        (problem,) = read({**named, "text": "x", "deep": 10**300})
        assert isinstance(problem, RowIssue) and problem.item == item and problem.name == "'deep'"


@pytest.mark.parametrize("place", [0, 18, 19, 20])
def test_column_of_texts_may_first_be_in_the_twentieth_row(place: int) -> None:
    records = [{"image": f"{number}.png", **({"text": "x"} if number == place else {})} for number in range(30)]
    table = [("line 0", RowIssue("line 0", "is no JSON")), *numbered(records)][place >= 19 :]
    if place == 20:
        with pytest.raises(DataError, match=r"list\.jsonl needs a text column"):
            list(rows_of(table, "list.jsonl"))
    else:
        found = list(rows_of(table, "list.jsonl"))
        assert [len(row.texts) for row in found if isinstance(row, Row)].index(1) == place and len(found) == len(table)


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize(("place", "is_guessed"), [(0, True), (19, True), (20, False), (40, False)])
def test_column_is_guessed_by_the_first_twenty_rows_and_a_named_one_is_looked_for_in_all(
    place: int, is_guessed: bool, header: bool
) -> None:
    records = [{"Bild": "a.png", **({"Titel": "x", "Ort": "y"} if number == place else {})} for number in range(50)]
    told = [row for _, row in with_roles(numbered(records), {}, "t.csv", header=header) if isinstance(row, RowIssue)]
    assert [("Titel" in note.what, note.fatal) for note in told] == [(is_guessed, False)]
    columns = {"text": ("Titel",), "place": ("Ort",)}
    if header and place >= 20:
        with pytest.raises(DataError, match=r"t\.csv has no '.*', which is named for '.*'; there are 'Bild'"):
            list(with_roles(numbered(records), columns, "t.csv", header=True))
    else:
        found = [row for _, row in with_roles(numbered(records), columns, "t.csv", header=header)]
        assert found[place + 1] == {"image": "a.png", "captions": ["x"], "place": "y"} and len(found) == 51
    assert next(iter(with_roles([("line 1", RowIssue("line 1", "is no JSON"))], columns, "t.csv")))[0] == "line 1"


def test_missing_column_names_the_three_nearest() -> None:
    for available, told in {
        ("titel1", "titel2", "titel3", "titel4"): "the nearest names are 'titel4', 'titel3', 'titel2'",
        ("abcd", "xy"): "there are 'abcd', 'xy'", (): "there are none", ("tixyzl",): "the nearest names are 'tixyzl'",
    }.items():  # fmt: skip
        with pytest.raises(DataError, match=f"t has no 'titel', which is named for 'text'; {told}$"):
            require_columns({"id": (), "text": (*available[:1], "titel")}, available, "t")


@pytest.mark.parametrize(
    ("columns", "fields", "parsed"),
    [
        (None, None, {}), ("file_name=a, caption = b + c ,place=d", None, {"image": ("a",), "text": ("b", "c"),
        "place": ("d",)}),
        ({"image": "a", "text": ["b", "c"], "x": ("d", "e")}, None, {"image": ("a",), "text": ("b", "c"),
        "x": ("d", "e")}),
        ("image=a", " b , c", {"image": ("a",), "text": ("b", "c")}), ("x=a+b", None, {"x": ("a", "b")}),
    ],
)  # fmt: skip
def test_columns_of_roles_are_parsed(columns: Any, fields: str | None, parsed: dict[str, tuple[str, ...]]) -> None:
    assert parse_columns(columns, fields) == parsed


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("=a", "it got '=a'"), ("image", "it got 'image'"), ("image=a,,", "it got ''"),
        ("image=a+", r"it got 'image=a\+'"),
        ({"image": []}, r"it got {'image': \[\]}"), ({" ": "a"}, r"it got {' ': 'a'}"),
        ({"image": 5}, r"columns needs names, as in .*; it got {'image': 5}"), ({5: "a"}, "columns needs names"),
        ({"image": ["a", None]}, "columns needs names"), (["image=a"], "or a mapping of these; it got a list"),
        ("image=a,file_name=b", "'image' is there twice"), ("id=a+b", "'id' is one column; got 'id=a\\+b'"),
        ("image=a+b", "several columns can be texts or metadata, and 'image' is one column"),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_used_are_refused(columns: Any, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        parse_columns(columns, None)


def test_roles_take_the_values_of_their_columns() -> None:
    record = {
        "head": "A", "body": ["A", "b", 5, 5], "extra": ("c",), "file": "a.png", "name": "", "kept": 1, "image": "old",
        "captions": "old", "year": 7, "tags": ["u", "v"], "one": float("nan"), "two": "t", "three": "u",
    }  # fmt: skip
    columns = {
        "text": ("head", "body", "extra", "gone"), "image": ("file",), "id": ("name",), "subject": ("tags",),
        "several": ("one", "two", "three"), "date": ("year",),
    }  # fmt: skip
    assert renamed(record, columns) == {
        "kept": 1, "body": ["A", "b", 5, 5], "tags": ["u", "v"], "captions": ["A", "b", 5, 5, "c"], "image": "a.png",
        "subject": ["u", "v"], "several": ["t", "u"], "date": 7,
    }  # fmt: skip
    assert renamed({"a": None, "b": "x"}, {"pair": ("a", "b")}) == {"pair": ["x"]}


def test_setting_of_columns_is_printed_as_it_is_given() -> None:
    columns = {"image": ("a",), "text": ("b", "c"), "x": ("p", "q", "r")}
    assert columns_setting(columns, "list.csv") == "--columns image=a,text=b+c,x=p+q+r"
    assert columns_setting(columns, NAME) == "columns={'image': 'a', 'text': ['b', 'c'], 'x': ['p', 'q', 'r']}"


@pytest.mark.parametrize(
    ("names", "name", "told"),
    [
        (["imaxx", "capxxxx"], "t.csv", "'capxxxx', 'imaxx'; name yours: --columns image=imaxx,text=COLUMN; a"),
        (["image", "x"], "t.csv", "--columns text=COLUMN; images without texts are .*: --columns image=image$"),
        (["filename", "x"], NAME, "images without texts are items of an index: columns={'image': 'filename'}$"),
        (["text", "x"], NAME, "name yours: columns={'image': 'COLUMN'}$"),
        (["id", "kaption"], "t.csv", "a text column .*: --columns text=kaption; a folder of images alone has no"),
    ],
)  # fmt: skip
def test_table_without_columns_of_image_and_text_names_the_nearest(names: list[str], name: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        list(rows_of(numbered([dict.fromkeys(names, "x")]), name))


def nested(depth: int, form: type) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if form is dict else form([value])
    return value


@pytest.mark.parametrize("form", [dict, list, tuple])
def test_values_are_nested_in_up_to_sixteen_lists_and_objects(form: type) -> None:
    assert plain_value(nested(16, form), "x") is not None
    with pytest.raises(RowError, match="'x' is nested in more than 16 lists and objects"):
        plain_value(nested(17, form), "x")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (10**300 - 1, 10**300 - 1), (1 - 10**300, 1 - 10**300), (True, True), (None, None), ("a\0b", "a b"),
        (b"x", RowError),
        (10**300, RowError), (-(10**300), RowError), (Decimal("1E300"), 1e300), (Decimal("NaN"), None),
        (Decimal("1.50"), 1.5), (Decimal("-Infinity"), "-inf"), (float("inf"), "inf"), (float("nan"), None),
        ({1, }, [1]), (frozenset("a"), ["a"]), ((1, None), [1]), ({"a\n b": None, "c": {"d": 2.5}}, {"c": {"d": 2.5}}),
        (np.float32(0.5), 0.5), (np.array([[1], [2]]), [[1], [2]]), (datetime.datetime(1950, 2, 3), "1950-02-03"),
        (datetime.datetime(1950, 2, 3, tzinfo=datetime.UTC), "1950-02-03T00:00:00+00:00"), (1j, "1j"),
        (datetime.datetime(1950, 2, 3, 4), "1950-02-03T04:00:00"), (datetime.date(1950, 2, 3), "1950-02-03"),
        (datetime.time(4, 5), "04:05:00"),
    ],
)  # fmt: skip
def test_values_of_metadata_are_those_of_json(value: Any, plain: Any) -> None:
    if plain is RowError:
        with pytest.raises(RowError, match=r"^'x' "):
            plain_value(value, "x")
    else:
        found = plain_value(value, "x")
        assert found == plain and type(found) is type(plain)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("a", "a"), (7, "7"), (7.0, "7"), (7.5, "7.5"), (Decimal("8.0"), "8"), (np.int64(9), "9"), ("", "b"),
        (None, "b"),
        (float("nan"), "b"), (True, "it is true or false"), ([1], "it is a list"), (b"x", "it is bytes"),
        ({}, "it is an object"),
        ("\ud83d", "is not valid UTF-8"),
        ("a\nb", r"needs to be without control characters; it has '\n'; it is 'a\nb'"),
        ("ü\u0085", "needs to be without control characters"), ("é 犬", "é 犬"),
        (datetime.date(1, 1, 1), "it is a date"),
    ],
)  # fmt: skip
def test_names_are_texts_or_numbers(value: Any, name: str) -> None:
    try:
        assert name_of({"x": value, "y": "b"}, "x", "y") == name
    except RowError as error:
        assert name in str(error) and str(error).startswith("'x' ")
    assert name_of({"x": None}, "x", "y") is None


def test_kinds_of_values_are_described() -> None:
    values = [True, 12, 1.5, 10**19, 10**20, None, "x", [], {}, b"", ()]
    assert [described(value) for value in values] == [
        "true or false", "the number 12", "the number 1.5", f"the number 1{'0' * 19}", f"the number 1{'0' * 19}",
        "nothing",
        "a string", "a list", "an object", "bytes", "a tuple",
    ]  # fmt: skip


def test_ids_are_texts_without_control_characters() -> None:
    good = ["a", "Zürich 7,5 [x]", "犬", "a b"]
    assert [id_error(name) for name in good] == [None] * 4
    assert id_error("") == "needs a letter or a digit; it is empty"
    for sign in ("\t", "\x7f", "\udce9"):
        assert id_error(f"é{sign}b") == f"needs to be without control characters; it has {sign!r}"
    assert [clean_name(name) for name in ("a", "a\tb\n", "a\xa0b", "é\0ü")] == ["a", "a b", "a b", "é ü"]
    (problem,) = read({"image": "a\tb.png", "text": "x"})
    assert str(problem).startswith("line 1: the id 'a\\tb.png' needs to be without control characters")


@pytest.mark.parametrize(
    ("value", "image"),
    [
        ("a//./b.png", ("f/a/b.png", None)), (PureWindowsPath("a\\b.png"), ("f/a/b.png", None)), (b"x", (b"x", None)),
        ({"bytes": b"x", "path": "a.png"}, (b"x", "a.png")), ({"bytes": b"x", "path": ""}, (b"x", None)),
        ({"bytes": b"x", "path": 5}, (b"x", None)), ({"bytes": b"", "path": "a.png"}, ("f/a.png", None)),
        ({"bytes": None, "path": "a.png"}, ("f/a.png", None)), ({"bytes": "x", "path": "a.png"}, ("f/a.png", None)),
        ({}, (None, None)),
        (np.zeros((2, 3)), r"needs a path, bytes, a PIL image, or an array .*; it is a ndarray of shape \(2, 3\)"),
        (5, "needs a path, or the bytes of an image; it is the number 5"), ("\ud83d", "is not valid Unicode"),
        (f"http://{'x' * 200}", f"is the address http://{'x' * 73}; addresses begin with s3://"),
    ],
)  # fmt: skip
def test_image_of_a_row_is_a_path_or_bytes(value: Any, image: Any) -> None:
    if isinstance(image, tuple):
        assert image_of({"image": value}, "f") == image
    else:
        with pytest.raises(RowError, match=f"^'image' {image}") as raised:
            image_of({"image": value}, "f")
        assert raised.value.name == (value[:80] if str(value).startswith("http") else "")
    assert image_of({"image": "", "file_name": "b.png"}) == ("b.png", None) and image_of({}) == (None, None)


@pytest.mark.parametrize("place", [0, 19, 20])
def test_folder_of_images_is_that_of_one_of_the_first_twenty(tmp_path: Path, place: int) -> None:
    names = [f"{number}.png" for number in range(30)]
    for folder in ("b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / names[place]).touch()
    assert folder_of(iter(names), tmp_path, ("a", "b", "c")) == ("b" if place < 20 else "a")


def test_objects_and_lines_of_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_object(file) == {"a": 1}
    for content, told in {
        b"{": r" with 'a'; Expecting .*", b"[" * 100_000: ".* with 'a'; .*",
        b"[1]": " with 'a'; it is another JSON value",
        b"9" * 5000: " with 'a'; .*",
    }.items():  # fmt: skip
        file.write_bytes(content)
        with pytest.raises(DataError, match=f"x needs to be a JSON object{told}"):
            read_object(file, " with 'a'")
    for content, lines in {
        b"\xef\xbb\xbfa\r\nb\x85c\n": ["a", "b\udc85c"], b"a\n\n": ["a", ""], "a\u2028b\r".encode(): ["a\u2028b"],
        b"": [""],
    }.items():  # fmt: skip
        file.write_bytes(content)
        assert lines_of(file) == lines


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00002", "train"), ("Validation", "val"), ("my_dev.tar", "val"), ("x/testing", "test"),
        ("val2014", "val"),
        ("training", "train"), ("valid", "val"), ("trains", None), ("latest", None), ("", None),
    ],
)  # fmt: skip
def test_split_is_found_in_a_name(name: str, split: str | None) -> None:
    assert split_in_name(name) == split
