"""The loop: epochs of steps, validation after each, checkpoints between; its state is a pure function of its past."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from subtext.checkpoint import WEIGHTS, write_tensors
from subtext.core import Epoch
from subtext.data.batches import read_ahead
from subtext.data.inputs import Draw
from subtext.data.pairs import Pairs
from subtext.errors import CheckpointError, TrainingError
from subtext.model import Model
from subtext.training import validation
from subtext.training.average import Average
from subtext.training.interrupt import Stop
from subtext.training.journal import Journal
from subtext.training.optimiser import build_optimiser, pack, set_rate, unpack
from subtext.training.options import Report, RunOptions
from subtext.training.phases import Freezer, stage
from subtext.training.processes import Processes
from subtext.training.reading import Reader, Reading, batches_of
from subtext.training.schedule import rate
from subtext.training.selection import Watch
from subtext.training.setup import Setup
from subtext.training.snapshot import Snapshot, write_snapshot
from subtext.training.step import Stepper

REPORT_EVERY = 0.25
"""Seconds between two reports."""
