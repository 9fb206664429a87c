"""Fine-tuning: networks that were trained before, by another task's data, and go on with little data of their own.

What most people do with a Trainer. Where such a network stands a high learning rate destroys what it knows, and short
looks lower the loss by little. The first four may have a say in defaults; the others were written with them and were
run once, after the rule had been made (docs/research-log.md, "Fine-tuning").
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import chain, islice, repeat

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Optimizer

from autolrs.bench.models.bert import Classifier, Pretraining
from autolrs.bench.models.vgg import VGG16
from autolrs.bench.tasks import _pictures, _wordpiece, autoencoder, bert, data, images
from autolrs.bench.tasks._fine_tuning import labelled, padded
from autolrs.bench.tasks._task import Bundle, Task, permutation, seeded, supervised
from autolrs.bench.tasks.data import Split, Text
from autolrs.bench.tasks.language import Recurrent, Transformer, language_model
from autolrs.bench.tasks.short import adam, adamw
from autolrs.rivals.schedules import linear

SEED = 7  # of the earlier training: one for all seeds of the fine-tuning
SMOKE = 10  # steps of it in a smoke test
ADAM_LRS, SGD_LRS = (1e-5, 1e-2), (1e-3, 1.0)
LONGEST = 32  # tokens of a verse
# The Bible's verses by kind: law, history, poetry, prophets, gospels with Acts, letters with Revelation.
BOOKS = (5852, 7018, 4785, 5490, 4786, 3171)


Make = Callable[[int], nn.Module]  # from the steps of the earlier training


@lru_cache
def trained(build: Callable[[int], Bundle], lr: float, steps: int) -> nn.Module:
    """What an ordinary training makes of a task's model, by a linear schedule."""
    bundle = build(SEED)
    with seeded(SEED):  # dropout draws
        scheduler = linear(bundle.optimizer, lr, steps)
        epochs = chain.from_iterable(repeat(bundle.loader))
        for done, batch in enumerate(islice(epochs, steps)):
            bundle.advance(done)
            bundle.optimizer.zero_grad()
            bundle.loss(batch).backward()  # type: ignore[no-untyped-call]
            if bundle.clip:
                nn.utils.clip_grad_norm_(bundle.model.parameters(), bundle.clip)
            bundle.optimizer.step()
            scheduler.step()
    return bundle.model


def earlier(build: Callable[[int], Bundle], lr: float) -> Make:
    """The same from the steps alone; once for each number of them."""
    return partial(trained, build, lr)


# Optimizers


def _momentum(net: nn.Module) -> Optimizer:
    return SGD(net.parameters(), lr=0.1, momentum=0.9)


# Pictures


@lru_cache
def enlarged_digits(flat: bool = False) -> Split:
    """scikit-learn's digits at the size of the Fashion-MNIST that the others have learned; with themselves as targets
    if `flat`."""

    def enlarged(pictures: Tensor) -> Tensor:
        return (functional.interpolate(pictures, (14, 14), mode="bilinear") - 0.3) / 0.35

    parts = [(enlarged(pictures), labels) for pictures, labels in data.digits()]
    return Split(*((x, x.flatten(1) if flat else y) for x, y in parts))


_vit, _cnn = earlier(images.build_vit, 4e-3), earlier(images.build_cnn, 5e-2)
_mlp, _autoencoder = earlier(images.build_mlp, 4e-3), earlier(autoencoder.build, 1e-2)


@lru_cache
def _halves() -> tuple[Split, Split]:
    """CIFAR-10's first five classes, and 2000 pictures of the other five."""
    parts = _pictures.cifar10()

    def half(part: tuple[Tensor, ...], upper: bool, size: int) -> tuple[Tensor, ...]:
        chosen = ((part[1] >= 5) == upper).nonzero()[:size, 0]
        return part[0][chosen], part[1][chosen] - 5 * upper

    return tuple(
        Split(*(half(part, upper, n) for part, n in zip(parts, sizes, strict=True)))
        for upper, sizes in ((False, (25_000, 500, 1000)), (True, (2000, 500, 1000)))
    )  # type: ignore[return-value]


def _build_vgg(seed: int) -> Bundle:
    return supervised(_halves()[0], seed, 32, partial(VGG16, 5, 0.125), _momentum)


_vgg = earlier(_build_vgg, 2e-2)


def _with_new_head(make: Make) -> Make:
    """A copy of a trained network whose last layer begins anew."""

    def build(steps: int) -> nn.Module:
        net = copy.deepcopy(make(steps))
        _last(net).reset_parameters()
        return net

    return build


def _last(net: nn.Module) -> nn.Linear:
    found = [module for module in net.modules() if isinstance(module, nn.Linear)]
    return found[-1]


# Text


@lru_cache
def _texts() -> tuple[Text, Text]:
    """The Bible and 300,000 characters of Shakespeare, numbered alike."""
    bible, plays = "\n".join(data.bible_verses()), data.shakespeare_text()
    both = data.encode(bible + plays)
    codes = torch.cat([both.train, both.validation, both.test])

    def parts(codes: Tensor, train: int) -> Text:
        return Text(both.vocabulary, codes[:train], codes[-200_000:-100_000], codes[-100_000:])

    cut = len(bible)
    return parts(codes[:cut], cut - 200_000), parts(codes[cut:], 300_000)


def _speak(
    text: int, shape: tuple[int, int], model: Callable[[int], nn.Module], optimizer: Callable[[nn.Module], Optimizer]
) -> Callable[[int], Bundle]:
    return lambda seed: language_model(_texts()[text], seed, shape, model, optimizer, clip=1.0)


def _transformer_of(size: int) -> nn.Module:
    return Transformer(size, 32)


_transformer = earlier(_speak(0, (8, 32), _transformer_of, adamw), 8e-3)
_lstm = earlier(_speak(0, (16, 24), partial(Recurrent, nn.LSTM), _momentum), 1.0)
_gru = earlier(_speak(0, (16, 24), partial(Recurrent, nn.GRU), adamw), 8e-3)
_pretraining = earlier(bert._small, 4e-3)


@lru_cache
def _verses(kinds: tuple[int, ...], train: int) -> Split:
    """`train` verses, 500 to validate and 1000 to test: tokens (n, length), segments, their kind."""
    words, _, verses = _wordpiece.bible()
    ends = torch.tensor(BOOKS).cumsum(0)
    order = permutation(len(verses), 0, 0)[: train + 1500].tolist()
    rows = []
    for i in order:
        kind = kinds[int((ends <= i).sum())]
        rows.append(labelled(words, (verses[i], None), kind, LONGEST))
    tokens, segments = padded(rows, torch.device("cpu"))
    labels = torch.tensor([row[2] for row in rows])
    everything = (torch.stack([tokens, segments], 1), labels)
    cuts = (slice(0, train), slice(train, train + 500), slice(train + 500, None))
    return Split(*(tuple(part[cut] for part in everything) for cut in cuts))


class _Reader(nn.Module):
    """A classifier whose tokens and segments come as one tensor (n, 2, length)."""

    def __init__(self, classes: int, steps: int) -> None:
        super().__init__()
        before = _pretraining(steps)
        assert isinstance(before, Pretraining)
        self.net = Classifier(copy.deepcopy(before.bert), classes)

    def forward(self, rows: Tensor) -> Tensor:
        logits: Tensor = self.net(rows[:, 0], rows[:, 1])
        return logits


def _task(
    name: str,
    steps: int,
    make: Make,
    before: int,
    data_of: Callable[[], Split] | tuple[int, int],
    batch: int,
    optimizer: Callable[[nn.Module], Optimizer],
    find: Callable[[], object],
    *,
    held_out: bool = False,
) -> Task:
    """`before` are the steps of the earlier training; `data_of` a split, or for Shakespeare the windows' shape."""

    def build(seed: int, before: int = before) -> Bundle:
        if callable(data_of):
            return supervised(data_of(), seed, batch, lambda: make(before), optimizer)
        return _speak(1, data_of, lambda _: copy.deepcopy(make(before)), optimizer)(seed)

    lrs = SGD_LRS if optimizer is _momentum else ADAM_LRS
    smoke = Task(f"finetune-{name}", 60, lrs, partial(build, before=SMOKE), find_data=find, profile="smoke")
    return Task(f"finetune-{name}", steps, lrs, build, held_out=held_out, find_data=find, others=(smoke,))


def _find_texts() -> None:
    data.find_king_james_bible()
    data.find_shakespeare()


def _text_task(
    name: str, steps: int, make: Make, before: int, shape: tuple[int, int], optimizer: Callable[[nn.Module], Optimizer],
    *, held_out: bool = False,
) -> Task:  # fmt: skip
    return _task(name, steps, make, before, shape, shape[0], optimizer, _find_texts, held_out=held_out)


def _kinds() -> Split:
    return _verses((0, 1, 2, 3, 4, 5), 2000)


def _testaments() -> Split:
    return _verses((0, 0, 0, 0, 1, 1), 2000)


def _other_half() -> Split:
    return _halves()[1]


FASHION, BIBLE, CIFAR = data.find_fashion_mnist, data.find_king_james_bible, _pictures.find_cifar10
FINETUNE = (
    _task("bert", 625, partial(_Reader, 6), 1500, _kinds, 16, adamw, BIBLE),
    _task("vit", 500, _with_new_head(_vit), 1500, enlarged_digits, 32, adamw, FASHION),
    _text_task("transformer", 1000, _transformer, 2000, (8, 32), adamw),
    _task("cnn-sgd", 600, _with_new_head(_cnn), 2000, enlarged_digits, 32, _momentum, FASHION),
    _task("testaments", 1250, partial(_Reader, 2), 1500, _testaments, 16, adamw, BIBLE, held_out=True),
    _text_task("lstm-sgd", 1000, _lstm, 1500, (16, 24), _momentum, held_out=True),
    _text_task("gru", 600, _gru, 1500, (16, 24), adamw, held_out=True),
    _task("mlp", 400, _with_new_head(_mlp), 2000, enlarged_digits, 32, adam, FASHION, held_out=True),
    _task(
        "autoencoder", 600, lambda steps: copy.deepcopy(_autoencoder(steps)), 2000, partial(enlarged_digits, True), 32,
        adam, FASHION, held_out=True,
    ),
    _task("vgg-sgd", 400, _with_new_head(_vgg), 1200, _other_half, 32, _momentum, CIFAR, held_out=True),
    _task("vgg", 400, _with_new_head(_vgg), 1200, _other_half, 32, adamw, CIFAR, held_out=True),
)  # fmt: skip
