// Unequal loads of experts, and ids that no router gives: skipped, out of range, twice the same.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compare.hpp"

namespace moe_gpu {
namespace {

PairSpec spec_of(const char* format, int32_t n_experts, int32_t k, int64_t max_tokens,
                 const Numbers& numbers = bf16) {
    PairSpec spec;
    spec.layer.desc = plain_layer(256, 128, n_experts, k);
    spec.layer.format = format;
    spec.numbers = numbers;
    spec.max_tokens = max_tokens;
    return spec;
}

// k distinct experts per token with p_e ~ rank^-alpha, ranks a permutation: the k largest of
// log p + Gumbel noise.
Ids zipf_ids(int64_t n_tokens, int32_t n_experts, int32_t k, double alpha, uint64_t seed) {
    clients::Random random(seed);
    const std::vector<int32_t> rank = random_ids(1, n_experts, n_experts, seed + 1);
    Ids ids;
    std::vector<double> key(static_cast<size_t>(n_experts));
    std::vector<int32_t> order(key.size());
    for (int64_t t = 0; t < n_tokens; ++t) {
        for (size_t e = 0; e < key.size(); ++e) {
            const double u = (static_cast<double>(random.bits() >> 11) + 0.5) * 0x1p-53;
            key[e] = -alpha * std::log(1.0 + rank[e]) - std::log(-std::log(u));
        }
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
            return key[static_cast<size_t>(a)] > key[static_cast<size_t>(b)];
        });
        ids.insert(ids.end(), order.begin(), order.begin() + k);
    }
    return ids;
}

using Change = std::function<void(Forward&, int32_t n_experts)>;

void check(Context& context, const PairSpec& spec, const std::vector<int64_t>& tokens,
           const Change& change) {
    with_every_kernel(context, spec, MOE_STAGE_EXPERTS, [&](const Pair& pair) {
        for (const int64_t T : tokens) {
            Forward call = pair.routed_call(T, static_cast<uint64_t>(T));
            change(call, spec.layer.desc.n_experts);
            pair.check(call, spec.layer.format);
        }
    });
}

void add_loads(CaseList& list) {
    for (const char* format : {"bf16", "nvfp4", "kbit4"}) {
        const auto add = [&](const char* name, Extent extent, const Change& change) {
            list.add(text("skew/%s/%s", name, format), extent, [=](Context& context) {
                check(context, spec_of(format, 32, 4, 700), {1, 64, 700}, change);
            });
        };
        for (const double alpha : {1.2, 2.0})
            add(text("zipf_%.1f", alpha).c_str(), Extent::smoke, [=](Forward& call, int32_t n) {
                call.ids = zipf_ids(call.n_tokens, n, 4, alpha, 5);
            });
        add("one_expert", Extent::smoke, [](Forward& call, int32_t n) {
            for (size_t i = 0; i < call.ids.size(); ++i) call.ids[i] = i % 4 ? -1 : n - 1;
        });
        add("empty_experts", Extent::full, [](Forward& call, int32_t) {
            for (int64_t& id : call.ids) id = id / 8 * 8;
        });
        add("first_and_last", Extent::full, [](Forward& call, int32_t n) {
            for (size_t i = 0; i < call.ids.size(); ++i) call.ids[i] = i % 2 ? 0 : n - 1;
        });
    }
}

void skip_some(Forward& call, int32_t) {
    clients::Random random(3);
    for (int64_t& id : call.ids)
        if (random.below(3) == 0) id = -1;
    if (call.n_tokens > 1) std::fill_n(call.ids.begin(), 4, -1);
    call.ids.back() = 1;
}

// More rows than stay in the L2, where products look up whose token a row is: all widths of a
// piece, rows that nobody has, tokens that are not there, a shared expert as one more slot.
void add_many_rows(CaseList& list) {
    constexpr int32_t n_experts = 40, k = 8;
    constexpr int64_t T = 2100;
    for (const char* format : {"bf16", "nvfp4", "kbit3", "q4_k"}) {
        PairSpec spec = spec_of(format, n_experts, k, T);
        spec.layer.desc = plain_layer(1024, 256, n_experts, k);
        const auto add = [&](const char* name, const PairSpec& of, const Change& change) {
            list.add(text("skew/many_rows_%s/%s", name, format),
                     format[0] == 'n' ? Extent::smoke : Extent::full,
                     [=](Context& context) { check(context, of, {T}, change); });
        };
        const auto zipf = [](Forward& call, int32_t n) {
            call.ids = zipf_ids(call.n_tokens, n, k, 2.0, 7);
        };
        add("uniform", spec, [](Forward&, int32_t) {});
        add("zipf", spec, zipf);
        add("skipped", spec, [=](Forward& call, int32_t n) {
            zipf(call, n);
            skip_some(call, n);
        });
        add("fewer", spec, [=](Forward& call, int32_t n) {
            zipf(call, n);
            call.n_tokens_device = 1999;
            std::fill(call.x.begin() + 1999 * 1024, call.x.end(), NAN);
        });
        PairSpec shared = spec;
        shared.layer.desc.shared_intermediate = 256;
        shared.layer.desc.shared_activation = shared.layer.desc.activation;
        shared.layer.desc.shared_is_gated = 1;
        shared.layer.dense_format = format;
        add("shared", shared, zipf);
    }
}

void add_odd_ids(CaseList& list) {
    for (const Numbers& numbers : common_numbers) {
        const auto add = [&](const char* name, const Change& change) {
            list.add(text("ids/%s/%s", name, numbers.name), Extent::smoke, [=](Context& context) {
                check(context, spec_of("bf16", 12, 4, 90, numbers), {1, 5, 90}, change);
            });
        };
        add("skipped", skip_some);
        // An output of zeros alone would be refused, so one token keeps its experts.
        add("all_skipped_but_one", [](Forward& call, int32_t) {
            for (size_t i = 0; i + 4 < call.ids.size(); ++i) call.ids[i] = -1;
        });
        add("out_of_range", [](Forward& call, int32_t n) {
            const int64_t wrong[] = {n, -2, INT32_MAX, INT32_MIN, n + 7};
            for (size_t i = 1; i < call.ids.size(); i += 7) call.ids[i] = wrong[i % 5];
        });
        add("out_of_range_i64", [](Forward& call, int32_t n) {
            const int64_t wrong[] = {n, -2, int64_t{1} << 32, INT64_MIN / 4, INT64_MAX / 4};
            call.ids_type = MOE_TYPE_I64;
            for (size_t i = 1; i < call.ids.size(); i += 7) call.ids[i] = wrong[i % 5];
        });
        add("duplicates", [](Forward& call, int32_t) {
            for (size_t i = 0; i < call.ids.size(); ++i) call.ids[i] = call.ids[i / 4 * 4];
        });
    }
}

}  // namespace

void add_skew_cases(CaseList& list) {
    add_loads(list);
    add_many_rows(list);
    add_odd_ids(list);
}

}  // namespace moe_gpu
