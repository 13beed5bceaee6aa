// Layers, sizes, formats and calls drawn at random, one from each seed: combinations that no other
// list has. A case says what it drew in its notes.
#include <algorithm>
#include <string_view>

#include "compare.hpp"
#include "layer_kinds.hpp"

namespace moe_gpu {
namespace {

class Draw {
  public:
    explicit Draw(uint64_t seed) : random_(seed * 0x9E3779B97F4A7C15 + 11) {}

    // A number from 0 to n - 1.
    int32_t below(int64_t n) { return random_.below(static_cast<int32_t>(n)); }
    bool one_in(int32_t n) { return below(n) == 0; }
    // A third are 1 to 3, a fifth are 60 and more.
    int64_t tokens(int64_t most) {
        int64_t n = 1 + below(3);
        while (n < most && !one_in(4)) n = 2 * n + below(3) - 1;
        return std::clamp<int64_t>(n, 1, most);
    }
    template <class Values>
    auto of(const Values& values) {
        return values[static_cast<size_t>(below(static_cast<int64_t>(std::size(values))))];
    }

  private:
    clients::Random random_;
};

constexpr int64_t most_tokens = 400;

struct Drawn {
    PairSpec spec;
    moe_slice slice = sized<moe_slice>();
    std::string name;
};

moe_layer_desc draw_layer(Draw& draw, std::string& name) {
    std::vector<NamedLayer> kinds = expert_layers();
    const std::vector<NamedLayer> routings = routing_layers();
    kinds.insert(kinds.end(), routings.begin(), routings.end());
    kinds.push_back({"plain", plain_layer(64, 64, 2 + draw.below(70), 1 + draw.below(2))});
    const NamedLayer kind = draw.one_in(2) ? kinds.back() : draw.of(kinds);
    name = kind.name;
    return kind.desc;
}

std::vector<const char*> all_formats() {
    std::vector<const char*> formats = packed_formats();
    for (const char* format : unnamed_formats()) formats.push_back(format);
    return formats;
}

// CUDA packs columns in multiples of this.
int32_t column_step(std::string_view format) {
    for (const char* of_16 : {"bf16", "f16", "f32", "nvfp4", "fp8_128x128", "fp8_row", "int8_row"})
        if (format == of_16) return 16;
    // Their scales go on from row to row.
    return format.starts_with("nf4") || format.starts_with("fp4") || format.starts_with("bnb") ? 64
                                                                                               : 32;
}

bool can_draw(const char* format, const moe_layer_desc& desc) {
    const int32_t step = column_step(format);
    return can_hold(format, desc) && desc.hidden % step == 0 && desc.intermediate % step == 0 &&
           desc.latent % step == 0;
}

// Sizes that a format holds, from multiples of 32 and 16 to multiples of 256. The layer may have
// other sizes that no luck makes fit.
bool draw_sizes(Draw& draw, const char* format, moe_layer_desc& desc) {
    moe_layer_desc drawn = desc;
    for (int i = 0; i < 200; ++i) {
        const int32_t of_hidden = 32 << draw.below(4), of_intermediate = 16 << draw.below(5);
        drawn.hidden = of_hidden * (1 + draw.below(1024 / of_hidden));
        drawn.intermediate = of_intermediate * (1 + draw.below(1024 / of_intermediate));
        if (drawn.shared_intermediate)
            drawn.shared_intermediate =
                draw.one_in(2) ? drawn.intermediate : 16 * (1 + draw.below(20));
        if (!can_draw(format, drawn)) continue;
        desc = drawn;
        return true;
    }
    return false;
}

// Another format for a role, where the layer has a size for it.
const char* other_format(Draw& draw, const std::vector<const char*>& formats,
                         const moe_layer_desc& desc) {
    const char* format = draw.of(formats);
    return can_draw(format, desc) ? format : nullptr;
}

// Experts, or features from or up to a multiple of 256, where every named format may be cut.
void draw_slice(Draw& draw, const moe_layer_desc& desc, bool of_features, moe_slice& slice) {
    if (!of_features) {
        slice.has_expert_range = 1;
        slice.expert_begin = draw.below(desc.n_experts);
        slice.expert_count = 1 + draw.below(desc.n_experts - slice.expert_begin);
        return;
    }
    const int32_t half = desc.intermediate / 2 / 256 * 256;
    if (half == 0) return;
    slice.has_intermediate_range = 1;
    slice.intermediate_begin = draw.one_in(2) ? half : 0;
    slice.intermediate_count = slice.intermediate_begin ? desc.intermediate - half : half;
}

bool is_named(const char* format) {
    if (!format) return true;
    const std::vector<const char*> named = packed_formats();
    return std::any_of(named.begin(), named.end(),
                       [&](const char* one) { return std::string_view(one) == format; });
}

Drawn draw_case(uint64_t seed, const Device& device) {
    Draw draw(seed);
    Drawn drawn;
    PairSpec& spec = drawn.spec;
    const std::vector<const char*> formats = all_formats();
    std::string kind;
    moe_layer_desc desc = draw_layer(draw, kind);
    const char* format = draw.of(formats);
    while (!draw_sizes(draw, format, desc)) format = draw.of(formats);
    spec.layer.desc = desc;
    spec.layer.format = format;
    spec.layer.seed = seed;
    if (draw.one_in(3)) spec.layer.down_format = other_format(draw, formats, desc);
    if (draw.one_in(6) && desc.is_gated) spec.layer.gate_format = other_format(draw, formats, desc);
    spec.numbers = draw.of(std::vector<Numbers>{bf16, bf16, f16, f16, f32, f16_through_bf16,
                                                bf16_through_f16, bf16_to_f32});
    // The larger of the limits that the formats of other cases have. The sum in front of a latent's
    // projection is rounded, too, and may be small beside its terms: 1.5e-2 was seen in bfloat16
    // where the same weights have 1.1e-3 in float16 and 7e-7 in float32.
    if (spec.numbers.limit == rounded_limit)
        spec.numbers.limit = (desc.latent > 0 ? 3.0 : 4.0 / 3.0) * rounded_limit;
    spec.max_tokens = most_tokens;
    const bool are_named =
        is_named(format) && is_named(spec.layer.down_format) && is_named(spec.layer.gate_format);
    if (draw.one_in(5))
        draw_slice(draw, desc, are_named && !desc.has_expert_norm && draw.one_in(2), drawn.slice);
    constexpr const char* filters[] = {"-experts:sm90_*", "-experts:*_gemv_*",
                                       "-experts:sm90_*_grouped_gemm_*"};
    const char* filter = device.is_cuda() && draw.one_in(2) ? draw.of(filters) : nullptr;
    const std::string filter_of_plan = filter ? device.with_its_own(filter) : "";
    const bool is_invariant = draw.one_in(5);
    // Not less than a token with many experts needs.
    const uint64_t workspace = draw.one_in(6) ? uint64_t{desc.top_k > 32 ? 6u : 3u} << 20 : 0;
    spec.subject = [=](moe_plan_desc& plan) {
        if (filter) plan.kernel_filter = filter_of_plan.c_str();
        plan.batch_invariant = is_invariant;
        plan.max_workspace_bytes = workspace;
    };
    const auto text_of = [](const char* value) { return value ? value : "-"; };
    drawn.name =
        text("%s H %d I %d E %d k %d, %s, gate %s, down %s, x %s, %s%s%s%s", kind.c_str(),
             desc.hidden, desc.intermediate, desc.n_experts, desc.top_k, format,
             text_of(spec.layer.gate_format), text_of(spec.layer.down_format), spec.numbers.name,
             text_of(filter), is_invariant ? ", invariant" : "", workspace ? ", chunks" : "",
             drawn.slice.has_expert_range         ? ", experts"
             : drawn.slice.has_intermediate_range ? ", features"
                                                  : "");
    return drawn;
}

Forward draw_call(Draw& draw, const Pair& pair, int64_t n_tokens) {
    const moe_layer_desc& d = pair.desc();
    Forward call = pair.routed_call(n_tokens, static_cast<uint64_t>(draw.below(1000)));
    // Either every expert is wanted by some token, or a few are by most.
    const int32_t popular = 1 + draw.below(d.n_experts);
    if (draw.one_in(3))
        for (size_t i = 0; i < call.ids.size(); ++i)
            if (draw.below(8) != 0 && d.top_k <= popular) {
                const auto slot = static_cast<int32_t>(i % static_cast<size_t>(d.top_k));
                const auto token = static_cast<int32_t>(i / static_cast<size_t>(d.top_k));
                call.ids[i] = (token + slot) % popular;
            }
    if (draw.one_in(4))
        for (size_t i = 1; i < call.ids.size(); ++i)
            if (draw.one_in(9)) call.ids[i] = -1;
    if (draw.one_in(5)) call.n_tokens_device = draw.below(n_tokens + 1);
    if (draw.one_in(5)) call.x_place = {d.hidden + 1 + draw.below(9), draw.below(4)};
    call.ids_type = draw.one_in(2) ? MOE_TYPE_I32 : MOE_TYPE_I64;
    return call;
}

void run_random(Context& context, uint64_t seed) {
    Drawn drawn = draw_case(seed, context.device);
    context.notes.insert(drawn.name);
    const bool is_sliced = drawn.slice.has_expert_range || drawn.slice.has_intermediate_range;
    if (is_sliced)
        drawn.spec.both = [&drawn](moe_plan_desc& plan) {
            plan.partial = 1;
            plan.slice = &drawn.slice;
        };
    const Pair pair(context, drawn.spec);
    Draw draw(seed + 1'000'000);
    for (int i = 0; i < 3; ++i) {
        Forward call = draw_call(draw, pair, draw.tokens(most_tokens));
        // A token may have no expert in the slice, and zeros alone are refused.
        if (is_sliced)
            call.base = normal(call.n_tokens * pair.subject.out_columns(), seed + 5, 0.3f);
        pair.check(call, drawn.name);
    }
}

constexpr uint64_t n_seeds = 300, n_smoke = 30;

}  // namespace

void add_random_cases(CaseList& list) {
    for (uint64_t seed = 0; seed < n_seeds; ++seed)
        list.add(text("random/%03d", static_cast<int>(seed)),
                 seed < n_smoke ? Extent::smoke : Extent::full,
                 [=](Context& context) { run_random(context, seed); });
}

}  // namespace moe_gpu
