// Peers of the benchmark of the CPU: that what computes another layer is not timed, and what is no
// library of ik_llama.cpp is refused.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "bench/cpu/measure.hpp"
#include "bench/peers/ik_api.hpp"

namespace moe::bench {
namespace {

const Model mirrored{"of-6", 256, 128, 6, 2, 0};

struct Counts {
    int forwards = 0, rests = 0;
    bool is_awake = false;
};

// libmoe as its own peer, whose output is `factor` times as large.
class MirrorLayer : public PeerLayer {
  public:
    MirrorLayer(const CpuCase& one, const ExpertWeights& weights, float factor, Counts& counts)
        : layer_(one, weights), factor_(factor), counts_(counts) {}
    double forward(size_t set, const std::vector<int32_t>& ids) override {
        ++counts_.forwards;
        counts_.is_awake = true;
        return layer_.forward(set, ids);
    }
    std::vector<float> out() const override {
        std::vector<float> values = layer_.out();
        for (float& value : values) value *= factor_;
        return values;
    }
    void rest() override {
        ++counts_.rests;
        counts_.is_awake = false;
    }

  private:
    CpuLayer layer_;
    float factor_;
    Counts& counts_;
};

class MirrorWeights : public PeerWeights {
  public:
    MirrorWeights(const ExpertWeights& weights, float factor, Counts& counts)
        : weights_(weights), factor_(factor), counts_(counts) {}
    const std::string& buffer() const override { return weights_.format(); }
    std::unique_ptr<PeerLayer> layer(std::vector<float> x, int64_t n_tokens,
                                     int32_t n_threads) const override {
        EXPECT_EQ(x, make_x(weights_.model(), n_tokens));
        const CpuCase one{weights_.model(), weights_.format(), "",
                          MOE_TYPE_BF16,    n_tokens,          n_threads};
        return std::make_unique<MirrorLayer>(one, weights_, factor_, counts_);
    }

  private:
    const ExpertWeights& weights_;
    float factor_;
    Counts& counts_;
};

class Mirror : public Peer {
  public:
    Mirror(const std::string& name, const std::string& format, float factor, Counts& counts)
        : name_(name), format_(format), factor_(factor), counts_(counts) {}
    std::string name() const override { return name_; }
    std::string version() const override { return "1"; }
    std::string variant() const override { return "any"; }
    std::string format(const std::string&) const override { return format_; }
    std::unique_ptr<PeerWeights> weights(const ExpertWeights& weights) const override {
        return std::make_unique<MirrorWeights>(weights, factor_, counts_);
    }

  private:
    std::string name_, format_;
    float factor_;
    Counts& counts_;
};

CpuResult measured(CaseWeights::Peers& peers) {
    const CpuCase one{mirrored, "mxfp4", "", MOE_TYPE_BF16, 2, 1};
    return measure(one, CaseWeights(one, false, peers), 0.0);
}

TEST(CpuPeers, EachIsMeasuredInItsFormat) {
    Counts first, second, third;
    CaseWeights::Peers peers;
    peers.push_back(std::make_unique<Mirror>("same", "mxfp4", 1.0f, first));
    peers.push_back(std::make_unique<Mirror>("lacks it", "", 1.0f, second));
    peers.push_back(std::make_unique<Mirror>("other blocks", "mxfp4_gguf", 1.02f, third));
    const CpuResult result = measured(peers);
    ASSERT_EQ(result.peers.size(), 2u);
    EXPECT_EQ(result.peers[0].name, "same");
    EXPECT_EQ(result.peers[0].error, 0.0);
    EXPECT_EQ(result.peer("lacks it"), nullptr);
    ASSERT_TRUE(result.peer("other blocks"));
    EXPECT_EQ(result.peer("other blocks")->format, "mxfp4_gguf");
    EXPECT_EQ(result.peer("other blocks")->buffer, "mxfp4_gguf");
    EXPECT_NEAR(result.peer("other blocks")->error, 0.02, 1e-3);
    EXPECT_EQ(second.forwards, 0);
    for (const PeerTimes& peer : result.peers) {
        EXPECT_EQ(peer.calls.seconds.size(), result.calls.seconds.size());
        EXPECT_GT(result.best_over(peer.calls), 0.0);
    }
}

TEST(CpuPeers, TheyRestWhileOthersAreMeasured) {
    Counts counts;
    CaseWeights::Peers peers;
    peers.push_back(std::make_unique<Mirror>("same", "mxfp4", 1.0f, counts));
    const CpuResult result = measured(peers);
    EXPECT_FALSE(counts.is_awake);
    // The comparison, and a rest for each round.
    EXPECT_EQ(counts.rests, 1 + static_cast<int>(result.calls.seconds.size()));
    EXPECT_GE(counts.forwards, counts.rests);
}

TEST(CpuPeers, AnotherLayerIsNotTimed) {
    Counts counts[5];
    CaseWeights::Peers peers;
    for (const float factor : {0.0f, 0.9f, 1.1f, std::nanf(""), 1.0f})
        peers.push_back(std::make_unique<Mirror>("theirs" + std::to_string(peers.size()), "mxfp4",
                                                 factor, counts[peers.size()]));
    const CpuResult result = measured(peers);
    ASSERT_EQ(result.peers.size(), 1u);
    EXPECT_EQ(result.peers[0].name, "theirs4");
    ASSERT_EQ(result.failures.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
        const std::string wanted =
            "theirs" + std::to_string(i) + ": computes another layer: relative L2 ";
        EXPECT_EQ(result.failures[i].find(wanted), 0u) << result.failures[i];
        EXPECT_EQ(counts[i].forwards, 1);
        EXPECT_EQ(counts[i].rests, 1);
    }
}

class IkFolder : public testing::Test {
  protected:
    void SetUp() override {
        folder_ = std::filesystem::path(testing::TempDir()) /
                  testing::UnitTest::GetInstance()->current_test_info()->name();
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directory(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    std::string problem() const {
        try {
            ik::Library library(folder_);
        } catch (const std::runtime_error& error) {
            return error.what();
        }
        return "none";
    }

    std::filesystem::path folder_;
};

TEST_F(IkFolder, WithoutTheLibraryIsRefusedByName) {
    EXPECT_EQ(problem(), folder_.string() + " has no libggml.so");
}

TEST_F(IkFolder, WithAFileThatIsNoLibraryIsRefused) {
    std::ofstream(folder_ / "libggml.so") << "none";
    EXPECT_NE(problem().find((folder_ / "libggml.so").string()), std::string::npos) << problem();
}

TEST_F(IkFolder, WithAnotherLibraryIsRefusedByAFunction) {
    Dl_info found{};
    ASSERT_TRUE(dladdr(reinterpret_cast<void*>(&std::fopen), &found));
    std::filesystem::create_symlink(std::filesystem::canonical(found.dli_fname),
                                    folder_ / "libggml.so");
    EXPECT_EQ(problem(), "this libggml.so of ik_llama.cpp has no function ggml_moe_up_gate_ext");
}

}  // namespace
}  // namespace moe::bench
