// The rules of moe_layer_desc. Input: a description with struct_size applied. Output: nothing, or
// an Error that names the field and its value.
//   1. tables of ranges, of values that must be finite and of fields that need another field
//   2. the rules that join several fields
#include "libmoe/layer/layer_rules.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "libmoe/base/error.hpp"

namespace moe {
namespace {

// A field of moe_layer_desc by name. All are 32 bits wide: integers, enums and floats.
struct Field {
    const char* name;
    size_t offset;
    bool is_float;
};

#define MOE_FIELD(member)                                             \
    Field {                                                           \
#member, offsetof(moe_layer_desc, member),                    \
            std::is_same_v < decltype(moe_layer_desc::member), float> \
    }

int32_t integer_of(const moe_layer_desc& desc, const Field& field) {
    int32_t value;
    std::memcpy(&value, reinterpret_cast<const char*>(&desc) + field.offset, sizeof value);
    return value;
}

float float_of(const moe_layer_desc& desc, const Field& field) {
    float value;
    std::memcpy(&value, reinterpret_cast<const char*>(&desc) + field.offset, sizeof value);
    return value;
}

bool is_set(const moe_layer_desc& desc, const Field& field) {
    return field.is_float ? float_of(desc, field) != 0.0f : integer_of(desc, field) != 0;
}

[[noreturn]] void refuse(const moe_layer_desc& desc, const Field& field, const char* rule) {
    if (field.is_float) {
        fail(MOE_ERROR_INVALID_ARGUMENT, "{} is {}; {}", field.name, float_of(desc, field), rule);
    }
    fail(MOE_ERROR_INVALID_ARGUMENT, "{} is {}; {}", field.name, integer_of(desc, field), rule);
}

void expect(bool holds, const moe_layer_desc& desc, const Field& field, const char* rule) {
    if (!holds) refuse(desc, field, rule);
}

// Fails because field has this value although the value of other makes it meaningless.
[[noreturn]] void refuse_beside(const moe_layer_desc& desc, const Field& field,
                                const Field& other) {
    if (field.is_float) {
        fail(MOE_ERROR_INVALID_ARGUMENT, "{} is {} but {} is {}", field.name, float_of(desc, field),
             other.name, integer_of(desc, other));
    }
    fail(MOE_ERROR_INVALID_ARGUMENT, "{} is {} but {} is {}", field.name, integer_of(desc, field),
         other.name, integer_of(desc, other));
}

// Fails if any of the fields is set, because the value of other makes them meaningless.
void expect_unset(const moe_layer_desc& desc, std::initializer_list<Field> fields,
                  const Field& other) {
    for (const Field& field : fields) {
        if (is_set(desc, field)) refuse_beside(desc, field, other);
    }
}

// The fields of one MLP's activation; the routed experts and the shared expert have one each.
struct ActivationFields {
    Field kind, is_gated, has_alpha, alpha, up_offset, has_gate_limit, gate_limit, has_up_limit,
        up_limit, has_post_limit, post_limit, situ_beta, situ_beta_up;
};

constexpr ActivationFields routed_activation{MOE_FIELD(activation),
                                             MOE_FIELD(is_gated),
                                             MOE_FIELD(has_activation_alpha),
                                             MOE_FIELD(activation_alpha),
                                             MOE_FIELD(activation_up_offset),
                                             MOE_FIELD(has_gate_limit),
                                             MOE_FIELD(gate_limit),
                                             MOE_FIELD(has_up_limit),
                                             MOE_FIELD(up_limit),
                                             MOE_FIELD(has_post_limit),
                                             MOE_FIELD(post_limit),
                                             MOE_FIELD(situ_beta),
                                             MOE_FIELD(situ_beta_up)};

constexpr ActivationFields shared_activation{MOE_FIELD(shared_activation),
                                             MOE_FIELD(shared_is_gated),
                                             MOE_FIELD(has_shared_activation_alpha),
                                             MOE_FIELD(shared_activation_alpha),
                                             MOE_FIELD(shared_activation_up_offset),
                                             MOE_FIELD(has_shared_gate_limit),
                                             MOE_FIELD(shared_gate_limit),
                                             MOE_FIELD(has_shared_up_limit),
                                             MOE_FIELD(shared_up_limit),
                                             MOE_FIELD(has_shared_post_limit),
                                             MOE_FIELD(shared_post_limit),
                                             MOE_FIELD(shared_situ_beta),
                                             MOE_FIELD(shared_situ_beta_up)};

struct RangeRule {
    Field field;
    int32_t low, high, multiple;
};

constexpr int32_t any_size = INT32_MAX;

constexpr RangeRule range_rules[] = {
    {MOE_FIELD(hidden), 32, any_size, 32},
    {MOE_FIELD(intermediate), 16, any_size, 16},
    {MOE_FIELD(n_experts), 1, 4096, 1},
    {MOE_FIELD(n_identity_experts), 0, 4096, 1},
    {MOE_FIELD(has_router), 0, 1, 1},
    {MOE_FIELD(has_router_bias), 0, 1, 1},
    {MOE_FIELD(has_selection_bias), 0, 1, 1},
    {MOE_FIELD(has_second_selection_bias), 0, 1, 1},
    {MOE_FIELD(has_router_norm), 0, 1, 1},
    {MOE_FIELD(has_router_norm_weight), 0, 1, 1},
    {MOE_FIELD(has_router_input_scale), 0, 1, 1},
    {MOE_FIELD(has_logit_softcap), 0, 1, 1},
    {MOE_FIELD(score), MOE_SCORE_NONE, MOE_SCORE_SQRT_SOFTPLUS, 1},
    {MOE_FIELD(post_score), MOE_SCORE_NONE, MOE_SCORE_SIGMOID, 1},
    {MOE_FIELD(selection), MOE_SELECT_TOP_K, MOE_SELECT_HASH, 1},
    {MOE_FIELD(hash_vocabulary), 0, any_size, 1},
    {MOE_FIELD(n_group), 0, any_size, 1},
    {MOE_FIELD(topk_group), 0, any_size, 1},
    {MOE_FIELD(group_score), MOE_GROUP_SCORE_NONE, MOE_GROUP_SCORE_TOP2_SUM, 1},
    {MOE_FIELD(group_mask), MOE_GROUP_MASK_INFINITY, MOE_GROUP_MASK_ZERO, 1},
    {MOE_FIELD(renormalize), MOE_RENORMALIZE_NONE, MOE_RENORMALIZE_SUM_CLAMP, 1},
    {MOE_FIELD(has_routed_scale), 0, 1, 1},
    {MOE_FIELD(has_expert_scale), 0, 1, 1},
    {MOE_FIELD(weight_on), MOE_WEIGHT_ON_OUTPUT, MOE_WEIGHT_ON_INPUT, 1},
    {MOE_FIELD(round_logits), 0, 1, 1},
    {MOE_FIELD(round_weights), 0, 1, 1},
    {MOE_FIELD(activation), MOE_ACTIVATION_SILU, MOE_ACTIVATION_SITU, 1},
    {MOE_FIELD(is_gated), 0, 1, 1},
    {MOE_FIELD(has_activation_alpha), 0, 1, 1},
    {MOE_FIELD(has_gate_limit), 0, 1, 1},
    {MOE_FIELD(has_up_limit), 0, 1, 1},
    {MOE_FIELD(has_post_limit), 0, 1, 1},
    {MOE_FIELD(has_gate_bias), 0, 1, 1},
    {MOE_FIELD(has_up_bias), 0, 1, 1},
    {MOE_FIELD(has_down_bias), 0, 1, 1},
    {MOE_FIELD(latent), 0, any_size, 32},
    {MOE_FIELD(has_latent_norm), 0, 1, 1},
    {MOE_FIELD(has_latent_in_norm), 0, 1, 1},
    {MOE_FIELD(has_expert_norm), 0, 1, 1},
    {MOE_FIELD(expert_norm_weight_first), 0, 1, 1},
    {MOE_FIELD(shared_intermediate), 0, any_size, 16},
    {MOE_FIELD(has_shared_expert_gate), 0, 1, 1},
    {MOE_FIELD(has_shared_scale), 0, 1, 1},
    {MOE_FIELD(shared_activation), MOE_ACTIVATION_NONE, MOE_ACTIVATION_SITU, 1},
    {MOE_FIELD(shared_is_gated), 0, 1, 1},
    {MOE_FIELD(has_shared_activation_alpha), 0, 1, 1},
    {MOE_FIELD(has_shared_gate_limit), 0, 1, 1},
    {MOE_FIELD(has_shared_up_limit), 0, 1, 1},
    {MOE_FIELD(has_shared_post_limit), 0, 1, 1},
    {MOE_FIELD(combine), MOE_COMBINE_SUM, MOE_COMBINE_MEAN, 1},
};

constexpr Field floats[] = {
    MOE_FIELD(router_norm_eps),
    MOE_FIELD(router_input_scale),
    MOE_FIELD(logit_softcap),
    MOE_FIELD(sparsemixer_jitter),
    MOE_FIELD(renormalize_eps),
    MOE_FIELD(routed_scale),
    MOE_FIELD(activation_alpha),
    MOE_FIELD(activation_up_offset),
    MOE_FIELD(gate_limit),
    MOE_FIELD(up_limit),
    MOE_FIELD(post_limit),
    MOE_FIELD(situ_beta),
    MOE_FIELD(situ_beta_up),
    MOE_FIELD(latent_norm_eps),
    MOE_FIELD(latent_in_norm_eps),
    MOE_FIELD(expert_norm_eps),
    MOE_FIELD(shared_scale),
    MOE_FIELD(shared_activation_alpha),
    MOE_FIELD(shared_activation_up_offset),
    MOE_FIELD(shared_gate_limit),
    MOE_FIELD(shared_up_limit),
    MOE_FIELD(shared_post_limit),
    MOE_FIELD(shared_situ_beta),
    MOE_FIELD(shared_situ_beta_up),
};

constexpr Field floats_not_negative[] = {
    MOE_FIELD(router_norm_eps), MOE_FIELD(sparsemixer_jitter), MOE_FIELD(renormalize_eps),
    MOE_FIELD(latent_norm_eps), MOE_FIELD(latent_in_norm_eps), MOE_FIELD(expert_norm_eps),
};

// field may be set only where needs is set.
struct NeedRule {
    Field field, needs;
};

constexpr NeedRule need_rules[] = {
    {MOE_FIELD(has_router_bias), MOE_FIELD(has_router)},
    {MOE_FIELD(has_router_norm), MOE_FIELD(has_router)},
    {MOE_FIELD(has_router_norm_weight), MOE_FIELD(has_router_norm)},
    {MOE_FIELD(router_norm_eps), MOE_FIELD(has_router_norm)},
    {MOE_FIELD(has_router_input_scale), MOE_FIELD(has_router)},
    {MOE_FIELD(router_input_scale), MOE_FIELD(has_router_input_scale)},
    {MOE_FIELD(logit_softcap), MOE_FIELD(has_logit_softcap)},
    {MOE_FIELD(topk_group), MOE_FIELD(n_group)},
    {MOE_FIELD(group_score), MOE_FIELD(n_group)},
    {MOE_FIELD(group_mask), MOE_FIELD(n_group)},
    {MOE_FIELD(has_second_selection_bias), MOE_FIELD(has_selection_bias)},
    {MOE_FIELD(renormalize_eps), MOE_FIELD(renormalize)},
    {MOE_FIELD(routed_scale), MOE_FIELD(has_routed_scale)},
    {MOE_FIELD(activation_alpha), MOE_FIELD(has_activation_alpha)},
    {MOE_FIELD(gate_limit), MOE_FIELD(has_gate_limit)},
    {MOE_FIELD(has_up_limit), MOE_FIELD(is_gated)},
    {MOE_FIELD(up_limit), MOE_FIELD(has_up_limit)},
    {MOE_FIELD(post_limit), MOE_FIELD(has_post_limit)},
    {MOE_FIELD(activation_up_offset), MOE_FIELD(is_gated)},
    {MOE_FIELD(has_gate_bias), MOE_FIELD(is_gated)},
    {MOE_FIELD(has_latent_norm), MOE_FIELD(latent)},
    {MOE_FIELD(latent_norm_eps), MOE_FIELD(has_latent_norm)},
    {MOE_FIELD(has_latent_in_norm), MOE_FIELD(latent)},
    {MOE_FIELD(latent_in_norm_eps), MOE_FIELD(has_latent_in_norm)},
    {MOE_FIELD(expert_norm_eps), MOE_FIELD(has_expert_norm)},
    {MOE_FIELD(expert_norm_weight_first), MOE_FIELD(has_expert_norm)},
    {MOE_FIELD(has_shared_expert_gate), MOE_FIELD(shared_intermediate)},
    {MOE_FIELD(has_shared_scale), MOE_FIELD(shared_intermediate)},
    {MOE_FIELD(shared_scale), MOE_FIELD(has_shared_scale)},
    {MOE_FIELD(shared_activation), MOE_FIELD(shared_intermediate)},
    {MOE_FIELD(shared_is_gated), MOE_FIELD(shared_intermediate)},
    {MOE_FIELD(has_shared_activation_alpha), MOE_FIELD(shared_intermediate)},
    {MOE_FIELD(shared_activation_alpha), MOE_FIELD(has_shared_activation_alpha)},
    {MOE_FIELD(shared_activation_up_offset), MOE_FIELD(shared_is_gated)},
    {MOE_FIELD(has_shared_gate_limit), MOE_FIELD(shared_intermediate)},
    {MOE_FIELD(shared_gate_limit), MOE_FIELD(has_shared_gate_limit)},
    {MOE_FIELD(has_shared_up_limit), MOE_FIELD(shared_is_gated)},
    {MOE_FIELD(shared_up_limit), MOE_FIELD(has_shared_up_limit)},
    {MOE_FIELD(has_shared_post_limit), MOE_FIELD(shared_intermediate)},
    {MOE_FIELD(shared_post_limit), MOE_FIELD(has_shared_post_limit)},
    {MOE_FIELD(shared_situ_beta), MOE_FIELD(shared_intermediate)},
    {MOE_FIELD(shared_situ_beta_up), MOE_FIELD(shared_intermediate)},
    {MOE_FIELD(combine), MOE_FIELD(shared_intermediate)},
};

void check_ranges(const moe_layer_desc& desc) {
    for (const RangeRule& rule : range_rules) {
        const int32_t value = integer_of(desc, rule.field);
        if (value % rule.multiple != 0 || (value < rule.low && rule.multiple > 1)) {
            fail(MOE_ERROR_INVALID_ARGUMENT, "{} is {}; it must be a {} multiple of {}",
                 rule.field.name, value, rule.low > 0 ? "positive" : "non-negative", rule.multiple);
        }
        require(value >= rule.low, "{} is {}; it must be at least {}", rule.field.name, value,
                rule.low);
        require(value <= rule.high, "{} is {}; it must be at most {}", rule.field.name, value,
                rule.high);
    }
}

void check_floats(const moe_layer_desc& desc) {
    for (const Field& field : floats) {
        expect(std::isfinite(float_of(desc, field)), desc, field, "it must be finite");
    }
    for (const Field& field : floats_not_negative) {
        expect(float_of(desc, field) >= 0.0f, desc, field, "it must not be negative");
    }
}

void check_needs(const moe_layer_desc& desc) {
    for (const NeedRule& rule : need_rules) {
        if (is_set(desc, rule.field) && !is_set(desc, rule.needs)) {
            refuse_beside(desc, rule.field, rule.needs);
        }
    }
}

void check_top_k(const moe_layer_desc& desc) {
    const int32_t n_experts_all = desc.n_experts + desc.n_identity_experts;
    require(desc.top_k >= 1 && desc.top_k <= std::min(64, n_experts_all),
            "top_k is {}; it must be 1 to {}", desc.top_k, std::min(64, n_experts_all));
    if (desc.n_identity_experts > 0) {
        expect_unset(desc, {MOE_FIELD(latent)}, MOE_FIELD(n_identity_experts));
    }
}

void check_groups(const moe_layer_desc& desc) {
    const int32_t n = desc.n_experts + desc.n_identity_experts;
    const int32_t n_group = std::max(desc.n_group, 1);
    require(n % n_group == 0, "n_group is {}; it must divide the {} experts", desc.n_group, n);
    require(desc.topk_group <= n_group, "topk_group is {}; there are {} groups", desc.topk_group,
            n_group);
    if (n_group == 1) return;
    const int32_t size = n / n_group;
    expect(desc.group_score != MOE_GROUP_SCORE_NONE, desc, MOE_FIELD(group_score),
           "it is required with groups");
    require(desc.group_score != MOE_GROUP_SCORE_TOP2_SUM || size >= 2,
            "group_score is {}, the sum of two keys; the groups have {} expert", 2, size);
    require(int64_t{desc.topk_group} * size >= desc.top_k,
            "topk_group is {}; that many groups of {} hold less than top_k = {} experts",
            desc.topk_group, size, desc.top_k);
}

bool has_groups(const moe_layer_desc& desc) {
    return desc.n_group > 1;
}

void check_sparsemixer(const moe_layer_desc& desc) {
    expect(desc.top_k == 2, desc, MOE_FIELD(top_k), "MOE_SELECT_SPARSEMIXER takes 2");
    expect_unset(desc,
                 {MOE_FIELD(score), MOE_FIELD(post_score), MOE_FIELD(has_selection_bias),
                  MOE_FIELD(hash_vocabulary)},
                 MOE_FIELD(selection));
    if (has_groups(desc)) refuse_beside(desc, MOE_FIELD(n_group), MOE_FIELD(selection));
}

void check_hash(const moe_layer_desc& desc) {
    expect(desc.hash_vocabulary > 0, desc, MOE_FIELD(hash_vocabulary),
           "MOE_SELECT_HASH needs the rows of its table");
    expect_unset(desc, {MOE_FIELD(sparsemixer_jitter), MOE_FIELD(has_selection_bias)},
                 MOE_FIELD(selection));
    if (has_groups(desc)) refuse_beside(desc, MOE_FIELD(n_group), MOE_FIELD(selection));
}

void check_selection(const moe_layer_desc& desc) {
    if (desc.selection == MOE_SELECT_SPARSEMIXER) return check_sparsemixer(desc);
    if (desc.selection == MOE_SELECT_HASH) return check_hash(desc);
    expect_unset(desc, {MOE_FIELD(sparsemixer_jitter), MOE_FIELD(hash_vocabulary)},
                 MOE_FIELD(selection));
}

void expect_positive(const moe_layer_desc& desc, const Field& flag, const Field& field) {
    if (is_set(desc, flag)) {
        expect(float_of(desc, field) > 0.0f, desc, field, "it must be positive");
    }
}

void check_activation(const moe_layer_desc& desc, const ActivationFields& fields) {
    const int32_t kind = integer_of(desc, fields.kind);
    const bool gated = is_set(desc, fields.is_gated);
    if (gated && kind == MOE_ACTIVATION_RELU2) refuse_beside(desc, fields.is_gated, fields.kind);
    if (!gated && kind == MOE_ACTIVATION_SITU) refuse_beside(desc, fields.is_gated, fields.kind);
    if (kind != MOE_ACTIVATION_SILU) {
        expect_unset(desc, {fields.has_alpha, fields.up_offset}, fields.kind);
    }
    if (kind == MOE_ACTIVATION_SITU) {
        expect_positive(desc, fields.kind, fields.situ_beta);
        expect_positive(desc, fields.kind, fields.situ_beta_up);
    } else {
        expect_unset(desc, {fields.situ_beta, fields.situ_beta_up}, fields.kind);
    }
    expect_positive(desc, fields.has_gate_limit, fields.gate_limit);
    expect_positive(desc, fields.has_up_limit, fields.up_limit);
    expect_positive(desc, fields.has_post_limit, fields.post_limit);
}

void check_shared(const moe_layer_desc& desc) {
    if (desc.shared_intermediate == 0) return;
    expect(desc.shared_activation != MOE_ACTIVATION_NONE, desc, MOE_FIELD(shared_activation),
           "it is required with a shared expert");
    check_activation(desc, shared_activation);
}

}  // namespace

void check_layer_rules(const moe_layer_desc& desc) {
    check_ranges(desc);
    check_floats(desc);
    check_needs(desc);
    check_top_k(desc);
    check_groups(desc);
    check_selection(desc);
    expect_positive(desc, MOE_FIELD(has_logit_softcap), MOE_FIELD(logit_softcap));
    check_activation(desc, routed_activation);
    check_shared(desc);
}

#undef MOE_FIELD

}  // namespace moe
