// The files of one checkpoint, opened and indexed: a folder of safetensors, one safetensors file,
// or the parts of a GGUF.
#pragma once

#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "libmoe/checkpoint/file.hpp"
#include "libmoe/checkpoint/module_rules.hpp"
#include "libmoe/checkpoint/safetensors.hpp"
#include "libmoe/checkpoint/settings.hpp"
#include "libmoe/checkpoint/tensor_index.hpp"

namespace moe {

struct CheckpointFiles {
    // Reads the headers and, for safetensors, the config.json beside them.
    CheckpointFiles(std::pmr::memory_resource& memory, std::string_view path, moe_io io);

    // For sentences about all of them: the file, or the folder and how many were read.
    std::string name() const;
    // "; 1 of 4 parts were not read, ..." where the names of safetensors count more files than
    // there are, else "".
    std::string absent_parts() const;
    uint64_t total_bytes() const;
    // How weights are quantised: quantization_config of config.json, else what ModelOpt or AutoGPTQ
    // says in a file of its own.
    SettingsPart quantization() const;
    // The same for one module, by its rule (null: none).
    SettingsPart quantization_of(const ModuleRule* rule) const;

    std::pmr::memory_resource& memory;
    moe_io io;
    bool is_gguf = false;
    std::pmr::vector<File> files;
    TensorIndex index;
    Settings settings;
    std::string note;  // of an unusual set of files; for the log
    // hf_quant_config.json or quantize_config.json, where config.json has no quantization_config.
    Settings quantization_file;
    bool is_autogptq_file = false;  // the latter, which has no quant_method
    ModuleRules rules;              // of config.json

  private:
    void open_folder(std::string_view folder);
    ShardIndex read_index(const std::string& path) const;
    static bool has_any_shard(std::string_view folder, const ShardIndex& shards);
    void open_shards(std::string_view folder, const ShardIndex& shards);
    bool open_shards_with(std::string_view path);
    void add_file(std::string_view path);
    void open_all(const std::vector<std::string>& paths);
    void open_one(std::string_view path);
    void read_config(std::string_view folder);
    void open_gguf(std::string_view path);
    void read_gguf_part(uint32_t part, uint32_t n_parts, Settings& part_settings);
};

}  // namespace moe
