"""TorchTask: a PyTorch training that travels; driven by workers it does what AutoLRS does in one process."""

import pickle
from functools import partial

import pytest
import torch
from nets import PAPER, X, Y, loss_of, make, same, shuffled, tensors, train_step
from ranks import launch
from task_worker import plain
from torchdata.stateful_dataloader import StatefulDataLoader

import autolrs
from autolrs.core import strategies
from autolrs.core.engine import history
from autolrs.core.settings import Settings
from autolrs.core.types import Averaged, Commit, Committed, Finished, Probed, encode
from autolrs.pytorch.task import TorchTask
from autolrs.run import journal
from autolrs.run.parallel import Driver
from autolrs.testing.pool import VirtualPool

# torchdata's own call when a StatefulDataLoader is made
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

LOADERS = {
    "global": shuffled,
    "generator": lambda: shuffled(generator=torch.Generator().manual_seed(3)),
    "stateful": lambda: StatefulDataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=8, shuffle=True),
}


def task(loader=shuffled, kind=torch.optim.Adam, seed=0, validated=True, **values):
    model, optimizer, _ = make(seed, kind)
    evaluate = (lambda: loss_of(model, (X, Y))) if validated else None
    return TorchTask(model, optimizer, loader(), lambda batch: loss_of(model, batch), evaluate, **values)


def on_workers(settings, size, make_task, run_dir=None, on_event=None):
    driver = Driver(VirtualPool(make_task, size), strategies.get(settings.strategy), run_dir=run_dir)
    driver.listeners += [on_event] if on_event else []
    driver.start(settings.with_(parallel=size))
    driver.run()
    return driver, end_of(driver, make_task)


def end_of(driver, make_task):
    end = make_task()
    end.loads(driver.training_state)
    return end


def in_one_process(values, loader, kind=torch.optim.Adam, validated=True, on_event=None):
    model, optimizer, _ = make(0, kind)
    evaluate = (lambda: loss_of(model, (X, Y))) if validated else None
    auto = autolrs.AutoLRS(model, optimizer, evaluate=evaluate, **values)
    if on_event:
        auto.on_event(on_event)
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
AVERAGED = {**HORIZON, "averaging": True}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    "values",
    [
        {**PAPER, "replay": True, "eval_every": 2},
        {**PAPER, "preset": "practical", "final_anneal": 0.0},
        {**PAPER, "eval_every": 5},
        {**PAPER, "preset": "practical", "averaging": True},
        HORIZON,
        AVERAGED,
    ],
    ids=["paper", "practical", "strict", "practical, averaged", "horizon", "horizon, averaged"],
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


# Averaging


def averages(events):
    return [event for event in events if isinstance(event, Averaged)]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
@pytest.mark.parametrize(
    "more", [{}, {"replan_at": (0.25,), "max_cost": 1.4}], ids=["plain miniature runs", "probes that go on averaging"]
)
def test_workers_average_as_autolrs_does_to_the_bit(size, kind, more):
    expected, events = [], []
    auto, model = in_one_process({**AVERAGED, **more}, shuffled, kind, on_event=expected.append)
    settings = Settings.make(**{**AVERAGED, **more})
    driver, end = on_workers(settings, size, partial(task, kind=kind), on_event=events.append)
    assert driver.state.schedule == auto.schedule
    assert driver.state.settings.with_(parallel=1) == auto.settings
    assert driver.state.evaluations == auto.session.state.evaluations
    assert same(tensors(model), tensors(end.model))
    assert averages(events) == averages(expected)
    assert any(isinstance(event, Probed) and event.stage > 0 for event in events) == bool(more)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_the_optimizer_that_travels_back_has_its_own_momentum(kind):
    momenta = []

    class Watched(TorchTask):
        def train_step(self, batch):
            momenta.append(momentum_of(self.optimizer))
            return super().train_step(batch)

    def watched():
        model, optimizer, loader = make(0, kind)
        return Watched(model, optimizer, loader, lambda batch: loss_of(model, batch))

    _, end = on_workers(Settings.make(**{**AVERAGED, "total_steps": 120}), 1, watched)
    assert momentum_of(end.optimizer) == momenta[0] == 0.9
    assert {round(momentum, 3) for momentum in momenta} == {0.9, 0.684}
    assert not end.averager.begun


def momentum_of(optimizer):
    group = optimizer.param_groups[0]
    return group["betas"][0] if "betas" in group else group["momentum"]


@pytest.mark.parametrize("validated", [True, False])
def test_the_average_is_held_against_the_trained_weights_where_there_is_an_evaluate(validated):
    expected, events = [], []
    in_one_process(AVERAGED, shuffled, validated=validated, on_event=expected.append)
    make_task = partial(task, validated=validated)
    driver, end = on_workers(Settings.make(**AVERAGED), 1, make_task, on_event=events.append)
    assert averages(events) == averages(expected)
    (found,) = averages(events)
    if validated:
        assert end.evaluate() == (found.averaged if found.used else found.raw)
        assert found.averaged != found.raw
    else:
        assert found == Averaged(True)
    assert [type(event) for event in events[-3:]] == [Committed, Averaged, Finished]
    assert driver.state.finished


def test_the_model_ends_with_what_validation_says_is_better():
    class Judged(TorchTask):
        verdict = 0.0  # on every average

        def evaluate(self, *, raw=False):
            return 1.0 if raw or not self.averager.begun else self.verdict

    def judged():
        model, optimizer, loader = make(0, torch.optim.Adam)
        return Judged(model, optimizer, loader, lambda batch: loss_of(model, batch), lambda: 0.0)

    ends = []
    for used, verdict in ((True, 0.5), (False, 2.0)):
        Judged.verdict, events = verdict, []
        ends.append(on_workers(Settings.make(**AVERAGED), 1, judged, on_event=events.append)[1])
        assert averages(events) == [Averaged(used, 1.0, verdict)]
    assert not same(tensors(ends[0].model), tensors(ends[1].model))


class Killed(BaseException):
    """As by a signal: nothing catches it."""


@pytest.mark.parametrize("size", [1, 2])
def test_a_killed_driver_goes_on_to_the_same_average_from_every_event(size, tmp_path):
    settings = Settings.make(**{**AVERAGED, "total_steps": 150, "max_cost": 1.6})
    events = []
    whole, end = on_workers(settings, size, task, on_event=events.append)
    assert sum(isinstance(event, Committed) for event in events) > 1 and averages(events)
    for count in range(1, len(events)):
        folder, left = tmp_path / str(count), count

        def stop(event):
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        with pytest.raises(Killed):
            on_workers(settings, size, task, run_dir=folder, on_event=stop)
        driver = Driver(VirtualPool(task, size), strategies.get("horizon"), run_dir=folder)
        driver.resume()
        driver.run()
        assert driver.state.schedule == whole.state.schedule
        assert same(tensors(end_of(driver, task).model), tensors(end.model)), f"killed after {events[count - 1]}"
        assert len(averages(history(journal.read(folder)))) == 1


@pytest.mark.parametrize("prepared", [True, False])
def test_an_average_goes_on_on_another_worker_whether_or_not_it_was_told_of_it(prepared):
    first, second = task(), task(seed=5)
    for made in (first, second) if prepared else (first,):
        made.prepare(Settings.make(**AVERAGED), print)

    def train(made):
        for _ in range(5):
            made.step()
            made.averager.update()
        return made.evaluate(), made.evaluate(raw=True)

    train(first)
    data = first.dumps()
    expected = train(first)
    second.loads(data)
    assert train(second) == expected
    assert expected[0] != expected[1]
    assert same(tensors(first.model), tensors(second.model))


def test_an_optimizer_that_averages_itself_is_left_alone():
    def schedule_free():
        made = task()
        made.optimizer.param_groups[0]["train_mode"] = True
        return made

    with pytest.raises(ValueError, match=r"`averaging` must be off .* unless its optimizer averages itself"):
        on_workers(Settings.make(**AVERAGED), 1, schedule_free)


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
    one = {}
    for name, more in (("commit", {}), ("averaged commit", {"averaging": True})):
        pool = VirtualPool(plain, 1)
        driver, events = Driver(pool, strategies.get("paper")), []
        driver.listeners.append(events.append)
        driver.start(Settings.make(**{**PAPER, "replay": True, **more}))
        driver.run()
        job = next(job for _, job in pool.jobs if isinstance(job.command, Commit) and job.command.stage == 1)
        (folder / name).write_bytes(pickle.dumps(job))
        one[name] = driver, events
    return one, launch("task_worker.py", folder)


@pytest.mark.distributed
@pytest.mark.parametrize("name", ["commit", "averaged commit"])
def test_two_ranks_on_halves_of_each_batch_do_what_one_worker_does(committed, name):
    (driver, events), ranks = committed[0][name], committed[1]
    one = plain()
    one.loads(driver.training_state)
    expected = torch.cat([p.detach().flatten() for p in one.parameters()]).tolist()
    found = ranks[0][name]
    assert found["weights"] == ranks[1][name]["weights"]
    assert found["weights"] == pytest.approx(expected, abs=1e-5)
    start = max(i for i, event in enumerate(events) if isinstance(event, Committed))
    commit, *rest = [encode(event) for event in events[start:-1]]  # all but the driver's Finished
    losses = found["events"][0].pop("losses")
    assert losses == pytest.approx(commit.pop("losses"), rel=1e-4)
    assert found["events"] == [commit, *rest]
    assert len(rest) == (name == "averaged commit")


@pytest.mark.distributed
def test_the_first_ranks_end_is_where_one_worker_goes_on(committed):
    driver, ranks = committed[0]["commit"][0], committed[1]
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
    for rank in committed[1]:
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
