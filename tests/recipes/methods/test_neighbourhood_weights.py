"""Trainings that weight pairs by their neighbourhood: tables, exact resume, refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import small_training
import torch
import word_graph

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.errors import CheckpointError, DataError, RecipeError
from subtext.models.checkpoint import fingerprint, read_tensors
from subtext.models.heads.parts import Pie
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.weighting import Neighbourhood
from subtext.ops.neighbour_scores import exact_scores, neighbour_scores
from subtext.recipes.methods.combined import combined
from subtext.recipes.methods.discrepancy import discrepancy
from subtext.recipes.methods.diversity import diversity
from subtext.recipes.neighbour_scores import NeighbourBank, NeighbourScores
from subtext.recipes.options import DiscrepancyOptions, NeighbourOptions, WeightOptions
from subtext.training.plan import Plan, RunConfig
from subtext.training.setup import Setup

PLAN = Plan(epochs=3, batch_size=16, lr=1e-2, caption_sampling="one")
FIRST = RunConfig(device="cpu", workers=0)


@pytest.fixture(autouse=True)
def every_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subtext.training.journal.REPORT_EVERY", 0.0)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(word_graph.save(small_training.pairs(), tmp_path_factory.mktemp("graphs") / "words", count=6))


def made(method, plan: Plan | None = None, **options: object) -> Setup:
    """The small setup with a method; `small_training.run` gives it the plan."""
    drop = options.pop("drop_last", None)
    whole = method(small_training.setup(plan or PLAN, dropout=0.1), **options)
    return replace(whole, plan=replace(plan or PLAN, drop_last=bool(drop)))


def two_views(setup: Setup) -> Setup:
    """The same with two views of every picture and text."""
    model = setup.model
    image = Branch(model.image.input_spec, model.image.encoder, Pie(16, 16, 8, views=2, project=True))
    text = Branch(model.text.input_spec, model.text.encoder, Pie(8, 8, 8, views=2, project=True))
    return replace(setup, model=Model(image, text, Cosine()))


def tables(run: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {file.stem: read_tensors(file) for file in sorted((run / "tables").glob("*.safetensors"))}


SCORES = {diversity: ["diversity"], discrepancy: ["diversity", "discrepancy"]}
"""What a method leaves behind: diversity comes with discrepancy, which costs more and is made where it is read."""
each_method = pytest.mark.parametrize("method", SCORES, ids=lambda method: method.__name__)


@each_method
def test_tables_are_scores_of_previous_epoch_embeddings(tmp_path: Path, graph: str, method) -> None:
    """Of every caption: the bank is overwritten by the later of a picture's two, and read when the epoch ends."""
    setup = made(method, Plan(epochs=2, batch_size=16), neighbours=NeighbourOptions(graph=graph))
    seen: list[tuple[Embeddings, Embeddings]] = []
    memory_of = NeighbourScores.open

    def watched(asked, pairs, *, device):
        memory = memory_of(asked, pairs, device=device)
        plain = memory.update

        def update(images, texts):
            seen.append((images, texts))
            plain(images, texts)

        memory.update = update
        return memory

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NeighbourScores, "open", watched)
        small_training.run(tmp_path / "run", made=lambda plan: setup)
    found = tables(tmp_path / "run")
    assert set(found) == {"epoch-0002"}
    data = small_training.pairs()
    banks = {"image": torch.zeros(len(data.images), 8), "text": torch.zeros(len(data.texts), 8)}
    for images, texts in seen[: len(seen) // 2]:
        for modality, items in (("image", images), ("text", texts)):
            for row, vector in zip(items.ids.tolist(), items.vectors[:, 0], strict=True):
                banks[modality][row] = vector
    lists = torch.from_numpy(word_graph.graph(data).neighbours)
    pictures = torch.from_numpy(data.links[np.argsort(data.links[:, 1]), 0])
    for modality, bank in (("image", banks["image"][pictures]), ("text", banks["text"])):
        wanted = neighbour_scores(bank, lists)._asdict()
        for name in SCORES[method]:
            torch.testing.assert_close(found["epoch-0002"][f"{name}/{modality}"], wanted[name])
    kinds = {name.removeprefix("moments/").split("/")[0] for name in found["epoch-0002"]}
    assert kinds == set(SCORES[method])


CASES = {
    "diversity": partial(made, diversity),
    "discrepancy of now, together with chunks": partial(
        made,
        discrepancy,
        Plan(epochs=3, batch_size=16, grad_cache_chunk=5),
        comparison=DiscrepancyOptions(use_current=True),
        drop_last=True,
    ),
    "stats, fixed": partial(made, combined, mode="stats", moments="fixed"),
    "together": partial(
        made, combined, Plan(epochs=3, batch_size=16, caption_sampling="together", accumulation_steps=2)
    ),
    "half, encoded": partial(made, diversity),
}
NEAR = {"half, encoded": {"storage_dtype": "float16", "first_epoch": "encode", "bank": "evaluation", "neighbours": 3}}


@pytest.mark.parametrize("name", CASES)
def test_resumed_training_gives_equal_weights(tmp_path: Path, graph: str, name: str) -> None:
    options = NeighbourOptions(**{"graph": graph, **NEAR.get(name, {})})

    def build(plan: Plan | None) -> Setup:
        return CASES[name](neighbours=options)

    whole = small_training.run(tmp_path / "whole", made=build, noise=0.1)
    for step in (2, 5):
        part = small_training.run(
            tmp_path / "parts", made=build, options=replace(FIRST, resume=True), report=small_training.Interrupt(step)
        )
        assert part.record.status == "stopped"
    end = small_training.run(tmp_path / "parts", made=build, options=replace(FIRST, resume=True))
    assert end.record.status == "finished"
    assert fingerprint(end.model.state_dict()) == fingerprint(whole.model.state_dict())
    one, other = tables(tmp_path / "whole"), tables(tmp_path / "parts")
    assert {k: fingerprint(v) for k, v in one.items()} == {k: fingerprint(v) for k, v in other.items()}
    assert len(one) == (3 if name == "half, encoded" else 2)


@each_method
def test_two_views_use_best_pair(tmp_path: Path, graph: str, method) -> None:
    def build(plan: Plan | None) -> Setup:
        return method(
            two_views(small_training.setup(PLAN, dropout=0.0)), neighbours=NeighbourOptions(graph=graph, samples=9)
        )

    end = small_training.run(tmp_path / "run", made=build)
    found = tables(tmp_path / "run")["epoch-0003"]
    assert end.record.status == "finished"
    scores = {name.split("/")[0] for name in found if not name.startswith("moments/")}
    assert scores == set(SCORES[method])
    # One text of every picture is drawn, and the last batch left out.
    for name in scores:
        drawn = found[f"{name}/text"].isfinite().view(-1, 2).sum(dim=1)
        assert int(drawn.max()) == 1 and int(drawn.sum()) == 32


def test_weights_change_trained_model(tmp_path: Path, graph: str) -> None:
    """Against the same total on all pairs alike, which the first epoch is for either."""
    prints = {}
    for sign in (-1.0, 0.0):

        def build(plan: Plan | None, sign: float = sign) -> Setup:
            last = replace(PLAN, select="last")
            return made(diversity, last, neighbours=NeighbourOptions(graph=graph), weights=WeightOptions(sign=sign))

        done = small_training.run(tmp_path / str(sign), made=build)
        prints[sign] = fingerprint(done.model.state_dict())
        lines = (tmp_path / str(sign) / "log.jsonl").read_text().splitlines()
        prints[sign, "first"] = [line.split('"seconds"')[0].split('"pairs_per_second"')[0] for line in lines[:1]]
    assert prints[-1.0] != prints[0.0]
    assert prints[-1.0, "first"] == prints[0.0, "first"]


def test_a_text_without_embedding_uses_its_images_latest_text() -> None:
    data = small_training.pairs(10)
    lists = torch.from_numpy(word_graph.graph(data, 4).neighbours)

    memory = opened(data)
    vectors = torch.nn.functional.normalize(torch.randn(20, 1, 5), dim=-1)
    drawn = torch.arange(0, 20, 2)
    memory.on_epoch_start(epoch=0, seed=0, embed=lambda: pytest.fail("nothing is embedded"))
    assert memory.table is None
    memory.update(Embeddings(vectors[:10], torch.arange(10)), Embeddings(vectors[drawn], drawn))
    memory.on_epoch_start(epoch=1, seed=0, embed=lambda: pytest.fail("nothing is embedded"))
    assert memory.table is not None
    stand_in = vectors[torch.arange(20) // 2 * 2, 0]
    torch.testing.assert_close(memory.table["discrepancy/text"], neighbour_scores(stand_in, lists).discrepancy)
    # A half-seen epoch: pictures without an embedding leave the lists.
    part = opened(data)
    part.update(Embeddings(vectors[:5], torch.arange(5)), Embeddings(vectors[:10], torch.arange(10)))
    part.on_epoch_start(epoch=1, seed=0, embed=lambda: pytest.fail("nothing is embedded"))
    assert part.table is not None
    assert bool(part.table["discrepancy/image"][10:].isnan().all())


def opened(data: Dataset, **options: object) -> NeighbourBank:
    """A memory whose graph is made from the words of the data."""

    class Fixed:
        @staticmethod
        def load(folder: Path) -> object:
            return word_graph.graph(data, 4)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("subtext.recipes.neighbour_scores.Graph", Fixed)
        return NeighbourScores(Path("unread"), **options).open(data, device=torch.device("cpu"))


def test_pass_before_first_epoch_does_not_outlast_it() -> None:
    """Of two texts a picture the one that the first epoch draws stands in for the other, as without that pass."""
    data = small_training.pairs(10)
    vectors = torch.nn.functional.normalize(torch.randn(3, 20, 1, 5), dim=-1)
    untrained = Embeddings(vectors[0, :10], torch.arange(10)), Embeddings(vectors[1], torch.arange(20))
    drawn = torch.arange(0, 20, 2)
    step = Embeddings(vectors[2, :10], torch.arange(10)), Embeddings(vectors[2, drawn], drawn)
    tables = []
    for first in ("uniform", "encode"):
        memory = opened(data, first=first)
        memory.on_epoch_start(epoch=0, seed=0, embed=lambda: untrained)
        assert (memory.table is None) == (first == "uniform")
        memory.update(*step)
        memory.on_epoch_start(epoch=1, seed=0, embed=lambda: pytest.fail("nothing is embedded"))
        tables.append(memory.table)
    assert fingerprint(tables[0]) == fingerprint(tables[1])


def test_complete_bank_embeds_unread_texts_after_epoch() -> None:
    """One text of every image is drawn: the others are embedded after the epoch, and no sibling stands in for them."""
    data = small_training.pairs(10)
    generator = torch.Generator().manual_seed(5)
    steps, passes = torch.nn.functional.normalize(torch.randn(2, 30, 1, 5, generator=generator), dim=-1).split(1)
    steps, passes = steps[0], passes[0]
    lists = torch.from_numpy(word_graph.graph(data, 4).neighbours)
    images, unread = Embeddings(steps[:10], torch.arange(10)), []

    def embed(rows: tuple[np.ndarray, np.ndarray]) -> tuple[Embeddings, Embeddings]:
        unread.append(rows[1].tolist())
        own, texts = (torch.from_numpy(side) for side in rows)
        return Embeddings(passes[own], own), Embeddings(passes[10 + texts], texts)

    memories = [opened(data, bank="complete"), opened(data, bank="complete"), opened(data)]
    for epoch, drawn in enumerate((torch.arange(0, 20, 2), torch.arange(1, 20, 2))):
        vectors = passes[10:].clone()
        vectors[drawn] = steps[10 + drawn]
        memories[1].restore(memories[0].tensors())
        for memory in memories:
            memory.update(images, Embeddings(steps[10 + drawn], drawn))
            memory.on_epoch_start(epoch=epoch + 1, seed=0, embed=embed)
        for memory in memories[:2]:
            wanted = neighbour_scores(vectors[:, 0], lists).diversity
            torch.testing.assert_close(memory.table["diversity/text"], wanted)
        assert unread == [np.setdiff1d(np.arange(20), drawn).tolist()] * 2
        unread.clear()
        assert not torch.allclose(memories[2].table["diversity/text"], wanted), "siblings, or older texts"
    images_of = neighbour_scores(steps[:10, 0], lists, rows=torch.arange(20) // 2).diversity
    torch.testing.assert_close(memories[0].table["diversity/image"], images_of)


def test_bank_of_passes_stores_no_step_embeddings() -> None:
    data = small_training.pairs(10)
    vectors = torch.nn.functional.normalize(torch.randn(2, 20, 1, 5), dim=-1)
    each = [(Embeddings(own[:10], torch.arange(10)), Embeddings(own, torch.arange(20))) for own in vectors]
    memory = opened(data, bank="evaluation")
    memory.update(*each[0])
    memory.on_epoch_start(epoch=1, seed=0, embed=lambda: each[1])
    lists = torch.from_numpy(word_graph.graph(data, 4).neighbours)
    torch.testing.assert_close(memory.table["diversity/text"], neighbour_scores(vectors[1, :, 0], lists).diversity)
    assert not any(name.startswith("kept/") for name in memory.tensors())


@pytest.mark.parametrize("views", ["mean", "max"])
def test_scoring_only_read_pairs_gives_equal_weights(tmp_path: Path, graph: str, views: str) -> None:
    """One text of every picture is drawn: its weights are those that all scores give it, and so is what is learnt."""
    plan = replace(PLAN, caption_sampling="one")

    def build(method, tables: str, **options: object) -> Setup:
        near = NeighbourOptions(graph=graph, views=views, weight_tables=tables)
        return method(two_views(small_training.setup(plan, dropout=0.0)), neighbours=near, **options)

    small_training.run(tmp_path / "some", made=lambda plan: build(diversity, "read"))
    small_training.run(tmp_path / "all", made=lambda plan: build(diversity, "all"))
    learnt = (read_tensors(tmp_path / name / "model.safetensors") for name in ("some", "all"))
    for one, other in zip(*(weights.values() for weights in learnt), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    some, every = (tables(tmp_path / name)["epoch-0003"] for name in ("some", "all"))
    assert set(every) - set(some) == {f"moments/diversity/{whose}" for whose in ("image", "text", "both")}
    for name, scores in some.items():
        read = ~scores.isnan()
        assert int(read.view(-1, 2).sum(dim=1).max()) == 1 and int(read.sum()) == 32, "a batch of 8 is left out"
        torch.testing.assert_close(scores[read], every[name][read], rtol=1e-4, atol=1e-6)
    assert all(memory.every for memory in build(combined, "read", mode="stats").banks)


def test_last_embedding_of_repeated_item_is_kept() -> None:
    from subtext.recipes.neighbour_scores import _last

    assert _last(torch.tensor([4, 2, 4, 7, 2, 4]), 8).tolist() == [5, 4, 5, 3, 4, 5]


def test_exact_scores_are_used_without_samples() -> None:
    data = small_training.pairs(12)
    bank = torch.nn.functional.normalize(torch.randn(24, 2, 4), dim=-1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "subtext.recipes.neighbour_scores.Graph",
            type("G", (), {"load": staticmethod(lambda f: word_graph.graph(data, 4))}),
        )
        memory = NeighbourScores(Path("unread"), samples=0, neighbours=3).open(data, device=torch.device("cpu"))
    memory.update(Embeddings(bank[:12], torch.arange(12)), Embeddings(bank, torch.arange(24)))
    memory.on_epoch_start(epoch=1, seed=0, embed=lambda: pytest.fail("nothing is embedded"))
    assert memory.table is not None
    wanted = exact_scores(bank, torch.from_numpy(word_graph.graph(data, 4).neighbours[:, :3].copy()))
    torch.testing.assert_close(memory.table["diversity/text"], wanted.diversity)
    torch.testing.assert_close(memory.table["discrepancy/text"], wanted.discrepancy)


def test_mean_of_views_is_stored_when_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a checkpoint that has every view, as they had before."""
    data = small_training.pairs(12)
    bank = torch.nn.functional.normalize(torch.randn(24, 3, 4), dim=-1)
    monkeypatch.setattr("subtext.recipes.neighbour_scores.Graph.load", lambda folder: word_graph.graph(data, 4))
    asked = NeighbourScores(Path("unread"), views="mean", neighbours=3, storage="float16")
    first, later = (asked.open(data, device=torch.device("cpu")) for _ in range(2))
    first.update(Embeddings(bank[:12], torch.arange(12)), Embeddings(bank, torch.arange(24)))
    kept = first.tensors()
    torch.testing.assert_close(kept["kept/text"], bank.mean(dim=1, keepdim=True).half())
    later.restore({**kept, "kept/image": bank[:12].half(), "kept/text": bank.half()})
    for memory in (first, later):
        memory.on_epoch_start(epoch=1, seed=0, embed=lambda: pytest.fail("nothing is embedded"))
    assert first.table is not None
    assert later.table is not None
    assert later.tensors()["kept/text"].dtype == torch.float16
    torch.testing.assert_close(later.table["diversity/text"], first.table["diversity/text"], rtol=0, atol=2e-3)


def test_first_epoch_without_weights_gives_note(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_training.pairs(12)
    monkeypatch.setattr("subtext.recipes.neighbour_scores.Graph.load", lambda folder: word_graph.graph(data, 4))
    late, whole = (
        NeighbourScores(Path("unread"), first=first, neighbours=3).open(data, device=torch.device("cpu")).notes
        for first in ("uniform", "encode")
    )
    assert [note for note in late if note not in whole] == [
        "weights begin with the second epoch; first=encode has them in the first, too"
    ]


def test_resume_with_another_graph_raises(tmp_path: Path) -> None:
    folder = tmp_path / "words"
    word_graph.save(small_training.pairs(), folder)

    def build(plan: Plan | None) -> Setup:
        return made(diversity, neighbours=NeighbourOptions(graph=str(folder)))

    small_training.run(tmp_path / "run", made=build, report=small_training.Interrupt(2))
    for file in folder.iterdir():
        file.unlink()
    word_graph.save(small_training.pairs(), folder, count=3)
    with pytest.raises(CheckpointError, match="how images and texts are read"):
        small_training.run(tmp_path / "run", made=build, options=replace(FIRST, resume=True))


def test_bad_graphs_raise_before_writing(tmp_path: Path, graph: str) -> None:
    other = word_graph.save(small_training.pairs(20, "other"), tmp_path / "other")
    for options, message in (
        (NeighbourOptions(graph=str(other)), "this graph was built for other data: it knows 0 of 80"),
        (NeighbourOptions(graph=graph, neighbours=9), "neighbours=9 needs a graph of as many; .* has 6"),
        (NeighbourOptions(graph=str(tmp_path / "none")), "is not there"),
    ):
        with pytest.raises(DataError, match=message):
            small_training.run(tmp_path / "run", made=lambda plan, o=options: made(diversity, neighbours=o))
    few = word_graph.save(small_training.pairs(3), tmp_path / "few", count=4)
    with pytest.raises(DataError, match=r"scores of 4 neighbours need more than 4 texts; it got 4"):
        NeighbourScores(few).open(small_training.pairs(2), device=torch.device("cpu"))
    assert not (tmp_path / "run").exists()


def test_options_unusable_by_model_raise(graph: str) -> None:
    plain = small_training.setup(PLAN)
    here = NeighbourOptions(graph=graph)
    for make, message in (
        (lambda: diversity(plain), "diversity needs graph=FOLDER"),
        (lambda: diversity(plain, neighbours=replace(here, views="mean")), "views needs a model with several views"),
        (lambda: combined(plain, neighbours=replace(here, samples=5)), "samples needs a model with several views"),
        (
            lambda: discrepancy(
                two_views(plain), neighbours=here, comparison=DiscrepancyOptions(second_order="unique")
            ),
            "second_order=unique needs views=mean or aligned",
        ),
        (
            lambda: discrepancy(two_views(plain), neighbours=here, comparison=DiscrepancyOptions(use_current=True)),
            "use_current=True needs views=mean or aligned",
        ),
        (
            lambda: discrepancy(diversity(plain, neighbours=here), neighbours=here),
            "weights a loss that has no weights yet",
        ),
        (
            lambda: diversity(small_training.setup_with_parts(), neighbours=here),
            "needs a model whose items are vectors; BestWord",
        ),
    ):
        with pytest.raises(RecipeError, match=message):
            make()


def test_both_directions_get_equal_weights(graph: str) -> None:
    terms = combined(small_training.setup(PLAN), mode="stats", neighbours=NeighbourOptions(graph=graph)).objective.parts
    weightings = [term.weighting for term in terms.values()]
    assert [one.direction for one in weightings] == ["image_to_text", "text_to_image"]
    assert replace(weightings[0], direction="text_to_image") == weightings[1]
    assert isinstance(weightings[0], Neighbourhood) and weightings[0].statistics == "pooled"
    assert (weightings[0].combine, weightings[0].total, weightings[0].batch) == ("mean", 196.0, 32)
    assert [term.weight for term in terms.values()] == [0.5, 0.25]


def test_small_total_weight_gives_note(tmp_path: Path, graph: str) -> None:
    said = []
    for common in (
        WeightOptions(total_weight=20.0),
        WeightOptions(total_weight=20.0, reference_batch=0),
        WeightOptions(total_weight=12.0, reference_batch=0),
    ):
        done = small_training.run(
            tmp_path / f"run{len(said)}",
            made=lambda plan, c=common: made(
                diversity, replace(PLAN, epochs=1), neighbours=NeighbourOptions(graph=graph), weights=c
            ),
        )
        said.append([note for note in done.notes if "lambda" in note])
    assert [len(notes) for notes in said] == [1, 0, 1]
    assert "sum to 10 over a batch of 16 pairs" in said[0][0]
