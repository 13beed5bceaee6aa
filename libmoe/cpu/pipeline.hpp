// The steps of the layer on one chunk of tokens, each shared by the team: load, route, list rows,
// experts, combine, finish, store. A forward is all of them in order; a stage call is some of them.
#pragma once

#include "libmoe/base/team.hpp"
#include "libmoe/cpu/kernels.hpp"
#include "libmoe/cpu/ref/dispatch.hpp"
#include "libmoe/cpu/scratch.hpp"

namespace moe::cpu {

// Rows in the caller's memory: row r begins at data + r * stride elements.
struct ActivationRows {
    const void* data;
    int64_t stride;
    moe_type type;

    const std::byte* row(int64_t r) const;
};

struct OutputRows {
    void* data;
    int64_t stride;
    moe_type type;
    bool accumulate;

    std::byte* row(int64_t r) const;
};

struct RouteInput {
    moe_routing routing;
    ActivationRows router_input;
    const float* logits;  // given logits, or null
    int64_t logits_stride;
    IdRows ids;
    const void* token_ids;
    moe_type token_ids_type;
    const int8_t* uses_second_bias;  // by token, or null
    float* out_logits;               // as computed or given, before the softcap; or null
    int64_t out_logits_stride;
};

// What becomes of the experts' rows: sums of tokens first .. first + n of a call, in routed, and
// where `out` is given in its rows, too.
struct Reduction {
    int64_t first, n;
    Membership membership;
    bool with_identity;
    bool with_finish;  // all of finish, which has_finish_by_columns() allows
    const OutputRows* out;
};

// As many tokens as the gemv kernels are for. Each step of theirs but the GEMVs takes less time
// than it takes threads to meet.
constexpr int64_t few_tokens = 16;

template <class Real>
class Pipeline {
  public:
    Pipeline(Team& team, const Setup& setup, const ResidentWeights& weights, Faults& faults,
             const Scratch<Real>& scratch);

    // steps(pipeline) on one thread, which does them one after the other, while the others wait.
    template <class Steps>
    void alone(Steps steps) {
        team_.once([&] {
            SerialTeam team;
            Pipeline pipeline(team, setup_, weights_, faults_, b_);
            steps(pipeline);
        });
    }

    // x[i] = rows first + i.
    void load_x(const ActivationRows& rows, int64_t first, int64_t n, int64_t width);
    // x[i] = the row at `from`.
    void load_row(moe_type type, const std::byte* from, int64_t i, int64_t width);
    // ids and weights of tokens first .. first + n.
    void route(const RouteInput& input, int64_t first, int64_t n);
    void take_ids(const IdRows& ids, int64_t first, int64_t n);
    void take_weights(const void* weights, moe_type type, int64_t stride, int64_t first, int64_t n);

    // Rows of tokens: every slot of a local expert; row_slot is the slot, row_input the token.
    void list_token_rows(int64_t n, const Membership& membership);
    // After row_slot, row_input, offsets and n_rows have been written, by the thread that wrote
    // them: which experts have rows, those with most rows first.
    void count_active();
    // latent = LATENT_IN x and its norm, for n rows of x; the experts read it from then on.
    void project_latent(int64_t n);
    // y[row_slot] = F(input[row_input]).
    void run_experts(bool input_is_latent);
    // The same and their sums; for few tokens in two parallel regions.
    void run_and_reduce(bool input_is_latent, const Reduction& reduction);
    // h[row] = gate and up before the activation.
    void run_pre_activation(bool input_is_latent);
    // routed = weighted sum of y, tokens whose slots have no row get zero. with_identity: of x.
    void combine(int64_t n, const Membership& membership, bool with_identity);
    // Does a column of what finish gives depend on that column of the sum alone? Then the shared
    // expert is run beside the others.
    bool has_finish_by_columns() const;
    // routed, x -> final: the MOE_FINISH_ bits in parts, which are never 0 for all here.
    void finish(int64_t n, uint32_t parts);
    // final (routed of partial plans) -> rows first + i.
    void store(const Real* from, int64_t width, const OutputRows& out, int64_t first, int64_t n);

    const Scratch<Real>& scratch() const { return b_; }
    Team& team() const { return team_; }

  private:
    const Layer& layer() const { return *setup_.layer; }
    Mlp expert_mlp(int64_t local) const;
    Mlp shared_mlp() const;
    MlpInput<Real> expert_input(int64_t local, bool input_is_latent, bool has_tiles) const;
    // Output features of a task, of one GEMM and of gate and up together.
    int64_t gate_up_task() const;
    int64_t task_features(Arithmetic arithmetic, int64_t weight_bytes_of_feature) const;
    int64_t down_task() const;
    // As many of them where tasks have many rows: whole panels.
    static int64_t for_many_rows(int64_t task_features);
    template <class Block>
    void for_each_expert_block(int64_t features, int64_t block_features, Block block);
    template <class Task>
    void for_each_task(int32_t region, int64_t n_tasks, Task task);
    InputRows<Real> as_taken(InputRows<Real> rows, int64_t n, int64_t panel_rows,
                             const std::byte* integers, int64_t columns,
                             const Quantization& how) const;
    void gate_up_block(int32_t worker, int64_t e, int64_t first, int64_t last, bool input_is_latent,
                       bool has_tiles);
    void down_block(int32_t worker, int64_t e, int64_t first, int64_t last, bool has_tiles);
    void quantize_h(int64_t first_row, int64_t last_row);
    void lay_tiles(const std::byte* rows, const int32_t* index, int64_t columns,
                   const Quantization& how, std::byte* tiles);
    void lay_x_tiles(bool input_is_latent);
    const std::byte* tiles_of(const std::byte* tiles, int64_t e, int64_t columns) const;
    void normalize_latent(int64_t n);
    void normalize_y();
    void combine_columns(int64_t t, int64_t first, int64_t last, const Membership& membership,
                         bool with_identity);
    void run_and_reduce_few(bool input_is_latent, const Reduction& reduction);
    void reduce_columns(int64_t first, int64_t last, const Reduction& reduction);
    void quantize_row(const Real* row, int64_t columns, const Quantization& how,
                      std::byte* out) const;
    void quantize_rows(const Real* rows, int64_t n, int64_t columns, const Quantization& how,
                       std::byte* out);
    template <class Block>
    void for_each_feature_block(Arithmetic arithmetic, const Matrix& matrix, int64_t n,
                                Block block);
    void prepare_router_input(const RouteInput& input, int64_t first, int64_t n);
    void compute_logits(int64_t n);
    void choose_experts(const RouteInput& input, int64_t first, int64_t n);
    const int32_t* given_ids(const RouteInput& input, int64_t token, int32_t* ids);
    void add_token_terms(int64_t n, uint32_t parts);
    void project_final(int64_t n, bool with_routed);
    void run_shared(int64_t n);
    int64_t shared_gate_up_task() const;
    void shared_gate_up_block(int32_t worker, int64_t n, int64_t first, int64_t last);
    void shared_down_block(int32_t worker, int64_t n, int64_t first, int64_t last);
    void finish_shared_gate_up(int64_t n);
    void add_shared(int64_t n, uint32_t parts);
    Real shared_factor(int64_t t) const;
    void add_shared_columns(int64_t t, int64_t first, int64_t last, const Real* factor,
                            Real combine_scale);

    Team& team_;
    const Setup& setup_;
    const ResidentWeights& weights_;
    Faults& faults_;
    const Scratch<Real>& b_;
    MlpKernels<Real> experts_;
    MlpKernels<Real> finish_;
};

}  // namespace moe::cpu
