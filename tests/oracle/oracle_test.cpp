// libmoe against the tools that wrote the checkpoints: every fixture is opened, planned, loaded and
// run through moe.h, and its ids, weights and output are compared with what the tool's own code
// gave (tests/oracle/README.md).
#include <nlohmann/json.hpp>

#include "tests/support/api.hpp"
#include "tests/support/npy.hpp"

namespace moe_test {
namespace {

const std::string fixtures = "tests/oracle/fixtures/";

struct Case {
    std::string name;
    int layer, tokens, hidden, experts, top_k;
    std::string format;
};

void PrintTo(const Case& c, std::ostream* out) {
    *out << c.name;
}

std::vector<Case> all_cases() {
    std::ifstream file(fixtures + "index.json");
    const auto index = nlohmann::json::parse(file);
    std::vector<Case> cases;
    for (const auto& entry : index.at("cases"))
        cases.push_back({entry.at("name"), entry.at("layer"), entry.at("T"), entry.at("H"),
                         entry.at("E"), entry.at("k"), entry.at("format")});
    return cases;
}

std::string path_of(const std::string& name) {
    const std::string folder = fixtures + name;
    const std::string gguf = folder + "/model.gguf";
    return std::ifstream(gguf).good() ? gguf : folder;
}

class Oracle : public testing::TestWithParam<Case> {
  protected:
    void open(moe_io io) {
        auto options = sized<moe_checkpoint_options>();
        options.io = io;
        moe_checkpoint* opened = nullptr;
        ASSERT_MOE_OK(
            moe_checkpoint_open(nullptr, path_of(GetParam().name).c_str(), &options, &opened));
        checkpoint.reset(opened);
    }
    static bool is_mixed() { return GetParam().format.find("mixed") != std::string::npos; }
    moe_status plan_with(moe_type x_type, moe_type intermediate, const LayerFormats& formats) {
        auto layer = sized<moe_layer_desc>();
        EXPECT_MOE_OK(moe_checkpoint_layer(checkpoint.get(), GetParam().layer, &layer));
        auto desc = sized<moe_plan_desc>();
        desc.layer = &layer;
        desc.device = MOE_DEVICE_CPU;
        desc.x_type = x_type;
        desc.out_type = MOE_TYPE_F32;
        desc.intermediate_type = intermediate;
        desc.max_tokens = 64;
        if (is_mixed()) {  // experts of one role have different formats
            desc.checkpoint = checkpoint.get();
            desc.checkpoint_layer = GetParam().layer;
        } else {
            desc.formats = formats.pointers;
            desc.n_formats = MOE_ROLE_COUNT;
        }
        desc.slice = slice;
        desc.partial = slice != nullptr;
        desc.residency = residency;
        moe_plan* made = nullptr;
        const moe_status status = moe_plan_create(nullptr, &desc, &made);
        plan.reset(made);
        return status;
    }
    void load(moe_ownership ownership) {
        auto options = sized<moe_load_options>();
        options.ownership = ownership;
        moe_weights* loaded = nullptr;
        ASSERT_MOE_OK(moe_weights_load_checkpoint(plan.get(), checkpoint.get(), GetParam().layer,
                                                  &options, &loaded));
        weights.reset(loaded);
        auto desc = sized<moe_workspace_desc>();
        desc.plan = plan.get();
        moe_workspace* made = nullptr;
        ASSERT_MOE_OK(moe_workspace_create(nullptr, &desc, &made));
        workspace.reset(made);
    }
    std::vector<float> run(const std::vector<float>& x) {
        std::vector<float> out(x.size(), NAN);
        auto args = sized<moe_forward_args>();
        args.n_tokens = GetParam().tokens;
        args.x = x.data();
        args.out = out.data();
        EXPECT_MOE_OK(moe_forward(plan.get(), weights.get(), workspace.get(), &args));
        return out;
    }
    void run_and_compare() {
        const Case& c = GetParam();
        const std::string folder = fixtures + c.name + "/";
        const auto x = read_npy<float>(folder + "x.npy");
        const auto wanted = read_npy<float>(folder + "y.npy");
        const auto wanted_ids = read_npy<int32_t>(folder + "ids.npy");
        const auto wanted_weights = read_npy<float>(folder + "weights.npy");
        std::vector<float> out(wanted.size(), NAN), got_weights(wanted_weights.size(), NAN);
        std::vector<int32_t> ids(wanted_ids.size(), -7);
        auto args = sized<moe_forward_args>();
        args.n_tokens = c.tokens;
        args.x = x.data();
        args.out = out.data();
        std::vector<int32_t> tokens;  // of layers that choose experts by them
        if (std::ifstream(folder + "tokens.npy").good())
            tokens = read_npy<int32_t>(folder + "tokens.npy");
        if (!tokens.empty()) args.token_ids = tokens.data();
        args.out_ids = ids.data();
        args.out_weights = got_weights.data();
        ASSERT_MOE_OK(moe_forward(plan.get(), weights.get(), workspace.get(), &args));
        EXPECT_EQ(ids, wanted_ids);
        EXPECT_LE(worst_row_error(got_weights, wanted_weights, c.top_k), 1e-5);
        EXPECT_LE(worst_row_error(out, wanted, c.hidden), 1e-5);
    }

    const moe_slice* slice = nullptr;
    moe_residency residency = MOE_RESIDENCY_SOURCE;
    Checkpoint checkpoint;
    Plan plan;
    Weights weights;
    Workspace workspace;
};

TEST_P(Oracle, AgreesWithTheTool) {
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        for (const moe_ownership ownership : {MOE_OWN_COPY, MOE_OWN_BORROW}) {
            if (io == MOE_IO_READ && ownership == MOE_OWN_BORROW) continue;
            SCOPED_TRACE(testing::Message() << "io " << io << ", ownership " << ownership);
            open(io);
            if (HasFatalFailure()) return;
            const LayerFormats formats(checkpoint.get(), GetParam().layer);
            ASSERT_EQ(formats.status, is_mixed() ? MOE_ERROR_UNSUPPORTED : MOE_OK)
                << moe_last_error();
            for (const moe_type intermediate : {MOE_TYPE_F32, MOE_TYPE_F64}) {
                ASSERT_MOE_OK(plan_with(MOE_TYPE_F32, intermediate, formats));
                load(ownership);
                if (HasFatalFailure()) return;
                run_and_compare();
            }
        }
    }
}

// The same of packed weights; experts of different formats are refused.
TEST_P(Oracle, AgreesWithTheToolPacked) {
    residency = MOE_RESIDENCY_PACKED;
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        SCOPED_TRACE(testing::Message() << "io " << io);
        open(io);
        if (HasFatalFailure()) return;
        const LayerFormats formats(checkpoint.get(), GetParam().layer);
        const moe_status status = plan_with(MOE_TYPE_F32, MOE_TYPE_F32, formats);
        ASSERT_EQ(status, is_mixed() ? MOE_ERROR_UNSUPPORTED : MOE_OK) << moe_last_error();
        if (is_mixed()) continue;
        load(MOE_OWN_COPY);
        if (HasFatalFailure()) return;
        run_and_compare();
    }
}

// Tensor parallelism: the features of the experts in two parts, which may begin inside a group of
// scales, inside a word of codes or inside a block that crosses rows.
class OracleSlices : public Oracle {};

std::vector<Case> routed_only() {
    std::vector<Case> cases;
    for (const Case& c : all_cases())
        if (c.name.starts_with("qwen3_moe")) cases.push_back(c);
    return cases;
}

TEST_P(OracleSlices, SumToTheWhole) {
    const std::string folder = fixtures + GetParam().name + "/";
    const auto x = read_npy<float>(folder + "x.npy");
    const auto wanted = read_npy<float>(folder + "y.npy");
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        open(io);
        if (HasFatalFailure()) return;
        auto layer = sized<moe_layer_desc>();
        ASSERT_MOE_OK(moe_checkpoint_layer(checkpoint.get(), GetParam().layer, &layer));
        const LayerFormats formats(checkpoint.get(), GetParam().layer);
        const int32_t cut = layer.intermediate > 32 ? 32 : 16;
        std::vector<float> sum(wanted.size());
        for (const bool second : {false, true}) {
            auto part = sized<moe_slice>();
            part.has_intermediate_range = 1;
            part.intermediate_begin = second ? cut : 0;
            part.intermediate_count = second ? layer.intermediate - cut : cut;
            slice = &part;
            ASSERT_MOE_OK(plan_with(MOE_TYPE_F32, MOE_TYPE_F32, formats));
            load(io == MOE_IO_MMAP ? MOE_OWN_BORROW : MOE_OWN_COPY);
            if (HasFatalFailure()) return;
            const auto out = run(x);
            EXPECT_GT(worst_row_error(out, wanted, GetParam().hidden), 0.1) << "it is a part";
            for (size_t i = 0; i < sum.size(); ++i) sum[i] += out[i];
        }
        EXPECT_LE(worst_row_error(sum, wanted, GetParam().hidden), 1e-5);
    }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, OracleSlices, testing::ValuesIn(routed_only()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Fixtures, Oracle, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace moe_test
