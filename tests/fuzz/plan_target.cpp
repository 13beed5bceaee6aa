// moe_plan_create and its relatives with structs of any bytes and any struct_size. Pointers are
// believed by the library, so they are good ones, NULL, or a handle that is none.
#include <cstdlib>
#include <memory>

#include "moe/moe.h"
#include "tests/fuzz/chunks.hpp"
#include "tests/fuzz/plan_chunks.hpp"
#include "tests/fuzz/targets.hpp"

namespace moe_fuzz {
namespace {

constexpr uint32_t largest_struct = 65536;
constexpr int32_t most_map = 1 << 16;
constexpr size_t most_formats = 64;
constexpr int32_t most_experts = 64;

// Bytes of a struct in a block of exactly struct_size, so that a read beyond it is seen.
class Struct {
  public:
    explicit Struct(const std::string& chunk) {
        uint32_t size = 0;
        std::memcpy(&size, chunk.data(), std::min(chunk.size(), sizeof size));
        bytes_ = size >= sizeof size && size <= largest_struct ? size : sizeof size;
        block_.reset(static_cast<char*>(std::calloc(1, bytes_)));
        std::memcpy(block_.get(), chunk.data(), std::min<size_t>(chunk.size(), bytes_));
        std::memcpy(block_.get(), &size, sizeof size);
    }
    template <class T>
    T* as() {
        return reinterpret_cast<T*>(block_.get());
    }
    // Overwrites a field as far as the struct reaches; a field cut in two is zeroed.
    template <class T>
    void set(size_t offset, T value) {
        if (offset >= bytes_) return;
        const bool whole = sizeof value <= bytes_ - offset;
        if (!whole) value = T{};
        std::memcpy(block_.get() + offset, &value, whole ? sizeof value : bytes_ - offset);
    }
    template <class T>
    T get(size_t offset) const {
        T value{};
        if (offset + sizeof value <= bytes_)
            std::memcpy(&value, block_.get() + offset, sizeof value);
        return value;
    }

  private:
    struct Free {
        void operator()(char* block) const { std::free(block); }
    };
    std::unique_ptr<char, Free> block_;
    size_t bytes_ = 0;
};

// A plan description with all that it points to.
class Description {
  public:
    explicit Description(std::vector<std::string> chunks)
        : chunks_(
              (chunks.resize(std::max<size_t>(chunks.size(), plan_formats)), std::move(chunks))),
          flags_(chunks_[plan_flags].empty() ? 0 : chunks_[plan_flags][0]),
          plan_(chunks_[plan_desc]),
          layer_(chunks_[plan_layer]),
          slice_(chunks_[plan_slice]) {
        set_slice();
        set_formats();
        plan_.set<const void*>(offsetof(moe_plan_desc, layer),
                               has(without_layer) ? nullptr : layer_.as<void>());
        plan_.set<const void*>(offsetof(moe_plan_desc, slice),
                               has(with_slice) ? slice_.as<void>() : nullptr);
        const char* text = chunks_[plan_filter].c_str();
        plan_.set(offsetof(moe_plan_desc, kernel_filter), has(with_filter) ? text : nullptr);
        plan_.set(offsetof(moe_plan_desc, tuning_path), has(with_tuning) ? text : nullptr);
        set_expert_formats();
        static constexpr uint64_t dead[32] = {};
        plan_.set<const void*>(offsetof(moe_plan_desc, checkpoint),
                               has(with_dead_checkpoint) ? dead : nullptr);
    }

    const moe_plan_desc* plan() { return plan_.as<moe_plan_desc>(); }
    const moe_layer_desc* layer() { return layer_.as<moe_layer_desc>(); }
    int64_t max_tokens() const { return plan_.get<int64_t>(offsetof(moe_plan_desc, max_tokens)); }

  private:
    bool has(PlanFlag flag) const { return flags_ & flag; }

    void set_slice() {
        const auto n = slice_.get<int32_t>(offsetof(moe_slice, n_expert_to_local));
        const bool given = has(with_map) && n > 0 && n <= most_map;
        if (given) {
            map_.reset(new int32_t[static_cast<size_t>(n)]);
            // 0 1 2 .. and, by the flags' other bytes, some that are wrong.
            for (int32_t i = 0; i < n; ++i) map_[i] = i;
            const std::string& odd = chunks_[plan_flags];
            for (size_t i = 1; i < odd.size(); ++i) map_[(i - 1) % static_cast<size_t>(n)] = odd[i];
        }
        slice_.set(offsetof(moe_slice, expert_to_local), given ? map_.get() : nullptr);
    }
    void set_formats() {
        const size_t n = std::min(chunks_.size() - plan_formats, most_formats);
        formats_.reserve(n);
        pointers_.reset(new const moe_format*[n]);
        for (size_t i = 0; i < n; ++i) {
            const std::string& chunk = chunks_[plan_formats + i];
            if (!chunk.empty()) formats_.emplace_back(chunk);
            pointers_[i] = chunk.empty() ? nullptr : formats_.back().as<moe_format>();
        }
        plan_.set(offsetof(moe_plan_desc, formats),
                  has(without_formats) ? nullptr : pointers_.get());
        // Without the list any count is fine; with it, the count is part of what is believed.
        if (!has(without_formats))
            plan_.set(offsetof(moe_plan_desc, n_formats), static_cast<uint32_t>(n));
    }

    void set_expert_formats() {
        const auto n = layer_.get<int32_t>(offsetof(moe_layer_desc, n_experts));
        const bool given =
            has(with_expert_formats) && n > 0 && n <= most_experts && !formats_.empty();
        const auto experts = static_cast<size_t>(given ? n : 0);
        expert_pointers_.resize(MOE_ROLE_COUNT * experts);
        for (const size_t role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
            for (size_t e = 1; e < experts; e += 2)
                expert_pointers_[role * experts + e] =
                    formats_[(role + e) % formats_.size()].as<moe_format>();
        plan_.set<const void*>(offsetof(moe_plan_desc, formats_per_expert),
                               given ? expert_pointers_.data() : nullptr);
        if (given)
            plan_.set(offsetof(moe_plan_desc, n_formats_per_expert),
                      static_cast<uint32_t>(expert_pointers_.size()));
    }

    std::vector<std::string> chunks_;
    int flags_;
    Struct plan_, layer_, slice_;
    std::unique_ptr<int32_t[]> map_;
    std::vector<Struct> formats_;
    std::unique_ptr<const moe_format*[]> pointers_;
    std::vector<const moe_format*> expert_pointers_;
};

bool ok(moe_status status) {
    const std::string_view text = moe_last_error();
    if (status == MOE_OK) return true;
    promise(!text.empty(), "a refusal without a sentence");
    promise(status != MOE_ERROR_INTERNAL && status != MOE_ERROR_OUT_OF_MEMORY &&
                status != MOE_ERROR_CORRUPT_FILE && status != MOE_ERROR_IO,
            "a status that no description should cause", text);
    refused(text);
    return false;
}

// A plan that was made answers.
void must(moe_status status, std::string_view what) {
    promise(status == MOE_OK, what, moe_last_error());
}

void look_at(const moe_plan* plan, int64_t max_tokens) {
    for (const auto form : {MOE_EXPLAIN_TEXT, MOE_EXPLAIN_JSON}) {
        uint64_t size = 0;
        must(moe_plan_explain(plan, form, nullptr, 0, &size), "explain");
        std::string text(size, '\0');
        must(moe_plan_explain(plan, form, text.data(), size, &size), "explain");
    }
    moe_workspace_need need{};
    need.struct_size = sizeof need;
    for (const int64_t n : {int64_t{0}, int64_t{1}, max_tokens})
        must(moe_plan_workspace_size(plan, n, &need), "workspace size");
    const char* name = nullptr;
    for (const int stage : {1, 2, 4, 8, 16})
        ok(moe_plan_kernel(plan, static_cast<moe_stage>(stage), 1, &name));
    moe_candidate candidate{};
    candidate.struct_size = sizeof candidate;
    for (uint32_t i = 0; moe_candidates(plan, i, &candidate) == MOE_OK; ++i) {
    }
    auto device = MOE_DEVICE_AUTO;
    int32_t index = -1;
    const char* reason = nullptr;
    must(moe_plan_device(plan, &device, &index, &reason), "device");
    promise(reason != nullptr, "a device without a reason");
    uint64_t bytes = 0;
    must(moe_weights_size(plan, nullptr, &bytes), "weights size");
    uint8_t id[16];
    must(moe_plan_layout_id(plan, id), "layout id");
}

}  // namespace

void run_plan(std::string_view input) {
    Description description(split_chunks(input));
    ok(moe_layer_validate(description.layer()));
    uint8_t key[16];
    const bool has_key = ok(moe_plan_key(nullptr, description.plan(), key));
    moe_plan* plan = nullptr;
    const bool made = ok(moe_plan_create(nullptr, description.plan(), &plan));
    promise(made == (plan != nullptr) && made == has_key, "key and plan disagree",
            moe_last_error());
    if (!made) return;
    look_at(plan, description.max_tokens());
    must(moe_supports(nullptr, description.plan()), "supports");
    moe_plan_destroy(plan);
}

namespace {

uint32_t field_value(Random& random) {
    static constexpr uint32_t floats[] = {0x7FC00000, 0x7F800000, 0xFF800000, 0x80000000, 1,
                                          0x3F800000, 0xBF800000, 0x7F7FFFFF, 0x40E00000};
    switch (random.below(6)) {
        case 0:
            return random.pick(floats);
        case 1:
            return static_cast<uint32_t>(random.interesting());
        case 2:
            return static_cast<uint32_t>(random.below(9) * 32);
        case 3:
            return static_cast<uint32_t>(random.next());
        default:
            return static_cast<uint32_t>(random.below(12));
    }
}

void change_struct(std::string& chunk, Random& random) {
    if (chunk.size() < 4) {
        chunk = std::string("\x40\0\0\0", 4);
        return;
    }
    const uint32_t value = field_value(random);
    switch (random.below(8)) {
        case 0: {  // struct_size alone
            const uint32_t size =
                random.one_in(2) ? static_cast<uint32_t>(random.below(64) * 4) : value;
            std::memcpy(chunk.data(), &size, sizeof size);
            return;
        }
        case 1: {  // a struct that is cut or continued
            chunk.resize(random.below(2 * chunk.size() + 8) + 4);
            const auto size = static_cast<uint32_t>(chunk.size());
            std::memcpy(chunk.data(), &size, sizeof size);
            return;
        }
        case 2:
            return mutate_bytes(chunk, random);
        default:
            for (size_t n = 1 + random.below(3); n > 0; --n) {
                const size_t offset = random.below(chunk.size() / 4) * 4;
                const uint32_t field = field_value(random);
                if (offset) std::memcpy(chunk.data() + offset, &field, sizeof field);
            }
    }
}

}  // namespace

std::string mutate_plan(std::string_view input, Random& random) {
    std::vector<std::string> chunks = split_chunks(input);
    if (chunks.size() < plan_formats) chunks.resize(plan_formats);
    switch (random.below(10)) {
        case 0: {
            std::string& flags = chunks[plan_flags];
            if (flags.empty()) flags.push_back('\0');
            flags[0] = static_cast<char>(flags[0] ^ (1 << random.below(7)));
            if (random.one_in(2)) mutate_bytes(flags, random);
            break;
        }
        case 1:
        case 2:
            change_struct(chunks[plan_desc], random);
            break;
        case 3:
            change_struct(chunks[plan_slice], random);
            break;
        case 4:
            mutate_bytes(chunks[plan_filter], random);
            break;
        case 5:
        case 6:
            if (chunks.size() == plan_formats || random.one_in(8)) {
                chunks.push_back(chunks.size() > plan_formats ? chunks.back() : "");
            } else {
                change_struct(chunks[plan_formats + random.below(chunks.size() - plan_formats)],
                              random);
            }
            break;
        default:
            change_struct(chunks[plan_layer], random);
            break;
    }
    return join_chunks(chunks);
}

}  // namespace moe_fuzz
