"""The LR of a whole `horizon` run from its peak: warm-up, the peak held, a line down; and of what is left of one."""

from __future__ import annotations

from autolrs.core.engine import State
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_plan import warmup_steps
from autolrs.core.types import Profile, Segment

RETREAT = 0.25  # of the LR, when training breaks in the run itself


def full_profile(settings: Settings, total: int, peak: float, warmup: float | None = None) -> Profile:
    """Warm-up over a share of it, the peak held, and linear decay over `total` steps."""
    warm = warmup_steps(settings, total, warmup)
    return (Segment(warm, peak / warm, peak), *_fall(settings, warm, total, peak, settings.decay_to * peak))


def _fall(settings: Settings, done: int, total: int, lr: float, bottom: float) -> Profile:
    """The LR held until its decay is due, and then a line to `bottom`."""
    left = total - done
    held = max(0, min(round(settings.hold_until * total) - done, left - 1))
    lines = ((held, lr, lr), (left - held, lr, bottom))
    return tuple(Segment(*line) for line in lines if line[0])


def rest(state: State, peak: float, warmup: float | None = None, room: int = 0, octaves: float = 0.0) -> Profile:
    """What is left of the run: all of it, or the present LR held until its decay is due, whatever was planned before.

    A run that was extended after its LR had reached the bottom warms up again, to the height that a schedule over the
    new budget would have here. So does one whose LR is to rise by some octaves, within the next `room` steps.
    """
    settings, total = state.settings, state.settings.total_steps
    assert total is not None
    if not state.committed_steps:
        return full_profile(settings, total, peak * RETREAT**state.failures, warmup)
    done, bottom, last = state.committed_steps, settings.decay_to * peak, state.segments[-1]
    lr, aim = (top * RETREAT**state.failures for top in (last.lr_end, state.aim))
    left = total - done
    if last.lr_end > last.lr_start and lr < aim and not octaves:  # cut in its warm-up, which goes on as it was
        climb = (state.aim - last.lr_end) / (last.lr_end - last.lr_start)  # however much lower it goes on
        warm = min(max(round(climb * last.steps), 1), left)
        return (Segment(warm, lr, aim), *_fall(settings, done + warm, total, aim, bottom))
    if (lr > bottom or state.failures) and not octaves:
        # Where training breaks again and again, the LR goes below where it was to end, and not up to the peak again.
        return _fall(settings, done, total, lr, bottom if lr > bottom else settings.decay_to * lr)
    falling = left / max(total - round(settings.hold_until * total), 1)
    again = settings.with_(warmup_steps=0)  # what is meant for the beginning
    warm, height = warmup_steps(again, left), max(peak * min(falling, 1.0), bottom)
    if octaves:
        warm, height = min(warm, room), lr * 2.0**octaves
        bottom = settings.decay_to * max(peak, height)
    return (Segment(warm, lr or height / warm, height), *_fall(settings, done + warm, total, height, bottom))
