// Saving packed weights of the CPU and opening them.
#include "libmoe/weights/host_block.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/checked.hpp"
#include "libmoe/base/runtime_team.hpp"
#include "libmoe/formats/block.hpp"
#include "libmoe/formats/interleaved.hpp"
#include "libmoe/weights/matrix_copy.hpp"
#include "libmoe/weights/matrix_extent.hpp"
#include "libmoe/weights/packed_file.hpp"
#include "libmoe/weights/packed_file_writer.hpp"

namespace moe {
namespace {

constexpr int64_t nested_codebook_values = 256;

// Values of the codebooks that come with each matrix of a format.
int64_t given_codebook_values(const moe_format& format) {
    const bool is_given = format.type == MOE_TYPE_CODEBOOK && !builtin_codebook(format);
    return is_given ? int64_t{1} << format.bits : 0;
}
uint64_t record_bytes(const moe_format& format) {
    const int64_t values =
        given_codebook_values(format) + (format.nested_scales ? nested_codebook_values : 0);
    return align_up(sizeof(MatrixRecord) + static_cast<uint64_t>(values) * sizeof(float),
                    copy_alignment);
}

bool holds_matrices(const WeightsLayout& layout, moe_role role) {
    return layout.needs(role) && is_matrix_role(role);
}
bool holds_vectors(const WeightsLayout& layout, moe_role role) {
    return layout.needs(role) && !is_matrix_role(role) && role != MOE_ROLE_HASH_TABLE;
}
int64_t hash_table_entries(const WeightsLayout& layout) {
    if (!layout.needs(MOE_ROLE_HASH_TABLE)) return 0;
    const Layer::Shape shape = layout.layer.role_shape(MOE_ROLE_HASH_TABLE);
    return shape.rows * shape.columns;
}
template <class Each>
void for_roles(Each each) {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) each(static_cast<moe_role>(i));
}

// Writes the record of a matrix and its codebooks.
void write_record(const Matrix& matrix, std::byte* to) {
    const MatrixRecord record{matrix.global_scale, matrix.nested_offset, matrix.scale_row_phase,
                              matrix.scale_column_phase};
    std::memcpy(to, &record, sizeof record);
    to += sizeof record;
    const auto bytes = static_cast<size_t>(given_codebook_values(matrix.format)) * sizeof(float);
    if (bytes) std::memcpy(to, matrix.codebook, bytes);
    if (matrix.format.nested_scales)
        std::memcpy(to + bytes, matrix.nested_codebook, nested_codebook_values * sizeof(float));
}

std::pmr::vector<std::byte> records_of(const moe_weights& weights, const HostPlacement& placement,
                                       uint64_t begin) {
    std::pmr::vector<std::byte> bytes(placement.bytes - begin, &weights.runtime->memory);
    for_roles([&](moe_role role) {
        if (!holds_matrices(weights.layout, role)) return;
        std::byte* to = bytes.data() + (placement.records[role] - begin);
        for (const Matrix& matrix : weights.resident.matrices[role]) {
            write_record(matrix, to);
            to += record_bytes(weights.layout.formats[role]);
        }
    });
    return bytes;
}

// The arrays of a block where they lie.
class Arrays {
  public:
    explicit Arrays(std::pmr::memory_resource& memory) : arrays_(&memory) {}

    void add(uint64_t offset, const void* data, uint64_t bytes) {
        arrays_.push_back({offset, static_cast<const std::byte*>(data), bytes});
    }
    void read(std::byte* to, uint64_t offset, uint64_t bytes) const {
        std::memset(to, 0, bytes);
        for (const Array& array : arrays_) {
            const uint64_t begin = std::max(offset, array.offset);
            const uint64_t end = std::min(offset + bytes, array.offset + array.bytes);
            if (begin < end)
                std::memcpy(to + (begin - offset), array.data + (begin - array.offset),
                            end - begin);
        }
    }

  private:
    struct Array {
        uint64_t offset;
        const std::byte* data;
        uint64_t bytes;
    };
    std::pmr::vector<Array> arrays_;
};

// Makes the matrices of a handle from the copies and records of its file.
class Opener {
  public:
    Opener(moe_weights& weights, const HostPlacement& placement, std::byte* block,
           std::string_view file)
        : weights_(weights), placement_(placement), block_(block), file_(file) {}

    void open() {
        for_roles([&](moe_role role) {
            if (holds_matrices(weights_.layout, role)) open_matrices(role);
            if (holds_vectors(weights_.layout, role)) open_vectors(role);
        });
        open_hash_table();
    }

  private:
    void open_matrices(moe_role role) {
        auto& matrices = weights_.resident.matrices[role];
        matrices.resize(static_cast<size_t>(weights_.layout.count(role)));
        const uint64_t bytes = weights_.layout.matrix_copy_bytes(role);
        const std::byte* at = block_ + placement_.matrices[role];
        const std::byte* record = block_ + placement_.records[role];
        for (Matrix& matrix : matrices) {
            matrix = view_of(role, record, at);
            if (!matrix.interleaving) check(matrix, at, bytes, role);
            at += bytes;
            record += record_bytes(matrix.format);
        }
    }

    Matrix view_of(moe_role role, const std::byte* from, const std::byte* at) {
        MatrixRecord record;
        std::memcpy(&record, from, sizeof record);
        const WeightsLayout& layout = weights_.layout;
        const WeightsLayout::Part part = layout.part(role);
        const Layer::Shape shape = layout.layer.role_shape(role);
        Matrix like;
        like.format = layout.formats[role];
        like.traits = &get_format(like.format, role_name(role));
        like.rows = part.rows;
        like.columns = part.columns;
        like.global_scale = record.global_scale;
        like.nested_offset = record.nested_offset;
        like.scale_row_phase = record.scale_row_phase;
        like.scale_column_phase = record.scale_column_phase;
        set_codebooks(like, from + sizeof record);
        if (layout.interleaving(role)) return view_interleaved(like, at);
        require_phases(like, role);
        if (like.traits->unsliceable_bytes) {
            like.whole_rows = shape.rows;
            like.whole_columns = shape.columns;
            like.row_begin = part.row;
            like.column_begin = part.column;
        }
        return view_of_copy(like, at);
    }

    void set_codebooks(Matrix& matrix, const std::byte* from) {
        const int64_t given = given_codebook_values(matrix.format);
        const auto* values = reinterpret_cast<const float*>(from);
        if (matrix.format.type == MOE_TYPE_CODEBOOK)
            matrix.codebook =
                given ? weights_.keep_codebook(values, given) : builtin_codebook(matrix.format);
        if (matrix.format.nested_scales)
            matrix.nested_codebook = weights_.keep_codebook(values + given, nested_codebook_values);
    }

    [[noreturn]] void refuse(moe_role role, const char* what) const {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {}: {}", file_, role_name(role), what);
    }
    // A part begins where the layout says; the rows of up in a fused matrix follow those of gate.
    void require_phases(const Matrix& matrix, moe_role role) const {
        if (matrix.format.scale_type == MOE_TYPE_NONE || matrix.traits->unsliceable_bytes) return;
        const WeightsLayout::Part part = weights_.layout.part(role);
        const int64_t rows = group_extent(matrix.format.group_rows);
        const int64_t behind_gate = weights_.layout.layer.role_shape(role).rows + part.row;
        const bool has_row = matrix.scale_row_phase == part.row % rows ||
                             (may_be_fused(role) && matrix.scale_row_phase == behind_gate % rows);
        if (!has_row ||
            matrix.scale_column_phase != part.column % group_extent(matrix.format.group_columns))
            refuse(role, "a matrix does not begin at its place in a group of scales");
    }
    // The bytes of a view lie in its copy, and a permutation names groups that there are.
    void check(const Matrix& matrix, const std::byte* at, uint64_t bytes, moe_role role) const {
        const Extent extent = extent_of(matrix);
        const auto is_inside = [&](const void* from, uint64_t n) {
            if (!from) return true;
            const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(from) - at);
            return offset <= bytes && n <= bytes - offset;
        };
        if (!is_inside(matrix.data, extent.data) || !is_inside(matrix.scales, extent.scales) ||
            !is_inside(matrix.zero_points, extent.zero_points) ||
            !is_inside(matrix.pre_quant_scale,
                       static_cast<uint64_t>(matrix.columns) * sizeof(float)))
            refuse(role, "a matrix does not lie in its bytes");
        if (!matrix.permutation) return;
        const int64_t groups =
            divide_up(matrix.whole_columns, group_extent(matrix.format.group_columns));
        for (int64_t k = 0; k < matrix.whole_columns; ++k)
            if (matrix.permutation[k] < 0 || matrix.permutation[k] >= groups)
                refuse(role, "a column is of a group that there is not");
    }

    void open_vectors(moe_role role) {
        auto& vector = weights_.resident.vectors[role];
        const WeightsLayout& layout = weights_.layout;
        vector.resize(static_cast<size_t>(layout.count(role) * layout.part(role).columns));
        std::memcpy(vector.data(), block_ + placement_.vectors[role],
                    vector.size() * sizeof(float));
    }
    void open_hash_table() {
        auto& table = weights_.resident.hash_table;
        table.resize(static_cast<size_t>(hash_table_entries(weights_.layout)));
        if (table.empty()) return;
        std::memcpy(table.data(), block_ + placement_.hash_table, table.size() * sizeof(int32_t));
        const int64_t n_experts = weights_.layout.layer.n_experts_all();
        for (const int32_t id : table)
            if (id < 0 || id >= n_experts)
                refuse(MOE_ROLE_HASH_TABLE, "an entry is of an expert that there is not");
    }

    moe_weights& weights_;
    const HostPlacement& placement_;
    std::byte* block_;
    std::string_view file_;
};

}  // namespace

HostPlacement lay_out_on_host(const WeightsLayout& layout) {
    HostPlacement placement{};
    uint64_t end = 0;
    const auto add = [&](uint64_t count, uint64_t each) {
        const uint64_t begin = end;
        end = checked_add(begin, checked_multiply(count, each, "weights"), "weights");
        end = align_up(end, copy_alignment);
        return begin;
    };
    const auto count = [&](moe_role role) { return static_cast<uint64_t>(layout.count(role)); };
    for_roles([&](moe_role role) {
        if (holds_matrices(layout, role))
            placement.matrices[role] = add(count(role), layout.matrix_copy_bytes(role));
    });
    placement.matrix_bytes = end;
    for_roles([&](moe_role role) {
        if (holds_vectors(layout, role))
            placement.vectors[role] =
                add(count(role) * static_cast<uint64_t>(layout.part(role).columns), sizeof(float));
    });
    placement.hash_table = add(static_cast<uint64_t>(hash_table_entries(layout)), sizeof(int32_t));
    for_roles([&](moe_role role) {
        if (holds_matrices(layout, role))
            placement.records[role] = add(count(role), record_bytes(layout.formats[role]));
    });
    placement.bytes = end;
    return placement;
}

void save_host_weights(const moe_weights& weights, std::string_view path) {
    moe_runtime& runtime = *weights.runtime;
    const WeightsLayout& layout = weights.layout;
    const HostPlacement placement = lay_out_on_host(layout);
    Arrays arrays(runtime.memory);
    arrays.add(0, weights.copies, placement.matrix_bytes);
    for_roles([&](moe_role role) {
        const auto& vector = weights.resident.vectors[role];
        arrays.add(placement.vectors[role], vector.data(), vector.size() * sizeof(float));
    });
    const auto& table = weights.resident.hash_table;
    arrays.add(placement.hash_table, table.data(), table.size() * sizeof(int32_t));
    const uint64_t first_record =
        placement.hash_table + align_up(table.size() * sizeof(int32_t), copy_alignment);
    const auto records = records_of(weights, placement, first_record);
    arrays.add(first_record, records.data(), records.size());
    const Block staging(runtime.memory, stage_bytes_of(placement.bytes), copy_alignment);
    const auto read = [&](std::byte* to, uint64_t offset, uint64_t bytes) {
        arrays.read(to, offset, bytes);
    };
    with_team(runtime, [&](Team& team) {
        write_packed_file(weights, placement.bytes, read, staging.data(), team, path);
    });
}

moe_weights* open_host_weights(moe_runtime* runtime, const WeightsLayout& layout,
                               std::string_view path) {
    RuntimeRef ref(runtime);
    const HostPlacement placement = lay_out_on_host(layout);
    const PackedFile file(ref->memory, path, layout, placement.bytes);
    NewWeights weights = new_weights(*ref, layout, MOE_OWN_COPY);
    weights->mapped_file = file.map(placement.matrix_bytes);
    weights->copies = weights->mapped_file.data() + file.block_offset();
    Opener(*weights, placement, weights->copies, file.name()).open();
    ref->log(MOE_LOG_INFO, "weights: {} experts, {} bytes mapped", layout.slice.n_local,
             placement.bytes);
    return weights.release();
}

}  // namespace moe
