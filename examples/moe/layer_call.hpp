// layer_call.hpp - one layer, ready to be called: plan, weights, workspace; and one call with its
// results on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device.hpp"
#include "moe_cpp.hpp"
#include "progress.hpp"

namespace moe::cli {

struct PlanChoice {
    moe_device_kind device = MOE_DEVICE_CPU;
    moe_type x_type = MOE_TYPE_F32;
    moe_type out_type = MOE_TYPE_NONE;           // NONE: x_type
    moe_type intermediate_type = MOE_TYPE_NONE;  // NONE: the library's default
    int64_t max_tokens = 1;
    bool packed = false;  // MOE_RESIDENCY_PACKED
    std::string kernel;
};

Plan make_plan(moe_runtime* runtime, const LayerSource& source, const PlanChoice& choice);

// Read in place where that can be done, else copied.
std::shared_ptr<moe_weights> load_weights(const moe_plan* plan, const moe_checkpoint* checkpoint,
                                          int32_t layer, bool may_borrow, Progress& progress);
// Opens a file of moe_weights_save.
std::shared_ptr<moe_weights> open_weights(const moe_plan* plan, const std::string& path);
// Whether the plan can use weights made for another one.
bool can_share(const moe_plan* plan, const moe_weights* weights);

// The result of a call, as float32.
struct CallResult {
    std::vector<float> out;       // [T, H]
    std::vector<int32_t> ids;     // [T, k]
    std::vector<float> weights;   // [T, k]
    std::vector<int64_t> counts;  // [E_all]
    std::vector<double> seconds;  // of a call, one for each repetition
};

// How often a call is timed. A repetition is `calls` calls, one after the other on the stream, and
// then a wait for the stream; its time is divided by their number.
struct Timing {
    int32_t repeat = 1;
    int32_t calls = 1;
};

class LayerCall {
  public:
    LayerCall(moe_runtime* runtime, Plan plan, std::shared_ptr<moe_weights> weights,
              const moe_layer_desc& layer, const PlanChoice& choice);

    // x [T, H] is rounded to the plan's type first, and copied to the plan's device. With `given`,
    // its ids and weights are used instead of the router.
    CallResult forward(const std::vector<float>& x, int64_t n_tokens, const Timing& timing,
                       const CallResult* given = nullptr);
    const moe_plan* plan() const { return plan_.get(); }
    const std::shared_ptr<moe_weights>& weights() const { return weights_; }

  private:
    class Arrays;
    double time_of(const moe_forward_args& args, int32_t calls) const;

    Plan plan_;
    std::shared_ptr<moe_weights> weights_;
    Workspace workspace_;
    Stream stream_;
    moe_layer_desc layer_;
    moe_type x_type_;
    moe_type out_type_;
};

// ||a - b|| / ||b|| of every token, both [T, H].
std::vector<double> relative_errors(const std::vector<float>& a, const std::vector<float>& b,
                                    int64_t n_tokens);

}  // namespace moe::cli
