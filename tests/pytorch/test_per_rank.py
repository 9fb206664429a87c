"""A state that one rank saves for all: what each rank gets back from it."""

import io

import pytest
import torch

from autolrs.pytorch.per_rank import gathered, own


class Two:
    """Rank 0 of two, whose partner always answers the same."""

    rank, size = 0, 2

    def __init__(self, answer=None):
        self.answer = answer

    def exchange(self, value, where):
        return [value, self.answer or value]


class One(Two):
    rank, size = 0, 1


def state(seed, ranks=2):
    rng = {"torch": torch.Generator().manual_seed(seed).get_state()}
    feed = {"since": 3, "starts": [rng], "place": None, "cursor": 5}
    session = {"losses": [float(seed)], "unread": 1, "done": 4}
    trees = {"live": {"rng": rng, "tracked": {}}, "snapshots": {7: {"rng": rng, "model": {}}}}
    return {"ranks": ranks, "session": session, "feed": feed, **trees}


def same_rng(a, b):
    return torch.equal(a["torch"], b["torch"])


def both():
    """What rank 0 saves, after a checkpoint file."""
    partner = Two()
    sent = []
    partner.exchange = lambda value, where: sent.append(value) or [value, value]
    gathered(state(2), partner)
    file = io.BytesIO()
    torch.save(gathered(state(1), Two(sent[0])), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_gets_its_own_random_numbers_losses_and_place_back(rank):
    comm = Two()
    comm.rank = rank
    found, expected = own(both(), comm, rng=None), state(rank + 1)
    assert same_rng(found["live"]["rng"], expected["live"]["rng"])
    assert same_rng(found["snapshots"][7]["rng"], expected["snapshots"][7]["rng"])
    assert same_rng(found["feed"]["starts"][0], expected["feed"]["starts"][0])
    assert found["session"] == expected["session"]


@pytest.mark.parametrize("saved, comm", [(both(), One()), (state(1, ranks=1), Two())], ids=["fewer", "more"])
def test_on_another_number_of_ranks_random_numbers_and_data_begin_anew(saved, comm):
    mine = state(9)["live"]["rng"]
    found = own(saved, comm, mine)
    assert found["live"]["rng"] is mine is found["snapshots"][7]["rng"]
    assert (found["feed"]["since"], found["feed"]["cursor"], found["feed"]["rng"]) == (3, 0, None)
    assert found["session"]["done"] == 4


def test_a_state_that_each_rank_saved_for_itself_is_left_as_it_is():
    saved = state(1)
    assert own(saved, Two(), rng=None) is saved
    saved = state(1, ranks=1)
    assert gathered(saved, One()) is saved
    assert own(saved, One(), rng=None) is saved
