import csv
import json
import pickle
import subprocess
import sys
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs import Schedule, Segment

lrs = st.floats(0, 10)
schedules = st.lists(st.builds(Segment, st.integers(1, 50), lrs, lrs), min_size=1, max_size=6).map(
    lambda segments: Schedule(tuple(segments))
)
EXAMPLE = Schedule((Segment(10, 0.0, 1.0), Segment(5, 0.3, 0.3), Segment(4, 0.3, 0.0)))


@given(schedules)
def test_lookup_by_step_and_the_whole_array_agree_exactly(schedule):
    array = schedule.lrs()
    assert array.shape == (schedule.total_steps,)
    assert [schedule.lr_at(step) for step in range(schedule.total_steps)] == array.tolist()


@given(schedules)
def test_lookup_follows_the_segments(schedule):
    expected = [segment.lr_at(i) for segment in schedule.segments for i in range(segment.steps)]
    assert schedule.lrs().tolist() == expected


@pytest.mark.parametrize("step", [19, 20, 10**9])
def test_past_the_end_the_last_lr_stays(step):
    assert EXAMPLE.lr_at(step) == 0.0
    assert Schedule((Segment(3, 0.1, 0.2),)).lr_at(step) == 0.2


def test_negative_step_is_refused():
    with pytest.raises(ValueError, match="`step` must not be negative, got -1"):
        EXAMPLE.lr_at(-1)


def test_empty_schedule_has_no_lr():
    empty = Schedule(())
    assert empty.total_steps == 0
    assert empty.lrs().shape == (0,)
    with pytest.raises(ValueError, match="the schedule is empty"):
        empty.lr_at(0)


@given(schedules)
def test_json_gives_the_same_schedule_back(schedule):
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json()))) == schedule


def test_file_gives_the_same_schedule_back(tmp_path):
    EXAMPLE.save(tmp_path / "schedule.json")
    assert Schedule.load(tmp_path / "schedule.json") == EXAMPLE
    assert Schedule.load(str(tmp_path / "schedule.json")).lr_at(5) == 0.5


def test_file_format_is_the_one_of_schema_1():
    assert EXAMPLE.to_json() == {
        "autolrs_schedule": 1,
        "total_steps": 19,
        "segments": [[10, 0.0, 1.0], [5, 0.3, 0.3], [4, 0.3, 0.0]],
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"{}",
        b"[]",
        b"3",
        b'{"autolrs_schedule": "1"}',
        b'{"autolrs_schedule": 1}',
        b'{"autolrs_schedule": 1, "segments": [[1, 2]]}',
        b'{"autolrs_schedule": 1, "segments": 7}',
        b"\x89PNG\xff\xfe",
    ],
)
def test_foreign_file_is_refused_as_not_a_schedule(tmp_path, content):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(ValueError, match="not an autolrs schedule"):
        Schedule.load(tmp_path / "other")


def test_newer_file_asks_for_an_upgrade():
    with pytest.raises(ValueError, match="schema 2; this autolrs reads up to 1: upgrade"):
        Schedule.from_json({"autolrs_schedule": 2, "segments": []})


def test_missing_file_is_the_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Schedule.load(tmp_path / "none.json")


def test_csv_has_a_row_per_step_that_reads_back_exactly(tmp_path):
    EXAMPLE.to_csv(tmp_path / "lr.csv")
    with open(tmp_path / "lr.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "lr"]
    assert [int(step) for step, _ in rows] == list(range(19))
    assert [float(lr) for _, lr in rows] == EXAMPLE.lrs().tolist()


def test_schedule_can_be_pickled_and_compared():
    again = pickle.loads(pickle.dumps(EXAMPLE))
    assert again == EXAMPLE
    assert again.lr_at(5) == 0.5
    assert hash(again) == hash(EXAMPLE)


@pytest.mark.parametrize(("export", "module", "extra"), [("to_optax", "jax", "jax"), ("to_keras", "keras", "keras")])
def test_export_without_its_framework_says_what_to_install(monkeypatch, export, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.numpy", None)
    with pytest.raises(ImportError, match=rf"autolrs\[{extra}\]"):
        getattr(EXAMPLE, export)()


def elsewhere(code: str) -> None:
    """Run `code` in a process of its own: JAX's threads do not go together with the forks of other tests."""
    head = f"from autolrs.core.schedule import Schedule\nEXAMPLE = Schedule.from_json({EXAMPLE.to_json()!r})\n"
    done = subprocess.run([sys.executable, "-c", head + dedent(code)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_optax_export_agrees_with_lookup_and_drives_an_optimizer_under_jit():
    elsewhere(
        """
        import jax, jax.numpy as jnp, numpy as np, optax

        schedule = EXAMPLE.to_optax()
        found = [float(jax.jit(schedule)(jnp.asarray(step))) for step in range(25)]
        np.testing.assert_allclose(found, [EXAMPLE.lr_at(step) for step in range(25)], rtol=1e-6)
        optimizer = optax.sgd(schedule)
        state = optimizer.init(jnp.zeros(()))
        for step in range(25):
            update, state = optimizer.update(jnp.ones(()), state)
            np.testing.assert_allclose(float(-update), EXAMPLE.lr_at(step), rtol=1e-6)
        """
    )


def test_keras_export_agrees_with_lookup_and_drives_an_optimizer():
    elsewhere(
        """
        import keras, numpy as np

        schedule = EXAMPLE.to_keras()
        found = [float(schedule(step)) for step in range(25)]
        np.testing.assert_allclose(found, [EXAMPLE.lr_at(step) for step in range(25)], rtol=1e-6)
        np.testing.assert_allclose(float(keras.optimizers.SGD(schedule).learning_rate), EXAMPLE.lr_at(0), rtol=1e-6)
        """
    )
