// moe_forward, moe_forward_spmd and the stages.
#include "libmoe/cpu/forward.hpp"

#include "libmoe/api/arguments.hpp"
#include "libmoe/api/guard.hpp"
#include "libmoe/api/workspace.hpp"
#include "libmoe/base/runtime_team.hpp"
#include "libmoe/plan/plan.hpp"
#include "libmoe/weights/weights_handle.hpp"

namespace moe {
namespace {

// The workspace is taken for the duration of a call.
class Lease {
  public:
    explicit Lease(moe_workspace& workspace) : workspace_(workspace) {
        if (workspace.busy.exchange(true, std::memory_order_acquire))
            fail(MOE_ERROR_BUSY, "workspace is in use by another thread");
    }
    ~Lease() { workspace_.busy.store(false, std::memory_order_release); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

  private:
    moe_workspace& workspace_;
};

void check_weights(const moe_plan& plan, const moe_weights* weights) {
    check_handle(weights, "weights");
    if (plan.layout.id != weights->layout.id)
        fail(MOE_ERROR_LAYOUT_MISMATCH, "weights were loaded for another layout than the plan's");
    require(weights->layout.device_index == plan.layout.device_index,
            "weights are on device {}, the plan is for device {}", weights->layout.device_index,
            plan.layout.device_index);
}

void check_workspace(const moe_plan& plan, const moe_workspace& workspace, int64_t n_tokens) {
    require(workspace.device == plan.device && workspace.device_index == plan.device_index,
            "workspace is of device {} and index {}, the plan of device {} and index {}",
            static_cast<int32_t>(workspace.device), workspace.device_index,
            static_cast<int32_t>(plan.device), plan.device_index);
    const moe_workspace_need all = plan.workspace_need(n_tokens);
    const uint64_t need = plan.is_cuda() ? all.device_bytes : all.host_bytes;
    if (workspace.bytes < need)
        fail(MOE_ERROR_WORKSPACE_TOO_SMALL, "workspace has {} bytes, {} tokens need {}",
             workspace.bytes, n_tokens, need);
}

void check_process(const moe_plan& plan) {
    if (plan.runtime->pool && plan.runtime->pool->forked())
        fail(MOE_ERROR_FORKED, "the runtime's threads stayed in the parent of this forked process");
}

// Stages that own no weights still need something to refer to.
const ResidentWeights& weights_or_none(const moe_weights* weights) {
    static const ResidentWeights none(std::pmr::null_memory_resource());
    return weights ? weights->resident : none;
}

cpu::Call make_call(Team& team, const moe_plan& plan, const moe_weights* weights,
                    moe_workspace& workspace) {
    return {
        team,           plan.setup, weights_or_none(weights), workspace.faults, workspace.memory,
        workspace.bytes};
}

cuda::Call make_cuda_call(const moe_plan& plan, const moe_weights* weights,
                          moe_workspace& workspace, void* stream) {
    static const DeviceWeights none;
    return {plan.cuda,
            weights ? weights->device : none,
            workspace.fault_words(),
            workspace.memory,
            workspace.bytes,
            stream};
}

// Dispatch is work of one thread and has no number of them.
template <class Args>
int32_t threads_of(const Args& args) {
    if constexpr (requires { args.n_threads; })
        return args.n_threads;
    else
        return 1;
}

// What every stage call does: arguments, workspace, and the device's way to run it.
template <class Args, class Check, class Cpu, class Cuda>
moe_status run_stage(const moe_plan* plan, const moe_weights* weights, bool needs_weights,
                     moe_workspace* workspace, const Args* given, Check check, Cpu run_cpu,
                     Cuda run_cuda) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        check_handle(workspace, "workspace");
        if (needs_weights) check_weights(*plan, weights);
        const Args args = check(*plan, given);
        check_process(*plan);
        check_workspace(*plan, *workspace, args.n_tokens);
        Lease lease(*workspace);
        if (plan->is_cuda()) {
            const device::UseDevice use(plan->device_index);
            return run_cuda(make_cuda_call(*plan, weights, *workspace, args.stream), args);
        }
        with_team(*plan->runtime, threads_of(args),
                  [&](Team& team) { run_cpu(make_call(team, *plan, weights, *workspace), args); });
    });
}

// Without rows there may be no tables of them to look at.
template <class Run>
auto where_work_is(Run run) {
    return [run](const auto& call, const auto& args) {
        if (has_work(args)) run(call, args);
    };
}

}  // namespace
}  // namespace moe

using namespace moe;

moe_status moe_forward(const moe_plan* plan, const moe_weights* weights, moe_workspace* workspace,
                       const moe_forward_args* args) noexcept {
    return run_stage(plan, weights, true, workspace, args, forward_arguments, cpu::forward,
                     cuda::forward);
}

moe_status moe_forward_spmd(const moe_plan* plan, const moe_weights* weights,
                            moe_workspace* workspace, const moe_forward_args* given,
                            int32_t thread_index, int32_t n_threads) noexcept {
    return guard([&] {
        // Every thread checks the same arguments and so comes to the same status before the first
        // barrier.
        check_handle(plan, "plan");
        check_handle(workspace, "workspace");
        if (plan->is_cuda())
            fail(MOE_ERROR_UNSUPPORTED,
                 "moe_forward_spmd is for CPU plans: a CUDA plan takes moe_forward on a stream");
        check_weights(*plan, weights);
        require(n_threads > 0, "n_threads is {}", n_threads);
        const moe_forward_args args = forward_arguments(*plan, given);
        check_workspace(*plan, *workspace, args.n_tokens);
        require(thread_index >= 0 && thread_index < n_threads,
                "thread_index is {}, n_threads is {}", thread_index, n_threads);
        SpmdTeam team(workspace->rendezvous, thread_index, n_threads, plan->setup.n_workers);
        cpu::forward(make_call(team, *plan, weights, *workspace), args);
    });
}

moe_status moe_route(const moe_plan* plan, const moe_weights* weights, moe_workspace* workspace,
                     const moe_route_args* args) noexcept {
    return run_stage(plan, weights, true, workspace, args, route_arguments, cpu::route,
                     cuda::route);
}

moe_status moe_dispatch(const moe_plan* plan, moe_workspace* workspace,
                        const moe_dispatch_args* args) noexcept {
    return run_stage(plan, nullptr, false, workspace, args, dispatch_arguments, cpu::dispatch_rows,
                     cuda::dispatch_rows);
}

moe_status moe_gather(const moe_plan* plan, moe_workspace* workspace,
                      const moe_gather_args* args) noexcept {
    return run_stage(plan, nullptr, false, workspace, args, gather_arguments,
                     where_work_is(cpu::gather), where_work_is(cuda::gather));
}

moe_status moe_experts(const moe_plan* plan, const moe_weights* weights, moe_workspace* workspace,
                       const moe_experts_args* args) noexcept {
    return run_stage(plan, weights, true, workspace, args, experts_arguments,
                     where_work_is(cpu::experts), where_work_is(cuda::experts));
}

moe_status moe_combine(const moe_plan* plan, moe_workspace* workspace,
                       const moe_combine_args* args) noexcept {
    return run_stage(plan, nullptr, false, workspace, args, combine_arguments, cpu::combine,
                     cuda::combine);
}

moe_status moe_finish(const moe_plan* plan, const moe_weights* weights, moe_workspace* workspace,
                      const moe_finish_args* args) noexcept {
    return run_stage(plan, weights, true, workspace, args, finish_arguments, cpu::finish,
                     cuda::finish);
}
