// quantize_target.cpp - one row per target. Names of tensors: nvfp4, mxfp4 and int4 as
// compressed-tensors writes weight-only checkpoints (no calibration is needed for them), fp8 as
// DeepSeek does, kbit as libmoe alone does:
//   <module>.weight_planes  I32 [rows, columns / 32 * bits]   bit planes, as
//   docs/concepts/formats.md <module>.weight_absmax  U8 [rows, columns / 32]           E4M4
#include "quantize_target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace moe::cli {
namespace {

using Json = nlohmann::ordered_json;

const char* const targets[] = {"nvfp4", "mxfp4", "kbit2", "kbit3", "kbit4",
                               "kbit5", "fp8",   "q8_0",  "q4_k",  "int4"};
constexpr int32_t mxfp4_group = 32;
constexpr int32_t nvfp4_group = 16;
constexpr int32_t int4_group = 32;

moe_format int4_format(int32_t group_size) {
    auto format = sized<moe_format>();
    format.type = MOE_TYPE_INT;
    format.bits = 4;
    format.group_rows = 1;
    format.group_columns = group_size;
    format.scale_type = MOE_TYPE_BF16;
    format.zero_point = MOE_ZERO_POINT_MIDDLE;
    format.packing = MOE_PACKING_BIT_STREAM;
    return format;
}

moe_format format_of_target(const std::string& name, int32_t group_size) {
    if (std::find(std::begin(targets), std::end(targets), name) == std::end(targets)) {
        throw UsageFailure(
            fmt::format("--to must be one of {}, not {}", fmt::join(targets, ", "), name));
    }
    if (group_size != 0 && name != "int4")
        throw UsageFailure("--group-size is for int4: the groups of " + name + " are its own");
    if (group_size != 0 && group_size != 32 && group_size != 64 && group_size != 128)
        throw UsageFailure(fmt::format("--group-size must be 32, 64 or 128, not {}", group_size));
    if (name == "int4") return int4_format(group_size == 0 ? int4_group : group_size);
    return format_by_name(name == "fp8" ? "fp8_128x128" : name);
}

bool is_kbit(const moe_format& format) {
    return format.type == MOE_TYPE_CODEBOOK;
}

// compressed-tensors: what the weights of a group are.
Json weights_of(const std::string& name, const moe_format& format) {
    Json weights = {{"num_bits", 4},
                    {"type", name == "int4" ? "int" : "float"},
                    {"symmetric", true},
                    {"strategy", name == "nvfp4" ? "tensor_group" : "group"},
                    {"group_size", format.group_columns},
                    {"dynamic", false}};
    if (name == "nvfp4") weights["scale_dtype"] = "torch.float8_e4m3fn";
    if (name == "mxfp4") weights["scale_dtype"] = "torch.uint8";
    return weights;
}

const char* compressed_name(const std::string& name) {
    if (name == "int4") return "pack-quantized";
    return name == "nvfp4" ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
}

Json compressed_tensors(const std::string& name, const moe_format& format,
                        const std::vector<std::string>& left) {
    const Json group = {{"targets", {"Linear"}},
                        {"weights", weights_of(name, format)},
                        {"input_activations", nullptr},
                        {"output_activations", nullptr},
                        {"format", compressed_name(name)}};
    return {{"quant_method", "compressed-tensors"}, {"format", compressed_name(name)},
            {"quantization_status", "compressed"},  {"config_groups", {{"group_0", group}}},
            {"kv_cache_scheme", nullptr},           {"ignore", left}};
}

}  // namespace

QuantizeTarget::QuantizeTarget(const std::string& name, int32_t group_size)
    : name_(name), format_(format_of_target(name, group_size)) {}

bool QuantizeTarget::is_gguf() const {
    return format_.type == MOE_TYPE_GGUF;
}

moe_format QuantizeTarget::written_format() const {
    moe_format format = format_;
    if (name_ == "nvfp4") format.global_scale = MOE_GLOBAL_SCALE_DIVIDE;
    return format;
}

float QuantizeTarget::written_global_scale(float global_scale) const {
    return 1.0F / global_scale;
}

TargetParts QuantizeTarget::parts(int64_t rows, int64_t columns) const {
    TargetParts parts;
    if (name_ == "fp8") {
        parts.codes = {".weight", "F8_E4M3", {rows, columns}};
        parts.scales = {".weight_scale_inv", "F32", {(rows + 127) / 128, (columns + 127) / 128}};
    } else if (is_kbit(format_)) {
        parts.codes = {".weight_planes", "I32", {rows, columns / 32 * format_.bits}};
        parts.scales = {".weight_absmax", "U8", {rows, columns / 32}};
    } else if (name_ == "int4") {
        parts.codes = {".weight_packed", "I32", {rows, (columns + 7) / 8}};
        parts.scales = {".weight_scale", "BF16", {rows, columns / format_.group_columns}};
        parts.shape = {".weight_shape", "I64", {2}};
    } else if (name_ == "nvfp4") {
        parts.codes = {".weight_packed", "U8", {rows, columns / 2}};
        parts.scales = {".weight_scale", "F8_E4M3", {rows, columns / nvfp4_group}};
        parts.global_scale = {".weight_global_scale", "F32", {1}};
    } else {
        parts.codes = {".weight_packed", "U8", {rows, columns / 2}};
        parts.scales = {".weight_scale", "U8", {rows, columns / mxfp4_group}};
    }
    return parts;
}

Json QuantizeTarget::config(const std::vector<std::string>& left, bool gpt_oss) const {
    if (name_ == "fp8") {
        return {{"quant_method", "fp8"},
                {"fmt", "e4m3"},
                {"activation_scheme", "dynamic"},
                {"weight_block_size", {128, 128}},
                {"modules_to_not_convert", left}};
    }
    if (is_kbit(format_)) {
        return {{"quant_method", "kbit"}, {"bits", format_.bits},       {"block_size", 32},
                {"absmax", "e4m4"},       {"codebook", "normal_float"}, {"ignore", left}};
    }
    if (gpt_oss) return {{"quant_method", "mxfp4"}, {"modules_to_not_convert", left}};
    return compressed_tensors(name_, format_, left);
}

}  // namespace moe::cli
