// Measures the stages of a layer, each as a graph of its own over all calls. The outputs of the
// stages before it are computed once, in advance.
//   1. route: ids and weights
//   2. dispatch: offsets and row ids
//   3. experts: rows by slot
//   4. combine: the sum of a token's rows
//   5. finish: out
#include "bench/stage_run.hpp"

#include "bench/layer_run.hpp"
#include "libmoe/plan/candidates.hpp"

namespace moe::bench {
namespace {

template <class Args>
Args sized() {
    Args args{};
    args.struct_size = sizeof args;
    return args;
}

class Stages {
  public:
    explicit Stages(const StageInputs& in)
        : in_(in),
          n_tokens_(in.what.n_tokens),
          n_slots_(n_tokens_ * in.what.model->top_k),
          offsets_(8 * (in.what.model->n_experts + 1)),
          row_ids_(4 * n_slots_),
          rows_(2 * n_slots_ * in.what.model->hidden),
          routed_(2 * n_tokens_ * in.what.model->hidden) {}

    void call(moe_stage stage, int i, cudaStream_t stream) {
        switch (stage) {
            case MOE_STAGE_ROUTE:
                return route(i, stream);
            case MOE_STAGE_DISPATCH:
                return dispatch(i, stream);
            case MOE_STAGE_EXPERTS:
                return experts(i, stream);
            case MOE_STAGE_COMBINE:
                return combine(i, stream);
            default:
                return finish(i, stream);
        }
    }

  private:
    void route(int i, cudaStream_t stream) {
        auto args = sized<moe_route_args>();
        args.routing = in_.ids_are_given ? MOE_ROUTING_IDS : MOE_ROUTING_COMPUTE;
        args.n_tokens = n_tokens_;
        args.x = in_.x_of(i);
        if (in_.ids_are_given)
            args.ids = in_.ids_of(i);
        else
            args.out_ids = in_.ids_of(i);
        args.out_weights = in_.slot_weights;
        args.stream = stream;
        check(moe_route(in_.plan, in_.weights_of(i), in_.workspace, &args));
    }

    void dispatch(int i, cudaStream_t stream) {
        auto args = sized<moe_dispatch_args>();
        args.n_tokens = n_tokens_;
        args.ids = in_.ids_of(i);
        args.out_offsets = static_cast<int64_t*>(offsets_.data());
        args.out_row_ids = static_cast<int32_t*>(row_ids_.data());
        args.row_capacity = n_slots_;
        args.stream = stream;
        check(moe_dispatch(in_.plan, in_.workspace, &args));
    }

    void experts(int i, cudaStream_t stream) {
        auto args = sized<moe_experts_args>();
        args.in_layout = MOE_IN_TOKENS;
        args.out_layout = MOE_OUT_PER_SLOT;
        args.n_tokens = n_tokens_;
        args.x = in_.x_of(i);
        args.ids = in_.ids_of(i);
        args.out = rows_.data();
        args.stream = stream;
        check(moe_experts(in_.plan, in_.weights_of(i), in_.workspace, &args));
    }

    void combine(int i, cudaStream_t stream) {
        auto args = sized<moe_combine_args>();
        args.rows_layout = MOE_IN_TOKENS;
        args.n_tokens = n_tokens_;
        args.rows = rows_.data();
        args.ids = in_.ids_of(i);
        args.weights = in_.slot_weights;
        args.out = routed_.data();
        args.stream = stream;
        check(moe_combine(in_.plan, in_.workspace, &args));
    }

    void finish(int i, cudaStream_t stream) {
        auto args = sized<moe_finish_args>();
        args.n_tokens = n_tokens_;
        args.routed = routed_.data();
        args.x = in_.x_of(i);
        args.out = in_.out;
        args.stream = stream;
        check(moe_finish(in_.plan, in_.weights_of(i), in_.workspace, &args));
    }

    const StageInputs& in_;
    int64_t n_tokens_, n_slots_;
    DeviceBuffer offsets_, row_ids_, rows_, routed_;
};

std::vector<moe_stage> stages_of(const Case& what) {
    std::vector<moe_stage> stages{MOE_STAGE_DISPATCH, MOE_STAGE_EXPERTS, MOE_STAGE_COMBINE};
    if (what.mode == Mode::ids) return stages;
    stages.insert(stages.begin(), MOE_STAGE_ROUTE);
    if (what.model->shared_intermediate) stages.push_back(MOE_STAGE_FINISH);
    return stages;
}

double weight_bytes(const StageInputs& inputs, moe_stage stage) {
    switch (stage) {
        case MOE_STAGE_ROUTE:
            return inputs.router_bytes;
        case MOE_STAGE_EXPERTS:
            return inputs.experts_bytes;
        case MOE_STAGE_FINISH:
            return inputs.shared_bytes;
        default:
            return 0;
    }
}

}  // namespace

std::vector<StageResult> run_stages(const StageInputs& inputs) {
    const Case& what = inputs.what;
    const Sampling sampling = sampling_for(what.n_tokens);
    Stages calls(inputs);
    const auto time = [&](const auto& call) {
        return time_calls(call, inputs.n_calls, sampling.n_replays, sampling.settle_us);
    };
    const auto chain = [&](int i, cudaStream_t stream) {
        for (const moe_stage stage : stages_of(what))
            if (stage != MOE_STAGE_DISPATCH) calls.call(stage, i, stream);
    };
    for (int i = 0; i < inputs.n_calls; ++i) chain(i, nullptr);
    check_cuda(cudaStreamSynchronize(nullptr), "stages");
    std::vector<StageResult> results;
    Work sum{};
    for (const moe_stage stage : stages_of(what)) {
        const Work work =
            work_of_stage(stage, *what.model, what.n_tokens, weight_bytes(inputs, stage));
        const auto alone = [&](int i, cudaStream_t stream) { calls.call(stage, i, stream); };
        results.push_back({stage_name(stage), time(alone), work});
        if (stage == MOE_STAGE_DISPATCH) continue;
        sum.bytes += work.bytes;
        sum.flops += work.flops;
    }
    results.push_back({"chain", time(chain), sum});
    return results;
}

}  // namespace moe::bench
