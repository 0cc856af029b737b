"""AsCL's loss and its generated texts (card B4): golden values, and what each kind of noise does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import small_training
import torch
from regions_and_words import card_items, det, of_parts, random_pairs

from subtext.core import Comparison, Embeddings, Epoch, Origin, Scene, Truth
from subtext.data.batches import item_batch
from subtext.data.dataset import Dataset
from subtext.data.inputs import Draw
from subtext.data.text import END, START, Vocabulary, WordInput
from subtext.errors import DataError, RequirementError
from subtext.models.similarity.ascl import Ascl
from subtext.models.similarity.cross_attention import Chan, CrossAttention
from subtext.objectives import generation
from subtext.objectives.generation import (
    KINDS,
    Rates,
    add_noise,
    join_texts,
    sample_noise,
    shorten_text,
    shuffle_tokens,
)
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.losses.listwise import Listwise
from subtext.objectives.losses.ratio import Ratio
from subtext.objectives.objective import Term
from subtext.objectives.scene import add_negatives, compose
from subtext.recipes.methods.asymmetry.rewriting import REWRITTEN, TEXT, Noise, Rewriting, noisy

pytestmark = pytest.mark.golden


class Given(torch.nn.Module):
    """Scores that are there: of the batch's own texts, then of those whose ids are 100 and more."""

    def forward(self, images: Embeddings, texts: Embeddings) -> torch.Tensor:
        made = bool((texts.ids >= 100).all())
        return 0.5 * det((3, 3), 1.9 if made else 0.3) / 0.05


def card_scene(*, outscoring: bool = False) -> Scene:
    items = of_parts(torch.zeros(3, 2, 4, dtype=torch.float64))
    wrong = Embeddings(items.vectors, items.ids + 100, parts=items.parts)
    base = compose(Given(), items, items, torch.arange(3), positives="pair")
    both = add_negatives(Given(), base.image_to_text, wrong, outscoring=outscoring)
    return Scene(base.image_to_text, base.text_to_image, edited={"image_to_noised": both})


def total(scene: Scene, loss: object, on: str) -> float:
    names = (on, "text_to_image")
    return sum(float(Term(loss, on=name)(scene, Epoch(0, 0))) for name in names)


def test_losses_equal_worked_example() -> None:
    scene = card_scene()
    assert total(scene, InfoNCE(), "image_to_noised") == pytest.approx(12.996193589993, abs=1e-11)
    assert total(scene, InfoNCE(), "image_to_text") == pytest.approx(12.996190425328, abs=1e-11)
    # The card's ratios are those with generated texts; the loss is 1 less each.
    assert 2 - total(scene, Ratio(), "image_to_noised") == pytest.approx(0.338775873269, abs=1e-11)


def test_outscoring_mask_equals_worked_example() -> None:
    made = card_scene().comparison("image_to_noised")
    assert made.origin.tolist() == [Origin.PAIR] * 3 + [Origin.GENERATED] * 3
    assert (~made.truth.ignored[:, 3:]).int().tolist() == [[0, 0, 1], [1, 1, 1], [0, 0, 0]]
    assert not made.truth.match[:, 3:].any() and torch.equal(made.truth.match[:, :3], torch.eye(3, dtype=torch.bool))
    assert not card_scene(outscoring=True).comparison("image_to_noised").truth.ignored[:, 3:].any()


def test_loss_equals_plain_loop() -> None:
    scores, wrong = 0.5 * det((3, 3), 0.3), 0.5 * det((3, 3), 1.9)
    value = 0.0
    for i in range(3):
        own = torch.exp(scores[i, i] / 0.05)
        columns = sum(torch.exp(scores[k, i] / 0.05) for k in range(3))
        row = sum(torch.exp(scores[i, k] / 0.05) for k in range(3))
        row = row + sum(torch.exp(wrong[i, n] / 0.05) for n in range(3) if wrong[i, n] <= scores[i, i])
        value += float(-torch.log(own / columns) - torch.log(own / row)) / 3
    assert total(card_scene(), InfoNCE(), "image_to_noised") == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(
    "similarity", [Ascl(width=4, heads=2), CrossAttention(), Chan()], ids=lambda s: type(s).__name__
)
def test_score_is_invariant_to_word_vector_order(similarity: torch.nn.Module) -> None:
    """Why shuffling acts on words before they are read: here a shuffled text is its own copy (card B4.2)."""
    similarity = similarity.double().eval()
    images, texts = card_items()
    kinds, seeds = np.full(3, KINDS.index("shuffle")), np.arange(3)
    moved = add_noise(texts.parts, texts.mask, kinds, seeds)
    assert not torch.equal(moved, texts.parts)
    again = Embeddings(texts.vectors, texts.ids, parts=moved, mask=texts.mask)
    torch.testing.assert_close(similarity(images, again), similarity(images, texts), atol=1e-12, rtol=0)


def words(count: int = 4, places: int = 6, width: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    parts = 2 + 0.1 * torch.randn(count, places, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.arange(places) < torch.tensor([6, 4, 3, 1])[:count, None]
    return parts.masked_fill(~mask[..., None], 9.0), mask


@pytest.mark.parametrize("kind", KINDS)
def test_each_noise_kind_changes_words_as_documented(kind: generation.Kind) -> None:
    parts, mask = words()
    found = add_noise(parts, mask, np.full(4, KINDS.index(kind)), np.arange(4) + 7)
    changed = found != parts
    zeros, spreads = [], []
    for row, length in enumerate([6, 4, 3, 1]):
        own, others = found[row, :length], parts[row, :length]
        if kind == "gaussian":
            assert changed[row, :length].all()
            spreads.append((own - others).flatten() / others.square().mean().sqrt())
        elif kind == "shuffle":
            assert torch.equal(own.sort(dim=0).values, others.sort(dim=0).values)
            assert torch.equal(own, others) == (length == 1)
        elif kind == "token_cutoff":
            zero = (own == 0).all(dim=1)
            assert int(zero.sum()) == max(1, round(0.15 * length)) and torch.equal(own[~zero], others[~zero])
        elif kind == "feature_cutoff":
            zero = (own == 0).all(dim=0)
            assert int(zero.sum()) == 4 and torch.equal(own[:, ~zero], others[:, ~zero])
        else:
            zero = own == 0
            zeros.append(zero.flatten())
            assert torch.equal(own[~zero], others[~zero])
    if kind == "gaussian":
        assert float(torch.cat(spreads).std()) == pytest.approx(0.1, abs=0.02)
    if kind == "dropout":
        assert float(torch.cat(zeros).double().mean()) == pytest.approx(0.2, abs=0.08)


def test_gaussian_noise_is_seeded_by_text() -> None:
    parts, mask = words()
    found = add_noise(parts, mask, np.zeros(4, int), np.arange(4) + 7, Rates(gaussian=0.3))
    for row, length in enumerate([6, 4, 3, 1]):
        numbers = torch.randn(length, 20, generator=torch.Generator().manual_seed(row + 7))
        own = parts[row, :length]
        torch.testing.assert_close(found[row, :length], own + 0.3 * own.square().mean().sqrt() * numbers.double())


def test_noise_depends_on_text_alone_and_passes_gradient() -> None:
    parts, mask = words()
    kinds, seeds = np.array([0, 2, 3, 4]), np.array([5, 6, 7, 8])
    whole = add_noise(parts, mask, kinds, seeds)
    alone = add_noise(parts[2:3, :3], None, kinds[2:3], seeds[2:3])
    assert torch.equal(alone[0], whole[2, :3])
    learning = parts.clone().requires_grad_()
    add_noise(learning, mask, kinds, seeds).sum().backward()
    assert torch.equal(learning.grad[0], torch.ones(6, 20, dtype=torch.float64))
    assert sorted(set(learning.grad[1].flatten().tolist())) == [0, 1]


def test_mixture_samples_four_noise_kinds_equally() -> None:
    keys = np.arange(4000)
    kinds, _ = sample_noise(keys, "mixture", seed=1, epoch=2, purpose="noise")
    shares = np.bincount(kinds, minlength=5) / 4000
    assert shares[[0, 1, 4]] == pytest.approx([0.25] * 3, abs=0.03) and shares[[2, 3]] == pytest.approx(
        [0.125] * 2, abs=0.03
    )
    assert set(sample_noise(keys, "cutoff", seed=1, epoch=2, purpose="noise")[0]) == {2, 3}
    for kind in KINDS:
        assert set(sample_noise(keys[:9], kind, seed=1, epoch=2, purpose="noise")[0]) == {KINDS.index(kind)}
    again, _ = sample_noise(keys[::-1].copy(), "mixture", seed=1, epoch=2, purpose="noise")
    assert np.array_equal(again[::-1], kinds)


def test_shuffled_tokens_keep_marks() -> None:
    tokens = torch.tensor([[START, 5, 6, 7, END, 0], [START, 5, 5, END, 0, 0], [START, 5, END, 0, 0, 0]])
    movable = tokens > END
    for seed in range(20):
        found = shuffle_tokens(tokens, movable, np.full(3, seed))
        assert torch.equal(found[~movable], tokens[~movable])
        assert sorted(found[0, 1:4].tolist()) == [5, 6, 7] and found[0, 1:4].tolist() != [5, 6, 7]
        assert torch.equal(found[1:], tokens[1:])


def test_texts_are_joined_and_shortened() -> None:
    assert join_texts("a dog", " runs on ice ") == "a dog runs on ice"
    text = "one two three four five six seven eight nine ten"
    assert [len(shorten_text(text, drawn).split()) for drawn in (0.0, 0.5, 0.999)] == [5, 7, 9]
    assert all(text.startswith(shorten_text(text, drawn)) for drawn in (0.0, 0.3, 0.9))
    assert shorten_text("a red dog", 0.0) == "a red dog" and shorten_text("a red dog runs", 0.0) == "a red dog"


def pairs() -> Dataset:
    return small_training.pairs(6, captions=3)


DRAW = Draw(seed=3, epoch=1)


def test_generated_positives_come_from_same_image() -> None:
    data = pairs()
    values = data.texts.values
    for kind in ("long", "short", "mixed"):
        found = Rewriting(positives=kind).open(data).rewritten(data.links, DRAW)
        long = 0
        for (image, text), made in zip(data.links.tolist(), found, strict=True):
            own = str(values[text])
            others = [str(values[t]) for i, t in data.links.tolist() if i == image and t != text]
            if made in [f"{own.strip()} {other.strip()}" for other in others]:
                long += 1
            else:
                assert own.split()[: len(made.split())] == made.split() and kind != "long"
        assert {"long": long == 18, "short": long == 0, "mixed": 3 < long < 15}[kind]
    any_two = Rewriting(positives="long", concatenate="any").open(data).rewritten(data.links, DRAW)
    own_first = [made.startswith(values[text]) for (_, text), made in zip(data.links.tolist(), any_two, strict=True)]
    assert not all(own_first)


def test_single_caption_is_kept_with_note() -> None:
    data = small_training.pairs(4, captions=1)
    made = Rewriting(positives="long").open(data)
    assert made.rewritten(data.links, DRAW) == list(data.texts.values)
    assert made.notes(small_training.setup().model) == [
        "4 images with one text: there is no other to make it longer by, and it stays"
    ]
    assert Rewriting(positives="short").open(data).notes(small_training.setup().model) == []


def test_batch_contains_rewritten_texts_and_noise() -> None:
    data = pairs()
    input_spec = WordInput(Vocabulary.build([str(value) for value in data.texts.values]))
    texts = input_spec(item_batch(data.texts, data.links[:, 1], data.root))
    rewriter = Rewriting().open(data)
    made = rewriter.rewrite(input_spec, data.links, texts, DRAW)
    assert set(made.items) == {REWRITTEN, "shuffled text", "shuffled rewritten"} and set(made.noise) == {
        TEXT,
        REWRITTEN,
    }
    again = made.noise[TEXT].again
    assert (made.noise[TEXT].kinds[again] == generation.SHUFFLE).all() and 0 < len(again) < 18
    assert torch.equal(
        made.items["shuffled text"][1]["tokens"].sort(1).values, texts["tokens"][torch.from_numpy(again)].sort(1).values
    )
    part = rewriter.rewrite(
        input_spec, data.links[4:9], input_spec(item_batch(data.texts, data.links[4:9, 1], data.root)), DRAW
    )
    assert np.array_equal(part.noise[TEXT].seeds, made.noise[TEXT].seeds[4:9])
    literal = Rewriting(shuffle_at="embedding").open(data).rewrite(input_spec, data.links, texts, DRAW)
    assert set(literal.items) == {REWRITTEN}
    assert not Rewriting(negatives="none").open(data).rewrite(input_spec, data.links, texts, DRAW).noise


def test_re_encoded_texts_replace_original_rows() -> None:
    _, texts, _ = random_pairs()
    fresh = Embeddings(texts.vectors[:2], texts.ids[:2], parts=texts.parts[:2, :2] + 1, mask=texts.mask[:2, :2])
    noise = Noise(np.full(7, generation.SHUFFLE), np.arange(7), np.array([1, 4]))
    made = noisy(texts, noise, fresh, Rewriting())
    assert torch.equal(made.parts[1, :2], fresh.parts[0]) and torch.equal(made.parts[4, :2], fresh.parts[1])
    assert made.vectors.norm(dim=2) == pytest.approx(torch.ones(7, 1))
    unit = noisy(
        texts, Noise(np.zeros(7, dtype=np.int64), np.arange(7), np.empty(0, np.int64)), None, Rewriting(unit_parts=True)
    )
    assert unit.parts.norm(dim=2) == pytest.approx(torch.ones(7, 5))


def test_invalid_rewriting_raises() -> None:
    data = pairs()
    featured = replace(data, texts=replace(data.texts, values=[None, *data.texts.values[1:]]))
    with pytest.raises(DataError, match="rewritten by their words; 1 text of 18 is known by features alone"):
        Rewriting().open(featured)
    bare = Embeddings(torch.ones(2, 1, 3), torch.arange(2))
    noise = Noise(np.zeros(2, dtype=np.int64), np.arange(2), np.empty(0, np.int64))
    with pytest.raises(RequirementError, match="noise on word vectors needs texts with words in the joint space"):
        noisy(bare, noise, None, Rewriting())
    with pytest.raises(RequirementError, match=r"shares in \[0, 1\]; it got gaussian=0.1, tokens=2"):
        Rates(tokens=2.0)
    scene = card_scene()
    alone = scene.image_to_text.__class__(scene.image_to_text.scores, scene.image_to_text.truth)
    with pytest.raises(RequirementError, match="additional negatives need the embeddings of the queries"):
        add_negatives(Given(), alone, bare)


def test_listwise_loss_equals_kl_divergence_from_teacher() -> None:
    """Listwise against torch's own divergence, and zero where both agree."""
    g = torch.Generator().manual_seed(0)
    scores, teacher = (torch.randn(4, 6, generator=g, dtype=torch.float64) for _ in range(2))
    truth = Truth(torch.eye(4, 6, dtype=torch.bool), relevance=teacher, scale="teacher")
    wanted = torch.nn.functional.kl_div(
        (scores / 0.5).log_softmax(1), teacher.log_softmax(1), reduction="none", log_target=True
    )
    torch.testing.assert_close(Listwise(0.5)(Comparison(scores, truth)), wanted.sum(1))
    assert Listwise()(Comparison(teacher + 3, truth)).abs().max() < 1e-12
