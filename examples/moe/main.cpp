// main.cpp - `moe`, the command line of libmoe: parses, calls a subcommand, turns failures into
// exit codes (1: the command failed, 2: the command line is wrong).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <functional>

#include "commands.hpp"
#include "moe_cpp.hpp"

namespace moe::cli {
namespace {

using Action = std::function<int()>;

constexpr int64_t most_threads = 1024;  // the library's own limit

// What is no number at all is left to the conversion, which says so.
CLI::Validator whole_number(int64_t lowest, int64_t largest = INT64_MAX) {
    std::string wanted = lowest > 0 ? "be positive" : "not be negative";
    if (largest < INT64_MAX) wanted = fmt::format("be {} to {}", lowest, largest);
    const auto problem = [=](const std::string& text) {
        int64_t number = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, number);
        if (error != std::errc{} || stop != end || (number >= lowest && number <= largest))
            return std::string();
        return fmt::format("must {}, not {}", wanted, text);
    };
    return {problem, ""};
}

CLI::App* add(CLI::App& app, const char* name, const char* about, const char* example) {
    CLI::App* command = app.add_subcommand(name, about);
    command->footer(std::string("Example:\n") + example);
    return command;
}

void add_read_as(CLI::App* command, ReadAs& read_as) {
    command->add_option("--family", read_as.family,
                        "Read the checkpoint as one of this family, whatever its config says");
    command
        ->add_option("--set", read_as.settings,
                     "NAME=VALUE: a field of moe_layer_desc in place of what the files say, such "
                     "as top_k=4 or gate_limit=none; may be given again")
        ->allow_extra_args(false)
        ->option_text("TEXT");
}

void add_inspect(CLI::App& app, Action& action) {
    CLI::App* command =
        add(app, "inspect", "Show the MoE layers of a checkpoint: sizes, routing, formats.",
            "  moe inspect Qwen3-30B-A3B/\n"
            "  moe inspect model.gguf --json | jq '.moe_layers[0].formats'");
    auto options = std::make_shared<InspectOptions>();
    command
        ->add_option("checkpoint", options->checkpoint,
                     "Folder, .safetensors or .gguf file; with --verify a file of packed weights")
        ->required();
    add_read_as(command, options->read_as);
    command->add_flag("--verify", options->verify,
                      "Check a file of moe_weights_save against its checksums");
    command->add_option("--against", options->against,
                        "Compare the experts' matrices with those of this checkpoint");
    command->add_flag("--per-tensor", options->each, "With --against: a row for every matrix");
    command->add_flag("--json", options->json, "As JSON, for programs");
    command->callback([&action, options] { action = [options] { return inspect(*options); }; });
}

void add_quantize(CLI::App& app, Action& action) {
    CLI::App* command = add(
        app, "quantize",
        "Write a checkpoint whose routed experts are quantised, everything else as it is, and say "
        "how large the error is.",
        "  moe quantize --to nvfp4 Qwen3-30B-A3B/ Qwen3-30B-A3B-NVFP4/\n"
        "  moe quantize --to q8_0 Qwen3-30B-A3B/ experts.gguf --json");
    auto options = std::make_shared<QuantizeOptions>();
    command->add_option("in", options->source, "Folder or .safetensors file")->required();
    command->add_option("out", options->output, "New folder, or new .gguf file for q8_0 and q4_k")
        ->required();
    command
        ->add_option("--to", options->target,
                     "nvfp4, mxfp4, kbit2 to kbit5, fp8, int4, q8_0 or q4_k")
        ->required();
    command
        ->add_option("--group-size", options->group_size,
                     "Columns that share a scale in int4: 32 (default), 64 or 128")
        ->check(whole_number(1));
    command->add_option("--threads", options->threads, "0: one per core")
        ->check(whole_number(0, most_threads));
    command->add_flag("--force", options->force, "Replace what is there when the new one is whole");
    command->add_flag("--per-tensor", options->each, "A row for every matrix in the table");
    command->add_flag("--json", options->json, "The errors of every matrix as JSON, for programs");
    command->add_flag("--progress", options->progress, "Progress line even without a terminal");
    command->callback([&action, options] { action = [options] { return quantize(*options); }; });
}

void add_run(CLI::App& app, Action& action) {
    CLI::App* command =
        add(app, "run", "Run one layer on random or given tokens; time it and check it.",
            "  moe run Qwen3-30B-A3B/ --layer 0 --tokens 4 --type bf16 --check\n"
            "  moe run model.gguf --layer 3 --input x.npy --output y.npy --ids-output ids.npy");
    auto options = std::make_shared<RunOptions>();
    command->add_option("checkpoint", options->checkpoint, "Folder, .safetensors or .gguf file")
        ->required();
    add_read_as(command, options->read_as);
    command->add_option("--layer", options->layer, "Decoder layer, as in the tensor names")
        ->check(whole_number(0))
        ->required();
    auto* tokens = command->add_option("--tokens", options->tokens,
                                       "So many random tokens, N(0,1) (default 1)");
    auto* seed = command->add_option("--seed", options->seed, "Of the random tokens (default 0)");
    command->add_option("--input", options->input, "Tokens from a .npy file: float32 (T, hidden)")
        ->excludes(tokens)
        ->excludes(seed);
    command->add_option("--output", options->output, "Write the result as .npy, float32");
    command->add_option("--ids-output", options->ids_output,
                        "Write the experts chosen as .npy, int32");
    command->add_option("--device", options->device,
                        "cpu (default), cuda, or auto: the library's choice");
    command->add_option("--threads", options->threads, "CPU threads; 0: one per core")
        ->check(whole_number(0, most_threads));
    command->add_option("--type", options->type, "Type of the tokens: f32 (default), bf16 or f16");
    command->add_option("--kernel", options->kernel,
                        "Force or forbid kernels: GLOB, -GLOB, STAGE:GLOB, by commas");
    command->add_option("--repeat", options->repeat, "Calls to time (default 3)");
    command->add_option("--io", options->io, "mmap (default) or read");
    command->add_flag("--packed", options->packed,
                      "Weights in the packed layout, as on CUDA always");
    auto* save = command->add_option("--save", options->save, "Write the packed weights to a file");
    command->add_option("--open", options->open, "Take the packed weights from such a file")
        ->excludes(save);
    command->add_flag("--check", options->check, "Compare with the fp64 reference; exit 1 on FAIL");
    command->add_flag("--progress", options->progress, "Progress line even without a terminal");
    command->callback([&action, options] { action = [options] { return run(*options); }; });
}

void add_explain(CLI::App& app, Action& action) {
    CLI::App* command =
        add(app, "explain", "Say what would run and why: kernels, candidates, memory.",
            "  moe explain Qwen3-30B-A3B/ --layer 0 --type bf16 --max-tokens 512\n"
            "  moe explain --model deepseek-v3 --format nvfp4 --json");
    auto options = std::make_shared<ExplainOptions>();
    command->add_option("checkpoint", options->checkpoint, "Folder, .safetensors or .gguf file");
    command->add_option("--layer", options->layer, "Of a checkpoint: as in the tensor names")
        ->check(whole_number(0));
    add_read_as(command, options->read_as);
    command->add_option("--model", options->model,
                        "A model of `moe make-model --list` instead of a file");
    command->add_option("--format", options->format,
                        "With --model: format of the matrices; default: the released one");
    command->add_flag("--json", options->json, "As JSON, for programs");
    command->add_option("--type", options->type, "Type of the tokens: f32 (default), bf16 or f16");
    command->add_option("--device", options->device,
                        "cpu (default), cuda, or auto: the library's choice. Nothing is run");
    command->add_option("--kernel", options->kernel,
                        "Force or forbid kernels: GLOB, -GLOB, STAGE:GLOB, by commas");
    command->add_flag("--packed", options->packed,
                      "Weights in the packed layout, as on CUDA always");
    command->add_option("--threads", options->threads, "CPU threads; 0: one per core")
        ->check(whole_number(0, most_threads));
    command->add_option("--max-tokens", options->max_tokens,
                        "Largest number of tokens of a call (default 1)");
    command->callback([&action, options] { action = [options] { return explain(*options); }; });
}

void add_bench(CLI::App& app, Action& action) {
    CLI::App* command = add(
        app, "bench",
        "Time one layer, of a checkpoint or of random weights. Every call has the same tokens: "
        "what "
        "fits the processor's cache is read from there. On cuda a time is that of 50 calls on a "
        "stream and the wait for it, divided by 50.",
        "  moe bench Qwen3-30B-A3B/ --layer 0 --tokens 1\n"
        "  moe bench --model qwen3-30b-a3b --format nvfp4 --tokens 8 --json\n"
        "  moe bench --hidden 2048 --intermediate 768 --experts 128 --top-k 8 --format kbit4");
    auto options = std::make_shared<BenchOptions>();
    command->add_option("checkpoint", options->checkpoint, "Folder, .safetensors or .gguf file");
    command->add_option("--layer", options->layer, "Of a checkpoint: as in the tensor names")
        ->check(whole_number(0));
    add_read_as(command, options->read_as);
    command->add_option("--model", options->model,
                        "Random weights of a model of `moe make-model --list`");
    command->add_flag("--reduced", options->reduced, "With --model: sizes of about an eighth");
    command->add_option("--hidden", options->hidden, "Sizes by hand, or instead of the model's")
        ->check(whole_number(1));
    command->add_option("--intermediate", options->intermediate)->check(whole_number(1));
    command->add_option("--experts", options->experts)->check(whole_number(1));
    command->add_option("--top-k", options->top_k)->check(whole_number(1));
    command->add_option("--format", options->format,
                        "One of moe formats; default: the model's released one, or bf16");
    command->add_option("--tokens", options->tokens, "Tokens of a call (default 1)");
    command->add_option("--device", options->device,
                        "cpu (default), cuda, or auto: the library's choice");
    command->add_option("--type", options->type, "Type of the tokens: f32, bf16 (default) or f16");
    command->add_option("--kernel", options->kernel,
                        "Force or forbid kernels: GLOB, -GLOB, STAGE:GLOB, by commas");
    command->add_flag("--packed", options->packed,
                      "Weights in the packed layout, as on CUDA always");
    command->add_option("--threads", options->threads, "CPU threads; 0: one per core")
        ->check(whole_number(0, most_threads));
    command->add_option("--repeat", options->repeat,
                        "Times to take, after one that is not counted (default 10)");
    command->add_option("--seed", options->seed, "Of weights and tokens (default 0)");
    command->add_flag("--json", options->json, "As JSON, for programs");
    command->callback([&action, options] { action = [options] { return bench(*options); }; });
}

void add_make_model(CLI::App& app, Action& action) {
    CLI::App* command =
        add(app, "make-model",
            "Write a random checkpoint with a real model's names, sizes and formats.",
            "  moe make-model qwen3-30b-a3b /tmp/qwen3 --format nvfp4\n"
            "  moe make-model deepseek-v3 /tmp/small --reduced --layers 2");
    auto options = std::make_shared<MakeModelOptions>();
    command->add_option("model", options->model, "One of --list");
    command->add_option("folder", options->folder, "New or empty folder to write to");
    command->add_flag("--reduced", options->reduced, "Sizes of about an eighth");
    command->add_option("--format", options->format,
                        "Format of the matrices; default: the released one");
    command->add_option("--layers", options->layers, "MoE layers to write (default 1)");
    command
        ->add_option("--shards", options->shards, "Safetensors files to spread over; 0: 4 GB each")
        ->check(whole_number(0));
    command->add_option("--threads", options->threads, "0: one per core")
        ->check(whole_number(0, most_threads));
    command->add_option("--seed", options->seed, "Of the random weights (default 0)");
    command->add_flag("--list", options->list, "List models and formats");
    command->add_flag("--progress", options->progress, "Progress line even without a terminal");
    command->callback([&action, command, options] {
        if (options->list && command->count_all() > 2)  // itself is one
            throw UsageFailure("--list goes with nothing else");
        action = [options] { return make_model(*options); };
    });
}

void add_list(CLI::App& app, Action& action, const char* name, const char* about, int (*list)()) {
    CLI::App* command = add(app, name, about, (std::string("  moe ") + name).c_str());
    command->callback([&action, list] { action = list; });
}

// Without this the parser says only that a subcommand is required.
void check_command(const CLI::App& app, const CLI::ParseError& error) {
    const std::vector<std::string> words = app.remaining();
    if (error.get_exit_code() == 0 || !app.get_subcommands().empty() || words.empty()) return;
    throw UsageFailure("there is no command " + words.front() + "; moe --help lists them");
}

int parse_and_act(int argc, char** argv) {
    CLI::App app("moe: the Mixture-of-Experts layer of a language model, on the command line.",
                 "moe");
    app.require_subcommand(1);
    app.set_version_flag("--version", fmt::format("moe {}", moe_version_string()),
                         "Version of the library");
    app.footer(
        "Example:\n  moe make-model qwen3-30b-a3b /tmp/small --reduced\n"
        "  moe run /tmp/small --layer 0 --check\n\n`moe COMMAND --help` says more.");
    Action action;
    add_inspect(app, action);
    add_quantize(app, action);
    add_run(app, action);
    add_explain(app, action);
    add_bench(app, action);
    add_make_model(app, action);
    add_list(app, action, "formats", "List the weight formats of this build.", list_formats);
    add_list(app, action, "devices", "List the devices that can be used.", list_devices);
    add_list(app, action, "version", "Version and how the library was built.", print_version);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        check_command(app, error);
        return app.exit(error) == 0 ? 0 : 2;
    }
    return action();
}

int act(int argc, char** argv) {
    try {
        return parse_and_act(argc, argv);
    } catch (const UsageFailure& failure) {
        std::fprintf(stderr, "moe: %s\n", failure.what());
        return 2;
    } catch (const std::exception& failure) {
        if (std::ferror(stdout)) return 0;  // what fmt throws does not name it: see finish
        std::fprintf(stderr, "moe: %s\n", failure.what());
        return 1;
    }
}

// Most of what was printed is written here: a disk that is full would go unnoticed.
int finish(int code) {
    const bool is_written = std::fflush(stdout) == 0 && !std::ferror(stdout);
    if (is_written || code != 0) return code;
    std::fprintf(stderr, "moe: standard output cannot be written\n");
    return 1;
}

}  // namespace
}  // namespace moe::cli

int main(int argc, char** argv) {
    return moe::cli::finish(moe::cli::act(argc, argv));
}
