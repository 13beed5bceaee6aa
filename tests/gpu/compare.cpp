// Errors, and the references that they are measured against.
#include "compare.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "stages.hpp"

namespace moe_gpu {

double worst_row(const Floats& got, const Floats& wanted, int64_t width,
                 const std::vector<char>& counts, double least_size) {
    if (got.size() != wanted.size() || width <= 0) return INFINITY;
    double worst = 0;
    const auto columns = static_cast<size_t>(width);
    for (size_t row = 0; row < wanted.size() / columns; ++row) {
        if (!counts.empty() && !counts[row]) continue;
        double error = 0, norm = 0;
        const double least = least_size * least_size * static_cast<double>(width);
        for (size_t i = row * columns; i < (row + 1) * columns; ++i) {
            error += std::pow(static_cast<double>(got[i]) - wanted[i], 2);
            norm += std::pow(static_cast<double>(wanted[i]), 2);
        }
        norm = std::max(norm, least);
        const double relative = norm > 0 ? std::sqrt(error / norm) : error == 0 ? 0 : INFINITY;
        if (!(relative <= worst)) worst = std::isnan(relative) ? INFINITY : relative;
    }
    return worst;
}

double rms(const Floats& values) {
    double sum = 0;
    for (const float v : values) sum += static_cast<double>(v) * v;
    return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

int64_t ulps_between(float a, float b) {
    int32_t x, y;
    std::memcpy(&x, &a, 4);
    std::memcpy(&y, &b, 4);
    if (x < 0) x = INT32_MIN - x;
    if (y < 0) y = INT32_MIN - y;
    return std::abs(static_cast<int64_t>(x) - y);
}

int64_t most_ulps(const Floats& got, const Floats& wanted) {
    int64_t worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i)
        worst = std::max(worst, ulps_between(got[i], wanted[i]));
    return worst;
}

Ids random_token_ids(const moe_layer_desc& desc, int64_t n_tokens, uint64_t seed) {
    Ids ids;
    if (desc.selection != MOE_SELECT_HASH) return ids;
    clients::Random random(seed);
    for (int64_t t = 0; t < n_tokens; ++t) ids.push_back(random.below(desc.hash_vocabulary));
    return ids;
}

std::vector<int32_t> random_second_bias(const moe_layer_desc& desc, int64_t n_tokens,
                                        uint64_t seed) {
    std::vector<int32_t> flags;
    if (!desc.has_second_selection_bias) return flags;
    constexpr int32_t values[] = {0, 0, 1, -128, 2};
    clients::Random random(seed);
    for (int64_t t = 0; t < n_tokens; ++t) flags.push_back(values[random.below(5)]);
    return flags;
}

std::vector<int32_t> random_ids(int64_t n_tokens, int32_t k, int32_t n_experts, uint64_t seed) {
    clients::Random random(seed);
    std::vector<int32_t> all(static_cast<size_t>(n_experts)), ids;
    std::iota(all.begin(), all.end(), 0);
    for (int64_t t = 0; t < n_tokens; ++t)
        for (int32_t j = 0; j < k; ++j) {
            std::swap(all[static_cast<size_t>(j)],
                      all[static_cast<size_t>(j + random.below(n_experts - j))]);
            ids.push_back(all[static_cast<size_t>(j)]);
        }
    return ids;
}

// ---- pairs

Pair::Pair(Context& in, const PairSpec& given)
    : Pair(in, given, std::make_shared<LayerData>(given.layer)) {}

Pair::Pair(Context& in, const PairSpec& given, std::shared_ptr<LayerData> from)
    : context(in),
      spec(given),
      data(std::move(from)),
      subject(in.device, in.runtime, subject_spec()),
      reference(in.host, in.runtime, reference_spec()) {}

SideSpec Pair::subject_spec() const {
    SideSpec side{data->plan_desc(), data->weights_desc(), spec.loaded};
    side.plan.device = context.device.kind();
    side.plan.x_type = spec.numbers.x;
    side.plan.out_type = spec.numbers.out;
    side.plan.intermediate_type = spec.numbers.intermediate;
    side.plan.max_tokens = spec.max_tokens;
    if (spec.both) spec.both(side.plan);
    if (spec.subject) spec.subject(side.plan);
    // Copies of what experts share would be many times the data.
    if (!context.device.is_cuda() && spec.layer.distinct_experts)
        side.weights.ownership = MOE_OWN_BORROW;
    return side;
}

// Plain loops in double where they end soon, else float32.
SideSpec Pair::reference_spec() const {
    SideSpec side{data->reference_plan_desc(), data->reference_weights_desc()};
    const moe_layer_desc& d = desc();
    const double work = 6.0 * static_cast<double>(spec.max_tokens) * d.top_k * d.intermediate *
                        static_cast<double>(data->width());
    side.plan.x_type = spec.numbers.x;
    side.plan.out_type = MOE_TYPE_F32;
    side.plan.intermediate_type = work < 1e8 ? MOE_TYPE_F64 : MOE_TYPE_F32;
    side.plan.max_tokens = spec.max_tokens;
    if (spec.both) spec.both(side.plan);
    return side;
}

Floats Pair::x(int64_t n_tokens, uint64_t seed) const {
    return rounded(normal(n_tokens * desc().hidden, seed * 31 + 5), spec.numbers.x);
}

Forward Pair::call(int64_t n_tokens, uint64_t seed) const {
    Forward call;
    call.n_tokens = n_tokens;
    call.x = x(n_tokens, seed);
    return call;
}

Forward Pair::routed_call(int64_t n_tokens, uint64_t seed) const {
    Forward call = this->call(n_tokens, seed);
    call.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
    const std::vector<int32_t> ids =
        random_ids(n_tokens, desc().top_k, desc().n_experts, seed * 131 + 3);
    call.ids.assign(ids.begin(), ids.end());
    clients::Random random(seed * 17 + 1);
    const auto even = 1.0f / static_cast<float>(desc().top_k);
    for (size_t i = 0; i < ids.size(); ++i)
        call.weights.push_back(even * (1.0f + 0.5f * random.value()));
    return call;
}

Result Pair::run(const Forward& call) const {
    const size_t mark = launch_mark();
    Result result = subject.forward(call);
    expect_launched(launches_since(mark), call);
    for (const std::string& name : subject.kernels(call.n_tokens)) context.kernels.insert(name);
    return result;
}

Result Pair::check(const Forward& call, const std::string& what) const {
    const Result got = run(call);
    const Result wanted = reference.forward(call);
    measure(got, wanted, call, what);
    return got;
}

void Pair::measure(const Result& got, const Result& wanted, const Forward& call,
                   const std::string& what) const {
    const std::string where = what + text(", T %ld", static_cast<long>(call.n_tokens));
    std::vector<char> counts(static_cast<size_t>(call.n_live()), 1);
    counts.resize(static_cast<size_t>(call.n_tokens), 0);
    if (call.routing == MOE_ROUTING_COMPUTE && call.wants_routing) {
        const std::vector<char> decided = decided_tokens(reference, call, wanted);
        for (size_t t = 0; t < counts.size(); ++t) counts[t] = counts[t] && decided[t];
    }
    if (call.wants_routing && call.n_live())
        measure_routing(*this, got, wanted, counts, call.n_live(), where);
    if (call.n_live() && call.base.empty()) {
        Floats live(wanted.out.begin(),
                    wanted.out.begin() +
                        static_cast<ptrdiff_t>(wanted.out.size()) / call.n_tokens * call.n_live());
        const double size = rms(live);
        // A token may have no expert at all; the mean must still be of the order of one. (Integers
        // of one bit are 0 or -1 times a scale: their sums are the largest, up to 60.)
        context.expect(size > 0.02 && size < 100,
                       where + text(": the reference's rms is %g", size));
    }
    const int64_t width =
        static_cast<int64_t>(wanted.out.size()) / std::max<int64_t>(call.n_tokens, 1);
    if (call.n_tokens)
        context.measure(where, worst_row(got.out, wanted.out, width, counts), spec.limit());
    context.expect(got.faults.faults == wanted.faults.faults &&
                       got.faults.n_skipped == wanted.faults.n_skipped,
                   where + text(": faults %#x, %ld skipped, wanted %#x, %ld", got.faults.faults,
                                static_cast<long>(got.faults.n_skipped), wanted.faults.faults,
                                static_cast<long>(wanted.faults.n_skipped)));
}

// ---- launches

bool Pair::may_give_way(const Forward& call) const {
    const int64_t size = size_of(subject.x_type), columns = desc().hidden;
    const int64_t stride = call.x_place.stride ? call.x_place.stride : columns;
    const bool aligned =
        call.x_place.shift * size % 16 == 0 && (call.n_tokens <= 1 || stride * size % 16 == 0);
    return !aligned || call.n_tokens_device || call.out_layout == MOE_OUT_PER_SLOT ||
           call.n_tokens > subject.chunk_tokens();
}

void Pair::expect_launched(const std::vector<Launch>& launches, moe_stage stage, int64_t n_tokens,
                           bool gives_way) const {
    if (!subject.device.is_cuda() || !are_launches_recorded()) return;
    std::set<std::string> named{subject.kernel(stage, n_tokens)};
    if (gives_way) named = subject.chosen(stage);
    bool found = false;
    for (const std::string& name : named)
        for (const std::string& launched : names_of(launches))
            found = found || stands_for(name, launched);
    context.expect(found, text("T %ld: %s is named and not launched", static_cast<long>(n_tokens),
                               named.begin()->c_str()));
    ++(gives_way ? context.n_gave_way : context.n_named_checked);
}

// The stages of a forward that one kernel's name stands for: the experts, and the shared expert
// where it runs apart.
void Pair::expect_launched(const std::vector<Launch>& launches, const Forward& call) const {
    if (call.n_tokens == 0) return;
    const bool gives_way = may_give_way(call);
    expect_launched(launches, MOE_STAGE_EXPERTS, call.n_tokens, gives_way);
    if (!subject.partial && subject.is_shared_apart() &&
        !subject.kernel(MOE_STAGE_FINISH, call.n_tokens).empty())
        expect_launched(launches, MOE_STAGE_FINISH, call.n_tokens, gives_way);
}

// ---- routing

std::vector<char> decided_tokens(const Side& reference, const Forward& call, const Result& wanted) {
    const auto all = static_cast<size_t>(reference.n_experts_all());
    const auto k = static_cast<size_t>(reference.layer.top_k);
    const auto T = static_cast<size_t>(call.n_tokens);
    std::vector<char> decided(T, 1);
    if (reference.layer.selection == MOE_SELECT_HASH || !T) return decided;
    Route moved;
    moved.n_tokens = call.n_tokens;
    moved.routing = MOE_ROUTING_LOGITS;
    moved.logits = wanted.logits;
    moved.uses_second_bias = call.uses_second_bias;
    for (size_t t = 0; t < T; ++t) {
        float largest = 1;
        for (size_t e = 0; e < all; ++e)
            if (std::isfinite(wanted.logits[t * all + e]))
                largest = std::max(largest, std::fabs(wanted.logits[t * all + e]));
        for (size_t e = 0; e < all; ++e) moved.logits[t * all + e] += 0.5e-5f * largest;
        for (size_t j = 0; j < k; ++j)
            if (const int32_t id = wanted.ids[t * k + j]; id >= 0)
                moved.logits[t * all + static_cast<size_t>(id)] -= 1e-5f * largest;
    }
    const Routed other = route(reference, moved);
    for (size_t t = 0; t < T; ++t) {
        const auto begin = static_cast<ptrdiff_t>(t * k), end = begin + static_cast<ptrdiff_t>(k);
        std::set<int32_t> a(wanted.ids.begin() + begin, wanted.ids.begin() + end);
        std::set<int32_t> b(other.ids.begin() + begin, other.ids.begin() + end);
        decided[t] = a == b;
    }
    return decided;
}

void measure_routing(const Pair& pair, const Result& got, const Result& wanted,
                     const std::vector<char>& decided, int64_t n_live, const std::string& what) {
    const auto k = static_cast<size_t>(pair.desc().top_k), T = static_cast<size_t>(n_live);
    const size_t n_columns = wanted.logits.size() / decided.size();
    size_t n_left_out = 0, n_wrong = 0;
    double worst = 0, largest = 1;
    for (size_t i = 0; i < T * n_columns; ++i)
        if (const float z = wanted.logits[i]; std::isfinite(z))
            largest = std::max(largest, static_cast<double>(std::fabs(z)));
    for (size_t t = 0; t < T; ++t) {
        n_left_out += !decided[t];
        if (!decided[t]) continue;
        // Two chosen experts whose keys are near may change places: as pairs, not as a sequence.
        std::multiset<std::pair<int32_t, size_t>> a, b;
        for (size_t j = 0; j < k; ++j) {
            a.insert({got.ids[t * k + j], t * k + j});
            b.insert({wanted.ids[t * k + j], t * k + j});
        }
        double top = 0;
        for (size_t j = 0; j < k; ++j)
            top = std::max(top, std::fabs(static_cast<double>(wanted.weights[t * k + j])));
        for (auto i = a.begin(), j = b.begin(); i != a.end(); ++i, ++j) {
            n_wrong += i->first != j->first;
            // The weight of a skipped slot means nothing.
            if (j->first < 0) continue;
            const double difference =
                std::fabs(static_cast<double>(got.weights[i->second]) - wanted.weights[j->second]);
            const double relative = top > 0 ? difference / top : difference > 0 ? INFINITY : 0;
            if (!(relative <= worst)) worst = std::isnan(relative) ? INFINITY : relative;
        }
    }
    if (n_columns) {
        const double size = rms(wanted.logits);
        pair.context.measure(what + " logits",
                             // A layer of one expert has one logit, which may be next to zero.
                             worst_row(got.logits, wanted.logits, static_cast<int64_t>(n_columns),
                                       decided, std::isfinite(size) ? size : 0),
                             exact_limit);
        if (n_left_out)
            pair.context.notes.insert(
                text("%zu of %zu tokens left out, near a cut", n_left_out, T));
        // In a few tokens one is many per cent.
        pair.context.expect(n_left_out <= 1 + T / 50,
                            what + text(": %zu of %zu tokens are near a cut", n_left_out, T));
    }
    pair.context.expect(n_wrong == 0, what + text(": %zu ids differ", n_wrong));
    // Softmax turns an absolute error of a logit into a relative one of a weight. Weights that
    // round to the x type differ by a step where the exact ones lie on two sides of a middle.
    const double step = pair.desc().round_weights || pair.desc().round_logits ? 1.6e-2 : 0;
    pair.context.measure(what + " weights", worst, std::max(step, 1e-5 * largest));
    if (pair.desc().selection != MOE_SELECT_HASH && n_left_out == 0)
        pair.context.expect(got.counts == wanted.counts, what + ": expert counts differ");
}

// ---- kernels

void with_every_kernel(Context& context, const PairSpec& spec, moe_stage stage,
                       const std::function<void(const Pair&)>& use) {
    auto data = std::make_shared<LayerData>(spec.layer);
    std::vector<std::string> others;
    PairSpec forced = spec;
    {
        const Pair pair(context, spec, data);
        use(pair);
        forced.loaded = pair.subject.weights;
        auto candidate = sized<moe_candidate>();
        for (uint32_t i = 0; moe_candidates(pair.subject.plan.get(), i, &candidate) == MOE_OK; ++i)
            if (candidate.stage == stage && can_force(candidate) && !candidate.chosen)
                others.push_back(candidate.kernel);
    }
    for (const std::string& name : others) {
        const std::string filter = context.device.with_its_own(name);
        forced.subject = [&](moe_plan_desc& desc) {
            if (spec.subject) spec.subject(desc);
            desc.kernel_filter = filter.c_str();
        };
        const size_t n_before = context.failures.size();
        use(Pair(context, forced, data));
        for (size_t i = n_before; i < context.failures.size(); ++i)
            context.failures[i] = name + ": " + context.failures[i];
    }
}

}  // namespace moe_gpu
