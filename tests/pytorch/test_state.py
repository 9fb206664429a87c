"""TorchHost: the conformance suite, and what a snapshot of a PyTorch training must hold."""

import copy
import gc

import pytest
import torch
from nets import PAPER, X, Y, auto_for, loss_of, make, net, same, tensors, train, train_step
from torch import nn

import autolrs
from autolrs.pytorch.state import TorchHost, number, read_losses
from autolrs.testing.conformance import CHECKS

BATCHES = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 48, 8)]


class Harness:
    """A two-group training under AutoLRS, whose own first probe is too long to ever end here."""

    def __init__(self, kind, **options):
        self.model = net()
        groups = [{"params": self.model[0].parameters()}, {"params": [*self.model[1:].parameters()], "lr": 0.002}]
        self.optimizer = kind(groups, **{"lr": 0.02, **options})
        self.auto = autolrs.AutoLRS(
            self.model,
            self.optimizer,
            evaluate=lambda: loss_of(self.model, (X, Y)),
            **{**PAPER, "total_steps": None, "stage_steps": 10**6, "max_stage_steps": 10**6},
        )
        self.host = self.auto.host
        self.auto.session._read = read_losses  # which does not mind that another session drives this host
        self.optimizer._optimizer_step_pre_hooks.clear()  # AutoLRS would put its own LR before the first step
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=3)
        self.ema = torch.optim.swa_utils.AveragedModel(
            self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
        )
        self.auto.track(scaler=self.scaler, ema=self.ema)
        self.rewind()

    def rewind(self):
        self.data = iter(BATCHES * 100)

    def step(self):
        return self.accumulate(1)

    def accumulate(self, n, factor=1.0):
        self.optimizer.zero_grad()
        total = 0.0
        for _ in range(n):
            loss = loss_of(self.model, next(self.data)) * factor / n
            self.scaler.scale(loss).backward()
            total += loss.item()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.ema.update_parameters(self.model)
        self.auto.step(total)
        return total

    def overflow_step(self):
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        self.accumulate(1, factor=float("inf"))
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(before)  # BatchNorm saw the batch, skipped or not

    def counted(self):
        return self.auto.raw_steps

    def lrs(self):
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def weights(self):
        return [t.numpy() for t in tensors(self.model)]

    def tracked(self):
        return [*(t.numpy() for t in tensors(self.ema)), self.scaler.get_scale(), self.scaler._get_growth_tracker()]


KINDS = {
    "sgd": lambda: Harness(torch.optim.SGD),
    "momentum": lambda: Harness(torch.optim.SGD, momentum=0.9, nesterov=True),
    "adam": lambda: Harness(torch.optim.Adam),
    "fused adamw": lambda: Harness(torch.optim.AdamW, fused=True),
    "tensor lr": lambda: Harness(torch.optim.Adam, lr=torch.tensor(0.02)),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_the_torch_host_conforms(kind, check):
    check(KINDS[kind])


def host_of(model, **options):
    return TorchHost(model, torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options}))


class Counting(nn.Module):
    """Buffers of every troublesome kind; a forward pass replaces or makes them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("replaced", torch.zeros(2))
        self.register_buffer("hidden", torch.zeros(2), persistent=False)
        self.register_buffer("grown", torch.zeros(1))
        self.register_buffer("filled", None)
        self.register_buffer("emptied", torch.ones(3))
        self.register_buffer("expanded", torch.zeros(1).expand(4))
        shared = torch.zeros(2)
        self.register_buffer("first", shared)
        self.register_buffer("second", shared)

    def forward(self, x):
        self.replaced = self.replaced + 1
        self.hidden += 1
        self.grown = torch.cat([self.grown, torch.ones(1)])
        self.filled = torch.ones(2) if self.filled is None else self.filled * 2
        self.emptied = None
        self.expanded = (self.expanded[:1] + 1).expand(4)
        self.second = self.second + 1
        if not hasattr(self, "late"):
            self.register_buffer("late", torch.zeros(1))
        self.late += 1
        return (self.weight * x).sum()

    def seen(self):
        buffers = {key: None if value is None else value.tolist() for key, value in self._buffers.items()}
        return buffers, self.weight.tolist()


def test_buffers_are_restored_however_a_forward_pass_changes_them():
    model = Counting()
    host = host_of(model)
    start = copy.deepcopy(model.seen())
    token = host.snapshot()
    for _ in range(2):
        for _ in range(3):
            train_step_on(model, host.optimizer)
        assert model.seen() != start
        host.restore(token)
        assert model.seen() == start
    assert model.first is model.second  # one tensor then, one tensor now


def train_step_on(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2)).backward()
    optimizer.step()


def test_buffers_from_the_middle_are_restored_too():
    model = Counting()
    host = host_of(model)
    train_step_on(model, host.optimizer)
    middle = copy.deepcopy(model.seen())
    token = host.snapshot()
    for _ in range(2):
        train_step_on(model, host.optimizer)
        train_step_on(model, host.optimizer)
        host.restore(token)
        assert model.seen() == middle


def test_restoring_writes_in_place_so_that_addresses_stay():
    model, optimizer, _ = make(kind=torch.optim.Adam)
    host = TorchHost(model, optimizer)
    train_step(model, optimizer, BATCHES[0])
    state = optimizer.state[model[0].weight]
    live = [*model.parameters(), *model.buffers(), *state.values()]
    pointers = [tensor.data_ptr() for tensor in live]
    token = host.snapshot()
    train_step(model, optimizer, BATCHES[1])
    host.restore(token)
    now = [*model.parameters(), *model.buffers(), *optimizer.state[model[0].weight].values()]
    assert [tensor.data_ptr() for tensor in now] == pointers
    assert all(a is b for a, b in zip(live, now, strict=True))


def test_tied_weights_stay_tied_and_are_saved_once():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    host = host_of(model)
    host.snapshot()
    assert sum(storages(host._slots._trees[1]["model"]).values()) == 4 * 4 * 4
    token, before = host.snapshot(), model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.add_(1.0)
    host.restore(token)
    assert model[1].weight is model[0].weight
    assert isinstance(model[0].weight, nn.Parameter)
    assert torch.equal(model[0].weight, before)


def storages(tree):
    """Bytes of all tensors in a tree, by address: what is there twice counts once."""
    found = {}

    def walk(value):
        if isinstance(value, torch.Tensor):
            found[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        elif isinstance(value, dict):
            [walk(v) for v in value.values()]
        elif isinstance(value, (list, tuple)):
            [walk(v) for v in value]

    walk(tree)
    return found


def test_a_run_keeps_one_copy_of_the_state_and_allocates_nothing_after_the_first_full_one():
    model, optimizer, loader = make(kind=torch.optim.Adam)
    auto = auto_for(model, optimizer, total_steps=140)
    seen = []

    def look(event):
        if type(event).__name__ == "Probed":
            trees = [*auto.host._slots._trees.values(), *auto.host._slots._free]
            assert len(trees) == 1
            seen.append(storages({key: trees[0][key] for key in ("model", "optimizer")}))

    auto.on_event(look)
    train(auto, model, optimizer, loader)
    state = [*tensors(model), *(v for s in optimizer.state.values() for v in s.values())]
    whole = sum(tensor.numel() * tensor.element_size() for tensor in state)
    full = [found for found in seen if sum(found.values()) == whole]
    assert len(seen) == 12 and len(full) == 9  # the first stage's snapshot has no Adam state yet
    assert all(found.keys() == full[0].keys() for found in full)


def test_released_buffers_are_used_again():
    model, optimizer, _ = make()
    host = TorchHost(model, optimizer)
    train_step(model, optimizer, BATCHES[0])
    first = host.snapshot()
    pointers = storages(host._slots[first]["model"]).keys()
    host.release(first)
    second = host.snapshot()
    assert storages(host._slots[second]["model"]).keys() == pointers


def test_parameters_that_only_the_optimizer_holds_are_restored():
    model = nn.Linear(2, 1)
    weight = nn.Parameter(torch.ones(1))
    host = TorchHost(model, torch.optim.SGD([*model.parameters(), weight], lr=0.1))
    token = host.snapshot()
    with torch.no_grad():
        weight.fill_(7.0)
    host.restore(token)
    assert weight.item() == 1.0


def test_optimizer_state_under_other_keys_survives():
    model, optimizer, _ = make()
    optimizer.state["rounds"] = {"n": 3, "mean": torch.ones(1)}
    host = TorchHost(model, optimizer)
    token = host.snapshot()
    train_step(model, optimizer, BATCHES[0])
    optimizer.state["rounds"]["n"] = 9
    optimizer.state["rounds"]["mean"].fill_(9.0)
    host.restore(token)
    assert optimizer.state["rounds"] == {"n": 3, "mean": torch.ones(1)}
    assert not any(isinstance(key, torch.Tensor) for key in optimizer.state)


def test_other_values_of_the_groups_are_restored():
    model, optimizer, _ = make(kind=torch.optim.Adam)
    host = TorchHost(model, optimizer)
    token = host.snapshot()
    optimizer.param_groups[0]["betas"] = (0.5, 0.5)
    optimizer.param_groups[0]["train_mode"] = False  # Schedule-Free keeps its mode there
    host.restore(token)
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.999)
    assert "train_mode" not in optimizer.param_groups[0]


def test_a_tensor_lr_is_filled_in_place_also_when_groups_share_it():
    model = net()
    lr = torch.tensor(0.01)
    groups = [{"params": model[0].parameters()}, {"params": model[4].parameters()}]
    optimizer = torch.optim.Adam(groups, lr=lr)
    host = TorchHost(model, optimizer)
    token = host.snapshot()
    for value in (0.5, 0.25):
        host.set_lr(value)
        host.restore(token)
        assert lr.item() == pytest.approx(0.01)
        host.set_lr(value)
        assert lr.item() == value
        assert all(group["lr"] is lr for group in optimizer.param_groups)


def test_groups_keep_their_ratios_and_an_added_group_joins():
    model = net()
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.05}], lr=0.1
    )
    host = TorchHost(model, optimizer)
    host.set_lr(1.0)
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.5]
    optimizer.add_param_group({"params": model[4].parameters(), "lr": 0.25})
    host.set_lr(2.0)
    assert [group["lr"] for group in optimizer.param_groups] == [2.0, 1.0, 0.5]


def test_a_first_group_without_lr_is_refused():
    with pytest.raises(ValueError, match=r"first parameter group's `lr` must be above 0.*got 0\.0"):
        host_of(net(), lr=0.0)


def test_tracked_objects_of_unknown_kind_get_copies():
    class Keeper:
        """Keeps what it is given, as many do."""

        def __init__(self):
            self.state = {"mean": torch.zeros(1), "n": 0}

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            self.state = state

        def update(self):
            self.state["mean"] += 1
            self.state["n"] += 1

    model, optimizer, _ = make()
    host, keeper = TorchHost(model, optimizer), Keeper()
    host.tracked["keeper"] = keeper
    token = host.snapshot()
    for _ in range(3):
        keeper.update()
        host.restore(token)
        assert keeper.state == {"mean": torch.zeros(1), "n": 0}


def test_a_second_optimizer_can_be_tracked():
    model, optimizer, _ = make()
    other_model, other, _ = make(seed=1, kind=torch.optim.Adam)
    host = TorchHost(model, optimizer)
    host.tracked = {"discriminator": other_model, "its_optimizer": other}
    token, start = host.snapshot(), tensors(other_model)
    train_step(other_model, other, BATCHES[0])
    host.restore(token)
    assert same(tensors(other_model), start)
    assert not other.state


def test_a_compiled_model_is_restored():
    model = net()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1, momentum=0.9)
    host = TorchHost(compiled, optimizer)
    token = host.snapshot()
    losses = [[], []]
    for run in losses:
        run.extend(train_step(compiled, optimizer, batch).item() for batch in BATCHES[:3])
        host.restore(token)
    assert losses[0] == losses[1]


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # torch's own import
def test_a_compiled_optimizer_step_is_restored():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
    host = TorchHost(model, optimizer)
    step = torch.compile(optimizer.step, backend="eager")
    token = host.snapshot()
    losses = [[], []]
    for run in losses:
        for batch in BATCHES[:3]:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            step()
            run.append(loss.item())
        host.restore(token)
    assert losses[0] == losses[1]


@pytest.mark.parametrize("raises", [False, True])
def test_evaluate_puts_mode_and_random_numbers_back(raises):
    model, optimizer, _ = make()
    model[1].eval()  # frozen by the user
    modes = [module.training for module in model.modules()]

    def evaluate():
        assert not model.training
        torch.rand(1)
        model.eval()
        if raises:
            raise OSError("no data")
        return torch.tensor(1.5, requires_grad=True) * 2

    host = TorchHost(model, optimizer, evaluate)
    random_state = torch.get_rng_state()
    if raises:
        with pytest.raises(OSError, match="no data"):
            host.evaluate()
    else:
        assert host.evaluate() == 3.0
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random_state)


def test_evaluate_leaves_buffers_as_they_were_even_if_it_runs_in_training_mode():
    model, optimizer, _ = make()

    def evaluate():
        model.train()
        return loss_of(model, (X, Y))

    before = tensors(model)
    TorchHost(model, optimizer, evaluate).evaluate()
    assert same(tensors(model), before)


def test_evaluate_must_return_a_number():
    model, optimizer, _ = make()
    with pytest.raises(
        TypeError, match=r"`evaluate` must be a number or a Tensor with one value, got Tensor of shape \(2,\)"
    ):
        TorchHost(model, optimizer, lambda: torch.ones(2)).evaluate()
    with pytest.raises(TypeError, match="got NoneType"):
        TorchHost(model, optimizer, lambda: None).evaluate()


def test_losses_are_read_in_one_go_and_skipped_ones_left_out():
    zero, one = torch.zeros(1), torch.ones(1)
    assert read_losses([1.0, 2.0]) == [1.0, 2.0]
    assert read_losses([torch.tensor(1.0), 2, (torch.tensor([3.0]), zero), (4.0, one), (5.0, zero)]) == [1, 2, 3, 5]
    assert read_losses([]) == []


def test_number_reads_tensors_that_need_gradients():
    assert number(torch.ones(1, requires_grad=True), "it") == 1.0
    assert number("2.5", "it") == 2.5


def test_a_dumped_snapshot_keeps_the_device_its_tensors_live_on():
    model, optimizer, _ = make()
    host = TorchHost(model, optimizer)
    train_step(model, optimizer, BATCHES[0])
    token = host.snapshot()
    for buffer in host._slots[token]["model"].values():
        buffer._autolrs_home = "cuda:7"
    host.put(9, host.dump(token))
    assert {buffer._autolrs_home for buffer in host._slots[9]["model"].values()} == {"cuda:7"}


def test_a_host_does_not_keep_its_model_alive():
    model, optimizer, _ = make()
    host = TorchHost(model, optimizer)
    host.snapshot()
    import weakref

    gone = weakref.ref(model)
    del model, optimizer, host
    gc.collect()
    assert gone() is None
