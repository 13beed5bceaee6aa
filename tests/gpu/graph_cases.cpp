// Captured forwards: the first of a process, a thousand replays with other inputs each, and calls
// on several streams and threads at once. Everything must have the bits of a call alone.
#include <thread>

#include "compare.hpp"
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

// Inputs that route differently; some leave tokens out.
std::vector<Forward> variants(const Pair& pair, int64_t n_tokens, bool routed) {
    std::vector<Forward> calls;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        Forward call = routed ? pair.routed_call(n_tokens, seed) : pair.call(n_tokens, seed);
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

void check_replays(const Pair& pair, int64_t n_tokens, bool routed, int n_replays) {
    const Side& side = pair.subject;
    const std::vector<Forward> calls = variants(pair, n_tokens, routed);
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
                             const int n = context.device.is_cuda() ? 1000 : 20;
                             with_every_kernel(
                                 context, spec, MOE_STAGE_EXPERTS,
                                 [&](const Pair& pair) { check_replays(pair, T, routed, n); });
                         });
            }
}

// A chain of layers in one graph, all on one workspace.
void check_layers_in_one_graph(Context& context) {
    const Pair first(context, spec_of("bf16", bf16, 32));
    PairSpec other = spec_of("mxfp4", bf16, 32);
    other.layer.seed = 2;
    const Pair second(context, other);
    const Side &a = first.subject, &b = second.subject;
    const Forward call = first.routed_call(32);
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

void check_streams(Context& context) {
    const Pair pair(context, spec_of("bf16", bf16, 200));
    Lane a(pair, 200, 1), b(pair, 3, 2), c(pair, 1, 3);
    for (int round = 0; round < 30; ++round) {
        for (Lane* lane : {&a, &b, &c}) lane->start();
        for (Lane* lane : {&a, &b, &c})
            context.expect(lane->is_right(), text("round %d has other bits", round));
    }
}

void check_threads(Context& context) {
    const Pair pair(context, spec_of("nvfp4", bf16, 64));
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
void check_capture_in_threads(Context& context) {
    const Pair pair(context, spec_of("bf16", bf16, 64));
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

}  // namespace

void add_graph_cases(CaseList& list) {
    add_replays(list);
    list.add("graph/layers", Extent::smoke, check_layers_in_one_graph);
    list.add("graph/streams", Extent::smoke, check_streams);
    list.add("graph/threads", Extent::smoke, check_threads);
    list.add("graph/capture_in_threads", Extent::smoke, check_capture_in_threads);
    list.add("graph/first_of_process", Extent::smoke,
             [](Context& context) { run_in_child(context, "first_capture"); });
}

}  // namespace moe_gpu
