// One layer on the device, measured: plan, weights, inputs, a graph of calls.
#pragma once

#include <memory>

#include "bench/cases.hpp"
#include "bench/device.hpp"
#include "bench/floors.hpp"
#include "libmoe/weights/device_weights.hpp"

namespace moe::bench {

struct Result {
    Case what;
    std::string kernel;  // of the experts stage
    Timing time;
    double bytes;  // of weights that a call must touch: distinct experts, router, shared expert
    double flops;
    double floor_us;  // the larger of the two times
    double workspace_bytes;
    int n_sets;
    int n_calls;
};

struct Limits {
    std::vector<ReadPoint> reads;
    double dense_tflops;
};

// Weights of one model, format and mode stay on the device for all its cases.
class LayerRun {
  public:
    LayerRun(const Model& model, const std::string& format, Mode mode, int64_t max_tokens,
             const std::string& kernel_filter);
    ~LayerRun();
    Result run(const Case& what, const Limits& limits);
    const moe_plan& plan() const;
    const moe_weights* weights() const;  // the first set

  private:
    void count_bytes(const DevicePlacement& placement, const moe_layer_desc& layer);
    bool is_warm(int64_t n_tokens) const;
    const void* x_of(int call, int64_t n_tokens) const;
    double distinct_of_router(int64_t n_tokens, int n_calls);

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace moe::bench
