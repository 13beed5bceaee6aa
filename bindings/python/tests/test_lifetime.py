"""Handles: closing, not closing, order, and many threads."""
import gc
import threading

import numpy
import pytest
from conftest import CASES
from memory import CountingAllocator
from oracle import Golden, relative_l2

import moe

GOLDEN = Golden(CASES["LIFE-03"]["fixture"])


def one_of_each():
    runtime = moe.Runtime(n_threads=1)
    checkpoint, plan, weights, workspace = GOLDEN.open(runtime)
    return dict(runtime=runtime, checkpoint=checkpoint, plan=plan, weights=weights, workspace=workspace)


@pytest.mark.case("LIFE-01")
def test_closing_twice_is_harmless(case):
    handles = one_of_each()
    assert sorted(handles) == sorted(case["handles"])
    for handle in handles.values():
        assert not handle.closed
        handle.close()
        handle.close()
        assert handle.closed


@pytest.mark.case("LIFE-01")
def test_with_closes():
    with GOLDEN.open()[0] as checkpoint:
        assert checkpoint.layers
    assert checkpoint.closed
    with pytest.raises(moe.ClosedError), checkpoint:
        pass


@pytest.mark.case("LIFE-02")
def test_a_closed_handle_is_an_error():
    handles = one_of_each()
    for handle in handles.values():
        handle.close()
    runtime, checkpoint, plan, weights, workspace = handles.values()
    uses = [
        lambda: moe.Checkpoint(GOLDEN.path, runtime=runtime),
        lambda: checkpoint.info,
        lambda: moe.Plan(**GOLDEN.options(checkpoint)),
        lambda: plan.layout_id,
        lambda: weights.memory,
        lambda: moe.Workspace(plan),
        lambda: workspace.status(),
        lambda: moe.Weights.load_checkpoint(plan, checkpoint, GOLDEN.layer),
        lambda: moe.forward(plan, weights, workspace, GOLDEN.x),
    ]
    for use in uses:
        with pytest.raises(moe.ClosedError, match="is closed"):
            use()
    living = GOLDEN.open()
    with pytest.raises(moe.ClosedError, match="Weights"):
        moe.forward(living[1], weights, living[3], GOLDEN.x)


@pytest.mark.case("LIFE-02")
def test_closing_during_a_call_waits_for_it():
    """A progress callback closes the plan that is being loaded for: the load ends well, then the plan is gone."""
    checkpoint, plan, _, _ = GOLDEN.open()
    weights = moe.Weights.load_checkpoint(plan, checkpoint, GOLDEN.layer, progress=lambda *_: plan.close())
    assert weights.layout_id and plan.closed
    with pytest.raises(moe.ClosedError):
        plan.kernel("experts", 1)


@pytest.mark.case("LIFE-03")
@pytest.mark.parametrize("ownership", ["copy", "borrow"])
def test_any_order_of_closing(case, ownership):
    runtime = moe.Runtime()
    checkpoint = moe.Checkpoint(GOLDEN.path, runtime=runtime)
    first = moe.Plan(**GOLDEN.options(checkpoint), runtime=runtime)
    second = moe.Plan(**GOLDEN.options(checkpoint), runtime=runtime)
    weights = moe.Weights.load_checkpoint(first, checkpoint, GOLDEN.layer, ownership=ownership)
    for handle in (runtime, checkpoint, first):
        handle.close()
    workspace = moe.Workspace(second)
    assert relative_l2(moe.forward(second, weights, workspace, GOLDEN.x), GOLDEN.y) <= case["relative_l2"]
    weights.close()
    second.close()
    assert workspace.status() == (0, 0)


@pytest.mark.case("LIFE-04")
def test_garbage_gives_its_memory_back():
    allocator = CountingAllocator()
    runtime = moe.Runtime(allocator=allocator, n_threads=2)
    handles = [*GOLDEN.open(runtime)]
    moe.forward(handles[1], handles[2], handles[3], GOLDEN.x)
    assert allocator.living
    del handles, runtime
    gc.collect()
    assert not allocator.living and not allocator.problems


def run_threads(count, work):
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


@pytest.mark.case("THR-01")
def test_many_threads_on_one_plan(case):
    _, plan, weights, workspace = GOLDEN.open()
    wanted = moe.forward(plan, weights, workspace, GOLDEN.x)
    assert relative_l2(wanted, GOLDEN.y) <= 1e-5

    def work(_):
        with moe.Workspace(plan) as own:
            for _ in range(case["rounds"]):
                assert numpy.array_equal(moe.forward(plan, weights, own, GOLDEN.x), wanted)

    run_threads(case["threads"], work)


@pytest.mark.case("THR-01")
def test_the_number_of_threads_of_a_call():
    _, plan, weights, workspace = GOLDEN.open()
    wanted = moe.forward(plan, weights, workspace, GOLDEN.x)
    for n_threads in (1, 2, 1000):
        assert numpy.array_equal(moe.forward(plan, weights, workspace, GOLDEN.x, n_threads=n_threads), wanted)
    ids, expert_weights = moe.route(plan, weights, workspace, GOLDEN.x, n_threads=1)
    moe.experts(plan, weights, workspace, GOLDEN.x, ids=ids, expert_weights=expert_weights, n_threads=1)
    refused = {
        "forward": lambda: moe.forward(plan, weights, workspace, GOLDEN.x, n_threads=-1),
        "route": lambda: moe.route(plan, weights, workspace, GOLDEN.x, n_threads=-2),
        "experts": lambda: moe.experts(
            plan, weights, workspace, GOLDEN.x, ids=ids, expert_weights=expert_weights, n_threads=-3
        ),
        "finish": lambda: moe.finish(plan, weights, workspace, wanted, GOLDEN.x, n_threads=-4),
    }
    for call in refused.values():
        with pytest.raises(moe.MoeError, match="n_threads is -"):
            call()


@pytest.mark.case("THR-01")
def test_a_layer_has_a_workspace_for_each_thread():
    with moe.Layer(GOLDEN.path, GOLDEN.layer, device="cpu") as layer:
        wanted = layer(GOLDEN.x)

        def work(_):
            for _ in range(10):
                assert numpy.array_equal(layer(GOLDEN.x), wanted)

        run_threads(4, work)


@pytest.mark.case("THR-02")
def test_a_workspace_in_use_is_busy(case):
    """A parallel_for that calls again with the workspace that is just being used."""
    seen = []

    def parallel_for(n_tasks, task):
        if not seen:
            try:
                seen.append(moe.forward(*handles[1:], GOLDEN.x))
            except moe.MoeError as error:
                seen.append(error)
        for index in range(n_tasks):
            task(index)

    handles = GOLDEN.open(moe.Runtime(parallel_for=parallel_for, n_threads=4))
    assert relative_l2(moe.forward(*handles[1:], GOLDEN.x), GOLDEN.y) <= 1e-5
    assert isinstance(seen[0], moe.BusyError) and seen[0].status == case["status"]


def test_forward_by_threads_of_the_caller():
    _, plan, weights, workspace = GOLDEN.open()
    out = numpy.full_like(GOLDEN.y, numpy.nan)
    run_threads(3, lambda number: moe.forward(plan, weights, workspace, GOLDEN.x, out, spmd=(number, 3)))
    assert relative_l2(out, GOLDEN.y) <= 1e-5
