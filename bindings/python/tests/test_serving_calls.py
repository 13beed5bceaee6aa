"""The calls that a serving engine makes of its experts, in the shapes that vLLM and SGLang make them, as calls of libmoe.

An engine routes by itself and hands over ids and weights; it splits experts over ranks by a map from global to local ids (-1: not
here) or the intermediate over ranks, and adds the partial sums up. It gathers rows by itself where another library has moved
them between ranks: batched by local expert with a count each, or sorted. Graphs are captured at some sizes, with the true
number of tokens on the device. docs/concepts/serving.md has the same calls as a recipe. The reference is numpy.
"""
import numpy
import pytest

import moe

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 48, 8, 3
CAPTURE_SIZES = (1, 2, 4, 8, 16, 24)
LIMIT = 1e-5


def random_weights():
    random = numpy.random.default_rng(3)
    shapes = {"gate_up": (EXPERTS, 2 * INTERMEDIATE, HIDDEN), "down": (EXPERTS, HIDDEN, INTERMEDIATE)}  # w13 and w2
    made = {name: random.standard_normal(shape, numpy.float32) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    return made | {"down_bias": random.standard_normal((EXPERTS, HIDDEN), numpy.float32)}


WEIGHTS = random_weights()


def expert(number, x):
    gate, up = numpy.split(x @ WEIGHTS["gate_up"][number].T, 2, axis=-1)
    return (gate / (1 + numpy.exp(-gate)) * up) @ WEIGHTS["down"][number].T + WEIGHTS["down_bias"][number]


def reference(x, ids, weights):
    out = numpy.zeros_like(x)
    for token, slot in numpy.argwhere((ids >= 0) & (ids < EXPERTS)):
        out[token] += weights[token, slot] * expert(ids[token, slot], x[token])
    return out


class Rank:
    """One rank's experts: what an engine's layer would hold."""

    def __init__(self, part=None, max_tokens=32):
        desc = moe.LayerDesc(hidden=HIDDEN, intermediate=INTERMEDIATE, n_experts=EXPERTS, top_k=TOP_K)
        desc.activation, desc.is_gated, desc.has_down_bias = "silu", 1, 1
        stages = moe.Stage.DISPATCH | moe.Stage.EXPERTS | moe.Stage.COMBINE | moe.Stage.FINISH
        options = dict(x_type="f32", device="cpu", max_tokens=max_tokens, stages=int(stages), partial=True, slice=part)
        self.plan = moe.Plan(desc, dict.fromkeys(("gate", "up", "down"), "f32"), **options)
        bias = {"rows": 1, "columns": HIDDEN, "n_experts": EXPERTS}
        tensors = [moe.Tensor("gate_up", WEIGHTS["gate_up"], gate_up_order="gate_first"), moe.Tensor("down", WEIGHTS["down"])]
        tensors.append(moe.Tensor("down_bias", WEIGHTS["down_bias"], **bias))
        self.weights = moe.Weights.load(self.plan, tensors, ownership="borrow")
        self.workspace = moe.Workspace(self.plan)
        self.handles = (self.plan, self.weights, self.workspace)

    def __call__(self, x, ids, weights, **more):
        return moe.experts(*self.handles, x, ids=ids, expert_weights=weights, **more)


@pytest.fixture(scope="module")
def whole():
    return Rank()


def routed(n_tokens, seed=0):
    random = numpy.random.default_rng(seed)
    x = random.standard_normal((n_tokens, HIDDEN), numpy.float32)
    ids = numpy.argsort(random.random((n_tokens, EXPERTS)), axis=1)[:, :TOP_K]
    return x, ids.astype(numpy.int64), random.random((n_tokens, TOP_K), numpy.float32)


def error(found, wanted):
    return numpy.linalg.norm(found - wanted) / numpy.linalg.norm(wanted)


@pytest.mark.parametrize("dtype", [numpy.int32, numpy.int64])
@pytest.mark.parametrize("n_tokens", [1, 5, 24])
def test_fused_experts(whole, dtype, n_tokens):
    """fused_experts(hidden_states, w1, w2, topk_weights, topk_ids): ids of either width, some of them -1."""
    x, ids, weights = routed(n_tokens)
    assert error(whole(x, ids.astype(dtype), weights), reference(x, ids, weights)) <= LIMIT
    ids[::2, 1] = -1
    assert error(whole(x, ids.astype(dtype), weights), reference(x, ids, weights)) <= LIMIT
    ids[0] = -1
    assert not whole(x, ids.astype(dtype), weights)[0].any() and not whole.workspace.status().faults


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_expert_map(n_ranks):
    """Expert parallelism: every rank sees all tokens and global ids; a placement that is no range; the sum is the all-reduce."""
    x, ids, weights = routed(11)
    owner = numpy.random.default_rng(1).permutation(numpy.arange(EXPERTS) % n_ranks)
    total, each = numpy.zeros_like(x), []
    for rank in range(n_ranks):
        mine = numpy.flatnonzero(owner == rank)
        expert_map = numpy.full(EXPERTS, -1, numpy.int32)
        expert_map[mine] = numpy.arange(len(mine))
        each.append(Rank(moe.Slice(experts=expert_map.tolist())))
        partial = each[-1](x, ids, weights)
        kept = numpy.where(owner[ids] == rank, ids, -1)
        assert error(partial, reference(x, kept, weights)) <= LIMIT
        total += partial
    assert error(total, reference(x, ids, weights)) <= LIMIT


def test_expert_map_of_a_call():
    """The map may come with the call: an expert that was moved away is skipped, without new weights."""
    rank = Rank(moe.Slice(experts=range(0, 4)))
    x, ids, weights = routed(9)
    expert_map = numpy.array([0, -1, 2, 3, -1, -1, -1, -1], numpy.int32)
    kept = numpy.where(expert_map[ids] >= 0, ids, -1)
    assert error(rank(x, ids, weights, expert_map=expert_map), reference(x, kept, weights)) <= LIMIT


def test_tensor_parallel():
    """Each rank has a part of the intermediate; the bias of down is added once, behind the all-reduce."""
    x, ids, weights = routed(7)
    ranks = [Rank(moe.Slice(intermediate=range(at, at + 16))) for at in range(0, INTERMEDIATE, 16)]
    total = sum(rank(x, ids, weights) for rank in ranks)
    assert error(total, reference(x, ids, weights)) > 0.1, "the bias must still be missing"
    last, bias = ranks[0], moe.Finish.DOWN_BIAS
    found = moe.finish(*last.handles, total, ids=ids, expert_weights=weights, parts=int(bias))
    assert error(found, reference(x, ids, weights)) <= LIMIT


def test_batched_layout():
    """DeepEP's low-latency form: [local experts, capacity, hidden] and how many rows of each are there; rows come back unweighted."""
    rank, capacity = Rank(moe.Slice(experts=range(2, 6))), 5
    random = numpy.random.default_rng(4)
    x = random.standard_normal((4, capacity, HIDDEN), numpy.float32)
    counts = numpy.array([5, 0, 2, 3], numpy.int64)
    out = numpy.full_like(x, numpy.nan)
    moe.experts(*rank.handles, x, out, in_layout="batched", out_layout="rows", counts=counts)
    for local, count in enumerate(counts):
        assert not count or error(out[local, :count], expert(2 + local, x[local, :count])) <= LIMIT
        assert numpy.isnan(out[local, count:]).all(), "rows beyond the count are not written"


@pytest.mark.parametrize("block_rows", [1, 8])
def test_sorted_layout(whole, block_rows):
    """moe_align_block_size, rows gathered by the engine, then experts on sorted rows and the engine's own weighted sum."""
    x, ids, weights = routed(10)
    placed = moe.dispatch(whole.plan, whole.workspace, ids, block_rows=block_rows)
    rows = moe.gather(whole.plan, whole.workspace, x, placed, expert_weights=weights)
    given = dict(offsets=placed.offsets, counts=placed.counts, row_ids=placed.row_ids)
    out = moe.experts(*whole.handles, rows.rows, in_layout="sorted", out_layout="rows", **given)
    total = numpy.zeros_like(x)
    for row in numpy.flatnonzero(rows.tokens >= 0):
        total[rows.tokens[row]] += rows.weights[row] * out[row]
    assert (rows.tokens >= 0).sum() == ids.size and error(total, reference(x, ids, weights)) <= LIMIT
    reduced = moe.experts(
        *whole.handles, rows.rows, in_layout="sorted", expert_weights=weights, n_tokens=len(x), **given
    )  # fmt: skip
    assert error(reduced, total) <= LIMIT


@pytest.mark.parametrize("size", CAPTURE_SIZES)
def test_capture_sizes(whole, size):
    """A graph of `size` tokens with fewer in it: the number lies where the graph reads it. Padding is not written."""
    for true in {1, size // 2, size} - {0}:
        x, ids, weights = routed(size, seed=size)
        x[true:], ids[true:] = numpy.nan, 1 << 40  # whatever is left of an earlier batch
        out = numpy.full_like(x, -7)
        whole(x, ids, weights, out=out, n_tokens_device=numpy.array([true], numpy.int32))
        assert error(out[:true], reference(x[:true], ids[:true], weights[:true])) <= LIMIT
        assert (out[true:] == -7).all() and not whole.workspace.status().faults
