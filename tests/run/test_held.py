"""What a session may go back to: each snapshot once, let go of when nobody will, with its place in the data."""

from __future__ import annotations

import json

import pytest

from autolrs.run.held import Held


class Host:
    """A state that is one number; says what is held and what was done."""

    def __init__(self, log):
        self.now, self.saved, self.log, self.last = 0, {}, log, 0

    def snapshot(self):
        self.log.append("snapshot")
        self.last += 1
        self.saved[self.last] = self.now
        return self.last

    def restore(self, token):
        self.log.append("restore")
        self.now = self.saved[token]

    def release(self, token):
        self.log.append("release")
        del self.saved[token]


class Stream:
    def __init__(self, log):
        self.at, self.log = 0, log

    def mark(self):
        self.log.append("mark")
        self.at = 0

    def position(self):
        return self.at

    def rewind(self, position=0):
        self.log.append(f"rewind {position}")
        self.at = position


@pytest.fixture
def log():
    return []


@pytest.fixture
def host(log):
    return Host(log)


@pytest.fixture
def held(host, log):
    return Held(host, Stream(log))


def train(host, held, steps):
    host.now += steps
    held.stream.at += steps


def test_a_stage_comes_back_to_its_beginning_and_to_the_ends_that_were_kept(host, held, log):
    host.now = 7
    held.begin()
    train(host, held, 3)
    held.keep_end(0)
    held.back()
    assert (host.now, held.stream.at) == (7, 0)
    held.back(0)
    assert (host.now, held.stream.at) == (10, 3)
    # The random state is saved after marking, and put back after rewinding: both may draw.
    assert log == ["mark", "snapshot", "snapshot", "rewind 0", "restore", "rewind 3", "restore"]


def test_nothing_is_held_longer_than_it_can_be_asked_for(host, held):
    held.begin()
    for probe in range(3):
        held.keep_end(probe)
    assert len(host.saved) == len(held.tokens) == 4
    held.keep_only({1})
    assert len(host.saved) == 2 and 1 in held and 0 not in held and None not in held
    held.protect()
    held.keep_best()
    held.end_stage()
    assert set(held.tokens) == set(host.saved) == {held.guard, held.best}
    held.unprotect()
    assert held.tokens == [held.best]


def test_beginning_guarding_and_keeping_again_let_the_former_go_first(host, held, log):
    for again in (held.begin, held.protect, held.keep_best):
        again()
        log.clear()
        again()
        assert [what for what in log if what != "mark"] == ["release", "snapshot"]
    assert len(host.saved) == 3


def test_a_snapshot_that_fails_leaves_nothing_that_was_let_go(host, held, monkeypatch):
    held.begin()
    held.protect()
    held.keep_best()

    def full():
        raise MemoryError

    monkeypatch.setattr(host, "snapshot", full)
    for again in (held.begin, held.protect, held.keep_best):
        with pytest.raises(MemoryError):
            again()
    assert held.tokens == [] == list(host.saved)


def test_undoing_leaves_the_data_where_it_is(host, held):
    held.protect()
    train(host, held, 5)
    held.undo()
    assert (host.now, held.stream.at) == (0, 5)


def test_tokens_go_through_json_and_back(host, held, log):
    held.begin()
    train(host, held, 2)
    held.keep_end(4)
    held.keep_best()
    other = Held(host, Stream(log))
    other.load(json.loads(json.dumps(held.to_json())))
    assert other.tokens == held.tokens
    other.back(4)
    assert (host.now, other.stream.at) == (2, 2)


def test_without_a_stream_the_data_goes_on(host):
    held = Held(host)
    held.begin()
    held.keep_end(0)
    held.back(0)
    held.back()
    assert len(host.saved) == 2
