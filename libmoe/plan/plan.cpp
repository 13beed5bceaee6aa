// Validation and decisions, in order: layer, formats, slice, device, types, candidates, chunk.
#include "libmoe/plan/plan.hpp"

#include <algorithm>

#include "libmoe/base/arena.hpp"
#include "libmoe/base/hash.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

constexpr uint32_t every_stage = 31;
// Scratch that a plan takes unless told otherwise: room for hundreds of tokens of the largest
// layers.
constexpr uint64_t usual_workspace = uint64_t{128} << 20;
constexpr int64_t largest_chunk = 1024;

bool is_activation_type(moe_type type) {
    return type == MOE_TYPE_F32 || type == MOE_TYPE_F16 || type == MOE_TYPE_BF16;
}

moe_type type_or(const char* field, moe_type given, moe_type fallback, bool f64_too) {
    const moe_type type = given == MOE_TYPE_NONE ? fallback : given;
    require(is_activation_type(type) || (f64_too && type == MOE_TYPE_F64),
            "{} is {}, must be F32, F16 or BF16{}", field, type_name(type),
            f64_too ? " or F64" : "");
    return type;
}

// What is legal and declared, but not in this version.
void check_supported(const moe_plan_desc& desc) {
    if (desc.residency == MOE_RESIDENCY_PACKED)
        fail(MOE_ERROR_UNSUPPORTED, "residency MOE_RESIDENCY_PACKED is not in this version");
    require(desc.residency == MOE_RESIDENCY_AUTO || desc.residency == MOE_RESIDENCY_SOURCE,
            "residency is {}, not a moe_residency", static_cast<int32_t>(desc.residency));
    if (desc.activation_quantization != MOE_ACTIVATION_QUANTIZATION_NONE)
        fail(MOE_ERROR_UNSUPPORTED, "activation_quantization {} is not in this version",
             static_cast<int32_t>(desc.activation_quantization));
    if (desc.tuning_path)
        fail(MOE_ERROR_UNSUPPORTED, "tuning_path {}: tuning tables are not in this version",
             desc.tuning_path);
}

void take_formats(WeightsLayout& layout, const moe_plan_desc& desc) {
    require(desc.n_formats == 0 || desc.formats != nullptr, "formats is NULL, n_formats is {}",
            desc.n_formats);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const moe_format* given =
            static_cast<uint32_t>(i) < desc.n_formats ? desc.formats[i] : nullptr;
        if (given) layout.formats[i] = *given;
        layout.formats[i].struct_size = sizeof(moe_format);
        if (!layout.needs(role)) {
            layout.formats[i] = {};
            continue;
        }
        if (!is_matrix_role(role)) continue;
        require(given && given->type != MOE_TYPE_NONE,
                "formats[{}] is required: the layer has the matrix {}", i, role_name(role));
        const Layer::Shape shape = layout.layer.role_shape(role);
        const FormatTraits& traits = get_format(*given, role_name(role));
        require(shape.columns % traits.block_columns == 0,
                "formats[{}]: {} has {} columns, {} needs a multiple of {}", i, role_name(role),
                shape.columns, traits.name, traits.block_columns);
    }
}

// Steps of the intermediate on which every format can be cut. Scale groups are no obstacle: views
// keep their phase.
RangeGrid grid_of(const WeightsLayout& layout, moe_role gate, moe_role up, moe_role down) {
    RangeGrid grid;
    for (const moe_role role : {gate, up})
        if (const FormatTraits* traits = find_format(layout.formats[role]))
            grid.rows = std::max<int64_t>(
                grid.rows, traits->format.scale_type == MOE_TYPE_NONE ? traits->block_rows : 1);
    if (const FormatTraits* traits = find_format(layout.formats[down]))
        grid.columns = std::max<int64_t>(grid.columns, traits->block_columns);
    return grid;
}

void take_slice(WeightsLayout& layout, const moe_plan_desc& desc,
                std::pmr::memory_resource& memory) {
    const SliceGrid grid{
        grid_of(layout, MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN),
        grid_of(layout, MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN)};
    layout.slice = make_slice(memory, layout.layer, desc.slice, grid);
    require(layout.slice.whole() || desc.partial,
            "partial is 0, but slice is a part of the layer: its sum needs moe_finish");
}

void take_stages(WeightsLayout& layout, const moe_plan_desc& desc) {
    require((desc.stages & ~every_stage) == 0, "stages is {:#x}, has bits beyond moe_stage",
            desc.stages);
    layout.stages = desc.stages ? desc.stages : every_stage;
}

void choose_device(moe_plan& plan, const moe_plan_desc& desc) {
    constexpr const char* no_cuda = "the CUDA backend is not built into this library";
    if (desc.device == MOE_DEVICE_CUDA)
        fail(MOE_ERROR_NOT_BUILT, "device MOE_DEVICE_CUDA: {}", no_cuda);
    require(desc.device == MOE_DEVICE_AUTO || desc.device == MOE_DEVICE_CPU,
            "device is {}, not a moe_device_kind", static_cast<int32_t>(desc.device));
    require(desc.device_index == 0, "device_index is {}, there is one CPU device",
            desc.device_index);
    plan.device = MOE_DEVICE_CPU;
    plan.device_reason = desc.device == MOE_DEVICE_CPU ? "asked for" : no_cuda;
}

void choose_types(moe_plan& plan, const moe_plan_desc& desc) {
    require(desc.x_type != MOE_TYPE_NONE, "x_type is required");
    plan.x_type = type_or("x_type", desc.x_type, MOE_TYPE_NONE, false);
    plan.router_input_type =
        type_or("router_input_type", desc.router_input_type, plan.x_type, false);
    plan.out_type = type_or("out_type", desc.out_type, plan.x_type, false);
    plan.intermediate_type =
        type_or("intermediate_type", desc.intermediate_type,
                plan.x_type == MOE_TYPE_F32 ? MOE_TYPE_F32 : MOE_TYPE_BF16, true);
}

void choose_kernels(moe_plan& plan, const moe_plan_desc& desc) {
    plan.candidates = choose_candidates(plan.runtime->memory,
                                        {&plan.layout, plan.intermediate_type}, desc.kernel_filter);
    cpu::Setup& setup = plan.setup;
    setup.layer = &plan.layout.layer;
    setup.slice = &plan.layout.slice;
    setup.down_bias_in_finish = plan.layout.down_bias_in_finish();
    setup.partial = plan.partial;
    setup.x_type = plan.x_type;
    setup.router_input_type = plan.router_input_type;
    setup.out_type = plan.out_type;
    setup.intermediate_type = plan.intermediate_type;
    setup.experts = plan.chosen(MOE_STAGE_EXPERTS).arithmetic;
    setup.finish = plan.chosen(MOE_STAGE_FINISH).arithmetic;
    setup.n_workers = plan.runtime->n_threads;
}

// The most tokens at a time whose scratch fits.
void choose_chunk(moe_plan& plan) {
    const uint64_t budget = plan.max_workspace_bytes ? plan.max_workspace_bytes : usual_workspace;
    auto need = [&](int64_t tokens) {
        plan.setup.chunk_tokens = tokens;
        return plan.workspace_need(tokens).host_bytes;
    };
    const uint64_t least = need(1);
    require(!plan.max_workspace_bytes || least <= budget,
            "max_workspace_bytes is {}, one token needs {}", budget, least);
    int64_t fits = 1, too_many = std::min(plan.max_tokens, largest_chunk) + 1;
    while (too_many - fits > 1) {
        const int64_t middle = fits + (too_many - fits) / 2;
        (need(middle) <= budget ? fits : too_many) = middle;
    }
    plan.setup.chunk_tokens = fits;
}

std::array<uint8_t, 16> make_key(const moe_plan& plan, const char* filter) {
    Hash128 hash;
    hash.add_text("libmoe.plan")
        .add_text({reinterpret_cast<const char*>(plan.layout.id.data()), 16});
    moe_layer_desc layer = plan.layout.layer.desc;
    layer.struct_size = 0;
    hash.add_text({reinterpret_cast<const char*>(&layer), sizeof layer});
    for (const int32_t value :
         {static_cast<int32_t>(plan.device), plan.device_index, static_cast<int32_t>(plan.x_type),
          static_cast<int32_t>(plan.router_input_type), static_cast<int32_t>(plan.out_type),
          static_cast<int32_t>(plan.intermediate_type), static_cast<int32_t>(plan.partial),
          static_cast<int32_t>(plan.batch_invariant), static_cast<int32_t>(plan.unfused),
          plan.setup.n_workers})
        hash.add(value);
    return hash.add(plan.max_tokens)
        .add(plan.max_workspace_bytes)
        .add_text(filter ? filter : "")
        .bytes();
}

}  // namespace
}  // namespace moe

moe_plan::moe_plan(moe_runtime* shared_runtime, const moe_plan_desc& desc)
    : runtime(shared_runtime), layout(runtime->memory), candidates(&runtime->memory) {
    using namespace moe;
    require(desc.layer != nullptr, "layer is required");
    layout.layer = make_layer(*desc.layer);
    check_supported(desc);
    choose_device(*this, desc);
    layout.device = device;
    // The slice decides where the down bias goes, the formats decide where a slice may cut: whole
    // first, then cut.
    take_stages(layout, desc);
    take_formats(layout, desc);
    take_slice(layout, desc, runtime->memory);
    choose_types(*this, desc);
    require(desc.max_tokens > 0, "max_tokens is {}, must be positive", desc.max_tokens);
    // Slots are numbered in 32 bits.
    require(desc.max_tokens <= INT32_MAX / layout.layer.top_k,
            "max_tokens is {}, times top_k it must be below 2^31", desc.max_tokens);
    max_tokens = desc.max_tokens;
    max_workspace_bytes = desc.max_workspace_bytes;
    partial = desc.partial != 0;
    batch_invariant = desc.batch_invariant != 0;
    unfused = desc.unfused != 0;
    choose_kernels(*this, desc);
    choose_chunk(*this);
    layout.id = layout.make_id();
    key = make_key(*this, desc.kernel_filter);
}

const moe::Candidate& moe_plan::chosen(moe_stage stage) const {
    for (const auto& candidate : candidates)
        if (candidate.stage == stage && candidate.is_chosen) return candidate;
    moe::fail(MOE_ERROR_INVALID_ARGUMENT, "stage is {}, not a moe_stage",
              static_cast<int32_t>(stage));
}

moe_workspace_need moe_plan::workspace_need(int64_t n_tokens) const {
    moe_workspace_need need{};
    need.struct_size = sizeof need;
    need.alignment = moe::Arena::alignment;
    // One token at least: the row layouts of moe_experts have no number of tokens.
    need.host_bytes = moe::cpu::scratch_bytes(setup, std::max<int64_t>(n_tokens, 1));
    return need;
}
