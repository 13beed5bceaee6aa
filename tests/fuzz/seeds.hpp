// Where seeds are written, and those that have a file of their own.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace moe_fuzz {

class Seeds {
  public:
    explicit Seeds(std::string root) : root_(std::move(root)) {}

    std::string place(const std::string& target, const std::string& name) const {
        const std::string folder = root_ + "/" + target;
        std::filesystem::create_directories(folder);
        return folder + "/seed-" + name;
    }
    void add(const std::string& target, const std::string& name, std::string_view bytes) const {
        std::ofstream(place(target, name), std::ios::binary) << bytes;
    }

  private:
    std::string root_;
};

void add_gguf(const Seeds& seeds);
// Files of packed weights.
void add_packed(const Seeds& seeds);
// Folders of MLX and torchao.
void add_mlx_and_torchao(const Seeds& seeds);
// Quantised models in rarer spellings.
void add_spellings(const Seeds& seeds);

}  // namespace moe_fuzz
