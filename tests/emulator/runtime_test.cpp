// Tests the emulated CUDA runtime from a program's side: memory, captures, limits of launches,
// contexts, faults. Its kernels are the PTX below, registered in the same way as nvcc's code does.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*,
                                       dim3*, dim3*, int*);
extern "C" cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);

namespace {

// fill stores to[thread of the grid] = value + thread of the block. The other kernel does nothing
// and has a name of internal linkage.
constexpr const char* ptx = R"(
.version 8.0
.target sm_90a
.address_size 64

.visible .entry fill(.param .u64 fill_to, .param .u32 fill_value)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [fill_to];
    ld.param.u32 %r1, [fill_value];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mad.lo.s32 %r5, %r3, %r4, %r2;
    mul.wide.u32 %rd2, %r5, 4;
    add.s64 %rd3, %rd1, %rd2;
    add.s32 %r2, %r2, %r1;
    st.global.u32 [%rd3], %r2;
    ret;
}

.visible .entry _ZN1a43_GLOBAL__N__01234567_10_example_cu_89abcdef4emptyEv()
{
    ret;
}
)";

char fill, renamed, missing, unregistered;  // "host functions": their addresses are all that counts

void register_kernel(const char& function, const char* name) {
    __cudaRegisterFunction(nullptr, &function, nullptr, name, -1, nullptr, nullptr, nullptr,
                           nullptr, nullptr);
}

// It runs before the first call, because the runtime reads its environment once.
class Kernels : public testing::Environment {
  public:
    void SetUp() override {
        static const std::string folder =
            testing::TempDir() + "moe_emulator_" + std::to_string(::getpid());
        std::filesystem::create_directories(folder);
        std::atexit([] { std::filesystem::remove_all(folder); });
        std::ofstream(folder + "/test.ptx") << ptx;
        setenv("MOE_EMULATOR_PTX", folder.c_str(), 1);
        register_kernel(fill, "fill");
        register_kernel(renamed, "_ZN1a43_GLOBAL__N__76543210_10_example_cu_fedcba984emptyEv");
        register_kernel(missing, "no_ptx_has_it");
    }
};

const auto* const kernels = testing::AddGlobalTestEnvironment(new Kernels);

constexpr size_t n_words = 64;

struct Words {
    Words() { EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data), n_words * 4), cudaSuccess); }
    ~Words() { cudaFree(data); }
    std::vector<uint32_t> get() const {
        std::vector<uint32_t> words(n_words);
        EXPECT_EQ(cudaMemcpy(words.data(), data, n_words * 4, cudaMemcpyDeviceToHost), cudaSuccess);
        return words;
    }
    uint32_t* data = nullptr;
};

struct Stream {
    Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), cudaSuccess); }
    ~Stream() { cudaStreamDestroy(handle); }
    cudaStream_t handle = nullptr;
};

cudaError_t launch(const char& function, unsigned blocks, unsigned threads, uint32_t* to,
                   uint32_t value, size_t shared = 0, cudaStream_t stream = nullptr,
                   unsigned cluster = 0) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = cluster ? 1 : 0;
    void* values[] = {&to, &value};
    return cudaLaunchKernelExC(&config, &function, values);
}

cudaDeviceProp properties() {
    cudaDeviceProp found{};
    EXPECT_EQ(cudaGetDeviceProperties(&found, 0), cudaSuccess);
    return found;
}

TEST(Runtime, IsAnH200UnlessToldOtherwise) {
    const cudaDeviceProp found = properties();
    EXPECT_EQ(found.major, 9);
    EXPECT_EQ(found.sharedMemPerBlockOptin, 227u << 10);
    EXPECT_EQ(found.sharedMemPerMultiprocessor, 228u << 10);
    EXPECT_NE(std::string(found.name).find("emulated"), std::string::npos);
    cudaDeviceProp none{};
    EXPECT_EQ(cudaGetDeviceProperties(&none, 9), cudaErrorInvalidDevice);
}

[[noreturn]] void exit_with(const char* capability, const char* multiprocessors, bool expected()) {
    setenv("MOE_EMULATOR_CAPABILITY", capability, 1);
    setenv("MOE_EMULATOR_MULTIPROCESSORS", multiprocessors, 1);
    std::exit(expected() ? 0 : 1);
}

TEST(RuntimeDeathTest, IsTheMachineThatTheEnvironmentNames) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(exit_with("12.0", "3",
                          [] {
                              const cudaDeviceProp found = properties();
                              return found.major == 12 && found.multiProcessorCount == 3 &&
                                     found.sharedMemPerBlockOptin == 99u << 10;
                          }),
                testing::ExitedWithCode(0), "");
    EXPECT_EXIT(exit_with("7.0", "3", [] { return properties().major == 7; }),
                testing::ExitedWithCode(2), "MOE_EMULATOR_CAPABILITY=7.0");
    EXPECT_EXIT(exit_with("9.0", "none", [] { return properties().major == 9; }),
                testing::ExitedWithCode(2), "MOE_EMULATOR_MULTIPROCESSORS=none");
}

TEST(Runtime, MemoryIsPoisonedAndAligned) {
    const Words words;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(words.data) % 256, 0u);
    EXPECT_EQ(words.get(), std::vector<uint32_t>(n_words, 0xffffffff));
}

TEST(Runtime, CopiesBeyondAnAllocationAreRefused) {
    const Words words;
    std::vector<uint32_t> host(n_words + 1);
    EXPECT_EQ(cudaMemcpy(words.data, host.data(), n_words * 4 + 1, cudaMemcpyHostToDevice),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(host.data(), host.data() + 1, 4, cudaMemcpyDeviceToHost),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemsetAsync(words.data + 1, 0, n_words * 4, nullptr), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(Runtime, OnlyWhatWasAllocatedIsFreed) {
    void* pinned = nullptr;
    ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
    EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
    EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&pinned, size_t{1} << 50), cudaErrorMemoryAllocation);
}

TEST(Runtime, LaunchesAKernelWithItsArguments) {
    const Words words;
    ASSERT_EQ(launch(fill, 2, 32, words.data, 1000), cudaSuccess);
    for (size_t i = 0; i < n_words; ++i) EXPECT_EQ(words.get()[i], 1000 + i % 32) << i;
    cudaKernel_t kernel = nullptr;
    ASSERT_EQ(__cudaGetKernel(&kernel, &fill), cudaSuccess);
    uint32_t value = 7;
    uint32_t* to = words.data;
    void* values[] = {&to, &value};
    ASSERT_EQ(__cudaLaunchKernel(kernel, 1, 32, values, 0, nullptr), cudaSuccess);
    EXPECT_EQ(words.get()[31], 38u);
    EXPECT_EQ(words.get()[32], 1000u);
}

TEST(Runtime, FindsANameOfInternalLinkageCompiledElsewhere) {
    EXPECT_EQ(launch(renamed, 1, 1, nullptr, 0), cudaSuccess);
    EXPECT_EQ(launch(missing, 1, 1, nullptr, 0), cudaErrorNoKernelImageForDevice);
    EXPECT_EQ(launch(unregistered, 1, 1, nullptr, 0), cudaErrorInvalidDeviceFunction);
}

TEST(Runtime, SharedMemoryAbove48KMustBeAskedFor) {
    const Words words;
    constexpr auto dynamic = cudaFuncAttributeMaxDynamicSharedMemorySize;
    EXPECT_EQ(launch(fill, 1, 32, words.data, 0, 48 << 10), cudaSuccess);
    EXPECT_EQ(launch(fill, 1, 32, words.data, 0, (48 << 10) + 1), cudaErrorInvalidValue);
    EXPECT_EQ(cudaFuncSetAttribute(&fill, dynamic, (227 << 10) + 1), cudaErrorInvalidValue);
    ASSERT_EQ(cudaFuncSetAttribute(&fill, dynamic, 100 << 10), cudaSuccess);
    EXPECT_EQ(launch(fill, 1, 32, words.data, 0, 100 << 10), cudaSuccess);
    EXPECT_EQ(launch(fill, 1, 32, words.data, 0, (100 << 10) + 1), cudaErrorInvalidValue);
    cudaFuncAttributes found{};
    ASSERT_EQ(cudaFuncGetAttributes(&found, &fill), cudaSuccess);
    EXPECT_EQ(found.maxDynamicSharedSizeBytes, 100 << 10);
    EXPECT_EQ(found.ptxVersion, 90);
}

TEST(Runtime, KernelsHaveNames) {
    const char* name = nullptr;
    ASSERT_EQ(cudaFuncGetName(&name, reinterpret_cast<const void*>(&fill)), cudaSuccess);
    EXPECT_NE(std::string(name).find("fill"), std::string::npos) << name;
    EXPECT_EQ(cudaFuncGetName(&name, name), cudaErrorInvalidDeviceFunction);
}

TEST(Runtime, GridsAndClustersHaveLimits) {
    const Words words;
    EXPECT_EQ(launch(fill, 0, 32, words.data, 0), cudaErrorInvalidConfiguration);
    EXPECT_EQ(launch(fill, 1, 1025, words.data, 0), cudaErrorInvalidConfiguration);
    EXPECT_EQ(launch(fill, 2, 32, words.data, 0, 0, nullptr, 2), cudaSuccess);
    EXPECT_EQ(launch(fill, 3, 16, words.data, 0, 0, nullptr, 2), cudaErrorInvalidClusterSize);
}

TEST(Runtime, ACaptureKeepsWhatIsEnqueuedForLater) {
    const Words words, copy;
    const Stream stream;
    cudaFuncAttributes loaded{};
    ASSERT_EQ(cudaFuncGetAttributes(&loaded, &fill), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(words.data, 0, n_words * 4, stream.handle), cudaSuccess);
    EXPECT_EQ(launch(fill, 1, 32, words.data, 5, 0, stream.handle), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(copy.data, words.data, n_words * 4, cudaMemcpyDeviceToDevice,
                              stream.handle),
              cudaSuccess);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream.handle, &graph), cudaSuccess);
    EXPECT_EQ(copy.get()[0], 0xffffffffu);
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(launch(fill, 2, 32, words.data, 9), cudaSuccess);
        ASSERT_EQ(cudaGraphLaunch(exec, stream.handle), cudaSuccess);
        EXPECT_EQ(copy.get()[31], 36u);
        EXPECT_EQ(copy.get()[32], 0u);
    }
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST(Runtime, WhatACaptureDoesNotAllowSpoilsIt) {
    const Stream stream, other;
    for (const bool is_relaxed : {false, true}) {
        const auto mode =
            is_relaxed ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal;
        ASSERT_EQ(cudaStreamBeginCapture(stream.handle, mode), cudaSuccess);
        EXPECT_EQ(cudaStreamSynchronize(other.handle), cudaSuccess);
        void* memory = nullptr;
        EXPECT_EQ(cudaMalloc(&memory, 4),
                  is_relaxed ? cudaSuccess : cudaErrorStreamCaptureUnsupported);
        std::thread([] {
            void* of_thread = nullptr;
            EXPECT_EQ(cudaMalloc(&of_thread, 4), cudaSuccess);
            EXPECT_EQ(cudaFree(of_thread), cudaSuccess);
        }).join();
        cudaGraph_t graph = nullptr;
        EXPECT_EQ(cudaStreamEndCapture(stream.handle, &graph),
                  is_relaxed ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
        EXPECT_EQ(graph != nullptr, is_relaxed);
        cudaGraphDestroy(graph);
        cudaFree(memory);
    }
    ASSERT_EQ(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeRelaxed), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream.handle), cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream.handle, &graph), cudaErrorStreamCaptureInvalidated);
}

template <class Function>
Function driver(const char* name) {
    void* found = nullptr;
    EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &found, 4000, cudaEnableDefault, nullptr),
              cudaSuccess);
    return reinterpret_cast<Function>(found);
}

TEST(Runtime, AThreadHasAContextAfterItsFirstCallThatNeedsOne) {
    const auto current = driver<CUresult (*)(CUcontext*)>("cuCtxGetCurrent");
    const auto push = driver<CUresult (*)(CUcontext)>("cuCtxPushCurrent");
    const auto pop = driver<CUresult (*)(CUcontext*)>("cuCtxPopCurrent");
    ASSERT_TRUE(current && push && pop);
    EXPECT_EQ(driver<void*>("cuNoSuchFunction"), nullptr);
    std::thread([&] {
        CUcontext context = nullptr, other = nullptr;
        int count = 0, device = -1;
        EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
        EXPECT_EQ(current(&context), CUDA_SUCCESS);
        EXPECT_EQ(context, nullptr);
        const Words words;
        EXPECT_EQ(current(&context), CUDA_SUCCESS);
        ASSERT_NE(context, nullptr);
        ASSERT_EQ(cudaSetDevice(count - 1), cudaSuccess);
        EXPECT_EQ(current(&other), CUDA_SUCCESS);
        EXPECT_NE(other, context);
        EXPECT_EQ(push(context), CUDA_SUCCESS);
        EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
        EXPECT_EQ(device, 0);
        EXPECT_EQ(pop(&context), CUDA_SUCCESS);
        EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
        EXPECT_EQ(device, count - 1);
    }).join();
}

// One thread too many causes the fault.
int errors_of_a_fault() {
    const Words words;
    if (launch(fill, 3, 32, words.data, 0) != cudaErrorLaunchFailure) return 1;
    void* memory = nullptr;
    if (cudaMalloc(&memory, 4) != cudaErrorLaunchFailure) return 2;
    if (cudaGetLastError() != cudaErrorLaunchFailure) return 3;
    if (cudaStreamSynchronize(nullptr) != cudaErrorLaunchFailure) return 4;
    return 0;
}

TEST(RuntimeDeathTest, AFaultIsPrintedAndStays) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(std::exit(errors_of_a_fault()), testing::ExitedWithCode(0), "emulator: .*fill");
}

// A capture does not allow the launch to load this code.
int error_of_an_unprepared_capture() {
    const Words words;
    const Stream stream;
    if (cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal)) return 1;
    const cudaError_t error = launch(fill, 1, 32, words.data, 0, 0, stream.handle);
    return error == cudaErrorStreamCaptureUnsupported ? 0 : 2;
}

TEST(RuntimeDeathTest, AKernelIsNotFirstLaunchedUnderACapture) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(std::exit(error_of_an_unprepared_capture()), testing::ExitedWithCode(0),
                "fill is first launched under a capture");
}

}  // namespace
