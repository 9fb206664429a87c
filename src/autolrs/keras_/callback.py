"""The `AutoLRS` callback: a thin shell over `run/session.py`.

Probes run in a loop of their own between two batches of `fit`, by `train_on_batch` on data given to the callback; all
that they touch is put back before `fit` goes on, which therefore sees the committed steps alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np

import autolrs
from autolrs.core import averaging
from autolrs.core.engine import Strategy
from autolrs.core.schedule import Schedule
from autolrs.core.types import Committed, Event, Resumed
from autolrs.keras_.averaging import Averager, averages_itself
from autolrs.keras_.data import ArrayBatches, ProbeBatches, size_of_batch
from autolrs.keras_.host import KerasHost
from autolrs.keras_.usual import normalised, trained_before, uncorrected, usual_lr
from autolrs.run import archive, files
from autolrs.run.averages import goes_into, hand_over
from autolrs.run.start import open_session

_KEPT = 2  # states in `run_dir`: a kill may come after ours was written and before Keras's own


class AutoLRS(keras.callbacks.Callback):
    """Finds the learning-rate schedule of the model's optimizer while `fit` trains it; ends `fit` at `total_steps`.

    Args:
        x, y, sample_weight: what probes train on, most simply what `fit` is given: arrays (or nests of them), or as `x`
            alone anything that yields batches anew each time it is iterated (a PyDataset, a DataLoader, a tf.data one).
        batch_size, shuffle, class_weight: as in `fit`; the first two for arrays.
        total_steps: committed steps (batches of `fit`); None goes on until `fit` ends (strategy "paper" only).
        lr: the search interval (min, max), or "auto" to find it by a range test.
        strategy: "horizon" (one search on miniature runs), "paper" (Algorithm 1), or an object of `core.strategies`.
        evaluate: `() -> float`, the validation loss on a small fixed subset.
        run_dir: folder for the journal, the schedule, and what going on after a kill needs beside Keras's checkpoint.
        resume: go on with the run that `run_dir` holds, if it holds one; `BackupAndRestore` brings the model's weights.
        save_freq: "epoch" or a number of steps, as in `BackupAndRestore`: when the state in `run_dir` is written, and
            the averaged weights are shown to callbacks that save the model.
        seed: of the shuffled order of arrays, and of the search where it draws.
        settings: any field of `autolrs.Settings` by name.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch_size: int = 32,
        shuffle: bool = True,
        class_weight: dict[int, float] | None = None,
        total_steps: int | None = None,
        lr: tuple[float, float] | str = "auto",
        strategy: str | Strategy = "horizon",
        evaluate: Callable[[], Any] | None = None,
        run_dir: str | Path | None = None,
        resume: bool = False,
        save_freq: str | int = "epoch",
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__()
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ValueError(f"`save_freq` must be 'epoch' or a number of steps above 0, got {save_freq!r}")
        if settings.get("keep_winner"):
            raise ValueError("`keep_winner` must be off: `fit` takes all steps that count itself")
        if settings.get("keep_best"):
            raise ValueError(
                "`keep_best` must be off: keras.callbacks.ModelCheckpoint(save_best_only=True) keeps the best weights"
            )
        if settings.get("preset") == "practical":
            settings["keep_winner"] = False
        arrays = hasattr(x, "shape") or isinstance(x, dict) or (isinstance(x, (list, tuple)) and hasattr(x[0], "shape"))
        self._data = ArrayBatches((x, y, sample_weight), batch_size, shuffle, seed) if arrays else x
        self._class_weight, self._evaluate = class_weight, evaluate
        self._options = {"total_steps": total_steps, "lr": lr, "seed": seed, **settings}
        self._strategy, self._resume, self._save_freq = strategy, resume, save_freq
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.host: Any = None  # a KerasHost, once `fit` has begun
        self.session: Any = None
        self._found = False
        self._averager: Averager | None = None
        self._shown: AbstractContextManager[None] | None = None  # while others see the averaged weights

    # What people ask

    @property
    def schedule(self) -> Schedule:
        """The schedule committed so far."""
        return Schedule(()) if self.session is None else self.session.state.schedule

    @property
    def committed_steps(self) -> int:
        """Steps that `fit` has taken."""
        return 0 if self.session is None else self.session.committed_steps

    @property
    def raw_steps(self) -> int:
        """All steps: those of `fit` and those of probes."""
        return 0 if self.session is None else self.session.raw_steps

    @property
    def done(self) -> bool:
        """Whether `total_steps` are committed."""
        return self.session is not None and self.session.done

    def averaged(self) -> AbstractContextManager[None]:
        """Inside, the model holds its averaged weights, to be validated or saved; where there are none, its own."""
        return nullcontext() if self._averager is None else self._averager.averaged()

    # What Keras calls

    def on_train_begin(self, logs: Any = None) -> None:
        """Look at the model, and prepare a session or go on with the last one."""
        self._hide()
        if self.host is not None:  # a second `fit` goes on
            self.host.watch_loss()
            return
        self.host = KerasHost(self.model, self._evaluate)
        if keras.backend.backend() == "tensorflow":
            self.host.build(self._data)
        self._open(self.host)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """The first time after all callbacks have begun, so that the model's weights are restored if they will be."""
        self._hide()
        if self._found and not self.session.begun:
            self._go_on()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Probe before the first batch; at the start of an epoch see whether somebody else has set the LR."""
        self._hide()
        if not self.session.begun:
            self._probing(self._begin)
        elif batch == 0 and not self.done:
            found, wanted = self.host.lr(), self.session.lr
            if not np.isclose(found, wanted, rtol=1e-2, atol=0.0):
                warnings.warn(
                    f"the optimizer's LR is {found:.6g} but autolrs set {wanted:.6g}: something else changes it "
                    "(another callback?); it is set back",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self.host.set_lr(wanted)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the step; where a stage ends, the probes of the next one run here."""
        if self.done:
            return
        loss = self.host.loss()
        self._probing(lambda: self._count(loss))
        if self.done:
            self.host.set_lr(self.session.lr)
            self.model.stop_training = True
        if isinstance(self._save_freq, int) and self.committed_steps % self._save_freq == 0:
            self._save()
            self._show()

    def on_test_begin(self, logs: Any = None) -> None:
        """Let `fit` validate the averaged weights."""
        self._show()

    def on_test_end(self, logs: Any = None) -> None:
        """Put those back that are being trained."""
        self._hide()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keep the state that belongs to the weights that Keras may be saving now: the averaged ones."""
        self._hide()
        if self._save_freq == "epoch":
            self._save()
        self._show()

    def on_train_end(self, logs: Any = None) -> None:
        """Leave the model as it was found."""
        self.host.close()
        total = self.session.state.settings.total_steps
        if not self.done and total is not None:
            warnings.warn(
                f"`fit` ended after {self.committed_steps} of {total} steps: give it more `epochs`",
                RuntimeWarning,
                stacklevel=2,
            )

    # Inside

    def _open(self, host: KerasHost) -> None:
        if self._options.get("averaging") and averages_itself(host.optimizer):
            raise ValueError("`averaging` must be off with an optimizer that averages itself, got averaging=True")
        self.session, self._found = open_session(
            host,
            self._strategy,
            validation=self._evaluate is not None,
            run_dir=self.run_dir,
            resume=self._resume,
            read=lambda losses: [float(loss) for loss in losses],
            versions={"autolrs": autolrs.__version__, "keras": keras.__version__, "backend": keras.backend.backend()},
            known=self._known(host),
            **self._options,
        )
        if self.session.state.settings.averaging:
            host.averager = self._averager = Averager(host)
        self.session.listeners.append(self._on_event)
        settings = self.session.state.settings
        self._feed = ProbeBatches(
            self._data,
            host.rng,
            replay=settings.replay,
            limit=settings.replay_bytes,
            size=size_of_batch,
            note=self.session.note,
        )
        if settings.replay:
            self.session.stream = self._feed

    def _known(self, host: KerasHost) -> dict[str, Any]:
        found = {"base_lr": host.lr() or None, "proportional_steps": host.proportional_steps}
        if getattr(self._strategy, "name", self._strategy) != "horizon":
            return found
        averages = averaging.by_default(self._options["total_steps"]) and not averages_itself(host.optimizer)
        norms = {"normalised": normalised(host.model), "trained_before": trained_before(host.model)}
        steps = {"usual_lr": usual_lr(host.model, host.optimizer), "uncorrected": uncorrected(host.optimizer)}
        return {**found, **norms, **steps, "averaging": averages}

    def _count(self, loss: float) -> None:
        """Count a step, which goes into the average first: where a stretch ends, that is saved or handed over."""
        if self._averager is not None and goes_into(self._averager, self.session):
            self._averager.update()
        self.session.step(loss)

    def _probing(self, act: Callable[[], Any]) -> None:
        """Do something that may begin probes, and carry those out."""
        act()
        while self.session.exploring:
            self._count(self.host.step(self._feed.next(), self._class_weight))

    def _show(self) -> None:
        """Let others see the averaged weights, until `_hide`."""
        if self._shown is None:
            self._shown = self.averaged()
            self._shown.__enter__()

    def _hide(self) -> None:
        shown, self._shown = self._shown, None
        if shown is not None:
            shown.__exit__(None, None, None)

    def _states(self) -> dict[int, Path]:
        """Files with the state in `run_dir`, by the optimizer's iterations, lowest first."""
        assert self.run_dir is not None
        found = {int(path.stem.split("-")[1]): path for path in self.run_dir.glob("keras-*.npz")}
        return dict(sorted(found.items()))

    def _save(self) -> None:
        if self.run_dir is None or not self.session.begun:
            return
        session = self.session.state_dict()
        host = self.host.dump(self.session.tokens)
        tree = {"session": session, "host": host, "feed": self._feed.state_dict()}
        archive.save(self.run_dir / f"keras-{host['iterations']}.npz", tree)
        for path in list(self._states().values())[:-_KEPT]:
            path.unlink(missing_ok=True)

    def _go_on(self) -> None:
        """Find the state that belongs to the weights that Keras has restored."""
        states, now = self._states(), self.host.dump([])["iterations"]
        if now in states:
            tree = archive.load(states[now])
            self._feed.load_state_dict(tree["feed"])
            self.host.load(tree["host"])
            self.session.load_state_dict(tree["session"], own_journal=True)
        elif now or len(states) > 1:
            raise ValueError(
                f"the model stands at iteration {now}, but {self.run_dir} holds the run's states at "
                f"{', '.join(map(str, states)) or 'none'}: have keras.callbacks.BackupAndRestore restore its weights"
            )

    def _begin(self) -> None:
        if self._found:
            self.session.journal.append(Resumed(1))  # killed before anything was saved: the run starts anew
            self.session.go_on()
        else:
            self.session.begin()

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, Committed):
            return
        if self._averager is not None and self.session.state.steps_left == 0:
            hand_over(self._averager, self.session, self.host)
        if self.run_dir is not None:
            files.save_schedule(self.run_dir, self.schedule)
