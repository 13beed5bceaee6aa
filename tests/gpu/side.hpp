// One side of a comparison: a plan with its weights and workspace on a device, called with host
// values. The plan under test and its reference are two sides that get the same calls.
#pragma once

#include <set>

#include "rows.hpp"

namespace moe_gpu {

struct Forward {
    int64_t n_tokens = 0;
    Floats x;         // dense, of the plan's x type; values, if that is E4M3
    Floats x_scales;  // of E4M3 x, of 128 columns each
    moe_routing routing = MOE_ROUTING_COMPUTE;
    Floats router_input, logits;
    Ids ids;
    Floats weights;
    Ids token_ids;
    std::vector<int32_t> uses_second_bias, expert_map;
    std::optional<int32_t> n_tokens_device;
    moe_out_layout out_layout = MOE_OUT_REDUCED;
    Floats base;  // not empty: accumulate into it
    moe_type ids_type = MOE_TYPE_I32, weights_type = MOE_TYPE_F32, token_ids_type = MOE_TYPE_I32;
    Place x_place, x_scales_place, router_place, logits_place, ids_place, weights_place, out_place;
    bool wants_routing = true;  // logits, ids, weights and counts too

    int64_t n_live() const {
        if (!n_tokens_device) return n_tokens;
        return std::min<int64_t>(std::max(*n_tokens_device, 0), n_tokens);
    }
};

struct Result {
    Floats out, weights, logits;
    std::vector<int32_t> ids;
    Ids counts;
    Bytes bits;  // of out
    moe_workspace_faults faults{};
};

struct SideSpec {
    moe_plan_desc plan;
    moe_weights_desc weights;
    std::shared_ptr<moe_weights> shared = nullptr;  // used instead, where the layouts agree
};

class Side {
  public:
    Side(Device& device, moe_runtime* runtime, const SideSpec& spec);

    Device& device;
    const moe_layer_desc layer;
    const moe_type x_type, router_type, out_type;
    const bool partial;
    Plan plan;
    std::shared_ptr<moe_weights> weights;

    int64_t width() const { return layer.latent ? layer.latent : layer.hidden; }
    int64_t out_columns() const { return partial ? width() : layer.hidden; }
    int64_t n_experts_all() const { return layer.n_experts + layer.n_identity_experts; }
    moe_workspace* workspace() const { return spaces_->workspace.get(); }
    void* stream() const { return stream_; }
    void poison_workspace(int byte = 0xFF) const { spaces_->memory.poison(byte); }
    void synchronize() const { device.synchronize(stream_); }
    moe_workspace_faults faults() const;
    // Names of the kernels of the plan's stages for so many tokens.
    std::set<std::string> kernels(int64_t n_tokens) const;
    // That of one stage; "" where the plan has no such stage.
    std::string kernel(moe_stage stage, int64_t n_tokens) const;
    // Every kernel that the plan chose for a stage, for few tokens and for any number.
    std::set<std::string> chosen(moe_stage stage) const;
    // Facts of the explanation: tokens of a chunk; the shared expert runs apart from the others.
    int64_t chunk_tokens() const { return chunk_tokens_; }
    bool is_shared_apart() const { return is_shared_apart_; }
    // Does the plan have launches of gemv for rows with an expert each?
    bool takes_few_rows() const { return takes_few_rows_; }

    Result forward(const Forward& call) const;

    // A workspace of its own for a thread or a stream.
    struct Space {
        Space(Device& device, moe_runtime* runtime, const moe_plan* plan, int64_t n_tokens);
        Buffer memory;
        Workspace workspace;
    };

  private:
    void read_explanation();

    uint32_t stages_;
    int64_t chunk_tokens_ = 0;
    bool is_shared_apart_ = false;
    bool takes_few_rows_ = false;
    Stream stream_;
    std::unique_ptr<Space> spaces_;
};

// E4M3 x: its values over their scales, of which a row has one for 128 columns.
Floats codes_of(const Floats& x, const Floats& scales, int64_t n_columns);

// The buffers of a forward, kept, so that they can be refilled between replays.
class ForwardBuffers {
  public:
    ForwardBuffers(const Side& side, const Forward& call, void* stream);

    void put(const Forward& call);
    void poison();
    const moe_forward_args& args() const { return args_; }
    Result get(const Forward& call);

  private:
    void make_inputs(const Side& side, const Forward& call);
    void make_outputs(const Side& side, const Forward& call);

    MaybeRows x_, x_scales_, router_, logits_, ids_, weights_, token_ids_, second_, map_, n_device_;
    MaybeRows out_, out_logits_, out_ids_, out_weights_, out_counts_;
    moe_forward_args args_;
    int64_t n_columns_;  // of x
    bool accumulates_;
};

}  // namespace moe_gpu
