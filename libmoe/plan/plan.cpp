// Validation and decisions, in order: layer, formats, slice, device, types, candidates, chunk.
#include "libmoe/plan/plan.hpp"

#include <algorithm>
#include <bit>

#include "libmoe/base/arena.hpp"
#include "libmoe/base/hash.hpp"
#include "libmoe/cpu/gemv/mlp_gemv.hpp"
#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/cuda/backend.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/plan/cost.hpp"
#include "libmoe/plan/cpu_candidates.hpp"
#include "libmoe/plan/cuda_choices.hpp"
#include "libmoe/plan/launch_plan.hpp"

namespace moe {
namespace {

constexpr uint32_t every_stage = 31;
// Scratch that a plan takes unless told otherwise: on the CPU enough for hundreds of tokens of the
// largest layers, on a GPU for thousands, since every chunk reads the weights again.
constexpr uint64_t usual_workspace = uint64_t{128} << 20;
constexpr uint64_t usual_device_workspace = uint64_t{3} << 29;
constexpr int64_t largest_chunk = 1024;

bool is_activation_type(moe_type type) {
    return type == MOE_TYPE_F32 || type == MOE_TYPE_F16 || type == MOE_TYPE_BF16;
}

moe_type type_or(const char* field, moe_type given, moe_type fallback, bool f64_too) {
    const moe_type type = given == MOE_TYPE_NONE ? fallback : given;
    require(is_activation_type(type) || (f64_too && type == MOE_TYPE_F64),
            "{} is {} ({}), must be F32, F16 or BF16{}", field, type_name(type),
            static_cast<int32_t>(type), f64_too ? " or F64" : "");
    return type;
}

// What is legal and declared, but not in this version.
void check_supported(const moe_plan_desc& desc) {
    require(desc.residency >= MOE_RESIDENCY_AUTO && desc.residency <= MOE_RESIDENCY_SOURCE,
            "residency is {}, not a moe_residency", static_cast<int32_t>(desc.residency));
    const auto quantization = static_cast<int32_t>(desc.activation_quantization);
    require(quantization >= MOE_ACTIVATION_QUANTIZATION_NONE &&
                quantization <= MOE_ACTIVATION_QUANTIZATION_INT8,
            "activation_quantization is {}, not a moe_activation_quantization", quantization);
    if (desc.tuning_path)
        fail(MOE_ERROR_UNSUPPORTED, "tuning_path {}: tuning tables are not in this version",
             desc.tuning_path);
}

// That of a matrix can be read, and its rows divide into its blocks. what names it in errors.
void check_matrix_format(const WeightsLayout& layout, moe_role role, const moe_format& format,
                         const char* list, uint32_t index) {
    const Layer::Shape shape = layout.layer.role_shape(role);
    const FormatTraits& traits = get_format(format, role_name(role));
    require(shape.columns % traits.block_columns == 0,
            "{}[{}]: {} has {} columns, {} needs a multiple of {}", list, index, role_name(role),
            shape.columns, traits.name, traits.block_columns);
    if (!traits.unsliceable_bytes) return;
    const ErrorContext context("{}[{}]: {}: ", list, index, role_name(role));
    traits.unsliceable_bytes(format, shape.rows, shape.columns);
}

bool is_matrix_of_experts(moe_role role) {
    return role == MOE_ROLE_GATE || role == MOE_ROLE_UP || role == MOE_ROLE_DOWN;
}

// see(index, role, expert, format) of the entries that name another format than their role has.
template <class See>
void for_each_other_format(const moe_plan_desc& desc, int32_t n_experts, See see) {
    for (uint32_t i = 0; i < desc.n_formats_per_expert; ++i) {
        const moe_format* format = desc.formats_per_expert[i];
        if (!format) continue;
        const auto n = static_cast<uint32_t>(n_experts);
        const auto role = static_cast<moe_role>(i / n);
        require(is_matrix_of_experts(role),
                "formats_per_expert[{}] is of the role {}, single experts have gate, up and down",
                i, static_cast<int32_t>(role));
        const moe_format* of_role =
            static_cast<uint32_t>(role) < desc.n_formats ? desc.formats[role] : nullptr;
        if (!of_role || !same_format(*of_role, *format)) see(i, role, i % n, *format);
    }
}

bool has_other_formats(const moe_plan_desc& desc) {
    bool any = false;
    for_each_other_format(desc, desc.layer->n_experts,
                          [&](uint32_t, moe_role, uint32_t, const moe_format&) { any = true; });
    return any;
}

void take_expert_formats(WeightsLayout& layout, const moe_plan_desc& desc) {
    const int32_t n_experts = layout.layer.n_experts;
    for_each_other_format(
        desc, n_experts,
        [&](uint32_t index, moe_role role, uint32_t expert, const moe_format& format) {
            if (!layout.needs(role)) return;
            auto& others = layout.other_formats;
            const auto known =
                std::find_if(others.begin(), others.end(),
                             [&](const moe_format& other) { return same_format(other, format); });
            const auto at = static_cast<size_t>(known - others.begin());
            if (known == others.end()) {
                require(others.size() < UINT16_MAX, "formats_per_expert has more than {} formats",
                        UINT16_MAX);
                others.push_back(format);
                others.back().struct_size = sizeof(moe_format);
            }
            check_matrix_format(layout, role, format, "formats_per_expert", index);
            const int64_t n = int64_t{MOE_ROLE_COUNT} * n_experts;
            layout.expert_formats.resize(static_cast<size_t>(n));
            layout.expert_formats[static_cast<size_t>(role * n_experts) + expert] =
                static_cast<uint16_t>(at + 1);
        });
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
        check_matrix_format(layout, role, *given, "formats", static_cast<uint32_t>(i));
    }
    take_expert_formats(layout, desc);
}

// Steps of the intermediate on which every format can be cut. Scale groups are no obstacle: views
// keep their phase.
RangeGrid grid_of(const WeightsLayout& layout, moe_role gate, moe_role up, moe_role down) {
    RangeGrid grid;
    for (const moe_role role : {gate, up})
        layout.for_each_format(role, [&](const moe_format& format) {
            if (const FormatTraits* traits = find_format(format))
                grid.rows = std::max<int64_t>(
                    grid.rows, traits->format.scale_type == MOE_TYPE_NONE ? traits->block_rows : 1);
        });
    layout.for_each_format(down, [&](const moe_format& format) {
        if (const FormatTraits* traits = find_format(format))
            grid.columns = std::max<int64_t>(grid.columns, traits->block_columns);
    });
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

// Why AUTO cannot take a CUDA device, or null. Looks at the device last.
const char* obstacle_to_cuda(const moe_plan_desc& desc, cuda::DeviceFacts& facts) {
    if (!cuda::is_built()) return "the CUDA backend is not built into this library";
    if (desc.intermediate_type == MOE_TYPE_F64) return "float64 is for the CPU";
    if (desc.residency == MOE_RESIDENCY_SOURCE) return "SOURCE residency is for the CPU";
    if (has_other_formats(desc)) return "experts of one role have different formats";
    // A router without a packed type is decoded.
    for (uint32_t i = 0; i < desc.n_formats; ++i)
        if (desc.formats[i] && i != MOE_ROLE_ROUTER && is_matrix_role(static_cast<moe_role>(i)) &&
            desc.formats[i]->type != MOE_TYPE_NONE &&
            packed_type_of(*desc.formats[i]) == PackedType::none)
            return "a weight format has no packed type";
    const bool found = cuda::find_device(desc.device_index, facts);
    return found ? nullptr : "there is no CUDA device, or no driver";
}

void use_cpu(moe_plan& plan, const moe_plan_desc& desc, const char* reason) {
    require(desc.device_index == 0, "device_index is {}, there is one CPU device",
            desc.device_index);
    if (desc.residency == MOE_RESIDENCY_PACKED && has_other_formats(desc))
        fail(MOE_ERROR_UNSUPPORTED,
             "residency MOE_RESIDENCY_PACKED: formats_per_expert has experts of one role in "
             "different formats, which are read as SOURCE");
    plan.device = MOE_DEVICE_CPU;
    plan.device_reason = reason;
    plan.layout.residency =
        desc.residency == MOE_RESIDENCY_PACKED ? MOE_RESIDENCY_PACKED : MOE_RESIDENCY_SOURCE;
}

void use_cuda(moe_plan& plan, const moe_plan_desc& desc, const char* reason) {
    if (desc.residency == MOE_RESIDENCY_SOURCE)
        fail(MOE_ERROR_UNSUPPORTED,
             "residency MOE_RESIDENCY_SOURCE: CUDA plans pack their weights");
    if (desc.intermediate_type == MOE_TYPE_F64)
        fail(MOE_ERROR_UNSUPPORTED, "intermediate_type F64 is for CPU plans");
    if (has_other_formats(desc))
        fail(MOE_ERROR_UNSUPPORTED,
             "formats_per_expert: experts of one role in different formats are for CPU plans");
    plan.device = MOE_DEVICE_CUDA;
    plan.device_index = desc.device_index;
    plan.device_reason = reason;
    plan.layout.residency = MOE_RESIDENCY_PACKED;
    plan.layout.device_index = desc.device_index;
}

void choose_device(moe_plan& plan, const moe_plan_desc& desc) {
    switch (desc.device) {
        case MOE_DEVICE_CPU:
            return use_cpu(plan, desc, "requested");
        case MOE_DEVICE_CUDA:
            plan.cuda.device = cuda::device_facts(desc.device_index);
            return use_cuda(plan, desc, "requested");
        case MOE_DEVICE_AUTO: {
            const char* obstacle = obstacle_to_cuda(desc, plan.cuda.device);
            if (obstacle) return use_cpu(plan, desc, obstacle);
            return use_cuda(plan, desc, "a CUDA device is there and can run the layer");
        }
        default:
            fail(MOE_ERROR_INVALID_ARGUMENT, "device is {}, not a moe_device_kind",
                 static_cast<int32_t>(desc.device));
    }
}

void choose_types(moe_plan& plan, const moe_plan_desc& desc) {
    require(desc.x_type != MOE_TYPE_NONE, "x_type is required");
    const bool is_fp8 = desc.x_type == MOE_TYPE_F8_E4M3;
    if (is_fp8 && !plan.is_cuda())
        fail(MOE_ERROR_UNSUPPORTED, "x_type is F8_E4M3: the CPU takes F32, F16 and BF16");
    require(!is_fp8 || desc.out_type != MOE_TYPE_NONE,
            "x_type is F8_E4M3: out_type is required, since out has another type");
    plan.x_type = is_fp8 ? desc.x_type : type_or("x_type", desc.x_type, MOE_TYPE_NONE, false);
    plan.router_input_type =
        type_or("router_input_type", desc.router_input_type, plan.type_of_x_values(), false);
    plan.out_type = type_or("out_type", desc.out_type, plan.x_type, false);
    plan.intermediate_type =
        type_or("intermediate_type", desc.intermediate_type,
                plan.x_type == MOE_TYPE_F32 ? MOE_TYPE_F32 : MOE_TYPE_BF16, true);
}

void fill_cpu_setup(moe_plan& plan) {
    cpu::Setup& setup = plan.setup;
    setup.layer = &plan.layout.layer;
    setup.slice = &plan.layout.slice;
    setup.down_bias_in_finish = plan.layout.down_bias_in_finish();
    setup.partial = plan.partial;
    setup.x_type = plan.x_type;
    setup.router_input_type = plan.router_input_type;
    setup.out_type = plan.out_type;
    setup.intermediate_type = plan.intermediate_type;
    setup.n_workers = plan.runtime->n_threads;
}

// The gemm kernels of a stage; null: it has none.
const Candidate* chosen_for_many_rows(const moe_plan& plan, moe_stage stage) {
    for (const Candidate& candidate : plan.candidates)
        if (candidate.stage == stage && candidate.is_chosen &&
            candidate.tokens == Tokens::many_rows)
            return &candidate;
    return nullptr;
}

cpu::PanelRows chosen_panel_rows(const moe_plan& plan, moe_stage stage) {
    const Candidate* gemm = chosen_for_many_rows(plan, stage);
    return gemm ? gemm->min_rows : cpu::PanelRows{};
}

// That of the gemm kernels, which has the gemv kernels, too.
cpu::Arithmetic arithmetic_of(const moe_plan& plan, moe_stage stage) {
    const Candidate* gemm = chosen_for_many_rows(plan, stage);
    return gemm ? gemm->arithmetic : plan.chosen(stage).arithmetic;
}

// Adds the forms in which the kernels of a stage take the rows before these matrices.
void add_quantization(const moe_plan& plan, moe_stage stage, std::initializer_list<moe_role> roles,
                      bool for_panels, cpu::Quantization& all) {
    const cpu::Arithmetic arithmetic = arithmetic_of(plan, stage);
    if (!cpu::gemv_family(arithmetic)) return;
    const Problem problem = problem_of(plan);
    for (const moe_role role : roles) {
        if (!plan.layout.needs(role)) continue;
        plan.layout.for_each_format(role, [&](const moe_format& format) {
            all = cpu::merged(all, rows_before(problem, arithmetic, role, format, for_panels));
        });
    }
}

void choose_quantization(moe_plan& plan) {
    cpu::Setup& setup = plan.setup;
    const cpu::PanelRows experts = chosen_panel_rows(plan, MOE_STAGE_EXPERTS);
    const cpu::PanelRows finish = chosen_panel_rows(plan, MOE_STAGE_FINISH);
    setup.experts_panel_rows = experts;
    setup.finish_panel_rows = finish;
    add_quantization(plan, MOE_STAGE_EXPERTS, {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_LATENT_IN},
                     experts.gate_up > 0, setup.x_quantization);
    add_quantization(plan, MOE_STAGE_FINISH,
                     {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_LATENT_OUT},
                     finish.gate_up > 0, setup.x_quantization);
    add_quantization(plan, MOE_STAGE_EXPERTS, {MOE_ROLE_DOWN}, experts.down > 0,
                     setup.h_quantization);
    add_quantization(plan, MOE_STAGE_FINISH, {MOE_ROLE_SHARED_DOWN}, finish.down > 0,
                     setup.h_quantization);
    const auto in_tiles = [&](int64_t panel_rows, moe_role role, const cpu::Quantization& rows) {
        const cpu::GemvFamily* family = cpu::gemv_family(setup.experts);
        if (!family || !panel_rows) return false;
        const cpu::GemvFormat format = gemv_format_in(plan.layout, plan.layout.formats[role]);
        return cpu::gemm_kernels(*family, format, rows).multiply_tiles != nullptr;
    };
    setup.x_in_tiles = in_tiles(experts.gate_up, MOE_ROLE_UP, setup.x_quantization);
    setup.h_in_tiles = in_tiles(experts.down, MOE_ROLE_DOWN, setup.h_quantization);
}

void choose_kernels(moe_plan& plan, const moe_plan_desc& desc) {
    if (plan.is_cuda()) {
        const cuda::NominalRates rates = cuda::nominal_rates(plan.cuda.device);
        return choose_cuda_kernels(plan, rates, desc.kernel_filter);
    }
    fill_cpu_setup(plan);
    plan.candidates = choose_candidates(plan.runtime->memory, problem_of(plan), desc.kernel_filter);
    plan.setup.experts = arithmetic_of(plan, MOE_STAGE_EXPERTS);
    plan.setup.finish = arithmetic_of(plan, MOE_STAGE_FINISH);
    choose_quantization(plan);
}

// The most tokens at a time whose scratch fits.
void choose_chunk(moe_plan& plan) {
    const uint64_t usual = plan.is_cuda() ? usual_device_workspace : usual_workspace;
    const uint64_t budget = plan.max_workspace_bytes ? plan.max_workspace_bytes : usual;
    int64_t& chunk = plan.is_cuda() ? plan.cuda.chunk_tokens : plan.setup.chunk_tokens;
    auto need = [&](int64_t tokens) {
        chunk = tokens;
        // The size that the caller set includes the memory that does not come in chunks.
        const moe_workspace_need need =
            plan.workspace_need(plan.max_workspace_bytes ? plan.max_tokens : tokens);
        return plan.is_cuda() ? need.device_bytes : need.host_bytes;
    };
    const uint64_t least = need(1);
    require(!plan.max_workspace_bytes || least <= budget,
            "max_workspace_bytes is {}, one token at a time needs {}", budget, least);
    const int64_t most =
        plan.is_cuda() ? plan.max_tokens : std::min(plan.max_tokens, largest_chunk);
    int64_t fits = 1, too_many = most + 1;
    while (too_many - fits > 1) {
        const int64_t middle = fits + (too_many - fits) / 2;
        (need(middle) <= budget ? fits : too_many) = middle;
    }
    // Chunks of equal size: the last one is not a remainder.
    const int64_t n_chunks = (plan.max_tokens + fits - 1) / fits;
    chunk = plan.is_cuda() ? (plan.max_tokens + n_chunks - 1) / n_chunks : fits;
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
          plan.quantizes_to_int8  ? 1
          : plan.quantizes_to_fp8 ? 2
                                  : 0,
          plan.setup.n_workers})
        hash.add(value);
    // The layout knows them by the weights that they cut, of which the stages may have none.
    const Slice& slice = plan.layout.slice;
    for (const int64_t value : {slice.intermediate_begin, slice.intermediate_count,
                                slice.shared_begin, slice.shared_count})
        hash.add(value);
    return hash.add(plan.max_tokens)
        .add(plan.max_workspace_bytes)
        .add_text(filter ? filter : "")
        .bytes();
}

}  // namespace
}  // namespace moe

moe_plan::moe_plan(moe_runtime* shared_runtime, const moe_plan_desc& desc,
                   const moe::cpu::InstructionSets& sets)
    : runtime(shared_runtime),
      instructions(sets),
      layout(runtime->memory),
      candidates(&runtime->memory),
      launch_(&runtime->memory) {
    using namespace moe;
    require(desc.layer != nullptr, "layer is required");
    layout.layer = make_layer(*desc.layer);
    check_supported(desc);
    require(desc.n_formats_per_expert == 0 || desc.formats_per_expert != nullptr,
            "formats_per_expert is NULL, n_formats_per_expert is {}", desc.n_formats_per_expert);
    choose_device(*this, desc);
    layout.device = device;
    // The slice decides where the down bias goes, the formats decide where a slice may cut: whole
    // first, then cut.
    take_stages(layout, desc);
    take_formats(layout, desc);
    take_slice(layout, desc, runtime->memory);
    layout.keeps_tables_apart = is_cuda() && desc.unfused == 1;
    layout.keeps_biases = is_cuda() && desc.x_type == MOE_TYPE_F32;
    if (is_cuda() && desc.device == MOE_DEVICE_AUTO && !can_lay_out_on_device(layout)) {
        use_cpu(*this, desc, "its slice cannot be packed");
        layout.device = device;
    }
    // Sizes beyond 64 bits are refused now, and not when somebody asks for them.
    if (!is_cuda()) layout.copy_bytes();
    choose_types(*this, desc);
    require(desc.max_tokens > 0, "max_tokens is {}, must be positive", desc.max_tokens);
    // Slots are numbered in 32 bits.
    require(desc.max_tokens <= INT32_MAX / layout.layer.top_k,
            "max_tokens is {}, times top_k it must be below 2^31", desc.max_tokens);
    max_tokens = desc.max_tokens;
    max_workspace_bytes = desc.max_workspace_bytes;
    check_flag(desc.partial, "partial");
    check_flag(desc.batch_invariant, "batch_invariant");
    check_flag(desc.unfused, "unfused");
    partial = desc.partial == 1;
    batch_invariant = desc.batch_invariant == 1;
    unfused = desc.unfused == 1;
    quantizes_to_int8 = desc.activation_quantization == MOE_ACTIVATION_QUANTIZATION_INT8;
    quantizes_to_fp8 = desc.activation_quantization == MOE_ACTIVATION_QUANTIZATION_FP8;
    if (quantizes_to_int8 && is_cuda())
        fail(MOE_ERROR_UNSUPPORTED, "activation_quantization INT8 is for the CPU in this version");
    if (quantizes_to_fp8 && !is_cuda())
        fail(MOE_ERROR_UNSUPPORTED, "activation_quantization FP8 is for CUDA in this version");
    choose_kernels(*this, desc);
    choose_chunk(*this);
    if (is_cuda()) {
        go_to_device();
        predicted_us = moe::predicted_us(*this, DeviceRates(cuda::nominal_rates(cuda.device)));
    }
    layout.id = layout.make_id();
    key = make_key(*this, desc.kernel_filter);
}

// Copies the slice's map of experts and two constants to the device, and loads the kernels that the
// launches name.
void moe_plan::go_to_device() {
    using namespace moe;
    std::pmr::vector<int32_t> words(layout.slice.local_of, &runtime->memory);
    const size_t n = words.size();
    words.push_back(0);
    words.push_back(std::bit_cast<int32_t>(1.0f));
    const uint64_t bytes = words.size() * sizeof words[0];
    tables_ = device::DeviceMemory(runtime->memory, MOE_SPACE_DEVICE, bytes,
                                   DevicePlacement::alignment, device_index, nullptr);
    const device::UseDevice use(device_index);
    device::upload(tables_.data(), words.data(), bytes, nullptr);
    device::synchronize(nullptr);
    const auto* table = reinterpret_cast<const int32_t*>(tables_.data());
    // A look-up that changes nothing would still cost its latency.
    cuda.local_of = layout.slice.every_id_is_local() ? nullptr : table;
    cuda.constants = {table + n, reinterpret_cast<const float*>(table + n + 1)};
    cuda::choose_library(cuda, runtime->cublaslt_path(), runtime->memory);
    make_launch_plan(*this, launch_);
    cuda::prepare(cuda, launch_);
    cuda.launch = &launch_;
}

const moe::Candidate& moe_plan::chosen(moe_stage stage, int64_t n_tokens) const {
    const moe::Candidate* found = nullptr;
    for (const auto& candidate : candidates) {
        if (candidate.stage != stage || !candidate.is_chosen) continue;
        if (candidate.tokens == moe::Tokens::any)
            found = &candidate;
        else if (candidate.tokens == moe::Tokens::small_batch && n_tokens <= candidate.most_tokens)
            return candidate;
    }
    if (found) return *found;
    moe::fail(MOE_ERROR_INVALID_ARGUMENT, "stage is {}, not a moe_stage",
              static_cast<int32_t>(stage));
}

const moe::Candidate& moe_plan::typical(moe_stage stage, int64_t n_tokens) const {
    const int64_t rows = stage == MOE_STAGE_EXPERTS
                             ? n_tokens * layout.layer.top_k / layout.layer.n_experts
                             : n_tokens;
    for (const auto& candidate : candidates)
        if (candidate.stage == stage && candidate.is_chosen &&
            candidate.tokens == moe::Tokens::many_rows && candidate.min_rows.gate_up &&
            rows >= candidate.min_rows.gate_up)
            return candidate;
    return chosen(stage, n_tokens);
}

moe_workspace_need moe_plan::workspace_need(int64_t n_tokens) const {
    moe_workspace_need need{};
    need.struct_size = sizeof need;
    // One token at least: the row layouts of moe_experts have no number of tokens.
    const int64_t tokens = std::max<int64_t>(n_tokens, 1);
    if (is_cuda()) {
        need.alignment = 256;
        need.device_bytes = moe::cuda::scratch_bytes(cuda, tokens);
    } else {
        need.alignment = moe::Arena::alignment;
        need.host_bytes = moe::cpu::scratch_bytes(setup, tokens);
    }
    return need;
}
