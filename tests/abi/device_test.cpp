// The library and CUDA on a machine without a GPU: built with CUDA or not, it loads, runs on the
// CPU, and says what is missing when CUDA is requested. Nothing touches the driver before that.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

const moe_layer_desc layer_desc = plain_layer(64, 48, 6, 3);

bool has_cuda() {
    return std::string(moe_build_info()).find("\nbackends=cpu cuda\n") != std::string::npos;
}

bool has_driver() {
    return access("/dev/nvidiactl", F_OK) == 0;
}

moe_status without_device() {
    return has_cuda() ? MOE_ERROR_NO_DEVICE : MOE_ERROR_NOT_BUILT;
}

bool is_mapped(const std::string& library) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find(library) != std::string::npos) return true;
    return false;
}

class WithoutGpu : public testing::Test {
  protected:
    void SetUp() override {
        if (has_cuda() && has_driver()) GTEST_SKIP() << "this machine has an NVIDIA driver";
    }
};

TEST(BuildInfo, NamesBackendsAndArchitectures) {
    const std::string info = moe_build_info();
    EXPECT_NE(info.find("\nbackends=cpu"), std::string::npos) << info;
    // Of code for a GPU, or, in a build for the emulator, of PTX.
    const bool names_one = info.find("\ncuda_architectures=sm_") != std::string::npos ||
                           info.find("\ncuda_architectures=compute_") != std::string::npos;
    EXPECT_EQ(names_one, has_cuda()) << info;
}

TEST(CpuPlan, RunsAndLeavesTheDriverAlone) {
    const LayerCase layer(layer_desc);
    auto desc = layer.plan_desc(4);
    desc.device = MOE_DEVICE_CPU;
    const LayerRun run(layer, desc);
    const Floats x = layer.x(4);
    EXPECT_LE(error_of(forward(run, x), layer.reference(x), run.hidden), f32_tolerance);
    EXPECT_TRUE(is_mapped("libmoe.so"));
    EXPECT_FALSE(is_mapped("libcuda")) << "loaded by a plan for the CPU";
}

TEST_F(WithoutGpu, DevicesSayWhatIsMissing) {
    int32_t count = 77;
    EXPECT_MOE_ERROR(moe_device_count(MOE_DEVICE_CUDA, &count), without_device(), "CUDA");
    EXPECT_EQ(count, 77);
    auto info = sized<moe_device_info>();
    EXPECT_MOE_ERROR(moe_device_get_info(MOE_DEVICE_CUDA, 0, &info), without_device(), "CUDA");
    EXPECT_STREQ(info.name, "");
}

TEST_F(WithoutGpu, MemoryAndStreamsOfCudaAreRefused) {
    const moe_device_kind cuda = MOE_DEVICE_CUDA;
    char here[16] = "left as it is", there[16] = "not copied";
    void* out = here;
    const auto refused = [](moe_status status) {
        EXPECT_MOE_ERROR(status, without_device(), "CUDA");
    };
    for (const moe_space space : {MOE_SPACE_HOST, MOE_SPACE_PINNED, MOE_SPACE_DEVICE})
        refused(moe_memory_allocate(nullptr, cuda, 0, space, 16, &out));
    refused(moe_memory_free(nullptr, cuda, 0, MOE_SPACE_DEVICE, 16, here));
    refused(moe_memory_copy(cuda, 0, here, there, 16, nullptr));
    refused(moe_memory_zero(cuda, 0, here, 16, nullptr));
    refused(moe_stream_create(cuda, 0, &out));
    refused(moe_stream_synchronize(cuda, 0, nullptr));
    refused(moe_stream_destroy(cuda, 0, nullptr));
    EXPECT_EQ(out, static_cast<void*>(here));
    EXPECT_STREQ(here, "left as it is");
}

TEST_F(WithoutGpu, APlanForCudaIsRefused) {
    const LayerCase layer(layer_desc);
    auto desc = layer.plan_desc(4);
    desc.device = MOE_DEVICE_CUDA;
    moe_plan* plan = nullptr;
    EXPECT_MOE_ERROR(moe_plan_create(nullptr, &desc, &plan), without_device(), "CUDA");
    EXPECT_EQ(plan, nullptr);
}

TEST_F(WithoutGpu, AutoTakesTheCpuAndSaysWhy) {
    const LayerCase layer(layer_desc);
    auto desc = layer.plan_desc(4);
    desc.device = MOE_DEVICE_AUTO;
    const Plan plan = make_plan(nullptr, desc);
    moe_device_kind kind{};
    int32_t index = -1;
    const char* reason = nullptr;
    EXPECT_MOE_OK(moe_plan_device(plan.get(), &kind, &index, &reason));
    EXPECT_EQ(kind, MOE_DEVICE_CPU);
    EXPECT_NE(std::string(reason).find("CUDA"), std::string::npos) << reason;
}

// Nobody has used CUDA where there is none, so a child is not told that its parent has.
TEST_F(WithoutGpu, AForkedChildHearsTheSame) {
    int32_t count = 0;
    EXPECT_EQ(moe_device_count(MOE_DEVICE_CUDA, &count), without_device());
    const pid_t child = fork();
    if (child == 0) _exit(moe_device_count(MOE_DEVICE_CUDA, &count) == without_device() ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace moe_test
