// Reads and checks the arguments of loading.
#include "libmoe/api/load_arguments.hpp"

#include "libmoe/api/structs.hpp"

namespace moe {
namespace {

moe_ownership check_ownership(moe_ownership ownership) {
    require(ownership >= MOE_OWN_COPY && ownership <= MOE_OWN_CALLER,
            "ownership is {}, not a moe_ownership", static_cast<int32_t>(ownership));
    return ownership;
}

void check_space(const moe_plan& plan, const moe_weights_desc& desc) {
    const auto space = static_cast<int32_t>(desc.memory_space);
    if (!plan.layout.is_packed())
        return require(desc.memory_space == MOE_SPACE_HOST,
                       "memory_space is {}; a CPU plan takes host memory", space);
    require(desc.ownership != MOE_OWN_CALLER || desc.memory_space == MOE_SPACE_DEVICE,
            "memory_space is {}; a CUDA plan takes device memory", space);
}

// moe_weights_desc and moe_load_options name alike where weights go and who is told.
template <class Given>
LoadRequest request_of(const Given& given) {
    return {check_ownership(given.ownership),
            given.memory,
            given.memory_bytes,
            given.stream,
            given.progress,
            given.progress_user_data};
}

}  // namespace

Tensors::Tensors(std::pmr::memory_resource& memory, const moe_tensor* const* given, uint32_t n)
    : tensors_(&memory), formats_(&memory), pointers_(&memory) {
    require(n == 0 || given != nullptr, "tensors is NULL, n_tensors is {}", n);
    tensors_.reserve(n);
    formats_.reserve(n);
    pointers_.reserve(n);
    for (uint32_t i = 0; i < n; ++i) {
        moe_tensor& tensor = tensors_.emplace_back(read_struct(given[i], "moe_tensor"));
        require(tensor.format != nullptr, "tensors[{}].format is NULL", i);
        tensor.format = &formats_.emplace_back(read_struct(tensor.format, "moe_format"));
        pointers_.push_back(&tensor);
    }
}

LoadRequest load_request(const moe_plan& plan, const moe_weights_desc& desc) {
    check_space(plan, desc);
    return request_of(desc);
}

LoadRequest load_request(const moe_load_options* given) {
    moe_load_options options{};
    if (given) options = read_struct(given, "moe_load_options");
    return request_of(options);
}

}  // namespace moe
