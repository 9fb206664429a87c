"""Trackers: what is logged, and that the real packages hold it afterwards."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn

import autolrs
from autolrs.core.engine import fold
from autolrs.core.types import Probed
from autolrs.run.journal import Journal
from autolrs.run.trackers import Trackers


def train(**options):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    auto = autolrs.AutoLRS(model, optimizer, total_steps=400, proportional_steps=False, **options)
    data = [(x := torch.randn(8, 4), x.sum(1, keepdim=True)) for _ in range(50)]
    for x, y in auto.batches(data):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
    return auto


@pytest.fixture(scope="module")
def logged():
    rows = []
    auto = train(trackers=[lambda values, step: rows.append((values, step))])
    return auto, rows


def test_committed_losses_carry_their_step_and_true_lr(logged):
    auto, rows = logged
    losses = [(values, step) for values, step in rows if "autolrs/loss" in values]
    steps = [step for _, step in losses]
    assert steps == sorted(steps) and steps[-1] == 400
    assert 50 < len(losses) <= 400
    for values, step in losses:
        assert values["autolrs/lr"] == auto.schedule.lr_at(step - 1)


def test_probes_have_names_of_their_own(logged):
    _, rows = logged
    probes = [values for values, step in rows if any(name.startswith("autolrs/probe/") for name in values)]
    assert len(probes) >= 3
    assert all(not {"autolrs/loss", "autolrs/lr"} & values.keys() for values in probes)
    assert {"autolrs/probe/lr", "autolrs/probe/steps", "autolrs/probe/aborted"} <= probes[0].keys()


def test_raw_steps_end_at_the_whole_cost(logged):
    auto, rows = logged
    assert [values["autolrs/raw_steps"] for values, _ in rows if "autolrs/raw_steps" in values][-1] == auto.raw_steps


def test_looks_of_keep_best_are_the_validation_loss():
    rows, losses = [], iter(range(100, 0, -1))
    auto = train(
        trackers=[lambda values, step: rows.append((values, step))],
        evaluate=lambda: next(losses),
        keep_best=True,
        max_cost=2.0,
    )
    looks = [(step, values["autolrs/validation_loss"]) for values, step in rows if "autolrs/validation_loss" in values]
    assert [step for step, _ in looks] == list(range(20, 401, 20))
    assert looks[-1] == (auto.best.step, auto.best.loss)


def test_tensorboard_reads_back_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    auto = train(run_dir=tmp_path / "run", trackers=["tensorboard"])
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    lrs = events.Scalars("autolrs/lr")
    assert lrs[-1].step == 400
    assert lrs[-1].value == pytest.approx(auto.schedule.lr_at(399), rel=1e-6, abs=1e-12)
    journal, recorded = Journal.reopen(tmp_path / "run")
    del journal
    probed = [event for event in recorded if isinstance(event, Probed)]
    forecasts = [scalar.value for scalar in events.Scalars("autolrs/probe/forecast")]
    assert forecasts == pytest.approx([event.forecast.value for event in probed], rel=1e-6)
    assert fold(recorded).committed_steps == 400


def test_mlflow_reads_back_what_was_written(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's own, about its file store
        mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
        with mlflow.start_run() as run:
            auto = train(trackers=["mlflow"])
        history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "autolrs/lr")
    assert {metric.step: metric.value for metric in history}[400] == pytest.approx(auto.schedule.lr_at(399))


def test_wandb_offline_holds_what_was_written(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(project="test", dir=str(tmp_path), settings=wandb.Settings(console="off"))
    auto = train(trackers=[run])
    summary = dict(run.summary)
    run.finish()
    assert summary["autolrs/committed_steps"] == 400
    assert summary["autolrs/raw_steps"] == auto.raw_steps
    assert math.isfinite(summary["autolrs/probe/lr"])
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_a_failing_tracker_is_left_out_and_training_goes_on():
    calls = []

    def broken(values, step):
        calls.append(step)
        raise OSError("quota exceeded")

    rows = []
    with pytest.warns(RuntimeWarning, match="quota exceeded"):
        auto = train(trackers=[broken, lambda values, step: rows.append(step)])
    assert auto.done and len(calls) == 1 and rows[-1] == 400


def test_bad_trackers_are_refused():
    with pytest.raises(TypeError, match=r"SummaryWriter, a W&B run, or a function \(values, step\), got 3"):
        Trackers([3])
    with pytest.raises(ValueError, match="'tensorboard' writes into `run_dir`"):
        Trackers(["tensorboard"])


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(ImportError, match="pip install mlflow-skinny"):
        Trackers(["mlflow"])


def test_committed_event_of_a_kept_probe_covers_only_what_was_run_now():
    rows = []
    train(strategy="paper", lr=(1e-3, 1e-1), stage_steps=100, max_stage_steps=200, replay=True, keep_winner=True,
                 trackers=[lambda values, step: rows.append((values, step))])  # fmt: skip
    steps = [step for values, step in rows if "autolrs/loss" in values]
    assert steps == sorted(steps) and steps[-1] == 400
    assert steps[0] > 1  # the first stretch began where the kept probe ended
