"""Set-up for the whole suite: hypothesis draws the same examples in every run, unless HYPOTHESIS_PROFILE=search."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    deadline=None,  # the time of an example depends on the machine, and the suite has its own time-out
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", settings.get_profile("suite"), derandomize=False, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras would otherwise look for TensorFlow
os.environ.setdefault("OMP_NUM_THREADS", "1")  # runs are compared to the bit, with those of other processes too
