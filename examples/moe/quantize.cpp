// quantize.cpp - `moe quantize`: the experts of a checkpoint in another format, and a table of what
// that costs.
#include <fmt/format.h>

#include <chrono>

#include "checkpoint.hpp"
#include "commands.hpp"
#include "output_path.hpp"
#include "quantize_files.hpp"
#include "text.hpp"

namespace moe::cli {
namespace {

int print_text(const QuantizeOptions& options, const QuantizeResult& result, double seconds) {
    fmt::print("{}\n", error_table_words(result.errors, options.each));
    fmt::print("{}: {} matrices in {}, {} tensor{} copied, {} instead of {}, in {}\n",
               options.output, result.errors.size(), options.target, result.n_copied,
               result.n_copied == 1 ? "" : "s", byte_words(result.bytes),
               byte_words(result.source_bytes), time_words(seconds));
    if (!result.note.empty()) fmt::print("{}\n", result.note);
    return 0;
}

int print_json(const QuantizeOptions& options, const QuantizeResult& result) {
    nlohmann::ordered_json json;
    json["schema"] = "libmoe.quantize.1";
    json["checkpoint"] = options.output;
    json["source"] = options.source;
    json["to"] = options.target;
    json["source_bytes"] = result.source_bytes;
    json["bytes"] = result.bytes;
    json["n_copied"] = result.n_copied;
    if (!result.note.empty()) json["note"] = result.note;
    json["tensors"] = error_table_json(result.errors);
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
}

// Names say what is in them: a file that does not end in .gguf opens nowhere.
void check_ending(const QuantizeOptions& options, const QuantizeTarget& target) {
    std::string path = options.output;
    while (path.ends_with('/')) path.pop_back();
    if (path.ends_with(".gguf") == target.is_gguf()) return;
    throw UsageFailure(fmt::format("{} makes a {}: {}", target.name(),
                                   target.is_gguf()
                                       ? "GGUF file, whose name must end in .gguf"
                                       : "folder of safetensors, whose name must not end in .gguf",
                                   options.output));
}

}  // namespace

int quantize(const QuantizeOptions& options) {
    const auto start = std::chrono::steady_clock::now();
    const QuantizeTarget target(options.target, options.group_size);
    check_ending(options, target);
    const Checkpoint checkpoint = open_checkpoint(nullptr, options.source);
    if (info_of(checkpoint.get()).is_gguf != 0 && !target.is_gguf()) {
        throw Failure(options.source + ": is GGUF, from which " + target.name() +
                          " cannot be made: start from the safetensors of the model",
                      MOE_ERROR_UNSUPPORTED);
    }
    OutputPath output =
        OutputPath::checkpoint(options.output, options.source, !target.is_gguf(), options.force);
    QuantizeResult result;
    {
        Progress progress("quantising to " + target.name(), options.progress);
        const QuantizeJob job{checkpoint.get(), options.source,  target,
                              output.partial(), options.threads, progress};
        result = target.is_gguf() ? quantize_to_gguf(job) : quantize_to_safetensors(job);
    }
    output.commit();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return options.json ? print_json(options, result)
                        : print_text(options, result, elapsed.count());
}

}  // namespace moe::cli
