// Runs chains and matrices as calls of moe.h on its CPU plans. One object serves one backend of
// ggml, which computes one graph at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "chain.hpp"
#include "interface.hpp"
#include "loaded_weights.hpp"
#include "moe/moe.h"
#include "precision.hpp"
#include "problem.hpp"

namespace moe::ggml {

struct PlanDeleter {
    void operator()(moe_plan* plan) const { moe_plan_destroy(plan); }
};
struct WorkspaceDeleter {
    void operator()(moe_workspace* workspace) const { moe_workspace_destroy(workspace); }
};

// A chain keeps this from one run to the next, as long as its tensors are what they were.
struct Prepared {
    std::optional<Problem> problem;
    Weights weights;
    uint64_t generation = 0;
};

class Experts {
  public:
    bool can_run(const Chain& chain);
    // False, with a sentence on standard error, when a call of libmoe fails.
    bool run(const Chain& chain, Prepared& prepared, int n_threads);
    // False, without having done anything, where no plan has this problem.
    bool run_matrix(Tensor* product, int n_threads);

  private:
    // Without a plan: libmoe has refused the problem.
    struct Planned {
        Problem problem;
        Precision precision;
        int64_t max_tokens;
        std::unique_ptr<moe_plan, PlanDeleter> plan;
    };

    const Planned& plan_for(const Problem& problem, int64_t n_tokens);  // until the next one
    moe_workspace* workspace_for(const moe_plan* plan, int64_t max_tokens);
    void set_routing_weights(const Tensor* weights, moe_experts_args& args);
    void set_input(const Projection& first, const Slots& slots, moe_experts_args& args);
    // args has what differs between chains and matrices; `load` gives the weights for a plan.
    bool call(const Problem& whole, const Projection& first, Tensor* out, moe_experts_args args,
              const std::function<Weights(const moe_plan*)>& load);

    std::vector<Planned> plans_;
    std::unique_ptr<moe_workspace, WorkspaceDeleter> workspace_;
    uint64_t workspace_bytes_ = 0;
    std::vector<int32_t> ids_;
    std::vector<uint16_t> x_;  // in bfloat16
    std::vector<float> weights_, out_;
};

}  // namespace moe::ggml
