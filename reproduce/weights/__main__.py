"""`python -m reproduce.weights report|gain|tune`."""

from __future__ import annotations

from reproduce.command import command, group
from reproduce.weights.gain_report import gain
from reproduce.weights.scores_report import report
from reproduce.weights.tune import tune

main = group(
    "python -m reproduce.weights",
    "Describe sample weights, measure their effect, and choose the ratio of two of them.",
    [
        command(
            report,
            name="report",
            examples=[
                "python -m reproduce.weights report runs/pvse --graph graphs/d2v --plot scores.svg --page pairs.html"
            ],
            usage="RUN --graph GRAPH [OPTIONS]",
        ),
        command(
            gain,
            name="gain",
            examples=["python -m reproduce.weights gain runs/div-0=runs/pvse-0 runs/div-1=runs/pvse-1"],
            usage="RUN=BASELINE ... [OPTIONS]",
        ),
        tune,
    ],
)

if __name__ == "__main__":
    main(prog_name=main.name)
