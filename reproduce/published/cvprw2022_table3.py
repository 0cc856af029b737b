"""CVPRW 2022, Table 3: ablation of the sample weights, on Politics."""

from __future__ import annotations

from reproduce.systems import cvprw2022 as systems
from reproduce.tables.specification import PublishedTable, Row, System, both_ways


def _row(key: str, name: str, system: System, printed: tuple[float, float]) -> Row:
    return Row(key, name, system, printed, baseline="" if key == "uniform" else "uniform")


TABLE = PublishedTable(
    title="Choice among c, ablation of the sample weights",
    paper=f"{systems.PAPER}, Table 3",
    columns=both_ways(("politics",)),
    rows=(
        _row("random", "random α", systems.RANDOM, (0.5777, 0.5780)),
        _row("uniform", "Γ=0", systems.UNIFORM, (0.6046, 0.6020)),
        _row("div", "DIVERSITY, Γ=−1, |α_X − α_Y|", systems.diversity({}), (0.6268, 0.6366)),
        _row("div_plus", "DIVERSITY, Γ=+1", systems.diversity({"sign": 1.0}), (0.6206, 0.6226)),
        _row("div_sum", "DIVERSITY, α_X + α_Y", systems.diversity({"combine": "sum"}), (0.6188, 0.6251)),
        _row("div_image", "DIVERSITY, α_X", systems.diversity({"combine": "image"}), (0.6155, 0.6192)),
        _row("div_text", "DIVERSITY, α_Y", systems.diversity({"combine": "text"}), (0.6059, 0.6113)),
        _row("dis", "DISCREPANCY, Γ=−1, |α_X − α_Y|", systems.discrepancy({}), (0.6211, 0.6228)),
        _row("dis_plus", "DISCREPANCY, Γ=+1", systems.discrepancy({"sign": 1.0}), (0.6158, 0.6187)),
        _row("dis_sum", "DISCREPANCY, α_X + α_Y", systems.discrepancy({"combine": "sum"}), (0.6130, 0.6184)),
        _row("dis_image", "DISCREPANCY, α_X", systems.discrepancy({"combine": "image"}), (0.6058, 0.6040)),
        _row("dis_text", "DISCREPANCY, α_Y", systems.discrepancy({"combine": "text"}), (0.6032, 0.6006)),
    ),
    plan=systems.PLAN,
    pixels=systems.PIXELS,
    sentences=systems.SENTENCES,
    notes=(
        "The paper prints DIVERSITY and DISCREPANCY side by side, and the rows that they share twice.",
        *systems.NOTES,
    ),
)
