"""`python -m reproduce.tables`."""

from __future__ import annotations

from reproduce.command import command
from reproduce.tables import table

main = command(
    table,
    name="python -m reproduce.tables",
    examples=[
        "python -m reproduce.tables --list",
        "python -m reproduce.tables cvprw2022_table3 --data politics=politics3.jsonl --images politics=politics --plan",
        "python -m reproduce.tables cvprw2022_table2 --data mine=pairs.jsonl --rows pvse,diversity --epochs 5",
    ],
    usage="NAME [--data NAME=DATA ...] [OPTIONS]",
)

if __name__ == "__main__":
    main(prog_name=main.name)
