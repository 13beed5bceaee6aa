// checkpoint_files.cpp - files written by position, and the safetensors layout over them.
#include "checkpoint_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace moe::cli {
namespace {

constexpr uint64_t largest_shard = 4'000'000'000;

[[noreturn]] void refuse_with_errno(const std::string& path, const char* action) {
    throw Failure(fmt::format("{}: {}: {}", path, action, std::strerror(errno)), MOE_ERROR_IO);
}

uint64_t element_size(const Piece& piece) {
    if (piece.dtype.ends_with("64")) return 8;
    if (piece.dtype.ends_with("32")) return 4;
    return piece.dtype.ends_with("16") ? 2 : 1;
}

// Consecutive pieces into shards of about equal bytes; sets piece.file, gives the number of shards
// used.
size_t assign_shards(Recipe& recipe, int32_t n_shards) {
    const uint64_t total = recipe.total_bytes();
    const uint64_t wanted = n_shards > 0 ? static_cast<uint64_t>(n_shards)
                                         : (total + largest_shard - 1) / largest_shard;
    const uint64_t share = (total + wanted - 1) / wanted;
    uint64_t before = 0;
    size_t used = 0;
    for (Piece& piece : recipe.pieces) {
        piece.file = std::min<size_t>({before / share, wanted - 1, used});
        used = std::max(used, piece.file + 1);
        before += piece.bytes;
    }
    return used;
}

std::vector<Piece*> pieces_of(Recipe& recipe, size_t shard) {
    std::vector<Piece*> pieces;
    for (Piece& piece : recipe.pieces) {
        if (piece.file == shard) pieces.push_back(&piece);
    }
    return pieces;
}

// The header of a shard; sets offsets in the file and gives its size.
std::string shard_header(const std::vector<Piece*>& pieces, const std::string& metadata,
                         uint64_t* out_file_bytes) {
    nlohmann::ordered_json header;
    header["__metadata__"] = nlohmann::ordered_json::parse(metadata);
    uint64_t end = 0;
    for (Piece* piece : pieces) {
        piece->offset = end;
        end += piece->bytes;
        header[piece->name] = {{"dtype", piece->dtype},
                               {"shape", piece->shape},
                               {"data_offsets", {piece->offset, end}}};
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    for (Piece* piece : pieces) piece->offset += 8 + text.size();
    *out_file_bytes = 8 + text.size() + end;
    return text;
}

std::string shard_name(size_t shard, size_t n_shards) {
    if (n_shards == 1) return "model.safetensors";
    return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, n_shards);
}

void write_index(const Recipe& recipe, size_t n_shards, const std::filesystem::path& folder) {
    nlohmann::ordered_json index;
    index["metadata"] = {{"total_size", recipe.total_bytes()}};
    for (const Piece& piece : recipe.pieces) {
        index["weight_map"][piece.name] = shard_name(piece.file, n_shards);
    }
    write_text(folder / "model.safetensors.index.json", index.dump(2));
}

}  // namespace

OutputFiles::~OutputFiles() {
    for (const int descriptor : descriptors_) ::close(descriptor);
}

size_t OutputFiles::add(const std::filesystem::path& path, uint64_t bytes) {
    const int descriptor = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (descriptor < 0) refuse_with_errno(path.string(), "cannot be created");
    descriptors_.push_back(descriptor);
    paths_.push_back(path.string());
    if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0)
        refuse_with_errno(path.string(), "cannot be sized");
    return descriptors_.size() - 1;
}

void OutputFiles::write(size_t file, uint64_t offset, const void* data, uint64_t bytes) {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t written =
            ::pwrite(descriptors_[file], next, bytes, static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) refuse_with_errno(paths_[file], "cannot be written");
        next += written;
        offset += static_cast<uint64_t>(written);
        bytes -= static_cast<uint64_t>(written);
    }
}

void OutputFiles::close() {
    for (size_t i = 0; i < descriptors_.size(); ++i) {
        const int descriptor = descriptors_[i];
        descriptors_[i] = -1;
        if (descriptor >= 0 && ::close(descriptor) != 0)
            refuse_with_errno(paths_[i], "cannot be closed");
    }
    descriptors_.clear();
}

void write_text(const std::filesystem::path& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text << '\n';
    file.close();
    if (!file) refuse_with_errno(path.string(), "cannot be written");
}

void lay_out_shard(std::vector<Piece*> pieces, const std::string& metadata,
                   const std::filesystem::path& path, OutputFiles& files) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece* a, const Piece* b) {
        return element_size(*a) > element_size(*b);
    });
    uint64_t file_bytes = 0;
    const std::string header = shard_header(pieces, metadata, &file_bytes);
    const size_t file = files.add(path, file_bytes);
    for (Piece* piece : pieces) piece->file = file;
    unsigned char length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(header.size() >> 8 * i);
    files.write(file, 0, length, sizeof(length));
    files.write(file, sizeof(length), header.data(), header.size());
}

void lay_out_safetensors(Recipe& recipe, const Model& model, const RecipeOptions& options,
                         const std::filesystem::path& folder, int32_t n_shards,
                         OutputFiles& files) {
    const size_t used = assign_shards(recipe, n_shards);
    for (size_t shard = 0; shard < used; ++shard) {
        lay_out_shard(pieces_of(recipe, shard), R"({"format":"pt"})",
                      folder / shard_name(shard, used), files);
    }
    if (used > 1) write_index(recipe, used, folder);
    write_text(folder / "config.json", config_text(model, options));
    const std::string quantization = quantization_config_text(model, options);
    if (!quantization.empty()) write_text(folder / "hf_quant_config.json", quantization);
}

}  // namespace moe::cli
