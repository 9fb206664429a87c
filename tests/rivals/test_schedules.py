"""Each hand-tuned schedule against its defining equation, step by step."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from autolrs.rivals.schedules import SCHEDULES, step_decay  # noqa: E402 - torch may be missing

TOTAL, PEAK = 200, 0.4
WARM = 10  # 5 %
WARMS = {"step": 11, "inverse-sqrt": 8}  # 5 of 90 epochs, 4000 of 100,000 steps


def lrs(name, total=TOTAL, peak=PEAK, groups=1):
    """The LR of each group at each step, and after the last: `total` + 1 rows."""
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(groups)]
    # Groups that came with LRs of their own: a schedule sets them all.
    optimizer = torch.optim.SGD([{"params": [p], "lr": 10.0 + i} for i, p in enumerate(parameters)])
    scheduler = SCHEDULES[name](optimizer, peak, total)
    rows = []
    for _ in range(total):
        rows.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return [*rows, [group["lr"] for group in optimizer.param_groups]]


def warm(step, steps=WARM):
    return PEAK * (1 / steps + (1 - 1 / steps) * step / steps)


def after(step):
    """How much of what follows the warm-up has passed, 0 to 1."""
    return (step - WARM) / (TOTAL - WARM)


EQUATIONS = {
    "constant": lambda step: PEAK,
    "cosine": lambda step: PEAK * 0.5 * (1 + math.cos(math.pi * after(step))),
    "linear": lambda step: PEAK * (1 - after(step)),
    "wsd": lambda step: PEAK * min(1.0, (TOTAL - step) / (0.2 * TOTAL)),
    "cosine-tenth": lambda step: PEAK * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * after(step)))),
    "step": lambda step: PEAK * 0.1 ** ((step >= 67) + (step >= 133) + (step >= 178)),
    "inverse-sqrt": lambda step: PEAK * math.sqrt(8 / step),
    "exponential": lambda step: PEAK * 0.01 ** after(step),
}


@pytest.mark.parametrize("name", EQUATIONS)
@pytest.mark.parametrize("step", [0, 1, 5, 9, 10, 11, 60, 66, 67, 105, 132, 133, 159, 160, 161, 178, 199, 200])
def test_schedule_follows_its_equation(name, step):
    warm_up = WARMS.get(name, WARM)
    expected = warm(step, warm_up) if step < warm_up else EQUATIONS[name](step)
    assert lrs(name)[step][0] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_step_decay_without_warm_up_is_that_of_cifar():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = step_decay(optimizer, 0.1, 350, (150 / 350, 250 / 350), 0.1, warmup=0.0)
    found = []
    for _ in range(350):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert found == pytest.approx([0.1] * 150 + [0.01] * 100 + [0.001] * 100)


def test_onecycle_follows_its_equation():
    """Smith's cycle as torch has it: half a cosine up from peak / 25 for 30 %, half a cosine down to that / 10,000."""
    rows = [row[0] for row in lrs("onecycle")]
    top = 0.3 * (TOTAL + 1) - 1
    start, end = PEAK / 25, PEAK / 25 / 1e4

    def half_cosine(a, b, share):
        return b + (a - b) / 2 * (1 + math.cos(math.pi * share))

    for step in (0, 1, 20, 59, 60, 100, 150, 199, 200):
        share = step / top if step <= top else (step - top) / (TOTAL - top)
        expected = half_cosine(start, PEAK, share) if step <= top else half_cosine(PEAK, end, share)
        assert rows[step] == pytest.approx(expected, rel=1e-9), step


@pytest.mark.parametrize("name", ["cosine", "linear", "wsd"])
@pytest.mark.parametrize("total", [7, 48, 200, 601])
def test_decaying_schedules_end_at_zero_and_take_no_step_there(name, total):
    rows = [row[0] for row in lrs(name, total)]
    assert rows[-1] == pytest.approx(0.0, abs=1e-12)
    assert min(rows[:-1]) > 0.0


@pytest.mark.parametrize("name", SCHEDULES)
def test_peak_is_reached_and_never_exceeded(name):
    rows = [row[0] for row in lrs(name)]
    assert max(rows) == pytest.approx(PEAK, rel=1e-3)  # OneCycle's top lies between two steps
    assert max(rows) <= PEAK * (1 + 1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_group_gets_the_same_lr_whatever_it_came_with(name):
    for row in lrs(name, groups=3):
        assert row == [row[0]] * 3


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_second_schedule_on_one_optimizer_forgets_the_first(name):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    SCHEDULES[name](optimizer, 5.0, 20)
    first = [group["lr"] for group in optimizer.param_groups]
    SCHEDULES[name](optimizer, 0.5, 20)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([lr / 10 for lr in first])
