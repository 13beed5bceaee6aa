// What is refused before anything is launched: the status says so, outputs are untouched, and the
// next good call works.
#include "compare.hpp"
#include "layer_kinds.hpp"

namespace moe_gpu {
namespace {

using Change = std::function<void(moe_forward_args&)>;

template <class P>
P* off_by_one(P* pointer) {
    return reinterpret_cast<P*>(reinterpret_cast<uintptr_t>(pointer) + 1);
}

struct Refusals {
    explicit Refusals(Context& in) : context(in), pair(in, spec()), side(pair.subject) {}

    static PairSpec spec() {
        PairSpec spec;
        spec.layer.desc = rich_layer(128, 64, 8, 2);
        spec.max_tokens = 32;
        return spec;
    }
    void expect(const char* what, moe_status wanted, const Change& change,
                moe_workspace* workspace = nullptr) {
        const Forward call = pair.routed_call(32);
        ForwardBuffers buffers(side, call, side.stream());
        moe_forward_args args = buffers.args();
        change(args);
        const moe_status status = moe_forward(side.plan.get(), side.weights.get(),
                                              workspace ? workspace : side.workspace(), &args);
        context.expect(status == wanted, text("%s: %s, wanted %s", what, moe_status_name(status),
                                              moe_status_name(wanted)));
        context.expect(*moe_last_error() != 0 || status == MOE_OK, text("%s: no sentence", what));
        side.synchronize();
        Forward none = call;
        none.n_tokens_device = 0;
        none.wants_routing = false;
        buffers.get(none);  // fails if any row was written
    }

    Context& context;
    Pair pair;
    const Side& side;
};

void check_arguments(Context& context) {
    Refusals refusals(context);
    const auto bad = [&](const char* what, const Change& change) {
        refusals.expect(what, MOE_ERROR_INVALID_ARGUMENT, change);
    };
    bad("T over max_tokens", [](auto& args) { args.n_tokens = 33; });
    bad("negative T", [](auto& args) { args.n_tokens = -1; });
    bad("x NULL", [](auto& args) { args.x = nullptr; });
    bad("out NULL", [](auto& args) { args.out = nullptr; });
    bad("ids NULL", [](auto& args) { args.ids = nullptr; });
    bad("weights NULL", [](auto& args) { args.weights = nullptr; });
    bad("x misaligned", [](auto& args) { args.x = off_by_one(args.x); });
    bad("out misaligned", [](auto& args) { args.out = off_by_one(args.out); });
    bad("ids misaligned", [](auto& args) { args.ids = off_by_one(args.ids); });
    bad("weights misaligned", [](auto& args) { args.weights = off_by_one(args.weights); });
    bad("out_ids misaligned", [](auto& args) { args.out_ids = off_by_one(args.out_ids); });
    bad("x stride", [](auto& args) { args.x_row_stride = 127; });
    bad("out stride", [](auto& args) { args.out_row_stride = -128; });
    bad("ids stride", [](auto& args) { args.ids_row_stride = 1; });
    bad("routing", [](auto& args) { args.routing = static_cast<moe_routing>(9); });
    bad("ids_type", [](auto& args) { args.ids_type = MOE_TYPE_F32; });
    bad("weights_type", [](auto& args) { args.weights_type = MOE_TYPE_I32; });
    bad("per slot of a whole plan", [](auto& args) { args.out_layout = MOE_OUT_PER_SLOT; });
    bad("overlap", [](auto& args) { args.out = const_cast<void*>(args.x); });
    bad("short map", [](auto& args) {
        args.expert_map = static_cast<const int32_t*>(args.ids);
        args.n_expert_map = 7;
    });
    refusals.expect("struct_size", MOE_ERROR_ABI, [](auto& args) { args.struct_size = 2; });
    refusals.expect("x_scales", MOE_ERROR_INVALID_ARGUMENT, [](auto& args) { args.x_scales = args.x; });
    refusals.pair.check(refusals.pair.routed_call(32), "after all refusals");
}

void check_workspaces(Context& context) {
    Refusals refusals(context);
    const Side& side = refusals.side;
    auto need = sized<moe_workspace_need>();
    must(moe_plan_workspace_size(side.plan.get(), 32, &need), "moe_plan_workspace_size");
    const bool cuda = context.device.is_cuda();
    const uint64_t bytes = cuda ? need.device_bytes : need.host_bytes;
    auto desc = sized<moe_workspace_desc>();
    desc.device = context.device.kind();
    (cuda ? desc.device_bytes : desc.host_bytes) = bytes - 1;
    if (cuda) desc.host_bytes = need.host_bytes;
    moe_workspace* raw = nullptr;
    must(moe_workspace_create(context.runtime, &desc, &raw), "moe_workspace_create");
    const Workspace small(raw);
    refusals.expect(
        "one byte too few", MOE_ERROR_WORKSPACE_TOO_SMALL, [](auto&) {}, raw);

    Buffer memory(context.device, bytes + 4096);
    (cuda ? desc.device_bytes : desc.host_bytes) = bytes;
    (cuda ? desc.device_memory : desc.host_memory) = static_cast<std::byte*>(memory.data()) + 8;
    const moe_status status = moe_workspace_create(context.runtime, &desc, &raw);
    context.expect(status == MOE_ERROR_INVALID_ARGUMENT,
                   std::string("memory off its alignment: ") + moe_status_name(status));
    if (status == MOE_OK) moe_workspace_destroy(raw);
    if (!cuda) return;
    auto of_host = sized<moe_workspace_desc>();
    of_host.device = MOE_DEVICE_CPU;
    of_host.host_bytes = 1 << 20;
    must(moe_workspace_create(context.runtime, &of_host, &raw), "moe_workspace_create");
    const Workspace host(raw);
    refusals.expect(
        "a CPU workspace", MOE_ERROR_INVALID_ARGUMENT, [](auto&) {}, raw);
}

void check_plans(Context& context) {
    const LayerData data({plain_layer(128, 64, 8, 2)});
    const auto create = [&](const std::function<void(moe_plan_desc&)>& change) {
        moe_plan_desc desc = data.plan_desc();
        desc.device = context.device.kind();
        desc.x_type = MOE_TYPE_BF16;
        desc.max_tokens = 16;
        change(desc);
        moe_plan* plan = nullptr;
        const moe_status status = moe_plan_create(context.runtime, &desc, &plan);
        const moe_status dry = moe_supports(context.runtime, &desc);
        context.expect(status == dry, text("moe_supports says %s, moe_plan_create %s",
                                           moe_status_name(dry), moe_status_name(status)));
        moe_plan_destroy(plan);
        return status;
    };
    context.expect(create([](auto&) {}) == MOE_OK, "a good plan");
    context.expect(
        create([](auto& d) { d.kernel_filter = "no_such_kernel"; }) == MOE_ERROR_INVALID_ARGUMENT,
        "a kernel that does not exist");
    const moe_status index = create([](auto& d) { d.device_index = 63; });
    context.expect(index == MOE_ERROR_INVALID_ARGUMENT || index == MOE_ERROR_NO_DEVICE,
                   std::string("device 63: ") + moe_status_name(index));
    // float64 is the reference's.
    if (context.device.is_cuda()) {
        const moe_status f64 = create([](auto& d) { d.intermediate_type = MOE_TYPE_F64; });
        context.expect(f64 == MOE_ERROR_UNSUPPORTED,
                       std::string("intermediate F64: ") + moe_status_name(f64));
    }
}

// A slice between the columns that go into a packed tile together: AUTO runs it where it can.
void check_unpackable_slice(Context& context) {
    LayerSpec spec{plain_layer(128, 64, 8, 2)};
    spec.format = "fp8_128x128";
    const LayerData data(spec);
    auto slice = sized<moe_slice>();
    slice.has_intermediate_range = 1;
    slice.intermediate_begin = 16;
    slice.intermediate_count = 48;
    moe_plan_desc desc = data.plan_desc();
    desc.x_type = MOE_TYPE_BF16;
    desc.max_tokens = 16;
    desc.slice = &slice;
    desc.partial = 1;
    if (context.device.is_cuda()) {
        desc.device = MOE_DEVICE_CUDA;
        const moe_status status = moe_supports(context.runtime, &desc);
        context.expect(status == MOE_ERROR_INVALID_ARGUMENT,
                       std::string("CUDA: ") + moe_status_name(status));
    }
    desc.device = MOE_DEVICE_AUTO;
    moe_plan* raw = nullptr;
    must(moe_plan_create(context.runtime, &desc, &raw), "moe_plan_create");
    const Plan plan(raw);
    auto need = sized<moe_workspace_need>();
    must(moe_plan_workspace_size(raw, 16, &need), "moe_plan_workspace_size");
    context.expect(need.device_bytes == 0 && need.host_bytes > 0,
                   "the plan is not one for the CPU");
}

// Sizes of workspaces never fall as tokens become more, and no call of a plan of little memory
// needs more than it was given.
void check_workspace_sizes(Context& context) {
    LayerSpec spec{plain_layer(2880, 64, 32, 4)};
    spec.distinct_experts = 1;
    const LayerData data(spec);
    const auto bytes_of = [&](const moe_plan_desc& desc, int64_t first) {
        moe_plan* raw = nullptr;
        must(moe_plan_create(context.runtime, &desc, &raw), "moe_plan_create");
        const Plan plan(raw);
        uint64_t before = 0;
        for (int64_t n = first; n <= desc.max_tokens; ++n) {
            auto need = sized<moe_workspace_need>();
            must(moe_plan_workspace_size(raw, n, &need), "moe_plan_workspace_size");
            const uint64_t bytes = std::max(need.device_bytes, need.host_bytes);
            context.expect(bytes >= before, text("fewer bytes for %ld", static_cast<long>(n)));
            before = bytes;
        }
        return before;
    };
    moe_plan_desc desc = data.plan_desc();
    desc.device = context.device.kind();
    desc.x_type = MOE_TYPE_BF16;
    desc.max_tokens = 4096;
    bytes_of(desc, 1);
    desc.max_tokens = 1 << 20;
    desc.max_workspace_bytes = uint64_t{48} << 20;
    context.expect(bytes_of(desc, desc.max_tokens - 100) <= desc.max_workspace_bytes,
                   "more than max_workspace_bytes");
    desc.max_workspace_bytes = uint64_t{32} << 20;
    if (context.device.is_cuda())
        context.expect(moe_supports(context.runtime, &desc) == MOE_ERROR_INVALID_ARGUMENT,
                       "ids alone are more than max_workspace_bytes");
}

void check_mismatch(Context& context) {
    PairSpec spec = Refusals::spec();
    const Pair pair(context, spec);
    spec.layer.format = "nvfp4";
    const Pair other(context, spec);
    const Side& side = pair.subject;
    ForwardBuffers buffers(side, pair.routed_call(8), side.stream());
    const moe_status status = moe_forward(side.plan.get(), other.subject.weights.get(),
                                          side.workspace(), &buffers.args());
    context.expect(status == MOE_ERROR_LAYOUT_MISMATCH,
                   std::string("weights of another layout: ") + moe_status_name(status));
    auto args = buffers.args();
    const moe_status spmd =
        moe_forward_spmd(side.plan.get(), side.weights.get(), side.workspace(), &args, 0, 1);
    if (context.device.is_cuda())
        context.expect(spmd != MOE_OK, "moe_forward_spmd runs a CUDA plan");
    // Weights of the CPU are not those of a device.
    if (context.device.is_cuda())
        context.expect(moe_forward(side.plan.get(), pair.reference.weights.get(), side.workspace(),
                                   &args) == MOE_ERROR_LAYOUT_MISMATCH,
                       "CPU weights in a CUDA plan");
}

}  // namespace

void add_error_cases(CaseList& list) {
    list.add("error/arguments", Extent::smoke, check_arguments);
    list.add("error/workspaces", Extent::smoke, check_workspaces);
    list.add("error/plans", Extent::smoke, check_plans);
    list.add("error/unpackable_slice", Extent::smoke, check_unpackable_slice);
    list.add("error/workspace_sizes", Extent::smoke, check_workspace_sizes);
    list.add("error/mismatch", Extent::smoke, check_mismatch);
}

}  // namespace moe_gpu
