"""The paper's image experiments: VGG-16 on CIFAR-10 and CIFAR-100, ResNet-50 on CIFAR-10 and ImageNet.

`paper` is the real thing (Section 5, Appendix A.5); `cpu` is a narrow member of the same code on CIFAR-10 or
Fashion-MNIST; `smoke` a narrower one for a few steps. Hand-tuned schedules and AutoLRS's settings are the paper's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from autolrs.bench.models.resnet import ResNet50
from autolrs.bench.models.vgg import VGG16
from autolrs.bench.tasks import _pictures, data
from autolrs.bench.tasks._task import Batches, Bundle, Task, mean_loss, seeded, top1
from autolrs.rivals.schedules import step_decay

CIFAR10_STEPS = 350 * (50_000 // 128)
CIFAR100_STEPS = 200 * (50_000 // 128)
IMAGENET_STEPS = 90 * (1_281_167 // 1024)

PAPER = {"stage_steps": 1000, "max_stage_steps": 8000, "probe_fraction": 0.1, "n_probes": 10, "kappa": 1000.0}
_cifar10_steps = partial(step_decay, peak=0.1, milestones=(150 / 350, 250 / 350), warmup=0.0)
_cifar100_steps = partial(step_decay, peak=0.1, milestones=(60 / 200, 120 / 200, 160 / 200), factor=0.2, warmup=0.0)


def device() -> torch.device:
    """Where full-size models train."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _bundle(split: data.Split, seed: int, model: Callable[[], nn.Module], batch: int, augment: bool) -> Bundle:
    """Cross-entropy, SGD with momentum .9 and weight decay 5e-4, as both CIFAR repositories have it."""
    where = device()
    with seeded(seed):
        net = model().to(where)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(net(batch[0].to(where)), batch[1].to(where))

    def held(part: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tensor.to(where) for tensor in part)

    loader: Any = (_pictures.Augmented if augment else Batches)(split.train, batch, seed)
    return Bundle(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4),
        loader=loader,
        loss=loss,
        evaluate=mean_loss(net, loss, split.validation),
        test=mean_loss(net, loss, split.test),
        validation=split.validation,
        accuracy=top1(net, held(split.test)),
    )


def _few(split: data.Split, size: int | None = None) -> data.Split:
    """The first `size` images of each part; by default all for training and 2000 of the others.

    Testing ten thousand 32 times takes longer than training the narrow networks.
    """
    sizes = (size, *[size or 2000] * 2)
    return data.Split(*(tuple(tensor[:n] for tensor in part) for n, part in zip(sizes, split, strict=True)))


def _cifar(
    name: str,
    read: Callable[[], data.Split],
    find: Callable[[], object],
    make: Callable[[float], Callable[[], nn.Module]],
    steps: int,
    hand_tuned: Callable[..., Any],
    target: float,
    narrow: tuple[float, int, int],
) -> Task:
    """`make(share)` builds the model with a share of its width. The narrow one runs on CIFAR-10 in any case.

    `narrow` is its share, batch and steps: about a minute on one core.
    """
    lr = (1e-3, 1e-1)
    share, batch, short = narrow

    def own(optimizer: torch.optim.Optimizer, total: int) -> Any:
        return hand_tuned(optimizer, total=total)

    small: dict[str, Any] = {"find_data": _pictures.find_cifar10, "hand_tuned": own}
    return Task(
        name, short, lr, lambda seed: _bundle(_few(_pictures.cifar10()), seed, make(share), batch, True),
        **small,
        others=(
            Task(
                name, 20, lr, lambda seed: _bundle(_few(_pictures.cifar10(), 256), seed, make(0.0625), 16, True),
                profile="smoke", **small,
            ),
            Task(
                name, steps, lr, lambda seed: _bundle(read(), seed, make(1.0), 128, True),
                profile="paper", find_data=find, hand_tuned=own, target=target, recipe=PAPER,
            ),
        ),
    )  # fmt: skip


def _vgg(share: float, classes: int, hidden: int | None) -> Callable[[], nn.Module]:
    return lambda: VGG16(classes, share, None if hidden is None else max(16, round(hidden * share)))


def _resnet(share: float) -> Callable[[], nn.Module]:
    depths = (3, 4, 6, 3) if share == 1.0 else (1, 1, 1, 1)
    return lambda: ResNet50(10, "cifar", max(4, round(64 * share)), depths)


VGG_CIFAR10 = _cifar(
    "vgg16-cifar10", _pictures.cifar10, _pictures.find_cifar10, lambda s: _vgg(s, 10, None),
    CIFAR10_STEPS, _cifar10_steps, 0.9370, (0.125, 32, 1200),
)  # fmt: skip
VGG_CIFAR100 = _cifar(
    "vgg16-cifar100", _pictures.cifar100, _pictures.find_cifar100, lambda s: _vgg(s, 100, 4096),
    CIFAR100_STEPS, _cifar100_steps, 0.7293, (0.125, 32, 1200),
)  # fmt: skip
RESNET_CIFAR10 = _cifar(
    "resnet50-cifar10", _pictures.cifar10, _pictures.find_cifar10, _resnet, CIFAR10_STEPS, _cifar10_steps, 0.9556,
    (0.0625, 16, 1500),
)  # fmt: skip


def _build_imagenet(seed: int) -> Bundle:
    """Batches of 1024, SGD with momentum .9 and weight decay 1e-4 (Goyal et al. 2017)."""
    files, where = _pictures.imagenet(), device()
    with seeded(seed):
        net = ResNet50().to(where)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(net(batch[0].to(where)), batch[1].to(where))

    def loader(part: list[Any], train: bool) -> torch.utils.data.DataLoader[Any]:
        return torch.utils.data.DataLoader(
            _pictures.Jpegs(part, train),
            batch_size=1024 if train else 256,
            shuffle=train,
            drop_last=train,
            num_workers=8,
            pin_memory=where.type == "cuda",
            generator=torch.Generator().manual_seed(seed),
        )

    def over(part: list[Any], measure: Callable[[tuple[Tensor, Tensor]], Tensor]) -> Callable[[], float]:
        """() -> the mean of `measure` over a part, batch by batch from disk."""

        def mean() -> float:
            was, total = net.training, 0.0
            net.eval()
            with torch.no_grad():
                for batch in loader(part, False):
                    total += measure(batch).item() * len(batch[1])
            net.train(was)
            return total / len(part)

        return mean

    def right(batch: tuple[Tensor, Tensor]) -> Tensor:
        return (net(batch[0].to(where)).argmax(1) == batch[1].to(where)).float().mean()

    return Bundle(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.4, momentum=0.9, weight_decay=1e-4),
        loader=loader(files.train, True),
        loss=loss,
        evaluate=over(files.validation, loss),
        test=over(files.test, loss),
        accuracy=over(files.test, right),
    )


def _build_narrow(seed: int, width: int, size: int | None) -> Bundle:
    return _bundle(
        _few(_pictures.fashion(), size),
        seed,
        lambda: ResNet50(10, "imagenet", width, (1, 1, 1, 1), channels=1),
        64,
        False,
    )


def _imagenet_steps(optimizer: torch.optim.Optimizer, total: int) -> Any:
    """Five epochs of warm-up to .4 (a batch of 1024), divided by ten at epochs 30, 60 and 80 of 90."""
    return step_decay(optimizer, 0.4, total)


RESNET_IMAGENET = Task(
    "resnet50-imagenet", 1200, (1e-3, 1.0), lambda seed: _build_narrow(seed, 8, None), held_out=True,
    find_data=data.find_fashion_mnist, hand_tuned=_imagenet_steps,
    others=(
        Task(
            "resnet50-imagenet", 20, (1e-3, 1.0), lambda seed: _build_narrow(seed, 4, 256),
            find_data=data.find_fashion_mnist, hand_tuned=_imagenet_steps, profile="smoke",
        ),
        Task(
            "resnet50-imagenet", IMAGENET_STEPS, (1e-3, 1.0), _build_imagenet, find_data=_pictures.find_imagenet,
            hand_tuned=_imagenet_steps, profile="paper", target=0.759, recipe=PAPER,
        ),
    ),
)  # fmt: skip
