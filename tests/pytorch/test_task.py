"""TorchTask: a PyTorch training that travels; driven by workers it does what AutoLRS does in one process."""

import pickle

import pytest
import torch
from nets import PAPER, X, Y, loss_of, make, same, shuffled, tensors, train_step
from ranks import launch
from task_worker import plain
from torchdata.stateful_dataloader import StatefulDataLoader

import autolrs
from autolrs.core import strategies
from autolrs.core.settings import Settings
from autolrs.core.types import Commit, encode
from autolrs.pytorch.task import TorchTask
from autolrs.run.parallel import Driver
from autolrs.testing.pool import VirtualPool

# torchdata's own call when a StatefulDataLoader is made
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

LOADERS = {
    "global": shuffled,
    "generator": lambda: shuffled(generator=torch.Generator().manual_seed(3)),
    "stateful": lambda: StatefulDataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=8, shuffle=True),
}


def task(loader=shuffled, kind=torch.optim.Adam, seed=0, **values):
    model, optimizer, _ = make(seed, kind)
    evaluate = lambda: loss_of(model, (X, Y))  # noqa: E731 - as users write it
    return TorchTask(model, optimizer, loader(), lambda batch: loss_of(model, batch), evaluate, **values)


def on_workers(settings, size, make_task):
    driver = Driver(VirtualPool(make_task, size), strategies.get(settings.strategy))
    driver.start(settings.with_(parallel=size))
    driver.run()
    end = make_task()
    end.loads(driver.training_state)
    return driver, end


def in_one_process(values, loader):
    model, optimizer, _ = make(0, torch.optim.Adam)
    auto = autolrs.AutoLRS(model, optimizer, evaluate=lambda: loss_of(model, (X, Y)), **values)
    for batch in auto.batches(loader()):
        auto.step(train_step(model, optimizer, batch))
    return auto, model


@pytest.mark.parametrize("name", LOADERS)
def test_another_worker_goes_on_where_the_first_was(name):
    first = task(LOADERS[name])
    first.set_lr(0.01)
    for _ in range(8):  # into the second epoch
        first.step()
    data = first.dumps()
    expected = [first.step() for _ in range(9)]
    second = task(LOADERS[name], seed=5)
    second.step()
    second.loads(data)
    assert [second.step() for _ in range(9)] == expected
    assert same(tensors(first.model), tensors(second.model))


# What an `evaluate` costs is weighed in one process only; miniature runs are judged by it either way.
HORIZON = {"strategy": "horizon", "total_steps": 500, "lr": (1e-4, 1e-1), "evaluate_cost": 2.0}
HORIZON |= {"keep_best": False, "averaging": False}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    "values",
    [
        {**PAPER, "replay": True, "eval_every": 2},
        {**PAPER, "preset": "practical", "final_anneal": 0.0},
        {**PAPER, "eval_every": 5},
        HORIZON,
    ],
    ids=["paper", "practical", "strict", "horizon"],
)
def test_one_worker_does_what_autolrs_does_to_the_bit(name, values):
    auto, model = in_one_process(values, LOADERS[name])
    driver, end = on_workers(Settings.make(**values), 1, lambda: task(LOADERS[name]))
    assert driver.state.schedule == auto.schedule
    assert driver.state.settings == auto.settings
    assert driver.state.raw_steps == auto.raw_steps
    assert same(tensors(model), tensors(end.model))


def test_three_workers_choose_what_one_does():
    settings = Settings.make(strategy="horizon", total_steps=500, lr=(1e-4, 1e-1))
    one, end = on_workers(settings, 1, task)
    three, other = on_workers(settings, 3, task)
    assert three.state.schedule == one.state.schedule
    assert same(tensors(end.model), tensors(other.model))


def test_what_is_tracked_travels_along():
    def with_average(seed=0):
        made = task(seed=seed)
        made.tracked["average"] = torch.optim.swa_utils.AveragedModel(made.model)
        return made

    first = with_average()
    first.step()
    first.tracked["average"].update_parameters(first.model)
    second = with_average(4)
    second.loads(first.dumps())
    assert same(tensors(first.tracked["average"]), tensors(second.tracked["average"]))


def test_a_state_of_another_model_is_refused_by_name():
    first = task()
    model = torch.nn.Linear(6, 3)
    other = TorchTask(model, torch.optim.Adam(model.parameters()), shuffled(), lambda batch: loss_of(model, batch))
    with pytest.raises(ValueError, match="of another model"):
        other.loads(first.dumps())


class Bomb:
    def __reduce__(self):
        return (print, ("boom",))


@pytest.mark.parametrize(
    "data", [pickle.dumps(Bomb(), protocol=2), b"", b"nonsense"], ids=["code", "empty", "nonsense"]
)
def test_loading_runs_no_code(data, capsys):
    with pytest.raises(ValueError, match="not a training state of autolrs"):
        task().loads(data)
    assert "boom" not in capsys.readouterr().out


def test_batches_that_do_not_fit_into_the_cache_are_noted():
    events = []
    driver = Driver(VirtualPool(task, 1), strategies.get("paper"))
    driver.listeners.append(events.append)
    driver.start(Settings.make(**{**PAPER, "replay": True, "replay_bytes": 1000}))
    driver.run()
    assert any("batches fill the cache of 1000 bytes" in getattr(event, "message", "") for event in events)


def test_a_loss_function_is_needed():
    model, optimizer, loader = make()
    with pytest.raises(TypeError, match="`loss_fn` must be a function batch -> loss, got NoneType"):
        TorchTask(model, optimizer, loader, None)


# On several ranks


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """A commit in the middle of a run: as one worker did it, and as two ranks did."""
    folder = tmp_path_factory.mktemp("ranks")
    pool = VirtualPool(plain, 1)
    driver, events = Driver(pool, strategies.get("paper")), []
    driver.listeners.append(events.append)
    driver.start(Settings.make(**{**PAPER, "replay": True}))
    driver.run()
    job = next(job for _, job in pool.jobs if isinstance(job.command, Commit) and job.command.stage == 1)
    (folder / "job").write_bytes(pickle.dumps(job))
    return driver, events, launch("task_worker.py", folder)


@pytest.mark.distributed
def test_two_ranks_on_halves_of_each_batch_do_what_one_worker_does(committed):
    driver, events, ranks = committed
    one = plain()
    one.loads(driver.training_state)
    expected = torch.cat([p.detach().flatten() for p in one.parameters()]).tolist()
    found = ranks[0]["commit"]
    assert found["weights"] == ranks[1]["commit"]["weights"]
    assert found["weights"] == pytest.approx(expected, abs=1e-5)
    commit = encode(next(event for event in reversed(events) if type(event).__name__ == "Committed"))
    losses = found["events"][-1].pop("losses")
    assert losses == pytest.approx(commit.pop("losses"), rel=1e-4)
    assert found["events"] == [commit]


@pytest.mark.distributed
def test_the_first_ranks_end_is_where_one_worker_goes_on(committed):
    driver, _, ranks = committed
    assert ranks[1]["commit"]["end"] is None
    losses = []
    for state in (driver.training_state, bytes.fromhex(ranks[0]["commit"]["end"])):
        again = plain()
        again.loads(state)
        again.set_lr(0.01)
        losses.append([again.step() for _ in range(9)])  # into the next epoch
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.distributed
def test_what_cannot_be_spread_is_an_error_on_every_rank(committed):
    for rank in committed[2]:
        assert "ValueError: a batch of 1 examples cannot be split equally on 2 workers" in rank["odd"]
        assert "`train_step` must compute its loss with `self.loss_fn`" in rank["careless"]


def test_a_loader_that_cannot_be_split_is_refused_beforehand():
    with pytest.raises(ValueError, match="batch size must be a multiple of the 3 workers, got 8"):
        task().check_split(3)
    with pytest.raises(ValueError, match=r"last batch of an epoch, 1 examples, .* give the loader `drop_last=True`"):
        plain(41).check_split(2)
    plain(42).check_split(2)
    task().check_split(4)
    task(lambda: [(X, Y)]).check_split(2)  # it does not tell
    task(lambda: shuffled(drop_last=True, batch_size=10)).check_split(5)
