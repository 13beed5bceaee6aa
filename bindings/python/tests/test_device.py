"""The conformance cases that a device can show, with arrays in its memory through moe_memory_*: on the CPU, and with --device cuda
on a GPU. A plan that the device does not take is a skip with the library's sentence."""
import json
import threading

import jsonschema
import numpy
import pytest
from conftest import CASES
from memory import CountingAllocator
from oracle import FIXTURES, ROOT, Golden, relative_l2
from test_results import by_hand

import moe

pytestmark = pytest.mark.on_device

QWEN3 = Golden(CASES["FWD-02"]["fixture"])


@pytest.fixture
def there(device):
    """Copies a numpy array to the device."""
    return lambda array, **more: moe.DeviceArray.of(numpy.asarray(array), device=device, **more)


@pytest.fixture
def open_on(device):
    """Opens a golden fixture with a plan for the device."""

    def open_golden(golden, **options):
        try:
            return golden.open(device=device, **options)
        except moe.UnsupportedError as error:
            pytest.skip(f"{golden.folder.name}: {error.message}")

    return open_golden


def new(like, kind, device):
    """An output full of ones, which no call gives."""
    return moe.DeviceArray.of(numpy.full(like.shape, -1, kind), device=device)


@pytest.mark.case("FWD-01")
@pytest.mark.parametrize("name", CASES["FWD-01"]["fixtures"])
def test_golden_outputs(name, case, device, there, open_on):
    golden = Golden(FIXTURES / name)
    _, plan, weights, workspace = open_on(golden)
    assert plan.device.kind == moe.DeviceKind.of(device)
    ids, slot_weights = new(golden.ids, numpy.int32, device), new(golden.weights, numpy.float32, device)
    out = moe.forward(plan, weights, workspace, there(golden.x), out_ids=ids, out_weights=slot_weights)
    assert numpy.array_equal(ids.numpy(), golden.ids)
    assert relative_l2(slot_weights.numpy(), golden.weights) <= case["relative_l2"]
    assert relative_l2(out.numpy(), golden.y) <= case["relative_l2"]


@pytest.mark.case("FWD-02")
def test_given_routing(case, device, there, open_on):
    plan, *_ = handles = open_on(QWEN3)[1:]
    x, ids, limit = there(QWEN3.x), there(QWEN3.ids.astype(numpy.int64)), case["relative_l2"]
    given = moe.forward(*handles, x, ids=ids, expert_weights=there(QWEN3.weights))
    assert relative_l2(given.numpy(), QWEN3.y) <= limit
    logits = there(numpy.full((len(QWEN3.x), plan.shape.n_all_experts), numpy.nan, numpy.float32))
    computed = moe.forward(*handles, x, out_logits=logits).numpy()
    chosen = new(QWEN3.ids, numpy.int32, device)
    assert numpy.array_equal(moe.forward(*handles, x, logits=logits, out_ids=chosen).numpy(), computed)
    assert numpy.array_equal(chosen.numpy(), QWEN3.ids)
    nobody = moe.forward(*handles, x, ids=new(QWEN3.ids, numpy.int32, device), expert_weights=there(QWEN3.weights))
    assert not nobody.numpy().any()
    assert moe.forward(*handles, there(QWEN3.x[:0])).shape == (0, plan.shape.hidden)


@pytest.mark.case("FWD-03")
def test_stage_by_stage(case, there, open_on):
    golden = Golden(case["fixture"])
    plan, weights, workspace = open_on(golden)[1:]
    x = there(golden.x)
    ids, slot_weights = moe.route(plan, weights, workspace, x)
    assert numpy.array_equal(ids.numpy(), golden.ids)
    placed = moe.dispatch(plan, workspace, ids)
    assert placed.offsets.numpy()[-1] == golden.ids.size
    how = dict(out_layout="rows", offsets=placed.offsets, row_ids=placed.row_ids)
    rows = moe.experts(plan, weights, workspace, x, **how)
    routed = moe.combine(plan, workspace, rows, ids, slot_weights, row_ids=placed.row_ids)
    out = moe.finish(plan, weights, workspace, routed, x, ids=ids, expert_weights=slot_weights)
    assert relative_l2(out.numpy(), golden.y) <= case["relative_l2"]


@pytest.mark.case("FWD-04")
def test_tensors_by_hand(case, device, there):
    layer, random = moe.LayerDesc(**case["layer"]), numpy.random.default_rng(7)
    n, hidden, inner = layer.n_experts, layer.hidden, layer.intermediate
    sizes = dict(router=(n, hidden), gate=(n, inner, hidden), up=(n, inner, hidden), down=(n, hidden, inner))
    arrays = {role: random.standard_normal(size, numpy.float32) for role, size in sizes.items()}
    x = random.standard_normal((5, hidden), numpy.float32)
    plan = moe.Plan(layer, dict.fromkeys(arrays, "f32"), x_type="f32", max_tokens=5, device=device)
    weights = moe.Weights.load(plan, [moe.Tensor(role, array) for role, array in arrays.items()])
    out = moe.forward(plan, weights, moe.Workspace(plan), there(x))
    wanted = by_hand(x.astype(float), *(one.astype(float) for one in arrays.values()), layer.top_k)
    assert relative_l2(out.numpy(), wanted) <= case["relative_l2"]


@pytest.mark.case("BAD-02")
def test_ids_outside_the_layer(case, there, open_on):
    handles = open_on(QWEN3)[1:]
    ids = QWEN3.ids.copy()
    ids[0, 0] = 1 << 30
    without = numpy.where(ids == 1 << 30, -1, ids)
    x, slot_weights = there(QWEN3.x), there(QWEN3.weights)
    found = moe.forward(*handles, x, ids=there(ids), expert_weights=slot_weights).numpy()
    assert handles[2].status() == (case["fault"], 1) and handles[2].status() == (0, 0)
    other = moe.forward(*handles, x, ids=there(without), expert_weights=slot_weights).numpy()
    assert numpy.array_equal(found, other) and numpy.isfinite(found).all()


@pytest.mark.case("LIFE-03")
def test_handles_closed_in_any_order(case, there, open_on):
    golden = Golden(case["fixture"])
    runtime = moe.Runtime()
    checkpoint, plan, weights, workspace = open_on(golden, runtime=runtime)
    again = open_on(golden)[1]
    for handle in (runtime, checkpoint, plan):
        handle.close()
    out = moe.forward(again, weights, workspace, there(golden.x))
    assert relative_l2(out.numpy(), golden.y) <= case["relative_l2"]


@pytest.mark.case("PLAN-01")
def test_explain(case, device, open_on):
    plan = open_on(QWEN3)[1]
    jsonschema.validate(plan.facts, json.loads((ROOT / case["schema_file"]).read_text()))
    assert plan.facts["device"]["kind"] == device and device in plan.explain()


@pytest.mark.case("PLAN-03")
def test_keys_and_layout_ids(device, open_on):
    checkpoint, plan, weights, _ = open_on(QWEN3)
    options = QWEN3.options(checkpoint, device=device)
    larger = moe.Plan(**options | {"max_tokens": 65})
    assert moe.Plan.key(**options).hex() == plan.facts["key"] != larger.facts["key"]
    assert plan.layout_id == larger.layout_id == weights.layout_id and len(plan.layout_id) == 16


@pytest.mark.case("PLAN-04")
def test_kernels_and_candidates(case, open_on):
    plan = open_on(QWEN3)[1]
    for name, stage in case["stages"].items():
        chosen = [one.kernel for one in plan.candidates if one.stage == stage and one.chosen]
        assert chosen == [plan.kernel(name, 1)]


@pytest.mark.case("THR-01")
def test_threads_and_streams(case, device, there, open_on):
    """Each thread has a workspace and a stream; all get the same bits."""
    _, plan, weights, workspace = open_on(QWEN3)
    wanted = moe.forward(plan, weights, workspace, there(QWEN3.x)).numpy()
    problems = []

    def work():
        try:
            stream, own = moe.Stream(device), moe.Workspace(plan)
            x = there(QWEN3.x, stream=stream)
            for _ in range(3):
                out = moe.forward(plan, weights, own, x, stream=stream).numpy(stream=stream)
                if not numpy.array_equal(out, wanted):
                    problems.append("other bits")
        except Exception as error:
            problems.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(case["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@pytest.mark.case("MEM-01")
@pytest.mark.parametrize("space", ["host", "pinned", "device"])
def test_memory_goes_in_and_out(case, device, space):
    values = numpy.arange(1, case["elements"] + 1, dtype=numpy.float32).reshape(-1, 4)
    array = moe.DeviceArray.of(values, device=device, space=space)
    assert array.address % 256 == 0 and array.n_bytes == values.nbytes
    assert numpy.array_equal(array.numpy(), values)
    with pytest.raises(ValueError, match="array: has 2000 bytes, must have 4000"):
        array.put(values[:, :2])
    if space != "host" or device == "cpu":
        array.zero()
        assert not array.numpy().any()
    array.close()
    array.close()
    with pytest.raises(moe.ClosedError):
        array.numpy()


def test_streams(device, there):
    stream = moe.Stream(device)
    assert (stream.address is None) == (device == "cpu")
    assert numpy.array_equal(there([1, 2, 3], stream=stream).numpy(stream=stream), [1, 2, 3])
    stream.synchronize()
    stream.close()
    stream.close()


@pytest.mark.case("MEM-01")
def test_a_device_that_is_not_there(device):
    with pytest.raises(moe.InvalidArgumentError, match="999"):
        moe.DeviceArray((4,), "f32", device=device, index=999)
    with pytest.raises(moe.InvalidArgumentError, match="kind is 0"):
        moe.Stream("auto")


def test_memory_is_the_allocators(device):
    if device != "cpu":
        pytest.skip("the allocator of this test serves host memory")
    allocator = CountingAllocator()
    runtime = moe.Runtime(n_threads=1, allocator=allocator)
    before = dict(allocator.living)
    array = moe.DeviceArray((1000,), "f32", device="cpu", runtime=runtime)
    assert {key for key in allocator.living if key not in before} == {array.address}
    runtime.close()  # what is left of it serves the memory
    del array
    assert not allocator.living and not allocator.problems


@pytest.mark.case("MEM-01")
def test_device_arrays_go_wherever_an_array_does(device, there, open_on):
    checkpoint, plan, _, _ = open_on(QWEN3)
    tensors = checkpoint.tensors(QWEN3.layer)

    def of_bytes(n_bytes):
        return moe.DeviceArray((n_bytes,), "u8", device=device)

    memory = of_bytes(moe.Weights.size(plan, tensors))
    weights = moe.Weights.load(plan, tensors, ownership="caller", memory=memory)
    need = plan.workspace_need(len(QWEN3.x))
    if device == "cpu":
        workspace = moe.Workspace(plan, host_memory=of_bytes(need.host_bytes))
    else:
        workspace = moe.Workspace(plan, device_memory=of_bytes(need.device_bytes))
    x = there(QWEN3.x)
    assert relative_l2(moe.forward(plan, weights, workspace, x).numpy(), QWEN3.y) <= 1e-5
    placed = moe.dispatch(plan, workspace, there(QWEN3.ids))
    found = moe.gather(plan, workspace, x, placed, expert_weights=there(QWEN3.weights))
    slots = placed.row_ids.numpy()
    assert sorted(slots) == list(range(QWEN3.ids.size))
    assert numpy.array_equal(found.rows.numpy(), QWEN3.x[slots // QWEN3.ids.shape[1]])
    assert numpy.array_equal(found.tokens.numpy(), slots // QWEN3.ids.shape[1])
    assert numpy.array_equal(found.weights.numpy(), QWEN3.weights.ravel()[slots])


@pytest.mark.case("MEM-01")
def test_a_tensor_lies_in_a_device_array(device, there, open_on):
    checkpoint, plan, weights, workspace = open_on(QWEN3)
    x, up = there(QWEN3.x), moe.Role.UP
    before = moe.forward(plan, weights, workspace, x).numpy()
    matrix = next(one for one in checkpoint.tensors(QWEN3.layer) if one.role == up and one.expert == 1)
    zeros = moe.DeviceArray((matrix.rows, matrix.columns), matrix.format.type, device=device)
    zeros.zero()
    weights.update(moe.Tensor(up, zeros, expert=1))
    after = moe.forward(plan, weights, workspace, x).numpy()
    changed = (QWEN3.ids == 1).any(axis=1)
    assert changed.any() and not changed.all()
    assert numpy.array_equal(numpy.any(before != after, axis=1), changed)


@pytest.mark.case("BAD-02")
def test_a_layer_on_the_device_tells_of_ids_outside(case, device, there):
    ids = QWEN3.ids.copy()
    ids[0, 0] = 1 << 30
    how = {"ids": there(ids), "expert_weights": there(QWEN3.weights)}
    with moe.Layer(QWEN3.path, QWEN3.layer, device=device, on_fault="keep") as layer:
        layer(there(QWEN3.x), **how).numpy()  # waits
        assert layer.faults() == (case["fault"], 1) and layer.faults() == (0, 0)
    with moe.Layer(QWEN3.path, QWEN3.layer, device=device) as layer:
        with pytest.raises(moe.FaultError, match="1 slots or rows were skipped"):
            layer(there(QWEN3.x), **how).numpy()
            layer(there(QWEN3.x))  # of the call before, where that had not ended


def test_loading_in_the_background(device, there, open_on):
    checkpoint, plan, _, workspace = open_on(QWEN3)
    loading = moe.Loading.start_checkpoint(plan, checkpoint, QWEN3.layer)
    weights = loading.wait()
    done = loading.poll()
    assert done.is_done and done.bytes_done == done.bytes_total > 0
    assert relative_l2(moe.forward(plan, weights, workspace, there(QWEN3.x)).numpy(), QWEN3.y) <= 1e-5
    loading.close()
