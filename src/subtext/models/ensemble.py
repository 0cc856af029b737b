"""Ensemble: several models of the same items as one model, which scores a pair by the mean of their scores.

SGRAF (Diao et al. 2021) is published so: one model with SAF and one with SGR, trained separately. The members'
embeddings of an item stand side by side in its Embeddings, so that whatever takes a model takes an ensemble.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.data.features import FeatureInput
from subtext.data.inputs import Input, SeveralInputs, Tensors
from subtext.errors import RecipeError, ShapeError
from subtext.models.heads.gaussian import Gaussian
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine

MEMBERS = "members"
"""Folder of the members' assets, inside a modality's assets: one folder a member, by number."""


def build_ensemble(models: Sequence[Model]) -> Model:
    """Join models into one that scores a pair by the mean of their scores; nothing is rescaled.

    Where all members compare plain vectors by cosine, so does the ensemble, and it can fill an index: it joins the
    members' vectors, each times the root of its share of the sum of scales. Its cosine is then the mean of the scores,
    without shifts, over the mean scale. Such members may read texts differently: one by words, another by subwords.

    Args:
        models: Two or more.

    Returns:
        The ensemble, in eval mode, on the device of the first model.

    Raises:
        RecipeError: If there are fewer than two models, if they read other inputs than the first (other features or
            pixels; where pairs are compared part by part, another vocabulary or longest text), and if items are
            distributions.
    """
    if len(models) < 2:
        raise RecipeError(f"an ensemble needs two models or more; it got {len(models)}; name another")
    similarities = [model.similarity for model in models]
    cosines = [similarity for similarity in similarities if isinstance(similarity, Cosine)]
    specs: dict[str, Input] = {}
    for side in ("image", "text"):
        first, *following = (getattr(model, side) for model in models)
        specs[side] = first.input_spec
        for number, branch in enumerate(following, start=2):
            spec, other = first.input_spec, branch.input_spec
            if isinstance(spec, FeatureInput) and isinstance(other, FeatureInput) and None in (spec.file, other.file):
                spec, other = replace(spec, file=None), replace(other, file=None)
            if type(spec) is type(other) and spec.fingerprint == other.fingerprint:
                continue
            if side == "text" and len(cosines) == len(models) and not {FeatureInput} & {type(spec), type(other)}:
                specs[side] = SeveralInputs(tuple(model.text.input_spec for model in models))
            else:
                raise RecipeError(
                    f"an ensemble needs models with the same inputs; model {number} reads {side}s in another way than "
                    "the first (another vocabulary, longest text, feature file or image size); train them on the same "
                    "data with the same options of reading"
                )
        if any(isinstance(branch.head, Gaussian) for branch in (first, *following)):
            raise RecipeError(
                "an ensemble needs items that are vectors or parts; those of a probabilistic model are distributions; "
                "average its scores outside (evaluate --scores)"
            )
    images, texts = [model.image for model in models], [model.text for model in models]
    device = next(models[0].parameters()).device
    if len(cosines) == len(models):
        scales = torch.tensor([torch.as_tensor(similarity.scale).item() for similarity in cosines])
        factors: Tensor | None = (scales / scales.sum()).sqrt()
        similarity: nn.Module = Cosine()
    else:
        factors, similarity = None, MeanSimilarity(similarities)
    image, text = (
        Branch(specs[name], Members(side, specs[name]), ConcatEmbeddings(factors))
        for name, side in (("image", images), ("text", texts))
    )
    return Model(image, text, similarity).to(device).eval()


class Members(nn.Module):
    """The branches of one modality as one encoder, whose output is the Embeddings of every member.

    Args:
        branches: Branches of the members, in order.
        input_spec: Input of all of them together.
    """

    def __init__(self, branches: Sequence[Branch], input_spec: Input) -> None:
        super().__init__()
        self.members = nn.ModuleList(branches)
        self.input_spec = input_spec

    def forward(self, inputs: Tensors) -> list[Embeddings]:
        """Each member's embeddings of the items.

        Args:
            inputs: Tensors by name.

        Returns:
            Embeddings of N items, one per member.
        """
        spec = self.input_spec
        return [
            member(spec.of(number, inputs) if isinstance(spec, SeveralInputs) else inputs)
            for number, member in enumerate(self.members)
        ]

    def save_assets(self, folder: Path) -> None:
        """Write the assets of every member, each in its own folder.

        Args:
            folder: An existing folder.
        """
        for number, member in enumerate(self.members):
            assert isinstance(member, Branch)
            member_folder = folder / MEMBERS / str(number)
            member_folder.mkdir(parents=True)
            member.save_assets(member_folder)


class ConcatEmbeddings(nn.Module):
    """Several models' vectors and parts of an item, side by side: the first D numbers are the first model's.

    Args:
        factors: (M) factor of each model's vectors, which then may differ in width, and parts are left out; None for
            vectors and parts as they are.

    Raises:
        ShapeError: If members have several vectors per item, or vectors or parts of other shapes.
    """

    def __init__(self, factors: Float[Tensor, "m"] | None = None) -> None:
        super().__init__()
        self.factors: Tensor | None
        self.register_buffer("factors", factors)

    def forward(self, members: list[Embeddings], ids: Int[Tensor, "n"]) -> Embeddings:
        """The joined embeddings of items.

        Args:
            members: Embeddings of the same items, one per member, of one vector per item; without factors of one width
                D.
            ids: (N) The id of each item.

        Returns:
            Embeddings with vectors (N 1 M*D); without factors also parts (N P M*D) and their mask.

        Raises:
            ShapeError: If a member has several vectors per item.
        """
        if view_counts := [member.views for member in members if member.views != 1]:
            raise ShapeError(f"an ensemble needs models of one vector an item; one gives {view_counts[0]}; join others")
        if self.factors is not None:
            vectors = [member.vectors * factor for member, factor in zip(members, self.factors, strict=True)]
            return Embeddings(torch.cat(vectors, dim=2), ids)
        vectors = [member.vectors for member in members]
        _require_alike("vectors", vectors)
        _require_alike("parts", [member.parts for member in members])
        _require_alike("masks", [member.mask for member in members])
        parts = [member.parts for member in members if member.parts is not None]
        joined = torch.cat(parts, dim=2) if parts else None
        return Embeddings(torch.cat(vectors, dim=2), ids, parts=joined, mask=members[0].mask)


class MeanSimilarity(nn.Module):
    """Mean of similarities (SGRAF, Diao et al. 2021, section 4.1).

    score = sum over m of score_m / M, each of the member's own columns (`ConcatEmbeddings`)

    Args:
        similarities: Similarities of the members, in order.

    Complexity:
        That of all members.
    """

    indexable = False

    def __init__(self, similarities: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(similarities)

    def forward(
        self, images: Embeddings, texts: Embeddings, prepared: tuple[tuple[Any, ...], ...] | None = None
    ) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        Args:
            images: As `ConcatEmbeddings` returns them.
            texts: Likewise.
            prepared: The result of `prepare` for these images.

        Returns:
            (I T) scores, on the scale of the members'; each member scores to the bit as it does alone.
        """
        count = len(self.members)
        sides = zip(self.members, _apart(images, count), _apart(texts, count), prepared or ((),) * count, strict=True)
        return torch.stack([member(rows, columns, *terms) for member, rows, columns, terms in sides]).sum(dim=0) / count

    def prepare(self, images: Embeddings) -> tuple[tuple[Any, ...], ...]:
        """The members' terms of images alone, for scoring them with texts in several calls.

        Args:
            images: As `ConcatEmbeddings` returns them.

        Returns:
            The terms of each member.
        """
        members: list[Any] = list(self.members)
        sides = zip(members, _apart(images, len(members)), strict=True)
        return tuple((member.prepare(rows),) if hasattr(member, "prepare") else () for member, rows in sides)


def _apart(items: Embeddings, count: int) -> list[Embeddings]:
    """The embeddings of each member: copies, so that they are multiplied as they would be alone."""
    vectors = [chunk.contiguous() for chunk in items.vectors.chunk(count, dim=2)]
    parts = items.parts if items.parts is None else items.parts.chunk(count, dim=2)
    return [
        replace(items, vectors=chunk, parts=None if parts is None else parts[member].contiguous())
        for member, chunk in enumerate(vectors)
    ]


def _require_alike(subject: str, values: Sequence[Tensor | None]) -> None:
    """Raise ShapeError unless all members have these, of one shape, or none has; masks must be equal."""
    present = [value for value in values if value is not None]
    shapes = [None if value is None else tuple(value.shape) for value in values]
    alike = len(set(shapes)) == 1
    if not alike or (subject == "masks" and not all(torch.equal(present[0], value) for value in present[1:])):
        raise ShapeError(
            f"an ensemble needs models of one width that see the same regions and words; their {subject} are {shapes}; "
            "train them with the same width and the same options of reading"
        )
