"""How the learning rate moves: a pure function of the step, so that nothing of it has to be saved.

Plateau alone looks at validation; what it has seen is counted in `selection.Watch` and given here as a number of drops.
"""

from __future__ import annotations

import math

from subtext.training.plan import Plan

RISE_SHARE = 0.3
"""one_cycle: share of the steps in which the rate rises, where the plan names no warm-up."""
RISE_FROM = 0.04
"""one_cycle: the first rate, relative to the peak."""
FALL_TO = 4e-6
"""one_cycle: the last rate, relative to the peak."""


def rate(plan: Plan, *, step: int, steps: int, epoch: int = 0, drops: int = 0) -> float:
    """What the plan's learning rate is multiplied by at a step: above 0, at most 1.

    step, steps  the step, counted from 0, and how many there will be
    epoch        counted from 0; the step schedule drops by it
    drops        plateau: how often validation has stood still for too long

    constant   1
    step       factor ** (epoch // step_epochs)
    cosine     half a cosine from 1 to 0 over the steps after the warm-up (Loshchilov and Hutter 2017, no restarts)
    one_cycle  a straight rise from 0.04 over `warmup` of the steps (0.3 where it is 0), then half a cosine down to 4e-6
               (Smith and Topin 2018, with the momentum left alone)
    plateau    factor ** drops

    In all but one_cycle the rate rises in a straight line over the first `warmup` of the steps, and its first step is
    not zero.

    >>> [round(rate(Plan(schedule="cosine"), step=s, steps=4), 3) for s in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    share = plan.warmup if plan.warmup or plan.schedule != "one_cycle" else RISE_SHARE
    rising = round(share * steps)
    if step < rising:
        start = RISE_FROM if plan.schedule == "one_cycle" else 0.0
        return start + (1 - start) * (step + 1) / rising
    done = min((step - rising) / max(steps - rising, 1), 1.0)
    if plan.schedule == "step":
        return plan.factor ** (epoch // plan.step_epochs)
    if plan.schedule == "plateau":
        return plan.factor**drops
    if plan.schedule == "cosine":
        return max(0.5 * (1 + math.cos(math.pi * done)), 1e-12)
    if plan.schedule == "one_cycle":
        return FALL_TO + (1 - FALL_TO) * 0.5 * (1 + math.cos(math.pi * done))
    return 1.0
