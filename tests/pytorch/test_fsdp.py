"""FSDP2, tensor parallelism and ZeroRedundancyOptimizer: local shards saved, restored to the bit, and kept durably."""

import pytest
from ranks import launch

pytest.importorskip("torch.distributed")

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(280)]

KINDS = ["fsdp", "tensor parallel", "zero"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return launch("fsdp_worker.py", tmp_path_factory.mktemp("fsdp"))


@pytest.mark.parametrize("kind", KINDS)
def test_snapshots_restore_exactly_also_to_before_the_first_step_and_after_evaluate(ranks, kind):
    for rank in ranks:
        assert all(rank[kind]["snapshots"]["exact"]) and len(rank[kind]["snapshots"]["exact"]) == 12


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_saves_its_shards_alone(ranks, kind):
    for rank in ranks:
        held, whole = rank[kind]["snapshots"]["held"], rank[kind]["snapshots"]["whole"]
        assert held < (0.8 if kind == "zero" else 0.75) * whole  # ZeRO shards the moments, not the weights
    if kind == "fsdp":
        assert sum(rank[kind]["snapshots"]["held"] for rank in ranks) < 1.4 * ranks[0][kind]["snapshots"]["whole"]


@pytest.mark.parametrize("kind", KINDS)
def test_probes_leave_no_trace_and_the_lr_reaches_the_optimizer(ranks, kind):
    for rank in ranks:
        assert rank[kind]["runs"]["bare"]
        assert rank[kind]["runs"]["first"]["lr"] and rank[kind]["runs"]["second"]["lr"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_from_its_durable_point_to_the_same_bits(ranks, kind):
    for rank in ranks:
        runs = rank[kind]["runs"]
        assert runs["first"]["begun"] == 0 and runs["second"]["begun"] == 30
        assert runs["same bits"] and runs["same schedule"]
        assert runs["first"]["types"] == runs["second"]["types"]
        assert ("DTensor" in runs["first"]["types"]) is (kind != "zero")
        assert any(name.endswith(".shards") for name in runs["names"]) is (kind != "zero")
        assert sum(name.endswith(".rank1.pt") for name in runs["names"]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_state_is_kept_in_shards_through_a_durable_point(ranks, kind):
    for rank in ranks:
        first, second = rank[kind]["runs"]["first"], rank[kind]["runs"]["second"]
        assert first["best"] == second["best"] == ranks[0][kind]["runs"]["first"]["best"]
        assert first["restored"] and second["restored"]


@pytest.mark.parametrize("damage", ["cut", "malicious"])
def test_damaged_shards_fall_back_to_the_point_before(ranks, damage):
    for rank in ranks:
        assert rank["faults"][damage] == "no error"
        assert rank["faults"][f"{damage} steps"] == 60
        assert not rank["faults"]["executed"]


def test_another_sharded_model_is_refused_by_name(ranks):
    for rank in ranks:
        assert (
            "the checkpoint is of another model: 'model/0.weight' is (8, 6) there and is (4, 6) here"
            in (rank["faults"]["another model"])
        )
