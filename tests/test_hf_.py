"""The Hugging Face Trainer with autolrs in its scheduler's place: what it logs and saves is that of a plain replay."""

from __future__ import annotations

import json
import math
import os
import pickle
import runpy
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

import autolrs
from autolrs.core.averaging import AVERAGED_STEPS
from autolrs.core.engine import fold
from autolrs.hf_ import AutoLRSTrainer
from autolrs.run import journal
from autolrs.run.session import Session

TEXT = (
    Session.__module__ + "".join(sorted(vars(Session))) + str(autolrs.Settings.__doc__) + TrainingArguments.__doc__
).encode("ascii", "ignore")
LENGTH = 16

# Both: 40 committed steps. Paper: stages of 16 and 24, two probes of 4 and 6. Horizon: a ramp, two miniature runs.
PAPER = {
    "strategy": "paper",
    "lr": (1e-4, 1e-1),
    "stage_steps": 16,
    "max_stage_steps": 24,
    "probe_fraction": 0.25,
    "n_probes": 2,
    "eval_every": 3,
}
HORIZON = {"strategy": "horizon", "max_cost": 2.8}
BRIEF = {"strategy": "horizon"}  # too few steps for a search within the usual cost
STEPS = 40
BOTH = pytest.mark.parametrize("settings", [PAPER, HORIZON], ids=["paper", "horizon"])


class Pieces(Dataset):
    """Real text, 128 tokens: a token is an ASCII character."""

    def __init__(self, start=0, count=42):
        self.tokens = torch.tensor(list(TEXT[start * LENGTH : (start + count) * LENGTH])).reshape(count, LENGTH)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Pieces())


def masked(rows):
    """A collator that draws random numbers: every seventh character is to be guessed."""
    tokens = torch.stack([row["input_ids"] for row in rows])
    hidden = torch.rand(tokens.shape) < 1 / 7
    return {"input_ids": tokens.masked_fill(hidden, 0), "labels": tokens.masked_fill(~hidden, -100)}


def gpt2():
    set_seed(3)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=128, n_positions=LENGTH, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )


def bert():
    set_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForMaskedLM(BertConfig(vocab_size=128, max_position_embeddings=LENGTH, **sizes))


class ReplayTrainer(Trainer):
    """A found schedule through the framework's own scheduler."""

    def __init__(self, *args, schedule, **kwargs):
        super().__init__(*args, **kwargs)
        self.schedule = schedule

    def create_scheduler(self, num_training_steps, optimizer=None):
        self.lr_scheduler = self.schedule.to_torch(self.optimizer.optimizer)
        return self.lr_scheduler


def make(folder, settings=None, kind=AutoLRSTrainer, model=gpt2, callbacks=None, data=None, collator=None, **options):
    """A trainer; without `settings` a plain one, whose own keywords can be given as `extra`."""
    extra = options.pop("extra", {})
    if settings is not None:
        extra = {"autolrs": settings, **extra}
    optimizers = options.pop("optimizers", (None, None))
    evaluated = options.pop("eval_dataset", Pieces(50, 12))
    args = TrainingArguments(
        str(folder),
        per_device_train_batch_size=4,
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to="none",
        **{"logging_steps": 1, "save_strategy": "no", "max_steps": STEPS, **options},
    )
    return kind(
        model=model() if callable(model) and not isinstance(model, nn.Module) else model,
        args=args,
        train_dataset=data or Pieces(),
        eval_dataset=evaluated,
        data_collator=collator,
        callbacks=callbacks,
        optimizers=optimizers,
        **extra,
    )


def timeless(rows):
    """A log without what depends on the clock."""
    clock = ("runtime", "per_second")
    return [{key: value for key, value in row.items() if not key.endswith(clock)} for row in rows]


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool((a == b).all()) if hasattr(a, "all") else a == b


def same_weights(a, b):
    return same(a.model.state_dict(), b.model.state_dict())


def same_checkpoints(a, b, steps):
    """All that two folders' checkpoints hold, but for the scheduler's own file."""
    for step in steps:
        one, two = (folder / f"checkpoint-{step}" for folder in (a, b))
        assert same(load_file(one / "model.safetensors"), load_file(two / "model.safetensors")), step
        for name in ("optimizer.pt", "rng_state.pth"):
            first, second = (torch.load(folder / name, weights_only=False) for folder in (one, two))
            assert same(first, second), (step, name)
        first, second = (json.loads((folder / "trainer_state.json").read_text()) for folder in (one, two))
        first["log_history"], second["log_history"] = timeless(first["log_history"]), timeless(second["log_history"])
        for state in (first, second):
            state["best_model_checkpoint"] = None
        assert first == second, step
        assert first["global_step"] == step


CASES = {
    "gpt2-paper": (gpt2, PAPER, {"gradient_accumulation_steps": 2}),
    "gpt2-horizon": (gpt2, HORIZON, {"gradient_accumulation_steps": 2, "max_grad_norm": 0.0}),
    "bert-paper": (bert, {**PAPER, "preset": "practical"}, {"collator": masked}),
    "bert-horizon": (bert, HORIZON, {"collator": masked, "bf16": True}),
}


@pytest.mark.parametrize("model, settings, options", CASES.values(), ids=CASES)
def test_all_that_is_logged_and_saved_is_that_of_a_replay_without_probes(tmp_path, model, settings, options):
    options = {
        "model": model,
        "save_strategy": "steps",
        "save_steps": 8,
        "eval_strategy": "steps",
        "eval_steps": 5,
        **options,
    }
    found = make(tmp_path / "found", settings, **options)
    result = found.train()
    assert found.auto.raw_steps > STEPS, "nothing was probed"
    assert found.auto.committed_steps == found.auto.schedule.total_steps == found.state.global_step == STEPS
    extra = {"schedule": found.auto.schedule}
    replay = make(tmp_path / "replay", kind=ReplayTrainer, extra=extra, **options)
    expected = replay.train()
    assert timeless(found.state.log_history) == timeless(replay.state.log_history)
    assert result.training_loss == expected.training_loss
    assert same_weights(found, replay)
    same_checkpoints(tmp_path / "found", tmp_path / "replay", range(8, STEPS + 1, 8))


@BOTH
def test_the_logged_lr_is_the_one_the_step_was_made_with(tmp_path, settings):
    used = []
    trainer = make(tmp_path, settings)
    trainer.create_optimizer()
    trainer.optimizer.register_step_pre_hook(lambda optimizer, *_: used.append(optimizer.param_groups[0]["lr"]))
    trainer.train()
    logged = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    assert len(used) == trainer.auto.raw_steps
    assert len(logged) == STEPS
    assert logged == [trainer.auto.schedule.lr_at(step) for step in range(STEPS)]
    assert set(logged) <= set(used)


class Kill(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "settings, at",
    [(PAPER, 20), (HORIZON, 20), (HORIZON, 3), ({**HORIZON, "averaging": True}, 20)],
    ids=["paper", "horizon", "early", "averaged"],
)
def test_a_killed_run_goes_on_from_the_trainers_checkpoint_to_the_bit(tmp_path, settings, at):
    options = {"save_strategy": "steps", "save_steps": at, "gradient_accumulation_steps": 2}
    whole = make(tmp_path / "whole", settings, **options)
    whole.train()
    killed = make(tmp_path / "killed", {**settings, "run_dir": tmp_path / "run"}, callbacks=[Kill(at + 2)], **options)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    resumed = make(tmp_path / "killed", {**settings, "run_dir": tmp_path / "run"}, **options)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.auto.schedule == whole.auto.schedule
    assert resumed.auto.raw_steps == whole.auto.raw_steps
    assert same_weights(resumed, whole)
    assert timeless(resumed.state.log_history)[:STEPS] == timeless(whole.state.log_history)[:STEPS]
    assert fold(journal.read(tmp_path / "run")).schedule == whole.auto.schedule


SIGKILL = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_hf_ import PAPER, TrainerCallback, make
class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 19:
            os.kill(os.getpid(), signal.SIGKILL)
make(sys.argv[2], PAPER, save_strategy="steps", save_steps=10, callbacks=[Kill()]).train()
"""


@pytest.mark.slow
def test_a_process_that_was_killed_leaves_a_checkpoint_to_go_on_from(tmp_path):
    command = [sys.executable, "-c", SIGKILL, str(Path(__file__).parent), str(tmp_path / "killed")]
    assert subprocess.run(command, capture_output=True).returncode == -9
    resumed = make(tmp_path / "killed", PAPER)
    resumed.train(resume_from_checkpoint=True)
    whole = make(tmp_path / "whole", PAPER)
    whole.train()
    assert resumed.auto.schedule == whole.auto.schedule
    assert same_weights(resumed, whole)


def test_a_search_that_is_broken_off_leaves_no_probe_weights_and_is_made_again(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 16}
    whole = make(tmp_path / "whole", PAPER, **options)
    whole.train()

    class Breaks(AutoLRSTrainer):
        def compute_loss(self, *args, **kwargs):
            if self.auto.exploring and self.auto.committed_steps == 16 and self.auto.session.command_steps == 3:
                raise KeyboardInterrupt
            return super().compute_loss(*args, **kwargs)

    broken = make(tmp_path / "broken", PAPER, kind=Breaks, save_strategy="steps", save_steps=12)
    with pytest.raises(KeyboardInterrupt):
        broken.train()
    assert broken.auto.raw_steps >= 16 + 2 * 4, "it broke before the second search"
    assert same(
        broken.model.state_dict(),
        load_file(tmp_path / "whole" / "checkpoint-16" / "model.safetensors")
        | {"lm_head.weight": broken.model.state_dict()["lm_head.weight"]},
    )
    resumed = make(tmp_path / "broken", PAPER, save_strategy="steps", save_steps=12)
    resumed.train(resume_from_checkpoint=True)
    assert same_weights(resumed, whole)
    assert resumed.auto.schedule == whole.auto.schedule


def test_a_larger_budget_on_resume_extends_the_run(tmp_path):
    first = make(tmp_path, BRIEF, save_strategy="steps", save_steps=STEPS)
    first.train()
    longer = make(tmp_path, BRIEF, max_steps=STEPS + 20, save_strategy="no")
    longer.train(resume_from_checkpoint=True)
    assert longer.auto.committed_steps == longer.state.global_step == STEPS + 20
    assert longer.auto.schedule.segments[:2] == first.auto.schedule.segments
    assert longer.auto.done


def test_a_checkpoint_without_autolrs_state_is_refused(tmp_path):
    make(tmp_path, kind=Trainer, save_strategy="steps", save_steps=5, max_steps=5).train()
    with pytest.raises(ValueError, match="not a state dict of AutoLRS"):
        make(tmp_path, BRIEF).train(resume_from_checkpoint=True)
    (tmp_path / "checkpoint-5" / "scheduler.pt").unlink()
    with pytest.raises(ValueError, match="holds no state of autolrs"):
        make(tmp_path, BRIEF).train(resume_from_checkpoint=True)


def test_epochs_that_do_not_divide_evenly_are_counted_as_the_trainer_does(tmp_path):
    trainer = make(
        tmp_path, PAPER, max_steps=-1, num_train_epochs=10, gradient_accumulation_steps=3
    )  # 11 batches, 4 steps an epoch
    trainer.train()
    assert trainer.state.global_step == trainer.state.max_steps == trainer.auto.committed_steps == 40
    assert trainer.auto.done


def test_callbacks_and_logs_hear_of_committed_steps_alone(tmp_path):
    class Count(TrainerCallback):
        begun = ended = optimized = evaluated = 0

        def on_step_begin(self, *args, **kwargs):
            self.begun += 1

        def on_optimizer_step(self, *args, **kwargs):
            self.optimized += 1

        def on_step_end(self, *args, **kwargs):
            self.ended += 1

        def on_evaluate(self, *args, **kwargs):
            self.evaluated += 1

    class Talks(AutoLRSTrainer):
        def compute_loss(self, *args, **kwargs):
            self.log({"inside": 1.0})
            return super().compute_loss(*args, **kwargs)

    count = Count()
    trainer = make(tmp_path, PAPER, kind=Talks, callbacks=[count], logging_steps=1000)
    trainer.train()
    assert (count.begun, count.ended, count.optimized, count.evaluated) == (STEPS, STEPS, STEPS, 0)
    assert sum("inside" in row for row in trainer.state.log_history) == STEPS
    assert trainer.auto.session.state.evaluations > 0, "validation was never asked for"


def test_a_second_train_begins_as_the_first_did(tmp_path):
    trainer = make(tmp_path, BRIEF)
    trainer.train()
    assert trainer.lr_scheduler.get_last_lr()[0] == 0.0
    trainer.train()
    assert trainer.auto.settings.base_lr == trainer.args.learning_rate
    assert trainer.auto.done


def test_warmup_steps_are_honoured(tmp_path):
    trainer = make(tmp_path, PAPER, warmup_steps=8)
    trainer.train()
    first = trainer.auto.schedule.segments[0]
    assert first.steps == 8 and first.lr_start < first.lr_end


def test_an_iterable_dataset_trains(tmp_path):
    trainer = make(tmp_path, PAPER, data=Stream())
    trainer.train()
    assert trainer.state.global_step == trainer.auto.committed_steps == STEPS


# Averaging


AVERAGED = {**BRIEF, "averaging": True}


class Averages(TrainerCallback):
    """The average, and the weights that are trained, after every step; what evaluations saw."""

    def __init__(self):
        self.trainer, self.averages, self.trained, self.evaluated = None, {}, {}, []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.trained[state.global_step] = weights(model)
        with self.trainer.auto.averaged():
            self.averages[state.global_step] = weights(model)

    def on_prediction_step(self, args, state, control, model=None, **kwargs):
        self.evaluated.append((state.global_step, weights(self.trainer.model)))


def weights(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def averaged(folder, settings=AVERAGED, **options):
    watch = Averages()
    trainer = watch.trainer = make(folder, settings, callbacks=[watch], save_strategy="steps", save_steps=10, **options)
    return trainer, watch


def test_evaluations_and_checkpoints_of_the_middle_have_the_average_and_training_does_not_notice(tmp_path):
    class Unseen(AutoLRSTrainer):
        def _averaged(self):
            return nullcontext()  # evaluations draw random numbers; they do with any weights

    options = {"eval_strategy": "steps", "eval_steps": 10}
    trainer, watch = averaged(tmp_path / "a", **options)
    trainer.train()
    assert {step for step, _ in watch.evaluated} == {10, 20, 30, 40}
    assert all(same(seen, watch.averages[step]) for step, seen in watch.evaluated)
    for step in (10, 20, 30, 40):
        saved = load_file(tmp_path / "a" / f"checkpoint-{step}" / "model.safetensors")
        assert all(torch.equal(watch.averages[step][name], value) for name, value in saved.items())
    assert not same(watch.averages[20], watch.trained[20])
    alone = make(tmp_path / "b", AVERAGED, kind=Unseen, **options)
    alone.train()
    assert same_weights(trainer, alone)
    assert same(weights(trainer.model), watch.averages[STEPS])


def test_the_best_model_that_is_loaded_at_the_end_is_an_average(tmp_path):
    trainer, watch = averaged(tmp_path, eval_strategy="steps", eval_steps=10, load_best_model_at_end=True)
    trainer.train()
    assert same(weights(trainer.model), watch.averages[trainer.state.best_global_step])


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == 25


@pytest.mark.parametrize("best", [False, True], ids=["last", "best"])
def test_a_run_that_a_callback_ends_ends_with_an_average(tmp_path, best):
    options = {"eval_strategy": "steps", "eval_steps": 10, "load_best_model_at_end": True} if best else {}
    trainer, watch = averaged(tmp_path, **options)
    trainer.add_callback(Stop())
    trainer.train()
    at = trainer.state.best_global_step if best else 25
    assert trainer.state.global_step == 25 and (not best or at in (10, 20))
    assert same(weights(trainer.model), watch.averages[at])
    assert {group["betas"][0] for group in trainer.auto.optimizer.param_groups} == {0.9}


def test_averaging_is_on_by_default_in_runs_as_long_as_with_plain_torch(tmp_path):
    for steps, averages in ((AVERAGED_STEPS - 1, False), (AVERAGED_STEPS, True)):
        trainer = make(tmp_path, {}, model=Toy(), data=Noise(), eval_dataset=None, max_steps=steps, logging_steps=1000)
        trainer.train()
        assert trainer.auto.settings.averaging is averages and trainer.auto.done


@pytest.mark.parametrize("longer", [True, False], ids=["longer", "shorter"])
def test_a_new_budget_on_resume_does_not_change_whether_weights_are_averaged(tmp_path, longer):
    """By default that depends on the budget; a run goes on as it began."""
    toy = {"data": Noise(), "eval_dataset": None, "logging_steps": 1000, "save_strategy": "steps", "save_steps": 100}
    first, then = (AVERAGED_STEPS - 10, AVERAGED_STEPS + 10) if longer else (AVERAGED_STEPS + 10, AVERAGED_STEPS - 10)
    killed = make(tmp_path, {}, model=Toy(), callbacks=[Kill(150)], max_steps=first, **toy)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    resumed = make(tmp_path, {}, model=Toy(), max_steps=then, **toy)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.auto.settings.averaging is not longer
    assert resumed.auto.committed_steps == then


class OverflowTrainer(AutoLRSTrainer):
    """Under a gradient scaler, as fp16 has it, whose first scales are too large."""

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)

    def _get_grad_norm(self, model, grad_norm=None):
        return 0.0  # of gradients that are still scaled it would be infinite


def test_steps_that_mixed_precision_skips_are_not_counted(tmp_path):
    trainer = make(tmp_path, PAPER, kind=OverflowTrainer, optim="adamw_torch", max_grad_norm=0.0, eval_dataset=None)
    trainer.train()
    skipped = trainer.state.global_step - trainer.auto.committed_steps
    assert trainer.state.global_step == STEPS  # the Trainer counts them, as it does under its own schedulers
    assert 0 < skipped < 20
    assert trainer.accelerator.scaler.get_scale() < 2.0**127


def test_a_loss_that_is_not_finite_is_reported(tmp_path):
    class Spoils(AutoLRSTrainer):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            return loss * float("nan") if not self.auto.exploring and self.state.global_step == 10 else loss

    with pytest.warns(RuntimeWarning, match="the loss was not finite"):
        make(tmp_path, BRIEF, kind=Spoils, eval_dataset=None).train()


def test_what_cannot_work_is_refused(tmp_path):
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    with pytest.raises(ValueError, match="takes the scheduler's place"):
        make(tmp_path, HORIZON, model=model, optimizers=(optimizer, scheduler))
    with pytest.raises(ValueError, match="`lr_scheduler_type` is 'cosine'"):
        make(tmp_path, HORIZON, lr_scheduler_type="cosine")
    with pytest.raises(ValueError, match="`keep_winner` must be off"):
        make(tmp_path, {**PAPER, "keep_winner": True})
    with pytest.raises(ValueError, match="`keep_best` must be off: `load_best_model_at_end`"):
        make(tmp_path, {**HORIZON, "keep_best": True})
    with pytest.raises(TypeError, match="`total_steps` cannot be given in `autolrs`: it follows from `max_steps`"):
        make(tmp_path, {"total_steps": 5})


def test_the_scheduler_can_be_pickled(tmp_path):
    trainer = make(tmp_path, PAPER, eval_dataset=None)
    trainer.train()
    assert pickle.loads(pickle.dumps(trainer.lr_scheduler)) == trainer.auto.schedule


def test_without_the_package_the_error_names_the_extra():
    code = "import sys; sys.modules['transformers'] = None; import autolrs.hf_"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'autolrs[hf]'" in found.stderr


# The same toy gives the same schedule as in a plain loop


class Toy(nn.Module):
    """A quadratic with a spectrum of curvatures and a target that every batch moves."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.register_buffer("curvature", torch.logspace(0, -2, 8))

    def forward(self, noise, labels=None):
        distance = self.weight - 0.1 * noise.mean(0)
        return {"loss": 0.5 * (self.curvature * distance * distance).sum()}


class Noise(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"noise": torch.randn(8, generator=torch.Generator().manual_seed(index)), "labels": torch.zeros(1)}


@pytest.mark.parametrize("settings", [{**PAPER, "lr": (1e-2, 1.0), "replay": True}, HORIZON], ids=["paper", "horizon"])
def test_the_toy_gives_the_schedule_of_a_plain_loop(tmp_path, settings):
    model = Toy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    auto = autolrs.AutoLRS(model, optimizer, total_steps=STEPS, **settings)
    for batch in auto.batches(DataLoader(Noise(), batch_size=4)):
        loss = model(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
    same_model = Toy()
    trainer = make(
        tmp_path,
        settings,
        model=same_model,
        data=Noise(),
        eval_dataset=None,
        optimizers=(torch.optim.SGD(same_model.parameters(), lr=0.1), None),
        train_sampling_strategy="sequential",
        max_grad_norm=0.0,
        remove_unused_columns=False,
    )
    trainer.train()
    assert trainer.auto.schedule == auto.schedule
    assert torch.equal(same_model.weight, model.weight)


# Examples


def example(name):
    return runpy.run_path(str(Path(__file__).parents[1] / "examples" / f"{name}.py"))["main"]


@pytest.mark.parametrize("name, steps", [("hf_gpt2_text", 150), ("hf_bert_text", 70)])
def test_the_example_learns_from_real_text(tmp_path, name, steps):
    trainer = example(name)(steps, str(tmp_path), save_strategy="no", use_cpu=True, disable_tqdm=True)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert trainer.auto.committed_steps == trainer.state.global_step == steps
    assert losses[-1] < 0.75 * math.log(256)  # from an even guess over bytes


RANK = """
import json, os, runpy, sys
from accelerate_ranks import leave
trainer = runpy.run_path(sys.argv[1])["main"](
    40, sys.argv[2], use_cpu=True, disable_tqdm=True, ddp_backend="gloo", save_strategy="steps", save_steps=20,
    gradient_accumulation_steps=2,
)
row = {
    "steps": [trainer.args.world_size, trainer.state.global_step, trainer.auto.committed_steps, trainer.auto.raw_steps],
    "segments": [[s.steps, s.lr_start, s.lr_end] for s in trainer.auto.schedule.segments],
    "weights": sum(p.double().sum().item() for p in trainer.model.parameters()),
}
open(os.path.join(sys.argv[2], f"rank-{trainer.args.process_index}.json"), "w").write(json.dumps(row))
leave(trainer.accelerator)
"""


@pytest.mark.distributed
@pytest.mark.slow
def test_two_processes_find_one_schedule(tmp_path):
    """BERT by Algorithm 1, 40 steps: one stage, the five probes of it and no more than that on either rank."""
    (tmp_path / "rank.py").write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    example = Path(__file__).parents[1] / "examples" / "hf_bert_text.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run([*command, tmp_path / "rank.py", example, tmp_path], check=True, timeout=200, env=environment)
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["steps"] == [2, 40, 40, 60]
    saved = torch.load(tmp_path / "checkpoint-20" / "scheduler.pt", weights_only=True)
    assert saved["session"]["state"]["outstanding"] == []
