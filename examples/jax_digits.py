"""A Flax network on handwritten digits: autolrs finds the learning-rate schedule, and a replay uses it again."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

import autolrs.jax_

STEPS, BATCH = 600, 50
digits = load_digits()
images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int32)
train, test = (images[:1500], labels[:1500]), (images[1500:], labels[1500:])


class Batches:
    """An epoch in a new order each time it is iterated."""

    def __iter__(self):
        order = np.random.permutation(1500)  # noqa: NPY002 - as scripts do; probes put this random state back
        for i in range(0, 1500, BATCH):
            yield tuple(jax.device_put(part[order[i : i + BATCH]]) for part in train)


def network(rngs):
    return nnx.Sequential(nnx.Linear(64, 128, rngs=rngs), nnx.relu, nnx.Linear(128, 10, rngs=rngs))


graph, params = nnx.split(network(nnx.Rngs(0)))
optimizer = optax.inject_hyperparams(optax.adam)(1e-3)
opt_state = optimizer.init(params)
set_lr = autolrs.jax_.lr_setter(opt_state)


def loss_of(params, batch):
    x, y = batch
    return optax.softmax_cross_entropy_with_integer_labels(nnx.merge(graph, params)(x), y).mean()


def step(state, batch, lr):
    params, opt_state = state
    loss, gradient = jax.value_and_grad(loss_of)(params, batch)
    updates, opt_state = optimizer.update(gradient, set_lr(opt_state, lr), params)
    return (optax.apply_updates(params, updates), opt_state), loss


if __name__ == "__main__":
    np.random.seed(0)  # noqa: NPY002 - see Batches
    step = jax.jit(step, donate_argnums=0)
    run = autolrs.jax_.fit(step, (params, opt_state), Batches(), total_steps=STEPS, params=lambda state: state[0])
    predicted = nnx.merge(graph, run.state[0])(jnp.asarray(test[0])).argmax(1)
    print(f"peak LR {run.schedule.lrs().max():.3g}, {run.raw_steps} steps for {run.committed_steps}")
    print(f"test accuracy {float((predicted == test[1]).mean()):.3f}, compiled {step._cache_size()} time")
