// The caller of moe_checkpoint_open may say of the layers, in place of the files: fields of
// moe_layer_desc by name, "top_k=4, renormalize=sum_clamp, gate_limit=none".
#pragma once

#include <memory_resource>
#include <string_view>
#include <vector>

#include "moe/moe.h"

namespace moe {

class Overrides {
  public:
    // text may be null. Fails with MOE_ERROR_INVALID_ARGUMENT, which names the field and the value.
    Overrides(std::pmr::memory_resource& memory, const char* text);

    // Replaces the fields, and fails when no layer can be as they say.
    void apply(moe_layer_desc& desc) const;

  private:
    struct Value {
        size_t row;  // of the table of fields
        bool is_none;
        int32_t number;  // or a float's bits
    };

    void add(std::string_view item);

    std::pmr::vector<Value> values_;
};

}  // namespace moe
