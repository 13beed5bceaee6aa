// The calls of every sized struct.
#include "tests/api/struct_calls.hpp"

#include <cstdlib>
#include <cstring>

namespace moe_test {
namespace {

template <class T, class F>
void add(std::vector<InStruct>& all, const char* name, const T& whole, F call) {
    InStruct in{name, std::vector<std::byte>(sizeof(T)), nullptr};
    std::memcpy(in.whole.data(), &whole, sizeof(T));
    in.call = [call](const void* bytes) { return call(static_cast<const T*>(bytes)); };
    all.push_back(std::move(in));
}

moe_plan_desc plan_desc() {
    return World::get().layer.plan_desc(4);
}

moe_status create_plan(const moe_plan_desc* desc) {
    moe_plan* plan = nullptr;
    const moe_status status = moe_plan_create(World::get().runtime.get(), desc, &plan);
    moe_plan_destroy(plan);
    return status;
}

// The start or the end of a load in the background.
template <class Start>
moe_status end_of(Start start) {
    moe_loading* loading = nullptr;
    const moe_status status = start(&loading);
    const Loading owner(loading);
    return status == MOE_OK ? moe_loading_wait(loading, nullptr) : status;
}

moe_status load(const moe_weights_desc* desc) {
    moe_weights* weights = nullptr;
    const moe_status status = moe_weights_load(World::get().run.plan.get(), desc, &weights);
    moe_weights_destroy(weights);
    return status;
}

void add_runtime_structs(std::vector<InStruct>& all) {
    auto create = [](const moe_runtime_desc* desc) {
        moe_runtime* runtime = nullptr;
        const moe_status status = moe_runtime_create(desc, &runtime);
        moe_runtime_destroy(runtime);
        return status;
    };
    auto runtime = sized<moe_runtime_desc>();
    runtime.n_threads = 2;
    add(all, "moe_runtime_desc", runtime, create);
    auto allocator = sized<moe_allocator>();
    allocator.allocate = [](uint64_t bytes, uint64_t, moe_space, void*, void*) {
        return std::malloc(bytes);
    };
    allocator.release = [](void* memory, uint64_t, uint64_t, moe_space, void*, void*) {
        std::free(memory);
    };
    add(all, "moe_allocator", allocator, [create](const moe_allocator* given) {
        auto desc = sized<moe_runtime_desc>();
        desc.n_threads = 1;
        desc.allocator = given;
        return create(&desc);
    });
}

void add_plan_structs(std::vector<InStruct>& all) {
    World& w = World::get();
    add(all, "moe_layer_desc", w.layer.layer.desc, moe_layer_validate);
    add(all, "moe_layer_desc of a plan", w.layer.layer.desc, [](const moe_layer_desc* layer) {
        auto desc = plan_desc();
        desc.layer = layer;
        return create_plan(&desc);
    });
    add(all, "moe_plan_desc", plan_desc(), create_plan);
    add(all, "moe_plan_desc of moe_supports", plan_desc(),
        [](const moe_plan_desc* desc) { return moe_supports(nullptr, desc); });
    add(all, "moe_plan_desc of moe_plan_key", plan_desc(), [](const moe_plan_desc* desc) {
        uint8_t key[16];
        return moe_plan_key(nullptr, desc, key);
    });
    auto slice = sized<moe_slice>();
    slice.has_expert_range = 1;
    slice.expert_count = 2;
    add(all, "moe_slice", slice, [](const moe_slice* given) {
        auto desc = plan_desc();
        desc.partial = 1;
        desc.slice = given;
        return create_plan(&desc);
    });
    add(all, "moe_format of a plan", w.format, [](const moe_format* format) {
        auto desc = plan_desc();
        std::vector<const moe_format*> formats(desc.formats, desc.formats + desc.n_formats);
        formats[MOE_ROLE_UP] = format;
        desc.formats = formats.data();
        return create_plan(&desc);
    });
}

void add_format_structs(std::vector<InStruct>& all) {
    World& w = World::get();
    add(all, "moe_format", w.format, [](const moe_format* format) {
        auto info = sized<moe_format_info>();
        return moe_format_get_info(format, &info);
    });
    add(all, "moe_format of moe_format_size", w.format, [](const moe_format* format) {
        uint64_t data, scales;
        return moe_format_size(format, 2, 32, &data, &scales);
    });
    auto quantize = sized<moe_quantize_args>();
    quantize.format = &w.format;
    quantize.source = w.x.data();
    quantize.rows = 2;
    quantize.columns = 32;
    quantize.data = w.out.data();
    quantize.data_bytes = 256;
    add(all, "moe_quantize_args", quantize, moe_quantize);
    auto convert = sized<moe_convert_scales_args>();
    convert.rows = 2;
    convert.columns = 8;
    convert.source = w.x.data();
    convert.source_bytes = 16;
    convert.scales = w.out.data();
    convert.scale_bytes = 16;
    add(all, "moe_convert_scales_args", convert, moe_convert_scales);
    auto tensor = sized<moe_tensor>();
    tensor.role = MOE_ROLE_ROUTER;
    tensor.format = &w.format;
    tensor.rows = 2;
    tensor.columns = 32;
    tensor.data = w.x.data();
    tensor.data_bytes = 256;
    add(all, "moe_tensor", tensor, [](const moe_tensor* given) {
        return moe_dequantize(given, 0, World::get().out.data(), 64);
    });
}

void add_weights_structs(std::vector<InStruct>& all) {
    World& w = World::get();
    const moe_weights_desc weights = w.layer.tensors.weights_desc();
    add(all, "moe_weights_desc", weights, load);
    add(all, "moe_weights_desc of moe_weights_size", weights, [](const moe_weights_desc* desc) {
        uint64_t bytes;
        return moe_weights_size(World::get().run.plan.get(), desc, &bytes);
    });
    add(all, "moe_weights_desc of moe_loading_start", weights, [](const moe_weights_desc* desc) {
        return end_of([desc](moe_loading** out) {
            return moe_loading_start(World::get().run.plan.get(), desc, out);
        });
    });
    add(all, "moe_tensor of moe_weights_load", *weights.tensors[0], [](const moe_tensor* tensor) {
        auto desc = World::get().layer.tensors.weights_desc();
        std::vector<const moe_tensor*> tensors(desc.tensors, desc.tensors + desc.n_tensors);
        tensors[0] = tensor;
        desc.tensors = tensors.data();
        return load(&desc);
    });
    add(all, "moe_tensor of moe_weights_update", *weights.tensors[0], [](const moe_tensor* tensor) {
        return moe_weights_update(World::get().run.weights.get(), tensor, nullptr);
    });
    add(all, "moe_format of a tensor", w.format, [](const moe_format* format) {
        TensorList list(World::get().layer.tensors.weights_desc());
        list.find(MOE_ROLE_UP).format = format;
        const auto desc = list.desc();
        return load(&desc);
    });
    auto workspace = sized<moe_workspace_desc>();
    workspace.plan = w.run.plan.get();
    add(all, "moe_workspace_desc", workspace, [](const moe_workspace_desc* desc) {
        moe_workspace* made = nullptr;
        const moe_status status = moe_workspace_create(nullptr, desc, &made);
        moe_workspace_destroy(made);
        return status;
    });
}

void add_stage_structs(std::vector<InStruct>& all) {
    World& w = World::get();
    add(all, "moe_forward_args", forward_args(2, w.x.data(), w.out.data()),
        [](const moe_forward_args* args) { return World::get().run.forward(*args); });
    add(all, "moe_forward_args of moe_forward_spmd", forward_args(2, w.x.data(), w.out.data()),
        [](const moe_forward_args* args) {
            const LayerRun& r = World::get().run;
            return moe_forward_spmd(r.plan.get(), r.weights.get(), r.workspace.get(), args, 0, 1);
        });
    auto route = sized<moe_route_args>();
    route.n_tokens = 2;
    route.x = w.x.data();
    route.out_ids = w.ids.data();
    route.out_weights = w.weights.data();
    add(all, "moe_route_args", route, [](const moe_route_args* args) {
        const LayerRun& r = World::get().run;
        return moe_route(r.plan.get(), r.weights.get(), r.workspace.get(), args);
    });
    auto dispatch = sized<moe_dispatch_args>();
    dispatch.n_tokens = 2;
    dispatch.ids = w.ids.data();
    dispatch.out_offsets = w.offsets.data();
    add(all, "moe_dispatch_args", dispatch, [](const moe_dispatch_args* args) {
        const LayerRun& r = World::get().run;
        return moe_dispatch(r.plan.get(), r.workspace.get(), args);
    });
    auto gather = sized<moe_gather_args>();
    gather.n_tokens = 2;
    gather.x = w.x.data();
    gather.offsets = w.offsets.data();
    gather.row_ids = w.row_ids.data();
    gather.n_rows = 4;
    gather.out = w.rows.data();
    gather.weights = w.weights.data();
    gather.out_row_weights = w.row_weights.data();
    add(all, "moe_gather_args", gather, [](const moe_gather_args* args) {
        const LayerRun& r = World::get().run;
        return moe_gather(r.plan.get(), r.workspace.get(), args);
    });
    auto experts = sized<moe_experts_args>();
    experts.out_layout = MOE_OUT_PER_SLOT;
    experts.n_tokens = 2;
    experts.x = w.x.data();
    experts.ids = w.ids.data();
    experts.out = w.rows.data();
    add(all, "moe_experts_args", experts, [](const moe_experts_args* args) {
        const LayerRun& r = World::get().run;
        return moe_experts(r.plan.get(), r.weights.get(), r.workspace.get(), args);
    });
    auto combine = sized<moe_combine_args>();
    combine.n_tokens = 2;
    combine.rows = w.rows.data();
    combine.ids = w.ids.data();
    combine.weights = w.weights.data();
    combine.out = w.out.data();
    add(all, "moe_combine_args", combine, [](const moe_combine_args* args) {
        const LayerRun& r = World::get().run;
        return moe_combine(r.plan.get(), r.workspace.get(), args);
    });
    auto finish = sized<moe_finish_args>();
    finish.n_tokens = 2;
    finish.routed = w.rows.data();
    finish.out = w.out.data();
    add(all, "moe_finish_args", finish, [](const moe_finish_args* args) {
        const LayerRun& r = World::get().run;
        return moe_finish(r.plan.get(), r.weights.get(), r.workspace.get(), args);
    });
}

}  // namespace

World& World::get() {
    static World world;
    return world;
}

std::vector<InStruct> in_structs() {
    std::vector<InStruct> all;
    add_runtime_structs(all);
    add_plan_structs(all);
    add_format_structs(all);
    add_weights_structs(all);
    add_stage_structs(all);
    add(all, "moe_checkpoint_options", sized<moe_checkpoint_options>(),
        [](const moe_checkpoint_options* given) {
            moe_checkpoint* checkpoint = nullptr;
            const auto path = World::get().folder.path();
            const moe_status status =
                moe_checkpoint_open(nullptr, path.c_str(), given, &checkpoint);
            moe_checkpoint_destroy(checkpoint);
            return status;
        });
    add(all, "moe_load_options", sized<moe_load_options>(), [](const moe_load_options* given) {
        World& w = World::get();
        moe_weights* weights = nullptr;
        const moe_status status = moe_weights_load_checkpoint(
            w.checkpoint_plan.get(), w.checkpoint.get(), 0, given, &weights);
        moe_weights_destroy(weights);
        return status;
    });
    add(all, "moe_load_options of moe_loading_start_checkpoint", sized<moe_load_options>(),
        [](const moe_load_options* given) {
            return end_of([given](moe_loading** out) {
                const World& w = World::get();
                return moe_loading_start_checkpoint(w.checkpoint_plan.get(), w.checkpoint.get(), 0,
                                                    given, out);
            });
        });
    return all;
}

namespace {

template <class T, class F>
OutStruct out_struct(const char* name, F call) {
    return {name, sizeof(T), [call](void* out) { return call(static_cast<T*>(out)); }};
}

}  // namespace

std::vector<OutStruct> out_structs() {
    World& w = World::get();
    const moe_plan* plan = w.run.plan.get();
    return {
        out_struct<moe_device_info>(
            "moe_device_info",
            [](moe_device_info* out) { return moe_device_get_info(MOE_DEVICE_CPU, 0, out); }),
        out_struct<moe_format>("moe_format",
                               [](moe_format* out) { return moe_format_by_name("kbit4", out); }),
        out_struct<moe_checkpoint_info>("moe_checkpoint_info",
                                        [&w](moe_checkpoint_info* out) {
                                            return moe_checkpoint_get_info(w.checkpoint.get(), out);
                                        }),
        out_struct<moe_layer_desc>(
            "moe_layer_desc",
            [&w](moe_layer_desc* out) { return moe_checkpoint_layer(w.checkpoint.get(), 0, out); }),
        out_struct<moe_tensor>("moe_tensor",
                               [&w](moe_tensor* out) {
                                   return moe_checkpoint_tensor(w.checkpoint.get(), 0, 0, out,
                                                                &w.format_out);
                               }),
        out_struct<moe_format_info>(
            "moe_format_info",
            [&w](moe_format_info* out) { return moe_format_get_info(&w.format, out); }),
        out_struct<moe_workspace_need>(
            "moe_workspace_need",
            [plan](moe_workspace_need* out) { return moe_plan_workspace_size(plan, 4, out); }),
        out_struct<moe_candidate>(
            "moe_candidate", [plan](moe_candidate* out) { return moe_candidates(plan, 0, out); }),
        out_struct<moe_memory_report>(
            "moe_memory_report",
            [&w](moe_memory_report* out) { return moe_weights_memory(w.run.weights.get(), out); }),
        out_struct<moe_loading_progress>(
            "moe_loading_progress",
            [&w](moe_loading_progress* out) { return moe_loading_poll(w.done_loading(), out); }),
        out_struct<moe_workspace_faults>("moe_workspace_faults",
                                         [&w](moe_workspace_faults* out) {
                                             return moe_workspace_status(w.run.workspace.get(),
                                                                         out);
                                         }),
    };
}

}  // namespace moe_test
