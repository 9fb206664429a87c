"""Cases of the JAX adapter. `test_jax_.py` runs them all in one process of their own, which prints what failed.

JAX's threads do not go together with the forks of other tests, so nothing here may be imported by pytest itself.
"""

import doctest
import json
import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx, serialization
from flax.training.train_state import TrainState

import autolrs.jax_
from autolrs import Schedule
from autolrs.core.types import Failed
from autolrs.jax_ import usual as jax_usual
from autolrs.testing import host_conformance

X = np.random.default_rng(0).normal(size=(48, 6)).astype(np.float32)
Y = (X @ np.random.default_rng(1).normal(size=(6, 3))).argmax(1).astype(np.int32)
PAPER = {
    **{"strategy": "paper", "lr": (1e-3, 1e-1), "total_steps": 60, "stage_steps": 20, "max_stage_steps": 40},
    **{"probe_fraction": 0.25, "n_probes": 3},
}
HORIZON = {"strategy": "horizon", "lr": (1e-4, 1.0), "total_steps": 300, "mini_fraction": 0.07, "max_cost": 1.5}
PRACTICAL = {**PAPER, "preset": "practical"}


STEPS = []


class Shuffled:
    """Six batches, on the device already, in an order drawn from numpy's global state."""

    def __iter__(self):
        order = np.random.permutation(48)  # noqa: NPY002 - what users' loaders draw from
        for i in range(0, 48, 8):
            yield {"x": jax.device_put(X[order[i : i + 8]]), "y": jax.device_put(Y[order[i : i + 8]])}


def params_of(seed=0):
    np.random.seed(seed)  # noqa: NPY002 - see Shuffled
    keys = jax.random.split(jax.random.key(seed), 2)
    return {"in": 0.5 * jax.random.normal(keys[0], (6, 8)), "out": 0.5 * jax.random.normal(keys[1], (8, 3))}


def loss_of(params, key, batch):
    hidden = jax.nn.relu(batch["x"] @ params["in"])
    hidden = hidden * jax.random.bernoulli(key, 0.8, hidden.shape)
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ params["out"], batch["y"]).mean()


def adam(lr):
    return optax.inject_hyperparams(optax.adam)(lr)


def make(optimizer=None, settable=True):
    """A donating step and its state: weights, optimizer state, a typed random key, a bfloat16 average, a plain int."""
    known = optimizer is None
    optimizer = optimizer or adam(1e-3)
    params = params_of()
    opt_state = optimizer.init(params)
    mean = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
    state = {"params": params, "opt": opt_state, "key": jax.random.key(7), "mean": mean, "version": 3}
    if known and STEPS:
        return STEPS[0], state
    set_lr = autolrs.jax_.lr_setter(opt_state) if settable else None

    @partial(jax.jit, donate_argnums=0)
    def step(state, batch, lr=None):
        key, now = jax.random.split(state["key"])
        loss, gradient = jax.value_and_grad(loss_of)(state["params"], now, batch)
        opt_state = state["opt"] if lr is None else set_lr(state["opt"], lr)
        updates, opt_state = optimizer.update(gradient, opt_state, state["params"])
        params = optax.apply_updates(state["params"], updates)
        mean = jax.tree.map(lambda m, p: (0.9 * m + 0.1 * p).astype(m.dtype), state["mean"], params)
        return {**state, "params": params, "opt": opt_state, "key": key, "mean": mean}, loss

    if known:
        STEPS.append(step)  # compiled once for all cases
    return step, state


def arrays(state):
    plain = [
        jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in jax.tree.leaves(state)
    ]
    return [np.array(leaf) for leaf in plain]


def same(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


class Harness:
    def __init__(self):
        self._step, state = make()
        self.host = autolrs.jax_.JaxHost(state, self._loss)
        self.host.set_lr(1e-2)
        self.rewind()

    def _loss(self, state):
        np.random.rand()  # noqa: NPY002 - an evaluation that draws
        return loss_of(state["params"], jax.random.key(0), {"x": jnp.asarray(X), "y": jnp.asarray(Y)})

    def step(self):
        i = self._next % 6 * 8
        self._next += 1
        self.host.state, loss = self._step(self.host.state, {"x": X[i : i + 8], "y": Y[i : i + 8]}, self.host.lr)
        return float(loss) + 0 * np.random.rand()  # noqa: NPY002 - a step that draws

    def rewind(self):
        self._next = 0

    def lrs(self):
        return [self.host.rate]

    def weights(self):
        return [*arrays(self.host.state), np.array(np.random.get_state()[1])]  # noqa: NPY002 - is restored too


def case_the_host_conforms():
    host_conformance(Harness)


def train(options, stop=None, **more):
    step, state = make()
    auto = autolrs.jax_.AutoLRS(state, **options, **more)
    losses = []
    loop(auto, step, losses, stop)
    return auto, losses


def loop(auto, step, losses, stop=None, loader=None):
    for batch in auto.batches(loader or Shuffled()):
        auto.state, loss = step(auto.state, batch, auto.lr)
        if not auto.step(loss).exploring:
            losses.append(loss)
        if stop is not None and auto.raw_steps >= stop:
            break


def same_as_replay(options):
    auto, losses = train(options)
    assert auto.committed_steps == options["total_steps"] < auto.raw_steps
    step, state = make(adam(Schedule.from_json(auto.schedule.to_json()).to_optax()), settable=False)
    expected, batches = [], iter(Shuffled())
    for _ in range(options["total_steps"]):
        batch = next(batches, None)
        if batch is None:
            batches = iter(Shuffled())
            batch = next(batches)
        state, loss = step(state, batch)
        expected.append(loss)
    # With `keep_winner` the probe's own steps are the stage's first: their losses were a probe's.
    assert np.array_equal(np.array(losses), np.array(expected)[-len(losses) :])
    assert len(losses) == options["total_steps"] or options is PRACTICAL
    ours = {name: auto.state[name] for name in ("params", "key", "mean")}
    assert same(arrays(ours), arrays({name: state[name] for name in ours}))


def case_a_paper_run_equals_a_replay_of_its_schedule_to_the_bit():
    same_as_replay({**PAPER, "replay": True})


def case_a_practical_run_equals_a_replay_of_its_schedule_to_the_bit():
    same_as_replay(PRACTICAL)


def case_a_horizon_run_without_averaging_equals_a_replay_of_its_schedule_to_the_bit():
    same_as_replay({**HORIZON, "averaging": False})


def case_a_step_compiles_once_and_nothing_is_read_between_boundaries():
    step, state = make(adam(1e-3))
    state = jax.tree.map(jnp.asarray, state)
    reads, get = [], jax.device_get
    floats = type(jnp.zeros(())).__float__
    jax.device_get = lambda x: reads.append(len(x)) or get(x)
    type(jnp.zeros(())).__float__ = lambda self: reads.append("float") or floats(self)
    try:
        with jax.transfer_guard("disallow"):  # moving a number to the device by accident is an error
            auto = autolrs.jax_.fit(step, state, Shuffled(), **HORIZON)
    finally:
        jax.device_get, type(jnp.zeros(())).__float__ = get, floats
    assert step._cache_size() == 1, step._cache_size()
    assert auto.settings.averaging
    assert "float" not in reads and sum(reads) == auto.raw_steps + 1  # and the momentum, once
    # The ramp is checked at every step; after it a read a check (of the run every ten steps) and one at the end.
    assert max(reads) == 10 and len(reads) < 20 + 7 * 10 + 300 // 10 + 3, reads


def case_a_run_goes_on_from_the_middle_of_a_probe_through_flax_and_orbax():
    import orbax.checkpoint

    for options, stop in ((PAPER, 43), (PRACTICAL, 3), (HORIZON, 33), (HORIZON, 350)):
        whole, losses = train(options)
        half, first = train(options, stop)
        assert half.exploring or stop == 350
        saved = serialization.msgpack_serialize(half.state_dict())
        again, rest = make()
        auto = autolrs.jax_.AutoLRS(rest, **options)
        auto.load_state_dict(serialization.msgpack_restore(saved))
        if stop == 350:
            with TemporaryDirectory() as folder, orbax.checkpoint.PyTreeCheckpointer() as checkpointer:
                checkpointer.save(Path(folder) / "a", half.state_dict())
                auto = autolrs.jax_.AutoLRS(make()[1], **options)
                auto.load_state_dict(checkpointer.restore(Path(folder) / "a"))
        np.random.seed(99)  # noqa: NPY002 - a new process has another random state
        loop(auto, again, first)
        assert auto.schedule == whole.schedule
        assert np.array_equal(np.array(losses), np.array(first)[-len(losses) :])
        assert same(arrays(auto.state), arrays(whole.state))


def case_a_loss_that_is_not_finite_undoes_the_stretch():
    step, state = make()
    events, calls = [], 0

    def broken(state, batch, lr):
        nonlocal calls
        calls += not auto.exploring
        state, loss = step(state, batch, lr)
        return state, loss * (np.float32(np.nan) if calls == 5 else np.float32(1))

    auto = autolrs.jax_.AutoLRS(state, **HORIZON)
    auto.session.listeners.append(events.append)
    loop(auto, broken, [])
    assert sum(isinstance(event, Failed) for event in events) == 1 and auto.committed_steps == 300


def case_linen_train_states_and_nnx_modules_work_as_they_are():
    class Net(flax.linen.Module):
        @flax.linen.compact
        def __call__(self, x):
            return flax.linen.Dense(3)(flax.linen.relu(flax.linen.Dense(8)(x)))

    def cross_entropy(logits, batch):
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

    net = Net()
    optimizer = optax.inject_hyperparams(optax.sgd)(1e-2, momentum=0.9)
    state = TrainState.create(apply_fn=net.apply, params=net.init(jax.random.key(0), X[:1]), tx=optimizer)
    set_lr = autolrs.jax_.lr_setter(state.opt_state)

    @jax.jit
    def step(state, batch, lr):
        loss, gradient = jax.value_and_grad(lambda p: cross_entropy(state.apply_fn(p, batch["x"]), batch))(state.params)
        state = state.replace(opt_state=set_lr(state.opt_state, lr))
        return state.apply_gradients(grads=gradient), loss

    run = autolrs.jax_.fit(step, state, Shuffled(), **PAPER)
    assert int(run.state.step) == 60 and step._cache_size() == 1

    model = nnx.Sequential(nnx.Linear(6, 8, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(8, 3, rngs=nnx.Rngs(1)))
    trained = nnx.Optimizer(model, optimizer, wrt=nnx.Param)
    set_nnx = autolrs.jax_.lr_setter(optimizer.init(nnx.state(model, nnx.Param)))
    graph, leaves = nnx.split((model, trained))

    @jax.jit
    def nnx_step(leaves, batch, lr):
        model, trained = nnx.merge(graph, leaves)
        trained.opt_state = nnx.data(set_nnx(trained.opt_state, lr))
        loss, gradient = nnx.value_and_grad(lambda m: cross_entropy(m(batch["x"]), batch))(model)
        trained.update(model, gradient)
        return nnx.state((model, trained)), loss

    run = autolrs.jax_.fit(nnx_step, leaves, Shuffled(), **PAPER)
    model, trained = nnx.merge(graph, run.state)
    assert int(trained.step[...]) == 60 and run.committed_steps == 60


def case_what_a_state_tells_of_its_network_is_known():
    assert doctest.testmod(jax_usual).failed == 0

    class Net(flax.linen.Module):
        @flax.linen.compact
        def __call__(self, tokens):
            x = flax.linen.Embed(100, 32)(tokens)
            x = flax.linen.LayerNorm()(flax.linen.MultiHeadDotProductAttention(num_heads=4)(x, x))
            return flax.linen.Dense(10)(x)

    params = Net().init(jax.random.key(0), jnp.zeros((2, 7), jnp.int32))["params"]
    adamw = optax.inject_hyperparams(optax.adamw)(1e-3)
    moved = jax.tree.map(lambda leaf: leaf + 0.1 * jnp.arange(leaf.size).reshape(leaf.shape), params)
    model = nnx.Sequential(nnx.Linear(16, 32, rngs=nnx.Rngs(0)), nnx.LayerNorm(32, rngs=nnx.Rngs(0)))
    modules = nnx.split(model, nnx.Param)[1]
    for state, lr, old in (
        ((params, adamw.init(params)), 0.8 / 32, False),
        (TrainState.create(apply_fn=None, params=moved, tx=optax.adam(1e-3)), 0.8 / 32, True),
        ((modules, adamw.init(modules)), 0.8 / 16, False),
        ((params, optax.sgd(0.1, momentum=0.9).init(params)), None, False),
    ):
        found = autolrs.jax_.AutoLRS(state, total_steps=300).settings
        assert found.usual_lr == lr and found.normalised and found.trained_before == old
    given = {"usual_lr": 0.02, "normalised": False, "rectified": 0.999}
    assert given.items() <= autolrs.jax_.AutoLRS(state, total_steps=300, **given).settings.to_dict().items()
    without = autolrs.jax_.AutoLRS((params_of(), adamw.init(params_of())), total_steps=300).settings
    assert not without.normalised and not without.trained_before and without.usual_lr is not None


def case_the_best_state_is_kept_restored_and_resumed():
    held_out = {"x": jnp.asarray(X[::-1]), "y": jnp.asarray(Y)}  # labels of others: the loss rises as training goes on

    def evaluate(state):
        return loss_of(state["params"], jax.random.key(0), held_out)

    for options in (PAPER, {**HORIZON, "max_cost": 2.5}):  # room for as many miniature runs, with looks and without
        plain, _ = train(options, evaluate=evaluate, keep_best=False)
        auto, _ = train(options, evaluate=evaluate, keep_best=True)
        assert same(arrays(auto.state), arrays(plain.state)) and auto.schedule == plain.schedule
        assert auto.best.step < options["total_steps"] and evaluate(auto.state) > auto.best.loss
        with TemporaryDirectory() as folder:
            more = {"run_dir": folder, "evaluate": evaluate, "keep_best": True}
            train(options, auto.raw_steps - 1, **more)
            again, _ = train(options, resume=True, **more)
            assert again.best == auto.best
            for one in (auto, again):
                one.restore_best()
                assert float(evaluate(one.state)) == auto.best.loss
    by_default, _ = train({**HORIZON, "max_cost": 2.5}, evaluate=evaluate)
    assert by_default.best.step < HORIZON["total_steps"] and float(evaluate(by_default.state)) == by_default.best.loss


def case_groups_keep_their_ratio():
    inject = optax.inject_hyperparams
    optimizer = optax.multi_transform(
        {"a": inject(optax.adam)(1e-2), "b": inject(optax.sgd)(1e-3)}, {"x": "a", "y": "b"}
    )
    opt_state = optimizer.init({"x": jnp.ones(2), "y": jnp.ones(2)})
    set_lr = jax.jit(autolrs.jax_.lr_setter(opt_state))
    found = [float(v) for _, v in optax.tree.get_all_with_path(set_lr(opt_state, 0.5), "learning_rate")]
    np.testing.assert_allclose(found, [0.5, 0.05], rtol=1e-6)


def case_what_cannot_work_is_refused_by_name():
    refuses(ValueError, "inject_hyperparams", autolrs.jax_.lr_setter, optax.adam(1e-3).init(params_of()))
    refuses(ValueError, "has a schedule", autolrs.jax_.lr_setter, adam(lambda count: 1e-3).init(params_of()))
    state = make()[1]
    refuses(ValueError, "`keep_best` needs `evaluate`", autolrs.jax_.AutoLRS, state, **HORIZON, keep_best=True)
    refuses(ValueError, "checkpoint_every", autolrs.jax_.AutoLRS, state, **HORIZON, checkpoint_every=-1)
    auto = autolrs.jax_.AutoLRS({**state, "more": jnp.ones(3)}, **PAPER)
    saved = train(PAPER, 3)[0].state_dict()
    refuses(ValueError, "another state", auto.load_state_dict, saved)
    auto = autolrs.jax_.AutoLRS(state, **PAPER)
    refuses(TypeError, "one value, got shape (2,)", lambda: [auto.step(jnp.ones(2)) for _ in auto.batches(Shuffled())])
    with TemporaryDirectory() as folder:
        train(PAPER, 80, run_dir=folder)
        refuses(FileExistsError, "resume=True", autolrs.jax_.AutoLRS, state, **PAPER, run_dir=folder)
        other = {**PAPER, "n_probes": 4, "run_dir": folder, "resume": True}
        refuses(ValueError, "`n_probes` is 3", autolrs.jax_.AutoLRS, state, **other)
        path = Path(folder) / autolrs.jax_.NAME
        path.write_bytes(path.read_bytes()[:-200])
        refuses(ValueError, "not a whole checkpoint", autolrs.jax_.AutoLRS, state, **PAPER, run_dir=folder, resume=True)


def refuses(kind, message, call, *args, **options):
    try:
        call(*args, **options)
    except kind as error:
        assert message in str(error), str(error)
    else:
        raise AssertionError(f"not refused: {message}")


def case_a_loop_without_batches_says_that_it_cannot_replay():
    import warnings

    step, state = make()
    auto = autolrs.jax_.AutoLRS(state, **HORIZON)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream = iter(list(Shuffled()) * 100)
        while not auto.done:
            auto.state, loss = step(auto.state, next(stream), auto.lr)
            auto.step(loss)
    assert ["replay" in str(w.message) for w in caught] == [True]
    assert auto.committed_steps == 300


def toys(values):
    return {strategy: toy(strategy, options) for strategy, options in values.items()}


def toy(strategy, values):
    """Two coordinates of a quadratic, whose schedule every adapter finds alike."""
    curvature = jnp.asarray([1.0, 0.05])

    @jax.jit
    def step(w, batch, lr):
        return w - lr * curvature * w, 0.5 * jnp.sum(curvature * w * w) + 0.1

    run = autolrs.jax_.fit(step, jnp.ones(2), [jnp.zeros(1)] * 5, strategy=strategy, **values)
    return run.schedule.to_json()["segments"]


def killed(folder, stop, strategy):
    """Train in `folder` until this process is killed at raw step `stop`."""
    step, state = make()
    options = {**OPTIONS[strategy], "run_dir": folder}
    auto = autolrs.jax_.AutoLRS(state, **options)
    for batch in auto.batches(Shuffled()):
        auto.state, loss = step(auto.state, batch, auto.lr)
        auto.step(loss)
        if auto.raw_steps == stop:
            os.kill(os.getpid(), signal.SIGKILL)


def resumed(folders):
    return {strategy: goes_on(folder, strategy) for strategy, folder in folders.items()}


def goes_on(folder, strategy):
    whole, losses = train(OPTIONS[strategy])
    step, state = make()
    if (Path(folder) / autolrs.jax_.NAME).exists():
        np.random.seed(5)  # noqa: NPY002 - a new process has another random state
    auto = autolrs.jax_.AutoLRS(state, **OPTIONS[strategy], run_dir=folder, resume=True)
    assert auto.settings.averaging == (strategy == "horizon")
    began = auto.committed_steps
    rest = []
    loop(auto, step, rest)
    assert auto.schedule == whole.schedule
    assert same(arrays(auto.state), arrays(whole.state))
    assert np.array_equal(np.array(rest), np.array(losses)[-len(rest) :])
    assert Schedule.load(Path(folder) / "schedule.json") == whole.schedule
    again = autolrs.jax_.AutoLRS(make()[1], **OPTIONS[strategy], run_dir=folder, resume=True)
    assert again.done and same(arrays(again.state), arrays(whole.state))
    return began


OPTIONS = {"paper": PAPER, "practical": PRACTICAL, "horizon": {**HORIZON, "total_steps": 2000, "mini_fraction": 0.02}}


def main(module):
    """Run what the first argument says, "cases" or a function of `module` and its arguments, and print its answer."""
    what, *rest = json.loads(sys.argv[1])
    if what == "cases":
        report = {}
        for name, case in [(n, c) for n, c in module.items() if n.startswith("case_")]:
            try:
                case()
                report[name] = ""
            except Exception:
                report[name] = traceback.format_exc()
        print(json.dumps(report))
    else:
        print(json.dumps(module[what](*rest)))


if __name__ == "__main__":
    main(globals())
