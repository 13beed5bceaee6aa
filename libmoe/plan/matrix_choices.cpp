#include "libmoe/plan/matrix_choices.hpp"

#include "libmoe/cpu/gemv/mlp_gemv.hpp"
#include "libmoe/plan/cpu_candidates.hpp"
#include "libmoe/plan/cuda_choices.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {
namespace {

constexpr moe_role of_experts[] = {MOE_ROLE_LATENT_IN, MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN};
constexpr moe_role of_finish[] = {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN,
                                  MOE_ROLE_LATENT_OUT};

// The candidates that were chosen for a stage.
struct Chosen {
    const Candidate* of_any = nullptr;
    const Candidate* of_many_rows = nullptr;

    Chosen(const moe_plan& plan, moe_stage stage) {
        for (const Candidate& candidate : plan.candidates) {
            if (candidate.stage != stage || !candidate.is_chosen) continue;
            (candidate.tokens == Tokens::many_rows ? of_many_rows : of_any) = &candidate;
        }
    }
};

class Judge {
  public:
    Judge(const moe_plan& plan, moe_stage stage, moe_role role)
        : problem_(problem_of(plan)), chosen_(plan, stage), role_(role) {
        if (!chosen_.of_many_rows) return;
        const bool is_down = role == MOE_ROLE_DOWN || role == MOE_ROLE_SHARED_DOWN;
        const cpu::PanelRows& rows = chosen_.of_many_rows->min_rows;
        min_rows_ = is_down ? rows.down : rows.gate_up;
    }

    MatrixKernel operator()(const Candidate& candidate) const {
        MatrixKernel one{cpu_kernel_of_matrix(candidate, problem_, role_),
                         &candidate,
                         false,
                         0,
                         0,
                         candidate.reason};
        if (&candidate == chosen_.of_any)
            take_any(candidate, one);
        else if (candidate.applicable && candidate.tokens == Tokens::many_rows)
            take_many(candidate, one);
        return one;
    }

  private:
    MatrixKernels kernels(const Candidate& candidate) const {
        return kernels_of_matrix(problem_, candidate.arithmetic, role_);
    }
    void take_any(const Candidate& candidate, MatrixKernel& one) const {
        const bool has_rows = min_rows_ != 1;
        one.is_taken = has_rows;
        one.first_rows = has_rows ? 1 : 0;
        one.last_rows = min_rows_ > 1 ? min_rows_ - 1 : 0;
        const bool is_family = cpu::gemv_family(candidate.arithmetic);
        if (is_family && kernels(candidate).is_decoded) one.reason = &reasons::decoded;
    }
    // AMX leaves panels without tiles to AVX-512, whose candidate is then that of the matrix.
    void take_many(const Candidate& candidate, MatrixKernel& one) const {
        const MatrixKernels of = kernels(candidate);
        const bool is_amx = candidate.arithmetic == cpu::Arithmetic::gemv_amx;
        if (!of.has_panels) {
            one.reason = &reasons::no_panels;
        } else if (is_amx && !of.has_tiles) {
            one.reason = &reasons::no_tiles;
        } else if (candidate.is_chosen || takes_over(candidate)) {
            one.is_taken = min_rows_ > 0;
            one.first_rows = min_rows_;
            one.reason = &reasons::many_rows;
        }
    }
    bool takes_over(const Candidate& candidate) const {
        const Candidate* chosen = chosen_.of_many_rows;
        return chosen && chosen->arithmetic == cpu::Arithmetic::gemv_amx &&
               candidate.arithmetic == cpu::Arithmetic::gemv_avx512vnni &&
               !kernels(*chosen).has_tiles;
    }

    Problem problem_;
    Chosen chosen_;
    moe_role role_;
    int64_t min_rows_ = 0;  // of the gemm kernels; 0: none take it
};

}  // namespace

std::vector<MatrixChoice> matrix_choices(const moe_plan& plan, moe_stage stage) {
    std::vector<MatrixChoice> all;
    for (const moe_role role : stage == MOE_STAGE_EXPERTS ? of_experts : of_finish) {
        if (!plan.layout.needs(role)) continue;
        const Judge judge(plan, stage, role);
        all.push_back({role, {}});
        for (const Candidate& candidate : plan.candidates)
            if (candidate.stage == stage) all.back().kernels.push_back(judge(candidate));
    }
    return all;
}

int64_t tokens_for_rows(const Layer& layer, moe_stage stage, int64_t rows) {
    if (stage != MOE_STAGE_EXPERTS) return rows;
    return (rows * layer.n_experts_all() + layer.top_k - 1) / layer.top_k;
}

}  // namespace moe
