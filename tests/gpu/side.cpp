// Plans, workspaces and forwards of one side.
#include "side.hpp"

#include <algorithm>
#include <cstdlib>

namespace moe_gpu {
namespace {

uint64_t scratch_of(Device& device, const moe_plan* plan, int64_t n_tokens) {
    auto need = sized<moe_workspace_need>();
    must(moe_plan_workspace_size(plan, n_tokens, &need), "moe_plan_workspace_size");
    return device.is_cuda() ? need.device_bytes : need.host_bytes;
}

bool fits(const moe_plan* plan, const moe_weights* weights) {
    uint8_t of_plan[16], of_weights[16];
    return weights && moe_plan_layout_id(plan, of_plan) == MOE_OK &&
           moe_weights_layout_id(weights, of_weights) == MOE_OK &&
           std::equal(of_plan, of_plan + 16, of_weights);
}

std::shared_ptr<moe_weights> weights_of(const moe_plan* plan, const SideSpec& spec) {
    if (fits(plan, spec.shared.get())) return spec.shared;
    return load_weights(plan, spec.weights);
}

moe_plan_desc filtered(const Device& device, moe_plan_desc desc) {
    if ((!desc.kernel_filter || !*desc.kernel_filter) && !device.kernels.empty())
        desc.kernel_filter = device.kernels.c_str();
    return desc;
}

constexpr moe_stage stages[] = {MOE_STAGE_ROUTE, MOE_STAGE_DISPATCH, MOE_STAGE_EXPERTS,
                                MOE_STAGE_COMBINE, MOE_STAGE_FINISH};

}  // namespace

Side::Space::Space(Device& device, moe_runtime* runtime, const moe_plan* plan, int64_t n_tokens)
    : memory(device, scratch_of(device, plan, n_tokens)) {
    auto desc = sized<moe_workspace_desc>();
    desc.plan = plan;
    (device.is_cuda() ? desc.device_memory : desc.host_memory) = memory.data();
    (device.is_cuda() ? desc.device_bytes : desc.host_bytes) = memory.bytes();
    moe_workspace* raw = nullptr;
    must(moe_workspace_create(runtime, &desc, &raw), "moe_workspace_create");
    workspace.reset(raw);
}

Side::Side(Device& on, moe_runtime* runtime, const SideSpec& spec)
    : device(on),
      layer(*spec.plan.layer),
      x_type(spec.plan.x_type),
      router_type(spec.plan.router_input_type  ? spec.plan.router_input_type
                  : x_type == MOE_TYPE_F8_E4M3 ? MOE_TYPE_BF16
                                               : x_type),
      out_type(spec.plan.out_type ? spec.plan.out_type : spec.plan.x_type),
      partial(spec.plan.partial != 0),
      plan(make_plan(runtime, filtered(on, spec.plan))),
      weights(weights_of(plan.get(), spec)),
      stages_(spec.plan.stages),
      stream_(on),
      spaces_(std::make_unique<Space>(on, runtime, plan.get(), spec.plan.max_tokens)) {
    read_explanation();
}

void Side::read_explanation() {
    uint64_t size = 0;
    must(moe_plan_explain(plan.get(), MOE_EXPLAIN_JSON, nullptr, 0, &size), "moe_plan_explain");
    std::string json(size, '\0');
    must(moe_plan_explain(plan.get(), MOE_EXPLAIN_JSON, json.data(), size, &size),
         "moe_plan_explain");
    const std::string chunk = "\"chunk_tokens\":";
    const size_t at = json.find(chunk);
    if (at == std::string::npos) throw Failure("the explanation has no chunk_tokens");
    chunk_tokens_ = std::atol(json.c_str() + at + chunk.size());
    takes_few_rows_ = json.find("expert_rows") != std::string::npos;
    is_shared_apart_ = json.find("\"shared_expert\": \"apart\"") != std::string::npos;
}

moe_workspace_faults Side::faults() const {
    auto faults = sized<moe_workspace_faults>();
    must(moe_workspace_status(workspace(), &faults), "moe_workspace_status");
    return faults;
}

std::set<std::string> Side::kernels(int64_t n_tokens) const {
    std::set<std::string> names;
    for (const moe_stage stage : stages)
        if (std::string name = kernel(stage, n_tokens); !name.empty()) names.insert(name);
    return names;
}

std::string Side::kernel(moe_stage stage, int64_t n_tokens) const {
    const char* name = nullptr;
    if (stages_ && !(stages_ & static_cast<uint32_t>(stage))) return "";
    const moe_status status = moe_plan_kernel(plan.get(), stage, n_tokens, &name);
    return status == MOE_OK && name ? name : "";
}

std::set<std::string> Side::chosen(moe_stage stage) const {
    std::set<std::string> names;
    auto candidate = sized<moe_candidate>();
    for (uint32_t i = 0; moe_candidates(plan.get(), i, &candidate) == MOE_OK; ++i)
        if (candidate.stage == stage && candidate.chosen) names.insert(candidate.kernel);
    return names;
}

Result Side::forward(const Forward& call) const {
    ForwardBuffers buffers(*this, call, stream_);
    poison_workspace();
    must(moe_forward(plan.get(), weights.get(), workspace(), &buffers.args()), "moe_forward");
    synchronize();
    Result result = buffers.get(call);
    result.faults = faults();
    return result;
}

Floats codes_of(const Floats& x, const Floats& scales, int64_t n_columns) {
    const auto columns = static_cast<size_t>(n_columns), of_row = (columns + 127) / 128;
    Floats codes = x;
    for (size_t i = 0; i < codes.size(); ++i)
        codes[i] /= scales[i / columns * of_row + i % columns / 128];
    return codes;
}

ForwardBuffers::ForwardBuffers(const Side& side, const Forward& call, void* stream)
    : args_(sized<moe_forward_args>()),
      n_columns_(side.layer.hidden),
      accumulates_(!call.base.empty()) {
    args_.routing = call.routing;
    args_.n_tokens = call.n_tokens;
    args_.out_layout = call.out_layout;
    args_.accumulate = accumulates_;
    args_.stream = stream;
    make_inputs(side, call);
    make_outputs(side, call);
    put(call);
    poison();
    if (accumulates_) out_->put(call.base);
}

void ForwardBuffers::make_inputs(const Side& side, const Forward& call) {
    const int64_t T = call.n_tokens, H = side.layer.hidden, k = side.layer.top_k;
    Device& device = side.device;
    x_.emplace(device, side.x_type, T, H, call.x_place);
    if (side.x_type == MOE_TYPE_F8_E4M3)
        x_scales_.emplace(device, MOE_TYPE_F32, T, (H + 127) / 128, call.x_scales_place);
    if (!call.router_input.empty())
        router_.emplace(device, side.router_type, T, H, call.router_place);
    if (!call.logits.empty())
        logits_.emplace(device, MOE_TYPE_F32, T, side.n_experts_all(), call.logits_place);
    if (!call.ids.empty()) ids_.emplace(device, call.ids_type, T, k, call.ids_place);
    if (!call.weights.empty())
        weights_.emplace(device, call.weights_type, T, k, call.weights_place);
    if (!call.token_ids.empty()) token_ids_.emplace(device, call.token_ids_type, T, 1);
    if (!call.uses_second_bias.empty()) second_.emplace(device, MOE_TYPE_I8, T, 1);
    const auto n_map = static_cast<int64_t>(call.expert_map.size());
    if (n_map) map_.emplace(device, MOE_TYPE_I32, n_map, 1);
    if (call.n_tokens_device) n_device_.emplace(device, MOE_TYPE_I32, 1, 1);
    args_.x = data_of(x_);
    args_.x_row_stride = call.x_place.stride;
    args_.x_scales = data_of(x_scales_);
    args_.x_scale_row_stride = call.x_scales_place.stride;
    args_.router_input = data_of(router_);
    args_.router_input_row_stride = call.router_place.stride;
    args_.logits = static_cast<const float*>(data_of(logits_));
    args_.logits_row_stride = call.logits_place.stride;
    args_.ids = data_of(ids_);
    args_.ids_type = call.ids_type;
    args_.ids_row_stride = call.ids_place.stride;
    args_.weights = data_of(weights_);
    args_.weights_type = call.weights_type;
    args_.weights_row_stride = call.weights_place.stride;
    args_.token_ids = data_of(token_ids_);
    args_.token_ids_type = call.token_ids_type;
    args_.uses_second_bias = static_cast<const int8_t*>(data_of(second_));
    args_.expert_map = static_cast<const int32_t*>(data_of(map_));
    args_.n_expert_map = static_cast<int32_t>(n_map);
    args_.n_tokens_device = static_cast<const int32_t*>(data_of(n_device_));
}

void ForwardBuffers::make_outputs(const Side& side, const Forward& call) {
    const int64_t T = call.n_tokens, k = side.layer.top_k;
    Device& device = side.device;
    const bool per_slot = call.out_layout == MOE_OUT_PER_SLOT;
    out_.emplace(device, side.out_type, T, per_slot ? k * side.width() : side.out_columns(),
                 call.out_place);
    args_.out = data_of(out_);
    args_.out_row_stride = call.out_place.stride;
    if (!call.wants_routing) return;
    out_ids_.emplace(device, MOE_TYPE_I32, T, k);
    out_weights_.emplace(device, MOE_TYPE_F32, T, k);
    out_counts_.emplace(device, MOE_TYPE_I64, side.n_experts_all(), 1);
    const bool has_logits = call.routing != MOE_ROUTING_IDS_AND_WEIGHTS;
    if (has_logits) out_logits_.emplace(device, MOE_TYPE_F32, T, side.n_experts_all());
    args_.out_ids = static_cast<int32_t*>(data_of(out_ids_));
    args_.out_weights = static_cast<float*>(data_of(out_weights_));
    args_.out_logits = static_cast<float*>(data_of(out_logits_));
    args_.out_expert_counts = static_cast<int64_t*>(data_of(out_counts_));
}

void ForwardBuffers::put(const Forward& call) {
    x_->put(x_scales_ ? codes_of(call.x, call.x_scales, n_columns_) : call.x);
    if (x_scales_) x_scales_->put(call.x_scales);
    if (router_) router_->put(call.router_input);
    if (logits_) logits_->put(call.logits);
    if (ids_) ids_->put(call.ids);
    if (weights_) weights_->put(call.weights);
    if (token_ids_) token_ids_->put(call.token_ids);
    if (second_) second_->put(call.uses_second_bias);
    if (map_) map_->put(call.expert_map);
    if (n_device_) n_device_->put(std::vector<int32_t>{*call.n_tokens_device});
}

void ForwardBuffers::poison() {
    for (MaybeRows* rows : {&out_, &out_logits_, &out_ids_, &out_weights_, &out_counts_})
        if (*rows && !(accumulates_ && rows == &out_)) (*rows)->poison();
}

Result ForwardBuffers::get(const Forward& call) {
    const int64_t n = call.n_live();
    Result result;
    out_->get(n, "out");
    result.out = out_->floats();
    result.bits = out_->bits();
    if (!call.wants_routing) return result;
    out_ids_->get(n, "out_ids");
    out_weights_->get(n, "out_weights");
    out_counts_->get(INT64_MAX, "out_expert_counts");
    if (out_logits_) {
        out_logits_->get(n, "out_logits");
        result.logits = out_logits_->floats();
    }
    result.ids = out_ids_->integers<int32_t>();
    result.weights = out_weights_->floats();
    result.counts = out_counts_->integers<int64_t>();
    return result;
}

}  // namespace moe_gpu
