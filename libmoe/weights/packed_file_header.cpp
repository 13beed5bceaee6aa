// What a packed file says of itself for people.
#include "libmoe/weights/packed_file_header.hpp"

#include "libmoe/base/error.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {

std::string describe_layout(const WeightsLayout& layout) {
    const Layer& layer = layout.layer;
    std::string words = fmt::format("hidden {}, intermediate {} of {}, {} of {} experts",
                                    layer.hidden, layout.slice.intermediate_count,
                                    layer.intermediate, layout.slice.n_local, layer.n_experts);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (!is_matrix_role(role) || role == MOE_ROLE_ROUTER || !layout.needs(role)) continue;
        words += fmt::format(", {} {}", role_name(role), format_name(layout.formats[i]).text);
    }
    words.resize(std::min<size_t>(words.size(), 447));
    return words;
}

}  // namespace moe
