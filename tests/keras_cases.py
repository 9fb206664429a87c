"""Cases of the Keras adapter, the same for every backend; `test_keras_.py` runs them here and in other processes."""

import json
import os
import signal
import sys
import traceback
import warnings
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import keras
import numpy as np

from autolrs import Schedule
from autolrs.core.types import Failed
from autolrs.keras_ import AutoLRS, KerasHost
from autolrs.keras_.data import size_of_batch
from autolrs.keras_.usual import usual_lr
from autolrs.testing import host_conformance

X = np.random.default_rng(0).normal(size=(42, 6)).astype("float32")
Y = (X @ np.random.default_rng(1).normal(size=(6, 3))).argmax(1)
PAPER = {
    **{"strategy": "paper", "lr": (1e-3, 1e-1), "total_steps": 54, "stage_steps": 18, "max_stage_steps": 36},
    **{"probe_fraction": 0.25, "n_probes": 3},
}
HORIZON = {"strategy": "horizon", "lr": (1e-4, 1.0), "total_steps": 120, "max_cost": 1.7}
FIT = {"batch_size": 7, "verbose": 0}


def make(lr=1e-2, plain=False, shape=(6,), first=(), **options):
    """Dense layers, batch normalisation and dropout; six batches of seven make an epoch."""
    keras.utils.set_random_seed(0)
    middle = [] if plain else [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
    layers = [*first, keras.layers.Dense(8, "relu"), *middle, keras.layers.Dense(3)]
    model = keras.Sequential([keras.layers.Input(shape), *layers] if shape else layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(lr), loss, metrics=["accuracy"], **options)
    return model


def callback(options, **more):
    return AutoLRS(X, Y, batch_size=7, **{**options, **more})


def weights(model):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in (*model.variables, *model.optimizer.variables)]


def trained(model):
    """All variables but the LR, which a replay does not have."""
    values = [v for v in (*model.variables, *model.optimizer.variables) if "learning_rate" not in v.path]
    return [np.array(keras.ops.convert_to_numpy(v)) for v in values]


def same(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def refuses(kind, message, call, *args, **options):
    try:
        call(*args, **options)
    except kind as error:
        assert message in str(error), str(error)
    else:
        raise AssertionError(f"not refused: {message}")


class Log(keras.callbacks.Callback):
    """All that another callback can see."""

    def __init__(self, every_batch=True):
        super().__init__()
        self.rows, self.every_batch = [], every_batch

    def note(self, *what):
        optimizer = self.model.optimizer
        self.rows.append((*what, float(optimizer.learning_rate), int(optimizer.iterations)))

    def on_train_batch_begin(self, batch, logs=None):
        if self.every_batch:
            self.note("begin", batch)

    def on_train_batch_end(self, batch, logs=None):
        if self.every_batch:
            self.note("end", batch, sorted(logs.items()))

    def on_epoch_end(self, epoch, logs=None):
        self.note("epoch", epoch, sorted(logs.items()))


class Harness:
    """Two models take turns, set back to their first values: compiling a new one each time would take minutes."""

    models, turn = [], count()

    def __init__(self):
        if len(self.models) < 2:
            model = make()
            model.train_on_batch(X[:7], Y[:7])  # builds the optimizer and the metrics
            host = KerasHost(model, lambda: model.evaluate(X, Y, verbose=0)[0])
            self.models.append((host, host.snapshot()))
        self.host, first = self.models[next(self.turn) % 2 if len(self.models) == 2 else -1]
        self.host.restore(first)
        if hasattr(self.host.model, "train"):
            self.host.model.train()
        self.rewind()

    def step(self):
        i = self._next % 6 * 7
        self._next += 1
        return self.host.step((X[i : i + 7], Y[i : i + 7]))

    def rewind(self):
        self._next = 0

    def lrs(self):
        return [self.host.lr()]

    def weights(self):
        return [*weights(self.host.model), np.random.get_state()[1]]  # noqa: NPY002 - is restored too


def case_the_host_conforms():
    host_conformance(Harness)


def fit_and_replay(options, every_batch, evaluate=None, **more):
    """A run with probes and a plain `fit` with its schedule log, save and end with the same, to the bit."""
    ends = []
    schedule = None
    for _ in range(2):
        model = make() if schedule is None else make(schedule.to_keras())
        auto = callback(options, evaluate=evaluate and (lambda model=model: evaluate(model)), **more)
        log = Log(every_batch)
        with TemporaryDirectory() as folder:
            path = f"{folder}/{{epoch}}.weights.h5"
            saver = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
            callbacks = [log, saver] if schedule else [auto, log, saver]
            epochs = options["total_steps"] // 6
            history = model.fit(X, Y, **FIT, epochs=epochs, validation_data=(X[:14], Y[:14]), callbacks=callbacks)
            saved = sorted(os.listdir(folder))
            model_saved = make()
            model_saved.load_weights(f"{folder}/2.weights.h5", skip_mismatch=True)
        if schedule is None:
            schedule = Schedule.from_json(auto.schedule.to_json())
            assert auto.done and auto.committed_steps == options["total_steps"] < auto.raw_steps
            assert len(model.metrics_variables) == len(make().metrics_variables) + 2  # an accuracy that is built
        ends.append(
            (history.history, log.rows, saved, [np.array(w) for w in model_saved.get_weights()], trained(model))
        )
    for a, b in zip(ends[0][:3], ends[1][:3], strict=True):
        assert a == b, (a, b)
    assert same(ends[0][3], ends[1][3]) and same(ends[0][4], ends[1][4])


def case_a_paper_run_logs_and_saves_what_a_replay_of_its_schedule_does():
    evaluated = []

    def evaluate(model):
        evaluated.append(model.evaluate(X[:14], Y[:14], verbose=0)[0])
        return evaluated[-1]

    fit_and_replay(PAPER, False, evaluate, eval_every=3)
    assert evaluated


def case_a_horizon_run_logs_and_saves_what_a_replay_of_its_schedule_does():
    # On JAX a callback that looks at the model makes the trainer put its state back, and hides what happens without.
    fit_and_replay(HORIZON, keras.backend.backend() != "jax")


def case_fit_ends_at_total_steps_in_the_middle_of_an_epoch_and_a_second_one_goes_on():
    model, auto = make(), callback(PAPER, total_steps=57)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, Y, **FIT, epochs=4, callbacks=[auto])
    assert ["24 of 57" in str(w.message) for w in caught if w.category is RuntimeWarning] == [True], list(
        map(str, caught)
    )
    history = model.fit(X, Y, **FIT, epochs=100, callbacks=[auto])
    assert auto.done and int(model.optimizer.iterations) == 57 and len(history.epoch) == 6
    assert auto.schedule.total_steps == 57


def case_the_loss_of_each_batch_is_exact():
    model, expected, found = make(plain=True), [], []
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    class See(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            part = slice(7 * batch, 7 * batch + 7)
            value = loss(Y[part], self.model(X[part], training=True))
            expected.append(float(keras.ops.convert_to_numpy(value)))

    auto = callback({**PAPER, "total_steps": 18, "n_probes": 1})
    on_train_begin = auto.on_train_begin

    def watched(logs=None):
        on_train_begin(logs)
        step = auto.session.step
        auto.session.step = lambda loss: (None if auto.session.exploring else found.append(loss), step(loss))[1]

    auto.on_train_begin = watched
    model.fit(X, Y, **FIT, epochs=3, shuffle=False, callbacks=[auto, See()])
    if keras.backend.backend() == "torch":
        assert found == expected
    else:  # compiled there, not here
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(found) == 18


def case_probes_may_read_a_dataset():
    class Sequence(keras.utils.PyDataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return X[7 * i : 7 * i + 7], Y[7 * i : 7 * i + 7]

    model = make()
    auto = AutoLRS(Sequence(workers=1), **PAPER, replay=True)
    model.fit(Sequence(workers=1), epochs=9, verbose=0, callbacks=[auto])
    assert auto.done


def like_a_replay(build, options, data=None):
    """A run with probes and a plain `fit` with its schedule end with the same; `data` makes what each of both reads."""

    def fit(model, *callbacks):
        read = {"x": X, "y": Y, "batch_size": 7} if data is None else {"x": data(), "shuffle": False}
        return model.fit(**read, epochs=options["total_steps"] // 6, verbose=0, callbacks=[*callbacks])

    model = build(1e-2)
    auto = callback(options) if data is None else AutoLRS(data(), **options)
    history = fit(model, auto)
    assert auto.done and auto.raw_steps > auto.committed_steps
    again = build(auto.schedule.to_keras())
    replay = fit(again)
    assert replay.history == history.history and same(trained(again), trained(model))


SHORT = {**PAPER, "total_steps": 24, "n_probes": 2}


def tensorflow_case_a_model_may_be_built_by_fit():
    def build(lr):
        return make(lr, shape=None)

    like_a_replay(build, SHORT)


def tensorflow_case_steps_may_be_eager_or_compiled_by_xla():
    for options in ({"run_eagerly": True}, {"jit_compile": True}):
        like_a_replay(lambda lr, options=options: make(lr, **options), SHORT)


def tensorflow_case_a_step_is_traced_for_probes_and_for_fit_whatever_the_lr():
    traced = []

    class Count(keras.layers.Layer):
        def call(self, x, training=False):
            traced.extend([1] if training else [])
            return x

    auto = callback(HORIZON)
    make(first=[Count()]).fit(X, Y, **FIT, epochs=50, callbacks=[auto])
    assert auto.done and len(traced) == 2, traced


def tensorflow_case_fit_and_probes_may_read_datasets_of_tensorflow():
    import tensorflow as tf

    def data():
        return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(42, seed=0).batch(7)

    for options in (SHORT, {**SHORT, "replay": True}):
        like_a_replay(make, options, data)
    assert size_of_batch(next(iter(data()))) == 7 * 6 * 4 + 7 * 8


def tensorflow_case_a_graph_may_draw_from_the_global_seed_generator():
    class Noise(keras.layers.Layer):
        def call(self, x, training=False):
            return x + 0.1 * keras.random.normal((6,)) if training else x

    like_a_replay(lambda lr: make(lr, first=[Noise()]), SHORT)


def tensorflow_case_a_model_may_have_a_train_step_and_no_call():
    import tensorflow as tf

    class Coder(keras.Model):
        def __init__(self):
            super().__init__()
            self.code = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(2), keras.layers.Dense(6)])
            self.tracker = keras.metrics.Mean(name="loss")

        @property
        def metrics(self):
            return [self.tracker]

        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.code(data[0]) - data[0]) ** 2)
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

    def build(lr):
        keras.utils.set_random_seed(0)
        model = Coder()
        model.compile(keras.optimizers.Adam(lr))
        return model

    like_a_replay(build, SHORT)


def tensorflow_case_a_model_may_be_mirrored_once_but_not_twice():
    import tensorflow as tf

    def build(lr):
        with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
            return make(lr)

    like_a_replay(build, SHORT)
    model = make()
    model._distribute_strategy = SimpleNamespace(num_replicas_in_sync=2)
    refuses(ValueError, "must have 1 replica, got 2", KerasHost, model)


def case_sgd_is_known_by_its_steps_unless_the_user_says_otherwise():
    def known(optimizer, **more):
        model = make()
        model.compile(optimizer, model.loss)
        auto = callback(HORIZON, **more)
        model.fit(X, Y, epochs=1, callbacks=[auto], **FIT)
        return auto.session.state.settings.proportional_steps

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `fit` ends early
        assert known(keras.optimizers.SGD(0.1)) and known(keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True))
        assert known(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
        assert not known(keras.optimizers.Adam(0.1)) and not known(keras.optimizers.RMSprop(0.1))
        assert not known(keras.optimizers.SGD(0.1), proportional_steps=False)


def case_a_network_that_was_trained_before_is_known_by_its_norms():
    def known(moved=False, norm=keras.layers.LayerNormalization, **more):
        model = keras.Sequential([keras.layers.Input((6,)), norm(), keras.layers.Dense(3)])
        model.compile(keras.optimizers.Adam(1e-3), make().loss)
        if moved:
            model.layers[0].weights[0].assign([1.0, 0.9, 1.1, 1.0, 1.0, 1.0])
        auto = callback(HORIZON, **more)
        model.fit(X, Y, epochs=1, callbacks=[auto], **FIT)
        return auto.session.state.settings.trained_before

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `fit` ends early
        for norm in (keras.layers.LayerNormalization, keras.layers.BatchNormalization, keras.layers.RMSNormalization):
            assert not known(norm=norm) and known(norm=norm, moved=True)
        assert not known(moved=True, trained_before=False) and known(trained_before=True)


def case_a_network_with_norms_is_known():
    def known(layer, **more):
        model = keras.Sequential([keras.layers.Input((6,)), layer, keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(1e-3), make().loss)
        auto = callback(HORIZON, **more)
        model.fit(X, Y, epochs=1, callbacks=[auto], **FIT)
        return auto.session.state.settings.normalised

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `fit` ends early
        assert known(keras.layers.BatchNormalization()) and known(keras.layers.GroupNormalization(2))
        assert not known(keras.layers.BatchNormalization(), normalised=False)
        inputs = keras.layers.Normalization()  # scales data, and is not trained
        inputs.adapt(X)
        assert not known(keras.layers.Dense(6)) and not known(inputs)


def case_the_usual_lr_of_adam_is_known_by_the_layers():
    layers = keras.layers
    tokens, vectors = keras.Input((7,), dtype="int32"), keras.Input((7, 32))
    frozen = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(16, 3), layers.Flatten(), layers.Dense(2)])
    frozen.layers[0].trainable = False
    recurrent = layers.Dense(1)(layers.LSTM(64)(layers.Embedding(100, 24)(tokens)))
    for model, inputs in (
        (keras.Sequential([keras.Input((16,)), layers.Dense(32), layers.Dense(128)]), (16 * 32) ** 0.5),
        (keras.Model(tokens, recurrent), (24 * 64 * 64) ** (1 / 3)),  # a table of embeddings does not count
        (keras.Model(vectors, layers.MultiHeadAttention(4, 8)(vectors, vectors)), 32),
        (frozen, 36 * 16),
        (keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(16, 5), layers.Conv2D(4, 3)]), (15 * 48) ** 0.5),
    ):
        for optimizer in (keras.optimizers.Adam(), keras.optimizers.AdamW(), keras.optimizers.Nadam()):
            assert abs(usual_lr(model, optimizer) * inputs / 0.8 - 1) < 0.01
        assert usual_lr(model, keras.optimizers.SGD()) is None and usual_lr(model, keras.optimizers.RMSprop()) is None
    assert usual_lr(keras.Sequential([keras.Input((4,)), layers.Rescaling(2)]), keras.optimizers.Adam()) is None
    normed = keras.Sequential([keras.Input((4,)), layers.Dense(8), layers.LayerNormalization(), layers.Dense(1)])
    assert [usual_lr(normed, keras.optimizers.SGD(momentum=momentum)) for momentum in (0.0, 0.9)] == [0.6, 0.06]


def settings_of_a_run(optimizer, **more):
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(3)])
    model.compile(optimizer, make().loss)
    auto = callback(HORIZON, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `fit` ends early
        model.fit(X, Y, epochs=1, callbacks=[auto], **FIT)
    return auto.session.state.settings


def case_a_run_with_adam_goes_by_the_usual_lr():
    def known(optimizer, **more):
        return settings_of_a_run(optimizer, **more).usual_lr

    assert known(keras.optimizers.Adam(1e-3)) == 0.133 and known(keras.optimizers.SGD(1e-3)) is None
    assert known(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-3))) == 0.133
    assert known(keras.optimizers.Adam(1e-3), usual_lr=0.02) == 0.02
    assert known(keras.optimizers.Adam(1e-3), usual_lr=None) is None


def case_it_is_known_whose_first_steps_are_large():
    def known(optimizer, **more):
        return settings_of_a_run(optimizer, **more).uncorrected

    assert known(keras.optimizers.RMSprop(1e-3)) == 0.9 and known(keras.optimizers.RMSprop(1e-3, rho=0.99)) == 0.99
    assert known(keras.optimizers.RMSprop(1e-3), uncorrected=None) is None
    assert known(keras.optimizers.Adagrad(1e-3, initial_accumulator_value=0.0)) == 1.0
    assert known(keras.optimizers.Adagrad(1e-3)) is None and known(keras.optimizers.Adam(1e-3)) is None


def case_a_loss_that_is_not_finite_undoes_the_stretch():
    model, auto, events = make(), callback(HORIZON), []
    broken = [False]

    class Break(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if auto.committed_steps == 40 and not broken[0]:
                broken[0] = True
                # The last one: TensorFlow's fused relu may turn a NaN into 0.
                self.model.layers[-1].kernel.assign(np.full((8, 3), np.nan))
                auto.session.listeners.append(events.append)

    model.fit(X, Y, **FIT, epochs=50, callbacks=[auto, Break()])
    assert sum(isinstance(event, Failed) for event in events) == 1
    assert auto.done and int(model.optimizer.iterations) == 120 and all(np.isfinite(w).all() for w in weights(model))


def case_what_cannot_work_is_refused_by_name():
    def fit(model, auto):
        model.fit(X, Y, **FIT, callbacks=[auto])

    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    refuses(ValueError, "is a schedule: give it a number", fit, make(schedule), callback(PAPER))
    refuses(ValueError, "keep_winner", callback, PAPER, keep_winner=True, replay=True)
    refuses(ValueError, "ModelCheckpoint(save_best_only=True)", callback, PAPER, keep_best=True)
    refuses(ValueError, "save_freq", callback, PAPER, save_freq=0)
    refuses(TypeError, "unknown setting `stages`", fit, make(), callback(PAPER, stages=3))

    with TemporaryDirectory() as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make().fit(X, Y, **FIT, epochs=3, callbacks=[callback(PAPER, run_dir=folder)])
        refuses(FileExistsError, "resume=True", fit, make(), callback(PAPER, run_dir=folder))
        again = callback(PAPER, run_dir=folder, resume=True)
        refuses(ValueError, "stands at iteration 0, but", fit, make(), again)
        again = callback(PAPER, run_dir=folder, resume=True, n_probes=4)
        refuses(ValueError, "`n_probes` is 3", fit, make(), again)


def case_another_callback_that_sets_the_lr_is_noticed():
    other = keras.callbacks.LearningRateScheduler(lambda epoch, lr: 0.5 if epoch == 2 else lr)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, auto = make(), callback(PAPER)
        model.fit(X, Y, **FIT, epochs=9, callbacks=[auto, other])
    assert ["LR is 0.5 but autolrs set" in str(w.message) for w in caught if w.category is RuntimeWarning] == [True], (
        list(map(str, caught))
    )
    assert auto.done


def toys(values):
    return {strategy: toy(strategy, options) for strategy, options in values.items()}


def toy(strategy, values):
    """Two coordinates of a quadratic, whose schedule every adapter finds alike."""
    _, auto, fit = quadratic([1.0, 0.05], strategy=strategy, **values)
    fit()
    return auto.schedule.to_json()["segments"]


def quadratic(curvature, optimizer=None, **values):
    """A model with two weights, its callback, and what trains it."""
    curvature = np.array(curvature, "float32")

    class Toy(keras.layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(2,), initializer="ones")

        def call(self, x):
            return x + 0.5 * keras.ops.sum(keras.ops.convert_to_tensor(curvature) * self.w * self.w) + 0.1

    model = keras.Sequential([keras.layers.Input((1,)), Toy()])
    model.compile(optimizer or keras.optimizers.SGD(0.1), lambda y, prediction: prediction[:, 0])
    data = np.zeros((5, 1), "float32")
    auto = AutoLRS(data, data, batch_size=1, **{"averaging": False, **values})
    return (
        model,
        auto,
        lambda *more: model.fit(data, data, batch_size=1, epochs=1000, verbose=0, callbacks=[auto, *more]),
    )


AVERAGED = {**HORIZON, "averaging": True}
OPTIONS = {"paper": PAPER, "horizon": HORIZON, "averaged": AVERAGED}


def resumable(folder, strategy, resume, *more):
    auto = callback(OPTIONS[strategy], run_dir=Path(folder) / "run", resume=resume)
    backup = keras.callbacks.BackupAndRestore(Path(folder) / "keras", delete_checkpoint=False)
    return auto, [auto, backup, *more]


class Kill(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


def killed(folder, stop, strategy):
    """Train in `folder` until this process is killed after batch `stop`."""
    make().fit(X, Y, **FIT, epochs=50, callbacks=resumable(folder, strategy, False, Kill(stop))[1])


def resumed(folders):
    return {strategy: goes_on(folder, strategy) for strategy, folder in folders.items()}


def goes_on(folder, strategy):
    whole, auto = make(), callback(OPTIONS[strategy])
    expected = whole.fit(X, Y, **FIT, epochs=50, callbacks=[auto]).history
    model = make()
    keras.utils.set_random_seed(99)  # a new process has another random state
    if keras.backend.backend() == "tensorflow":  # but for the order of `fit`'s own batches: its seed is the script's
        import tensorflow as tf

        tf.random.set_seed(0)
    again, callbacks = resumable(folder, strategy, True)
    history = model.fit(X, Y, **FIT, epochs=50, callbacks=callbacks)
    assert again.schedule == auto.schedule == Schedule.load(Path(folder) / "run" / "schedule.json")
    assert same(weights(model), weights(whole))
    assert history.history["loss"] == expected["loss"][-len(history.epoch) :]
    return history.epoch[0]


if __name__ == "__main__":
    what, *rest = json.loads(sys.argv[1])
    if what == "cases":
        import keras_averaging_cases  # which builds on this file

        report, cases = {}, {**globals(), **vars(keras_averaging_cases)}
        for name, case in [(n, c) for n, c in cases.items() if n.startswith(rest[0] if rest else "case_")]:
            try:
                case()
                report[name] = ""
            except Exception:
                report[name] = traceback.format_exc()
        print(json.dumps(report))
    else:
        print(json.dumps(globals()[what](*rest)))
