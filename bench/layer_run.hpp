// One layer on the device, measured: its plan, weights, inputs and a graph of calls.
#pragma once

#include <memory>

#include "bench/cases.hpp"
#include "bench/device.hpp"
#include "bench/floors.hpp"
#include "bench/stage_run.hpp"
#include "libmoe/weights/device_weights.hpp"

namespace moe::bench {

struct Result {
    Case what;
    std::string kernel;  // kernel of the experts stage
    Timing time;
    double bytes;  // weight bytes that a call must read: distinct experts, router, shared expert
    double flops;
    double floor_us;  // the larger of the two times
    double workspace_bytes;
    int n_sets;
    int n_calls;
    std::vector<StageResult> stages;  // if the case measures them
};

struct Limits {
    std::vector<ReadPoint> reads;
    double dense_tflops;
};

// Plan and weights of `like` stay on the device for all cases that differ in tokens and skew only.
class LayerRun {
  public:
    LayerRun(const Case& like, int64_t max_tokens);
    ~LayerRun();
    Result run(const Case& what, const Limits& limits);
    const moe_plan& plan() const;
    const moe_weights* weights() const;  // the first set

  private:
    void count_bytes(const DevicePlacement& placement, const moe_layer_desc& layer);
    bool is_warm(int64_t n_tokens) const;
    const void* x_of(int call, int64_t n_tokens) const;
    void clear_output(int64_t n_tokens);
    void check_output(const Case& what, const void* row, int64_t width) const;
    double weight_bytes(const Case& what, double distinct) const;
    double distinct_of_router(int64_t n_tokens, int n_calls);
    std::vector<StageResult> stages_of(const Case& what, int n_calls, double distinct);

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace moe::bench
