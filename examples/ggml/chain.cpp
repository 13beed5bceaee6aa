#include "chain.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>

#include "activation.hpp"
#include "names.hpp"
#include "values.hpp"

namespace moe::ggml {
namespace {

bool is_pass_through(const Tensor* t) {
    const Op op = op_of(t);
    return op == Op::none || op == Op::view || op == Op::reshape;
}

class Matcher {
  public:
    explicit Matcher(const std::vector<Tensor*>& nodes) : nodes_(nodes) {
        for (size_t i = 0; i < nodes.size(); ++i) {
            place_[nodes[i]] = i;
            for (const Tensor* source : nodes[i]->src)
                if (source) users_[source].push_back(nodes[i]);
        }
    }

    // The chain whose last matrix is this MUL_MAT_ID.
    std::optional<Chain> chain_of(Tensor* down) {
        Chain chain;
        inner_.clear();
        is_whole_ = true;
        const Tensor* x = without_reshapes(down->src[1]);
        if (!match_activation(x, chain) || !is_consistent(chain, down)) return {};
        collect(down->src[1], chain);
        if (!is_whole_) return {};
        chain.down.product = down;
        Tensor* rows = end_of_slot_rows(down, chain);
        const std::vector<const Tensor*> until_rows = inner_;
        // With rows of its own for each slot, weights that follow are not a token's sum to libmoe.
        const bool is_by_token = chain.up.x()->ne[1] == 1;
        if (is_by_token && match_sum(rows, chain) && is_closed(chain)) return chain;
        inner_ = until_rows;
        chain.routing_weights = nullptr;
        chain.result = rows;
        if (is_closed(chain)) return chain;
        return {};
    }

    // Nodes that the chain found last makes unnecessary.
    const std::vector<const Tensor*>& inner() const { return inner_; }

    size_t place_of(const Tensor* node) const { return place_.at(node); }

  private:
    bool match_activation(const Tensor* value, Chain& chain) const {
        const std::optional<Formula> formula = formula_of(value);
        if (!formula) return false;
        chain.activation = formula->activation;
        if (!formula->activation.is_gated) return match_projection(formula->up, chain.up);
        if (formula->is_merged) {
            chain.order = formula->order;
            return match_projection(formula->up, chain.up);
        }
        return match_halves(formula->gate, formula->up, chain) ||
               (match_projection(formula->gate, chain.gate) &&
                match_projection(formula->up, chain.up));
    }

    // Two views of one product: the gate's rows and the up's rows lie in one matrix.
    static bool match_halves(const Tensor* gate, const Tensor* up, Chain& chain) {
        if (op_of(gate) != Op::view || op_of(up) != Op::view || gate->src[0] != up->src[0])
            return false;
        const Tensor* whole = gate->src[0];
        const size_t half = static_cast<size_t>(whole->ne[0]) / 2 * sizeof(float);
        const auto is_half = [&](const Tensor* t) {
            return t->ne[0] * 2 == whole->ne[0] && t->ne[1] == whole->ne[1] &&
                   t->ne[2] == whole->ne[2] && t->nb[1] == whole->nb[1] && t->nb[2] == whole->nb[2];
        };
        // Offsets count from what a view was made of in the end, and the product may be one, too.
        const size_t start = whole->view_src ? whole->view_offs : 0;
        const size_t gate_at = gate->view_offs - start, up_at = up->view_offs - start;
        if (!is_half(gate) || !is_half(up) || gate_at + up_at != half) return false;
        chain.order = gate_at == 0 ? MOE_GATE_UP_GATE_FIRST : MOE_GATE_UP_UP_FIRST;
        return match_projection(whole, chain.up);
    }

    static bool match_projection(const Tensor* value, Projection& projection) {
        value = without_reshapes(value);
        const Tensor* ids = nullptr;
        if (op_of(value) == Op::add_id) {
            projection.bias = value->src[1];
            ids = value->src[2];
            value = value->src[0];
        }
        const Tensor* scale_ids = nullptr;
        if (op_of(value) == Op::mul) {
            projection.scales = expert_scales_of_slots(value->src[1]);
            if (!projection.scales) return false;
            scale_ids = value->src[1]->src[1];
            value = value->src[0];
        }
        if (op_of(value) != Op::mul_mat_id) return false;
        projection.product = value;
        const Tensor* own = value->src[2];
        return (!ids || ids == own) && (!scale_ids || scale_ids == own);
    }

    // All matrices see the same slots, and gate and up the same rows.
    static bool is_consistent(const Chain& chain, const Tensor* down) {
        const Tensor* up = chain.up.product;
        const Tensor* gate = chain.gate.product;
        if (up->src[2] != down->src[2]) return false;
        if (gate && (gate->src[2] != up->src[2] || gate->src[1] != up->src[1])) return false;
        const int64_t rows = chain.up.weights()->ne[1];
        const int64_t intermediate = chain.order == MOE_GATE_UP_NONE ? rows : rows / 2;
        const Tensor* w = down->src[0];
        return w->ne[0] == intermediate && (!gate || gate->src[0]->ne[1] == intermediate) &&
               w->ne[2] == chain.up.weights()->ne[2] && has_even_rows(up->src[1]);
    }

    // Everything between the matrices: what is computed inside the chain. A value that another
    // graph has computed may have lost its sources since, so that a chain must lie in one.
    void collect(const Tensor* value, const Chain& chain) {
        const bool is_x_or_ids = value == chain.up.x() || value == chain.up.ids();
        if (is_x_or_ids || op_of(value) == Op::none || is_known(value)) return;
        if (place_.count(value)) {
            inner_.push_back(value);
        } else if (!is_pass_through(value)) {
            is_whole_ = false;
            return;
        }
        if (op_of(value) == Op::repeat) return;
        for (const Tensor* source : value->src)
            if (source) collect(source, chain);
    }

    bool is_known(const Tensor* value) const {
        return std::find(inner_.begin(), inner_.end(), value) != inner_.end();
    }

    // Down's scale and bias, where they follow.
    Tensor* end_of_slot_rows(Tensor* down, Chain& chain) {
        Tensor* rows = down;
        inner_.push_back(down);
        Tensor* user = only_user(rows);
        if (user && op_of(user) == Op::mul && user->src[0] == rows &&
            expert_scales_of_slots(user->src[1]) && user->src[1]->src[1] == down->src[2]) {
            collect(user->src[1], chain);
            if (!is_whole_) return rows;
            chain.down.scales = expert_scales_of_slots(user->src[1]);
            rows = user;
            inner_.push_back(rows);
            user = only_user(rows);
        }
        if (user && op_of(user) == Op::add_id && user->src[0] == rows &&
            user->src[2] == down->src[2]) {
            chain.down.bias = user->src[1];
            rows = user;
            inner_.push_back(rows);
        }
        return rows;
    }

    // rows x weights, a view of each slot, the views added in the order of the slots.
    bool match_sum(Tensor* rows, Chain& chain) {
        Tensor* weighted = only_user(rows);
        const int64_t k = rows->ne[1];
        if (!weighted || op_of(weighted) != Op::mul || weighted->src[0] != rows) return false;
        const Tensor* weights = weighted->src[1];
        if (weights->ne[0] != 1 || weights->ne[1] != k || weights->ne[2] != rows->ne[2] ||
            weights == rows)
            return false;
        const auto views = users_.find(weighted);
        if (views == users_.end() || views->second.size() != static_cast<size_t>(k)) return false;
        std::vector<Tensor*> slots(static_cast<size_t>(k), nullptr);
        for (Tensor* view : views->second) {
            const std::optional<size_t> slot = slot_of(view, weighted);
            if (!slot || slots[*slot]) return false;
            slots[*slot] = view;
        }
        inner_.push_back(weighted);
        inner_.insert(inner_.end(), slots.begin(), slots.end());
        Tensor* sum = k == 1 ? only_user(slots[0]) : slots[0];
        if (k == 1 && (!sum || op_of(sum) != Op::cont)) return false;
        for (size_t j = 1; j < slots.size(); ++j) {
            Tensor* next = only_user(slots[j]);
            if (!next || op_of(next) != Op::add || next->src[0] != sum || next->src[1] != slots[j])
                return false;
            if (j + 1 < slots.size()) inner_.push_back(next);
            sum = next;
        }
        inner_.push_back(sum);
        chain.routing_weights = weights;
        chain.result = sum;
        return is_dense(sum);
    }

    static std::optional<size_t> slot_of(const Tensor* view, const Tensor* whole) {
        if (op_of(view) != Op::view || view->src[0] != whole) return {};
        const size_t start = whole->view_src ? whole->view_offs : 0;
        const size_t offset = view->view_offs - start;
        const bool is_slot = view->ne[0] == whole->ne[0] && view->ne[1] == whole->ne[2] &&
                             view->ne[2] == 1 && view->nb[1] == whole->nb[2] &&
                             offset % whole->nb[1] == 0;
        const size_t slot = offset / whole->nb[1];
        if (!is_slot || slot >= static_cast<size_t>(whole->ne[1])) return {};
        return slot;
    }

    Tensor* only_user(const Tensor* value) const {
        const auto found = users_.find(value);
        return found != users_.end() && found->second.size() == 1 ? found->second[0] : nullptr;
    }

    // Nobody outside wants a value from inside, and no node in between overwrites what the chain
    // reads.
    bool is_closed(const Chain& chain) const {
        for (const Tensor* value : inner_) {
            if (value == chain.result) continue;
            if (value->flags & flag_output) return false;
            const auto users = users_.find(value);
            if (users == users_.end()) continue;
            for (const Tensor* user : users->second)
                if (!is_known(user)) return false;
        }
        return is_undisturbed(chain);
    }

    // The allocator gives away the memory of x after the last product with it; other nodes may own
    // it by the time that the chain runs, which is when its result is due.
    bool is_undisturbed(const Chain& chain) const {
        size_t first = nodes_.size();
        for (const Tensor* value : inner_) first = std::min(first, place_.at(value));
        std::vector<Range> read{range_of(chain.up.x()), range_of(chain.up.ids())};
        if (chain.routing_weights) read.push_back(range_of(chain.routing_weights));
        for (size_t i = first; i < place_.at(chain.result); ++i) {
            if (is_known(nodes_[i]) || is_pass_through(nodes_[i])) continue;
            for (const Range& range : read)
                if (overlap(range, range_of(nodes_[i])) && !is_input(nodes_[i], chain))
                    return false;
        }
        return true;
    }

    // A node that makes what the chain reads.
    static bool is_input(const Tensor* node, const Chain& chain) {
        const auto makes = [node](const Tensor* value) {
            return value &&
                   (value == node || value->view_src == node || without_reshapes(value) == node);
        };
        return makes(chain.up.x()) || makes(chain.up.ids()) || makes(chain.routing_weights);
    }

    const std::vector<Tensor*>& nodes_;
    std::unordered_map<const Tensor*, size_t> place_;
    std::unordered_map<const Tensor*, std::vector<Tensor*>> users_;
    std::vector<const Tensor*> inner_;
    bool is_whole_ = true;
};

}  // namespace

Steps::Steps(const std::vector<Tensor*>& nodes, const std::function<bool(const Chain&)>& can_run) {
    Matcher matcher(nodes);
    std::vector<int> chain_at(nodes.size(), -1);
    std::vector<bool> is_done(nodes.size(), false);
    for (Tensor* node : nodes) {
        if (op_of(node) != Op::mul_mat_id) continue;
        std::optional<Chain> chain = matcher.chain_of(node);
        if (!chain || !can_run(*chain)) continue;
        for (const Tensor* inner : matcher.inner()) is_done[matcher.place_of(inner)] = true;
        chain_at[matcher.place_of(chain->result)] = static_cast<int>(chains_.size());
        chains_.push_back(*chain);
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
        if (chain_at[i] >= 0)
            list_.push_back({nullptr, &chains_[static_cast<size_t>(chain_at[i])],
                             static_cast<size_t>(chain_at[i])});
        else if (!is_done[i] && !is_pass_through(nodes[i]))
            list_.push_back({nodes[i], nullptr, 0});
    }
}

}  // namespace moe::ggml
