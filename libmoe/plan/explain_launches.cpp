#include "libmoe/plan/explain_launches.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

using cuda::GemvLaunch;
using cuda::GemvLaunches;
using cuda::GemvTiling;
using cuda::LaunchRange;
using cuda::TileWidths;

const char* logits_name(cuda::LogitsKernel kernel) {
    switch (kernel) {
        case cuda::LogitsKernel::small_batch:
            return "small_batch";
        case cuda::LogitsKernel::library:
            return "cublaslt";
        default:
            return "tiled";
    }
}

const char* select_name(cuda::SelectKernel kernel) {
    return kernel == cuda::SelectKernel::block ? "block" : "warp";
}

const char* sort_name(cuda::SortKernel kernel) {
    switch (kernel) {
        case cuda::SortKernel::fused:
            return "fused";
        case cuda::SortKernel::block:
            return "block";
        default:
            return "runs";
    }
}

const char* tiles_name(TileWidths widths) {
    switch (widths) {
        case TileWidths::narrow:
            return "narrow";
        case TileWidths::middle:
            return "middle";
        case TileWidths::wide:
            return "wide";
        default:
            return "wide and narrow";
    }
}

std::string tiles_text(const cuda::MlpTiles& tiles) {
    if (tiles.gate_up == tiles.down) return tiles_name(tiles.down);
    return std::string(tiles_name(tiles.gate_up)) + ", of down " + tiles_name(tiles.down);
}

// The kernels of a range for the GEMMs of the routed experts.
std::vector<const char*> gemm_kernels(const moe_plan& plan, const LaunchRange& range) {
    std::vector<const char*> kernels;
    const auto add = [&](const cuda::GemmNames& names, TileWidths tiles) {
        if (names.narrow.empty()) return kernels.push_back(names.wide.c_str());
        if (tiles >= TileWidths::wide) kernels.push_back(names.wide.c_str());
        if (tiles == TileWidths::narrow || tiles == TileWidths::both)
            kernels.push_back(names.narrow.c_str());
        if (tiles == TileWidths::middle) kernels.push_back(names.middle.c_str());
    };
    add(plan.launch_plan().gate_up, range.tiles.gate_up);
    add(plan.launch_plan().down, range.tiles.down);
    return kernels;
}

void write_range(JsonWriter& json, const moe_plan& plan, int64_t first, const LaunchRange& range) {
    json.object([&] {
        json.member("min_tokens", first);
        json.member("max_tokens", range.max_tokens);
        json.member("logits", logits_name(range.logits));
        json.member("select", select_name(range.select));
        json.member("sort", sort_name(range.sort));
        json.member("indexes_rows", range.indexes_rows);
        json.member("wide_tiles", range.tiles.are_some_wide());
        json.member("dense_wide_tiles", range.dense_tiles >= TileWidths::wide);
        json.member("gate_in_combine", range.gate_in_combine);
        json.member("y_type", type_name(range.y_type));
        json.array("kernels", [&] {
            for (const char* kernel : gemm_kernels(plan, range)) json.value(kernel);
        });
    });
}

void write_tiling(JsonWriter& json, const char* name, const cuda::KernelName& kernel,
                  const GemvTiling& tiling) {
    json.object(name, [&] {
        json.member("kernel", kernel.c_str());
        json.member("blocks", tiling.n_blocks);
        json.member("cluster", tiling.cluster);
        json.member("warps", tiling.n_warps);
        json.member("split_k_groups", tiling.n_groups);
        json.member("k_blocks", tiling.n_k_blocks);
        json.member("stages", tiling.n_stages);
        json.member("smem_bytes", tiling.shared.total);
    });
}

// see(what, tokens, codebooks, launch) of every launch that the weights can ask for.
template <class See>
void for_each_gemv(const moe_plan& plan, See see) {
    const cuda::LaunchPlan& launch = plan.launch_plan();
    const std::pair<const char*, const GemvLaunches*> all[] = {
        {"experts", &launch.experts_gemv},
        {"expert_rows", &launch.expert_rows_gemv},
        {"experts_and_shared", &launch.experts_and_shared_gemv},
        {"shared", &launch.shared_gemv}};
    for (const auto& [what, launches] : all) {
        for (int32_t n = 1; n <= launches->max_tokens; ++n) {
            const GemvLaunch& own = launches->at(n, false, false);
            const bool has_codebook = own.gate_up.codebook_mode != cuda::CodebookMode::none ||
                                      own.up.codebook_mode != cuda::CodebookMode::none ||
                                      own.down.codebook_mode != cuda::CodebookMode::none;
            see(what, n, has_codebook ? "per_expert" : "none", own);
            if (has_codebook) see(what, n, "shared", launches->at(n, true, true));
        }
    }
}

}  // namespace

void write_launches(JsonWriter& json, const moe_plan& plan) {
    if (!plan.is_cuda()) return json.member("launches", nullptr);
    json.object("launches", [&] {
        json.array("ranges", [&] {
            int64_t first = 1;
            for (const LaunchRange& range : plan.launch_plan().ranges) {
                write_range(json, plan, first, range);
                first = range.max_tokens + 1;
            }
        });
        json.array("gemv", [&] {
            for_each_gemv(plan, [&](const char* what, int32_t n, const char* codebooks,
                                    const GemvLaunch& launch) {
                json.object([&] {
                    json.member("of", what);
                    json.member("tokens", n);
                    json.member("codebooks", codebooks);
                    json.member("gathers_x", launch.gathers_x);
                    json.member("gathers_h", launch.gathers_h);
                    write_tiling(json, "gate_up", launch.gate_up_name, launch.gate_up);
                    if (launch.up_type != PackedType::none)
                        write_tiling(json, "up", launch.up_name, launch.up);
                    write_tiling(json, "down", launch.down_name, launch.down);
                });
            });
        });
    });
}

std::string launches_text(const moe_plan& plan) {
    if (!plan.is_cuda()) return "";
    std::string text;
    int64_t first = 1;
    for (const LaunchRange& range : plan.launch_plan().ranges) {
        text += fmt::format(
            "tokens {} to {}: logits {}, select {}, sort {}, rows {}, tiles {}, y {}, gate in {}; "
            "{}\n",
            first, range.max_tokens, logits_name(range.logits), select_name(range.select),
            sort_name(range.sort), range.indexes_rows ? "indexed" : "gathered",
            tiles_text(range.tiles), type_name(range.y_type),
            range.gate_in_combine ? "combine" : "its own kernel",
            fmt::join(gemm_kernels(plan, range), ", "));
        first = range.max_tokens + 1;
    }
    for_each_gemv(
        plan, [&](const char* what, int32_t n, const char* codebooks, const GemvLaunch& launch) {
            text += fmt::format("gemv, {} tokens of {}, codebooks {}: {} ({} blocks of {} warps", n,
                                what, codebooks, launch.gate_up_name.c_str(),
                                launch.gate_up.n_blocks, launch.gate_up.n_warps);
            if (launch.up_type != PackedType::none)
                text += fmt::format("; up {} of {}", launch.up.n_blocks, launch.up.n_warps);
            text += fmt::format("), {} ({} of {}){}{}\n", launch.down_name.c_str(),
                                launch.down.n_blocks, launch.down.n_warps,
                                launch.gathers_x ? ", x gathered by slot" : "",
                                launch.gathers_h ? ", h gathered by slot" : "");
        });
    return text;
}

}  // namespace moe
