// The first CUDA device, through the runtime linked into this program: nothing here is the
// library's.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "device.hpp"
#include "handles.hpp"

namespace moe_gpu {
namespace {

void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw Failure(std::string(what) + ": " + cudaGetErrorString(status));
}

cudaStream_t as_stream(void* stream) {
    return static_cast<cudaStream_t>(stream);
}

class CapturedGraph : public Graph {
  public:
    CapturedGraph(cudaStream_t stream, const std::function<void()>& work) {
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
        cudaGraph_t graph = nullptr;
        try {
            work();
        } catch (...) {
            cudaStreamEndCapture(stream, &graph);
            if (graph) cudaGraphDestroy(graph);
            throw;
        }
        check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
        const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
        cudaGraphDestroy(graph);
        check(status, "cudaGraphInstantiate");
    }
    ~CapturedGraph() override { cudaGraphExecDestroy(exec_); }
    void launch(void* stream) override {
        check(cudaGraphLaunch(exec_, as_stream(stream)), "cudaGraphLaunch");
    }

  private:
    cudaGraphExec_t exec_ = nullptr;
};

// A runtime knows the kernels of what it is linked into: the library's own answers for it where it
// exports that, else this program's, which is the same one on the emulator.
std::string function_name(const void* function) {
    using Ask = const char* (*)(const void*);
    static const auto ask = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "moe_test_function_name"));
    const char* name = nullptr;
    if (ask) return (name = ask(function)) ? name : "";
    return cudaFuncGetName(&name, function) == cudaSuccess && name ? name : "";
}

class CudaDevice : public Device {
  public:
    CudaDevice() {
        check(cudaSetDevice(0), "cudaSetDevice");
        check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "cudaStreamCreate");
        void* entry = nullptr;
        cudaDriverEntryPointQueryResult found{};
        check(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &entry, 12000, cudaEnableDefault,
                                               &found),
              "cudaGetDriverEntryPointByVersion");
        if (!entry) throw Failure("the driver has no cuCtxGetCurrent");
        get_current_ = reinterpret_cast<CUresult (*)(CUcontext*)>(entry);
    }
    ~CudaDevice() override { cudaStreamDestroy(copies_); }

    moe_device_kind kind() const override { return MOE_DEVICE_CUDA; }
    DeviceNames names() const override {
        cudaDeviceProp properties{};
        int driver = 0, runtime = 0;
        check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
        check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
        check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
        return {properties.name, version(driver), version(runtime)};
    }
    uint64_t free_bytes() const override {
        size_t free = 0, total = 0;
        check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return free;
    }

    void* allocate(uint64_t bytes) override {
        void* memory = nullptr;
        check(cudaMalloc(&memory, bytes), "cudaMalloc");
        return memory;
    }
    void release(void* memory) noexcept override { cudaFree(memory); }
    void upload(void* to, const void* from, uint64_t bytes) override {
        copy(to, from, bytes, cudaMemcpyHostToDevice);
    }
    void download(void* to, const void* from, uint64_t bytes) override {
        copy(to, from, bytes, cudaMemcpyDeviceToHost);
    }
    void fill(void* to, int byte, uint64_t bytes) override {
        check(cudaMemsetAsync(to, byte, bytes, copies_), "cudaMemsetAsync");
        check(cudaStreamSynchronize(copies_), "cudaStreamSynchronize");
    }

    void* make_stream() override {
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
        return stream;
    }
    void destroy_stream(void* stream) noexcept override { cudaStreamDestroy(as_stream(stream)); }
    void synchronize(void* stream) override {
        check(cudaStreamSynchronize(as_stream(stream)), "cudaStreamSynchronize");
    }
    std::unique_ptr<Graph> capture(void* stream, std::function<void()> work) override {
        return std::make_unique<CapturedGraph>(as_stream(stream), work);
    }

    int count() const override {
        int n = 0;
        check(cudaGetDeviceCount(&n), "cudaGetDeviceCount");
        return n;
    }
    void make_current(int index) override { check(cudaSetDevice(index), "cudaSetDevice"); }
    void* current_context() override {
        CUcontext context = nullptr;
        if (get_current_(&context) != CUDA_SUCCESS) throw Failure("cuCtxGetCurrent failed");
        return context;
    }

    std::string kernel_function_name(const void* function) override {
        return function_name(function);
    }

  private:
    static std::string version(int number) {
        return text("%d.%d", number / 1000, number % 1000 / 10);
    }
    void copy(void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind) {
        if (!bytes) return;
        check(cudaMemcpyAsync(to, from, bytes, kind, copies_), "cudaMemcpyAsync");
        check(cudaStreamSynchronize(copies_), "cudaStreamSynchronize");
    }

    cudaStream_t copies_ = nullptr;
    CUresult (*get_current_)(CUcontext*) = nullptr;  // found here: a thread may have no context
};

}  // namespace

std::unique_ptr<Device> make_cuda_device() {
    return std::make_unique<CudaDevice>();
}

}  // namespace moe_gpu
