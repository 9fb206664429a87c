"""A Keras network on handwritten digits: autolrs finds the learning-rate schedule, and a replay uses it again."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
from sklearn.datasets import load_digits

from autolrs.keras_ import AutoLRS

STEPS = 600
digits = load_digits()
x, y = (digits.data / 16.0).astype("float32"), digits.target
train, test = (x[:1500], y[:1500]), (x[1500:], y[1500:])


def compiled(learning_rate):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dropout(0.1)]
    model = keras.Sequential([*layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(learning_rate), loss, metrics=["accuracy"])
    return model


if __name__ == "__main__":
    model = compiled(1e-3)
    # Without averaging the schedule is all there is, and a replay repeats the run to the bit.
    auto = AutoLRS(*train, batch_size=50, total_steps=STEPS, averaging=False)
    history = model.fit(*train, batch_size=50, epochs=100, verbose=0, callbacks=[auto])
    print(f"peak LR {auto.schedule.lrs().max():.3g}, {auto.raw_steps} steps for {auto.committed_steps}")
    print(f"test accuracy {model.evaluate(*test, verbose=0)[1]:.3f} after {len(history.epoch)} epochs")

    again = compiled(auto.schedule.to_keras())  # the found schedule, at the cost of one run
    replay = again.fit(*train, batch_size=50, epochs=len(history.epoch), verbose=0)
    print(f"a replay logs the same: {replay.history == history.history}")
