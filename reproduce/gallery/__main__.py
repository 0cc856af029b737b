"""`python -m reproduce.gallery compare`."""

from __future__ import annotations

from reproduce.command import command, group
from reproduce.gallery.page import compare

main = group(
    "python -m reproduce.gallery",
    "Look at the results of runs, on one page with the images.",
    [
        command(
            compare,
            name="compare",
            examples=[
                "python -m reproduce.gallery compare runs/plain runs/ours --out compare.html",
                "python -m reproduce.gallery compare runs/a runs/b --graph graphs/val --word freedom --out f.html",
            ],
            usage="FIRST SECOND --out FILE [OPTIONS]",
        )
    ],
)

if __name__ == "__main__":
    main(prog_name=main.name)
