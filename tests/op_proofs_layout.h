// The definitions of ops that look up, move, spread or collect numbers, against the ops: embedding, views, transposes,
// patches of images, pooling.
#pragma once

#include "op_bench.h"

namespace amp::test {

/// Numbers of table rows, some of which are used more than once and some never.
inline constexpr std::initializer_list<float> embedding_indices = {3, 0, 3, 6, 1, 1, 3, 0, 5, 6, 3, 0};

inline void prove_op(Of<op::Embedding>, Tally& tally) {
    constexpr std::int64_t entries = 7, width = 5;
    for (const char* result : proved_formats) {
        Bench b;
        const TensorId table = b.tensor({entries, width}, "fp32"), indices = b.tensor({4, 3}, "fp32"),
                       out = b.tensor({4, 3, width}, result);
        b.start({table});
        b.write(indices, embedding_indices);
        b.cpu().run(op::Embedding{table, indices, out});
        Reals want;
        for (const float row : embedding_indices)
            for (Index j = 0; j < width; ++j)
                want.push_back(reference::at(b.values(table), static_cast<Index>(row) * width + j));
        b.expect(tally, out, want, "embedding");
    }
}

/// The uses of an entry are added in FP32, in their order; the total is rounded once.
inline void prove_op(Of<op::EmbeddingBackward>, Tally& tally) {
    constexpr std::int64_t entries = 7, width = 5;
    for (const char* result : proved_formats)
        for (const char* operand : {"fp32", "bf16"}) {
            Bench b;
            const TensorId indices = b.tensor({4, 3}, "fp32"), grad = b.tensor({4, 3, width}, operand),
                           out = b.tensor({entries, width}, result);
            b.start({grad});
            b.write(indices, embedding_indices);
            b.cpu().run(op::EmbeddingBackward{indices, grad, out});
            const Reals g = b.values(grad);
            Reals want;
            for (Index entry = 0; entry < entries; ++entry)
                for (Index j = 0; j < width; ++j) {
                    float sum = 0;
                    for (Index use = 0; use < 12; ++use)
                        if (static_cast<Index>(embedding_indices.begin()[use]) == entry)
                            sum = rounded("fp32", Real(sum) + reference::at(g, use * width + j));
                    want.emplace_back(sum);
                }
            b.expect(tally, out, want, "embedding_backward");
        }
}

inline void prove_op(Of<op::View>, Tally& tally) {
    for (const char* name : proved_formats) {
        Bench b;
        const TensorId in = b.tensor({4, 6}, name), out = b.view({2, 3, 4}, in);
        b.run(op::View{in, out}, {in});
        b.expect(tally, out, b.values(in), "view");
    }
}

/// Every order of two, three and four axes.
inline void prove_op(Of<op::Transpose>, Tally& tally) {
    const std::array<std::int64_t, 4> extents = {2, 3, 4, 5};
    for (std::size_t rank = 2; rank <= 4; ++rank) {
        std::array<int, 4> order{0, 1, 2, 3};
        const auto end = order.begin() + static_cast<std::ptrdiff_t>(rank);
        do {
            Shape from(extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(rank)), to;
            for (std::size_t i = 0; i < rank; ++i) to.push_back(from[static_cast<std::size_t>(order[i])]);
            Bench b;
            const TensorId in = b.tensor(from, "fp16"), out = b.tensor(to, "fp16");
            b.run(op::Transpose{in, out, order}, {in});
            const Reals x = b.values(in);
            Reals want(x.size());
            for (std::size_t i = 0; i < x.size(); ++i) { // element i of `in`: its position along each axis
                Shape at(rank);
                std::int64_t rest = static_cast<std::int64_t>(i), where = 0;
                for (std::size_t axis = rank; axis-- > 0; rest /= from[axis]) at[axis] = rest % from[axis];
                for (std::size_t axis = 0; axis < rank; ++axis)
                    where = where * to[axis] + at[static_cast<std::size_t>(order[axis])];
                want[static_cast<std::size_t>(where)] = x[i];
            }
            b.expect(tally, out, want, "transpose");
        } while (std::next_permutation(order.begin(), end));
    }
}

/// Parts along the first, a middle and the last axis, two and three, with one of them absent.
inline constexpr std::array<std::int64_t, 3> part_extents[] = {{3, 1, 4}, {2, 5, 0}, {0, 1, 6}};

/// Of element i of part p: its place in the whole, which has `all` extents of `inner` numbers along the axis.
inline std::size_t place_in_whole(const std::array<std::int64_t, 3>& extents, std::size_t part, std::int64_t inner,
                                  std::int64_t i) {
    std::int64_t before = 0, all = 0;
    for (std::size_t p = 0; p < 3; ++p) all += extents[p], before += p < part ? extents[p] : 0;
    const std::int64_t row = i / (extents[part] * inner), rest = i % (extents[part] * inner);
    return static_cast<std::size_t>((row * all + before) * inner + rest);
}

/// Calls use(bench, whole, parts, extents, inner) for tensors that are to be joined or parted.
template <class Use>
void for_each_parting(const Use& use) {
    for (const char* name : proved_formats)
        for (std::size_t axis = 0; axis < 3; ++axis)
            for (const auto& extents : part_extents)
                for (const std::size_t absent : {3U, 1U}) {
                    Bench b;
                    const auto shape = [&](std::int64_t extent) {
                        Shape x{2, 5, 3};
                        x[axis] = extent;
                        return x;
                    };
                    const std::int64_t inner = axis == 0 ? 15 : axis == 1 ? 3 : 1;
                    const TensorId whole = b.tensor(shape(extents[0] + extents[1] + extents[2]), name);
                    op::Parts parts;
                    for (std::size_t p = 0; p < 3; ++p) {
                        parts.widths[p] = extents[p] * inner;
                        if (extents[p] > 0 && p != absent) parts.tensors[p] = b.tensor(shape(extents[p]), name);
                    }
                    use(b, whole, parts, extents, inner);
                }
}

inline void prove_op(Of<op::Concat>, Tally& tally) {
    for_each_parting([&](Bench& b, TensorId whole, const op::Parts& parts, const auto& extents, std::int64_t inner) {
        b.start({});
        for (const TensorId part : parts.tensors)
            if (part) b.fill(part, 1);
        b.cpu().run(op::Concat{parts, whole});
        Reals want(std::as_const(b.cpu())[whole].size());
        for (std::size_t p = 0; p < 3; ++p) {
            if (!parts.tensors[p]) continue;
            const Reals x = b.values(parts.tensors[p]);
            for (std::size_t i = 0; i < x.size(); ++i)
                want[place_in_whole(extents, p, inner, static_cast<std::int64_t>(i))] = x[i];
        }
        b.expect(tally, whole, want, "cat");
    });
}

inline void prove_op(Of<op::Split>, Tally& tally) {
    for_each_parting([&](Bench& b, TensorId whole, const op::Parts& parts, const auto& extents, std::int64_t inner) {
        b.run(op::Split{whole, parts}, {whole});
        const Reals x = b.values(whole);
        for (std::size_t p = 0; p < 3; ++p) {
            if (!parts.tensors[p]) continue;
            Reals want(std::as_const(b.cpu())[parts.tensors[p]].size());
            for (std::size_t i = 0; i < want.size(); ++i)
                want[i] = x[place_in_whole(extents, p, inner, static_cast<std::int64_t>(i))];
            b.expect(tally, parts.tensors[p], want, "split");
        }
    });
}

/// Kernels that overlap, that leave gaps, and that reach or lie beyond the border; rectangles, with other strides,
/// paddings and dilations along the two axes, where dilation and stride have a common factor and where they have none;
/// groups of several channels, and of one.
inline constexpr op::ConvGeometry geometries[] = {
    {2, 5, 6, 3, {.kernel = 3, .padding = 1}, {.kernel = 3, .padding = 1}},
    {2, 5, 6, 2, {.kernel = 2, .stride = 2}, {.kernel = 2, .stride = 2}},
    {1, 7, 4, 3, {.kernel = 2, .stride = 3, .padding = 1}, {.kernel = 2, .stride = 3, .padding = 1}},
    {3, 4, 4, 1, {.kernel = 4, .padding = 2}, {.kernel = 4, .padding = 2}},
    {2, 5, 6, 3, {.kernel = 1}, {.kernel = 4, .stride = 2, .padding = 1}},
    {2, 6, 5, 2, {.kernel = 3, .stride = 2, .padding = 1}, {.kernel = 2, .stride = 3, .padding = 3}},
    {2, 7, 6, 2, {.kernel = 3, .padding = 2, .dilation = 2}, {.kernel = 2, .padding = 1, .dilation = 3}},
    {1, 9, 8, 3, {.kernel = 3, .stride = 2, .dilation = 3}, {.kernel = 3, .stride = 2, .padding = 4, .dilation = 4}},
    {2, 5, 6, 4, {.kernel = 3, .padding = 1}, {.kernel = 2, .stride = 2, .padding = 1}, 2},
    {2, 6, 5, 3, {.kernel = 3, .stride = 2, .padding = 1}, {.kernel = 3, .padding = 2, .dilation = 2}, 3}};

/// Calls visit(element of the patches, element of the image, or -1 beyond the border) in the order of the patches.
template <class Visit>
void for_each_in_patches(const op::ConvGeometry& g, const Visit& visit) {
    const op::ConvAxis &v = g.vertical, &h = g.horizontal;
    const Index down = (v.kernel - 1) * v.dilation, across = (h.kernel - 1) * h.dilation;
    const Index channels = g.channels / g.groups;
    Index element = 0;
    for (Index group = 0; group < g.groups; ++group)
        for (Index n = 0; n < g.batch; ++n)
            for (Index top = -v.padding; top + down < g.height + v.padding; top += v.stride)
                for (Index left = -h.padding; left + across < g.width + h.padding; left += h.stride)
                    for (Index y = top; y <= top + down; y += v.dilation)
                        for (Index x = left; x <= left + across; x += h.dilation)
                            for (Index c = group * channels; c < (group + 1) * channels; ++c) {
                                const bool inside = y >= 0 && y < g.height && x >= 0 && x < g.width;
                                visit(element++, inside ? ((n * g.height + y) * g.width + x) * g.channels + c : -1);
                            }
}

inline void prove_op(Of<op::Im2Col>, Tally& tally) {
    for (const op::ConvGeometry& g : geometries) {
        Bench b;
        const TensorId in = b.tensor({g.batch, g.height, g.width, g.channels}, "fp16"),
                       out = b.tensor({g.groups * g.patches(), g.patch_size()}, "fp16");
        b.run(op::Im2Col{in, out, g}, {in});
        const Reals x = b.values(in);
        Reals want;
        for_each_in_patches(g,
                            [&](Index, Index pixel) { want.push_back(pixel < 0 ? Real(0) : reference::at(x, pixel)); });
        b.expect(tally, out, want, "im2col");
    }
}

/// Each pixel is a chain of FP32 sums over the patches that contain it.
inline void prove_op(Of<op::Col2Im>, Tally& tally) {
    for (const char* result : proved_formats)
        for (const op::ConvGeometry& g : geometries) {
            Bench b;
            const TensorId in = b.tensor({g.groups * g.patches(), g.patch_size()}, "fp32"),
                           out = b.tensor({g.batch, g.height, g.width, g.channels}, result);
            b.run(op::Col2Im{in, out, g}, {in});
            const Reals x = b.values(in);
            Reals want(b.values(out).size(), Real(0));
            for_each_in_patches(g, [&](Index element, Index pixel) {
                if (pixel < 0) return;
                Real& sum = want[static_cast<std::size_t>(pixel)];
                sum = Real(rounded("fp32", sum + reference::at(x, element)));
            });
            b.expect(tally, out, want, "col2im");
        }
}

inline void prove_op(Of<op::Pool>, Tally& tally) {
    for (const char* result : proved_formats)
        for (const op::PoolKind kind : {op::PoolKind::max, op::PoolKind::average})
            for (const std::int64_t size : {2, 3})
                for (const auto& [height, width, channels] : {std::array{7, 9, 3}, {5, 3, 70}}) {
                    Bench b;
                    const TensorId in = b.tensor({2, height, width, channels}, "fp16"),
                                   out = b.tensor({2, height / size, width / size, channels}, result);
                    b.run(op::Pool{kind, in, out, size}, {in});
                    const bool max = kind == op::PoolKind::max;
                    b.expect(tally, out, reference::pool(b.values(in), 2, height, width, channels, size, max),
                             "pool2d");
                }
}

/// The operand has few different values, so that windows have several largest pixels.
inline void prove_op(Of<op::PoolBackward>, Tally& tally) {
    constexpr Index batch = 2, height = 5, width = 7, channels = 70; // more than are taken at once
    for (const char* result : proved_formats)
        for (const op::PoolKind kind : {op::PoolKind::max, op::PoolKind::average})
            for (const Index size : {2, 3}) {
                const Index down = height / size, across = width / size;
                Bench b;
                const TensorId in = b.tensor({batch, height, width, channels}, "e2m1"),
                               grad = b.tensor({batch, down, across, channels}, "fp32"),
                               out = b.tensor({batch, height, width, channels}, result);
                b.run(op::PoolBackward{kind, in, grad, out, size}, {in, grad});
                const Reals x = b.values(in), g = b.values(grad);
                Reals want(x.size(), Real(0));
                for (Index i = 0; i < static_cast<Index>(g.size()); ++i) {
                    const Index c = i % channels, left = i / channels % across * size,
                                top = i / (channels * across) % down * size, n = i / (channels * across * down);
                    std::vector<std::size_t> window;
                    for (Index y = top; y < top + size; ++y)
                        for (Index z = left; z < left + size; ++z)
                            window.push_back(static_cast<std::size_t>(((n * height + y) * width + z) * channels + c));
                    const auto most = std::ranges::max_element(
                        window, {}, [&](std::size_t pixel) { return x[pixel]; }); // the first of several
                    for (const std::size_t pixel : window)
                        if (kind == op::PoolKind::average) want[pixel] = reference::at(g, i) / (size * size);
                        else if (pixel == *most) want[pixel] = reference::at(g, i);
                }
                b.expect(tally, out, want, "pool2d_backward");
            }
}

} // namespace amp::test
