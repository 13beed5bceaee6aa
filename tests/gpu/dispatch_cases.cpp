// moe_dispatch and moe_combine: TritonMoE's permutation grid (exact rows), its unpermutation grid
// and the round trip, and ids of every kind.
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

void add_permute(CaseList& list) {
    constexpr ExpertsAndK grid[] = {{8, 2}, {64, 4}, {256, 8}};
    for (const auto& [n, k] : grid)
        for (const int64_t T : {1, 32, 128, 512})
            list.add(text("triton/permute/t%ld_e%d_k%d", static_cast<long>(T), n, k),
                     T == 32 ? Extent::smoke : Extent::full, [=](Context& context) {
                         const Pair pair(context, stage_spec(128, n, k, bf16, T));
                         const Ids ids = as_ids(random_ids(T, k, n, 11));
                         for (const int32_t block : {0, 1, 8, 16, 64, 128})
                             check_dispatch(pair, {T, ids, block, {}, n});
                         check_dispatch(pair, {T, ids, 16, {}, n, MOE_TYPE_I64});
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

// Every token k times with equal weights that add up to one: its own row comes back, to the bit
// where the output is rounded.
void check_round_trip(const Pair& pair, int64_t n_tokens) {
    const int64_t k = pair.desc().top_k, H = pair.desc().hidden;
    const Ids ids = as_ids(random_ids(n_tokens, pair.desc().top_k, pair.desc().n_experts, 5));
    const Dispatched order = check_dispatch(pair, {n_tokens, ids, 0, {}, pair.desc().n_experts});
    const Floats x = pair.x(n_tokens);
    Combine call;
    call.layout = MOE_IN_SORTED;
    call.n_tokens = n_tokens;
    call.row_ids = order.row_ids;
    call.ids = ids;
    call.weights.assign(static_cast<size_t>(n_tokens * k), 1.0f / static_cast<float>(k));
    for (const int32_t slot : order.row_ids) {
        const auto row = x.begin() + slot / k * H;
        call.rows.insert(call.rows.end(), row, row + H);
    }
    const Floats got = combine(pair.subject, call);
    if (pair.spec.numbers.out != MOE_TYPE_F32)
        pair.context.expect(got == x, "the round trip changes x");
    pair.context.measure("round trip", worst_row(got, x, H), 1e-6);
    note_kernels(pair, n_tokens);
}

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
    add_odd_ids(list);
}

}  // namespace moe_gpu
