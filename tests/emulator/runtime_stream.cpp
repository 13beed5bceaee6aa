// Streams, graphs and events. Enqueued work has run when the call returns, except launches, which
// end at the next call other than a launch. Under a capture, work becomes a node of a graph, which
// keeps the order of its nodes.
#include <chrono>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulator/runtime.hpp"

using Node = std::function<void()>;

struct CUgraph_st {
    std::vector<Node> nodes;
};

struct CUgraphExec_st {
    std::vector<Node> nodes;
};

struct CUstream_st {
    CUgraph_st* graph = nullptr;  // set during a capture
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread;
    bool is_spoilt = false;
};

struct CUevent_st {
    std::chrono::steady_clock::time_point time;
    bool is_recorded = false;
};

namespace emulator {
namespace {

std::set<cudaStream_t>& streams() {
    static auto& kept = *new std::set<cudaStream_t>;
    return kept;
}

bool is_known(cudaStream_t stream) {
    return !stream || streams().count(stream) > 0;
}

}  // namespace

bool is_capturing(cudaStream_t stream) {
    return stream && stream->graph;
}

bool spoil_captures() {
    bool any = false;
    for (const cudaStream_t stream : streams()) {
        if (!stream->graph || stream->mode == cudaStreamCaptureModeRelaxed) continue;
        const bool is_own = stream->thread == std::this_thread::get_id();
        if (!is_own && stream->mode != cudaStreamCaptureModeGlobal) continue;
        any = stream->is_spoilt = true;
    }
    return any;
}

namespace {

cudaError_t run_or_keep(cudaStream_t stream, Node work) {
    if (!is_known(stream)) return cudaErrorInvalidResourceHandle;
    if (!is_capturing(stream)) {
        work();
        return cudaSuccess;
    }
    if (stream->is_spoilt) return cudaErrorStreamCaptureInvalidated;
    stream->graph->nodes.push_back(std::move(work));
    return cudaSuccess;
}

}  // namespace

LaunchChain& launches() {
    static auto& kept = *new LaunchChain;
    return kept;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
    return run_or_keep(stream, [work = std::move(work)] {
        launches().finish();
        work();
    });
}

// Work of another stream is not overtaken, either, because it has ended.
cudaError_t enqueue_launch(cudaStream_t stream, bool begins_early, LaunchChain::Body body) {
    static cudaStream_t last = nullptr;
    return run_or_keep(stream, [=, body = std::move(body)] {
        if (!begins_early || std::exchange(last, stream) != stream) launches().finish();
        launches().start(body);
    });
}

}  // namespace emulator

using emulator::Call;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned int) {
    return emulator::call(Call::on_device, [&] {
        *out = *emulator::streams().insert(new CUstream_st).first;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return emulator::call(Call::on_device, [&] {
        if (emulator::streams().erase(stream) == 0) return cudaErrorInvalidResourceHandle;
        delete stream->graph;
        delete stream;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return emulator::call(Call::on_device, [&] {
        if (!emulator::is_known(stream)) return cudaErrorInvalidResourceHandle;
        if (!emulator::is_capturing(stream)) return cudaSuccess;
        stream->is_spoilt = true;
        return cudaErrorStreamCaptureUnsupported;
    });
}

cudaError_t cudaDeviceSynchronize() {
    return emulator::call(Call::unsafe, [] { return cudaSuccess; });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    return emulator::call(Call::on_device, [&] {
        if (!stream) return cudaErrorStreamCaptureUnsupported;
        if (!emulator::is_known(stream)) return cudaErrorInvalidResourceHandle;
        if (stream->graph) return cudaErrorIllegalState;
        stream->graph = new CUgraph_st;
        stream->mode = mode;
        stream->thread = std::this_thread::get_id();
        stream->is_spoilt = false;
        return cudaSuccess;
    });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
    return emulator::call(Call::on_device, [&] {
        *out = nullptr;
        if (!emulator::is_known(stream)) return cudaErrorInvalidResourceHandle;
        if (!emulator::is_capturing(stream)) return cudaErrorIllegalState;
        CUgraph_st* graph = std::exchange(stream->graph, nullptr);
        if (!stream->is_spoilt) {
            *out = graph;
            return cudaSuccess;
        }
        delete graph;
        return cudaErrorStreamCaptureInvalidated;
    });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
    return emulator::call(Call::on_device, [&] {
        if (!graph) return cudaErrorInvalidValue;
        *out = new CUgraphExec_st{graph->nodes};
        return cudaSuccess;
    });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    return emulator::call(Call::on_device, [&] {
        if (!graph) return cudaErrorInvalidValue;
        for (const Node& node : graph->nodes)
            if (const cudaError_t error = emulator::run_or_keep(stream, node); error != cudaSuccess)
                return error;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return emulator::call(Call::query, [&] {
        delete graph;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    return emulator::call(Call::query, [&] {
        delete graph;
        return cudaSuccess;
    });
}

cudaError_t cudaEventCreate(cudaEvent_t* out) {
    return emulator::call(Call::on_device, [&] {
        *out = new CUevent_st;
        return cudaSuccess;
    });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return emulator::call(Call::on_device, [&] {
        delete event;
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return emulator::call(Call::on_device, [&] {
        return emulator::enqueue(stream, [=] {
            event->time = std::chrono::steady_clock::now();
            event->is_recorded = true;
        });
    });
}

// Host time, which measures the emulator.
cudaError_t cudaEventElapsedTime(float* out, cudaEvent_t begin, cudaEvent_t end) {
    return emulator::call(Call::on_device, [&] {
        if (!begin->is_recorded || !end->is_recorded) return cudaErrorInvalidResourceHandle;
        *out = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
        return cudaSuccess;
    });
}
