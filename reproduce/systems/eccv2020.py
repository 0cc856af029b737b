"""Systems of Thomas and Kovashka, Preserving Semantic Neighborhoods for Robust Cross-modal Retrieval (ECCV 2020)."""

from __future__ import annotations

from collections.abc import Mapping

from reproduce.tables.specification import ByData, Shared, System

PAPER = "Thomas and Kovashka, ECCV 2020"

PLAN: dict[str, object] = {
    "epochs": 60,
    "batch_size": 64,
    "lr": 1e-4,
    "optimiser": "adam",
    "amsgrad": False,
    "weight_decay": 1e-5,
    "clip": 0.0,
    "schedule": "plateau",
    "warmup": 0.0,
    "factor": 0.1,
    "plateau_epochs": 5,
    "patience": 10,
    "select": "loss",
    "average": "none",
    "captions": "one",
    "positives": "pair",
}
"""Section 3.3; patience as in the published code, 60 epochs as a bound. The plans of the rows' two hosts differ, so
nothing of it is left to them."""

SENTENCES = {"politics": 2}
"""Of an article of Politics (ECCV 2020, section 4.1); the other data sets have captions."""

PIXELS: dict[str, object] = {"image": "resnet-50", "image_size": 224, "resize": "squash", "flip": 0.5}

_NETWORK: dict[str, object] = {
    "text": "gru",
    "both_directions": False,
    "gru_width": 512,
    "word_width": 200,
    "min_count": 1,
    "token_mask": 0.0,
    "pooling": "last",
    "width": 256,
    "dropout": 0.0,
    "image_dropout": 0.0,
    "perceptron": False,
    "feature_scaling": "none",
}
_PVSE: dict[str, object] = {
    "word_width": 200,
    "views": ByData({"politics": 9, "goodnews": 5, "conccap": 7, "coco": 3}, 3),
}
_BETWEEN: dict[str, object] = {"image": 0.0, "text": 0.0}
_GRAPH: dict[str, object] = {"graph": Shared.TEXT_GRAPH, "pool": Shared.NEIGHBOURS}


def _own(options: Mapping[str, object]) -> System:
    return System("dual", _NETWORK, (("neighbourhoods", options),))


def _structure(options: Mapping[str, object]) -> System:
    return System("dual", _NETWORK, (("struc", options),))


ANGULAR = _own({"form": "angular", **_BETWEEN})
OURS_BY_PICTURES = _own({"form": "angular", **_GRAPH, "graph": Shared.IMAGE_GRAPH})
OURS = _own({"form": "angular", **_GRAPH})
OURS_WITHOUT_TEXT = _own({"form": "angular", "text": 0.0, **_GRAPH})
OURS_WITHOUT_IMAGE = _own({"form": "angular", "image": 0.0, **_GRAPH})
PVSE = System("pvse", _PVSE, (("neighbourhoods", {"form": "angular", **_BETWEEN}),))
PVSE_OURS = System("pvse", _PVSE, (("neighbourhoods", {"form": "angular", **_GRAPH}),))
TRIPLET = _own({"form": "triplet", **_BETWEEN})
OURS_TRIPLET = _own({"form": "triplet", **_GRAPH})
STRUC_TRUE = _structure({"structure": "captions"})
STRUC_TEXTS = _structure({"structure": "texts", **_GRAPH})
STRUC_PICTURES = _structure({"structure": "pictures", **_GRAPH})

NOTES = (
    "Network of section 3.3: `dual` with a GRU of 512 that reads forwards and one linear map a side to 256; word "
    "vectors start at random, where the paper's were learnt on the data first.",
    "Linear maps to the joint space start Xavier-uniform with a bias of 0; those of the published code start "
    "Xavier-normal with a bias of 0.1.",
    "The paper does not state the K of PVSE; it is the authors' choice of 2022 for each data set (Politics 9, GoodNews "
    "5, ConcCap 7, COCO 3). Its first two groups use the angular loss, PVSE among them.",
    "Weights of the losses within texts and within pictures: 0.2 and 0.3 (angular), 0.3 and 0.1 (triplet).",
    "All rows share the plan of section 3.3, PVSE among them: plain Adam, where PVSE's own code has AMSGrad.",
    "A picture with several captions draws one of them in each epoch.",
    "Politics is the first two sentences of each article, as `subtext data prepare` cuts them; whole articles are "
    "refused.",
)
