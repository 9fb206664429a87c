"""The Lightning adapter: probes that nobody sees, the Trainer's own steps, its checkpoints, its strategies."""

from __future__ import annotations

import copy
import re
import runpy
import subprocess
import sys
from pathlib import Path

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    EMAWeightAveraging,
    LearningRateMonitor,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

import autolrs
from autolrs.core.types import Failed
from autolrs.lightning_ import AutoLRSCallback
from lightning_cases import QUIET, SMALL, STEPS, Net, Plain, assert_same, fit, loader, seeded

pytestmark = QUIET


class Lines(Logger):
    """Keeps every line it is given."""

    name, version = "lines", 0

    def __init__(self):
        super().__init__()
        self.lines = []

    def log_metrics(self, metrics, step=None):
        self.lines.append((step, dict(metrics)))

    def log_hyperparams(self, *args, **kwargs):
        pass


class Spy(Callback):
    """What a callback can see at every moment."""

    def __init__(self):
        self.seen = []

    def look(self, hook, trainer, module, outputs=None, *_):
        if trainer.sanity_checking:  # comes before training, when no schedule is known
            return
        self.seen.append(
            {
                "hook": hook,
                "step": trainer.global_step,
                "epoch": trainer.current_epoch,
                "lr": [group["lr"] for group in trainer.optimizers[0].param_groups],
                "outputs": copy.deepcopy(outputs),
                "metrics": dict(trainer.callback_metrics),
                "random": torch.get_rng_state(),
                "gradients": [None if p.grad is None else p.grad.clone() for p in module.parameters()],
                "weights": [value.clone() for value in module.state_dict().values()],
                "modes": [part.training for part in module.modules()],
                "counter": module.batches,
                "stop": trainer.should_stop,
            }
        )


for name in (
    *("on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad", "on_after_backward"),
    *("on_before_optimizer_step", "on_validation_epoch_end", "on_train_epoch_end", "on_train_end"),
):
    setattr(Spy, name, lambda self, trainer, module, *_, name=name: self.look(name, trainer, module))
Spy.on_train_batch_end = lambda self, *values: self.look("on_train_batch_end", *values)


# What a run with probes leaves behind


def whole_run(folder, schedule, *callbacks, **options):
    """A run with everything that looks on; returns what each of them saw and saved."""
    module = seeded(lambda: Net(schedule))
    spy, lines = Spy(), Lines()
    saver = ModelCheckpoint(folder, "{step}", every_n_train_steps=7, save_top_k=-1)
    best = ModelCheckpoint(folder, "best-{step}", monitor="val_loss")
    others = [
        EarlyStopping("val_loss", patience=50),
        EMAWeightAveraging(decay=0.9),
        LearningRateMonitor("step"),
        saver,
        best,
    ]
    # The spy comes first in the list: a callback that is placed before ours must not see a probe either.
    trainer = fit(module, [spy, *callbacks, *others], logger=lines, enable_checkpointing=True, **options)
    saved = {path.name: torch.load(path, weights_only=True) for path in sorted(folder.glob("*.ckpt"))}
    for content in saved.values():
        del content["lr_schedulers"]
        content["callbacks"].pop("AutoLRSCallback", None)
        content["callbacks"] = {k.split("{")[0] + str(i): v for i, (k, v) in enumerate(content["callbacks"].items())}
        for state in content["callbacks"].values():
            state.pop("dirpath", None)
            for key in [key for key, value in state.items() if isinstance(value, str) or "k_models" in key]:
                del state[key]  # paths
        del content["loops"]["fit_loop"]["epoch_loop.scheduler_progress"]
        for group in content["optimizer_states"][0]["param_groups"]:
            group.pop("initial_lr", None)
    return trainer, spy.seen, lines.lines, saved, [float(best.best_model_score), best.best_model_path.split("/")[-1]]


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("horizon", {}),
        ("paper", {}),
        ("paper", {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5, "precision": "bf16-mixed"}),
        ("horizon", {"accumulate_grad_batches": 2, "gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
        ("paper", {"val_check_interval": 3, "num_sanity_val_steps": 0}),
    ],
    ids=["horizon", "paper", "paper, accumulated, clipped, bf16", "horizon, accumulated, clipped", "paper, no sanity"],
)
def test_everything_logged_or_saved_is_that_of_a_replay_without_probes(tmp_path, strategy, options):
    callback = AutoLRSCallback(STEPS, **SMALL[strategy])
    trainer, *found = whole_run(tmp_path / "probed", None, callback, **options)
    assert callback.auto.raw_steps >= STEPS + 20
    assert trainer.global_step == callback.schedule.total_steps == STEPS
    _, *expected = whole_run(tmp_path / "replayed", callback.schedule, max_steps=STEPS, **options)
    for here, there in zip(found, expected, strict=True):
        assert here
        assert_same(here, there)


# Budget


@pytest.mark.parametrize("options", [{"max_epochs": 1}, {"max_epochs": 100}, {"max_steps": 5}, {"min_epochs": 9}])
def test_training_ends_at_total_steps_whatever_the_trainer_says(options):
    callback = AutoLRSCallback(13, lr=(1e-3, 0.1), max_cost=1.0)
    trainer = fit(seeded(Plain), [callback], **options)
    assert trainer.global_step == callback.auto.committed_steps == 13
    assert callback.auto.done


@pytest.mark.parametrize(
    ("options", "steps"), [({"max_epochs": 2}, 12), ({"max_steps": 7}, 7), ({"max_epochs": 2, "max_steps": 7}, 7)]
)
def test_total_steps_comes_from_the_trainer_where_it_is_not_given(options, steps):
    callback = AutoLRSCallback(max_cost=1.0)
    trainer = fit(seeded(Plain), [callback], **options)
    assert trainer.global_step == callback.schedule.total_steps == steps
    assert callback.auto.done


def test_horizon_without_any_limit_asks_for_total_steps():
    with pytest.raises(ValueError, match="`total_steps` is needed by strategy 'horizon'"):
        fit(seeded(Plain), [AutoLRSCallback()])


def test_steps_are_optimizer_steps_under_accumulation():
    callback = AutoLRSCallback(7, max_cost=1.0)
    trainer = fit(seeded(Plain), [callback], accumulate_grad_batches=4)  # 6 batches: 4 and 2 in every epoch
    assert (trainer.global_step, trainer.current_epoch, callback.auto.raw_steps) == (7, 4, 7)


def test_the_loss_of_a_step_is_the_mean_over_its_batches():
    module, events, data = seeded(Plain), [], loader(shuffle=False)
    still = {"stage_steps": 5, "probe_fraction": 0.99, "n_probes": 1, "lr": (1e-9, 1e-8)}
    callback = AutoLRSCallback(5, strategy="paper", **still)
    fit(module, [callback, Listen(events)], data, accumulate_grad_batches=4, val=False)
    losses = [nn.functional.mse_loss(module.net(x), y).item() for x, y in data]
    # The weights hardly move, and the noise of the data is small. An epoch has 4 batches and 2; a probe always takes 4.
    whole, rest = sum(losses[:4]) / 4, sum(losses[4:]) / 2
    probed, committed = (event.losses for event in events if hasattr(event, "losses"))
    assert abs(whole - rest) > 0.1 * whole
    assert committed == pytest.approx([whole, rest, whole, rest, whole], rel=0.05)
    assert probed[0] == pytest.approx(whole, rel=0.05)


class Listen(Callback):
    """Gathers a run's events from its end."""

    def __init__(self, events):
        self.events = events

    def on_train_start(self, trainer, module):
        auto = trainer.callbacks[0].auto
        self.events.extend(auto.session.state.probes)
        auto.on_event(self.events.append)


# Refusals


def test_the_modules_own_scheduler_is_refused():
    schedule = autolrs.Schedule((autolrs.Segment(10, 0.1, 0.1),))
    with pytest.raises(ValueError, match=r"`configure_optimizers` of Net returns a scheduler \(ScheduleLR\)"):
        fit(Net(schedule), [AutoLRSCallback(10)])


def test_manual_optimization_is_refused():
    module = Plain()
    module.automatic_optimization = False
    with pytest.raises(ValueError, match="Plain uses manual optimization"):
        fit(module, [AutoLRSCallback(10)])


def test_a_step_that_takes_an_iterator_is_refused():
    class Iterating(Plain):
        def training_step(self, dataloader_iter):
            return super().training_step(next(dataloader_iter)[0], 0)

    with pytest.raises(ValueError, match="let it take a batch"):
        fit(Iterating(), [AutoLRSCallback(10)])


def test_a_callback_that_sets_the_lr_is_refused():
    with pytest.raises(ValueError, match="StochasticWeightAveraging sets the learning rate itself"):
        fit(Plain(), [AutoLRSCallback(10), StochasticWeightAveraging(0.1)])


def test_options_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="`keep_winner` must be off"):
        AutoLRSCallback(10, strategy="paper", replay=True, keep_winner=True)
    with pytest.raises(ValueError, match="`keep_best` must be off: ModelCheckpoint"):
        AutoLRSCallback(10, keep_best=True)
    with pytest.raises(ValueError, match="`val_batches` must not be negative, got -1"):
        AutoLRSCallback(10, val_batches=-1)
    with pytest.raises(RuntimeError, match="there is no schedule yet"):
        AutoLRSCallback(10).schedule  # noqa: B018 - raises


def test_a_fast_dev_run_is_left_alone():
    trainer = fit(seeded(Plain), [callback := AutoLRSCallback(100)], fast_dev_run=2)
    assert trainer.global_step == 2
    assert callback.auto is None
    assert callback.state_dict() == {}


# Validation loss


class Returning(Plain):
    def validation_step(self, batch, batch_idx):
        return {"loss": super().validation_step(batch, batch_idx), "other": 1.0}


class Logging(Plain):
    def validation_step(self, batch, batch_idx):
        self.log_dict({"val/loss": super().validation_step(batch, batch_idx), "accuracy": 0.5})


class Metric(Plain):
    def __init__(self):
        super().__init__()
        self.metric = MeanMetric()

    def validation_step(self, batch, batch_idx):
        self.metric(super().validation_step(batch, batch_idx))
        self.log("loss_metric", self.metric)


class Gathering(Plain):
    def on_validation_epoch_start(self):
        self.losses = []

    def validation_step(self, batch, batch_idx):
        self.losses.append(super().validation_step(batch, batch_idx))

    def on_validation_epoch_end(self):
        self.log("val_loss", torch.stack(self.losses).mean())


class OneArgument(Plain):
    def validation_step(self, batch):
        return super().validation_step(batch, 0)


@pytest.mark.parametrize("kind", [Plain, Returning, Logging, Metric, Gathering, OneArgument])
def test_the_validation_loss_is_that_of_validation_step_on_the_first_batches(kind):
    module, callback = seeded(kind), AutoLRSCallback(2, val_batches=2, max_cost=1.0)
    torch.manual_seed(7)
    x, y = loader(rows=24, shuffle=False).dataset.tensors
    exact = DataLoader(TensorDataset(x, y), 8)
    trainer = lightning.Trainer(
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        max_epochs=-1,
    )
    trainer.fit(module, exact, exact)
    module.eval()
    losses = [nn.functional.mse_loss(module.net(a), b) for a, b in list(exact)[:2]]
    trainer.training = True
    module.train()
    before = set(vars(module))
    assert callback.auto.host.evaluate() == pytest.approx(float(sum(losses).detach()) / 2)
    assert set(vars(module)) == before
    assert module.training


def test_monitor_names_one_of_several_logged_losses():
    class Several(Plain):
        def validation_step(self, batch, batch_idx):
            self.log("loss_a", 1.0)
            self.log("loss_b", 2.0)

    callback = AutoLRSCallback(4, monitor="loss_b", max_cost=1.0)
    fit(seeded(Several), [callback])
    with pytest.raises(ValueError, match=r"must return a loss or log one value .* got \['loss_a', 'loss_b'\]"):
        fit(seeded(Several), [AutoLRSCallback(4)])
    with pytest.raises(ValueError, match=r"must return a loss or log 'loss_c', got \['loss_a', 'loss_b'\]"):
        fit(seeded(Several), [AutoLRSCallback(4, monitor="loss_c")])
    fit(seeded(Several), [AutoLRSCallback(4, val_batches=0)])


@pytest.mark.parametrize("options", [{"val": False}, {"limit_val_batches": 0}])
def test_without_validation_data_the_training_loss_decides(options):
    callback = AutoLRSCallback(STEPS, **SMALL["horizon"])
    fit(seeded(Plain), [callback], **options)
    assert not callback.auto.session.state.validation
    assert callback.auto.raw_steps > STEPS


# Data


def order(*callbacks, **options):
    torch.manual_seed(4)
    generator = torch.Generator().manual_seed(8)
    module = seeded(Plain)
    fit(module, callbacks, loader(**options, generator=generator), val=False, max_steps=STEPS)
    return module.saw, torch.get_rng_state(), generator.get_state()


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "persistent_workers": True}])
def test_a_loader_with_its_own_generator_or_workers_is_not_disturbed(options):
    plain = order(**options)
    probed = order(AutoLRSCallback(STEPS, **SMALL["paper"]), **options)
    committed = [batch for batch in probed[0] if batch in plain[0]]
    assert_same(list(plain[0])[-6:], list(probed[0])[-6:])
    assert len(committed) >= STEPS
    assert_same(plain[1:], probed[1:])


def test_probes_of_one_stage_see_the_same_batches_under_replay():
    module = seeded(Plain)
    callback = AutoLRSCallback(16, **{**SMALL["paper"], "replay": True, "max_stage_steps": 16})
    fit(module, [callback], val=False)
    first, second, third = (module.saw[i : i + 4] for i in (0, 4, 8))
    assert first == second == third
    assert len(module.saw) == 12 + 16


# Precision, strategies, failures


def test_a_gradient_scaler_is_put_back_and_skipped_steps_count_as_lightning_counts_them():
    scales = []
    for probe in (False, True):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=4)  # overflows at first
        options = {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)], "gradient_clip_val": 1.0}
        callback = AutoLRSCallback(STEPS, **SMALL["paper"])
        trainer = fit(seeded(Plain), [callback] if probe else [], max_steps=STEPS, **options)
        assert trainer.global_step == STEPS
        scales.append(scaler.state_dict())
    assert callback.auto.raw_steps > STEPS
    assert scales[0]["_growth_tracker"] == scales[1]["_growth_tracker"]
    assert scales[0]["scale"] == scales[1]["scale"] < 2.0**127


def test_a_stretch_that_fails_is_undone_and_the_run_goes_on_for_as_long():
    class Bursting(Plain):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return loss * torch.nan if self.trainer.global_step == 3 else loss

    events = []
    callback = AutoLRSCallback(10, max_cost=1.0)
    trainer = fit(seeded(Bursting), [callback, Listen(events)], max_epochs=1)
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert trainer.global_step == 10 + failed.steps
    assert callback.schedule.total_steps == 10


def test_batches_without_a_loss_are_steps_as_for_lightning():
    class Skipping(Plain):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return None if batch_idx == 2 else loss

    callback = AutoLRSCallback(STEPS, **SMALL["paper"])
    trainer = fit(seeded(Skipping), [callback], val=False)
    assert trainer.global_step == callback.schedule.total_steps == STEPS


class Ema:
    """Not a module: only `track` knows of it."""

    def __init__(self):
        self.values = []

    def state_dict(self):
        return {"values": list(self.values)}

    def load_state_dict(self, state):
        self.values = state["values"]


def test_tracked_attributes_are_put_back():
    class Averaged(Plain):
        def __init__(self):
            super().__init__()
            self.ema = Ema()

        def on_train_batch_end(self, *_):
            self.ema.values.append(float(self.net.bias.detach()))

    module = seeded(Averaged)
    fit(module, [AutoLRSCallback(STEPS, **SMALL["paper"], track=["ema"])])
    assert len(module.ema.values) == STEPS


# The same schedule as elsewhere


class Toy(nn.Module):
    """`SimulatedHost` in torch: a quadratic with a spectrum and noise that depends on the position in the data."""

    def __init__(self):
        super().__init__()
        self.register_buffer("curvature", torch.logspace(0, -2, 12, dtype=torch.float64))
        self.register_buffer(
            "noise", torch.randn(4096, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        )
        self.register_buffer("position", torch.tensor(0))
        self.weights = nn.Parameter(torch.full((12,), 2.0, dtype=torch.float64))

    def exact(self):
        return 0.5 * (self.curvature * self.weights**2).sum() + 0.1

    def forward(self, batch):
        noise = self.noise[self.position]
        self.position += 1
        return self.exact() * (1 + 0.03 * noise) + 0.1 * noise * (self.curvature * self.weights).sum()


class LightningToy(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.toy = Toy()

    def training_step(self, batch, batch_idx):
        return self.toy(batch)

    def validation_step(self, batch, batch_idx):
        return self.toy.exact()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "horizon", "max_cost": 1.6, "evaluate_cost": 1.0},  # in plain torch it would be weighed
        {**SMALL["paper"], "preset": "practical", "keep_winner": False, "lr": "auto", "range_steps": 30},
    ],
    ids=["horizon", "paper"],
)
def test_the_toy_gets_the_same_schedule_as_with_plain_torch(settings):
    batches = [torch.zeros(1) for _ in range(10)]
    toy = Toy()
    optimizer = torch.optim.SGD(toy.parameters(), lr=0.1)
    auto = autolrs.AutoLRS(toy, optimizer, total_steps=120, evaluate=toy.exact, keep_best=False, **settings)
    for batch in auto.batches(batches):
        loss = toy(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
    module, callback = LightningToy(), AutoLRSCallback(120, val_batches=1, **settings)
    validation = DataLoader(torch.zeros(1, 1))
    trainer = lightning.Trainer(
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        max_epochs=-1,
    )
    trainer.fit(module, DataLoader(torch.zeros(10, 1)), validation)
    assert callback.schedule == auto.schedule
    assert callback.auto.raw_steps == auto.raw_steps > 120
    assert torch.equal(module.toy.weights, toy.weights)


# Packages and examples


def test_without_lightning_the_error_names_the_extra():
    code = "import sys; sys.modules['lightning'] = None; import autolrs, autolrs.lightning_"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: autolrs.lightning_ needs Lightning: pip install 'autolrs[lightning]'" in done.stderr


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    example = Path(__file__).parents[1] / "examples" / "lightning_digits.py"
    assert len(example.read_text().splitlines()) <= 60
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    assert float(re.search(r"accuracy (\S+)", printed).group(1)) > 0.9
