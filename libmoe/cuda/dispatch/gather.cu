// The kernels that gather rows for grouped_gemm, and that arrange the tokens themselves
// (copy_rows.cuh, quantize_rows.cuh).
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/dispatch/quantize_rows.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 256;

template <class Source>
__global__ void __launch_bounds__(n_threads)
    copy_all(GatherInput input, Source source, bool packets, BlockRows out) {
    wait_for_previous_kernel();
    let_next_kernel_start();  // the next kernel reads the tiles before its own wait
    if (blockIdx.x == 0 && threadIdx.x < n_tile_counters) out.tile_counter[threadIdx.x] = 0;
    arrange_rows(input, source, packets, out, int64_t{blockIdx.x} * (n_threads / 32) + warp_index(),
                 int64_t{gridDim.x} * (n_threads / 32));
}

template <class Source>
void run_copy(const DeviceFacts& device, const char* name, const GatherInput& input,
              const Source& source, const BlockRows& out, cudaStream_t stream) {
    launch(name, copy_all<Source>, copy_blocks(input, out.capacity, n_threads, 8 * device.n_sms),
           n_threads, 0, stream, input, source, takes_packets(input.in.data, input.in.stride), out);
}

}  // namespace

void run_gather(const DeviceFacts& device, const GatherInput& input, const Rows& rows,
                std::byte* blocks, cudaStream_t stream) {
    const bool has_index = input.in.index;  // else a row's slot is its index, -1 in the padding
    const SortedRows source{rows, has_index ? input.in.index : rows.slot,
                            has_index ? input.in.divisor : 1};
    run_copy(device, "gather_rows", input, source, {blocks, rows.capacity, rows.tile_counter},
             stream);
}

void run_arrange(const DeviceFacts& device, const GatherInput& input, const TokenCount& tokens,
                 const BlockRows& out, cudaStream_t stream) {
    run_copy(device, "arrange_rows", input, RowsInOrder{tokens}, out, stream);
}

void prepare_gather() {
    load("gather_rows", copy_all<SortedRows>);
    load("arrange_rows", copy_all<RowsInOrder>);
}

}  // namespace moe::cuda
