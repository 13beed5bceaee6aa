#include "engine/model_file.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace clients {
namespace {

constexpr int64_t alignment = 32;

struct BlockType {
    int32_t id;
    int64_t elements, bytes;
};
constexpr BlockType f32{0, 1, 4}, q8_0{8, 32, 34}, q4_k{12, 256, 144};

const BlockType& block_type(int32_t id) {
    return id == q8_0.id ? q8_0 : id == q4_k.id ? q4_k : f32;
}

int64_t bytes_of(const BlockType& type, int64_t n) {
    return n / type.elements * type.bytes;
}

int64_t align_up(int64_t n) {
    return (n + alignment - 1) / alignment * alignment;
}

// Normal half-precision numbers only.
uint16_t f16_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return uint16_t(((bits >> 23) - 112) << 10 | ((bits >> 13) & 0x3ffu));
}

float f16_value(const unsigned char* bytes) {
    const uint32_t half = uint32_t(bytes[0]) | uint32_t(bytes[1]) << 8;
    const uint32_t wide = ((half >> 10) + 112) << 23 | (half & 0x3ffu) << 13;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

void put_f16(std::vector<unsigned char>& bytes, size_t at, float value) {
    const uint16_t bits = f16_bits(value);
    bytes[at] = static_cast<unsigned char>(bits & 0xff);
    bytes[at + 1] = static_cast<unsigned char>(bits >> 8);
}

// A failed check ends the program with exit(): half a gigabyte must not stay behind.
std::string path_to_remove;

void remove_file() {
    if (!path_to_remove.empty()) std::remove(path_to_remove.c_str());
    path_to_remove.clear();
}

class Writer {
  public:
    template <class Value>
    void number(Value value) {
        const char* bytes = reinterpret_cast<const char*>(&value);
        buffer.insert(buffer.end(), bytes, bytes + sizeof value);
    }
    void text(const std::string& value) {
        number(uint64_t(value.size()));
        buffer.insert(buffer.end(), value.begin(), value.end());
    }
    void key(const std::string& name, uint32_t value) {
        text(name);
        number(uint32_t(4));
        number(value);
    }
    void key(const std::string& name, const std::string& value) {
        text(name);
        number(uint32_t(8));
        text(value);
    }
    std::vector<char> buffer;
};

void decode_q8_0(const unsigned char* block, float* out) {
    const float d = f16_value(block);
    for (int i = 0; i < 32; ++i) out[i] = d * float(static_cast<signed char>(block[2 + i]));
}

void decode_q4_k(const unsigned char* block, float* out) {
    const float d = f16_value(block), minimum = f16_value(block + 2);
    const unsigned char *s = block + 4, *q = block + 16;
    for (int i = 0; i < 256; ++i) {
        const int j = i / 32;
        const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) + 16 * (s[j - 4] >> 6);
        const int offset = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) + 16 * (s[j] >> 6);
        const int code = (q[32 * (i / 64) + i % 32] >> (4 * (j & 1))) & 15;
        out[i] = d * float(scale) * float(code) - minimum * float(offset);
    }
}

std::vector<unsigned char> random_blocks(const BlockType& type, int64_t bytes, uint64_t seed,
                                         int64_t columns) {
    std::vector<unsigned char> result(size_t(bytes) + 8);
    Random random(seed);
    for (int64_t at = 0; at < bytes; at += 8) {
        const uint64_t word = random.bits();
        std::memcpy(result.data() + at, &word, 8);
    }
    result.resize(size_t(bytes));
    const float size = 1.7f / std::sqrt(float(columns));
    for (int64_t at = 0; at < bytes; at += type.bytes) {
        if (type.id == f32.id) {
            const float value = size * random.value();
            std::memcpy(result.data() + at, &value, 4);
        } else if (type.id == q8_0.id) {
            put_f16(result, size_t(at), size / 127.0f);
        } else {
            put_f16(result, size_t(at), size / 400.0f);
            put_f16(result, size_t(at) + 2, size / 400.0f * 7.5f);
        }
    }
    return result;
}

}  // namespace

int64_t ModelShape::expert_bytes(int32_t layer) const {
    const int64_t n = int64_t(hidden) * intermediate;
    return 2 * bytes_of(q8_0, n) + bytes_of(down_is_q8(layer) ? q8_0 : q4_k, n);
}

ModelFile::ModelFile(const ModelShape& shape, const std::string& path)
    : shape_(shape), path_(path) {
    place_tensors();
    std::vector<char> head = header();
    head.resize(size_t(align_up(int64_t(head.size()))));
    data_begin_ = int64_t(head.size());

    std::FILE* file = std::fopen(path.c_str(), "wb");
    path_to_remove = path;
    std::atexit(remove_file);
    CHECK(file, "%s cannot be written", path.c_str());
    CHECK(std::fwrite(head.data(), 1, head.size(), file) == head.size(), "%s: disk full?",
          path.c_str());
    write_tensors(file);
    CHECK(std::fflush(file) == 0 && fdatasync(fileno(file)) == 0, "%s: disk full?", path.c_str());
    bytes_ = std::ftell(file);
    std::fclose(file);
}

ModelFile::~ModelFile() {
    std::remove(path_.c_str());
}

void ModelFile::place_tensors() {
    int64_t offset = 0;
    const int64_t H = shape_.hidden, I = shape_.intermediate, E = shape_.n_experts;
    const auto place = [&](int32_t layer, const char* suffix, const BlockType& type,
                           std::vector<int64_t> ne) {
        int64_t n = 1;
        for (int64_t extent : ne) n *= extent;
        const int64_t bytes = bytes_of(type, n);
        tensors_.push_back(
            {"blk." + std::to_string(layer) + "." + suffix, type.id, std::move(ne), offset, bytes});
        offset = align_up(offset + bytes);
    };
    for (int32_t layer = 0; layer < shape_.n_layers; ++layer) {
        place(layer, "ffn_gate_inp.weight", f32, {H, E});
        place(layer, "ffn_gate_exps.weight", q8_0, {H, I, E});
        place(layer, "ffn_up_exps.weight", q8_0, {H, I, E});
        place(layer, "ffn_down_exps.weight", shape_.down_is_q8(layer) ? q8_0 : q4_k, {I, H, E});
    }
}

std::vector<char> ModelFile::header() const {
    Writer out;
    out.number(uint32_t(0x46554747));  // "GGUF"
    out.number(uint32_t(3));
    out.number(uint64_t(tensors_.size()));
    out.number(uint64_t(8));
    out.key("general.architecture", std::string("qwen3moe"));
    out.key("general.name", std::string("random experts"));
    out.key("general.alignment", uint32_t(alignment));
    out.key("qwen3moe.block_count", uint32_t(shape_.n_layers));
    out.key("qwen3moe.embedding_length", uint32_t(shape_.hidden));
    out.key("qwen3moe.expert_count", uint32_t(shape_.n_experts));
    out.key("qwen3moe.expert_used_count", uint32_t(shape_.top_k));
    out.key("qwen3moe.expert_feed_forward_length", uint32_t(shape_.intermediate));
    for (const TensorPlace& place : tensors_) {
        out.text(place.name);
        out.number(uint32_t(place.ne.size()));
        for (int64_t extent : place.ne) out.number(uint64_t(extent));
        out.number(uint32_t(place.type));
        out.number(uint64_t(place.offset));
    }
    return out.buffer;
}

void ModelFile::write_tensors(std::FILE* file) const {
    const char zeros[alignment] = {};
    uint64_t seed = 1;
    for (const TensorPlace& place : tensors_) {
        const auto blocks = random_blocks(block_type(place.type), place.bytes, seed++, place.ne[0]);
        const auto padding = size_t(align_up(place.bytes) - place.bytes);
        CHECK(std::fwrite(blocks.data(), 1, blocks.size(), file) == blocks.size() &&
                  std::fwrite(zeros, 1, padding, file) == padding,
              "%s: disk full?", path_.c_str());
    }
}

const ModelFile::TensorPlace& ModelFile::tensor(int32_t layer, const char* suffix) const {
    const std::string name = "blk." + std::to_string(layer) + "." + suffix;
    for (const TensorPlace& place : tensors_)
        if (place.name == name) return place;
    CHECK(false, "%s was not written", name.c_str());
}

std::vector<float> ModelFile::decode(const TensorPlace& place) const {
    std::vector<unsigned char> raw(static_cast<size_t>(place.bytes));
    std::FILE* file = std::fopen(path_.c_str(), "rb");
    CHECK(file && std::fseek(file, data_begin_ + place.offset, SEEK_SET) == 0 &&
              std::fread(raw.data(), 1, raw.size(), file) == raw.size(),
          "%s cannot be read", path_.c_str());
    std::fclose(file);

    const BlockType& type = block_type(place.type);
    std::vector<float> values(size_t(place.bytes / type.bytes * type.elements));
    for (int64_t block = 0; block < place.bytes / type.bytes; ++block) {
        const unsigned char* from = raw.data() + block * type.bytes;
        float* to = values.data() + block * type.elements;
        if (type.id == f32.id) std::memcpy(to, from, 4);
        if (type.id == q8_0.id) decode_q8_0(from, to);
        if (type.id == q4_k.id) decode_q4_k(from, to);
    }
    return values;
}

LayerWeights ModelFile::decode_layer(int32_t layer) const {
    LayerWeights result;
    result.desc = plain_layer(shape_.hidden, shape_.intermediate, shape_.n_experts, shape_.top_k);
    result.values[MOE_ROLE_ROUTER] = decode(tensor(layer, "ffn_gate_inp.weight"));
    result.values[MOE_ROLE_GATE] = decode(tensor(layer, "ffn_gate_exps.weight"));
    result.values[MOE_ROLE_UP] = decode(tensor(layer, "ffn_up_exps.weight"));
    result.values[MOE_ROLE_DOWN] = decode(tensor(layer, "ffn_down_exps.weight"));
    return result;
}

void ModelFile::drop_pages() const {
    const int file = open(path_.c_str(), O_RDONLY);
    CHECK(file >= 0, "%s", path_.c_str());
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0, "posix_fadvise");
    close(file);
}

}  // namespace clients
