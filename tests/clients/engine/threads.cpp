// The library on the engine's threads: as a parallel_for that the engine gives, and entered by all
// of them at once. The work is shared, no thread is made, and the bits are those of one thread.
#include "engine/engine.hpp"
#include "support/layer_tensors.hpp"
#include "support/process_facts.hpp"
#include "support/reference_layer.hpp"
#include "support/thread_team.hpp"

namespace clients {
namespace {

struct Job {
    LayerWeights layer;
    LayerTensors tensors;
    int64_t T;
    std::vector<float> x;

    Job()
        : layer(random_weights(description(), 21)),
          tensors(layer, "bf16", Form::stacked),
          T(128),
          x(Random(22).values(T * 256)) {}

    static moe_layer_desc description() {
        moe_layer_desc desc = plain_layer(256, 192, 16, 4);
        desc.shared_intermediate = 96;
        desc.shared_activation = MOE_ACTIVATION_SILU;
        desc.shared_is_gated = 1;
        return desc;
    }
    moe_forward_args args(std::vector<float>& out, int64_t n_tokens) const {
        auto result = sized<moe_forward_args>();
        result.n_tokens = n_tokens;
        result.x = x.data();
        result.out = out.data();
        return result;
    }
};

std::vector<float> on_one_thread(const Job& job, int64_t n_tokens) {
    const Runtime runtime = make_runtime(1);
    const LayerRun run(runtime.get(), job.tensors, job.tensors.plan_desc(job.layer.desc, job.T));
    std::vector<float> out = poisoned(n_tokens * job.layer.desc.hidden);
    CHECK_OK(run.forward(job.args(out, n_tokens)));
    return out;
}

std::vector<float> on_own_pool(const Job& job, int32_t n_threads, int64_t n_tokens) {
    const Runtime runtime = make_runtime(n_threads);
    const LayerRun run(runtime.get(), job.tensors, job.tensors.plan_desc(job.layer.desc, job.T));
    std::vector<float> out = poisoned(n_tokens * job.layer.desc.hidden);
    CHECK_OK(run.forward(job.args(out, n_tokens)));
    return out;
}

void check_same_bits(const std::vector<float>& want, const std::vector<float>& got,
                     const char* name, int32_t n) {
    CHECK(want.size() == got.size() && !std::memcmp(want.data(), got.data(), want.size() * 4),
          "%s with %d threads: other bits than one thread (relative L2 %g)", name, n,
          relative_l2(want.data(), got.data(), int64_t(want.size())));
}

void check_shares(const ThreadTeam& team) {
    double total = 0.0;
    for (const ThreadTeam::Share& share : team.shares()) total += share.seconds;
    for (size_t i = 0; i < team.shares().size(); ++i) {
        const ThreadTeam::Share& share = team.shares()[i];
        std::printf("  thread %zu: %lld tasks, %4.1f %% of the work\n", i,
                    static_cast<long long>(share.tasks), 100.0 * share.seconds / total);
        CHECK(share.tasks > 0, "thread %zu got no task", i);
        CHECK(share.seconds > 0.2 * total / double(team.size()),
              "thread %zu got %.3f of %.3f seconds", i, share.seconds, total);
    }
}

void through_parallel_for(const Job& job, int32_t n, const std::vector<float>& want, bool measure) {
    ThreadTeam team(n);
    const int threads = count_threads();
    auto desc = sized<moe_runtime_desc>();
    desc.n_threads = n;
    desc.parallel_for = ThreadTeam::parallel_for;
    desc.parallel_for_user_data = &team;
    const Runtime runtime = make_runtime(desc);
    const LayerRun run(runtime.get(), job.tensors, job.tensors.plan_desc(job.layer.desc, job.T));
    team.forget_shares();
    const int64_t n_tokens = int64_t(want.size()) / job.layer.desc.hidden;
    std::vector<float> out = poisoned(int64_t(want.size()));
    for (int repeat = 0; repeat < (measure ? 8 : 1); ++repeat)
        CHECK_OK(run.forward(job.args(out, n_tokens)));
    CHECK(count_threads() == threads, "the library made a thread although it has parallel_for");
    check_same_bits(want, out, "parallel_for", n);
    if (measure) check_shares(team);
}

// Every thread enters; none of the library's exists.
void entered_by_all(const Job& job, int32_t n, const std::vector<float>& want) {
    ThreadTeam team(n);
    const int threads = count_threads();
    const Runtime runtime = make_runtime(n);
    const LayerRun run(runtime.get(), job.tensors, job.tensors.plan_desc(job.layer.desc, job.T));
    const int64_t n_tokens = int64_t(want.size()) / job.layer.desc.hidden;
    std::vector<float> out = poisoned(int64_t(want.size()));
    moe_forward_args args = job.args(out, n_tokens);
    std::vector<moe_status> statuses(size_t(n), MOE_ERROR_INTERNAL);
    const auto enter = [&](int32_t i) {
        statuses[size_t(i)] =
            moe_forward_spmd(run.plan.get(), run.weights.get(), run.workspace.get(), &args, i, n);
    };
    for (int repeat = 0; repeat < 3; ++repeat) {
        std::fill(out.begin(), out.end(), poison());
        team.run(enter);
        for (moe_status status : statuses)
            CHECK(status == MOE_OK, "a thread of %d got %s", n, moe_status_name(status));
        check_same_bits(want, out, "spmd", n);
    }
    CHECK(count_threads() == threads, "the library made a thread in moe_forward_spmd");

    args.n_tokens = -1;  // an error is everybody's error, and nobody waits at a barrier for ever
    team.run(enter);
    for (moe_status status : statuses)
        CHECK(status == MOE_ERROR_INVALID_ARGUMENT, "n_tokens -1: a thread of %d got %s", n,
              moe_status_name(status));
}

}  // namespace

void threads_of_the_engine() {
    std::puts("threads");
    const Job job;
    const int threads = count_threads();
    const Doubles judge =
        reference_forward(job.layer, job.x, 5, reference_route(job.layer, job.x, 5));
    // bf16 weights, float32 activations
    CHECK_ROWS(judge, on_one_thread(job, 5), 5, job.layer.desc.hidden, f32_tolerance,
               "one thread against double");
    for (int64_t n_tokens : {job.T, int64_t(1), int64_t(5)}) {
        const std::vector<float> want = on_one_thread(job, n_tokens);
        CHECK(count_threads() == threads, "one thread is the caller's own");
        check_same_bits(want, on_own_pool(job, 3, n_tokens), "own pool", 3);
        for (int32_t n : {1, 2, 3, 7}) {
            through_parallel_for(job, n, want, false);
            entered_by_all(job, n, want);
        }
        std::printf(
            "  %lld tokens: the same bits on 1, 2, 3 and 7 threads, pool, parallel_for and spmd\n",
            static_cast<long long>(n_tokens));
    }
    through_parallel_for(job, 4, on_one_thread(job, job.T), true);
}

}  // namespace clients
