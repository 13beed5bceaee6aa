// error_table.cpp - sums in double, in the order of the values.
#include "error_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "text.hpp"

namespace moe::cli {
namespace {

struct Group {
    const MatrixError* worst = nullptr;
    double sum = 0.0;
    double largest_error = 0.0;
    double largest_value = 0.0;
    size_t count = 0;

    void add(const MatrixError& error) {
        if (!worst || error.relative_l2 > worst->relative_l2) worst = &error;
        sum += error.relative_l2;
        largest_error = std::max(largest_error, error.largest_error);
        largest_value = std::max(largest_value, error.largest_value);
        ++count;
    }
};

std::string number(double value) {
    return fmt::format("{:.4g}", value);
}

std::string rows_of_tensors(const std::vector<MatrixError>& errors) {
    std::vector<std::vector<std::string>> rows = {
        {"tensor", "format", "relative L2", "largest error", "of values up to"}};
    for (const MatrixError& error : errors) {
        rows.push_back({error.name, error.format, number(error.relative_l2),
                        number(error.largest_error), number(error.largest_value)});
    }
    return table_words(rows);
}

}  // namespace

void measure_error(std::span<const float> got, std::span<const float> wanted, MatrixError& error) {
    double difference = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < wanted.size(); ++i) {
        const double d = static_cast<double>(got[i]) - static_cast<double>(wanted[i]);
        const double w = wanted[i];
        difference += d * d;
        size += w * w;
        error.largest_error = std::max(error.largest_error, std::abs(d));
        error.largest_value = std::max(error.largest_value, std::abs(w));
    }
    if (size > 0.0) {
        error.relative_l2 = std::sqrt(difference / size);
    } else {
        error.relative_l2 = difference > 0.0 ? 1.0 : 0.0;
    }
}

std::string error_table_words(const std::vector<MatrixError>& errors, bool each) {
    if (each) return rows_of_tensors(errors);
    std::map<std::tuple<int32_t, int32_t>, Group> groups;
    for (const MatrixError& error : errors) groups[{error.layer, error.role}].add(error);
    std::vector<std::vector<std::string>> rows = {{"layer", "role", "experts", "format",
                                                   "relative L2", "worst", "of expert",
                                                   "largest error", "of values up to"}};
    for (const auto& [key, group] : groups) {
        rows.push_back({std::to_string(std::get<0>(key)), moe_role_name(group.worst->role),
                        std::to_string(group.count), group.worst->format,
                        number(group.sum / static_cast<double>(group.count)),
                        number(group.worst->relative_l2), std::to_string(group.worst->expert),
                        number(group.largest_error), number(group.largest_value)});
    }
    return table_words(rows);
}

nlohmann::ordered_json error_table_json(const std::vector<MatrixError>& errors) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const MatrixError& error : errors) {
        json.push_back({{"name", error.name},
                        {"layer", error.layer},
                        {"role", moe_role_name(error.role)},
                        {"expert", error.expert},
                        {"format", error.format},
                        {"relative_l2", error.relative_l2},
                        {"largest_error", error.largest_error},
                        {"largest_value", error.largest_value}});
    }
    return json;
}

}  // namespace moe::cli
