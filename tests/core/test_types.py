import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.types import (
    Aborted,
    Asked,
    Commit,
    Committed,
    Finish,
    Finished,
    Forecast,
    Noted,
    Probe,
    Probed,
    Ranged,
    Resumed,
    Segment,
    Started,
    Wait,
    constant,
    cut,
    decode,
    encode,
    peak_lr,
    profile_steps,
)

floats = st.floats(allow_nan=False)
lrs = st.floats(0, 1e3)
segments = st.builds(Segment, st.integers(1, 10**6), lrs, lrs)
profiles = st.lists(segments, min_size=1, max_size=3).map(tuple)
losses = st.lists(floats, max_size=4).map(tuple)
forecasts = st.builds(
    Forecast, floats, floats, floats, floats, st.sampled_from(["ok", "flat", "rising", "diverged", "too_short"])
)
numbers = st.integers(-1, 50)
probes = st.builds(
    Probe,
    numbers,
    numbers,
    profiles,
    st.sampled_from(["train", "validation"]),
    numbers,
    numbers,
    st.none() | numbers,
)
commits = st.builds(Commit, numbers, profiles, st.none() | numbers, st.text())
settings = st.dictionaries(st.sampled_from(["lr", "seed"]), st.none() | floats | st.tuples(floats, floats) | st.text())
values = st.one_of(
    segments,
    forecasts,
    probes,
    commits,
    st.just(Wait()),
    st.builds(Finish, st.text()),
    st.builds(Started, settings, st.dictionaries(st.sampled_from(["numpy", "scipy"]), st.text())),
    st.builds(Asked, probes | commits),
    st.builds(Ranged, floats, floats, st.text()),
    st.builds(Probed, numbers, numbers, lrs, numbers, losses, forecasts, numbers),
    st.builds(Aborted, numbers, numbers, lrs, numbers, losses, st.text(), numbers),
    st.builds(Committed, numbers, profiles, numbers, losses),
    st.builds(Noted, st.text()),
    st.builds(Resumed, numbers),
    st.builds(Finished, st.text()),
)


@given(values)
def test_every_type_survives_strict_json(value):
    text = json.dumps(encode(value), allow_nan=False)
    assert decode(json.loads(text)) == value


def test_nan_survives_strict_json():
    text = json.dumps(encode((math.nan, math.inf, -math.inf)), allow_nan=False)
    nan, plus, minus = decode(json.loads(text))
    assert math.isnan(nan)
    assert (plus, minus) == (math.inf, -math.inf)


def test_unknown_kind_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="unknown kind 'Rocket'"):
        decode({"kind": "Rocket"})


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ((0, 0.1, 0.1), "`steps` of a segment must be at least 1, got 0"),
        ((-3, 0.1, 0.1), "`steps` of a segment must be at least 1, got -3"),
        ((1, -0.1, 0.1), "`lr_start` must be finite and not negative, got -0.1"),
        ((1, 0.1, math.nan), "`lr_end` must be finite and not negative, got nan"),
        ((1, math.inf, 0.1), "`lr_start` must be finite and not negative, got inf"),
    ],
)
def test_impossible_segment_is_refused(values, what):
    with pytest.raises(ValueError, match=what):
        Segment(*values)


def test_constant_segment_gives_its_lr_bit_by_bit():
    lr = 0.1 + 0.2
    assert {Segment(7, lr, lr).lr_at(i) for i in range(7)} == {lr}


@given(segments)
def test_ramp_begins_at_its_start_stays_between_its_ends_and_leaves_the_end_to_the_next_segment(segment):
    low, high = sorted((segment.lr_start, segment.lr_end))
    assert segment.lr_at(0) == segment.lr_start
    assert low <= segment.lr_at(segment.steps // 2) <= high
    assert segment.lr_at(segment.steps) == pytest.approx(segment.lr_end)


def test_decay_to_zero_wastes_no_step_at_lr_zero():
    assert Segment(5, 1.0, 0.0).lr_at(4) > 0


@given(profiles, st.floats(0, 1))
def test_two_parts_of_a_profile_make_the_whole(profile, share):
    profile = tuple(Segment(min(segment.steps, 30), segment.lr_start, segment.lr_end) for segment in profile)
    steps = profile_steps(profile)
    at = int(share * steps)
    parts = (*cut(profile, 0, at), *cut(profile, at, steps))
    whole = [segment.lr_at(i) for segment in profile for i in range(segment.steps)]
    assert [segment.lr_at(i) for segment in parts for i in range(segment.steps)] == pytest.approx(whole)


def test_profile_helpers_count_steps_and_find_the_peak():
    profile = (Segment(3, 0.0, 2.0), Segment(4, 2.0, 0.5))
    assert profile_steps(profile) == 7
    assert peak_lr(profile) == 2.0
    assert constant(5, 0.3) == (Segment(5, 0.3, 0.3),)
