"""`python -m subtext.app`, for launchers that start a module: `accelerate launch --module subtext.app train ...`."""

from subtext.app.cli import main

if __name__ == "__main__":
    main(prog_name="subtext")
