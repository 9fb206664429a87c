"""What Adam and SGD usually want of a model and what runs make of it; whether a model was trained before."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from autolrs import AutoLRS
from autolrs.core import first_steps
from autolrs.core.types import Noted
from autolrs.pytorch.usual import (
    SCALE_FREE,
    normalised,
    proportional_steps,
    rectified,
    trained_before,
    uncorrected,
    usual_lr,
)


def net(width=16):
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))


@pytest.mark.parametrize("optimizer", SCALE_FREE)
def test_it_falls_with_the_width(optimizer):
    narrow, wide = (usual_lr(model, optimizer(model.parameters())) for model in (net(16), net(64)))
    assert narrow == pytest.approx(0.8 / 8, rel=1e-2)  # four inputs and sixteen; BatchNorm and biases have none
    assert wide == pytest.approx(narrow / 2, rel=1e-2)


def test_convolutions_count_by_the_root_of_their_window_and_tables_do_not_count():
    model = nn.Sequential(nn.Embedding(1000, 8), nn.Conv1d(8, 4, 9), nn.Conv2d(4, 6, 3))
    expected = pytest.approx(0.8 / (24 * 12) ** 0.5, rel=1e-2)
    assert usual_lr(model, torch.optim.Adam(model.parameters())) == expected
    model.position = nn.Parameter(torch.zeros(1, 50, 64))
    assert usual_lr(model, torch.optim.Adam(model.parameters())) == expected


def test_only_what_is_trained_counts():
    model = net()
    model[0].requires_grad_(False)
    assert usual_lr(model, torch.optim.Adam(model.parameters())) == pytest.approx(0.8 / 16, rel=1e-2)
    assert usual_lr(model, torch.optim.Adam(model[3].parameters())) == pytest.approx(0.8 / 16, rel=1e-2)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop])
def test_of_other_optimizers_nothing_is_known(make):
    model = nn.Linear(4, 1)
    assert usual_lr(model, make(model.parameters(), lr=0.1)) is None


def test_sgd_has_one_in_networks_with_norms_by_its_momentum():
    def known(model, **group):
        return usual_lr(model, torch.optim.SGD(model.parameters(), lr=0.1, **group))

    given = [{}, {"momentum": 0.9}, {"momentum": 0.95, "nesterov": True}]
    assert [known(net(), **group) for group in given] == [0.6, 0.06, 0.03]
    assert known(nn.Sequential(net()[0], nn.GroupNorm(4, 16)), momentum=0.5) == 0.3
    assert known(nn.Linear(4, 1), momentum=0.9) is None
    assert known(net(), momentum=0.9, dampening=0.5) is None and known(net(), momentum=1.0) is None
    assert usual_lr(net(), torch.optim.RMSprop(net().parameters(), momentum=0.9)) is None


def test_a_model_without_layers_has_none():
    model = nn.BatchNorm1d(4)
    assert usual_lr(model, torch.optim.Adam(model.parameters())) is None


def peak(total, make=torch.optim.Adam, target=torch.sin, **settings):
    torch.manual_seed(0)
    model = net()
    x = torch.randn(256, 4)
    data = torch.utils.data.TensorDataset(x, target(x.sum(1, keepdim=True)))
    optimizer, notes = make(model.parameters(), lr=1e-3), []
    auto = AutoLRS(model, optimizer, total_steps=total, **settings)
    auto.on_event(lambda event: notes.append(event.message) if isinstance(event, Noted) else None)
    for features, target in auto.batches(torch.utils.data.DataLoader(data, batch_size=32)):
        loss = nn.functional.mse_loss(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not auto.step(loss).exploring:
            break
    return auto.session.command.aim, notes, auto.settings.usual_lr


@pytest.mark.parametrize(("total", "share"), [(300, 1.0), (600, 1.0), (1500, 0.5)])
def test_a_run_with_adam_goes_by_what_is_usual_and_says_so(total, share):
    assert not any("usual" in note for note in peak(total, usual_lr=None)[1])
    assert peak(total)[2] == pytest.approx(0.8 / 8, rel=1e-2)
    found, said, usual = peak(total, usual_lr=0.05)
    assert sum(f"{share * usual:.3g}, which is usual" in note for note in said) == 1
    assert abs(math.log2(found / (share * usual))) < 1.5


def test_it_does_not_lead_out_of_the_interval():
    assert peak(600, usual_lr=5e-3, lr=(1e-5, 1e-3))[0] <= 1e-3 * (1 + 1e-9)


@pytest.mark.parametrize("total", [600, 1500])
def test_sgd_that_learns_in_miniature_rests_on_its_search_alone(total):
    def line(inputs):
        return inputs

    for usual in (1e-3, 0.6):  # far above what is found it would be the peak: test_horizon_usual_sgd.py
        known, unknown = (peak(total, torch.optim.SGD, line, usual_lr=lr) for lr in (usual, None))
        assert known[:2] == unknown[:2]
    assert peak(total, torch.optim.SGD, line)[2] == 0.6


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_that_learns_nothing_takes_what_is_usual(momentum):
    def noise(inputs):
        return torch.randn(inputs.shape)

    def sgd(weights, lr):
        return torch.optim.SGD(weights, lr=lr, momentum=momentum)

    found, said, usual = peak(1500, sgd, noise)
    assert found == usual / 2 == pytest.approx(0.3 * (1 - momentum))
    assert any(f"{found:.3g}, which is usual of longer runs, is taken instead" in note for note in said)
    assert peak(1500, sgd, noise, usual_lr=None)[0] != found


def steps_of(make, **values):
    """Of how many LRs each of the first 300 steps is, where the gradient is always the same."""
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer, places = make([weight], lr=1.0, eps=1e-12, **values), [0.0]
    for _ in range(300):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        places.append(weight.item())
    return np.diff(places)


def test_radam_takes_the_share_of_adams_steps_that_is_known_of_it():
    shares = steps_of(torch.optim.RAdam) / steps_of(torch.optim.Adam)
    for step in (10, 27, 100, 300):
        assert shares[step - 1] == pytest.approx(first_steps.rectified(step, 0.999), rel=1e-6)


@pytest.mark.parametrize(
    ("make", "values", "decay"),
    [
        (torch.optim.RMSprop, {}, 0.99),
        (torch.optim.RMSprop, {"alpha": 0.9}, 0.9),
        (torch.optim.Adagrad, {}, 1.0),
    ],
)
def test_steps_of_rmsprop_and_adagrad_shrink_as_is_known_of_them(make, values, decay):
    assert uncorrected(make(net().parameters(), **values)) == decay
    sizes = steps_of(make, **values)
    for step in (10, 27, 100, 300):
        assert sizes[step - 1] / sizes[0] == pytest.approx(first_steps.uncorrected(step, decay), rel=1e-6)


def test_of_other_optimizers_and_of_an_adagrad_that_began_with_a_sum_nothing_is_known():
    weights = list(net().parameters())
    others = [make(weights, lr=0.1) for make in (torch.optim.SGD, torch.optim.Adamax, *SCALE_FREE)]
    assert [*map(uncorrected, [*others, torch.optim.Adagrad(weights, initial_accumulator_value=0.1)])] == [None] * 7
    for given, expected in (({}, 0.99), ({"uncorrected": None}, None)):
        assert AutoLRS(net(), torch.optim.RMSprop(weights), total_steps=600, **given).settings.uncorrected == expected


def test_a_peak_of_adagrad_is_raised_and_the_journal_says_so():
    known, said, _ = peak(1500, torch.optim.Adagrad)
    unknown, before, _ = peak(1500, torch.optim.Adagrad, uncorrected=None)
    assert known == pytest.approx(unknown * 50**0.5, rel=1e-6)
    assert [any("steps are still large" in note for note in notes) for notes in (said, before)] == [True, False]


def test_of_radam_the_second_beta_is_known_and_of_others_nothing():
    model = net()
    made = {make: make(model.parameters(), lr=0.1) for make in (torch.optim.SGD, *SCALE_FREE)}
    assert {make: rectified(one) for make, one in made.items() if rectified(one)} == {torch.optim.RAdam: 0.999}
    for given, expected in (({}, 0.98), ({"rectified": None}, None)):
        optimizer = torch.optim.RAdam(model.parameters(), betas=(0.9, 0.98))
        assert AutoLRS(model, optimizer, total_steps=600, **given).settings.rectified == expected


def test_radam_of_other_libraries_is_known_by_name():
    schedulefree = pytest.importorskip("schedulefree")
    model = net()

    class RAdam(torch.optim.SGD):  # no second beta
        pass

    assert rectified(schedulefree.RAdamScheduleFree(model.parameters(), betas=(0.9, 0.99))) == 0.99
    assert rectified(schedulefree.AdamWScheduleFree(model.parameters())) is None
    assert rectified(RAdam(model.parameters(), lr=0.1)) is None
    optimizer = schedulefree.RAdamScheduleFree(model.parameters())
    assert AutoLRS(model, optimizer, total_steps=600).settings.rectified == 0.999


def test_radam_gets_about_the_peak_of_adam():
    """Before its small first steps were known it got ten times as much."""
    radam, adam = (peak(1500, make)[0] for make in (torch.optim.RAdam, torch.optim.Adam))
    assert 0.5 < radam / adam < 3


def test_steps_of_sgd_are_proportional_to_gradients_and_those_of_what_is_built_on_it_may_not_be():
    class Clipped(torch.optim.SGD):
        pass

    model = net()
    made = {make: make(model.parameters(), lr=0.1) for make in (torch.optim.SGD, Clipped, *SCALE_FREE)}
    assert [make for make, optimizer in made.items() if proportional_steps(optimizer)] == [torch.optim.SGD]
    for make, known in ((torch.optim.SGD, True), (torch.optim.Adam, False)):
        auto = AutoLRS(model, make(model.parameters(), lr=0.1), total_steps=600)
        assert auto.settings.proportional_steps == known
    given = AutoLRS(model, torch.optim.SGD(model.parameters(), lr=0.1), total_steps=600, proportional_steps=False)
    assert not given.settings.proportional_steps


@pytest.mark.parametrize(("total", "minis"), [(600, False), (1100, True)])
def test_runs_of_sgd_say_where_their_slow_ramp_broke(total, minis):
    _, said, _ = peak(total, torch.optim.SGD, lambda x: x + 5, normalised=False)
    (note,) = (note for note in said if "slow ramp" in note)
    assert ("miniature runs" in note) == minis and "training broke at" in note
    assert not any("slow ramp" in note for note in peak(total, torch.optim.Adam, lambda x: x + 5)[1])


def normed(norm, width=8):
    return nn.Sequential(nn.Linear(4, width), norm(width), nn.ReLU(), nn.Linear(width, 1))


NORMS = [nn.BatchNorm1d, nn.LayerNorm, nn.RMSNorm, lambda width: nn.GroupNorm(2, width)]


@pytest.mark.parametrize("norm", NORMS)
def test_a_model_whose_norms_have_moved_was_trained_before(norm):
    model = normed(norm)
    assert not trained_before(model)
    nn.init.zeros_(model[1].weight)  # as some begin the last one of a residual branch
    assert not trained_before(model)
    nn.init.ones_(model[1].weight)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(16, 4)).square().sum().backward()
    optimizer.step()
    assert trained_before(model)
    assert trained_before(nn.Sequential(model, nn.Linear(1, 3)))  # a new head


def test_most_norms_must_have_moved_and_without_any_a_model_counts_as_new():
    old, new = normed(nn.LayerNorm), normed(nn.LayerNorm)
    nn.init.normal_(old[1].weight)
    assert trained_before(nn.ModuleList([old, old])) and not trained_before(nn.ModuleList([old, new, new]))
    assert not trained_before(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)))
    assert not trained_before(nn.LSTM(4, 4))


def test_a_run_knows_it_unless_it_is_told_and_goes_on_as_it_began():
    model = normed(nn.LayerNorm)

    def run(**settings):
        return AutoLRS(model, torch.optim.Adam(model.parameters()), total_steps=600, **settings)

    new = run()
    saved = new.state_dict()
    nn.init.normal_(model[1].weight)
    assert not new.settings.trained_before and run().settings.trained_before
    assert not run(trained_before=False).settings.trained_before
    again = run()
    again.load_state_dict(saved)
    assert not again.settings.trained_before


@pytest.mark.parametrize("norm", [*NORMS, lambda width: nn.BatchNorm1d(width, affine=False)])
def test_a_run_knows_whether_its_model_has_norms_unless_it_is_told(norm):
    model, plain = normed(norm), nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))

    def known(net, **settings):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        return AutoLRS(net, optimizer, total_steps=2000, **settings).settings.normalised

    assert normalised(model) and known(model) and not known(model, normalised=False)
    assert not known(plain) and known(plain, normalised=True)


def test_an_lr_that_is_none_is_refused():
    with pytest.raises(ValueError, match="`usual_lr` must be"):
        peak(600, usual_lr=0.0)
