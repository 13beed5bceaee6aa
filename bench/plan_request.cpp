#include "bench/plan_request.hpp"

#include "bench/formats.hpp"

namespace moe::bench {

PlanRequest::PlanRequest(const Case& like, int64_t max_tokens, moe_device_kind device)
    : layer(layer_of(*like.model, like.mode)), kernels_(like.kernels) {
    const ExpertFormats of = expert_formats(like.format);
    set(MOE_ROLE_GATE, of.gate);
    set(MOE_ROLE_UP, of.up);
    set(MOE_ROLE_DOWN, of.down);
    if (layer.shared_intermediate) {
        set(MOE_ROLE_SHARED_GATE, of.gate);
        set(MOE_ROLE_SHARED_UP, of.up);
        set(MOE_ROLE_SHARED_DOWN, of.down);
    }
    set(MOE_ROLE_ROUTER, "bf16");
    desc.struct_size = sizeof desc;
    desc.device = device;
    desc.x_type = like.x_type;
    desc.intermediate_type = like.intermediate_type;
    if (like.fp8_activations) desc.activation_quantization = MOE_ACTIVATION_QUANTIZATION_FP8;
    desc.layer = &layer;
    desc.formats = pointers_;
    desc.n_formats = MOE_ROLE_COUNT;
    desc.max_tokens = max_tokens;
    desc.unfused = like.unfused;
    desc.kernel_filter = kernels_.empty() ? nullptr : kernels_.c_str();
}

void PlanRequest::set(moe_role role, const std::string& format) {
    formats_[role] = format_by_name(format);
    pointers_[role] = &formats_[role];
}

}  // namespace moe::bench
