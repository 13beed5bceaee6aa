// A plan of libmoe that runs experts from ids and weights on the CPU: dispatch, experts, combine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/cpu/weights.hpp"

namespace moe::bench {

struct CpuCase {
    Model model;
    std::string format;  // "a+b": b of down
    std::string kernels;
    moe_type x_type;
    int64_t n_tokens;
    int32_t n_threads;
    bool is_int8 = false;    // the policy MOE_ACTIVATION_QUANTIZATION_INT8
    bool is_packed = false;  // MOE_RESIDENCY_PACKED

    std::string name() const;
};
const char* type_name(moe_type type);

// Activations of a call, [n_tokens, hidden]: Gaussian, rounded to bfloat16, which every type of x
// but float16 holds exactly.
std::vector<float> make_x(const Model& model, int64_t n_tokens);
// The weight of every expert of a token.
constexpr float slot_weight = 0.125f;

class CpuLayer {
  public:
    // The weights must outlive it.
    CpuLayer(const CpuCase& one, const ExpertWeights& weights);

    // Seconds of a forward of set `set` with these ids.
    double forward(size_t set, const std::vector<int32_t>& ids);
    // Of the last forward, [n_tokens, hidden].
    std::vector<float> out() const;
    std::string kernel() const;

  private:
    void load(size_t set, const ExpertWeights& weights);

    CpuCase case_;
    std::shared_ptr<moe_runtime> runtime_;
    std::shared_ptr<moe_plan> plan_;
    std::shared_ptr<moe_workspace> workspace_;
    std::vector<std::shared_ptr<moe_weights>> sets_;
    std::vector<unsigned char> x_, out_;
    std::vector<float> weights_;
};

}  // namespace moe::bench
