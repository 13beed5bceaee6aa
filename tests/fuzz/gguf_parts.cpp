// Keys, infos and data of a GGUF file.
#include "tests/fuzz/gguf_parts.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "libmoe/base/checked.hpp"
#include "libmoe/checkpoint/element.hpp"
#include "tests/fuzz/target.hpp"

namespace moe_fuzz {
namespace {

constexpr uint64_t most_gguf_data = 1 << 16;

struct Pair {
    std::string key;
    uint32_t type = 4;
    std::string value;
};

struct Info {
    std::string name;
    std::vector<uint64_t> sizes;
    uint32_t type = 0;
    uint64_t offset = 0;
};

template <class T>
std::string raw(T value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

std::string text(std::string_view s) {
    return raw<uint64_t>(s.size()) + std::string(s);
}

// Reads as far as the bytes go; what is missing is zero or empty.
class Input {
  public:
    explicit Input(std::string_view bytes) : rest_(bytes) {}

    template <class T>
    T value() {
        T out{};
        const std::string_view bytes = take(sizeof out);
        std::memcpy(&out, bytes.data(), bytes.size());
        return out;
    }
    std::string_view take(uint64_t count) {
        const std::string_view out = rest_.substr(0, std::min<uint64_t>(count, rest_.size()));
        rest_.remove_prefix(out.size());
        return out;
    }
    std::string string() { return std::string(take(value<uint64_t>())); }
    size_t left() const { return rest_.size(); }

  private:
    std::string_view rest_;
};

constexpr uint64_t scalar_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

uint64_t bytes_of_scalar(uint32_t type) {
    return type < std::size(scalar_bytes) ? scalar_bytes[type] : 0;
}

std::string take_value(Input& in, uint32_t type) {
    if (type == 8) return text(in.string());
    if (type != 9) return std::string(in.take(bytes_of_scalar(type)));
    const auto element = in.value<uint32_t>();
    const auto count = in.value<uint64_t>();
    std::string out = raw(element) + raw(count);
    if (element != 8) return out + std::string(in.take(count * bytes_of_scalar(element)));
    for (uint64_t i = 0; i < count && in.left(); ++i) out += text(in.string());
    return out;
}

struct File {
    uint32_t version = 3;
    uint64_t alignment = 32;
    std::vector<Pair> pairs;
    std::vector<Info> infos;
    std::string data;

    explicit File(std::string_view bytes) {
        Input in(bytes);
        in.take(4);
        version = in.value<uint32_t>();
        const auto n_infos = in.value<uint64_t>(), n_pairs = in.value<uint64_t>();
        for (uint64_t i = 0; i < n_pairs && in.left(); ++i) read_pair(in);
        for (uint64_t i = 0; i < n_infos && in.left(); ++i) read_info(in);
        const uint64_t used = bytes.size() - in.left();
        if (alignment && alignment <= 4096) in.take((alignment - used % alignment) % alignment);
        data = in.take(in.left());
    }
    void read_pair(Input& in) {
        Pair pair;
        pair.key = in.string();
        pair.type = in.value<uint32_t>();
        pair.value = take_value(in, pair.type);
        pairs.push_back(pair);
        find_alignment();
    }
    void read_info(Input& in) {
        Info info;
        info.name = in.string();
        const auto rank = in.value<uint32_t>();
        for (uint32_t i = 0; i < rank && in.left(); ++i) info.sizes.push_back(in.value<uint64_t>());
        info.type = in.value<uint32_t>();
        info.offset = in.value<uint64_t>();
        infos.push_back(info);
    }
    void find_alignment() {
        alignment = 32;
        for (const Pair& pair : pairs) {
            if (pair.key != "general.alignment" || pair.value.size() != 4) continue;
            uint32_t value;
            std::memcpy(&value, pair.value.data(), 4);
            alignment = value;
        }
    }
    uint64_t padded(uint64_t bytes) const {
        if (alignment == 0 || alignment > 4096) return bytes;
        return (bytes + alignment - 1) / alignment * alignment;
    }
    // Places the tensors one after the other and makes the data as long as they need.
    void fit() {
        find_alignment();
        uint64_t end = 0;
        for (Info& info : infos) {
            info.offset = end;
            const uint64_t bytes = bytes_of(info);
            if (end + bytes <= most_gguf_data) end = padded(end + bytes);
        }
        data.resize(end, 'd');
    }
    static uint64_t bytes_of(const Info& info) {
        const moe::Element* element = moe::ggml_element(info.type);
        if (!element || info.sizes.empty()) return 0;
        std::optional<uint64_t> bits =
            moe::try_multiply(info.sizes[0] / element->block_elements, element->block_bits);
        for (size_t i = 1; bits && i < info.sizes.size(); ++i)
            bits = moe::try_multiply(*bits, info.sizes[i]);
        return bits ? *bits / 8 : most_gguf_data;
    }
    std::string bytes(uint64_t n_infos, uint64_t n_pairs) const {
        std::string out = "GGUF" + raw(version) + raw(n_infos) + raw(n_pairs);
        for (const Pair& pair : pairs) out += text(pair.key) + raw(pair.type) + pair.value;
        for (const Info& info : infos) {
            out += text(info.name) + raw(static_cast<uint32_t>(info.sizes.size()));
            for (const uint64_t size : info.sizes) out += raw(size);
            out += raw(info.type) + raw(info.offset);
        }
        out.resize(padded(out.size()), '\0');
        return out + data;
    }
};

constexpr std::string_view keys[] = {"general.alignment",
                                     "general.architecture",
                                     "split.no",
                                     "split.count",
                                     "split.tensors.count",
                                     "llama.expert_count",
                                     "llama.expert_used_count",
                                     "llama.embedding_length",
                                     "nemotron_h_moe.expert_used_count",
                                     "step35.swiglu_clamp_exp",
                                     "step35.swiglu_clamp_shexp",
                                     "deepseek2.block_count",
                                     "deepseek2.vocab_size",
                                     "deepseek2.expert_shared_count",
                                     "deepseek2.expert_gating_func",
                                     "deepseek2.expert_group_count",
                                     "deepseek2.expert_group_used_count",
                                     "deepseek2.expert_weights_norm",
                                     "deepseek2.expert_weights_scale"};
constexpr std::string_view architectures[] = {
    "llama",  "qwen2moe",    "qwen3moe", "qwen3next", "deepseek2", "gpt-oss", "glm4moe",
    "llama4", "bailingmoe2", "gemma4",   "step35",    "deepseek4", "kimi-k3", "nemotron_h_moe"};
constexpr std::string_view names[] = {
    "blk.0.ffn_gate_inp.weight",       "blk.0.ffn_gate_exps.weight",
    "blk.0.ffn_up_exps.weight",        "blk.0.ffn_down_exps.weight",
    "blk.0.ffn_gate_up_exps.weight",   "blk.0.ffn_gate_shexp.weight",
    "blk.0.ffn_gate_inp_shexp.weight", "blk.0.exp_probs_b",
    "blk.0.exp_probs_b.bias",          "blk.0.ffn_gate.0.weight",
    "blk.0.ffn_down_exps.scale",       "blk.0.ffn_gate_exps.bias",
    "blk.0.ffn_gate_inp.scale",        "blk.0.ffn_gate_tid2eid.weight",
    "blk.0.ffn_latent_down.weight",    "blk.0.ffn_latent_up.weight",
    "blk.00000.ffn_gate_exps.weight",  "blk.9999999.ffn_up_exps.weight"};

std::string random_value(uint32_t type, Random& random) {
    if (type == 8) return text(random.one_in(4) ? "x" : random.pick(architectures));
    if (type == 9) {
        const auto element = static_cast<uint32_t>(random.below(14));
        const uint64_t count = random.one_in(4) ? random.interesting() : random.below(4);
        std::string out = raw(element) + raw(count);
        for (uint64_t i = 0; i < std::min<uint64_t>(count, 4); ++i)
            out += element == 8 ? text("ab") : std::string(bytes_of_scalar(element), '\1');
        return out;
    }
    return raw(random.interesting()).substr(0, bytes_of_scalar(type));
}

void change_pair(File& file, Random& random) {
    if (file.pairs.empty() || random.one_in(8)) {
        const auto type = static_cast<uint32_t>(random.below(14));
        file.pairs.push_back({std::string(random.pick(keys)), type, random_value(type, random)});
        return;
    }
    const size_t i = random.below(file.pairs.size());
    Pair& pair = file.pairs[i];
    switch (random.below(7)) {
        case 0:
            file.pairs.erase(file.pairs.begin() + static_cast<ptrdiff_t>(i));
            return;
        case 1:
            file.pairs.push_back(Pair(pair));
            return;
        case 2:
            pair.key = random.pick(keys);
            return;
        case 3:
            mutate_bytes(pair.key, random);
            return;
        case 4:
            pair.type =
                static_cast<uint32_t>(random.one_in(4) ? random.interesting() : random.below(14));
            pair.value = random_value(pair.type, random);
            return;
        case 5:
            mutate_bytes(pair.value, random);
            return;
        default:
            pair.value = random_value(pair.type, random);
            return;
    }
}

void change_size(Info& info, Random& random) {
    if (info.sizes.empty() || random.one_in(8)) return info.sizes.push_back(random.interesting());
    const size_t i = random.below(info.sizes.size());
    uint64_t& size = info.sizes[i];
    switch (random.below(5)) {
        case 0:
            info.sizes.erase(info.sizes.begin() + static_cast<ptrdiff_t>(i));
            return;
        case 1:
            size += random.one_in(2) ? 1 : -1;
            return;
        case 2:
            std::swap(size, info.sizes[random.below(info.sizes.size())]);
            return;
        case 3:
            size = random.below(9) * 32;
            return;
        default:
            size = random.interesting();
            return;
    }
}

void change_info(File& file, Random& random) {
    if (file.infos.empty() || random.one_in(16)) {
        Info info;
        info.name = random.pick(names);
        info.sizes = {32, 1 + random.below(4)};
        file.infos.push_back(info);
        return;
    }
    const size_t i = random.below(file.infos.size());
    Info& info = file.infos[i];
    switch (random.below(7)) {
        case 0:
            file.infos.erase(file.infos.begin() + static_cast<ptrdiff_t>(i));
            return;
        case 1:
            file.infos.push_back(Info(info));
            return;
        case 2:
            info.name = random.pick(names);
            return;
        case 3:
            mutate_bytes(info.name, random);
            return;
        case 4:
            info.type =
                static_cast<uint32_t>(random.one_in(4) ? random.interesting() : random.below(41));
            return;
        case 5:
            std::swap(info, file.infos[random.below(file.infos.size())]);
            return;
        default:
            return change_size(info, random);
    }
}

}  // namespace

std::string mutate_gguf_file(std::string_view input, Random& random) {
    if (random.one_in(16)) {
        std::string bytes(input);
        mutate_bytes(bytes, random);
        return bytes;
    }
    File file(input);
    for (size_t n = 1 + random.below(3); n > 0; --n) {
        random.one_in(2) ? change_pair(file, random) : change_info(file, random);
    }
    if (random.one_in(32)) file.version = static_cast<uint32_t>(random.interesting());
    if (!random.one_in(6)) file.fit();
    if (random.one_in(16) && !file.infos.empty())
        file.infos[random.below(file.infos.size())].offset = random.interesting();
    if (random.one_in(16)) file.data.resize(random.below(2 * file.data.size() + 4));
    const bool lies = random.one_in(32);
    return file.bytes(lies ? random.interesting() : file.infos.size(),
                      lies && random.one_in(2) ? random.interesting() : file.pairs.size());
}

}  // namespace moe_fuzz
