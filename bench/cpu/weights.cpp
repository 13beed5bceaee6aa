#include "bench/cpu/weights.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <thread>

#include "bench/formats.hpp"

namespace moe::bench {
namespace {

// Random rows that a matrix has; its other rows repeat them. A multiple of the 128 rows that share
// a scale in fp8_128x128.
constexpr int64_t most_random_rows = 512, rows_of_scale = 128;

void must_be_ok(moe_status status) {
    if (status != MOE_OK) throw std::runtime_error(moe_last_error());
}

// Random rows of a matrix, as a format has them.
struct Pool {
    int64_t rows;
    std::vector<unsigned char> data, scales, zero_points;
    float global_scale = 1.0f;
};

std::vector<float> gaussian(size_t n, float sigma, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, sigma);
    std::vector<float> values(n);
    for (float& value : values) value = normal(random);
    return values;
}

// Blocks of formats that the library does not write, iq2 and iq3: random codes under a float16 of
// 0.001, so that weights are about as large as those of other formats.
void fill_blocks(std::vector<unsigned char>& data, size_t block_bytes, uint32_t seed) {
    std::mt19937 random(seed);
    for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
    for (size_t at = 0; at < data.size(); at += block_bytes) {
        data[at] = 0;
        data[at + 1] = 0x14;
    }
}

uint64_t zero_point_bytes(const moe_format& format, int64_t rows, int64_t columns) {
    if (format.packing != MOE_PACKING_GPTQ) return 0;
    const int64_t groups =
        format.group_columns < 0 ? 1 : (columns + format.group_columns - 1) / format.group_columns;
    return static_cast<uint64_t>(groups * (rows * format.bits / 8));
}

// Random codes and zero points of gptq under scales of 2^-8 to 2^-7.
void fill_gptq(const moe_format& format, int64_t columns, uint32_t seed, Pool& pool) {
    std::mt19937 random(seed);
    pool.zero_points.resize(zero_point_bytes(format, pool.rows, columns));
    for (unsigned char& byte : pool.data) byte = static_cast<unsigned char>(random());
    for (unsigned char& byte : pool.zero_points) byte = static_cast<unsigned char>(random());
    for (size_t at = 0; at < pool.scales.size(); at += 2) {
        pool.scales[at] = static_cast<unsigned char>(random());
        pool.scales[at + 1] = static_cast<unsigned char>(0x1C | (random() & 3));
    }
}

// The group of each column, whole groups in any order.
std::vector<int32_t> shuffled_groups(const moe_format& format, int64_t columns) {
    if (!format.act_order) return {};
    std::vector<int32_t> groups;
    for (int64_t k = 0; k < columns; ++k)
        groups.push_back(static_cast<int32_t>(k / format.group_columns));
    std::shuffle(groups.begin(), groups.end(), std::mt19937(7));
    return groups;
}

Pool make_pool(const moe_format& format, int64_t rows, int64_t columns, uint32_t seed) {
    moe_format_info info{};
    info.struct_size = sizeof info;
    must_be_ok(moe_format_get_info(&format, &info));
    Pool pool{rows, {}, {}, {}};
    uint64_t data_bytes = 0, scale_bytes = 0;
    must_be_ok(moe_format_size(&format, rows, columns, &data_bytes, &scale_bytes));
    pool.data.resize(data_bytes);
    pool.scales.resize(scale_bytes);
    if (format.packing == MOE_PACKING_GPTQ) {
        fill_gptq(format, columns, seed, pool);
        return pool;
    }
    if (!info.has_encode) {
        const auto n_blocks = static_cast<size_t>(rows * columns / info.block_columns);
        fill_blocks(pool.data, data_bytes / n_blocks, seed);
        return pool;
    }
    const auto values = gaussian(static_cast<size_t>(rows * columns),
                                 1.0f / std::sqrt(static_cast<float>(columns)), seed);
    moe_quantize_args args{};
    args.struct_size = sizeof args;
    args.format = &format;
    args.source = values.data();
    args.rows = rows;
    args.columns = columns;
    args.data = pool.data.data();
    args.data_bytes = data_bytes;
    args.scales = scale_bytes ? pool.scales.data() : nullptr;
    args.scale_bytes = scale_bytes;
    if (format.global_scale != MOE_GLOBAL_SCALE_NONE) args.global_scale = &pool.global_scale;
    must_be_ok(moe_quantize(&args));
    return pool;
}

// size bytes of the pool from an offset on, round and round.
void copy_cyclic(const std::vector<unsigned char>& pool, size_t offset, unsigned char* out,
                 size_t size) {
    for (size_t done = 0; done < size;) {
        const size_t at = (offset + done) % pool.size();
        const size_t n = std::min(size - done, pool.size() - at);
        std::memcpy(out + done, pool.data() + at, n);
        done += n;
    }
}

// All experts; those of threads that will read them touch them first.
PageBuffer fill_experts(const std::vector<unsigned char>& pool, size_t expert_bytes, int32_t n,
                        size_t n_offsets, bool has_small_pages) {
    PageBuffer all(expert_bytes * static_cast<size_t>(n), has_small_pages);
    if (all.size() == 0) return all;
    std::atomic<size_t> next{0};
    const auto work = [&] {
        for (size_t i; (i = next++) < static_cast<size_t>(n);)
            copy_cyclic(pool, i % n_offsets * (pool.size() / n_offsets),
                        all.data() + i * expert_bytes, expert_bytes);
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    return all;
}

ExpertMatrix make_matrix(const ExpertMatrix& shape, const Pool& pool, int32_t n_experts,
                         bool has_small_pages) {
    uint64_t data_bytes = 0, scale_bytes = 0;
    must_be_ok(
        moe_format_size(&shape.format, shape.rows, shape.columns, &data_bytes, &scale_bytes));
    const auto n_offsets = static_cast<size_t>(pool.rows / rows_of_scale);
    ExpertMatrix matrix{shape.role,
                        shape.format,
                        shape.format_name,
                        shape.rows,
                        shape.columns,
                        pool.global_scale,
                        {},
                        {},
                        {},
                        shuffled_groups(shape.format, shape.columns)};
    matrix.data = fill_experts(pool.data, data_bytes, n_experts, n_offsets, has_small_pages);
    matrix.scales = fill_experts(pool.scales, scale_bytes, n_experts, n_offsets, has_small_pages);
    matrix.zero_points =
        fill_experts(pool.zero_points, zero_point_bytes(shape.format, shape.rows, shape.columns),
                     n_experts, n_offsets, has_small_pages);
    return matrix;
}

}  // namespace

PageBuffer::PageBuffer(size_t size, bool has_small_pages) : size_(size) {
    if (size == 0) return;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for the weights");
    madvise(memory, size, has_small_pages ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    memory_ = {static_cast<unsigned char*>(memory), Unmap{size}};
}

void PageBuffer::Unmap::operator()(unsigned char* memory) const {
    munmap(memory, size);
}

ExpertWeights::ExpertWeights(const Model& model, const std::string& format, bool has_small_pages,
                             size_t least_bytes)
    : model_(model), format_(format) {
    const ExpertFormats names = expert_formats(format);
    std::vector<ExpertMatrix> shapes;
    std::vector<Pool> pools;
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN}) {
        const bool is_down = role == MOE_ROLE_DOWN;
        const std::string& name = is_down                 ? names.down
                                  : role == MOE_ROLE_GATE ? names.gate
                                                          : names.up;
        const int64_t rows = is_down ? model.hidden : model.intermediate;
        const int64_t columns = is_down ? model.intermediate : model.hidden;
        shapes.push_back({role, format_by_name(name), name, rows, columns, 1.0f, {}, {}, {}, {}});
        const int64_t pool_rows =
            std::min(most_random_rows, (rows + rows_of_scale - 1) / rows_of_scale * rows_of_scale);
        pools.push_back(make_pool(shapes.back().format, pool_rows, columns, 5 + role));
    }
    size_t bytes = 0;
    do {
        auto& set = sets_.emplace_back();
        for (size_t i = 0; i < shapes.size(); ++i)
            set.push_back(make_matrix(shapes[i], pools[i], model.n_experts, has_small_pages));
        for (const ExpertMatrix& matrix : set)
            bytes += matrix.data.size() + matrix.scales.size() + matrix.zero_points.size();
    } while (bytes <= least_bytes);
}

void ExpertWeights::add_ranges(size_t set, int32_t expert, std::vector<ByteRange>& ranges) const {
    const auto add = [&](const PageBuffer& all) {
        const size_t one = all.size() / static_cast<size_t>(model_.n_experts);
        if (one) ranges.push_back({all.data() + one * static_cast<size_t>(expert), one});
    };
    for (const ExpertMatrix& matrix : sets_[set]) add(matrix.data);
    for (const ExpertMatrix& matrix : sets_[set]) add(matrix.scales);
    for (const ExpertMatrix& matrix : sets_[set]) add(matrix.zero_points);
}

}  // namespace moe::bench
