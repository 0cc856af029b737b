"""`python -m reproduce.figures`."""

from __future__ import annotations

from reproduce.command import command
from reproduce.figures import figure

main = command(
    figure,
    name="python -m reproduce.figures",
    examples=[
        "python -m reproduce.figures --list",
        "python -m reproduce.figures daa2022_fig1b --data captions.jsonl --split test --out pairs.svg",
        "python -m reproduce.figures daa2022_fig3 plain=runs/plain daa=runs/daa --split test --out asp.html",
        "python -m reproduce.figures daa2022_fig4 runs/daa --out epochs.svg",
    ],
    usage="NAME [[NAME=]PATH ...] --out FILE [OPTIONS]",
)

if __name__ == "__main__":
    main(prog_name=main.name)
