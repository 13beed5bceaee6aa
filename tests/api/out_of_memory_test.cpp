// The way from files to an answer, with the n-th request for memory refused, for every n: once by
// the caller's allocator, once by operator new, which serves what lives only during a call. Each
// time the call in whose course it was says MOE_ERROR_OUT_OF_MEMORY, makes no handle, and nothing
// is left.
#include <gtest/gtest.h>

#include "tests/checkpoint/models.hpp"
#include "tests/support/allocator.hpp"
#include "tests/support/layer_case.hpp"
#include "tests/support/operator_new_count.hpp"

namespace moe_test {
namespace {

using moe::test::Folder;
using moe::test::Model;

constexpr size_t most_text = 1 << 16;

// Everything that one layer needs, taken step by step; a step that fails ends it.
class Way {
  public:
    Way(moe_runtime* runtime, std::string path, moe_io io, int32_t layer)
        : runtime_(runtime),
          path_(std::move(path)),
          io_(io),
          layer_(layer),
          x_(moe::test::hidden, 0.5f),
          out_(x_.size()),
          text_(most_text) {}

    moe_status go() {
        for (const auto step : {&Way::open, &Way::look, &Way::make_plan, &Way::explain, &Way::load,
                                &Way::make_workspace, &Way::run}) {
            const moe_status status = (this->*step)();
            if (status != MOE_OK) return status;
        }
        return MOE_OK;
    }

  private:
    // A handle is there exactly when the call says so.
    template <class Handle>
    moe_status keep(moe_status status, Handle* made, std::unique_ptr<Handle, Destroy>& to) {
        to.reset(made);
        EXPECT_EQ(made != nullptr, status == MOE_OK);
        return status;
    }
    moe_status open() {
        auto options = sized<moe_checkpoint_options>();
        options.io = io_;
        moe_checkpoint* made = nullptr;
        const moe_status status = moe_checkpoint_open(runtime_, path_.c_str(), &options, &made);
        return keep(status, made, checkpoint_);
    }
    moe_status look() {
        auto desc = sized<moe_layer_desc>();
        return moe_checkpoint_layer(checkpoint_.get(), layer_, &desc);
    }
    moe_status make_plan() {
        auto desc = sized<moe_plan_desc>();
        desc.device = MOE_DEVICE_CPU;
        desc.x_type = MOE_TYPE_F32;
        desc.checkpoint = checkpoint_.get();
        desc.checkpoint_layer = layer_;
        desc.max_tokens = 1;
        moe_plan* made = nullptr;
        const moe_status status = moe_plan_create(runtime_, &desc, &made);
        return keep(status, made, plan_);
    }
    moe_status explain() {
        for (const moe_explain_form form : {MOE_EXPLAIN_TEXT, MOE_EXPLAIN_JSON}) {
            const moe_status status =
                moe_plan_explain(plan_.get(), form, text_.data(), text_.size(), nullptr);
            if (status != MOE_OK) return status;
        }
        return MOE_OK;
    }
    moe_status load() {
        auto options = sized<moe_load_options>();
        options.ownership = io_ == MOE_IO_MMAP ? MOE_OWN_BORROW : MOE_OWN_COPY;
        moe_weights* made = nullptr;
        const moe_status status =
            moe_weights_load_checkpoint(plan_.get(), checkpoint_.get(), layer_, &options, &made);
        return keep(status, made, weights_);
    }
    moe_status make_workspace() {
        auto desc = sized<moe_workspace_desc>();
        desc.plan = plan_.get();
        moe_workspace* made = nullptr;
        const moe_status status = moe_workspace_create(runtime_, &desc, &made);
        return keep(status, made, workspace_);
    }
    moe_status run() {
        auto args = sized<moe_forward_args>();
        args.n_tokens = 1;
        args.x = x_.data();
        args.out = out_.data();
        return moe_forward(plan_.get(), weights_.get(), workspace_.get(), &args);
    }

    moe_runtime* runtime_;
    std::string path_;
    moe_io io_;
    int32_t layer_;
    Checkpoint checkpoint_;
    Plan plan_;
    Weights weights_;
    Workspace workspace_;
    Floats x_, out_;
    std::vector<char> text_;
};

struct Source {
    const char* name;
    std::string path;
    int32_t layer;
};

std::string gguf_file() {
    moe::test::GgufWriter writer;
    writer.text("general.architecture", "qwen2moe");
    writer.integer("qwen2moe.embedding_length", 64);
    writer.integer("qwen2moe.expert_count", 2);
    writer.integer("qwen2moe.expert_used_count", 1);
    const auto add = [&](const char* name, const moe::test::Shape& ne) {
        uint64_t bytes = 4;
        for (const int64_t n : ne) bytes *= static_cast<uint64_t>(n);
        writer.tensor(std::string("blk.0.") + name, ne, 0, std::string(bytes, '\0'));
    };
    add("ffn_gate_inp.weight", {64, 2});
    add("ffn_gate_exps.weight", {64, 32, 2});
    add("ffn_up_exps.weight", {64, 32, 2});
    add("ffn_down_exps.weight", {32, 64, 2});
    return writer.file();
}

// One checkpoint of each kind: plain, with scales and scalars beside the weights, blocks and biases
// of all experts in one tensor, sharded, GGUF.
class Sources {
  public:
    Sources() {
        Model nvfp4 = moe::test::qwen("qwen3_moe", "", false);
        for (int e = 0; e < moe::test::experts; ++e) {
            const std::string stem = "model.layers.0.mlp.experts." + std::to_string(e) + ".";
            moe::test::make_nvfp4(nvfp4, stem + "gate_proj", moe::test::width, moe::test::hidden);
            moe::test::make_nvfp4(nvfp4, stem + "up_proj", moe::test::width, moe::test::hidden);
            moe::test::make_nvfp4(nvfp4, stem + "down_proj", moe::test::hidden, moe::test::width);
        }
        add("mixtral", moe::test::mixtral(), 0);
        add("nvfp4", nvfp4, 0);
        add("gpt_oss", moe::test::gpt_oss(true), 0);
        add("deepseek", moe::test::deepseek("deepseek_v3", ",\"n_group\":1", true), 1);
        shard(add("sharded", moe::test::mixtral(), 0));
        list.push_back({"gguf", folder_.write("m.gguf", gguf_file()), 0});
    }

    std::vector<Source> list;

  private:
    std::string add(const char* name, const Model& model, int32_t layer) {
        const std::string path = folder_.path(name);
        std::filesystem::create_directory(path);
        std::ofstream(path + "/config.json") << model.config;
        std::ofstream(path + "/model.safetensors", std::ios::binary) << model.file();
        list.push_back({name, path, layer});
        return path;
    }
    static void shard(const std::string& path) {
        std::string map;
        for (const auto& [name, tensor] : moe::test::mixtral().tensors)
            map += (map.empty() ? "\"" : ",\"") + name + "\":\"model.safetensors\"";
        std::ofstream(path + "/model.safetensors.index.json") << "{\"weight_map\":{" << map << "}}";
    }

    Folder folder_;
};

constexpr int64_t most_requests = 20000;

enum class Refusal { no, yes, quiet };

// `refuse(n)` arms the refusal, `refused()` says whether it happened and disarms it, `live()` is
// what is held.
template <class Refuse, class Refused, class Live>
void refuse_every(moe_runtime* runtime, const Source& source, moe_io io, Refuse refuse,
                  Refused refused, Live live) {
    for (int64_t n = 1; n < most_requests; ++n) {
        const auto before = live();
        moe_status status;
        Refusal was_refused;
        {
            Way way(runtime, source.path, io, source.layer);
            refuse(n);
            status = way.go();
            was_refused = refused();
        }
        ASSERT_EQ(live(), before) << "leak after request " << n
                                  << " was refused: " << moe_last_error();
        if (was_refused == Refusal::no) {
            EXPECT_EQ(status, MOE_OK) << moe_last_error();
            EXPECT_GT(n, 10) << "it allocated next to nothing";
            return;
        }
        // std::stable_sort asks for more memory and can do without.
        if (was_refused == Refusal::quiet && status == MOE_OK) continue;
        ASSERT_EQ(status, MOE_ERROR_OUT_OF_MEMORY) << "request " << n << ": " << moe_last_error();
    }
    ADD_FAILURE() << "more requests than expected";
}

template <class Test>
void for_every_source(Test test) {
    const Sources sources;
    for (const Source& source : sources.list) {
        for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
            SCOPED_TRACE(std::string(source.name) + (io == MOE_IO_MMAP ? " mapped" : " read"));
            test(source, io);
        }
    }
}

TEST(OutOfMemory, AtEveryRequestToTheAllocatorFromFileToAnswer) {
    for_every_source([](const Source& source, moe_io io) {
        TestAllocator allocator;
        const Runtime runtime = allocator.runtime(1);
        refuse_every(
            runtime.get(), source, io, [&](int64_t n) { allocator.refuse(n); },
            [&] {
                const bool was = allocator.refused();
                allocator.refuse(0);
                return was ? Refusal::yes : Refusal::no;
            },
            [&] { return allocator.live_bytes(); });
    });
}

TEST(OutOfMemory, AtEveryOperatorNewFromFileToAnswer) {
    for_every_source([](const Source& source, moe_io io) {
        const Runtime runtime = make_runtime(1);
        refuse_every(
            runtime.get(), source, io, [](int64_t n) { refuse_operator_new = n; },
            [] {
                const int64_t state = refuse_operator_new.exchange(0);
                return state == -2 ? Refusal::quiet : state < 0 ? Refusal::yes : Refusal::no;
            },
            [] { return n_operator_new_live.load(); });
    });
}

}  // namespace
}  // namespace moe_test
