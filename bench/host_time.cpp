// moe-bench-host: the host's time of one moe_forward on a GPU, without graphs: what a program that
// calls from a loop pays per layer before the GPU has done anything. Written on moe.h and the CUDA
// runtime, so that one binary times any libmoe.so:
//
//   LD_LIBRARY_PATH=OLD moe-bench-host; LD_LIBRARY_PATH=NEW moe-bench-host
//
// Every expert has the same bytes, because the host does not look at them. A sample is the time to
// enqueue 50 calls on an idle stream, which the GPU's queue takes without waiting. The median and
// the least of 201 samples are printed: on a shared machine the least is the steadier one.
#include <cuda_runtime_api.h>
#include <moe/moe.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

constexpr int calls = 50, samples = 201;

void check(moe_status status) {
    if (status == MOE_OK) return;
    std::fprintf(stderr, "moe-bench-host: %s\n", moe_last_error());
    std::exit(1);
}
void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "moe-bench-host: %s\n", cudaGetErrorString(error));
    std::exit(1);
}

template <class T>
T sized() {
    T t{};
    t.struct_size = sizeof t;
    return t;
}

struct Model {
    const char* name;
    int32_t hidden, intermediate, n_experts, top_k;
};
constexpr Model models[] = {{"qwen3-30b", 2048, 768, 128, 8}, {"mixtral", 4096, 14336, 8, 2}};

// One matrix in a format, for all experts.
struct Matrix {
    std::vector<std::byte> data, scales;
    std::vector<const void*> data_of, scales_of;
    std::vector<float> global;
    moe_tensor tensor = sized<moe_tensor>();

    Matrix(moe_role role, const moe_format& format, int64_t rows, int64_t columns, int32_t count)
        : global(static_cast<size_t>(count), 1.0f) {
        uint64_t data_bytes = 0, scale_bytes = 0;
        check(moe_format_size(&format, rows, columns, &data_bytes, &scale_bytes));
        data.assign(data_bytes, std::byte{0x11});
        scales.assign(scale_bytes, std::byte{0x38});
        data_of.assign(static_cast<size_t>(count), data.data());
        scales_of.assign(static_cast<size_t>(count), scales.data());
        tensor.role = role;
        tensor.expert = MOE_ALL_EXPERTS;
        tensor.format = &format;
        tensor.n_experts = count;
        tensor.rows = rows;
        tensor.columns = columns;
        tensor.data_per_expert = data_of.data();
        tensor.data_bytes = data_bytes;
        if (scale_bytes) tensor.scales_per_expert = scales_of.data();
        tensor.scale_bytes = scale_bytes;
        if (format.global_scale) {
            tensor.global_scale = global.data();
            tensor.n_global_scales = count;
        }
    }
};

template <class T>
T* on_device(const std::vector<T>& values) {
    void* there = nullptr;
    check(cudaMalloc(&there, values.size() * sizeof(T)));
    check(cudaMemcpy(there, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return static_cast<T*>(there);
}

struct HostTime {
    double median_us, least_us;
};

HostTime time_calls(moe_plan* plan, moe_weights* weights, moe_workspace* workspace,
                    const moe_forward_args& args) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> us;
    for (int i = 0; i < samples + 3; ++i) {
        check(cudaStreamSynchronize(static_cast<cudaStream_t>(args.stream)));
        const auto begin = Clock::now();
        for (int n = 0; n < calls; ++n) check(moe_forward(plan, weights, workspace, &args));
        const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
        if (i >= 3) us.push_back(time.count() / calls);
    }
    std::sort(us.begin(), us.end());
    return {us[us.size() / 2], us.front()};
}

void run(const Model& model, const char* format_name, int64_t n_tokens) {
    moe_format format = sized<moe_format>(), router = sized<moe_format>();
    check(moe_format_by_name(format_name, &format));
    check(moe_format_by_name("bf16", &router));
    moe_layer_desc layer = sized<moe_layer_desc>();
    layer.hidden = model.hidden;
    layer.intermediate = model.intermediate;
    layer.n_experts = model.n_experts;
    layer.top_k = model.top_k;
    layer.has_router = 1;
    layer.score = MOE_SCORE_SOFTMAX;
    layer.activation = MOE_ACTIVATION_SILU;
    layer.is_gated = 1;
    const moe_format* formats[MOE_ROLE_COUNT] = {};
    formats[MOE_ROLE_ROUTER] = &router;
    formats[MOE_ROLE_GATE] = formats[MOE_ROLE_UP] = formats[MOE_ROLE_DOWN] = &format;
    moe_plan_desc desc = sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CUDA;
    desc.x_type = MOE_TYPE_BF16;
    desc.layer = &layer;
    desc.formats = formats;
    desc.n_formats = MOE_ROLE_COUNT;
    desc.max_tokens = n_tokens;
    moe_plan* plan = nullptr;
    check(moe_plan_create(nullptr, &desc, &plan));

    const int64_t h = model.hidden, i = model.intermediate;
    const Matrix matrices[] = {{MOE_ROLE_ROUTER, router, model.n_experts, h, 1},
                               {MOE_ROLE_GATE, format, i, h, model.n_experts},
                               {MOE_ROLE_UP, format, i, h, model.n_experts},
                               {MOE_ROLE_DOWN, format, h, i, model.n_experts}};
    std::vector<const moe_tensor*> tensors;
    for (const Matrix& matrix : matrices) tensors.push_back(&matrix.tensor);
    moe_weights_desc load = sized<moe_weights_desc>();
    load.tensors = tensors.data();
    load.n_tensors = static_cast<uint32_t>(tensors.size());
    moe_weights* weights = nullptr;
    check(moe_weights_load(plan, &load, &weights));
    moe_workspace_desc scratch = sized<moe_workspace_desc>();
    scratch.plan = plan;
    moe_workspace* workspace = nullptr;
    check(moe_workspace_create(nullptr, &scratch, &workspace));

    const auto n = static_cast<size_t>(n_tokens);
    std::vector<uint16_t> x(n * static_cast<size_t>(h), 0x3C00);
    std::vector<int32_t> ids;
    for (size_t t = 0; t < n; ++t)
        for (int32_t j = 0; j < model.top_k; ++j)
            ids.push_back(static_cast<int32_t>((t + static_cast<size_t>(j)) %
                                               static_cast<size_t>(model.n_experts)));
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    moe_forward_args args = sized<moe_forward_args>();
    args.n_tokens = n_tokens;
    args.x = on_device(x);
    args.out = on_device(x);
    args.stream = stream;
    const HostTime layer_time = time_calls(plan, weights, workspace, args);
    args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
    args.ids = on_device(ids);
    args.weights = on_device(std::vector<float>(ids.size(), 0.125f));
    const HostTime ids_time = time_calls(plan, weights, workspace, args);
    std::printf(
        "%-10s %-6s T = %-3lld from ids %6.2f us (least %6.2f), whole layer %6.2f us (%6.2f)\n",
        model.name, format_name, static_cast<long long>(n_tokens), ids_time.median_us,
        ids_time.least_us, layer_time.median_us, layer_time.least_us);
    check(cudaStreamSynchronize(stream));
    moe_workspace_destroy(workspace);
    moe_weights_destroy(weights);
    moe_plan_destroy(plan);
}

}  // namespace

int main() {
    for (const Model& model : models)
        for (const char* format : {"nvfp4", "bf16"})
            for (const int64_t n_tokens : {1, 8, 32}) run(model, format, n_tokens);
}
