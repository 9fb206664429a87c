"""`Schedule.to_torch`: a scheduler like any other, that sets just what the schedule says."""

import io
import pickle

import pytest
import torch
from nets import make, net
from torch.optim.lr_scheduler import LRScheduler

from autolrs import Schedule, Segment
from autolrs.pytorch.schedulers import ScheduleLR

SCHEDULE = Schedule((Segment(5, 0.0, 0.1), Segment(10, 0.1, 0.1), Segment(7, 0.1, 0.003)))


def walk(scheduler, optimizer, steps):
    """LRs of each group at every step."""
    lrs = []
    for _ in range(steps):
        lrs.append([float(group["lr"]) for group in optimizer.param_groups])
        assert [float(lr) for lr in scheduler.get_last_lr()] == lrs[-1]
        optimizer.step()
        scheduler.step()
    return lrs


def test_it_is_a_scheduler_that_sets_what_the_schedule_says():
    _, optimizer, _ = make()
    scheduler = SCHEDULE.to_torch(optimizer)
    assert isinstance(scheduler, LRScheduler)
    lrs = walk(scheduler, optimizer, 22)
    assert [lr for (lr,) in lrs] == [SCHEDULE.lr_at(step) for step in range(22)]


def test_past_the_end_the_last_lr_stays():
    _, optimizer, _ = make()
    lrs = walk(SCHEDULE.to_torch(optimizer), optimizer, 40)
    assert {lr for (lr,) in lrs[22:]} == {0.003}


def test_groups_keep_their_ratio():
    model = net()
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters()}, {"params": model[4].parameters(), "lr": 0.04}], lr=0.4
    )
    for first, second in walk(SCHEDULE.to_torch(optimizer), optimizer, 22):
        assert second == pytest.approx(first / 10)


def test_a_tensor_lr_stays_the_same_object():
    lr = torch.tensor(0.5)
    _, optimizer, _ = make(kind=torch.optim.Adam, lr=lr)
    scheduler = SCHEDULE.to_torch(optimizer)
    for step in range(22):
        assert optimizer.param_groups[0]["lr"] is lr
        assert lr.item() == pytest.approx(SCHEDULE.lr_at(step))
        optimizer.step()
        scheduler.step()


def test_it_is_picklable():
    _, optimizer, _ = make()
    scheduler = SCHEDULE.to_torch(optimizer)
    walk(scheduler, optimizer, 9)
    copy = pickle.loads(pickle.dumps(scheduler))
    assert copy.schedule == SCHEDULE and copy.last_epoch == 9
    assert walk(copy, copy.optimizer, 13) == walk(scheduler, optimizer, 13)


@pytest.mark.parametrize("tensor_lr", [False, True])
def test_its_state_dict_loads_under_weights_only_and_goes_on(tensor_lr):
    lr = torch.tensor(0.5) if tensor_lr else 0.5
    _, optimizer, _ = make(kind=torch.optim.Adam, lr=lr)
    scheduler = SCHEDULE.to_torch(optimizer)
    walk(scheduler, optimizer, 9)
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    _, again, _ = make(kind=torch.optim.Adam, lr=torch.tensor(0.5) if tensor_lr else 0.5)
    other = Schedule((Segment(3, 1.0, 1.0),)).to_torch(again)
    again.load_state_dict(saved["optimizer"])
    other.load_state_dict(saved["scheduler"])
    assert other.schedule == SCHEDULE
    assert walk(other, again, 13) == walk(scheduler, optimizer, 13)


def test_an_empty_schedule_is_refused():
    _, optimizer, _ = make()
    with pytest.raises(ValueError, match="the schedule is empty"):
        Schedule(()).to_torch(optimizer)


def test_a_first_group_without_lr_is_refused():
    _, optimizer, _ = make(lr=0.0)
    with pytest.raises(ValueError, match=r"first parameter group's `lr` must be above 0"):
        ScheduleLR(optimizer, SCHEDULE)
