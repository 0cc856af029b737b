"""Texts reach a pretrained dual encoder in the form that it was trained on, whatever form its folder has."""

from __future__ import annotations

import json
import string
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import made_data
import numpy as np
import pytest
import siglip_pieces
import tiny_models
import torch
import transformers
from command import call
from PIL import Image
from served_index import WRITES, client, item
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer

import subtext as st
from subtext.data.image_files import open_image
from subtext.data.inputs import Draw, InputBatch
from subtext.data.text import SubwordInput
from subtext.errors import RequirementError
from subtext.models.checkpoint import Record, save_run
from subtext.models.encoders import language
from subtext.models.encoders.families import FORMS, family_of, text_form
from subtext.recipes.build import build
from subtext.retrieval.stores.registry import open_store
from subtext.training.setup import BuildContext

LONG = "the red boats of the harbour " * 9
TEXTS = ["a dog runs", "Two RED Boats", "ÉTÉ à l'Île, ΣΑΣ", LONG, "."]
CONFIG = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def by_transformers(folder: Path, texts: list[str], **form: Any) -> torch.Tensor:
    """Vectors by the folder's own tokeniser, padded on the right to the full length; of unit length."""
    tokens, own = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    coded = tokens(texts, return_tensors="pt", truncation=True, padding_side="right", **form)
    masked = {} if form["padding"] == "max_length" else {"attention_mask": coded["attention_mask"]}
    with torch.inference_mode():
        output = own.get_text_features(input_ids=coded["input_ids"], **masked)
    return normalize(getattr(output, "pooler_output", output), dim=1)


FULL = {"padding": "max_length", "max_length": 16}


@pytest.mark.parametrize("form", ["4.5x", "5"])
def test_siglip_2_folder_without_padding_in_config_is_read_as_trained(form: str, tmp_path: Path) -> None:
    folder = tiny_models.siglip_2(tmp_path, form)
    assert "pad_token_id" not in (folder / "config.json").read_text()
    opened = st.load(model=folder)
    lower = ["".join(map(str.lower, text)) for text in TEXTS]
    torch.testing.assert_close(opened.embed_texts(TEXTS).vectors[:, 0], by_transformers(folder, lower, **FULL))
    spec = opened.text.input_spec
    assert isinstance(spec, SubwordInput) and (spec.full_length, spec.lower, spec.note) == (16, True, "")
    codes, _ = spec.codes(TEXTS)
    assert codes.shape == (5, 16) and codes[0, -1] == 0 and codes[3, -1] == 1, "the end token stays where a text is cut"


@pytest.mark.parametrize("form", ["4.5x", "5"])
def test_siglip_folder_is_read_as_its_own_tokeniser_reads_it(form: str, tmp_path: Path) -> None:
    folder = siglip_pieces.write(tmp_path, form)
    opened = st.load(model=folder)
    torch.testing.assert_close(opened.embed_texts(TEXTS).vectors[:, 0], by_transformers(folder, TEXTS, **FULL))
    spec = opened.text.input_spec
    assert isinstance(spec, SubwordInput) and (spec.lower, spec.note) == (False, "")
    codes, _ = spec.codes(["THE dog!", "the dog", LONG])
    assert codes[0].tolist() == codes[1].tolist() and codes[0, -1] == codes[2, -1] == 1


def test_clip_folder_is_read_as_its_own_tokeniser_reads_it(tmp_path: Path) -> None:
    letters = [*string.ascii_lowercase, *string.punctuation]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>", "<|startoftext|>", "<|endoftext|>"]
    codes = {token: code for code, token in enumerate(tokens)}
    tokeniser = transformers.CLIPTokenizer(vocab=codes, merges=[("t", "h"), ("th", "e</w>")], model_max_length=16)
    tokeniser.save_pretrained(tmp_path)
    text = {**CONFIG, "vocab_size": len(codes), "max_position_embeddings": 16, "bos_token_id": len(codes) - 2,
            "eos_token_id": len(codes) - 1}  # fmt: skip
    torch.manual_seed(8)
    vision = {**CONFIG, "image_size": 32, "patch_size": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)
    transformers.CLIPModel(config).save_pretrained(tmp_path)
    numbers = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}, "do_center_crop": True,
               "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3}  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(numbers))
    opened = st.load(model=tmp_path)
    expected = by_transformers(tmp_path, TEXTS, padding=True, max_length=16)
    torch.testing.assert_close(opened.embed_texts(TEXTS).vectors[:, 0], expected)
    spec = opened.text.input_spec
    assert isinstance(spec, SubwordInput) and spec.codes([LONG])[0][0, -1] == len(codes) - 1 and spec.note == ""


def test_saved_run_feeds_texts_as_pretrained_model(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    spec = st.load(model=tiny_models.siglip_2(tmp_path / "model", "4.5x")).text.input_spec
    assert isinstance(spec, SubwordInput)
    spec.save(tmp_path / "saved")
    again = SubwordInput.load(tmp_path / "saved")
    assert again.fingerprint == spec.fingerprint and (again.codes(TEXTS)[0] == spec.codes(TEXTS)[0]).all()


def test_folder_that_names_no_padding_token_gets_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny_models.siglip_2(tmp_path, "4.5x")
    told = json.loads((folder / "tokenizer_config.json").read_text())
    for name in ("pad_token", "padding_side", "model_max_length", "added_tokens_decoder"):
        told.pop(name)
    # A class without a default.
    (folder / "tokenizer_config.json").write_text(json.dumps({**told, "tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "special_tokens_map.json").unlink()
    spec = st.load(model=folder).text.input_spec
    assert "names no padding token; '<pad>' is taken, as SigLIP 2 has it" in capsys.readouterr().err
    codes, _ = spec.codes(["a"])
    assert codes.shape == (1, 16) and codes[0, -1] == 0


def test_missing_end_token_gets_note(tmp_path: Path) -> None:
    folder = tiny_models.siglip_2(tmp_path, "5")
    rules = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**rules, "post_processor": None}))
    assert "puts no end token behind a text" in st.load(model=folder).text.input_spec.note


def test_other_family_follows_its_processor_with_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokeniser = AutoTokenizer.from_pretrained(tiny_models.clip(tmp_path))
    tokeniser.model_max_length = 512
    form, note = text_form(transformers.AlignConfig(), tokeniser, 512)
    assert form.longest == 64 and "family 'align' are not in the table" in note
    form, _ = text_form(transformers.ChineseCLIPConfig(), tokeniser, 512)
    assert form.longest == 512 and not form.full_length


def test_families_are_recognised_by_configuration_and_tokeniser(tmp_path: Path) -> None:
    (tmp_path / "gemma").mkdir()
    other = AutoTokenizer.from_pretrained(tiny_models.siglip_2(tmp_path / "gemma", "5"))
    words = AutoTokenizer.from_pretrained(tiny_models.siglip(tmp_path / "words"))
    found = [family_of(kind, other) for kind in ("clip", "siglip", "siglip2", "align")]
    assert found == ["CLIP", "SigLIP 2", "SigLIP 2 of variable size", None] and family_of("siglip", words) == "SigLIP"
    assert set(found[:3]) | {"SigLIP"} == FORMS.keys()


def test_missing_package_of_siglip_tokeniser_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ImportError("SiglipTokenizer requires the SentencePiece library")

    monkeypatch.setattr(language.AutoTokenizer, "from_pretrained", fail)
    with pytest.raises(RequirementError, match=r"needs sentencepiece and protobuf .*\[siglip\]"):
        language.tokeniser(str(tiny_models.siglip(tmp_path)), option="model")


def test_index_of_siglip_2_finds_capitals_as_small_letters(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    folder = tiny_models.siglip_2(tmp_path / "model", "4.5x")
    for name, colour in (("a", "red"), ("b", "blue")):
        Image.new("RGB", (40, 30), colour).save(tmp_path / f"{name}.png")
    rows = [{"image": f"{name}.png", "caption": f"The {name}"} for name in "ab"]
    made_data.write_rows(tmp_path / "rows.jsonl", rows)
    call("index", "build", tmp_path / "index", tmp_path / "rows.jsonl", "--model", folder, "-q")
    small, large = (st.search(tmp_path / "index", query).hits for query in ("the dog", "THE DOG"))
    assert [(hit.id, hit.score) for hit in small] == [(hit.id, hit.score) for hit in large]


def ways_in(folder: Path) -> dict[str, Path]:
    """Pictures of several forms, sizes and modes, some turned by EXIF."""
    pixels = np.random.default_rng(5).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    coarse, exif = Image.fromarray(pixels), Image.Exif()
    exif[0x0112] = 6
    made: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "small.png": (coarse.resize((20, 15)), {}),
        "large.jpg": (coarse.resize((900, 700), Image.Resampling.BICUBIC), {"quality": 90, "exif": exif}),
        "grey.png": (coarse.convert("L").resize((400, 300)), {"exif": exif}),
        "palette.gif": (coarse.convert("P").resize((300, 500)), {}),
        "print.tif": (coarse.convert("CMYK").resize((333, 222)), {}),
        "clear.webp": (coarse.convert("RGBA").resize((500, 300)), {"lossless": True, "exif": exif}),
        "deep.tif": (Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257).resize((640, 480)), {"exif": exif}),
    }
    for name, (image, options) in made.items():
        image.save(folder / name, **options)
    return {name: folder / name for name in made}


def test_every_way_in_gives_the_vector_of_the_index(tmp_path: Path) -> None:
    for name in ("model", "photos"):
        (tmp_path / name).mkdir()
    folder, files = tiny_models.siglip_2(tmp_path / "model", "4.5x"), ways_in(tmp_path / "photos")
    call("index", "build", tmp_path / "index", tmp_path / "photos", "--model", folder, "-q")
    with open_store(tmp_path / "index").reading() as view:
        stored = dict(zip(files, view.vectors_of("images", list(files))[:, 0], strict=True))
    opened = st.load(model=folder)
    for name, file in files.items():
        with Image.open(file) as lazy:
            decoded = Image.open(BytesIO(file.read_bytes()))
            decoded.load()
            found = opened.embed_images([file, str(file), file.read_bytes(), lazy, decoded]).vectors[:, 0]
        np.testing.assert_allclose(found, np.broadcast_to(stored[name], found.shape), atol=1e-6, err_msg=name)
    new = {f"new {name}": file.read_bytes() for name, file in files.items()}
    with client(tmp_path / "index") as server:
        for name, file in files.items():
            hit = server.post("/search?top=1", content=file.read_bytes(), headers={"Content-Type": "image/png"}).json()
            assert hit["hits"][0]["id"] == name and hit["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
        body = {"items": [item(name, data, "a text") for name, data in new.items()]}
        assert server.post("/add", json=body, headers=WRITES).status_code == 201
    with open_store(tmp_path / "index").reading() as view:
        added = view.vectors_of("images", list(new))[:, 0]
    np.testing.assert_allclose(added, np.stack(list(stored.values())), atol=1e-6)


def test_siglip_2_of_variable_size_is_read_as_trained(tmp_path: Path) -> None:
    for name in ("model", "photos"):
        (tmp_path / name).mkdir()
    folder, files = tiny_models.naflex(tmp_path / "model"), ways_in(tmp_path / "photos")
    opened, own = st.load(model=folder), AutoModel.from_pretrained(folder).eval()
    numbers = json.loads((folder / "processor_config.json").read_text())["image_processor"]
    processor = transformers.Siglip2ImageProcessorPil(**{k: v for k, v in numbers.items() if "_class" not in k})
    pictures = [open_image(file) for file in files.values()]
    with torch.inference_mode():
        output = own.get_image_features(**processor(pictures, return_tensors="pt"))
    images = opened.embed_images(list(files.values()))
    torch.testing.assert_close(images.vectors[:, 0], normalize(getattr(output, "pooler_output", output), dim=1))
    lower = ["".join(map(str.lower, text)) for text in TEXTS]
    torch.testing.assert_close(opened.embed_texts(TEXTS).vectors[:, 0], by_transformers(folder, lower, **FULL))
    call("index", "build", tmp_path / "index", tmp_path / "photos", "--model", folder, "-q")
    hits = st.search(tmp_path / "index", image=files["large.jpg"]).hits
    assert hits[0].id == "large.jpg" and hits[0].score == pytest.approx(1, abs=1e-5)
    spec = opened.image.input_spec
    spec.save(tmp_path)
    assert type(spec).load(tmp_path) == spec and spec.shape(1, 10_000)[0] == 1
    arguments = {"model": str(folder)}
    with pytest.raises(RequirementError, match=r"are for images of one size; .*NaFlex"):
        build("clip", {**arguments, "flip": 0.5}, context=BuildContext())
    built = build("clip", arguments, context=BuildContext()).model
    save_run(tmp_path / "run", built.eval(), Record(model="clip", arguments=arguments, status="finished"))
    again = st.load(tmp_path / "run").embed_images(list(files.values())).vectors
    torch.testing.assert_close(again, images.vectors)
    with pytest.raises(RequirementError, match=r"an export needs images of one size"):
        st.export_run(tmp_path / "run", hf=tmp_path / "hf")


def test_masked_tokens_of_full_length_leave_padding(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    spec = st.load(model=tiny_models.siglip_2(tmp_path / "model", "5")).text.input_spec
    rows = np.arange(1)
    batch = InputBatch(["a dog runs"], ["a"], rows, rows, tmp_path)
    masked = replace(spec, token_mask=0.9)(batch, Draw(seed=1, epoch=0))
    plain = spec(batch)
    assert torch.equal(masked["tokens"][~masked["mask"]], plain["tokens"][~plain["mask"]])
    assert not torch.equal(masked["tokens"], plain["tokens"])


@pytest.mark.slow
def test_onnx_graph_of_siglip_2_gives_vectors_of_the_model(tmp_path: Path) -> None:
    import onnxruntime

    (tmp_path / "model").mkdir()
    arguments = {"model": str(tiny_models.siglip_2(tmp_path / "model", "5"))}
    built = build("clip", arguments, context=BuildContext()).model
    save_run(tmp_path / "run", built.eval(), Record(model="clip", arguments=arguments, status="finished"))
    st.export_run(tmp_path / "run", onnx=tmp_path / "onnx")
    about = json.loads((tmp_path / "onnx" / "subtext.json").read_text())["text"]
    assert about["inputs"]["tokens"]["axes"] == ["items", 16] and "small letters" in about["how"]
    tokens, mask = SubwordInput.load(tmp_path / "onnx" / "assets" / "text").codes(TEXTS)
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "text.onnx")
    found = session.run(None, {"tokens": tokens, "mask": mask})[0]
    np.testing.assert_allclose(found, st.load(model=arguments["model"]).embed_texts(TEXTS).vectors, atol=1e-5)
