"""Two experts of a float32 layer, one token, the answer known by hand, through the module that SWIG made of moe.h.

Expert e has rows of ones scaled by s_e in gate and up, so gate x = up x = s_e * sum(x) in all 16 features, and a down
matrix of ones: every output is 16 silu(a) a with a = s_e * sum(x). Ids and weights are given.
"""
import math

import moe

HIDDEN, INTERMEDIATE = 32, 16
SCALES = [0.5, -0.25]
WEIGHTS = [0.75, 2.0]


def check(status, what):
    if status != moe.MOE_OK:
        raise SystemExit(f"{what}: {moe.moe_status_name(status)}: {moe.moe_last_error()}")


def floats(values):
    array = moe.new_floats(len(values))
    for i, value in enumerate(values):
        moe.floats_setitem(array, i, value)
    return array


def stack(role, data_format, rows, columns, values):
    tensor = moe.moe_tensor()
    tensor.role = role
    tensor.expert = moe.MOE_ALL_EXPERTS
    tensor.format = data_format
    tensor.n_experts = 2
    tensor.rows = rows
    tensor.columns = columns
    tensor.data = floats(values)
    tensor.data_bytes = 4 * len(values)
    return tensor


def make_plan(data_format):
    layer = moe.moe_layer_desc()
    layer.hidden, layer.intermediate, layer.n_experts, layer.top_k = HIDDEN, INTERMEDIATE, 2, 2
    layer.activation = moe.MOE_ACTIVATION_SILU
    layer.is_gated = 1
    formats = moe.new_format_list(moe.MOE_ROLE_COUNT)
    for role in range(moe.MOE_ROLE_COUNT):
        needed = role in (moe.MOE_ROLE_GATE, moe.MOE_ROLE_UP, moe.MOE_ROLE_DOWN)
        moe.format_list_setitem(formats, role, data_format if needed else None)
    desc = moe.moe_plan_desc()
    desc.device, desc.x_type, desc.layer = moe.MOE_DEVICE_CPU, moe.MOE_TYPE_F32, layer
    desc.formats, desc.n_formats, desc.max_tokens = formats, moe.MOE_ROLE_COUNT, 1
    place = moe.new_plan_place()
    check(moe.moe_plan_create(None, desc, place), "plan_create")
    return moe.plan_place_value(place)


def load_weights(plan, data_format):
    rows = [scale for scale in SCALES for _ in range(INTERMEDIATE * HIDDEN)]
    ones = [1.0] * (2 * INTERMEDIATE * HIDDEN)
    tensors = [stack(moe.MOE_ROLE_GATE, data_format, INTERMEDIATE, HIDDEN, rows),
               stack(moe.MOE_ROLE_UP, data_format, INTERMEDIATE, HIDDEN, rows),
               stack(moe.MOE_ROLE_DOWN, data_format, HIDDEN, INTERMEDIATE, ones)]
    pointers = moe.new_tensor_list(len(tensors))
    for i, tensor in enumerate(tensors):
        moe.tensor_list_setitem(pointers, i, tensor)
    desc = moe.moe_weights_desc()
    desc.tensors, desc.n_tensors = pointers, len(tensors)
    place = moe.new_weights_place()
    check(moe.moe_weights_load(plan, desc, place), "weights_load")
    return moe.weights_place_value(place)


def make_workspace(plan):
    desc = moe.moe_workspace_desc()
    desc.plan = plan
    place = moe.new_workspace_place()
    check(moe.moe_workspace_create(None, desc, place), "workspace_create")
    return moe.workspace_place_value(place)


def forward(x):
    data_format = moe.moe_format()
    check(moe.moe_format_by_name("f32", data_format), "format_by_name")
    plan = make_plan(data_format)
    weights = load_weights(plan, data_format)
    workspace = make_workspace(plan)

    ids = moe.new_ints(2)
    moe.ints_setitem(ids, 0, 0)
    moe.ints_setitem(ids, 1, 1)
    out = floats([math.nan] * HIDDEN)
    args = moe.moe_forward_args()
    args.routing = moe.MOE_ROUTING_IDS_AND_WEIGHTS
    args.n_tokens = 1
    args.x, args.ids, args.weights, args.out = floats(x), ids, floats(WEIGHTS), out
    check(moe.moe_forward(plan, weights, workspace, args), "forward")

    moe.moe_workspace_destroy(workspace)
    moe.moe_weights_destroy(weights)
    moe.moe_plan_destroy(plan)
    return [moe.floats_getitem(out, h) for h in range(HIDDEN)]


def main():
    x = [h / 128 for h in range(HIDDEN)]
    want = 0.0
    for scale, weight in zip(SCALES, WEIGHTS):
        a = scale * sum(x)
        want += weight * INTERMEDIATE * a / (1 + math.exp(-a)) * a
    for value in forward(x):
        if not abs(value - want) <= 1e-5 * abs(want):
            raise SystemExit(f"{value} instead of {want}")
    print(f"swig client: {want} as by hand")


main()
