"""Options of recipes, methods and plans that earlier versions called otherwise.

Records of earlier runs are read through these tables, and the command line takes the old names for one more release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PLAN = {
    "accumulate": "accumulation_steps",
    "average": "weight_average",
    "average_decay": "ema_decay",
    "average_from": "swa_start",
    "cache_chunk": "grad_cache_chunk",
    "captions": "caption_sampling",
    "clip": "max_grad_norm",
    "encoder_factor": "backbone_lr_scale",
    "encoder_norms": "backbone_norms",
    "factor": "lr_factor",
    "plateau_epochs": "plateau_patience",
}
"""Old name -> name, of the training plan."""

_COMMON = {
    "weights": "image_weights",
    "detected": "max_regions",
    "least_sure": "min_confidence",
    "region_drop": "region_dropout",
    "least_area": "min_crop_area",
    "erase": "random_erasing",
    "word_width": "word_dim",
    "both_directions": "bidirectional",
    "word_drop": "token_dropout",
    "word_dropout": "embedding_dropout",
    "width": "embed_dim",
    "easy_epochs": "all_negatives_epochs",
}
_GAUSSIAN = {"scale": "init_scale", "shift": "init_shift"}
_MODELS: dict[str, dict[str, str]] = {
    "ascl": {"local_share": "local_weight", "directions": "direction_weights"},
    "clip": {"weights": "weights", "lora": "lora_rank", "lora_scale": "lora_alpha"},
    "dsran": {"cells": "grid_cells", "joint": "joint_layers"},
    "dual": {"gru_width": "gru_dim", "perceptron": "mlp"},
    "imram": {"asking": "attention_mode"},
    "pcme": {
        **_GAUSSIAN,
        "draws": "samples",
        "ranking": "rank_by",
        "draw_seed": "sample_seed",
        "log_std": "init_log_std",
        "kl": "kl_weight",
        "uniformity": "uniformity_weight",
    },
    "pcme_plus": {
        **_GAUSSIAN,
        "perceptron": "mlp",
        "spread_layers": "uncertainty_layers",
        "log_variance": "init_log_variance",
        "pseudo": "pseudo_positive_weight",
        "smoothing": "label_smoothing",
        "vib": "vib_weight",
        "mixing": "mix_prob",
        "mixing_kind": "mix_type",
    },
    "pvse": {"mmd": "mmd_weight", "diversity": "diversity_weight"},
    "scan": {"attending": "cross_attention", "pooling_scale": "lse_scale"},
    "sgraf": {"nodes": "similarity_dim", "places": "num_regions"},
    "vse_infinity": {"perceptron": "mlp"},
}
_WEIGHTED = {"total": "total_weight", "batch": "reference_batch", "half": "average_directions"}
_SCORED = {
    **_WEIGHTED,
    "first": "first_epoch",
    "storage": "storage_dtype",
    "tables": "weight_tables",
    "placement": "total_placement",
}
_DISCREPANCY = {**_SCORED, "second": "second_order", "current": "use_current"}
_METHODS: dict[str, dict[str, str]] = {
    "amrani": {
        **_WEIGHTED,
        "join": "combine",
        "value": "density",
        "spread": "rescale",
        "same_picture": "same_image",
        "scale": "normalise",
    },
    "asymmetry": {"gaussian": "gaussian_std", "tokens": "token_share", "features": "feature_share"},
    "combined": {**_DISCREPANCY, "how": "mode"},
    "daa": {"draws": "per_sample"},
    "discrepancy": _DISCREPANCY,
    "distance": {"nearest": "min_distance", "furthest": "max_distance"},
    "distil": {"mined": "mined_candidates"},
    "diversity": _SCORED,
    "hal": {
        "bank": "bank_share",
        "nearest": "bank_neighbours",
        "above": "epsilon1",
        "below": "epsilon2",
        "inside": "scale_epsilon2",
        "other_pictures": "exclude_same_image",
    },
    "mithun": {"hard": "hardest_only", "half": "average_directions"},
    "neighbourhoods": {
        "between": "cross_modal",
        "degrees": "angle",
        "symmetric": "text_to_image_weight",
        "image": "image_weight",
        "text": "text_weight",
        "pool": "pool_size",
    },
    "random": _WEIGHTED,
    "smooth_ap": {"alone": "replace_loss"},
    "struc": {
        "pool": "pool_size",
        "hardest": "hard_negatives",
        "image": "text_to_image_weight",
        "text": "image_to_text_weight",
        "weight": "structure_weight",
    },
    "thaw": {"heads": "head_epochs", "rate": "lr_scale"},
    "uniform": _WEIGHTED,
}
VALUES: dict[str, dict[str, str]] = {
    "backbone_norms": {"kept": "frozen"},
    "cross_modal": {"host": "model"},
    "direction_weights": {"apart": "separate"},
    "rank_by": {"draws": "samples"},
    "statistics": {"each": "separate"},
    "structure": {"pictures": "images"},
}
"""Option -> old value -> its name now."""


def of_model(name: str) -> Mapping[str, str]:
    """Old name -> name, for the options of a model."""
    return _COMMON | _MODELS.get(name, {})


def of_method(name: str) -> Mapping[str, str]:
    """Old name -> name, for the options of a method."""
    return _METHODS.get(name, {})


def current(options: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    """Options under the names and with the values that they have now; new names stay."""
    result: dict[str, Any] = {}
    for old, value in options.items():
        name = renamed.get(old, old)
        result[name] = VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value
    return result


def earlier(options: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    """Options under the names and with the values that they had, for folders whose names were made of them."""
    old_names = {name: old for old, name in renamed.items()}
    result: dict[str, Any] = {}
    for name, value in options.items():
        old_values = {new: old for old, new in VALUES.get(name, {}).items()}
        result[old_names.get(name, name)] = old_values.get(value, value) if isinstance(value, str) else value
    return result


def current_record(record: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a record, or of a member of an ensemble, with today's names."""
    record = {("model" if name == "host" else name): value for name, value in record.items()}
    if isinstance(arguments := record.get("arguments"), dict):
        record["arguments"] = current(arguments, of_model(str(record.get("model"))))
        if isinstance(members := arguments.get("members"), list):
            record["arguments"]["members"] = [current_record(member) for member in members]
    if isinstance(plan := record.get("plan"), dict):
        record["plan"] = current(plan, PLAN)
    if isinstance(methods := record.get("methods"), list):
        record["methods"] = [[name, current(options, of_method(name))] for name, options in methods]
    return record
