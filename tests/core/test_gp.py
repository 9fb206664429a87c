import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from autolrs.core.gp import Posterior, matern52, posterior

points = st.floats(-16, 3)  # log LRs from 1e-7 to 20
values = st.floats(-20, 20)


@given(
    observed=st.lists(st.tuples(points, values), min_size=1, max_size=15),
    new=st.lists(points, min_size=1, max_size=20),
    noise=st.sampled_from([1e-4, 1e-3, 1e-2, 1.0]),
    length_scale=st.floats(0.2, 4),
    amplitude=st.sampled_from([1.0, 0.3, 5.0]),
)
def test_posterior_agrees_with_scikit_learn(observed, new, noise, length_scale, amplitude):
    x, y = np.array(observed).T
    x_new = np.concatenate([new, x])  # also at the observations themselves
    kernel = ConstantKernel(amplitude, "fixed") * Matern(length_scale, "fixed", nu=2.5)
    oracle = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None, normalize_y=False).fit(x[:, None], y)
    expected_mean, expected_std = oracle.predict(x_new[:, None], return_std=True)
    mean, std = posterior(x, y, x_new, noise=noise, length_scale=length_scale, amplitude=amplitude)
    np.testing.assert_allclose(mean, expected_mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(std, expected_std, rtol=0, atol=1e-8)


@pytest.mark.parametrize("noise", [0.0, 1e-15, 1e-4])
@given(observed=st.lists(st.tuples(points, st.floats(0, 5)), min_size=1, max_size=6), copies=st.integers(2, 5))
def test_duplicate_lrs_do_no_harm(noise, observed, copies):
    x, y = np.array(observed * copies).T
    mean, std = posterior(x, y, np.linspace(-16, 3, 50), noise=noise)
    assert np.isfinite(mean).all()
    assert ((std >= 0) & (std <= 1 + 1e-9)).all()


@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_mean_at_a_duplicate_lies_between_its_values(noise):
    mean, _ = posterior([0.0, 0.0, 3.0], [1.0, 2.0, 1.5], [0.0], noise=noise)
    assert 1.0 < mean[0] < 2.0


def test_no_observations_give_the_prior():
    mean, std = posterior([], [], [-3.0, 0.0], amplitude=4.0)
    assert mean.tolist() == [0.0, 0.0]
    assert std.tolist() == [2.0, 2.0]


def test_far_from_data_the_prior_comes_back():
    mean, std = posterior([0.0], [5.0], [100.0])
    assert (mean[0], std[0]) == (pytest.approx(0), pytest.approx(1))


def test_without_noise_the_observations_are_met_exactly():
    mean, std = posterior([-2.0, 0.0, 1.0], [1.0, 3.0, -2.0], [-2.0, 0.0, 1.0], noise=0.0)
    np.testing.assert_allclose(mean, [1.0, 3.0, -2.0], atol=1e-9)
    np.testing.assert_allclose(std, 0.0, atol=1e-6)


def test_matern_closed_form_is_the_papers_equation():
    from scipy.special import gamma, kv

    r, nu, length = np.linspace(0.05, 6, 40), 2.5, 1.7
    z = math.sqrt(2 * nu) * r / length
    np.testing.assert_allclose(matern52(r, [0.0], length)[:, 0], z**nu * kv(nu, z) / (gamma(nu) * 2 ** (nu - 1)))


def test_bad_observations_are_refused():
    with pytest.raises(ValueError, match="same length, got 2 and 1"):
        Posterior([0.0, 1.0], [0.0])
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="must be finite"):
            Posterior([0.0], [bad])
        with pytest.raises(ValueError, match="must be finite"):
            Posterior([bad], [0.0])
