"""Ensemble: several models that read alike as one, whose score of a pair is the mean of theirs.

SGRAF (Diao et al. 2021) is published so: one model with SAF and one with SGR, trained apart. What the models make of an
item stands side by side in its Embeddings, so that whatever takes a model takes an ensemble.
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
from subtext.data.inputs import Input, Tensors
from subtext.errors import RecipeError, ShapeError
from subtext.models.heads.gaussian import Gaussian
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine

MEMBERS = "members"
"""Folder of what the members need to be built again, inside a modality's assets; one inside it a member, by number."""


def ensemble(models: Sequence[Model]) -> Model:
    """One model that scores a pair by the mean of the scores of these; nothing is rescaled.

    Where all of them compare plain vectors by cosine, so does the ensemble, and can fill an index: its vectors are
    theirs, each times the root of its scale's share of all scales, and its cosine is the mean of the scores, without
    shifts, over the mean scale.

    Raises RecipeError for fewer than two models, for models that read otherwise than the first (another vocabulary or
    longest text, other features, other pixels), and for items that are distributions.
    """
    _require(models)
    images, texts = [model.image for model in models], [model.text for model in models]
    similarities = [model.similarity for model in models]
    cosines = [similarity for similarity in similarities if isinstance(similarity, Cosine)]
    device = next(models[0].parameters()).device
    if len(cosines) == len(models):
        scales = torch.tensor([torch.as_tensor(similarity.scale).item() for similarity in cosines])
        factors = (scales / scales.sum()).sqrt()
        return Model(_abreast(images, factors), _abreast(texts, factors), Cosine()).to(device).eval()
    return Model(_abreast(images), _abreast(texts), Mean(similarities)).to(device).eval()


class Members(nn.Module):
    """What several branches of one modality make of the same tensors: an encoder whose output is one Embeddings each.

    branches  of the members, in order
    """

    def __init__(self, branches: Sequence[Branch]) -> None:
        super().__init__()
        self.members = nn.ModuleList(branches)

    def forward(self, inputs: Tensors) -> list[Embeddings]:
        """Each member's embeddings of the items."""
        return [member(inputs) for member in self.members]

    def save_assets(self, folder: Path) -> None:
        """Write what every member needs, in a folder of its own."""
        for number, member in enumerate(self.members):
            assert isinstance(member, Branch)
            member_folder = folder / MEMBERS / str(number)
            member_folder.mkdir(parents=True)
            member.input_spec.save(member_folder)
            save = getattr(member.encoder, "save_assets", None)
            if callable(save):
                save(member_folder)


class Abreast(nn.Module):
    """Several models' vectors and parts of an item, side by side: the first D numbers are the first model's.

    factors  (M) what each model's vectors, of any widths, are multiplied by; parts are then left out. None for both as
             they are

    Takes   a list of Embeddings of the same items, one vector an item, without factors of one width D.
    Gives   Embeddings, vectors (N 1 M*D); without factors parts (N P M*D) and their mask.
    Raises  ShapeError when vectors or parts are not alike.
    """

    def __init__(self, factors: Float[Tensor, "m"] | None = None) -> None:
        super().__init__()
        self.factors: Tensor | None
        self.register_buffer("factors", factors)

    def forward(self, members: list[Embeddings], ids: Int[Tensor, "n"]) -> Embeddings:
        """The items as all members have them."""
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


class Mean(nn.Module):
    """Mean of similarities (SGRAF, Diao et al. 2021, section 4.1): what several models say of a pair, with equal say.

    score = sum over m of score_m / M, each of the items' own share of numbers (`Abreast`)

    similarities  the members'

    Takes   Embeddings as `Abreast` gives them.
    Gives   (I T) scores, on the scale of the members'; each member's are to the bit what it gives alone.
    Cost    that of all members.
    """

    indexable = False

    def __init__(self, similarities: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(similarities)

    def forward(
        self, images: Embeddings, texts: Embeddings, prepared: tuple[tuple[Any, ...], ...] | None = None
    ) -> Float[Tensor, "i t"]:
        """Scores of every image with every text, larger is better.

        prepared  what `prepare` gave for these images
        """
        count = len(self.members)
        prepared_parts = prepared if prepared is not None else ((),) * count
        sides = zip(self.members, _apart(images, count), _apart(texts, count), prepared_parts, strict=True)
        scores = torch.stack([member(rows, columns, *member_texts) for member, rows, columns, member_texts in sides])
        return scores.sum(dim=0) / count

    def prepare(self, images: Embeddings) -> tuple[tuple[Any, ...], ...]:
        """What the members need of images alone, for scoring them with texts in several calls."""
        prepared_parts = []
        for member, member_images in zip(self.members, _apart(images, len(self.members)), strict=True):
            prepare = getattr(member, "prepare", None)
            prepared_parts.append(() if prepare is None else (prepare(member_images),))
        return tuple(prepared_parts)


def _apart(items: Embeddings, count: int) -> list[Embeddings]:
    """Each member's own: copies, so that they are multiplied as they would be alone."""
    vectors = [chunk.contiguous() for chunk in items.vectors.chunk(count, dim=2)]
    if items.parts is None:
        return [replace(items, vectors=chunk) for chunk in vectors]
    parts = [chunk.contiguous() for chunk in items.parts.chunk(count, dim=2)]
    return [replace(items, vectors=chunk, parts=member_part) for chunk, member_part in zip(vectors, parts, strict=True)]


def _abreast(branches: Sequence[Branch], factors: Tensor | None = None) -> Branch:
    return Branch(branches[0].input_spec, Members(branches), Abreast(factors))


def _require(models: Sequence[Model]) -> None:
    if len(models) < 2:
        raise RecipeError(f"an ensemble needs two models or more; it got {len(models)}; name another")
    for side in ("image", "text"):
        first, *following = (getattr(model, side) for model in models)
        for number, branch in enumerate(following, start=2):
            if not _reads_alike(first.input_spec, branch.input_spec):
                raise RecipeError(
                    f"an ensemble needs models that read alike; model {number} reads {side}s otherwise than the first "
                    "(another vocabulary, longest text, feature file or image size); train them on the same data "
                    "with the same options of reading"
                )
        if any(isinstance(branch.head, Gaussian) for branch in (first, *following)):
            raise RecipeError(
                "an ensemble needs items that are vectors or parts; those of a probabilistic model are distributions; "
                "average its scores outside (evaluate --scores)"
            )


def _reads_alike(first: Input, second: Input) -> bool:
    if isinstance(first, FeatureInput) and isinstance(second, FeatureInput) and None in (first.file, second.file):
        first, second = replace(first, file=None), replace(second, file=None)
    return type(first) is type(second) and first.fingerprint == second.fingerprint


def _require_alike(subject: str, values: Sequence[Tensor | None]) -> None:
    """Raise ShapeError unless all members have these, of one shape, or none has; masks must be equal."""
    present = [value for value in values if value is not None]
    shapes = [None if value is None else tuple(value.shape) for value in values]
    alike = len(present) in (0, len(values)) and len(set(shapes)) == 1
    if alike and subject == "masks":
        alike = all(torch.equal(present[0], value) for value in present[1:])
    if not alike:
        raise ShapeError(
            f"an ensemble needs models of one width that see the same regions and words; their {subject} are {shapes}; "
            "train them with the same width and the same options of reading"
        )
