"""The part of the report that tells how LRs were chosen: stage by stage (paper), or once (horizon)."""

from __future__ import annotations

import math
from html import escape

from autolrs.core.gp import Posterior
from autolrs.core.types import peak_lr
from autolrs.report import search_specs as specs
from autolrs.report.choice import Choice, horizon_choice
from autolrs.report.figures import PosteriorInfo, posterior_info, probes_data, searched_stages, single
from autolrs.report.html import Part, details, figure, table
from autolrs.report.info import RunInfo, StageInfo


def stages_section(part: Part, info: RunInfo, key: str) -> None:
    """The paper's figures, for one stage at a time."""
    stages = searched_stages(info)
    options, tables, posteriors, probes, thinned = "", "", {}, {}, False
    best = max(stages, key=lambda stage: stage.steps).index
    for stage in stages:
        name = str(stage.index)
        lr = f": LR {peak_lr(stage.profile):.3g} for {stage.steps:,} steps" if stage.profile else ": searching"
        chosen = " selected" if stage.index == best else ""
        options += f'<option value="{name}"{chosen}>stage {name}{escape(lr)}</option>'
        posterior = posterior_info(info, stage.index, points=90)
        data = probes_data(info, stage.index)
        thinned = thinned or data.thinned
        probes[name] = specs.probes_spec(data)
        if posterior is not None:
            posteriors[name] = specs.posterior_spec(posterior)
        inner = f"<p>{escape(_stage_words(stage))}</p>" + details(
            "The numbers as a table", _probe_table(info, stage, posterior)
        )
        tables += f'<div data-of="{key}-picker" data-stage="{name}"{"" if chosen else " hidden"}>{inner}</div>'
    picker = (
        f'<div class="picker" id="{key}-picker"><label for="{key}-select">Stage</label>'
        f'<select id="{key}-select">{options}</select>'
        '<button type="button">Previous</button><button type="button">Next</button></div>'
    )
    left = (
        "What was known when the LR was chosen: the line is the expected loss, the band its uncertainty, "
        "the numbers the order of the trials."
    )
    right = "Each trial's losses (thin), smoothed (thick) and forecast to the stage's end (dashed)."
    if thinned:
        right += " The journal keeps the lowest and highest of long series; smoothing is drawn from those."
    together = "".join(
        f"<div>{figure(f'{key}-{name}', told, picker=f'{key}-picker')}</div>"
        for name, told in (("posterior", left), ("probes", right))
    )
    told = "<p>Before each stage a few LRs were tried for a short while; the lowest expected loss decided.</p>"
    part.add(
        key,
        "How each learning rate was chosen",
        f'{told}{picker}<div class="two">{together}</div>{tables}',
        posterior={"stages": posteriors},
        probes={"stages": probes},
    )


def _stage_words(stage: StageInfo) -> str:
    probes = single(stage)
    bad = sum(not math.isfinite(probe.forecast) for probe in probes)
    words = f"Stage {stage.index}: {len(probes)} LRs tried, judged by {stage.metric} loss"
    words += f", {bad} of them diverged or were stopped" if bad else ""
    won = next((probe for probe in probes if probe.index == stage.winner), None)
    if won is not None:
        words += f"; LR {won.lr:.3g} won (trial {won.index + 1}, forecast {won.forecast:.4g})"
    if won is not None and stage.final_loss is not None:
        words += f"; the training loss was then {stage.final_loss:.4g}"
    return words + "."


def _probe_table(info: RunInfo, stage: StageInfo, posterior: PosteriorInfo | None) -> str:
    means: dict[int, tuple[float, float]] = {}
    if posterior is not None and posterior.mean is not None:
        x = [math.log(lr) for lr, _ in posterior.explored]
        process = Posterior(
            x, [y for _, y in posterior.explored], noise=info.settings.noise, length_scale=info.settings.length_scale
        )
        mean, std = process(x)
        means = {order: (float(m), float(s)) for order, m, s in zip(posterior.orders, mean, std, strict=True)}
    rows = []
    for probe in single(stage):
        mean_, std_ = means.get(probe.index + 1, (None, None))
        first, last = (probe.losses[0], probe.losses[-1]) if probe.losses else (None, None)
        forecast = probe.forecast if math.isfinite(probe.forecast) else None
        rows.append(
            (probe.index + 1, probe.lr, probe.steps, first, last, forecast, mean_, std_, probe.reason or probe.status)
        )
    columns = (">trial", ">LR", ">steps", ">first loss", ">last loss", ">forecast", ">posterior mean", ">sd", "outcome")
    won = [i for i, probe in enumerate(single(stage)) if probe.index == stage.winner]
    return table(f"Trials of stage {stage.index}", columns, rows, bold=won)


def horizon_section(part: Part, info: RunInfo, key: str) -> None:
    choice = horizon_choice(info)
    if choice is None:
        return
    figures: dict[str, object] = {}
    inner = f"<p>{escape(_choice_words(choice, info))}</p>"
    if choice.minis:
        told = "How far each miniature run fell short of the best one, and the way from there to the peak."
        inner += figure(f"{key}-response", told, _choice_table(choice))
        figures["response"] = specs.response_spec(choice)
    pair = ""
    if choice.ramp.x.size:
        told = "The ramp: the loss while the LR climbs; the landmark is where the smoothed loss was lowest."
        pair += f"<div>{figure(f'{key}-ramp', told)}</div>"
        figures["ramp"] = specs.ramp_spec(choice.ramp, choice.landmark, "landmark")
    if choice.slow is not None:
        told = (
            "The slow ramp: the loss while a network that trains meanwhile is given ever higher LRs, until it breaks."
        )
        pair += f"<div>{figure(f'{key}-slow', told)}</div>"
        figures["slow"] = specs.ramp_spec(
            choice.slow.ramp, choice.slow.edge, "broke at" if choice.slow.broke else "not broken at"
        )
    if any(mini.losses.x.size > 1 for mini in choice.minis):
        told = "The miniature runs: whole schedules in small, from the same start on the same batches."
        pair += f"<div>{figure(f'{key}-minis', told)}</div>"
        figures["minis"] = specs.minis_spec(choice)
    part.add(key, "How the peak was chosen", f'{inner}<div class="two">{pair}</div>', **figures)


def _choice_words(choice: Choice, info: RunInfo) -> str:
    if choice.centre is None or choice.plausible is None:
        return f"Why this peak, in the run's own words: {choice.words}."
    low, high = choice.plausible
    more = [side for side, is_open in zip(("lower", "higher"), choice.open_ends, strict=True) if is_open]
    unsure = f" (or {' and '.join(more)}: nothing was tried there)" if more else ""
    if choice.too_low:
        taken = "and the best LR seems to lie above the interval, so nothing is taken off for the longer run"
    else:
        taken = f"times {choice.correction:.2f}, because a run this long wants a lower peak than a short one"
    return (
        f"The ramp's loss was lowest at {choice.landmark:.3g}; {len(choice.minis)} miniature runs: "
        f"weighted centre {choice.centre:.3g}; {taken}: {choice.peak:.3g}. The miniature runs "
        f"could not tell peaks from {low:.3g} to {high:.3g} apart{unsure}."
    )


def _choice_table(choice: Choice) -> str:
    rows = []
    for mini in choice.minis:
        ended = math.isfinite(mini.shortfall)
        short = f"{mini.shortfall:.1%}" if ended else "-"
        weight = f"{mini.weight:.0%}" if choice.weighted else "-"
        rows.append((mini.order, mini.lr, mini.value if ended else None, short, weight, mini.status))
    columns = (">run", ">peak LR", ">loss", ">short of the best", ">weight", "outcome")
    chain = [("landmark", choice.landmark), ("weighted centre", choice.centre), (choice.peak_words, choice.peak)]
    chain = [(step, lr) for step, lr in chain if lr is not None]
    return table("Miniature runs", columns, rows) + table("From the landmark to the peak", ("step", ">LR"), chain)
