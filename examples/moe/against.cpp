// against.cpp - both are decoded, matrix by matrix.
#include "against.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint.hpp"
#include "layer_matrices.hpp"
#include "workers.hpp"

namespace moe::cli {
namespace {

void check_sizes(const LayerMatrices& layer, const LayerMatrices& reference, moe_role role,
                 int32_t number, const std::string& reference_path) {
    const bool has = layer.has(role) && reference.has(role);
    const auto a = has ? layer.shape(role) : LayerMatrices::Shape{};
    const auto b = has ? reference.shape(role) : LayerMatrices::Shape{};
    const bool same = has && a.rows == b.rows && a.columns == b.columns &&
                      layer.desc().n_experts == reference.desc().n_experts;
    if (same) return;
    throw Failure(fmt::format(
        "{}: layer {} has no {} of the same sizes: {} x {} of {} experts here", reference_path,
        number, moe_role_name(role), a.rows, a.columns, layer.desc().n_experts));
}

void compare(const LayerMatrices& layer, const LayerMatrices& reference, moe_role role,
             int32_t number, std::vector<MatrixError>& errors) {
    const size_t first = errors.size();
    const auto n = static_cast<size_t>(layer.desc().n_experts);
    errors.resize(first + n);
    work_in_parallel(n, 0, [&] {
        return [&, got = std::vector<float>(), wanted = std::vector<float>()](size_t i) mutable {
            const auto expert = static_cast<int32_t>(i);
            MatrixError& error = errors[first + i];
            error.name = fmt::format("layer {} expert {} {}", number, expert, moe_role_name(role));
            error.layer = number;
            error.role = role;
            error.expert = expert;
            error.format = layer.format_of(role);
            layer.values(role, expert, got);
            reference.values(role, expert, wanted);
            measure_error(got, wanted, error);
        };
    });
}

}  // namespace

std::vector<MatrixError> errors_against(const moe_checkpoint* checkpoint, const std::string& path,
                                        const std::string& reference_path) {
    const Checkpoint other = open_checkpoint(nullptr, reference_path);
    const std::vector<int32_t> known = layers_of(other.get());
    std::vector<MatrixError> errors;
    for (const int32_t number : layers_of(checkpoint)) {
        if (std::find(known.begin(), known.end(), number) == known.end()) continue;
        const LayerMatrices layer(checkpoint, number);
        const LayerMatrices reference(other.get(), number);
        for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN}) {
            if (!layer.has(role) && !reference.has(role)) continue;
            check_sizes(layer, reference, role, number, reference_path);
            compare(layer, reference, role, number, errors);
        }
    }
    if (errors.empty())
        throw Failure(fmt::format("{} and {} have no MoE layer in common", path, reference_path));
    return errors;
}

}  // namespace moe::cli
