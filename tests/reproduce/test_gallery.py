"""The page that shows two runs side by side, and which neighbours each has pulled together."""

from __future__ import annotations

from pathlib import Path

import coloured_images
import numpy as np
import pytest
import small_training
import torch
import word_graph
from command import call
from scenes import random_items

from reproduce.gallery.page import neighbour_pairs
from subtext.core import Embeddings
from subtext.errors import DataError
from subtext.models.similarity.cosine import Cosine


def test_pairs_pulled_together_by_a_run_stand_out() -> None:
    """One run is the other with two texts, neighbours of each other, put at one place."""
    pairs = small_training.pairs(12)
    graph = word_graph.graph(pairs, 3)
    texts = random_items(24, views=1)
    left, right = 4, int(graph.neighbours[4, 0])
    moved = texts.vectors.clone()
    moved[right] = moved[left]
    found = neighbour_pairs(graph, [(Cosine(), texts), (Cosine(), Embeddings(moved, texts.ids))], count=500)
    assert len(np.unique(np.sort(np.stack([found.first, found.second]), axis=0), axis=1).T) == len(found.first)
    assert all(
        b in graph.neighbours[a] or a in graph.neighbours[b] for a, b in zip(found.first, found.second, strict=True)
    )
    ratio = found.ratio(1)
    best = int(np.argmin(ratio))
    others = [place for place in range(len(ratio)) if right not in (found.first[place], found.second[place])]
    assert {int(found.first[best]), int(found.second[best])} == {left, right}
    assert np.allclose(ratio[others], 1) and ratio[best] < 1e-5
    few = neighbour_pairs(graph, [(Cosine(), texts)] * 2, count=7, seed=1)
    assert len(few.first) == 7
    assert few.distance[0].tolist() == few.distance[1].tolist() and (few.ratio(0) == 1).all()


def test_images_of_neighbouring_texts_are_pairs() -> None:
    """Two texts a picture; a picture is no neighbour of itself, and one run puts two of them at one place."""
    pairs = small_training.pairs(12)
    graph, images = word_graph.graph(pairs, 3), random_items(12, views=1)
    owners = np.arange(24) // 2
    owners[5] = -1
    wanted = {
        (min(owners[a], owners[b]), max(owners[a], owners[b]))
        for a, row in enumerate(graph.neighbours)
        for b in row
        if b >= 0 and owners[a] >= 0 and owners[b] >= 0 and owners[a] != owners[b]
    }
    left, right = sorted(wanted)[0]
    moved = images.vectors.clone()
    moved[right] = moved[left]
    runs = [(Cosine(), images), (Cosine(), Embeddings(moved, images.ids))]
    found = neighbour_pairs(graph, runs, images=owners, count=500)
    assert set(zip(found.first.tolist(), found.second.tolist(), strict=True)) == wanted
    ratio, still = found.ratio(1), (found.first != right) & (found.second != right)
    assert ratio[(found.first == left) & (found.second == right)] < ratio[still].min()
    with pytest.raises(DataError, match="among these texts of different images"):
        neighbour_pairs(graph, runs, images=np.zeros(24, dtype=np.int64))


@pytest.mark.identity
def test_ratio_is_of_the_distances_of_unit_vectors() -> None:
    """As in figure 5 of Thomas and Kovashka (2020); a space that is squeezed by 0.6 has every ratio at 0.6."""
    pairs = small_training.pairs(12)
    texts = random_items(24, views=1)
    one = torch.nn.functional.normalize(texts.vectors, dim=-1)
    zeros = torch.zeros(24, 1, 1, dtype=torch.float64)
    wide = Embeddings(torch.cat([one, zeros], dim=2), texts.ids)
    squeezed = Embeddings(torch.cat([0.6 * one, zeros + 0.8], dim=2), texts.ids)
    found = neighbour_pairs(word_graph.graph(pairs, 3), [(Cosine(), wide), (Cosine(), squeezed)])
    rows = one[:, 0].numpy()
    np.testing.assert_allclose(
        found.distance[0], np.linalg.norm(rows[found.first] - rows[found.second], axis=1), atol=1e-6
    )
    np.testing.assert_allclose(found.ratio(1), 0.6, atol=1e-5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    folder = tmp_path_factory.mktemp("gallery")
    data = coloured_images.write(folder / "data")
    return data, [coloured_images.run(data, folder / name, seed=seed) for seed, name in enumerate(("plain", "ours"))]


def test_gallery_page_shows_two_runs(runs: tuple[Path, list[Path]], tmp_path: Path) -> None:
    data, (first, second) = runs
    graph, page = tmp_path / "graph", tmp_path / "page.html"
    build = ["neighbours", "build", graph, "--data", data, "--space", "lsa", "--dim", 4, "--neighbours", 3, "-q"]
    call(*build, "--split", "train")
    words = ["gallery", "compare", first, second, "--out", page, "--split", "train", "-q", "--count", 2]
    told = call(*words, "--graph", graph, "--word", "green", "--top", 3).output
    assert told.strip() == f"{page}: plain and ours on the split train"
    html = page.read_text()
    for part in ("“green”", "Words to images", "Images to texts", "plain beside ours", "--columns:2"):
        assert part in html
    for what in ("texts", "images"):
        assert html.count(f"has moved closest: {what}") == 2
    assert html.count("data:image/") >= 2 * 3 + 2 * 2 + 2 * 2 * 3 * 2
    assert "http" not in html.replace("http-equiv", "")
    again = tmp_path / "again.html"
    call(*words[:4], "--out", again, *words[6:])
    assert again.read_text() != html
    assert "has moved closest" not in again.read_text()


def test_word_is_searched_in_every_text_of_an_image(runs: tuple[Path, list[Path]], tmp_path: Path) -> None:
    _, (first, second) = runs
    page = tmp_path / "page.html"
    words = ["gallery", "compare", first, second, "--out", page, "--split", "train", "-q", "--count", 1, "--top", 3]
    call(*words, "--word", "quadrat", "--word", "zebra")
    by_word = page.read_text().partition("Images to texts")[0]
    assert by_word.count('class="right"') == by_word.count('title">ein Quadrat, ') == 2 * 3
    assert by_word.count(" square</span>") == 2 * 3


def test_sampled_words_are_in_vocabulary_of_both_runs(runs: tuple[Path, list[Path]], tmp_path: Path) -> None:
    """Purple and brown stand in the validation split alone."""
    _, (first, second) = runs
    page = tmp_path / "page.html"
    call("gallery", "compare", first, second, "--out", page, "--split", "val", "-q", "--count", 5)
    by_word = page.read_text().partition("Images to texts")[0]
    assert "“square”" in by_word and "“purple”" not in by_word and "“brown”" not in by_word


def test_invalid_arguments_raise(runs: tuple[Path, list[Path]], tmp_path: Path) -> None:
    data, (first, second) = runs
    other = coloured_images.run(coloured_images.write(tmp_path / "data"), tmp_path / "other")
    (tmp_path / "data" / "metadata.jsonl").write_text(
        (data / "metadata.jsonl").read_text().replace("a red square", "a crimson square")
    )
    words = ["--out", tmp_path / "page.html", "--split", "train", "-q"]
    assert "compared on the same pairs" in call("gallery", "compare", first, other, *words, code=1).output
    graph = word_graph.save(small_training.pairs(12), tmp_path / "graph")
    told = call("gallery", "compare", first, second, *words, "--graph", graph, code=1).output
    assert "built for other data" in told
    assert not (tmp_path / "page.html").exists()
