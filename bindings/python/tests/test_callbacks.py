"""Progress, log, allocator and parallel_for of the caller."""
import gc
import logging
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from conftest import CASES
from memory import CountingAllocator
from oracle import Golden

import moe

GOLDEN = Golden(CASES["CALL-05"]["fixture"])


@pytest.mark.case("CALL-01")
def test_progress_counts_and_cancels(case):
    allocator, seen = CountingAllocator(), []
    runtime = moe.Runtime(allocator=allocator)
    checkpoint, plan, weights, _ = GOLDEN.open(runtime)
    weights.close()
    gc.collect()
    before = dict(allocator.living)

    def progress(done, total):
        seen.append((done, total))
        return len(seen) == 2

    with pytest.raises(moe.CancelledError) as caught:
        moe.Weights.load_checkpoint(plan, checkpoint, GOLDEN.layer, progress=progress)
    assert caught.value.status == case["status"] and len(seen) == 2
    assert seen[0][0] <= seen[1][0] <= seen[1][1] and seen[0][1] > 0
    assert allocator.living == before

    moe.Weights.load_checkpoint(plan, checkpoint, GOLDEN.layer, progress=lambda *now: seen.append(now))
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.case("CALL-02")
def test_an_exception_in_progress_comes_out_behind_the_call():
    checkpoint, plan, _, _ = GOLDEN.open()

    def progress(done, total):
        raise ZeroDivisionError("in the callback")

    with pytest.raises(ZeroDivisionError, match="in the callback"):
        moe.Weights.load_checkpoint(plan, checkpoint, GOLDEN.layer, progress=progress)


@pytest.mark.case("CALL-02")
def test_exceptions_in_other_callbacks_are_reported_and_do_no_harm(monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: unraisable.append(one.exc_value))

    def broken(*_):
        raise ZeroDivisionError("in the callback")

    checkpoint, *handles = GOLDEN.open(moe.Runtime(log=broken, log_level="debug", parallel_for=broken))
    assert numpy.array_equal(moe.forward(*handles, GOLDEN.x), moe.forward(*GOLDEN.open()[1:], GOLDEN.x))
    assert unraisable and all(isinstance(error, ZeroDivisionError) for error in unraisable)

    class NoMemory(CountingAllocator):
        allocate = broken

    with pytest.raises(moe.OutOfMemoryError):
        moe.Checkpoint(GOLDEN.path, runtime=moe.Runtime(allocator=NoMemory()))


def broken_hook(_):
    raise KeyError("in the hook")


@pytest.mark.case("CALL-02")
@pytest.mark.parametrize("hook", [sys.__unraisablehook__, broken_hook])
def test_whatever_the_hook_does(monkeypatch, capsys, hook):
    monkeypatch.setattr(sys, "unraisablehook", hook)

    def broken(*_):
        raise ZeroDivisionError("in the callback")

    handles = GOLDEN.open(moe.Runtime(parallel_for=broken, log=broken, log_level="debug", n_threads=2))[1:]
    out = numpy.full_like(GOLDEN.y, numpy.nan)
    moe.forward(*handles, GOLDEN.x, out)
    assert numpy.array_equal(out, moe.forward(*GOLDEN.open()[1:], GOLDEN.x))
    assert ("in the callback" if hook is sys.__unraisablehook__ else "in the hook") in capsys.readouterr().err


@pytest.mark.case("CALL-02")
@pytest.mark.parametrize("answer", ["raises", "text", -1, 1 << 64])
def test_an_allocation_without_an_address_has_no_memory(monkeypatch, capsys, answer):
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)

    class Broken(CountingAllocator):
        def allocate(self, *_):
            if answer == "raises":
                raise MemoryError("in the callback")
            return answer

    with pytest.raises(moe.OutOfMemoryError):
        moe.Checkpoint(GOLDEN.path, runtime=moe.Runtime(allocator=Broken()))
    assert "Error" in capsys.readouterr().err


@pytest.mark.case("CALL-03")
def test_the_allocator_serves_handles_and_gets_all_back():
    allocator = CountingAllocator()
    with moe.Runtime(allocator=allocator, n_threads=2) as runtime:
        handles = GOLDEN.open(runtime)
        report = handles[2].memory
        assert allocator.total >= report.host_bytes + report.bookkeeping_bytes > 0
        moe.forward(*handles[1:], GOLDEN.x)
        for handle in handles:
            handle.close()
    assert not allocator.living and not allocator.problems


@pytest.mark.case("CALL-04")
def test_log_lines(case):
    lines = []
    with moe.Runtime(log=lambda *line: lines.append(line), log_level="info") as runtime:
        moe.Checkpoint(GOLDEN.path, runtime=runtime).close()
    assert any(str(GOLDEN.path) in message for _, message in lines)
    assert all(isinstance(level, moe.LogLevel) and "\n" not in message for level, message in lines)
    lines.clear()
    with moe.Runtime(log=lambda *line: lines.append(line), log_level="warning") as runtime:
        moe.Checkpoint(GOLDEN.path, runtime=runtime).close()
    assert not lines


@pytest.mark.case("CALL-04")
def test_log_to_a_logger(caplog):
    caplog.set_level(logging.INFO)
    with moe.Runtime(log=logging.getLogger("moe"), log_level="info") as runtime:
        moe.Checkpoint(GOLDEN.path, runtime=runtime).close()
    assert [record for record in caplog.records if record.name == "moe" and record.levelname == "INFO"]


@pytest.mark.case("CALL-05")
def test_parallel_for_of_the_caller():
    calls = []
    with ThreadPoolExecutor(3) as pool:

        def parallel_for(n_tasks, task):
            calls.append(n_tasks)
            list(pool.map(task, range(n_tasks)))

        own = GOLDEN.open(moe.Runtime(parallel_for=parallel_for, n_threads=3))
        found = moe.forward(*own[1:], GOLDEN.x)
    assert calls and max(calls) <= 3
    assert numpy.array_equal(found, moe.forward(*GOLDEN.open()[1:], GOLDEN.x))
