// Captured forwards: the first of a process, a thousand replays with other inputs each, and calls
// on several streams and threads at once. Everything must have the bits of a call alone.
#include <thread>

#include "families.hpp"
#include "layer_kinds.hpp"

namespace moe_gpu {
namespace {

PairSpec spec_of(const char* format, const Numbers& numbers, int64_t max_tokens) {
    PairSpec spec;
    spec.layer.desc = rich_layer(256, 128, 16, 4);
    spec.layer.format = format;
    spec.numbers = numbers;
    spec.max_tokens = max_tokens;
    return spec;
}

// Where the number of true tokens lies. On the device it may keep the kernels of few tokens away.
enum class Count { on_host, on_device };

// Inputs that route differently; some leave tokens out.
std::vector<Forward> variants(const Pair& pair, int64_t n_tokens, bool routed, Count count) {
    std::vector<Forward> calls;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        Forward call = routed ? pair.routed_call(n_tokens, seed) : pair.call(n_tokens, seed);
        if (count == Count::on_device)
            call.n_tokens_device = static_cast<int32_t>(seed % 3 ? n_tokens : n_tokens / 2);
        if (routed && seed == 4) std::fill(call.ids.begin(), call.ids.end(), 5);
        if (routed && seed == 5)
            for (size_t i = 0; i < call.ids.size(); i += 3) call.ids[i] = -1;
        calls.push_back(call);
    }
    return calls;
}

bool same(const Result& a, const Result& b) {
    return a.bits == b.bits && a.ids == b.ids && a.counts == b.counts;
}

void check_replays(const Pair& pair, int64_t n_tokens, bool routed, Count count) {
    const Side& side = pair.subject;
    const int n_replays = side.device.is_cuda() ? 1000 : 20;
    const std::vector<Forward> calls = variants(pair, n_tokens, routed, count);
    ForwardBuffers buffers(side, calls[0], side.stream());
    side.poison_workspace();
    const auto graph = side.device.capture(side.stream(), [&] {
        must(moe_forward(side.plan.get(), side.weights.get(), side.workspace(), &buffers.args()),
             "moe_forward under capture");
    });
    std::vector<Result> eager;
    for (const Forward& call : calls) eager.push_back(pair.check(call, "eager"));
    clients::Random random(9);
    for (int i = 0; i < n_replays; ++i) {
        const auto v = static_cast<size_t>(random.below(static_cast<int32_t>(calls.size())));
        buffers.put(calls[v]);
        buffers.poison();
        side.poison_workspace();
        graph->launch(side.stream());
        side.synchronize();
        if (same(buffers.get(calls[v]), eager[v])) continue;
        pair.context.expect(false, text("replay %d with input %zu has other bits", i, v));
        return;
    }
}

void add_replays(CaseList& list) {
    for (const char* format : {"bf16", "nvfp4", "q4_k", "f32"})
        for (const int64_t T : {1, 6, 64})
            for (const bool routed : {false, true}) {
                const Numbers& numbers = format[0] == 'f' ? f32 : bf16;
                const bool in_smoke = format[0] == 'b' && routed;
                list.add(text("graph/replay/%s/t%ld_%s", format, static_cast<long>(T),
                              routed ? "ids" : "x"),
                         in_smoke ? Extent::smoke : Extent::full, [=](Context& context) {
                             PairSpec spec = spec_of(format, numbers, 64);
                             if (format[0] == 'q') spec.layer.desc.intermediate = 256;
                             with_every_kernel(context, spec, MOE_STAGE_EXPERTS,
                                               [&](const Pair& pair) {
                                                   check_replays(pair, T, routed, Count::on_device);
                                               });
                         });
            }
}

PairSpec grid_spec_of(const char* format, int64_t max_tokens) {
    PairSpec spec = spec_of(format, bf16, max_tokens);
    spec.layer.desc = rich_layer_on_grid(256, format[0] == 'q' ? 256 : 128, 16, 4);
    return spec;
}

// With the number on the device the kernels of few tokens need not run, so both are one case.
void add_replays_on_every_family(CaseList& list) {
    for (const char* format : {"bf16", "nvfp4", "q4_k", "awq"})
        for (const int64_t T : {1, 6, 64})
            for (const bool routed : {false, true})
                list.add(text("families/graph/replay/%s/t%ld_%s", format, static_cast<long>(T),
                              routed ? "ids" : "x"),
                         format[0] == 'b' && routed ? Extent::smoke : Extent::full,
                         [=](Context& context) {
                             with_every_family(context, grid_spec_of(format, 64),
                                               [&](const Pair& pair) {
                                                   check_replays(pair, T, routed, Count::on_host);
                                                   check_replays(pair, T, routed, Count::on_device);
                                                   // Whatever T is, every family runs.
                                                   pair.check(pair.routed_call(1), "one token");
                                               });
                         });
}

// A chain of layers in one graph, all on one workspace.
void check_layers_in_one_graph(const Pair& first, PairSpec other, int64_t n_tokens) {
    Context& context = first.context;
    other.layer.seed = 2;
    const Pair second(context, other);
    const Side &a = first.subject, &b = second.subject;
    const Forward call = first.routed_call(n_tokens);
    ForwardBuffers in_a(a, call, a.stream()), in_b(b, call, a.stream());
    moe_workspace* workspace = a.workspace();
    auto need_a = sized<moe_workspace_need>(), need_b = need_a;
    must(moe_plan_workspace_size(a.plan.get(), 32, &need_a), "size");
    must(moe_plan_workspace_size(b.plan.get(), 32, &need_b), "size");
    if (need_b.device_bytes + need_b.host_bytes > need_a.device_bytes + need_a.host_bytes)
        workspace = b.workspace();
    const auto graph = a.device.capture(a.stream(), [&] {
        for (int i = 0; i < 3; ++i) {
            must(moe_forward(a.plan.get(), a.weights.get(), workspace, &in_a.args()), "first");
            must(moe_forward(b.plan.get(), b.weights.get(), workspace, &in_b.args()), "second");
        }
    });
    graph->launch(a.stream());
    a.synchronize();
    context.expect(same(in_a.get(call), a.forward(call)), "the first layer has other bits");
    context.expect(same(in_b.get(call), b.forward(call)), "the second layer has other bits");
}

// One lane of concurrent work: a stream and a workspace with an input of its own.
struct Lane {
    Lane(const Pair& pair, int64_t n_tokens, uint64_t seed)
        : side(pair.subject),
          stream(side.device),
          space(side.device, pair.context.runtime, side.plan.get(), pair.spec.max_tokens),
          call(pair.call(n_tokens, seed)),
          wanted(pair.check(call, "alone")),
          buffers(side, call, stream) {}

    void start() {
        must(moe_forward(side.plan.get(), side.weights.get(), space.workspace.get(),
                         &buffers.args()),
             "moe_forward");
    }
    bool is_right() {
        side.device.synchronize(stream);
        const bool right = same(buffers.get(call), wanted);
        buffers.poison();
        return right;
    }

    const Side& side;
    Stream stream;
    Side::Space space;
    Forward call;
    Result wanted;
    ForwardBuffers buffers;
};

void check_streams(const Pair& pair) {
    Context& context = pair.context;
    Lane a(pair, 200, 1), b(pair, 3, 2), c(pair, 1, 3);
    for (int round = 0; round < 30; ++round) {
        for (Lane* lane : {&a, &b, &c}) lane->start();
        for (Lane* lane : {&a, &b, &c})
            context.expect(lane->is_right(), text("round %d has other bits", round));
    }
}

void check_threads(const Pair& pair) {
    Context& context = pair.context;
    std::vector<std::unique_ptr<Lane>> lanes;
    for (uint64_t i = 0; i < 6; ++i)
        lanes.push_back(std::make_unique<Lane>(pair, i % 2 ? 64 : 1, 20 + i));
    std::vector<std::string> errors(lanes.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < lanes.size(); ++i)
        threads.emplace_back([&, i] {
            try {
                for (int round = 0; round < 20; ++round) {
                    lanes[i]->start();
                    if (!lanes[i]->is_right()) throw Failure(text("round %d: other bits", round));
                }
            } catch (const std::exception& error) {
                errors[i] = error.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < errors.size(); ++i)
        context.expect(errors[i].empty(), text("thread %zu: ", i) + errors[i]);
}

// Threads that capture at the same time as others run.
void check_capture_in_threads(const Pair& pair) {
    Context& context = pair.context;
    Lane runs(pair, 64, 1), captured(pair, 5, 2);
    std::string error;
    std::thread thread([&] {
        try {
            for (int i = 0; i < 20; ++i) {
                const auto graph =
                    captured.side.device.capture(captured.stream, [&] { captured.start(); });
                graph->launch(captured.stream);
                if (!captured.is_right()) throw Failure("the captured call has other bits");
            }
        } catch (const std::exception& failure) {
            error = failure.what();
        }
    });
    for (int i = 0; i < 20; ++i) {
        runs.start();
        context.expect(runs.is_right(), "the running call has other bits");
    }
    thread.join();
    context.expect(error.empty(), error);
}

// A process for every family and two numbers of tokens, whose first launch of all is captured.
void check_first_of_process(Context& context) {
    const PairSpec spec = first_of_process_spec();
    force_every_family(context, spec, [&](const ForcePlan& force) {
        auto desc = sized<moe_plan_desc>();
        force(desc);
        for (const char* name : {"first_capture_of_1", "first_capture_of_64"})
            run_in_child(context, name, desc.kernel_filter ? desc.kernel_filter : "");
    });
}

// By the plan's choice, off the grid; and on it, on every family.
void add_both(CaseList& list, const char* name, const char* format, int64_t max_tokens,
              void (*run)(const Pair&)) {
    list.add(text("graph/%s", name), Extent::smoke,
             [=](Context& context) { run(Pair(context, spec_of(format, bf16, max_tokens))); });
    list.add(text("families/graph/%s", name), Extent::smoke, [=](Context& context) {
        with_every_family(context, grid_spec_of(format, max_tokens), run);
    });
}

void add_layers(CaseList& list) {
    list.add("graph/layers", Extent::smoke, [](Context& context) {
        const Pair first(context, spec_of("bf16", bf16, 32));
        check_layers_in_one_graph(first, spec_of("mxfp4", bf16, 32), 32);
    });
    for (const int64_t T : {2, 32})
        list.add(text("families/graph/layers/t%ld", static_cast<long>(T)), Extent::smoke,
                 [=](Context& context) {
                     with_every_family(context, grid_spec_of("bf16", 32), [&](const Pair& pair) {
                         PairSpec other = pair.spec;
                         other.loaded = nullptr;
                         check_layers_in_one_graph(pair, other, T);
                         pair.check(pair.routed_call(1), "one token");
                     });
                 });
}

}  // namespace

void add_graph_cases(CaseList& list) {
    add_replays(list);
    add_replays_on_every_family(list);
    add_layers(list);
    add_both(list, "streams", "bf16", 200, check_streams);
    add_both(list, "threads", "nvfp4", 64, check_threads);
    add_both(list, "capture_in_threads", "bf16", 64, check_capture_in_threads);
    list.add("graph/first_of_process", Extent::smoke,
             [](Context& context) { run_in_child(context, "first_capture"); });
    list.add("families/graph/first_of_process", Extent::smoke, check_first_of_process);
}

}  // namespace moe_gpu
