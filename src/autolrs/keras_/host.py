"""A compiled Keras model as a `Host`: its variables, its LR, its random state, and the exact loss of its last batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

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
        state["keras"] = None if seeds is None else _numpy(seeds.state)
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


class KerasHost:
    """One compiled model's variables, its LR and the loss of its last batch, as a `Host`."""

    def __init__(self, model: Any, evaluate: Callable[[], Any] | None = None) -> None:
        _check(model)
        self.model, self._evaluate = model, evaluate
        self.rng = KerasRng()
        self._snapshots: dict[Token, tuple[list[Any], Any]] = {}
        self._last = 0
        # To gradients, as the settings have it; mixed precision may have wrapped the optimizer.
        own = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        self.proportional_steps = isinstance(own, keras.optimizers.SGD)
        self._index = [v is model.optimizer.learning_rate for v in model.optimizer.variables].index(True)
        self._metrics: list[Any] = []
        self._next_lr: Any = None  # JAX: on its way into the trainer's state
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
        """Copy every variable: weights, optimizer (iterations and LR too), seeds, metrics."""
        self._sync()
        self._last += 1
        self._snapshots[self._last] = ([_numpy(v) for v in self._variables()], self.rng.get())
        return self._last

    def restore(self, token: Token) -> None:
        """Put a snapshot back. Copies again: a backend may take over the memory it is given."""
        self._sync()
        values, rng = self._snapshots[token]
        for variable, value in zip(self._variables(), values, strict=True):
            variable.assign(np.array(value))
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
            away["optimizer_variables"][self._index] = self._next_lr = keras.ops.convert_to_tensor(
                lr, dtype=self.model.optimizer.learning_rate.dtype
            )

    def evaluate(self) -> float:
        """The user's validation loss; metrics, layer modes and random state are put back whatever happens."""
        assert self._evaluate is not None
        self._sync()
        metrics = [(v, _numpy(v)) for v in self.model.metrics_variables]
        modes = [(m, m.training) for m in self.model.modules()] if hasattr(self.model, "modules") else []
        rng = self.rng.get()
        try:
            return float(self._evaluate())
        finally:
            self._sync()
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
        self._sync()
        return float(_numpy(self.model.optimizer.learning_rate))

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
        self.model.make_train_function(force=True)  # a function that is compiled already does not know of it
        if keras.backend.backend() == "jax":
            self.model.train_function = self._with_lr(self.model.train_function)

    def _with_lr(self, train: Callable[..., Any]) -> Callable[..., Any]:
        """The JAX trainer's own step, with an LR that was set since the last one put into the state it is given."""

        def step(state: Any, iterator: Any) -> Any:
            if self._next_lr is not None:
                state[2][self._index], self._next_lr = self._next_lr, None
            return train(state, iterator)

        return step

    def close(self) -> None:
        """Leave the model as it was found."""
        for metric in self._metrics:
            del metric.update_state
            metric._variables[:] = [v for v in metric._variables if v is not self._loss]
        self._metrics, self.model.train_function = [], None

    def _variables(self) -> list[Any]:
        model = self.model
        groups = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
        return [v for group in (*groups, model.metrics_variables) for v in group]

    def _away(self) -> dict[str, Any] | None:
        """The state that the JAX trainer holds apart from the variables, if it does so now."""
        synced = getattr(self.model, "_jax_state_synced", True)
        return None if synced else getattr(self.model, "_jax_state", None)

    def _sync(self) -> None:
        if self._away() is not None:
            self.model.jax_state_sync()
        self._next_lr = None  # it is in the variable now

    # Checkpoints

    def _seeds(self) -> list[Any]:
        """The layers' random states, which Keras leaves out of its weights files."""
        saved = {id(weight) for weight in self.model.weights}
        return [variable for variable in self.model.variables if id(variable) not in saved]

    def dump(self, tokens: Sequence[Token]) -> dict[str, Any]:
        """Some snapshots, all random states, and how many steps the optimizer has counted."""
        self._sync()
        return {
            "iterations": int(_numpy(self.model.optimizer.iterations)),
            "rng": self.rng.get(),
            "seeds": [_numpy(seed) for seed in self._seeds()],
            "snapshots": {token: list(self._snapshots[token]) for token in tokens},
        }

    def load(self, values: dict[str, Any]) -> None:
        """The inverse of `dump`, but for the iterations, which Keras's own checkpoint has."""
        self._snapshots = {token: (arrays, rng) for token, (arrays, rng) in values["snapshots"].items()}
        self._last = max(self._snapshots, default=0)
        self.rng.set(values["rng"])
        for seed, value in zip(self._seeds(), values["seeds"], strict=True):
            seed.assign(value)


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


def _numpy(variable: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy 2 about how Keras converts torch's tensors
        return np.array(keras.ops.convert_to_numpy(_value(variable)))  # a copy: on a CPU the conversion may not be one


def _global_seeds() -> Any:
    return keras.src.backend.common.global_state.get_global_attribute("global_seed_generator")
