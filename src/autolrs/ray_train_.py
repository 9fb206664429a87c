"""A commit as data-parallel training on all workers of a Ray run: one TorchTrainer of Ray Train for each commit.

Every rank builds the training anew, stands where the driver's state is, and carries out the same job as a worker alone
would, on its part of each batch; gradients and losses are averaged over ranks. Rank 0's end state is the team's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import ray

from autolrs.core.types import Event
from autolrs.run.comm import LostRankError
from autolrs.run.worker import Job, Worker

GROUP_SECONDS = 600  # that a rank waits for another before it counts as lost: the process group's time-out
START_ATTEMPTS = 3
OLDEST = (2, 60)  # tested; trainers return values since shortly before
OPTIONS = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}  # of an actor, by the name of the resource


class LostTeamError(RuntimeError):
    """A rank died or did not come any more: the commit can be carried out again."""


def check(size: int, options: Mapping[str, Any]) -> None:
    """Raise what speaks against commits on all workers before anything is started."""
    if size < 2:
        raise ValueError(f"`commit`='ddp' needs `num_workers` of at least 2, got {size}")
    if find_spec("torch") is None:
        raise ImportError("`commit`='ddp' needs PyTorch: pip install 'autolrs[torch]'")
    if tuple(map(int, ray.__version__.split(".")[:2])) < OLDEST:
        raise ImportError(f"`commit`='ddp' needs Ray {OLDEST[0]}.{OLDEST[1]} or newer, got {ray.__version__}")
    unknown = sorted(set(options) - {*OPTIONS, "resources", "runtime_env"})
    if unknown:
        raise ValueError(
            f"`worker_options` of a run with `commit`='ddp' may be {', '.join(OPTIONS)}, resources and runtime_env, "
            f"got {', '.join(unknown)}"
        )


class Team:
    """The actor that begins the trainers; it needs no CPU of its own."""

    def __init__(self, make_task: list[Any], size: int, options: Mapping[str, Any]) -> None:
        """`make_task` is a list of one reference, so that Ray does not resolve it here."""
        self._make_task, self._size, self._options = make_task, size, options
        os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"  # `make_task` may read relative paths, as it does in a worker

    def run(self, job: Job) -> tuple[tuple[list[Event], bool], bytes]:
        """Carry a commit out on all ranks: the same two objects that a worker gives."""
        import ray.train.torch

        train: Any = ray.train  # its type hints are those of the version before
        options = self._options
        resources = {name: options[key] for key, name in OPTIONS.items() if options.get(key)}
        scaling = train.ScalingConfig(
            num_workers=self._size,
            use_gpu=bool(options.get("num_gpus")),
            resources_per_worker={**resources, **options.get("resources", {})},
        )
        failure = train.FailureConfig(max_failures=0, controller_failure_limit=START_ATTEMPTS)  # the driver tries again
        with tempfile.TemporaryDirectory() as folder:  # Ray Train wants one; nothing is kept there
            run = train.RunConfig(
                storage_path=folder, failure_config=failure, worker_runtime_env=options.get("runtime_env")
            )
            trainer = train.torch.TorchTrainer(
                _train,
                train_loop_config={"make_task": self._make_task, "job": job},
                torch_config=train.torch.TorchConfig(timeout_s=GROUP_SECONDS),
                scaling_config=scaling,
                run_config=run,
            )
            try:
                events, end = trainer.fit().return_value
            except train.WorkerGroupError as error:
                raise _reason(error.worker_failures) from None
        return (events, True), end


def _train(config: dict[str, Any]) -> tuple[list[Event], bytes | None]:
    """What each rank does."""
    import torch
    from ray.train import get_context
    from ray.train.torch import prepare_model

    from autolrs.pytorch.comm import current
    from autolrs.ray_ import as_task

    context = get_context()
    task: Any = as_task(ray.get(config["make_task"][0])())
    task.spread(context.get_world_rank(), context.get_world_size(), prepare_model)
    try:
        return Worker(task, current()).run(config["job"], ray.get)
    except RuntimeError as error:
        if isinstance(error, torch.distributed.DistError) or "gloo" in str(error):
            raise LostRankError(str(error).strip().split("\n")[0]) from error
        raise


def _reason(failures: Mapping[int, Exception]) -> Exception:
    """The error of the user's code among those of the ranks, or else who was lost."""
    gone = {rank: error for rank, error in failures.items() if type(error).__module__.startswith("ray.")}
    waited = {rank: error for rank, error in failures.items() if isinstance(error, LostRankError)}
    own = [error for rank, error in failures.items() if rank not in gone and rank not in waited]
    if own:
        return own[0]
    rank, error = min((gone or waited).items())
    why = str(getattr(error, "health_check_failure", error)).strip().split("\n")[0]
    return LostTeamError(f"rank {rank}: {why[:160]}" if gone else f"rank {rank} lost another: {why[:160]}")
