"""Loading in the background, and what a program says of a checkpoint in place of its files."""
import gc
import threading

import numpy
import pytest
from conftest import CASES
from memory import CountingAllocator
from oracle import Golden, relative_l2

import moe

GOLDEN = Golden(CASES["CALL-06"]["fixture"])


class Gate:
    """Holds the loading thread in its first callback."""

    def __init__(self):
        self.inside, self.opened, self.calls = threading.Event(), threading.Event(), []

    def __call__(self, done, total):
        self.calls.append((done, total))
        self.inside.set()
        assert self.opened.wait(60)


def start(plan, checkpoint, **how):
    return moe.Loading.start_checkpoint(plan, checkpoint, GOLDEN.layer, **how)


@pytest.mark.case("CALL-06")
def test_weights_of_a_checkpoint_in_the_background():
    checkpoint, plan, _, workspace = GOLDEN.open()
    same = moe.Plan(**GOLDEN.options(checkpoint))
    gate = Gate()
    loading = start(plan, checkpoint, progress=gate)
    assert gate.inside.wait(60)
    now = loading.poll()
    assert not now.is_done and now.status == moe.Status.OK
    assert 0 < now.bytes_done == gate.calls[0][0] < now.bytes_total == gate.calls[0][1]
    checkpoint.close()
    plan.close()
    gate.opened.set()
    weights = loading.wait()
    assert loading.poll() == (True, moe.Status.OK, now.bytes_total, now.bytes_total)
    assert relative_l2(moe.forward(same, weights, workspace, GOLDEN.x), GOLDEN.y) <= 1e-5
    with pytest.raises(moe.NotFoundError, match="taken by an earlier wait"):
        loading.wait()
    loading.close()
    loading.close()
    with pytest.raises(moe.ClosedError):
        loading.poll()


@pytest.mark.case("CALL-06")
@pytest.mark.parametrize("ownership", ["copy", "borrow"])
def test_weights_of_tensors_in_the_background(ownership):
    checkpoint, plan, _, workspace = GOLDEN.open()
    loading = moe.Loading.start(plan, checkpoint.tensors(GOLDEN.layer), ownership=ownership)
    weights = loading.wait()
    loading.close()
    checkpoint.close()
    gc.collect()
    assert relative_l2(moe.forward(plan, weights, workspace, GOLDEN.x), GOLDEN.y) <= 1e-5


@pytest.mark.case("CALL-06")
@pytest.mark.parametrize("how", ["cancel", "answer", "close", "forget"])
def test_a_load_that_is_ended_leaves_nothing(how):
    allocator = CountingAllocator()
    runtime = moe.Runtime(allocator=allocator)
    checkpoint, plan, weights, _ = GOLDEN.open(runtime)
    weights.close()
    gc.collect()
    before, gate = dict(allocator.living), Gate()
    progress = (lambda *now: bool(gate.calls.append(now)) or True) if how == "answer" else gate
    loading = start(plan, checkpoint, progress=progress)
    if how != "answer":
        assert gate.inside.wait(60)
    if how == "cancel":
        loading.cancel()
        gate.opened.set()
    elif how != "answer":
        threading.Timer(0.3, gate.opened.set).start()  # close() waits for the thread that it holds
    if how in ("cancel", "answer"):
        with pytest.raises(moe.CancelledError, match="loading was cancelled after"):
            loading.wait()
        assert loading.poll().status == moe.Status.CANCELLED
    if how == "forget":
        del loading
        gc.collect()
    else:
        loading.close()
    assert len(gate.calls) <= 2 and allocator.living == before


@pytest.mark.case("CALL-06")
def test_errors_of_a_load_come_with_wait():
    checkpoint, plan, _, _ = GOLDEN.open()
    tensors = checkpoint.tensors(GOLDEN.layer)
    missing = next(one for one in tensors if one.role == moe.Role.DOWN and one.expert in (1, moe.ALL_EXPERTS))
    loading = moe.Loading.start(plan, [one for one in tensors if one is not missing])
    for _ in range(2):
        with pytest.raises(moe.NotFoundError, match="down"):
            loading.wait()

    def progress(done, total):
        raise ZeroDivisionError("in the callback")

    with pytest.raises(ZeroDivisionError, match="in the callback"):
        start(plan, checkpoint, progress=progress).wait()


@pytest.mark.parametrize("given", ["top_k=1, routed_scale=2", {"top_k": 1, "routed_scale": 2, "round_logits": False}])
def test_overrides_replace_what_the_files_say(given):
    plain = moe.Checkpoint(GOLDEN.path).layer(GOLDEN.layer)
    desc = moe.Checkpoint(GOLDEN.path, overrides=given).layer(GOLDEN.layer)
    assert (plain.top_k, plain.has_routed_scale) == (GOLDEN.ids.shape[1], 0) and plain.top_k != 1
    assert (desc.top_k, desc.has_routed_scale, desc.routed_scale) == (1, 1, 2.0)
    assert moe.Checkpoint(GOLDEN.path, overrides={"routed_scale": None}).layer(GOLDEN.layer).has_routed_scale == 0


def test_overrides_reach_the_plan():
    checkpoint = moe.Checkpoint(GOLDEN.path, overrides={"top_k": 1})
    plan = moe.Plan(**GOLDEN.options(checkpoint))
    weights = moe.Weights.load_checkpoint(plan, checkpoint, GOLDEN.layer)
    ids = numpy.empty((len(GOLDEN.x), 1), numpy.int32)
    moe.forward(plan, weights, moe.Workspace(plan), GOLDEN.x, out_ids=ids)
    assert numpy.array_equal(ids[:, 0], GOLDEN.ids[:, 0])


def test_overrides_are_refused_by_name():
    with pytest.raises(moe.InvalidArgumentError, match="options.overrides: 'topk' is none of top_k"):
        moe.Checkpoint(GOLDEN.path, overrides={"topk": 1})
    with pytest.raises(moe.InvalidArgumentError, match="options.overrides: top_k is 'many'"):
        moe.Checkpoint(GOLDEN.path, overrides="top_k=many")
