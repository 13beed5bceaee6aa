// The weights handle keeps its sources alive and reports its memory.
#include "libmoe/weights/weights_handle.hpp"

#include <algorithm>

#include "libmoe/checkpoint/checkpoint.hpp"

moe_weights::moe_weights(moe_runtime* shared_runtime, const moe::WeightsLayout& plan_layout)
    : runtime(shared_runtime),
      layout(runtime->memory, plan_layout),
      resident(&runtime->memory),
      codebooks(&runtime->memory),
      codebook_tables(&runtime->memory) {}

moe_weights::~moe_weights() {
    if (source) source->release();
}

const float* moe_weights::keep_codebook(const float* codebook, int64_t n) {
    for (const auto& kept : codebooks)
        if (std::equal(codebook, codebook + n, kept.begin())) return kept.data();
    auto& kept = codebooks.emplace_back();
    std::copy_n(codebook, n, kept.begin());
    return kept.data();
}

void moe_weights::drop_unused_codebooks() noexcept {
    const auto is_used = [&](const float* codebook) {
        for (int i = 0; i < MOE_ROLE_COUNT; ++i)
            for (const moe::Matrix& matrix : resident.matrices[static_cast<moe_role>(i)])
                if (matrix.codebook == codebook || matrix.nested_codebook == codebook) return true;
        return false;
    };
    codebooks.remove_if([&](const auto& kept) { return !is_used(kept.data()); });
}

// Counts the handle and its tables to the byte, as the allocator gave them.
uint64_t moe_weights::bookkeeping_bytes() const {
    constexpr uint64_t links = 2 * sizeof(void*);  // of a node of the list
    uint64_t bytes = sizeof(moe_weights) + codebooks.size() * (sizeof(codebooks.front()) + links) +
                     codebook_tables.allocated_bytes();
    bytes += (layout.slice.local_of.capacity() + layout.slice.global_of.capacity()) *
             sizeof(layout.slice.local_of[0]);
    bytes += layout.other_formats.capacity() * sizeof(moe_format) +
             layout.expert_formats.capacity() * sizeof(layout.expert_formats[0]);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i)
        bytes += resident.matrices[static_cast<moe_role>(i)].capacity() * sizeof(moe::Matrix);
    return bytes;
}

moe_memory_report moe_weights::memory_report() const {
    moe_memory_report report{};
    report.struct_size = sizeof report;
    report.n_local_experts = static_cast<uint32_t>(layout.slice.n_local);
    report.bookkeeping_bytes = bookkeeping_bytes();
    uint64_t matrix_bytes = 0;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const uint64_t vector_bytes = resident.vectors[role].size() * sizeof(float);
        uint64_t role_matrices = 0;
        if (moe::is_matrix_role(role) && layout.needs(role))
            role_matrices =
                static_cast<uint64_t>(layout.count(role)) * layout.matrix_copy_bytes(role);
        report.role_bytes[i] = role_matrices + vector_bytes;
        report.host_bytes += vector_bytes;
        matrix_bytes += role_matrices;
    }
    report.role_bytes[MOE_ROLE_HASH_TABLE] = resident.hash_table.size() * sizeof(int32_t);
    report.host_bytes += report.role_bytes[MOE_ROLE_HASH_TABLE];
    const bool is_read_in_place = ownership == MOE_OWN_BORROW || mapped_file.data();
    if (layout.is_packed())
        report.device_bytes = placement.bytes;
    else
        (is_read_in_place ? report.borrowed_bytes : report.host_bytes) += matrix_bytes;
    return report;
}
