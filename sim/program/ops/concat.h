// Tensors joined along an axis, and parted again. No number changes.
#pragma once

#include <ampscope/sim/program/ops/op.h>

namespace amp::op {

/// Up to three parts and how many numbers of a row of the whole each has. A row is what follows from a position of the
/// axes before the joined one: rows of the parts follow each other in rows of the whole.
struct Parts {
    std::array<TensorId, 3> tensors{};
    std::array<std::int64_t, 3> widths{};
};

/// out = torch.cat of the parts; where a part is absent, its numbers are +0.
struct Concat {
    static constexpr std::string_view name = "cat";
    Parts parts;
    TensorId out;
    [[nodiscard]] auto inputs() const { return parts.tensors; }
    [[nodiscard]] auto outputs() const { return std::array{out}; }
};
/// Joins tensors that have the same extents but along `axis`, where they have these: 0 for none. A part may be absent
/// if it has an extent; one of them is there. Throws std::invalid_argument for others.
TensorId concat(Graph& g, const std::array<TensorId, 3>& parts, std::size_t axis,
                const std::array<std::int64_t, 3>& extents);
void backward(Graph& g, const Concat& op);

/// The parts of `in`; absent ones are left out.
struct Split {
    static constexpr std::string_view name = "split";
    TensorId in;
    Parts parts;
    [[nodiscard]] auto inputs() const { return std::array{in}; }
    [[nodiscard]] auto outputs() const { return parts.tensors; }
};
/// torch.split: parts with these extents along `axis`, which add up to its own; none for an extent of 0.
std::array<TensorId, 3> split(Graph& g, TensorId in, std::size_t axis, const std::array<std::int64_t, 3>& extents);
/// The gradients, joined. A part without a gradient has zeros.
void backward(Graph& g, const Split& op);

} // namespace amp::op
