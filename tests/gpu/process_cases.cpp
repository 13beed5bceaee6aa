// What concerns the whole process: forks, the current context of a thread, the first call of all.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "families.hpp"
#include "layer_kinds.hpp"

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
void child_first_capture(Context& context, const PairSpec& spec, int64_t n_tokens) {
    const Pair pair(context, spec);
    const Side& side = pair.subject;
    const Forward call = pair.routed_call(n_tokens);
    ForwardBuffers buffers(side, call, side.stream());
    const auto graph = side.device.capture(side.stream(), [&] {
        must(moe_forward(side.plan.get(), side.weights.get(), side.workspace(), &buffers.args()),
             "moe_forward under capture");
    });
    graph->launch(side.stream());
    side.synchronize();
    context.kernels = side.kernels(n_tokens);
    pair.expect_launched(launches_since(0), MOE_STAGE_EXPERTS, n_tokens, false);
    pair.measure(buffers.get(call), pair.reference.forward(call), call, "captured first");
}

void child_first_capture_of(Context& context, const std::string& filter, int64_t n_tokens) {
    PairSpec spec = first_of_process_spec();
    spec.subject = [&](moe_plan_desc& desc) { desc.kernel_filter = filter.c_str(); };
    child_first_capture(context, spec, n_tokens);
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

// The parent reads this: a line for each kernel, and the numbers of checks.
void print_kernels(const Context& context) {
    for (const std::string& kernel : context.kernels) std::printf("kernel %s\n", kernel.c_str());
    for (const std::string& kernel : names_of(launches_since(0)))
        std::printf("launched %s\n", kernel.c_str());
    std::printf("named_checked %ld\n", static_cast<long>(context.n_named_checked));
    std::printf("functions_checked %ld\n", static_cast<long>(context.n_functions_checked));
}

void take_line(Context& context, const std::string& line) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) return;
    const std::string key = line.substr(0, space), value = line.substr(space + 1);
    if (key == "kernel") context.kernels.insert(value);
    if (key == "launched") context.launched_elsewhere.insert(value);
    if (key == "named_checked") context.n_named_checked += std::atol(value.c_str());
    if (key == "functions_checked") context.n_functions_checked += std::atol(value.c_str());
}

void take_lines(Context& context, int descriptor) {
    std::FILE* file = fdopen(descriptor, "r");
    if (!file) throw Failure("fdopen failed");
    char line[1024];
    while (std::fgets(line, sizeof line, file)) {
        line[std::strcspn(line, "\n")] = 0;
        take_line(context, line);
    }
    std::fclose(file);
}

// This program again, with its standard output in a pipe whose end to read from is returned.
pid_t start(std::vector<std::string> words, int& read_end) {
    std::vector<char*> list;
    for (std::string& word : words) list.push_back(word.data());
    list.push_back(nullptr);
    int ends[2];
    if (pipe(ends) != 0) throw Failure("pipe failed");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    pid_t child = 0;
    const int error =
        posix_spawn(&child, "/proc/self/exe", &actions, nullptr, list.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    read_end = ends[0];
    if (error != 0) throw Failure("posix_spawn failed");
    return child;
}

void run_named_child(Context& context, const std::string& name, const std::string& filter) {
    if (name == "first_capture")
        child_first_capture(context, small_spec(), 64);
    else if (name == "first_capture_of_1")
        child_first_capture_of(context, filter, 1);
    else if (name == "first_capture_of_64")
        child_first_capture_of(context, filter, 64);
    else if (name == "fork")
        child_fork(context);
    else
        context.failures.push_back("no such child: " + name);
    check_functions(context, launches_since(0));
}

}  // namespace

PairSpec first_of_process_spec() {
    PairSpec spec;
    spec.layer.desc = rich_layer_on_grid(128, 64, 8, 3);
    spec.max_tokens = 64;
    return spec;
}

int run_child(const std::string& name, const std::string& filter, Device& device, Device& host) {
    Context context(device, host, nullptr, name);
    are_launches_recorded();
    try {
        run_named_child(context, name, filter);
    } catch (const std::exception& error) {
        context.failures.push_back(error.what());
    }
    print_kernels(context);
    for (const std::string& failure : context.failures)
        std::fprintf(stderr, "     ! %s\n", failure.c_str());
    return context.failures.empty() ? 0 : 1;
}

void run_in_child(Context& context, const std::string& name, const std::string& filter) {
    int read_end = -1, status = 0;
    const pid_t child =
        start({"moe-gpu-test", "--device", context.device.is_cuda() ? "cuda" : "cpu", "--child",
               name, "--child-filter", filter, "--kernels", context.device.kernels},
              read_end);
    take_lines(context, read_end);
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
