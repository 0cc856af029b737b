"""Data sets in the form of their authors: a small folder of each, as its release lays it out."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from PIL import Image

from reproduce.readers.cub import TEST_CLASSES, VAL_CLASSES
from subtext.data.dataset import Dataset
from subtext.data.read import read
from subtext.errors import DataError
from subtext.evaluation.relevance.match import of_pairs


def picture(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 3), (shade % 256, 40, 90)).save(path, "JPEG")


def written(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def named(pairs: Dataset) -> list[tuple[str, str]]:
    return [(pairs.images.ids[image], str(pairs.texts.values[text])) for image, text in pairs.links]


def splits(pairs: Dataset) -> dict[str, str]:
    return dict(zip(pairs.images.ids, map(str, pairs.images.splits), strict=True))


def coco(folder: Path) -> None:
    for split, numbers in (("train", (9, 25)), ("val", (42,))):
        entries = [{"id": number, "file_name": f"COCO_{split}2014_{number:012d}.jpg"} for number in numbers]
        texts = [
            {"image_id": number, "id": 100 * number + place, "caption": f"text {place} of {number}"}
            for place in range(2)
            for number in numbers
        ]
        written(folder / f"annotations/captions_{split}2014.json", {"images": entries, "annotations": texts})
        objects = {
            "categories": [{"id": 1, "name": "person"}, {"id": 17, "name": "cat"}],
            "annotations": [{"image_id": number, "category_id": kind} for number in numbers for kind in (17, 1, 17)],
        }
        written(folder / f"annotations/instances_{split}2014.json", objects)
        for entry in entries:
            picture(folder / f"{split}2014" / str(entry["file_name"]))


def test_coco_annotations(tmp_path: Path) -> None:
    coco(tmp_path)
    pairs = read(tmp_path, verify=True)
    assert named(pairs)[:3] == [("9", "text 0 of 9"), ("9", "text 1 of 9"), ("25", "text 0 of 25")]
    assert splits(pairs) == {"9": "train", "25": "train", "42": "val"}
    assert pairs.texts.ids[:2] == ["900", "901"]
    assert pairs.images.metadata["labels"] == [["cat", "person"]] * 3
    assert pairs.images.values[2] == "val2014/COCO_val2014_000000000042.jpg"


def test_single_coco_captions_file(tmp_path: Path) -> None:
    coco(tmp_path)
    assert read(tmp_path / "annotations/captions_val2014.json").images.ids == ["42"]


OWN = [{"image": f"{number}.jpg", "captions": [f"text {number}"], "split": "train"} for number in range(3)]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(OWN),
        "\n".join(map(json.dumps, OWN)),
        json.dumps(
            {"images": [{"filename": f"{n}.jpg", "split": "train", "sentences": [{"raw": "a"}]} for n in "012"]}
        ),
    ],
    ids=["list", "lines", "karpathy"],
)
def test_own_table_may_have_coco_file_name(tmp_path: Path, text: str) -> None:
    for number in range(3):
        picture(tmp_path / f"{number}.jpg")
    written(tmp_path / "captions_train.json", text)
    for path in (tmp_path, tmp_path / "captions_train.json"):
        assert len(read(path).images) == 3


def test_karpathy_splits_of_coco_keep_object_labels(tmp_path: Path) -> None:
    coco(tmp_path)
    entry = {
        "cocoid": 42, "filepath": "val2014", "filename": "COCO_val2014_000000000042.jpg", "split": "restval",
        "sentences": [{"raw": "Karpathy's words", "sentid": 7}],
    }  # fmt: skip
    written(tmp_path / "dataset_coco.json", {"images": [entry], "dataset": "coco"})
    pairs = read(tmp_path)
    assert named(pairs) == [("42", "Karpathy's words")]
    assert splits(pairs) == {"42": "train"}
    assert pairs.images.metadata["labels"] == [["cat", "person"]]


def test_instances_without_categories_raise(tmp_path: Path) -> None:
    coco(tmp_path)
    written(tmp_path / "annotations/instances_train2014.json", {"annotations": []})
    with pytest.raises(DataError, match=r"instances_train2014\.json needs 'categories'"):
        read(tmp_path)


def test_own_table_takes_precedence_over_coco_annotations(tmp_path: Path) -> None:
    coco(tmp_path)
    written(tmp_path / "own.jsonl", '{"id": "mine", "image": "train2014/COCO_train2014_000000000009.jpg", "text": "x"}')
    assert read(tmp_path).images.ids == ["mine"]


def flickr(folder: Path, token: str, pictures: str) -> None:
    lines = [f"{number}.jpg#{place}\ttext {place} of {number} ." for number in (11, 12, 13, 14) for place in range(2)]
    written(folder / token, "\n".join(lines) + "\n")
    for number in (11, 12, 13, 14):
        picture(folder / pictures / f"{number}.jpg", number)


def test_flickr30k_with_lists(tmp_path: Path) -> None:
    flickr(tmp_path, "results_20130124.token", "flickr30k-images")
    for split, number in (("train", 11), ("val", 12), ("test", 13)):
        written(tmp_path / f"{split}.txt", f"{number}\n")
    reading = read(tmp_path, verify=True)
    assert splits(reading) == {"11.jpg": "train", "12.jpg": "val", "13.jpg": "test"}
    assert reading.texts.ids[:2] == ["11.jpg#0", "11.jpg#1"]
    assert [str(problem) for problem in reading.problems] == [
        "14.jpg: the lists of the splits name no split for 1 image; left out"
    ]


def test_flickr8k_with_archive_spelling(tmp_path: Path) -> None:
    flickr(tmp_path, "Flickr8k.token.txt", "Flicker8k_Dataset")
    written(tmp_path / "Flickr8k.lemma.token.txt", "11.jpg#0\tother words\n")
    for name, number in (("trainImages", 11), ("devImages", 12), ("testImages", 13)):
        written(tmp_path / f"Flickr_8k.{name}.txt", f"{number}.jpg\n")
    assert splits(read(tmp_path)) == {"11.jpg": "train", "12.jpg": "val", "13.jpg": "test"}


def test_flickr30k_without_lists_gets_random_splits(tmp_path: Path) -> None:
    flickr(tmp_path, "results_20130124.token", "flickr30k-images")
    assert set(read(tmp_path).counts()) == {"train", "val", "test"}


def test_caption_may_contain_unicode_line_breaks(tmp_path: Path) -> None:
    picture(tmp_path / "1.jpg")
    written(tmp_path / "results.token", "1.jpg#0\ta dog\u2028 in\x85 the\x0c sun\r\n1.jpg#1\ta cat\r\n\r\n")
    assert read(tmp_path).texts.values == ["a dog\u2028 in\x85 the\x0c sun", "a cat"]


def test_token_line_without_tab_raises(tmp_path: Path) -> None:
    flickr(tmp_path, "results_20130124.token", "flickr30k-images")
    with (tmp_path / "results_20130124.token").open("a") as file:
        file.write("15.jpg words\n")
    with pytest.raises(DataError, match="line 9: needs IMAGE#NUMBER, a tab and the caption"):
        read(tmp_path)


def cub(folder: Path, images: str = "images", texts: str = "text_c10") -> list[str]:
    names = []
    for kind in ("001.Albatross", "004.Ani", "005.Auklet"):
        for number in range(2):
            name = f"{kind}/Bird_{number:04d}"
            picture(folder / images / f"{name}.jpg", number)
            written(folder / texts / f"{name}.txt", "a small bird\n" + "".join(f"text {n}\n" for n in range(9)))
            names.append(f"{name}.jpg")
    return names


@pytest.mark.parametrize(
    ("images", "texts"), [("images", "text_c10"), ("CUB_200_2011/images", "cvpr2016_cub/text_c10")]
)
def test_cub_pairs_all_items_of_a_class(tmp_path: Path, images: str, texts: str) -> None:
    names = cub(tmp_path, images, texts)
    pairs = read(tmp_path, verify=True)
    assert pairs.images.ids == names
    assert list(pairs.images.splits) == ["train"] * 2 + ["test"] * 2 + ["val"] * 2
    assert len(pairs.texts) == 60 and len(pairs.links) == 60
    assert [len(pairs.images.groups[pairs.images.groups == group]) for group in range(3)] == [2, 2, 2]
    truth = of_pairs(pairs.split("test"))
    assert truth.cells("image_to_text")[0:2].expand()[0].tolist() == [0] * 20 + [1] * 20


def test_cub_uses_available_split_lists(tmp_path: Path) -> None:
    names = cub(tmp_path)
    written(tmp_path / "testclasses.txt", "001.Albatross\n")
    written(tmp_path / "valclasses2.txt", "004.Ani\n")
    written(tmp_path / "seen_test_images.txt", f"{names[4]}\n")
    assert list(splits(read(tmp_path)).values()) == ["test", "test", "val", "val", "seen", "train"]
    written(tmp_path / "valclasses1.txt", "005.Auklet\n")
    with pytest.raises(DataError, match="needs one file of validation classes; it has 2"):
        read(tmp_path)


def test_cub_has_fifty_validation_and_fifty_test_classes() -> None:
    assert len(TEST_CLASSES) == len(VAL_CLASSES) == 50
    assert not TEST_CLASSES & VAL_CLASSES
    assert min(TEST_CLASSES | VAL_CLASSES) >= 1 and max(TEST_CLASSES | VAL_CLASSES) <= 200


@pytest.mark.parametrize("file", ["captioning_dataset.json", "article+caption.json"])
def test_goodnews_articles(tmp_path: Path, file: str) -> None:
    articles = {
        "a1": {"images": {"0": "The Senate.", "1": "A vote."}, "article": "long", "headline": {"main": "x"}},
        "b2": {"images": {"3": "A march."}, "article": "long"},
    }
    written(tmp_path / file, articles)
    written(tmp_path / "img_splits.json", {"a1_0": "train", "b2_3.jpg": "test"})
    for name in ("a1_0", "b2_3"):
        picture(tmp_path / "resized" / f"{name}.jpg")
    reading = read(tmp_path, verify=True)
    assert named(reading) == [("a1_0", "The Senate."), ("b2_3", "A march.")]
    assert splits(reading) == {"a1_0": "train", "b2_3": "test"}
    assert reading.images.metadata["article"] == ["a1", "b2"]
    assert [str(problem) for problem in reading.problems] == [
        "a1_1: img_splits.json names no split for 1 image; left out"
    ]


def test_goodnews_article_without_images_raises(tmp_path: Path) -> None:
    written(tmp_path / "captioning_dataset.json", {"a1": {"article": "long"}})
    with pytest.raises(DataError, match=r"needs an object of 'images'.*'a1' has none"):
        read(tmp_path)


def conceptual(folder: Path) -> dict[str, str]:
    address = {name: f"http://there.example/{name}.jpg" for name in ("a", "b", "c")}
    written(folder / "Train_GCC-training.tsv", f"a dog runs\t{address['a']}\na cat\t{address['b']}\n")
    written(folder / "Validation_GCC-1.1.0-Validation.tsv", f"a bird\t{address['c']}\n")
    written(folder / "Image_Labels_Subset_Train_GCC-Labels-training.tsv", "a dog runs\tx\tdog\t/m/1\t0.9\n")
    return address


def test_conceptual_captions_by_download_script_names(tmp_path: Path) -> None:
    address = conceptual(tmp_path)
    picture(tmp_path / "training" / "a.jpg")
    (tmp_path / "training" / "a.jpg").rename(tmp_path / "training" / str(zlib.crc32(address["a"].encode())))
    picture(tmp_path / "validation" / f"0_{zlib.crc32(address['c'].encode())}.jpg")
    reading = read(tmp_path, verify=True)
    assert named(reading) == [("training/0", "a dog runs"), ("validation/0", "a bird")]
    assert list(splits(reading).values()) == ["train", "val"]
    assert [str(problem) for problem in reading.problems] == [
        "Train_GCC-training.tsv line 2: 1 image of Train_GCC-training.tsv not downloaded; left out"
    ]


def test_conceptual_captions_without_images_read_by_id(tmp_path: Path) -> None:
    conceptual(tmp_path)
    pairs = read(tmp_path, need_images=False)
    assert pairs.images.ids == ["training/0", "training/1", "validation/0"]
    assert pairs.images.values == [None] * 3


def politics(folder: Path) -> list[str]:
    paths = [f"{side}/guns/site/{number}.jpg" for side in ("left", "right") for number in range(10)]
    lines = [
        {"leaning": path.split("/")[0], "issue": "guns", "local_path": path, "content_text": f"Article {path}. More."}
        for path in paths
    ]
    written(folder / "politics.jsonl", "".join(json.dumps(line) + "\n" for line in [*lines, lines[0]]))
    for path in paths:
        picture(folder / path)
    return paths


def test_politics_release(tmp_path: Path) -> None:
    paths = politics(tmp_path)
    written(tmp_path / "train_test_paths.json", {"train": paths[:16], "test": paths[16:19]})
    pairs = read(tmp_path, verify=True)
    assert pairs.images.ids == paths[:19]
    assert pairs.counts() == {"test": 3, "train": 13, "val": 3}
    assert len(pairs.texts) == 19
    assert pairs.images.metadata["leaning"][0] == "left"
    written(tmp_path / "train_test_paths.json", {"train": paths[:16][::-1], "test": paths[16:19]})
    assert splits(read(tmp_path)) == splits(pairs)


def test_politics_without_lists_gets_random_splits(tmp_path: Path) -> None:
    politics(tmp_path)
    assert set(read(tmp_path).counts()) == {"train", "val", "test"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("politics.jsonl", '{"image": "a.jpg", "text": "a rally"}\n'),
        ("my_GCC_sample.tsv", "image\tcaption\na.jpg\ta rally\n"),
    ],
)
def test_own_table_may_have_published_file_name(tmp_path: Path, name: str, text: str) -> None:
    written(tmp_path / name, text)
    assert read(tmp_path, need_images=False).texts.values == ["a rally"]


def test_politics_with_other_names_raises_with_hint(tmp_path: Path) -> None:
    written(tmp_path / "politics.jsonl", '{"local_path": "a.jpg", "text": "x"}\n')
    with pytest.raises(DataError, match=r"needs 'local_path' and 'content_text'; docs/datasets\.md"):
        read(tmp_path)
    written(tmp_path / "train_test_paths.json", {"both": []})
    with pytest.raises(DataError, match="needs lists of paths, 'train' and 'test'; it has both"):
        read(tmp_path)
