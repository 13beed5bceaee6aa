// Own ids and weights through moe_forward, and the same through dispatch, experts in every layout,
// combine and finish.
#include "serving/serving.hpp"

namespace clients {
namespace {

// Slots by expert, with every expert's rows starting on a multiple of block.
struct Rows {
    std::vector<int64_t> offsets, counts;
    std::vector<int32_t> row_ids;
    int64_t n_rows() const { return offsets.back(); }
    bool operator==(const Rows& other) const {
        return offsets == other.offsets && counts == other.counts && row_ids == other.row_ids;
    }
};

Rows own_dispatch(const Batch& batch, int64_t block) {
    Rows rows;
    for (int32_t e = 0; e < batch.E(); ++e) {
        rows.offsets.push_back(int64_t(rows.row_ids.size()));
        for (size_t slot = 0; slot < batch.routing.ids.size(); ++slot)
            if (batch.routing.ids[slot] == e) rows.row_ids.push_back(int32_t(slot));
        rows.counts.push_back(int64_t(rows.row_ids.size()) - rows.offsets.back());
        while (int64_t(rows.row_ids.size()) % block) rows.row_ids.push_back(-1);
    }
    rows.offsets.push_back(int64_t(rows.row_ids.size()));
    return rows;
}

Rows dispatch(const LayerRun& run, const Batch& batch, int32_t block) {
    Rows rows;
    rows.offsets.resize(size_t(batch.E()) + 1);
    rows.counts.resize(size_t(batch.E()));
    rows.row_ids.resize(size_t(batch.T * batch.k() + batch.E() * (block - 1)));
    auto args = sized<moe_dispatch_args>();
    args.block_rows = block;
    args.n_tokens = batch.T;
    args.ids = batch.routing.ids.data();
    args.out_offsets = rows.offsets.data();
    args.out_counts = rows.counts.data();
    args.out_row_ids = rows.row_ids.data();
    args.row_capacity = int64_t(rows.row_ids.size());
    CHECK_OK(moe_dispatch(run.plan.get(), run.workspace.get(), &args));
    rows.row_ids.resize(size_t(rows.n_rows()));
    return rows;
}

// Padding rows are poisoned: whoever reads them shows it.
std::vector<float> gather(const Batch& batch, const std::vector<float>& tokens, int64_t width,
                          const std::vector<int32_t>& row_ids) {
    std::vector<float> rows = poisoned(int64_t(row_ids.size()) * width);
    for (size_t r = 0; r < row_ids.size(); ++r)
        if (row_ids[r] >= 0)
            std::copy_n(tokens.begin() + row_ids[r] / batch.k() * width, width,
                        rows.begin() + ptrdiff_t(r) * width);
    return rows;
}

// F_e(v) of every row, or that padding was left alone.
void check_rows(const Batch& batch, const std::vector<int32_t>& row_ids,
                const std::vector<float>& out, const char* name) {
    double worst = 0.0;
    for (size_t r = 0; r < row_ids.size(); ++r) {
        const float* row = out.data() + int64_t(r) * batch.L();
        if (row_ids[r] < 0) {
            CHECK(is_poison(row[0]) && is_poison(row[batch.L() - 1]),
                  "%s: padding row %zu was written", name, r);
            continue;
        }
        const Doubles v =
            expert_input(batch.layer, batch.x.data() + row_ids[r] / batch.k() * batch.H());
        const Doubles want =
            reference_expert(batch.layer, batch.routing.ids[size_t(row_ids[r])], v.data());
        worst = std::max(worst, relative_l2(want.data(), row, batch.L()));
    }
    CHECK(worst <= f32_tolerance, "%s: largest relative L2 of a row is %g", name, worst);
    std::printf("  %-58s %.2e\n", name, worst);
}

moe_experts_args experts_args(const Batch& batch, moe_in_layout in, moe_out_layout out_layout,
                              const std::vector<float>& x, std::vector<float>& out) {
    auto args = sized<moe_experts_args>();
    args.in_layout = in;
    args.out_layout = out_layout;
    args.n_tokens = batch.T;
    args.x = x.data();
    args.out = out.data();
    return args;
}

void give_rows(moe_experts_args& args, const Rows& rows) {
    args.offsets = rows.offsets.data();
    args.counts = rows.counts.data();
    args.row_ids = rows.row_ids.data();
    args.n_rows = rows.n_rows();
}

void give_tokens(moe_experts_args& args, const Batch& batch) {
    args.ids = batch.routing.ids.data();
    args.weights = batch.routing.weights.data();
}

void run_experts(const LayerRun& run, const moe_experts_args& args) {
    CHECK_OK(moe_experts(run.plan.get(), run.weights.get(), run.workspace.get(), &args));
}

std::vector<float> combine(const LayerRun& run, const Batch& batch, moe_in_layout layout,
                           const std::vector<float>& rows, const std::vector<int32_t>* row_ids) {
    std::vector<float> out = poisoned(batch.T * batch.L());
    auto args = sized<moe_combine_args>();
    args.rows_layout = layout;
    args.n_tokens = batch.T;
    args.rows = rows.data();
    args.row_ids = row_ids ? row_ids->data() : nullptr;
    args.n_rows = row_ids ? int64_t(row_ids->size()) : 0;
    args.ids = batch.routing.ids.data();
    args.weights = batch.routing.weights.data();
    args.out = out.data();
    CHECK_OK(moe_combine(run.plan.get(), run.workspace.get(), &args));
    return out;
}

std::vector<float> finish(const LayerRun& run, const Batch& batch,
                          const std::vector<float>& routed) {
    std::vector<float> out = poisoned(batch.T * batch.H());
    auto args = sized<moe_finish_args>();
    args.n_tokens = batch.T;
    args.routed = routed.data();
    args.x = batch.x.data();
    args.ids = batch.routing.ids.data();
    args.weights = batch.routing.weights.data();
    args.out = out.data();
    CHECK_OK(moe_finish(run.plan.get(), run.weights.get(), run.workspace.get(), &args));
    return out;
}

void sorted_rows(const LayerRun& run, const Batch& batch, int32_t block,
                 const Doubles& want_routed) {
    const Rows rows = dispatch(run, batch, block);
    CHECK(rows == own_dispatch(batch, block), "dispatch in blocks of %d differs from own loops",
          block);
    const std::vector<float> x = gather(batch, batch.x, batch.H(), rows.row_ids);

    std::vector<float> out = poisoned(rows.n_rows() * batch.L());
    auto args = experts_args(batch, MOE_IN_SORTED, MOE_OUT_ROWS, x, out);
    give_rows(args, rows);
    run_experts(run, args);
    check_rows(batch, rows.row_ids, out,
               block > 1 ? "blocked rows -> rows" : "packed rows -> rows");
    const std::vector<float> routed = combine(run, batch, MOE_IN_SORTED, out, &rows.row_ids);
    CHECK_ROWS(want_routed, routed, batch.T, batch.L(), f32_tolerance, "  -> combine");

    std::vector<float> reduced = poisoned(batch.T * batch.L());
    args = experts_args(batch, MOE_IN_SORTED, MOE_OUT_REDUCED, x, reduced);
    give_rows(args, rows);
    args.weights = batch.routing.weights.data();
    run_experts(run, args);
    CHECK_ROWS(want_routed, reduced, batch.T, batch.L(), f32_tolerance, "  sorted rows -> reduced");

    std::vector<float> slots = poisoned(batch.T * batch.k() * batch.L());
    args = experts_args(batch, MOE_IN_SORTED, MOE_OUT_PER_SLOT, x, slots);
    give_rows(args, rows);
    run_experts(run, args);
    const std::vector<float> from_slots = combine(run, batch, MOE_IN_TOKENS, slots, nullptr);
    CHECK_ROWS(want_routed, from_slots, batch.T, batch.L(), f32_tolerance,
               "  sorted rows -> per slot -> combine");
}

// The engine has gone into the latent space already, to send fewer bytes.
void latent_rows(const LayerRun& run, const Batch& batch) {
    std::vector<float> latent;
    for (int64_t t = 0; t < batch.T; ++t)
        for (double v : expert_input(batch.layer, batch.x.data() + t * batch.H()))
            latent.push_back(float(v));
    const Rows rows = dispatch(run, batch, 1);
    const std::vector<float> x = gather(batch, latent, batch.L(), rows.row_ids);
    std::vector<float> out = poisoned(rows.n_rows() * batch.L());
    auto args = experts_args(batch, MOE_IN_SORTED, MOE_OUT_ROWS, x, out);
    args.x_is_latent = 1;
    give_rows(args, rows);
    run_experts(run, args);
    check_rows(batch, rows.row_ids, out, "packed rows, latent already");
}

void batched_rows(const LayerRun& run, const Batch& batch, const Doubles& want_routed) {
    const Rows packed = own_dispatch(batch, 1);
    const int64_t capacity = *std::max_element(packed.counts.begin(), packed.counts.end()) + 2;
    std::vector<int32_t> row_ids(size_t(batch.E() * capacity), -1);
    for (int64_t e = 0; e < batch.E(); ++e)
        std::copy_n(packed.row_ids.begin() + packed.offsets[size_t(e)], packed.counts[size_t(e)],
                    row_ids.begin() + e * capacity);
    const std::vector<float> x = gather(batch, batch.x, batch.H(), row_ids);
    std::vector<float> out = poisoned(int64_t(row_ids.size()) * batch.L());
    auto args = experts_args(batch, MOE_IN_BATCHED, MOE_OUT_ROWS, x, out);
    args.counts = packed.counts.data();
    args.batch_capacity = capacity;
    run_experts(run, args);
    check_rows(batch, row_ids, out, "batched rows -> rows");
    const std::vector<float> routed = combine(run, batch, MOE_IN_SORTED, out, &row_ids);
    CHECK_ROWS(want_routed, routed, batch.T, batch.L(), f32_tolerance, "  -> combine");
}

void token_rows(const LayerRun& run, const Batch& batch, const Doubles& want_routed) {
    std::vector<float> slots = poisoned(batch.T * batch.k() * batch.L());
    auto args = experts_args(batch, MOE_IN_TOKENS, MOE_OUT_PER_SLOT, batch.x, slots);
    give_tokens(args, batch);
    run_experts(run, args);
    const std::vector<float> routed = combine(run, batch, MOE_IN_TOKENS, slots, nullptr);
    CHECK_ROWS(want_routed, routed, batch.T, batch.L(), f32_tolerance,
               "tokens -> per slot -> combine");

    std::vector<float> reduced = poisoned(batch.T * batch.L());
    args = experts_args(batch, MOE_IN_TOKENS, MOE_OUT_REDUCED, batch.x, reduced);
    give_tokens(args, batch);
    run_experts(run, args);
    CHECK_ROWS(want_routed, reduced, batch.T, batch.L(), f32_tolerance, "tokens -> reduced");

    const Rows rows = dispatch(run, batch, 4);
    std::vector<float> out = poisoned(rows.n_rows() * batch.L());
    args = experts_args(batch, MOE_IN_TOKENS, MOE_OUT_ROWS, batch.x, out);
    give_tokens(args, batch);
    give_rows(args, rows);
    run_experts(run, args);
    check_rows(batch, rows.row_ids, out, "tokens -> rows, gathered by the library");
}

}  // namespace

void forward_with_own_routing() {
    std::puts("own routing");
    const Batch batch(rich_layer(), 37, Form::pointer_list, 100);
    const LayerRun run(nullptr, batch.tensors, batch.plan_desc());
    const Doubles want =
        reference_forward(batch.layer, batch.x, batch.T, batch.routing.reference());

    std::vector<float> out = poisoned(batch.T * batch.H());
    CHECK_OK(run.forward(batch.given_routing(out)));
    CHECK_ROWS(want, out, batch.T, batch.H(), f32_tolerance, "int32 ids, dense rows");

    const int64_t id_stride = batch.k() + 2, weight_stride = batch.k() + 1,
                  out_stride = batch.H() + 5;
    std::vector<int64_t> ids(size_t(batch.T * id_stride), 1 << 30);
    std::vector<float> weights = poisoned(batch.T * weight_stride);
    std::vector<float> wide = poisoned(batch.T * out_stride);
    for (int64_t slot = 0; slot < batch.T * batch.k(); ++slot) {
        const int64_t t = slot / batch.k(), j = slot % batch.k();
        ids[size_t(t * id_stride + j)] = batch.routing.ids[size_t(slot)];
        weights[size_t(t * weight_stride + j)] = batch.routing.weights[size_t(slot)];
    }
    moe_forward_args args = batch.given_routing(wide);
    args.ids = ids.data();
    args.ids_type = MOE_TYPE_I64;
    args.ids_row_stride = id_stride;
    args.weights = weights.data();
    args.weights_row_stride = weight_stride;
    args.out_row_stride = out_stride;
    CHECK_OK(run.forward(args));
    for (int64_t t = 0; t < batch.T; ++t) {
        CHECK(!std::memcmp(wide.data() + t * out_stride, out.data() + t * batch.H(),
                           size_t(batch.H()) * 4),
              "token %lld differs between int32 and strided int64 ids", static_cast<long long>(t));
        CHECK(is_poison(wide[size_t(t * out_stride + batch.H())]),
              "written between the rows of out");
    }
    CHECK(take_faults(run.workspace).faults == 0, "-1 is no fault");
    std::puts("  int64 ids in strided rows: the same bits");
}

void stages_equal_forward() {
    std::puts("stages");
    const Batch batch(rich_layer(), 37, Form::stacked, 200);
    const LayerRun run(nullptr, batch.tensors, batch.plan_desc());
    const Doubles want_routed =
        reference_routed(batch.layer, batch.x, batch.T, batch.routing.reference());
    sorted_rows(run, batch, 1, want_routed);
    sorted_rows(run, batch, 8, want_routed);
    latent_rows(run, batch);
    batched_rows(run, batch, want_routed);
    token_rows(run, batch, want_routed);

    std::vector<float> whole = poisoned(batch.T * batch.H());
    CHECK_OK(run.forward(batch.given_routing(whole)));
    const std::vector<float> routed(want_routed.begin(), want_routed.end());
    const std::vector<float> finished = finish(run, batch, routed);
    CHECK_ROWS(whole, finished, batch.T, batch.H(), f32_tolerance,
               "routed sum -> finish equals forward");
}

}  // namespace clients
