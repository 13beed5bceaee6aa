#include "backend.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "chain.hpp"
#include "experts.hpp"
#include "host.hpp"
#include "known_graphs.hpp"
#include "loops.hpp"
#include "names.hpp"
#include "threads.hpp"
#include "values.hpp"

namespace moe::ggml {
namespace {

// ggml tells backends apart by these bytes.
constexpr uint8_t guid[16] = {'l', 'i', 'b', 'm', 'o', 'e', 0,   1,
                              'e', 'x', 'p', 'e', 'r', 't', 's', 0};

struct Counts {
    std::atomic<uint64_t> graphs{}, chains{}, slot_chains{}, matrices{}, loops{}, shared{};
};

Counts counts;

class Computer {
  public:
    Status compute(Graph* graph) {
        ++counts.graphs;
        nodes_.clear();
        for (int i = 0; i < host.graph_n_nodes(graph); ++i) {
            Tensor* node = host.graph_node(graph, i);
            const bool is_wanted = !host.has_compute_flag || node->flags & flag_compute;
            if (is_wanted && !is_empty(node)) nodes_.push_back(node);
        }
        KnownGraph& known = known_graphs_.get(
            nodes_, [this](const Chain& chain) { return experts_.can_run(chain); });
        Status status = Status::failed;
        std::exception_ptr failure;  // ggml is between here and there
        const bool is_shared = threads_.run([&] {
            try {
                status = run_all(known);
            } catch (...) {
                failure = std::current_exception();
            }
        });
        if (is_shared) ++counts.shared;
        if (failure) std::rethrow_exception(failure);
        return status;
    }

    void set_n_threads(int n_threads) { threads_.set_n_threads(n_threads); }

    void set_abort_callback(AbortCallback callback, void* data) {
        abort_ = callback;
        abort_data_ = data;
    }

  private:
    Status run_all(KnownGraph& known) {
        for (const Step& step : known.steps.list()) {
            if (abort_ && abort_(abort_data_)) return Status::aborted;
            if (!run(step, known)) return Status::failed;
        }
        return Status::success;
    }
    bool run(const Step& step, KnownGraph& known) {
        if (step.chain) {
            ++(step.chain->routing_weights ? counts.chains : counts.slot_chains);
            return experts_.run(*step.chain, known.chains[step.index], threads_.n_threads());
        }
        if (op_of(step.node) == Op::mul_mat_id &&
            experts_.run_matrix(step.node, threads_.n_threads())) {
            ++counts.matrices;
            return true;
        }
        ++counts.loops;
        if (run_by_loops(step.node)) return true;
        std::fprintf(stderr, "libmoe: cannot compute %s, a %s\n", step.node->name,
                     host.op_name(step.node->op));
        return false;
    }

    Experts experts_;
    KnownGraphs known_graphs_;
    std::vector<Tensor*> nodes_;
    HostThreads threads_;
    AbortCallback abort_ = nullptr;
    void* abort_data_ = nullptr;
};

Computer* computer_of(Backend* backend) {
    // All that differs between the layouts lies between the two members at the ends.
    void* context = host.has_row_copies
                        ? reinterpret_cast<BackendOf<BackendCallsWithRows>*>(backend)->context
                        : reinterpret_cast<BackendOf<BackendCalls>*>(backend)->context;
    return static_cast<Computer*>(context);
}

// Exceptions end here: ggml is C.
Status compute(Backend* backend, Graph* graph) {
    try {
        return computer_of(backend)->compute(graph);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "libmoe: %s\n", error.what());
        return Status::failed;
    }
}

// A line for those who want to know whether it was used.
void report_counts() {
    const char* value = std::getenv("MOE_GGML_REPORT");
    if (!value || std::strcmp(value, "1") != 0 || counts.graphs == 0) return;
    std::fprintf(
        stderr,
        "libmoe: %llu graphs, %llu on ggml's threads, %llu expert chains, %llu by slot, %llu "
        "matrices, %llu loops\n",
        static_cast<unsigned long long>(counts.graphs),
        static_cast<unsigned long long>(counts.shared),
        static_cast<unsigned long long>(counts.chains),
        static_cast<unsigned long long>(counts.slot_chains),
        static_cast<unsigned long long>(counts.matrices),
        static_cast<unsigned long long>(counts.loops));
}

template <class Calls>
void end_backend(Backend* backend) {
    report_counts();
    delete computer_of(backend);
    delete reinterpret_cast<BackendOf<Calls>*>(backend);
}

template <class Calls>
Backend* start_as(Device* device) {
    auto computer = std::make_unique<Computer>();
    auto backend = std::make_unique<BackendOf<Calls>>();
    backend->guid = guid;
    backend->calls.name = [](Backend*) { return "LIBMOE"; };
    backend->calls.release = end_backend<Calls>;
    backend->calls.compute = compute;
    backend->device = device;
    backend->context = computer.release();
    return reinterpret_cast<Backend*>(backend.release());
}

}  // namespace

Backend* start_backend(Device* device) {
    find_host_threads();
    return host.has_row_copies ? start_as<BackendCallsWithRows>(device)
                               : start_as<BackendCalls>(device);
}

void set_n_threads(Backend* backend, int n_threads) {
    computer_of(backend)->set_n_threads(n_threads);
}

void set_abort_callback(Backend* backend, AbortCallback callback, void* data) {
    computer_of(backend)->set_abort_callback(callback, data);
}

}  // namespace moe::ggml

void moe_ggml_get_counts(moe_ggml_counts* out_counts) {
    using moe::ggml::counts;
    *out_counts = {counts.graphs,   counts.chains, counts.slot_chains,
                   counts.matrices, counts.loops,  counts.shared};
}
