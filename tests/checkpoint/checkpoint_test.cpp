// Folders, shards, splits and GGUF families through the checkpoint handle.
#include "libmoe/checkpoint/checkpoint.hpp"

#include <atomic>
#include <thread>

#include "tests/checkpoint/models.hpp"
#include "tests/checkpoint/notes.hpp"

namespace moe::test {
namespace {

const std::string config =
    R"({"model_type":"qwen3_moe","hidden_size":64,"moe_intermediate_size":32,"num_experts":4,"num_experts_per_tok":2})";

// The tensors of experts [begin, end), and the router with expert 0.
std::string shard(int begin, int end) {
    Model model;
    if (begin == 0) model.add(mlp0 + "gate.weight", "BF16", {experts, hidden});
    for (int e = begin; e < end; ++e) {
        const std::string stem = mlp0 + "experts." + std::to_string(e) + ".";
        model.add(stem + "gate_proj.weight", "BF16", {width, hidden});
        model.add(stem + "up_proj.weight", "BF16", {width, hidden});
        model.add(stem + "down_proj.weight", "BF16", {hidden, width});
    }
    return model.file();
}

std::string weight_map(const std::string& first, const std::string& second) {
    std::string map = "\"" + mlp0 + "gate.weight\":\"" + first + "\"";
    for (int e = 0; e < experts; ++e) {
        for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
            map += ",\"" + mlp0 + "experts." + std::to_string(e) + "." + name + ".weight\":\"" +
                   (e < 2 ? first : second) + "\"";
        }
    }
    return map;
}

std::string index_of(const std::string& map) {
    return R"({"metadata":{"total_size":1,"nested":{"a":[1]}},"weight_map":{)" + map + "}}";
}

void write_sharded(const Folder& folder) {
    folder.write("config.json", config);
    folder.write("a.safetensors", shard(0, 2));
    folder.write("b.safetensors", shard(2, 4));
    folder.write("model.safetensors.index.json",
                 index_of(weight_map("a.safetensors", "b.safetensors")));
}

void expect_layer(const Handle& checkpoint, const char* last_name) {
    ASSERT_EQ(checkpoint->n_layers(), 1);
    ASSERT_EQ(checkpoint->tensors(0).size(), 13u);
    const LayerTensor* last = find_tensor(checkpoint, 0, MOE_ROLE_DOWN, 3);
    ASSERT_TRUE(last);
    EXPECT_EQ(last->name, last_name);
    EXPECT_EQ(read_range(checkpoint, last->data),
              noise(last->data.bytes, seed_of(std::string(last->name))));
}

TEST(Shards, AreOneCheckpoint) {
    const Folder folder;
    write_sharded(folder);
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        moe_checkpoint_options options{};
        options.io = io;
        const Handle checkpoint = open_path(folder.path(), options);
        EXPECT_EQ(checkpoint->info().n_files, 2);
        EXPECT_EQ(checkpoint->is_mapped(), io == MOE_IO_MMAP);
        expect_layer(checkpoint, "model.layers.0.mlp.experts.3.down_proj.weight");
    }
    // Without the index, all files of the folder; symbolic links are followed, as in download
    // caches.
    std::filesystem::remove(folder.path("model.safetensors.index.json"));
    std::filesystem::rename(folder.path("b.safetensors"), folder.path("blob"));
    std::filesystem::create_symlink("blob", folder.path("b.safetensors"));
    expect_layer(open_path(folder.path()), "model.layers.0.mlp.experts.3.down_proj.weight");
}

TEST(Shards, OneFileAloneLacksWhatTheOthersHave) {
    const Folder folder;
    write_sharded(folder);
    std::filesystem::remove(folder.path("model.safetensors.index.json"));
    const Handle checkpoint = open_path(folder.path("a.safetensors"));
    EXPECT_EQ(checkpoint->info().n_files, 1);
    const Failure failure = failure_of([&] { checkpoint->tensors(0); });
    EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND);
    EXPECT_NE(failure.text.find("experts.2.gate_proj.weight"), std::string::npos) << failure.text;
}

// With the index beside it, a shard stands for the whole.
TEST(Shards, OneFileOfAnIndexIsTheWhole) {
    const Folder folder;
    write_sharded(folder);
    for (const char* name : {"a.safetensors", "b.safetensors"}) {
        const Handle checkpoint = open_path(folder.path(name));
        EXPECT_EQ(checkpoint->info().n_files, 2);
        expect_layer(checkpoint, "model.layers.0.mlp.experts.3.down_proj.weight");
    }
    folder.write("c.safetensors", shard(0, 4));
    EXPECT_EQ(open_path(folder.path("c.safetensors"))->info().n_files, 1);
}

TEST(Shards, AMissingTensorIsMissingFromAllOfThem) {
    const Folder folder;
    folder.write("config.json", config);
    folder.write("m-00001-of-00004.safetensors", shard(0, 1));
    folder.write("m-00003-of-00004.safetensors", shard(2, 3));
    const Failure failure = failure_of([&] { open_path(folder.path())->tensors(0); });
    EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND);
    const std::string name = std::filesystem::path(folder.path()).filename();
    EXPECT_EQ(failure.text, name + " (2 files): there is no tensor '" + mlp0 +
                                "experts.1.gate_proj.weight'; 2 of 4 parts were not read, the "
                                "first of them -00002-of-00004");
}

TEST(Shards, BrokenIndexesAreRefused) {
    const std::string good = weight_map("a.safetensors", "b.safetensors");
    const struct {
        std::string index;
        moe_status status;
        const char* text;
    } cases[] = {
        {"", MOE_ERROR_CORRUPT_FILE, "index.json: not valid JSON"},
        {"[]", MOE_ERROR_CORRUPT_FILE, "index.json: not an object"},
        {"1", MOE_ERROR_CORRUPT_FILE, "index.json: not an object"},
        {"{}", MOE_ERROR_CORRUPT_FILE, "has no weight_map"},
        {R"({"weight_map":{}})", MOE_ERROR_CORRUPT_FILE, "has no weight_map"},
        {R"({"weight_map":[]})", MOE_ERROR_CORRUPT_FILE, "weight_map is an array"},
        {R"({"weight_map":1})", MOE_ERROR_CORRUPT_FILE, "weight_map is not an object"},
        {R"({"weight_map":{"a":"x"},"weight_map":{"a":"x"}})", MOE_ERROR_CORRUPT_FILE,
         "weight_map appears twice"},
        {index_of(R"("a":1)"), MOE_ERROR_CORRUPT_FILE, "tensor 'a' no file name"},
        {index_of(R"("a":{"b":"c"})"), MOE_ERROR_CORRUPT_FILE, "tensor 'a' no file name"},
        {index_of(R"("a":["b"])"), MOE_ERROR_CORRUPT_FILE, "tensor 'a' no file name"},
        {R"({"metadata":[[[[[[[[1]]]]]]]]})", MOE_ERROR_CORRUPT_FILE, "nested deeper than 8"},
        {index_of(R"("a":"../a.safetensors")"), MOE_ERROR_CORRUPT_FILE,
         "tensor 'a': '../a.safetensors' is not a plain"},
        {index_of(R"("a":"/etc/passwd")"), MOE_ERROR_CORRUPT_FILE, "'/etc/passwd' is not a plain"},
        {index_of(R"("a":"x/y")"), MOE_ERROR_CORRUPT_FILE, "'x/y' is not a plain"},
        {index_of(R"("a":"x\\y")"), MOE_ERROR_CORRUPT_FILE, "is not a plain"},
        {index_of(R"("a":"x\u0000y")"), MOE_ERROR_CORRUPT_FILE, "is not a plain"},
        {index_of(R"("a":"..")"), MOE_ERROR_CORRUPT_FILE, "'..' is not a plain"},
        {index_of(R"("a":".")"), MOE_ERROR_CORRUPT_FILE, "'.' is not a plain"},
        {index_of(R"("a":"")"), MOE_ERROR_CORRUPT_FILE, "'' is not a plain"},
        {index_of(R"("a":"none.safetensors")"), MOE_ERROR_IO,
         "none.safetensors: open: No such file"},
        {index_of(good + R"(,"lm_head":"a.safetensors")"), MOE_ERROR_CORRUPT_FILE,
         "'lm_head' should be in a.safetensors and is not"},
        {index_of(good + ",\"" + mlp0 + "gate.weight\":\"a.safetensors\""), MOE_ERROR_CORRUPT_FILE,
         "gate.weight' appears twice"},
        {index_of(weight_map("b.safetensors", "a.safetensors")), MOE_ERROR_CORRUPT_FILE,
         "should be in b.safetensors and is in a.safetensors"},
    };
    for (const auto& c : cases) {
        const Folder folder;
        write_sharded(folder);
        folder.write("model.safetensors.index.json", c.index);
        const Failure failure = failure_of([&] { open_path(folder.path()); });
        EXPECT_EQ(failure.status, c.status) << c.index << failure.text;
        EXPECT_NE(failure.text.find(c.text), std::string::npos) << failure.text;
    }
}

TEST(Shards, ATensorInTwoShardsIsRefused) {
    const Folder folder;
    write_sharded(folder);
    folder.write("b.safetensors", shard(1, 4));
    const Failure failure = failure_of([&] { open_path(folder.path()); });
    EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE);
    EXPECT_NE(failure.text.find("experts.1.down_proj.weight' is also in"), std::string::npos)
        << failure.text;
}

// Tools that merge or quantise a model leave the index of its source behind. Where a shard is there
// the index counts, and the others are missing.
TEST(Shards, AWholeFileBesideAStaleIndexIsRead) {
    const Folder folder;
    write_sharded(folder);
    std::filesystem::remove(folder.path("a.safetensors"));
    const std::string kept = folder.path("b.safetensors");
    folder.write("model.safetensors", shard(0, 4));
    Failure failure = failure_of([&] { open_path(folder.path()); });
    EXPECT_EQ(failure.status, MOE_ERROR_IO);
    EXPECT_NE(failure.text.find("a.safetensors: open: No such file"), std::string::npos);

    std::filesystem::remove(kept);
    const Handle checkpoint = open_path(folder.path());
    EXPECT_EQ(checkpoint->info().n_files, 1);
    EXPECT_FALSE(checkpoint->tensors(0).empty());
    EXPECT_EQ(notes_of(folder.path()),
              std::vector<std::string>{"model.safetensors is read: none of the files that "
                                       "model.safetensors.index.json names is there"});
}

TEST(Folders, SayWhatTheyLack) {
    const Folder folder;
    folder.write("model.safetensors", shard(0, 4));
    for (const std::string& path : {folder.path(), folder.path("model.safetensors")}) {
        moe_checkpoint_options options{};
        options.family = "qwen3_moe";
        const Failure failure = failure_of([&] { open_path(path, options); });
        EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND);
        EXPECT_NE(failure.text.find("config.json"), std::string::npos) << failure.text;
    }
    const Folder empty;
    empty.write("config.json", config);
    const Failure failure = failure_of([&] { open_path(empty.path()); });
    EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND);
    EXPECT_NE(failure.text.find(".safetensors"), std::string::npos) << failure.text;
    const Failure none = failure_of([&] { open_path(empty.path("nothing")); });
    EXPECT_EQ(none.status, MOE_ERROR_IO);
    EXPECT_NE(none.text.find("nothing"), std::string::npos) << none.text;
}

// Mistral's folders have the model twice, in two namings; a disk of another system has more files.
// A clone without Git LFS has them in the place of the large files, all or some.
TEST(Folders, PointersOfGitLfsAreNamed) {
    const std::string pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 4976698672\n";
    const std::string why = ": is a pointer of Git LFS; the file itself has not been fetched";
    const Folder folder;
    mixtral().write(folder);
    const auto expect = [&](const std::string& path, const std::string& name) {
        const Failure failure = failure_of([&] { open_path(path); });
        EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE);
        EXPECT_EQ(failure.text, name + why);
    };
    expect(folder.write("model.gguf", pointer), "model.gguf");
    folder.write("model.safetensors", pointer);
    expect(folder.path(), "model.safetensors");
}

TEST(Folders, ModelSafetensorsIsTheWholeModel) {
    const Folder folder;
    folder.write("config.json", config);
    folder.write("model.safetensors", shard(0, 4));
    folder.write("consolidated.safetensors", shard(0, 4));
    EXPECT_EQ(open_path(folder.path())->info().n_files, 1);
    std::filesystem::remove(folder.path("consolidated.safetensors"));
    std::filesystem::rename(folder.path("model.safetensors"), folder.path("m.safetensors"));
    folder.write("._m.safetensors", "hidden");
    EXPECT_EQ(open_path(folder.path())->info().n_files, 1);
}

TEST(Folders, AreAskedForWhereATextIsGiven) {
    const Folder folder;
    write_sharded(folder);
    const Failure failure = failure_of([&] { open_path(folder.path("config.json")); });
    EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE);
    EXPECT_EQ(failure.text,
              "config.json: begins with '{': it is no safetensors file; give the folder that holds "
              "the model");
}

TEST(Folders, SayWhyThereAreNoLayers) {
    Model model;
    model.config = config;
    model.add("lm_head.weight", "BF16", {1});
    const auto failure = [&] {
        const Folder folder;
        const Handle checkpoint = open_model(folder, model);
        EXPECT_EQ(checkpoint->n_layers(), 0);
        EXPECT_NE(failure_of([&] { checkpoint->tensors(0); }).text.find("has no MoE layers"),
                  std::string::npos);
        return failure_of([&] { checkpoint->layer_at(0); });
    };
    EXPECT_EQ(failure().status, MOE_ERROR_NOT_FOUND);
    EXPECT_EQ(failure().text,
              "model.safetensors: has no MoE layers: no tensor has 'experts.' in its name");
    model.add("decoder.layers.0.mlp.experts.0.up_proj.weight", "BF16", {1});
    EXPECT_EQ(failure().text.find("model.safetensors: has no MoE layers: 'decoder.layers.0.mlp."
                                  "experts.0.up_proj.weight' is under no known prefix: model."
                                  "layers. or "),
              0u)
        << failure().text;
}

TEST(Options, AreChecked) {
    const Folder folder;
    write_sharded(folder);
    const auto failure_with = [&](auto change) {
        moe_checkpoint_options options{};
        change(options);
        return failure_of([&] { open_path(folder.path(), options); });
    };
    const Failure io = failure_with([](auto& o) { o.io = static_cast<moe_io>(7); });
    EXPECT_EQ(io.status, MOE_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(io.text.find("options.io is 7"), std::string::npos) << io.text;
    const Failure orientation =
        failure_with([](auto& o) { o.orientation = static_cast<moe_orientation>(2); });
    EXPECT_NE(orientation.text.find("options.orientation is 2"), std::string::npos)
        << orientation.text;
    const Failure order =
        failure_with([](auto& o) { o.gate_up_order = static_cast<moe_gate_up_order>(4); });
    EXPECT_NE(order.text.find("options.gate_up_order is 4"), std::string::npos) << order.text;
    const Failure family = failure_with([](auto& o) { o.family = "llama7"; });
    EXPECT_EQ(family.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(family.text.find("'llama7'"), std::string::npos) << family.text;
    EXPECT_NE(family.text.find("deepseek_v3"), std::string::npos) << family.text;
    EXPECT_EQ(failure_of([&] { open_path(""); }).status, MOE_ERROR_INVALID_ARGUMENT);
}

TEST(Options, FamilyOverridesTheConfig) {
    const Folder folder;
    write_sharded(folder);
    moe_checkpoint_options options{};
    options.family = "qwen3_next";  // renormalises by default
    const Handle checkpoint = open_path(folder.path(), options);
    EXPECT_EQ(checkpoint->layer_desc(0).renormalize, MOE_RENORMALIZE_SUM_ADD);
    EXPECT_STREQ(checkpoint->info().family, "qwen3_next");
    EXPECT_STREQ(checkpoint->info().model_type, "qwen3_moe");
}

TEST(Handle, RefusesWrongLayersAndRanges) {
    const Folder folder;
    write_sharded(folder);
    const Handle checkpoint = open_path(folder.path());
    const Failure layer = failure_of([&] { checkpoint->tensors(3); });
    EXPECT_EQ(layer.status, MOE_ERROR_NOT_FOUND);
    EXPECT_NE(layer.text.find("layer 3 is not a MoE layer"), std::string::npos) << layer.text;
    EXPECT_EQ(failure_of([&] { checkpoint->layer_at(1); }).status, MOE_ERROR_NOT_FOUND);
    EXPECT_EQ(failure_of([&] { checkpoint->layer_at(-1); }).status, MOE_ERROR_NOT_FOUND);
    const FileRange& data = checkpoint->tensors(0)[0].data;
    char out[8];
    EXPECT_EQ(failure_of([&] { checkpoint->read(data, data.bytes - 7, 8, out); }).status,
              MOE_ERROR_INVALID_ARGUMENT);
}

// An allocator that counts what is taken and given back.
struct Counter {
    std::atomic<int64_t> bytes{0};

    moe_runtime* make_runtime() {
        moe_allocator allocator{};
        allocator.struct_size = sizeof allocator;
        allocator.user_data = this;
        allocator.allocate = [](uint64_t bytes, uint64_t alignment, moe_space, void*, void* self) {
            static_cast<Counter*>(self)->bytes += static_cast<int64_t>(bytes);
            return std::pmr::new_delete_resource()->allocate(bytes, alignment);
        };
        allocator.release = [](void* memory, uint64_t bytes, uint64_t alignment, moe_space, void*,
                               void* self) {
            static_cast<Counter*>(self)->bytes -= static_cast<int64_t>(bytes);
            std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
        };
        moe_runtime_desc desc{};
        desc.struct_size = sizeof desc;
        desc.allocator = &allocator;
        moe_runtime* runtime = nullptr;
        EXPECT_EQ(moe_runtime_create(&desc, &runtime), MOE_OK) << moe_last_error();
        return runtime;
    }
};

TEST(Handle, LivesUntilTheLastReferenceAndGivesEverythingBack) {
    const Folder folder;
    write_sharded(folder);
    Counter memory;
    moe_runtime* runtime = memory.make_runtime();
    const int64_t of_runtime = memory.bytes;
    moe_checkpoint* checkpoint = moe_checkpoint::open(runtime, folder.path().c_str(), {});
    checkpoint->tensors(0);
    EXPECT_GT(memory.bytes, of_runtime);
    checkpoint->retain();
    checkpoint->release();
    EXPECT_EQ(checkpoint->tensors(0).size(), 13u);
    checkpoint->release();
    EXPECT_EQ(memory.bytes, of_runtime);
    folder.write("b.safetensors", "broken");
    EXPECT_EQ(failure_of([&] { moe_checkpoint::open(runtime, folder.path().c_str(), {}); }).status,
              MOE_ERROR_CORRUPT_FILE);
    EXPECT_EQ(memory.bytes, of_runtime);
    moe_runtime_destroy(runtime);
    EXPECT_EQ(memory.bytes, 0);
}

TEST(Handle, OutlivesTheCallersReferenceToItsRuntime) {
    const Folder folder;
    write_sharded(folder);
    Counter memory;
    moe_runtime* runtime = memory.make_runtime();
    moe_checkpoint* checkpoint = moe_checkpoint::open(runtime, folder.path().c_str(), {});
    moe_runtime_destroy(runtime);
    EXPECT_EQ(checkpoint->tensors(0).size(), 13u);
    checkpoint->release();
    EXPECT_EQ(memory.bytes, 0);
}

TEST(Handle, ServesManyThreads) {
    const Folder folder;
    write_sharded(folder);
    const Handle checkpoint = open_path(folder.path());
    std::vector<const LayerTensor*> first(8);
    std::vector<std::thread> threads;
    for (auto& out : first) threads.emplace_back([&] { out = checkpoint->tensors(0).data(); });
    for (std::thread& thread : threads) thread.join();
    for (const LayerTensor* out : first) EXPECT_EQ(out, first[0]);
}

}  // namespace
}  // namespace moe::test
