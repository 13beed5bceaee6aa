// A folder of config.json and model.safetensors through moe.h. Input: u32 length of the first, the
// first, the second.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/safetensors_parts.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/fuzz/use_checkpoint.hpp"

namespace moe_fuzz {
namespace {

// In memory where the system has /dev/shm; removed when the process ends.
class Folder {
  public:
    Folder() {
        for (const char* root : {"/dev/shm", "/tmp"}) {
            path_ = std::string(root) + "/moe_fuzz_XXXXXX";
            if (::mkdtemp(path_.data())) return;
        }
        throw std::runtime_error("mkdtemp");
    }
    ~Folder() {
        for (const char* name : {config, tensors}) ::unlink((path_ + "/" + name).c_str());
        ::rmdir(path_.c_str());
    }
    const std::string& path() const { return path_; }
    void write(const char* name, std::string_view bytes) const {
        const int descriptor =
            ::open((path_ + "/" + name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
        ::close(descriptor);
        if (written != static_cast<ssize_t>(bytes.size())) throw std::runtime_error("write");
    }

    static constexpr const char* config = "config.json";
    static constexpr const char* tensors = "model.safetensors";

  private:
    std::string path_;
};

struct Parts {
    std::string_view config, tensors;

    explicit Parts(std::string_view input) {
        uint32_t length = 0;
        if (input.size() >= sizeof length) std::memcpy(&length, input.data(), sizeof length);
        input = input.substr(std::min(sizeof length, input.size()));
        config = input.substr(0, length);
        tensors = input.substr(config.size());
    }
};

constexpr std::string_view words[] = {
    "hidden_size",       "num_experts",       "moe_intermediate_size",
    "intermediate_size", "num_local_experts", "mixtral",
    "qwen2_moe",         "qwen3_moe",         "deepseek_v2",
    "deepseek_v3",       "gpt_oss",           "num_experts_per_tok"};

}  // namespace

void run_model(std::string_view input) {
    static const Folder folder;
    const Parts parts(input);
    folder.write(Folder::config, parts.config);
    folder.write(Folder::tensors, parts.tensors);
    use_checkpoint(folder.path(), input.size() % 2 ? MOE_IO_READ : MOE_IO_MMAP, ".");
}

std::string mutate_model(std::string_view input, Random& random) {
    const Parts parts(input);
    std::string config(parts.config), tensors(parts.tensors);
    const bool both = random.one_in(8), first = random.one_in(3);
    if (first || both) config = mutate_json(config, words, random);
    if (!first || both) tensors = mutate_safetensors_file(tensors, random);
    const auto length = static_cast<uint32_t>(config.size());
    std::string out(sizeof length, '\0');
    std::memcpy(out.data(), &length, sizeof length);
    return out + config + tensors;
}

}  // namespace moe_fuzz
