"""Jobs of many kinds, 1000 to 3000 steps, mostly with Adam, on data of scikit-learn's or made by a formula.

Things that people train beside classifiers: autoencoders with a code of chance, flows, denoisers, factors of a matrix,
fields, equations, sets, sequences. `uncentred-` ones are regressions whose targets are not 0 in the mean, as those that
nobody has standardised. Those that are not held out had a say in what is done about that (docs/research-log.md, "Deep
falls"); two of them, ink and counts, since a first form of it failed on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer, RMSprop

from autolrs.bench.tasks import data
from autolrs.bench.tasks.data import Split
from autolrs.bench.tasks.sgd import (
    adder,
    by_formula,
    curve,
    friedman1,
    made,
    noisy,
    random,
    standard,
    sums,
    waves,
)
from autolrs.bench.tasks.short import (
    MADE_BY_FORMULA,
    LastState,
    Residual,
    adam,
    adamw,
    clusters,
    convolution_net,
    copied_digits,
    momentum_sgd,
    nadam,
    shuffled,
    small_task,
    taught,
)
from autolrs.bench.tasks.tables import perceptron


def rmsprop(net: nn.Module) -> Optimizer:
    return RMSprop(net.parameters(), lr=1e-3)


# What is learned, where it is not labels or values.


class VariationalNet(nn.Module):
    """A digit to a code of chance and back."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16))
        self.back = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, variance = self.code(images).chunk(2, 1)
        chance = torch.randn_like(mean) if self.training else torch.zeros_like(mean)
        return self.back(mean + chance * (variance / 2).exp()), mean, variance


def bound(net: nn.Module, images: Tensor, _: Tensor) -> Tensor:
    """The evidence lower bound, negative."""
    pixels, mean, variance = net(images)
    misses = functional.binary_cross_entropy_with_logits(pixels, images.flatten(1), reduction="none").sum(1)
    return (misses + 0.5 * (mean**2 + variance.exp() - variance - 1).sum(1)).mean()


class Flow(nn.Module):
    """Six couplings of two numbers: where they come from, and by how much that stretches."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList(perceptron(1, 2, 32) for _ in range(6))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        given, moved = x.split(1, 1)
        stretched = torch.zeros(len(x))
        for step in self.steps:
            scale, shift = step(given).split(1, 1)
            given, moved = moved * torch.tanh(scale).exp() + shift, given
            stretched = stretched + torch.tanh(scale)[:, 0]
        return torch.cat((given, moved), 1), stretched


def surprise(net: nn.Module, x: Tensor) -> Tensor:
    """The negative log likelihood of points under a flow."""
    normal, stretched = net(x)
    return (0.5 * (normal**2).sum(1) + math.log(2 * math.pi) - stretched).mean()


def denoising(net: nn.Module, x: Tensor) -> Tensor:
    """How well the noise in points is told, at any share of it."""
    source = None if net.training else random(3)
    time, noise = torch.rand(len(x), 1, generator=source), torch.randn(x.shape, generator=source)
    mixed = torch.cos(time * math.pi / 2) * x + torch.sin(time * math.pi / 2) * noise
    return functional.mse_loss(net(torch.cat((mixed, time, torch.sin(6 * time), torch.cos(6 * time)), 1)), noise)


def equation(net: nn.Module, x: Tensor) -> Tensor:
    """By how much u'' + u^3 = f and u(0) = u(1) = 0 are missed."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        u = net(x)
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        wave = torch.sin(2 * math.pi * x)
        missed: Tensor = ((bend + u**3 + (2 * math.pi) ** 2 * wave - wave**3) ** 2).mean()
        return missed + 100 * (net(torch.tensor([[0.0], [1.0]])) ** 2).mean()


def contrast(net: nn.Module, images: Tensor, _: Tensor) -> Tensor:
    """Which of a batch's images is the same, seen through other noise."""
    source = None if net.training else random(4)
    views = (images + 0.2 * torch.randn(images.shape, generator=source) for _ in range(2))
    one, other = (functional.normalize(net(view), dim=1) for view in views)
    return functional.cross_entropy(one @ other.T / 0.2, torch.arange(len(images)))


def each_token(net: nn.Module, tokens: Tensor, answers: Tensor) -> Tensor:
    return functional.cross_entropy(net(tokens).flatten(0, 1), answers.flatten())


# Networks.


class Sine(nn.Module):
    """A layer of a field of sines, with its own first weights."""

    def __init__(self, inputs: int, outputs: int, *, first: bool = False) -> None:
        super().__init__()
        self.inner, bound = nn.Linear(inputs, outputs), 1 / inputs if first else math.sqrt(6 / inputs) / 30
        nn.init.uniform_(self.inner.weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(30 * self.inner(x))


class Factors(nn.Module):
    """Ratings as products of eight numbers of who rates and of what is rated."""

    def __init__(self) -> None:
        super().__init__()
        self.who, self.what = nn.Embedding(300, 8), nn.Embedding(200, 8)
        self.kind, self.good = nn.Embedding(300, 1), nn.Embedding(200, 1)
        for table, deviation in ((self.who, 0.1), (self.what, 0.1), (self.kind, 0.0), (self.good, 0.0)):
            nn.init.normal_(table.weight, std=deviation)

    def forward(self, pairs: Tensor) -> Tensor:
        who, what = pairs.unbind(1)
        rating: Tensor = (self.who(who) * self.what(what)).sum(1, keepdim=True) + self.kind(who) + self.good(what)
        return rating


class Sequences(nn.Module):
    """A small transformer."""

    def __init__(self, tokens: int, length: int, *, causal: bool, width: int = 48) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.embed, self.place = nn.Embedding(tokens, width), nn.Parameter(0.02 * torch.randn(length, width))
        nn.init.normal_(self.embed.weight, std=0.02)
        self.blocks = nn.TransformerEncoder(block, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.out, self.causal = nn.Linear(width, tokens), causal
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens: Tensor) -> Tensor:
        mask = self.mask if self.causal else None
        logits: Tensor = self.out(self.blocks(self.embed(tokens) + self.place, mask=mask, is_causal=self.causal))
        return logits


class OfSets(nn.Module):
    """Members one by one, then their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.member = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.whole = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, members: Tensor) -> Tensor:
        answer: Tensor = self.whole(self.member(members).mean(1))
        return answer


def _forecaster() -> nn.Module:
    """Twenty numbers of a series; the next four."""
    return LastState(nn.LSTM(1, 32, batch_first=True), 4)


def _deep_tanh() -> nn.Module:
    hidden = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), *hidden, nn.Linear(64, 10))


def _through_convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 3, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(8, 16, 2, 2), nn.ReLU(), nn.ConvTranspose2d(16, 1, 2, 2), nn.Flatten(),
    )  # fmt: skip


def _residual() -> nn.Module:
    blocks = (Residual(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(3))
    return nn.Sequential(nn.Linear(20, 64), *blocks, nn.LayerNorm(64), nn.Linear(64, 1))


def _field() -> nn.Module:
    return nn.Sequential(Sine(2, 64, first=True), Sine(64, 64), nn.Linear(64, 1))


def _ink_net() -> nn.Module:
    return nn.Sequential(*list(convolution_net().children())[:-1], nn.Linear(64, 1))


# Data.


@by_formula
def picture() -> Split:
    a, b = (x := 2 * torch.rand(20_000, 2, generator=random(22)) - 1).split(1, 1)
    rings = 0.5 * torch.cos(20 * (a**2 + b**2))
    return shuffled(x, torch.sin(9 * a * b) + 0.5 * torch.sign(torch.sin(6 * a + 3 * b)) + rings)


@by_formula
def points() -> Split:
    x = torch.rand(6000, 1, generator=random(21))
    return Split((x[:3600],), (x[3600:4800],), (x[4800:],))


@by_formula
def ratings() -> Split:
    source = random(23)
    pairs = torch.stack([torch.randint(0, size, (30_000,), generator=source) for size in (300, 200)], 1)
    who, what = (torch.randn(size, 4, generator=source) for size in (300, 200))
    liked = (who[pairs[:, 0]] * what[pairs[:, 1]]).sum(1, keepdim=True) / 2
    return shuffled(pairs, noisy(3 + liked, 0.3, source))


@by_formula
def hidden_states() -> Split:
    """Sequences of 24 signs that twelve hidden states give; the next sign."""
    source = random(24)
    moves = torch.softmax(2.5 * torch.randn(12, 12, generator=source), 1)
    signs = torch.softmax(2 * torch.randn(12, 24, generator=source), 1)
    state, seen = torch.randint(0, 12, (4000,), generator=source), []
    for _ in range(33):
        seen.append(torch.multinomial(signs[state], 1, generator=source)[:, 0])
        state = torch.multinomial(moves[state], 1, generator=source)[:, 0]
    tokens = torch.stack(seen, 1)
    return shuffled(tokens[:, :-1], tokens[:, 1:])


@by_formula
def unsorted() -> Split:
    tokens = torch.randint(0, 16, (8000, 10), generator=random(25))
    return shuffled(tokens, tokens.sort(1).values)


@by_formula
def series() -> Split:
    source, time = random(27), torch.arange(24.0)[None]
    pace, phase = (torch.rand(6000, 1, generator=source) for _ in range(2))
    pace, phase = 0.2 + 0.6 * pace, 6.3 * phase
    values = torch.sin(pace * time + phase) + 0.5 * torch.sin(2.3 * pace * time + 2 * phase)
    values = noisy(values, 0.1, source)
    return shuffled(values[:, :20, None], values[:, 20:])


@by_formula
def sets() -> Split:
    members = torch.randn(6000, 12, 1, generator=random(28))
    return shuffled(members, torch.cat((members.amax(1), members.var(1)), 1))


@by_formula
def counts() -> Split:
    """Numbers of a sequence, and their sum."""
    numbers = torch.rand(5000, 12, 2, generator=random(30))
    return shuffled(numbers, numbers[:, :, :1].sum(1))


def moons() -> Split:
    split = made("moons", n_samples=10_000, noise=0.05, random_state=1)
    return Split(*((standard(x),) for x, _ in split))


def ink() -> Split:
    """Images of digits, and how much ink is on each."""
    return Split(*((images, images.flatten(1).sum(1, keepdim=True)) for images, _ in data.digits()))


def _above(split: Callable[[], Split], by: float) -> Callable[[], Split]:
    """The same with targets that are higher by so much."""

    def higher() -> Split:
        return Split(*((inputs, targets + by) for inputs, targets in split()))

    if split in MADE_BY_FORMULA:
        MADE_BY_FORMULA.add(higher)
    return higher


_check = partial(small_task, held_out=True)

KINDS = (
    small_task("kind-variational", 2000, data.digits, 32, VariationalNet, adam, bound),
    small_task("kind-field", 1500, picture, 128, _field, adam),
    small_task("kind-flow", 2000, moons, 64, Flow, adam, surprise),
    small_task(
        "kind-hidden-states", 1200, hidden_states, 32, partial(Sequences, 24, 32, causal=True), adamw, each_token, 1.0
    ),
    small_task("kind-sums", 1500, sums, 32, adder, adam),
    small_task("kind-series", 1500, series, 32, _forecaster, adam),
    _check("kind-equation", 2000, points, 64, lambda: perceptron(1, 1, 32, nn.Tanh), adam, equation),
    _check("kind-ratings", 2500, ratings, 64, Factors, adam),
    _check("kind-denoising", 3000, moons, 64, lambda: perceptron(5, 2, 64, nn.SiLU), adamw, denoising),
    _check("kind-sorting", 1500, unsorted, 64, partial(Sequences, 16, 10, causal=False), adamw, each_token, 1.0),
    _check("kind-deep-tanh", 1200, data.digits, 32, _deep_tanh, nadam),
    _check("kind-contrast", 1000, data.digits, 64, lambda: perceptron(64, 16, 64), adam, contrast),
    _check("kind-sets", 2000, sets, 64, OfSets, adamw),
    _check("kind-convolutions-back", 1500, copied_digits, 32, _through_convolutions, adamw),
    _check("kind-residual", 1500, taught, 32, _residual, adamw),
    _check("kind-rmsprop", 2000, clusters, 32, lambda: perceptron(30, 5, 64), rmsprop),
    small_task("uncentred-waves", 1500, _above(waves, 2.0), 32, lambda: perceptron(3, 1, 64, nn.Tanh), adam),
    small_task(
        "uncentred-waves-sgd", 1500, _above(waves, 2.0), 32, lambda: perceptron(3, 1, 64, nn.Tanh), momentum_sgd
    ),
    small_task(
        "uncentred-curve-sgd", 1500, _above(curve, 5.0), 32, lambda: perceptron(1, 1, 48, nn.GELU), momentum_sgd
    ),
    small_task("uncentred-taught", 2000, _above(taught, 3.0), 32, lambda: perceptron(20, 1, 64), adam),
    small_task("uncentred-taught-sgd", 2000, _above(taught, 3.0), 32, lambda: perceptron(20, 1, 64), momentum_sgd),
    small_task("uncentred-friedman1", 1500, _above(friedman1, 10.0), 64, lambda: perceptron(10, 1, 64), adam),
    small_task("uncentred-ink", 1200, ink, 32, _ink_net, adam),
    _check("uncentred-ink-sgd", 1500, ink, 32, lambda: perceptron(64, 1, 64), momentum_sgd),
    small_task("uncentred-counts", 2000, counts, 32, adder, adamw),
    _check(
        "uncentred-friedman2",
        1500,
        _above(partial(made, "friedman2", values=True, n_samples=4000, random_state=4), 3.0),
        32,
        lambda: perceptron(4, 1, 64),
        adamw,
    ),
)
