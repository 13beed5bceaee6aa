#include "libmoe/plan/launch_plan.hpp"

#include <algorithm>
#include <utility>

#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/kernel_limits.hpp"
#include "libmoe/plan/kernel_names.hpp"

namespace moe {
namespace {

using cuda::Family;
using cuda::GemmNames;
using cuda::GemvLaunch;
using cuda::GemvLaunches;
using cuda::KernelName;
using cuda::LaunchRange;
using cuda::TileWidths;

// --- gemv

bool is_gemv(const Candidate& candidate) {
    return candidate.tokens == Tokens::small_batch;
}

KernelName variant_name(const KernelName& name, bool splits_k, const cuda::GemvTiling& tiling) {
    const bool shares = tiling.codebook_mode == cuda::CodebookMode::shared_lanes ||
                        tiling.codebook_mode == cuda::CodebookMode::shared_bytes;
    return kernel_name({name.view(), {}, {}}, {}, splits_k ? "split_k" : "",
                       shares ? "shared_codebook" : "");
}

GemvLaunch make_gemv_launch(const moe_plan& plan, const Candidate& candidate,
                            const GemvProblem& problem, const GemvTuning& tuning) {
    const cuda::DeviceFacts& device = plan.cuda.device;
    GemvLaunch launch;
    launch.kernels =
        candidate.family == Family::sm90_gemv ? cuda::Architecture::sm90 : cuda::Architecture::sm80;
    launch.gate_up_type = problem.gate_up.type;
    launch.up_type = problem.up.type;
    launch.down_type = problem.down.type;
    launch.gathers_x = problem.gathers_x;
    launch.gathers_h = problem.gathers_h;
    launch.gate_up = tile_gate_up(device, problem, tuning);
    if (launch.up_type != PackedType::none) launch.up = tile_up(device, problem, tuning);
    launch.down = tile_down(device, problem, tuning);
    launch.prefetch_bytes = tuning.prefetch_bytes;
    launch.gate_up_name =
        variant_name(candidate.gate_up, launch.gate_up.n_groups > 1, launch.gate_up);
    launch.up_name = variant_name(candidate.gate_up, launch.up.n_groups > 1, launch.up);
    launch.down_name = variant_name(candidate.down, false, launch.down);
    return launch;
}

// The launches of a number of tokens, for every answer about the codebooks.
void add_gemv(const moe_plan& plan, const Candidate& candidate, GemvProblem problem,
              const GemvTuning& tuning, GemvLaunches& launches) {
    for (const bool gate_up_shares : {false, true}) {
        for (const bool down_shares : {false, true}) {
            problem.gate_up_shares_codebook = gate_up_shares;
            problem.down_shares_codebook = down_shares;
            launches.all.push_back(make_gemv_launch(plan, candidate, problem, tuning));
        }
    }
}

// The launches of 1 to candidate.most_tokens tokens.
void fill_gemv(const moe_plan& plan, const Candidate& candidate, GemvProblem problem,
               GemvLaunches& launches) {
    if (!is_gemv(candidate)) return;
    const GemvTuning tuning = tuning_of(plan.cuda.device).gemv;
    launches.max_tokens = candidate.most_tokens;
    for (int32_t n = 1; n <= candidate.most_tokens; ++n) {
        problem.n_tokens = n;
        add_gemv(plan, candidate, problem, tuning, launches);
    }
}

// The same of the rows of 1 to candidate.most_tokens tokens, each with one slot, as far as they can
// be taken.
void fill_row_gemv(const moe_plan& plan, const Candidate& candidate, GemvProblem problem,
                   GemvLaunches& launches) {
    if (!is_gemv(candidate)) return;
    const GemvTuning tuning = tuning_of(plan.cuda.device).gemv;
    launches.max_tokens =
        max_row_gemv_tokens(plan.cuda.device, problem, tuning, candidate.most_tokens);
    const int32_t rows_of_token = std::exchange(problem.n_slots, 1);
    for (int32_t n = 1; n <= launches.max_tokens; ++n) {
        problem.n_tokens = n * rows_of_token;
        add_gemv(plan, candidate, problem, tuning, launches);
    }
}

void fill_gemv(const moe_plan& plan, cuda::LaunchPlan& launch) {
    const Layer& layer = plan.layout.layer;
    const Candidate& experts = plan.chosen(MOE_STAGE_EXPERTS, 1);
    GemvProblem problem = gemv_problem(plan, false, layer.top_k);
    // Down's kernel adds up the rows of a token as it makes them; a norm wants them apart.
    if (!layer.has_expert_norm) fill_gemv(plan, experts, problem, launch.experts_gemv);
    fill_row_gemv(plan, experts, problem, launch.expert_rows_gemv);
    if (plan.cuda.shared_joins) {
        ++problem.n_slots;
        problem.has_shared_gate = layer.has_shared_expert_gate;
        fill_gemv(plan, experts, problem, launch.experts_and_shared_gemv);
    }
    if (!layer.shared_intermediate) return;
    fill_gemv(plan, plan.chosen(MOE_STAGE_FINISH, 1), gemv_problem(plan, true, 1),
              launch.shared_gemv);
}

// --- names of the other families

GemmNames names_of(const KernelName& name, Family family) {
    if (!cuda::is_grouped(family) && !cuda::is_sm80_grouped(family)) return {name, {}, {}};
    const auto of = [&](const char* tiles) {
        return kernel_name({name.view(), {}, {}}, {}, {}, tiles);
    };
    return {of("wide"), of("narrow"), of("middle")};
}

// The linear kernel of the family, which is also that of down.
GemmNames projection_names(const moe_plan& plan, const Candidate& candidate, moe_role role) {
    const KernelName weight = weight_of(plan.layout, role);
    return names_of(kernel_name(candidate.words, weight.view(), "down"), candidate.family);
}

GemmNames pre_activation_names(const moe_plan& plan, const cuda::LaunchPlan& launch) {
    if (plan.cuda.pre_activation == plan.cuda.experts) return launch.gate_up;
    const KernelName weight = weight_of_gate_up(plan.layout, MOE_ROLE_GATE, MOE_ROLE_UP);
    const char* operand = plan.cuda.pre_activation == Family::sm80_grouped_f16 ? "f16" : "bf16";
    return names_of(kernel_name({"sm80", operand, "grouped_gemm"}, weight.view(), "gate_up"),
                    plan.cuda.pre_activation);
}

void fill_names(const moe_plan& plan, cuda::LaunchPlan& launch) {
    const Candidate& experts = plan.chosen(MOE_STAGE_EXPERTS);
    const Candidate& finish = plan.chosen(MOE_STAGE_FINISH);
    launch.gate_up = names_of(experts.gate_up, experts.family);
    launch.down = names_of(experts.down, experts.family);
    launch.pre_activation = pre_activation_names(plan, launch);
    launch.shared_gate_up = names_of(finish.gate_up, finish.family);
    launch.shared_down = names_of(finish.down, finish.family);
    launch.latent_in = projection_names(plan, finish, MOE_ROLE_LATENT_IN);
    launch.latent_out = projection_names(plan, finish, MOE_ROLE_LATENT_OUT);
}

// --- decisions by the number of tokens

class Decisions {
  public:
    explicit Decisions(const moe_plan& plan)
        : plan_(plan), setup_(plan.cuda), tuning_(tuning_of(plan.cuda.device)) {}

    LaunchRange of(int64_t n_tokens) const {
        LaunchRange range;
        const cuda::TileChoice& tiles = tuning_.grouped.tiles;
        range.max_tokens = n_tokens;
        range.logits = logits(n_tokens);
        range.select = select(n_tokens);
        range.sort = sort(n_tokens);
        range.dispatch_sort = cuda::dispatch_sort_kernel(n_tokens * layer().top_k);
        range.indexes_rows = indexes_rows();
        range.tiles = tiles.of(setup_.experts, cuda::mlp_traits(setup_, tiles), n_tokens,
                               rows_of_expert(n_tokens));
        if (layer().shared_intermediate || layer().latent)
            range.dense_tiles = tiles.of_dense(setup_.finish, n_tokens);
        range.gate_in_combine = n_tokens <= tuning_.router.max_gate_in_combine_tokens;
        range.y_type = cuda::y_type(setup_, n_tokens * layer().top_k);
        return range;
    }

  private:
    const Layer& layer() const { return plan_.layout.layer; }
    double rows_of_expert(int64_t n_tokens) const {
        return static_cast<double>(n_tokens * layer().top_k) / layer().n_experts;
    }

    cuda::LogitsKernel logits(int64_t n_tokens) const {
        if (n_tokens <= tuning_.router.max_small_batch_tokens && !plan_.batch_invariant)
            return cuda::LogitsKernel::small_batch;
        const bool by_library =
            setup_.logits_library.library && n_tokens >= cuda::min_library_tokens;
        return by_library ? cuda::LogitsKernel::library : cuda::LogitsKernel::tiled;
    }
    cuda::SelectKernel select(int64_t n_tokens) const {
        const Routing& routing = layer().routing;
        const int64_t few =
            int64_t{tuning_.router.block_select_tokens_per_sm} * setup_.device.n_sms;
        const bool by_block = routing.selection != MOE_SELECT_SPARSEMIXER &&
                              routing.n_experts_all <= cuda::max_block_select_experts &&
                              n_tokens <= few;
        return by_block ? cuda::SelectKernel::block : cuda::SelectKernel::warp;
    }
    cuda::SortKernel sort(int64_t n_tokens) const {
        return cuda::sort_kernel(n_tokens * layer().top_k, plan_.layout.slice.n_local);
    }
    // A table of columns is of an expert, so rows are gathered for it. Else reading x by index
    // costs the GEMM some 2 percent, and saves a launch and a copy of every row. The wider the
    // GEMM, the less that copy is of its time.
    bool indexes_rows() const {
        return cuda::is_grouped(setup_.experts) && !setup_.has_gate_up_tables &&
               plan_.layout.slice.intermediate_count <= tuning_.grouped.max_indexed_features;
    }

    const moe_plan& plan_;
    const cuda::Setup& setup_;
    Tuning tuning_;
};

// Decisions that are the same for n and for 2 n tokens are so between (TileChoice::min_middle), so
// the ends of ranges are found by doubling, then by halving.
void fill_ranges(const moe_plan& plan, cuda::LaunchPlan& launch) {
    const Decisions decisions(plan);
    for (int64_t first = 1; first <= plan.max_tokens;) {
        const LaunchRange begin = decisions.of(first);
        const auto agrees = [&](int64_t n) { return decisions.of(n).has_same_decisions(begin); };
        int64_t same = first, other = 2 * first;
        for (; other <= plan.max_tokens && agrees(other); other *= 2) same = other;
        other = std::min(other, plan.max_tokens + 1);
        while (other - same > 1) {
            const int64_t half = same + (other - same) / 2;
            (agrees(half) ? same : other) = half;
        }
        launch.ranges.push_back(begin);
        launch.ranges.back().max_tokens = same;
        first = same + 1;
    }
}

}  // namespace

GemvProblem gemv_problem(const moe_plan& plan, bool is_shared, int32_t n_slots) {
    const DevicePlacement& placement = plan.placement;
    const Layer& layer = plan.layout.layer;
    const bool is_gated = (is_shared ? layer.shared_activation : layer.activation).gated;
    const bool is_fused =
        is_shared ? placement.is_shared_gate_up_fused : placement.is_gate_up_fused;
    const moe_role gate = is_shared ? MOE_ROLE_SHARED_GATE : MOE_ROLE_GATE;
    const moe_role up = is_shared ? MOE_ROLE_SHARED_UP : MOE_ROLE_UP;
    const auto matrix_of = [&](moe_role role) {
        const DevicePlacement::Region& region = placement.matrices[role];
        PackedMatrix matrix{};
        matrix.type = region.type;
        matrix.k = region.k;
        matrix.n_tiles = region.n_tiles;
        return matrix;
    };
    GemvProblem problem;
    problem.gate_up = matrix_of(is_gated ? gate : up);
    if (is_gated && !is_fused) problem.up = matrix_of(up);
    problem.down = matrix_of(is_shared ? MOE_ROLE_SHARED_DOWN : MOE_ROLE_DOWN);
    problem.n_slots = n_slots;
    const auto has_table = [&](moe_role role) {
        return placement.matrices[role].gathered() != ColumnTable::none;
    };
    problem.gathers_x = has_table(is_gated ? gate : up);
    problem.gathers_h = has_table(is_shared ? MOE_ROLE_SHARED_DOWN : MOE_ROLE_DOWN);
    problem.has_f16_h = plan.intermediate_type == MOE_TYPE_F16;
    problem.has_f16_x = problem.has_f16_h && plan.x_type == MOE_TYPE_F16;
    return problem;
}

void make_launch_plan(const moe_plan& plan, cuda::LaunchPlan& launch) {
    fill_gemv(plan, launch);
    fill_names(plan, launch);
    fill_ranges(plan, launch);
    launch.tiles = tuning_of(plan.cuda.device).grouped.tiles;
}

}  // namespace moe
