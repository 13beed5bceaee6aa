// commands.hpp - what each subcommand is told by the command line, and the function that does it.
// Each returns the exit code; failures are thrown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moe::cli {

// The user says this of a checkpoint in place of its config; empty: the config decides.
struct ReadAs {
    std::string family;
    std::vector<std::string> settings;  // "top_k=4"

    bool is_empty() const { return family.empty() && settings.empty(); }
};

struct InspectOptions {
    std::string checkpoint;
    ReadAs read_as;
    std::string against;
    bool each = false;
    bool verify = false;
    bool json = false;
};

struct QuantizeOptions {
    std::string target;
    std::string source;
    std::string output;
    int32_t group_size = 0;  // of int4; 0: 32
    int32_t threads = 0;
    bool force = false;
    bool json = false;
    bool each = false;
    bool progress = false;
};

struct RunOptions {
    std::string checkpoint;
    ReadAs read_as;
    int32_t layer = 0;
    int64_t tokens = 1;
    std::string input;       // .npy instead of random tokens
    std::string output;      // .npy
    std::string ids_output;  // .npy
    std::string device = "cpu";
    int32_t threads = 0;
    std::string type = "f32";
    std::string kernel;
    uint64_t seed = 0;
    int32_t repeat = 3;
    std::string io = "mmap";
    bool packed = false;
    std::string save;  // a file of packed weights to write
    std::string open;  // or to read
    bool check = false;
    bool progress = false;
};

struct ExplainOptions {
    std::string checkpoint;
    ReadAs read_as;
    int32_t layer = -1;
    std::string model;
    std::string format;
    bool json = false;
    std::string type = "f32";
    std::string device = "cpu";
    std::string kernel;
    bool packed = false;
    int32_t threads = 0;
    int64_t max_tokens = 1;
};

struct BenchOptions {
    std::string checkpoint;
    ReadAs read_as;
    int32_t layer = -1;
    std::string model;
    bool reduced = false;
    int32_t hidden = 0;  // sizes: 0 leaves the model's
    int32_t intermediate = 0;
    int32_t experts = 0;
    int32_t top_k = 0;
    std::string format;  // "": the model's released one, or bf16
    int64_t tokens = 1;
    std::string device = "cpu";
    std::string type = "bf16";
    std::string kernel;
    bool packed = false;
    int32_t threads = 0;
    int32_t repeat = 10;
    uint64_t seed = 0;
    bool json = false;
};

struct MakeModelOptions {
    std::string model;
    std::string folder;
    std::string format;  // "": the released one
    bool reduced = false;
    bool list = false;
    int32_t layers = 1;
    int32_t shards = 0;
    int32_t threads = 0;
    uint64_t seed = 0;
    bool progress = false;
};

int inspect(const InspectOptions& options);
int quantize(const QuantizeOptions& options);
int run(const RunOptions& options);
int explain(const ExplainOptions& options);
int bench(const BenchOptions& options);
int make_model(const MakeModelOptions& options);
int list_formats();
int list_devices();
int print_version();

}  // namespace moe::cli
