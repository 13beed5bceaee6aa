// A folder of config.json and model.safetensors that are written anew for every input: in memory
// where the system has /dev/shm; removed when the process ends.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace moe_fuzz {

class ModelFolder {
  public:
    ModelFolder() {
        for (const char* root : {"/dev/shm", "/tmp"}) {
            path_ = std::string(root) + "/moe_fuzz_XXXXXX";
            if (::mkdtemp(path_.data())) return;
        }
        throw std::runtime_error("mkdtemp");
    }
    ModelFolder(const ModelFolder&) = delete;
    ~ModelFolder() {
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

}  // namespace moe_fuzz
