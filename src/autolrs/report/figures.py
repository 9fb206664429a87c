"""The figures of a run as data: plain series from what `info` gathered. Tests check these; others draw them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autolrs.core.gp import Posterior
from autolrs.core.schedule import Schedule
from autolrs.core.settings import Settings
from autolrs.core.smoothing import MIN_POINTS, smooth
from autolrs.core.thinning import kept
from autolrs.core.types import Metric, Profile
from autolrs.report.info import Array, ProbeInfo, RunInfo, StageInfo

MOST_POINTS = 3000  # of one line on a screen that is half as many pixels wide
PROBE_POINTS = 4000  # of all probes together
_NONE = np.zeros(0)


# The schedule


@dataclass(frozen=True)
class ScheduleSeries:
    """The LR over committed steps as the corners of a line, shape (m,) each."""

    steps: Array
    lrs: Array


def schedule_series(schedule: Schedule) -> ScheduleSeries:
    """Both ends of every segment.

    >>> from autolrs import Schedule, Segment
    >>> schedule_series(Schedule((Segment(10, 0.1, 0.1), Segment(10, 0.1, 0.0)))).steps.tolist()
    [0.0, 10.0, 10.0, 20.0]
    """
    steps, lrs, start = [], [], 0
    for segment in schedule.segments:
        steps += [start, start + segment.steps]
        lrs += [segment.lr_start, segment.lr_end]
        start += segment.steps
    return ScheduleSeries(np.array(steps, float), np.array(lrs, float))


def named_lrs(schedule: Schedule, wide: float) -> tuple[list[tuple[float, float]], bool]:
    """(step, LR) of what a picture names, and whether these are constant LRs, each named in its middle.

    Those that take more than a share `wide` of the run, which the number needs; if there is none, the schedule's peak.
    """
    total = schedule.total_steps
    flat = [((begin + end) / 2, lr) for begin, end, lr in constant_lrs(schedule) if end - begin > wide * total]
    if flat or not total:
        return flat, True
    series = schedule_series(schedule)
    top = int(np.argmax(series.lrs))
    return [(float(series.steps[top]), float(series.lrs[top]))], False


def constant_lrs(schedule: Schedule) -> list[tuple[int, int, float]]:
    """(begin, end, LR) of all that is trained at one LR, though it may be committed in several stretches."""
    found: list[tuple[int, int, float]] = []
    begin = 0
    for segment in schedule.segments:
        end, lr = begin + segment.steps, segment.lr_start
        if lr == segment.lr_end:
            joins = bool(found) and found[-1][1:] == (begin, lr)
            found.append((found.pop()[0] if joins else begin, end, lr))
        begin = end
    return found


def fill_ramps(series: ScheduleSeries, points: int = 200) -> ScheduleSeries:
    """Points along each segment: a ramp that is a straight line in LR is a curve on a log axis."""
    if not series.steps.size:
        return series
    xs, ys = [], []
    for i in range(0, len(series.steps), 2):
        count = 2 if series.lrs[i] == series.lrs[i + 1] else points
        xs.append(np.linspace(series.steps[i], series.steps[i + 1], count))
        ys.append(np.linspace(series.lrs[i], series.lrs[i + 1], count))
    return ScheduleSeries(np.concatenate(xs), np.concatenate(ys))


def stage_name(stage: StageInfo) -> str:
    """What a stage is called: its number, warm-up, or anneal."""
    if stage.index < 0:
        return "warm-up"
    falling = bool(stage.profile) and stage.profile[-1].lr_end == 0.0 and not stage.probes
    return "anneal" if falling and len(stage.profile) == 1 else str(stage.index)


def profile_words(profile: Profile) -> str:
    """The LRs of a profile, corner by corner; many segments are cut short."""
    corners: list[float] = []
    for segment in profile:
        for lr in (segment.lr_start, segment.lr_end):
            if not corners or lr != corners[-1]:
                corners.append(lr)
    words = [f"{lr:.3g}" for lr in corners]
    return " > ".join(words if len(words) <= 4 else [*words[:2], "...", words[-1]])


@dataclass(frozen=True)
class ProbePoint:
    """A probe on the schedule: tried at `lr` before step `step` of stage `stage`, the `order`-th that was asked."""

    step: int
    lr: float
    stage: int
    order: int
    forecast: float  # infinite: diverged or stopped


def probe_points(run: RunInfo) -> list[ProbePoint]:
    """Every probe that tried one LR."""
    return [
        ProbePoint(stage.start, probe.lr, stage.index, probe.index + 1, probe.forecast)
        for stage in run.stages
        for probe in single(stage)
    ]


# Losses


@dataclass(frozen=True)
class LossSeries:
    """Committed training losses at their steps (about, where thinned), and their running mean; shape (m,) each."""

    steps: Array
    losses: Array
    smooth: Array


def loss_series(run: RunInfo, window: int = 16, limit: int = MOST_POINTS) -> LossSeries:
    """The losses of all committed stretches in order; values that are not finite are left out of the running mean.

    `window` is even, because thinned losses are pairs of a stretch's lowest and highest. Of more than `limit` losses
    each stretch's extremes stay.
    """
    steps, losses = [], []
    for stage in run.stages:
        if stage.losses:
            begin = stage.start + stage.steps - stage.steps_run
            steps.append(begin + (np.arange(len(stage.losses)) + 0.5) * stage.steps_run / len(stage.losses))
            losses.append(np.asarray(stage.losses, float))
    if not losses:
        return LossSeries(_NONE, _NONE, _NONE)
    at, values = np.concatenate(steps), np.concatenate(losses)
    running = _running_mean(values, window)
    if values.size > limit:
        stay = kept(values, limit)
        at, values, running = at[stay], values[stay], running[stay]
    return LossSeries(at, values, running)


def _running_mean(values: Array, window: int) -> Array:
    """Mean of the finite values among the `window` around each; NaN where there is none."""
    finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    begin = np.maximum(np.arange(values.size) - window // 2, 0)
    end = np.minimum(np.arange(values.size) + window // 2, values.size)
    count = counts[end] - counts[begin]
    return np.divide(sums[end] - sums[begin], count, out=np.full(values.size, math.nan), where=count > 0)


@dataclass(frozen=True)
class Line:
    """Points in order, shape (m,) each."""

    x: Array
    y: Array


def probe_lines(run: RunInfo, metric: Metric = "train") -> list[Line]:
    """What the probes saw, over the committed steps they set out from; many probes get fewer points each."""
    chosen = [
        (stage, probe)
        for stage in run.stages
        for probe in single(stage)
        if probe.losses and bool(probe.every) is (metric == "validation")
    ]
    each = max(3, PROBE_POINTS // max(1, len(chosen)))
    lines = []
    for stage, probe in chosen:
        steps, losses = probe.loss_steps, np.asarray(probe.losses, float)
        if losses.size > each:
            stay = kept(losses, each)
            steps, losses = steps[stay], losses[stay]
        lines.append(Line(stage.start + steps, losses))
    return lines


# Probes of a stage


@dataclass(frozen=True)
class ProbeCurve:
    """A probe's losses over its own steps, smoothed, and its forecast drawn to the horizon."""

    order: int
    lr: float
    losses: Line
    smooth: Line | None
    fit: Line | None
    forecast: float
    status: str
    winner: bool


@dataclass(frozen=True)
class ProbesData:
    """All probes of a stage; `then` are the committed losses that followed, from the stage's start."""

    stage: int
    metric: Metric
    horizon: int
    curves: tuple[ProbeCurve, ...]
    then: Line
    thinned: bool  # the journal keeps lowest and highest of stretches: smoothing is drawn from those


def probes_data(run: RunInfo, stage: int) -> ProbesData:
    """The probes of stage `stage` with smoothing and forecast."""
    found = stage_of(run, stage)
    horizon = found.steps or max((probe.steps for probe in found.probes), default=0)
    curves = tuple(_curve(run.settings, probe, horizon, probe.index == found.winner) for probe in single(found))
    begin = found.steps - found.steps_run
    losses = np.asarray(found.losses, float)
    then = Line(begin + (np.arange(losses.size) + 0.5) * found.steps_run / max(1, losses.size), losses)
    return ProbesData(found.index, found.metric, horizon, curves, then, any(map(_thinned, found.probes)))


def _thinned(probe: ProbeInfo) -> bool:
    return not probe.every and len(probe.losses) < probe.steps


def _curve(settings: Settings, probe: ProbeInfo, horizon: int, winner: bool) -> ProbeCurve:
    losses = Line(probe.loss_steps, np.asarray(probe.losses, float))
    fit = None
    curve = probe.fit
    if curve is not None and settings.strategy == "paper" and math.isfinite(curve.value) and math.isfinite(curve.rate):
        t = horizon * np.linspace(0.0, 1.0, 32 if curve.amplitude else 2) ** 2  # closest where it falls fastest
        fit = Line(t, curve.amplitude * np.exp(curve.rate * t) + curve.asymptote)
    return ProbeCurve(
        probe.index + 1, probe.lr, losses, _smoothed(settings, probe, losses), fit, probe.forecast, probe.status, winner
    )


def _smoothed(settings: Settings, probe: ProbeInfo, line: Line) -> Line | None:
    """The spline the forecast was fitted to; of a thinned series through the middles of its pairs."""
    x, y = line.x, line.y
    if settings.strategy != "paper" or y.size < MIN_POINTS or not np.isfinite(y).all():
        return None
    if _thinned(probe) and y.size % 2 == 0:
        x, y = x.reshape(-1, 2).mean(axis=1), y.reshape(-1, 2).mean(axis=1)
    fitted = smooth(
        y, rounds=settings.rounds, outlier_fraction=settings.outlier_fraction, pieces=settings.spline_pieces
    )
    return Line(x, fitted)


# The posterior


@dataclass(frozen=True)
class PosteriorInfo:
    """What a stage knew about the LR when it chose. `mean` and `std` are None where the strategy has no posterior."""

    stage: int
    lrs: Array
    mean: Array | None
    std: Array | None
    explored: tuple[tuple[float, float], ...]  # (LR, forecast) of probes that did not diverge
    orders: tuple[int, ...]  # which of the asked each of `explored` was, from 1
    diverged: tuple[float, ...]
    winner: tuple[float, float] | None
    chosen: float | None  # the LR that was committed; no probe's own where the strategy interpolates


def posterior_info(run: RunInfo, stage: int | None = None, points: int = 300) -> PosteriorInfo | None:
    """The posterior over log LR of stage `stage`, or of the longest one; None where none has two finite forecasts."""
    searched = [s for s in run.stages if sum(math.isfinite(p.forecast) for p in single(s)) >= 2]
    if stage is not None:
        searched = [s for s in searched if s.index == stage]
    if not searched:
        return None
    chosen = max(searched, key=lambda s: s.steps)
    finite = [p for p in single(chosen) if math.isfinite(p.forecast)]
    explored = tuple((p.lr, p.forecast) for p in finite)
    diverged = tuple(p.lr for p in single(chosen) if not math.isfinite(p.forecast))
    settings, reach = run.settings, [p.lr for p in single(chosen)]
    mean = std = None
    if settings.strategy == "paper" and settings.max_lr_move is None:
        reach += run.interval or ()
    lrs = np.geomspace(min(reach), max(reach), points)
    if settings.strategy == "paper":
        worst = max(y for _, y in explored)  # as the search has it: a diverged LR counts as the worst
        seen = [*explored, *((lr, worst) for lr in diverged)]
        process = Posterior(
            np.log([lr for lr, _ in seen]),
            [y for _, y in seen],
            noise=settings.noise,
            length_scale=settings.length_scale,
        )
        mean, std = process(np.log(lrs))
    winner = next(((p.lr, p.forecast) for p in chosen.probes if p.index == chosen.winner), None)
    orders = tuple(p.index + 1 for p in finite)
    return PosteriorInfo(chosen.index, lrs, mean, std, explored, orders, diverged, winner, chosen.aim)


# Forecast against what then happened


@dataclass(frozen=True)
class CalibrationPoint:
    """A stage's forecast and the loss of the same kind at its end."""

    stage: int
    metric: Metric
    forecast: float
    actual: float


def calibration(run: RunInfo) -> list[CalibrationPoint]:
    """Like is compared with like, where both are known.

    A training forecast meets the mean over the stage's last tenth; a validation forecast the first validation losses
    that the next stage's probes saw, since none is taken while training for good.
    """
    points = []
    for i, stage in enumerate(run.stages):
        if run.settings.strategy != "paper" or not stage.done or stage.forecast is None:
            continue
        actual = stage.final_loss if stage.metric == "train" else _next_validation(run.stages[i + 1 : i + 2])
        if actual is not None and math.isfinite(actual):
            points.append(CalibrationPoint(stage.index, stage.metric, stage.forecast, actual))
    return points


def _next_validation(following: tuple[StageInfo, ...]) -> float | None:
    first = [p.losses[0] for stage in following for p in stage.probes if p.every and p.losses]
    finite = [value for value in first if math.isfinite(value)]
    return float(np.median(finite)) if finite else None


# Cost


def steps_by_purpose(run: RunInfo) -> list[tuple[str, int]]:
    """Where steps went, in the order of the picture; purposes without a step are left out."""
    cost = run.cost
    parts = [
        ("committed", cost.committed),
        ("probes, undone", cost.probed - cost.reused),
        ("probes, stopped early", cost.aborted),
        ("range test", cost.range_test),
        ("undone because training broke", cost.failed),
        ("lost to a restart", cost.lost),
    ]
    return [(name, steps) for name, steps in parts if steps]


def validation_steps(run: RunInfo) -> float:
    """What the validation passes cost, in training steps."""
    return run.cost.evaluations * run.settings.evaluate_steps


# Shared


def single(stage: StageInfo) -> list[ProbeInfo]:
    """The probes that tried one LR."""
    return [probe for probe in stage.probes if not probe.sweep]


def stage_of(run: RunInfo, stage: int) -> StageInfo:
    """The stage with this index."""
    found = next((s for s in run.stages if s.index == stage), None)
    if found is None:
        known = ", ".join(str(s.index) for s in run.stages) or "none"
        raise ValueError(f"`stage` must be one of the run's stages ({known}), got {stage}")
    return found


def searched_stages(run: RunInfo) -> list[StageInfo]:
    """The stages that had probes."""
    return [stage for stage in run.stages if single(stage)]
