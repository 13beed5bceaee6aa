// quantize_safetensors.cpp - headers first, then the experts' matrices layer by layer and what is
// copied in pieces: memory is one expert per thread.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "checkpoint_files.hpp"
#include "layer_matrices.hpp"
#include "quantization_config.hpp"
#include "quantize_encode.hpp"
#include "quantize_files.hpp"
#include "quantize_plan.hpp"
#include "workers.hpp"

namespace moe::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t copy_bytes = uint64_t{8} << 20;

// Files of weights, and of what is written anew.
bool is_carried(const fs::path& path) {
    const std::set<std::string> weights = {".safetensors", ".gguf", ".bin", ".pt", ".pth"};
    const std::string name = path.filename().string();
    return fs::is_regular_file(path) && !weights.contains(path.extension().string()) &&
           name != "config.json" && name != "hf_quant_config.json" &&
           !name.ends_with(".safetensors.index.json");
}

class SafetensorsWriter {
  public:
    SafetensorsWriter(const QuantizeJob& job)
        : job_(job),
          source_(job.source),
          plan_(quantize_plan(source_, job.checkpoint, job.target)) {
        for (const SourceTensor& tensor : source_.tensors()) result_.source_bytes += tensor.bytes;
        for (const Piece& piece : plan_.pieces) result_.bytes += piece.bytes;
        result_.n_copied = plan_.copied.size();
    }

    QuantizeResult run() {
        write_texts();
        lay_out();
        write_matrices();
        work_in_parallel(plan_.copied.size(), job_.n_threads, [this] {
            return [this, buffer = std::vector<char>()](size_t i) mutable {
                copy(plan_.copied[i], buffer);
            };
        });
        files_.close();
        return std::move(result_);
    }

  private:
    void write_texts() {
        Json config = source_.config();
        set_quantization_config(config, job_.target.config(plan_.left, plan_.is_gpt_oss));
        write_text(job_.output / "config.json", config.dump(2));
        if (source_.is_one_file()) return;
        for (const auto& entry : fs::directory_iterator(source_.folder())) {
            if (is_carried(entry.path()))
                fs::copy_file(entry.path(), job_.output / entry.path().filename());
        }
    }

    void lay_out() {
        Json index;
        index["metadata"] = {{"total_size", result_.bytes}};
        const std::vector<SourceFile>& shards = source_.files();
        std::vector<std::vector<Piece*>> pieces(shards.size());
        for (Piece& piece : plan_.pieces) {
            index["weight_map"][piece.name] = shards[piece.file].path.filename().string();
            pieces[piece.file].push_back(&piece);
        }
        for (size_t i = 0; i < shards.size(); ++i) {
            const Json& metadata = shards[i].metadata;
            lay_out_shard(pieces[i], metadata.is_object() ? metadata.dump() : R"({"format":"pt"})",
                          job_.output / shards[i].path.filename(), files_);
        }
        if (shards.size() > 1)
            write_text(job_.output / "model.safetensors.index.json", index.dump(2));
    }

    void write(const Place& place, const void* data, uint64_t bytes) {
        if (place.piece < 0 || bytes == 0) return;
        const Piece& piece = plan_.pieces[static_cast<size_t>(place.piece)];
        try {
            files_.write(piece.file, piece.offset + place.offset, data, bytes);
        } catch (const Failure& failure) {
            throw Failure(fmt::format("tensor '{}': {}", piece.name, failure.what()),
                          failure.status);
        }
        const std::lock_guard lock(mutex_);
        done_ += bytes;
        job_.progress.show(std::min(done_, result_.bytes), result_.bytes);
    }

    void copy(const CopiedTensor& copied, std::vector<char>& buffer) {
        const SourceTensor& tensor = source_.tensors()[copied.tensor];
        for (uint64_t done = 0; done < tensor.bytes; done += copy_bytes) {
            buffer.resize(std::min(copy_bytes, tensor.bytes - done));
            source_.read(tensor, done, buffer.data(), buffer.size());
            write({static_cast<int32_t>(copied.piece), done}, buffer.data(), buffer.size());
        }
    }

    // Matrices that share a global scale, as the tools give gate and up one: they are encoded
    // together. Otherwise each is alone.
    size_t together(size_t first, size_t end) const {
        if (job_.target.format().global_scale == MOE_GLOBAL_SCALE_NONE) return 1;
        const ExpertMatrix& gate = plan_.matrices[first];
        if (gate.role != MOE_ROLE_GATE || first + 1 >= end) return 1;
        const ExpertMatrix& up = plan_.matrices[first + 1];
        return up.role == MOE_ROLE_UP && up.expert == gate.expert ? 2 : 1;
    }

    void write_matrices() {
        result_.errors.resize(plan_.matrices.size());
        for (size_t first = 0; first < plan_.matrices.size();) {
            const int32_t layer = plan_.matrices[first].layer;
            std::vector<std::pair<size_t, size_t>> groups;  // first and number
            for (size_t end = layer_end(first); first < end;) {
                groups.emplace_back(first, together(first, end));
                first += groups.back().second;
            }
            const LayerMatrices source(job_.checkpoint, layer);
            work_in_parallel(groups.size(), job_.n_threads, [&] {
                return [this, &source, &groups, worker = Worker(job_.target)](size_t i) mutable {
                    make(source, groups[i].first, groups[i].second, worker);
                };
            });
        }
    }

    size_t layer_end(size_t first) const {
        size_t end = first;
        while (end < plan_.matrices.size() &&
               plan_.matrices[end].layer == plan_.matrices[first].layer)
            ++end;
        return end;
    }

    struct Worker {
        explicit Worker(const QuantizeTarget& target) : encoder(target) {}
        MatrixEncoder encoder;
        std::vector<float> values;
        std::vector<float> one;
    };

    void make(const LayerMatrices& source, size_t first, size_t n, Worker& worker) {
        try {
            worker.values.clear();
            for (size_t i = first; i < first + n; ++i) {
                source.values(plan_.matrices[i].role, plan_.matrices[i].expert, worker.one);
                worker.values.insert(worker.values.end(), worker.one.begin(), worker.one.end());
            }
            const ExpertMatrix& matrix = plan_.matrices[first];
            const auto count = static_cast<int64_t>(n);
            worker.encoder.encode(worker.values, count * matrix.rows, matrix.columns);
        } catch (const Failure& failure) {
            throw Failure(
                fmt::format("tensor '{}': {}", plan_.matrices[first].name, failure.what()),
                failure.status);
        }
        for (size_t i = 0; i < n; ++i) finish(first + i, i, n, worker);
    }

    // Part `part` of n of what was encoded.
    void finish(size_t index, size_t part, size_t n, Worker& worker) {
        const ExpertMatrix& matrix = plan_.matrices[index];
        const EncodedMatrix& encoded = worker.encoder.encoded();
        const size_t codes = encoded.codes.size() / n;
        const size_t scales = encoded.scales.size() / n;
        write(matrix.codes, encoded.codes.data() + part * codes, codes);
        write(matrix.scales, encoded.scales.data() + part * scales, scales);
        write(matrix.global_scale, &encoded.global_scale, sizeof(float));
        const int64_t shape[2] = {matrix.rows, matrix.columns};
        write(matrix.shape, shape, sizeof(shape));
        MatrixError& error = result_.errors[index];
        error.name = matrix.name;
        error.layer = matrix.layer;
        error.role = matrix.role;
        error.expert = matrix.expert;
        const size_t values = worker.values.size() / n;
        worker.encoder.measure(static_cast<int64_t>(part) * matrix.rows, matrix.rows,
                               matrix.columns,
                               std::span(worker.values).subspan(part * values, values), error);
    }

    const QuantizeJob& job_;
    SafetensorsSource source_;
    QuantizePlan plan_;
    OutputFiles files_;
    std::mutex mutex_;
    uint64_t done_ = 0;
    QuantizeResult result_;
};

}  // namespace

QuantizeResult quantize_to_safetensors(const QuantizeJob& job) {
    return SafetensorsWriter(job).run();
}

}  // namespace moe::cli
