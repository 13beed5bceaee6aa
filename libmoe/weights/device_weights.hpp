// The tensors of one layer in device memory, as CUDA kernels take them: matrices packed
// (packed/layout.hpp), everything small in float32, the router dense as it came. All pointers are
// of the device.
#pragma once

#include <array>

#include "libmoe/packed/layout.hpp"
#include "libmoe/weights/lower.hpp"
#include "libmoe/weights/weights.hpp"

namespace moe {

struct DeviceWeights {
    // By role; data is null where the layout needs none. A fused gate and up matrix is the entry of
    // GATE (SHARED_GATE), and that of UP (SHARED_UP) is empty.
    std::array<PackedMatrix, MOE_ROLE_COUNT> matrices{};
    // Where down's order of columns is that of the rows of gate and up: the row of each feature of
    // the source, the first of two tables of k words for each local expert; else null.
    const uint32_t* rows_of_features = nullptr;
    // GATE and UP (SHARED_GATE and SHARED_UP) are in the same tiles where their packed types agree,
    // unless they have tables of columns that are kept apart.
    bool is_gate_up_fused = false;
    bool is_shared_gate_up_fused = false;
    const void* router = nullptr;  // [E_all, H] dense, of router_type
    moe_type router_type = MOE_TYPE_NONE;
    // By role, as ResidentWeights::vectors; SHARED_EXPERT_GATE is among them.
    std::array<const float*, MOE_ROLE_COUNT> vectors{};
    const int32_t* hash_table = nullptr;
};

// Offsets of every matrix and vector of a layout in one block of device memory.
struct DevicePlacement {
    // The block and everything in it are aligned so, but for the small tables of a shared expert
    // that follows.
    static constexpr uint64_t alignment = 128;

    struct Region {
        uint64_t offset = 0;                    // of expert 0, a multiple of 128
        uint64_t expert_stride = 0;             // bytes
        uint64_t globals = 0;                   // offset of [count][2] floats, 0: none
        uint64_t codebooks = 0;                 // offset of [count][2][32] floats, 0: none
        int64_t n_codebooks = 0;                // count, and 1 for a shared expert that follows
        uint64_t columns = 0;                   // offset of [count][2][k] words, 0: none
        ColumnTable table = ColumnTable::none;  // what they are
        // The rows of gate and up lie by the first of both tables of a matrix; the second is its
        // inverse.
        bool is_folded = false;
        int64_t count = 0;
        int32_t n_tiles = 0;
        int32_t k = 0;
        PackedType type = PackedType::none;

        // The table by which kernels gather what the matrix multiplies.
        ColumnTable gathered() const { return is_folded ? ColumnTable::none : table; }
        // Bytes of the table of columns of one matrix.
        uint64_t column_bytes() const { return 2 * 4 * static_cast<uint64_t>(k); }
    };
    std::array<Region, MOE_ROLE_COUNT> matrices{};
    std::array<uint64_t, MOE_ROLE_COUNT> vectors{};  // offset, where the layout has the vector
    uint64_t router = 0;
    moe_type router_type = MOE_TYPE_NONE;  // NONE: no router
    uint64_t router_bytes = 0;
    uint64_t hash_table = 0;
    bool is_gate_up_fused = false;
    bool is_shared_gate_up_fused = false;
    // True where the shared expert has the shape and the packed types of a routed one: its
    // matrices, global scales, codebooks and tables of columns then follow those of the last local
    // expert.
    bool shared_follows = false;
    uint64_t bytes = 0;

    // Returns true for the up half of a fused matrix, which lies in the gate's region.
    bool is_up_half(moe_role role) const {
        return (role == MOE_ROLE_UP && is_gate_up_fused) ||
               (role == MOE_ROLE_SHARED_UP && is_shared_gate_up_fused);
    }
    // Returns the role whose region holds the matrix.
    moe_role owner_role(moe_role role) const {
        if (!is_up_half(role)) return role;
        return role == MOE_ROLE_UP ? MOE_ROLE_GATE : MOE_ROLE_SHARED_GATE;
    }
    bool is_fused_role(moe_role role) const {
        return role == MOE_ROLE_GATE || role == MOE_ROLE_UP ? is_gate_up_fused
               : role == MOE_ROLE_SHARED_GATE || role == MOE_ROLE_SHARED_UP
                   ? is_shared_gate_up_fused
                   : false;
    }
    // The role of the up half of a fused gate role; NONE where the role is not fused.
    moe_role up_role(moe_role gate) const {
        if (!is_fused_role(gate)) return MOE_ROLE_NONE;
        return gate == MOE_ROLE_GATE ? MOE_ROLE_UP : MOE_ROLE_SHARED_UP;
    }
    // Bytes of one matrix of the role; a fused one counts half for either.
    uint64_t matrix_bytes(moe_role role) const {
        if (role == MOE_ROLE_ROUTER) return router_bytes;
        const uint64_t stride = matrices[owner_role(role)].expert_stride;
        return is_fused_role(role) ? stride / 2 : stride;
    }

    // Returns pointers into a block at `base`.
    DeviceWeights resolve(const WeightsLayout& layout, std::byte* base) const;
};

// Fails with MOE_ERROR_UNSUPPORTED for a format without a packed type, and with
// MOE_ERROR_INVALID_ARGUMENT where a slice cannot be packed, naming the nearest legal one.
DevicePlacement lay_out_on_device(const WeightsLayout& layout);
bool can_lay_out_on_device(const WeightsLayout& layout);

}  // namespace moe
