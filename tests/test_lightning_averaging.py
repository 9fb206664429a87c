"""Averaging under Lightning: validation and checkpoints have the averaged weights, training goes on from its own."""

from __future__ import annotations

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback, EMAWeightAveraging, ModelCheckpoint
from torch import nn

from autolrs.core.averaging import AVERAGED_STEPS
from autolrs.lightning_ import AutoLRSCallback
from lightning_cases import QUIET, SMALL, STEPS, Net, Plain, assert_same, fit, loader, seeded

pytestmark = QUIET
AVERAGED = {**SMALL["horizon"], "averaging": True, "val_batches": 0}


def weights(module):
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def average(trainer):
    with trainer.callbacks[0].auto.averaged():
        return weights(trainer.lightning_module)


class Watch(Callback):
    """The model's weights in the Trainer's own validations, and the average at the same moments."""

    def __init__(self):
        self.validated, self.averaged, self.trained = [], [], []

    def on_validation_epoch_start(self, trainer, module):
        if not trainer.sanity_checking:
            self.validated.append(weights(module))

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            self.averaged.append(average(trainer))
            self.trained.append(weights(module))


def test_the_trainer_validates_the_average_and_training_does_not_notice():
    class Unseen(AutoLRSCallback):
        def on_validation_start(self, trainer, module):
            """Leave the weights that are trained in the model."""

    watch, module, alone = Watch(), seeded(Net), seeded(Net)
    torch.manual_seed(0)
    fit(module, [AutoLRSCallback(STEPS, **AVERAGED), watch], val_check_interval=3)
    torch.manual_seed(0)
    fit(alone, [Unseen(STEPS, **AVERAGED)], val_check_interval=3)
    assert len(watch.validated) >= 8
    assert_same(watch.validated, watch.averaged)
    assert not torch.equal(watch.averaged[-2]["net.0.weight"], watch.trained[-2]["net.0.weight"])
    assert_same(dict(module.state_dict()), dict(alone.state_dict()))


@pytest.mark.parametrize("weights_only", [False, True], ids=["whole", "weights only"])
def test_a_checkpoint_of_the_middle_has_the_average(tmp_path, weights_only):
    averages = {}

    class Note(Callback):
        def on_train_batch_end(self, trainer, module, *_):
            averages[trainer.global_step] = average(trainer)

    saver = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=5, save_top_k=-1, save_weights_only=weights_only)
    module = seeded(Net)
    finder = AutoLRSCallback(STEPS, **AVERAGED)
    fit(module, [finder, Note(), saver], enable_checkpointing=True)
    for step in (5, 10, 25):
        saved = torch.load(tmp_path / f"step={step}.ckpt", weights_only=True)
        assert_same({name: saved["state_dict"][name] for name in averages[step]}, averages[step])
        found = Net.load_from_checkpoint(tmp_path / f"step={step}.ckpt")
        assert_same(weights(found), averages[step])
        if not weights_only:
            trained = saved["callbacks"]["AutoLRSCallback"]["trained_at"]
            assert not torch.equal(trained[0], averages[step]["net.0.weight"])


def test_a_checkpoint_made_inside_a_validation_has_the_weights_that_are_trained_too(tmp_path):
    """There the model holds the average, and those are aside."""
    trained = {}

    class Inside(Callback):
        def on_validation_epoch_end(self, trainer, module):
            if not trainer.sanity_checking:
                trainer.save_checkpoint(tmp_path / f"{trainer.global_step}.ckpt")

        def on_validation_end(self, trainer, module):
            trained[trainer.global_step] = [*weights(module).values()]

    fit(seeded(Net), [AutoLRSCallback(STEPS, **AVERAGED), Inside()], val_check_interval=3)
    saved = torch.load(tmp_path / "9.ckpt", weights_only=True)
    kept = saved["callbacks"]["AutoLRSCallback"]["trained_at"]
    assert_same(kept, trained[9])
    assert not torch.equal(kept[0], saved["state_dict"]["net.0.weight"])


def test_an_error_in_a_validation_leaves_the_weights_that_are_trained():
    class Failing(Plain):
        def validation_step(self, batch, batch_idx):
            if self.trainer.global_step >= 12 and self.trainer.callbacks:
                raise ZeroDivisionError
            return super().validation_step(batch, batch_idx)

    module = seeded(Failing)
    finder = AutoLRSCallback(STEPS, **AVERAGED)
    with pytest.raises(ZeroDivisionError):
        fit(module, [finder], val_check_interval=3)
    assert_same([p.detach() for p in module.parameters()], finder.auto._averager.trained_at())
    assert not torch.equal(finder.auto.averaged_model.net.weight, module.net.weight)


def test_a_run_that_others_end_ends_with_its_average():
    class Stop(Callback):
        def on_train_batch_end(self, trainer, module, *_):
            trainer.should_stop = trainer.global_step >= 20
            self.average = average(trainer)

    stop, module = Stop(), seeded(Net)
    finder = AutoLRSCallback(STEPS, **AVERAGED)
    trainer = fit(module, [finder, stop], max_epochs=-1, min_steps=1)
    assert trainer.global_step < STEPS and not finder.auto.done
    assert_same(weights(module), stop.average)
    assert [group["betas"] for group in finder.auto.optimizer.param_groups] == [(0.9, 0.999)] * 2


class Wide(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def test_it_is_on_by_default_in_runs_as_long_as_with_plain_torch():
    for steps, averages in ((AVERAGED_STEPS - 1, False), (AVERAGED_STEPS, True)):
        finder = AutoLRSCallback(steps)
        fit(seeded(Wide), [finder], loader(), val=False)
        assert finder.auto.settings.averaging is averages and finder.auto.done


def test_lightnings_own_average_turns_it_off_unless_it_is_asked_for():
    for given, averages in (({}, False), ({"averaging": True}, True)):
        finder = AutoLRSCallback(AVERAGED_STEPS, max_cost=1.0, **given)
        fit(seeded(Wide), [finder, EMAWeightAveraging()], loader(), val=False)
        assert finder.auto.settings.averaging is averages and finder.auto.done
