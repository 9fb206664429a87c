"""Batches without a framework: random states are numbers, batches are lists."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.run.replay import Batches


class Rng:
    """Python's random, as plain values."""

    def get(self):
        return random.getstate()

    def set(self, state):
        random.setstate(state)

    def same(self, a, b):
        return a == b


class Shuffled:
    """A loader of `n` batches: a new order each epoch, and a random number in every batch."""

    def __init__(self, n, augment=True):
        self.n, self.augment = n, augment

    def __iter__(self):
        for i in random.sample(range(self.n), self.n):
            yield [i, random.random() if self.augment else 0.0]


class Rewindable:
    """A loader that knows its position; its orders come from a seed and the epoch."""

    def __init__(self, n):
        self.n, self.epoch, self.at, self.loads = n, 0, 0, 0

    def __iter__(self):
        while self.at < self.n:
            self.at += 1
            yield [self.epoch, random.Random(self.epoch).sample(range(self.n), self.n)[self.at - 1]]
        self.epoch, self.at = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "at": self.at}

    def load_state_dict(self, state):
        self.epoch, self.at = state["epoch"], state["at"]
        self.loads += 1


def batches(loader, **options):
    return Batches(loader, Rng(), **{"replay": True, **options})


def take(stream, n):
    return [stream.next() for _ in range(n)]


LOADERS = {
    "shuffled": lambda: Shuffled(5),
    "still": lambda: Shuffled(5, augment=False),
    "one": lambda: Shuffled(1),
    "rewindable": lambda: Rewindable(5),
}


@pytest.mark.parametrize("name", LOADERS)
def test_epoch_follows_epoch(name):
    random.seed(1)
    stream = batches(LOADERS[name]())
    found = take(stream, 12)
    random.seed(1)
    loader = LOADERS[name]()
    expected = []
    while len(expected) < 12:
        expected.extend(loader)
    assert found == expected[:12]


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("before", [0, 3, 5, 7])
def test_rewinding_gives_the_same_batches_and_random_numbers_again(name, before):
    random.seed(1)
    stream = batches(LOADERS[name]())
    take(stream, before)
    stream.mark()
    state = random.getstate()
    first = [(stream.next(), random.random()) for _ in range(8)]
    for _ in range(2):
        stream.rewind()
        random.setstate(state)
        assert [(stream.next(), random.random()) for _ in range(8)] == first


@pytest.mark.parametrize("name", LOADERS)
def test_a_position_that_was_asked_for_can_be_rewound_to(name):
    random.seed(1)
    stream = batches(LOADERS[name]())
    stream.mark()
    take(stream, 6)
    position, state = stream.position(), random.getstate()
    assert position == 6
    later = take(stream, 4)
    stream.rewind()
    take(stream, 2)
    stream.rewind(position)
    random.setstate(state)
    assert take(stream, 4) == later


@pytest.mark.parametrize("name", LOADERS)
def test_after_forgetting_the_stream_goes_on_behind_what_was_replayed(name):
    random.seed(1)
    plain = take(batches(LOADERS[name]()), 20)
    random.seed(1)
    stream = batches(LOADERS[name]())
    stream.mark()
    state = random.getstate()
    for _ in range(3):
        take(stream, 4)
        stream.rewind()
        random.setstate(state)
    stream.forget()
    assert take(stream, 20) == plain
    assert not stream.recording and not stream._cache


def test_nothing_is_recorded_without_replay_or_before_a_mark():
    stream = batches(Shuffled(5), replay=False)
    stream.mark()
    take(stream, 3)
    assert not stream._cache and not stream.recording
    stream = batches(Shuffled(5))
    take(stream, 3)
    assert not stream._cache


def test_the_loop_may_change_its_batches():
    stream = batches(Shuffled(5))
    stream.mark()
    first = [list(batch) for batch in take(stream, 3)]
    for _ in range(2):
        stream.rewind()
        for expected in first:
            batch = stream.next()
            assert batch == expected
            batch.clear()


def test_past_the_limit_the_stream_goes_on_and_a_note_says_so_once_a_mark():
    notes = []
    stream = batches(Shuffled(50), limit=30, size=lambda batch: 10, note=notes.append)
    for _ in range(2):
        stream.mark()
        first = take(stream, 6)
        stream.rewind()
        second = take(stream, 6)
        assert second[:3] == first[:3] and not set(map(tuple, second[3:])) & set(map(tuple, first))
        stream.rewind(stream.position())
        assert stream.next() not in first + second
        stream.rewind()
        stream.forget()
        assert take(stream, 3) == first[:3]
    assert len(notes) == 2 and "3 batches fill the cache of 30 bytes" in notes[0]


def test_a_limit_of_nothing_streams():
    notes = []
    stream = batches(Shuffled(5), limit=0, size=lambda batch: 10, note=notes.append)
    stream.mark()
    take(stream, 7)
    stream.rewind()
    take(stream, 7)
    assert len(notes) == 1 and "0 batches" in notes[0]


@pytest.mark.parametrize("loader", [[], (), {}])
def test_an_empty_loader_is_a_clear_error(loader):
    for marked in (False, True):
        stream = batches(loader)
        if marked:
            stream.mark()
        with pytest.raises(ValueError, match="the loader gave no batch: it is empty"):
            stream.next()


def test_a_loader_that_cannot_start_anew_is_a_clear_error():
    stream = batches(iter([1, 2]))
    take(stream, 2)
    with pytest.raises(ValueError, match="no batch in epoch 2: it must start anew"):
        stream.next()


def test_samplers_are_told_the_epoch_once_each():
    class Loader:
        epochs = ()

        def __init__(self):
            self.sampler = self

        def set_epoch(self, epoch):
            self.epochs += (epoch,)

        def __iter__(self):
            return iter([1, 2])

    loader = Loader()
    stream = batches(loader)
    take(stream, 1)
    stream.mark()
    take(stream, 4)
    stream.rewind()
    take(stream, 4)
    assert loader.epochs == (0, 1, 2)


def test_a_loader_that_rewinds_itself_is_not_cached_and_told_where_to_go():
    loader = Rewindable(5)
    stream = batches(loader)
    stream.mark()
    take(stream, 7)
    stream.rewind()
    assert loader.loads == 1 and not stream._cache
    assert stream._drawn == 0 and stream._epoch == 1
    stream.rewind(99)  # a position of a loader that this one replaced: the stream goes on
    assert loader.loads == 1


@pytest.mark.parametrize("name", LOADERS)
@given(data=st.data())
def test_a_stream_in_pieces_is_the_whole_stream(name, data):
    """Random marks, rewinds and draws; saved and loaded into a new stream at a random point, to the same end."""
    actions = data.draw(
        st.lists(
            st.one_of(
                st.integers(1, 9).map(lambda n: ("take", n)),
                st.sampled_from(["mark", "rewind", "forget"]).map(lambda what: (what, 0)),
            ),
            min_size=2,
            max_size=12,
        )
    )
    cut = data.draw(st.integers(0, len(actions) - 1))

    def run(cut):
        random.seed(3)
        stream, marked, at_mark, out = batches(LOADERS[name]()), False, None, []
        for i, (what, n) in enumerate(actions):
            if i == cut:
                state = stream.state_dict()
                random.seed(99)  # a new process
                stream = batches(LOADERS[name]())
                stream.load_state_dict(state)
            if what == "take":
                for _ in range(n):
                    out.append(stream.next())
                    out.append(random.random())  # dropout, say
            elif what == "mark":
                stream.mark()
                marked, at_mark = True, random.getstate()
            elif marked and what == "rewind":
                stream.rewind()
                random.setstate(at_mark)
            elif marked:
                stream.forget()
                marked = False
        return out, take(stream, 13)

    assert run(cut) == run(None)


def test_loading_reads_only_from_the_epoch_under_way():
    class Counting(Shuffled):
        drawn = 0

        def __iter__(self):
            for batch in super().__iter__():
                self.drawn += 1
                yield batch

    stream = batches(Counting(5), replay=False)
    take(stream, 5 * 40 + 2)
    loader = Counting(5)
    again = batches(loader, replay=False)
    again.load_state_dict(stream.state_dict())
    assert loader.drawn == 2
    assert len(stream.state_dict()["starts"]) == 1


def test_a_position_of_another_kind_of_loader_is_refused():
    stream = batches(Shuffled(5))
    take(stream, 3)
    with pytest.raises(ValueError, match="the checkpoint is of another loader"):
        batches(Rewindable(5)).load_state_dict(stream.state_dict())


def saved_and_loaded(stream, loader):
    """The same stream in a new process, which leaves the random state where it stood."""
    state = stream.state_dict()
    random.seed(99)
    again = batches(loader)
    again.load_state_dict(state)
    return again


@pytest.mark.parametrize("name", LOADERS)
def test_a_mark_amid_leftover_batches_survives_a_save(name):
    """A range test reads more than the first stage takes: the next mark stands among what it cached."""
    ends = []
    for save in (False, True):
        random.seed(2)
        stream = batches(LOADERS[name]())
        stream.mark()
        state = random.getstate()
        take(stream, 9)
        stream.rewind()
        random.setstate(state)
        stream.forget()
        take(stream, 3)
        stream.mark()
        state = random.getstate()
        take(stream, 2)
        if save:
            stream = saved_and_loaded(stream, LOADERS[name]())
        rest = take(stream, 6)
        stream.rewind()
        random.setstate(state)
        ends.append((rest, take(stream, 12)))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("name", LOADERS)
def test_cached_batches_are_drawn_again_as_they_were(name):
    ends = []
    for save in (False, True):
        random.seed(2)
        stream = batches(LOADERS[name]())
        take(stream, 3)
        stream.mark()
        state = random.getstate()
        for _ in range(6):
            stream.next()
            random.random()  # dropout, say: the loader's numbers are not contiguous
        if save:
            stream = saved_and_loaded(stream, LOADERS[name]())
        stream.rewind()
        random.setstate(state)
        ends.append([(stream.next(), random.random()) for _ in range(12)])
    assert ends[0] == ends[1]
