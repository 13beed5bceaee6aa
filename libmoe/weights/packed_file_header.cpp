// Describes the layout of a packed file in words, and lists the packed types that it has.
#include "libmoe/weights/packed_file_header.hpp"

#include <cstring>
#include <string_view>

#include "libmoe/base/error.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/formats/interleaved.hpp"
#include "libmoe/weights/lower.hpp"

namespace moe {
namespace {

// Files from before these tables are told apart by them, in words.
std::string_view words_of(ColumnTable table) {
    switch (table) {
        case ColumnTable::order:
            return " with sorted columns";
        case ColumnTable::factors:
            return " with factors of columns";
        default:
            return "";
    }
}

}  // namespace

uint32_t packed_layout_of(const WeightsLayout& layout) {
    return layout.is_interleaved() ? uint32_t{interleaved_revision} : packed_layout_version;
}

std::string describe_layout(const WeightsLayout& layout) {
    const Layer& layer = layout.layer;
    std::string words = layout.is_interleaved()
                            ? fmt::format("for the CPU (revision {}), ", interleaved_revision)
                            : std::string();
    words += fmt::format("hidden {}, intermediate {} of {}, {} of {} experts", layer.hidden,
                         layout.slice.intermediate_count, layer.intermediate, layout.slice.n_local,
                         layer.n_experts);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (!is_matrix_role(role) || role == MOE_ROLE_ROUTER || !layout.needs(role)) continue;
        words += fmt::format(", {} {}", role_name(role), format_name(layout.formats[i]).text);
        if (!layout.is_packed_role(role)) continue;
        words += layout.folds_order(role) ? " with its order in the rows of gate and up"
                                          : words_of(column_table_of(layout.formats[i]));
    }
    words.resize(std::min(words.size(), sizeof PackedFileHeader::description - 1));
    return words;
}

void list_types(const WeightsLayout& layout, PackedFileHeader& header) {
    auto* next = std::begin(header.types);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        if (!layout.is_packed_role(static_cast<moe_role>(i))) continue;
        const PackedTraits& row = traits(packed_type_of(layout.formats[i]));
        const auto has_name = [&](const auto& type) {
            return type.name == std::string_view(row.name);
        };
        if (next == std::end(header.types) || std::any_of(header.types, next, has_name)) continue;
        std::memcpy(next->name, row.name, sizeof next->name);
        next->revision = static_cast<uint32_t>(row.revision);
        ++next;
    }
}

}  // namespace moe
