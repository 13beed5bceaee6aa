// moe_dispatch and moe_combine: TritonMoE's permutation grid (exact rows, in every type), its
// unpermutation grid, the round trip, the sizes of its models, and ids of every kind.
#include <cmath>

#include "compare.hpp"
#include "layer_kinds.hpp"
#include "stages.hpp"

namespace moe_gpu {
namespace {

void no_weights(moe_plan_desc& desc) {
    desc.stages = MOE_STAGE_DISPATCH | MOE_STAGE_COMBINE;
}

PairSpec stage_spec(int32_t hidden, int32_t n_experts, int32_t k, const Numbers& numbers,
                    int64_t max_tokens) {
    PairSpec spec;
    spec.layer.desc = plain_layer(hidden, 16, n_experts, k);
    spec.layer.distinct_experts = 1;  // not loaded
    spec.numbers = numbers;
    spec.max_tokens = max_tokens;
    spec.both = no_weights;
    return spec;
}

Ids as_ids(const std::vector<int32_t>& ids) {
    return Ids(ids.begin(), ids.end());
}

void note_kernels(const Pair& pair, int64_t n_tokens) {
    for (const std::string& name : pair.subject.kernels(n_tokens))
        pair.context.kernels.insert(name);
}

Dispatched check_dispatch(const Pair& pair, Dispatch call) {
    const Dispatched got = dispatch(pair.subject, call);
    const Dispatched wanted = dispatch(pair.reference, call);
    const auto where =
        text("T %ld, blocks of %d", static_cast<long>(call.n_tokens), call.block_rows);
    pair.context.expect(got.offsets == wanted.offsets, where + ": offsets differ");
    pair.context.expect(got.counts == wanted.counts, where + ": counts differ");
    pair.context.expect(got.row_ids == wanted.row_ids, where + ": row ids differ");
    const auto a = pair.subject.faults(), b = pair.reference.faults();
    pair.context.expect(a.faults == b.faults && a.n_skipped == b.n_skipped,
                        where + ": faults differ");
    note_kernels(pair, call.n_tokens);
    return got;
}

// Rows of random values, as experts would have given them, combined by slot and sorted.
void check_combine(const Pair& pair, int64_t n_tokens, bool accumulates) {
    const int64_t k = pair.desc().top_k, H = pair.desc().hidden;
    const std::vector<int32_t> ids =
        random_ids(n_tokens, pair.desc().top_k, pair.desc().n_experts, 77);
    Dispatch order{n_tokens, as_ids(ids), 4, {}, pair.desc().n_experts};
    const Dispatched sorted = check_dispatch(pair, order);
    Combine call;
    call.n_tokens = n_tokens;
    call.ids = as_ids(ids);
    call.weights = normal(n_tokens * k, 3, 0.7f);
    call.rows = rounded(normal(n_tokens * k * H, 5), pair.spec.numbers.out);
    if (accumulates) call.base = rounded(normal(n_tokens * H, 6), pair.spec.numbers.out);
    const auto both = [&](const char* what) {
        const Floats got = combine(pair.subject, call), wanted = combine(pair.reference, call);
        pair.context.measure(text("%s, T %ld", what, static_cast<long>(n_tokens)),
                             worst_row(got, wanted, H), pair.spec.limit());
        return got;
    };
    const Floats by_slot = both("combine by slot");
    Combine by_rows = call;
    by_rows.layout = MOE_IN_SORTED;
    by_rows.row_ids = sorted.row_ids;
    by_rows.rows.assign(sorted.row_ids.size() * static_cast<size_t>(H), NAN);
    for (size_t r = 0; r < sorted.row_ids.size(); ++r)
        if (const int32_t slot = sorted.row_ids[r]; slot >= 0)
            std::copy_n(call.rows.begin() + slot * H, H,
                        by_rows.rows.begin() + static_cast<ptrdiff_t>(r) * H);
    call = by_rows;
    pair.context.expect(both("combine sorted") == by_slot, "sorted rows give other bits");
    note_kernels(pair, n_tokens);
}

// A permutation holds to this, whatever the reference says: the rows of an expert are one range
// that begins on a block, hold the slots that chose it in ascending order, and end in padding.
void check_permutation(const Pair& pair, const Dispatch& call, const Dispatched& got) {
    const int64_t block = std::max(call.block_rows, 1);
    size_t n_slots = 0;
    bool good = got.offsets.front() == 0;
    for (size_t e = 0; e < got.counts.size(); ++e) {
        const int64_t first = got.offsets[e], end = got.offsets[e + 1];
        good = good && first % block == 0 && end - first >= got.counts[e] &&
               end - first < got.counts[e] + block;
        int32_t last = -1;
        for (int64_t row = first; good && row < end; ++row) {
            const int32_t slot = got.row_ids[static_cast<size_t>(row)];
            if (row >= first + got.counts[e]) {
                good = slot == -1;
                continue;
            }
            good = slot > last && call.ids[static_cast<size_t>(slot)] == static_cast<int64_t>(e);
            last = slot;
            ++n_slots;
        }
    }
    pair.context.expect(good && n_slots == call.ids.size(),
                        text("T %ld, blocks of %d: no permutation",
                             static_cast<long>(call.n_tokens), call.block_rows));
}

constexpr int32_t block_sizes[] = {0, 1, 8, 16, 64, 128};

// Rows that the library brings into order itself, against rows that come in order: the same bits.
void check_permuted_rows(const Pair& pair, int64_t n_tokens) {
    const int64_t k = pair.desc().top_k, H = pair.desc().hidden;
    const Ids ids = as_ids(random_ids(n_tokens, pair.desc().top_k, pair.desc().n_experts, 11));
    const Dispatched order = check_dispatch(pair, {n_tokens, ids, 0, {}, pair.desc().n_experts});
    Experts call;
    call.out = MOE_OUT_ROWS;
    call.n_tokens = n_tokens;
    call.x = pair.x(n_tokens);
    call.x_columns = call.out_columns = H;
    call.offsets = order.offsets;
    call.row_ids = order.row_ids;
    call.n_rows = call.out_rows = static_cast<int64_t>(order.row_ids.size());
    Experts in_order = call;
    in_order.in = MOE_IN_SORTED;
    in_order.x.clear();
    for (const int32_t slot : order.row_ids) {
        const auto row = call.x.begin() + slot / k * H;
        in_order.x.insert(in_order.x.end(), row, row + H);
    }
    call.ids = ids;
    const Floats got = experts(pair.subject, call), wanted = experts(pair.subject, in_order);
    pair.context.expect(rms(wanted) > 0.02 && got == wanted, "the rows are not those in order");
    if (n_tokens <= 32)
        pair.context.measure("rows", worst_row(got, experts(pair.reference, call), H),
                             pair.spec.limit());
    note_kernels(pair, n_tokens);
}

void check_permute(const Pair& pair, int64_t n_tokens) {
    const int32_t n = pair.desc().n_experts;
    Dispatch call{n_tokens, as_ids(random_ids(n_tokens, pair.desc().top_k, n, 11)), 0, {}, n};
    for (const int32_t block : block_sizes) {
        call.block_rows = block;
        check_permutation(pair, call, check_dispatch(pair, call));
    }
    call.block_rows = 16;
    call.ids_type = MOE_TYPE_I64;
    check_permutation(pair, call, check_dispatch(pair, call));
}

// What a plain loop over the row ids copies; NaN where there is no token.
Gathered wanted_rows(const Pair& pair, const Gather& call) {
    const int64_t k = pair.desc().top_k, H = pair.desc().hidden;
    Gathered wanted;
    for (size_t r = 0; r < call.row_ids.size(); ++r) {
        const int32_t slot = static_cast<int64_t>(r) < call.offsets.back() ? call.row_ids[r] : -1;
        const auto row = call.x.begin() + std::max(slot, 0) / k * H;
        wanted.tokens.push_back(slot < 0 ? -1 : static_cast<int32_t>(slot / k));
        wanted.weights.push_back(slot < 0 ? 0.0f : call.weights[static_cast<size_t>(slot)]);
        if (slot < 0)
            wanted.rows.insert(wanted.rows.end(), static_cast<size_t>(H), NAN);
        else
            wanted.rows.insert(wanted.rows.end(), row, row + H);
    }
    return wanted;
}

bool same_with_nan(const Floats& a, const Floats& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

// Rows of x by a dispatch: few and many of them, and a capacity beyond the last one.
void check_gather(const Pair& pair, int64_t n_tokens, int32_t block) {
    const int32_t n = pair.desc().n_experts, k = pair.desc().top_k;
    const Ids ids = as_ids(random_ids(n_tokens, k, n, 11));
    const Dispatched order = check_dispatch(pair, {n_tokens, ids, block, {}, n});
    Gather call{n_tokens,     pair.x(n_tokens), order.offsets,
                order.counts, order.row_ids,    normal(n_tokens * k, 3, 0.7f)};
    call.row_ids.resize(call.row_ids.size() + 7, 0);
    const Gathered wanted = wanted_rows(pair, call);
    for (const Side* side : {&pair.subject, &pair.reference}) {
        const Gathered got = gather(*side, call);
        const auto where = text("T %ld, blocks of %d, %s: ", static_cast<long>(n_tokens), block,
                                side == &pair.subject ? "subject" : "reference");
        pair.context.expect(same_with_nan(got.rows, wanted.rows), where + "rows differ");
        pair.context.expect(got.tokens == wanted.tokens, where + "tokens differ");
        pair.context.expect(got.weights == wanted.weights, where + "weights differ");
        pair.context.expect(side->faults().faults == 0, where + "a fault");
    }
    call.row_ids[0] = static_cast<int32_t>(n_tokens * k);
    const int32_t first = gather(pair.subject, call).tokens.front();
    const moe_workspace_faults faults = pair.subject.faults();
    pair.context.expect(
        first == -1 && faults.faults == MOE_FAULT_OFFSETS_OUT_OF_RANGE && faults.n_skipped == 1,
        "a row id out of range is not told");
    note_kernels(pair, n_tokens);
}

void add_gathers(CaseList& list) {
    for (const Numbers* numbers : {&f32, &bf16, &f16})
        list.add(text("dispatch/gather/%s", numbers->name), Extent::smoke, [=](Context& context) {
            const Pair pair(context, stage_spec(320, 24, 6, *numbers, 301));
            for (const int64_t T : {1, 17, 301})
                for (const int32_t block : {0, 8, 128}) check_gather(pair, T, block);
        });
}

PairSpec permute_spec(int32_t hidden, int32_t n_experts, int32_t k, const Numbers& numbers,
                      int64_t max_tokens) {
    PairSpec spec = stage_spec(hidden, n_experts, k, numbers, max_tokens);
    spec.layer.desc.intermediate = 64;
    spec.layer.format = numbers.x == MOE_TYPE_F32 ? "f32" : "bf16";
    spec.layer.distinct_experts = 2;
    spec.both = [](moe_plan_desc& desc) { desc.stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS; };
    return spec;
}

void add_permute(CaseList& list) {
    constexpr ExpertsAndK grid[] = {{8, 2}, {64, 4}};
    for (const auto& [n, k] : grid)
        for (const int32_t hidden : {128, 1024, 4096})
            for (const int64_t T : {1, 32, 128, 512})
                for (const Numbers& numbers : common_numbers)
                    list.add(text("triton/permute/t%ld_e%d_k%d_h%d/%s", static_cast<long>(T), n, k,
                                  hidden, numbers.name),
                             T == 32 && hidden == 128 ? Extent::smoke : Extent::full,
                             [=](Context& context) {
                                 const Pair pair(context, permute_spec(hidden, n, k, numbers, T));
                                 check_permute(pair, T);
                                 check_permuted_rows(pair, T);
                             });
    // 256 experts, without check_permuted_rows.
    for (const int64_t T : {1, 32, 128, 512})
        list.add(text("triton/permute/t%ld_e256_k8/bf16", static_cast<long>(T)),
                 T == 32 ? Extent::smoke : Extent::full, [=](Context& context) {
                     check_permute(Pair(context, stage_spec(128, 256, 8, bf16, T)), T);
                 });
}

void add_unpermute(CaseList& list) {
    constexpr ExpertsAndK grid[] = {{8, 2}, {64, 4}};
    for (const auto& [n, k] : grid)
        for (const int32_t hidden : {128, 1024, 4096})
            for (const int64_t T : {1, 32, 128, 512})
                for (const Numbers& numbers : common_numbers)
                    list.add(text("triton/unpermute/t%ld_e%d_k%d_h%d/%s", static_cast<long>(T), n,
                                  k, hidden, numbers.name),
                             T == 32 && hidden == 128 ? Extent::smoke : Extent::full,
                             [=](Context& context) {
                                 const Pair pair(context, stage_spec(hidden, n, k, numbers, T));
                                 check_combine(pair, T, false);
                             });
    for (const Numbers& numbers : common_numbers)
        list.add(text("combine/accumulate/%s", numbers.name), Extent::smoke, [=](Context& context) {
            const Pair pair(context, stage_spec(352, 24, 3, numbers, 65));
            for (const int64_t T : {1, 2, 65}) check_combine(pair, T, true);
        });
}

// Every token k times, with weights that are all alike: `x` k times, sorted.
Combine round_trip_of(const Pair& pair, int64_t n_tokens, const Floats& x, float scale) {
    const int64_t k = pair.desc().top_k, H = pair.desc().hidden;
    const Ids ids = as_ids(random_ids(n_tokens, pair.desc().top_k, pair.desc().n_experts, 5));
    const Dispatched order = check_dispatch(pair, {n_tokens, ids, 0, {}, pair.desc().n_experts});
    Combine call;
    call.layout = MOE_IN_SORTED;
    call.n_tokens = n_tokens;
    call.row_ids = order.row_ids;
    call.ids = ids;
    call.weights.assign(static_cast<size_t>(n_tokens * k), scale / static_cast<float>(k));
    for (const int32_t slot : order.row_ids) {
        const auto row = x.begin() + slot / k * H;
        call.rows.insert(call.rows.end(), row, row + H);
    }
    note_kernels(pair, n_tokens);
    return call;
}

// With weights that add up to one a token's own row comes back, to the bit where the output is
// rounded; with others so does its multiple.
void check_round_trip(const Pair& pair, int64_t n_tokens, float scale = 1.0f) {
    const Floats x = pair.x(n_tokens);
    Floats wanted = x;
    for (float& value : wanted) value *= scale;
    wanted = rounded(wanted, pair.spec.numbers.out);
    const Floats got = combine(pair.subject, round_trip_of(pair, n_tokens, x, scale));
    if (pair.spec.numbers.out != MOE_TYPE_F32)
        pair.context.expect(got == wanted, text("times %g: the round trip changes x", scale));
    pair.context.measure("round trip", worst_row(got, wanted, pair.desc().hidden), 1e-6);
}

// A NaN stays in its token and its column.
void check_nan_in_round_trip(const Pair& pair, int64_t n_tokens) {
    Floats x = pair.x(n_tokens);
    const auto H = static_cast<size_t>(pair.desc().hidden);
    const size_t spoiled[] = {0, 3 * H + 7, x.size() - 1};
    const Floats clean = combine(pair.subject, round_trip_of(pair, n_tokens, x, 1.0f));
    for (const size_t i : spoiled) x[i] = NAN;
    Floats got = combine(pair.subject, round_trip_of(pair, n_tokens, x, 1.0f));
    for (const size_t i : spoiled) {
        pair.context.expect(std::isnan(got[i]), text("value %zu became a number", i));
        got[i] = clean[i];
    }
    pair.context.expect(got == clean, "other values differ");
}

struct PermuteModel {
    const char* name;
    int32_t hidden, n_experts, k;
};

void add_round_trips(CaseList& list) {
    constexpr ExpertsAndK grid[] = {{8, 2}, {64, 4}, {256, 8}};
    for (const auto& [n, k] : grid)
        for (const int64_t T : {1, 32, 128, 512})
            for (const Numbers& numbers : common_numbers)
                list.add(text("triton/round_trip/t%ld_e%d_k%d/%s", static_cast<long>(T), n, k,
                              numbers.name),
                         T == 32 ? Extent::smoke : Extent::full, [=](Context& context) {
                             check_round_trip(Pair(context, stage_spec(256, n, k, numbers, T)), T);
                         });
    for (const Numbers& numbers : common_numbers) {
        list.add(text("triton/round_trip_scaled/%s", numbers.name), Extent::smoke,
                 [=](Context& context) {
                     const Pair pair(context, stage_spec(256, 8, 2, numbers, 32));
                     for (const float scale : {0.5f, 2.0f, 0.0f, -1.0f})
                         check_round_trip(pair, 32, scale);
                 });
        list.add(text("triton/round_trip_nan/%s", numbers.name), Extent::smoke,
                 [=](Context& context) {
                     check_nan_in_round_trip(Pair(context, stage_spec(256, 8, 2, numbers, 32)), 32);
                 });
    }
}

void add_permute_models(CaseList& list) {
    constexpr PermuteModel models[] = {{"mixtral_8x7b", 4096, 8, 2},
                                       {"mixtral_8x22b", 6144, 8, 2},
                                       {"qwen2_moe_57b", 3584, 64, 4},
                                       {"deepseek_v3", 7168, 256, 8}};
    for (const PermuteModel& model : models)
        for (const Numbers& numbers : common_numbers)
            list.add(text("triton/permute_models/%s/%s", model.name, numbers.name), Extent::full,
                     [=](Context& context) {
                         const Pair pair(context, stage_spec(model.hidden, model.n_experts, model.k,
                                                             numbers, 128));
                         for (const int64_t T : {1, 32, 128}) {
                             check_permute(pair, T);
                             check_round_trip(pair, T);
                         }
                     });
}

void check_odd_ids(Context& context) {
    constexpr int64_t T = 301;
    const Pair pair(context, stage_spec(64, 24, 6, bf16, T));
    Ids ids = as_ids(random_ids(T, 6, 24, 2));
    clients::Random random(4);
    for (int64_t& id : ids)
        if (random.below(5) == 0) id = -1;
    check_dispatch(pair, {T, ids, 8, {}, 24});
    const int64_t wrong[] = {24, -2, 1000000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < ids.size(); i += 37) ids[i] = wrong[i % 5];
    check_dispatch(pair, {T, ids, 0, {}, 24});
    for (size_t i = 0; i < ids.size(); i += 41) ids[i] = (int64_t{1} << 40) + 3;
    check_dispatch(pair, {T, ids, 0, {}, 24, MOE_TYPE_I64});
    check_dispatch(pair, {T, Ids(T * 6, 23), 16, {}, 24});
    for (const int64_t n_tokens : {int64_t{5}, T}) {
        Dispatch counts_alone{n_tokens, as_ids(random_ids(n_tokens, 6, 24, 6)), 16, {}, 24};
        counts_alone.wants_row_ids = false;
        check_dispatch(pair, counts_alone);
    }
    check_dispatch(pair, {T, Ids(T * 6, -1), 16, {}, 24});
    std::vector<int32_t> map(24, -1);
    for (int32_t e = 0; e < 24; e += 2) map[static_cast<size_t>(e)] = 23 - e;
    check_dispatch(pair, {T, as_ids(random_ids(T, 6, 24, 2)), 4, map, 24});
    for (const int32_t n : {0, 1, 300, 301})
        check_dispatch(pair, {T, as_ids(random_ids(T, 6, 24, 2)), 4, {}, 24, MOE_TYPE_I32, n});
}

void add_odd_ids(CaseList& list) {
    list.add("dispatch/odd_ids", Extent::smoke, check_odd_ids);
    list.add("dispatch/large", Extent::full, [](Context& context) {
        const Pair pair(context, stage_spec(64, 4096, 16, bf16, 20000));
        check_dispatch(pair, {20000, as_ids(random_ids(20000, 16, 4096, 2)), 8, {}, 4096});
        check_dispatch(pair, {1, as_ids(random_ids(1, 16, 4096, 3)), 0, {}, 4096});
    });
}

}  // namespace

void add_dispatch_cases(CaseList& list) {
    add_permute(list);
    add_unpermute(list);
    add_round_trips(list);
    add_permute_models(list);
    add_odd_ids(list);
    add_gathers(list);
}

}  // namespace moe_gpu
