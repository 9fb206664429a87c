"""`auto.batches`: with replay the committed run is, to the bit, that of a plain loop with the schedule it found."""

import collections
import math

import numpy as np
import pytest
import torch
from nets import Augmented, X, Y, auto_for, bare, loss_of, make, net, same, shuffled, tensors, train, train_step
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from autolrs.core.types import Noted
from autolrs.pytorch.batch import clone_batch, size_of_batch
from autolrs.pytorch.rng import GlobalRng, LoaderRng

# torchdata's own call when a StatefulDataLoader is made
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

DATA = TensorDataset(X, Y)


def seeded(loader=DataLoader, **options):
    return loader(DATA, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(5), **options)


def distributed(loader, sampler):
    return loader(DATA, batch_size=8, sampler=sampler(DATA, num_replicas=1, rank=0, shuffle=True))


LOADERS = {
    "shuffled": shuffled,  # six batches: probes of 5 and 10 cross the epochs' ends
    "shorter than a probe": lambda: shuffled(batch_size=24),
    "one batch": lambda: shuffled(batch_size=48),
    "last batch cut": lambda: shuffled(batch_size=13),
    "list": lambda: [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 48, 8)],
    "own generator": seeded,
    "distributed sampler": lambda: distributed(DataLoader, DistributedSampler),
    "augmented": lambda: shuffled(Augmented()),
    "augmented, odd": lambda: shuffled(Augmented(), batch_size=3),
    "two workers": lambda: shuffled(num_workers=2, persistent_workers=True),
    "stateful": lambda: StatefulDataLoader(DATA, batch_size=8, shuffle=True),
    "stateful, shorter than a probe": lambda: StatefulDataLoader(DATA, batch_size=24, shuffle=True),
    "stateful, own generator": lambda: seeded(StatefulDataLoader),
    "stateful, distributed": lambda: distributed(StatefulDataLoader, StatefulDistributedSampler),
    "stateful, augmented": lambda: StatefulDataLoader(Augmented(), batch_size=8, shuffle=True),
}


def fresh(name):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, optimizer, LOADERS[name]()


def bare_like(name, model, optimizer, loader, schedule):
    """The plain loop, with what its writer would have to do by hand for a distributed sampler."""
    if "distributed" not in name:
        bare(model, optimizer, loader, schedule)
        return
    scheduler, epoch, left = schedule.to_torch(optimizer), 0, schedule.total_steps
    while left:
        loader.sampler.set_epoch(epoch)
        epoch += 1
        for batch in loader:
            train_step(model, optimizer, batch)
            scheduler.step()
            left -= 1
            if not left:
                break


@pytest.mark.parametrize("keep_winner", [False, True])
@pytest.mark.parametrize("name", LOADERS)
def test_the_committed_run_equals_a_plain_loop(name, keep_winner):
    model, optimizer, loader = fresh(name)
    auto = auto_for(model, optimizer, replay=True, keep_winner=keep_winner)
    train(auto, model, optimizer, loader)
    assert auto.committed_steps == 60
    again, again_optimizer, again_loader = fresh(name)
    bare_like(name, again, again_optimizer, again_loader, auto.schedule)
    assert same(tensors(model), tensors(again))


def batches_seen(auto, model, optimizer, loader):
    """What each command's steps were given: a list of fingerprints by (stage, probe), None for a commit."""
    seen = collections.defaultdict(list)
    for x, y in auto.batches(loader):
        command = auto.session.command
        key = (command.stage, getattr(command, "index", None))
        seen[key].append((x.double().sum().item(), torch.get_rng_state().sum().item()))
        auto.step(train_step(model, optimizer, (x, y)))
    return seen


@pytest.mark.parametrize("name", [name for name in LOADERS if name != "two workers"])
def test_all_probes_of_a_stage_and_its_commit_see_the_same_batches_and_random_numbers(name):
    model, optimizer, loader = fresh(name)
    seen = batches_seen(auto_for(model, optimizer, replay=True), model, optimizer, loader)
    for stage, steps in ((0, 5), (1, 10)):
        first = seen[stage, 0]
        assert len(first) == steps
        assert seen[stage, 1] == first and seen[stage, 2] == first
        assert seen[stage, None][:steps] == first


def test_two_workers_of_a_stateful_loader_replay():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = StatefulDataLoader(DATA, batch_size=8, shuffle=True, num_workers=2)
    settings = {"total_steps": 20, "max_stage_steps": 20, "n_probes": 2}
    auto = auto_for(model, optimizer, replay=True, keep_winner=True, **settings)
    seen = batches_seen(auto, model, optimizer, loader)
    assert seen[0, 1] == seen[0, 0] and len(seen[0, None]) == 15
    again = net()
    optimizer = torch.optim.SGD(again.parameters(), lr=0.01)
    bare(again, optimizer, StatefulDataLoader(DATA, batch_size=8, shuffle=True, num_workers=2), auto.schedule)
    assert same(tensors(model), tensors(again))


def test_without_replay_the_stream_just_goes_on():
    model, optimizer, _ = make()
    loader = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 48, 8)]
    auto = auto_for(model, optimizer)
    given = []
    for batch in auto.batches(loader):
        given.append(batch[0].data_ptr())
        auto.step(train_step(model, optimizer, batch))
    pointers = [batch[0].data_ptr() for batch in loader]
    assert given == [pointers[i % 6] for i in range(105)]


def test_a_loop_that_changes_its_batches_in_place_spoils_no_later_probe():
    def spoil(batch):
        batch[0].mul_(1.5)
        batch[1].add_(1).remainder_(3)

    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, replay=True)
    for batch in auto.batches(loader):
        spoil(batch)
        auto.step(train_step(model, optimizer, batch))
    again, optimizer, loader = make()
    bare(again, optimizer, loader, auto.schedule, modify=spoil)
    assert same(tensors(model), tensors(again))


def test_past_replay_bytes_the_stream_goes_on_and_the_journal_says_so():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, replay=True, replay_bytes=3 * 8 * (6 * 4 + 8))
    notes = []
    auto.on_event(lambda event: notes.append(event.message) if isinstance(event, Noted) else None)
    seen = batches_seen(auto, model, optimizer, loader)
    assert [seen[0, i][:3] for i in (1, 2, None)] == [seen[0, 0][:3]] * 3
    assert seen[0, 1][3:] != seen[0, 0][3:]
    assert len(notes) == 2 and notes[0].startswith("replay: 3 batches fill the cache of 768 bytes")
    assert "`replay_bytes`" in notes[0]
    assert auto.committed_steps == 60


def test_a_second_call_with_the_same_loader_goes_on():
    whole, optimizer, loader = make()
    auto = auto_for(whole, optimizer, replay=True)
    train(auto, whole, optimizer, loader)
    model, optimizer, loader = make()
    pieces = auto_for(model, optimizer, replay=True)
    while not pieces.done:
        train(pieces, model, optimizer, loader, stop=7)
    assert pieces.schedule == auto.schedule
    assert same(tensors(model), tensors(whole))


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_another_loader_in_the_middle_of_a_probe_works(kind):
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer, replay=True, keep_winner=True)
    while not auto.done:
        train(auto, model, optimizer, kind(DATA, batch_size=8, shuffle=True), stop=7)
    assert auto.committed_steps == 60


def test_batches_after_steps_of_ones_own_works():
    model, optimizer, _ = make()
    with pytest.warns(RuntimeWarning, match=r"`replay` needs `auto.batches\(loader\)`"):
        auto = auto_for(model, optimizer, replay=True)
        for _ in range(3):
            auto.step(train_step(model, optimizer, (X, Y)))
    train(auto, model, optimizer, StatefulDataLoader(DATA, batch_size=8))
    assert auto.committed_steps == 60


@pytest.mark.parametrize("kind", [list, DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("replay", [False, True])
def test_an_empty_loader_is_a_clear_error(kind, replay):
    empty = kind(TensorDataset(X[:0], Y[:0]))
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer, replay=replay)
    with pytest.raises(ValueError, match="the loader gave no batch: it is empty"):
        train(auto, model, optimizer, empty)


def test_a_generator_that_runs_out_is_a_clear_error():
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    with pytest.raises(ValueError, match=r"no batch in epoch 2: it must start anew .* \(a generator does not\)"):
        train(auto, model, optimizer, ((X, Y) for _ in range(7)))
    assert auto.raw_steps == 7


def test_a_generator_that_lasts_is_fine():
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer, replay=True)
    train(auto, model, optimizer, ((X, Y) for _ in range(60)))  # probes are replayed: 60 batches for 105 steps
    assert auto.committed_steps == 60


# Batches


Pair = collections.namedtuple("Pair", ["x", "y"])


class Special(dict):
    pass


def test_batches_of_every_shape_are_measured_and_copied():
    x = torch.ones(4, 2)
    batch = {
        "tensor": x,
        "array": np.ones(3),
        "list": [x.clone(), (torch.zeros(1, dtype=torch.int64),)],
        "pair": Pair(torch.ones(2, requires_grad=True), "text"),
        "special": Special(a=torch.ones(1)),
        "number": 3,
    }
    assert size_of_batch(batch) == 32 + 24 + 32 + 8 + 8 + 64 + 4 + 64
    copy = clone_batch(batch)
    assert type(copy["special"]) is Special and type(copy["pair"]) is Pair and type(copy["list"][1]) is tuple
    assert copy["pair"].x.requires_grad and not copy["tensor"].requires_grad
    batch["tensor"].fill_(9.0)
    batch["array"][:] = 9.0
    batch["list"][0].fill_(9.0)
    batch["special"]["a"].fill_(9.0)
    assert copy["tensor"].sum() == 8 and copy["array"].sum() == 3 and copy["list"][0].sum() == 8
    assert copy["special"]["a"].item() == 1.0


# Random states


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(1),
        lambda: np.random.rand(),  # noqa: NPY002 - the user's
        lambda: np.random.randn(),  # noqa: NPY002 - the user's
        lambda: __import__("random").random(),
        lambda: __import__("random").gauss(0, 1),
    ],
    ids=["torch", "numpy", "numpy normal", "python", "python normal"],
)
def test_every_draw_is_noticed_and_undone(draw):
    net()
    rng = GlobalRng()
    for _ in range(3):  # the second normal number of a pair only empties a place
        before = rng.get()
        first = draw()
        after = rng.get()
        assert not rng.same(before, after)
        assert rng.same(after, rng.get())
        rng.set(before)
        assert rng.same(before, rng.get())
        assert draw() == first
        assert rng.same(after, rng.get())


def test_a_loaders_generators_belong_to_its_random_state():
    generator = torch.Generator().manual_seed(1)
    rng = LoaderRng(DataLoader(DATA, shuffle=True, generator=generator))
    before = rng.get()
    first = torch.rand(3, generator=generator)
    assert not rng.same(before, rng.get())
    rng.set(before)
    assert torch.equal(torch.rand(3, generator=generator), first)
    assert LoaderRng([1, 2]).get()["generators"] == []


def test_the_loss_is_finite_in_all_this():
    assert math.isfinite(loss_of(net(), (X, Y)).item())
