// The steps of the layer on one chunk of tokens, as launches on a stream: route, sort, experts,
// combine, finish. A forward is all of them in order; a stage call is some of them.
#pragma once

#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/combine/combine.hpp"
#include "libmoe/cuda/dispatch/caller_rows.hpp"
#include "libmoe/cuda/dispatch/dispatch.hpp"
#include "libmoe/cuda/gemv_calls.hpp"
#include "libmoe/cuda/mlp.hpp"
#include "libmoe/cuda/scratch.hpp"
#include "libmoe/layer/finish_parts.hpp"

namespace moe::cuda {

struct RouteArguments {
    moe_routing routing;
    DeviceRows router_input;
    const float* logits;
    int64_t logits_stride;
    const void* ids;
    moe_type ids_type;
    int64_t ids_stride;
    const void* token_ids;
    moe_type token_ids_type;
    const int8_t* uses_second_bias;
    int32_t* out_ids;
    int64_t out_ids_stride;
    float* out_weights;
    int64_t out_weights_stride;
    float* out_logits;
    int64_t out_logits_stride;
};

class LayerPass {
  public:
    // tokens.first is where the chunk begins in the call.
    LayerPass(const Call& call, const Scratch& scratch, const TokenCount& tokens);

    // ids and weights of the chunk's tokens.
    void route(const RouteArguments& args);
    void take_routing(const GivenRouting& given, const RouteArguments& published);

    // Before the sort, of a plan whose shared expert joins: it gets a row of every token here,
    // which the experts' kernels work on and store_sum adds.
    void join_shared() { joins_ = true; }
    // Input rows of the experts: x by token, projected to the latent first where the layer has one.
    struct ExpertInput {
        DeviceRows rows;  // from the chunk's first token on, or all of the caller's rows
        bool is_latent;
        // Sorted row r is that of rows.index[r], without an index that of scratch.in_row[r]; before
        // LATENT_IN the same of slots and scratch.source. Else that of its slot / top_k.
        bool by_source;
    };
    // x of the chunk's tokens as E4M3: returns the rows where make_values puts its values, before
    // anything reads them.
    DeviceRows values(const Fp8Rows& codes);
    // values_are_read: by others than the experts' grouped GEMM, which may take the codes.
    void make_values(bool values_are_read);
    // E4M3 rows of the caller, read by source: the experts' kernels take the codes of those that
    // are listed, or their values, which are made first.
    void take_codes(const Fp8Rows& codes) { codes_ = codes; }
    // Before the sort: the input of run_experts. Where gate_up reads it by row index, the sort
    // makes its token blocks in the same launch.
    void take_input(const ExpertInput& input);
    // Rows of the slots whose expert (by expert_map, or the slice's) is local.
    void sort(const int32_t* expert_map);
    // take_routing and sort in one.
    void take_and_sort(const GivenRouting& given, const RouteArguments& published,
                       const int32_t* expert_map);
    // Rows of n_slots slots whose ids are local experts already and whose input rows are sources.
    void sort_local(int32_t n_slots);
    // Instead of a sort: rows of the caller as they lie. scratch.source has, by sorted row, the
    // caller's row; `out` says which weights are wanted.
    void list_rows(const CallerRows& caller, const SlotWindow& window, const SlotsOut& out);
    // The same of all slots of the call, of which there are no fewer than rows. takes_weights: the
    // weights are those of the slots, else none or those on the input.
    void list_slots(const CallerRows& caller, SlotsOut out, bool takes_weights);
    // Can the experts' last kernel store such rows?
    bool stores_to(const DeviceRows& out) const;

    // y of every sorted row; to `out`, where that is given, instead of the scratch. Of a layer with
    // an expert norm `out` is not given.
    void run_experts(const ExpertInput& input, const DeviceRows* out = nullptr);
    // Before the sort of a chunk that stops before the activation: takes the plan's family for it.
    void take_pre_activation_family();
    // Gate and up of every sorted row before the activation, to `out`.
    void run_pre_activation(const ExpertInput& input, const DeviceRows& out);

    // The routed sum of the chunk, all finish parts applied where they belong.
    struct Sum {
        bool has_y;         // y of sorted rows
        DeviceRows routed;  // a sum made before
        DeviceRows x;
        uint32_t parts;           // MOE_FINISH_ bits; 0 for the bare sum
        bool identity;            // identity experts are added
        bool is_by_slot = false;  // y has the row of slot (t, j) at t * top_k + j
    };
    void store_sum(const Sum& sum, const CombineOutput& out);
    // The same straight from ids and weights, by the gemv family (takes_gemv).
    void run_gemv_sum(const DeviceRows& x, const int32_t* expert_map, Sum sum,
                      const CombineOutput& out);

    // The rows of the chunk's slots by the gemv family (takes_gemv_rows), zero for slots without an
    // expert here: per slot to `out`, or their sum over each token, with the finish parts and
    // identity experts of `sum`. x has the row of slot s by its index or divisor.
    void run_gemv_slots(const DeviceRows& x, const RowExperts& experts, moe_out_layout layout,
                        const Sum& sum, const CombineOutput& out);

    const Scratch& scratch() const { return b_; }
    moe_type y_type() const { return range_.y_type; }
    const TokenCount& tokens() const { return tokens_; }
    cudaStream_t stream() const { return launch_.stream; }

  private:
    const Layer& layer() const { return *setup_.layer; }
    const float* vector(moe_role role) const { return weights_.vectors[role]; }
    SelectOutput output_of(const RouteArguments& args) const;
    void sort(const int32_t* expert_map, SortAlong along);
    Rows rows() const;
    Rows token_rows(int32_t n) const;  // of n tokens or slots
    TileRule dense_tiles() const;
    MlpTiles tiles_of_rows(int32_t n_rows, int32_t n_experts) const;  // by the average
    MlpTiles tiles_of_batch(const MlpTiles& tiles) const;  // by the average of its capacity
    Launch dense_launch() const;                           // of the dense matrices
    LogitsInput logits_input(const DeviceRows& rows) const;
    void order_features(const Mlp& mlp, const DeviceRows& out);
    Mlp expert_mlp(const ExpertInput& input);
    Mlp shared_mlp(const DeviceRows& x) const;
    DeviceRows expert_rows(const ExpertInput& input);
    ExpertInput read_values(ExpertInput input);
    bool indexes_rows(const ExpertInput& input) const;
    // The type of rows into and out of the latent width: no narrower than x.
    moe_type latent_type() const;
    void list_tokens();
    void project_latent(const ExpertInput& input);
    void normalize_y(int32_t n_rows);
    void store_latent_sum(const Sum& sum, const CombineOutput& out);
    void run_shared(const DeviceRows& x);
    void sum_gemv_slots(const DeviceRows& x, const RowExperts& experts, Sum sum,
                        const CombineOutput& out);
    void store_gemv_slots(const DeviceRows& x, const RowExperts& experts, const DeviceRows& out);
    CombineInput combine_input(const Sum& sum) const;
    void add_shared(CombineInput& input, const Sum& sum) const;
    DotInput gate_input(const DeviceRows& x) const;

    const Call& call_;
    const Setup& setup_;
    const DeviceWeights& weights_;
    FaultWords* faults_;
    const LaunchRange& range_;  // of the chunk's tokens
    const Scratch& b_;
    TokenCount tokens_;
    Launch launch_;
    Family family_;        // of the routed experts in this chunk
    Family dense_family_;  // of the dense matrices
    int32_t n_slots_;
    int32_t n_sorted_;  // tokens of the sort; slots, where those were sorted by themselves
    bool tokens_listed_ = false;
    bool joins_ = false;     // the shared expert is one of the experts
    bool arranges_ = false;  // the sort makes the token blocks of input_
    DeviceRows input_{};
    Fp8Rows codes_{};  // of x, if its data are not null
};

}  // namespace moe::cuda
