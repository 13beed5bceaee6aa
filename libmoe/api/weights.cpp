// moe_weights_*.
#include "libmoe/api/guard.hpp"
#include "libmoe/api/load_arguments.hpp"
#include "libmoe/api/structs.hpp"
#include "libmoe/checkpoint/checkpoint.hpp"
#include "libmoe/plan/plan.hpp"
#include "libmoe/weights/load.hpp"

namespace moe {
namespace {

std::string_view check_path(const char* path) {
    require(path != nullptr, "path is NULL");
    require(*path != '\0', "path is empty");
    return path;
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
        const LoadRequest request = load_request(*plan, desc);
        const Tensors tensors(plan->runtime->memory, desc.tensors, desc.n_tensors);
        *out_weights = load_tensors(&*plan->runtime, plan->layout, request, tensors.pointers(),
                                    tensors.size());
    });
}

moe_status moe_weights_load_checkpoint(const moe_plan* plan, const moe_checkpoint* checkpoint,
                                       int32_t layer, const moe_load_options* given,
                                       moe_weights** out_weights) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        check_handle(checkpoint, "checkpoint");
        check_out(out_weights, "out_weights");
        const LoadRequest request = load_request(given);
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
