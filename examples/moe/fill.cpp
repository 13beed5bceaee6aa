// fill.cpp - workers take one matrix after the other: random numbers, codes, bytes at their place.
#include "fill.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <span>
#include <thread>

#include "floats.hpp"
#include "gaussian.hpp"

namespace moe::cli {
namespace {

// Elements of plain types that are made and written at a time: they stay in the cache.
constexpr uint64_t chunk_elements = uint64_t{1} << 18;

bool is_plain(const moe_format& format) {
    return format.type == MOE_TYPE_F32 || format.type == MOE_TYPE_F16 ||
           format.type == MOE_TYPE_BF16;
}

class Worker {
  public:
    Worker(const Recipe& recipe, OutputFiles& files) : recipe_(recipe), files_(files) {}

    // Gives the bytes written.
    uint64_t make(const Matrix& matrix) {
        return is_plain(matrix.format) ? make_plain(matrix) : make_coded(matrix);
    }

  private:
    void write(const Place& place, uint64_t within, const void* data, uint64_t bytes) {
        if (place.piece < 0 || bytes == 0) return;
        const Piece& piece = recipe_.pieces[static_cast<size_t>(place.piece)];
        files_.write(piece.file, piece.offset + place.offset + within, data, bytes);
    }

    uint64_t make_plain(const Matrix& matrix) {
        const uint64_t element = element_bytes(matrix.format.type);
        const auto elements = static_cast<uint64_t>(matrix.rows * matrix.columns);
        for (uint64_t first = 0; first < elements; first += chunk_elements) {
            values_.resize(std::min(chunk_elements, elements - first));
            fill_gaussian(matrix.stream, first, matrix.mean, matrix.sigma, values_);
            data_.resize(values_.size() * element);
            encode_floats(matrix.format.type, values_, data_.data());
            write(matrix.data, first * element, data_.data(), data_.size());
        }
        return elements * element;
    }

    uint64_t make_coded(const Matrix& matrix) {
        const FormatSize size = format_size(matrix.format, matrix.rows, matrix.columns);
        values_.resize(static_cast<size_t>(matrix.rows * matrix.columns));
        fill_gaussian(matrix.stream, 0, matrix.mean, matrix.sigma, values_);
        data_.resize(size.data);
        scales_.resize(size.scales);
        float global_scale = 0.0F;
        quantize(matrix, &global_scale);
        write(matrix.data, 0, data_.data(), size.data);
        write(matrix.scales, 0, scales_.data(), size.scales);
        write(matrix.global_scale, 0, &global_scale, sizeof(global_scale));
        return size.data + size.scales;
    }

    void quantize(const Matrix& matrix, float* global_scale) {
        auto args = sized<moe_quantize_args>();
        args.format = &matrix.format;
        args.source = values_.data();
        args.rows = matrix.rows;
        args.columns = matrix.columns;
        args.data = data_.data();
        args.data_bytes = data_.size();
        args.scales = scales_.empty() ? nullptr : scales_.data();
        args.scale_bytes = scales_.size();
        args.global_scale =
            matrix.format.global_scale == MOE_GLOBAL_SCALE_NONE ? nullptr : global_scale;
        check(moe_quantize(&args));
    }

    const Recipe& recipe_;
    OutputFiles& files_;
    std::vector<float> values_;
    std::vector<unsigned char> data_;
    std::vector<unsigned char> scales_;
};

// What the threads share.
struct Work {
    std::atomic<size_t> next{0};
    std::atomic<bool> stop{false};
    std::mutex mutex;
    std::exception_ptr error;
    uint64_t done = 0;
};

void work_on(Work& work, const Recipe& recipe, OutputFiles& files, Progress& progress,
             uint64_t total) {
    try {
        Worker worker(recipe, files);
        while (!work.stop) {
            const size_t index = work.next++;
            if (index >= recipe.matrices.size()) return;
            const uint64_t bytes = worker.make(recipe.matrices[index]);
            const std::lock_guard lock(work.mutex);
            work.done += bytes;
            progress.show(std::min(work.done, total), total);
        }
    } catch (...) {
        const std::lock_guard lock(work.mutex);
        if (!work.error) work.error = std::current_exception();
        work.stop = true;
    }
}

}  // namespace

void fill_files(const Recipe& recipe, OutputFiles& files, int32_t n_threads, Progress& progress) {
    const auto wanted = n_threads > 0 ? static_cast<unsigned>(n_threads)
                                      : std::max(1U, std::thread::hardware_concurrency());
    Work work;
    {
        std::vector<std::jthread> threads;
        for (unsigned i = 0; i < wanted; ++i) {
            threads.emplace_back(
                [&] { work_on(work, recipe, files, progress, recipe.total_bytes()); });
        }
    }
    if (work.error) std::rethrow_exception(work.error);
}

}  // namespace moe::cli
