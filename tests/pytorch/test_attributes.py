from collections import Counter, OrderedDict, defaultdict, deque

import pytest
import torch
from torch import nn

from autolrs.pytorch.attributes import Attributes


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.name, self.pair = 1, "a", (1, [2])
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("buffer", torch.zeros(2))
        self.state = torch.zeros(3)
        self.other = object()


@pytest.fixture
def module():
    return nn.Sequential(Part(), nn.Dropout())


def test_numbers_tensors_and_modes_are_put_back_as_often_as_asked(module):
    part, state = module[0], module[0].state
    saved = Attributes(module)
    for _ in range(2):
        part.count, part.name, part.state = 7, "b", torch.ones(1)
        state += 5
        part.pair[1].append(3)
        module.eval()
        saved.restore()
        assert (part.count, part.name, part.pair) == (1, "a", (1, [2]))
        assert part.state is state
        assert torch.equal(state, torch.zeros(3))
        assert all(child.training for child in module.modules())


@pytest.mark.parametrize(
    "container",
    [
        [1],
        {1},
        deque([1], maxlen=3),
        {"a": 1},
        OrderedDict(a=1),
        defaultdict(list, a=[1]),
        Counter("ab"),
        [[1], {"b": [2]}],
    ],
    ids=lambda container: type(container).__name__,
)
def test_containers_keep_their_identity_and_get_their_content_back(module, container):
    module[0].kept, expected = container, repr(container)
    saved = Attributes(module)
    container.clear()
    module[0].kept = None
    saved.restore()
    assert module[0].kept is container
    assert repr(container) == expected


def test_new_attributes_go_and_deleted_ones_return(module):
    saved = Attributes(module)
    module[0].new = 1
    del module[0].count
    saved.restore()
    assert not hasattr(module[0], "new")
    assert module[0].count == 1


def test_parameters_buffers_and_unknown_objects_are_left_alone(module):
    part = module[0]
    saved, other = Attributes(module), part.other
    with torch.no_grad():
        part.weight.fill_(5)
        part.buffer.fill_(5)
    saved.restore()
    assert part.weight[0] == part.buffer[0] == 5
    assert part.other is other


def test_tensors_that_cannot_be_written_into_come_back_as_they_are(module):
    part = module[0]
    with_graph = part.with_graph = part.weight * 2
    with torch.inference_mode():
        inference = part.inference = torch.ones(2)
    saved = Attributes(module)
    part.with_graph = part.inference = None
    saved.restore()
    assert part.with_graph is with_graph
    assert part.inference is inference
