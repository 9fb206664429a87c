import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.testing import SimulatedHost


def train(host, lr, steps):
    host.set_lr(lr)
    return [host.step() for _ in range(steps)]


@pytest.mark.parametrize("problem", ["quadratic", "power"])
@pytest.mark.parametrize("lr", [0.0, 1e-4, 0.3, 1.0, 1.9, 2.0])
def test_closed_form_agrees_with_stepping(problem, lr):
    host = SimulatedHost(problem=problem)
    train(host, 0.05, 30)
    expected = host.loss_after(200, lr)
    train(host, lr, 200)
    assert host.loss() == pytest.approx(expected, rel=1e-9)


def test_lr_above_the_limit_diverges_without_warnings():
    host = SimulatedHost()
    assert host.loss_after(10_000, 3.0) == math.inf
    losses = train(host, 3.0, 3000)
    assert not math.isfinite(losses[-1])


def test_best_lr_beats_its_neighbours():
    host = SimulatedHost()
    best = host.best_lr(200, (1e-3, 2.0))
    assert 1e-3 < best < 2.0
    assert host.loss_after(200, best) <= min(host.loss_after(200, best * factor) for factor in (0.8, 0.95, 1.05, 1.25))


def test_best_lr_falls_as_training_goes_on():
    host = SimulatedHost()
    early = host.best_lr(200, (1e-3, 1.0))
    train(host, early, 3000)
    assert host.best_lr(200, (1e-3, 1.0)) < early / 2


@given(st.integers(0, 50), st.integers(1, 50), st.floats(1e-3, 0.5))
def test_restore_brings_state_and_lr_back_many_times(before, during, lr):
    host = SimulatedHost()
    train(host, 0.1, before)
    token, state, old = host.snapshot(), host.mean_square.copy(), host.lr
    for _ in range(2):
        train(host, lr, during)
        host.restore(token)
        assert (host.mean_square == state).all()
        assert host.lr == old


def test_restore_leaves_the_data_position_and_the_stream_rewinds_it():
    host = SimulatedHost()
    host.stream.mark()
    token = host.snapshot()
    first = train(host, 0.1, 20)
    assert host.stream.position() == 20
    host.restore(token)
    on = train(host, 0.1, 20)
    host.restore(token)
    host.stream.rewind()
    again = train(host, 0.1, 20)
    assert first == again
    assert first != on


def test_stream_goes_back_to_a_position_after_the_mark():
    host = SimulatedHost()
    train(host, 0.1, 7)
    host.stream.mark()
    train(host, 0.1, 5)
    host.stream.rewind(3)
    assert (host.position, host.stream.position()) == (10, 3)


def test_noise_is_a_function_of_seed_and_position_across_blocks():
    def noise(seed, position):
        host = SimulatedHost(seed=seed)
        host.position = position
        return host.step()

    assert noise(1, 4095) == noise(1, 4095)
    assert len({noise(seed, position) for seed in (1, 2) for position in (0, 4095, 4096, 9000)}) == 8


def test_first_lrs_tell_the_lr_of_the_first_step_after_each_restore():
    host = SimulatedHost()
    token = host.snapshot()
    train(host, 0.1, 3)
    for lr in (0.2, 0.3):
        host.restore(token)
        train(host, lr, 3)
    assert host.first_lrs == [0.2, 0.3]


def test_released_token_cannot_be_restored():
    host = SimulatedHost()
    token = host.snapshot()
    host.release(token)
    with pytest.raises(KeyError):
        host.restore(token)


def test_evaluate_changes_nothing_and_carries_no_batch_noise():
    host = SimulatedHost(offset=2.0)
    train(host, 0.1, 10)
    twin = copy.deepcopy(host)
    assert host.evaluate() == host.evaluate() == host.loss() + 2.0
    assert host.step() == twin.step()


def test_unknown_problem_is_refused():
    with pytest.raises(ValueError, match="`problem` must be one of quadratic, power; got 'cubic'"):
        SimulatedHost(problem="cubic")


def test_losses_are_plain_floats():
    host = SimulatedHost()
    assert type(host.step()) is type(host.evaluate()) is float
    assert np.isfinite(host.mean_square).all()
