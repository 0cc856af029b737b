"""`python -m subtext`, for launchers that start a module: `accelerate launch --module subtext train ...`."""

from subtext.cli import main

if __name__ == "__main__":
    main(prog_name="subtext")
