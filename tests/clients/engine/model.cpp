// A model file larger than what the engine wants to keep: mapped, borrowed, one workspace and a
// handful of plans for all its layers, experts of one layer divided between two holders.
#include <unistd.h>

#include <map>

#include "engine/engine.hpp"
#include "engine/model_file.hpp"
#include "support/counting_allocator.hpp"
#include "support/handles.hpp"
#include "support/process_facts.hpp"
#include "support/reference_layer.hpp"
#include "support/thread_team.hpp"

namespace clients {
namespace {

constexpr ModelShape shape{60, 512, 256, 24, 4};
constexpr int64_t max_tokens = 8;
constexpr int64_t mega = 1 << 20;
// Sanitizers have memory of their own. A copy of one layer is 8 MB, of all 517.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t small_growth = 6 * mega;
#else
constexpr int64_t small_growth = 3 * mega;
#endif

// The engine around the file: its memory, its threads, the open checkpoint.
struct Engine {
    CountingAllocator allocator;
    ThreadTeam team{4};
    Runtime runtime;
    Checkpoint checkpoint;

    explicit Engine(const ModelFile& file) {
        const moe_allocator table = allocator.table();
        auto desc = sized<moe_runtime_desc>();
        desc.n_threads = team.size();
        desc.allocator = &table;
        desc.parallel_for = ThreadTeam::parallel_for;
        desc.parallel_for_user_data = &team;
        runtime = make_runtime(desc);
        auto options = sized<moe_checkpoint_options>();
        options.io = MOE_IO_MMAP;
        checkpoint = open_checkpoint(runtime.get(), file.path().c_str(), &options);
    }
};

// Description and formats of one layer, and the plan_desc that points to them.
struct LayerProblem {
    moe_layer_desc layer = sized<moe_layer_desc>();
    moe_format formats[MOE_ROLE_COUNT];
    moe_format* writable[MOE_ROLE_COUNT];
    const moe_format* readable[MOE_ROLE_COUNT];
    moe_plan_desc desc = sized<moe_plan_desc>();

    LayerProblem(const Engine& engine, int32_t decoder_layer) {
        CHECK_OK(moe_checkpoint_layer(engine.checkpoint.get(), decoder_layer, &layer));
        for (int role = 0; role < MOE_ROLE_COUNT; ++role) {
            formats[role] = sized<moe_format>();
            readable[role] = writable[role] = &formats[role];
        }
        CHECK_OK(moe_checkpoint_formats(engine.checkpoint.get(), decoder_layer, writable,
                                        MOE_ROLE_COUNT));
        for (int role = 0; role < MOE_ROLE_COUNT; ++role)
            if (formats[role].type == MOE_TYPE_NONE) readable[role] = nullptr;
        desc.device = MOE_DEVICE_CPU;
        desc.x_type = MOE_TYPE_F32;
        desc.layer = &layer;
        desc.formats = readable;
        desc.n_formats = MOE_ROLE_COUNT;
        desc.max_tokens = max_tokens;
        desc.residency = MOE_RESIDENCY_SOURCE;
    }
    LayerProblem(const LayerProblem&) = delete;
};

Weights borrow_layer(const Engine& engine, const moe_plan* plan, int32_t decoder_layer) {
    auto options = sized<moe_load_options>();
    options.ownership = MOE_OWN_BORROW;
    moe_weights* weights = nullptr;
    CHECK_OK(moe_weights_load_checkpoint(plan, engine.checkpoint.get(), decoder_layer, &options,
                                         &weights));
    return Weights(weights);
}

moe_forward_args forward_args(const std::vector<float>& x, std::vector<float>& out,
                              int64_t n_tokens) {
    auto args = sized<moe_forward_args>();
    args.n_tokens = n_tokens;
    args.x = x.data();
    args.out = out.data();
    return args;
}

void check_checkpoint(const Engine& engine, const ModelFile& file) {
    auto info = sized<moe_checkpoint_info>();
    CHECK_OK(moe_checkpoint_get_info(engine.checkpoint.get(), &info));
    CHECK(info.n_layers == shape.n_layers && info.is_gguf == 1, "%d layers, is_gguf %d",
          info.n_layers, info.is_gguf);
    CHECK(info.file_bytes == uint64_t(file.bytes()), "%llu bytes",
          static_cast<unsigned long long>(info.file_bytes));
    const LayerProblem problem(engine, 0);
    CHECK(problem.layer.hidden == shape.hidden &&
              problem.layer.intermediate == shape.intermediate &&
              problem.layer.n_experts == shape.n_experts && problem.layer.top_k == shape.top_k &&
              problem.layer.score == MOE_SCORE_SOFTMAX &&
              problem.layer.renormalize != MOE_RENORMALIZE_NONE,
          "the layer is not what was written");
    CHECK(problem.formats[MOE_ROLE_DOWN].block_id == 12 &&
              problem.formats[MOE_ROLE_GATE].block_id == 8,
          "formats of the file");
    std::printf("  %s, family %s, %d layers\n", info.model_type, info.family, info.n_layers);
}

// One token through one layer makes the chosen experts resident, and copies nothing.
void only_what_is_touched(const Engine& engine, const ModelFile& file) {
    constexpr int32_t layer = 7;
    const LayerProblem problem(engine, layer);
    const Plan plan = make_plan(engine.runtime.get(), problem.desc);
    const Workspace workspace = make_workspace(engine.runtime.get(), plan.get());
    const std::vector<float> x = Random(30).values(shape.hidden);
    std::vector<float> out(x.size());

    file.drop_pages();
    const int64_t anonymous = status_bytes("RssAnon"), in_files = status_bytes("RssFile");
    const int64_t mapped = resident_bytes_of(file.path());
    const Weights weights = borrow_layer(engine, plan.get(), layer);
    const auto args = forward_args(x, out, 1);
    CHECK_OK(moe_forward(plan.get(), weights.get(), workspace.get(), &args));
    const int64_t anonymous_growth = status_bytes("RssAnon") - anonymous;
    const int64_t file_growth = status_bytes("RssFile") - in_files;
    const int64_t mapped_growth = resident_bytes_of(file.path()) - mapped;

    const int64_t touched = shape.top_k * shape.expert_bytes(layer) + shape.router_bytes();
    std::printf(
        "  one token, one layer: %.2f MB touched; resident: anonymous %+.2f, file %+.2f, of the "
        "mapping %+.2f MB\n",
        double(touched) / mega, double(anonymous_growth) / mega, double(file_growth) / mega,
        double(mapped_growth) / mega);
    CHECK(anonymous_growth < small_growth, "%.1f MB were copied", double(anonymous_growth) / mega);
    CHECK(mapped_growth >= touched * 9 / 10, "the mapping was not what the experts were read from");
    CHECK(mapped_growth <= 2 * touched + 4 * mega,
          "much more of the file is resident than was touched");
    CHECK(file_growth <= 2 * touched + 16 * mega,
          "much more of the file is resident than was touched");

    const moe_memory_report report = memory_of(weights);
    const int64_t whole = shape.n_experts * shape.expert_bytes(layer) + shape.router_bytes();
    CHECK(int64_t(report.borrowed_bytes) == whole && report.host_bytes < 4096,
          "%llu borrowed of %lld, %llu copied",
          static_cast<unsigned long long>(report.borrowed_bytes), static_cast<long long>(whole),
          static_cast<unsigned long long>(report.host_bytes));
}

// The engine's own norm between layers.
void add_and_normalise(std::vector<float>& x, const std::vector<float>& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    for (size_t row = 0; row < x.size(); row += size_t(shape.hidden)) {
        double squares = 0.0;
        for (int32_t h = 0; h < shape.hidden; ++h)
            squares += double(x[row + size_t(h)]) * x[row + size_t(h)];
        const float factor = float(1.0 / std::sqrt(squares / shape.hidden + 1e-6));
        for (int32_t h = 0; h < shape.hidden; ++h) x[row + size_t(h)] *= factor;
    }
}

using Key = std::array<uint8_t, 16>;

const moe_plan* plan_of(const Engine& engine, const LayerProblem& problem,
                        std::map<Key, Plan>& plans) {
    Key key;
    CHECK_OK(moe_plan_key(engine.runtime.get(), &problem.desc, key.data()));
    Plan& plan = plans[key];
    if (!plan) plan = make_plan(engine.runtime.get(), problem.desc);
    return plan.get();
}

void sixty_layers(const Engine& engine, const ModelFile& file) {
    constexpr int64_t n_tokens = 3;
    std::map<Key, Plan> plans;
    std::vector<Weights> weights;
    Workspace workspace;
    std::vector<float> x = Random(31).values(n_tokens * shape.hidden), y(x.size());
    const int64_t anonymous = status_bytes("RssAnon");
    for (int32_t index = 0; index < shape.n_layers; ++index) {
        int32_t layer = -1;
        CHECK_OK(moe_checkpoint_layer_at(engine.checkpoint.get(), index, &layer));
        const LayerProblem problem(engine, layer);
        const moe_plan* const plan = plan_of(engine, problem, plans);
        if (!workspace) workspace = make_workspace(engine.runtime.get(), plan);
        weights.push_back(borrow_layer(engine, plan, layer));
        const auto args = forward_args(x, y, n_tokens);
        CHECK_OK(moe_forward(plan, weights.back().get(), workspace.get(), &args));
        if (index % 25 < 3) {
            const LayerWeights own = file.decode_layer(layer);
            const Doubles want =
                reference_forward(own, x, n_tokens, reference_route(own, x, n_tokens));
            CHECK_ROWS(want, y, n_tokens, shape.hidden, f32_tolerance,
                       ("layer " + std::to_string(layer)).c_str());
        }
        add_and_normalise(x, y);
    }
    std::printf("  %d layers, %zu plans, one workspace, %+.1f MB of anonymous memory\n",
                shape.n_layers, plans.size(), double(status_bytes("RssAnon") - anonymous) / mega);
    CHECK(plans.size() == 2, "two mixtures of formats in the file, %zu plans", plans.size());
    CHECK(status_bytes("RssAnon") - anonymous < 8 * small_growth, "weights were copied");
}

// Even experts here, odd ones there, as an engine divides them between devices; their sums add up
// to the layer.
void experts_of_two_holders(const Engine& engine) {
    constexpr int32_t layer = 11;
    constexpr int64_t n_tokens = 6;
    LayerProblem problem(engine, layer);
    const Plan whole = make_plan(engine.runtime.get(), problem.desc);
    const Workspace workspace = make_workspace(engine.runtime.get(), whole.get());
    const Weights all = borrow_layer(engine, whole.get(), layer);
    const std::vector<float> x = Random(32).values(n_tokens * shape.hidden);
    std::vector<float> want(x.size()), sum = poisoned(int64_t(x.size()));
    std::vector<int32_t> ids(size_t(n_tokens * shape.top_k));
    std::vector<float> routing_weights(ids.size());
    auto args = forward_args(x, want, n_tokens);
    args.out_ids = ids.data();
    args.out_weights = routing_weights.data();
    CHECK_OK(moe_forward(whole.get(), all.get(), workspace.get(), &args));

    for (int32_t holder = 0; holder < 2; ++holder) {
        std::vector<int32_t> membership(size_t(shape.n_experts), -1);
        for (int32_t e = holder, local = 0; e < shape.n_experts; e += 2)
            membership[size_t(e)] = local++;
        auto slice = sized<moe_slice>();
        slice.expert_to_local = membership.data();
        slice.n_expert_to_local = shape.n_experts;
        problem.desc.slice = &slice;
        problem.desc.partial = 1;
        problem.desc.stages = MOE_STAGE_DISPATCH | MOE_STAGE_EXPERTS | MOE_STAGE_COMBINE;
        const Plan plan = make_plan(engine.runtime.get(), problem.desc);
        const Weights part = borrow_layer(engine, plan.get(), layer);
        const moe_memory_report report = memory_of(part);
        CHECK(report.n_local_experts == uint32_t(shape.n_experts / 2) &&
                  int64_t(report.borrowed_bytes) == shape.n_experts / 2 * shape.expert_bytes(layer),
              "holder %d has %u experts, %llu bytes", holder, report.n_local_experts,
              static_cast<unsigned long long>(report.borrowed_bytes));
        auto partial = forward_args(x, sum, n_tokens);
        partial.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        partial.ids = ids.data();
        partial.weights = routing_weights.data();
        partial.accumulate = holder;
        CHECK_OK(moe_forward(plan.get(), part.get(), workspace.get(), &partial));
    }
    CHECK_ROWS(want, sum, n_tokens, shape.hidden, f32_tolerance,
               "experts divided between two holders");
}

}  // namespace

void model_from_a_mapped_file(const std::string& folder) {
    const ModelFile file(shape, folder + "/engine-client-" + std::to_string(getpid()) + ".gguf");
    std::printf("model file of %.0f MB\n", double(file.bytes()) / mega);
    CHECK(file.bytes() >= 512 * mega, "the file is too small to show a copy");
    Engine engine(file);
    const int threads = count_threads();
    check_checkpoint(engine, file);
    only_what_is_touched(engine, file);
    sixty_layers(engine, file);
    experts_of_two_holders(engine);
    CHECK(count_threads() == threads, "the library made a thread although it has parallel_for");

    engine.checkpoint.reset();
    engine.runtime.reset();
    CHECK(engine.allocator.live_blocks() == 0, "%llu bytes in %llu blocks never came back",
          static_cast<unsigned long long>(engine.allocator.live_bytes()),
          static_cast<unsigned long long>(engine.allocator.live_blocks()));
}

}  // namespace clients
