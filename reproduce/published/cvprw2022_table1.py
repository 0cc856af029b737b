"""CVPRW 2022, Table 1: the paper's settings, statistics of both scores, and extremes of their combination."""

from __future__ import annotations

from reproduce.systems import cvprw2022 as systems
from reproduce.tables.specification import Column, PublishedTable, Row


def _extreme(key: str, beta: float, gamma: float, printed: tuple[float, float, float, float]) -> Row:
    system = systems.combined({"mode": "val", "beta": beta, "gamma": gamma})
    return Row(key, f"β={beta:g}, γ={gamma:g}", system, printed, figure="both")


TABLE = PublishedTable(
    title="Settings, statistics of the two scores, and extreme combinations",
    paper=f"{systems.PAPER}, Table 1",
    columns=tuple(Column(data, "both") for data in ("coco", "goodnews", "politics", "conccap")),
    rows=(
        Row("k", "K (PVSE)", None, (3, 5, 9, 7)),
        Row("lambda", "λ", None, (196, 160, 96, 196)),
        Row("beta", "β", None, (1, 4, 3, 3)),
        Row("gamma", "γ", None, (4, 1, 1, 1)),
        Row("product_div", "μ_DIV · σ_DIV", systems.PVSE, (0.04, 0.01, 0.01, 0.01), figure="diversity_product"),
        Row("product_dis", "μ_DIS · σ_DIS", systems.PVSE, (0.03, 0.03, 0.06, 0.01), figure="discrepancy_product"),
        Row("mean_div", "μ_DIV", systems.PVSE, (0.3173, 0.3979, 0.6279, 0.1569), figure="diversity_mean"),
        Row("deviation_div", "σ_DIV", systems.PVSE, (0.1156, 0.0136, 0.0123, 0.0753), figure="diversity_deviation"),
        Row("mean_dis", "μ_DIS", systems.PVSE, (0.2705, 0.3986, 0.6309, 0.1182), figure="discrepancy_mean"),
        Row("deviation_dis", "σ_DIS", systems.PVSE, (0.1068, 0.0676, 0.0885, 0.0742), figure="discrepancy_deviation"),
        _extreme("beta5_gamma1", 5.0, 1.0, (0.4922, 0.7842, 0.4734, 0.6649)),
        _extreme("beta1_gamma5", 1.0, 5.0, (0.4850, 0.7803, 0.4722, 0.6406)),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=(
        "K, λ, β and γ are the paper's choices; the rows of its other tables use them.",
        "Statistics are those of the training pairs, both modalities together, embedded by a trained PVSE; the paper "
        "does not state its model.",
        "The last two rows were trained on a small part of the training set, whose size the paper does not state "
        "(--subset).",
        *systems.NOTES,
    ),
)
