// What concerns the whole process: forks, the current context of a thread, the first call of all.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "compare.hpp"

extern char** environ;

namespace moe_gpu {
namespace {

PairSpec small_spec() {
    PairSpec spec;
    spec.layer.desc = plain_layer(128, 64, 8, 2);
    spec.max_tokens = 64;
    return spec;
}

// The first forward of the process is captured; no other has run.
void child_first_capture(Context& context) {
    const Pair pair(context, small_spec());
    const Side& side = pair.subject;
    const Forward call = pair.routed_call(64);
    ForwardBuffers buffers(side, call, side.stream());
    const auto graph = side.device.capture(side.stream(), [&] {
        must(moe_forward(side.plan.get(), side.weights.get(), side.workspace(), &buffers.args()),
             "moe_forward under capture");
    });
    graph->launch(side.stream());
    side.synchronize();
    pair.measure(buffers.get(call), pair.reference.forward(call), call, "captured first");
}

// 0 when the calls of a forked child are refused as they must be. No device call of its own: the
// buffers are those of the parent.
int try_after_fork(const Pair& pair, const moe_forward_args& args) {
    const Side& side = pair.subject;
    if (moe_forward(side.plan.get(), side.weights.get(), side.workspace(), &args) !=
        MOE_ERROR_FORKED)
        return 1;
    if (!side.device.is_cuda()) return 0;
    moe_plan* plan = nullptr;
    moe_plan_desc desc = pair.data->plan_desc();
    desc.device = MOE_DEVICE_CUDA;
    desc.x_type = MOE_TYPE_BF16;
    desc.max_tokens = 4;
    return moe_plan_create(nullptr, &desc, &plan) == MOE_ERROR_FORKED ? 0 : 2;
}

void child_fork(Context& context) {
    auto desc = sized<moe_runtime_desc>();
    desc.n_threads = 3;
    moe_runtime* raw = nullptr;
    must(moe_runtime_create(&desc, &raw), "moe_runtime_create");
    const Runtime runtime(raw);
    Context with_threads(context.device, context.host, raw, context.case_name);
    const Pair pair(with_threads, small_spec());
    const Forward call = pair.routed_call(64);
    pair.check(call, "before the fork");
    ForwardBuffers buffers(pair.subject, call, pair.subject.stream());
    const pid_t child = fork();
    if (child == 0) _exit(try_after_fork(pair, buffers.args()));
    int status = 0;
    waitpid(child, &status, 0);
    context.expect(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                   text("the forked child ended with %d", status));
    pair.check(call, "after the fork");
    context.failures.insert(context.failures.end(), with_threads.failures.begin(),
                            with_threads.failures.end());
}

// In a thread without a context a forward works, and leaves it without one.
void check_bare_thread(Context& context) {
    const Pair pair(context, small_spec());
    const Side& side = pair.subject;
    const Forward call = pair.routed_call(64);
    const Result wanted = pair.check(call);
    ForwardBuffers buffers(side, call, side.stream());
    std::string error;
    std::thread([&] {
        try {
            void* before = side.device.current_context();
            must(
                moe_forward(side.plan.get(), side.weights.get(), side.workspace(), &buffers.args()),
                "moe_forward");
            if (side.device.current_context() != before)
                error = "the thread has another current context";
        } catch (const std::exception& failure) {
            error = failure.what();
        }
    }).join();
    side.synchronize();
    context.expect(error.empty(), error);
    context.expect(buffers.get(call).bits == wanted.bits, "other bits in a bare thread");
}

// With another device current the call is refused and the current device stays.
void check_other_device(Context& context) {
    if (context.device.count() < 2) throw Skip("one device only");
    const Pair pair(context, small_spec());
    const Side& side = pair.subject;
    ForwardBuffers buffers(side, pair.routed_call(64), side.stream());
    std::string error;
    std::thread([&] {
        side.device.make_current(1);
        void* before = side.device.current_context();
        const moe_status status =
            moe_forward(side.plan.get(), side.weights.get(), side.workspace(), &buffers.args());
        if (status != MOE_ERROR_INVALID_ARGUMENT)
            error = std::string("the status is ") + moe_status_name(status);
        if (side.device.current_context() != before) error += ", the current context changed";
    }).join();
    context.expect(error.empty(), error);
}

}  // namespace

int run_child(const std::string& name, Device& device, Device& host) {
    Context context(device, host, nullptr, name);
    try {
        if (name == "first_capture")
            child_first_capture(context);
        else if (name == "fork")
            child_fork(context);
        else
            context.failures.push_back("no such child: " + name);
    } catch (const std::exception& error) {
        context.failures.push_back(error.what());
    }
    for (const std::string& failure : context.failures)
        std::fprintf(stderr, "     ! %s\n", failure.c_str());
    return context.failures.empty() ? 0 : 1;
}

void run_in_child(Context& context, const std::string& name) {
    std::string words[] = {"moe-gpu-test", "--device", context.device.is_cuda() ? "cuda" : "cpu",
                           "--child", name};
    std::vector<char*> list;
    for (std::string& word : words) list.push_back(word.data());
    list.push_back(nullptr);
    pid_t child = 0;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, list.data(), environ) != 0)
        throw Failure("posix_spawn failed");
    int status = 0;
    waitpid(child, &status, 0);
    context.expect(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                   name + text(": the process ended with %d", status));
}

void add_process_cases(CaseList& list) {
    list.add("process/fork", Extent::smoke,
             [](Context& context) { run_in_child(context, "fork"); });
    list.add("process/bare_thread", Extent::smoke, check_bare_thread);
    list.add("process/other_device", Extent::smoke, check_other_device);
}

}  // namespace moe_gpu
