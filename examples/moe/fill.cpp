// fill.cpp - workers take one matrix after the other: random numbers, codes, bytes at their place.
#include "fill.hpp"

#include <algorithm>
#include <mutex>
#include <span>

#include "floats.hpp"
#include "gaussian.hpp"
#include "workers.hpp"

namespace moe::cli {
namespace {

// Elements of plain types that are made and written at a time: they stay in the cache.
constexpr uint64_t chunk_elements = uint64_t{1} << 18;

bool is_plain(const moe_format& format) {
    return format.type == MOE_TYPE_F32 || format.type == MOE_TYPE_F16 ||
           format.type == MOE_TYPE_BF16;
}

class Filler {
  public:
    Filler(const Recipe& recipe, OutputFiles& files) : recipe_(recipe), files_(files) {}

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

}  // namespace

void fill_files(const Recipe& recipe, OutputFiles& files, int32_t n_threads, Progress& progress) {
    const uint64_t total = recipe.total_bytes();
    std::mutex mutex;
    uint64_t done = 0;
    work_in_parallel(recipe.matrices.size(), n_threads, [&] {
        return [&, filler = Filler(recipe, files)](size_t i) mutable {
            const uint64_t bytes = filler.make(recipe.matrices[i]);
            const std::lock_guard lock(mutex);
            done += bytes;
            progress.show(std::min(done, total), total);
        };
    });
}

}  // namespace moe::cli
