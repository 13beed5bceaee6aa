// moe_weights_*.
#include "libmoe/api/guard.hpp"
#include "libmoe/api/structs.hpp"
#include "libmoe/checkpoint/checkpoint.hpp"
#include "libmoe/plan/plan.hpp"
#include "libmoe/weights/load.hpp"

namespace moe {
namespace {

// A caller's tensors with their formats, read by the struct_size rule.
class Tensors {
  public:
    Tensors(std::pmr::memory_resource& memory, const moe_tensor* const* given, uint32_t n);
    Tensors(const Tensors&) = delete;  // tensors point to formats
    Tensors& operator=(const Tensors&) = delete;

    const moe_tensor* const* pointers() const { return pointers_.data(); }

  private:
    std::pmr::vector<moe_tensor> tensors_;
    std::pmr::vector<moe_format> formats_;
    std::pmr::vector<const moe_tensor*> pointers_;
};

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

moe_ownership check_ownership(moe_ownership ownership) {
    require(ownership >= MOE_OWN_COPY && ownership <= MOE_OWN_CALLER,
            "ownership is {}, not a moe_ownership", static_cast<int32_t>(ownership));
    return ownership;
}

std::string_view check_path(const char* path) {
    require(path != nullptr, "path is NULL");
    require(*path != '\0', "path is empty");
    return path;
}

void check_space(const moe_plan& plan, const moe_weights_desc& desc) {
    const auto space = static_cast<int32_t>(desc.memory_space);
    if (!plan.layout.is_packed())
        return require(desc.memory_space == MOE_SPACE_HOST,
                       "memory_space is {}; a CPU plan takes host memory", space);
    require(desc.ownership != MOE_OWN_CALLER || desc.memory_space == MOE_SPACE_DEVICE,
            "memory_space is {}; a CUDA plan takes device memory", space);
}

}  // namespace
}  // namespace moe

using namespace moe;

moe_status moe_weights_size(const moe_plan* plan, const moe_weights_desc* given,
                            uint64_t* out_bytes) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        if (given) read_struct(given, "moe_weights_desc");
        check_out(out_bytes, "out_bytes") = plan->layout.copy_bytes();
    });
}

moe_status moe_weights_load(const moe_plan* plan, const moe_weights_desc* given,
                            moe_weights** out_weights) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        check_out(out_weights, "out_weights");
        const moe_weights_desc desc = read_struct(given, "moe_weights_desc");
        check_space(*plan, desc);
        const LoadRequest request{check_ownership(desc.ownership),
                                  desc.memory,
                                  desc.memory_bytes,
                                  desc.stream,
                                  desc.progress,
                                  desc.progress_user_data};
        const Tensors tensors(plan->runtime->memory, desc.tensors, desc.n_tensors);
        *out_weights = load_tensors(&*plan->runtime, plan->layout, request, tensors.pointers(),
                                    desc.n_tensors);
    });
}

moe_status moe_weights_load_checkpoint(const moe_plan* plan, const moe_checkpoint* checkpoint,
                                       int32_t layer, const moe_load_options* given,
                                       moe_weights** out_weights) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        check_handle(checkpoint, "checkpoint");
        check_out(out_weights, "out_weights");
        moe_load_options options{};
        if (given) options = read_struct(given, "moe_load_options");
        const LoadRequest request{check_ownership(options.ownership),
                                  options.memory,
                                  options.memory_bytes,
                                  options.stream,
                                  options.progress,
                                  options.progress_user_data};
        *out_weights = load_checkpoint(&*plan->runtime, plan->layout, request, *checkpoint, layer);
    });
}

void moe_weights_destroy(moe_weights* weights) noexcept {
    if (!weights || !is_living(weights)) return;
    RuntimeRef ref(&*weights->runtime);
    destroy_in(ref->memory, weights);
}

moe_status moe_weights_update(moe_weights* weights, const moe_tensor* tensor,
                              void* stream) noexcept {
    return guard([&] {
        check_handle(weights, "weights");
        const Tensors one(weights->runtime->memory, &tensor, 1);
        update_tensor(*weights, *one.pointers()[0], stream);
    });
}

moe_status moe_weights_layout_id(const moe_weights* weights, uint8_t out_id[16]) noexcept {
    return guard([&] {
        check_out(out_id, "out_id");
        const auto& id = check_handle(weights, "weights").layout.id;
        std::copy(id.begin(), id.end(), out_id);
    });
}

moe_status moe_weights_memory(const moe_weights* weights, moe_memory_report* out_report) noexcept {
    return guard([&] {
        check_handle(weights, "weights");
        check_out(out_report, "out_report");
        write_struct(out_report, weights->memory_report(), "moe_memory_report");
    });
}

moe_status moe_weights_save(const moe_weights* weights, const char* path) noexcept {
    return guard([&] {
        check_handle(weights, "weights");
        save_weights(*weights, check_path(path));
    });
}

moe_status moe_weights_open(const moe_plan* plan, const char* path,
                            moe_weights** out_weights) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        check_out(out_weights, "out_weights");
        *out_weights = open_weights(&*plan->runtime, plan->layout, check_path(path));
    });
}
