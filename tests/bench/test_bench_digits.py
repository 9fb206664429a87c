from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from autolrs.bench import digits  # noqa: E402 - torch and sklearn may be missing


def test_the_same_seed_gives_the_same_training_and_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    first, second = digits.train_cosine(3, 1e-2, 40), digits.train_cosine(3, 1e-2, 40)
    assert first.validate() == second.validate()
    assert torch.equal(before, torch.random.get_rng_state())
    assert digits.train_cosine(4, 1e-2, 40).validate() != first.validate()


def test_train_validation_and_test_images_are_the_same_for_every_seed_and_do_not_meet():
    one, other = digits.build(0), digits.build(1)
    assert torch.equal(one.test[0], other.test[0])
    middle = one.loader._bank[4]  # the shift by nothing
    sets = [{tuple(row.tolist()) for row in images} for images in (middle, one.validation[0], one.test[0])]
    assert sum(map(len, sets)) == 1797 and not (sets[0] & sets[2] or sets[1] & sets[2] or sets[0] & sets[1])


def test_each_iteration_is_another_epoch():
    loader = digits.build(0).loader
    first, second = next(iter(loader)), next(iter(loader))
    assert first[0].shape == (digits.BATCH, 64)
    assert not torch.equal(first[0], second[0])


def test_a_short_training_learns():
    task = digits.train_cosine(0, 1e-2, 300)
    loss, accuracy = task.score(task.test)
    assert accuracy > 0.8 and loss < 0.8
    assert task.optimizer.param_groups[0]["lr"] < 1e-5
