"""Cases of averaging under JAX. `test_jax_.py` runs them all in one process of their own; see `jax_cases.py`."""

import math
from collections import namedtuple
from functools import partial
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from flax import nnx, serialization
from flax.training.train_state import TrainState

import autolrs.jax_
from autolrs.core.averaging import PLAIN_SHARPNESS, SHARPNESS, share
from autolrs.core.types import Averaged, Committed, Failed, Noted
from autolrs.jax_ import averaging
from autolrs.jax_.averaging import Averager, find
from autolrs.run import archive, journal
from autolrs.testing import host_conformance
from jax_cases import HORIZON, PAPER, Harness, X, Y, adam, arrays, loop, loss_of, main, make, refuses, same
from jax_cases import train as run

AVERAGED = {**HORIZON, "averaging": True}
REPLANNED = {**AVERAGED, "total_steps": 400, "mini_fraction": 0.05, "replan_at": (0.5,), "max_cost": 2.0}
inject = optax.inject_hyperparams


def host_of(optimizer, params=0.0, **more):
    """A host whose weights are moved by hand, beside the state of an optimizer that could have moved them."""
    params = jax.tree.map(jnp.asarray, params)
    return autolrs.jax_.JaxHost({"params": params, "opt": optimizer.init(params), **more})


def averager_of(host):
    host.tracked = averager = find(host, None)
    host.around_evaluate = averager.averaged
    return averager


def put(host, params):
    host.state = {**host.state, "params": jax.tree.map(jnp.asarray, params)}


def until(auto, step, committed):
    """Train until so many steps are committed; returns how many were taken in all."""
    loop(auto, step, [], 0)
    while auto.committed_steps < committed:
        loop(auto, step, [], auto.raw_steps + 1)
    return auto.raw_steps


def hyperparams(state, name):
    return [float(value) for _, value in optax.tree.get_all_with_path(state, name)]


def copied(averager):
    return jax.tree.map(np.array, averager.state_dict())


def equal(a, b):
    return jax.tree.structure(a) == jax.tree.structure(b) and same(jax.tree.leaves(a), jax.tree.leaves(b))


def validation(state):
    return loss_of(state["params"], jax.random.key(0), {"x": jnp.asarray(X), "y": jnp.asarray(Y)})


# The formula


def reference(steps, b, scale):
    """x, y of Schedule-Free's three lines, for a z that moves by `scale` times the optimizer's steps."""
    z = x = y = steps[0]
    for t, step in enumerate(steps[1:], start=1):
        z = z + scale * step
        c = (SHARPNESS + 1) / (t + SHARPNESS + 1)
        x = x + c * (z - x)
        y = (1 - b) * z + b * x
    return x, y


def case_x_and_y_follow_the_three_lines():
    for optimizer, momentum, scale in (
        (inject(optax.adam)(1e-3), 0.9, 1.0),
        (inject(optax.adamw)(1e-3, b1=0.75), 0.75, 1.0),
        (inject(optax.nadam)(1e-3, b1=0.5), 0.5, 1.0),
        (inject(optax.radam)(1e-3, b1=0.5), 0.5, 1.0),
        (inject(optax.adamax)(1e-3, b1=0.5), 0.5, 1.0),
        (inject(optax.yogi)(1e-3, b1=0.5), 0.5, 1.0),
        (inject(optax.lamb)(1e-3, b1=0.5), 0.5, 1.0),
        (inject(optax.rmsprop)(1e-3, momentum=0.75), 0.75, 2.0),
        (inject(optax.sgd)(1e-3, momentum=0.99), 0.99, 10.0),
        (inject(optax.sgd)(1e-3, momentum=0.75, nesterov=True), 0.75, 2.0),
        (optax.chain(optax.clip_by_global_norm(1.0), inject(optax.sgd)(1e-3, momentum=0.75)), 0.75, 2.0),
    ):
        host = host_of(optimizer)
        averager = averager_of(host)
        steps = np.random.default_rng(0).normal(size=50)
        for step in steps:
            put(host, host.state["params"] + np.float32(step))
            averager.update()
        x, y = reference(steps, share(momentum), scale)
        np.testing.assert_allclose(host.state["params"], y, rtol=1e-4)
        with averager.averaged():
            np.testing.assert_allclose(host.state["params"], x, rtol=1e-4)
        np.testing.assert_allclose(host.state["params"], y, rtol=1e-4)
        assert abs(x - y) > 1e-3


def case_without_a_momentum_to_share_the_training_is_not_touched():
    one, two = jnp.zeros(()), jnp.zeros(3)
    different = {"a": adam(1e-3), "b": inject(optax.adam)(1e-3, b1=0.8)}
    for optimizer in (
        inject(optax.lion)(1e-3),  # its b1 is something else
        inject(optax.sgd)(1e-3),
        inject(optax.adam)(1e-3, b1=0.0),
        inject(optax.adam)(1e-3, b1=lambda count: 0.9),
        inject(optax.adam, static_args="b1")(1e-3),
        optax.adam(1e-3),
        optax.multi_transform(different, {"one": "a", "two": "b"}),
        optax.multi_transform({"a": adam(1e-3), "b": optax.adam(1e-3)}, {"one": "a", "two": "b"}),
        optax.multi_transform({"a": adam(1e-3), "b": inject(optax.lion)(1e-3)}, {"one": "a", "two": "b"}),
        optax.multi_transform(  # their steps are not of one kind
            {"a": adam(1e-3), "b": inject(optax.sgd)(1e-3, momentum=0.9)}, {"one": "a", "two": "b"}
        ),
    ):
        host = host_of(optimizer, {"one": one, "two": two})
        averager = averager_of(host)
        before, expected = arrays(host.state["opt"]), 0.0
        for n in range(200):
            put(host, {"one": float(n), "two": jnp.full(3, float(n))})
            averager.update()
            assert float(host.state["params"]["one"]) == n
            expected += (PLAIN_SHARPNESS + 1) / (n + PLAIN_SHARPNESS + 1) * (n - expected)
        np.testing.assert_allclose(averager.state()["params"]["one"], expected, rtol=1e-5)
        assert same(arrays(host.state["opt"]), before)
        assert not averager.state_dict()["v"]  # takes no memory
        averager.finish(average=True)
        assert same(arrays(host.state["opt"]), before)


def case_an_optimizer_that_moves_more_than_is_averaged_keeps_its_momentum():
    state = {"params": jnp.zeros(2), "other": jnp.zeros(3)}
    both = {"params": state["params"], "other": state["other"]}
    for more in ({"opt": adam(1e-3).init(both)}, {name: adam(1e-3).init(both[name]) for name in ("params", "other")}):
        host = autolrs.jax_.JaxHost({"nets": state, **more})
        averager = Averager(host, lambda state: state["nets"]["params"])
        averager.update()
        assert set(hyperparams(host.state, "b1")) == {float(np.float32(0.9))}
        averager = Averager(host, lambda state: state["nets"])
        averager.update()
        np.testing.assert_allclose(hyperparams(host.state, "b1"), share(0.9), rtol=1e-6)


def case_several_optimizers_with_one_momentum_share_it():
    parts = {"a": adam(1e-2), "b": inject(optax.adamw)(1e-3), "frozen": optax.set_to_zero()}
    labels = {"x": "a", "y": "b", "z": "frozen"}
    host = host_of(optax.multi_transform(parts, labels), {name: jnp.ones(2) for name in labels})
    averager = averager_of(host)
    before = arrays(host.state["opt"])
    averager.update()
    np.testing.assert_allclose(hyperparams(host.state, "b1"), [share(0.9)] * 2, rtol=1e-6)
    averager.finish(average=False)
    assert same(arrays(host.state["opt"]), before)


def case_a_leaf_that_does_not_move_stays_to_the_bit():
    for optimizer in (adam(1e-3), inject(optax.sgd)(1e-3, momentum=0.9), inject(optax.sgd)(1e-3)):
        still = np.random.default_rng(0).normal(size=7).astype(np.float32)
        host = host_of(optimizer, {"still": still, "moves": np.zeros(3, np.float32)})
        averager = averager_of(host)
        for n in range(300):
            step = np.random.default_rng(n).normal(size=3).astype(np.float32)
            put(host, {**host.state["params"], "moves": host.state["params"]["moves"] + step})
            averager.update()
        assert np.array_equal(host.state["params"]["still"], still)
        assert np.array_equal(averager.state()["params"]["still"], still)


def case_leaves_that_are_no_floating_point_arrays_are_left_alone():
    params = {"w": jnp.zeros(3), "table": jnp.arange(3), "key": jax.random.key(0)}
    host = autolrs.jax_.JaxHost({"params": params})
    averager = averager_of(host)
    for n in range(3):
        put(host, {**params, "w": params["w"] + n, "table": params["table"] + n})
        averager.update()
    assert arrays(averager.state())[1].tolist() == [2, 3, 4] and len(averager.state_dict()["x"]) == 1


def case_half_precision_weights_have_an_average_in_single_precision():
    for dtype in (jnp.bfloat16, jnp.float16):
        optimizer = inject(optax.sgd)(0.05, momentum=0.9)
        host = host_of(optimizer, jnp.zeros(6, dtype))
        averager = averager_of(host)

        @partial(jax.jit, donate_argnums=0)
        def step(state, optimizer=optimizer, dtype=dtype):
            def error(w):
                return jnp.mean((X.astype(dtype) @ w - X.sum(1).astype(dtype)) ** 2)

            loss, gradient = jax.value_and_grad(error)(state["params"])
            updates, opt = optimizer.update(gradient, state["opt"], state["params"])
            return {**state, "params": optax.apply_updates(state["params"], updates), "opt": opt}, loss

        losses = []
        for _ in range(200):
            host.state, loss = step(host.state)
            losses.append(float(loss))
            averager.update()
        assert host.state["params"].dtype == dtype and averager.state()["params"].dtype == dtype
        assert {leaf.dtype for name in "xv" for leaf in averager.state_dict()[name]} == {jnp.dtype("float32")}
        assert losses[-1] < 0.01 * losses[0] and step._cache_size() == 1
        assert not np.array_equal(averager.state_dict()["x"][0], averager.state()["params"].astype(jnp.float32))
        averager.finish(average=True)
        assert host.state["params"].dtype == dtype


def case_an_array_that_stands_twice_in_the_state_is_averaged_once_and_not_lost():
    params = jnp.ones(3)
    host = host_of(adam(1e-3), params, mine=params, then=params)  # as an average of the user's may begin
    averager = averager_of(host)
    averager.update()  # before anything moved: these arrays are the user's
    for _ in range(3):
        new = host.state["params"] + 1.0
        host.state = {**host.state, "params": new, "mine": new, "then": new}
        averager.update()
        assert np.array_equal(host.state["mine"], new)
    assert len(averager.state_dict()["x"]) == 1 and np.array_equal(params, jnp.ones(3))
    assert not np.array_equal(host.state["mine"], host.state["params"])


# In a run


class Averaging(Harness):
    """The host of every adapter's suite, whose steps go into an average."""

    def __init__(self):
        super().__init__()
        self.averager = averager_of(self.host)

    def step(self):
        loss = super().step()
        self.averager.update()
        return loss

    def weights(self):
        return [*super().weights(), *jax.tree.leaves(copied(self.averager))]


def case_the_host_conforms_with_an_average():
    host_conformance(Averaging)


def case_a_run_averages_by_default_where_it_can():
    def averages(state, **options):
        return autolrs.jax_.AutoLRS(state, **{**HORIZON, **options}).settings.averaging

    state = make()[1]
    nothing = {name: value for name, value in state.items() if name != "params"}
    flax = TrainState.create(apply_fn=None, params=state["params"], tx=adam(1e-3))
    named = namedtuple("named", "params opt")(state["params"], state["opt"])
    for known in (state, flax, named):
        assert averages(known) and not averages(known, total_steps=249) and not averages(known, averaging=False)
        assert averages(known, total_steps=249, averaging=True)
    assert not averages(nothing) and not averages({**nothing, "params": "sgd"}) and not averages((state["params"],))
    assert averages((state["params"],), params=lambda state: state[0])
    assert averages(nothing, params=lambda state: state["mean"])
    assert not autolrs.jax_.AutoLRS(state, **PAPER).settings.averaging
    free = optax.contrib.schedule_free_sgd(1e-2)  # averages itself
    assert not averages({**state, "opt": free.init(state["params"])})


def case_the_journal_says_where_weights_were_not_found():
    step, state = make()
    for options, notes in (
        ({}, 1),
        ({"params": lambda state: state["weights"]}, 0),
        ({"averaging": False}, 0),
        ({"total_steps": 240}, 0),
    ):
        moved = {name: value for name, value in jax.tree.map(jnp.copy, state).items() if name != "params"}
        moved["weights"] = jax.tree.map(jnp.copy, state["params"])

        def renamed(state, batch, lr):
            rest = {name: value for name, value in state.items() if name != "weights"}
            new, loss = step({**rest, "params": state["weights"]}, batch, lr)
            return {**{name: new[name] for name in rest}, "weights": new["params"]}, loss

        with TemporaryDirectory() as folder:
            auto = autolrs.jax_.AutoLRS(moved, **{**HORIZON, "run_dir": folder, **options})
            loop(auto, renamed, [], 3)
            said = [event.message for event in journal.read(folder) if isinstance(event, Noted)]
        assert len([message for message in said if "params=lambda" in message]) == notes, said


def case_momentum_is_the_users_in_probes_half_in_the_run_and_the_users_again_after_it():
    for optimizer, name, momentum in (
        (None, "b1", 0.9),
        (inject(optax.sgd)(1e-2, momentum=0.8), "momentum", 0.8),
    ):
        step, state = make(optimizer)
        auto = autolrs.jax_.AutoLRS(state, **AVERAGED)
        seen = {True: set(), False: set()}

        def watched(state, batch, lr, seen=seen, auto=auto, step=step, name=name):
            if auto.exploring or auto.committed_steps:
                seen[auto.exploring].add(hyperparams(state["opt"], name)[0])
            return step(state, batch, lr)

        loop(auto, watched, [])
        single = lambda value: float(np.float32(value))  # noqa: E731
        assert seen[True] == {single(momentum)} and seen[False] == {single(share(single(momentum)))}, seen
        assert hyperparams(auto.state["opt"], name) == [single(momentum)]


def case_the_search_is_the_same_with_averaging_and_without():
    shape = {"horizon_shift": 1.0, "hold_until": 0.5, "decay_to": 0.1, "warmup_fraction": 0.05}
    segments = [run({**HORIZON, **shape, "averaging": on})[0].schedule.segments for on in (False, True)]
    assert segments[0] == segments[1]


def case_nothing_is_compiled_twice():
    step, state = make(adam(1e-3))  # a step of its own
    moves, mixes = averaging._move._cache_size(), averaging._mix._cache_size()
    auto = autolrs.jax_.AutoLRS(jax.tree.map(jnp.asarray, state), **REPLANNED, evaluate=validation)
    loop(auto, step, [])
    auto.extend(450)
    loop(auto, step, [])
    assert step._cache_size() == 1
    assert averaging._move._cache_size() - moves <= 1 and averaging._mix._cache_size() == mixes


def case_evaluate_sees_the_averaged_weights_and_the_averaged_state_is_a_copy():
    seen = []

    def evaluate(state):
        seen.append(arrays(state["params"]))
        return validation(state)

    step, state = make()
    auto = autolrs.jax_.AutoLRS(state, **AVERAGED, evaluate=evaluate)
    assert same(arrays(auto.averaged_state), arrays(auto.state))
    until(auto, step, 150)
    before, averaged = arrays(auto.state), auto.averaged_state
    auto.host.evaluate()
    auto.host.evaluate(raw=True)
    assert same(seen[-2], arrays(averaged["params"])) and same(seen[-1], arrays(auto.state["params"]))
    assert not same(*seen[-2:])
    assert all(same(arrays(averaged[name]), arrays(auto.state[name])) for name in averaged if name != "params")
    kept = arrays(averaged)
    assert same(arrays(auto.state), before)
    loop(auto, step, [])  # donates the live state, and x
    assert same(arrays(averaged), kept) and same(arrays(auto.averaged_state), arrays(auto.state))
    refuses(RuntimeError, "averaging", lambda: autolrs.jax_.AutoLRS(state, **PAPER).averaged_state)


def handed_over(losses):
    """Run with these as the last validation losses: what was said at the end, the weights, and what `evaluate` saw."""
    seen, answers, events = [], list(losses), []

    def evaluate(state):
        if auto.committed_steps < 300:
            return validation(state)
        seen.append(arrays(state["params"]))
        return answers.pop(0)

    step, state = make()
    options = {"evaluate": evaluate, "keep_best": False} if losses else {}
    auto = autolrs.jax_.AutoLRS(state, **AVERAGED, **options)
    auto.session.listeners.append(events.append)
    loop(auto, step, [])
    (event,) = [event for event in events if isinstance(event, Averaged)]
    assert not answers and hyperparams(auto.state["opt"], "b1") == [float(np.float32(0.9))]
    return event, arrays(auto.state["params"]), seen


def case_the_state_ends_with_the_averaged_weights_unless_the_others_are_better_by_more_than_chance():
    for losses, used in (((1.0, 1.5), True), ((1.0, 0.996), True), ((1.0, 0.994), False), ((math.nan, 1.0), False)):
        event, end, (x, y) = handed_over(losses)
        assert event.used == used and same(end, x if used else y) and not same(x, y)
    event, end, _ = handed_over(())  # nobody to ask
    assert event == Averaged(True)


def case_a_paper_run_averages_if_it_is_asked_to():
    for options in (PAPER, {**PAPER, "preset": "practical"}):
        auto, _ = run(options, averaging=True)
        plain, _ = run(options)
        assert auto.done and not same(arrays(auto.state["params"]), arrays(plain.state["params"]))
        assert same(arrays(auto.averaged_state), arrays(auto.state))
        assert hyperparams(auto.state["opt"], "b1") == [float(np.float32(0.9))]


def failing(fails):
    """A run whose loss is not finite in that committed step: average and b1 before it and when it was undone."""
    step, state = make()
    states, calls = {}, 0

    def broken(state, batch, lr):
        nonlocal calls
        calls += not auto.exploring
        state, loss = step(state, batch, lr)
        return state, loss * (np.float32(np.nan) if calls == fails else np.float32(1))

    def keep(event):
        if isinstance(event, (Committed, Failed)) and Failed not in states:
            states[type(event)] = copied(auto._averager), hyperparams(auto.state["opt"], "b1")

    auto = autolrs.jax_.AutoLRS(state, **AVERAGED)
    auto.session.listeners.append(keep)
    loop(auto, broken, [])
    assert auto.done and all(np.isfinite(leaf).all() for leaf in arrays(auto.state["params"]))
    return states


def case_a_stretch_that_failed_is_undone_in_the_average_too():
    states = failing(200)
    assert states[Committed][0]["steps"] > 100 and equal(states[Committed][0], states[Failed][0])
    np.testing.assert_allclose([b1 for _, b1 in states.values()], share(0.9), rtol=1e-6)
    states = failing(5)  # in the first stretch: there is no average to go back to
    assert states[Failed][0]["steps"] == 0 and states[Failed][1] == [float(np.float32(0.9))]


def case_probes_part_way_go_on_with_the_average_and_leave_it_as_it_was():
    step, state = make()
    auto = autolrs.jax_.AutoLRS(state, **REPLANNED)
    there = until(auto, step, 200)
    assert auto.exploring
    before = copied(auto._averager), arrays(auto.state)
    loop(auto, step, [], there + 10)
    assert auto._averager.state_dict()["steps"] == 210 and not same(arrays(auto.state), before[1])
    while auto.exploring:
        loop(auto, step, [], auto.raw_steps + 1)
    assert auto.raw_steps >= there + 2 * 20 and auto.committed_steps == 200
    assert equal(copied(auto._averager), before[0])
    assert same(
        arrays(auto.state["params"]), arrays(jax.tree.unflatten(jax.tree.structure(state), before[1])["params"])
    )


def case_a_run_goes_on_from_the_middle_of_an_averaged_probe_to_the_bit():
    whole, losses = run(REPLANNED)
    for stop in (whole.raw_steps - 100, whole.raw_steps - 230):
        half, first = run(REPLANNED, stop)
        assert half._averager.begun and half.exploring == (stop == whole.raw_steps - 230)
        saved = serialization.msgpack_serialize(half.state_dict())
        step, state = make()
        auto = autolrs.jax_.AutoLRS(jax.tree.map(jnp.asarray, state), **REPLANNED)
        auto.load_state_dict(serialization.msgpack_restore(saved))
        assert equal(copied(auto._averager), copied(half._averager))
        loop(auto, step, first)
        assert auto.schedule == whole.schedule and np.array_equal(np.array(first), np.array(losses))
        assert same(arrays(auto.state), arrays(whole.state))


def case_checkpoints_without_averages_load_where_averaging_is_off():
    options = {**HORIZON, "averaging": False}
    whole, losses = run(options)
    half, first = run(options, 350)
    old = archive.unpack(half.state_dict())
    old["host"]["states"] = {key: part[:3] for key, part in old["host"]["states"].items()}  # as they were written once
    step, state = make()
    auto = autolrs.jax_.AutoLRS(state, **options)
    auto.load_state_dict(archive.pack(old))
    loop(auto, step, first)
    assert np.array_equal(np.array(first), np.array(losses)) and same(arrays(auto.state), arrays(whole.state))
    other = autolrs.jax_.AutoLRS(make()[1], **AVERAGED)
    refuses(
        ValueError, "`averaging` is False in the checkpoint and True here", other.load_state_dict, archive.pack(old)
    )


def case_a_run_that_is_resumed_averages_as_it_began():
    with TemporaryDirectory() as folder:
        whole, losses = run({**HORIZON, "averaging": False})
        run({**HORIZON, "averaging": False}, 250, run_dir=folder)
        auto, rest = run(HORIZON, run_dir=folder, resume=True)
        assert not auto.settings.averaging and same(arrays(auto.state), arrays(whole.state))
        assert np.array_equal(np.array(rest), np.array(losses)[-len(rest) :])
        refuses(ValueError, "`averaging` is False in", run, AVERAGED, run_dir=folder, resume=True)
    with TemporaryDirectory() as folder:
        run({**AVERAGED, "total_steps": 240}, 3, run_dir=folder)
        auto, _ = run({**HORIZON, "total_steps": 240}, run_dir=folder, resume=True)
        assert auto.settings.averaging and auto.done
        state = tuple(make()[1].values())
        other = {**HORIZON, "total_steps": 240, "run_dir": folder, "resume": True}
        refuses(ValueError, "lambda state: state[0]", autolrs.jax_.AutoLRS, state, **other)


def case_the_best_state_holds_the_averaged_weights():
    held_out = {"x": jnp.asarray(X[::-1]), "y": jnp.asarray(Y)}  # labels of others: the loss rises as training goes on

    def evaluate(state):
        return loss_of(state["params"], jax.random.key(0), held_out)

    for keep_best in ("auto", True):
        events = []
        step, state = make()
        options = {**AVERAGED, "max_cost": 2.5, "keep_best": keep_best}
        auto = autolrs.jax_.AutoLRS(state, **options, evaluate=evaluate)
        auto.session.listeners.append(events.append)
        loop(auto, step, [])
        assert auto.best.step < 300
        if keep_best is True:
            auto.restore_best()
        assert float(evaluate(auto.state)) == auto.best.loss and not auto._averager.begun
        assert hyperparams(auto.state["opt"], "b1") == [float(np.float32(0.9))]


def case_an_extension_after_the_end_averages_anew():
    step, state = make()
    auto = autolrs.jax_.AutoLRS(state, **AVERAGED)
    loop(auto, step, [])
    auto.extend(400)
    loop(auto, step, [], auto.raw_steps + 50)
    np.testing.assert_allclose(hyperparams(auto.state["opt"], "b1"), share(0.9), rtol=1e-6)
    assert auto._averager.state_dict()["steps"] == 50
    loop(auto, step, [])
    assert auto.committed_steps == 400 and hyperparams(auto.state["opt"], "b1") == [float(np.float32(0.9))]
    assert same(arrays(auto.averaged_state), arrays(auto.state))


def case_a_state_replaced_before_the_first_step_is_what_is_averaged():
    whole, losses = run(AVERAGED)
    step, state = make()
    auto = autolrs.jax_.AutoLRS({"a": 0, **state}, **AVERAGED)  # its leaves stand elsewhere
    auto.state = jax.tree.map(jnp.asarray, state)
    rest = []
    loop(auto, step, rest)
    assert np.array_equal(np.array(rest), np.array(losses)) and same(arrays(auto.state), arrays(whole.state))


def case_nnx_states_are_averaged_by_the_kind_of_their_variables():
    model = nnx.Sequential(nnx.Linear(6, 8, rngs=nnx.Rngs(0)), nnx.BatchNorm(8, rngs=nnx.Rngs(1)))
    trained = nnx.Optimizer(model, adam(1e-3), wrt=nnx.Param)
    host = autolrs.jax_.JaxHost(nnx.split((model, trained))[1])
    averager = Averager(host, lambda state: nnx.filter_state(state[0], nnx.Param))
    averager.update()
    assert sorted(x.shape for x in averager.state_dict()["x"]) == [(6, 8), (8,), (8,), (8,)]  # and no statistics
    assert not averager.state_dict()["v"]  # NNX's own optimizer does not show which one it is
    params = nnx.state(model, nnx.Param)
    host = autolrs.jax_.JaxHost((params, adam(1e-3).init(params)))
    averager = Averager(host, lambda state: state[0])
    averager.update()
    np.testing.assert_allclose(hyperparams(host.state[1], "b1"), share(0.9), rtol=1e-6)


def case_what_cannot_be_averaged_is_refused_by_name():
    state, start = make()[1], autolrs.jax_.AutoLRS
    unknown = tuple(state.values())
    refuses(ValueError, "params=lambda state: state[0]", start, unknown, **AVERAGED)
    copies = lambda state: jax.tree.map(jnp.copy, state["params"])  # noqa: E731
    message = "`params` must give a part of the state, got an array of shape (6, 8)"
    refuses(ValueError, message, start, state, **HORIZON, params=copies)
    refuses(ValueError, "got 'adam'", start, state, **HORIZON, params=lambda state: "adam")
    integers = lambda state: (state["version"], state["key"])  # noqa: E731
    refuses(ValueError, "floating-point arrays, got 2 leaves without any: ['int32'", start, state, params=integers)
    refuses(ValueError, "got 0 leaves", start, state, params=lambda state: {})


# For `test_jax_.py`


def walks():
    """x and y of a quadratic's two coordinates, by real steps of each optimizer in double precision."""
    jax.config.update("jax_enable_x64", True)
    curvature = jnp.asarray([1.0, 0.05])
    found = {}
    for name, optimizer in (
        ("adam", inject(optax.adam)(0.05)),
        ("sgd", inject(optax.sgd)(0.05, momentum=0.9)),
        ("plain", inject(optax.sgd)(0.05)),
    ):
        host = host_of(optimizer, jnp.ones(2))
        averager = averager_of(host)
        for _ in range(60):
            gradient = curvature * host.state["params"]
            updates, opt = optimizer.update(gradient, host.state["opt"], host.state["params"])
            host.state = {"params": host.state["params"] + updates, "opt": opt}
            averager.update()
        found[name] = [averager.state()["params"].tolist(), host.state["params"].tolist()]
    return found


def sharded():
    """A run on two devices: what is compiled, and where weights, average and checkpoint lie."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("a",))
    over = lambda *axes: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))  # noqa: E731
    assert len(jax.devices()) == 2

    def begin():
        optimizer = adam(1e-3)
        params = {"w": jax.device_put(jnp.ones((4, 3)), over("a")), "b": jax.device_put(jnp.ones(3), over())}
        opt_state = jax.tree.map(lambda x: jax.device_put(x, x.sharding if x.ndim else over()), optimizer.init(params))
        set_lr = autolrs.jax_.lr_setter(opt_state)

        @partial(jax.jit, donate_argnums=0)
        def step(state, batch, lr):
            params, opt_state = state
            miss = lambda p: jnp.sum((p["w"].sum(0) + p["b"] - batch) ** 2)  # noqa: E731
            loss, gradient = jax.value_and_grad(miss)(params)
            updates, opt_state = optimizer.update(gradient, set_lr(opt_state, lr), params)
            return (optax.apply_updates(params, updates), opt_state), loss

        return step, autolrs.jax_.AutoLRS((params, opt_state), params=lambda state: state[0], **AVERAGED)

    batches = [jnp.full(3, float(n)) for n in range(5)]
    step, auto = begin()
    loop(auto, step, [], 300, batches)
    _, again = begin()
    again.load_state_dict(auto.state_dict())
    for one in (auto, again):
        for x, v, y in zip(*(one._averager.state_dict()[name] for name in "xv"), arrays_of(one), strict=True):
            assert x.sharding == v.sharding == y.sharding and y.committed
        assert arrays_of(one)[1].sharding == over("a")
        loop(one, step, [], loader=batches)
    assert same(arrays(auto.state), arrays(again.state)) and auto.done
    return step._cache_size()


def arrays_of(auto):
    return jax.tree.leaves(auto.state[0])


if __name__ == "__main__":
    main(globals())
