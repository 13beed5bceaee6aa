"""Numbers: golden outputs, routing that is given, the stages, tensors by hand, the host tools."""
import shutil

import numpy
import pytest
from conftest import CASES
from oracle import FIXTURES, ROOT, Golden, relative_l2

import moe

QWEN3 = Golden(CASES["FWD-02"]["fixture"])


@pytest.mark.case("FWD-01")
@pytest.mark.parametrize("name", CASES["FWD-01"]["fixtures"])
def test_golden_outputs(name, case):
    golden = Golden(FIXTURES / name)
    _, plan, weights, workspace = golden.open()
    ids, slot_weights = numpy.full_like(golden.ids, -7), numpy.full_like(golden.weights, numpy.nan)
    counts = numpy.full(plan.shape.n_all_experts, -7, numpy.int64)
    outputs = dict(out_ids=ids, out_weights=slot_weights, out_expert_counts=counts)
    out = moe.forward(plan, weights, workspace, golden.x, **outputs)
    assert numpy.array_equal(ids, golden.ids)
    assert numpy.array_equal(counts, numpy.bincount(golden.ids.ravel(), minlength=len(counts)))
    assert relative_l2(slot_weights, golden.weights) <= case["relative_l2"]
    assert relative_l2(out, golden.y) <= case["relative_l2"]


@pytest.mark.case("FWD-02")
def test_given_routing(case):
    plan, weights, workspace = handles = QWEN3.open()[1:]
    x, limit = QWEN3.x, case["relative_l2"]
    given = moe.forward(*handles, x, ids=QWEN3.ids.astype(numpy.int64), expert_weights=QWEN3.weights)
    assert relative_l2(given, QWEN3.y) <= limit
    logits = numpy.full((len(x), plan.shape.n_all_experts), numpy.nan, numpy.float32)
    computed = moe.forward(*handles, x, out_logits=logits)
    ids = numpy.full_like(QWEN3.ids, -7)
    assert numpy.array_equal(moe.forward(*handles, x, logits=logits, out_ids=ids), computed)
    assert numpy.array_equal(ids, QWEN3.ids)
    nobody = moe.forward(*handles, x, ids=numpy.full_like(QWEN3.ids, -1), expert_weights=QWEN3.weights)
    assert not nobody.any()
    assert moe.forward(*handles, x[:0]).shape == (0, plan.shape.hidden)


@pytest.mark.case("FWD-02")
def test_accumulation_and_fewer_tokens():
    handles = QWEN3.open()[1:]
    out = QWEN3.y.copy()
    assert moe.forward(*handles, QWEN3.x, out, accumulate=True) is out
    assert relative_l2(out, 2 * QWEN3.y) <= 1e-5
    out[...] = 7
    moe.forward(*handles, QWEN3.x, out, n_tokens_device=numpy.array([2], numpy.int32))
    assert relative_l2(out[:2], QWEN3.y[:2]) <= 1e-5 and (out[2:] == 7).all()
    with pytest.raises(ValueError, match="out: must be given"):
        moe.forward(*handles, QWEN3.x, accumulate=True)


@pytest.mark.case("FWD-03")
def test_stage_by_stage(case):
    golden = Golden(case["fixture"])
    plan, weights, workspace = golden.open()[1:]
    ids, slot_weights = moe.route(plan, weights, workspace, golden.x)
    assert numpy.array_equal(ids, golden.ids)
    again = moe.route(plan, weights, workspace, golden.x, ids=ids)
    assert again.ids is ids and relative_l2(again.weights, golden.weights) <= case["relative_l2"]
    placed = moe.dispatch(plan, workspace, ids)
    assert placed.offsets[-1] == ids.size and placed.counts.sum() == ids.size
    assert sorted(placed.row_ids.tolist()) == list(range(ids.size))
    how = dict(out_layout="rows", offsets=placed.offsets, row_ids=placed.row_ids)
    rows = moe.experts(plan, weights, workspace, golden.x, **how)
    routed = moe.combine(plan, workspace, rows, ids, slot_weights, row_ids=placed.row_ids)
    out = moe.finish(plan, weights, workspace, routed, golden.x, ids=ids, expert_weights=slot_weights)
    assert relative_l2(out, golden.y) <= case["relative_l2"]
    fused = moe.experts(plan, weights, workspace, golden.x, ids=ids, expert_weights=slot_weights)
    assert relative_l2(fused, routed) <= 1e-5


@pytest.mark.case("FWD-03")
def test_layouts_of_experts():
    """Sorted and batched rows give the rows that tokens give; a stop before the activation has gate and up."""
    plan, weights, workspace = handles = QWEN3.open()[1:]
    shape, ids = plan.shape, QWEN3.ids
    placed = moe.dispatch(plan, workspace, ids)
    how = dict(offsets=placed.offsets, row_ids=placed.row_ids)
    rows = moe.experts(*handles, QWEN3.x, out_layout="rows", **how)
    sorted_x = QWEN3.x[placed.row_ids // shape.top_k]
    again = moe.experts(*handles, sorted_x, in_layout="sorted", out_layout="rows", offsets=placed.offsets)
    assert relative_l2(again, rows) <= 1e-5
    more = dict(in_layout="sorted", n_tokens=len(ids), expert_weights=QWEN3.weights, **how)
    assert relative_l2(moe.experts(*handles, sorted_x, **more), QWEN3.y) <= 1e-5
    capacity = int(placed.counts.max())
    batched = numpy.zeros((shape.n_local_experts, capacity, shape.hidden), numpy.float32)
    for expert, (begin, end) in enumerate(zip(placed.offsets, placed.offsets[1:])):
        batched[expert, : end - begin] = sorted_x[begin:end]
    out = moe.experts(*handles, batched, in_layout="batched", out_layout="rows", counts=placed.counts)
    used = numpy.arange(capacity) < placed.counts[:, None]
    assert relative_l2(out[used], rows) <= 1e-5
    half = moe.experts(*handles, QWEN3.x, out_layout="rows", stop_before_activation=True, **how)
    assert half.shape == (ids.size, shape.n_features) and numpy.abs(half).max() > 0
    slots = moe.experts(*handles, QWEN3.x, out_layout="per_slot", ids=ids)
    combined = moe.combine(plan, workspace, slots, ids, QWEN3.weights)
    assert relative_l2(combined, QWEN3.y) <= 1e-5


def test_slices_add_up():
    checkpoint = QWEN3.open()[0]
    total = numpy.zeros_like(QWEN3.y)
    for part in (range(0, 5), range(5, 12)):
        plan = moe.Plan(**QWEN3.options(checkpoint, partial=True, slice=moe.Slice(experts=part)))
        weights = moe.Weights.load_checkpoint(plan, checkpoint, QWEN3.layer)
        assert weights.memory.n_local_experts == len(part)
        moe.forward(plan, weights, moe.Workspace(plan), QWEN3.x, total, accumulate=True)
    assert relative_l2(total, QWEN3.y) <= 1e-5


def by_hand(x, router, gate, up, down, top_k):
    """The sums of moe.h section 4 for softmax scores and SiLU, in float64."""
    logits = x @ router.T
    scores = numpy.exp(logits - logits.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    out = numpy.zeros_like(x)
    for token, row in enumerate(x):
        for expert in numpy.argsort(-scores[token], kind="stable")[:top_k]:
            g, u = gate[expert] @ row, up[expert] @ row
            out[token] += scores[token, expert] * (down[expert] @ (g / (1 + numpy.exp(-g)) * u))
    return out


@pytest.fixture
def small(case):
    layer = moe.LayerDesc(**case["layer"])
    random = numpy.random.default_rng(7)
    sizes = dict(router=(layer.n_experts, layer.hidden))
    sizes |= {role: (layer.n_experts, layer.intermediate, layer.hidden) for role in ("gate", "up")}
    sizes["down"] = (layer.n_experts, layer.hidden, layer.intermediate)
    tensors = {role: random.standard_normal(size, numpy.float32) for role, size in sizes.items()}
    x = random.standard_normal((5, layer.hidden), numpy.float32)
    wanted = by_hand(x.astype(float), *(one.astype(float) for one in tensors.values()), layer.top_k)
    plan = moe.Plan(layer, dict.fromkeys(tensors, "f32"), x_type="f32", max_tokens=5, device="cpu")
    return plan, tensors, x, wanted


def test_a_second_selection_bias_chooses_for_some_tokens():
    """A layer whose router is zero: the biases alone choose, the flags say which."""
    layer = moe.LayerDesc(hidden=32, intermediate=16, n_experts=4, top_k=1, has_router=1, score="sigmoid",
                          has_selection_bias=1, has_second_selection_bias=1, activation="silu", is_gated=1)
    plan = moe.Plan(layer, dict.fromkeys(("router", "gate", "up", "down"), "f32"), x_type="f32", max_tokens=3, device="cpu")
    zeros = lambda *shape: numpy.zeros(shape, numpy.float32)
    first, second = zeros(1, 4), zeros(1, 4)
    first[0, 2] = second[0, 1] = 1
    tensors = [moe.Tensor("router", zeros(4, 32)), moe.Tensor("selection_bias", first),
               moe.Tensor("second_selection_bias", second), moe.Tensor("gate", zeros(4, 16, 32)),
               moe.Tensor("up", zeros(4, 16, 32)), moe.Tensor("down", zeros(4, 32, 16))]
    weights, workspace = moe.Weights.load(plan, tensors), moe.Workspace(plan)
    x, flags, ids = zeros(3, 32), numpy.array([0, 1, -1], numpy.int8), numpy.zeros((3, 1), numpy.int32)
    moe.forward(plan, weights, workspace, x, uses_second_bias=flags, out_ids=ids)
    assert ids.tolist() == [[2], [1], [1]]
    assert moe.route(plan, weights, workspace, x, uses_second_bias=flags).ids.tolist() == [[2], [1], [1]]
    assert moe.route(plan, weights, workspace, x).ids.tolist() == [[2], [2], [2]]
    with pytest.raises((TypeError, ValueError), match="uses_second_bias"):
        moe.route(plan, weights, workspace, x, uses_second_bias=flags[:2])


@pytest.mark.case("FWD-04")
@pytest.mark.parametrize("ownership", ["copy", "borrow", "caller"])
def test_tensors_by_hand(small, case, ownership):
    plan, arrays, x, wanted = small
    tensors = [moe.Tensor(role, array) for role, array in arrays.items()]
    n_bytes = moe.Weights.size(plan, tensors)
    memory = numpy.zeros(n_bytes + 64, numpy.uint8) if ownership == "caller" else None
    if memory is not None:
        begin = -memory.ctypes.data % 64
        memory = memory[begin : begin + n_bytes]
    weights = moe.Weights.load(plan, tensors, ownership=ownership, memory=memory)
    assert weights.memory.role_bytes[moe.Role.GATE] == arrays["gate"].nbytes
    assert (weights.memory.borrowed_bytes > 0) == (ownership == "borrow")
    del tensors  # borrowed arrays are kept by the weights
    out = moe.forward(plan, weights, moe.Workspace(plan), x)
    assert relative_l2(out, wanted) <= case["relative_l2"]


@pytest.mark.case("FWD-04")
def test_one_array_per_expert_and_update(small, case):
    plan, arrays, x, wanted = small
    changed = dict(arrays, gate=[*arrays["gate"][:3], arrays["gate"][0]], up=list(arrays["up"]))
    weights = moe.Weights.load(plan, [moe.Tensor(role, given) for role, given in changed.items()])
    workspace = moe.Workspace(plan)
    assert relative_l2(moe.forward(plan, weights, workspace, x), wanted) > 1e-3
    weights.update(moe.Tensor("gate", arrays["gate"][3], expert=3))
    assert relative_l2(moe.forward(plan, weights, workspace, x), wanted) <= case["relative_l2"]


@pytest.mark.case("FWD-04")
def test_a_missing_tensor_is_named(small):
    plan, arrays, *_ = small
    tensors = [moe.Tensor(role, array) for role, array in arrays.items() if role != "down"]
    with pytest.raises(moe.MoeError, match="down"):
        moe.Weights.load(plan, tensors)


@pytest.mark.case("FWD-05")
@pytest.mark.parametrize("format", moe.formats())
def test_quantise_and_read_back(format, case):
    random = numpy.random.default_rng(1)
    rows, columns = (case["rows"], case["columns"]) if format == case["format"] else (128, 256)
    matrix = random.standard_normal((rows, columns), numpy.float32)
    info = moe.Format.named(format).info
    if not info.has_encode:
        with pytest.raises(moe.UnsupportedError):
            moe.quantize(matrix, format)
        return
    again = moe.dequantize(moe.quantize(matrix, format).tensor("gate", 0))
    coarse = {2: 0.5, 3: 0.5, 4: 0.2, 5: 0.1, 6: 0.1, 8: 0.05, 16: 4e-3}
    limit = case["relative_l2"] if format == case["format"] else coarse.get(int(info.bits_per_weight), 0)
    assert relative_l2(again.reshape(1, -1), matrix.reshape(1, -1)) <= limit


def test_scales_go_to_tiles_and_back():
    rows, columns, groups = 130, 80, 5
    matrix = numpy.random.default_rng(1).standard_normal((rows, columns), numpy.float32)
    made = moe.quantize(matrix, "nvfp4")
    wanted = moe.dequantize(made.tensor("gate", 0))
    tiles = moe.convert_scales(made.scales, rows, groups, "tiled_128x4")
    assert tiles.size == 4 * 512 == moe.scale_layout_size("tiled_128x4", rows, groups)
    assert tiles[21] == made.scales[33 * groups + 1]
    back = moe.convert_scales(tiles, rows, groups, "linear", source_layout="tiled_128x4")
    assert numpy.array_equal(back, made.scales)

    def tensor(layout):
        options = dict(expert=0, rows=rows, columns=columns, global_scale=made.global_scale)
        return moe.Tensor("gate", made.data, format=made.format, scales=tiles, scale_layout=layout, **options)

    assert numpy.array_equal(moe.dequantize(tensor("tiled_128x4")), wanted)
    assert not numpy.array_equal(moe.dequantize(tensor("linear")), wanted)
    with pytest.raises(moe.InvalidArgumentError, match="scale_layout is 2"):
        moe.dequantize(tensor(2))
    with pytest.raises(moe.InvalidArgumentError, match="source_bytes"):
        moe.convert_scales(made.scales[:-1], rows, groups, "tiled_128x4")


def test_elements_are_of_the_format():
    matrix = numpy.arange(256, dtype=numpy.float32).reshape(4, 64)
    bits = (matrix.view(numpy.uint32) >> 16).astype(numpy.uint16)
    assert numpy.array_equal(moe.dequantize(moe.Tensor("gate", bits)), matrix)
    raw = moe.Tensor("gate", bits.view(numpy.uint8), format="bf16", rows=4, columns=64)
    assert numpy.array_equal(moe.dequantize(raw), matrix)
    with pytest.raises(ValueError, match="rows and columns: must be given"):
        moe.Tensor("gate", bits.view(numpy.uint8), format="bf16")

    made = moe.quantize(matrix, "nvfp4")

    def nvfp4(**changed):
        given = dict(data=made.data, scales=made.scales, global_scale=made.global_scale) | changed
        return moe.Tensor("gate", format="nvfp4", rows=4, columns=64, **given)

    assert numpy.array_equal(moe.dequantize(nvfp4(data=made.data.view(numpy.int8))), moe.dequantize(nvfp4()))
    refused = [
        ("data: is float16, must be bfloat16 or uint8", lambda: moe.Tensor("gate", matrix.astype("f2"), format="bf16")),
        ("data: is int32, must be float32 or uint8", lambda: moe.Tensor("gate", matrix.astype("i4"), format="f32")),
        ("data: is float32, must be float4_e2m1fn_x2 or uint8 or int8", lambda: nvfp4(data=matrix)),
        (r"data\[0\]: is bfloat16, must be float32", lambda: moe.Tensor("gate", [bits, bits], format="f32")),
        ("scales: is float32, must be float8_e4m3fn or uint8 or int8", lambda: nvfp4(scales=matrix)),
        (r"scales\[0\]: is float32, must be", lambda: nvfp4(scales=[matrix])),
        ("global_scale: is float64, must be float32", lambda: nvfp4(global_scale=numpy.ones(1))),
        ("pre_quant_scale: is float16, must be float32", lambda: nvfp4(pre_quant_scale=numpy.ones(64, "f2"))),
        ("scales: is float32, must be int8", lambda: moe.convert_scales(matrix, 4, 64, "tiled_128x4")),
    ]
    for words, call in refused:
        with pytest.raises(TypeError, match=words):
            call()


def test_words_of_packed_integers():
    """GPTQ of 4 bits: codes and zero points are int32 words, or their bytes."""
    numbers = dict(bits=4, group_rows=1, group_columns=16, scale_type=moe.Type.F16, zero_point=moe.ZeroPoint.PACKED)
    format = moe.Format(type=moe.Type.INT, packing=moe.Packing.GPTQ, **numbers)
    words, zeros = numpy.full((2, 8), 0x55555555, numpy.int32), numpy.full((1, 1), 0x22222222, numpy.int32)
    scales = numpy.full((1, 8), 0.5, numpy.float16)

    def tensor(data=words, scales=scales, zero_points=zeros):
        given = dict(scales=scales, zero_points=zero_points, rows=8, columns=16)
        return moe.Tensor("gate", data, format=format, **given)

    as_bytes = tensor(*(one.view(numpy.uint8) for one in (words, scales, zeros)))
    for given in (tensor(), as_bytes):
        assert (moe.dequantize(given) == 1.5).all()
    refused = [
        ("data: is int64, must be int32 or uint8", dict(data=words.astype(numpy.int64))),
        ("zero_points: is int64, must be int32 or uint8", dict(zero_points=zeros.astype(numpy.int64))),
        ("scales: is float32, must be float16 or uint8", dict(scales=scales.astype(numpy.float32))),
    ]
    for words_of_error, changed in refused:
        with pytest.raises(TypeError, match=words_of_error):
            tensor(**changed)


def test_tables_and_arrays_per_expert_are_counted():
    nested = dict(bits=4, group_rows=1, group_columns=64, scale_type=moe.Type.U8, nested_scales=1)
    nested |= dict(packing=moe.Packing.NIBBLE_HIGH_FIRST, codebook=moe.Codebook.BNB_NF4)

    def bnb(n_values):
        tables = dict(nested_scales=numpy.ones(1, numpy.float32), nested_codebook=numpy.ones(n_values, numpy.float32))
        format, codes = moe.Format(type=moe.Type.CODEBOOK, **nested), numpy.full(32, 0xFF, numpy.uint8)
        return moe.Tensor("gate", codes, format=format, rows=1, columns=64, scales=numpy.full(1, 255, numpy.uint8), **tables)

    assert (moe.dequantize(bnb(256)) == 1).all()
    with pytest.raises(ValueError, match="nested_codebook: has 16 values, must have 256"):
        bnb(16)
    matrices = [numpy.zeros((2, 32), numpy.float32)] * 3
    with pytest.raises(ValueError, match="n_experts: is 4, data has 3 arrays"):
        moe.Tensor("gate", matrices, n_experts=4)
    made = moe.quantize(numpy.ones((2, 32), numpy.float32), "mxfp4")
    with pytest.raises(ValueError, match="scales: has 2 arrays, must have 3"):
        moe.Tensor("gate", [made.data] * 3, format="mxfp4", rows=2, columns=32, scales=[made.scales] * 2)


def test_a_matrix_is_one_expert_and_a_stack_is_all():
    matrix = numpy.random.default_rng(1).standard_normal((8, 64), numpy.float32)
    for tensor in (moe.Tensor("gate", matrix), moe.quantize(matrix, "f32").tensor("gate")):
        assert tensor.struct.expert == 0 and numpy.array_equal(moe.dequantize(tensor), matrix)
    stack = moe.Tensor("gate", numpy.stack([matrix, -matrix]))
    assert stack.struct.expert == moe.ALL_EXPERTS and numpy.array_equal(moe.dequantize(stack, 1), -matrix)
    in_bytes = moe.Tensor("gate", matrix.view(numpy.uint8), format="f32", rows=4, columns=64, n_experts=2)
    assert in_bytes.struct.expert == moe.ALL_EXPERTS and numpy.array_equal(moe.dequantize(in_bytes, 1), matrix[4:])
    assert moe.Tensor("gate", [matrix, matrix]).struct.expert == moe.ALL_EXPERTS
    assert moe.Tensor("gate", matrix, expert=3).struct.expert == moe.quantize(matrix, "q8_0").tensor("gate", 3).struct.expert == 3


@pytest.mark.case("FWD-05")
def test_an_absent_device_is_refused():
    checkpoint = QWEN3.open()[0]
    options = QWEN3.options(checkpoint, device="cuda")
    if "cuda" not in moe.build_info()["backends"]:
        wanted = moe.NotBuiltError
    elif moe.Plan.supports(**QWEN3.options(checkpoint, device="cuda")):
        options |= {"device_index": 1000}
        wanted = moe.MoeError
    else:
        wanted = moe.NoDeviceError
    with pytest.raises(wanted):
        moe.Plan(**options)


@pytest.mark.case("BAD-03")
def test_a_damaged_checkpoint(tmp_path, case):
    folder = shutil.copytree(ROOT / case["source"], tmp_path / "damaged")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(moe.CorruptFileError, match="model.safetensors") as caught:
        moe.Checkpoint(folder)
    assert caught.value.status == case["status"]


def test_a_checkpoint_without_moe_layers(tmp_path):
    header = b'{"lm_head.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    (tmp_path / "config.json").write_text('{"model_type":"mixtral"}')
    with pytest.raises(moe.NotFoundError, match="model.safetensors: has no MoE layers"):
        moe.Layer(tmp_path)
    checkpoint = moe.Checkpoint(QWEN3.path)
    assert [checkpoint.layer_at(i) for i in range(len(checkpoint.layers))] == checkpoint.layers


def test_bfloat16_bits():
    """numpy has no bfloat16: uint16 holds its bits, in and out."""
    with moe.Layer(QWEN3.path, QWEN3.layer, x_type="bf16", device="cpu") as layer:
        bits = (QWEN3.x.view(numpy.uint32) >> 16).astype(numpy.uint16)  # the fixtures' x is exact in bfloat16
        out = layer(bits)
        assert out.dtype == numpy.uint16
        values = (out.astype(numpy.uint32) << 16).view(numpy.float32)
        assert relative_l2(values, QWEN3.y) <= 2e-2
        batch = layer(bits.reshape(1, *bits.shape))
        assert numpy.array_equal(batch[0], out)


def test_saved_weights_are_not_in_this_version(tmp_path):
    _, plan, weights, _ = QWEN3.open()
    for call in (lambda: weights.save(tmp_path / "packed"), lambda: moe.Weights.open(plan, tmp_path / "packed")):
        with pytest.raises(moe.UnsupportedError, match="moe_weights_"):
            call()
