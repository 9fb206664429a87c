import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.gp import posterior
from autolrs.core.search import pick, propose
from autolrs.core.settings import Settings

INTERVAL = (1e-5, 1.0)
lrs = st.floats(math.log(1e-5), 0.0).map(math.exp).map(lambda lr: min(max(lr, 1e-5), 1.0))
answers = st.lists(st.tuples(lrs, st.floats(-3, 10)), min_size=1, max_size=12)


def lower_bound(settings, explored, lr):
    """The acquisition function, from its definition."""
    x, y = np.log([lr for lr, _ in explored]), [loss for _, loss in explored]
    mean, std = posterior(x, y, np.log(lr), noise=settings.noise, length_scale=settings.length_scale)
    return mean - settings.kappa * std


@given(answers, st.sampled_from([0.0, 0.3, 2.0, 1000.0]))
def test_lcb_proposal_is_as_good_as_brute_force(explored, kappa):
    settings = Settings(kappa=kappa)
    lr = propose(settings, INTERVAL, explored)
    everywhere = lower_bound(settings, explored, np.geomspace(*INTERVAL, 50_001))
    best, spread = everywhere.min(), np.ptp(everywhere)
    assert lower_bound(settings, explored, [lr])[0] <= best + 1e-5 * spread + 1e-9


@pytest.mark.parametrize("search", ["lcb", "random", "grid"])
@given(explored=answers, seed=st.integers(0, 10**9), stage=st.integers(0, 200))
def test_proposal_lies_in_the_interval_and_is_a_function_of_the_past(search, explored, seed, stage):
    settings = Settings(search=search, seed=seed)
    first = propose(settings, INTERVAL, explored, stage=stage)
    assert INTERVAL[0] <= first <= INTERVAL[1]
    assert propose(settings, INTERVAL, list(explored), stage=stage) == first


def test_a_proposal_leaves_the_global_random_state_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - the legacy state is what must not move
    propose(Settings(search="random"), INTERVAL, [])
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_random_search_depends_on_seed_stage_and_place():
    draws = [
        propose(Settings(search="random", seed=seed), INTERVAL, [(0.1, 1.0)] * index, stage=stage)
        for seed, stage, index in itertools.product(range(3), range(3), range(3))
    ]
    assert len(set(draws)) == len(draws)


def test_random_search_is_uniform_in_log_lr():
    draws = [propose(Settings(search="random", seed=seed), INTERVAL, []) for seed in range(400)]
    counts, _ = np.histogram(np.log10(draws), bins=5, range=(-5, 0))
    assert counts.min() > 50


def test_grid_search_walks_the_interval_from_end_to_end():
    settings = Settings(search="grid", n_probes=6)
    explored = []
    for _ in range(6):
        explored.append((propose(settings, INTERVAL, explored), 1.0))
    np.testing.assert_allclose([lr for lr, _ in explored], np.geomspace(*INTERVAL, 6))


def test_grid_of_one_is_the_middle():
    assert propose(Settings(search="grid", n_probes=1), (1e-4, 1e-2), []) == pytest.approx(1e-3)


@pytest.mark.parametrize(("first_lr", "expected"), [("middle", 10**-2.5), (0.03, 0.03), (1e-9, 1e-5), (50.0, 1.0)])
def test_first_lr_is_the_middle_or_as_given_within_the_interval(first_lr, expected):
    assert propose(Settings(first_lr=first_lr), INTERVAL, []) == pytest.approx(expected)


def test_random_first_lr_depends_on_the_seed():
    assert len({propose(Settings(first_lr="random", seed=seed), INTERVAL, []) for seed in range(5)}) == 5


@pytest.mark.parametrize("search", ["lcb", "random", "grid"])
@given(explored=st.lists(st.tuples(lrs, st.floats(0, 5)), max_size=6), parallel=st.integers(2, 6))
def test_outstanding_lrs_are_not_proposed_again(search, explored, parallel):
    settings = Settings(search=search, n_probes=12)
    outstanding = []
    for _ in range(parallel):
        outstanding.append(propose(settings, INTERVAL, explored, outstanding))
    assert min(np.diff(np.sort(np.log(outstanding)))) > 1e-3


def test_lcb_takes_an_outstanding_lr_at_its_predicted_mean():
    explored, outstanding = [(1e-4, 3.0), (1e-2, 1.0), (1.0, 2.0)], [0.003, 0.1]
    believed = list(explored)
    settings = Settings(kappa=2.0)
    for lr in outstanding:
        x, y = np.log([lr for lr, _ in believed]), [loss for _, loss in believed]
        believed.append((lr, float(posterior(x, y, [math.log(lr)], noise=settings.noise)[0][0])))
    assert propose(settings, INTERVAL, explored, outstanding) == propose(settings, INTERVAL, believed)
    zero = propose(Settings(kappa=0.5), INTERVAL, [*explored, (0.003, 0.0)])
    assert propose(Settings(kappa=0.5), INTERVAL, explored, [0.003]) != pytest.approx(zero)


@given(answers)
def test_winner_has_the_lowest_posterior_mean_among_the_explored(explored):
    settings = Settings()
    x, y = np.log([lr for lr, _ in explored]), [loss for _, loss in explored]
    mean, _ = posterior(x, y, x, noise=settings.noise)
    assert mean[pick(settings, explored)] == mean.min()


def test_posterior_winner_may_differ_from_the_lowest_forecast():
    # Two neighbours disagree about nearly the same LR: their mean is no better than the one that stands alone.
    explored = [(0.0100, 0.9), (0.0101, 3.0), (1.0, 1.2)]
    assert pick(Settings(noise=1e-2), explored) == 2
    assert pick(Settings(noise=1e-2, winner="raw"), explored) == 0


@pytest.mark.parametrize("winner", ["raw", "posterior"])
def test_a_tie_goes_to_the_lower_lr(winner):
    explored = [(0.1, 1.0), (0.01, 1.0), (0.01, 1.0)]
    assert pick(Settings(winner="raw"), explored) == 1
    assert pick(Settings(winner=winner), [(0.1, 0.0), (0.01, 0.0)]) == 1


def test_lcb_with_the_papers_kappa_spreads_over_the_interval():
    explored = []
    for _ in range(10):
        lr = propose(Settings(), INTERVAL, explored)
        explored.append((lr, math.log10(lr) ** 2))
    gaps = np.diff(np.sort([math.log(lr) for lr, _ in explored]))
    assert gaps.max() < 2.5 * (math.log(1e5) / 9)
