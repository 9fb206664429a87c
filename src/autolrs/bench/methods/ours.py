"""AutoLRS: the default strategy, Algorithm 1, and Algorithm 1 with one thing changed at a time (Appendix A.5.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from autolrs.bench.methods._method import Method, Outcome, Run, Train, step
from autolrs.bench.tasks import Bundle, Task
from autolrs.core.settings import MIN_PROBE_STEPS, PRESETS, Settings
from autolrs.pytorch.auto import AutoLRS
from autolrs.run.faults import NotFiniteError

Given = Mapping[str, Any] | Callable[[Task], Mapping[str, Any]]


def autolrs(given: Given = {}) -> Train:  # noqa: B006 - never changed
    """AutoLRS with these settings, or those that a function of the task gives."""

    def run_it(bundle: Bundle, run: Run) -> Outcome:
        task, settings = run.task, dict(given(run.task) if callable(given) else given)
        auto = AutoLRS(
            bundle.model, bundle.optimizer, total_steps=task.total_steps, evaluate=bundle.evaluate, **settings
        )
        measure = run.curve.measure
        run.curve.measure = lambda: _averaged(auto, measure)  # what a user who stopped here would take
        bundle.advance(0)
        for batch in auto.batches(bundle.loader):
            lr = auto.lr
            loss = step(bundle, bundle.optimizer, batch)
            try:
                info = auto.step(loss)
            except NotFiniteError:  # a run like any other here: its row says that it came to nothing
                continue
            if not info.exploring:
                run.curve.at(info.committed_steps, lr, loss)
            bundle.advance(info.committed_steps)
        peak = max((max(s.lr_start, s.lr_end) for s in auto.schedule.segments), default=None)
        return Outcome(auto.raw_steps, auto.session.state.evaluations, peak, _changed(auto.settings))

    return run_it


def _averaged(auto: AutoLRS, measure: Callable[[], Any]) -> Any:
    """What `measure` gives with the averaged weights in the model, if there are any."""
    with auto.averaged():
        return measure()


def _changed(settings: Settings) -> dict[str, Any]:
    """The settings that are not at their defaults."""
    default = Settings(strategy="paper")
    return {
        one.name: list(value) if isinstance(value := getattr(settings, one.name), tuple) else value
        for one in fields(settings)
        if getattr(settings, one.name) != getattr(default, one.name)
    }


def paper_settings(task: Task) -> dict[str, Any]:
    """Algorithm 1 as the paper runs it on this task; in a run too short for that, stages of 1/40 to 1/5 of it."""
    first = min(max(40, task.total_steps // 40), task.total_steps)
    short = {"stage_steps": first, "max_stage_steps": 8 * first}
    return {"strategy": "paper", "lr": task.lr, **short, **task.recipe}


def ablated(task: Task, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Algorithm 1's settings on a task with changes; a value that depends on the others is a function of them."""
    settings = paper_settings(task)
    settings |= {name: value(settings) if callable(value) else value for name, value in changes.items()}
    anneal = settings.get("final_anneal", PRESETS[settings.get("preset", "strict")].get("final_anneal", 0.0))
    first = min(settings["stage_steps"], task.total_steps - round(anneal * task.total_steps))
    if first < 40:  # in a run this short a tenth of a stage makes no probe
        settings["probe_fraction"] = MIN_PROBE_STEPS / first
    return settings


def _paper(**changes: Any) -> Train:
    return autolrs(lambda task: ablated(task, changes))


ABLATIONS: dict[str, dict[str, Any]] = {
    "paper-last-loss": {"forecast": "last"},
    "paper-random": {"search": "random"},
    "paper-grid": {"search": "grid"},
    "paper-tau-half": {"max_stage_steps": lambda s: s["max_stage_steps"] // 2},
    "paper-tau-double": {"max_stage_steps": lambda s: s["max_stage_steps"] * 2},
    "paper-kappa-1": {"kappa": 1.0},
    "paper-kappa-10": {"kappa": 10.0},
    "paper-raw-winner": {"winner": "raw"},
    # the switches of the practical variant, one at a time, then together
    "paper-replay": {"replay": True},
    "paper-keep-winner": {"replay": True, "keep_winner": True},
    "paper-abort": {"abort_diverged": True},
    "paper-bounded": {"bounded_forecast": True},
    "paper-move-4": {"max_lr_move": 4.0},
    "paper-anneal": {"final_anneal": 0.5},
    "paper-practical": {"preset": "practical"},
}

METHODS = (
    Method("horizon", autolrs(), ours=True),
    Method("horizon-plain", autolrs({"averaging": False}), ours=True),
    Method("paper", _paper(), ours=True),
    *(Method(name, _paper(**changes), ours=True) for name, changes in ABLATIONS.items()),
)
