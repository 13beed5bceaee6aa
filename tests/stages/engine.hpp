// A small engine that owns routing, rows and output itself and calls the stages one by one, as the
// stage tests need it. Activations are float32, so that nothing is rounded between stages and
// results can be compared to the bit.
#pragma once

#include <limits>

#include "libmoe/plan/plan.hpp"
#include "tests/support/matrices.hpp"

namespace moe::test {

constexpr float not_written = -12345.5f;
inline const float poison = std::numeric_limits<float>::quiet_NaN();

struct EngineChoices {
    int64_t n_tokens = 11;
    int64_t max_tokens = 11;
    int32_t n_threads = 2;
    uint64_t max_workspace_bytes = 0;
    uint64_t workspace_bytes = 0;
    const moe_slice* slice = nullptr;
    bool partial = false;
    const char* filter = nullptr;
    moe_type intermediate_type = MOE_TYPE_NONE;
};

using Floats = std::vector<float>;

class Engine {
  public:
    explicit Engine(const moe_layer_desc& desc, const EngineChoices& choices = {})
        : tensors(desc),
          T(choices.n_tokens),
          k(desc.top_k),
          H(desc.hidden),
          L(tensors.layer.expert_width()) {
        make_handles(choices);
        x = gaussian(T * H, 42);
        ids.assign(slots(), -9);
        weights.assign(slots(), poison);
    }

    const LayerTensors tensors;
    int64_t T, k, H, L;
    moe_test::Runtime runtime;
    moe_test::Plan plan;
    moe_test::Weights resident;
    moe_test::Workspace workspace;
    Floats x;                      // [T, H]
    std::vector<int32_t> ids;      // [T, k]
    Floats weights;                // [T, k]
    std::vector<int64_t> offsets;  // [n_local + 1]
    std::vector<int64_t> counts;   // [n_local]
    std::vector<int32_t> row_ids;  // [n_rows]
    const int32_t* n_tokens_device = nullptr;

    size_t slots() const { return static_cast<size_t>(T * k); }
    int64_t n_local() const { return plan->layout.slice.n_local; }
    int64_t n_rows() const { return static_cast<int64_t>(row_ids.size()); }

    Floats forward(bool by_ids = false) {
        const int64_t width = plan->partial ? L : H;
        auto args = moe_test::sized<moe_forward_args>();
        args.n_tokens = T;
        args.n_tokens_device = n_tokens_device;
        args.x = x.data();
        if (by_ids) {
            args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
            args.ids = ids.data();
            args.weights = weights.data();
        }
        Floats out(static_cast<size_t>(T * width), not_written);
        args.out = out.data();
        EXPECT_MOE_OK(moe_forward(plan.get(), resident.get(), workspace.get(), &args));
        return out;
    }

    void route() {
        auto args = moe_test::sized<moe_route_args>();
        args.n_tokens = T;
        args.n_tokens_device = n_tokens_device;
        args.x = x.data();
        args.out_ids = ids.data();
        args.out_weights = weights.data();
        EXPECT_MOE_OK(moe_route(plan.get(), resident.get(), workspace.get(), &args));
    }

    moe_dispatch_args dispatch_args(int32_t block) {
        offsets.assign(static_cast<size_t>(n_local() + 1), -1);
        counts.assign(static_cast<size_t>(n_local()), -1);
        row_ids.assign(slots() + static_cast<size_t>(n_local() * (std::max(block, 1) - 1)), -77);
        auto args = moe_test::sized<moe_dispatch_args>();
        args.block_rows = block;
        args.n_tokens = T;
        args.n_tokens_device = n_tokens_device;
        args.ids = ids.data();
        args.out_offsets = offsets.data();
        args.out_counts = counts.data();
        args.out_row_ids = row_ids.data();
        args.row_capacity = n_rows();
        return args;
    }
    void dispatch(int32_t block) {
        const auto args = dispatch_args(block);
        ASSERT_MOE_OK(moe_dispatch(plan.get(), workspace.get(), &args));
        row_ids.resize(static_cast<size_t>(offsets.back()));
    }

    // Arguments of one cell of the layout table, after route and dispatch. Rows that must not be
    // read are poison.
    moe_experts_args experts_args(moe_in_layout in, moe_out_layout out) {
        auto args = moe_test::sized<moe_experts_args>();
        args.in_layout = in;
        args.out_layout = out;
        args.n_tokens = T;
        args.n_tokens_device = n_tokens_device;
        args.weights = weights.data();
        args.x = x.data();
        if (in == MOE_IN_TOKENS) args.ids = ids.data();
        if (in == MOE_IN_SORTED) args.x = gather(row_ids);
        if (in == MOE_IN_SORTED || out == MOE_OUT_ROWS) {
            args.offsets = offsets.data();
            args.row_ids = row_ids.data();
            args.n_rows = n_rows();
        }
        if (in == MOE_IN_BATCHED) batch(args);
        return args;
    }

    moe_status try_experts(const moe_experts_args& args) {
        return moe_experts(plan.get(), resident.get(), workspace.get(), &args);
    }
    // Output rows of `width`; what is not written stays not_written.
    Floats experts(moe_experts_args args, int64_t width) {
        const int64_t rows = args.out_layout != MOE_OUT_ROWS
                                 ? args.out_layout == MOE_OUT_REDUCED ? T : T * k
                             : args.in_layout == MOE_IN_BATCHED ? n_local() * args.batch_capacity
                                                                : args.n_rows;
        Floats out(static_cast<size_t>(rows * width), not_written);
        args.out = out.data();
        EXPECT_MOE_OK(try_experts(args));
        return out;
    }

    // Rows by slot, as PER_SLOT gives them, from ROWS output.
    Floats by_slot(const Floats& rows, const std::vector<int32_t>& slot_of_row,
                   int64_t width) const {
        Floats out(slots() * static_cast<size_t>(width), 0.0f);
        for (size_t r = 0; r < slot_of_row.size(); ++r)
            for (int64_t i = 0; i < width; ++i) {
                const float value = rows[r * static_cast<size_t>(width) + static_cast<size_t>(i)];
                if (slot_of_row[r] < 0)
                    EXPECT_EQ(value, not_written) << "padding row " << r << " was written";
                else
                    out[static_cast<size_t>(slot_of_row[r] * width + i)] = value;
            }
        return out;
    }
    // Slots of the rows of the last batch.
    const std::vector<int32_t>& batch_slots() const { return batch_slots_; }

    moe_combine_args combine_args(moe_in_layout layout, const Floats& rows) {
        auto args = moe_test::sized<moe_combine_args>();
        args.rows_layout = layout;
        args.n_tokens = T;
        args.n_tokens_device = n_tokens_device;
        args.rows = rows.data();
        args.ids = ids.data();
        args.weights = weights.data();
        if (layout == MOE_IN_SORTED) args.row_ids = row_ids.data(), args.n_rows = n_rows();
        if (tensors.layer.n_identity_experts && !plan->partial) args.x = x.data();
        return args;
    }
    Floats combine(moe_in_layout layout, const Floats& rows) {
        Floats out(static_cast<size_t>(T * L), not_written);
        auto args = combine_args(layout, rows);
        args.out = out.data();
        EXPECT_MOE_OK(moe_combine(plan.get(), workspace.get(), &args));
        return out;
    }

    // routed empty: NULL.
    Floats finish(const Floats& routed, uint32_t parts = 0, const Floats& accumulate_to = {}) {
        auto args = moe_test::sized<moe_finish_args>();
        args.parts = parts;
        args.n_tokens = T;
        args.n_tokens_device = n_tokens_device;
        args.routed = routed.empty() ? nullptr : routed.data();
        args.x = x.data();
        args.ids = ids.data();
        args.weights = weights.data();
        args.accumulate = !accumulate_to.empty();
        Floats out =
            accumulate_to.empty() ? Floats(static_cast<size_t>(T * H), not_written) : accumulate_to;
        args.out = out.data();
        EXPECT_MOE_OK(moe_finish(plan.get(), resident.get(), workspace.get(), &args));
        return out;
    }

    moe_workspace_faults faults() {
        auto faults = moe_test::sized<moe_workspace_faults>();
        EXPECT_MOE_OK(moe_workspace_status(workspace.get(), &faults));
        return faults;
    }

  private:
    void make_handles(const EngineChoices& choices) {
        auto runtime_desc = moe_test::sized<moe_runtime_desc>();
        runtime_desc.n_threads = choices.n_threads;
        moe_runtime* raw_runtime = nullptr;
        EXPECT_MOE_OK(moe_runtime_create(&runtime_desc, &raw_runtime));
        runtime.reset(raw_runtime);
        auto desc = moe_test::sized<moe_plan_desc>();
        desc.device = MOE_DEVICE_CPU;
        desc.layer = &tensors.layer.desc;
        desc.x_type = MOE_TYPE_F32;
        desc.intermediate_type = choices.intermediate_type;
        desc.formats = tensors.formats;
        desc.n_formats = MOE_ROLE_COUNT;
        desc.slice = choices.slice;
        desc.partial = choices.partial || choices.slice;
        desc.max_tokens = choices.max_tokens;
        desc.max_workspace_bytes = choices.max_workspace_bytes;
        desc.kernel_filter = choices.filter;
        desc.batch_invariant = 1;  // chunks and stages give the same bits
        moe_plan* raw_plan = nullptr;
        EXPECT_MOE_OK(moe_plan_create(runtime.get(), &desc, &raw_plan));
        plan.reset(raw_plan);
        auto weights_desc = moe_test::sized<moe_weights_desc>();
        weights_desc.tensors = tensors.tensors.data();
        weights_desc.n_tensors = static_cast<uint32_t>(tensors.tensors.size());
        moe_weights* raw_weights = nullptr;
        EXPECT_MOE_OK(moe_weights_load(plan.get(), &weights_desc, &raw_weights));
        resident.reset(raw_weights);
        auto workspace_desc = moe_test::sized<moe_workspace_desc>();
        workspace_desc.plan = plan.get();
        workspace_desc.host_bytes = choices.workspace_bytes;
        moe_workspace* raw_workspace = nullptr;
        EXPECT_MOE_OK(moe_workspace_create(runtime.get(), &workspace_desc, &raw_workspace));
        workspace.reset(raw_workspace);
    }

    void copy_token(int64_t row, int32_t slot) {
        if (slot >= 0) std::copy_n(x.data() + slot / k * H, H, gathered_.data() + row * H);
    }
    const float* gather(const std::vector<int32_t>& slot_of_row) {
        gathered_.assign(slot_of_row.size() * static_cast<size_t>(H), poison);
        for (size_t r = 0; r < slot_of_row.size(); ++r)
            copy_token(static_cast<int64_t>(r), slot_of_row[r]);
        return gathered_.data();
    }
    void batch(moe_experts_args& args) {
        const int64_t capacity = *std::max_element(counts.begin(), counts.end()) + 2;
        batch_slots_.assign(static_cast<size_t>(n_local() * capacity), -1);
        row_weights_.assign(batch_slots_.size(), poison);
        for (int64_t e = 0; e < n_local(); ++e)
            for (int64_t i = 0; i < counts[static_cast<size_t>(e)]; ++i) {
                const auto row = static_cast<size_t>(e * capacity + i);
                batch_slots_[row] =
                    row_ids[static_cast<size_t>(offsets[static_cast<size_t>(e)] + i)];
                row_weights_[row] = weights[static_cast<size_t>(batch_slots_[row])];
            }
        args.x = gather(batch_slots_);
        args.n_tokens = 0;
        args.weights = nullptr;
        args.offsets = nullptr;
        args.row_ids = nullptr;
        args.n_rows = n_local() * capacity;
        args.counts = counts.data();
        args.batch_capacity = capacity;
        if (tensors.layer.weight_on_input) args.row_weights = row_weights_.data();
    }

    Floats gathered_, row_weights_;
    std::vector<int32_t> batch_slots_;
};

}  // namespace moe::test
