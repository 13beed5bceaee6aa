// layer_call.cpp - sections 6 to 9 of moe.h, in the order in which a program meets them.
#include "layer_call.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

#include "floats.hpp"

namespace moe::cli {
namespace {

std::vector<unsigned char> encoded(const std::vector<float>& values, moe_type type) {
    std::vector<unsigned char> bytes(values.size() * element_bytes(type));
    encode_floats(type, values, bytes.data());
    return bytes;
}

std::shared_ptr<moe_weights> load(const moe_plan* plan, const moe_checkpoint* checkpoint,
                                  int32_t layer, moe_ownership ownership, Progress& progress) {
    auto options = sized<moe_load_options>();
    options.ownership = ownership;
    options.progress = Progress::callback;
    options.progress_user_data = &progress;
    moe_weights* raw = nullptr;
    check(moe_weights_load_checkpoint(plan, checkpoint, layer, &options, &raw));
    return {raw, moe_weights_destroy};
}

Workspace make_workspace(moe_runtime* runtime, const moe_plan* plan) {
    auto desc = sized<moe_workspace_desc>();
    desc.plan = plan;
    return make<Workspace>(moe_workspace_create, runtime, &desc);
}

double relative_error(const float* a, const float* b, size_t n) {
    double difference = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < n; ++i) {
        const double d = static_cast<double>(a[i]) - b[i];
        difference += d * d;
        size += static_cast<double>(b[i]) * b[i];
    }
    if (!std::isfinite(difference) || !(size > 0.0)) return std::numeric_limits<double>::infinity();
    return std::sqrt(difference / size);
}

}  // namespace

Plan make_plan(moe_runtime* runtime, const LayerSource& source, const PlanChoice& choice) {
    const auto formats = source.format_pointers();
    const auto of_experts = source.expert_format_pointers();
    auto desc = sized<moe_plan_desc>();
    desc.device = choice.device;
    desc.x_type = choice.x_type;
    desc.out_type = choice.out_type;
    desc.intermediate_type = choice.intermediate_type;
    desc.layer = &source.desc;
    desc.formats = formats.data();
    desc.n_formats = MOE_ROLE_COUNT;
    desc.formats_per_expert = of_experts.empty() ? nullptr : of_experts.data();
    desc.n_formats_per_expert = static_cast<uint32_t>(of_experts.size());
    if (choice.packed) desc.residency = MOE_RESIDENCY_PACKED;
    desc.max_tokens = std::max<int64_t>(choice.max_tokens, 1);
    desc.kernel_filter = choice.kernel.empty() ? nullptr : choice.kernel.c_str();
    return make<Plan>(moe_plan_create, runtime, &desc);
}

std::shared_ptr<moe_weights> load_weights(const moe_plan* plan, const moe_checkpoint* checkpoint,
                                          int32_t layer, bool may_borrow, Progress& progress) {
    if (may_borrow) {
        try {
            return load(plan, checkpoint, layer, MOE_OWN_BORROW, progress);
        } catch (const Failure& failure) {
            if (failure.status != MOE_ERROR_UNSUPPORTED) throw;
        }
    }
    return load(plan, checkpoint, layer, MOE_OWN_COPY, progress);
}

std::shared_ptr<moe_weights> open_weights(const moe_plan* plan, const std::string& path) {
    moe_weights* raw = nullptr;
    check(moe_weights_open(plan, path.c_str(), &raw));
    return {raw, moe_weights_destroy};
}

bool can_share(const moe_plan* plan, const moe_weights* weights) {
    std::array<uint8_t, 16> of_plan{};
    std::array<uint8_t, 16> of_weights{};
    check(moe_plan_layout_id(plan, of_plan.data()));
    check(moe_weights_layout_id(weights, of_weights.data()));
    return of_plan == of_weights;
}

LayerCall::LayerCall(moe_runtime* runtime, Plan plan, std::shared_ptr<moe_weights> weights,
                     const moe_layer_desc& layer, const PlanChoice& choice)
    : plan_(std::move(plan)),
      weights_(std::move(weights)),
      workspace_(make_workspace(runtime, plan_.get())),
      stream_(device_of(plan_.get())),
      layer_(layer),
      x_type_(choice.x_type),
      out_type_(choice.out_type == MOE_TYPE_NONE ? choice.x_type : choice.out_type) {}

// The arrays that a call reads and writes, on the device.
class LayerCall::Arrays {
  public:
    Arrays(const LayerCall& call, int64_t n_tokens)
        : n_tokens_(n_tokens),
          n_values_(count(n_tokens, call.layer_.hidden)),
          n_slots_(count(n_tokens, call.layer_.top_k)),
          n_experts_(static_cast<size_t>(call.layer_.n_experts) +
                     static_cast<size_t>(call.layer_.n_identity_experts)),
          stream_(call.stream_),
          out_type_(call.out_type_),
          x_(stream_, n_values_ * element_bytes(call.x_type_)),
          out_(stream_, n_values_ * element_bytes(out_type_)),
          ids_(stream_, n_slots_ * sizeof(int32_t)),
          weights_(stream_, n_slots_ * sizeof(float)),
          counts_(stream_, n_experts_ * sizeof(int64_t)) {}

    void put(const std::vector<unsigned char>& x, const CallResult* given) {
        x_.upload(x.data());
        if (given) {
            ids_.upload(given->ids.data());
            weights_.upload(given->weights.data());
        }
        stream_.synchronize();
    }
    moe_forward_args arguments(bool are_given) const {
        auto args = sized<moe_forward_args>();
        args.n_tokens = n_tokens_;
        args.x = x_.data();
        args.out = out_.data();
        args.out_expert_counts = counts_.as<int64_t>();
        args.stream = stream_.get();
        if (are_given) {
            args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
            args.ids = ids_.data();
            args.ids_type = MOE_TYPE_I32;
            args.weights = weights_.data();
            args.weights_type = MOE_TYPE_F32;
        } else {
            args.routing = MOE_ROUTING_COMPUTE;
            args.out_ids = ids_.as<int32_t>();
            args.out_weights = weights_.as<float>();
        }
        return args;
    }
    void get(CallResult& result) const {
        std::vector<unsigned char> out(n_values_ * element_bytes(out_type_));
        result.ids.resize(n_slots_);
        result.weights.resize(n_slots_);
        result.counts.resize(n_experts_);
        out_.download(out.data());
        ids_.download(result.ids.data());
        weights_.download(result.weights.data());
        counts_.download(result.counts.data());
        stream_.synchronize();
        result.out.resize(n_values_);
        decode_floats(out_type_, out.data(), result.out);
    }

  private:
    static size_t count(int64_t rows, int32_t columns) {
        return static_cast<size_t>(rows) * static_cast<size_t>(columns);
    }

    int64_t n_tokens_;
    size_t n_values_, n_slots_, n_experts_;
    const Stream& stream_;
    moe_type out_type_;
    DeviceArray x_, out_, ids_, weights_, counts_;
};

double LayerCall::time_of(const moe_forward_args& args, int32_t calls) const {
    const auto start = std::chrono::steady_clock::now();
    for (int32_t i = 0; i < calls; ++i)
        check(moe_forward(plan_.get(), weights_.get(), workspace_.get(), &args));
    stream_.synchronize();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return elapsed.count() / calls;
}

CallResult LayerCall::forward(const std::vector<float>& x, int64_t n_tokens, const Timing& timing,
                              const CallResult* given) {
    CallResult result;
    Arrays arrays(*this, n_tokens);
    arrays.put(encoded(x, x_type_), given);
    const moe_forward_args args = arrays.arguments(given != nullptr);
    for (int32_t i = 0; i < timing.repeat; ++i)
        result.seconds.push_back(time_of(args, timing.calls));
    arrays.get(result);
    return result;
}

std::vector<double> relative_errors(const std::vector<float>& a, const std::vector<float>& b,
                                    int64_t n_tokens) {
    std::vector<double> errors;
    const size_t width = n_tokens > 0 ? a.size() / static_cast<size_t>(n_tokens) : 0;
    for (int64_t t = 0; t < n_tokens; ++t) {
        const size_t first = static_cast<size_t>(t) * width;
        errors.push_back(relative_error(a.data() + first, b.data() + first, width));
    }
    return errors;
}

}  // namespace moe::cli
