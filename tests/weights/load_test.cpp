// Loading: whatever form the tensors come in, the resident matrices and vectors hold exactly the
// elements of the plan's slice.
#include "libmoe/weights/load.hpp"

#include <gtest/gtest.h>

#include "libmoe/base/checked.hpp"
#include "libmoe/plan/plan.hpp"
#include "libmoe/weights/view.hpp"
#include "tests/weights/layers.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using moe_test::sized;
using moe_test::Weights;
using test::expert_at;
using test::LayerChoices;
using test::LayerTensors;
using test::make_plan;
using test::odd_experts;
using test::padded_and_by_table;
using test::plain_layer;
using test::PlanChoices;
using test::rich_layer;
using test::same_float;
using test::singles_of;
using test::three_rich_experts;

moe_status try_load(const Plan& plan, const std::vector<const moe_tensor*>& tensors, Weights& out,
                    moe_ownership ownership = MOE_OWN_COPY) {
    auto desc = sized<moe_weights_desc>();
    desc.ownership = ownership;
    desc.tensors = tensors.data();
    desc.n_tensors = static_cast<uint32_t>(tensors.size());
    moe_weights* weights = nullptr;
    const moe_status status = moe_weights_load(plan.get(), &desc, &weights);
    out.reset(weights);
    return status;
}

Weights loaded(const Plan& plan, const std::vector<const moe_tensor*>& tensors,
               moe_ownership ownership = MOE_OWN_COPY) {
    Weights weights;
    EXPECT_MOE_OK(try_load(plan, tensors, weights, ownership));
    return weights;
}

void expect_matrix(const moe_weights& weights, const LayerTensors& layer, moe_role role) {
    const WeightsLayout::Part part = weights.layout.part(role);
    const auto& matrices = weights.resident.matrices[role];
    const auto source = layer.values(role);
    ASSERT_EQ(static_cast<int64_t>(matrices.size()), weights.layout.count(role)) << role_name(role);
    for (size_t place = 0; place < matrices.size(); ++place) {
        const Matrix& matrix = matrices[place];
        ASSERT_EQ(matrix.rows, part.rows);
        ASSERT_EQ(matrix.columns, part.columns);
        const auto got = test::decode_all(matrix, *matrix.traits);
        const int64_t expert = expert_at(weights.layout, role, static_cast<int64_t>(place));
        for (int64_t r = 0; r < part.rows; ++r)
            for (int64_t k = 0; k < part.columns; ++k)
                ASSERT_TRUE(same_float(got[static_cast<size_t>(r * part.columns + k)],
                                       source.at(expert, part.row + r, part.column + k)))
                    << role_name(role) << " of expert " << expert << " [" << r << ", " << k << "]";
    }
}

void expect_vector(const moe_weights& weights, const LayerTensors& layer, moe_role role) {
    const WeightsLayout::Part part = weights.layout.part(role);
    const auto& vector = weights.resident.vectors[role];
    const auto source = layer.values(role);
    ASSERT_EQ(static_cast<int64_t>(vector.size()), weights.layout.count(role) * part.columns)
        << role_name(role);
    for (size_t i = 0; i < vector.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const int64_t expert = expert_at(weights.layout, role, at / part.columns);
        ASSERT_EQ(vector[i], source.at(expert, 0, part.column + at % part.columns))
            << role_name(role) << " of expert " << expert;
    }
}

// Every role is what the slice needs of it, and nothing more.
void expect_resident(const moe_weights& weights, const LayerTensors& layer) {
    int n_roles = 0;
    for (int i = 1; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (role == MOE_ROLE_HASH_TABLE) continue;
        if (!weights.layout.needs(role)) {
            EXPECT_TRUE(weights.resident.matrices[role].empty()) << role_name(role);
            EXPECT_TRUE(weights.resident.vectors[role].empty()) << role_name(role);
            continue;
        }
        ++n_roles;
        if (is_matrix_role(role))
            ASSERT_NO_FATAL_FAILURE(expect_matrix(weights, layer, role));
        else
            ASSERT_NO_FATAL_FAILURE(expect_vector(weights, layer, role));
    }
    EXPECT_GT(n_roles, 0);
}

void expect_loads(const LayerTensors& layer, const PlanChoices& choices = {}) {
    const Plan plan = make_plan(layer, choices);
    ASSERT_TRUE(plan);
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW}) {
        const Weights weights = loaded(plan, layer.tensors, ownership);
        ASSERT_TRUE(weights);
        ASSERT_NO_FATAL_FAILURE(expect_resident(*weights, layer)) << "ownership " << ownership;
    }
}

moe_layer_desc latent_layer() {
    moe_layer_desc desc = plain_layer(64, 48, 4, 2);
    desc.latent = 32;
    desc.has_latent_norm = 1;
    desc.latent_norm_eps = 1e-5f;
    return desc;
}

TEST(Load, StacksInEveryFormat) {
    for (const FormatTraits& traits : all_formats()) {
        SCOPED_TRACE(traits.name);
        const LayerChoices choices = padded_and_by_table(traits.name);
        ASSERT_NO_FATAL_FAILURE(expect_loads(LayerTensors(three_rich_experts(), choices)));
    }
}

TEST(Load, ExpertByExpertInAnyOrder) {
    const LayerTensors layer(rich_layer(), {.everywhere = "nvfp4"});
    const std::vector<moe_tensor> singles = singles_of(layer);
    std::vector<const moe_tensor*> tensors;
    for (const moe_tensor& tensor : singles) tensors.push_back(&tensor);
    std::reverse(tensors.begin(), tensors.end());
    const Plan plan = make_plan(layer);
    const Weights weights = loaded(plan, tensors);
    ASSERT_TRUE(weights);
    expect_resident(*weights, layer);
}

TEST(Load, FusedInEveryOrderAndOrientation) {
    for (const auto order : {MOE_GATE_UP_GATE_FIRST, MOE_GATE_UP_UP_FIRST, MOE_GATE_UP_INTERLEAVED})
        for (const char* format :
             {"bf16", "f32", "mxfp4", "nvfp4", "q8_0", "q4_k", "kbit4", "fp8_128x128",
              "fp8_per_tensor", "fp8_per_32_columns", "int8_per_tensor", "int8_per_64_columns"})
            for (const bool transposed : {false, true}) {
                const FormatTraits& traits = test::format_named(format);
                if (transposed && !is_plain(traits.format)) continue;
                if (order == MOE_GATE_UP_INTERLEAVED && traits.format.group_rows > 1) continue;
                SCOPED_TRACE(std::string(format) + " order " + std::to_string(order));
                LayerChoices choices{.everywhere = format, .fused = order};
                choices.placings[MOE_ROLE_GATE_UP] = {.expert_padding = 32,
                                                      .transposed = transposed};
                choices.placings[MOE_ROLE_SHARED_GATE_UP] = {.transposed = transposed};
                const LayerTensors layer(three_rich_experts(), choices);
                ASSERT_TRUE(layer.has(MOE_ROLE_GATE_UP_BIAS));
                ASSERT_NO_FATAL_FAILURE(expect_loads(layer));
            }
}

// The second half of a fused matrix begins inside a group of 128 rows: its copy needs one more row
// of scales than a half alone.
TEST(Load, FusedHalvesThatShareARowOfScales) {
    for (const int32_t intermediate : {96, 80, 160, 352}) {
        moe_layer_desc desc = rich_layer(2048, intermediate);
        desc.shared_intermediate = intermediate;
        desc.n_experts = 3;
        for (const auto order : {MOE_GATE_UP_GATE_FIRST, MOE_GATE_UP_UP_FIRST}) {
            SCOPED_TRACE(intermediate);
            const LayerTensors layer(desc, {.everywhere = "fp8_128x128", .fused = order});
            ASSERT_NO_FATAL_FAILURE(expect_loads(layer));
            auto slice = sized<moe_slice>();
            slice.has_intermediate_range = slice.has_shared_range = 1;
            slice.intermediate_begin = slice.shared_begin = 32;
            slice.intermediate_count = slice.shared_count = 48;
            ASSERT_NO_FATAL_FAILURE(expect_loads(layer, {.slice = &slice}));
        }
    }
}

TEST(Load, EachMatrixMayHaveItsOwnFormat) {
    LayerChoices choices{.everywhere = "bf16"};
    choices.formats = {{MOE_ROLE_GATE, "kbit3"},        {MOE_ROLE_UP, "fp8_128x128"},
                       {MOE_ROLE_DOWN, "q4_k"},         {MOE_ROLE_ROUTER, "f32"},
                       {MOE_ROLE_SHARED_DOWN, "mxfp4"}, {MOE_ROLE_GATE_BIAS, "bf16"},
                       {MOE_ROLE_DOWN_BIAS, "f16"},     {MOE_ROLE_ROUTER_NORM, "bf16"}};
    ASSERT_NO_FATAL_FAILURE(expect_loads(LayerTensors(rich_layer(), choices)));
    ASSERT_NO_FATAL_FAILURE(expect_loads(LayerTensors(latent_layer(), {.everywhere = "f16"})));
}

TEST(Load, SlicesOfExperts) {
    auto range = sized<moe_slice>();
    range.has_expert_range = 1;
    range.expert_begin = 2;
    range.expert_count = 2;
    const std::vector<int32_t> odd{-1, 0, -1, 1, -1}, turned{1, -1, 2, -1, 0};
    const moe_slice by_map = odd_experts(odd), by_turned_map = odd_experts(turned);
    for (const moe_slice* slice :
         std::initializer_list<const moe_slice*>{&range, &by_map, &by_turned_map})
        for (const auto order : {MOE_GATE_UP_NONE, MOE_GATE_UP_INTERLEAVED}) {
            const LayerTensors layer(rich_layer(), {.everywhere = "mxfp4", .fused = order});
            ASSERT_NO_FATAL_FAILURE(expect_loads(layer, {.slice = slice}));
        }
}

TEST(Load, SlicesOfFeaturesInEveryFormat) {
    for (const FormatTraits& traits : all_formats()) {
        SCOPED_TRACE(traits.name);
        const int32_t step = std::max(16, traits.block_columns);
        auto slice = sized<moe_slice>();
        slice.has_intermediate_range = slice.has_shared_range = 1;
        slice.intermediate_begin = step;
        slice.intermediate_count = 512 - step;
        slice.shared_begin = 256 - std::min(step, 128);
        slice.shared_count = std::min(step, 128);
        moe_layer_desc desc = three_rich_experts();
        if (step > 128) desc.shared_intermediate = 0, desc.shared_is_gated = 0;
        if (step > 128)
            desc.shared_activation = MOE_ACTIVATION_NONE, desc.has_shared_expert_gate = 0;
        if (step > 128) slice.has_shared_range = slice.shared_begin = slice.shared_count = 0;
        for (const auto order : {MOE_GATE_UP_NONE, MOE_GATE_UP_UP_FIRST}) {
            const LayerTensors layer(desc, {.everywhere = traits.name, .fused = order});
            ASSERT_NO_FATAL_FAILURE(expect_loads(layer, {.slice = &slice}));
        }
    }
}

TEST(Load, StagesTakeTheirTensorsOnly) {
    for (const uint32_t stages : {1u, 4u, 8u, 16u, 5u, 20u}) {
        SCOPED_TRACE(stages);
        const LayerTensors layer(rich_layer());
        ASSERT_NO_FATAL_FAILURE(expect_loads(layer, {.stages = stages | MOE_STAGE_ROUTE}));
        if (!(stages & (MOE_STAGE_ROUTE | MOE_STAGE_EXPERTS | MOE_STAGE_FINISH))) continue;
        ASSERT_NO_FATAL_FAILURE(expect_loads(layer, {.stages = stages}));
        // What other stages need may be absent.
        const Plan plan = make_plan(layer, {.stages = stages});
        std::vector<const moe_tensor*> needed;
        for (const moe_tensor* tensor : layer.tensors)
            if (plan->layout.needs(tensor->role)) needed.push_back(tensor);
        EXPECT_LT(needed.size(), layer.tensors.size());
        const Weights weights = loaded(plan, needed);
        ASSERT_TRUE(weights);
        ASSERT_NO_FATAL_FAILURE(expect_resident(*weights, layer));
    }
}

// Absent experts and roles are never touched: their pointers may lead nowhere.
TEST(Load, ReadsNothingOfAbsentExperts) {
    LayerChoices choices{.everywhere = "bf16"};
    for (const auto role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
        choices.placings[role] = {.by_table = true};
    LayerTensors layer(rich_layer(), choices);
    const std::vector<int32_t> odd{-1, 0, -1, 1, -1};
    const moe_slice slice = odd_experts(odd);
    std::vector<std::vector<const void*>> tables;
    for (const auto role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN}) {
        moe_tensor& tensor = layer.stack(role).tensor;
        auto& table = tables.emplace_back(tensor.data_per_expert, tensor.data_per_expert + 5);
        for (const size_t e : {0, 2, 4}) table[e] = nullptr;
        tensor.data_per_expert = table.data();
    }
    expect_loads(layer, {.slice = &slice});
}

TEST(Load, CopiesStandAlone) {
    moe_format kbit = test::format_named("kbit4").format;
    kbit.codebook = MOE_CODEBOOK_GIVEN;
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_CALLER}) {
        moe_layer_desc desc = plain_layer(64, 64, 2, 1);
        desc.has_down_bias = 1;
        LayerTensors layer(desc, {.everywhere = "nvfp4"});
        test::TensorStack up(get_format(kbit, "up"), 2, 64, 64);
        up.tensor.role = MOE_ROLE_UP;
        layer.formats[MOE_ROLE_UP] = &up.format();
        std::vector<const moe_tensor*> tensors{&up.tensor};
        for (const moe_tensor* tensor : layer.tensors)
            if (tensor->role != MOE_ROLE_UP) tensors.push_back(tensor);
        const Plan plan = make_plan(layer);
        auto weights_desc = sized<moe_weights_desc>();
        uint64_t bytes = 0;
        ASSERT_MOE_OK(moe_weights_size(plan.get(), &weights_desc, &bytes));
        std::vector<std::byte> memory(bytes + 128, std::byte{0xC5});
        auto* aligned =
            reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uintptr_t>(memory.data()), 64));
        weights_desc.ownership = ownership;
        weights_desc.tensors = tensors.data();
        weights_desc.n_tensors = static_cast<uint32_t>(tensors.size());
        weights_desc.memory = aligned;
        weights_desc.memory_bytes = bytes;
        moe_weights* raw = nullptr;
        ASSERT_MOE_OK(moe_weights_load(plan.get(), &weights_desc, &raw));
        const Weights weights(raw);
        up.scribble();
        for (const moe_tensor* tensor : layer.tensors) layer.stack(tensor->role).scribble();
        for (const auto role : {MOE_ROLE_ROUTER, MOE_ROLE_GATE, MOE_ROLE_DOWN})
            ASSERT_NO_FATAL_FAILURE(expect_matrix(*weights, layer, role));
        ASSERT_NO_FATAL_FAILURE(expect_vector(*weights, layer, MOE_ROLE_DOWN_BIAS));
        for (int64_t e = 0; e < 2; ++e) {
            const Matrix& matrix = weights->resident.matrix(MOE_ROLE_UP, e);
            EXPECT_EQ(test::decode_all(matrix, *matrix.traits), up.values(e))
                << "the codebook is not kept";
        }
        EXPECT_EQ(weights->codebooks.size(), 1u) << "equal codebooks are kept once";
        EXPECT_EQ(aligned[bytes], std::byte{0xC5});
    }
}

TEST(Load, CallersMemoryMustBeEnoughAndAligned) {
    const LayerTensors layer(plain_layer(64, 64, 2, 1));
    const Plan plan = make_plan(layer);
    auto desc = sized<moe_weights_desc>();
    desc.ownership = MOE_OWN_CALLER;
    desc.tensors = layer.tensors.data();
    desc.n_tensors = static_cast<uint32_t>(layer.tensors.size());
    uint64_t bytes = 0;
    ASSERT_MOE_OK(moe_weights_size(plan.get(), &desc, &bytes));
    moe_weights* weights = nullptr;
    EXPECT_MOE_ERROR(moe_weights_load(plan.get(), &desc, &weights), MOE_ERROR_INVALID_ARGUMENT,
                     "memory is NULL");
    std::vector<std::byte> memory(bytes + 128);
    auto* aligned =
        reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uintptr_t>(memory.data()), 64));
    desc.memory = aligned + 8;
    desc.memory_bytes = bytes;
    EXPECT_MOE_ERROR(moe_weights_load(plan.get(), &desc, &weights), MOE_ERROR_INVALID_ARGUMENT,
                     "aligned to 64");
    desc.memory = aligned;
    desc.memory_bytes = bytes - 1;
    EXPECT_MOE_ERROR(moe_weights_load(plan.get(), &desc, &weights), MOE_ERROR_INVALID_ARGUMENT,
                     std::to_string(bytes));
    EXPECT_EQ(weights, nullptr);
}

TEST(Load, MissingDoubleAndMisshapenTensorsAreNamed) {
    LayerTensors layer(rich_layer());
    const Plan plan = make_plan(layer);
    Weights weights;
    for (size_t i = 0; i < layer.tensors.size(); ++i) {
        auto tensors = layer.tensors;
        const std::string name = role_name(tensors[i]->role);
        tensors.push_back(tensors[i]);
        EXPECT_MOE_ERROR(try_load(plan, tensors, weights), MOE_ERROR_INVALID_ARGUMENT, name);
        tensors.pop_back();
        moe_tensor wide = *tensors[i];
        wide.columns += 32;
        tensors[i] = &wide;
        EXPECT_MOE_ERROR(try_load(plan, tensors, weights), MOE_ERROR_INVALID_ARGUMENT,
                         name + ": shape is");
        tensors.erase(tensors.begin() + static_cast<int64_t>(i));
        EXPECT_MOE_ERROR(try_load(plan, tensors, weights), MOE_ERROR_NOT_FOUND, "tensor " + name);
    }
    const moe_tensor three = layer.stack(MOE_ROLE_UP).single(3);
    auto tensors = layer.tensors;
    tensors.push_back(&three);
    EXPECT_MOE_ERROR(try_load(plan, tensors, weights), MOE_ERROR_INVALID_ARGUMENT,
                     "tensor up of expert 3 is given twice");
    const LayerTensors other(rich_layer(), {.everywhere = "f16"});
    EXPECT_MOE_ERROR(try_load(plan, other.tensors, weights), MOE_ERROR_LAYOUT_MISMATCH, "f16");
}

moe_memory_report report_of(const Weights& weights) {
    auto report = sized<moe_memory_report>();
    EXPECT_MOE_OK(moe_weights_memory(weights.get(), &report));
    return report;
}

TEST(Load, MemoryReportCountsTheSlice) {
    const LayerTensors layer(rich_layer(), {.everywhere = "bf16"});
    const std::vector<int32_t> odd{-1, 0, -1, 1, -1};
    moe_slice slice = odd_experts(odd);
    slice.has_intermediate_range = 1;
    slice.intermediate_begin = 128;
    slice.intermediate_count = 256;
    const Plan whole_plan = make_plan(layer), part_plan = make_plan(layer, {.slice = &slice});
    const auto whole = report_of(loaded(whole_plan, layer.tensors));
    const auto part = report_of(loaded(part_plan, layer.tensors));
    const auto borrowed = report_of(loaded(whole_plan, layer.tensors, MOE_OWN_BORROW));
    EXPECT_EQ(whole.n_local_experts, 5u);
    EXPECT_EQ(part.n_local_experts, 2u);
    EXPECT_EQ(whole.role_bytes[MOE_ROLE_GATE], 5u * 512 * 256 * 2);
    EXPECT_EQ(part.role_bytes[MOE_ROLE_GATE], 2u * 256 * 256 * 2);
    EXPECT_EQ(part.role_bytes[MOE_ROLE_DOWN], 2u * 256 * 256 * 2);
    EXPECT_EQ(part.role_bytes[MOE_ROLE_GATE_BIAS], 2u * 256 * 4);
    EXPECT_EQ(part.role_bytes[MOE_ROLE_DOWN_BIAS], 5u * 256 * 4)
        << "finish adds it for every expert";
    EXPECT_EQ(part.role_bytes[MOE_ROLE_SHARED_UP], whole.role_bytes[MOE_ROLE_SHARED_UP]);
    for (const auto* report : {&whole, &part}) {
        uint64_t sum = 0;
        for (const uint64_t bytes : report->role_bytes) sum += bytes;
        EXPECT_EQ(report->host_bytes, sum);
        EXPECT_EQ(report->borrowed_bytes + report->device_bytes + report->pinned_bytes, 0u);
        EXPECT_GT(report->bookkeeping_bytes, 0u);
    }
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) EXPECT_EQ(borrowed.role_bytes[i], whole.role_bytes[i]);
    EXPECT_EQ(borrowed.host_bytes + borrowed.borrowed_bytes, whole.host_bytes);
    EXPECT_LT(borrowed.host_bytes, borrowed.borrowed_bytes / 20) << "vectors only";
}

// [vocabulary 6, top_k 2]
template <class T>
moe_tensor hash_tensor(const std::vector<T>& table, const moe_format& format) {
    auto tensor = sized<moe_tensor>();
    tensor.role = MOE_ROLE_HASH_TABLE;
    tensor.format = &format;
    tensor.rows = 6;
    tensor.columns = 2;
    tensor.data = table.data();
    tensor.data_bytes = table.size() * sizeof(T);
    return tensor;
}

template <class T>
void check_hash_table(moe_type type) {
    moe_layer_desc desc = plain_layer(64, 48, 4, 2);
    desc.selection = MOE_SELECT_HASH;
    desc.hash_vocabulary = 6;
    const LayerTensors layer(desc);
    const Plan plan = make_plan(layer);
    ASSERT_TRUE(plan);
    auto format = sized<moe_format>();
    format.type = type;
    std::vector<T> table{0, 1, 2, 3, 3, 0, 1, 2, 2, 0, 3, 1};
    moe_tensor tensor = hash_tensor(table, format);
    auto tensors = layer.tensors;
    tensors.push_back(&tensor);
    Weights weights = loaded(plan, tensors);
    ASSERT_TRUE(weights);
    EXPECT_TRUE(std::equal(table.begin(), table.end(), weights->resident.hash_table.begin(),
                           weights->resident.hash_table.end()));
    EXPECT_EQ(report_of(weights).role_bytes[MOE_ROLE_HASH_TABLE], 12u * 4);
    const auto before = weights->resident.hash_table;
    for (const T bad :
         {T{4}, T{-1}, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()}) {
        table[7] = bad;
        const std::string names_it = "entry 7 is " + std::to_string(bad);
        table[0] = 3;
        EXPECT_MOE_ERROR(moe_weights_update(weights.get(), &tensor, nullptr),
                         MOE_ERROR_INVALID_ARGUMENT, names_it);
        EXPECT_EQ(weights->resident.hash_table, before) << "a refused update changes nothing";
        Weights none;
        EXPECT_MOE_ERROR(try_load(plan, tensors, none), MOE_ERROR_INVALID_ARGUMENT, names_it);
        table[7] = table[0] = 0;
    }
    EXPECT_MOE_OK(moe_weights_update(weights.get(), &tensor, nullptr));
    EXPECT_EQ(weights->resident.hash_table[7], 0);
    tensor.data_bytes -= 1;
    EXPECT_MOE_ERROR(try_load(plan, tensors, weights), MOE_ERROR_INVALID_ARGUMENT,
                     "hash_table: data has");
    tensor.data_bytes += 1;
    format.type = MOE_TYPE_F32;
    EXPECT_MOE_ERROR(try_load(plan, tensors, weights), MOE_ERROR_INVALID_ARGUMENT,
                     "hash_table: type is f32");
    tensors.pop_back();
    EXPECT_MOE_ERROR(try_load(plan, tensors, weights), MOE_ERROR_NOT_FOUND, "hash_table");
}

TEST(Load, HashTablesOf32And64Bits) {
    check_hash_table<int32_t>(MOE_TYPE_I32);
    check_hash_table<int64_t>(MOE_TYPE_I64);
}

TEST(Load, HashTablesRefuseWhatTheyHaveNoUseFor) {
    moe_layer_desc desc = plain_layer(64, 48, 4, 2);
    desc.selection = MOE_SELECT_HASH;
    desc.hash_vocabulary = 6;
    const LayerTensors layer(desc);
    const Plan plan = make_plan(layer);
    const std::vector<int32_t> table{0, 1, 2, 3, 3, 0, 1, 2, 2, 0, 3, 1};
    const float floats[16] = {};
    const void* const pointers[4] = {table.data(), table.data(), table.data(), table.data()};
    const auto refuse = [&](const char* text, const auto& give, moe_status status) {
        auto format = sized<moe_format>();
        format.type = MOE_TYPE_I32;
        moe_tensor tensor = hash_tensor(table, format);
        auto tensors = layer.tensors;
        tensors.push_back(&tensor);
        Weights weights = loaded(plan, tensors);
        give(tensor, format);
        EXPECT_MOE_ERROR(moe_weights_update(weights.get(), &tensor, nullptr), status, text);
        EXPECT_MOE_ERROR(try_load(plan, tensors, weights), status, text);
    };
    const auto bad = [&](const char* text, const auto& give) {
        refuse(text, give, MOE_ERROR_INVALID_ARGUMENT);
    };
    bad("hash_table: orientation is 1",
        [](auto& t, auto&) { t.orientation = MOE_ORIENTATION_IN_OUT; });
    bad("hash_table: data and data_per_expert",
        [&](auto& t, auto&) { t.data_per_expert = pointers; });
    bad("hash_table: gate_up_order is 1",
        [](auto& t, auto&) { t.gate_up_order = MOE_GATE_UP_GATE_FIRST; });
    bad("hash_table: scales is given", [&](auto& t, auto&) { t.scales = floats; });
    bad("hash_table: scales_per_expert is given",
        [&](auto& t, auto&) { t.scales_per_expert = pointers; });
    bad("hash_table: global_scale is given", [&](auto& t, auto&) { t.global_scale = floats; });
    bad("hash_table: codebook is given", [&](auto& t, auto&) { t.codebook = floats; });
    bad("hash_table: permutation is given", [&](auto& t, auto&) { t.permutation = table.data(); });
    bad("hash_table: the format is", [&](auto& t, auto& format) {
        format.scale_type = MOE_TYPE_F32;
        t.scales = floats;
    });
    refuse(
        "hash_table: scale_layout",
        [](auto& t, auto&) { t.scale_layout = MOE_SCALE_LAYOUT_TILED_128X4; },
        MOE_ERROR_UNSUPPORTED);
}

TEST(Load, UpdateReplacesOneExpert) {
    const LayerTensors before(rich_layer(), {.everywhere = "nvfp4", .seed = 1});
    const LayerTensors after(rich_layer(), {.everywhere = "nvfp4", .seed = 2});
    const Plan plan = make_plan(before);
    const Weights weights = loaded(plan, before.tensors);
    const moe_tensor tensor = after.stack(MOE_ROLE_DOWN).single(3);
    ASSERT_MOE_OK(moe_weights_update(weights.get(), &tensor, nullptr));
    for (int64_t e = 0; e < 5; ++e) {
        const Matrix& matrix = weights->resident.matrix(MOE_ROLE_DOWN, e);
        EXPECT_EQ(test::decode_all(matrix, *matrix.traits),
                  (e == 3 ? after : before).stack(MOE_ROLE_DOWN).values(e));
    }
    EXPECT_NE(before.stack(MOE_ROLE_DOWN).values(3), after.stack(MOE_ROLE_DOWN).values(3));
}

struct Progress {
    std::vector<uint64_t> done;
    uint64_t total = 0;
    size_t stop_after = SIZE_MAX;
};

int32_t on_progress(uint64_t done, uint64_t total, void* user_data) {
    auto& progress = *static_cast<Progress*>(user_data);
    progress.done.push_back(done);
    progress.total = total;
    return progress.done.size() >= progress.stop_after;
}

TEST(Load, ProgressEndsAtTheTotalAndMayCancel) {
    const LayerTensors layer(rich_layer());
    const Plan plan = make_plan(layer);
    Progress progress;
    auto desc = sized<moe_weights_desc>();
    desc.tensors = layer.tensors.data();
    desc.n_tensors = static_cast<uint32_t>(layer.tensors.size());
    desc.progress = on_progress;
    desc.progress_user_data = &progress;
    moe_weights* raw = nullptr;
    ASSERT_MOE_OK(moe_weights_load(plan.get(), &desc, &raw));
    const Weights weights(raw);
    uint64_t bytes = 0;
    ASSERT_MOE_OK(moe_weights_size(plan.get(), &desc, &bytes));
    EXPECT_EQ(progress.total, bytes);
    EXPECT_EQ(progress.done.back(), bytes);
    EXPECT_TRUE(std::is_sorted(progress.done.begin(), progress.done.end()));
    progress = {{}, 0, 3};
    raw = nullptr;
    EXPECT_MOE_ERROR(moe_weights_load(plan.get(), &desc, &raw), MOE_ERROR_CANCELLED, "cancelled");
    EXPECT_EQ(progress.done.size(), 3u);
    EXPECT_EQ(raw, nullptr);
}

}  // namespace
}  // namespace moe
