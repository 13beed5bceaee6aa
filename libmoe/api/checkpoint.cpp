// moe_checkpoint_*.
#include "libmoe/checkpoint/checkpoint.hpp"

#include "libmoe/base/runtime.hpp"
#include "libmoe/checkpoint/printable.hpp"

#include "libmoe/api/guard.hpp"
#include "libmoe/api/structs.hpp"

using namespace moe;

moe_status moe_checkpoint_open(moe_runtime* runtime, const char* path,
                               const moe_checkpoint_options* given,
                               moe_checkpoint** out_checkpoint) noexcept {
    return guard([&] {
        check_out(out_checkpoint, "out_checkpoint");
        if (runtime) check_handle(runtime, "runtime");
        require(path != nullptr, "path is NULL");
        moe_checkpoint_options options{};
        if (given) options = read_struct(given, "moe_checkpoint_options");
        RuntimeRef ref(runtime);
        *out_checkpoint = moe_checkpoint::open(&*ref, path, options);
        const moe_checkpoint_info info = (*out_checkpoint)->info();
        ref->log(MOE_LOG_INFO, "checkpoint {}: {}, {} tensors, {} MoE layers", printable(path).text,
                 info.family, info.n_tensors, info.n_layers);
    });
}

void moe_checkpoint_destroy(moe_checkpoint* checkpoint) noexcept {
    if (checkpoint && is_living(checkpoint)) checkpoint->release();
}

moe_status moe_checkpoint_get_info(const moe_checkpoint* checkpoint,
                                   moe_checkpoint_info* out_info) noexcept {
    return guard([&] {
        check_handle(checkpoint, "checkpoint");
        check_out(out_info, "out_info");
        write_struct(out_info, checkpoint->info(), "moe_checkpoint_info");
    });
}

const char* moe_checkpoint_family_at(uint32_t index) noexcept {
    const auto families = all_families();
    return index < families.size() ? families[index].name : nullptr;
}

moe_status moe_checkpoint_layer_at(const moe_checkpoint* checkpoint, int32_t index,
                                   int32_t* out_layer) noexcept {
    return guard([&] {
        check_handle(checkpoint, "checkpoint");
        check_out(out_layer, "out_layer") = checkpoint->layer_at(index);
    });
}

moe_status moe_checkpoint_layer(const moe_checkpoint* checkpoint, int32_t layer,
                                moe_layer_desc* out_desc) noexcept {
    return guard([&] {
        check_handle(checkpoint, "checkpoint");
        check_out(out_desc, "out_desc");
        write_struct(out_desc, checkpoint->layer_desc(layer), "moe_layer_desc");
    });
}

moe_status moe_checkpoint_formats(const moe_checkpoint* checkpoint, int32_t layer,
                                  moe_format* const* out_formats, uint32_t n_formats) noexcept {
    return guard([&] {
        check_handle(checkpoint, "checkpoint");
        require(out_formats != nullptr || n_formats == 0, "out_formats is NULL, n_formats is {}",
                n_formats);
        moe_format formats[MOE_ROLE_COUNT]{};
        moe_format* pointers[MOE_ROLE_COUNT];
        for (int i = 0; i < MOE_ROLE_COUNT; ++i) pointers[i] = &formats[i];
        checkpoint->formats(layer, pointers, MOE_ROLE_COUNT);
        const moe_format none{};
        auto for_each = [&](auto use) {
            for (uint32_t i = 0; i < n_formats; ++i)
                if (out_formats[i])
                    use(out_formats[i], i < MOE_ROLE_COUNT ? formats[i] : none, "moe_format");
        };
        for_each(check_fits<moe_format>);
        for_each(write_struct<moe_format>);
    });
}

moe_status moe_checkpoint_tensor(const moe_checkpoint* checkpoint, int32_t layer, uint32_t index,
                                 moe_tensor* out_tensor, moe_format* out_format) noexcept {
    return guard([&] {
        check_handle(checkpoint, "checkpoint");
        check_out(out_tensor, "out_tensor");
        check_out(out_format, "out_format");
        const auto tensors = checkpoint->tensors(layer);
        if (index >= tensors.size())
            fail(MOE_ERROR_NOT_FOUND, "index is {}, layer {} has {} tensors", index, layer,
                 tensors.size());
        moe_tensor tensor = tensors[index].tensor;
        tensor.format = out_format;
        check_fits(out_tensor, tensor, "moe_tensor");
        write_struct(out_format, tensors[index].format, "moe_format");
        write_struct(out_tensor, tensor, "moe_tensor");
    });
}
