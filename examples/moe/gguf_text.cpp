// gguf_text.cpp - the header of a GGUF file (version 3): metadata as llama.cpp's converter writes
// it, tensor table.
#include <cstring>

#include "checkpoint_files.hpp"

namespace moe::cli {
namespace {

constexpr uint64_t alignment = 32;

// Little-endian values, one after the other.
class Bytes {
  public:
    template <class T>
    void number(T value) {
        char raw[sizeof(T)];
        std::memcpy(raw, &value, sizeof(T));
        text_.append(raw, sizeof(T));
    }
    void string(const std::string& value) {
        number<uint64_t>(value.size());
        text_ += value;
    }
    const std::string& text() const { return text_; }
    std::string& text() { return text_; }

  private:
    std::string text_;
};

enum KeyType : uint32_t { key_u32 = 4, key_f32 = 6, key_bool = 7, key_string = 8 };

class Metadata {
  public:
    void u32(const std::string& key, int32_t value) {
        start(key, key_u32);
        bytes_.number(static_cast<uint32_t>(value));
    }
    void f32(const std::string& key, float value) {
        start(key, key_f32);
        bytes_.number(value);
    }
    void boolean(const std::string& key, bool value) {
        start(key, key_bool);
        bytes_.number(static_cast<uint8_t>(value ? 1 : 0));
    }
    void string(const std::string& key, const std::string& value) {
        start(key, key_string);
        bytes_.string(value);
    }
    uint64_t count() const { return count_; }
    const std::string& text() const { return bytes_.text(); }

  private:
    void start(const std::string& key, KeyType type) {
        bytes_.string(key);
        bytes_.number(static_cast<uint32_t>(type));
        ++count_;
    }
    Bytes bytes_;
    uint64_t count_ = 0;
};

const char* architecture_of(const Model& model) {
    switch (model.family) {
        case Family::Mixtral:
            return "llama";
        case Family::Qwen2Moe:
            return "qwen2moe";
        case Family::Qwen3Moe:
            return "qwen3moe";
        case Family::Qwen3Next:
            return "qwen3next";
        case Family::GptOss:
            return "gpt-oss";
        default:
            return "deepseek2";
    }
}

void deepseek_keys(Metadata& keys, const std::string& arch, const Model& model) {
    const bool v3 = model.family == Family::DeepseekV3;
    keys.u32(arch + "leading_dense_block_count", model.first_moe_layer);
    keys.u32(arch + "expert_shared_count", model.n_shared);
    keys.f32(arch + "expert_weights_scale", model.routed_scale);
    keys.boolean(arch + "expert_weights_norm", v3);
    keys.u32(arch + "expert_gating_func", v3 ? 2 : 1);
    if (v3) {
        keys.u32(arch + "expert_group_count", model.n_group);
        keys.u32(arch + "expert_group_used_count", model.topk_group);
    }
}

Metadata metadata_of(const Model& model, const RecipeOptions& options) {
    Metadata keys;
    const std::string arch = std::string(architecture_of(model)) + ".";
    keys.string("general.architecture", architecture_of(model));
    keys.string("general.name", model.name);
    keys.u32("general.alignment", alignment);
    keys.u32(arch + "block_count", model.first_moe_layer + options.n_layers);
    keys.u32(arch + "embedding_length", model.hidden);
    keys.u32(arch + "feed_forward_length", model.dense_intermediate);
    keys.u32(arch + "attention.head_count", model.n_heads);
    keys.u32(arch + "expert_count", model.n_experts);
    keys.u32(arch + "expert_used_count", model.top_k);
    if (model.family != Family::Mixtral)
        keys.u32(arch + "expert_feed_forward_length", model.intermediate);
    const bool deepseek = model.family == Family::DeepseekV2 || model.family == Family::DeepseekV3;
    if (deepseek) deepseek_keys(keys, arch, model);
    if (!deepseek && model.shared_intermediate > 0) {
        keys.u32(arch + "expert_shared_feed_forward_length", model.shared_intermediate);
    }
    return keys;
}

uint64_t aligned(uint64_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

void tensor_entry(Bytes& bytes, const Piece& piece) {
    bytes.string(piece.name);
    bytes.number(static_cast<uint32_t>(piece.shape.size()));
    for (size_t i = piece.shape.size(); i-- > 0;) {
        bytes.number(static_cast<uint64_t>(piece.shape[i]));
    }
    bytes.number(piece.ggml_type);
    bytes.number(piece.offset);
}

}  // namespace

void lay_out_gguf(Recipe& recipe, const Model& model, const RecipeOptions& options,
                  const std::filesystem::path& path, OutputFiles& files) {
    const Metadata keys = metadata_of(model, options);
    Bytes header;
    header.text() = "GGUF";
    header.number(uint32_t{3});
    header.number(static_cast<uint64_t>(recipe.pieces.size()));
    header.number(keys.count());
    header.text() += keys.text();
    uint64_t end = 0;
    for (Piece& piece : recipe.pieces) {
        piece.offset = end;
        end += aligned(piece.bytes);
        tensor_entry(header, piece);
    }
    const uint64_t data_begin = aligned(header.text().size());
    for (Piece& piece : recipe.pieces) piece.offset += data_begin;
    const size_t file = files.add(path, data_begin + end);
    files.write(file, 0, header.text().data(), header.text().size());
}

}  // namespace moe::cli
