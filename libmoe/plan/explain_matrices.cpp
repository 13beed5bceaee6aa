#include "libmoe/plan/explain_matrices.hpp"

#include "libmoe/base/fmt.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "libmoe/formats/format.hpp"
#include "libmoe/plan/matrix_choices.hpp"

namespace moe {
namespace {

bool has_matrices(const moe_plan& plan, moe_stage stage) {
    return !plan.is_cuda() && (stage == MOE_STAGE_EXPERTS || stage == MOE_STAGE_FINISH);
}

bool is_same(const MatrixKernel& a, const MatrixKernel& b) {
    return a.name.view() == b.name.view() && a.is_taken == b.is_taken &&
           a.first_rows == b.first_rows && a.last_rows == b.last_rows && a.reason == b.reason;
}

bool is_same(const MatrixChoice& a, const MatrixChoice& b) {
    return std::equal(a.kernels.begin(), a.kernels.end(), b.kernels.begin(), b.kernels.end(),
                      [](const auto& one, const auto& other) { return is_same(one, other); });
}

std::string format_of(const moe_plan& plan, const MatrixChoice& matrix) {
    return format_words(plan.layout, matrix.role);
}

// The rows of the matrix, and the tokens of a call that has as many on average.
std::string rows_text(const MatrixKernel& kernel, const moe_plan& plan, moe_stage stage) {
    const auto tokens = [&](int64_t rows) {
        return tokens_for_rows(plan.layout.layer, stage, rows);
    };
    if (!kernel.last_rows && kernel.first_rows == 1) return "any number of rows: ";
    if (!kernel.last_rows)
        return fmt::format("from {} rows (T >= {}): ", kernel.first_rows,
                           tokens(kernel.first_rows));
    return fmt::format("1 to {} rows (T < {}): ", kernel.last_rows, tokens(kernel.last_rows + 1));
}

std::string kernel_text(const MatrixKernel& kernel, const moe_plan& plan, moe_stage stage) {
    return fmt::format("    {} {}{}: {}\n", kernel.is_taken ? '*' : '-',
                       kernel.is_taken ? rows_text(kernel, plan, stage) : "", kernel.name.view(),
                       kernel.reason->sentence);
}

void write_kernel(JsonWriter& json, const MatrixKernel& kernel) {
    const auto number = [&](const char* name, int64_t value) {
        if (value)
            json.member(name, value);
        else
            json.member(name, nullptr);
    };
    json.object([&] {
        json.member("kernel", kernel.name.view());
        json.member("taken", kernel.is_taken);
        number("min_rows", kernel.first_rows);
        number("max_rows", kernel.last_rows);
        json.member("reason_code", kernel.reason->code);
        json.member("reason", kernel.reason->sentence);
    });
}

}  // namespace

std::string format_words(const WeightsLayout& layout, moe_role role) {
    std::string words = format_name(layout.formats[role]).text;
    if (!layout.has_mixed_experts()) return words;
    for (size_t i = 0; i < layout.other_formats.size(); ++i)
        if (const int64_t n = layout.experts_with(role, i))
            words +=
                fmt::format(", {} of {} experts", format_name(layout.other_formats[i]).text, n);
    return words;
}

void write_matrices(JsonWriter& json, const moe_plan& plan, moe_stage stage) {
    json.array("matrices", [&] {
        if (!has_matrices(plan, stage)) return;
        for (const MatrixChoice& matrix : matrix_choices(plan, stage))
            json.object([&] {
                json.member("role", role_name(matrix.role));
                json.member("format", format_of(plan, matrix));
                json.array("candidates", [&] {
                    for (const MatrixKernel& kernel : matrix.kernels) write_kernel(json, kernel);
                });
            });
    });
}

std::string matrices_text(const moe_plan& plan, moe_stage stage) {
    if (!has_matrices(plan, stage)) return "";
    const std::vector<MatrixChoice> all = matrix_choices(plan, stage);
    std::string text;
    for (size_t i = 0, end; i < all.size(); i = end) {
        const std::string format = format_of(plan, all[i]);
        std::string names = role_name(all[i].role);
        for (end = i + 1;
             end < all.size() && is_same(all[i], all[end]) && format_of(plan, all[end]) == format;
             ++end)
            names += std::string(", ") + role_name(all[end].role);
        text += fmt::format("  {} of {}\n", names, format);
        for (const MatrixKernel& kernel : all[i].kernels) text += kernel_text(kernel, plan, stage);
    }
    return text;
}

}  // namespace moe
