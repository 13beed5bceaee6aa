"""Arrays in and out: what is taken, what is refused, and how far they reach."""
import mmap
import threading

import numpy
import pytest
from conftest import CASES
from oracle import Golden, relative_l2

import moe
from moe.arrays import ELEMENT_BYTES, NAMES

GOLDEN = Golden(CASES["BIG-01"]["fixture"])


@pytest.fixture(scope="module")
def handles():
    return GOLDEN.open()[1:]


@pytest.mark.case("BAD-01")
def test_wrong_shapes_and_types_are_refused_by_name(handles):
    x, ids = GOLDEN.x, GOLDEN.ids
    wide = numpy.zeros((len(x), x.shape[1] * 2), numpy.float32)
    bad = [
        (ValueError, r"x: has shape .*, must be", dict(x=x[:, :-1])),
        (ValueError, r"x: has shape", dict(x=x[0])),
        (ValueError, r"out: has shape", dict(x=x, out=numpy.empty((1, x.shape[1]), numpy.float32))),
        (ValueError, r"ids: has shape", dict(x=x, ids=ids[:-1])),
        (TypeError, r"x: is float64, must be float32", dict(x=x.astype(numpy.float64))),
        (TypeError, r"ids: is float32, must be int32 or int64", dict(x=x, ids=ids.astype(numpy.float32))),
        (TypeError, r"x: list is no numpy array", dict(x=x.tolist())),
        (ValueError, r"x: .*columns are not contiguous", dict(x=wide[:, ::2])),
        (ValueError, r"x: .*columns are not contiguous", dict(x=numpy.asfortranarray(x))),
        (ValueError, r"x: rows .* overlap", dict(x=numpy.broadcast_to(x[0], x.shape))),
        (ValueError, r"x: rows .* overlap", dict(x=x[::-1])),
        (ValueError, r"expert_weights: given without ids", dict(x=x, expert_weights=GOLDEN.weights)),
    ]
    for kind, words, arguments in bad:
        with pytest.raises(kind, match=words):
            moe.forward(*handles, **arguments)
    locked = numpy.empty_like(x)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="out: is read-only"):
        moe.forward(*handles, x, locked)


@pytest.mark.case("BAD-01")
def test_counts_of_rows_are_those_of_the_arrays(handles):
    plan, _, workspace = handles
    placed, top_k = moe.dispatch(plan, workspace, GOLDEN.ids), plan.shape.top_k
    rows = GOLDEN.x[placed.row_ids // top_k]
    batched = numpy.zeros((plan.shape.n_local_experts, 2, plan.shape.hidden), numpy.float32)
    how = dict(out_layout="rows", offsets=placed.offsets)
    for wrong in (len(rows) - 1, len(rows) + 32):
        with pytest.raises(ValueError, match=f"n_rows: is {wrong}, x has {len(rows)} rows"):
            moe.experts(*handles, rows, in_layout="sorted", n_rows=wrong, **how)
    with pytest.raises(ValueError, match=f"n_rows: is 1, x has {2 * len(batched)} rows"):
        moe.experts(*handles, batched, in_layout="batched", out_layout="rows", counts=placed.counts, n_rows=1)
    with pytest.raises(ValueError, match="n_tokens: is 1000, x has 7 tokens"):
        moe.experts(*handles, GOLDEN.x, row_ids=placed.row_ids, n_tokens=1000, **how)
    given = moe.experts(*handles, rows, in_layout="sorted", n_rows=len(rows), **how)
    assert numpy.array_equal(given, moe.experts(*handles, rows, in_layout="sorted", **how))


@pytest.mark.case("BAD-01")
def test_strided_rows_are_taken_where_they_lie(handles):
    wide = numpy.full((len(GOLDEN.x) * 2, GOLDEN.x.shape[1] + 3), numpy.nan, numpy.float32)
    x, out = wide[::2, 1:-2], numpy.full_like(wide, numpy.nan)
    x[...] = GOLDEN.x
    given = out[::2, 2:-1]
    assert moe.forward(*handles, x, given) is given
    assert relative_l2(given, GOLDEN.y) <= 1e-5
    given[...] = numpy.nan
    assert numpy.isnan(out).all()


@pytest.mark.case("BAD-02")
def test_ids_outside_the_layer_are_skipped_and_reported(handles, case):
    ids, weights = GOLDEN.ids.astype(numpy.int64), GOLDEN.weights.copy()
    ids[0, 0] = 1 << 40
    weights[0, 0] = 5.0
    without = ids.copy()
    without[0, 0] = -1
    found = moe.forward(*handles, GOLDEN.x, ids=ids, expert_weights=weights)
    assert handles[2].status() == (case["fault"], 1)
    assert handles[2].status() == (0, 0)
    assert numpy.array_equal(found, moe.forward(*handles, GOLDEN.x, ids=without, expert_weights=weights))
    assert handles[2].status() == (0, 0)
    assert numpy.isfinite(found).all() and moe.Fault.ID_OUT_OF_RANGE == case["fault"]


@pytest.mark.case("BAD-02")
def test_a_layer_raises_for_ids_outside(case):
    ids = GOLDEN.ids.copy()
    ids[0, 0] = 1 << 30
    without = numpy.where(ids == 1 << 30, -1, ids)
    how = {"ids": ids, "expert_weights": GOLDEN.weights}
    out = numpy.full_like(GOLDEN.x, numpy.nan)
    with moe.Layer(GOLDEN.path, GOLDEN.layer, device="cpu") as layer:
        with pytest.raises(moe.FaultError, match="1 slots or rows were skipped: id_out_of_range") as caught:
            layer(GOLDEN.x, out, **how)
        assert (caught.value.faults, caught.value.n_skipped) == (case["fault"], 1)
        assert isinstance(caught.value, IndexError) and layer.faults() == (0, 0)
        wanted = layer(GOLDEN.x, ids=without, expert_weights=GOLDEN.weights)
        assert numpy.array_equal(out, wanted), "the others do not count"
        workspace = moe.Workspace(layer.plan)
        layer(GOLDEN.x, workspace=workspace, **how)  # its owner asks
        assert workspace.status() == (case["fault"], 1) and layer.faults() == (0, 0)


@pytest.mark.case("BAD-02")
def test_a_layer_may_keep_faults_until_it_is_asked(case):
    ids = GOLDEN.ids.copy()
    ids[0, 0] = ids[1, 0] = 1 << 30
    with moe.Layer(GOLDEN.path, GOLDEN.layer, device="cpu", on_fault="keep") as layer:
        call = lambda: layer(GOLDEN.x, ids=ids, expert_weights=GOLDEN.weights)  # noqa: E731
        call()
        other = threading.Thread(target=call)  # has a workspace of its own
        other.start()
        other.join()
        assert layer.faults() == (case["fault"], 4) and layer.faults() == (0, 0)
    with pytest.raises(ValueError, match="on_fault: is 'ask'"):
        moe.Layer(GOLDEN.path, on_fault="ask", device="cpu")


def test_gathered_rows_are_those_of_the_dispatch(handles):
    plan, _, workspace = handles
    k = GOLDEN.ids.shape[1]
    placed = moe.dispatch(plan, workspace, GOLDEN.ids, block_rows=4)
    found = moe.gather(plan, workspace, GOLDEN.x, placed, expert_weights=GOLDEN.weights)
    used = placed.row_ids[: placed.offsets[-1]]
    tokens = numpy.where(used < 0, -1, used // k)
    assert numpy.array_equal(found.tokens[: len(used)], tokens) and (tokens >= 0).sum() == GOLDEN.ids.size
    assert numpy.array_equal(found.rows[: len(used)][tokens >= 0], GOLDEN.x[tokens[tokens >= 0]])
    assert numpy.array_equal(found.weights[: len(used)][tokens >= 0], GOLDEN.weights.ravel()[used[used >= 0]])
    assert (found.tokens[len(used) :] == -1).all() and (found.weights[len(used) :] == 0).all()
    assert moe.gather(plan, workspace, GOLDEN.x, placed).weights is None
    with pytest.raises(ValueError, match="x: "):
        moe.gather(plan, workspace, GOLDEN.x[:, 1:], placed)


@pytest.mark.case("BIG-01")
def test_rows_more_than_2_to_the_31_elements_apart(handles, case):
    stride, width = case["row_stride"], GOLDEN.x.shape[1]
    assert stride > 1 << 31
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python has the name since 3.13
    try:
        memory = mmap.mmap(-1, 4 * (stride + width), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    except OSError as error:
        pytest.skip(f"no sparse mapping of 8 GiB here: {error}")
    far = numpy.frombuffer(memory, numpy.float32)
    x = numpy.lib.stride_tricks.as_strided(far, (2, width), (4 * stride, 4))
    x[...] = GOLDEN.x[:2]
    found = moe.forward(*handles, x)
    assert numpy.array_equal(found, moe.forward(*handles, GOLDEN.x[:2].copy()))
    assert relative_l2(found, GOLDEN.y[:2]) <= 1e-5


@pytest.mark.case("BIG-02")
def test_counts_beyond_2_to_the_31(case):
    format = moe.Format.named(case["format"])
    assert format.size(case["rows"], case["columns"]).data_bytes == case["data_bytes"]
    with pytest.raises(moe.InvalidArgumentError, match=str(case["overflowing_rows"])):
        format.size(case["overflowing_rows"], case["columns"])
    many = case["max_tokens"]
    with GOLDEN.open()[0] as checkpoint, pytest.raises(moe.InvalidArgumentError, match=f"max_tokens is {many}"):
        moe.Plan(**GOLDEN.options(checkpoint, max_tokens=many))


@pytest.mark.case("BIG-02")
def test_integers_that_do_not_fit_are_refused():
    checkpoint, plan, _, workspace = GOLDEN.open()
    tensor = moe.Tensor("gate", numpy.zeros((2, 32), numpy.float32))
    wide, wider = 1 << 32, 1 << 64
    refused = [
        ("hidden: 4294967360 does not fit int32", lambda: moe.LayerDesc(hidden=wide + 64)),
        ("checkpoint_layer: 4294967296", lambda: moe.Layer(GOLDEN.path, wide, device="cpu")),
        ("max_tokens: .* does not fit int64", lambda: plan_with(checkpoint, max_tokens=wider + 4)),
        ("stages: -1 does not fit uint32", lambda: plan_with(checkpoint, stages=-1)),
        ("experts: 4294967296", lambda: moe.Slice([wide, -1])),
        ("expert_begin: 4294967296", lambda: moe.Slice(range(wide, wide + 2))),
        ("moe_format_size: 18446744073709551618", lambda: moe.Format.named("f32").size(wider + 2, 3)),
        ("moe_dequantize: 18446744073709551617", lambda: moe.dequantize(tensor, wider + 1)),
        ("moe_device_get_info: 4294967296", lambda: moe.device_info("cpu", wide)),
        ("role: 4294967303", lambda: moe.Tensor(wide + 7, numpy.zeros((2, 32), numpy.float32))),
        ("row_capacity: 18446744073709551616", lambda: moe.dispatch(plan, workspace, GOLDEN.ids, row_capacity=wider)),
        ("stream: -8 does not fit an address", lambda: moe.Workspace(plan, stream=-8)),
    ]
    for words, call in refused:
        with pytest.raises(ValueError, match=words):
            call()
    assert moe.LayerDesc(hidden=numpy.int64(64)).hidden == 64


def plan_with(checkpoint, **options):
    return moe.Plan(**GOLDEN.options(checkpoint, **options))


def test_a_zero_byte_does_not_end_text():
    checkpoint = GOLDEN.open()[0]
    refused = [
        lambda: moe.Checkpoint(f"{GOLDEN.path}\0junk"),
        lambda: moe.Checkpoint(GOLDEN.path, family="qwen3_moe\0junk"),
        lambda: moe.Format.named("f32\0junk"),
        lambda: plan_with(checkpoint, kernel_filter="\0junk"),
    ]
    for call in refused:
        with pytest.raises(ValueError, match="has a zero byte"):
            call()


def test_sizes_of_elements():
    for kind, name in NAMES.items():
        if hasattr(numpy, name):
            assert ELEMENT_BYTES[kind] == numpy.dtype(name).itemsize
    assert set(ELEMENT_BYTES) == set(NAMES)
