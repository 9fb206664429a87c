"""Small networks by SGD, as people try them first: before the slow ramp these failed."""

import pytest
import torch

pytest.importorskip("sklearn")

from autolrs import AutoLRS
from autolrs.bench.methods._method import step
from autolrs.bench.tasks import TASKS


@pytest.mark.parametrize(
    ("name", "seed"),  # which ended at .4 to 2.3 before
    [("digits", 4), ("digits-long", 1), ("digits-long", 2), ("convolution-long", 0), ("convolution-long", 4)],
)
def test_a_network_that_failed_before_learns(name, seed):
    task = TASKS[f"sgd-{name}"]
    bundle = task.build(seed)
    torch.manual_seed(seed)
    auto = AutoLRS(bundle.model, bundle.optimizer, total_steps=task.total_steps, evaluate=bundle.evaluate)
    for batch in auto.batches(bundle.loader):
        auto.step(step(bundle, bundle.optimizer, batch))
    assert bundle.test() < 0.25
    assert auto.raw_steps <= 1.15 * task.total_steps
