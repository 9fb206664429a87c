"""Averaging under Keras: cases that are the same for every backend; `keras_cases.py` runs them beside its own."""

import warnings
from tempfile import TemporaryDirectory

import keras
import numpy as np

from autolrs.core.averaging import PLAIN_SHARPNESS, SHARPNESS, share, weight
from autolrs.core.types import Averaged, Failed
from autolrs.keras_ import KerasHost, averaging
from autolrs.keras_.averaging import Averager
from autolrs.run.journal import read as read_journal
from keras_cases import (
    AVERAGED,
    FIT,
    HORIZON,
    PAPER,
    X,
    Y,
    callback,
    like_a_replay,
    make,
    quadratic,
    refuses,
    same,
    weights,
)


def own_weights(model):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in model.trainable_variables]


def close(a, b, **how):
    for one, other in zip(a, b, strict=True):
        np.testing.assert_allclose(one, other, **{"rtol": 1e-4, "atol": 1e-6, **how})


class Watch(keras.callbacks.Callback):
    """What the model holds when others look at it."""

    def __init__(self):
        super().__init__()
        self.before_batches, self.after_tests, self.at_ends, self.momenta = [], [], [], []

    def on_train_batch_begin(self, batch, logs=None):
        self.before_batches.append(own_weights(self.model))

    def on_test_end(self, logs=None):
        self.after_tests.append(own_weights(self.model))

    def on_epoch_end(self, epoch, logs=None):
        self.at_ends.append(own_weights(self.model))
        self.momenta.append(getattr(self.model.optimizer, "beta_1", None))


def by_hand(kind, curvature, lrs):
    """x and y after each step at these LRs: the optimizer's own formula and Schedule-Free's three lines, in float64."""
    y, m, u = np.ones(2), np.zeros(2), np.zeros(2)
    b = share(0.9)
    xs, ys = [], []
    for t, lr in enumerate(lrs):
        g, momentum = curvature * y, 0.9 if t == 0 else b
        if kind == "adam":
            m, u = momentum * m + (1 - momentum) * g, 0.999 * u + 0.001 * g * g
            step = -lr * m / (1 - momentum ** (t + 1)) / (np.sqrt(u / (1 - 0.999 ** (t + 1))) + 1e-7)
        else:
            step = m = momentum * m - lr * g
        if t == 0:
            z = x = y = y + step
        else:
            z = z + step * (1.0 if kind == "adam" else (1 - b) / (1 - 0.9))
            x = x + weight(t, SHARPNESS) * (z - x)
            y = (1 - b) * z + b * x
        xs.append(x)
        ys.append(y)
    return xs, ys


def case_an_averaged_run_is_three_lines_around_the_optimizer():
    curvature = [1.0, 0.3]
    sgd, adam = keras.optimizers.SGD, keras.optimizers.Adam
    short = {"averaging": True, "lr": (1e-3, 1e-2), "total_steps": 60}
    stages = {"stage_steps": 20, "max_stage_steps": 20, "n_probes": 3, "probe_fraction": 0.25}
    paper = {"strategy": "paper", **stages, **short}
    for kind, optimizer, values, watching in (
        ("adam", adam(0.1), {"max_cost": 1.7, **short}, True),
        ("adam", adam(0.1), {"max_cost": 1.7, **short}, False),  # on JAX nobody makes the trainer put its state back
        ("sgd", sgd(0.1, momentum=0.9), {"max_cost": 1.7, **short}, True),
        ("adam", adam(0.1), paper, False),  # between its stages probes go on from the average, and are undone
        ("sgd", keras.optimizers.LossScaleOptimizer(sgd(0.1, momentum=0.9), initial_scale=1.0), paper, True),
    ):
        model, auto, fit = quadratic(curvature, optimizer, **values)
        watch = Watch()
        fit(*[watch] * watching)
        assert auto.done and auto.raw_steps > 60
        xs, ys = by_hand(kind, curvature, auto.schedule.lrs())
        close(own_weights(model), [xs[-1]])
        if watching:
            for t in (1, 2, 7, 33, 59):
                close(watch.before_batches[t], [ys[t - 1]])
            for epoch in (0, 1, 5):
                close(watch.at_ends[epoch], [xs[5 * epoch + 4]])
        own = getattr(optimizer, "inner_optimizer", optimizer)
        assert (own.beta_1 if kind == "adam" else own.momentum) == 0.9


def number(tensor):
    return float(np.array(keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))).reshape(()))


def one_weight(optimizer, constraint=None, dtype="float32"):
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", kernel_constraint=constraint, dtype=dtype)
    model = keras.Sequential([keras.layers.Input((1,)), layer])
    model.compile(optimizer, "mse")
    model.optimizer.build(model.trainable_variables)
    host = KerasHost(model)
    host.averager = Averager(host)
    return host, layer.kernel


def case_momentum_is_shared_where_it_is_of_past_steps_and_nothing_else():
    o = keras.optimizers
    steps = np.random.default_rng(0).normal(size=20)
    for optimizer, name, scale in (
        (o.SGD(0.1, momentum=0.75, nesterov=True), "momentum", 2.0),
        (o.RMSprop(0.1, momentum=0.75), "momentum", 2.0),
        *((kind(0.1, beta_1=0.75), "beta_1", 1.0) for kind in (o.Adam, o.AdamW, o.Nadam, o.Adamax)),
    ):
        host, kernel = one_weight(optimizer)
        z = x = y = 0.0
        for t, step in enumerate(steps):
            kernel.assign(kernel + step)
            host.averager.update()
            z = z + (scale if t else 1.0) * step
            x = x + weight(t, SHARPNESS) * (z - x)
            y = 0.5 * z + 0.5 * x
        assert getattr(optimizer, name) == 0.5
        close(own_weights(host.model), [[[y]]])
        with host.averager.averaged():
            close(own_weights(host.model), [[[x]]])
            assert getattr(optimizer, name) == 0.75
        assert getattr(optimizer, name) == 0.5
        host.averager.finish(average=False)
        close(own_weights(host.model), [[[y]]])
        assert getattr(optimizer, name) == 0.75 and not host.averager.begun


def case_where_momentum_cannot_be_shared_the_training_is_not_touched():
    o = keras.optimizers
    for optimizer, constraint in ((o.SGD(0.1), None), (o.Lion(0.1), None), (o.Adam(0.1), keras.constraints.NonNeg())):
        host, kernel = one_weight(optimizer, constraint)
        before, expected = optimizer.get_config(), 0.0
        for n in range(100):
            kernel.assign([[float(n)]])
            host.averager.update()
            assert number(kernel) == n
            expected += weight(n, PLAIN_SHARPNESS) * (n - expected)
        assert optimizer.get_config() == before
        host.averager.finish(average=True)
        close(own_weights(host.model), [[[expected]]], rtol=1e-5)


def case_a_weight_that_does_not_move_stays_to_the_bit():
    for optimizer in (keras.optimizers.Adam(0.1), keras.optimizers.SGD(0.1, momentum=0.9)):
        host, kernel = one_weight(optimizer)
        kernel.assign([[0.1]])
        before = own_weights(host.model)
        for _ in range(100):
            host.averager.update()
        assert same(own_weights(host.model), before)
        host.averager.finish(average=True)
        assert same(own_weights(host.model), before)


def case_half_precision_is_averaged_in_single_precision():
    host, kernel = one_weight(keras.optimizers.SGD(0.1), dtype="bfloat16")
    expected = 0.0
    for n in range(100):  # the nearest numbers that it knows
        value = 1.0 + (n % 2) / 128
        kernel.assign([[value]])
        host.averager.update()
        expected += weight(n, PLAIN_SHARPNESS) * (value - expected)
    state = host.averager.state()
    assert keras.backend.standardize_dtype(state["x"][0].dtype) == "float32"
    close([keras.ops.convert_to_numpy(state["x"][0])], [[[expected]]], rtol=1e-5)

    host, kernel = one_weight(keras.optimizers.Adam(0.1, beta_1=0.75), dtype="bfloat16")
    x = z = 0.0
    for n in range(100):
        kernel.assign([[number(kernel) + 1 / 64]])
        z = z + number(kernel) - (0.5 * z + 0.5 * x)
        host.averager.update()
        x = x + weight(n, SHARPNESS) * (z - x)
        np.testing.assert_allclose(number(kernel), 0.5 * z + 0.5 * x, rtol=1 / 256)
    np.testing.assert_allclose(number(host.averager.state()["x"][0]), x, rtol=1e-3)
    x = number(host.averager.state()["x"][0])
    host.averager.finish(average=True)
    assert number(kernel) == number(keras.ops.cast(x, "bfloat16")) != x
    assert keras.backend.standardize_dtype(kernel.dtype) == "bfloat16"


def case_snapshots_hold_the_average_and_the_momentum():
    model = make(plain=True)
    model.train_on_batch(X[:7], Y[:7])
    host = KerasHost(model)
    host.averager = Averager(host)

    def steps(n):
        for _ in range(n):
            host.step((X[:7], Y[:7]))
            host.averager.update()
        return [*weights(model), *[np.array(keras.ops.convert_to_numpy(x)) for x in host.averager.state()["x"]]]

    fresh = host.snapshot()
    first = steps(3)
    begun = host.snapshot()
    second = steps(3)
    host.restore(begun)
    assert model.optimizer.beta_1 == share(0.9) and same(steps(3), second)
    host.restore(fresh)
    assert model.optimizer.beta_1 == 0.9 and not host.averager.begun
    assert same(steps(3), first) and same(steps(3), second)
    host.restore(begun)
    saved = host.dump([fresh])
    host.put_weights([np.zeros(w.shape, "float32") for w in own_weights(model)])  # as Keras would restore others
    host.averager.finish(average=False)
    host.load(saved)
    assert model.optimizer.beta_1 == share(0.9) and same(steps(3), second)
    host.restore(fresh)
    assert not host.averager.begun and same(steps(3), first)


def averaged_fit(*more, options=AVERAGED, model=None, epochs=50, validation=True, **options_too):
    """In the same order with and without validation, which on torch draws random numbers."""
    model = model or make(plain=True)
    auto = callback({**options, **options_too})
    data = {"validation_data": (X[:14], Y[:14])} if validation else {}
    history = model.fit(X, Y, **FIT, shuffle=False, epochs=epochs, **data, callbacks=[auto, *more])
    return model, auto, history.history


def case_validation_in_fit_sees_the_average_and_training_goes_on_from_elsewhere():
    seen = []

    class Again(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append((logs["val_loss"], self.model.evaluate(X[:14], Y[:14], verbose=0)[0]))

    watch, plain = Watch(), Watch()
    model, auto, history = averaged_fit(watch, Again())
    assert auto.done and len(seen) == 20 == len(history["val_loss"])
    close(*zip(*seen, strict=True), rtol=1e-5)
    for n in (1, 5, 18):  # before the last one they are apart
        assert not same(watch.at_ends[n], watch.before_batches[6 * n + 6])
        assert same(watch.after_tests[n], watch.before_batches[6 * n + 6])
    assert set(watch.momenta) == {0.9}
    expected, _, unseen = averaged_fit(plain, validation=False)
    assert history["loss"] == unseen["loss"] and same(weights(model), weights(expected))
    assert all(same(a, b) for a, b in zip(watch.before_batches, plain.before_batches, strict=True))
    assert watch.at_ends and same(watch.at_ends[-1], own_weights(model))


def case_an_average_can_be_looked_at_in_the_middle_of_an_epoch():
    found = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if auto.committed_steps == 45:
                before = own_weights(self.model)
                with auto.averaged():
                    found.append(own_weights(self.model))
                found.append(own_weights(self.model))
                assert same(before, found[1]) and not same(*found)

    auto = callback(AVERAGED)
    model = make(plain=True)
    with auto.averaged():  # before there is one
        pass
    model.fit(X, Y, **FIT, shuffle=False, epochs=50, callbacks=[auto, Look()])
    assert len(found) == 2 and same(weights(model), weights(averaged_fit()[0]))


def case_saved_files_hold_the_average_and_the_whole_momentum():
    watch = Watch()
    with TemporaryDirectory() as folder:
        ends = keras.callbacks.ModelCheckpoint(f"{folder}/{{epoch}}.keras")
        within = keras.callbacks.ModelCheckpoint(f"{folder}/{{epoch}}-{{batch}}.weights.h5", **WITHIN)
        keeps = {"run_dir": f"{folder}/run", "save_freq": 8}
        model, auto, history = averaged_fit(watch, ends, within, **keeps)
        loaded = keras.saving.load_model(f"{folder}/10.keras")
        assert same(own_weights(loaded), watch.at_ends[9]) and loaded.optimizer.beta_1 == 0.9
        np.testing.assert_allclose(loaded.evaluate(X[:14], Y[:14], verbose=0)[0], history["val_loss"][9], rtol=1e-5)
        assert same(own_weights(keras.saving.load_model(f"{folder}/20.keras")), own_weights(model))
        other = make(plain=True)
        other.load_weights(f"{folder}/7-4.weights.h5")  # after step 40
        assert not same(own_weights(other), watch.before_batches[40])
        states = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if auto.committed_steps == 40:
                    with auto.averaged():
                        states.append(own_weights(self.model))

        auto = callback(AVERAGED)
        make(plain=True).fit(X, Y, **FIT, shuffle=False, epochs=50, callbacks=[auto, Look()])
        assert same(states[0], own_weights(other))


WITHIN = {"save_weights_only": True, "save_freq": 8}


def case_the_better_of_both_is_handed_over():
    for falling in (False, True):
        model, seen = make(), []

        def evaluate(model=model, seen=seen, falling=falling):
            seen.append(own_weights(model))
            return 100.0 - len(seen) if falling else 100.0 + len(seen)

        with TemporaryDirectory() as folder:
            auto = callback(AVERAGED, evaluate=evaluate, max_cost=2.5, run_dir=f"{folder}/run")
            history = model.fit(X, Y, **FIT, epochs=50, validation_data=(X, Y), callbacks=[auto]).history
            handed = [event for event in read_journal(f"{folder}/run") if isinstance(event, Averaged)]
        assert len(handed) == 1 and handed[0].used is not falling, handed
        averaged, raw = seen[-2:]
        assert not same(averaged, raw) and same(own_weights(model), raw if falling else averaged)
        assert model.optimizer.beta_1 == 0.9
        np.testing.assert_allclose(history["val_loss"][-1], model.evaluate(X, Y, verbose=0)[0], rtol=1e-5)


def case_an_averaged_stretch_that_fails_is_undone_with_its_average():
    traced, states = [], []

    class Count(keras.layers.Layer):
        def call(self, x, training=False):
            traced.extend([1] if training else [])
            return x

    class Break(keras.callbacks.Callback):
        done = False

        def on_train_batch_end(self, batch, logs=None):
            if auto.committed_steps == 40 and not self.done:
                self.done = True
                traced.append("break")
                self.model.layers[-1].kernel.assign(np.full((8, 3), np.nan))
                auto.session.listeners.append(listen)

    def listen(event):
        if isinstance(event, Failed):
            states.append((auto.host.averager.begun, model.optimizer.beta_1))

    model, auto = make(first=[Count()]), callback(AVERAGED)
    model.fit(X, Y, **FIT, epochs=50, callbacks=[auto, Break()])
    assert states == [(False, 0.9)] and auto.done and model.optimizer.beta_1 == 0.9
    assert int(model.optimizer.iterations) == 120 and all(np.isfinite(w).all() for w in weights(model))
    if keras.backend.backend() != "torch":
        assert traced[-1] == "break"  # steps that are compiled for either momentum serve again


def case_a_step_is_compiled_for_each_momentum_and_the_average_once():
    traced, moved = [], averaging._moved

    class Count(keras.layers.Layer):
        def call(self, x, training=False):
            traced.extend(["step"] if training else [])
            return x

    def counted(*args):
        traced.append("average")
        return moved(*args)

    def run(**options):
        traced.clear()
        _, auto, _ = averaged_fit(model=make(first=[Count()]), **options)
        assert auto.done
        return traced.count("step"), traced.count("average"), auto.raw_steps

    averaging._moved = counted
    try:
        (plain, none, _), (steps, averages, raw_steps) = run(averaging=False), run()
    finally:
        averaging._moved = moved
    if keras.backend.backend() == "torch":  # which compiles nothing
        assert steps >= raw_steps and not averages
    else:
        assert not none and steps == plain + 1 and averages == 1, (plain, none, steps, averages)


def case_a_second_fit_goes_on_with_the_average():
    def fit(*epochs):
        model, auto, losses = make(plain=True), callback(AVERAGED), []
        for n in epochs:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the first one ends early
                history = model.fit(X, Y, **FIT, epochs=n, shuffle=False, callbacks=[auto])
            losses += history.history["loss"]
            if not auto.done:
                held = own_weights(model)
                with auto.averaged():
                    assert same(held, own_weights(model))
        return losses, weights(model), auto

    whole, parts = fit(50), fit(4, 50)
    assert whole[0] == parts[0] and same(whole[1], parts[1]) and parts[2].done


def case_runs_of_250_steps_are_averaged_by_default():
    def averages(optimizer=None, **more):
        model = make(plain=True)
        model.compile(optimizer or keras.optimizers.Adam(), model.loss)
        model.optimizer.build(model.trainable_variables)
        auto = callback({**HORIZON, "total_steps": 250, **more})
        auto.set_model(model)
        auto.on_train_begin()
        return auto.session.state.settings.averaging, auto.host.averager is not None

    o, on, off = keras.optimizers, (True, True), (False, False)
    assert averages() == on
    assert averages(total_steps=249) == off and averages(averaging=False) == off
    assert averages(**PAPER) == off and averages(**PAPER, averaging=True) == on
    assert averages(o.Adam(use_ema=True)) == off
    assert averages(o.LossScaleOptimizer(o.Adam(use_ema=True))) == off
    if hasattr(o, "ScheduleFreeAdamW"):
        assert averages(o.ScheduleFreeAdamW()) == off
    refuses(ValueError, "`averaging` must be off", averages, o.Adam(use_ema=True), averaging=True)


def case_a_long_run_without_averaging_trains_as_a_replay_of_its_schedule_does():
    like_a_replay(make, {**HORIZON, "total_steps": 252, "max_cost": 1.3, "averaging": False})


def tensorflow_case_averaged_steps_may_be_eager_compiled_by_xla_or_mirrored_once():
    import tensorflow as tf

    expected = own_weights(averaged_fit()[0])
    for options in ({"run_eagerly": True}, {"jit_compile": True}):
        close(own_weights(averaged_fit(model=make(plain=True, **options))[0]), expected, rtol=1e-2, atol=1e-2)
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        model = make(plain=True)
    close(own_weights(averaged_fit(model=model)[0]), expected, rtol=1e-2, atol=1e-2)
