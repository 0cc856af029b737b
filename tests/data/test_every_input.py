"""What every Input owes: the same tensors without a draw, its settings through save and load, ids kept."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from subtext.data.features import FeatureFile, FeatureInput
from subtext.data.inputs import Draw, Input, InputBatch
from subtext.data.pixels import PixelInput, random_box
from subtext.data.text import END, PAD, START, UNKNOWN, SubwordInput, Vocabulary, WordInput, tokenise
from subtext.data.words import guess_language
from subtext.errors import CheckpointError, DataError, OutputError
from subtext.ops import draw

pytestmark = pytest.mark.contract

TEXTS = ["a dog runs", "a cat", "", "word " * 10_000, "犬 🐶", "a dog and a cat and a bird"]


def batch(values: list, ids: list[str] | None = None) -> InputBatch:
    ids = ids or [f"item {n}" for n in range(len(values))]
    return InputBatch(values, ids, np.arange(len(values)) + 7, draw.keys(ids), Path())


def words(**options: float) -> WordInput:
    return WordInput(Vocabulary.build(["a dog runs and a cat and a bird", "a bird"]), **options)


def subwords(**options: float) -> SubwordInput:
    known = {
        token: code
        for code, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "cat", "runs", "word"])
    }
    backend = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    marks = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return SubwordInput(PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]", **marks), **options)


def test_equal_subword_texts_are_merged_and_sorted_by_length() -> None:
    texts = ["a dog runs", "dog", "a cat runs", "bird", "unknown", "a dog runs"]
    rows, own = subwords().distinct(batch(texts))
    # "bird" and "unknown" are the same unknown word.
    assert rows.tolist() == [1, 3, 0, 2] and own.tolist() == [2, 0, 3, 1, 1, 2]
    cut = subwords(max_tokens=4).distinct(batch(["a dog runs", "a dog word"]))
    assert [part.tolist() for part in cut] == [[0], [0, 0]]
    with pytest.raises(DataError):
        subwords().distinct(batch(["a dog", None]))


def features(folder: Path) -> FeatureFile:
    rng = np.random.default_rng(0)
    np.savez(
        folder / "f.npz",
        names=np.array([f"item {n}" for n in range(9)][::-1]),
        pooled=rng.normal(size=(9, 5)).astype(np.float16),
        grid=rng.normal(size=(9, 4, 6)).astype(np.float32),
    )
    return FeatureFile.open(folder / "f.npz")


def pictures() -> list:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (30 + n, 40, 3), dtype=np.uint8) for n in range(6)]


def every(folder: Path) -> list[tuple[Input, InputBatch]]:
    """Each Input that changes nothing, and each that augments."""
    file = features(folder)
    return [
        (words(), batch(TEXTS)),
        (words(word_drop=0.4, token_mask=0.3, max_tokens=12), batch(TEXTS)),
        (subwords(), batch(TEXTS)),
        (subwords(token_mask=0.3, max_tokens=12), batch(TEXTS)),
        (FeatureInput("image", file), batch([None] * 6)),
        (FeatureInput("image", file, region_drop=0.5), batch([None] * 6)),
        (PixelInput(size=16), batch(pictures())),
        (PixelInput(size=16, resize="squash", filter="bicubic"), batch(pictures())),
        (PixelInput(size=16, least_area=0.3, flip=0.5, erase=0.5), batch(pictures())),
    ]


@pytest.mark.parametrize("place", range(9))
def test_input_keeps_contract_through_save_and_load(tmp_path: Path, place: int) -> None:
    input_spec, items = every(tmp_path)[place]
    assert isinstance(input_spec, Input)
    plain, again = input_spec(items), input_spec(items)
    assert plain["ids"].tolist() == list(range(7, 7 + len(items.values)))
    assert all(torch.equal(plain[name], again[name]) for name in plain)
    first, second = (input_spec(items, Draw(seed=0, epoch=epoch)) for epoch in (0, 1))
    same = all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(first.values(), second.values(), strict=True))
    assert same != input_spec.augments, "augments says whether epochs differ"

    input_spec.save(tmp_path / "assets")
    opened = type(input_spec).load(tmp_path / "assets")
    if isinstance(opened, FeatureInput):
        opened = opened.with_file(features(tmp_path))
    assert opened.fingerprint == input_spec.fingerprint
    for drawn in (None, Draw(seed=3, epoch=2)):
        for name, tensor in input_spec(items, drawn).items():
            assert torch.equal(opened(items, drawn)[name], tensor)
    assert all(
        path.suffix in (".json", ".txt", ".jinja") for path in (tmp_path / "assets").rglob("*") if path.is_file()
    )


@pytest.mark.parametrize("place", range(9))
def test_input_does_not_depend_on_batch(tmp_path: Path, place: int) -> None:
    input_spec, items = every(tmp_path)[place]
    for drawn in (None, Draw(seed=0, epoch=4)):
        whole = input_spec(items, drawn)
        for row in range(len(items.values)):
            alone = input_spec(
                InputBatch(
                    items.values[row : row + 1],
                    items.ids[row : row + 1],
                    items.rows[row : row + 1],
                    items.keys[row : row + 1],
                    items.root,
                ),
                drawn,
            )
            for name in ("pixels", "pooled", "grid"):
                if name in whole:
                    assert torch.equal(alone[name][0], whole[name][row])
            if "tokens" in whole:
                assert torch.equal(alone["tokens"][0][alone["mask"][0]], whole["tokens"][row][whole["mask"][row]])


@pytest.mark.parametrize(
    "change", [{"size": 20}, {"resize": "squash"}, {"filter": "bicubic"}, {"mean": (0.5, 0.5, 0.5)}]
)
def test_pixel_fingerprint_changes_with_preprocessing(change: dict) -> None:
    assert PixelInput(**change).fingerprint != PixelInput().fingerprint
    assert PixelInput(flip=0.5).fingerprint == PixelInput().fingerprint


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PixelInput(size=0), "size is the side"),
        (lambda: PixelInput(flip=2), r"flip is a share in \[0, 1\]"),
        (lambda: PixelInput(least_area=0.0), r"least_area is a share in \(0, 1\]"),
        (lambda: PixelInput(std=(0.0, 1.0, 1.0)), "std needs numbers above 0"),
        (lambda: words(word_drop=1.0), r"word_drop is a share in \[0, 1\)"),
        (lambda: words(max_tokens=2), "3 or more; it got 2"),
        (lambda: subwords(token_mask=-0.1), "token_mask is a share"),
        (lambda: FeatureInput("text", region_drop=1.0), "region_drop is a share"),
        (lambda: Vocabulary.build(["?!"]), "needs a word"),
        (lambda: Vocabulary.build(["a b"], min_count=2), "of 2 words none is"),
        (lambda: Vocabulary(("a", "b"), ()), "needs to begin with <pad>"),
        (lambda: words()(batch([None])), "item 'item 0' needs a text; it got none"),
        (lambda: subwords()(batch([b"x"])), "needs a text; it got bytes"),
        (lambda: PixelInput()(batch([None])), "item 'item 0' has no image, only a name"),
        (lambda: PixelInput()(batch(["gone.png"])), "item 'item 0': image gone.png is not in"),
    ],
)
def test_bad_settings_and_items_raise(make, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


def test_missing_or_damaged_saved_inputs_raise(tmp_path: Path) -> None:
    for kind in (PixelInput, WordInput, SubwordInput, FeatureInput):
        with pytest.raises(CheckpointError, match="is not there"):
            kind.load(tmp_path)
    words().save(tmp_path)
    (tmp_path / "words.json").write_text("{}")
    with pytest.raises(CheckpointError, match="needs the settings max_tokens"):
        WordInput.load(tmp_path)
    (tmp_path / "vocabulary.json").write_text('{"a": 1}')
    with pytest.raises(CheckpointError, match="needs a JSON list of words"):
        Vocabulary.load(tmp_path)
    (tmp_path / "vocabulary.json").write_text("[")
    with pytest.raises(CheckpointError, match="needs to be JSON"):
        Vocabulary.load(tmp_path)


def test_vocabulary_counts_words(tmp_path: Path) -> None:
    Vocabulary.build(["a dog", "a cat", "dog"]).save(tmp_path)
    known = Vocabulary.load(tmp_path)
    assert [known.count(word) for word in ("a", "dog", "cat")] == [2, 2, 1]
    for wrong in ("[1]", '{"a": 1}', '["a", "b", "c"]'):
        (tmp_path / "word_counts.json").write_text(wrong)
        with pytest.raises(CheckpointError, match="needs a number for each word"):
            Vocabulary.load(tmp_path)
    (tmp_path / "word_counts.json").unlink()
    with pytest.raises(CheckpointError, match=r"word_counts\.json is not there"):
        Vocabulary.load(tmp_path)


def test_unwritable_output_path_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot be: a file stands where a folder has to be; .*; name another place"):
        words().save(tmp_path / "file" / "assets")


def test_word_input_adds_marks_and_truncates() -> None:
    vocabulary = Vocabulary.build(["b a", "a c", "a b"], min_count=2)
    assert vocabulary.tokens[4:] == ("a", "b")
    tensors = WordInput(vocabulary)(batch(["A c b!", ""]))
    assert tensors["tokens"].tolist() == [[START, 4, UNKNOWN, 5, END], [START, END, PAD, PAD, PAD]]
    assert tensors["mask"].tolist() == [[True] * 5, [True, True, False, False, False]]
    cut = WordInput(vocabulary, max_tokens=4)(batch(["a b a b a"]))["tokens"]
    assert cut.tolist() == [[START, 4, 5, END]]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A man's dog isn't wet.", "a man 's dog is n't wet"),
        ("They’ll’ve gone", "they 'll 've gone"),
        ("3.5 km at 12:30, 1,000 x", "3.5 km at 12:30 1,000 x"),
        ("Zoë's CAFÉ", "zoë 's café"),
        ("cafe\u0301", "café"),
        ("他骑马", "他 骑 马"),
        ("テスト", "テ ス ト"),
        ("नमस्ते दुनिया", "नमस्ते दुनिया"),
        ("한국어 문장", "한국어 문장"),
        ("🇩🇪🇫🇷 👍🏽👍 👩\u200d🚀 ❤️", "🇩🇪 🇫🇷 👍🏽 👍 👩\u200d🚀 ❤️"),
        ("1️⃣ one", "1️⃣ one"),
        ("... -- !?", ""),
        ("", ""),
    ],
)
def test_tokenise_splits_words(text: str, wanted: str) -> None:
    assert tokenise(text) == wanted.split()


def test_tokenise_is_the_same_beside_another_script() -> None:
    for text in ("a man's 3.5 dogs_x don't e-mail", "it's 12:30... really?", "rock'n'roll 'tis"):
        # The quick way for ASCII and the scan of every character give the same words.
        assert [*tokenise(text), "é"] == tokenise(f"{text} é")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a dog is in the grass", "en"),
        ("ein Hund und eine Katze auf der Wiese", "de"),
        ("un chien dans les rues avec des enfants", "fr"),
        ("犬が走る", "ja"),
        ("狗在跑", "zh"),
        ("собака бежит", "ru"),
        ("🐶", "und"),
        ("xyz", "und"),
    ],
)
def test_guess_language_by_words(text: str, code: str) -> None:
    assert guess_language(text) == code


def test_subword_masking_keeps_marks_and_max_padding_is_masked() -> None:
    input_spec = subwords(token_mask=0.99)
    masked = input_spec(batch(["a dog runs word"]), Draw(seed=0, epoch=0))["tokens"][0].tolist()
    assert masked[0] == 2
    assert masked[-1] == 3
    assert 4 in masked[1:-1]
    full = SubwordInput(input_spec.tokeniser, max_tokens=10, full_length=10)(batch(["a dog"]))
    assert full["tokens"].tolist() == [[2, 5, 6, 3] + [0] * 6]
    assert full["mask"].sum() == 4


def test_features_join_by_id_then_path_then_file_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", names=np.array(["x", "b/2.jpg", "3.jpg"]), pooled=np.eye(3, dtype=np.float16))
    file = FeatureFile.open(tmp_path / "f.npz")
    assert file.rows(["q", "x", "r"], ["c/3.jpg", "a/1.jpg", "b/2.jpg"]).tolist() == [2, 0, 1]
    assert isinstance(file.pooled.arrays[0], np.memmap)
    assert file.pooled.dtype == np.float16
    assert file.take("pooled", np.array([1])).dtype == np.float32


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_stored_and_compressed_npz_hold_equal_values(tmp_path: Path, save, order: str) -> None:
    grid = np.asarray(np.random.default_rng(0).normal(size=(7, 3, 5)), order=order)
    save(tmp_path / "f.npz", names=np.array(list("abcdefg")), grid=grid)
    file = FeatureFile.open(tmp_path / "f.npz")
    np.testing.assert_array_equal(file.take("grid", np.array([6, 0, 3])), grid[[6, 0, 3]].astype(np.float32))


@pytest.mark.parametrize("ids", ["txt", "json"])
def test_npy_is_read_with_names_file(tmp_path: Path, ids: str) -> None:
    np.save(tmp_path / "f.npy", np.arange(6.0).reshape(3, 2))
    names = ["é", "b\u2028", "c"]
    (tmp_path / f"f.ids.{ids}").write_text("\n".join(names) + "\n" if ids == "txt" else json.dumps(names), "utf-8")
    file = FeatureFile.open(tmp_path / "f.npy")
    assert file.take("pooled", file.rows(["c", "é"])).tolist() == [[4, 5], [0, 1]]


def test_blockwise_moments_equal_full_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    pooled = (rng.normal(size=(50, 3)) * [1, 100, 0] + [1000, 0, 5]).astype(np.float32)
    grid = rng.normal(size=(50, 4, 2)).astype(np.float32)
    grid[::3, 2:] = 0
    names = [f"n{row}" for row in range(50)]
    np.savez(tmp_path / "f.npz", names=np.array(names), pooled=pooled, grid=grid)
    monkeypatch.setattr("subtext.data.feature_file.BLOCK_BYTES", 200)
    shape = FeatureFile.open(tmp_path / "f.npz").shape(names[:40])
    assert (shape.pooled, shape.grid) == (3, 2)
    np.testing.assert_allclose(shape.mean["pooled"], pooled[:40].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(shape.std["pooled"][:2], pooled[:40, :2].std(axis=0), rtol=1e-4)
    assert shape.std["pooled"][2] == 1, "a channel that never changes can be divided by"
    real = grid[:40].reshape(-1, 2)
    real = real[real.any(axis=1)]
    np.testing.assert_allclose(shape.mean["grid"], real.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(shape.std["grid"], real.std(axis=0), rtol=1e-5)


def test_padding_and_region_dropout_keep_a_region(tmp_path: Path) -> None:
    grid = np.ones((3, 5, 2), np.float32)
    grid[1, 2:] = 0
    grid[2, 1:] = 0
    np.savez(tmp_path / "f.npz", names=np.array(["item 0", "item 1", "item 2"]), grid=grid)
    file = FeatureFile.open(tmp_path / "f.npz")
    items = batch([None] * 3)
    assert FeatureInput("image", file)(items)["mask"].sum(dim=1).tolist() == [5, 2, 1]
    input_spec = FeatureInput("image", file, region_drop=0.9)
    for epoch in range(30):
        mask = input_spec(items, Draw(seed=0, epoch=epoch))["mask"]
        assert mask.any(dim=1).all(), "an item always keeps a region"
        assert not mask[1, 2:].any(), "padding is never kept instead"


def test_zero_regions_before_real_ones_stay_unmasked() -> None:
    gap, padded = np.ones((4, 3), np.float32), np.ones((4, 3), np.float32)
    gap[1], padded[2:] = 0, 0
    input_spec = FeatureInput("image", grid=3)
    assert input_spec(batch([gap]))["mask"].tolist() == [[True] * 4]
    assert input_spec(batch([gap, padded]))["mask"].tolist() == [[True] * 4, [True, True, False, False]]


def test_items_can_bring_their_features() -> None:
    pooled = FeatureInput("image", pooled=3)(batch([np.arange(3), np.ones(3)]))
    assert pooled["pooled"].tolist() == [[0, 1, 2], [1, 1, 1]]
    grid = FeatureInput("image", grid=3)(batch([np.ones((4, 3)), np.ones((4, 3))]))
    assert grid["grid"].shape == (2, 4, 3)
    assert grid["mask"].all()
    both = FeatureInput("image", pooled=2, grid=3)(
        batch([{"grid": np.full((4, 3), n), "pooled": np.full(2, n)} for n in (1.0, 2.0)])
    )
    assert both["pooled"].tolist() == [[1, 1], [2, 2]]
    assert both["grid"][:, 0, 0].tolist() == [1, 2] and both["grid"].dtype == torch.float32
    one = FeatureInput("text", pooled=2)(batch([{"pooled": np.ones(2)}]))
    assert one["pooled"].tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            np.ones(2),
            r"needs \{'pooled': an array \(2\), 'grid': an array \(regions, 3\)\}.*got an array \(2,\) of float",
        ),
        ({"pooled": np.ones(2)}, r"it got \{'pooled': an array \(2,\) of float64\}"),
        ({"pooled": np.ones(5), "grid": np.ones((4, 3))}, r"it got \{'pooled': an array \(5,\)"),
        ({"pooled": np.ones(2), "grid": np.ones(3)}, r"'grid': an array \(3,\) of float64"),
        ({"pooled": np.ones(2), "grid": np.ones((0, 3))}, r"'grid': an array \(0, 3\)"),
        ({"pooled": np.ones(2), "grid": np.ones((4, 3)), "more": np.ones(1)}, "'more': an array"),
        ({"pooled": [1.0, 2.0], "grid": np.ones((4, 3))}, "'pooled': a value of type list"),
        ({"pooled": np.array(["a", "b"]), "grid": np.ones((4, 3))}, "of <U1"),
    ],
)
def test_features_of_wrong_shape_raise(value: object, told: str) -> None:
    with pytest.raises(DataError, match=told):
        FeatureInput("image", pooled=2, grid=3)(batch([value]))


def test_region_counts_may_differ_and_must_be_finite() -> None:
    input_spec = FeatureInput("image", grid=3)
    assert input_spec(batch([np.ones((4, 3)), np.ones((2, 3))]))["mask"].sum(dim=1).tolist() == [4, 2]
    with pytest.raises(DataError, match="'grid' of 'item 1' has NaN or infinity"):
        input_spec(batch([np.ones((4, 3)), np.full((4, 3), np.nan)]))
    with pytest.raises(DataError, match=r"up to 1e\+16; 'grid' of 'item 0' has a number of 3e\+38 in size"):
        input_spec(batch([np.full((4, 3), -3e38)]))
    with pytest.raises(DataError, match="of complex128"):
        input_spec(batch([np.full((4, 3), 1j)]))
    with pytest.raises(DataError, match=r"it got a\.jpg"):
        input_spec(batch([np.ones((4, 3)), "a.jpg"]))
    with pytest.raises(DataError, match=r"has no file to look it up in; .*\(features\)"):
        input_spec(batch(["a.jpg"]))


def test_feature_input_reads_only_requested_parts(tmp_path: Path) -> None:
    file = features(tmp_path)
    assert set(FeatureInput("image", pooled=5).with_file(file)(batch([None] * 3))) == {"pooled", "ids"}
    assert set(FeatureInput("image", file)(batch([None] * 3))) == {"pooled", "grid", "mask", "ids"}
    with pytest.raises(DataError, match=r"'pooled' features of width 9; .*f\.npz has 5; give features made as"):
        FeatureInput("image", pooled=9).with_file(file)


@pytest.mark.parametrize("row", range(0, 200, 23))
def test_feature_file_fingerprint_covers_every_number(tmp_path: Path, row: int) -> None:
    values = np.zeros((200, 3), np.float16)
    found = []
    for change in (0.0, 0.5, 0.0):
        values[row, 1] = change
        np.savez(tmp_path / "f.npz", names=np.arange(200), pooled=values)
        found.append(FeatureFile.open(tmp_path / "f.npz").fingerprint)
    assert found[0] == found[2] != found[1]


def test_pixels_are_normalised_and_centre_cropped() -> None:
    image = np.zeros((40, 80, 3), np.uint8)
    image[:, 20:60] = (255, 0, 128)
    input_spec = PixelInput(size=8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.25, 0.5), crop_share=1.0)
    pixels = input_spec(batch([image]))["pixels"]
    assert pixels.shape == (1, 3, 8, 8)
    wanted = torch.tensor([1.0, -2.0, 2 * 128 / 255 - 1]).view(3, 1, 1).expand(3, 8, 6)
    # The outermost columns mix with what lies beside the crop, as in resizing first and cropping then.
    torch.testing.assert_close(pixels[0, :, :, 1:7], wanted)


def test_crop_equals_resize_then_crop() -> None:
    wave = np.sin(np.arange(160)[:, None] / 9) * np.cos(np.arange(240) / 13)
    image = Image.fromarray(np.uint8(127.5 + 127.5 * wave)).convert("RGB")
    input_spec = PixelInput(size=56, mean=(0, 0, 0), std=(1, 1, 1))
    pixels = input_spec(batch([image]))["pixels"][0].permute(1, 2, 0).numpy() * 255
    resized = image.resize((96, 64), Image.Resampling.BILINEAR).crop((20, 4, 76, 60))
    assert np.abs(pixels - np.asarray(resized)).max() <= 2


def test_squash_keeps_full_image() -> None:
    image = np.zeros((40, 80, 3), np.uint8)
    image[:, 40:] = 255
    pixels = PixelInput(size=8, resize="squash", mean=(0, 0, 0), std=(1, 1, 1))(batch([image]))["pixels"]
    assert pixels[0, 0, 4].tolist() == pytest.approx([0] * 4 + [1] * 4, abs=0.2)


def test_extreme_aspect_ratio_gives_requested_size() -> None:
    image = Image.new("RGB", (60_000, 1))
    assert PixelInput(size=32)(batch([image]))["pixels"].shape == (1, 3, 32, 32)


def test_random_boxes_stay_inside_with_minimum_area() -> None:
    for drawn in np.random.default_rng(0).random((500, 4)):
        left, top, right, bottom = random_box(90, 120, 0.25, drawn)
        assert 0 <= left < right <= 90
        assert 0 <= top < bottom <= 120
        assert (right - left) * (bottom - top) >= 0.25 * 90 * 120 - 1e-6
        assert 3 / 4 - 1e-9 <= (right - left) / (bottom - top) <= 4 / 3 + 1e-9 or right - left == 90


def test_flip_and_erase_change_the_stated_share() -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    image[:, :4] = 255
    items = batch([image] * 40)
    plain = PixelInput(size=8, resize="squash", mean=(0.1, 0.1, 0.1), std=(1, 1, 1))
    before = plain(items)["pixels"]
    flipped = PixelInput(**{**plain.__dict__, "flip": 0.5})(items, Draw(0, 0))["pixels"]
    mirrored = [torch.equal(row, before[0].flip(2)) for row in flipped]
    assert all(mirror or torch.equal(row, before[0]) for mirror, row in zip(mirrored, flipped, strict=True))
    assert 8 < sum(mirrored) < 32
    erased = PixelInput(**{**plain.__dict__, "erase": 1.0})(items, Draw(0, 0))["pixels"]
    shares = (erased == 0).all(dim=1).float().mean(dim=(1, 2))
    assert 0 < shares.min() <= shares.max() < 0.5


@pytest.mark.data
def test_feature_batch_loads_within_time_limit() -> None:
    if "SUBTEXT_DATA" not in os.environ:
        pytest.skip("SUBTEXT_DATA is not set")
    file = FeatureFile.open(Path(os.environ["SUBTEXT_DATA"]) / "flickr8k" / "mobilenet_pooled.npz")
    input_spec = FeatureInput("image", file)
    items = batch([None] * 512, file.names[:5120:10])
    took = []
    for _ in range(10):
        start = time.perf_counter()
        input_spec(items)
        took.append(time.perf_counter() - start)
    # Three alone; the checks of signatures and other work on the machine take some more.
    assert min(took) < 0.010
