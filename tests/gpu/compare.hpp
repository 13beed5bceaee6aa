// The measure of error, and the pair of sides that most cases compare.
#pragma once

#include "cases.hpp"
#include "launches.hpp"
#include "layer.hpp"
#include "side.hpp"

namespace moe_gpu {

// Largest |got - wanted| / |wanted| over rows of `width`; a row of zeros must be zeros exactly.
// Rows whose `counts` is 0 are left out. NaN is never small. Rows whose rms is below least_size are
// measured against that size.
double worst_row(const Floats& got, const Floats& wanted, int64_t width,
                 const std::vector<char>& counts = {}, double least_size = 0);
double rms(const Floats& values);
// Units in the last place between two values, and the most of any pair.
int64_t ulps_between(float a, float b);
int64_t most_ulps(const Floats& got, const Floats& wanted);

struct PairSpec {
    LayerSpec layer;
    Numbers numbers = bf16;
    int64_t max_tokens = 1;
    std::function<void(moe_plan_desc&)> both;       // slices, stages, partial
    std::function<void(moe_plan_desc&)> subject;    // what must not matter: chunks, kernels
    std::shared_ptr<moe_weights> loaded = nullptr;  // the subject's, by a plan that may differ

    // Around a latent two more vectors are rounded to 16 bits than the limit was made for: what
    // goes into the experts, and their sum. So are two matrices of most formats of ggml and of the
    // grids, in the grouped GEMMs. In a token of few columns the errors of
    // rounding have fewer others to average with.
    double limit() const {
        const bool is_narrow = layer.desc.hidden <= 128;
        const bool has_more =
            layer.desc.latent > 0 || is_narrow || has_rounded_weights(layer.format);
        const bool rounded = numbers.limit == rounded_limit && has_more;
        return rounded ? 4.0 / 3.0 * numbers.limit : numbers.limit;
    }
};

class Pair {
  public:
    Pair(Context& context, const PairSpec& spec);
    Pair(Context& context, const PairSpec& spec, std::shared_ptr<LayerData> data);

    Context& context;
    const PairSpec spec;
    const std::shared_ptr<LayerData> data;
    const Side subject, reference;

    const moe_layer_desc& desc() const { return data->desc(); }
    // x of the plan's type, of normal values.
    Floats x(int64_t n_tokens, uint64_t seed = 7) const;
    Forward call(int64_t n_tokens, uint64_t seed = 7) const;
    // Random distinct ids and weights that add up to one, instead of a router.
    Forward routed_call(int64_t n_tokens, uint64_t seed = 7) const;
    // The subject's result, with the kernels that it names and launches noted and checked.
    Result run(const Forward& call) const;
    // Runs both and measures; the subject's result.
    Result check(const Forward& call, const std::string& what = "forward") const;
    void measure(const Result& got, const Result& wanted, const Forward& call,
                 const std::string& what) const;
    // A kernel for few tokens may give way to the plan's other one: what moe.h says of
    // moe_plan_kernel, output by slot, and a call in chunks.
    bool may_give_way(const Forward& call) const;
    // The kernel that the plan names for the stage and so many tokens is among the launches. In
    // calls where a kernel for few tokens may give way, any that the plan chose for the stage.
    void expect_launched(const std::vector<Launch>& launches, moe_stage stage, int64_t n_tokens,
                         bool may_give_way) const;

  private:
    void expect_launched(const std::vector<Launch>& launches, const Forward& call) const;
    SideSpec subject_spec() const;
    SideSpec reference_spec() const;
};

// Tokens that a rounding of the logits cannot send elsewhere: their ids stay when every chosen
// logit falls and every other rises by half of the smallest gap that counts, 1e-5 of the largest
// logit.
std::vector<char> decided_tokens(const Side& reference, const Forward& call, const Result& wanted);
// The routing of the subject's first n_live tokens against the reference's, where it is decided.
void measure_routing(const Pair& pair, const Result& got, const Result& wanted,
                     const std::vector<char>& decided, int64_t n_live, const std::string& what);

// Calls use(pair) for the plan as chosen, then once with every other candidate of the stage forced
// that applies.
void with_every_kernel(Context& context, const PairSpec& spec, moe_stage stage,
                       const std::function<void(const Pair&)>& use);

std::vector<int32_t> random_ids(int64_t n_tokens, int32_t k, int32_t n_experts, uint64_t seed);
// For selection by hash; none for other layers.
Ids random_token_ids(const moe_layer_desc& desc, int64_t n_tokens, uint64_t seed);
// Whose second selection bias some tokens use, whatever the flag's value; none for other layers.
std::vector<int32_t> random_second_bias(const moe_layer_desc& desc, int64_t n_tokens,
                                        uint64_t seed);

}  // namespace moe_gpu
