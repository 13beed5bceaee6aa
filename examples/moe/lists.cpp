// lists.cpp - `moe formats`, `moe devices`, `moe version`: what this build can do.
#include <fmt/format.h>

#include "commands.hpp"
#include "moe_cpp.hpp"
#include "text.hpp"

namespace moe::cli {
namespace {

moe_device_info device_info(moe_device_kind kind, int32_t index) {
    auto info = sized<moe_device_info>();
    check(moe_device_get_info(kind, index, &info));
    return info;
}

std::string device_line(const moe_device_info& info) {
    std::string line = fmt::format(
        "{} {}: {}, {} {}, {}", device_kind_name(info.kind), info.index, info.name, info.n_cores,
        info.kind == MOE_DEVICE_CPU ? "cores" : "multiprocessors", byte_words(info.memory_bytes));
    if (info.kind == MOE_DEVICE_CUDA)
        line += fmt::format(", sm_{}{}", info.arch_major, info.arch_minor);
    if (info.features[0] != '\0') line += fmt::format("\n       {}", info.features);
    return line;
}

// A kind that is not there is a line, not a failure: this is a list.
void list_kind(moe_device_kind kind) {
    int32_t count = 0;
    if (moe_device_count(kind, &count) != MOE_OK) {
        fmt::print("{}: none ({})\n", device_kind_name(kind), moe_last_error());
        return;
    }
    for (int32_t i = 0; i < count; ++i) fmt::print("{}\n", device_line(device_info(kind, i)));
}

}  // namespace

int list_formats() {
    std::vector<std::vector<std::string>> rows = {
        {"format", "bits/weight", "block", "reads", "quantises"}};
    for (uint32_t i = 0; const char* name = moe_format_name_at(i); ++i) {
        const moe_format format = format_by_name(name);
        auto info = sized<moe_format_info>();
        check(moe_format_get_info(&format, &info));
        rows.push_back({name, fmt::format("{:.4g}", info.bits_per_weight),
                        fmt::format("{} x {}", info.block_rows, info.block_columns),
                        info.has_decode ? "yes" : "no", info.has_encode ? "yes" : "no"});
    }
    fmt::print("{}", table_words(rows));
    return 0;
}

int list_devices() {
    list_kind(MOE_DEVICE_CPU);
    list_kind(MOE_DEVICE_CUDA);
    return 0;
}

int print_version() {
    fmt::print("moe {} (built for {}.{}.{})\n{}", moe_version_string(), MOE_VERSION_MAJOR,
               MOE_VERSION_MINOR, MOE_VERSION_PATCH, moe_build_info());
    if (!std::string(moe_build_info()).ends_with('\n')) fmt::print("\n");
    return 0;
}

}  // namespace moe::cli
