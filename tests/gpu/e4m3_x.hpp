// Activations of E4M3: the rounding, x as its caller quantized it, and plans that take either.
#pragma once

#include "compare.hpp"

namespace moe_gpu {

double rounded_to_e4m3(double value);

// Rows of x become values that are codes of E4M3 times scales, which it returns. exact: they are
// numbers of bfloat16, and quantization by the rule of moe.h finds the same codes and scales.
Floats take_codes(Floats& x, int64_t n_columns, bool exact);

// Activations may become E4M3 in the kernels.
void ask_for_e4m3(moe_plan_desc& plan);
// x is E4M3.
void take_e4m3(moe_plan_desc& plan);
// The same pair, whose subject reads codes.
PairSpec with_codes(PairSpec spec);

// The subject reads codes, the twin their values as bfloat16.
struct Twins {
    Pair codes, values;
    Twins(Context& context, const PairSpec& spec)
        : codes(context, with_codes(spec)), values(context, spec, codes.data) {}
};

}  // namespace moe_gpu
