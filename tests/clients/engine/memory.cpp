// The engine's allocator sees every byte that handles keep: small tables as well as weights, and
// all of it comes back.
#include "engine/engine.hpp"
#include "support/counting_allocator.hpp"
#include "support/layer_tensors.hpp"
#include "support/process_facts.hpp"

namespace clients {
namespace {

struct OwnMemoryRuntime {
    CountingAllocator allocator;
    Runtime runtime;

    OwnMemoryRuntime() {
        const moe_allocator table = allocator.table();
        auto desc = sized<moe_runtime_desc>();
        desc.n_threads = 1;
        desc.allocator = &table;  // read during the call, not kept
        runtime = make_runtime(desc);
    }
};

moe_layer_desc small_layer() {
    moe_layer_desc desc = plain_layer(64, 48, 4, 2);
    desc.has_gate_bias = desc.has_down_bias = 1;
    return desc;
}

// make() takes at least this many bytes from the allocator, and next to nothing from malloc.
template <class Make>
auto made_by(const CountingAllocator& allocator, const char* what, uint64_t at_least, Make make) {
    const uint64_t calls = allocator.calls(), bytes = allocator.live_bytes();
    const int64_t in_malloc = malloc_bytes();
    auto handle = make();
    const uint64_t taken = allocator.live_bytes() - bytes;
    const int64_t beside = malloc_bytes() - in_malloc;
    std::printf("  %-10s %3llu requests, %8llu bytes, %lld in malloc\n", what,
                static_cast<unsigned long long>(allocator.calls() - calls),
                static_cast<unsigned long long>(taken), static_cast<long long>(beside));
    CHECK(allocator.calls() > calls && taken >= at_least,
          "%s does not live in the allocator's memory", what);
    CHECK(beside < 512, "%s keeps %lld bytes of malloc", what, static_cast<long long>(beside));
    return handle;
}

}  // namespace

void every_byte_through_the_allocator() {
    std::puts("memory");
    LayerWeights layer = random_weights(small_layer(), 1);
    const LayerTensors tensors(layer, "f32", Form::tensor_per_expert);
    make_plan(nullptr,
              tensors.plan_desc(layer.desc, 8));  // what the C++ runtime makes once is made
    OwnMemoryRuntime own;
    CHECK(own.allocator.calls() > 0, "the runtime itself does not live in the allocator's memory");
    moe_runtime* const runtime = own.runtime.get();
    const uint64_t experts = 4 * 3 * 64 * 48 * 4;

    auto plan = made_by(own.allocator, "plan", 64,
                        [&] { return make_plan(runtime, tensors.plan_desc(layer.desc, 8)); });
    auto need = sized<moe_workspace_need>();
    CHECK_OK(moe_plan_workspace_size(plan.get(), 8, &need));
    auto weights = made_by(own.allocator, "weights", experts,
                           [&] { return load_weights(plan.get(), tensors.weights_desc()); });
    auto workspace = made_by(own.allocator, "workspace", need.host_bytes,
                             [&] { return make_workspace(runtime, plan.get()); });
    const moe_memory_report report = memory_of(weights);
    CHECK(report.host_bytes + report.bookkeeping_bytes >= experts && report.borrowed_bytes == 0,
          "%llu + %llu bytes reported", static_cast<unsigned long long>(report.host_bytes),
          static_cast<unsigned long long>(report.bookkeeping_bytes));
    CHECK(own.allocator.smallest() < 1024,
          "the smallest request was %llu: small tables go elsewhere",
          static_cast<unsigned long long>(own.allocator.smallest()));

    own.runtime.reset();
    plan.reset();
    workspace.reset();
    CHECK(own.allocator.live_bytes() > experts, "the weights are gone before they are destroyed");
    weights.reset();
    CHECK(own.allocator.live_blocks() == 0 && own.allocator.live_bytes() == 0,
          "%llu bytes in %llu blocks never came back",
          static_cast<unsigned long long>(own.allocator.live_bytes()),
          static_cast<unsigned long long>(own.allocator.live_blocks()));
    std::printf("  smallest request %llu, all released\n",
                static_cast<unsigned long long>(own.allocator.smallest()));
}

void forward_allocates_nothing() {
    LayerWeights layer = random_weights(small_layer(), 1);
    const LayerTensors tensors(layer, "f32", Form::stacked);
    OwnMemoryRuntime own;
    const LayerRun run(own.runtime.get(), tensors, tensors.plan_desc(layer.desc, 8));
    const std::vector<float> x = Random(2).values(8 * 64);
    std::vector<float> out(x.size());
    auto args = sized<moe_forward_args>();
    args.x = x.data();
    args.out = out.data();
    const uint64_t calls = own.allocator.calls();
    const int64_t in_malloc = malloc_bytes();
    for (args.n_tokens = 1; args.n_tokens <= 8; ++args.n_tokens) CHECK_OK(run.forward(args));
    CHECK(own.allocator.calls() == calls, "forward called the allocator");
    CHECK(malloc_bytes() == in_malloc, "forward kept %lld bytes of malloc",
          static_cast<long long>(malloc_bytes() - in_malloc));
    std::puts("  forward allocates nothing");
}

}  // namespace clients
