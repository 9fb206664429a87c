"""A compiled Keras model as a `Host`: its variables, its LR, its random state, and the exact loss of its last batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import keras
import numpy as np

from autolrs.run.host import Token
from autolrs.run.rng import PlainRng


class KerasRng(PlainRng):
    """The random state of Python, numpy, the backend, and Keras's global seed generator."""

    def get(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        state = super().get()
        seeds = _global_seeds()
        state["keras"] = None if seeds is None else numpy_of(seeds.state)
        if keras.backend.backend() == "torch":
            import torch

            cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
            state["torch"] = [torch.get_rng_state().numpy(), *(device.numpy() for device in cuda)]
        return state

    def set(self, state: dict[str, Any]) -> None:
        """Put a state back."""
        super().set(state)
        seeds = _global_seeds()
        if seeds is not None and state["keras"] is not None:
            seeds.state.assign(state["keras"])
        elif seeds is not None and keras.backend.backend() != "tensorflow":  # there a graph may hold it: see `build`
            # Made since: whoever needs one makes it anew, from Python's random state.
            keras.src.backend.common.global_state.set_global_attribute("global_seed_generator", None)
        if "torch" in state:
            import torch

            cpu, *cuda = (torch.from_numpy(np.array(device)) for device in state["torch"])
            torch.set_rng_state(cpu)
            if cuda:
                torch.cuda.set_rng_state_all(cuda)


class Averager(Protocol):
    """What a host asks of `keras_/averaging.py`."""

    def averaged(self) -> AbstractContextManager[None]: ...

    def state(self) -> dict[str, Any]: ...

    def load(self, values: dict[str, Any]) -> None: ...


class KerasHost:
    """One compiled model's variables, its LR and the loss of its last batch, as a `Host`."""

    def __init__(self, model: Any, evaluate: Callable[[], Any] | None = None) -> None:
        _check(model)
        self.model, self._evaluate = model, evaluate
        self.rng = KerasRng()
        self.averager: Averager | None = None  # its state is part of the training's
        self._snapshots: dict[Token, tuple[list[Any], Any, Any]] = {}
        self._last = 0
        self.optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # mixed precision may wrap it
        self.proportional_steps = isinstance(self.optimizer, keras.optimizers.SGD)  # to gradients: see the settings
        self._index = [v is model.optimizer.learning_rate for v in model.optimizer.variables].index(True)
        self._metrics: list[Any] = []
        self._held: Any = None  # JAX: the state that `fit` holds apart from the variables
        self._steps: dict[str, Any] = {}  # compiled, by the momentum that is part of them
        self._momentum = "whole"
        self.watch_loss()

    def build(self, data: Iterable[Any]) -> None:
        """Make all variables that the first step would make: TensorFlow's `fit` leaves that to the step's tracing."""
        rng = self.rng.get()
        batch = keras.utils.unpack_x_y_sample_weight(next(iter(data)))
        self.rng.set(rng)
        try:
            self.model._symbolic_build(data_batch=batch)
        except RuntimeError:  # a model without `call`, whose own `train_step` does not need it
            self.model.optimizer.build(self.model.trainable_variables)
        keras.src.random.seed_generator.global_seed_generator()
        PlainRng().set(rng)  # the generator's seed was drawn from it

    # Host

    def snapshot(self) -> Token:
        """Copy every variable (weights, optimizer with its iterations and LR, seeds, metrics) and the average."""
        self.sync()
        self._last += 1
        self._snapshots[self._last] = ([numpy_of(v) for v in self._variables()], self.rng.get(), self._average())
        return self._last

    def restore(self, token: Token) -> None:
        """Put a snapshot back. Copies again: a backend may take over the memory it is given."""
        self.sync()
        values, rng, average = self._snapshots[token]
        for variable, value in zip(self._variables(), values, strict=True):
            variable.assign(np.array(value))
        self._put_average(average)
        self.rng.set(rng)

    def release(self, token: Token) -> None:
        """Forget a snapshot."""
        del self._snapshots[token]

    def set_lr(self, lr: float) -> None:
        """Assign the LR variable; inside an epoch of the JAX trainer, which holds its state apart, in that state."""
        away = self._away()
        if away is None:
            self.model.optimizer.learning_rate = lr
        else:  # synchronising all variables for this at every step would cost far more
            value = keras.ops.convert_to_tensor(lr, dtype=self.model.optimizer.learning_rate.dtype)
            away["optimizer_variables"][self._index] = self._held[2][self._index] = value

    def evaluate(self, *, raw: bool = False) -> float:
        """The user's validation loss; metrics, layer modes and random state are put back whatever happens.

        It sees the averaged weights if there are any; with `raw` those that are being trained.
        """
        assert self._evaluate is not None
        self.sync()
        metrics = [(v, numpy_of(v)) for v in self.model.metrics_variables]
        modes = [(m, m.training) for m in self.model.modules()] if hasattr(self.model, "modules") else []
        rng = self.rng.get()
        try:
            with nullcontext() if raw or self.averager is None else self.averager.averaged():
                return float(self._evaluate())
        finally:
            self.sync()
            for module, training in modes:
                module.training = training
            for variable, value in metrics:
                variable.assign(value)
            self.rng.set(rng)

    # Steps

    def step(self, batch: Any, class_weight: Any = None) -> float:
        """One training step outside `fit`; returns the batch's loss."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        self.model.train_on_batch(x, y, sample_weight=sample_weight, class_weight=class_weight)
        return self.loss()

    def loss(self) -> float:
        """Loss of the last batch, as the training step computed it: not a difference of running means."""
        away = self._away()
        loss = float(_value(self._loss) if away is None else away["metrics_variables"][self._loss_index])
        if loss == -np.inf:
            raise RuntimeError("the model's train_step must update a metric with the name 'loss', and did not")
        return loss

    def lr(self) -> float:
        """The LR variable's value."""
        self.sync()
        return float(numpy_of(self.model.optimizer.learning_rate))

    def watch_loss(self) -> None:
        """Have the metric 'loss' keep the last value that it was given, beside the running mean."""
        metrics = [metric for metric in self.model.metrics if metric.name == "loss"]
        if not metrics:
            raise ValueError("the model has no metric with the name 'loss': compile it with a loss")
        if self._metrics:  # an error ended the last `fit`
            self.close()
        self._loss = last = metrics[0].add_variable((), lambda shape, dtype=None: -np.inf, name="last")
        self._metrics = metrics

        def watched(update: Callable[..., Any]) -> Callable[..., Any]:
            def update_state(values: Any, *args: Any, **options: Any) -> Any:
                last.assign(keras.ops.mean(keras.ops.cast(values, last.dtype)))
                return update(values, *args, **options)

            return update_state

        for metric in metrics:
            metric.update_state = watched(metric.update_state)
        self._loss_index = [v is last for v in self.model.metrics_variables].index(True)
        self._steps = {}  # what is compiled already does not know of it
        self.use_step(self._momentum)

    def use_step(self, momentum: str) -> None:
        """Go on with the step for the optimizer's "whole" or "shared" momentum, which is built into a compiled one."""
        self._momentum = momentum
        if not self._metrics:  # `fit` has ended
            return
        if momentum not in self._steps:
            self._steps[momentum] = self._new_step()
        self.model.train_function = self._steps[momentum]

    def _new_step(self) -> Any:
        model = self.model
        if keras.backend.backend() != "jax":
            model.make_train_function(force=True)
            return model.train_function
        train_step, own = model.train_step, vars(model).get("train_step")
        if self.averager is not None:  # for `jit` the same method is the same step, with the momentum it had
            vars(model)["train_step"] = lambda state, data: train_step(state, data)
        try:
            model.make_train_function(force=True)
        finally:
            vars(model).pop("train_step", None)
            if own is not None:
                vars(model)["train_step"] = own
        return self._watched(model.train_function)

    def _watched(self, train: Callable[..., Any]) -> Callable[..., Any]:
        """The JAX trainer's own step. `fit` goes on from what it returns; `_away` is a copy that callbacks may see."""

        def step(state: Any, iterator: Any) -> Any:
            logs, self._held = train(state, iterator)
            return logs, self._held

        return step

    def close(self) -> None:
        """Leave the model as it was found."""
        for metric in self._metrics:
            del metric.update_state
            metric._variables[:] = [v for v in metric._variables if v is not self._loss]
        self._metrics, self.model.train_function = [], None

    # Weights, as the averager sees them

    def weights(self) -> list[Any]:
        """The trainable variables' live tensors; inside an epoch of the JAX trainer those of its state."""
        away = self._away()
        if away is not None:
            return list(away["trainable_variables"])
        return [_value(variable) for variable in self.model.trainable_variables]

    def put_weights(self, values: Sequence[Any]) -> None:
        """Assign the trainable variables; inside an epoch of the JAX trainer, in its state."""
        away = self._away()
        if away is not None:
            away["trainable_variables"][:] = self._held[0][:] = values
            return
        for variable, value in zip(self.model.trainable_variables, values, strict=True):
            variable.assign(value)

    def _average(self) -> dict[str, Any] | None:
        if self.averager is None:
            return None
        return {name: _numpy_tree(value) for name, value in self.averager.state().items()}

    def _put_average(self, average: dict[str, Any] | None) -> None:
        if self.averager is not None and average is not None:
            self.averager.load({name: self._tensors(value) for name, value in average.items()})

    def _tensors(self, value: Any) -> Any:
        """Copies of a list of arrays, one for each of the weights and where those are; a number stays one."""
        if not isinstance(value, list):
            return value
        tensors = [keras.ops.convert_to_tensor(np.array(array)) for array in value]
        if keras.backend.backend() == "jax":
            import jax

            tensors = [jax.device_put(t, w.sharding) for t, w in zip(tensors, self.weights(), strict=False)]
        return tensors

    def _variables(self) -> list[Any]:
        model = self.model
        groups = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
        return [v for group in (*groups, model.metrics_variables) for v in group]

    def _away(self) -> dict[str, Any] | None:
        """The state that the JAX trainer holds apart from the variables, if it does so now."""
        synced = getattr(self.model, "_jax_state_synced", True)
        return None if synced else getattr(self.model, "_jax_state", None)

    def sync(self) -> None:
        """Have the variables hold the state."""
        if self._away() is not None:
            self.model.jax_state_sync()
        self._held = None

    # Checkpoints

    def _seeds(self) -> list[Any]:
        """The layers' random states, which Keras leaves out of its weights files."""
        saved = {id(weight) for weight in self.model.weights}
        return [variable for variable in self.model.variables if id(variable) not in saved]

    def dump(self, tokens: Sequence[Token]) -> dict[str, Any]:
        """Some snapshots, all random states, the average, and how many steps the optimizer has counted."""
        self.sync()
        average = self._average()
        if average is not None and average["steps"]:  # Keras's own checkpoint holds x, which is what people load
            average["y"] = [numpy_of(weight) for weight in self.weights()]
        return {
            "average": average,
            "iterations": int(numpy_of(self.model.optimizer.iterations)),
            "rng": self.rng.get(),
            "seeds": [numpy_of(seed) for seed in self._seeds()],
            "snapshots": {token: list(self._snapshots[token]) for token in tokens},
        }

    def load(self, values: dict[str, Any]) -> None:
        """The inverse of `dump`, but for the iterations, which Keras's own checkpoint has."""
        self._snapshots = {
            token: (arrays, rng, average[0] if average else None)  # none in files of older versions
            for token, (arrays, rng, *average) in values["snapshots"].items()
        }
        self._last = max(self._snapshots, default=0)
        self.rng.set(values["rng"])
        for seed, value in zip(self._seeds(), values["seeds"], strict=True):
            seed.assign(value)
        average = dict(values.get("average") or {})
        y = average.pop("y", None)
        if y is not None:
            self.put_weights([np.array(array) for array in y])
        self._put_average(average or None)


def _check(model: Any) -> None:
    if not model.compiled or model.optimizer is None:
        raise ValueError("the model must be compiled with an optimizer before `fit`")
    if not isinstance(model.optimizer.learning_rate, keras.Variable):
        raise ValueError(
            "the optimizer's `learning_rate` is a schedule: give it a number, autolrs sets the learning rate itself"
        )
    if model.steps_per_execution != 1:
        raise ValueError(
            f"`steps_per_execution` must be 1, so that each step has its LR, got {model.steps_per_execution}"
        )
    replicas = model.distribute_strategy.num_replicas_in_sync if keras.backend.backend() == "tensorflow" else 1
    if replicas != 1:
        raise ValueError(f"the model's `tf.distribute` strategy must have 1 replica, got {replicas}")


def _value(variable: Any) -> Any:
    value = getattr(variable, "value", variable)
    return value.read_value() if hasattr(value, "read_value") else value  # TensorFlow's, also a mirrored one


def numpy_of(variable: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy 2 about how Keras converts torch's tensors
        return np.array(keras.ops.convert_to_numpy(_value(variable)))  # a copy: on a CPU the conversion may not be one


def _numpy_tree(value: Any) -> Any:
    return [numpy_of(tensor) for tensor in value] if isinstance(value, list) else value


def _global_seeds() -> Any:
    return keras.src.backend.common.global_state.get_global_attribute("global_seed_generator")
