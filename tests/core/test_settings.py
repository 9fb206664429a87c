import json
import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.settings import OWN, PRESETS, Settings, check_interval
from helpers import SWITCHES, paper_settings

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    "interval",
    [
        (0.1, 0.01),
        (0.1, 0.1),
        (0.0, 0.1),
        (-0.1, 0.1),
        (-2.0, -1.0),
        (NAN, 0.1),
        (0.1, NAN),
        (0.1, INF),
        (0.1,),
        (0.1, 0.2, 0.3),
        "0.1",
        None,
        0.1,
        ("a", "b"),
    ],
)
@pytest.mark.parametrize("name", ["lr", "range_lr"])
def test_interval_that_is_not_zero_below_min_below_max_is_refused_by_name(name, interval):
    with pytest.raises(ValueError, match=f"`{name}` must be 0 < min < max, both finite, got "):
        Settings(**{name: interval})


def test_interval_error_shows_the_value():
    with pytest.raises(ValueError, match=r"got \(0\.1, 0\.01\)"):
        check_interval("lr", (0.1, 0.01))


def test_interval_may_be_a_list_of_whole_numbers():
    assert Settings(lr=[1, 10]).lr == (1.0, 10.0)


COUNTS = {
    "total_steps": 1,
    "stage_steps": 1,
    "max_stage_steps": 1,
    "n_probes": 1,
    "eval_every": 1,
    "parallel": 1,
    "range_steps": 1,
    "spline_pieces": 1,
    "warmup_steps": 0,
    "rounds": 0,
    "seed": 0,
}


@pytest.mark.parametrize(("name", "least"), COUNTS.items())
@pytest.mark.parametrize("wrong", ["below", 2.5, True, "3", NAN])
def test_count_that_is_not_a_whole_number_from_its_least_is_refused_by_name(name, least, wrong):
    value = least - 1 if wrong == "below" else wrong
    with pytest.raises(ValueError, match=f"`{name}` must be a whole number of at least {least}, got {value!r}"):
        Settings(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("probe_fraction", 0.0),
        ("probe_fraction", 1.0),
        ("probe_fraction", NAN),
        ("kappa", -1.0),
        ("kappa", INF),
        ("noise", -1e-9),
        ("noise", NAN),
        ("length_scale", 0.0),
        ("outlier_fraction", 0.5),
        ("outlier_fraction", -0.1),
        ("max_lr_move", 1.0),
        ("max_lr_move", 0.5),
        ("warmup_lr", 0.0),
        ("first_lr", -1.0),
        ("first_lr", NAN),
        ("rectified", 1.0),
        ("uncorrected", 1.5),
        ("uncorrected", -0.1),
        ("uncorrected", NAN),
    ],
)
def test_number_out_of_range_is_refused_by_name_with_its_value(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be .* got {value!r}"):
        Settings(**{name: value})


@pytest.mark.parametrize("name", ["search", "winner", "forecast", "preset", "first_lr"])
def test_unknown_choice_is_refused_with_the_choices(name):
    with pytest.raises(ValueError, match=f"`{name}` must be one of .*got 'magic'"):
        Settings(**{name: "magic"})


def test_tau_max_below_tau_is_refused():
    with pytest.raises(ValueError, match=r"`max_stage_steps` must be at least `stage_steps` \(1000\), got 500"):
        Settings(max_stage_steps=500)


def test_warm_up_that_fills_the_run_is_refused():
    with pytest.raises(ValueError, match=r"`warmup_steps` must be below `total_steps` \(2000\), got 2000"):
        Settings(total_steps=2000, warmup_steps=2000)


def test_keep_winner_without_replay_is_refused():
    with pytest.raises(ValueError, match="`keep_winner` needs `replay=True`"):
        Settings(keep_winner=True)


def test_final_anneal_without_total_steps_is_refused():
    with pytest.raises(ValueError, match="`final_anneal` needs `total_steps`"):
        Settings(final_anneal=0.2)


@pytest.mark.parametrize(
    "values",
    [
        {"stage_steps": 30},
        {"probe_fraction": 0.003},
        {"total_steps": 30},
        {"total_steps": 1000, "warmup_steps": 970},
        {"total_steps": 1000, "warmup_steps": 600, "final_anneal": 0.5},
    ],
)
def test_probe_shorter_than_four_steps_is_refused_with_what_to_raise(values):
    with pytest.raises(ValueError, match=r"a probe must have at least 4 steps, got .*raise `probe_fraction`"):
        Settings(**values)


@pytest.mark.parametrize("fraction", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("steps", [5, 8, 10, 101])
def test_probe_is_shorter_than_its_stage(fraction, steps):
    assert Settings(probe_fraction=fraction).probe_steps(steps) < steps


def test_every_switch_is_off_in_the_strict_preset():
    strict = Settings.make("strict", total_steps=20_000)
    assert strict == Settings(total_steps=20_000)
    assert [getattr(strict, switch) for switch in SWITCHES] == [False, False, False, False, None, 0.0]


def test_every_switch_is_on_in_the_practical_preset():
    practical = Settings.make("practical", total_steps=20_000)
    assert all(getattr(practical, switch) for switch in SWITCHES)
    assert set(PRESETS["practical"]) == set(SWITCHES)


def test_values_override_the_preset():
    settings = Settings.make("practical", total_steps=20_000, max_lr_move=2.0, keep_winner=False)
    assert (settings.max_lr_move, settings.keep_winner, settings.replay) == (2.0, False, True)


def test_practical_preset_without_total_steps_does_not_anneal():
    assert Settings.make("practical").final_anneal == 0.0


def test_unknown_setting_names_the_nearest():
    with pytest.raises(TypeError, match=r"unknown setting `kapa`; did you mean `kappa`\?"):
        Settings.make(kapa=3)


def test_defaults_are_the_papers():
    s = Settings()
    assert (s.stage_steps, s.max_stage_steps, s.probe_fraction, s.n_probes) == (1000, 8000, 0.1, 10)
    assert (s.kappa, s.length_scale, s.rounds, s.outlier_fraction, s.eval_every) == (1000.0, 1.0, 10, 0.03, 50)


@given(st.one_of(paper_settings(), st.just(Settings()), st.just(Settings.make("practical", total_steps=9000))))
def test_settings_survive_json(settings):
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_copy_with_other_values_is_checked_too():
    assert Settings().with_(seed=3).seed == 3
    with pytest.raises(ValueError, match="`seed`"):
        Settings().with_(seed=-1)


def test_settings_of_the_other_strategy_are_named():
    assert Settings.make(strategy="horizon", total_steps=100, kappa=1.0, n_probes=3).idle() == ["kappa", "n_probes"]
    assert Settings.make(strategy="paper", max_cost=1.1).idle() == ["max_cost"]
    assert Settings.make(strategy="horizon", total_steps=100).idle() == []
    assert Settings.make(strategy="mine", kappa=1.0, max_cost=1.1).idle() == []


@pytest.mark.parametrize(
    ("values", "looks", "every"),
    [
        ({"total_steps": 20_000}, 20, 1000),
        ({"total_steps": 1030}, 11, 94),
        ({"total_steps": 500}, 5, 100),
        ({"total_steps": 100}, 1, 100),  # one is the least, if there is room for it at all
        ({"total_steps": 20}, 0, 0),
        ({"total_steps": 20_000, "max_cost": 1.0}, 0, 0),
        ({"total_steps": 20_000, "evaluate_cost": 200.0}, 3, 6667),
        ({"total_steps": 20_000, "evaluate_cost": 0.0}, 20, 1000),
        ({"total_steps": 20_000, "keep_best": False}, 0, 0),
        ({"total_steps": 1030, "strategy": "paper"}, 20, 52),
        ({"total_steps": None, "strategy": "paper", "stage_steps": 300}, 0, 300),
    ],
)
def test_looks_of_keep_best_take_at_most_a_quarter_of_what_max_cost_leaves(values, looks, every):
    settings = Settings.make(**{"strategy": "horizon", "keep_best": True, **values})
    assert (settings.looks, settings.look_every) == (looks, every)
    fewer = settings.keep_best and settings.total_steps is not None and looks < 20
    assert any(f"`keep_best` looks {looks} times" in remark for remark in settings.remarks()) is fewer


def test_keep_best_needs_evaluate():
    with pytest.raises(ValueError, match="`keep_best` needs `evaluate`"):
        Settings(keep_best=True).check_evaluate(False)
    Settings(keep_best=True).check_evaluate(True)
    Settings().check_evaluate(False)


def test_every_setting_of_one_strategy_exists():
    names = {field.name for field in fields(Settings)}
    assert all(own <= names for own in OWN.values())
    assert not OWN["paper"] & OWN["horizon"]
