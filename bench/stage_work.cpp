// Counts bytes and FLOPs of each stage. Ids and weights of slots have four bytes each, offsets of
// experts eight.
#include "bench/stage_work.hpp"

#include <stdexcept>

namespace moe::bench {

Work work_of_stage(moe_stage stage, const Model& model, int64_t n_tokens, double weight_bytes) {
    const auto tokens = static_cast<double>(n_tokens), hidden = static_cast<double>(model.hidden);
    const double slots = tokens * model.top_k;
    const double x = 2 * tokens * hidden, rows = 2 * slots * hidden;
    switch (stage) {
        case MOE_STAGE_ROUTE:
            return {weight_bytes + x + 8 * slots, 2 * tokens * hidden * model.n_experts};
        case MOE_STAGE_DISPATCH:
            return {8 * slots + 8.0 * (model.n_experts + 1), 0};
        case MOE_STAGE_EXPERTS:
            return {weight_bytes + x + 4 * slots + rows, 6 * slots * hidden * model.intermediate};
        case MOE_STAGE_COMBINE:
            return {rows + 8 * slots + x, 2 * slots * hidden};
        case MOE_STAGE_FINISH:
            return {weight_bytes + 3 * x, 6 * tokens * hidden * model.shared_intermediate};
        default:
            throw std::runtime_error("there is no such stage");
    }
}

}  // namespace moe::bench
