// Every sized struct of moe.h with a call that takes or fills it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/checkpoint/models.hpp"
#include "tests/support/layer_case.hpp"

namespace moe_test {

// All that calls need; made once.
struct World {
    World()
        : layer(plain_layer(32, 16, 4, 2)),
          run(layer, layer.plan_desc(4), make_one_thread()),
          x(layer.x(2)),
          logits(8, 0.5f),
          out(64),
          rows(4 * 32),
          ids{0, 1, 2, 3},
          weights{.5f, .5f, .5f, .5f},
          offsets{0, 1, 2, 3, 4},
          row_ids{0, 1, 2, 3},
          row_weights(4) {
        format = sized<moe_format>();
        must(moe_format_by_name("f32", &format), "moe_format_by_name");
        moe::test::mixtral().write(folder);
        moe_checkpoint* opened = nullptr;
        must(moe_checkpoint_open(runtime.get(), folder.path().c_str(), nullptr, &opened), "open");
        checkpoint.reset(opened);
        const LayerFormats formats(checkpoint.get(), 0);
        auto desc = sized<moe_layer_desc>();
        must(moe_checkpoint_layer(checkpoint.get(), 0, &desc), "moe_checkpoint_layer");
        auto plan_desc = layer.plan_desc(1);
        plan_desc.layer = &desc;
        plan_desc.formats = formats.pointers;
        checkpoint_plan = make_plan(runtime.get(), plan_desc);
    }
    moe_runtime* make_one_thread() {
        if (!runtime) runtime = make_runtime(1);
        return runtime.get();
    }
    // A load that is done. No thread is made before a test asks for it.
    const moe_loading* done_loading() {
        if (loading) return loading.get();
        const auto desc = layer.tensors.weights_desc();
        moe_loading* started = nullptr;
        must(moe_loading_start(run.plan.get(), &desc, &started), "moe_loading_start");
        loading.reset(started);
        must(moe_loading_wait(started, nullptr), "moe_loading_wait");
        return started;
    }
    static World& get();

    moe::test::Folder folder;
    Checkpoint checkpoint;
    Plan checkpoint_plan;
    Runtime runtime;
    LayerCase layer;
    LayerRun run;
    Loading loading;
    moe_format format, format_out = sized<moe_format>();
    Floats x, logits, out, rows;
    std::vector<int32_t> ids;
    Floats weights;
    std::vector<int64_t> offsets;
    std::vector<int32_t> row_ids;
    Floats row_weights;
};

// Calls with the bytes of one struct; returns the status.
using Call = std::function<moe_status(const void*)>;

struct InStruct {
    std::string name;  // of the struct, and where it is used when there are several places
    std::vector<std::byte> whole;
    Call call;

    std::string struct_name() const { return name.substr(0, name.find(' ')); }
};

struct OutStruct {
    const char* name;
    uint32_t size;
    std::function<moe_status(void*)> call;
};

std::vector<InStruct> in_structs();
std::vector<OutStruct> out_structs();

}  // namespace moe_test
