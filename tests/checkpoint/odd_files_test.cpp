// Files that are not what they seem: pipes, folders and links instead of files, and files that
// shrink after they were opened with MOE_IO_READ.
#include <sys/stat.h>

#include "tests/checkpoint/models.hpp"
#include "tests/support/api.hpp"

namespace moe::test {
namespace {

void expect_io(const Failure& failure, const std::string& text) {
    EXPECT_EQ(failure.status, MOE_ERROR_IO) << failure.text;
    EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text;
}

// A pipe would be waited for, a device would never end.
TEST(OddFiles, AreRefused) {
    const struct {
        const char* what;
        void (*make)(const std::string& path);
        const char* text;
    } cases[] = {
        {"pipe", [](const std::string& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); },
         "not a regular file"},
        {"folder", [](const std::string& path) { std::filesystem::create_directory(path); },
         "not a regular file"},
        {"device",
         [](const std::string& path) { std::filesystem::create_symlink("/dev/zero", path); },
         "not a regular file"},
        {"loop", [](const std::string& path) { std::filesystem::create_symlink(path, path); },
         "open: Too many levels"},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(c.what);
        for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
            const Folder folder;
            mixtral().write(folder);
            const std::string path = folder.path("model.safetensors");
            std::filesystem::remove(path);
            c.make(path);
            moe_checkpoint_options options{};
            options.io = io;
            expect_io(failure_of([&] { open_path(folder.path(), options); }),
                      std::string("model.safetensors: ") + c.text);
        }
    }
}

TEST(OddFiles, AreRefusedAsConfigToo) {
    const Folder folder;
    mixtral().write(folder);
    const std::string path = folder.path("config.json");
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect_io(failure_of([&] { open_path(folder.path()); }), "config.json: not a regular file");
    std::filesystem::remove(path);
    std::filesystem::create_symlink("nowhere", path);
    const Failure dangling = failure_of([&] { open_path(folder.path()); });
    EXPECT_EQ(dangling.status, MOE_ERROR_NOT_FOUND) << dangling.text;
    EXPECT_NE(dangling.text.find("there is no config.json"), std::string::npos) << dangling.text;
}

// ---- files that shrink

moe_test::Checkpoint open_to_read(const std::string& path) {
    auto options = moe_test::sized<moe_checkpoint_options>();
    options.io = MOE_IO_READ;
    moe_checkpoint* checkpoint = nullptr;
    EXPECT_MOE_OK(moe_checkpoint_open(nullptr, path.c_str(), &options, &checkpoint));
    return moe_test::Checkpoint(checkpoint);
}

moe_test::Plan plan_of(const moe_test::Checkpoint& checkpoint, int32_t layer) {
    auto desc = moe_test::sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CPU;
    desc.x_type = MOE_TYPE_F32;
    desc.max_tokens = 1;
    desc.checkpoint = checkpoint.get();
    desc.checkpoint_layer = layer;
    moe_plan* plan = nullptr;
    EXPECT_MOE_OK(moe_plan_create(nullptr, &desc, &plan));
    return moe_test::Plan(plan);
}

moe_status load(const moe_test::Plan& plan, const moe_test::Checkpoint& checkpoint, int32_t layer) {
    moe_weights* weights = nullptr;
    const moe_status status =
        moe_weights_load_checkpoint(plan.get(), checkpoint.get(), layer, nullptr, &weights);
    EXPECT_EQ(weights != nullptr, status == MOE_OK);
    moe_weights_destroy(weights);
    return status;
}

// Opens, plans, then cuts the file of the tensors: loading says so, and works again when the bytes
// are back.
void expect_shrinking_is_told(const std::string& path, const std::string& file, int32_t layer) {
    const moe_test::Checkpoint checkpoint = open_to_read(path);
    const moe_test::Plan plan = plan_of(checkpoint, layer);
    EXPECT_MOE_OK(load(plan, checkpoint, layer));
    const std::string kept = file + ".kept";
    std::filesystem::copy_file(file, kept);
    const uint64_t size = std::filesystem::file_size(file);
    const std::string name = std::filesystem::path(file).filename().string();
    for (const uint64_t left : {uint64_t{0}, uint64_t{1}, size / 2, size - 1}) {
        std::filesystem::resize_file(file, left);
        EXPECT_MOE_ERROR(load(plan, checkpoint, layer), MOE_ERROR_IO,
                         name + ": the file shrank from " + std::to_string(size) + " to " +
                             std::to_string(left) + " bytes after it was opened");
    }
    // The same file, not another in its place: the checkpoint keeps the one it opened.
    std::ifstream in(kept, std::ios::binary);
    std::ofstream(file, std::ios::binary) << in.rdbuf();
    EXPECT_MOE_OK(load(plan, checkpoint, layer));
}

TEST(ShrinkingFiles, OfSafetensorsAreAnErrorWhenRead) {
    const Folder folder;
    Model models[] = {mixtral(), qwen("qwen3_moe", "", false), gpt_oss(true), gpt_oss(false)};
    for (Model& model : models) {
        // So that the last byte of the file is one that is loaded.
        model.tensors.erase("model.layers.0.self_attn.q_proj.weight");
        SCOPED_TRACE(model.config);
        std::filesystem::remove(folder.path("model.safetensors.kept"));
        model.write(folder);
        expect_shrinking_is_told(folder.path(), folder.path("model.safetensors"), 0);
    }
}

TEST(ShrinkingFiles, OfGgufAreAnErrorWhenRead) {
    GgufWriter writer;
    writer.text("general.architecture", "llama");
    writer.integer("llama.embedding_length", 64);
    writer.integer("llama.expert_count", 4);
    writer.integer("llama.expert_used_count", 2);
    constexpr uint64_t matrix = 34 * 2 * 32;  // Q8_0: 34 bytes per 32 elements
    writer.tensor("blk.0.ffn_gate_inp.weight", {64, 4}, 0, noise(64 * 4 * 4, 1));
    writer.tensor("blk.0.ffn_gate_exps.weight", {64, 32, 4}, 8, noise(4 * matrix, 2));
    writer.tensor("blk.0.ffn_up_exps.weight", {64, 32, 4}, 8, noise(4 * matrix, 3));
    writer.tensor("blk.0.ffn_down_exps.weight", {32, 64, 4}, 8, noise(4 * matrix, 4));
    const Folder folder;
    const std::string path = folder.write("m.gguf", writer.file());
    expect_shrinking_is_told(path, path, 0);
}

// Scalars beside the weights are read when the layer is first requested.
TEST(ShrinkingFiles, AreAnErrorWhenALayerIsDescribed) {
    const Folder folder;
    Model model = qwen("qwen3_moe", "", false);
    make_nvfp4(model, qwen_expert, hidden, width);
    model.write(folder);
    const moe_test::Checkpoint checkpoint = open_to_read(folder.path());
    std::filesystem::resize_file(folder.path("model.safetensors"), 100);
    auto desc = moe_test::sized<moe_layer_desc>();
    EXPECT_MOE_ERROR(moe_checkpoint_layer(checkpoint.get(), 0, &desc), MOE_ERROR_IO,
                     "model.safetensors: the file shrank from");
    model.write(folder);
    EXPECT_MOE_OK(moe_checkpoint_layer(checkpoint.get(), 0, &desc));
}

}  // namespace
}  // namespace moe::test
