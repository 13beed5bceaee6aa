// Scales in tiles of 128 x 4: whatever is made of such a tensor (views, parts, halves, copies,
// packed weights, the output of a layer) is what linear scales give, bit for bit; and what cannot
// have them is refused.
#include <gtest/gtest.h>

#include <list>

#include "libmoe/base/error.hpp"
#include "libmoe/formats/scale_tiles.hpp"
#include "libmoe/weights/matrix_copy.hpp"
#include "libmoe/weights/matrix_extent.hpp"
#include "libmoe/weights/view.hpp"
#include "tests/formats/sources.hpp"
#include "tests/formats/tiles.hpp"
#include "tests/packed/packing.hpp"
#include "tests/weights/host_block.hpp"
#include "tests/weights/layers.hpp"
#include "tests/weights/parts.hpp"
#include "tests/weights/refusal.hpp"

namespace moe {
namespace {

using moe_test::sized;
using moe_test::Weights;
using moe_test::Workspace;
using test::LayerTensors;
using test::Random;
using test::random_range;
using test::Range;
using test::Stored;
using Bytes = std::vector<std::byte>;

const FormatTraits& mxfp8() {
    static const FormatTraits traits = [] {
        moe_format format = format_of(MOE_TYPE_F8_E4M3);
        format.group_rows = 1;
        format.group_columns = 32;
        format.scale_type = MOE_TYPE_F8_E8M0;
        FormatTraits own = get_format(format, "mxfp8");
        own.format = format;
        return own;
    }();
    return traits;
}

std::vector<const FormatTraits*> tiled_formats() {
    return {find_format("nvfp4"), find_format("mxfp4"),        &mxfp8(),
            &nvfp4_divide_format, &nvfp4_pre_quant_formats[0], &nvfp4_pre_quant_formats[1]};
}

std::string name_of_traits(const FormatTraits& traits) {
    return format_name(traits.format).text;
}

// Experts of random codes and scales, once with linear scales and once with tiled ones. Either
// buffer has exactly the bytes that its tensor says.
struct Twins {
    Twins(const FormatTraits& traits, int64_t n_experts, int64_t rows, int64_t columns) {
        for (int64_t e = 0; e < n_experts; ++e) {
            const Stored one = test::make(traits, rows, columns, static_cast<uint64_t>(e) + 1);
            const int64_t groups = columns / traits.format.group_columns;
            const Bytes tiles =
                test::tiles_of(one.scales.data(), rows, groups, static_cast<uint64_t>(e));
            data.insert(data.end(), one.data.begin(), one.data.end());
            scales.insert(scales.end(), one.scales.begin(), one.scales.end());
            tiled_scales.insert(tiled_scales.end(), tiles.begin(), tiles.end());
        }
        pre_quant_scale = test::gaussian(columns, 5);
        linear.expert = MOE_ALL_EXPERTS;
        linear.n_experts = n_experts;
        linear.format = &traits.format;
        linear.rows = rows;
        linear.columns = columns;
        linear.data = data.data();
        linear.data_bytes = data.size();
        if (traits.format.global_scale != MOE_GLOBAL_SCALE_NONE) {
            linear.global_scale = &global_scale;
            linear.n_global_scales = 1;
        }
        if (traits.format.pre_quant_scale) {
            linear.pre_quant_scale = pre_quant_scale.data();
            linear.pre_quant_scale_bytes = pre_quant_scale.size() * sizeof(float);
        }
        tiled = linear;
        linear.scales = scales.data();
        linear.scale_bytes = scales.size();
        tiled.scale_layout = MOE_SCALE_LAYOUT_TILED_128X4;
        tiled.scales = tiled_scales.data();
        tiled.scale_bytes = tiled_scales.size();
    }
    Twins(const Twins&) = delete;  // the tensors point into it
    Twins& operator=(const Twins&) = delete;

    Bytes data, scales, tiled_scales;
    std::vector<float> pre_quant_scale;
    float global_scale = 0.0371f;
    moe_tensor linear = sized<moe_tensor>(), tiled = sized<moe_tensor>();
};

void expect_same_matrix(const Matrix& tiled, const Matrix& linear, const std::string& what) {
    const auto got = test::decode_all(tiled, *tiled.traits);
    const auto wanted = test::decode_all(linear, *linear.traits);
    size_t nonzero = 0;
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(test::same_float(got[i], wanted[i])) << what << ": element " << i;
        nonzero += wanted[i] != 0;
    }
    // The few elements of a small part may share a scale of zero.
    const size_t least = got.size() < 512 ? 0 : got.size() / 2;
    ASSERT_GE(nonzero, least) << what << ": zeros prove nothing";
}

uint64_t copied_bytes(const Matrix& part) {
    return copy_bytes(part.format, part.scale_row_phase, part.rows, part.scale_column_phase,
                      part.columns);
}

Bytes copied(const Matrix& part) {
    Bytes memory(copied_bytes(part));
    const Matrix copy = copy_part(part, memory.data());
    EXPECT_EQ(copy.tiled.row_step, 0) << "copies have linear scales";
    return memory;
}

// With a buffer of the extent alone in the place of the scales, as one fetched from a device.
Matrix with_own_scales(Matrix matrix, Bytes& own) {
    const uint64_t bytes = extent_of(matrix).scales;
    own = Bytes(matrix.scales, matrix.scales + bytes);
    matrix.scales = own.data();
    return matrix;
}

void check_tiled_part(const Matrix& tiled, const Matrix& linear, const std::string& what) {
    ASSERT_NO_FATAL_FAILURE(expect_same_matrix(tiled, linear, what));
    EXPECT_EQ(copied(tiled), copied(linear)) << what;
    Bytes own;
    ASSERT_NO_FATAL_FAILURE(
        expect_same_matrix(with_own_scales(tiled, own), linear, what + " of its extent alone"));
}

void check_tiled_parts(const Matrix& tiled, const Matrix& linear, const std::string& what) {
    ASSERT_NO_FATAL_FAILURE(check_tiled_part(tiled, linear, what));
    Random random(17);
    for (int i = 0; i < 12; ++i) {
        const Range one = random_range(random, linear);
        const Matrix t = part_of(tiled, one.row, one.rows, one.column, one.columns);
        const Matrix l = part_of(linear, one.row, one.rows, one.column, one.columns);
        const std::string name = what + " part [" + std::to_string(one.row) + " +" +
                                 std::to_string(one.rows) + ", " + std::to_string(one.column) +
                                 " +" + std::to_string(one.columns) + "]";
        ASSERT_NO_FATAL_FAILURE(check_tiled_part(t, l, name));
        const Range two = random_range(random, l);
        ASSERT_NO_FATAL_FAILURE(check_tiled_part(
            part_of(t, two.row, two.rows, two.column, two.columns),
            part_of(l, two.row, two.rows, two.column, two.columns), name + " of which a part"));
    }
}

constexpr std::pair<int64_t, int64_t> shapes[] = {
    {1, 32}, {127, 96}, {300, 160}, {128, 128}, {130, 2880}};

TEST(TiledScales, ViewsPartsAndCopiesAreThoseOfLinearOnes) {
    for (const FormatTraits* traits : tiled_formats())
        for (const auto& [rows, columns] : shapes) {
            const Twins twins(*traits, 3, rows, columns);
            for (int64_t e = 0; e < 3; ++e) {
                const std::string what = name_of_traits(*traits) + " " + std::to_string(rows) +
                                         " x " + std::to_string(columns) + " expert " +
                                         std::to_string(e);
                ASSERT_NO_FATAL_FAILURE(check_tiled_parts(
                    view_of(twins.tiled, e, "tensor"), view_of(twins.linear, e, "tensor"), what));
            }
        }
}

TEST(TiledScales, HalvesOfFusedMatricesToo) {
    for (const FormatTraits* traits : tiled_formats())
        for (const int64_t half_rows : {80, 128, 129}) {
            const Twins twins(*traits, 2, 2 * half_rows, 160);
            const Matrix tiled = view_of(twins.tiled, 1, "tensor");
            const Matrix linear = view_of(twins.linear, 1, "tensor");
            for (const auto order :
                 {MOE_GATE_UP_GATE_FIRST, MOE_GATE_UP_UP_FIRST, MOE_GATE_UP_INTERLEAVED})
                for (const auto half : {GateUpHalf::gate, GateUpHalf::up})
                    ASSERT_NO_FATAL_FAILURE(check_tiled_parts(
                        gate_up_half(tiled, order, half), gate_up_half(linear, order, half),
                        name_of_traits(*traits) + " order " + std::to_string(order)));
        }
}

TEST(TiledScales, PackToTheSameBytes) {
    for (const FormatTraits* traits : tiled_formats()) {
        for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{16, 32}, {304, 2880}}) {
            const Twins twins(*traits, 2, rows, columns);
            const Matrix tiled = view_of(twins.tiled, 1, "tensor");
            const Matrix linear = view_of(twins.linear, 1, "tensor");
            const auto check = [&](const Matrix& t, const Matrix& l) {
                const auto got = test::packed(t), wanted = test::packed(l);
                EXPECT_EQ(got.bytes, wanted.bytes) << name_of_traits(*traits);
                EXPECT_EQ(got.global, wanted.global) << name_of_traits(*traits);
                ASSERT_NO_FATAL_FAILURE(
                    test::expect_values(test::unpacked(got, t), l, name_of_traits(*traits)));
            };
            ASSERT_NO_FATAL_FAILURE(check(tiled, linear));
            if (rows == 16) continue;
            ASSERT_NO_FATAL_FAILURE(
                check(part_of(tiled, 115, 160, 96, 1280), part_of(linear, 115, 160, 96, 1280)));
        }
    }
}

// All six; a test of none would pass.
TEST(TiledScales, AllHaveAPackedForm) {
    ASSERT_EQ(tiled_formats().size(), 6u);
    for (const FormatTraits* traits : tiled_formats())
        EXPECT_NE(packed_type_of(traits->format), PackedType::none) << name_of_traits(*traits);
}

TEST(TiledScales, NanScalesAreNamedByTheirPlace) {
    Twins twins(*find_format("nvfp4"), 1, 144, 160);
    twins.scales[131 * 10 + 6] = std::byte{0x7F};
    const Bytes tiles = test::tiles_of(twins.scales.data(), 144, 10);
    twins.tiled.scales = tiles.data();
    try {
        test::packed(view_of(twins.tiled, 0, "tensor"));
        FAIL() << "no error";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("row 131, column 96 is NaN"), std::string::npos)
            << error.what();
    }
}

// Every matrix of a layer with its scales in tiles; stacked, or one pointer per expert.
struct TiledLayer {
    TiledLayer(const LayerTensors& layer, bool by_table, int64_t padding = 0) {
        for (const moe_tensor* tensor : layer.tensors) {
            moe_tensor& own = copies.emplace_back(*tensor);
            if (tensor->format->scale_type == MOE_TYPE_NONE) continue;
            own.scale_layout = MOE_SCALE_LAYOUT_TILED_128X4;
            own.scale_expert_stride = 0;
            Bytes& all = scales.emplace_back();
            auto& table = tables.emplace_back();
            const int64_t n = std::max<int64_t>(tensor->n_experts, 1);
            for (int64_t e = 0; e < n; ++e) {
                const moe_tensor one = layer.stack(tensor->role).single(static_cast<int32_t>(e));
                const Bytes tiles = test::tiles_of(
                    static_cast<const std::byte*>(one.scales), one.rows,
                    one.columns / one.format->group_columns, static_cast<uint64_t>(e) + 3);
                if (by_table && tensor->n_experts) {
                    table.push_back(scales.emplace_back(tiles).data());
                    own.scale_bytes = tiles.size();
                    continue;
                }
                all.insert(all.end(), tiles.begin(), tiles.end());
                if (e + 1 < n) all.resize(all.size() + static_cast<size_t>(padding));
                if (padding) own.scale_expert_stride = static_cast<int64_t>(tiles.size()) + padding;
            }
            set_scales(own, all, table);
        }
        for (const moe_tensor& tensor : copies) tensors.push_back(&tensor);
    }
    TiledLayer(const TiledLayer&) = delete;
    TiledLayer& operator=(const TiledLayer&) = delete;

    static void set_scales(moe_tensor& tensor, const Bytes& all,
                           const std::vector<const void*>& table) {
        tensor.scales = table.empty() ? all.data() : nullptr;
        tensor.scales_per_expert = table.empty() ? nullptr : table.data();
        if (table.empty()) tensor.scale_bytes = all.size();
    }
    moe_tensor& find(moe_role role) {
        for (moe_tensor& tensor : copies)
            if (tensor.role == role) return tensor;
        throw std::runtime_error("no such tensor");
    }

    std::list<moe_tensor> copies;
    std::vector<const moe_tensor*> tensors;
    std::list<Bytes> scales;
    std::list<std::vector<const void*>> tables;
};

moe_weights_desc weights_desc(const std::vector<const moe_tensor*>& tensors,
                              moe_ownership ownership) {
    auto desc = sized<moe_weights_desc>();
    desc.ownership = ownership;
    desc.tensors = tensors.data();
    desc.n_tensors = static_cast<uint32_t>(tensors.size());
    return desc;
}

Weights load_described(const moe_plan* plan, const moe_weights_desc& desc) {
    moe_weights* weights = nullptr;
    EXPECT_MOE_OK(moe_weights_load(plan, &desc, &weights));
    return Weights(weights);
}

std::vector<float> forward(const moe_plan* plan, const moe_weights* weights, int64_t hidden) {
    auto desc = sized<moe_workspace_desc>();
    desc.plan = plan;
    moe_workspace* made = nullptr;
    EXPECT_MOE_OK(moe_workspace_create(nullptr, &desc, &made));
    const Workspace workspace(made);
    const auto x = test::gaussian(4 * hidden, 23);
    std::vector<float> out(x.size(), NAN);
    auto args = sized<moe_forward_args>();
    args.n_tokens = 4;
    args.x = x.data();
    args.out = out.data();
    EXPECT_MOE_OK(moe_forward(plan, weights, made, &args));
    return out;
}

void expect_same_output(const std::vector<float>& got, const std::vector<float>& wanted) {
    size_t nonzero = 0;
    for (const float value : wanted) nonzero += std::isfinite(value) && value != 0;
    ASSERT_EQ(nonzero, wanted.size()) << "no output to compare with";
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), wanted.size() * sizeof(float)), 0);
}

void expect_forward(const LayerTensors& layer, const TiledLayer& tiled, const moe_slice* slice) {
    const moe_test::Plan plan = make_plan(layer, {.slice = slice});
    ASSERT_TRUE(plan);
    const int64_t hidden = layer.layer.desc.hidden;
    const Weights linear = load_described(plan.get(), weights_desc(layer.tensors, MOE_OWN_COPY));
    const auto wanted = forward(plan.get(), linear.get(), hidden);
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW}) {
        const Weights weights = load_described(plan.get(), weights_desc(tiled.tensors, ownership));
        ASSERT_NO_FATAL_FAILURE(
            expect_same_output(forward(plan.get(), weights.get(), hidden), wanted))
            << "ownership " << ownership;
    }
}

constexpr moe_gate_up_order orders[] = {MOE_GATE_UP_NONE, MOE_GATE_UP_GATE_FIRST,
                                        MOE_GATE_UP_UP_FIRST, MOE_GATE_UP_INTERLEAVED};

// Rows and columns of the slice begin and end inside of tiles.
moe_slice odd_slice() {
    auto slice = sized<moe_slice>();
    slice.has_intermediate_range = 1;
    slice.intermediate_begin = 96;
    slice.intermediate_count = 160;
    return slice;
}

TEST(TiledScales, ALayerGivesTheSameBits) {
    const moe_slice slice = odd_slice();
    for (const char* format : {"nvfp4", "mxfp4"})
        for (const auto order : orders) {
            const LayerTensors layer(test::rich_layer(), {.everywhere = format, .fused = order});
            for (const auto& [by_table, padding] :
                 {std::pair<bool, int64_t>{false, 0}, {false, 24}, {true, 0}}) {
                SCOPED_TRACE(std::string(format) + " order " + std::to_string(order) +
                             (by_table ? " by table" : " padded by ") + std::to_string(padding));
                const TiledLayer tiled(layer, by_table, padding);
                ASSERT_NO_FATAL_FAILURE(expect_forward(layer, tiled, nullptr));
                ASSERT_NO_FATAL_FAILURE(expect_forward(layer, tiled, &slice));
            }
        }
}

// The comparison above can fail: tiles taken for rows give something else.
TEST(TiledScales, AreNotLinearOnes) {
    const LayerTensors layer(test::rich_layer(), {.everywhere = "nvfp4"});
    TiledLayer tiled(layer, false);
    const moe_test::Plan plan = make_plan(layer);
    const auto run = [&] {
        const Weights weights =
            load_described(plan.get(), weights_desc(tiled.tensors, MOE_OWN_COPY));
        return forward(plan.get(), weights.get(), layer.layer.desc.hidden);
    };
    const auto wanted = run();
    tiled.find(MOE_ROLE_DOWN).scale_layout = MOE_SCALE_LAYOUT_LINEAR;
    EXPECT_NE(run(), wanted);
}

TEST(TiledScales, OneExpertIsReplaced) {
    const LayerTensors layer(test::rich_layer(), {.everywhere = "nvfp4"});
    const LayerTensors other(test::rich_layer(), {.everywhere = "nvfp4", .seed = 2});
    const TiledLayer tiled(other, true);
    const moe_test::Plan plan = make_plan(layer);
    const auto run = [&](moe_ownership ownership, bool with_tiles) {
        const Weights weights = load_described(plan.get(), weights_desc(layer.tensors, ownership));
        for (int32_t e = 0; e < 5; ++e) {
            moe_tensor one = other.stack(MOE_ROLE_DOWN).single(e);
            if (with_tiles) {
                for (const moe_tensor* tensor : tiled.tensors)
                    if (tensor->role == MOE_ROLE_DOWN) {
                        one.scales = tensor->scales_per_expert[e];
                        one.scale_bytes = tensor->scale_bytes;
                    }
                one.scale_layout = MOE_SCALE_LAYOUT_TILED_128X4;
            }
            EXPECT_MOE_OK(moe_weights_update(weights.get(), &one, nullptr));
        }
        return forward(plan.get(), weights.get(), layer.layer.desc.hidden);
    };
    for (const auto ownership : {MOE_OWN_COPY, MOE_OWN_BORROW})
        ASSERT_NO_FATAL_FAILURE(expect_same_output(run(ownership, true), run(ownership, false)));
    EXPECT_NE(run(MOE_OWN_COPY, true),
              forward(plan.get(),
                      load_described(plan.get(), weights_desc(layer.tensors, MOE_OWN_COPY)).get(),
                      layer.layer.desc.hidden));
}

Bytes device_bytes(test::PackedWeights& packed) {
    const std::byte* base = packed.block.base();
    return {base, base + packed.handle.placement.bytes};
}

// Whole layers for a GPU, from host memory and from a device's, where a view is fetched first.
TEST(TiledScales, ALayerPacksToTheSameBytes) {
    const moe_slice slice = odd_slice();
    for (const char* format : {"nvfp4", "mxfp4"})
        for (const auto order : orders)
            for (const moe_slice* part : {static_cast<const moe_slice*>(nullptr), &slice}) {
                const LayerTensors layer(test::rich_layer(),
                                         {.everywhere = format, .fused = order});
                const moe_test::Plan plan = make_plan(layer, {.slice = part});
                test::PackedWeights linear(*plan), from_host(*plan), from_device(*plan);
                linear.load(layer.tensors);
                TiledLayer tiled(layer, true);
                from_host.load(tiled.tensors);
                EXPECT_EQ(from_host.block.n_fetches, 0);
                for (moe_tensor& tensor : tiled.copies) tensor.space = MOE_SPACE_DEVICE;
                from_device.load(tiled.tensors);
                EXPECT_GT(from_device.block.n_fetches, 0);
                const Bytes wanted = device_bytes(linear);
                EXPECT_TRUE(device_bytes(from_host) == wanted) << format << " order " << order;
                EXPECT_TRUE(device_bytes(from_device) == wanted) << format << " order " << order;
            }
}

#define EXPECT_REFUSED_WITH(tensor, index, status, text)                             \
    EXPECT_NE(test::refusal_of(tensor, index, status).find(text), std::string::npos) \
        << test::refusal_of(tensor, index, status)

TEST(TiledScales, BytesAndStridesAreChecked) {
    for (const FormatTraits* traits : tiled_formats()) {
        const Twins twins(*traits, 2, 129, 160);
        const auto bad = MOE_ERROR_INVALID_ARGUMENT;
        moe_tensor tensor = twins.tiled;
        tensor.scale_bytes -= 1;
        EXPECT_REFUSED_WITH(tensor, 1, bad, "scales has " + std::to_string(tensor.scale_bytes));
        EXPECT_REFUSED_WITH(tensor, 1, bad, "need " + std::to_string(twins.tiled.scale_bytes));
        EXPECT_NO_THROW(view_of(tensor, 0, "tensor"));
        // As many as linear scales would be.
        tensor.scale_bytes = twins.linear.scale_bytes;
        EXPECT_REFUSED_WITH(tensor, 1, bad, "scales has");
        tensor = twins.tiled;
        tensor.scales = nullptr;
        EXPECT_REFUSED_WITH(tensor, 0, bad, "scales is NULL");
        tensor = twins.tiled;
        tensor.scale_row_stride = 512;
        EXPECT_REFUSED_WITH(tensor, 0, bad, "scale_row_stride is 512");
        tensor = twins.tiled;
        tensor.scale_layout = static_cast<moe_scale_layout>(2);
        EXPECT_REFUSED_WITH(tensor, 0, bad, "gate of expert 2: scale_layout is 2");
        tensor = twins.tiled;
        tensor.data_bytes = UINT64_MAX;
        tensor.rows = INT64_MAX / 1024;
        EXPECT_REFUSED_WITH(tensor, 0, bad, "scales has");
    }
}

TEST(TiledScales, OtherFormatsHaveNone) {
    const auto check = [](moe_tensor tensor) {
        tensor.scale_layout = MOE_SCALE_LAYOUT_TILED_128X4;
        const std::string name = format_name(*tensor.format).text;
        EXPECT_REFUSED_WITH(tensor, 0, MOE_ERROR_UNSUPPORTED, "scale_layout TILED_128X4 is for");
        EXPECT_REFUSED_WITH(tensor, 0, MOE_ERROR_UNSUPPORTED, "not " + name);
    };
    for (const FormatTraits& traits : all_formats()) {
        if (may_be_tiled(traits.format)) continue;
        check(test::TensorStack(traits, 0, 256, 256).tensor);
    }
    for (const moe_format& format : test::whole_formats())
        check(test::random_source(format, 64, 96).tensor());
    EXPECT_TRUE(may_be_tiled(find_format("nvfp4")->format));
    EXPECT_TRUE(may_be_tiled(find_format("mxfp4")->format));
    EXPECT_TRUE(may_be_tiled(mxfp8().format));
    moe_format other = mxfp8().format;
    other.scale_type = MOE_TYPE_F32;
    EXPECT_FALSE(may_be_tiled(other));
    other = mxfp8().format;
    other.group_rows = 32;
    EXPECT_FALSE(may_be_tiled(other));
    other = mxfp8().format;
    other.group_columns = 64;
    EXPECT_FALSE(may_be_tiled(other));
}

TEST(TiledScales, AreReadByMoeDequantize) {
    const Twins twins(*find_format("nvfp4"), 3, 130, 96);
    std::vector<float> got(130 * 96, NAN), wanted(130 * 96, NAN);
    EXPECT_MOE_OK(moe_dequantize(&twins.tiled, 2, got.data(), got.size()));
    EXPECT_MOE_OK(moe_dequantize(&twins.linear, 2, wanted.data(), wanted.size()));
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0);
    EXPECT_FALSE(std::isnan(wanted[0]));
}

}  // namespace
}  // namespace moe
