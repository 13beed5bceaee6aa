// Calls of moe_experts as an engine makes them that owns its rows: in every layout of the table in
// moe.h, of the same tokens.
#pragma once

#include "compare.hpp"
#include "stages.hpp"

namespace moe_gpu {

// Tokens, their routing and their rows in blocks.
struct Engine {
    Engine(const Pair& of, int64_t n, int32_t block);

    // A call of these tokens. What must not be read is NaN.
    Experts call(moe_in_layout in, moe_out_layout out, bool stops = false) const;

    const Pair& pair;
    int64_t T, k, H, L, n_local;
    Floats x;         // [T, H], or [T, L] where it is latent already
    Floats x_scales;  // of E4M3 x; else none
    bool x_is_latent = false;
    Ids ids;
    Floats weights;
    Dispatched order;

  private:
    // Rows of x, or of its scales, as a dispatcher lays them out.
    Floats gathered(const Floats& rows_of_tokens, const std::vector<int32_t>& row_ids) const;
    void set_batch(Experts& call) const;
};

// Rows of the output that are nobody's: they become zeros, and must be untouched.
void clear_padding(const Experts& call, Floats& out, const char* what);

}  // namespace moe_gpu
