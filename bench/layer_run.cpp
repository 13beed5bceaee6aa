// Measures one layer. Inputs: a model, a format, a case. Output: the time of a call and its floor.
//   1. weight sets are made, several where they are small, and calls rotate through them, so the L2
//      never holds the weights that a call reads
//   2. calls have different experts, unless the sets alone make the weights cold
//   3. the calls are captured into one graph and replayed
// Where the sets suffice, ids and x of a single token are the same in every call: in a model the
// preceding kernel has just written them.
#include "bench/layer_run.hpp"

#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "bench/layouts.hpp"
#include "bench/plan_request.hpp"
#include "bench/routing.hpp"
#include "bench/weights.hpp"
#include "libmoe/cuda/runtime/launch_hook.hpp"
#include "libmoe/plan/plan.hpp"
#include "libmoe/weights/codebook_tables.hpp"
#include "libmoe/weights/weights_handle.hpp"

namespace moe::bench {
namespace {

struct DestroyPlan {
    void operator()(moe_plan* plan) const { moe_plan_destroy(plan); }
};
struct DestroyWorkspace {
    void operator()(moe_workspace* workspace) const { moe_workspace_destroy(workspace); }
};

// Makes a handle on weights in `block`, in the state that a load would leave.
NewWeights weights_in(const moe_plan& plan, const DevicePlacement& placement, std::byte* block) {
    NewWeights weights = new_weights(*plan.runtime, plan.layout, MOE_OWN_CALLER);
    weights->placement = placement;
    weights->device_block = block;
    weights->device = placement.resolve(plan.layout, block);
    MemoryBlock device_block(block, nullptr);
    read_codebooks(*weights, device_block);
    return weights;
}

constexpr double cold_bytes = 200e6;  // several times the L2

// Returns the number of sets of which one token in turn reads cold_bytes, within the memory limit.
int sets_for(double bytes, double bytes_of_token) {
    constexpr double most = 24e9;
    const double wanted = std::ceil(cold_bytes / bytes_of_token);
    return static_cast<int>(std::clamp(wanted, 1.0, std::max(1.0, std::floor(most / bytes))));
}

int calls_for(int64_t n_tokens) {
    return n_tokens <= 32 ? 24 : n_tokens <= 512 ? 8 : 3;
}

// Takes the name of the first kernel of gate and up that is launched, as plans have it.
class GateUpKernel {
  public:
    GateUpKernel() {
        cuda::launch_hook.user_data = this;
        cuda::launch_hook.function = [](const char* kernel, const void*, void* self) {
            static_cast<GateUpKernel*>(self)->see(kernel);
        };
    }
    ~GateUpKernel() { cuda::launch_hook.function = nullptr; }
    GateUpKernel(const GateUpKernel&) = delete;
    GateUpKernel& operator=(const GateUpKernel&) = delete;

    const std::string& name() const { return name_; }

  private:
    // The name ends with its stage; the rest names a variant.
    void see(std::string_view kernel) {
        constexpr std::string_view stage = "_gate_up";
        const size_t at = kernel.find(stage);
        if (name_.empty() && at != kernel.npos) name_ = kernel.substr(0, at + stage.size());
    }

    std::string name_;
};

}  // namespace

struct LayerRun::State {
    const Model* model;
    Mode mode;
    std::unique_ptr<moe_plan, DestroyPlan> plan;
    std::unique_ptr<moe_workspace, DestroyWorkspace> workspace;
    std::vector<DeviceBuffer> blocks;
    std::vector<NewWeights> sets;
    DeviceBuffer x, out, ids, weights;
    int64_t x_rows = 0;
    bool sets_are_cold = false;  // for one token that uses the same experts of each set
    uint64_t expert_bytes = 0;   // bytes of one routed expert
    uint64_t gate_up_bytes = 0;  // of those, of gate and up
    uint64_t router_bytes = 0;
    uint64_t shared_bytes = 0;

    double other_bytes() const { return static_cast<double>(router_bytes + shared_bytes); }
};

LayerRun::LayerRun(const Case& like, int64_t max_tokens) : state_(std::make_unique<State>()) {
    State& s = *state_;
    s.model = like.model;
    s.mode = like.mode;
    const PlanRequest request(like, max_tokens);
    const moe_layer_desc& layer = request.layer;
    moe_plan* plan = nullptr;
    check(moe_plan_create(nullptr, &request.desc, &plan));
    s.plan.reset(plan);

    const DevicePlacement placement = lay_out_on_device(plan->layout);
    count_bytes(placement, layer);
    const double of_token = layer.top_k * s.expert_bytes + s.other_bytes();
    const int n_sets = sets_for(placement.bytes, of_token);
    s.sets_are_cold = n_sets * of_token >= cold_bytes;
    for (int i = 0; i < n_sets; ++i) {
        s.blocks.emplace_back(static_cast<int64_t>(placement.bytes));
        auto* block = static_cast<std::byte*>(s.blocks.back().data());
        fill_weights(plan->layout, placement, block, 1000u * (i + 1));
        s.sets.push_back(weights_in(*plan, placement, block));
    }
    moe_workspace_desc workspace_desc{};
    workspace_desc.struct_size = sizeof workspace_desc;
    workspace_desc.plan = plan;
    moe_workspace* workspace = nullptr;
    check(moe_workspace_create(nullptr, &workspace_desc, &workspace));
    s.workspace.reset(workspace);
    s.x_rows = std::max<int64_t>(max_tokens, 24 * 512);
    s.x = DeviceBuffer(s.x_rows * layer.hidden * 2);
    s.out = DeviceBuffer(max_tokens * layer.hidden * 2);
    const auto fill_x = like.x_type == MOE_TYPE_F16 ? fill_f16 : fill_bf16;
    fill_x(s.x.data(), s.x_rows * layer.hidden, 7);
}

LayerRun::~LayerRun() = default;

const moe_plan& LayerRun::plan() const {
    return *state_->plan;
}

const moe_weights* LayerRun::weights() const {
    return state_->sets.front().get();
}

void LayerRun::count_bytes(const DevicePlacement& placement, const moe_layer_desc& layer) {
    State& s = *state_;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const DevicePlacement::Region& region = placement.matrices[i];
        if (region.type == PackedType::none) continue;
        const uint64_t bytes =
            static_cast<uint64_t>(region.n_tiles) * tile_bytes(region.type, region.k);
        (is_expert_role(static_cast<moe_role>(i)) ? s.expert_bytes : s.shared_bytes) += bytes;
        if (i == MOE_ROLE_GATE || i == MOE_ROLE_UP) s.gate_up_bytes += bytes;
    }
    s.router_bytes = uint64_t{2} * layer.n_experts * layer.hidden;
}

// Ids and x are warm, because a preceding kernel would have just written them. The weights are cold
// all the same.
bool LayerRun::is_warm(int64_t n_tokens) const {
    return n_tokens == 1 && state_->sets_are_cold;
}

// Otherwise every call has its own tokens, so that a computed routing uses other experts.
const void* LayerRun::x_of(int call, int64_t n_tokens) const {
    if (is_warm(n_tokens)) return state_->x.data();
    const int64_t first = call * n_tokens % (state_->x_rows - n_tokens + 1);
    return static_cast<const std::byte*>(state_->x.data()) + first * state_->model->hidden * 2;
}

void LayerRun::clear_output(int64_t n_tokens) {
    State& s = *state_;
    check_cuda(cudaMemset(s.out.data(), 0, n_tokens * s.model->hidden * 2), "clearing out");
}

// A time counts only where the calls have computed something: a row of the output is finite and not
// zero.
void LayerRun::check_output(const Case& what, const void* from, int64_t width) const {
    std::vector<uint16_t> row(width);
    check_cuda(cudaMemcpy(row.data(), from, width * 2, cudaMemcpyDeviceToHost), "out");
    const uint16_t exponent = what.x_type == MOE_TYPE_F16 ? 0x7C00 : 0x7F80;
    const auto is_finite = [&](uint16_t bits) { return (bits & exponent) != exponent; };
    const auto is_zero = [](uint16_t bits) { return (bits & 0x7FFF) == 0; };
    if (!std::all_of(row.begin(), row.end(), is_finite))
        throw std::runtime_error("the output is not finite");
    if (std::all_of(row.begin(), row.end(), is_zero))
        throw std::runtime_error("the output is zero");
}

// Counts the experts that the router itself chooses.
double LayerRun::distinct_of_router(int64_t n_tokens, int n_calls) {
    State& s = *state_;
    const int64_t n_slots = n_tokens * s.model->top_k;
    const DeviceBuffer out_ids(n_slots * 4);
    std::vector<int32_t> ids(n_slots);
    double distinct = 0;
    for (int i = 0; i < n_calls; ++i) {
        moe_forward_args args{};
        args.struct_size = sizeof args;
        args.n_tokens = n_tokens;
        args.x = x_of(i, n_tokens);
        args.out = s.out.data();
        args.out_ids = static_cast<int32_t*>(out_ids.data());
        check(moe_forward(s.plan.get(), s.sets[i % s.sets.size()].get(), s.workspace.get(), &args));
        check_cuda(cudaMemcpy(ids.data(), out_ids.data(), ids.size() * 4, cudaMemcpyDeviceToHost),
                   "out_ids");
        distinct += count_distinct(ids, s.model->n_experts);
    }
    return distinct / n_calls;
}

// Uses the ids that run() has left. A case with a router overwrites them with its choice.
std::vector<StageResult> LayerRun::stages_of(const Case& what, int n_calls, double distinct) {
    State& s = *state_;
    const bool computed = what.mode == Mode::layer && what.zipf == 0;
    const int64_t stride = is_warm(what.n_tokens) && !computed ? 0 : what.n_tokens * s.model->top_k;
    StageInputs inputs{};
    inputs.what = what;
    inputs.plan = s.plan.get();
    inputs.workspace = s.workspace.get();
    inputs.n_calls = n_calls;
    inputs.weights_of = [&](int i) { return s.sets[i % s.sets.size()].get(); };
    inputs.x_of = [&](int i) { return x_of(i, what.n_tokens); };
    inputs.ids_of = [&, stride](int i) { return static_cast<int32_t*>(s.ids.data()) + i * stride; };
    inputs.ids_are_given = !computed;
    inputs.slot_weights = static_cast<float*>(s.weights.data());
    inputs.out = s.out.data();
    inputs.router_bytes = static_cast<double>(s.router_bytes);
    inputs.experts_bytes = distinct * static_cast<double>(s.expert_bytes);
    inputs.shared_bytes = static_cast<double>(s.shared_bytes);
    return run_stages(inputs);
}

double LayerRun::weight_bytes(const Case& what, double distinct) const {
    const State& s = *state_;
    if (what.layout && what.layout->stops) return distinct * static_cast<double>(s.gate_up_bytes);
    return distinct * s.expert_bytes + (what.mode == Mode::layer ? s.other_bytes() : 0);
}

Result LayerRun::run(const Case& what, const Limits& limits) {
    State& s = *state_;
    const Model& model = *s.model;
    const int n_calls = calls_for(what.n_tokens);
    const int64_t n_slots = what.n_tokens * model.top_k;
    Router router(model.n_experts, model.top_k, what.zipf, 17);
    std::vector<int32_t> ids;
    double distinct = 0;
    for (int i = 0; i < n_calls; ++i) {
        const std::vector<int32_t> one = router.ids(what.n_tokens);
        distinct += count_distinct(one, model.n_experts);
        ids.insert(ids.end(), one.begin(), one.end());
    }
    distinct /= n_calls;
    const bool computed = what.mode == Mode::layer && what.zipf == 0;
    if (computed) distinct = distinct_of_router(what.n_tokens, n_calls);
    s.ids = DeviceBuffer::of(ids);
    s.weights = DeviceBuffer(n_slots * 4);
    fill_f32(s.weights.data(), n_slots, 1.0f, 3);

    std::optional<LayoutRows> rows;
    if (what.layout) rows.emplace(what, ids, n_calls);

    const auto in_layout = [&](int i, cudaStream_t stream) {
        moe_experts_args args = rows->args(i);
        if (what.layout->in == MOE_IN_TOKENS) args.x = x_of(i, what.n_tokens);
        args.ids = static_cast<int32_t*>(s.ids.data()) + i * n_slots;
        args.weights = static_cast<float*>(s.weights.data());
        args.stream = stream;
        check(moe_experts(s.plan.get(), s.sets[i % s.sets.size()].get(), s.workspace.get(), &args));
    };
    const auto call = [&](int i, cudaStream_t stream) {
        if (rows) return in_layout(i, stream);
        moe_forward_args args{};
        args.struct_size = sizeof args;
        args.n_tokens = what.n_tokens;
        args.x = x_of(i, what.n_tokens);
        args.out = s.out.data();
        args.stream = stream;
        const bool given = what.mode == Mode::ids || what.zipf > 0;
        const int64_t first_id = is_warm(what.n_tokens) ? 0 : i * n_slots;
        if (given) args.ids = static_cast<int32_t*>(s.ids.data()) + first_id;
        if (what.mode == Mode::ids) {
            args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
            args.weights = s.weights.data();
        } else {
            args.routing = given ? MOE_ROUTING_IDS : MOE_ROUTING_COMPUTE;
        }
        check(moe_forward(s.plan.get(), s.sets[i % s.sets.size()].get(), s.workspace.get(), &args));
    };
    Result result{};
    result.what = what;
    result.n_calls = n_calls;
    result.n_sets = static_cast<int>(s.sets.size());
    const Sampling sampling = sampling_for(what.n_tokens);
    clear_output(what.n_tokens);
    const GateUpKernel launched;
    result.time = time_calls(call, n_calls, sampling.n_replays, sampling.settle_us);
    if (rows)
        check_output(what, rows->written_row(), rows->width());
    else
        check_output(
            what,
            static_cast<const std::byte*>(s.out.data()) + (what.n_tokens - 1) * model.hidden * 2,
            model.hidden);
    result.kernel = launched.name();
    const bool layer = what.mode == Mode::layer;
    result.bytes = weight_bytes(what, distinct);
    const double matrices = what.layout && what.layout->stops ? 2.0 / 3.0 : 1.0;
    const double per_token =
        matrices * model.top_k * model.intermediate + (layer ? model.shared_intermediate : 0);
    result.flops = 6.0 * what.n_tokens * per_token * model.hidden +
                   (layer ? 2.0 * what.n_tokens * model.hidden * model.n_experts : 0.0);
    const double read_us = read_floor_us(limits.reads, result.bytes);
    const double compute_us =
        limits.dense_tflops > 0 ? result.flops / limits.dense_tflops / 1e6 : 0.0;
    result.floor_us = std::max(read_us, compute_us);
    moe_workspace_need need{};
    need.struct_size = sizeof need;
    check(moe_plan_workspace_size(s.plan.get(), what.n_tokens, &need));
    result.workspace_bytes = static_cast<double>(need.device_bytes);
    if (what.stages) result.stages = stages_of(what, n_calls, distinct);
    return result;
}

}  // namespace moe::bench
