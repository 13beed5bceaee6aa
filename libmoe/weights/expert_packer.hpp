// Packs one expert's matrix into host memory: its tiles to the staging buffer, its constants to
// their tables. Experts may be packed by several threads at a time.
#pragma once

#include "libmoe/weights/pack_sources.hpp"
#include "libmoe/weights/packed_constants.hpp"
#include "libmoe/weights/tensor_roles.hpp"

namespace moe {

class ExpertPacker {
  public:
    // All three must outlive it.
    ExpertPacker(const WeightsLayout& layout, const DevicePlacement& placement,
                 const PackSources& sources)
        : layout_(layout), placement_(placement), sources_(sources) {}

    // Packs what has been given of a matrix, which must be in host memory, to expert_stride bytes
    // at `to`. The rows of a half that has not been given stay as they are.
    void pack(moe_role role, int64_t index, std::byte* to, PackedConstants& constants) const;
    // Writes the router, dense: in a plain format as it is, in float32 otherwise.
    void pack_router(std::byte* to) const;

    // The name of a matrix in error messages.
    TensorName name_of(moe_role role, int64_t index) const;

  private:
    void set_row_order(moe_role role, int64_t index, PackedConstants& constants) const;
    void pack_rows(moe_role role, int64_t index, TileRows rows, std::byte* to,
                   PackedConstants& constants) const;

    const WeightsLayout& layout_;
    const DevicePlacement& placement_;
    const PackSources& sources_;
};

}  // namespace moe
