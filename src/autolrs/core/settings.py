"""Every knob of a run, validated once, with the paper's symbol and the reason for each default.

Presets are named sets of switches; `strict` is Algorithm 1 as printed.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal

MIN_PROBE_STEPS = 4  # below this neither a quadratic spline nor three parameters can be fitted

PRESETS: dict[str, dict[str, Any]] = {
    "strict": {},
    "practical": {
        "replay": True,
        "keep_winner": True,
        "abort_diverged": True,
        "bounded_forecast": True,
        "max_lr_move": 4.0,
        "final_anneal": 0.5,
    },
}

# Miniature runs are compared with each other, so they must see the same batches; what they learn tells the warm-up.
STRATEGY_DEFAULTS: dict[str, dict[str, Any]] = {"horizon": {"replay": True, "warmup_fraction": "auto"}}
OWN: dict[str, frozenset[str]] = {  # settings that mean nothing to any other strategy
    "paper": frozenset(
        (
            *("stage_steps", "max_stage_steps", "probe_fraction", "n_probes", "eval_every", "warmup_lr", "range_steps"),
            *("kappa", "length_scale", "noise", "search", "first_lr", "winner"),
            *("forecast", "rounds", "outlier_fraction", "spline_pieces", "bounded_forecast"),
            *("keep_winner", "abort_diverged", "max_lr_move", "final_anneal"),
        )
    ),
    "horizon": frozenset(
        (
            "max_cost",
            "mini_fraction",
            "horizon_shift",
            "warmup_fraction",
            "hold_until",
            "decay_to",
            "evaluate_cost",
            "replan_at",
        )
    ),
}
AVERAGING_DEFAULTS: dict[str, Any] = {
    "hold_until": 0.5,
    "decay_to": 0.1,
    "horizon_shift": 0.85,
}
FORWARD = 1 / 3  # of a step: a backward pass takes twice as long
LOOKS = 20  # of `keep_best` in a run: the best state is found to within a twentieth of it
LOOK_SHARE = 0.25  # of what `max_cost` leaves beside the run, at most: the rest is the search's
REPLAN_RUNS = 3  # miniature runs that are set aside for each share in `replan_at`


@dataclass(frozen=True)
class Settings:
    """Settings of a run; symbols in brackets are the paper's.

    Where the paper is silent the default is our choice, and the comment says why.

    >>> Settings(lr=(1e-3, 1.0), total_steps=20_000).probe_steps(8000)
    800
    """

    total_steps: int | None = None  # committed optimizer steps [T]; None: until the user stops
    lr: tuple[float, float] | Literal["auto"] = "auto"  # search interval [eta_min, eta_max]
    strategy: str = "paper"
    preset: str = "strict"
    seed: int = 0  # used by random search and by first_lr="random"; nothing else draws

    # Curriculum (Section 4.4)
    stage_steps: int = 1000  # [tau] of the first stage
    max_stage_steps: int = 8000  # [tau_max]
    probe_fraction: float = 0.1  # [tau'] / [tau]
    n_probes: int = 10  # [k]
    eval_every: int = 50  # steps between validation losses once tau reaches tau_max
    warmup_steps: int = 0  # linear warm-up, outside the search, counted in total_steps
    warmup_lr: float | None = None  # where warm-up ends; None: the interval's geometric middle (paper: the user's)

    # Bayesian optimisation (Section 4.1, Appendix A.1)
    kappa: float = 1000.0  # exploration weight of the lower confidence bound
    length_scale: float = 1.0  # [l], in natural-log LR
    noise: float = 1e-4  # [sigma^2]; paper silent: a forecast is good to about .01
    search: Literal["lcb", "random", "grid"] = "lcb"  # the last two are the paper's ablations
    first_lr: Literal["middle", "random"] | float = "middle"  # LCB is flat before data; the middle wastes least
    winner: Literal["posterior", "raw"] = "posterior"  # raw: lowest forecast instead of lowest posterior mean
    parallel: int = 1  # probes that may be outstanding at once

    # Forecast (Section 4.2, Appendix A.2, A.3)
    forecast: Literal["exponential", "last"] = "exponential"  # "last" is the paper's ablation
    rounds: int = 10  # spline smoothing rounds
    outlier_fraction: float = 0.03  # farthest share dropped a round, first half only
    spline_pieces: int = 8  # paper silent: 8 quadratic pieces follow an exponential and pass over batch noise

    # Switches, off in the strict preset
    replay: bool = False  # all probes of a stage see the same batches
    keep_winner: bool = False  # go on from the winner's own end state; exact under replay, so it needs replay
    abort_diverged: bool = False  # stop a probe once its loss is not finite or far above where it began
    bounded_forecast: bool = False  # never below 0 (for losses that are not) nor below a damped extrapolation
    max_lr_move: float | None = None  # a stage's LR lies within this factor of the previous stage's
    final_anneal: float = 0.0  # last share of total_steps decays linearly to 0

    # Horizon: one search on miniature runs, then the run; reasons in docs/research-log.md
    max_cost: float = 1.15  # ceiling on all steps and validation passes, as a multiple of total_steps
    mini_fraction: float = 0.02  # length of a miniature run; at 1 % noise decides, at 4 % six of them cost too much
    horizon_shift: float = 1.1  # octaves by which a whole run usually wants a lower peak; .85 with averaging
    warmup_fraction: float | Literal["auto"] = 0.05  # of the run, unless warmup_steps is given; "auto" with "horizon"
    hold_until: float = 0.0  # share of the run after which the peak begins to decay; .5 with averaging
    averaging: bool = False  # train near the average of the weights and end with it; "horizon" does by default
    decay_to: float = 0.0  # end of the decay as a share of the peak; .1 with averaging; 1 is none: Schedule-Free's
    replan_at: tuple[float, ...] = ()  # shares of the run at which probes ask for a higher LR; no gain was measured
    usual_lr: float | None = None  # what the optimizer usually wants of such a model in a short run; half in longer
    proportional_steps: bool = False  # to gradients, as SGD's: it has a slow ramp; known in PyTorch and Keras
    rectified: float | None = None  # RAdam's second beta: its first steps are small; seen in PyTorch
    uncorrected: float | None = None  # RMSprop's decay, 1 of Adagrad: large first steps; seen in PyTorch and Keras
    normalised: bool = False  # the network has norms: SGD bears more, and no slow ramp; seen by the adapters
    trained_before: bool = False  # the network: fine-tuning wants lower peaks; the adapters see it by its norms
    evaluate_cost: float | None = None  # steps' worth of one `evaluate`; None weighs it by its data, or else is 10 / 3

    # Range test for lr="auto"
    range_steps: int = 100
    range_lr: tuple[float, float] = (1e-6, 10.0)
    base_lr: float | None = None  # the optimizer's own LR: where a search is not affordable, or a range test has none

    # All strategies
    keep_best: bool | str = False  # the state with the lowest validation loss; "auto" with "horizon" in PyTorch and JAX
    replay_bytes: int = 1 << 30  # batches cached for replay; past it the stream goes on and the journal says so

    def __post_init__(self) -> None:
        if self.lr != "auto":
            object.__setattr__(self, "lr", check_interval("lr", self.lr))
        object.__setattr__(self, "range_lr", check_interval("range_lr", self.range_lr))
        object.__setattr__(self, "replan_at", _check_shares("replan_at", self.replan_at))
        self._check_counts()
        self._check_numbers()
        self._check_choices()

    def _check_counts(self) -> None:
        for name in (
            "stage_steps",
            "max_stage_steps",
            "n_probes",
            "eval_every",
            "parallel",
            "range_steps",
            "spline_pieces",
        ):
            _check_int(name, getattr(self, name), 1)
        for name in ("warmup_steps", "rounds", "seed", "replay_bytes"):
            _check_int(name, getattr(self, name), 0)
        if self.max_stage_steps < self.stage_steps:
            raise ValueError(
                f"`max_stage_steps` must be at least `stage_steps` ({self.stage_steps}), got {self.max_stage_steps}"
            )
        if self.total_steps is not None:
            _check_int("total_steps", self.total_steps, 1)
            if self.warmup_steps >= self.total_steps:
                raise ValueError(
                    f"`warmup_steps` must be below `total_steps` ({self.total_steps}), got {self.warmup_steps}"
                )
        elif self.strategy == "horizon":
            raise ValueError(
                "`total_steps` is needed by strategy 'horizon'; give it, or use strategy='paper', got None"
            )
        elif self.final_anneal:
            raise ValueError(
                f"`final_anneal` needs `total_steps`, got final_anneal={self.final_anneal} and total_steps=None"
            )

    def _check_numbers(self) -> None:
        _check_float("probe_fraction", self.probe_fraction, 0, 1)
        for name in ("kappa", "noise"):
            _check_float(name, getattr(self, name), 0, math.inf, low_open=False)
        _check_float("length_scale", self.length_scale, 0, math.inf)
        _check_float("outlier_fraction", self.outlier_fraction, 0, 0.5, low_open=False)
        _check_float("final_anneal", self.final_anneal, 0, 1, low_open=False)
        if self.max_lr_move is not None:
            _check_float("max_lr_move", self.max_lr_move, 1, math.inf)
        if self.warmup_lr is not None:
            _check_float("warmup_lr", self.warmup_lr, 0, math.inf)
        if not isinstance(self.first_lr, str):
            _check_float("first_lr", self.first_lr, 0, math.inf)
        _check_float("max_cost", self.max_cost, 1, math.inf, low_open=False)
        _check_float("mini_fraction", self.mini_fraction, 0, 1)
        _check_float("horizon_shift", self.horizon_shift, -10, 10)
        if self.warmup_fraction != "auto":
            _check_float("warmup_fraction", self.warmup_fraction, 0, 1, low_open=False)
        _check_float("hold_until", self.hold_until, 0, 1, low_open=False)
        if self.decay_to != 1:  # which is no decay at all
            _check_float("decay_to", self.decay_to, 0, 1, low_open=False)
        if self.usual_lr is not None:
            _check_float("usual_lr", self.usual_lr, 0, math.inf)
        if self.rectified is not None:
            _check_float("rectified", self.rectified, 0, 1, low_open=False)
        if self.uncorrected is not None:
            _check_float("uncorrected", self.uncorrected, 0, 1, low_open=False, high_open=False)
        if self.evaluate_cost is not None:
            _check_float("evaluate_cost", self.evaluate_cost, 0, math.inf, low_open=False)
        if self.keep_best not in (True, False, "auto"):
            raise ValueError(f'`keep_best` must be True, False or "auto"; got {self.keep_best!r}')
        if self.strategy == "paper":
            self._check_first_probe()
        if self.replan_at and self.strategy == "horizon":
            self._check_replanning()

    def _check_replanning(self) -> None:
        if self.decay_to == 1:
            raise ValueError("`replan_at` needs a decay: miniature runs end with one, and `decay_to` is 1")
        needed = 1.01 + self.mini_fraction * (2 + REPLAN_RUNS * len(self.replan_at))
        if self.max_cost < needed - 1e-9:
            raise ValueError(
                f"`replan_at` needs `max_cost` of at least {needed:.4g}, for a ramp of 1 %, two miniature runs for the "
                f"peak and {REPLAN_RUNS} for each share in it, {self.mini_fraction:.3g} of the run each; "
                f"got {self.max_cost}"
            )

    def _check_first_probe(self) -> None:
        first = self.stage_steps if self.total_steps is None else min(self.stage_steps, self.searched_steps)
        if self.probe_steps(first) < MIN_PROBE_STEPS:
            raise ValueError(
                f"a probe must have at least {MIN_PROBE_STEPS} steps, got {self.probe_steps(first)} = probe_fraction "
                f"{self.probe_fraction} x a first stage of {first} steps; "
                "raise `probe_fraction`, `stage_steps` or `total_steps`"
            )

    def _check_choices(self) -> None:
        _check_choice("search", self.search, ("lcb", "random", "grid"))
        _check_choice("winner", self.winner, ("posterior", "raw"))
        _check_choice("forecast", self.forecast, ("exponential", "last"))
        _check_choice("preset", self.preset, tuple(PRESETS))
        if isinstance(self.first_lr, str):
            _check_choice("first_lr", self.first_lr, ("middle", "random"))
        if self.keep_winner and not self.replay:
            raise ValueError(
                "`keep_winner` needs `replay=True`: the kept probe must have seen the batches the stage begins with"
            )

    @property
    def searched_steps(self) -> int:
        """Committed steps that stages fill: all but warm-up and the final anneal. Needs `total_steps`."""
        assert self.total_steps is not None
        return self.total_steps - self.warmup_steps - round(self.final_anneal * self.total_steps)

    def probe_steps(self, stage_steps: int) -> int:
        """Steps of one probe [tau'] in a stage of `stage_steps` [tau], always fewer than the stage's own."""
        return min(round(self.probe_fraction * stage_steps), stage_steps - 1)

    @property
    def evaluate_steps(self) -> float:
        """Steps' worth of one `evaluate`; until somebody says or weighs it, ten forward passes of a third of a step."""
        return FORWARD * 10 if self.evaluate_cost is None else self.evaluate_cost

    @property
    def looks(self) -> int:
        """How often `keep_best=True` looks at the validation loss in `total_steps`, the last time at the end.

        >>> Settings(strategy="horizon", total_steps=500, keep_best=True).looks
        5
        """
        if self.keep_best is not True or self.total_steps is None:
            return 0
        if self.strategy != "horizon" or not self.evaluate_steps:
            return LOOKS
        affordable = (self.max_cost - 1.0) * self.total_steps / self.evaluate_steps
        return min(LOOKS, max(int(LOOK_SHARE * affordable), min(int(affordable), 1)))

    @property
    def look_every(self) -> int:
        """Committed steps between two looks of `keep_best=True`; 0 where there are none."""
        if self.total_steps is None:
            return self.stage_steps if self.keep_best is True else 0
        return math.ceil(self.total_steps / self.looks) if self.looks else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the journal."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """The inverse of `to_dict`."""
        return cls(**values)

    @classmethod
    def make(cls, preset: str = "strict", **values: Any) -> Settings:
        """Settings of a preset with `values` on top; an unknown name is an error that names the nearest one.

        >>> Settings.make("practical", total_steps=8000).max_lr_move
        4.0
        """
        _check_choice("preset", preset, tuple(PRESETS))
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                from difflib import get_close_matches

                near = get_close_matches(name, known, n=1)
                hint = f"; did you mean `{near[0]}`?" if near else ""
                raise TypeError(f"unknown setting `{name}`{hint}")
        defaults = {**STRATEGY_DEFAULTS.get(str(values.get("strategy")), {}), **PRESETS[preset]}
        if values.get("total_steps") is None:
            defaults.pop("final_anneal", None)
        if values.get("averaging"):
            defaults.update(AVERAGING_DEFAULTS)
        return cls(**{**defaults, **values, "preset": preset})

    def idle(self) -> list[str]:
        """Settings not at their defaults that do nothing under this strategy; one of the user's own may read any.

        >>> Settings.make(strategy="horizon", total_steps=100, kappa=1.0).idle()
        ['kappa']
        """
        others = {name for owner, names in OWN.items() if owner != self.strategy for name in names}
        changed = sorted(f.name for f in fields(self) if f.name in others and getattr(self, f.name) != f.default)
        return changed if self.strategy in OWN else []

    def remarks(self) -> list[str]:
        """What a reader of the run's journal should know about its settings."""
        idle = self.idle()
        said = [f"settings that do nothing under strategy {self.strategy!r}: {', '.join(idle)}"] if idle else []
        if self.keep_best is True and self.total_steps is not None and self.looks < LOOKS:
            said.append(
                f"`keep_best` looks {self.looks} times at the validation loss and not {LOOKS}: a look costs "
                f"{self.evaluate_steps:.3g} steps, and the search needs most of what max_cost {self.max_cost} leaves"
            )
        return said

    def check_evaluate(self, given: bool) -> None:
        """Raise an error where `evaluate` is needed and not given."""
        if self.keep_best is True and not given:
            raise ValueError("`keep_best` needs `evaluate`: the best state is the one with the lowest validation loss")

    def with_(self, **values: Any) -> Settings:
        """A copy with some values replaced."""
        return replace(self, **values)


def check_interval(name: str, value: Any) -> tuple[float, float]:
    """`value` as a pair of floats with 0 < min < max, or a ValueError that says what it was."""
    rule = f"`{name}` must be 0 < min < max, both finite"
    try:
        low, high = (float(v) for v in value)
    except (TypeError, ValueError):
        raise ValueError(f"{rule}, got {value!r}") from None
    if not (0 < low < high < math.inf):
        raise ValueError(f"{rule}, got ({low}, {high})")
    return low, high


def _check_int(name: str, value: Any, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ValueError(f"`{name}` must be a whole number of at least {low}, got {value!r}")


def _check_float(
    name: str, value: Any, low: float, high: float, *, low_open: bool = True, high_open: bool = True
) -> None:
    ok = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not (ok and (low < value < high or (value == low and not low_open) or (value == high and not high_open))):
        signs = ["<" if is_open else "<=" for is_open in (low_open, high_open)]
        raise ValueError(f"`{name}` must be {low} {signs[0]} {name} {signs[1]} {high}, got {value!r}")


def _check_shares(name: str, value: Any) -> tuple[float, ...]:
    rule = f"`{name}` must be increasing numbers between 0 and 1, such as (0.25, 0.5)"
    try:
        shares = tuple(float(share) for share in value)
    except (TypeError, ValueError):
        raise ValueError(f"{rule}, got {value!r}") from None
    if not all(low < high for low, high in pairwise((0.0, *shares, 1.0))):
        raise ValueError(f"{rule}, got {value!r}")
    return shares


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}; got {value!r}")
